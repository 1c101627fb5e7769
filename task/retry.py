"""Repeats calls, with pauses between them, until they succeed or their answer is good. A signal ends every pause."""

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
    """The answer of `ask`, which is called again after an error that may pass.

    There is one pause before each repetition, and none that would end after the deadline.
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
    """The first good answer of `ask`, beginning with `answer`.

    Else it is the last one, when the pauses are used up, the time is over, or a signal has come.
    """
    for pause in pauses:
        left = deadline - time.monotonic()
        if good(answer) or left <= 0 or shutdown.code():
            break
        shutdown.sleep(min(pause, left))
        answer = ask()
    return answer
