"""Finds out which manifests of a folder are changed by a kustomization, and so are not deployed as they are.

A folder of manifests often has kustomizations in it. Without Kustomize, their resources are read like all other
manifests; a patch is not a manifest at all.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from task.applications.kustomizations import FOLDERS, changes_manifests, parsed_kustomization
from task.errors import Malformed
from task.plain_data import elements

_PATCHES = ("patches", "patchesstrategicmerge", "patchesjson6902")


class Kustomized:
    """The kustomizations among some files, and which of them change Applications."""

    def __init__(self, read: Callable[[str], str], paths: Iterable[str] = (), namespace: str = "") -> None:
        """`read` returns the text of a kustomization, "" if it cannot be read; `paths` are those of kustomizations.

        `namespace` is that of Applications without one.
        """
        self._read, self._namespace = read, namespace
        self._paths: dict[str, str] = {}
        self._known: dict[str, Mapping[str, Any]] = {}
        self._patches: dict[str, frozenset[str]] = {}
        self._applications: set[str] = set()
        for path in paths:
            self.add(path)

    def add(self, path: str) -> None:
        """Add the path of a kustomization."""
        self._paths.setdefault(posixpath.normpath(path).rpartition("/")[0], path)

    def patches(self, path: str) -> bool:
        """Tell whether a file is a patch of a kustomization in its folder, or in one above it."""
        path = posixpath.normpath(path)
        folder = path
        while "/" in folder:
            folder = folder.rpartition("/")[0]
            if folder in self._paths and path in self._patches_of(folder):
                return True
        return "" in self._paths and path in self._patches_of("")

    def found(self, path: str) -> None:
        """Note a file that has Applications."""
        self._applications.add(posixpath.normpath(path))

    def of_applications(self) -> tuple[str, ...]:
        """Return the folders whose kustomization changes Applications, without those that another one of them uses.

        Complete when `found` was called for all files.
        """
        if not self._applications:
            return ()
        users: dict[str, set[str]] = {}  # a file or folder → the folders whose kustomization names it
        for folder in self._paths:
            for entry in _entries(self._kustomization(folder), folder):
                users.setdefault(entry, set()).add(folder)
        making = _above(self._applications, users)
        changing = {one for one in making if changes_manifests(self._kustomization(one), self._namespace)}
        told = changing | (_above(changing, users) & making)
        return tuple(sorted(one for one in told if not users.get(one, set()) & making - {one}))

    def _kustomization(self, folder: str) -> Mapping[str, Any]:
        if folder not in self._known:
            try:
                self._known[folder] = parsed_kustomization(self._read(self._paths[folder]), self._paths[folder])
            except Malformed:
                self._known[folder] = {}
        return self._known[folder]

    def _patches_of(self, folder: str) -> frozenset[str]:
        if folder not in self._patches:
            listed = [self._kustomization(folder).get(key) for key in _PATCHES]
            entries = [one for part in listed if isinstance(part, list) for one in part]
            texts = [one.get("path") if isinstance(one, dict) else one for one in entries]
            # An inline patch has several lines, and names no file.
            self._patches[folder] = frozenset(
                posixpath.normpath(posixpath.join(folder, one)) for one in texts if isinstance(one, str)
            )
        return self._patches[folder]


def _entries(kustomization: Mapping[str, Any], folder: str) -> Iterable[str]:
    for key in FOLDERS:
        for one in elements(kustomization.get(key)):
            if isinstance(one, str):
                path = posixpath.normpath(posixpath.join(folder, one))
                yield "" if path == "." else path


def _above(start: Iterable[str], users: Mapping[str, set[str]]) -> set[str]:
    """Return all folders whose kustomization uses one of these, directly or through others."""
    found, waiting = set[str](), list(start)
    while waiting:
        for one in users.get(waiting.pop(), ()):
            if one not in found:
                found.add(one)
                waiting.append(one)
    return found
