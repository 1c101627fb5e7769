"""Reads YAML text into small nodes that know their place in the text.

The nodes are built from parser events. Aliases stay references and are never expanded, so an alias bomb costs no more
than its text. No function here recurses, so deep nesting causes an error message, not a crash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from task.errors import Malformed, TargetError
from task.yaml_documents import NULL, parsed

DEPTH = 200  # no person nests deeper than this, and loaders in C crash on very deep nesting
BREAKS = "\n\r\x85\u2028\u2029"  # YAML 1.1 readers take these for line endings
_ODD_BREAK = re.compile("[\x85\u2028\u2029]")
_LARGE = 1_000_000  # characters; trees of larger texts are not cached
BOMB = 1_000_000  # values after aliases are expanded; a bomb also has more than ten times as many as the text


@dataclass(frozen=True)
class Node:
    """One node: `text[start:end]`, with its anchor and tag. The `end` of a block collection is after its content."""

    kind: Literal["scalar", "mapping", "sequence", "alias"]
    start: int
    end: int
    value: str = ""  # a scalar's text, an alias's anchor
    style: str = ""  # scalars: ' " | > or "" for plain; collections: "{" for flow, "" for block
    anchor: str = ""
    tag: str = ""  # the explicit one
    children: tuple[Node, ...] = ()  # of a mapping: key, value, key, value, …

    @property
    def null(self) -> bool:
        """Whether it is an untagged null: empty, `~` or `null`."""
        return self.kind == "scalar" and not self.style and not self.tag and self.value in NULL


@dataclass(frozen=True)
class Document:
    """One document of a stream. `end` is the place of its `...`, of the next `---`, or of the end of the text."""

    root: Node
    end: int
    anchors: Mapping[int, Node]  # id of an alias → its node


class Tree:
    """A text and its documents. Parents are computed when they are first needed."""

    __slots__ = ("_parents", "documents", "text")

    def __init__(self, text: str, documents: tuple[Document, ...]) -> None:
        self.text = text
        self.documents = documents
        self._parents: dict[int, Node] | None = None

    def parent(self, node: Node) -> Node | None:
        """Return the collection that contains `node`, or None for a root."""
        if self._parents is None:
            self._parents = {
                id(child): node for doc in self.documents for node in walk(doc.root) for child in node.children
            }
        return self._parents.get(id(node))

    def ancestors(self, node: Node) -> Iterator[Node]:
        """Yield `node`, its parent, and so on to the root."""
        current: Node | None = node
        while current is not None:
            yield current
            current = self.parent(current)

    def key_of(self, node: Node) -> Node | None:
        """Return the key that has `node` as its value, or None for items of sequences and for roots."""
        parent = self.parent(node)
        if parent is None or parent.kind != "mapping":
            return None
        return next(key for key, value in pairs(parent) if value is node or key is node)

    def line(self, node: Node) -> int:
        """Return the number of the line in which `node` begins, from 1."""
        return self.text.count("\n", 0, node.start) + 1


def pairs(mapping: Node) -> Iterator[tuple[Node, Node]]:
    """Yield the keys and values of a mapping node, in the order of the text."""
    children = iter(mapping.children)
    return zip(children, children, strict=True)


def is_merge(key: Node) -> bool:
    """Tell whether a key is the merge key `<<`."""
    return key.kind == "scalar" and key.value == "<<" and not key.style


def values(mapping: Node, key: str) -> tuple[Node, ...]:
    """Return all values of `key` in a mapping node, because a key may be repeated."""
    return tuple(value for name, value in pairs(mapping) if name.kind == "scalar" and name.value == key)


def value(mapping: Node, key: str) -> Node | None:
    """Return the value of a key, or None.

    If the key is repeated, return the last value, as readers that allow this do.
    """
    last = None
    for name, node in pairs(mapping):
        if name.value == key and name.kind == "scalar":
            last = node
    return last


def walk(root: Node) -> Iterator[Node]:
    """Yield `root` and all nodes below it, in the order of the text."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


def parse(text: str) -> Tree:
    """Return the tree of `text`. It has no documents if the text is empty or has only comments.

    Raises TargetError if the text is not YAML, nests deeper than 200 levels, or has an undefined alias or an alias
    bomb.
    """
    return _parse(text) if len(text) > _LARGE else _parse_again(text)


def _parse(text: str) -> Tree:
    shift = int(text.startswith("\ufeff"))  # the parsers do not count a byte order mark
    try:
        documents = parsed(text[shift:], lambda events: tuple(_documents(events, shift)))
    except Malformed as problem:
        raise TargetError(problem.message, hint="correct the file, or name another target") from problem
    return Tree(text, documents)


_parse_again = lru_cache(maxsize=8)(_parse)  # reading, writing and checking parse the same text


