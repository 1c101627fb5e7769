r"""Parses key paths in a values file, such as `a.b.c`, `list[0][1].tag`,
`labels.app\.kubernetes\.io/name`.

A nested path takes precedence over a key with a dot in its name. (AIU reads in this order, but when
writing, v0.18 prefers the key with the dot.) An index after a segment selects an item of its list,
as in AIU since v0.17. A backslash escapes a dot, which is not possible in AIU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from task.editors.yaml.tree import DEPTH, Node, Tree, is_merge, pairs, resolved, value
from task.errors import TargetError
from task.text import shortened

MERGES = "\0"  # marks merge keys, because a quoted key may also be called `<<`
MOST_USES = 100  # keys that may share one value
# nested merge keys; each uses five stack frames, and Python has a thousand
MOST_MERGES = 50
MOST_STEPS = 2_000  # steps from a shared value up to the keys that share it
_INDICES = re.compile(r"(.*?)((?:\[[^\]]*\])+)", re.DOTALL)


@dataclass(frozen=True)
class Segment:
    """A step of a path: a key, and the list indices after it, such as `[0][1]`."""

    name: str
    brackets: str = ""

    @property
    def text(self) -> str:
        """The whole step, unescaped. The step may also be a key with brackets in its name."""
        return self.name + self.brackets

    @property
    def indices(self) -> tuple[int, ...] | None:
        """The indices, or None if one of them is not a non-negative number."""
        texts = self.brackets[1:-1].split("][") if self.brackets else []
        return (
            tuple(map(int, texts))
            if all(re.fullmatch(r"[0-9]{1,9}", text) for text in texts)
            else None
        )


def parse_path(text: str) -> tuple[Segment, ...]:
    """Return the steps of a path.

    Raises TargetError if the path has more steps than a file can have levels.
    """
    plain = [step.replace("\\.", ".") for step in re.split(r"(?<!\\)\.", text)]
    if len(plain) > DEPTH:
        raise TargetError(
            f"the key path has more than {DEPTH} steps",
            hint="use a shorter key path",
        )
    return tuple(
        Segment(*match.groups()) if (match := _INDICES.fullmatch(step)) else Segment(step)
        for step in plain
    )


def find(tree: Tree, root: Node, path: Sequence[Segment], *, merges: bool = True) -> Node | None:
    """Return the node at the path, following aliases, or None.

    With `merges`, the node may come from a merge key (`<<`).

    Raises TargetError if two keys with dots match equally well, or if a key on the path is set
    twice.
    """
    nodes = find_all(tree, root, path, merges=merges)
    return resolved(nodes[-1]) if nodes else None


def find_all(
    tree: Tree,
    root: Node,
    path: Sequence[Segment],
    *,
    merges: bool = True,
) -> tuple[Node, ...]:
    """Return all nodes at the path, without following aliases. There may be several, because a key
    with brackets may exist next to a list.

    Raises the same errors as `find`.
    """
    # The interpretation with the fewest dots in keys wins, which is the nested path.
    matches = sorted(_matches(_mappings(tree), root, path, merges), key=lambda match: match[0])
    if not matches:
        return ()
    fewest = matches[0][0]
    best = [node for dots, node, _ in matches if dots == fewest]
    holders = {id(holder) for dots, _, holder in matches if dots == fewest}
    if fewest and len(holders) > 1:
        raise _ambiguous(path)
    return tuple(best)


def _ambiguous(path: Sequence[Segment]) -> TargetError:
    hint = "escape the dots in the intended key: \\."
    return TargetError(f"several keys with dots match {path_text(path)}", hint=hint)


_Match = tuple[int, Node, Node]  # the number of dots that belong to keys; the node; its mapping


def _matches(at: _Mappings, node: Node, path: Sequence[Segment], merges: bool) -> Iterator[_Match]:  # noqa: FBT001
    mapping = resolved(node)
    if mapping.kind == "mapping":
        for used in range(1, len(path) + 1):
            for key, indices in _possible_keys(path[:used]):
                inner = item(at.value(mapping, key) if merges else at.own(mapping, key), indices)
                if inner is None:
                    continue
                if used == len(path):
                    yield used - 1, inner, mapping
                else:
                    rest = _matches(at, inner, path[used:], merges)
                    yield from ((dots + used - 1, match, holder) for dots, match, holder in rest)


def _possible_keys(steps: Sequence[Segment]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield each key with dots that these steps may form together, and its indices."""
    front = "".join(f"{step.text}." for step in steps[:-1])
    last = steps[-1]
    if last.indices is not None:
        yield front + last.name, last.indices
    if last.brackets:
        yield front + last.text, ()


def item(node: Node | None, indices: Sequence[int]) -> Node | None:
    """Return the item at these indices, one for each list level, or None.

    Without indices, return the node.
    """
    for index in indices:
        inner = resolved(node) if node else None
        if inner is None or inner.kind != "sequence" or index >= len(inner.children):
            return None
        node = inner.children[index]
    return node


