r"""Parses key paths in a values file, such as `a.b.c`, `list[0][1].tag`,
`labels.app\.kubernetes\.io/name`.

A nested path takes precedence over a key with a dot in its name. (AIU uses this order for reading,
but v0.18 prefers the key with the dot for writing.) An index after a key selects an item of the
key's list, as in AIU since v0.17. A backslash escapes a dot, which AIU does not support.
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
MOST_USES = 100  # maximum number of keys that may share one value
# maximum number of nested merge keys; each uses five stack frames, and Python allows a thousand
MOST_MERGES = 50
MOST_STEPS = 2_000  # maximum number of steps from a shared value up to the keys that share it
_INDICES = re.compile(r"(?P<name>.*?)(?P<brackets>(?:\[[^\]]*\])+)", re.DOTALL)


@dataclass(frozen=True)
class Segment:
    """One step of a path: a key and any list indices after it, such as `[0][1]`."""

    name: str
    brackets: str = ""

    @property
    def text(self) -> str:
        """The whole step, unescaped. This may also be a key with brackets in its name."""
        return self.name + self.brackets

    @property
    def indices(self) -> tuple[int, ...] | None:
        """The list indices, or None if one of them is not a non-negative number."""
        if not self.brackets:
            return ()
        texts = self.brackets.removeprefix("[").removesuffix("]").split("][")
        are_numbers = all(re.fullmatch(r"[0-9]{1,9}", text) for text in texts)
        return tuple(map(int, texts)) if are_numbers else None


def parse_path(text: str) -> tuple[Segment, ...]:
    r"""Return the steps of a path such as `containers[0].image` or `labels.app\.kubernetes\.io`.

    Raises TargetError if the path has more steps than a file can have levels.
    """
    escaped_steps = re.split(r"(?<!\\)\.", text)  # at each dot that no backslash precedes
    steps = [step.replace("\\.", ".") for step in escaped_steps]
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
    """Return the node at the path, or None if there is none. YAML aliases are followed.

    With `merges`, the node may come from a merge key (`<<`).

    Raises TargetError if two keys with dots match equally well, or if a key on the path is set
    twice.
    """
    nodes = find_all(tree, root, path, merges=merges)
    # If several nodes match, the last one wins: its key has brackets in its name.
    return resolved(nodes[-1]) if nodes else None


def find_all(
    tree: Tree,
    root: Node,
    path: Sequence[Segment],
    *,
    merges: bool = True,
) -> tuple[Node, ...]:
    """Return all nodes at the path, without following YAML aliases at its end.

    There may be several nodes: for `a[0]`, these are the first item of the list `a` and the value
    of a key called `a[0]`. Raises the same errors as `find`.
    """
    matches = list(_matches(_mappings(tree), root, path, merges=merges))
    if not matches:
        return ()
    # The interpretation with the fewest dots in keys wins, so a nested path takes precedence.
    fewest_dots = min(match.dots for match in matches)
    best_matches = [match for match in matches if match.dots == fewest_dots]
    mappings = {id(match.mapping) for match in best_matches}
    is_ambiguous = fewest_dots > 0 and len(mappings) > 1
    if is_ambiguous:
        raise _ambiguity_error(path)
    return tuple(match.node for match in best_matches)


def _ambiguity_error(path: Sequence[Segment]) -> TargetError:
    """Return the error for a path that matches several keys with dots in their names."""
    hint = "escape the dots in the intended key: \\."
    return TargetError(f"several keys with dots match {path_text(path)}", hint=hint)


class _Match(NamedTuple):
    """A node to which a path may refer."""

    dots: int  # the number of dots in the path that are part of keys
    node: Node
    mapping: Node  # the mapping that contains the node


def _matches(
    mappings: _Mappings,
    node: Node,
    path: Sequence[Segment],
    *,
    merges: bool,
) -> Iterator[_Match]:
    """Yield each node below this one to which the path may refer.

    Any number of steps at the beginning of the path may form a single key with dots in its name:
    for `a.b.c`, the keys `a`, `a.b`, and `a.b.c` are tried.
    """
    mapping = resolved(node)
    if mapping.kind != "mapping":
        return
    value_of_key = mappings.value if merges else mappings.own
    for step_count in range(1, len(path) + 1):
        dots_in_key = step_count - 1
        steps_below_key = path[step_count:]
        for key, indices in _possible_keys(path[:step_count]):
            inner = item_at_indices(value_of_key(mapping, key), indices)
            if inner is None:
                continue
            if not steps_below_key:
                yield _Match(dots_in_key, inner, mapping)
                continue
            for match in _matches(mappings, inner, steps_below_key, merges=merges):
                yield match._replace(dots=match.dots + dots_in_key)


def _possible_keys(steps: Sequence[Segment]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield each key that these steps may form together, such as `a.b` for two steps, along with
    the indices after it. Brackets may be indices or part of the key's name.
    """
    *first_steps, last = steps
    prefix = "".join(f"{step.text}." for step in first_steps)
    if last.indices is not None:
        yield prefix + last.name, last.indices
    if last.brackets:  # the brackets may be part of the key's name
        yield prefix + last.text, ()


