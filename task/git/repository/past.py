"""The earlier commits of a branch, and the files in their trees. Reads only what was fetched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from task.errors import Malformed
from task.git.repository.objects import Objects
from task.git.repository.tree_walk import FOLDER, Tree, TreeEntry, parse_tree
from task.timestamps import of_unix

_AT_ONCE = 100  # trees; that of a large folder takes a megabyte
# What is kept of an excessively large commit.
_PARENTS, _NAME, _MESSAGE = 64, 200, 64 * 1024


@dataclass(frozen=True)
class PastCommit:
    """A commit, and its parents."""

    oid: str
    tree: str
    parents: tuple[str, ...]  # also those that a shallow repository does not have
    author: str  # the name, else the address
    at: str  # commit time: RFC 3339, UTC; "" if it is no date
    message: str  # if it is very long, only its end

    @property
    def parent(self) -> str:
        """The first parent, or "" for a root."""
        return self.parents[0] if self.parents else ""


def along_first_parents(objects: Objects, start: str, most: int) -> list[PastCommit]:
    """Return the last commits that are present, newest first, at most this many."""
    found: list[PastCommit] = []
    at = start
    while at and len(found) < most and not objects.absent([at]):
        found.append(commit_of(objects, at))
        at = found[-1].parent
    return found


def commit_of(objects: Objects, oid: str) -> PastCommit:
    """Return a commit that is present."""
    head, _, message = (objects.read([oid])[oid].content or b"").partition(b"\n\n")
    said: dict[str, list[str]] = {}
    for line in head.split(b"\n"):
        key, _, value = line.decode("utf-8", "replace").partition(" ")
        said.setdefault(key, []).append(value)
    trees, parents, authors, committers = (said.get(key, []) for key in ("tree", "parent", "author", "committer"))
    name, _, address = "".join(authors[:1]).rpartition(">")[0].partition("<")
    return PastCommit(
        oid,
        "".join(trees[:1]),
        tuple(parents[:_PARENTS]),
        (name.strip() or address.strip())[:_NAME],
        _time("".join(committers[:1]).rpartition(">")[2]),
        message[-_MESSAGE:].decode("utf-8", "replace"),
    )


def _time(text: str) -> str:
    """Return the time from Git's seconds and time zone, or "" for any other text."""
    seconds = text.split()
    try:
        return of_unix(int(seconds[0])) if seconds else ""
    except (ValueError, Malformed):
        return ""


class PastTrees:
    """Reads what trees of many commits have. Each name in each tree is looked up once."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._names: dict[tuple[str, str], TreeEntry | None] = {}  # (tree, name) → its entry

    def entries(self, path: str, roots: Sequence[str]) -> list[TreeEntry | None]:
        """Return the file at the path in each of these root trees."""
        entries: list[TreeEntry | None] = [TreeEntry(FOLDER, root) for root in roots]
        for name in path.split("/"):
            folders = {one.oid for one in entries if one and one.is_folder}
            unknown = sorted(oid for oid in folders if (oid, name) not in self._names)
            self._names.update(((oid, name), tree.get(name)) for oid, tree in self.read(unknown))
            entries = [self._names[one.oid, name] if one and one.is_folder else None for one in entries]
        return [one if one and one.is_file else None for one in entries]

    def read(self, oids: Sequence[str]) -> Iterator[tuple[str, Tree]]:
        """Return the trees themselves."""
        for start in range(0, len(oids), _AT_ONCE):
            for oid, found in self._objects.read(oids[start : start + _AT_ONCE]).items():
                yield oid, parse_tree(found.content or b"", len(oid) // 2)
