"""Third-party packages without the parts of them that a run does not need.

One run of this step is a fraction of a second, and importing is most of it (`make bench`,
group start). What is loaded here is the packages' own code; only its company is left out,
and whoever imports the whole package later gets the whole package.
"""

from __future__ import annotations

import sys
from _thread import RLock
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from types import MappingProxyType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LOCK = RLock()


def once(load: Callable[[], Any]) -> Callable[[], Any]:
    """Loaded by the first who asks; the repositories that are worked on at the same time wait for it."""
    loaded = cache(load)

    def one() -> Any:
        with _LOCK:
            return loaded()

    one.__doc__ = load.__doc__
    return one


@once
def libyaml_parser() -> Any:
    """PyYAML's `CParser`, or None where PyYAML was built without libyaml.

    `import yaml` compiles regular expressions for its parser in Python: 25 ms. The C
    extension needs four small modules of the package, and the names of some errors.
    """
    if "yaml" in sys.modules:
        return getattr(sys.modules["yaml"], "CParser", None) or _whole_yaml()
    package = _bare_package("yaml")
    try:
        if package is None:
            return _whole_yaml()
        for name in ("error", "tokens", "events", "nodes"):
            import_module(f"yaml.{name}")
        error = package.error
        for name in ("scanner", "parser", "composer", "constructor", "emitter", "serializer", "representer"):
            setattr(package, name, _Names({f"{name.capitalize()}Error": error.MarkedYAMLError}))
        reader_error = type("ReaderError", (error.YAMLError,), {"__init__": _reader_error})
        package.reader = _Names({"ReaderError": reader_error})  # type: ignore[attr-defined]
        return import_module("yaml._yaml").CParser
    except (ImportError, AttributeError):
        sys.modules.pop("yaml", None)
        return _whole_yaml()
    finally:
        if sys.modules.get("yaml") is package:
            del sys.modules["yaml"]


def _whole_yaml() -> Any:
    try:
        return import_module("yaml._yaml").CParser
    except ImportError:
        return None


def spare_typing() -> None:
    """What the house takes from `typing` says something to type checkers only, and costs 3 ms. It gets a stand-in.

    Everybody else gets the real module; from then on it is there for all.
    """
    sys.modules.setdefault("typing", _Typing("typing"))


def spare_signal() -> None:
    """`signal` without its enumerations, which cost 1 ms; they come when they are asked for."""
    if "signal" not in sys.modules:
        sys.modules["signal"] = StandIn("signal", vars(import_module("_signal")))


class StandIn(ModuleType):
    """Some names of a module, and the module itself as soon as another name is asked for."""

    def __init__(self, name: str, known: Mapping[str, Any] = MappingProxyType({})) -> None:
        super().__init__(name)
        vars(self).update({known_name: value for known_name, value in known.items() if known_name[:2] != "__"})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


def find_quickly() -> None:
    """The house's modules are found where they lie; other finders are asked for what is not there.

    Python asks every finder for every module, and the last one looks into every folder: 4 ms for the ninety of a run.
    """
    from importlib.machinery import ModuleSpec, SourceFileLoader
    from os.path import isfile

    class House:
        @staticmethod
        def find_spec(name: str, path: Sequence[str] | None = None, _target: object = None) -> ModuleSpec | None:
            if path is None or not name.startswith("task."):
                return None
            place = f"{path[0]}/{name.rpartition('.')[2]}"
            package = not isfile(f"{place}.py")
            file = f"{place}/__init__.py" if package else f"{place}.py"
            if package and not isfile(file):
                return None
            spec = ModuleSpec(name, SourceFileLoader(name, file), origin=file, is_package=package)
            spec.has_location = True
            if package:
                spec.submodule_search_locations = [place]
            return spec

    sys.meta_path.insert(0, House)


def later(name: str) -> Any:
    """A module that a plain run does not need: it is loaded when something of it is first asked for."""
    return StandIn(name)


class _Typing(StandIn):
    """Stands for `typing`, until somebody asks for what works at run time."""

    def __getattr__(self, name: str) -> Any:
        asker = sys._getframe(1).f_globals.get("__name__", "")  # noqa: SLF001 - it is documented
        if sys.modules.get("typing") is self and asker.partition(".")[0] in _SATISFIED and name in _NOTHING:
            return _NOTHING[name]
        return super().__getattr__(name)


class _Kind:
    """A type that is never looked at: `Any`, and `Literal` of something."""

    def __init__(self, *names: object) -> None:
        self.__args__ = names

    def __getitem__(self, names: object) -> _Kind:
        return _Kind(*names) if isinstance(names, tuple) else _Kind(names)

    def __or__(self, _other: object) -> _Kind:
        return self


class _Base:
    """The base of classes that say what others offer."""


_SATISFIED = frozenset({"task", "sh"})
_NOTHING: dict[str, Any] = {
    "TYPE_CHECKING": False, "Protocol": _Base, "cast": lambda _kind, value: value, "TypeVar": _Kind,
    "get_args": lambda kind: kind.__args__,
    **dict.fromkeys(("Any", "Literal", "IO", "TextIO", "Self", "TypeAlias", "ClassVar", "Final"), _Kind()),
}  # fmt: skip


class _Names:
    """Stands for a module of which only some names are used."""

    def __init__(self, names: dict[str, Any]) -> None:
        vars(self).update(names)


def _reader_error(self: Exception, _name: str, position: int, _character: object, _encoding: str, reason: str) -> None:
    """As `yaml.reader.ReaderError` is made: text that holds what YAML does not allow."""
    Exception.__init__(self, reason)
    vars(self).update(reason=reason, position=position)


def _bare_package(name: str) -> ModuleType | None:
    """The package without what its `__init__` would load, in `sys.modules` until the caller takes it out."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec(name)
    if spec is None or spec.submodule_search_locations is None:
        return None
    package = ModuleType(name)
    package.__path__ = spec.submodule_search_locations
    package.__spec__ = spec
    sys.modules[name] = package
    return package


@once
def semver_version() -> Any:
    """`semver.Version`. The package's `__init__` loads argparse and inspect for its command line: 15 ms."""
    if "semver" in sys.modules:
        return sys.modules["semver"].Version
    package = _bare_package("semver")
    try:
        return import_module("semver.version").Version
    except ImportError:
        _forget("semver")
        return import_module("semver").Version
    finally:
        if sys.modules.get("semver") is package:
            _forget("semver")


def _forget(name: str) -> None:
    """Whoever imports the package from now on gets the whole of it."""
    for loaded in [known for known in sys.modules if known.partition(".")[0] == name]:
        del sys.modules[loaded]