def item_at_indices(node: Node | None, indices: Sequence[int]) -> Node | None:
    """Return the item at these indices, one per list level, or None if there is no such item.

    If there are no indices, return the node itself.
    """
    for index in indices:
        if node is None:
            return None
        sequence = resolved(node)
        if sequence.kind != "sequence" or index >= len(sequence.children):
            return None
        node = sequence.children[index]
    return node


def entries(mapping: Node, depth: int = 0) -> Mapping[str, Node]:
    """Return a mapping's keys and their values as Helm reads them, following YAML aliases.

    The keys of merged mappings (`<<`) are included, and if a key has several values, the last one
    wins. `depth` is the number of merge keys around the mapping.
    """
    values_by_key: dict[str, Node] = {}
    if mapping.kind != "mapping" or depth >= DEPTH:
        return values_by_key
    for key, node in pairs(mapping):
        if is_merge(key):
            # In a list of mappings, the first mapping wins, so it is added last.
            for source in reversed(_sources(node)):
                values_by_key |= entries(source, depth + 1)
        elif key.kind == "scalar":
            values_by_key[key.value] = resolved(node)
    return values_by_key


def _sources(node: Node) -> tuple[Node, ...]:
    """Return the mappings to which a merge key refers. The merge key's value, `node`, is one
    mapping or a list of mappings. YAML aliases are followed.
    """
    source = resolved(node)
    return tuple(map(resolved, source.children)) if source.kind == "sequence" else (source,)


