"""Applies splices to YAML text, and refuses those that would change more than was meant.

The new text is parsed. It must differ from the old text only in the meant nodes, and each of them must be the new value
for every YAML reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from task.editors.yaml.layout import Data, Word
from task.editors.yaml.scalar import sound
from task.editors.yaml.tree import Node, Tree, pairs, parse
from task.errors import TargetError


class Splice(NamedTuple):
    """Replaces `[start:end]` with `text`."""

    start: int
    end: int
    text: str


# Compares an old and a new node. Returns the pairs that must be compared next, or None if the new node is not as meant.
Same = Callable[[Node, Node], Iterable[tuple[Node, Node]] | None]


def apply(text: str, splices: Sequence[Splice]) -> str:
    """Return the text with all splices. Splices at the same place stay in the given order."""
    parts, at = [], 0
    for start, end, fresh in sorted(splices, key=lambda splice: splice[:2]):  # sorting is stable
        parts += [text[at:start], fresh]
        at = end
    return "".join(parts) + text[at:]


def more_than_meant() -> TargetError:
    """Return the error for an edit that would change more than was meant."""
    return TargetError(
        "the edit would change more than was meant", hint="write the value on a line of its own, as `key: value`"
    )


def checked(tree: Tree, splices: Sequence[Splice], meant: Mapping[int, Same]) -> Tree:
    """Return the tree after the splices. `meant` says which nodes may differ (by the old node's id), and how.

    Raises TargetError if another node differs, or one of these in another way.
    """
    try:
        new = parse(apply(tree.text, splices))
    except TargetError as error:
        raise more_than_meant() from error
    if len(new.documents) != len(tree.documents):  # a text such as `---` begins a document, and `...` ends one
        raise more_than_meant()
    stack = [(old.root, now.root) for old, now in zip(tree.documents, new.documents, strict=True)]
    while stack:
        old, now = stack.pop()
        more = meant.get(id(old), _alike)(old, now)
        if more is None:
            raise more_than_meant()
        stack.extend(more)
    return new


def _alike(old: Node, new: Node) -> Iterable[tuple[Node, Node]] | None:
    # The style matters as well: a quoted number that loses its quotes is another value.
    if (old.kind, old.value, old.style, old.anchor, old.tag) != (new.kind, new.value, new.style, new.anchor, new.tag):
        return None
    return zip(old.children, new.children, strict=True) if len(old.children) == len(new.children) else None


def grows(more: Mapping[str, Data] | Sequence[Data], *, last: bool = True) -> Same:
    """Accept a collection with these new entries at its end, or before its last entry."""
    count = 2 * len(more) if isinstance(more, Mapping) else len(more)
    width = 2 if isinstance(more, Mapping) else 1

    def same(old: Node, new: Node) -> Iterable[tuple[Node, Node]] | None:
        at = len(old.children) - (0 if last else width)
        fresh = Node(new.kind, 0, 0, children=new.children[at : at + count])
        if len(new.children) != len(old.children) + count or new.anchor != old.anchor or not holds(fresh, more):
            return None
        return zip(old.children, new.children[:at] + new.children[at + count :], strict=True)

    return same


def shrinks(*numbers: int) -> Same:
    """Accept a collection without the entries at these places."""

    def same(old: Node, new: Node) -> Iterable[tuple[Node, Node]] | None:
        width = 2 if old.kind == "mapping" else 1
        gone = set(numbers)
        left = [child for place, child in enumerate(old.children) if place // width not in gone]
        return zip(left, new.children, strict=True) if len(left) == len(new.children) and new.kind == old.kind else None

    return same


def holds(node: Node, data: Data) -> bool:
    """Tell whether a node is exactly this data, and every YAML reader takes its strings for strings."""
    if isinstance(data, bool):
        return node.kind == "scalar" and not node.style and node.value == str(data).lower()
    if isinstance(data, str):
        return node.value == data and sound(node)
    if isinstance(data, Mapping):
        keys = [key.value for key, _ in pairs(node)] if node.kind == "mapping" else None
        return keys == list(data) and all(holds(value, data[key.value]) for key, value in pairs(node))
    return node.kind == "sequence" and len(node.children) == len(data) and all(map(holds, node.children, data))


def becomes(data: Word, old: Node) -> Same:
    """Accept a node that is this value and keeps its anchor."""

    def same(_: Node, now: Node) -> tuple[tuple[Node, Node], ...] | None:
        return () if holds(now, data) and (old.kind == "alias" or now.anchor == old.anchor) else None

    return same
