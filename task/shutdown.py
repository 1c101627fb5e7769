"""SIGTERM and SIGINT: what was started is ended, what was begun is told, nothing is left behind.

A signal ends every child at once. Python code in the main thread is stopped by `Stopped`, unless it is
within `shield`: what delivers a change, or tidies up, ends by itself, since every wait of it is over
and nothing new is started (`check`). The state belongs to the process, as signals do.
"""

from __future__ import annotations

import signal
from _thread import allocate_lock, get_ident
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from task.errors import UnreachableError

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(BaseException):
    """A signal came; nobody but the command line catches it."""


class StoppedError(UnreachableError):
    """What was asked for could not be finished: a signal came."""


class _State:
    """What one process knows of its end."""

    def __init__(self) -> None:
        self.number = 0  # the signal that came
        self.shields = 0  # around the main thread's work
        self.main = get_ident()
        self.ends: set[Callable[[], None]] = set()  # they end what has been started
        self.first = allocate_lock()  # taken by the first signal; others change nothing
        self.gate = allocate_lock()  # open once a signal has come
        self.gate.acquire()


_STATE = _State()


def install() -> None:
    """Be ready for signals, in the main thread; those that are blocked come with `hear`.

    A signal that whoever started this process has switched off stays so.
    """
    _STATE.main = get_ident()
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
    if not _STATE.shields and not _importing(frame):
        raise Stopped


def _importing(frame: FrameType | None) -> bool:
    """Within Python's own import, parts of which are callbacks: Python prints what they raise, and forgets it.

    Nothing is lost: whatever is started next asks `check`.
    """
    return frame is not None and frame.f_code.co_filename.startswith("<frozen importlib")


def code() -> int:
    """The exit code that the signal asks for; 0 while there was none."""
    return 128 + _STATE.number if _STATE.number else 0


def check() -> None:
    """Raise `StoppedError` once a signal has come: before anything new is started."""
    if _STATE.number:
        name = signal.Signals(_STATE.number).name
        raise StoppedError(f"stopped by {name}", hint="run it again: what has landed will be found")


def sleep(seconds: float) -> None:
    """Sleep; a signal ends it early."""
    if _STATE.gate.acquire(timeout=max(seconds, 0)):
        _STATE.gate.release()


@contextmanager
def shield() -> Iterator[None]:
    """No exception comes out of nowhere in here. Threads other than the main one are always so."""
    ours = get_ident() == _STATE.main
    _STATE.shields += ours
    try:
        yield
    finally:
        _STATE.shields -= ours


@contextmanager
def unheard() -> Iterator[None]:
    """Threads started in here leave signals to the main thread, which would otherwise not be woken by them.

    Processes started in here have to call `hear`.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hear() -> None:
    """Take signals from now on, and those that came meanwhile.

    Also for a new process: it keeps what the thread that started it has switched off.
    """
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
