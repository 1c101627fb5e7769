"""Parses YAML text into small nodes that record their position in the text.

The nodes are built from parser events. Aliases remain references and are never expanded, so an
alias bomb costs no more than parsing its text. No function is recursive, so deep nesting leads to
an error message rather than a crash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal

from task.errors import Malformed, TargetError
from task.yaml_documents import NULL, parsed

DEPTH = 200  # people do not nest more deeply, and C loaders crash on very deep nesting
BREAKS = "\n\r\x85\u2028\u2029"  # YAML 1.1 readers treat these as line endings
_ODD_BREAK = re.compile("[\x85\u2028\u2029]")
_LARGE = 1_000_000  # characters; trees of longer documents are not cached
# A document is an alias bomb if its aliases expand to more values than this, and to over ten times
# as many as its text contains.
BOMB = 1_000_000


@dataclass(frozen=True)
class Node:
    """A node: `text[start:end]`, with its anchor and tag.

    The `end` of a block collection may be after the end of its content.
    """

    kind: Literal["scalar", "mapping", "sequence", "alias"]
    start: int
    end: int
    value: str = ""  # a scalar's value, or the anchor to which an alias refers
    style: str = ""  # scalars: ' " | > or "" for plain; collections: "{" for flow, "" for block
    anchor: str = ""
    tag: str = ""  # the explicit tag
    children: tuple[Node, ...] = ()  # in a mapping: key, value, key, value, …
    target: Node | None = field(
        default=None,
        repr=False,
        compare=False,
    )  # the node to which an alias refers

    @property
    def null(self) -> bool:
        """Whether the node is an untagged null: empty, `~`, or `null`."""
        return self.kind == "scalar" and not self.style and not self.tag and self.value in NULL


NOTHING = Node("scalar", 0, 0)  # a null that is not part of any text


class Tree:
    """A YAML text, with the roots and ends of its documents.

    Parents and aliases are computed when first needed.
    """

    def __init__(self, text: str, documents: Sequence[tuple[Node, int]]) -> None:
        self.text = text
        self.roots = tuple(root for root, _ in documents)
        self.ends = tuple(end for _, end in documents)

    @property
    def root(self) -> Node:
        """The root of the first document, or a null if there are no documents."""
        return self.roots[0] if self.roots else NOTHING

    @cached_property
    def _parents(self) -> Mapping[int, Node]:
        return {id(child): node for node in walk(*self.roots) for child in node.children}

    @cached_property
    def _aliases(self) -> Mapping[int, Sequence[Node]]:
        aliases_by_target: dict[int, list[Node]] = {}
        for node in walk(*self.roots):
            if node.target:
                aliases_by_target.setdefault(id(node.target), []).append(node)
        return aliases_by_target

    def parent(self, node: Node) -> Node | None:
        """Return the collection that contains `node`, or None for a root."""
        return self._parents.get(id(node))

    def ancestors(self, node: Node) -> Iterator[Node]:
        """Yield `node`, its parent, and so on to the root."""
        current: Node | None = node
        while current is not None:
            yield current
            current = self.parent(current)

    def key_of(self, node: Node) -> Node | None:
        """Return the key whose value is `node`, or `node` itself if it is a key. For sequence items
        and roots, return None.
        """
        parent = self.parent(node)
        if parent is None or parent.kind != "mapping":
            return None
        return next(key for key, value in pairs(parent) if value is node or key is node)

    def aliases(self, node: Node) -> Sequence[Node]:
        """Return the aliases that refer to `node` itself."""
        return self._aliases.get(id(node), ())

    def line(self, node: Node) -> int:
        """Return the number of the line where `node` starts, counting from 1."""
        return self.text.count("\n", 0, node.start) + 1


def resolved(node: Node) -> Node:
    """Return the node itself, or the target if the node is an alias."""
    return node.target or node


def pairs(mapping: Node) -> Iterator[tuple[Node, Node]]:
    """Yield the keys and values of a mapping node, in document order."""
    children = iter(mapping.children)
    return zip(children, children, strict=True)


def is_merge(key: Node) -> bool:
    """Return whether a key is the merge key `<<`."""
    return key.kind == "scalar" and key.value == "<<" and not key.style


def values(mapping: Node, key: str) -> tuple[Node, ...]:
    """Return all values of `key` in a mapping node. There may be several values, because keys may
    be repeated.
    """
    return tuple(
        value for name, value in pairs(mapping) if name.kind == "scalar" and name.value == key
    )


def value(mapping: Node | None, key: str) -> Node | None:
    """Return the value of a key. Return None if the key is missing or the node is not a mapping.

    If the key is repeated, return the last value, as readers that allow repeated keys do.
    """
    all_values = values(mapping, key) if mapping and mapping.kind == "mapping" else ()
    return all_values[-1] if all_values else None


def resolved_value(mapping: Node | None, key: str) -> Node | None:
    """Return the value of a key like `value`, but follow YAML aliases."""
    node = value(mapping, key)
    return resolved(node) if node else None


def walk(*roots: Node) -> Iterator[Node]:
    """Yield these nodes and all nodes below them, in document order."""
    stack = list(reversed(roots))
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


def parse(text: str) -> Tree:
    """Return the tree of `text`. The tree contains no documents if the text is empty or contains
    only comments.

    Raises TargetError if the text is not YAML, is nested deeper than 200 levels, or contains an
    undefined alias or an alias bomb.
    """
    return _parse(text) if len(text) > _LARGE else _cached_parse(text)


def _parse(text: str) -> Tree:
    """Return the tree of `text` without using the cache. Raises TargetError if the text is not
    YAML.
    """
    without_mark = text.removeprefix("\ufeff")  # the parsers do not count a byte order mark
    shift = len(text) - len(without_mark)
    try:
        documents = parsed(without_mark, lambda events: tuple(_documents(events, shift)))
    except Malformed as problem:
        raise TargetError(
            problem.message,
            hint="fix the file, or use another target",
        ) from problem
    return Tree(text, documents)


_cached_parse = lru_cache(maxsize=8)(_parse)  # reading, writing, and checking parse the same text


_COLLECTIONS: Mapping[str, Literal["mapping", "sequence"]] = {
    "MappingEndEvent": "mapping",
    "SequenceEndEvent": "sequence",
}


def _documents(events: Iterable[Any], shift: int) -> Iterator[tuple[Node, int]]:
    """Yield the root and the end of each document from the events of a YAML parser. A document ends
    at its `...`, at the next `---`, or at the end of the text.

    `shift` is the number of characters before the text that was parsed. It is added to each
    position.
    """
    # for each open collection, the event that started it and the children of the collection that
    # contains it
    open_collections: list[tuple[Any, list[Node]]] = []
    children: list[Node] = []  # the children of the innermost open collection
    anchored: dict[str, Node] = {}
    for event in events:
        name = event.__class__.__name__
        start = event.start_mark.index + shift
        end = event.end_mark.index + shift
        if name == "ScalarEvent":
            node = _scalar_of(event, start, end)
        elif name in ("MappingStartEvent", "SequenceStartEvent"):
            open_collections.append((event, children))
            children = []
            if len(open_collections) > DEPTH:
                raise TargetError(
                    f"nested deeper than {DEPTH} levels",
                    hint="simplify the file",
                )
            continue
        elif name in _COLLECTIONS:
            first_event, outer_children = open_collections.pop()
            start = first_event.start_mark.index + shift
            node = _collection_of(_COLLECTIONS[name], first_event, start, end, tuple(children))
            children = outer_children
        elif name == "AliasEvent":
            node = _alias_node(event, start, end, anchored)
        elif name == "DocumentEndEvent":
            root = children[0]
            if anchored:  # without anchors, there are no aliases
                _refuse_bomb(root)
            yield root, start
            children = []
            anchored = {}
            continue
        else:
            continue
        if node.anchor:
            anchored[node.anchor] = node
        children.append(node)


def _scalar_of(event: Any, start: int, end: int) -> Node:
    """Return the scalar that a parser event describes."""
    return Node(
        "scalar",
        start,
        end,
        value=event.value,
        style=event.style or "",
        anchor=event.anchor or "",
        tag=str(event.tag or ""),
    )


def _alias_node(event: Any, start: int, end: int, anchored: Mapping[str, Node]) -> Node:
    """Return an alias of one of the anchored nodes. Raises TargetError if the anchor does not
    exist.
    """
    if event.anchor not in anchored:
        message = f"the alias *{event.anchor} on line {event.start_mark.line + 1} has no anchor"
        raise TargetError(message, hint="define the anchor above it")
    return Node("alias", start, end, value=event.anchor, target=anchored[event.anchor])


def _collection_of(
    kind: Literal["mapping", "sequence"],
    first: Any,
    start: int,
    end: int,
    children: tuple[Node, ...],
) -> Node:
    """Return a mapping or sequence. `first` is the event that started the collection."""
    style = "{" if first.flow_style else ""
    return Node(
        kind,
        start,
        end,
        style=style,
        anchor=first.anchor or "",
        tag=str(first.tag or ""),
        children=children,
    )


def _refuse_bomb(root: Node) -> None:
    """Raise TargetError for an alias bomb: a document whose aliases expand to a huge number of
    nodes.

    Argo CD and Helm expand aliases when they read the file. Go's YAML rejects such a document
    ("excessive aliasing").
    """
    sizes: dict[int, int] = {}  # the number of nodes after expansion, keyed by the node's id
    # A node is counted after its parts, so it stays on the stack until all of its parts are
    # counted.
    stack = [root]
    while stack:
        node = stack[-1]
        parts = (node.target,) if node.target else node.children
        parts_to_count = [part for part in parts if id(part) not in sizes]
        if parts_to_count:
            stack.extend(parts_to_count)
        else:
            stack.pop()
            sizes[id(node)] = 1 + sum(sizes[id(part)] for part in parts)
    expanded_size = sizes[id(root)]
    if expanded_size > BOMB and expanded_size > 10 * len(sizes):
        raise TargetError(
            f"its aliases expand to more than {BOMB:,} values",
            hint="write out the values",
        )


def refuse_odd_breaks(tree: Tree) -> None:
    """Raise TargetError if the character U+0085, U+2028, or U+2029 occurs outside a value.

    YAML 1.1 readers treat such a character as a line break, but people and YAML 1.2 readers treat
    it as an ordinary character. So a key below such a character may not be in the mapping in which
    it appears to be, and a hold would have no effect.
    """
    if not _ODD_BREAK.search(tree.text):
        return
    end_of_text = len(tree.text)
    end_of_previous = 0
    # The last pair stands for the text after the last value.
    for start, end in (*_value_positions(tree), (end_of_text, end_of_text)):
        # the text between the previous value and this one
        odd_break = _ODD_BREAK.search(tree.text, end_of_previous, max(end_of_previous, start))
        if odd_break:
            line = tree.text.count("\n", 0, odd_break.start()) + 1
            character = f"U+{ord(odd_break[0]):04X}"
            raise TargetError(
                f"line {line}: has {character}, which some parsers treat as the end of the line",
                hint="remove it, or replace it with a line break",
            )
        end_of_previous = end


def _value_positions(tree: Tree) -> list[tuple[int, int]]:
    """Return the start and end of each scalar that is not a key, in document order."""
    positions = []
    key_ids: set[int] = set()
    for node in walk(*tree.roots):
        if node.kind == "mapping":
            key_ids.update(id(key) for key, _ in pairs(node))
        elif node.kind == "scalar" and id(node) not in key_ids:
            positions.append((node.start, node.end))
    return positions
