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
from typing import NamedTuple

from task.editors.yaml.tree import DEPTH, Node, Tree, is_merge, pairs, resolved, value
from task.errors import TargetError
from task.text import shortened

MERGES = "\0"  # marks merge keys, because a quoted key may also be called `<<`
MOST_USES = 100  # keys that may share one value
# nested merge keys; each uses five stack frames, and Python has a thousand
MOST_MERGES = 50
MOST_STEPS = 2_000  # steps from a shared value up to the keys that share it
_INDICES = re.compile(r"(?P<name>.*?)(?P<brackets>(?:\[[^\]]*\])+)", re.DOTALL)


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
        if not self.brackets:
            return ()
        texts = self.brackets.removeprefix("[").removesuffix("]").split("][")
        are_numbers = all(re.fullmatch(r"[0-9]{1,9}", text) for text in texts)
        return tuple(map(int, texts)) if are_numbers else None


def parse_path(text: str) -> tuple[Segment, ...]:
    """Return the steps of a path.

    Raises TargetError if the path has more steps than a file can have levels.
    """
    steps = [step.replace("\\.", ".") for step in re.split(r"(?<!\\)\.", text)]
    if len(steps) > DEPTH:
        raise TargetError(
            f"the key path has more than {DEPTH} steps",
            hint="use a shorter key path",
        )
    segments = []
    for step in steps:
        match = _INDICES.fullmatch(step)
        segments.append(Segment(match["name"], match["brackets"]) if match else Segment(step))
    return tuple(segments)


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
    matches = list(_matches(_mappings(tree), root, path, merges))
    if not matches:
        return ()
    fewest_dots = min(match.dots for match in matches)
    best_matches = [match for match in matches if match.dots == fewest_dots]
    mappings = {id(match.mapping) for match in best_matches}
    if fewest_dots > 0 and len(mappings) > 1:
        raise _ambiguous(path)
    return tuple(match.node for match in best_matches)


def _ambiguous(path: Sequence[Segment]) -> TargetError:
    """Return the error for a path that several keys with dots match."""
    hint = "escape the dots in the intended key: \\."
    return TargetError(f"several keys with dots match {path_text(path)}", hint=hint)


class _Match(NamedTuple):
    """A node that a path may refer to."""

    dots: int  # the number of dots in the path that belong to keys
    node: Node
    mapping: Node  # contains the node


def _matches(
    mappings: _Mappings,
    node: Node,
    path: Sequence[Segment],
    merges: bool,  # noqa: FBT001
) -> Iterator[_Match]:
    """Yield each node below this one that the path may refer to."""
    mapping = resolved(node)
    if mapping.kind != "mapping":
        return
    value_in = mappings.value if merges else mappings.own
    for used in range(1, len(path) + 1):
        dots_in_key = used - 1  # if the key consists of this many steps
        for key, indices in _possible_keys(path[:used]):
            inner = item(value_in(mapping, key), indices)
            if inner is None:
                continue
            if used == len(path):
                yield _Match(dots_in_key, inner, mapping)
                continue
            for match in _matches(mappings, inner, path[used:], merges):
                yield match._replace(dots=match.dots + dots_in_key)


