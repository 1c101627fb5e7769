"""What lies behind a branch's tip: its earlier commits, and what their trees hold. Reads only what was fetched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from task.errors import Malformed
from task.git.repository.objects import Objects
from task.git.repository.tree_walk import FOLDER, Tree, TreeEntry, parse_tree
from task.timestamps import of_unix

_AT_ONCE = 100  # trees; that of a large folder has a megabyte


@dataclass(frozen=True)
class PastCommit:
    """A commit as Git stores it."""

    oid: str
    content: bytes

    @property
    def tree(self) -> str:
        """Its root tree."""
        return next(iter(self._all("tree")), "")

    @property
    def parents(self) -> list[str]:
        """The commits before it; a shallow repository's commits still name them."""
        return self._all("parent")

    @property
    def parent(self) -> str:
        """Its first parent; "" for a root."""
        return next(iter(self.parents), "")

    @property
    def author(self) -> str:
        """The author's name, else the address."""
        name, _, address = next(iter(self._all("author")), "").rpartition(">")[0].partition("<")
        return name.strip() or address.strip()

    @property
    def at(self) -> str:
        """When it was committed: RFC 3339, UTC; "" where that is no date."""
        seconds = next(iter(self._all("committer")), "").rpartition(">")[2].split()
        try:
            return of_unix(int(seconds[0])) if seconds else ""
        except (ValueError, Malformed):
            return ""

    @property
    def message(self) -> str:
        """The whole message."""
        return self.content.partition(b"\n\n")[2].decode("utf-8", "replace")

    def _all(self, key: str) -> list[str]:
        lines = self.content.partition(b"\n\n")[0].decode("utf-8", "replace").split("\n")
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{key} ")]


def along_first_parents(objects: Objects, start: str, most: int) -> list[PastCommit]:
    """So many commits at most, the newest first, as far as they are here."""
    found: list[PastCommit] = []
    at = start
    while at and len(found) < most and not objects.absent([at]):
        found.append(commit_of(objects, at))
        at = found[-1].parent
    return found


def commit_of(objects: Objects, oid: str) -> PastCommit:
    """A commit that is here."""
    return PastCommit(oid, objects.read([oid])[oid].content or b"")


class PastTrees:
    """What trees of many commits hold; each name in each tree is looked up once."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._names: dict[tuple[str, str], TreeEntry | None] = {}  # (tree, name) → what it holds

    def entries(self, path: str, roots: Sequence[str]) -> list[TreeEntry | None]:
        """The file at the path in each of these root trees."""
        entries: list[TreeEntry | None] = [TreeEntry(FOLDER, root) for root in roots]
        for name in path.split("/"):
            folders = {one.oid for one in entries if one and one.is_folder}
            unknown = sorted(oid for oid in folders if (oid, name) not in self._names)
            self._names.update(((oid, name), tree.get(name)) for oid, tree in self.read(unknown))
            entries = [self._names[one.oid, name] if one and one.is_folder else None for one in entries]
        return [one if one and one.is_file else None for one in entries]

    def read(self, oids: Sequence[str]) -> Iterator[tuple[str, Tree]]:
        """The trees themselves."""
        for start in range(0, len(oids), _AT_ONCE):
            for oid, found in self._objects.read(oids[start : start + _AT_ONCE]).items():
                yield oid, parse_tree(found.content or b"", len(oid) // 2)
