"""Makes a value when it is first asked for.

`functools.cache` alone would let two threads make the value at the same time: two clients with two logins.
"""

from collections.abc import Callable
from functools import cache
from threading import RLock
from typing import TypeVar

T = TypeVar("T")
_LOCK = RLock()


def once(make: Callable[[], T]) -> Callable[[], T]:
    """A function that calls `make` once, in the first thread that asks, and returns that value to every thread."""
    made = cache(make)

    def value() -> T:
        with _LOCK:
            return made()

    return value
