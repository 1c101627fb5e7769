"""`sh`, imported without what it does not need here.

`import sh` loads `asyncio` (to await a command: never done here) and `importlib.metadata`
(to know its own version): two thirds of its 60 ms, in every run. Both are replaced by a
stand-in while `sh` is imported, unless they are loaded already; afterwards `sys.modules`
is as before, and whoever wants the real ones gets them.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

_STAND_INS = ("asyncio", "importlib.metadata")


def load() -> Any:
    """The module `sh`. Falls back to the plain import where the quick one fails."""
    if "sh" not in sys.modules:
        try:
            _import_quickly()
        except (ImportError, AttributeError, TypeError):
            sys.modules.pop("sh", None)  # another version of sh needs more: the plain import below serves it
    return importlib.import_module("sh")


def _import_quickly() -> None:
    added = {name: _stand_in(name) for name in _STAND_INS if name not in sys.modules}
    sys.modules.update(added)
    if "importlib.metadata" in added:
        importlib.metadata = added["importlib.metadata"]
    try:
        importlib.import_module("sh")
    finally:
        for name in added:
            del sys.modules[name]
        if "importlib.metadata" in added:
            del importlib.metadata


def _stand_in(name: str) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(_ASYNCIO if name == "asyncio" else _METADATA)
    return module


def _no_loop() -> None:
    """What asyncio says outside of a coroutine, and sh asks at every start of a process."""
    raise RuntimeError("no running event loop")


_ASYNCIO: dict[str, Any] = {"Queue": object, "get_running_loop": _no_loop}
_METADATA: dict[str, Any] = {"version": lambda _name: "", "PackageNotFoundError": LookupError}
