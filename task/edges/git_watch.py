"""Watches a git command: a transfer that has stalled is ended, however long a healthy one takes."""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress
from typing import Any

_PATIENCE = 0.8  # seconds from SIGTERM to SIGKILL
_LOOKS = 8  # in the time after which a transfer counts as stalled
_SLICE = 0.2  # seconds; a signal that another thread was told of is obeyed within this time


class Watch:
    """Ends a command that takes longer than `timeout`, or that has moved no byte for `stall` seconds (0: any time).

    Needs no thread: whoever waits for the command watches it.
    """

    def __init__(self, running: Any, timeout: float, stall: float) -> None:
        self.why = ""  # it was ended for
        self._running = running
        self._timeout = timeout
        self._stall = stall
        self._told = 0.0  # when it was told to end
        self._moved: int | None = None
        self._moved_at = self._looked = self._began = time.monotonic()

    def end(self) -> None:
        """End it now. A signal handler may call this."""
        self._told = self._told or time.monotonic()
        send(self._running, "SIGTERM")

    def wait(self) -> None:
        """Return when it has ended, by itself or because it had to."""
        if self._ended_by(min(_SLICE, self._timeout)):
            return
        while not self._ended_by(_SLICE):
            self._look(time.monotonic())

    def _look(self, now: float) -> None:
        if self._told:
            if now - self._told >= _PATIENCE:
                send(self._running, "SIGKILL")
            return
        if self._stall and now - self._looked >= self._stall / _LOOKS:
            self._count(now)
        if now - self._began >= self._timeout:
            self.why = f"timed out after {self._timeout:.0f} seconds"
        elif now - self._moved_at >= self._stall > 0:
            self.why = f"stalled: no byte came or went for {self._stall:g} seconds"
        if self.why:
            self.end()

    def _count(self, now: float) -> None:
        before, self._moved, self._looked = self._moved, bytes_moved(self._running.pid), now
        if self._moved is None or self._moved != before:
            self._moved_at = now

    def _ended_by(self, seconds: float) -> bool:
        """Whether it has ended, or does within these seconds. It is left for `running.wait()` to take its exit code."""
        try:
            handle = os.pidfd_open(self._running.pid)
        except (AttributeError, OSError):
            return self._ended_slowly(seconds)
        try:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            return bool(poll.poll(seconds * 1000))
        finally:
            os.close(handle)

    def _ended_slowly(self, seconds: float) -> bool:
        """The same, where the system has no handles of processes."""
        end, nap = time.monotonic() + seconds, 0.001
        while self._running.is_alive():
            if time.monotonic() >= end:
                return False
            time.sleep(nap)
            nap = min(2 * nap, 0.02)
        return True


def finish(running: Any) -> None:
    """Bring about the end of a command that is no longer of use; by force, after a moment."""
    watch = Watch(running, _PATIENCE, 0)
    watch.end()
    watch.wait()


def send(running: Any, name: str) -> None:
    """Send a signal to a command and all its children."""
    import signal

    with suppress(ProcessLookupError, PermissionError):  # it may have ended already
        os.killpg(running.pid, getattr(signal, name))


def bytes_moved(session: int) -> int | None:
    """What the processes of a session have read and written so far; None where the system does not tell.

    ssh is left out: it keeps a connection alive that carries nothing. git moves bytes only when they were sent.
    """
    total, told = 0, False
    with suppress(OSError):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError, ValueError, IndexError):
                name, _, rest = _read(f"/proc/{pid}/stat").rpartition(")")
                if int(rest.split()[3]) != session or name.endswith("(ssh"):
                    continue
                read, written = _read(f"/proc/{pid}/io").split("\n")[:2]
                total, told = total + int(read.split()[1]) + int(written.split()[1]), True
    return total if told else None


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
