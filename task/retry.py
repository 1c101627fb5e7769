"""Repeats calls, with pauses between them, until one succeeds or its answer is good.

A signal ends every pause.

`send_once` is for a server that may carry out a change and then fail to say so: the change lands
once, and is reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from math import inf
from typing import TypeVar

from task import shutdown
from task.errors import Outpaced, RepositoryError, TaskError, UnreachableError

T = TypeVar("T")
E = TypeVar("E", bound=Exception)
_PAUSES = (0.5, 2.0)  # seconds before a change whose answer was lost is sent again


def again(
    ask: Callable[[], T],
    pauses: Iterable[float],
    error: type[E],
    may_pass: Callable[[E], bool] = lambda _error: True,
    deadline: float = inf,
) -> T:
    """Call `ask`, again after each error that may pass, and return its result.

    Raises the last error.

    `pauses` are the seconds before each repetition. A pause that would end after the deadline is
    not begun.
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
    good: Callable[[T], bool],
    answer: T,
    ask: Callable[[], T],
    pauses: Iterable[float],
    deadline: float = inf,
) -> T:
    """Call `ask` until its answer is good, and return this answer.

    The first one to check is `answer`.

    Returns the last answer if the pauses are used up, the time is over, or a signal has come.
    """
    for pause in pauses:
        left = deadline - time.monotonic()
        if good(answer) or left <= 0 or shutdown.code():
            break
        shutdown.sleep(min(pause, left))
        answer = ask()
    return answer


class NotDoneError(UnreachableError):
    """The server says that it has done nothing, and that another attempt would not help."""


def send_once(send: Callable[[], T], landed: Callable[[], T], unknown: str) -> T:
    """Return what `send` returns.

    If its answer was lost, look for the change, and send again only if it is not there.

    `send` raises an `UnreachableError` if the answer was lost. What `landed` returns is true if the
    change is there. `unknown` is the question that stays open if the server cannot be asked, such
    as "whether the push arrived". Raises what `send` raises.
    """
    lost: UnreachableError | None = None
    for pause in (*_PAUSES, 0.0):
        try:
            return send()
        except NotDoneError:
            raise
        except (Outpaced, RepositoryError):
            # What was in the way may be our own first request, which was still on its way when we
            # looked.
            if lost and (found := _arrived_or_unknown(landed, unknown, lost)):
                return found
            raise
        except UnreachableError as error:
            lost = error
            if found := _arrived_or_unknown(landed, unknown, lost):
                return found
            if not pause or shutdown.code():
                raise
            shutdown.sleep(pause)
    raise AssertionError  # pragma: no cover - the last turn returns or raises


def _arrived_or_unknown(landed: Callable[[], T], unknown: str, cause: UnreachableError) -> T:
    try:
        return landed()
    except TaskError:
        hint = f"{unknown} is unknown; run it again: the next run detects what has landed"
        raise UnreachableError(cause.message, hint=hint, subject=cause.subject) from cause
