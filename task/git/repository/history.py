"""Finds the earlier texts of one path on a branch.

Commits and their trees come first, ever more of them; of the files only those that the path was.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from posixpath import basename
from typing import Literal

from task.git.repository.objects import file_of
from task.git.repository.past import PastCommit, PastTrees, along_first_parents
from task.git.repository.remote import Remote, restarted
from task.git.repository.tree_walk import TreeEntry

DEPTHS = (50, 200, 1000, 5000, 20_000)  # commits to fetch, in steps, while more are wanted
LIMIT = 100  # texts
LARGEST = 64_000_000  # bytes of texts
PATIENCE = 60.0  # seconds; for a file that rarely changes, a run would otherwise read all commits of a large repository
_AT_ONCE = 1000  # commits whose trees are requested together
_TEXTS_AT_ONCE = 5
_MOST_TREES = 2000  # trees to search for the place that a file was moved from
_MOST_ALIKE = 20  # files of the same name to compare with one that was moved and changed
_ALIKE = 0.5  # like `git log --follow`
End = Literal["", "root", "server", "limit"]


@dataclass(frozen=True)
class _Found:
    """The result of reading some commits."""

    blobs: list[tuple[str, str]]  # (commit, blob or "" for none)
    texts: Mapping[str, str | None]
    end: End = ""


class History:
    """Iterates over (commit, text): the path's text at the branch's tip, then each different one before it.

    It goes along first parents, so a merge is one step, and a text that was reverted to comes once for each time.
    The commit is the newest one that had the text. The text is None if there was no such file, or one that is no
    text. `path` is what the file was called at the last answer: renames are followed. `end` tells, once nothing
    follows, whether that was the "root" of all history, the end of what a shallow "server" has, or a "limit": as many
    texts as asked for, `size` bytes of them, or `patience` seconds. Raises `SourceError` for what is no branch, and
    what `task.git.errors` says of servers.
    The remote is for it alone; `close` removes what was fetched.
    """

    def __init__(
        self,
        remote: Remote,
        branch: str,
        path: str,
        limit: int = LIMIT,
        patience: float = PATIENCE,
        size: int = LARGEST,
    ) -> None:
        self.path = path
        self.end: End = ""
        self._remote = remote
        self._branch = branch
        self._limit = limit
        self._patience = patience
        self._size = size  # bytes that may still be read
        self._at = ""  # the next commit to read
        self._level = 0  # index into DEPTHS
        self._seen = 0  # number of commits
        self._present = False  # whether something was fetched and is still there
        self._newer: tuple[str, TreeEntry | None] | None = None  # the root and the file, one commit later
        self._trees = PastTrees(remote.objects)
        self._answers = self._walk()

    def __iter__(self) -> Iterator[tuple[str, str | None]]:
        return self

    def __next__(self) -> tuple[str, str | None]:
        return next(self._answers)

    def close(self) -> None:
        """Remove everything that was fetched. There are no more answers after that."""
        self._answers.close()
        self._remote.close()

    def _walk(self) -> Generator[tuple[str, str | None], None, None]:
        given, end = 0, time.monotonic() + self._patience
        while not self.end:
            if self._seen and time.monotonic() > end:
                self.end = "limit"
                return
            found = self._step()
            for commit, blob in found.blobs:
                if given == self._limit or (blob and blob not in found.texts):
                    self.end = "limit"
                    return
                given += 1
                yield commit, found.texts.get(blob)
            self.end = found.end

    def _step(self) -> _Found:
        """Return what the next commits show. Start over with an empty repository if the server or cache requires it."""

        def forget() -> None:
            self._present = False
            self._level = max(0, self._level - 1)

        return restarted(self._remote, self._some, forget)

    def _some(self) -> _Found:
        commits = self._commits()
        if not commits:
            return _Found([], {}, "limit" if self._seen >= DEPTHS[-1] else "server")
        changes, used, path, newer = self._changes(
            commits, self._trees.entries(self.path, [one.tree for one in commits])
        )
        blobs = list(dict.fromkeys(blob for _, blob in changes[: self._limit] if blob))
        self._remote.fetch_files(blobs, self._branch)
        texts: dict[str, str | None] = {}
        for start in range(0, len(blobs), _TEXTS_AT_ONCE):
            if self._size < 0:
                break
            texts |= self._texts(blobs[start : start + _TEXTS_AT_ONCE])
        last = commits[used - 1]
        self._seen += used
        self._at, self.path, self._newer = last.parent, path, newer
        return _Found(changes, texts, "" if last.parent else "root")

    def _commits(self) -> list[PastCommit]:
        """Return the next commits along first parents, and fetch more if necessary."""
        found = self._here() if self._present else []
        while not found and self._level < len(DEPTHS) and not self._server_ended():
            tip = self._remote.fetch_commits(DEPTHS[self._level], self._branch)
            self._at = self._at or tip
            self._level, self._present = self._level + 1, True
            found = self._here()
        return found

    def _server_ended(self) -> bool:
        """Tell whether far fewer commits came than requested (others may have pushed some more meanwhile)."""
        return self._present and self._level > 0 and self._seen < DEPTHS[self._level - 1] // 2

    def _here(self) -> list[PastCommit]:
        return along_first_parents(self._remote.objects, self._at, _AT_ONCE)

    def _changes(
        self, commits: Sequence[PastCommit], entries: Sequence[TreeEntry | None]
    ) -> tuple[list[tuple[str, str]], int, str, tuple[str, TreeEntry | None] | None]:
        """Return (start of another blob, number of commits used, path before that, entry one commit later)."""
        changes: list[tuple[str, str]] = []
        newer = self._newer
        for used, (commit, entry) in enumerate(zip(commits, entries, strict=True)):
            if newer and newer[1] and entry is None and (path := self._moved_from(commit.tree, newer[0], newer[1])):
                if used:  # the rest is read under the former name
                    return changes, used, path, newer
                self.path = path  # all of these commits come before the rename
                return self._changes(commits, self._trees.entries(path, [one.tree for one in commits]))
            if newer is None or _oid(newer[1]) != _oid(entry):
                changes.append((commit.oid, _oid(entry)))
            newer = (commit.tree, entry)
        return changes, len(commits), self.path, newer

    def _texts(self, blobs: Sequence[str]) -> dict[str, str | None]:
        oids = sorted(set(blobs))
        self._remote.fetch_files(oids, self._branch)
        found = self._remote.objects.read(oids)
        self._size -= sum(one.size for one in found.values() if one.content is not None)
        files = ((oid, file_of(one)) for oid, one in found.items())
        return {oid: None if file.problem else file.text for oid, file in files}

    def _moved_from(self, older: str, newer: str, entry: TreeEntry) -> str:
        """Return the path that became ours between two trees: the same blob, else the same name and a similar text."""
        gone = self._gone(older, newer)
        name = basename(self.path)
        same = sorted((basename(path) != name, path) for path, one in gone.items() if one.oid == entry.oid)
        if same:
            return same[0][1]
        alike = [path for path in sorted(gone) if basename(path) == name][:_MOST_ALIKE]
        texts = self._texts([entry.oid, *(gone[path].oid for path in alike)]) if alike else {}
        rated = [(_likeness(texts[entry.oid], texts[gone[path].oid]), path) for path in alike]
        best, path = max(rated, default=(0.0, ""), key=lambda one: one[0])
        return path if best >= _ALIKE else ""

    def _gone(self, older: str, newer: str) -> dict[str, TreeEntry]:
        """Return the files of the older tree that the newer one does not have at their path."""
        gone: dict[str, TreeEntry] = {}
        folders, left = [("", older, newer)], _MOST_TREES
        while folders and left > 0:
            folders = folders[:left]
            left -= len(folders)
            trees = dict(self._trees.read(sorted({oid for _, *pair in folders for oid in pair if oid})))
            deeper = []
            for folder, before, after in folders:
                for name, one in trees[before].items():
                    now = trees[after].get(name) if after else None
                    if one.is_folder and one != now:
                        deeper.append((f"{folder}{name}/", one.oid, now.oid if now and now.is_folder else ""))
                    elif one.is_file and not (now and now.is_file):
                        gone[folder + name] = one
            folders = deeper
        return gone


def _oid(entry: TreeEntry | None) -> str:
    return entry.oid if entry else ""


def _likeness(one: str | None, other: str | None) -> float:
    """Return the share of lines that two texts have in common, from 0 to 1."""
    lines, others = set((one or "").splitlines()), set((other or "").splitlines())
    return 2 * len(lines & others) / (len(lines) + len(others)) if lines and others else 0.0
