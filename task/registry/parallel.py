"""Work done by several threads that never keep the process alive: a signal ends it while a registry is still silent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from task import shutdown


def each(work: Sequence[Callable[[], None]], at_once: int) -> None:
    """Do all of it, `at_once` at the same time; the first exception is raised when all has been done."""
    if len(work) <= 1 or at_once <= 1:
        for one in work:
            one()
        return
    todo, failed = iter(work), SimpleQueue[BaseException]()
    lock, done = threading.Lock(), SimpleQueue[None]()

    def worker() -> None:
        while True:
            with lock:
                one = next(todo, None)
            if one is None or shutdown.code():
                break
            try:
                one()
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
