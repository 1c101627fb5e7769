"""Finds earlier versions of files on a branch: of one path (`History`), or of many files
(`versions_of`).

Commits and their trees are fetched first, then only the required files. `History` goes back as far
as necessary for one file, and follows renames. `versions_of` fetches the commits only once for all
files.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import chain, pairwise
from posixpath import basename
from typing import Any, Literal

from task.git.repository.objects import (
    Objects,
    PastCommit,
    ReadTree,
    Tree,
    TreeEntry,
    along_first_parents,
    commit_of,
    differing,
    file_of,
    find_entries,
    parse_tree,
)
from task.git.repository.remote import Remote, restarted
from task.model import FileVersion, Place

DEPTHS = (50, 200, 1000, 5000, 20_000)  # commits to fetch, step by step, until there are enough
LARGEST = 64_000_000  # maximum total bytes of file contents to read
# Maximum seconds to search. Without this limit, a run would read all commits of a large repository
# to find the versions of a file that rarely changes.
PATIENCE = 60.0
_COMMITS_AT_ONCE = 1000  # commits whose trees are requested together
_TEXTS_AT_ONCE = 5
_MOST_TREES = 2000  # maximum trees to search for a moved file's old path
_MOST_COMPARED = 20  # maximum files to compare with a moved and changed file of the same name
_LEAST_SIMILARITY = 0.5  # as in `git log --follow`
End = Literal["", "root", "server", "limit"]
_Versions = list[tuple[str, str]]  # (commit, blob); the blob is "" if there was no file


@dataclass(frozen=True)
class _FileInTree:
    """A file's entry below a root tree."""

    root: str
    entry: TreeEntry | None  # None if there is no such file


@dataclass(frozen=True)
class _Changes:
    """A file's changes in a series of commits, found by comparing the commits' trees."""

    versions: _Versions  # for each commit whose blob differs from that of the next newer commit
    used: int  # number of commits compared
    path: str  # the file's path in earlier commits
    oldest: _FileInTree | None  # the file in the last commit that was compared