def entries(mapping: Node, depth: int = 0) -> Mapping[str, Node]:
    """Return a mapping's keys with their values as Helm reads them. Merged keys are included, and
    the last value wins.
    """
    found: dict[str, Node] = {}
    if mapping.kind == "mapping" and depth < DEPTH:
        for name, node in pairs(mapping):
            if is_merge(name):
                for source in reversed(_sources(node)):
                    found |= entries(source, depth + 1)
            elif name.kind == "scalar":
                found[name.value] = resolved(node)
    return found


def _sources(node: Node) -> tuple[Node, ...]:
    """Return what a merge key refers to, following aliases: a mapping, or the items of a list."""
    source = resolved(node)
    return tuple(map(resolved, source.children)) if source.kind == "sequence" else (source,)


class _Mappings:
    """Finds the values of keys in mappings as Helm does: keys and merge keys are read in order, and
    the last one wins.

    According to YAML, a mapping's own key always wins over a merge key, regardless of their order.
    Helm's parser does not implement this rule.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._known: dict[tuple[int, str], Node | None] = {}
        self._keys: dict[int, dict[str, list[tuple[Node, Node]]]] = {}

    def value(self, mapping: Node, key: str, depth: int = 0) -> Node | None:
        """Return the value of a key, or None.

        Raises TargetError if a second value hides the mapping's own value.
        """
        if (id(mapping), key) in self._known:
            return self._known[id(mapping), key]
        if depth > MOST_MERGES:
            message = f"merge keys refer to each other more than {MOST_MERGES} times"
            raise TargetError(message, hint="write out the merged keys")
        found: list[tuple[Node, Node]] = []
        entries = self._entries(mapping)
        for name, node in sorted(
            (*entries.get(key, ()), *entries.get(f"{MERGES}<<", ())),
            key=lambda entry: entry[0].start,
        ):
            if not is_merge(name):
                found.append((name, node))
            elif (merged := self._merged(node, key, depth)) is not None:
                found.append((name, merged))
        own = [name for name, _ in found[:-1] if not is_merge(name)]
        if found and (own or (len(found) > 1 and is_merge(found[-1][0]))):
            first = own[0] if own else found[0][0]
            last = found[-1][0]
            again = "the merge key << adds it again" if is_merge(last) else "it appears again"
            lines = self.tree.line(first), self.tree.line(last)
            raise TargetError(
                f"line {lines[0]} has {key}, and on line {lines[1]}, {again}: Helm uses the"
                " later one",
                hint=(
                    "move the merge key above it" if own and is_merge(last) else "keep one of them"
                ),
            )
        self._known[id(mapping), key] = found[-1][1] if found else None
        return self._known[id(mapping), key]

    def _entries(self, mapping: Node) -> Mapping[str, list[tuple[Node, Node]]]:
        """Return the keys of a mapping, each with its values.

        Merge keys are distinguished from quoted keys.
        """
        if id(mapping) not in self._keys:
            known = self._keys[id(mapping)] = {}
            for name, node in pairs(mapping):
                if name.kind == "scalar":
                    known.setdefault((MERGES if is_merge(name) else "") + name.value, []).append(
                        (name, node)
                    )
        return self._keys[id(mapping)]

    def own(self, mapping: Node, key: str) -> Node | None:
        """Return the value of the mapping's own key, or None. Raises the same errors as `value`."""
        self.value(mapping, key)
        return value(mapping, key)

    def _merged(self, node: Node, key: str, depth: int) -> Node | None:
        """Return a key's value from a merge key, or None.

        In a list of mappings, the first mapping with the key wins.
        """
        values = (
            self.value(source, key, depth + 1)
            for source in _sources(node)
            if source.kind == "mapping"
        )
        return next((value_node for value_node in values if value_node is not None), None)


_mappings = lru_cache(maxsize=2)(_Mappings)  # a tree is searched for several keys


def uses(
    tree: Tree,
    root: Node,
    node: Node,
    missing: Sequence[str] = (),
) -> Iterator[tuple[Segment, ...]]:
    """Yield the paths at which a reader that follows aliases and merge keys finds this node, or a
    key that the node lacks.

    Raises TargetError if there are too many paths, or if the node is a key.
    """
    stack: list[tuple[Node, tuple[str | int, ...]]] = [(node, tuple(missing))]
    number = 0
    for _ in range(MOST_STEPS):
        if not stack:
            return
        current, below = stack.pop()
        stack += [(alias, below) for alias in tree.aliases(current)]
        parent = tree.parent(current)
        key = tree.key_of(current)
        if key is current:
            raise TargetError(
                f"line {tree.line(key)} has an alias as a key",
                hint="write out the key",
            )
        if parent is None:
            number += 1
            if number > MOST_USES:
                break
            steps = _segments(below)
            found = find_all(tree, root, steps)
            # a mapping may have its own key, which overrides the merged key
            if not found if missing else any(resolved(entry) is node for entry in found):
                yield steps
        elif key is not None:
            stack.append((parent, below if is_merge(key) else (key.value, *below)))
        elif (listed := tree.key_of(parent)) is not None and is_merge(listed):
            stack.append((parent, below))
        else:
            place = next(n for n, child in enumerate(parent.children) if child is current)
            stack.append((parent, (place, *below)))
    raise TargetError(
        f"line {tree.line(node)} is shared by too many aliases",
        hint="write out the value",
    )


