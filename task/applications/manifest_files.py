"""Reads Applications from files, folders, and standard input, without a cluster.

Other manifests are skipped. An unreadable file is reported as a problem, and does not affect the
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

# maximum bytes in one file: enough for ten thousand Applications, as printed by kubectl
LARGEST = 512 * 1024 * 1024
GIT_URL = re.compile(r"(?:https?|ssh|git|file)://|[\w.-]+@[\w.-]+:", re.IGNORECASE)
_PATCHES = ("patches", "patchesstrategicmerge", "patchesjson6902")


class Folder:
    """The manifests in or below a folder, and the charts and kustomizations that use them."""

    def __init__(
        self,
        root: str,
        paths: Collection[str],
        manifests: Sequence[str],
        read: Callable[[str], bytes],
        rendering: Rendering,
        snapshot: Snapshot | None = None,
    ) -> None:
        """`paths` are all files in or below the folder `root`, and `manifests` are the ones to
        read.

        `read` returns a file's content. It raises `Malformed`, with the reason, if the file cannot
        be read. `snapshot` is the files' location in Git.
        """
        self._root = root
        self._manifests = manifests
        self._read = read
        self._rendering = rendering
        self._snapshot = snapshot
        self._prefix = f"{snapshot.repo}//" if snapshot else ""  # for the paths in messages
        self._charts = {
            posixpath.dirname(path) for path in paths if posixpath.basename(path) == CHART
        }
        self._kustomizations: dict[str, str] = {}  # the paths of kustomizations, by folder
        for name in reversed(NAMES):  # if a folder has several, the first name wins
            for path in paths:
                if posixpath.basename(path) == name:
                    self._kustomizations[_folder_of(path)] = path
        # by folder, so that each kustomization is parsed only once
        self._kustomization = cache(self._parsed)
        self._patches = cache(self._patch_paths)
        # Filled by `found`, and used for the warnings that it yields at the end:
        self._charts_with_applications: dict[str, None] = {}
        self._files_with_applications: set[str] = set()

    def found(self) -> Iterator[Found]:
        """Yield the manifests in the folder's files, a problem for each unreadable file, and a
        warning for each chart or kustomization that is not rendered.
        """
        for path in self._manifests:
            where = f"{self._prefix}{path}"
            try:
                content = self._read(path)
            except Malformed as error:
                yield source_warning(where, f"cannot read {where}: {error.message}", error.hint)
                continue
            if self._is_template(path, content):  # this call also records charts with Applications
                continue
            for found in found_in(content, where):
                if found.concerns_us and self._is_patch(path):  # a patch is not a whole Application
                    continue
                if found.is_application:
                    self._files_with_applications.add(posixpath.normpath(path))
                if self._snapshot:
                    place = (self._snapshot.repo, self._snapshot.branch, path)
                    yield replace(found, place=place, text=content.decode())
                else:
                    yield found
        yield from self._rendering.unrendered(self._root, self._unrendered_folders(), self._prefix)

    def contents(self) -> Iterator[tuple[str, bytes]]:
        """Yield the origin and the content of each file with manifests.

        The content of an unreadable file is empty. Templates are left out.
        """
        for path in self._manifests:
            content = b""
            with suppress(Malformed):
                content = self._read(path)
            if not self._is_template(path, content):
                yield f"{self._prefix}{path}", content

    def _is_template(self, path: str, content: bytes) -> bool:
        """Return whether a file is a Helm template: a file with `{{` below a chart's `templates`
        folder.

        If the template generates Applications, its chart is added to `_charts_with_applications`.
        For nested charts, that is the outermost chart.
        """
        *folders, _file_name = path.split("/")
        charts = []  # the charts that contain the file, outermost first
        for depth, name in enumerate(folders):
            parent = "/".join(folders[:depth])
            if name == "templates" and parent in self._charts:
                charts.append(parent)
        if not charts or b"{{" not in content:
            return False
        if makes_applications(content.decode("utf-8", "replace")):
            outermost_chart = charts[0]
            self._charts_with_applications[outermost_chart] = None
        return True

    def _is_patch(self, path: str) -> bool:
        """Return whether a file is a patch for a kustomization in its folder or a parent folder."""
        normal_path = posixpath.normpath(path)
        folder = normal_path
        while folder:
            folder = folder.rpartition("/")[0]  # in the end, this is "", the working folder
            if folder in self._kustomizations and normal_path in self._patches(folder):
                return True
        return False

    def _patch_paths(self, folder: str) -> frozenset[str]:
        """Return the paths of the patches that a folder's kustomization names."""
        kustomization = self._kustomization(folder)
        paths = set[str]()
        for key in _PATCHES:
            for patch in elements(kustomization.get(key)):
                # The text may also be an inline patch, which is harmless here, because no file has
                # such a path.
                name = patch.get("path") if isinstance(patch, dict) else patch
                if isinstance(name, str):
                    paths.add(posixpath.normpath(posixpath.join(folder, name)))
        return frozenset(paths)

    def _unrendered_folders(self) -> Iterator[tuple[Kind, str]]:
        """Yield the folders that need Helm or Kustomize, each with the tool: charts that generate
        Applications, and kustomizations that change Applications or include other manifests.
        """
        for chart in self._charts_with_applications:
            yield "helm", chart
        # the root, spelled like the keys of `_kustomizations`
        root_folder = _folder_of(posixpath.join(self._root, NAMES[0]))
        root_text = self._text(root_folder)
        if not root_text:
            needs_kustomize = False
        elif self._files_with_applications:
            needs_kustomize = changes(root_text, self._rendering.namespace)
        else:  # the root's Applications may be outside the folder
            needs_kustomize = reaches_out(root_text)
        if needs_kustomize:
            yield "kustomize", self._root
        for folder in self._changing_folders():
            yield "kustomize", folder

    def _changing_folders(self) -> list[str]:
        """Return the outermost folders whose kustomizations change Applications.

        A kustomization also changes them if it uses a folder that does. A folder is not outermost
        if another kustomization with Applications uses it.
        """
        if not self._files_with_applications:
            return []
        # a file or folder → the folders whose kustomization refers to it
        users: dict[str, set[str]] = {}
        for folder in self._kustomizations:
            for entry in entries(self._kustomization(folder)):
                target = path_at(folder, entry)
                users.setdefault(target, set()).add(folder)

        # folders whose kustomizations use files with Applications, directly or indirectly
        using_applications = _users_above(self._files_with_applications, users)
        # those whose own kustomization changes the Applications
        changing = {
            folder
            for folder in using_applications
            if changes_manifests(self._kustomization(folder), self._rendering.namespace)
        }
        # those that use a folder that changes them
        using_changed = _users_above(changing, users) & using_applications
        outermost_folders = []
        for folder in changing | using_changed:
            other_users = users.get(folder, set()) - {folder}
            if other_users.isdisjoint(using_applications):
                outermost_folders.append(folder)
        return sorted(outermost_folders)

    def _parsed(self, folder: str) -> Mapping[str, Any]:
        """Return the folder's kustomization, or {} if it is broken."""
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
    """Return a file's folder as a normal path: `apps` for `./apps/web.yaml`, and "" for the working
    folder.
    """
    return posixpath.normpath(path).rpartition("/")[0]