class _Mappings:
    """Finds the values of keys in mappings as Helm does: keys and merge keys are read in order, and
    the last one wins.

    According to YAML, a mapping's own key always wins over a merge key, regardless of their order.
    Helm's parser does not follow this rule.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        # These two attributes are caches. This one maps (mapping's id, key) to the value that Helm
        # reads.
        self._values: dict[tuple[int, str], Node | None] = {}
        # maps a mapping's id, and then a key, to each of the key's nodes with its value
        self._keys: dict[int, dict[str, list[tuple[Node, Node]]]] = {}

    def value(self, mapping: Node, key: str, depth: int = 0) -> Node | None:
        """Return the value of a key as Helm reads it, or None if the key is missing. `depth` is the
        number of merge keys around the mapping.

        Raises TargetError if the last value hides the mapping's own key, or if a merge key hides
        another merge key's value.
        """
        cache_key = (id(mapping), key)
        if cache_key not in self._values:
            self._values[cache_key] = self._effective_value(mapping, key, depth)
        return self._values[cache_key]

    def _effective_value(self, mapping: Node, key: str, depth: int) -> Node | None:
        """Return the last value of a key, which comes from the key itself or from a merge key.
        Return None if there is no value.

        Raises the same errors as `value`.
        """
        if depth > MOST_MERGES:
            message = f"merge keys refer to each other more than {MOST_MERGES} times"
            raise TargetError(message, hint="write out the merged keys")
        entries = self._entries(mapping)
        candidates = [*entries.get(key, ()), *entries.get(f"{MERGES}<<", ())]
        candidates.sort(key=lambda candidate: candidate[0].start)  # in document order
        key_nodes = []  # the keys and merge keys that provide a value
        last_value = None
        for key_node, node in candidates:
            value_node = self._merged_value(node, key, depth) if is_merge(key_node) else node
            if value_node is not None:
                key_nodes.append(key_node)
                last_value = value_node
        if key_nodes:
            *earlier_nodes, last_node = key_nodes
            self._refuse_hidden(key, earlier_nodes, last_node)
        return last_value

    def _refuse_hidden(self, key: str, earlier: Sequence[Node], last: Node) -> None:
        """Raise TargetError if the last value of a key hides an earlier value that must not be
        hidden.

        `earlier` and `last` are the nodes that provide the values: the key itself, or a merge key.
        The key itself must not be hidden, and a merge key must not hide another merge key. Only the
        key itself may hide merge keys.
        """
        last_is_merge = is_merge(last)
        hidden_own = [key_node for key_node in earlier if not is_merge(key_node)]
        if hidden_own:
            first_hidden = hidden_own[0]
        elif earlier and last_is_merge:
            first_hidden = earlier[0]
        else:
            return
        first_line = self.tree.line(first_hidden)
        last_line = self.tree.line(last)
        again = "the merge key << adds it again" if last_is_merge else "it appears again"
        hint = "keep one of them"
        if hidden_own and last_is_merge:
            hint = "move the merge key above it"
        raise TargetError(
            f"line {first_line} has {key}, and on line {last_line}, {again}: Helm uses the"
            " later one",
            hint=hint,
        )

    def _entries(self, mapping: Node) -> Mapping[str, list[tuple[Node, Node]]]:
        """Return each key of a mapping with its key nodes and values. A key may occur several
        times.

        The name of a merge key begins with `MERGES`, unlike that of a quoted key `"<<"`.
        """
        if id(mapping) not in self._keys:
            entries_by_key: dict[str, list[tuple[Node, Node]]] = {}
            for key_node, value_node in pairs(mapping):
                if key_node.kind == "scalar":
                    key = f"{MERGES}{key_node.value}" if is_merge(key_node) else key_node.value
                    entries_by_key.setdefault(key, []).append((key_node, value_node))
            self._keys[id(mapping)] = entries_by_key
        return self._keys[id(mapping)]

    def own(self, mapping: Node, key: str) -> Node | None:
        """Return the value of the mapping's own key, or None if there is none. Raises the same
        errors as `value`.
        """
        self.value(mapping, key)  # called only to raise errors
        return value(mapping, key)

    def _merged_value(self, node: Node, key: str, depth: int) -> Node | None:
        """Return the value of a key in a merge key's value `node`, or None if there is none.

        In a list of mappings, the first mapping that contains the key wins.
        """
        for source in _sources(node):
            if source.kind != "mapping":
                continue
            value_node = self.value(source, key, depth + 1)
            if value_node is not None:
                return value_node
        return None


_mappings = lru_cache(maxsize=2)(_Mappings)  # a tree is searched for several keys


def paths_of_uses(
    tree: Tree,
    root: Node,
    node: Node,
    missing: Sequence[str] = (),
) -> Iterator[tuple[Segment, ...]]:
    """Yield each path at which this node is found by a reader that follows YAML aliases and merge
    keys.

    With `missing`, yield each path at which a new key below the node would be found. `missing` is
    the path from the node to that key. Raises TargetError if there are too many paths, or if the
    node or an alias on the way is a key.
    """
    # Go up to the root from the node, and from each alias of a node on the way. Each entry of the
    # stack is a node to go up from, and the path from there down to the shared node or key.
    stack: list[tuple[Node, tuple[str | int, ...]]] = [(node, tuple(missing))]
    root_count = 0
    for _ in range(MOST_STEPS):
        if not stack:
            return
        current, path_below = stack.pop()
        stack += [(alias, path_below) for alias in tree.aliases(current)]
        parent = tree.parent(current)
        if parent is not None:
            stack.append((parent, _path_from_parent(tree, parent, current, path_below)))
            continue
        root_count += 1
        if root_count > MOST_USES:
            break  # results in the same error as too many steps
        steps = _segments(path_below)
        nodes_at_path = find_all(tree, root, steps)
        if missing:
            is_use = not nodes_at_path  # a mapping's own key overrides the merged key
        else:
            is_use = any(resolved(other) is node for other in nodes_at_path)
        if is_use:
            yield steps
    raise TargetError(
        f"line {tree.line(node)} is shared by too many aliases",
        hint="write out the value",
    )


def _path_from_parent(
    tree: Tree,
    parent: Node,
    child: Node,
    path_below: tuple[str | int, ...],
) -> tuple[str | int, ...]:
    """Return the path that starts at a child's parent. `path_below` is the path that starts at the
    child.

    The child's key or its index in a list is prepended. A merge key does not count as a step,
    because its mapping's keys count as keys of the parent. Raises TargetError if the child is
    itself a key.
    """
    key = tree.key_of(child)
    if key is child:
        raise TargetError(
            f"line {tree.line(key)} has an alias as a key",
            hint="write out the key",
        )
    if key is not None:
        return path_below if is_merge(key) else (key.value, *path_below)
    key_of_list = tree.key_of(parent)  # the child is an item of a list
    if key_of_list is not None and is_merge(key_of_list):
        return path_below
    return (_item_number(parent, child), *path_below)


def _item_number(sequence: Node, item_node: Node) -> int:
    """Return the index of an item in its sequence."""
    return next(number for number, child in enumerate(sequence.children) if child is item_node)


def _segments(path: Sequence[str | int]) -> tuple[Segment, ...]:
    """Return the steps of a path of keys and list indices. For ("a", 0, "b"), the steps are `a[0]`
    and `b`.

    An index that no key precedes is skipped.
    """
    steps: list[Segment] = []
    for part in path:
        if isinstance(part, str):
            steps.append(Segment(part))
        elif steps:
            key_step = steps.pop()
            steps.append(Segment(key_step.name, f"{key_step.brackets}[{part}]"))
    return tuple(steps)


def locate(tree: Tree, root: Node, path: Sequence[Segment]) -> tuple[Node, tuple[str, ...]]:
    """Return where to write: either the node at the path and (), or the last existing mapping (or
    null) on the path and the keys to add to it.

    Raises the same errors as `find`. Also raises TargetError if something on the path is not a
    mapping, if a list or an index is missing, or if a new key would hide the keys of a merge key.
    """
    existing = find(tree, root, path, merges=False)
    if existing is not None:
        return existing, ()
    mappings = _mappings(tree)
    node = root
    remaining_path = tuple(path)
    while node.kind == "mapping":
        next_step = _next_step(mappings, node, remaining_path)
        if next_step is None:
            break
        node, remaining_path = next_step
    if node.null or node.kind == "mapping":
        return node, _keys_to_add(mappings, node, remaining_path)
    raise _not_a_mapping_error(tree, node, path, remaining_path)


def _not_a_mapping_error(
    tree: Tree,
    node: Node,
    path: Sequence[Segment],
    remaining_path: Sequence[Segment],
) -> TargetError:
    """Return the error for a node on the path that cannot contain keys, such as a list.
    `remaining_path` is the part of the path below this node.
    """
    steps_to_node = path[: len(path) - len(remaining_path)]
    parent = path_text(steps_to_node) or "the file"
    wanted = path_text(path)
    remaining = path_text(remaining_path)
    if node.kind == "sequence":
        return TargetError(
            f"line {tree.line(node)}: {parent} is a list, so {wanted} is not in it",
            hint=f"use one of its items, such as {parent}[0].{remaining}",
        )
    kind = "not a mapping"
    if node.kind == "scalar":
        kind = f"a plain value ({shortened(node.value, 80)!r})"
    return TargetError(
        f"line {tree.line(node)}: {parent} is {kind}, so it has no key {remaining}",
        hint=(
            f"use another key; if {parent} holds the whole reference, set"
            f" <alias>.helm.image-spec: {parent}"
        ),
    )


def _next_step(
    mappings: _Mappings,
    mapping: Node,
    path: tuple[Segment, ...],
) -> tuple[Node, tuple[Segment, ...]] | None:
    """Return the node at the path's next key in a mapping, and the path below that node, or None if
    no key matches.

    The next key is the first step alone, or else the only key with dots that the first few steps
    form. Raises TargetError if several such keys exist, or if a list or an index is missing.
    """
    first_step = path[0]
    plain_value = mappings.own(mapping, first_step.name)
    if plain_value is not None and first_step.indices is not None:
        return _item_at(mappings.tree, plain_value, first_step), path[1:]
    # the value of each matching key with dots, the indices after that key, and the path below them
    dotted_matches = []
    # Do not join all steps: if they formed a key, `locate` would already have found the node at the
    # path.
    for step_count in range(2, len(path)):
        for key, indices in _possible_keys(path[:step_count]):
            dotted_value = value(mapping, key)
            if dotted_value is not None:
                dotted_matches.append((dotted_value, indices, path[step_count:]))
    if not dotted_matches:
        return None
    if len(dotted_matches) > 1:
        raise _ambiguity_error(path)
    dotted_value, indices, path_below = dotted_matches[0]
    inner = item_at_indices(dotted_value, indices)
    if inner is None:
        return None
    return resolved(inner), path_below


def _item_at(tree: Tree, node: Node, step: Segment) -> Node:
    """Return the item at the step's indices in the value of the step's key.

    Raises TargetError if the item does not exist.
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


