"""Starts threads, and creates values that all threads share.

Threads never keep the process alive, and leave signals to the main thread. A signal must end the
process within two seconds, even if a server does not respond. An executor would join its threads at
exit, so daemon threads are used instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Lock, RLock, Thread
from typing import TypeVar

from task import shutdown

# seconds that threads have after a signal: git receives
# SIGKILL after 0.8 s, and then its files are removed
_TIDYING = 1.2
T = TypeVar("T")
R = TypeVar("R")


def start(work: Callable[[], object]) -> None:
    """Run `work` in a new thread."""
    with shutdown.unheard():
        Thread(target=work, daemon=True).start()


def in_threads(work: Callable[[T], R], items: Sequence[T], at_once: int) -> list[R]:
    """Call `work` for each item, in at most `at_once` threads, and return the results in the order
    of the items.

    If a call fails, the other calls are still made. Then the error for the first such item is
    raised. If a signal interrupts the wait (`Stopped`), no more calls are started, and the running
    ones have a moment to clean up.
    """
    if len(items) < 2:  # no threads needed
        return list(map(work, items))
    # results by the index of the item
    results: dict[int, R] = {}
    errors: dict[int, BaseException] = {}
    # the items that no thread has taken yet, with their indices
    numbered_items = list(enumerate(items))
    numbered_items.reverse()  # reversed, because threads take items from the end
    lock = Lock()

    def worker() -> None:
        """Process items until there are none left."""
        while True:
            # the lock prevents another thread from taking the last item between these two lines
            with lock:
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
    then keeps the value.

    `functools.cache` alone would allow two threads to create the value at the same time: for
    example, two clients that each log in. Each value has its own lock, because creating a value may
    involve waiting for a server.
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
