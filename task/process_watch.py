"""Watches a git command and reads what it prints: one that stalls, sends too much or takes too long is ended."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from task.process_bounds import Bounds

_PATIENCE = 0.8  # seconds from SIGTERM to SIGKILL
_LOOKS = 8  # in the time after which a transfer counts as stalled
_SLICE = 0.2  # seconds; within this time a signal is obeyed that another thread received
_NAP = 0.02  # seconds, where the system has no handles of processes
_PIECE = 1 << 16  # bytes, as many as a pipe holds


class CapturedOutput:
    """One stream of a command, read as it comes; `most`: how many bytes at its end are kept (0: all)."""

    def __init__(self, most: int = 0) -> None:
        self.source, sink = os.pipe()
        os.set_blocking(self.source, False)
        self.sink = open(sink, "wb", buffering=0)  # noqa: SIM115 - `close` closes it
        self.count = 0  # bytes that came
        self._most = most
        self._kept = bytearray()

    def take(self, *, keep: bool = True) -> bool:
        """Read what is there; false when nothing more will come."""
        try:
            piece = os.read(self.source, _PIECE)
        except BlockingIOError:
            return True
        self.count += len(piece)
        if keep:
            self._kept += piece
            if 0 < 2 * self._most < len(self._kept):
                del self._kept[: -self._most]
        return bool(piece)

    def text(self) -> bytes:
        """What was kept. If that is the end only, it begins with a whole line: half a URL might show half a login."""
        kept = bytes(self._kept[-self._most :])
        return kept if len(kept) == self.count else kept.partition(b"\n")[2] or kept

    def close(self) -> None:
        """Both ends."""
        self.sink.close()
        os.close(self.source)


class Watch:
    """Ends a command after `limits`: so many seconds, why it is ended then; so many without a byte (0: any time).

    `outputs` are read meanwhile; they, and the packs in the folder `git_dir`, keep within `bounds`.
    Needs no thread: the caller, who waits for the command anyway, watches it.
    """

    def __init__(
        self,
        running: Any,
        limits: tuple[float, str, float],
        outputs: Sequence[CapturedOutput] = (),
        bounds: Bounds = Bounds(),
        git_dir: str = "",
    ) -> None:
        self.why = ""  # why it was ended
        self._running = running
        self._timeout, self._late, self._stall = limits
        self._outputs = outputs
        self._bounds = bounds
        self._git_dir = git_dir
        self._before = weight(git_dir) if git_dir else 0
        self._told = 0.0  # when it got SIGTERM
        self._moved: int | None = None
        self._moved_at = self._looked = self._weighed = self._began = time.monotonic()

    def end(self) -> None:
        """End it now. A signal handler may call this."""
        self._told = self._told or time.monotonic()
        send(self._running, "SIGTERM")

    def wait(self) -> None:
        """Return when it has ended, by itself or because it had to. Its exit code is left for `running.wait()`."""
        handle: int | None = None  # to poll for the end of the process, where the system has such a thing
        with suppress(AttributeError, OSError):
            handle = os.pidfd_open(self._running.pid)
        poll, slice_ = select.poll(), min(_SLICE if handle is not None else 0.001, self._timeout)
        if handle is not None:
            poll.register(handle, select.POLLIN)
        for output in self._outputs:
            poll.register(output.source, select.POLLIN)
        try:
            while True:
                ready = {number for number, _ in poll.poll(slice_ * 1000)}
                for output in self._outputs:
                    if output.source in ready and not output.take(keep=not self.why):
                        poll.unregister(output.source)
                if handle in ready or (handle is None and not self._running.is_alive()):
                    break
                self._look(time.monotonic())
                slice_ = _SLICE if handle is not None else min(2 * slice_, _NAP)
        finally:
            if handle is not None:
                os.close(handle)
        self._rest()

    def _rest(self) -> None:
        """What the command has left behind. Children of it may still have the pipe, so its end is not waited for."""
        for output in self._outputs:
            before = -1
            while before < output.count <= self._bounds.messages:
                before = output.count
                output.take(keep=not self.why)
        self.why = self.why or self._too_much(time.monotonic())

    def _look(self, now: float) -> None:
        if self._told:
            if now - self._told >= _PATIENCE:
                send(self._running, "SIGKILL")
            return
        if self._stall and now - self._looked >= self._stall / _LOOKS:
            before, self._moved, self._looked = self._moved, bytes_moved(self._running.pid), now
            if self._moved is None or self._moved != before:
                self._moved_at = now
        if now - self._began >= self._timeout:
            self.why = self._late
        elif now - self._moved_at >= self._stall > 0:
            self.why = f"stalled: no byte came or went for {self._stall:g} seconds"
        else:
            self.why = self._too_much(now)
        if self.why:
            self.end()

    def _too_much(self, now: float) -> str:
        """What of its bounds the command has passed; at work it is weighed once a second."""
        if sum(output.count for output in self._outputs) > self._bounds.messages:
            return self._bounds.too_many_messages
        if self._git_dir and now - self._weighed >= 1:
            self._weighed = now
            packs = weight(self._git_dir)
            if packs > self._bounds.pack:
                return self._bounds.too_much_pack
            # Before the pack begins git collects all refs, and prints none. Each byte counts twice: written, and read.
            if packs == self._before and (bytes_moved(self._running.pid) or 0) > 2 * self._bounds.messages:
                return self._bounds.too_many_messages
        return ""


def weight(git_dir: str) -> int:
    """Bytes of the packs in a repository, also of one that is just coming."""
    total = 0
    with suppress(OSError):
        for entry in os.scandir(f"{git_dir}/objects/pack"):
            with suppress(OSError):
                total += entry.stat().st_size
    return total


def finish(running: Any) -> None:
    """End a command that is no longer needed: by SIGTERM, and a moment later by SIGKILL."""
    watch = Watch(running, (_PATIENCE, "", 0))
    watch.end()
    watch.wait()


def send(running: Any, name: str) -> None:
    """Send a signal to a command and all its children."""
    with suppress(ProcessLookupError, PermissionError):  # it may have ended already
        os.killpg(running.pid, getattr(signal, name))


def bytes_moved(session: int) -> int | None:
    """What the processes of a session have read and written so far; None if the system does not say.

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
