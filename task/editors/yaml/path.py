r"""Parses key paths into a values file, such as `a.b.c`, `list[0][1].tag`, `labels.app\.kubernetes\.io/name`.

A nested path wins over a key with a dot in its name. (AIU reads it like this, but v0.18 prefers the key with the dot
when it writes.) An index after a segment is that of an item in its list, as in AIU since v0.17. A backslash escapes a
dot, which is not possible in AIU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from task.editors.yaml.tree import DEPTH, Document, Node, Tree, pairs, resolved, value, values
from task.errors import TargetError

_INDICES = re.compile(r"(.*?)((?:\[[^\]]*\])+)", re.DOTALL)


@dataclass(frozen=True)
class Segment:
    """One step of a path: a key and the list indices after it."""

    name: str
    indices: tuple[int, ...]
    text: str  # the whole step, unescaped; a key whose name has brackets
    flaw: str = ""  # why the indices cannot be used


@dataclass(frozen=True)
class Lookup:
    """Where a path leads: to existing nodes, or to a mapping that lacks the rest."""

    nodes: tuple[Node, ...]  # several if the key is repeated
    parent: Node | None = None  # the mapping (or null) that lacks the rest of the path
    missing: tuple[str, ...] = ()


def parse_path(text: str) -> tuple[Segment, ...]:
    """Return the steps of a path. Raises TargetError if it has more steps than a file may have levels."""
    steps = []
    for step in re.split(r"(?<!\\)\.", text):
        plain = step.replace("\\.", ".")
        match = _INDICES.fullmatch(plain)
        indices = match[2][1:-1].split("][") if match else []
        if match is None:
            steps.append(Segment(plain, (), plain))
        elif all(re.fullmatch(r"[0-9]{1,9}", index) for index in indices):
            steps.append(Segment(match[1], tuple(map(int, indices)), plain))
        else:
            steps.append(Segment(match[1], (), plain, f"the index in {plain} is not a number from 0 up"))
    if len(steps) > DEPTH:
        raise TargetError(f"the key path has more than {DEPTH} steps", hint="name a shorter key path")
    return tuple(steps)


def find(document: Document, path: Sequence[Segment], *, merges: bool) -> tuple[Node, ...]:
    """Return the nodes at the path. With `merges`, include those that only a merge key (`<<`) adds.

    Raises TargetError if two keys with dots fit equally well.
    """
    # The interpretation with the fewest dots in keys wins: the nested path.
    matches = sorted(_matches(document, document.root, path, merges), key=lambda match: match[0])
    if not matches:
        return ()
    fewest = matches[0][0]
    best = [node for dots, node, _ in matches if dots == fewest]
    holders = {id(holder) for dots, _, holder in matches if dots == fewest}
    if fewest and len(holders) > 1:
        raise TargetError(f"several keys with dots fit {_text(path)}", hint="escape the dots of the key you mean: \\.")
    return tuple(best)


_Match = tuple[int, Node, Node]  # how many dots were taken as part of a key; the node; its mapping


def _matches(document: Document, node: Node, path: Sequence[Segment], merges: bool) -> Iterator[_Match]:  # noqa: FBT001
    mapping = resolved(document, node)
    for used in range(1, len(path) + 1) if mapping.kind == "mapping" else ():
        for key, indices in _keys(path[:used]):
            for child in values(mapping, key) or (_merged(document, mapping, key) if merges else ()):
                inner = _item(document, child, indices)
                if inner is None:
                    continue
                if used == len(path):
                    yield used - 1, inner, mapping
                else:
                    rest = _matches(document, inner, path[used:], merges)
                    yield from ((dots + used - 1, match, holder) for dots, match, holder in rest)


def _keys(steps: Sequence[Segment]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the keys, each with its indices, that these steps may mean if they are one key."""
    front = "".join(f"{step.text}." for step in steps[:-1])
    last = steps[-1]
    if not last.flaw:
        yield front + last.name, last.indices
    if last.text != last.name:
        yield front + last.text, ()


def _item(document: Document, node: Node, indices: Sequence[int]) -> Node | None:
    for index in indices:
        inner = resolved(document, node)
        if inner.kind != "sequence" or index >= len(inner.children):
            return None
        node = inner.children[index]
    return node