def _users_above(start: Iterable[str], users: Mapping[str, set[str]]) -> set[str]:
    """Return all folders whose kustomization uses one of these files or folders, directly or
    indirectly.

    `users` maps each file or folder to the folders whose kustomizations refer to it.
    """
    all_users = set[str]()
    waiting = list(start)
    while waiting:
        for user in users.get(waiting.pop(), ()):
            if user not in all_users:
                all_users.add(user)
                waiting.append(user)
    return all_users


def local_manifests(path: str, rendering: Rendering) -> Iterator[Found]:
    """Return an iterator over all manifests in a file, a folder, or stdin (`-`), and over the
    problems with reading them.

    Raises `UsageError` if the path itself is unusable.
    """
    if path == "-":
        content = sys.stdin.buffer.read(LARGEST + 1)  # one extra byte, to detect too much input
        if len(content) > LARGEST:
            raise UsageError(
                f"--applications: stdin has more than {LARGEST:,} bytes",
                hint="pass fewer manifests: use kubectl get --selector, or several runs",
            )
        return or_broken(found_in(content, "stdin"), [("stdin", content)], "stdin")

    if os.path.isdir(path):
        return _in_folder(path, rendering)

    exists = os.path.exists(path)
    if not exists and GIT_URL.match(path):
        repository = without_login(path)
        url, question_mark, query = repository.partition("?")
        raise UsageError(
            f"--applications: {repository!r} is a Git repository without a folder or file",
            hint=f"append // and the path to the manifests: {url}//apps{question_mark}{query}",
        )
    if not exists:
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
    return or_broken(found_in(content, path), [(path, content)], path)


def _unreadable_folder(error: OSError, root: str) -> Found:
    """Return the warning about an unreadable folder below the root.

    Raises `UsageError` if the unreadable folder is the root itself.
    """
    where = str(error.filename)
    hint = "check its permissions"
    if where == root:
        raise UsageError(f"--applications: cannot read {root!r}: {error.strerror}", hint=hint)
    return source_warning(where, f"cannot read {where}: {error.strerror}", hint)


def _in_folder(root: str, rendering: Rendering) -> Iterator[Found]:
    """Yield the manifests in or below a folder. If Helm or Kustomize can render the folder, yield
    the rendered manifests instead.

    Raises `UsageError` if the folder is unreadable.
    """
    paths: list[str] = []
    errors: list[OSError] = []  # the errors about unreadable folders
    for folder, subfolders, names in os.walk(root, onerror=errors.append):
        # Sort, so that reports are the same on every file system.
        subfolders[:] = sorted(name for name in subfolders if name != ".git")
        kind = kind_of(names) if folder == root else None
        if kind and not rendering.hint_if_disabled(kind):  # this folder can be rendered
            files = LocalFiles(folder)
            where = _path_shown(root) or "."
            yield from rendering.rendered(kind, where, files.folder, files.read)
            return
        paths += [os.path.join(_path_shown(folder), name) for name in sorted(names)]

    problems = [_unreadable_folder(error, root) for error in errors]
    manifest_paths = [path for path in paths if path.endswith(SUFFIXES)]
    in_folder = Folder(
        root=_path_shown(root),
        paths=paths,
        manifests=manifest_paths,
        read=_content,
        rendering=rendering,
    )
    found = chain(in_folder.found(), problems)
    place = f"{root} ({counted(len(manifest_paths), 'file')})"
    yield from or_broken(found, in_folder.contents(), place)


def _path_shown(folder: str) -> str:
    """Return a folder's path without a leading `./` or a trailing `/`; "" for the working folder.

    CI systems show a `lint .` finding at its line only if its path does not start with `./`.
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
