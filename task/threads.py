"""Starts threads, and creates values once for all of them.

Threads never keep the process alive, and leave signals to the main thread. A signal must end the
process within two seconds, even if a server does not respond. An executor joins its threads at
exit, so these are daemon threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Lock, RLock, Thread
from typing import TypeVar

from task import shutdown

# seconds for threads after a signal: git gets SIGKILL after 0.8 s, and then its files are removed
_TIDYING = 1.2
T = TypeVar("T")
R = TypeVar("R")


def start(work: Callable[[], object]) -> None:
    """Run `work` in a new thread."""
    with shutdown.unheard():
        Thread(target=work, daemon=True).start()


def in_threads(work: Callable[[T], R], items: Sequence[T], at_once: int) -> list[R]:
    """Call `work` with each item, in at most `at_once` threads, and return the results in the order
    of the items.

    If calls fail, the others are still made, and then the error for the first such item is raised.
    If a signal interrupts the wait (`Stopped`), no more calls are started, and the running ones
    have a moment to clean up.
    """
    if len(items) < 2:  # no threads needed
        return list(map(work, items))
    # by the index of the item
    results: dict[int, R] = {}
    errors: dict[int, BaseException] = {}
    numbered_items = list(enumerate(items))  # the items that no thread has taken yet
    numbered_items.reverse()  # items are taken from the end, so the first one is taken first
    lock = Lock()

    def worker() -> None:
        """Take items until there are none left."""
        while True:
            with lock:  # so that no other thread takes the last item between these lines
                if not numbered_items:
                    return
                number, item = numbered_items.pop()
            try:
                results[number] = work(item)
            except BaseException as error:  # noqa: BLE001 - it is raised below
                errors[number] = error

    count = min(at_once, len(items))
    threads = [Thread(target=worker, daemon=True) for _ in range(count)]
    try:
        with shutdown.unheard():
            for thread in threads:
                thread.start()
        for thread in threads:
            thread.join()
    except shutdown.Stopped:
        with shutdown.shield():
            numbered_items.clear()  # so that no thread takes another item
            end = time.monotonic() + _TIDYING
            for thread in threads:
                thread.join(max(0.0, end - time.monotonic()))
        raise

    if errors:
        raise errors[min(errors)]
    return [results[number] for number in range(len(items))]


def once(make: Callable[[], T]) -> Callable[[], T]:
    """Return a function that calls `make` only once, in the first thread that needs the value, and
    keeps the value.

    `functools.cache` alone would allow two threads to create the value at the same time: two
    clients that each log in. Each value has its own lock, because creating a value may have to wait
    for a server.
    """
    lock = RLock()
    kept_value: list[T] = []  # empty until the value has been created

    def value() -> T:
        if not kept_value:
            with lock:
                if not kept_value:  # another thread may have created it in the meantime
                    kept_value.append(make())
        return kept_value[0]

    return value
