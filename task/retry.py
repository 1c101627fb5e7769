"""Retries calls, with pauses in between, until a call succeeds or its result is acceptable.

A signal ends every pause.

`send_once` is for a server that may make a change but fail to confirm it. It ensures that the
change lands only once, and that it is reported.
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
_PAUSES = (0.5, 2.0)  # seconds to wait before resending a change whose response was lost


def again(
    ask: Callable[[], T],
    pauses: Iterable[float],
    error: type[E],
    may_pass: Callable[[E], bool] = lambda _error: True,
    deadline: float = inf,
) -> T:
    """Call `ask` until it succeeds, and return its result.

    The call is repeated after an exception of class `error` for which `may_pass` returns True.
    `pauses` are the seconds before each repetition. Raises the last error if there are no more
    pauses, or if the next pause would extend past the deadline.
    """
    for pause in pauses:
        try:
            return ask()
        except error as problem:
            is_too_late = time.monotonic() + pause > deadline
            if is_too_late or not may_pass(problem):
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
    """Call `ask` until `good` accepts its result, and return that result. `answer` is checked
    first, so `ask` may never be called.

    `pauses` are the seconds before each call. Returns the last result if there are no more pauses,
    if the time is up, or if a signal has arrived.
    """
    for pause in pauses:
        remaining_seconds = deadline - time.monotonic()
        if good(answer) or remaining_seconds <= 0 or shutdown.code():
            break
        shutdown.sleep(min(pause, remaining_seconds))
        answer = ask()
    return answer


class NotDoneError(UnreachableError):
    """The server reports that it has not changed anything, and that a retry would not help."""


def send_once(send: Callable[[], T], landed: Callable[[], T], unknown: str) -> T:
    """Send a change to a server. Return the result of `send`, or of `landed` if the response was
    lost but the change has landed.

    `send` raises `UnreachableError` if the response was lost. Then `landed` looks for the change on
    the server. A falsy result means that the change is not there, and only then is it sent again.
    `unknown` completes the hint for the case that the server cannot be queried, such as "whether
    the push arrived". Raises the errors of `send`.
    """
    lost_response: UnreachableError | None = None  # from the latest attempt
    for pause in (*_PAUSES, 0.0):  # no pause after the last attempt
        try:
            return send()
        except NotDoneError:
            raise
        except (Outpaced, RepositoryError):
            # The conflict may be with our own first request,
            # if that was still in transit when we checked.
            if lost_response:
                result = _arrived_or_unknown(landed, unknown, lost_response)
                if result:
                    return result
            raise
        except UnreachableError as error:
            lost_response = error
            result = _arrived_or_unknown(landed, unknown, lost_response)
            if result:
                return result
            is_last = pause == 0.0
            if is_last or shutdown.code():
                raise
            shutdown.sleep(pause)
    raise AssertionError  # pragma: no cover - the last iteration returns or raises


def _arrived_or_unknown(landed: Callable[[], T], unknown: str, cause: UnreachableError) -> T:
    """Return the result of `landed`.

    If the server cannot be queried, raise an `UnreachableError` with the message of `cause`, and a
    hint that names what is `unknown`.
    """
    try:
        return landed()
    except TaskError:
        raise UnreachableError(
            cause.message,
            hint=f"it is unknown {unknown}; run it again: the next run detects what has landed",
            subject=cause.subject,
        ) from cause
