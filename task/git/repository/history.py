"""Finds earlier versions of files on a branch: of one path (`History`), or of many files
(`versions_of`).

Commits and their trees are fetched first, then only the required files. `History` goes back as far
as necessary for one file, and follows its renames. `versions_of` fetches the commits once for all
files.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, pairwise
from posixpath import basename
from typing import Any, Literal

from task.git.repository.objects import (
    Objects,
    PastCommit,
    ReadTree,
    TreeEntry,
    along_first_parents,
    commit_of,
    differing,
    file_of,
    look,
    parse_tree,
)
from task.git.repository.remote import Remote, restarted
from task.model import FileVersion, Place

DEPTHS = (50, 200, 1000, 5000, 20_000)  # commits to fetch, in steps, until there are enough
LARGEST = 64_000_000  # total bytes of file contents
# seconds; otherwise, for a file that rarely changes, a run would read all commits of a large
# repository
PATIENCE = 60.0
_COMMITS_AT_ONCE = 1000  # commits whose trees are requested together
_TEXTS_AT_ONCE = 5
_MOST_TREES = 2000  # trees to search for the path that a file was moved from
_MOST_ALIKE = 20  # files of the same name to compare with a file that was moved and changed
_ALIKE = 0.5  # like `git log --follow`
End = Literal["", "root", "server", "limit"]
_Blobs = list[tuple[str, str]]  # (commit, blob or "" for none)


class History:
    """Iterates over (commit, content): the file's content at the branch's tip, then each earlier
    version that differs.

    It follows first parents, so a merge is one step, and content that was restored by a revert is
    returned again. The commit is the newest with this content, or one of `marked` that had it. The
    content is None if the file did not exist or was not text. `path` is the file's path at the last
    version returned: renames are followed. After the last version, `end` is the reason for the end:
    the "root" of all history, the end of a shallow "server", or a "limit": the requested number of
    versions, `LARGEST` bytes in total, or `PATIENCE` seconds. Raises `SourceError` if the branch
    does not exist, and the errors of `task.git.errors`. The remote must not be shared; `close`
    removes the fetched objects.
    """

    def __init__(
        self,
        remote: Remote,
        branch: str,
        path: str,
        limit: int,
        marked: Collection[str] = (),
    ) -> None:
        self.path = path
        self.end: End = ""
        self._remote = remote
        self._branch = branch
        self._limit = limit
        self._marked = frozenset(marked)
        self._mark = ""  # the marked commit with the last content from the previous commits
        self._size = LARGEST  # bytes that may still be read
        self._at = ""  # the next commit to read
        self._level = 0  # index into DEPTHS
        self._seen = 0  # number of commits
        self._present = False  # whether fetched objects are still present
        # the root tree and the file, one commit later
        self._newer: tuple[str, TreeEntry | None] | None = None
        _, self._read = _readers(remote.objects)
        self._answers = self._walk()

    def __iter__(self) -> Iterator[tuple[str, str | None]]:
        return self

    def __next__(self) -> tuple[str, str | None]:
        return next(self._answers)

    def close(self) -> None:
        """Remove everything that was fetched. Iteration ends after that."""
        self._answers.close()
        self._remote.close()

    def _walk(self) -> Generator[tuple[str, str | None], None, None]:
        given = 0
        end = time.monotonic() + PATIENCE
        last: tuple[str, str | None] | None = None
        while not self.end:
            if self._seen and time.monotonic() > end:
                if last:
                    yield last
                self.end = "limit"
                return
            # run again in an empty repository if the server or the cache requires it
            blobs, texts, reached = restarted(self._remote, self._next_part, self._forget)
            if last:
                yield self._mark or last[0], last[1]
                last = None
            for number, (commit, blob) in enumerate(blobs, 1):
                if given == self._limit or (blob and blob not in texts):
                    self.end = "limit"
                    return
                given += 1
                if self._marked and number == len(blobs) and not reached:
                    last = commit, texts.get(blob)  # unread commits have it too
                else:
                    yield commit, texts.get(blob)
            self.end = reached

    def _forget(self) -> None:
        self._present = False
        self._level = max(0, self._level - 1)

    def _next_part(self) -> tuple[_Blobs, Mapping[str, str | None], End]:
        """Return the result of the next commits: the blobs, their contents, and whether this is the
        end.
        """
        commits = self._commits()
        self._mark = ""
        if not commits:
            return [], {}, "limit" if self._seen >= DEPTHS[-1] else "server"
        changes, used, path, newer = self._changed_blobs(commits)
        blobs = list(dict.fromkeys(blob for _, blob in changes[: self._limit] if blob))
        self._remote.fetch_files(blobs, self._branch)
        texts: dict[str, str | None] = {}
        for start in range(0, len(blobs), _TEXTS_AT_ONCE):
            if self._size < 0:
                break
            texts |= self._texts(blobs[start : start + _TEXTS_AT_ONCE])
        last = commits[used - 1]
        self._seen += used
        self._at = last.parent
        self.path = path
        self._newer = newer
        return changes, texts, "" if last.parent else "root"

    def _commits(self) -> list[PastCommit]:
        """Return the next commits along first parents. Fetch more if necessary."""
        from_commit = partial(along_first_parents, self._remote.objects, most=_COMMITS_AT_ONCE)
        found = from_commit(self._at) if self._present else []
        while not found and self._level < len(DEPTHS):
            if self._present and self._level > 0 and self._seen < DEPTHS[self._level - 1] // 2:
                # far fewer commits than requested arrived (others may have pushed a few in the
                # meantime)
                break
            tip = self._remote.fetch_commits(DEPTHS[self._level], self._branch)
            self._at = self._at or tip
            self._level = self._level + 1
            self._present = True
            found = from_commit(self._at)
        return found

    def _changed_blobs(
        self,
        commits: Sequence[PastCommit],
    ) -> tuple[_Blobs, int, str, tuple[str, TreeEntry | None] | None]:
        """Return the commits whose blob differs from the next newer one, the number of commits
        used, the file's path in the commits before these, and the root tree and entry of the last
        commit used.
        """
        changes: _Blobs = []
        newer = self._newer
        for used, commit in enumerate(commits):
            entry = _file_at(self._read, commit.tree, self.path)
            old_path = ""
            if newer and newer[1] and entry is None:
                old_path = self._moved_from(commit.tree, newer[0], newer[1])
            if old_path:
                if used:  # the rest is read under the old name
                    return changes, used, old_path, newer
                self.path = old_path  # all of these commits come before the rename
                entry = _file_at(self._read, commit.tree, old_path)
            if newer is None or _oid(newer[1]) != _oid(entry):
                changes.append((commit.oid, _oid(entry)))
            if commit.oid in self._marked and changes:
                changes[-1] = (commit.oid, changes[-1][1])
            elif commit.oid in self._marked:
                self._mark = commit.oid
            newer = (commit.tree, entry)
        return changes, len(commits), self.path, newer

    def _texts(self, blobs: Sequence[str]) -> dict[str, str | None]:
        """Return the contents of these blobs, and count their size."""
        oids = sorted(set(blobs))
        self._remote.fetch_files(oids, self._branch)
        texts, size = _texts_of(self._remote.objects, oids)
        self._size -= size
        return texts

    def _moved_from(self, older: str, newer: str, entry: TreeEntry) -> str:
        """Return the path that was renamed to ours between two trees: the same blob, else the same
        name and similar content.
        """
        gone = self._gone(older, newer)
        name = basename(self.path)
        same_name = [path for path in sorted(gone) if basename(path) == name]
        same_blob = [path for path in sorted(gone) if gone[path].oid == entry.oid]
        if same_blob:
            return next((path for path in same_blob if path in same_name), same_blob[0])
        candidates = same_name[:_MOST_ALIKE]
        if not candidates:
            return ""
        texts = self._texts([entry.oid, *(gone[path].oid for path in candidates)])
        text = texts[entry.oid]
        likeness = {path: _likeness(text, texts[gone[path].oid]) for path in candidates}
        best = max(candidates, key=likeness.__getitem__)
        return best if likeness[best] >= _ALIKE else ""

    def _gone(self, older: str, newer: str) -> dict[str, TreeEntry]:
        """Return the files of the older tree whose paths do not exist in the newer tree."""
        gone: dict[str, TreeEntry] = {}
        folders = deque([("", older, newer)])
        for _ in range(_MOST_TREES):
            if not folders:
                break
            folder, before, after = folders.popleft()
            new_entries = self._read(after)
            for name, old in self._read(before).items():
                new = new_entries.get(name)
                if old.is_folder and old != new:
                    new_folder = new.oid if new and new.is_folder else ""
                    folders.append((f"{folder}{name}/", old.oid, new_folder))
                elif old.is_file and not (new and new.is_file):
                    gone[folder + name] = old
        return gone


def _texts_of(objects: Objects, blobs: Sequence[str]) -> tuple[dict[str, str | None], int]:
    """Return the contents of these blobs (None if not text) and the number of bytes read."""
    found = objects.read(blobs)
    files = {oid: file_of(content) for oid, content in found.items()}
    texts = {oid: None if file.problem else file.text for oid, file in files.items()}
    return texts, sum(len(content or b"") for content in found.values())


def _file_at(read: ReadTree, root: str, path: str) -> TreeEntry | None:
    """Return the entry of the file at this path below a tree, or None."""
    found = look(read, root, Place(path, "exists"))
    return next((entry for where, entry, _ in found if where == path and entry.is_file), None)


def _oid(entry: TreeEntry | None) -> str:
    return entry.oid if entry else ""


def _likeness(text: str | None, other: str | None) -> float:
    """Return the share of lines that two files have in common, from 0 to 1."""
    lines = set((text or "").splitlines())
    others = set((other or "").splitlines())
    if not lines or not others:
        return 0.0
    return 2 * len(lines & others) / (len(lines) + len(others))


COMMITS = 500  # commits to fetch
_VERSIONS_AT_ONCE = 100  # file contents read together
_KEPT = 32  # trees
_MOST_STEPS = 50  # commits of a merged branch to search for the commit that wrote a file

ReadRaw = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)  # there may be a hundred thousand of these
class _Blob:
    """A file's content, and the commit on the branch that wrote it, or None if it is
    further back.
    """

    oid: str  # "" if there was no file
    commit: PastCommit | None


def versions_of(
    remote: Remote,
    branch: str,
    pages: Sequence[Sequence[str]],
    most: int,
) -> Iterator[Mapping[str, tuple[FileVersion, ...]]]:
    """Yield, for each page of paths, the files' contents at the branch's tip and the earlier
    versions that differ.

    They are newest first, at most `most` for each file, and only one page's contents are in memory.
    They are from the branch's last `COMMITS` commits. An older version has no commit, and a missing
    file has no versions. Raises `SourceError` if the branch does not exist, and the errors of
    `task.git.errors`.
    """
    found: list[tuple[Mapping[str, Sequence[_Blob]], ReadTree]] = []

    def versions(paths: Sequence[str]) -> Mapping[str, tuple[FileVersion, ...]]:
        if not found:
            tip = remote.fetch_commits(COMMITS, branch)
            raw, read = _readers(remote.objects)
            every = list(dict.fromkeys(chain.from_iterable(pages)))
            blobs = _blobs(raw, along_first_parents(remote.objects, tip, COMMITS), every, most)
            remote.fetch_files(_blob_ids(blobs), branch)
            found.append((blobs, read))
        known, read = found[0]
        return _file_versions(remote.objects, {path: known[path] for path in paths}, read)

    for paths in pages:
        yield restarted(remote, partial(versions, paths), found.clear)


def _file_versions(
    objects: Objects,
    blobs: Mapping[str, Sequence[_Blob]],
    read: ReadTree,
) -> Mapping[str, tuple[FileVersion, ...]]:
    wanted = _blob_ids(blobs)
    texts: dict[str, str | None] = {}
    remaining_bytes = LARGEST
    for start in range(0, len(wanted), _VERSIONS_AT_ONCE):
        if remaining_bytes > 0:
            batch = wanted[start : start + _VERSIONS_AT_ONCE]
            batch_texts, size = _texts_of(objects, batch)
            texts |= batch_texts
            remaining_bytes -= size
    return {
        path: tuple(
            _version(texts.get(blob.oid), _writer(objects, read, path, blob)) for blob in versions
        )
        for path, versions in blobs.items()
    }


def _blob_ids(blobs: Mapping[str, Sequence[_Blob]]) -> list[str]:
    """Return the ids of all files' versions, without duplicates."""
    every = chain.from_iterable(blobs.values())
    return list(dict.fromkeys(blob.oid for blob in every if blob.oid))


