"""Runs work in several threads that never keep the process alive.

A signal must end the process within two seconds, even if a registry does not answer. An executor joins its threads at
exit, so these are daemon threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from task import shutdown


def each(work: Sequence[Callable[[], None]], at_once: int) -> None:
    """Do all the work, `at_once` pieces at a time. After all have ended, raise the first exception."""
    if len(work) <= 1 or at_once <= 1:
        for piece in work:
            piece()
        return
    todo, failed = iter(work), SimpleQueue[BaseException]()
    lock, done = threading.Lock(), SimpleQueue[None]()

    def worker() -> None:
        while True:
            with lock:
                piece = next(todo, None)
            if piece is None or shutdown.code():
                break
            try:
                piece()
            except BaseException as error:  # noqa: BLE001 - it is raised below
                failed.put(error)
        done.put(None)

    count = min(at_once, len(work))
    with shutdown.unheard():
        for _ in range(count):
            threading.Thread(target=worker, daemon=True).start()
    for _ in range(count):
        done.get()
    shutdown.check()
    if not failed.empty():
        raise failed.get()
