"""Repeats calls, with pauses between them, until one succeeds or its answer is good. A signal ends every pause."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from math import inf
from typing import TypeVar

from task import shutdown

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


def again(
    ask: Callable[[], T],
    pauses: Iterable[float],
    error: type[E],
    may_pass: Callable[[E], bool] = lambda _error: True,
    deadline: float = inf,
) -> T:
    """Call `ask`, again after each error that may pass, and return its result. Raises the last error.

    `pauses` are the seconds before each repetition. A pause that would end after the deadline is not begun.
    """
    for pause in pauses:
        try:
            return ask()
        except error as failed:
            if time.monotonic() + pause > deadline or not may_pass(failed):
                raise
        shutdown.sleep(pause)
    return ask()


def until(
    good: Callable[[T], bool], answer: T, ask: Callable[[], T], pauses: Iterable[float], deadline: float = inf
) -> T:
    """Call `ask` until its answer is good, and return this answer. The first one to check is `answer`.

    Returns the last answer if the pauses are used up, the time is over, or a signal has come.
    """
    for pause in pauses:
        left = deadline - time.monotonic()
        if good(answer) or left <= 0 or shutdown.code():
            break
        shutdown.sleep(min(pause, left))
        answer = ask()
    return answer