def _possible_keys(steps: Sequence[Segment]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield each key with dots that these steps may form together, and its indices."""
    *first_steps, last = steps
    prefix = "".join(f"{step.text}." for step in first_steps)
    if last.indices is not None:
        yield prefix + last.name, last.indices
    if last.brackets:  # they may be part of the key's name
        yield prefix + last.text, ()


def item(node: Node | None, indices: Sequence[int]) -> Node | None:
    """Return the item at these indices, one for each list level, or None.

    Without indices, return the node.
    """
    for index in indices:
        sequence = resolved(node) if node else None
        if sequence is None or sequence.kind != "sequence" or index >= len(sequence.children):
            return None
        node = sequence.children[index]
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
        # Each value, with the key or merge key it comes from.
        found: list[tuple[Node, Node]] = []
        entries = self._entries(mapping)
        candidates = (*entries.get(key, ()), *entries.get(f"{MERGES}<<", ()))
        for name, node in sorted(candidates, key=lambda entry: entry[0].start):
            value_node = self._merged(node, key, depth) if is_merge(name) else node
            if value_node is not None:
                found.append((name, value_node))
        result = None
        if found:
            *hidden_names, last_name = (name for name, _ in found)
            self._refuse_hidden(key, hidden_names, last_name)
            _, result = found[-1]
        self._known[id(mapping), key] = result
        return result

    def _refuse_hidden(self, key: str, hidden: Sequence[Node], last: Node) -> None:
        """Raise TargetError if the last key or merge key with a value hides the mapping's own key,
        or if a merge key hides another merge key's value.
        """
        hidden_own = [name for name in hidden if not is_merge(name)]
        if not hidden_own and not (hidden and is_merge(last)):
            return  # a mapping's own key may override merge keys
        first_line = self.tree.line((hidden_own or hidden)[0])
        last_line = self.tree.line(last)
        again = "the merge key << adds it again" if is_merge(last) else "it appears again"
        raise TargetError(
            f"line {first_line} has {key}, and on line {last_line}, {again}: Helm uses the"
            " later one",
            hint="move the merge key above it"
            if hidden_own and is_merge(last)
            else "keep one of them",
        )

    def _entries(self, mapping: Node) -> Mapping[str, list[tuple[Node, Node]]]:
        """Return the keys of a mapping, each with its values.

        Merge keys are distinguished from quoted keys.
        """
        if id(mapping) not in self._keys:
            entries: dict[str, list[tuple[Node, Node]]] = {}
            for name, node in pairs(mapping):
                if name.kind == "scalar":
                    key = f"{MERGES}{name.value}" if is_merge(name) else name.value
                    entries.setdefault(key, []).append((name, node))
            self._keys[id(mapping)] = entries
        return self._keys[id(mapping)]

    def own(self, mapping: Node, key: str) -> Node | None:
        """Return the value of the mapping's own key, or None. Raises the same errors as `value`."""
        self.value(mapping, key)  # called only for its errors
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
    # Each node from which to go up, and the path from it down to the shared node or key.
    stack: list[tuple[Node, tuple[str | int, ...]]] = [(node, tuple(missing))]
    root_count = 0
    for _ in range(MOST_STEPS):
        if not stack:
            return
        current, path_below = stack.pop()
        stack += [(alias, path_below) for alias in tree.aliases(current)]
        parent = tree.parent(current)
        key = tree.key_of(current)
        if key is current:
            raise TargetError(
                f"line {tree.line(key)} has an alias as a key",
                hint="write out the key",
            )
        if parent is None:
            root_count += 1
            if root_count > MOST_USES:
                break
            steps = _segments(path_below)
            nodes_at_path = find_all(tree, root, steps)
            # a mapping may have its own key, which overrides the merged key
            if missing:
                is_use = not nodes_at_path
            else:
                is_use = any(resolved(found) is node for found in nodes_at_path)
            if is_use:
                yield steps
        elif key is not None:
            stack.append((parent, path_below if is_merge(key) else (key.value, *path_below)))
        else:  # an item of a list, which may be the value of a merge key
            key_of_list = tree.key_of(parent)
            is_merged = key_of_list is not None and is_merge(key_of_list)
            step = () if is_merged else (_item_number(parent, current),)
            stack.append((parent, (*step, *path_below)))
    raise TargetError(
        f"line {tree.line(node)} is shared by too many aliases",
        hint="write out the value",
    )


def _item_number(sequence: Node, item_node: Node) -> int:
    """Return the index of an item in its sequence."""
    return next(number for number, child in enumerate(sequence.children) if child is item_node)


def _segments(path: Sequence[str | int]) -> tuple[Segment, ...]:
    """Return the steps of a path of keys and list indices."""
    steps: list[Segment] = []
    for step in path:
        if isinstance(step, str):
            steps.append(Segment(step))
        elif steps:
            last = steps.pop()
            steps.append(Segment(last.name, f"{last.brackets}[{step}]"))
    return tuple(steps)


def locate(tree: Tree, root: Node, path: Sequence[Segment]) -> tuple[Node, tuple[str, ...]]:
    """Return where to write: the node at the path,
    or the last mapping (or null) on the path and the keys it lacks.

    Raises the same errors as `find`. Also raises TargetError if the path contains something that is
    not a mapping, if a list or an index is missing, or if a new key would hide the keys of a merge
    key.
    """
    existing = find(tree, root, path, merges=False)
    if existing is not None:
        return existing, ()
    mappings = _mappings(tree)
    node = root
    rest = tuple(path)
    while node.kind == "mapping":
        node_and_rest = _step(mappings, node, rest)
        if node_and_rest is None:
            break
        node, rest = node_and_rest
    if node.null or node.kind == "mapping":
        return node, _missing(mappings, node, rest)
    parent = path_text(path[: len(path) - len(rest)]) or "the file"
    wanted = path_text(path)
    if node.kind == "sequence":
        hint = f"use one of its items, such as {parent}[0].{path_text(rest)}"
        raise TargetError(
            f"line {tree.line(node)}: {parent} is a list, so {wanted} is not in it",
            hint=hint,
        )
    kind = "not a mapping"
    if node.kind == "scalar":
        kind = f"a plain value ({shortened(node.value, 80)!r})"
    raise TargetError(
        f"line {tree.line(node)}: {parent} is {kind}, so it has no key {path_text(rest)}",
        hint=(
            f"use another key; if {parent} holds the whole reference, set"
            f" <alias>.helm.image-spec: {parent}"
        ),
    )


def _step(
    mappings: _Mappings,
    node: Node,
    rest: tuple[Segment, ...],
) -> tuple[Node, tuple[Segment, ...]] | None:
    """Return the next node and the rest of the path, or None if no key matches.

    A step matches the plain key, or the only possible key with dots.
    """
    first, *_ = rest
    plain_value = mappings.own(node, first.name)
    if plain_value is not None and first.indices is not None:
        return _item_at(mappings.tree, plain_value, first), rest[1:]
    dotted = []
    for used in range(2, len(rest)):
        for key, indices in _possible_keys(rest[:used]):
            dotted_value = value(node, key)
            if dotted_value is not None:
                dotted.append((dotted_value, indices, rest[used:]))
    if not dotted:
        return None
    if len(dotted) > 1:
        raise _ambiguous(rest)
    dotted_value, indices, rest_after_key = dotted[0]
    inner = item(dotted_value, indices)
    return (resolved(inner), rest_after_key) if inner is not None else None


def _item_at(tree: Tree, node: Node, step: Segment) -> Node:
    """Return the item at the step's indices in the key's value.

    Raises TargetError if it does not exist.
    """
    for index in step.indices or ():
        sequence = resolved(node)
        if sequence.kind != "sequence":
            hint = f"use it without an index: {step.name}"
            raise TargetError(f"line {tree.line(node)}: {step.name} is not a list", hint=hint)
        if index >= len(sequence.children):
            raise TargetError(
                f"{step.text}: the list has {len(sequence.children)} items",
                hint="use an existing index (the first is 0), or add the item to the file first",
            )
        node = sequence.children[index]
    return resolved(node)


def _missing(mappings: _Mappings, node: Node, rest: tuple[Segment, ...]) -> tuple[str, ...]:
    """Return the names of the keys to add.

    Raises TargetError if a list would have to be added, or if a new key would hide a merged
    mapping.
    """
    for segment in rest:
        if segment.indices is None:
            message = f"the index in {segment.text} is not a non-negative number"
            raise TargetError(message, hint="use 0 or a positive number between the brackets")
        if segment.indices:
            message = f"{segment.text}: there is no list {segment.name}"
            raise TargetError(message, hint="create the list in the file first")
    names = tuple(segment.name for segment in rest)
    if node.kind != "mapping" or len(names) == 1:
        return names
    name, inner_name, *_ = names
    merged = mappings.value(node, name)
    if merged is not None and resolved(merged).kind == "mapping":
        merged_names = {key.value for key, _ in pairs(resolved(merged))}
        if merged_names - {inner_name}:
            message = f"{name} comes from a merge key (<<): adding {name} would hide its other keys"
            raise TargetError(message, hint="write out the keys")
    return names


def path_text(path: Sequence[Segment]) -> str:
    """Return the path in its usual notation, without escapes."""
    return ".".join(segment.text for segment in path)


def key_path(tree: Tree, node: Node) -> str:
    """Return a node's path in its document: `spec.containers[0].image`."""
    steps: list[str] = []
    for child in tree.ancestors(node):
        parent = tree.parent(child)
        key = tree.key_of(child)
        if parent is not None and parent.kind == "sequence":
            steps.append(f"[{_item_number(parent, child)}]")
        elif key is not None:
            steps.append(f".{key.value}")
    return "".join(reversed(steps)).lstrip(".")
