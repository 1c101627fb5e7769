"""Watches a git command: a transfer that has stalled is ended, however long a healthy one takes."""

from __future__ import annotations

import os
import threading
import time
from _thread import allocate_lock
from contextlib import suppress
from typing import Any

_PATIENCE = 0.8  # seconds from SIGTERM to SIGKILL
_LOOKS = 8  # in the time after which a transfer counts as stalled


class Watch(threading.Thread):
    """Ends a command that takes longer than `timeout`, or that has moved no byte for `stall` seconds (0: any time)."""

    def __init__(self, running: Any, timeout: float, stall: float) -> None:
        super().__init__(daemon=True)
        self.why = ""  # it was ended for
        self._running = running
        self._timeout = timeout
        self._stall = stall
        self._done = False
        self._gate = allocate_lock()  # open when there is something to do; no lock that a signal handler could wait for
        self._gate.acquire()

    def end(self) -> None:
        """End it now. A signal handler may call this."""
        send(self._running, "SIGTERM")
        self._open()

    def over(self) -> None:
        """It has ended."""
        self._done = True
        self._open()
        self.join()

    def _open(self) -> None:
        with suppress(RuntimeError):  # it is open
            self._gate.release()

    def run(self) -> None:
        """Look at it now and then, until it has ended or has to."""
        began = moved_at = time.monotonic()
        moved: int | None = None
        while not self._gate.acquire(timeout=self._stall / _LOOKS if self._stall else self._timeout):
            now, before = time.monotonic(), moved
            moved = bytes_moved(self._running.pid) if self._stall else None
            moved_at = now if moved is None or moved != before else moved_at
            if now - began >= self._timeout:
                self.why = f"timed out after {self._timeout:.0f} seconds"
            elif now - moved_at >= self._stall > 0:
                self.why = f"stalled: no byte came or went for {self._stall:g} seconds"
            if self.why:
                send(self._running, "SIGTERM")
                break
        self._insist()

    def _insist(self) -> None:
        """Whoever does not end by SIGTERM."""
        if not self._done and not (self._gate.acquire(timeout=_PATIENCE) and self._done):
            send(self._running, "SIGKILL")


def send(running: Any, name: str) -> None:
    """Send a signal to a command and all its children."""
    import signal

    with suppress(ProcessLookupError, PermissionError):  # it may have ended already
        os.killpg(running.pid, signal.Signals[name])


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