class History:
    """The versions of one file on a branch. Iteration yields (commit, content): the file's content
    at the branch's tip, then each earlier version that differs.

    The history follows first parents, so a merge is a single step, and content restored by a revert
    is yielded again. The commit is the newest one with this content, but a commit in `marked` with
    the same content is preferred. The content is None if the file did not exist or was not text.
    Renames are followed, and `path` is the file's path in the last version returned.

    After the last version, `end` contains the reason why there are no more: "root" (that was the
    whole history), "server" (the server has no more history), or "limit" (the requested number of
    versions, `LARGEST` bytes in total, or `PATIENCE` seconds).

    Raises `SourceError` if the branch does not exist, and the errors of `task.git.errors`. The
    remote must not be shared, because `close` removes the fetched objects.
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
        # a marked commit in the current part, with the same content as the previous part's last
        # version
        self._marked_commit = ""
        self._bytes_left = LARGEST  # that may still be read
        self._next_commit = ""  # the newest commit that has not been read yet; "" at first
        self._depth_index = 0  # index into DEPTHS for the next fetch
        self._commits_read = 0
        self._has_objects = False  # whether the fetched objects are still present
        self._newer_file: _FileInTree | None = None  # the file in the commit after `_next_commit`
        _, self._read_tree = _readers(remote.objects)
        self._versions = self._walk()

    def __iter__(self) -> Iterator[tuple[str, str | None]]:
        return self

    def __next__(self) -> tuple[str, str | None]:
        return next(self._versions)

    def close(self) -> None:
        """Remove everything that was fetched. This ends the iteration."""
        self._versions.close()
        self._remote.close()

    def _walk(self) -> Generator[tuple[str, str | None], None, None]:
        """Yield (commit, content) of each version, reading the commits part by part. Set `end` when
        there are no more.
        """
        yielded = 0  # number of versions, including the pending one
        deadline = time.monotonic() + PATIENCE
        # A part's last version is held back until the next part has been read, because that part's
        # first commits may have the same content. If one of them is marked, yield it as the
        # version's commit.
        pending: tuple[str, str | None] | None = None
        while not self.end:
            # the first part is always read
            is_too_late = self._commits_read > 0 and time.monotonic() > deadline
            if is_too_late:
                if pending:
                    yield pending
                self.end = "limit"
                return

            # repeat this in an empty repository if the server or the cache requires that
            versions, texts, end = restarted(self._remote, self._read_next_part, self._forget)
            if pending:
                commit, text = pending
                yield self._marked_commit or commit, text
                pending = None

            # the versions that are within the limits
            readable: list[tuple[str, str | None]] = []
            for commit, blob in versions[: self._limit - yielded]:
                if blob and blob not in texts:  # not read, because the contents exceed `LARGEST`
                    break
                readable.append((commit, texts.get(blob)))
            yielded += len(readable)
            is_cut = len(readable) < len(versions)
            if self._marked and readable and not is_cut and not end:
                pending = readable.pop()
            yield from readable
            self.end = "limit" if is_cut else end

    def _forget(self) -> None:
        """Prepare to repeat the last fetch, because the fetched objects are gone."""
        self._has_objects = False
        self._depth_index = max(0, self._depth_index - 1)

    def _read_next_part(self) -> tuple[_Versions, Mapping[str, str | None], End]:
        """Read the next part of the commits. Return the versions in this part, the contents by
        blob, and the reason why the history ends here ("" if there may be more commits).

        This method may be called again after an error, so it updates the position only after all
        reads.
        """
        commits = self._next_commits()
        self._marked_commit = ""
        if not commits:
            fetched_the_most = self._commits_read >= DEPTHS[-1]
            return [], {}, "limit" if fetched_the_most else "server"

        changes = self._compare_commits(commits)
        versions = changes.versions[: self._limit]  # the caller needs no more than these
        oids = list(dict.fromkeys(oid for _, oid in versions if oid))
        self._remote.fetch_files(oids, self._branch)  # one request for all; read in groups below
        texts: dict[str, str | None] = {}
        for start in range(0, len(oids), _TEXTS_AT_ONCE):
            if self._bytes_left < 0:
                break
            texts |= self._texts(oids[start : start + _TEXTS_AT_ONCE])

        last_commit = commits[changes.used - 1]
        self._commits_read += changes.used
        self._next_commit = last_commit.parent
        self.path = changes.path
        self._newer_file = changes.oldest
        if not last_commit.parent:
            return changes.versions, texts, "root"
        return changes.versions, texts, ""

    def _next_commits(self) -> list[PastCommit]:
        """Return the next commits along first parents, newest first. Fetch more commits if
        necessary. Return [] if there are no more.
        """
        read_from = partial(along_first_parents, self._remote.objects, most=_COMMITS_AT_ONCE)
        commits = read_from(self._next_commit) if self._has_objects else []
        while not commits and self._depth_index < len(DEPTHS):
            last_depth = DEPTHS[self._depth_index - 1] if self._depth_index > 0 else 0
            if self._has_objects and self._commits_read < last_depth // 2:
                # The server has no more commits: it sent less than half of those requested. (If
                # others have pushed since the first fetch, only a few are missing.)
                break
            tip = self._remote.fetch_commits(DEPTHS[self._depth_index], self._branch)
            self._next_commit = self._next_commit or tip
            self._depth_index += 1
            self._has_objects = True
            commits = read_from(self._next_commit)
        return commits

    def _compare_commits(self, commits: Sequence[PastCommit]) -> _Changes:
        """Find the versions of the file in these commits, which are sorted newest first. Compare
        the file in each commit with the file in the next newer one.

        Stop at a rename, because in the remaining commits, the file has its old path. If a marked
        (preferred) commit has the same content as the last version of the previous part, remember
        it in `_marked_commit`.
        """
        versions: _Versions = []
        newer = self._newer_file
        for index, commit in enumerate(commits):
            entry = _file_at(self._read_tree, commit.tree, self.path)
            if entry is None:
                old_path = self._old_path_of_renamed(commit.tree, newer)
                if old_path and index > 0:
                    return _Changes(versions, used=index, path=old_path, oldest=newer)
                if old_path:  # the rename came after all of these commits
                    self.path = old_path  # still correct if this part has to be read again
                    entry = _file_at(self._read_tree, commit.tree, old_path)

            oid = _oid(entry)
            if newer is None or _oid(newer.entry) != oid:  # this is the tip, or the content differs
                versions.append((commit.oid, oid))
            # If this commit is marked, prefer it as the commit of the last version found, which has
            # the same content.
            if commit.oid in self._marked:
                if versions:
                    versions[-1] = (commit.oid, oid)
                else:
                    self._marked_commit = commit.oid
            newer = _FileInTree(commit.tree, entry)
        return _Changes(versions, used=len(commits), path=self.path, oldest=newer)

    def _texts(self, blobs: Sequence[str]) -> dict[str, str | None]:
        """Fetch and return the contents of these blobs, and subtract their size from the remaining
        byte limit.
        """
        oids = sorted(set(blobs))
        self._remote.fetch_files(oids, self._branch)
        texts, size = _texts_of(self._remote.objects, oids)
        self._bytes_left -= size
        return texts

    def _old_path_of_renamed(self, older: str, newer: _FileInTree | None) -> str:
        """Return the path that the file had before a rename, in the root tree `older`, or "".

        `newer` is the file in the next newer commit. Among the files that the newer commit removed,
        look for a file with the same blob, else for a file with the same name and similar content.
        """
        if newer is None or newer.entry is None:
            return ""
        oid = newer.entry.oid
        removed = self._removed_files(older, newer.root)
        paths = sorted(removed)
        name = basename(self.path)
        with_same_name = [path for path in paths if basename(path) == name]
        with_same_blob = [path for path in paths if removed[path].oid == oid]
        if with_same_blob:
            with_both = [path for path in with_same_blob if path in with_same_name]
            return with_both[0] if with_both else with_same_blob[0]

        candidates = with_same_name[:_MOST_COMPARED]  # the files' contents have to be fetched
        if not candidates:
            return ""
        texts = self._texts([oid, *(removed[path].oid for path in candidates)])
        similarities = {
            path: _similarity(texts[oid], texts[removed[path].oid]) for path in candidates
        }
        most_similar = max(candidates, key=lambda path: similarities[path])
        return most_similar if similarities[most_similar] >= _LEAST_SIMILARITY else ""

    def _removed_files(self, older: str, newer: str) -> dict[str, TreeEntry]:
        """Return the files, by path, that exist in the root tree `older`, but not in the root tree
        `newer`. Stop after `_MOST_TREES` folders.
        """
        removed: dict[str, TreeEntry] = {}
        folders = deque([("", older, newer)])  # (path, tree in `older`, tree in `newer` or "")
        for _ in range(_MOST_TREES):
            if not folders:
                break
            folder, older_tree, newer_tree = folders.popleft()
            newer_entries = self._read_tree(newer_tree)
            for name, old in self._read_tree(older_tree).items():
                new = newer_entries.get(name)
                # an unchanged folder has lost no files
                if old.is_folder and old != new:
                    folders.append((f"{folder}{name}/", old.oid, _folder_oid(new)))
                elif old.is_file and not _file_oid(new):
                    removed[folder + name] = old
        return removed


def _texts_of(objects: Objects, blobs: Sequence[str]) -> tuple[dict[str, str | None], int]:
    """Return the contents of these blobs (None if not text), and the number of bytes read."""
    texts: dict[str, str | None] = {}
    size = 0
    for oid, content in objects.read(blobs).items():
        file = file_of(content)
        texts[oid] = None if file.problem else file.text
        size += len(content or b"")
    return texts, size


def _file_at(read: ReadTree, root: str, path: str) -> TreeEntry | None:
    """Return the entry of the file at this path below a tree, or None."""
    for found_path, entry, _ in find_entries(read, root, Place(path, "exists")):
        if found_path == path and entry.is_file:
            return entry
    return None


def _oid(entry: TreeEntry | None) -> str:
    return entry.oid if entry else ""


def _file_oid(entry: TreeEntry | None) -> str:
    """Return a tree entry's blob, or "" if the entry is not a file."""
    return entry.oid if entry and entry.is_file else ""


