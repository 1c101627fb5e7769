"""SIGTERM and SIGINT: what was started is ended, what was begun is reported, nothing is left behind.

Kubernetes sends SIGTERM to a pod that is evicted, and SIGKILL some seconds later; GitHub sends SIGINT to a job that is
cancelled. A signal ends every child at once. The main thread is stopped by `Stopped`, unless it is within `shield`:
what delivers a change ends by itself, since every wait of it is over and nothing new is started (`check`).

The state belongs to the process, as signals do.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from task.errors import UnreachableError

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(BaseException):
    """A signal came. Only the command line catches it."""


class StoppedError(UnreachableError):
    """A signal came before what was asked for could be finished."""


class _State:
    """What one process knows of its end."""

    def __init__(self) -> None:
        self.number = 0  # the signal that came
        self.shields = 0  # around the main thread's work
        self.ends: set[Callable[[], None]] = set()  # they end what has been started
        # Plain locks: a signal handler may interrupt the main thread anywhere, also within a wait, where
        # `threading.Event.set` would wait for a lock that the very same thread holds.
        self.first = threading.Lock()  # taken by the first signal; later ones change nothing
        self.gate = threading.Lock()  # released once a signal has come
        self.gate.acquire()


_STATE = _State()


def install() -> None:
    """Be ready for signals, in the main thread; signals that are blocked come with `hear`.

    A signal that the parent process has switched off stays so.
    """
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _come)


def _come(number: int, frame: FrameType | None) -> None:
    if not _STATE.first.acquire(blocking=False):
        return
    _STATE.number = number
    _STATE.gate.release()
    for end in tuple(_STATE.ends):
        end()
    # An import calls back into Python, which prints what such a callback raises and then forgets it: there `check`
    # stops the program instead, before anything new is started.
    importing = frame is not None and frame.f_code.co_filename.startswith("<frozen importlib")
    if not _STATE.shields and not importing:
        raise Stopped


def code() -> int:
    """The exit code that the signal asks for; 0 while there was none."""
    return 128 + _STATE.number if _STATE.number else 0


def check() -> None:
    """Raise `StoppedError` once a signal has come. To be called before anything new is started."""
    if _STATE.number:
        name = signal.Signals(_STATE.number).name
        raise StoppedError(f"stopped by {name}", hint="run it again: what has landed will be found")


def sleep(seconds: float) -> None:
    """Sleep. A signal ends it early."""
    if _STATE.gate.acquire(timeout=max(seconds, 0)):
        _STATE.gate.release()


@contextmanager
def shield() -> Iterator[None]:
    """No `Stopped` is raised in here. Threads other than the main one never see it."""
    ours = threading.current_thread() is threading.main_thread()
    _STATE.shields += ours
    try:
        yield
    finally:
        _STATE.shields -= ours


@contextmanager
def unheard() -> Iterator[None]:
    """Threads started in here leave signals to the main thread, which otherwise would not be woken by them.

    Processes started in here inherit that, and have to call `hear`.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hear() -> None:
    """Take signals from now on, and those that came meanwhile. Also for a new process, which starts as `unheard`."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def deaf() -> None:
    """Take no signal any more: the program is about to end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


@contextmanager
def ending(end: Callable[[], None]) -> Iterator[None]:
    """`end` is called when a signal comes meanwhile, or has come already."""
    _STATE.ends.add(end)
    try:
        if _STATE.number:
            end()
        yield
    finally:
        _STATE.ends.discard(end)
