"""From the trees known so far: what lies at a place, and which trees must be known to say more. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from task.errors import SourceError
from task.model import Place
from task.text import blanked

FOLDER, SYMLINK, SUBMODULE = "040000", "120000", "160000"
# Ten trees, each of which names the next one ten times, stand for ten billion files.
MOST = 500_000
LONGEST = 4096  # letters of a path: no checkout holds a longer one, so Argo CD does not read it either
_MANIFESTS = (".yaml", ".yml", ".json")

Tree = Mapping[str, "TreeEntry"]


@dataclass(frozen=True)
class TreeEntry:
    """One line of a tree."""

    mode: str  # six digits
    oid: str

    @property
    def is_folder(self) -> bool:
        """A tree, and not a symbolic link or a submodule."""
        return self.mode == FOLDER

    @property
    def is_file(self) -> bool:
        """A regular file, executable or not."""
        return self.mode.startswith("100")


@dataclass(frozen=True)
class Walked:
    """What the trees say about some places."""

    entries: dict[str, TreeEntry]  # path → what is there
    texts: set[str]  # the paths among them whose text is wanted
    missing: set[str]  # trees that must be fetched first


def parse_tree(raw: bytes, width: int) -> Tree:
    """The entries of a raw tree object; `width` is the length of a binary object id."""
    tree: dict[str, TreeEntry] = {}
    at = 0
    while at < len(raw):
        space = raw.index(b" ", at)
        zero = raw.index(b"\0", space)
        end = zero + 1 + width
        name = raw[space + 1 : zero].decode("utf-8", "surrogateescape")
        tree[name] = TreeEntry(raw[at:space].decode().zfill(6), raw[zero + 1 : end].hex())
        at = end
    return tree


def look(trees: Mapping[str, Tree], root: str, places: Iterable[Place]) -> Walked:
    """Walk all places at once, as far as the trees are known."""
    seen = Walked({}, set(), set())
    for place in places:
        _look_at(trees, root, place, seen)
    return seen


def _look_at(trees: Mapping[str, Tree], root: str, place: Place, seen: Walked) -> None:
    entry, path = TreeEntry(FOLDER, root), ""
    for name in filter(None, place.path.split("/")):
        if not entry.is_folder:
            break
        tree = trees.get(entry.oid)
        if tree is None:
            seen.missing.add(entry.oid)
            return
        if name not in tree:
            return
        entry, path = tree[name], f"{path}/{name}" if path else name
    _take(trees, place, path, entry, seen)


def _take(trees: Mapping[str, Tree], place: Place, path: str, entry: TreeEntry, seen: Walked) -> None:
    reached = path == place.path.strip("/")
    if entry.is_folder and reached and place.want in {"folder", "tree"}:
        _list(trees, path, entry.oid, place.want == "tree", seen)
        return
    if path:
        seen.entries[path] = entry
    if entry.is_file and reached and place.want != "exists":
        seen.texts.add(path)


def _list(trees: Mapping[str, Tree], start: str, oid: str, deep: bool, seen: Walked) -> None:  # noqa: FBT001
    open_folders, looked = [(start, oid)], 0
    while open_folders:
        folder, oid = open_folders.pop()
        tree = trees.get(oid)
        if tree is None:
            seen.missing.add(oid)
            continue
        for path, entry in _joined(folder, tree):
            looked += 1
            if looked > MOST:
                message = f"{blanked(start) or 'the repository'} holds more than {MOST} files and folders"
                raise SourceError(message, hint="name a smaller folder")
            if len(path) > LONGEST:
                continue
            if entry.is_file and path.endswith(_MANIFESTS):
                seen.entries[path] = entry
                seen.texts.add(path)
            elif deep and entry.is_folder:
                open_folders.append((path, entry.oid))


def _joined(folder: str, tree: Tree) -> Iterator[tuple[str, TreeEntry]]:
    for name, entry in tree.items():
        yield (f"{folder}/{name}" if folder else name), entry
