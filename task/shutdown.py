"""Handles SIGTERM and SIGINT: child processes are stopped, results are written, and no files or
processes are left behind.

Kubernetes sends SIGTERM to an evicted pod, and SIGKILL some seconds later. GitHub sends SIGINT to a
canceled job. A signal stops every child process immediately. It also raises `Stopped` in the main
thread, except inside `shield`: code that delivers a change finishes by itself, because it no longer
waits or starts anything new (`check`).

The state is per process, just as signals are.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

from task.errors import Exit, Trouble, Troubled, UnreachableError, exit_of

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(BaseException):
    """A signal has arrived. Only the command line catches this exception."""


class StoppedError(UnreachableError):
    """A signal arrived before the work was finished."""


class _State:
    """The signal that this process has received, and how to react to it."""

    def __init__(self) -> None:
        self.number = 0  # the number of the signal that arrived
        self.shields = 0  # how many `shield` blocks the main thread is currently inside
        # callbacks that terminate child processes and cancel requests
        self.ends: set[Callable[[], None]] = set()
        # These are plain locks, because a signal handler may interrupt the
        # main thread anywhere, even while it is waiting. `threading.Event.set`
        # could then wait for a lock that the same thread holds.
        self.first = threading.Lock()  # acquired by the first signal; later signals have no effect
        self.gate = threading.Lock()  # released once a signal has arrived
        self.gate.acquire()


_STATE = _State()


def install() -> None:
    """Install the signal handlers. Must be called from the main thread.

    Blocked signals are delivered when `hear` is called.

    A signal that the parent process has set to be ignored remains ignored, as `nohup` expects.
    """
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)


def _on_signal(number: int, frame: FrameType | None) -> None:
    """Terminate child processes, cancel requests, and raise `Stopped`, unless the main thread is
    inside `shield` or is importing a module. Only the first signal has an effect.
    """
    is_first = _STATE.first.acquire(blocking=False)
    if not is_first:
        return
    _STATE.number = number
    _STATE.gate.release()  # wakes threads in `sleep`
    for end in tuple(_STATE.ends):
        end()
    # The import system calls back into Python (weakref callbacks of its locks), and exceptions in
    # those callbacks are printed and then ignored. During an import, `check` stops the program
    # instead, before anything new is started.
    is_importing = frame is not None and frame.f_code.co_filename.startswith("<frozen importlib")
    is_shielded = _STATE.shields > 0
    if not is_shielded and not is_importing:
        raise Stopped


def code() -> int:
    """Return the exit code for the signal, which is 128 plus its number, or 0 if no signal has
    arrived.
    """
    return 128 + _STATE.number if _STATE.number else 0


def code_of_run(troubles: Iterable[Trouble | Troubled], before: int = Exit.OK) -> int:
    """Return the run's exit code: the signal's exit code if a signal has arrived, or else the exit
    code for these troubles (`exit_of`). `before` is the exit code of the run without these
    troubles.
    """
    return code() or int(exit_of(troubles, before))


def check() -> None:
    """Raise `StoppedError` if a signal has arrived. Call this before starting anything new."""
    if _STATE.number:
        name = signal.Signals(_STATE.number).name
        raise StoppedError(
            f"stopped by {name}",
            hint="run it again: the next run detects what was already pushed",
        )


def sleep(seconds: float) -> None:
    """Sleep until the time is up or a signal arrives."""
    if _STATE.gate.acquire(timeout=max(seconds, 0)):
        _STATE.gate.release()


@contextmanager
def shield() -> Iterator[None]:
    """Prevent `Stopped` from being raised inside the block. It is only ever raised in the main
    thread.
    """
    count = 1 if threading.current_thread() is threading.main_thread() else 0
    _STATE.shields += count
    try:
        yield
    finally:
        _STATE.shields -= count


@contextmanager
def unheard() -> Iterator[None]:
    """Block signals in this thread until the end of the `with` block.

    Threads and processes started inside the block inherit this. Threads keep the signals blocked,
    because a signal delivered to a thread would not wake the main thread. Processes must call
    `hear`.
    """
    mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask_before)


def hear() -> None:
    """Unblock signals in this thread. Signals that arrived in the meantime are delivered now.

    A process that was started inside `unheard` also calls this.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def deaf() -> None:
    """Block all signals, because the program is about to exit."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


@contextmanager
def ending(end: Callable[[], None]) -> Iterator[None]:
    """Call `end` if a signal arrives inside the `with` block, or immediately if one has already
    arrived.
    """
    _STATE.ends.add(end)
    try:
        if _STATE.number:
            end()
        yield
    finally:
        _STATE.ends.discard(end)
