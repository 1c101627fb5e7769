"""Selects Applications by `--application`, `--namespace`, `--project` and `--selector`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from task.errors import UsageError
from task.model import Tracker


@dataclass(frozen=True)
class Narrow:
    """The Applications to consider. An Application must fit one value of every given part."""

    names: tuple[str, ...] = ()  # globs of `name` or `namespace/name`
    namespaces: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    selector: str = ""
    within: tuple[str, ...] = ()  # globs like `names`: `status APP` shows only what --application leaves


def considered(app: Tracker, narrow: Narrow) -> bool:
    """Tell whether an Application fits every part. Raises `UsageError` for an invalid selector."""
    return (
        all(
            not globs or any(fnmatchcase(app.key if "/" in glob else app.name, glob) for glob in globs)
            for globs in (narrow.names, narrow.within)
        )
        and (not narrow.namespaces or any(fnmatchcase(app.namespace, glob) for glob in narrow.namespaces))
        and (not narrow.projects or any(fnmatchcase(app.project, glob) for glob in narrow.projects))
        and (not narrow.selector or all(requirement.met(app.labels) for requirement in _selector(narrow.selector)))
    )


def check_selector(narrow: Narrow) -> None:
    """Raise `UsageError` for an invalid selector, before any server is asked."""
    _selector(narrow.selector)


def is_glob(text: str) -> bool:
    """Tell whether the text is a glob, which may fit several Applications."""
    return any(char in text for char in "*?[")


@dataclass(frozen=True)
class Requirement:
    """One part of a Kubernetes label selector."""

    key: str
    operator: str  # one of OPERATORS
    values: tuple[str, ...] = ()

    def met(self, labels: Mapping[str, str]) -> bool:
        """Tell whether the labels meet the requirement. As in Kubernetes, a missing label meets `NotIn`."""
        if self.operator in ("Exists", "DoesNotExist"):
            return (self.key in labels) == (self.operator == "Exists")
        return (labels.get(self.key) in self.values) == (self.operator == "In")


OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")  # the names in `matchExpressions` of a Kubernetes selector
_SET = re.compile(r"(?P<key>[^\s!=,()]+)\s+(?P<not>notin|in)\s*\((?P<values>[^()]*)\)")
_EQUAL = re.compile(r"(?P<key>[^\s!=,()]+)\s*(?P<not>!?)={1,2}\s*(?P<values>[^\s!=,()]*)")
_EXISTS = re.compile(r"(?P<not>!?)\s*(?P<key>[^\s!=,()]+)")


@lru_cache(maxsize=16)
def _selector(text: str) -> tuple[Requirement, ...]:
    """Return the requirements of `a=b,c in (d,e),!f`, in kubectl's grammar. Raises `UsageError`."""
    requirements = []
    for part in filter(None, map(str.strip, re.findall(r"(?:[^,()]|\([^()]*\))+", text))):
        if match := _SET.fullmatch(part) or _EQUAL.fullmatch(part):
            values = tuple(value.strip() for value in match["values"].split(","))
            requirements.append(Requirement(match["key"], "NotIn" if match["not"] in ("!", "notin") else "In", values))
        elif match := _EXISTS.fullmatch(part):
            requirements.append(Requirement(match["key"], "DoesNotExist" if match["not"] else "Exists"))
        else:
            hint = "write a=b, a!=b, a in (b,c), a or !a, with commas between them"
            raise UsageError(f"--selector: cannot read {part!r}", hint=hint)
    return tuple(requirements)
