"""Runs work in a thread while the caller does something else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from task import shutdown

T = TypeVar("T")


def in_background(work: Callable[[], T]) -> Future[T]:
    """Start `work` in a thread of its own. `result()` of what is returned waits for it, and raises what it raised.

    The interpreter does not wait for the thread when it ends, as it would for that of a `ThreadPoolExecutor`: after
    SIGTERM there are two seconds.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is wanted
            future.set_exception(error)

    with shutdown.unheard():  # only the main thread handles signals
        threading.Thread(target=run, daemon=True).start()
    return future