def _merged(document: Document, mapping: Node, key: str) -> tuple[Node, ...]:
    """Return the values of a key in the mappings that `<<` names. As YAML says, the first mapping with the key wins."""
    queue = [source for name, source in pairs(mapping) if name.value == "<<" and not name.style]
    seen: set[int] = set()
    while queue:
        source = resolved(document, queue.pop(0))
        if id(source) in seen:  # an anchored mapping may merge itself
            continue
        seen.add(id(source))
        if source.kind == "sequence":
            queue = [*source.children, *queue]
        elif source.kind == "mapping":
            if nodes := values(source, key):
                return nodes
            queue = [*(inner for name, inner in pairs(source) if name.value == "<<" and not name.style), *queue]
    return ()


def locate(tree: Tree, document: Document, path: Sequence[Segment]) -> Lookup:
    """Return where to write: the nodes at the path, else the mapping that lacks the rest of it.

    Raises the errors of `find`. Also raises TargetError if a parent on the path is not a mapping, a list or an index is
    missing, or the path leads through a merge key and a new key would hide other merged content.
    """
    if nodes := find(document, path, merges=False):
        return Lookup(nodes)
    node, rest = resolved(document, document.root), tuple(path)
    while node.kind == "mapping":
        step = _step(document, tree, node, rest)
        if step is None:
            return Lookup((), node, _missing(document, node, rest))
        node, rest = step
    if node.null:
        return Lookup((), node, _missing(document, node, rest))
    what = {"sequence": "a list, which needs an index", "scalar": "a single value"}.get(node.kind, "not a mapping")
    raise TargetError(f"line {tree.line(node)}: a parent of {_text(path)} is {what}", hint="correct the key path")


def _step(
    document: Document, tree: Tree, node: Node, rest: tuple[Segment, ...]
) -> tuple[Node, tuple[Segment, ...]] | None:
    """Return the next node down, and the rest of the path, or None.

    The step is the plain key, or the only key with dots that fits.
    """
    first = rest[0]
    plain = value(node, first.name)
    if plain is not None and not first.flaw:
        # AIU writes the first one, but Helm reads the last.
        if len(twins := values(node, first.name)) > 1:
            lines = " and ".join(str(tree.line(twin)) for twin in twins)
            raise TargetError(f"the key {first.name} is in lines {lines}", hint="keep one of them")
        for index in first.indices:
            items = resolved(document, plain)
            if items.kind != "sequence":
                raise TargetError(f"line {tree.line(plain)}: {first.name} is not a list", hint="correct the key path")
            if index >= len(items.children):
                message = f"{first.text}: the list has {len(items.children)} items"
                raise TargetError(message, hint="indices start at 0, and no item is added")
            plain = items.children[index]
        return resolved(document, plain), rest[1:]
    dotted = [
        (child, indices, used)
        for used in range(2, len(rest))
        for key, indices in _keys(rest[:used])
        if (child := value(node, key)) is not None
    ]
    if len(dotted) > 1:
        raise TargetError(f"several keys with dots fit {_text(rest)}", hint="escape the dots of the key you mean: \\.")
    for child, indices, used in dotted:
        inner = _item(document, child, indices)
        return (resolved(document, inner), rest[used:]) if inner is not None else None
    return None


def _missing(document: Document, node: Node, rest: tuple[Segment, ...]) -> tuple[str, ...]:
    """Return the names of the keys to add.

    Raises TargetError if a list would have to be added, or if a new key would hide a merged mapping.
    """
    for segment in rest:
        if segment.flaw:
            raise TargetError(segment.flaw, hint="write a number from 0 up between the brackets")
        if segment.indices:
            raise TargetError(
                f"{segment.text}: there is no list {segment.name}", hint="create the list in the file first"
            )
    name = rest[0].name
    for merged in _merged(document, node, name) if node.kind == "mapping" and len(rest) > 1 else ():
        inner = resolved(document, merged)
        if inner.kind == "mapping" and any(key.value != rest[1].name for key, _ in pairs(inner)):
            raise TargetError(
                f"{name} comes from a merge key (<<): a {name} here would hide its other keys", hint="write it out"
            )
    return tuple(segment.name for segment in rest)


def _text(path: Sequence[Segment]) -> str:
    return ".".join(segment.text for segment in path)
