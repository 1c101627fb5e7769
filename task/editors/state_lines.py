"""Writes new data into a state file's text, line by line or with all lines anew.

`state_file` does not trust the result, and reads it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import cast

from task.editors.state_data import HOLD, MEMORY, WRITTEN
from task.editors.yaml.check import Splice, apply
from task.editors.yaml.grow import add_items, add_keys, without_lines
from task.editors.yaml.layout import (
    Data,
    column,
    content_end,
    entry_end,
    eol,
    flow,
    indent_step,
    line_end,
    line_start,
    only_blank,
    sequence_shift,
    value_slot,
)
from task.editors.yaml.scalar import double_quoted, spell
from task.editors.yaml.splice import splice
from task.editors.yaml.tree import Node, Tree, pairs, parse
from task.errors import Malformed, TargetError
from task.timestamps import utc

_ORDER = ("files", *MEMORY, "images", *HOLD, *WRITTEN)  # `hold` comes before `images` as well
_NAMED = 1, 3  # in the mappings at these depths, the keys are names: below `files`, below `images`
_CORE = "tag:yaml.org,2002:"
_TYPED = set(",[]{}#:\n")  # a plain scalar with one of these may have another meaning in flow style
_LONG_KEY = 1000  # characters; after 1024, libyaml stops searching for the `:` of a simple key
Wanted = Mapping[str, object]  # a Node in it was written by a newer version, and stays as it is


@dataclass(frozen=True)
class _Differences:
    """The differences between a text and the data that it should have."""

    words: list[tuple[Node, str]]
    nulls: list[tuple[Node, object]]  # each with its replacement
    splices: list[Splice]  # new entries, lists, and everything in flow style
    drops: list[Splice]


def edited(tree: Tree, data: Wanted) -> str:
    """Return the text with as few changed lines as possible. Raises TargetError if the text is not in block style."""
    root = tree.documents[0].root if tree.documents else None
    if root is None or root.kind != "mapping" or root.style == "{":
        raise TargetError("the state file is not in block style", hint="write one key in each line")
    # Every step changes the text and moves the nodes, so the remaining differences are computed again.
    if words := _differences(tree, data).words:
        tree = splice(tree, words)
    while nulls := _differences(tree, data).nulls:
        node, wanted = nulls[0]
        fill = cast("Data", wanted)
        tree = (
            add_keys(tree, node, fill)
            if isinstance(fill, Mapping)
            else add_items(tree, node, [*cast("list[str]", fill)])
        )
    if splices := _differences(tree, data).splices:
        tree = parse(apply(tree.text, splices))
    return apply(tree.text, _differences(tree, data).drops)


def fresh(tree: Tree, data: Wanted) -> str:
    """Return the text with all lines written anew, below the comments at its beginning."""
    head, end = [], eol(tree.text)
    for line in tree.text.splitlines():
        if line.strip("\ufeff \t") and line != "---" and not line.lstrip("\ufeff \t").startswith("#"):
            break
        head.append(line)
    return "".join(line + end for line in (*head, *_lines(data, 2, 0)))


def _differences(tree: Tree, data: Wanted) -> _Differences:
    differences = _Differences([], [], [], [])
    _compare(tree, tree.documents[0].root, data, differences)
    return differences


def _compare(tree: Tree, mapping: Node, data: Wanted, differences: _Differences) -> None:
    text = tree.text
    for key, node in pairs(mapping):
        if key.value not in data:
            if _says_nothing(node):
                continue
            start = key.start - 2 if text[key.start - 2 : key.start] == "? " else key.start
            if not only_blank(text, line_start(text, start), start):
                raise TargetError("a key follows something else on its line", hint="write it on a line of its own")
            end = line_end(text, entry_end(text, key, node))
            differences.drops.append(without_lines(text, line_start(text, start), end))
            continue
        wanted = data[key.value]
        if _says(key.value, node, wanted):
            continue
        if isinstance(wanted, str):
            differences.words.append((node, wanted))
        elif node.kind == "scalar":
            differences.nulls.append((node, wanted))
        elif node.style == "{":
            differences.splices.append(Splice(node.start, node.end, in_flow(wanted)))
        elif isinstance(wanted, Mapping):
            _compare(tree, node, wanted, differences)
        else:
            differences.splices.extend(_items(tree, node, cast("list[str]", wanted)))
    keys = {key.value for key, _ in pairs(mapping)}
    missing = ((name, wanted) for name, wanted in data.items() if name not in keys)
    differences.splices.extend(_new_entry(tree, mapping, name, wanted) for name, wanted in missing)


def _says(name: str, node: Node, wanted: object) -> bool:
    """Tell whether a value already means this, in any spelling: `007` is sequence 7, and a time may have any zone."""
    if isinstance(wanted, Node):
        return True
    if isinstance(wanted, str):
        text = "" if node.null else node.value
        if name == "sequence":
            text = text.lstrip("0") or text[-1:]
        elif name in {"at", "until", "created"}:
            with suppress(Malformed):
                text = utc(text)
        return node.kind == "scalar" and text == wanted
    if isinstance(wanted, Mapping):
        entries = {key.value: value for key, value in pairs(node)} if node.kind == "mapping" else {}
        return all(_says_nothing(value) for key, value in entries.items() if key not in wanted) and all(
            key in entries and _says(key, entries[key], value) for key, value in wanted.items()
        )
    return node.kind == "sequence" and [item.value for item in node.children] == wanted


def _says_nothing(node: Node) -> bool:
    """Tell whether an unwanted value is empty and may stay. People leave keys without a value."""
    if node.kind == "mapping":
        return all(key.value != "reason" and _says_nothing(value) for key, value in pairs(node))
    return not node.children if node.kind == "sequence" else node.null or not node.value


def _new_entry(tree: Tree, mapping: Node, name: str, wanted: object) -> Splice:
    """Return the splice for a new key on its own lines, at its place: images by name, and fields in the usual order."""
    text, end = tree.text, eol(tree.text)
    margin = " " * column(text, mapping)
    lines = [margin + line for line in _lines({name: wanted}, indent_step(tree), sequence_shift(tree))]
    entries = list(pairs(mapping))
    ranks = [_rank(tree, mapping, key.value) for key, _ in entries]
    place = next((at for at, rank in enumerate(ranks) if rank > _rank(tree, mapping, name)), len(ranks))
    if place:  # after the previous entry
        at = line_end(text, entry_end(text, *entries[place - 1]))
        return Splice(at, at, "".join(end + line for line in lines))
    if tree.parent(mapping) is not None:
        # Right after the mapping's own key, because comments below that key belong to its first entry.
        key = tree.key_of(mapping)
        slot = value_slot(text, key) if key is not None else None
        if slot is None:
            raise TargetError("a key spans several lines", hint="write it as `key:`")
        at = line_end(text, slot)
        return Splice(at, at, "".join(end + line for line in lines))
    # Above the file's first key and its comment, but below the comments at the head of the file.
    first = entries[0][0]
    at = above = line_start(text, first.start)
    if not only_blank(text, at, first.start):
        raise TargetError("the first key follows something else on its line", hint="write it on a line of its own")
    while above and text[line_start(text, above - 1) : above].lstrip().startswith("#"):
        above = line_start(text, above - 1)
    at = above if text[:above].strip("\ufeff \t\r\n") else at
    return Splice(at, at, "".join(line + end for line in lines))


def _rank(tree: Tree, mapping: Node, name: str) -> tuple[int, str]:
    depth = len(list(tree.ancestors(mapping))) - 1
    key = tree.key_of(mapping)
    if depth in _NAMED and key is not None and key.value in ("files", "images"):
        return 0, name
    return _ORDER.index(name) if name in _ORDER else len(_ORDER), ""


def _items(tree: Tree, sequence: Node, wanted: Sequence[str]) -> Iterator[Splice]:
    """Yield the splices that give a list its new items. Items that stay keep their lines."""
    text, end, items = tree.text, eol(tree.text), sequence.children
    margin = " " * column(text, sequence)
    for what, i, j, k, m in SequenceMatcher(None, [i.value for i in items], wanted, autojunk=False).get_opcodes():
        lines = [f"{margin}- {spell(word)}" for word in wanted[k:m]]
        if what == "equal":
            continue
        if what == "insert" and i == len(items):
            at = line_end(text, content_end(text, items[-1]))
            yield Splice(at, at, "".join(end + line for line in lines))
        elif what == "insert":
            at = line_start(text, items[i].start)
            yield Splice(at, at, "".join(line + end for line in lines))
        else:
            start, tail = line_start(text, items[i].start), line_end(text, content_end(text, items[j - 1]))
            yield Splice(start, tail, end.join(lines)) if lines else without_lines(text, start, tail)


def in_flow(data: object) -> str:
    """Return the data on one line. Values from a newer version keep their types: a plain scalar stays plain."""
    if isinstance(data, Node):
        tag = f"{'!!' if data.tag.startswith(_CORE) else ''}{data.tag.removeprefix(_CORE)} " if data.tag else ""
        if data.kind == "scalar":
            plain = not data.style and not set(data.value) & _TYPED
            return tag + (data.value if plain else double_quoted(data.value))
        if data.kind == "sequence":
            return f"{tag}[{', '.join(map(in_flow, data.children))}]"
        return tag + "{" + ", ".join(f"{in_flow(key)}: {in_flow(value)}" for key, value in pairs(data)) + "}"
    if isinstance(data, Mapping):
        return "{" + ", ".join(f"{spell(key)}: {in_flow(value)}" for key, value in data.items()) + "}"
    return flow(cast("Data", data))


def _lines(data: Wanted, step: int, shift: int) -> list[str]:
    """Return the data as block lines, with one key or item on each."""
    lines: list[str] = []
    for key, value in data.items():
        name = spell(key)
        if isinstance(value, str):
            lines.append(f"{name}: {spell(value)}")
        elif isinstance(value, Node):
            lines.append(f"{name}: {in_flow(value)}")
        elif not isinstance(value, Mapping):
            lines += [f"{name}:", *(f"{' ' * shift}- {spell(item)}" for item in cast("list[str]", value))]
        elif len(name) > _LONG_KEY:
            first, *rest = _lines(value, step, shift)
            lines += [f"? {name}", f": {first}", *(f"  {line}" for line in rest)]
        else:
            lines += [f"{name}:", *(" " * step + line for line in _lines(value, step, shift))]
    return lines