def _folder_oid(entry: TreeEntry | None) -> str:
    """Return a tree entry's tree, or "" if the entry is not a folder."""
    return entry.oid if entry and entry.is_folder else ""


def _similarity(text: str | None, other: str | None) -> float:
    """Return the fraction of lines that two files have in common, from 0 to 1."""
    lines = set((text or "").splitlines())
    other_lines = set((other or "").splitlines())
    if not lines or not other_lines:
        return 0.0
    return 2 * len(lines & other_lines) / (len(lines) + len(other_lines))


COMMITS = 500  # commits to fetch
_VERSIONS_AT_ONCE = 100  # file contents to read at once
_CACHED_TREES = 32  # trees
_MOST_STEPS = 50  # maximum commits of a merged branch to search for a file's writer

ReadRaw = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)  # there may be a hundred thousand of these
class _Blob:
    """A version's content (a blob), and the commit on the branch that wrote it, which is None if
    the commit is further back.
    """

    oid: str  # "" if there was no file
    commit: PastCommit | None


def versions_of(
    remote: Remote,
    branch: str,
    pages: Sequence[Sequence[str]],
    most: int,
) -> Iterator[Mapping[str, tuple[FileVersion, ...]]]:
    """For each page (a group of paths), yield the versions of the page's files: the content at the
    branch's tip, and the earlier contents that differ, newest first.

    There are at most `most` versions of each file, all from the branch's last `COMMITS` commits. A
    version that was written before these commits has no commit, and a deletion is a version without
    text. A file that exists in none of these commits has no versions. Only one page's contents are
    in memory at a time. Raises `SourceError` if the branch does not exist, and the errors of
    `task.git.errors`.
    """
    all_paths = list(dict.fromkeys(chain.from_iterable(pages)))

    @cache
    def fetch_all() -> tuple[Mapping[str, Sequence[_Blob]], ReadTree]:
        """Fetch the commits and the files of all pages."""
        tip = remote.fetch_commits(COMMITS, branch)
        read_raw, read_tree = _readers(remote.objects)
        commits = along_first_parents(remote.objects, tip, COMMITS)
        blobs = _blobs_along(read_raw, commits, all_paths, most)
        remote.fetch_files(_blob_ids(blobs), branch)
        return blobs, read_tree

    def versions_of_page(paths: Sequence[str]) -> Mapping[str, tuple[FileVersion, ...]]:
        """Read the contents of one page's files."""
        blobs, read_tree = fetch_all()
        page_blobs = {path: blobs[path] for path in paths}
        return _file_versions(remote.objects, page_blobs, read_tree)

    for paths in pages:
        # if the fetched objects are lost, `fetch_all` has to fetch them again
        yield restarted(remote, partial(versions_of_page, paths), fetch_all.cache_clear)


