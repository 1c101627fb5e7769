"""Makes a value when it is needed for the first time.

`functools.cache` alone would let two threads make the value at the same time: two clients with two logins.
"""

from collections.abc import Callable
from functools import cache
from threading import RLock
from typing import TypeVar

T = TypeVar("T")
_LOCK = RLock()


def once(make: Callable[[], T]) -> Callable[[], T]:
    """Return a function that calls `make` only once, in the first thread that needs the value, and keeps the value."""
    made = cache(make)

    def value() -> T:
        with _LOCK:
            return made()

    return value
