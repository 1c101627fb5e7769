"""Reads Applications from files, folders and standard input, without a cluster.

Other manifests among them are skipped. An unreadable file is one problem, and does not affect the other files.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from itertools import chain

from task.applications.folders import Folder
from task.applications.manifest_text import SUFFIXES, found_in, or_broken
from task.applications.rendering import Rendering, kind_of
from task.applications.work_tree import LocalFiles
from task.errors import Malformed, UsageError
from task.files import read_file
from task.model import Found
from task.urls import without_login

LARGEST = 512 * 1024 * 1024  # bytes of one file: ten thousand Applications, as kubectl prints them
GIT_URL = re.compile(r"(?:https?|ssh|git|file)://|[\w.-]+@[\w.-]+:", re.IGNORECASE)


def local_manifests(path: str, rendering: Rendering) -> Iterator[Found]:
    """Yield every manifest in a file, a folder, or `-` for stdin. Raises `UsageError` if that itself is unusable."""
    if path == "-":
        content = sys.stdin.buffer.read(LARGEST + 1)  # one more byte shows that it is too large
        if len(content) > LARGEST:
            raise UsageError(
                f"--applications: stdin has more than {LARGEST:,} bytes",
                hint="leave out what is not needed: kubectl get --selector, or several runs",
            )
        return or_broken(found_in(content, "stdin"), [("stdin", content)])
    if os.path.isdir(path):
        return _in_folder(path, rendering)
    if not os.path.exists(path):
        if GIT_URL.match(path):
            shown = without_login(path)
            url, mark, query = shown.partition("?")
            raise UsageError(
                f"--applications: {shown!r} names a Git repository, and no folder or file in it",
                hint=f"write // and the path of the manifests after it: {url}//apps{mark}{query}",
            )
        raise UsageError(
            f"--applications: {path!r} does not exist here",
            hint="name a file or folder of manifests that this step can see, or - for stdin",
        )
    try:
        content = read_file(path, LARGEST)
    except OSError as error:
        raise UsageError(
            f"--applications: cannot read {path!r}: {error.strerror}", hint="name a readable file of manifests"
        ) from None
    return or_broken(found_in(content, path), [(path, content)])


def _in_folder(root: str, rendering: Rendering) -> Iterator[Found]:
    paths: list[str] = []
    unreadable: list[OSError] = []
    for folder, subfolders, names in os.walk(root, onerror=unreadable.append):
        # Sorted, so that a report is the same on every file system.
        subfolders[:] = sorted(name for name in subfolders if name != ".git")
        if folder == root and (kind := kind_of(names)) and not rendering.way_out(kind):
            files = LocalFiles(folder)
            yield from rendering.rendered(kind, _shown(root) or ".", files.folder, files.read)
            return
        paths += [os.path.join(_shown(folder), name) for name in sorted(names)]
    problems = []
    for error in unreadable:
        if error.filename == root:
            raise UsageError(f"--applications: cannot read {root!r}: {error.strerror}", hint="check its permissions")
        where = str(error.filename)
        problems.append(Found({}, where, f"cannot read {where}: {error.strerror}", "check its permissions"))
    inside = Folder(_shown(root), paths, [path for path in paths if path.endswith(SUFFIXES)], _content, rendering)
    yield from or_broken(chain(inside.found(), problems), inside.contents())


def _shown(folder: str) -> str:
    """Return a folder's path as CI systems write it: they show a finding of `lint .` at its line only without `./`."""
    return "" if folder == "." else folder.removeprefix("./").rstrip("/")


def _content(path: str) -> bytes:
    try:
        return read_file(path, LARGEST)
    except OSError as error:
        raise Malformed(str(error.strerror), "make it readable, or remove it") from None
