"""Watches a git command and reads its output. Stops a command that stalls, sends too much or takes too long."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from task.processes.bounds import Bounds

_PATIENCE = 0.8  # seconds from SIGTERM to SIGKILL
_LOOKS = 8  # how often the transfer is checked before it counts as stalled
_SLICE = 0.2  # seconds; a signal that another thread receives takes effect within this time
_NAP = 0.02  # seconds between two checks, if the system has no process handles
_PIECE = 1 << 16  # bytes; a pipe holds this many


class CapturedOutput:
    """One output stream of a command. It keeps the last `most` bytes, or everything if that is 0."""

    def __init__(self, most: int = 0) -> None:
        self.source, sink = os.pipe()
        os.set_blocking(self.source, False)
        self.sink = open(sink, "wb", buffering=0)  # noqa: SIM115 - `close` closes it
        self.count = 0  # bytes read so far
        self._most = most
        self._kept = bytearray()

    def take(self, *, keep: bool = True) -> bool:
        """Read what has arrived so far, and return False at the end of the stream."""
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
        """Return the kept bytes.

        If the beginning is missing, start with a whole line: half a URL may show a password.
        """
        kept = bytes(self._kept[-self._most :])
        return kept if len(kept) == self.count else kept.partition(b"\n")[2] or kept

    def close(self) -> None:
        """Close both ends of the pipe."""
        self.sink.close()
        os.close(self.source)


class Watch:
    """Watches one command, and stops it when it exceeds a limit.

    `limits` are: the seconds that it may take, the reason to give when they are over, and the seconds that it may be
    silent (0 is no limit). Its `outputs` are read. They and the packs in the folder `git_dir` must stay within
    `bounds`. `stop` gets the text of the last output, and returns a reason to stop the command, or "". This needs no
    thread, because the caller waits anyway.
    """

    def __init__(
        self,
        running: Any,
        limits: tuple[float, str, float],
        outputs: Sequence[CapturedOutput] = (),
        bounds: Bounds = Bounds(),
        git_dir: str = "",
        stop: Callable[[str], str] | None = None,
    ) -> None:
        self.why = ""  # the reason why the command was stopped; "" if it ended by itself
        self._running = running
        self._timeout, self._late, self._stall = limits
        self._outputs = outputs
        self._bounds = bounds
        self._git_dir = git_dir
        self._stop = stop
        self._before = weight(git_dir) if git_dir else 0
        self._terminated = 0.0  # when it got SIGTERM
        self._moved: int | None = None
        self._moved_at = self._looked = self._weighed = self._began = time.monotonic()

    def end(self) -> None:
        """Stop the command now. A signal handler may call this."""
        self._terminated = self._terminated or time.monotonic()
        send(self._running, "SIGTERM")

    def wait(self) -> None:
        """Wait until the command has ended. Its exit code is left for `running.wait()`."""
        handle: int | None = None  # a pidfd, which can be polled: since Linux 5.3, not on macOS
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
        """Read the rest of the output. Do not wait for the stream's end, because a child may still hold the pipe."""
        for output in self._outputs:
            before = -1
            while before < output.count <= self._bounds.messages:
                before = output.count
                output.take(keep=not self.why)
        self.why = self.why or self._too_much(time.monotonic())

    def _look(self, now: float) -> None:
        if self._terminated:
            if now - self._terminated >= _PATIENCE:
                send(self._running, "SIGKILL")
            return
        if self._stall and now - self._looked >= self._stall / _LOOKS:
            before, self._moved, self._looked = self._moved, bytes_moved(self._running.pid), now
            if self._moved is None or self._moved != before:
                self._moved_at = now
        if now - self._began >= self._timeout:
            self.why = self._late
        elif now - self._moved_at >= self._stall > 0:
            self.why = f"stalled: no data was sent or received for {self._stall:g} seconds"
        else:
            self.why = self._too_much(now)
            if self._stop and not self.why:
                self.why = self._stop(self._outputs[-1].text().decode("utf-8", "replace"))
        if self.why:
            self.end()

    def _too_much(self, now: float) -> str:
        """Return which bound the command has exceeded, or "". While it runs, weigh the packs once a second."""
        if sum(output.count for output in self._outputs) > self._bounds.messages:
            return self._bounds.too_many_messages
        if self._git_dir and now - self._weighed >= 1:
            self._weighed = now
            packs = weight(self._git_dir)
            if packs > self._bounds.pack:
                return self._bounds.too_much_pack
            # Before the pack begins, git collects all refs and prints none. Each byte counts twice: written and read.
            if packs == self._before and (bytes_moved(self._running.pid) or 0) > 2 * self._bounds.messages:
                return self._bounds.too_many_messages
        return ""


def weight(git_dir: str) -> int:
    """Return the size in bytes of the packs in a repository, including one that is still being received."""
    total = 0
    with suppress(OSError):
        for entry in os.scandir(f"{git_dir}/objects/pack"):
            with suppress(OSError):
                total += entry.stat().st_size
    return total


def finish(running: Any) -> None:
    """Stop a command that is no longer needed, by SIGTERM and a moment later by SIGKILL."""
    watch = Watch(running, (_PATIENCE, "", 0))
    watch.end()
    watch.wait()


def send(running: Any, name: str) -> None:
    """Send a signal, such as "SIGTERM", to a command and all its children."""
    with suppress(ProcessLookupError, PermissionError):  # it may have ended already
        os.killpg(running.pid, getattr(signal, name))


def bytes_moved(session: int) -> int | None:
    """Return how many bytes the processes of a session have read and written, or None if the system does not say.

    ssh is left out, because its keep-alives move bytes on a connection that carries nothing.
    """
    total, known = 0, False
    with suppress(OSError):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError, ValueError, IndexError):
                name, _, rest = _read(f"/proc/{pid}/stat").rpartition(")")
                if int(rest.split()[3]) != session or name.endswith("(ssh"):
                    continue
                read, written = _read(f"/proc/{pid}/io").split("\n")[:2]
                total, known = total + int(read.split()[1]) + int(written.split()[1]), True
    return total if known else None


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
