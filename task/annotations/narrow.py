"""Which Applications are considered: `--application`, `--namespace`, `--project`, `--selector`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

from task.errors import UsageError
from task.model import Application


@dataclass(frozen=True)
class Narrow:
    """An empty part narrows nothing; several values of one part widen it."""

    names: tuple[str, ...] = ()  # globs of `name` or `namespace/name`
    namespaces: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    selector: str = ""


def considered(app: Application, narrow: Narrow) -> bool:
    """Whether an Application passes every part. Raises `UsageError` for a selector that is none."""
    return (
        (not narrow.names or any(_matches(glob, app.key if "/" in glob else app.name) for glob in narrow.names))
        and (not narrow.namespaces or any(_matches(glob, app.namespace) for glob in narrow.namespaces))
        and (not narrow.projects or any(_matches(glob, app.project) for glob in narrow.projects))
        and (not narrow.selector or all(test(app.labels) for test in _selector(narrow.selector)))
    )


def is_glob(text: str) -> bool:
    """Whether a name may fit several Applications."""
    return any(char in text for char in "*?[")


@lru_cache(maxsize=256)
def _glob(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob))


def _matches(glob: str, text: str) -> bool:
    return _glob(glob).match(text) is not None


@dataclass(frozen=True)
class _Requirement:
    """One part of a Kubernetes label selector."""

    key: str
    values: tuple[str, ...]
    negated: bool
    exists: bool = False

    def __call__(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet it, as Kubernetes decides: a missing label meets every negated one."""
        if self.exists:
            return (self.key in labels) != self.negated
        return (labels.get(self.key) in self.values) != self.negated


_SET = re.compile(r"(?P<key>[^\s!=,()]+)\s+(?P<not>notin|in)\s*\((?P<values>[^()]*)\)")
_EQUAL = re.compile(r"(?P<key>[^\s!=,()]+)\s*(?P<not>!?)={1,2}\s*(?P<values>[^\s!=,()]*)")
_EXISTS = re.compile(r"(?P<not>!?)\s*(?P<key>[^\s!=,()]+)")


@lru_cache(maxsize=16)
def _selector(text: str) -> tuple[_Requirement, ...]:
    parts = re.findall(r"(?:[^,()]|\([^()]*\))+", text)
    return tuple(_requirement(part.strip(), text) for part in parts if part.strip())


def _requirement(part: str, text: str) -> _Requirement:
    for form in (_SET, _EQUAL, _EXISTS):
        if found := form.fullmatch(part):
            negated = found["not"] in ("!", "notin")
            if form is _EXISTS:
                return _Requirement(found["key"], (), negated, exists=True)
            return _Requirement(found["key"], tuple(v.strip() for v in found["values"].split(",")), negated)
    raise UsageError(f"--selector: cannot read {part!r} in {text!r}", hint="write a=b, a!=b, a in (b,c), a or !a")
