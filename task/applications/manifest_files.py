"""Reads Applications from files, folders, and standard input, without a cluster.

Other manifests are skipped. An unreadable file is reported as one problem and does not affect
other files.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any

from task.applications.kustomizations import (
    NAMES,
    changes,
    changes_manifests,
    entries,
    parsed_kustomization,
    path_at,
    reaches_out,
)
from task.applications.manifest_text import (
    SUFFIXES,
    found_in,
    makes_applications,
    or_broken,
    source_warning,
)
from task.applications.rendering import CHART, Kind, Rendering, kind_of
from task.applications.work_tree import LocalFiles
from task.errors import Malformed, UsageError
from task.files import LARGEST as LARGEST_TEXT
from task.files import read_file
from task.model import Found, Snapshot
from task.plain_data import elements
from task.text import counted
from task.urls import without_login

LARGEST = 512 * 1024 * 1024  # bytes in one file: ten thousand Applications, as printed by kubectl
GIT_URL = re.compile(r"(?:https?|ssh|git|file)://|[\w.-]+@[\w.-]+:", re.IGNORECASE)
_PATCHES = ("patches", "patchesstrategicmerge", "patchesjson6902")


class Folder:
    """The manifests in or below a folder, and how its charts and kustomizations use them."""

    def __init__(
        self,
        root: str,
        paths: Collection[str],
        manifests: Sequence[str],
        read: Callable[[str], bytes],
        rendering: Rendering,
        snapshot: Snapshot | None = None,
    ) -> None:
        """`paths` are all files, and `manifests` are the files to read.

        `snapshot` is their location in Git.

        `read` returns a file's content, and raises Malformed with the reason if the file cannot be
        read.
        """
        self._root = root
        self._manifests = manifests
        self._read = read
        self._rendering = rendering
        self._snapshot = snapshot
        self._before = f"{snapshot.repo}//" if snapshot else ""
        self._charts = {
            posixpath.dirname(path) for path in paths if posixpath.basename(path) == CHART
        }
        self._kustomizations = {  # by folder
            _folder_of(path): path
            for name in reversed(NAMES)
            for path in paths
            if posixpath.basename(path) == name
        }
        self._kustomization = cache(self._parsed)
        self._patches = cache(self._named_patches)
        self._making: dict[str, None] = {}  # charts whose templates generate Applications
        self._applications: set[str] = set()  # files that have Applications

    def found(self) -> Iterator[Found]:
        """Yield the contents of the manifests, a problem for each unreadable file,
        and the warnings.
        """
        for path in self._manifests:
            where = f"{self._before}{path}"
            try:
                content = self._read(path)
            except Malformed as error:
                yield source_warning(where, f"cannot read {where}: {error.message}", error.hint)
                continue
            if self._is_template(path, content):
                continue
            for found in found_in(content, where):
                if found.concerns_us and self._is_patch(path):
                    continue
                if found.is_application:
                    self._applications.add(posixpath.normpath(path))
                if self._snapshot:
                    place = (self._snapshot.repo, self._snapshot.branch, path)
                    yield replace(found, place=place, text=content.decode())
                else:
                    yield found
        yield from self._rendering.unrendered(self._root, self._unrendered(), self._before)

    def contents(self) -> Iterator[tuple[str, bytes]]:
        """Yield the manifests with their origins.

        An unreadable manifest, which has already been reported, is empty.
        """
        for path in self._manifests:
            content = b""
            with suppress(Malformed):
                content = self._read(path)
            if not self._is_template(path, content):
                yield f"{self._before}{path}", content

    def _is_template(self, path: str, content: bytes) -> bool:
        """Return whether a file is a manifest only after Helm has rendered it.

        Records the file's chart if the file generates Applications.

        For nested charts, that is the outermost chart.
        """
        *folders, _file_name = path.split("/")
        possible_charts = [
            "/".join(folders[:depth]) for depth, name in enumerate(folders) if name == "templates"
        ]
        charts = [folder for folder in possible_charts if folder in self._charts]
        if not charts or b"{{" not in content:
            return False
        if makes_applications(content.decode("utf-8", "replace")):
            self._making[charts[0]] = None
        return True

    def _is_patch(self, path: str) -> bool:
        """Return whether a file is a patch for a kustomization in its folder or a parent folder."""
        path = posixpath.normpath(path)
        folder = path
        while folder:
            folder = folder.rpartition("/")[0]
            if folder in self._kustomizations and path in self._patches(folder):
                return True
        return False

    def _named_patches(self, folder: str) -> frozenset[str]:
        """Return the paths of the patches that a folder's kustomization names."""
        paths = set[str]()
        for key in _PATCHES:
            for patch in elements(self._kustomization(folder).get(key)):
                # A text may also be an inline patch. It does no harm here, because no file has
                # such a path.
                name = patch.get("path") if isinstance(patch, dict) else patch
                if isinstance(name, str):
                    paths.add(posixpath.normpath(posixpath.join(folder, name)))
        return frozenset(paths)

    def _unrendered(self) -> Iterator[tuple[Kind, str]]:
        """Yield the charts that generate Applications, and the kustomizations that change them."""
        yield from (("helm", chart) for chart in self._making)
        root_text = self._text(_folder_of(posixpath.join(self._root, NAMES[0])))
        if self._applications:
            matters = bool(root_text) and changes(root_text, self._rendering.namespace)
        else:
            matters = bool(root_text) and reaches_out(root_text)
        if matters:
            yield "kustomize", self._root
        yield from (("kustomize", folder) for folder in self._changing())

    def _changing(self) -> list[str]:
        """Return the folders whose kustomization changes Applications, except folders that another
        one of them uses.
        """
        if not self._applications:
            return []
        # a file or folder → the folders whose kustomization refers to it
        users: dict[str, set[str]] = {}
        for folder in self._kustomizations:
            for entry in entries(self._kustomization(folder)):
                users.setdefault(path_at(folder, entry), set()).add(folder)
        with_applications = _above(self._applications, users)
        changing = {
            folder
            for folder in with_applications
            if changes_manifests(self._kustomization(folder), self._rendering.namespace)
        }
        affected = changing | (_above(changing, users) & with_applications)
        outermost = []
        for folder in affected:
            other_users = users.get(folder, set()) - {folder}
            if not other_users & with_applications:
                outermost.append(folder)
        return sorted(outermost)

    def _parsed(self, folder: str) -> Mapping[str, Any]:
        """Return the folder's kustomization, or {} for a broken one."""
        try:
            return parsed_kustomization(self._text(folder), folder)
        except Malformed:
            return {}

    def _text(self, folder: str) -> str:
        """Return the text of the folder's kustomization, or "" if there is none
        or it cannot be read.
        """
        try:
            content = self._read(self._kustomizations[folder])
        except (KeyError, Malformed):
            return ""
        return content.decode("utf-8", "replace") if len(content) <= LARGEST_TEXT else ""


