"""Finds the versions of many files of a branch, with the commits that wrote them, from one fetch of commits.

`History` goes back as far as it takes for one file, and follows its renames. Here all files share what one fetch
brings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, pairwise
from typing import Any

from task.git.repository.history import LARGEST, PATIENCE
from task.git.repository.objects import Objects, file_of
from task.git.repository.past import PastCommit, along_first_parents, commit_of
from task.git.repository.remote import Remote, restarted
from task.git.repository.tree_walk import ReadTree, differing, look, parse_tree
from task.model import FileVersion, Place

COMMITS = 500  # commits to fetch
_AT_ONCE = 100  # texts that are read together
_KEPT = 32  # trees
_MOST_STEPS = 50  # commits of a merged branch that are searched for the one that wrote a file

ReadRaw = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)  # there may be a hundred thousand
class _Blob:
    """The content of a file, and the commit on the branch that wrote it, or None if that is further back."""

    oid: str  # "" if there was no file
    commit: PastCommit | None


def versions_of(
    remote: Remote, branch: str, pages: Sequence[Sequence[str]], most: int, commits: int = COMMITS
) -> Iterator[Mapping[str, tuple[FileVersion, ...]]]:
    """Yield, for each page of paths, the files' texts at the branch's tip and the different ones before it.

    They are newest first, at most `most` of each file, and only the texts of one page are in memory. They come from the
    branch's last `commits`. A version that is older than these has no commit, and a file that is not there has no
    versions. Raises `SourceError` if there is no such branch, and the errors of `task.git.errors`.
    """
    found: list[tuple[Mapping[str, Sequence[_Blob]], ReadTree]] = []

    def versions(paths: Sequence[str]) -> Mapping[str, tuple[FileVersion, ...]]:
        if not found:
            tip = remote.fetch_commits(commits, branch)
            raw, read = _readers(remote.objects)
            every = list(dict.fromkeys(chain.from_iterable(pages)))
            blobs = _blobs(raw, along_first_parents(remote.objects, tip, commits), every, most)
            remote.fetch_files(list(dict.fromkeys(one.oid for of in blobs.values() for one in of if one.oid)), branch)
            found.append((blobs, read))
        known, read = found[0]
        return _versions(remote.objects, {path: known[path] for path in paths}, read)

    for paths in pages:
        yield restarted(remote, partial(versions, paths), found.clear)


def _versions(
    objects: Objects, blobs: Mapping[str, Sequence[_Blob]], read: ReadTree
) -> Mapping[str, tuple[FileVersion, ...]]:
    wanted = list(dict.fromkeys(one.oid for of in blobs.values() for one in of if one.oid))
    texts: dict[str, str | None] = {}
    left = LARGEST
    for start in range(0, len(wanted), _AT_ONCE):
        if left > 0:
            found = objects.read(wanted[start : start + _AT_ONCE])
            left -= sum(one.size for one in found.values())
            files = ((oid, file_of(one)) for oid, one in found.items())
            texts |= {oid: None if file.problem else file.text for oid, file in files}
    return {
        path: tuple(_version(texts.get(one.oid), _writer(objects, read, path, one)) for one in of)
        for path, of in blobs.items()
    }


def _version(text: str | None, commit: PastCommit | None) -> FileVersion:
    if commit is None:
        return FileVersion(text)
    return FileVersion(text, commit.oid, commit.at, commit.author, commit.message)


def _blobs(read: ReadRaw, commits: Sequence[PastCommit], paths: Sequence[str], most: int) -> dict[str, list[_Blob]]:
    """Return the blobs of each file along these commits, newest first."""
    found: dict[str, list[_Blob]] = {path: [] for path in paths}
    if not commits:
        return found
    wanted = _as_tree(paths)
    now = dict(_changes(read, "", commits[0].tree, wanted))
    first: PastCommit | None = None  # the root, if it was fetched
    end = time.monotonic() + PATIENCE
    for commit, older in pairwise(commits):
        if time.monotonic() > end:
            break
        for path, before in _changes(read, commit.tree, older.tree, wanted):
            if len(found[path]) < most:
                found[path].append(_Blob(now.get(path, ""), commit))
            now[path] = before
    else:
        first = None if commits[-1].parent else commits[-1]
    for path, oid in now.items():
        if oid and len(found[path]) < most:
            found[path].append(_Blob(oid, first))
    return found


def _as_tree(paths: Sequence[str]) -> dict[str, Any]:
    """Return the paths as nested folders: name → the folder, or the whole path of a file."""
    root: dict[str, Any] = {}
    # if one path is a file and another one needs a folder there, the file comes last
    for path in sorted(paths, reverse=True):
        folder = root
        *parents, name = path.split("/")
        for part in parents:
            folder = folder.setdefault(part, {})
        folder.setdefault(name, path)
    return root


def _changes(read: ReadRaw, newer: str, older: str, wanted: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (path, blob in the older tree, or "" for no file) of the wanted files that differ."""
    if newer == older:
        return
    one, other = differing(read(newer), read(older), max(len(newer), len(older)) // 2)
    for name in dict.fromkeys((*one, *other)):
        new, old, place = one.get(name), other.get(name), wanted.get(name)
        if place is None:
            continue
        if isinstance(place, str):
            was, now = (entry.oid if entry and entry.is_file else "" for entry in (old, new))
            if was != now:
                yield place, was
        else:
            below, before = (entry.oid if entry and entry.is_folder else "" for entry in (new, old))
            yield from _changes(read, below, before, place)


def _writer(objects: Objects, read: ReadTree, path: str, blob: _Blob) -> PastCommit | None:
    """Return the commit that wrote a version. If a merge brought it, that is a commit of the merged branch."""
    at = blob.commit
    if at is None or len(at.parents) < 2:
        return at
    for _ in range(_MOST_STEPS):
        parents = [commit_of(objects, oid) for oid in at.parents if not objects.absent([oid])]
        seen = [(one, look(read, one.tree, [Place(path, "exists")]).entries.get(path)) for one in parents]
        same = [one for one, entry in seen if entry and entry.oid == blob.oid]
        if not same:
            return at
        at = same[0]
    return at


def _readers(objects: Objects) -> tuple[ReadRaw, ReadTree]:
    """Return fetched trees, raw and parsed; "" is an empty one. Most are needed again soon."""

    @lru_cache(maxsize=_KEPT)
    def raw(oid: str) -> bytes:
        return objects.read([oid])[oid].content or b"" if oid else b""

    return raw, lru_cache(maxsize=_KEPT)(lambda oid: parse_tree(raw(oid), len(oid) // 2))