def _keys_to_add(mappings: _Mappings, node: Node, path: tuple[Segment, ...]) -> tuple[str, ...]:
    """Return the names of the keys to add to a node for the path below it. Each key is added inside
    the previous one.

    Raises TargetError if a list would have to be added, or if a new key would hide other keys of a
    merged mapping.
    """
    for segment in path:
        if segment.indices is None:
            message = f"the index in {segment.text} is not a non-negative number"
            raise TargetError(message, hint="use 0 or a positive number between the brackets")
        if segment.indices:
            message = f"{segment.text}: there is no list {segment.name}"
            raise TargetError(message, hint="create the list in the file first")
    names = tuple(segment.name for segment in path)
    adds_one_key = len(names) == 1
    if node.kind != "mapping" or adds_one_key:
        return names
    # The first name becomes a new mapping, which would hide a merged mapping with this name.
    name, inner_name, *_ = names
    merged = mappings.value(node, name)
    if merged is not None and resolved(merged).kind == "mapping":
        merged_names = {key.value for key, _ in pairs(resolved(merged))}
        hidden_names = merged_names - {inner_name}
        if hidden_names:
            message = f"{name} comes from a merge key (<<): adding {name} would hide its other keys"
            raise TargetError(message, hint="write out the keys")
    return names


def path_text(path: Sequence[Segment]) -> str:
    """Return the path in its usual notation, without escapes."""
    return ".".join(segment.text for segment in path)


def key_path(tree: Tree, node: Node) -> str:
    """Return a node's path in its document, such as `spec.containers[0].image`."""
    steps: list[str] = []
    for child in tree.ancestors(node):
        parent = tree.parent(child)
        key = tree.key_of(child)
        if parent is not None and parent.kind == "sequence":
            steps.append(f"[{_item_number(parent, child)}]")
        elif key is not None:
            steps.append(f".{key.value}")
    return "".join(reversed(steps)).lstrip(".")