def _version(text: str | None, commit: PastCommit | None) -> FileVersion:
    if commit is None:
        return FileVersion(text)
    return FileVersion(text, commit.oid, commit.at, commit.author, commit.message)


def _blobs(
    read: ReadRaw,
    commits: Sequence[PastCommit],
    paths: Sequence[str],
    most: int,
) -> dict[str, list[_Blob]]:
    """Return the blobs of each file along these commits, newest first."""
    found: dict[str, list[_Blob]] = {path: [] for path in paths}
    if not commits:
        return found
    wanted = _as_tree(paths)
    current = dict(_changes(read, "", commits[0].tree, wanted))
    first: PastCommit | None = None  # the root, if it was fetched
    end = time.monotonic() + PATIENCE
    for commit, older in pairwise(commits):
        if time.monotonic() > end:
            break
        for path, older_blob in _changes(read, commit.tree, older.tree, wanted):
            if len(found[path]) < most:
                found[path].append(_Blob(current.get(path, ""), commit))
            current[path] = older_blob
    else:
        first = None if commits[-1].parent else commits[-1]
    for path, oid in current.items():
        if oid and len(found[path]) < most:
            found[path].append(_Blob(oid, first))
    return found


def _as_tree(paths: Sequence[str]) -> dict[str, Any]:
    """Return the paths as nested folders: name → the folder, or a file's full path."""
    root: dict[str, Any] = {}
    # if one path is a file and another path needs a folder of that name, the file comes last
    for path in sorted(paths, reverse=True):
        folder = root
        *parents, name = path.split("/")
        for part in parents:
            folder = folder.setdefault(part, {})
        folder.setdefault(name, path)
    return root


