"""Pure code that finds what is at a place of a commit. A function reads the trees."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from sys import intern

from task.errors import SourceError
from task.model import Place
from task.text import blanked

FOLDER = "040000"
# Ten trees that each name the next one ten times represent ten billion files.
MOST = 500_000
LONGEST = 4096  # characters of a path; no checkout can have a longer one, so Argo CD cannot read it either
MOST_CHANGED = 10_000  # files that one of our commits changes
_MANIFESTS = (".yaml", ".yml", ".json")

Tree = Mapping[str, "TreeEntry"]
ReadTree = Callable[[str], Tree]


@dataclass(frozen=True, slots=True)  # a large repository has hundreds of thousands
class TreeEntry:
    """One line of a tree."""

    mode: str  # six digits
    oid: str

    @property
    def is_folder(self) -> bool:
        """Whether it is a tree, and not a symbolic link or a submodule."""
        return self.mode == FOLDER

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file, executable or not."""
        return self.mode.startswith("100")


@dataclass(frozen=True)
class Walked:
    """The entries of the trees at some places."""

    entries: dict[str, TreeEntry]  # path → its entry
    texts: set[str]  # those paths whose text is needed


def parse_tree(raw: bytes, width: int) -> Tree:
    """Return the entries of a raw tree object. `width` is the length of a binary object id."""
    return _parsed(_lines(raw, width))


def differing(one: bytes, other: bytes, width: int) -> tuple[Tree, Tree]:
    """Return the entries of two raw trees that the other one does not have: a few in a folder with thousands."""
    ours, theirs = _lines(one, width), _lines(other, width)
    here, there = set(ours), set(theirs)
    return _parsed(line for line in ours if line not in there), _parsed(line for line in theirs if line not in here)


def _lines(raw: bytes, width: int) -> list[tuple[bytes, bytes, bytes]]:
    """Yield (mode, name, binary object id). Raises `ValueError` if it is not a tree."""
    found = re.findall(rb"(?s)([^ \0]+) ([^\0]+)\0(.{%d})" % width, raw)
    if sum(len(mode) + len(name) for mode, name, _ in found) + (width + 2) * len(found) != len(raw):
        raise ValueError("this is not a tree")
    return found


def _parsed(lines: Iterable[tuple[bytes, bytes, bytes]]) -> Tree:
    return {
        name.decode("utf-8", "surrogateescape"): TreeEntry(intern(mode.decode().zfill(6)), oid.hex())
        for mode, name, oid in lines
    }


def look(read: ReadTree, root: str, places: Iterable[Place]) -> Walked:
    """Return what is at each of these places, below the tree `root`. `read` returns a tree by its object id."""
    seen = Walked({}, set())
    for place in places:
        _look_at(read, root, place, seen)
    return seen


def _look_at(read: ReadTree, root: str, place: Place, seen: Walked) -> None:
    entry, path = TreeEntry(FOLDER, root), ""
    for name in filter(None, place.path.split("/")):
        if not entry.is_folder:
            break
        tree = read(entry.oid)
        if name not in tree:
            return
        entry, path = tree[name], f"{path}/{name}" if path else name

    reached = path == place.path.strip("/")
    if entry.is_folder and reached and place.want in {"folder", "tree", "names", "files"}:
        for below, file in _listed(read, path, entry.oid, deep=place.want != "folder"):
            if place.want == "files" and not file.is_folder:
                seen.entries[below] = file
                seen.texts.update({below} if file.is_file else ())
            elif file.is_file and place.want == "names":
                seen.entries.setdefault(below, file)
            elif file.is_file and below.endswith(_MANIFESTS):
                seen.entries[below] = file
                seen.texts.add(below)
        return
    if path:
        seen.entries[path] = entry
    if entry.is_file and reached and place.want != "exists":
        seen.texts.add(path)


def changed_paths(read: ReadTree, before: str, after: str) -> list[str]:
    """Return the paths of files that differ between two trees, at most `MOST_CHANGED` of them."""
    found: list[str] = []
    folders = [("", before, after)]
    while folders and len(found) < MOST_CHANGED:
        folder, old, new = folders.pop()
        olds, news = read(old) if old else {}, read(new) if new else {}
        for name in sorted(olds.keys() | news.keys()):
            one, other = olds.get(name), news.get(name)
            if one == other:
                continue
            inner = [entry.oid if entry and entry.is_folder else "" for entry in (one, other)]
            if any(inner):
                folders.append((f"{folder}{name}/", inner[0], inner[1]))
            if any(entry and not entry.is_folder for entry in (one, other)):
                found.append(f"{folder}{name}")
    return sorted(found)[:MOST_CHANGED]


def _listed(read: ReadTree, start: str, oid: str, *, deep: bool) -> Iterator[tuple[str, TreeEntry]]:
    """Return everything in a folder and below it. Raises `SourceError` for more than `MOST`."""
    open_folders, looked = [(start, oid)], 0
    while open_folders:
        folder, oid = open_folders.pop()
        for name, entry in read(oid).items():
            looked += 1
            if looked > MOST:
                message = f"{blanked(start) or 'the repository'} has more than {MOST} files and folders"
                raise SourceError(message, hint="name a smaller folder")
            path = f"{folder}/{name}" if folder else name
            if len(path) > LONGEST:
                continue
            yield path, entry
            if deep and entry.is_folder:
                open_folders.append((path, entry.oid))