def _segments(path: Sequence[str | int]) -> tuple[Segment, ...]:
    steps: list[Segment] = []
    for step in path:
        if isinstance(step, str):
            steps.append(Segment(step))
        elif steps:
            steps[-1] = Segment(steps[-1].name, f"{steps[-1].brackets}[{step}]")
    return tuple(steps)


def locate(tree: Tree, root: Node, path: Sequence[Segment]) -> tuple[Node, tuple[str, ...]]:
    """Return where to write: the node at the path,
    or the last mapping (or null) on the path and the keys it lacks.

    Raises the same errors as `find`. Also raises TargetError if the path contains something that is
    not a mapping, if a list or an index is missing, or if a new key would hide the keys of a merge
    key.
    """
    if found := find(tree, root, path, merges=False):
        return found, ()
    at = _mappings(tree)
    node = root
    rest = tuple(path)
    while node.kind == "mapping":
        step = _step(at, node, rest)
        if step is None:
            break
        node, rest = step
    if node.null or node.kind == "mapping":
        return node, _missing(at, node, rest)
    parent = path_text(path[: len(path) - len(rest)]) or "the file"
    wanted = path_text(path)
    if node.kind == "sequence":
        hint = f"use one of its items, such as {parent}[0].{path_text(rest)}"
        raise TargetError(
            f"line {tree.line(node)}: {parent} is a list, so {wanted} is not in it",
            hint=hint,
        )
    what = (
        f"a plain value ({shortened(node.value, 80)!r})"
        if node.kind == "scalar"
        else "not a mapping"
    )
    raise TargetError(
        f"line {tree.line(node)}: {parent} is {what}, so it has no key {path_text(rest)}",
        hint=(
            f"use another key; if {parent} holds the whole reference, set"
            f" <alias>.helm.image-spec: {parent}"
        ),
    )


def _step(
    at: _Mappings,
    node: Node,
    rest: tuple[Segment, ...],
) -> tuple[Node, tuple[Segment, ...]] | None:
    """Return the next node and the rest of the path, or None if no key matches.

    A step matches the plain key, or the only possible key with dots.
    """
    tree = at.tree
    first = rest[0]
    plain = at.own(node, first.name)
    if plain is not None and first.indices is not None:
        for index in first.indices:
            items = resolved(plain)
            if items.kind != "sequence":
                hint = f"use it without an index: {first.name}"
                raise TargetError(f"line {tree.line(plain)}: {first.name} is not a list", hint=hint)
            if index >= len(items.children):
                message = f"{first.text}: the list has {len(items.children)} items"
                raise TargetError(
                    message,
                    hint=(
                        "use an existing index (the first is 0), or add the item to the file first"
                    ),
                )
            plain = items.children[index]
        return resolved(plain), rest[1:]
    dotted = [
        (child, indices, used)
        for used in range(2, len(rest))
        for key, indices in _possible_keys(rest[:used])
        if (child := value(node, key)) is not None
    ]
    if len(dotted) > 1:
        raise _ambiguous(rest)
    for child, indices, used in dotted:
        inner = item(child, indices)
        return (resolved(inner), rest[used:]) if inner is not None else None
    return None


def _missing(at: _Mappings, node: Node, rest: tuple[Segment, ...]) -> tuple[str, ...]:
    """Return the names of the keys to add.

    Raises TargetError if a list would have to be added, or if a new key would hide a merged
    mapping.
    """
    for segment in rest:
        if segment.indices is None:
            what = f"the index in {segment.text} is not a non-negative number"
            raise TargetError(what, hint="use 0 or a positive number between the brackets")
        if segment.indices:
            message = f"{segment.text}: there is no list {segment.name}"
            raise TargetError(message, hint="create the list in the file first")
    name = rest[0].name
    merged = at.value(node, name) if node.kind == "mapping" and len(rest) > 1 else None
    if merged is not None:
        inner = resolved(merged)
        if inner.kind == "mapping" and any(key.value != rest[1].name for key, _ in pairs(inner)):
            message = f"{name} comes from a merge key (<<): adding {name} would hide its other keys"
            raise TargetError(message, hint="write out the keys")
    return tuple(segment.name for segment in rest)


def path_text(path: Sequence[Segment]) -> str:
    """Return the path in its usual notation, without escapes."""
    return ".".join(segment.text for segment in path)


def key_path(tree: Tree, node: Node) -> str:
    """Return a node's path in its document: `spec.containers[0].image`."""
    steps: list[str] = []
    for child in tree.ancestors(node):
        parent = tree.parent(child)
        if parent is not None and parent.kind == "sequence":
            steps.append(
                f"[{next(number for number, item in enumerate(parent.children) if item is child)}]"
            )
        elif parent is not None and (key := tree.key_of(child)) is not None:
            steps.append(f".{key.value}")
    return "".join(reversed(steps)).lstrip(".")
