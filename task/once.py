"""A value that is made when it is first asked for, by whichever thread asks first; the others wait for it."""

from collections.abc import Callable
from functools import cache
from threading import RLock
from typing import TypeVar

T = TypeVar("T")
_LOCK = RLock()


def once(make: Callable[[], T]) -> Callable[[], T]:
    """A function that calls `make` the first time and returns the same value ever after."""
    made = cache(make)

    def value() -> T:
        with _LOCK:
            return made()

    return value
