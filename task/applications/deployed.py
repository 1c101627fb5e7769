"""The folders that an Application deploys, according to its manifest. Pure."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from task.plain_data import elements, mapping

_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST = 100  # patterns that one pattern with braces may expand to
_LONGEST = 500  # characters of a pattern
# Keys of a source's `kustomize` that do not change its output.
_HARMLESS = frozenset(("version", "kubeVersion", "apiVersions"))


@dataclass(frozen=True)
class Release:
    """How Helm has to render a chart. "" and () mean that the manifest does not say."""

    name: str = ""
    namespace: str = ""
    value_files: tuple[str, ...] = ()  # paths from the top
    values: str = ""  # YAML; it wins over the files
    parameters: tuple[tuple[str, str, str], ...] = ()  # the option, the name, the value


@dataclass(frozen=True)
class Deployed:
    """One folder of one source of an Application."""

    repo: str
    revision: str
    path: str  # "" is the root
    plain: bool = False  # whether the manifest says that it is a directory of manifests
    recurse: bool = False
    include: str = ""  # globs of a directory's files
    exclude: str = ""
    release: Release = Release()
    optional_values: bool = False  # ignoreMissingValueFiles
    strange: str = ""  # the key of the manifest that is not supported here, so the folder is not rendered
    parent: str = "?"  # "namespace/name" of the Application

    def holds(self, path: str) -> bool:
        """Tell whether a file is one of the folder's manifests. `path` is from the top."""
        below = posixpath.relpath(path, self.path or ".")
        if "/" in below and not self.recurse:
            return False
        if self.exclude and _fits(below, self.exclude):
            return False
        return not self.include or _fits(below, self.include)


@dataclass(frozen=True)
class NoFolder:
    """A source of an Application that is not a folder of a repository."""

    why: Literal["chart", "plugin", "outside", "no repoURL"]
    path: str = ""
    parent: str = "?"


def deployed(item: Mapping[str, Any]) -> Iterator[Deployed | NoFolder]:
    """Yield the sources of an Application: folders, charts from Helm repositories, and what a plugin makes."""
    spec, metadata = mapping(item.get("spec")), mapping(item.get("metadata"))
    hydrator, several = spec.get("sourceHydrator"), spec.get("sources")
    sources: list[Any] = several if isinstance(several, list) and several else [spec.get("source")]
    if isinstance(hydrator, dict):
        sources = [hydrator.get("drySource")]
    namespace = _text(mapping(spec.get("destination")).get("namespace"))
    parent = "/".join(str(metadata[key]) for key in ("namespace", "name") if metadata.get(key)) or "?"
    for source in sources:
        if not isinstance(source, dict):
            continue
        if source.get("chart"):
            yield NoFolder("chart", parent=parent)
            continue
        if source.get("plugin") is not None:
            yield NoFolder("plugin", parent=parent)
            continue
        repo, path = _text(source.get("repoURL")), _text(source.get("path"))
        inside = posixpath.normpath(posixpath.join("/", path)).strip("/")
        if not repo:
            yield NoFolder("no repoURL", parent=parent)
            continue
        if not path:  # such as a source that only has the values for another one
            continue
        if posixpath.normpath(path).split("/")[0] == "..":
            yield NoFolder("outside", path, parent)
            continue
        directory, helm, kustomize = (mapping(source.get(key)) for key in ("directory", "helm", "kustomize"))
        release, strange = _release(helm, inside, _text(metadata.get("name")), namespace)
        if changed := sorted(key for key, value in kustomize.items() if value and key not in _HARMLESS):
            strange = strange or f"kustomize.{changed[0]}"
        yield Deployed(
            repo=repo,
            revision=_text(source.get("targetRevision")),
            path=inside,
            plain=bool(directory) and not helm and not kustomize,
            recurse=directory.get("recurse") is True,
            include=_text(directory.get("include")),
            exclude=_text(directory.get("exclude")),
            release=release,
            optional_values=helm.get("ignoreMissingValueFiles") is True,
            strange=strange,
            parent=parent,
        )


def _release(helm: Mapping[str, Any], path: str, name: str, namespace: str) -> tuple[Release, str]:
    """Return what Argo CD gives to Helm, and the first key that is not supported here, or ""."""
    files, strange = [], "helm.fileParameters" if helm.get("fileParameters") else ""
    for file in elements(helm.get("valueFiles")):
        text = _text(file)
        inside = posixpath.normpath(posixpath.join("/", path, text)).lstrip("/")
        if text.startswith("$") or "://" in text or any(char in text for char in "*?["):
            strange = strange or f"helm.valueFiles {text[:200]!r}"
        files.append(inside)
    whole = helm.get("valuesObject")
    parameters = []
    for one in elements(helm.get("parameters")):
        if isinstance(one, dict) and one.get("name"):
            option = "--set-string" if one.get("forceString") is True else "--set"
            parameters.append((option, _text(one["name"]), _escaped(_text(one.get("value")))))
    return (
        Release(
            name=_text(helm.get("releaseName")) or name,
            namespace=_text(helm.get("namespace")) or namespace,
            value_files=tuple(files),
            values=json.dumps(whole) if isinstance(whole, dict) and whole else _text(helm.get("values")),
            parameters=tuple(parameters),
        ),
        strange,
    )


def _escaped(value: str) -> str:
    """Escape a parameter's value as Argo CD does for Helm: commas are text, except in a list."""
    if value.startswith("{") and value.endswith("}"):
        return value
    return re.sub(r"(?<!\\),", r"\\,", value)


def _fits(path: str, pattern: str) -> bool:
    """Tell whether a path fits one of Argo CD's globs: `*` is any text, even with slashes, and {a,b} is a or b."""
    waiting, patterns = [pattern[:_LONGEST]], list[str]()
    while waiting and len(waiting) + len(patterns) < _MOST:
        one = waiting.pop()
        if found := _BRACES.search(one):
            waiting += [one[: found.start()] + part + one[found.end() :] for part in found[1].split(",")]
        else:
            patterns.append(one)
    return any(fnmatchcase(path, one) for one in patterns)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None or isinstance(value, (dict, list)) else str(value)