def _file_versions(
    objects: Objects,
    blobs: Mapping[str, Sequence[_Blob]],
    read: ReadTree,
) -> Mapping[str, tuple[FileVersion, ...]]:
    """Return each file's versions, by path, with their contents. `blobs` contains each file's
    blobs, and `read` reads a tree.

    The content is None if it is not text, or if the total size of the contents read before it
    exceeds `LARGEST`.
    """
    oids = _blob_ids(blobs)
    texts: dict[str, str | None] = {}
    remaining_bytes = LARGEST
    for start in range(0, len(oids), _VERSIONS_AT_ONCE):
        if remaining_bytes <= 0:
            break
        batch_texts, size = _texts_of(objects, oids[start : start + _VERSIONS_AT_ONCE])
        texts |= batch_texts
        remaining_bytes -= size

    versions: dict[str, tuple[FileVersion, ...]] = {}
    for path, file_blobs in blobs.items():
        versions[path] = tuple(
            _version(texts.get(blob.oid), _writer(objects, read, path, blob)) for blob in file_blobs
        )
    return versions


def _blob_ids(blobs: Mapping[str, Sequence[_Blob]]) -> list[str]:
    """Return the blob ids of all files' versions, without duplicates."""
    all_blobs = chain.from_iterable(blobs.values())
    return list(dict.fromkeys(blob.oid for blob in all_blobs if blob.oid))


def _version(text: str | None, commit: PastCommit | None) -> FileVersion:
    if commit is None:
        return FileVersion(text)
    return FileVersion(
        text,
        commit=commit.oid,
        at=commit.at,
        by=commit.author,
        message=commit.message,
    )


