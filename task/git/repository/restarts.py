"""Starts over with an empty repository, because the server gives no single objects, or a cache is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from task.git.repository.objects import MissingObjectError
from task.git.repository.remote import Remote, StartAgain

T = TypeVar("T")
# The server refuses single objects; the cache lacks some of them; without the cache, the server refuses again.
_MOST = 3


def restarted(remote: Remote, work: Callable[[], T], forget: Callable[[], None] = lambda: None) -> T:
    """Return the result of `work`, which is called again each time that the remote has to start over.

    `forget` is called before that: what was fetched is gone.
    """
    for _ in range(_MOST):
        try:
            try:
                return work()
            except MissingObjectError:
                remote.without_cache()
                raise
        except StartAgain:
            forget()
    return work()
