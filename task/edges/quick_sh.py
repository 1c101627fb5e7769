"""`sh`, imported without what it does not need here.

`import sh` loads asyncio (to await a command), importlib.metadata (to know its own version), inspect, logging,
getpass and more: three quarters of its 60 ms, in every run, for things that are never done here. While `sh` is
imported, each of these that is not loaded yet is replaced by a stand-in that holds the few names used at once, and
that loads the real module as soon as any other name is asked of it. Afterwards `sys.modules` is as before: whoever
imports one of them gets the real one.

One more effect is welcome: sh, which logs the arguments of every command, has nobody to log to.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from types import ModuleType
from typing import Any

_LOCK = threading.Lock()


class _StandIn(ModuleType):
    """A module that is loaded when it is needed after all."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)
        return value


class _Silence:
    """A logger that nobody listens to."""

    def debug(self, *_message: object) -> None:
        """Say nothing."""

    info = error = exception = setLevel = debug  # noqa: N815 - logging's name


def _no_loop() -> None:
    """What asyncio says outside of a coroutine, and sh asks at every start of a process."""
    raise RuntimeError("no running event loop")


_STAND_INS: dict[str, dict[str, Any]] = {
    "asyncio": {"Queue": object, "get_running_loop": _no_loop},
    "getpass": {},
    "glob": {"glob": lambda *_: []},
    "importlib.metadata": {"version": lambda _name: "", "PackageNotFoundError": LookupError},
    "inspect": {},
    "locale": {"getpreferredencoding": lambda: "utf-8"},
    "logging": {"getLogger": lambda _name, _silence=_Silence(): _silence},
    "platform": {"system": lambda: os.uname().sysname},
    "textwrap": {},
    "traceback": {},
}


def load() -> Any:
    """The module `sh`."""
    with _LOCK:
        if "sh" not in sys.modules:
            _import_quickly()
        if logging := sys.modules.get("logging"):
            logging.getLogger("sh").setLevel(logging.WARNING)  # at INFO it writes every argument
        return sys.modules["sh"]


def _import_quickly() -> None:
    added = {name: _stand_in(name, known) for name, known in _STAND_INS.items() if name not in sys.modules}
    sys.modules.update(added)
    try:
        importlib.import_module("sh")
    finally:
        for name, module in added.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


def _stand_in(name: str, known: dict[str, Any]) -> ModuleType:
    module = _StandIn(name)
    vars(module).update(known)
    return module
