"""`sh`, imported without what it does not need here.

`import sh` loads asyncio (to await a command), importlib.metadata (to know its own version), inspect, logging,
getpass and more: three quarters of its 60 ms, in every run, for things that are never done here. While `sh` is
imported, each of these that is not loaded yet is replaced by a stand-in that holds the few names used at once, and
that loads the real module as soon as any other name is asked of it. Afterwards `sys.modules` is as before: whoever
imports one of them gets the real one. The same goes for threads: sh starts three for every process, to serve its
pipes and its time limit, which cost more than the start itself; see `idle`.

One more effect is welcome: sh, which logs the arguments of every command, has nobody to log to.
"""

from __future__ import annotations

import importlib
import os
import sys
from _queue import Empty, SimpleQueue
from _thread import RLock, _local, allocate_lock, get_ident
from _weakref import ref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from task.light import StandIn

_LOCK = allocate_lock()
_IDLE: set[int] = set()  # the threads that are within `idle`


@contextmanager
def idle() -> Iterator[None]:
    """Start, and wait for, a process that has files and no pipes, and no `_timeout`: sh starts no threads for it.

    They would only wait for the end of the process, as the caller does.
    """
    _IDLE.add(get_ident())
    try:
        yield
    finally:
        _IDLE.discard(get_ident())


class _Silence:
    """A logger that nobody listens to."""

    def debug(self, *_message: object) -> None:
        """Say nothing."""

    info = error = exception = setLevel = debug  # noqa: N815 - logging's name


class _Waiting:
    """A thread whose only work comes after the process has ended: whoever joins it does that work."""

    daemon = True

    def __init__(self, target: Callable[..., object], args: tuple[object, ...] = (), **_named: object) -> None:
        self._work: Callable[[], object] | None = lambda: target(*args)

    def start(self) -> None:
        """There is nothing to do yet."""

    def join(self) -> None:
        """Do it, once."""
        work, self._work = self._work, None
        if work:
            work()


class _Flag:
    """An event that is only ever looked at after it was set."""

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        """It has happened."""
        self._set = True

    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._set

    def wait(self, _seconds: float | None = None) -> bool:
        """As `is_set`: nobody else is there to wait for."""
        return self._set


class _Timer:
    """Would end the wait for a pipe."""

    def start(self) -> None:
        """There is no pipe."""

    cancel = start


class _Queue(SimpleQueue):  # type: ignore[type-arg]
    """As sh uses it; the real one is made of four locks, and sh makes four of them for every process."""

    def __new__(cls, _most: int = 0) -> Self:
        """One without a limit."""
        return super().__new__(cls)


def _thread(*given: Any, **named: Any) -> Any:
    return _Waiting(*given, **named) if get_ident() in _IDLE else _threading().Thread(*given, **named)


def _event() -> Any:
    return _Flag() if get_ident() in _IDLE else _threading().Event()


def _timer(seconds: float, work: Callable[[], object]) -> Any:
    return _Timer() if get_ident() in _IDLE else _threading().Timer(seconds, work)


def _threading() -> Any:
    return importlib.import_module("threading")


def _no_loop() -> None:
    """What asyncio says outside of a coroutine, and sh asks at every start of a process."""
    raise RuntimeError("no running event loop")


def _quoted(text: str) -> str:
    """As `shlex.quote`, with quotes that are not always needed."""
    return "'" + text.replace("'", "'\"'\"'") + "'"


_STAND_INS: dict[str, dict[str, Any]] = {
    "asyncio": {"Queue": object, "get_running_loop": _no_loop},
    "getpass": {},
    "glob": {"glob": lambda *_: []},
    "importlib.metadata": {"version": lambda _name: "", "PackageNotFoundError": LookupError},
    "inspect": {},
    "locale": {"getpreferredencoding": lambda: "utf-8"},
    "logging": {"getLogger": lambda _name, _silence=_Silence(): _silence},
    "platform": {"system": lambda: os.uname().sysname},
    "pty": {},
    "queue": {"Queue": _Queue, "Empty": Empty},
    "shlex": {"quote": _quoted},
    "struct": {},
    "termios": {},
    "textwrap": {},
    "threading": {
        "Thread": _thread, "Event": _event, "Timer": _timer, "Lock": allocate_lock, "RLock": RLock,
        "local": _local,
    },
    "traceback": {},
    "tty": {},
    "weakref": {"ref": ref},
}  # fmt: skip


def load() -> Any:
    """The module `sh`."""
    with _LOCK:
        if "sh" not in sys.modules:
            _import_quickly()
        if logging := sys.modules.get("logging"):
            logging.getLogger("sh").setLevel(logging.WARNING)  # at INFO it writes every argument
        return sys.modules["sh"]


def _import_quickly() -> None:
    added = {name: StandIn(name, known) for name, known in _STAND_INS.items() if name not in sys.modules}
    sys.modules.update(added)
    try:
        importlib.import_module("sh")
    finally:
        for name, module in added.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