def _blobs_along(
    read: ReadRaw,
    commits: Sequence[PastCommit],
    paths: Sequence[str],
    most: int,
) -> dict[str, list[_Blob]]:
    """Return the blobs that each file had in these commits, by path, newest first, at most `most`
    for each file.

    `commits` are sorted newest first. If there are too many to compare in time, leave out the
    oldest.
    """
    blobs: dict[str, list[_Blob]] = {path: [] for path in paths}
    if not commits:
        return blobs

    nested_paths = _nested_paths(paths)
    # path → the file's blob in the commit that the loop has reached. The loop starts at the tip,
    # all of whose files differ from an empty tree.
    current = dict(_changed_files(read, commits[0].tree, "", nested_paths))
    is_complete = True
    deadline = time.monotonic() + PATIENCE
    for commit, older in pairwise(commits):
        if time.monotonic() > deadline:
            is_complete = False
            break
        for path, older_blob in _changed_files(read, older.tree, commit.tree, nested_paths):
            if len(blobs[path]) < most:
                blobs[path].append(_Blob(current.get(path, ""), commit))
            current[path] = older_blob

    # Each file's oldest blob was written either by the root commit, or by a commit that is further
    # back.
    oldest = commits[-1]
    has_root = is_complete and not oldest.parent
    for path, oid in current.items():
        if oid and len(blobs[path]) < most:
            blobs[path].append(_Blob(oid, oldest if has_root else None))
    return blobs


def _nested_paths(paths: Sequence[str]) -> dict[str, Any]:
    """Return the paths as nested folders: name → the folder, or a file's full path.

    For example, `a/b` and `c` become `{"a": {"b": "a/b"}, "c": "c"}`. If one path is a file, and
    another path requires a folder of the same name, only the folder is kept.
    """
    root: dict[str, Any] = {}
    # In reverse order, such a folder comes before the file.
    for path in sorted(paths, reverse=True):
        folder = root
        *parent_names, name = path.split("/")
        for parent_name in parent_names:
            folder = folder.setdefault(parent_name, {})
        folder.setdefault(name, path)
    return root


def _changed_files(
    read: ReadRaw,
    tree: str,
    other: str,
    nested_paths: Mapping[str, Any],
) -> Iterator[tuple[str, str]]:
    """Yield (path, blob in `tree`) for those files at `nested_paths` that differ between the trees
    `tree` and `other`. The blob is "" if there is no file. The tree id "" means an empty tree.

    `nested_paths` are in the form that `_nested_paths` returns, below the folder of these trees.
    """
    if tree == other:
        return
    width = max(len(tree), len(other)) // 2  # of a binary id; `tree` or `other` may be ""
    entries, other_entries = differing(read(tree), read(other), width)
    for name in dict.fromkeys((*entries, *other_entries)):
        entry = entries.get(name)
        other_entry = other_entries.get(name)
        path_or_folder = nested_paths.get(name)
        if path_or_folder is None:  # nothing below this was requested
            continue
        if isinstance(path_or_folder, str):
            if _file_oid(entry) != _file_oid(other_entry):
                yield path_or_folder, _file_oid(entry)
        else:
            folder = _folder_oid(entry)
            yield from _changed_files(read, folder, _folder_oid(other_entry), path_or_folder)


def _writer(objects: Objects, read: ReadTree, path: str, blob: _Blob) -> PastCommit | None:
    """Return the commit that wrote a version of the file (`blob`), or None if that commit is too
    far back.

    If a merge brought the version to the branch, a commit of the merged branch wrote it. So step to
    the parent that already contains the version, up to `_MOST_STEPS` times.
    """
    writer = blob.commit
    if writer is None or len(writer.parents) < 2:
        return writer
    for _ in range(_MOST_STEPS):
        # only the fetched parents
        parents = [commit_of(objects, oid) for oid in writer.parents if not objects.absent([oid])]
        parents_with_blob = [
            parent for parent in parents if _oid(_file_at(read, parent.tree, path)) == blob.oid
        ]
        if not parents_with_blob:
            return writer
        writer = parents_with_blob[0]
    return writer


def _readers(objects: Objects) -> tuple[ReadRaw, ReadTree]:
    """Return two functions that read a fetched tree by its id: one returns the raw bytes, the other
    the parsed entries. The id "" means an empty tree.

    The most recent trees are cached, because most of them are soon needed again.
    """

    @lru_cache(maxsize=_CACHED_TREES)
    def read_raw(oid: str) -> bytes:
        if not oid:
            return b""
        return objects.read([oid])[oid] or b""

    @lru_cache(maxsize=_CACHED_TREES)
    def read_tree(oid: str) -> Tree:
        return parse_tree(read_raw(oid), len(oid) // 2)

    return read_raw, read_tree
