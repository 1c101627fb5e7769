"""Measures the peak memory of a process and its descendants."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Peak:
    """A process's peak memory in megabytes, measured fifty times a second: its `own`, and
    `together` with its descendants.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.own = 0.0
        self.together = 0.0

    def look(self) -> None:
        """Measure once."""
        family = [self.pid]
        for pid in family:
            family += _children(pid)
        sizes = {pid: _resident(pid) for pid in family}
        self.own, self.together = (
            max(self.own, sizes[self.pid]),
            max(self.together, sum(sizes.values())),
        )


@contextmanager
def peak(pid: int) -> Iterator[Peak]:
    """Measure a process for the duration of the block."""
    found, over = Peak(pid), threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            found.look()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        threads = Path(f"/proc/{pid}/task").iterdir()
        return [
            int(child) for thread in threads for child in (thread / "children").read_text().split()
        ]
    return []


def _resident(pid: int) -> float:
    with suppress(OSError):
        return (
            int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            * os.sysconf("SC_PAGE_SIZE")
            / 1e6
        )
    return 0.0