def _changes(
    read: ReadRaw,
    newer: str,
    older: str,
    wanted: Mapping[str, Any],
) -> Iterator[tuple[str, str]]:
    """Yield (path, blob in the older tree, or "" for no file) for the wanted files that differ."""
    if newer == older:
        return
    width = max(len(newer), len(older)) // 2
    new_entries, old_entries = differing(read(newer), read(older), width)
    for name in dict.fromkeys((*new_entries, *old_entries)):
        new = new_entries.get(name)
        old = old_entries.get(name)
        path_or_folder = wanted.get(name)
        if path_or_folder is None:
            continue
        if isinstance(path_or_folder, str):
            old_file = old.oid if old and old.is_file else ""
            new_file = new.oid if new and new.is_file else ""
            if old_file != new_file:
                yield path_or_folder, old_file
        else:
            old_folder = old.oid if old and old.is_folder else ""
            new_folder = new.oid if new and new.is_folder else ""
            yield from _changes(read, new_folder, old_folder, path_or_folder)


def _writer(objects: Objects, read: ReadTree, path: str, blob: _Blob) -> PastCommit | None:
    """Return the commit that wrote a version.

    If it came with a merge, return the merged branch's commit.
    """
    writer = blob.commit
    if writer is None or len(writer.parents) < 2:
        return writer
    for _ in range(_MOST_STEPS):
        parents = [commit_of(objects, oid) for oid in writer.parents if not objects.absent([oid])]
        with_same_blob = [
            past_commit
            for past_commit in parents
            if _oid(_file_at(read, past_commit.tree, path)) == blob.oid
        ]
        if not with_same_blob:
            return writer
        writer = with_same_blob[0]
    return writer


def _readers(objects: Objects) -> tuple[ReadRaw, ReadTree]:
    """Return functions for fetched trees, raw and parsed; "" is an empty tree. Most trees are
    needed again soon.
    """

    @lru_cache(maxsize=_KEPT)
    def raw(oid: str) -> bytes:
        return objects.read([oid])[oid] or b"" if oid else b""

    return raw, lru_cache(maxsize=_KEPT)(lambda oid: parse_tree(raw(oid), len(oid) // 2))