def _folder_of(path: str) -> str:
    """Return a file's folder in the form of the keys here: "" for the working folder."""
    return posixpath.normpath(path).rpartition("/")[0]


def _above(start: Iterable[str], users: Mapping[str, set[str]]) -> set[str]:
    """Return all folders whose kustomization uses one of these folders, directly or indirectly."""
    above = set[str]()
    waiting = list(start)
    while waiting:
        for user in users.get(waiting.pop(), ()):
            if user not in above:
                above.add(user)
                waiting.append(user)
    return above


def local_manifests(path: str, rendering: Rendering) -> Iterator[Found]:
    """Yield every manifest in a file, a folder, or stdin (`-`).

    Raises `UsageError` if the path itself is unusable.
    """
    if path == "-":
        content = sys.stdin.buffer.read(LARGEST + 1)  # one more byte shows that it is too large
        if len(content) > LARGEST:
            raise UsageError(
                f"--applications: stdin has more than {LARGEST:,} bytes",
                hint="pass fewer manifests: use kubectl get --selector, or several runs",
            )
        return or_broken(found_in(content, "stdin"), [("stdin", content)])
    if os.path.isdir(path):
        return _in_folder(path, rendering)
    if not os.path.exists(path):
        if GIT_URL.match(path):
            shown = without_login(path)
            url, question_mark, query = shown.partition("?")
            raise UsageError(
                f"--applications: {shown!r} is a Git repository without a folder or file",
                hint=f"append // and the path to the manifests: {url}//apps{question_mark}{query}",
            )
        raise UsageError(
            f"--applications: {path!r} does not exist",
            hint="pass a file or folder of manifests that this step can see, or - for stdin",
        )
    try:
        content = read_file(path, LARGEST)
    except OSError as error:
        raise UsageError(
            f"--applications: cannot read {path!r}: {error.strerror}",
            hint="pass a readable manifest file",
        ) from None
    return or_broken(found_in(content, path), [(path, content)])


def _unreadable_folder(error: OSError, root: str) -> Found:
    """Return the warning about a folder below the root. Raises `UsageError` for the root itself."""
    where = str(error.filename)
    hint = "check its permissions"
    if where == root:
        raise UsageError(f"--applications: cannot read {root!r}: {error.strerror}", hint=hint)
    return source_warning(where, f"cannot read {where}: {error.strerror}", hint)


def _in_folder(root: str, rendering: Rendering) -> Iterator[Found]:
    """Yield the manifests in or below a folder, or the rendered ones if it can be rendered.

    Raises `UsageError` if the folder is unreadable.
    """
    paths: list[str] = []
    unreadable: list[OSError] = []
    for folder, subfolders, names in os.walk(root, onerror=unreadable.append):
        # Sort, so that reports are the same on every file system.
        subfolders[:] = sorted(name for name in subfolders if name != ".git")
        kind = kind_of(names) if folder == root else None
        if kind and not rendering.way_out(kind):  # it can be rendered
            files = LocalFiles(folder)
            yield from rendering.rendered(kind, _path_shown(root) or ".", files.folder, files.read)
            return
        paths += [os.path.join(_path_shown(folder), name) for name in sorted(names)]
    problems = [_unreadable_folder(error, root) for error in unreadable]
    manifests = [path for path in paths if path.endswith(SUFFIXES)]
    inside = Folder(_path_shown(root), paths, manifests, _content, rendering)
    found = chain(inside.found(), problems)
    yield from or_broken(found, inside.contents(), f"{root} ({counted(len(manifests), 'file')})")


def _path_shown(folder: str) -> str:
    """Return a folder's path as CI systems write it: they show a `lint .` finding at its line only
    if its path does not start with `./`.
    """
    if folder == ".":
        return ""
    if folder and not folder.strip("/"):
        return "/"
    return folder.removeprefix("./").rstrip("/")


def _content(path: str) -> bytes:
    """Return a file's content. Raises Malformed if it cannot be read."""
    try:
        return read_file(path, LARGEST)
    except OSError as error:
        raise Malformed(str(error.strerror), "make it readable, or remove it") from None