def _documents(events: Iterable[Any], shift: int) -> Iterator[Document]:
    build = _NodeBuilder(shift)
    for event in events:
        name = event.__class__.__name__
        if name == "DocumentStartEvent":
            build = _NodeBuilder(shift)
        elif name == "DocumentEndEvent":
            _refuse_bomb(build.root[0], build.aliases)
            yield Document(build.root[0], event.start_mark.index + shift, build.aliases)
        elif name[:6] != "Stream":
            build.add(name, event)


def _refuse_bomb(root: Node, aliases: Mapping[int, Node]) -> None:
    """Raise TargetError for an alias bomb.

    Argo CD and Helm expand aliases when they read the file. Go's YAML refuses such a document ("excessive aliasing").
    """
    sizes: dict[int, int] = {}
    stack = [root] if aliases else []
    while stack:
        node = stack[-1]
        parts = (aliases[id(node)],) if node.kind == "alias" else node.children
        if waiting := [part for part in parts if id(part) not in sizes]:
            stack.extend(waiting)
        else:
            sizes[id(stack.pop())] = 1 + sum(sizes[id(part)] for part in parts)
    if aliases and BOMB < sizes[id(root)] > 10 * len(sizes):
        raise TargetError(f"its aliases stand for more than {BOMB:,} values", hint="write out what they mean")


class _NodeBuilder:
    """Builds nodes from the events of one document."""

    def __init__(self, shift: int) -> None:
        self.shift = shift
        self.root: list[Node] = []
        self.open: list[tuple[Any, list[Node]]] = []
        self.into = self.root  # the children of the innermost open collection
        self.anchored: dict[str, Node] = {}
        self.aliases: dict[int, Node] = {}

    def add(self, name: str, event: Any) -> None:
        if name == "ScalarEvent":
            self.place(self.node("scalar", event, event.end_mark.index, (event.value, event.style or "")))
        elif name in ("MappingStartEvent", "SequenceStartEvent"):
            self.open.append((event, self.into))
            self.into = []
            if len(self.open) > DEPTH:
                raise TargetError(f"nested deeper than {DEPTH} levels", hint="no values file needs that: simplify it")
        elif name == "AliasEvent":
            self.alias(event)
        else:
            self.close("mapping" if name == "MappingEndEvent" else "sequence", event)

    def close(self, kind: Literal["mapping", "sequence"], event: Any) -> None:
        start, outer = self.open.pop()
        children, self.into = tuple(self.into), outer
        node = self.node(kind, start, event.end_mark.index, ("", "{" if start.flow_style else ""), children)
        self.place(node)

    def alias(self, event: Any) -> None:
        node = Node("alias", event.start_mark.index + self.shift, event.end_mark.index + self.shift, event.anchor)
        if event.anchor not in self.anchored:
            line = event.start_mark.line + 1
            raise TargetError(
                f"the alias *{event.anchor} in line {line} has no anchor", hint="define the anchor above it"
            )
        self.aliases[id(node)] = self.anchored[event.anchor]
        self.into.append(node)

    def node(
        self,
        kind: Literal["scalar", "mapping", "sequence"],
        event: Any,
        end: int,
        look: tuple[str, str],
        children: tuple[Node, ...] = (),
    ) -> Node:
        start, tag = event.start_mark.index, str(event.tag or "")
        return Node(kind, start + self.shift, end + self.shift, *look, event.anchor or "", tag, children)

    def place(self, node: Node) -> None:
        if node.anchor:
            self.anchored[node.anchor] = node
        self.into.append(node)


def refuse_odd_breaks(tree: Tree) -> None:
    """Raise TargetError if a U+0085, U+2028 or U+2029 is outside of values.

    For readers of YAML 1.1 it ends a line, but for people and for readers of YAML 1.2 it is a letter. So a key below it
    may be in another mapping than a person sees, and a hold would have no effect.
    """
    if not _ODD_BREAK.search(tree.text):
        return
    nodes = [node for document in tree.documents for node in walk(document.root)]
    keys = {id(key) for node in nodes if node.kind == "mapping" for key, _ in pairs(node)}
    at = 0
    for start, end in (
        *((node.start, node.end) for node in nodes if node.kind == "scalar" and id(node) not in keys),
        (len(tree.text), len(tree.text)),
    ):
        if found := _ODD_BREAK.search(tree.text, at, max(at, start)):
            line = tree.text.count("\n", 0, found.start()) + 1
            what = f"U+{ord(found[0]):04X}, which some readers take for the end of the line"
            raise TargetError(f"line {line}: has {what}", hint="remove it, or begin a new line there")
        at = end


def resolved(document: Document, node: Node) -> Node:
    """Return the node itself, or the node that an alias refers to."""
    while node.kind == "alias":
        node = document.anchors[id(node)]
    return node


def users(document: Document, node: Node) -> tuple[Node, ...]:
    """Return the aliases that refer to `node` itself."""
    if not node.anchor:
        return ()
    aliases = (alias for alias in walk(document.root) if alias.kind == "alias")
    return tuple(alias for alias in aliases if document.anchors[id(alias)] is node)
