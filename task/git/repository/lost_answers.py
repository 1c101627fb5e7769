"""Sends a change to a server that may carry it out and then fail to say so. The change lands once, and is reported."""

from __future__ import annotations

from collections.abc import Callable

from task import shutdown
from task.errors import Outpaced, RepositoryError, TaskError, UnreachableError

_PAUSES = (0.5, 2.0)  # seconds before a change whose answer was lost is sent again


class NotDoneError(UnreachableError):
    """The server says that it has done nothing, and that another attempt would not help."""


def land_once(send: Callable[[], str], landed: Callable[[], str], unknown: str) -> str:
    """Return the commit that `send` made. If its answer was lost, look for it, and send again only if it is not there.

    `send` raises an `UnreachableError` if the answer was lost. `landed` returns the commit if it is there, or "".
    `unknown` is the question that stays open if the server cannot be asked, such as "whether the push arrived".
    Raises what `send` raises.
    """
    lost: UnreachableError | None = None
    for pause in (*_PAUSES, 0.0):
        try:
            return send()
        except NotDoneError:
            raise
        except (Outpaced, RepositoryError):
            # What was in the way may be our own first request, which was still on its way when we looked.
            if lost and (commit := _looked(landed, unknown, lost)):
                return commit
            raise
        except UnreachableError as error:
            lost = error
            if commit := _looked(landed, unknown, lost):
                return commit
            if not pause or shutdown.code():
                raise
            shutdown.sleep(pause)
    raise AssertionError  # pragma: no cover - the last turn returns or raises


def _looked(landed: Callable[[], str], unknown: str, cause: UnreachableError) -> str:
    try:
        return landed()
    except TaskError:
        hint = f"{unknown} is not known; run it again: it finds what has landed"
        raise UnreachableError(cause.message, hint=hint, subject=cause.subject) from cause
