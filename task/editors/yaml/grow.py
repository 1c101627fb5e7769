"""New keys and items in YAML text, in the style of what stands around them; keys taken out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from task.editors.yaml.check import Splice, apply, checked, grows, holds, more_than_meant, shrinks
from task.editors.yaml.layout import (
    Data,
    block,
    body,
    column,
    content_end,
    dash_width,
    eol,
    flow,
    indent_step,
    line_end,
    line_start,
    only_blank,
    quoted_keys,
    sequence_shift,
    slot,
    value_slot,
)
from task.editors.yaml.tree import Node, Tree, pairs, parse
from task.errors import TargetError


def add_keys(tree: Tree, mapping: Node, data: Mapping[str, Data]) -> Tree:
    """New last keys in a mapping (or in place of a null)."""
    return _grow(tree, mapping, data)


def add_items(tree: Tree, sequence: Node, data: Sequence[Data]) -> Tree:
    """New last items in a sequence (or in place of a null)."""
    return _grow(tree, sequence, data)


def _grow(tree: Tree, node: Node, more: Mapping[str, Data] | Sequence[Data]) -> Tree:
    check = {id(node): grows(more)}
    if node.kind == "scalar":
        return checked(tree, _fill(tree, node, more), check)
    if node.style == "{" and (node.children or isinstance(more, Mapping) or _in_flow(tree, node)):
        return checked(tree, _grow_flow(tree, node, more), check)
    if not node.children:
        return checked(tree, _fill(tree, node, more), check)
    try:
        return checked(tree, _grow_block(tree, node, more), check)
    except TargetError:
        # What stands last cannot be followed by a line: a block scalar that ends with the file, for one.
        return checked(tree, _grow_before(tree, node, more), {id(node): grows(more, last=False)})


def _in_flow(tree: Tree, node: Node) -> bool:
    parent = tree.parent(node)
    return parent is None or parent.style == "{"


def _grow_block(tree: Tree, node: Node, more: Mapping[str, Data] | Sequence[Data]) -> list[Splice]:
    at = line_end(tree.text, content_end(tree.text, node))
    width = dash_width(tree.text, node) if node.kind == "sequence" else 2
    return [Splice(at, at, _lines(tree, more, column(tree.text, node), width))]


def _grow_before(tree: Tree, node: Node, more: Mapping[str, Data] | Sequence[Data]) -> list[Splice]:
    """The same before the last entry."""
    last = node.children[-2] if node.kind == "mapping" else node.children[-1]
    at = line_start(tree.text, last.start)
    return [Splice(at, at, _lines(tree, more, column(tree.text, node))[len(eol(tree.text)) :] + eol(tree.text))]


def _lines(tree: Tree, data: Mapping[str, Data] | Sequence[Data], indent: int, width: int = 2) -> str:
    """The data as block lines, each behind a line end."""
    lines = block(data, indent_step(tree), sequence_shift(tree), width)
    return "".join(f"{eol(tree.text)}{' ' * indent}{line}" for line in lines)


def _grow_flow(tree: Tree, node: Node, more: Mapping[str, Data] | Sequence[Data]) -> list[Splice]:
    text, close = tree.text, node.end - 1
    quote = quoted_keys(tree, node)
    fresh = flow(more, quote=quote)[1:-1]
    if not node.children:
        return [Splice(close, close, fresh)]
    end = content_end(text, node.children[-1])
    if node.kind == "mapping" and end <= node.children[-2].end:
        end = max(node.children[-2].end, value_slot(text, node.children[-2]) or 0)
    first = node.children[0].start
    if not only_blank(text, line_start(text, first), first):
        return [Splice(end, end, f", {fresh}")]
    tail = line_end(text, end)
    if tail > close:
        return [Splice(end, end, f", {fresh}")]
    comma = "" if text[end:tail].lstrip().startswith(",") else ","
    margin = text[line_start(text, first) : first]
    return [Splice(end, end, comma), Splice(tail, tail, f"{eol(text)}{margin}{fresh}" + ("" if comma else ","))]


def _fill(tree: Tree, node: Node, more: Mapping[str, Data] | Sequence[Data]) -> list[Splice]:
    """In place of a null or of empty brackets: block lines below the key, or flow inside flow."""
    text, parent = tree.text, tree.parent(node)
    start = body(text, node)
    if parent is None:
        return _fill_root(tree, node, more)
    empty = start >= node.end
    at = slot(tree, node) if empty and not node.anchor else start
    if parent.style == "{":
        gap = " " if empty else ""
        return [Splice(at, max(at, node.end), gap + flow(more, quote=quoted_keys(tree, parent)))]
    cut = [] if empty else [_without_blanks(text, Splice(start, node.end, ""))]
    if parent.kind == "sequence":
        return _fill_item(tree, Splice(at, max(at, node.end), ""), more, column(text, parent))
    indent = column(text, parent) + (indent_step(tree) if isinstance(more, Mapping) else sequence_shift(tree))
    tail = line_end(text, at if empty else node.end)
    return [*cut, Splice(tail, tail, _lines(tree, more, indent))]


def _fill_item(tree: Tree, at: Splice, more: Mapping[str, Data] | Sequence[Data], dash: int) -> list[Splice]:
    lines = _lines(tree, more, dash + 2)[len(eol(tree.text)) + dash + 2 :]
    gap = "" if tree.text[at.start - 1 : at.start] == " " else " "
    return [Splice(at.start, at.end, gap + lines)]


def _without_blanks(text: str, cut: Splice) -> Splice:
    start = cut.start
    while text[start - 1] in " \t":
        start -= 1
    return Splice(start, cut.end, "")


def _fill_root(tree: Tree, node: Node, more: Mapping[str, Data] | Sequence[Data]) -> list[Splice]:
    start = body(tree.text, node)
    fresh = _lines(tree, more, 0)[len(eol(tree.text)) :]
    if start < node.end:  # an explicit null or empty brackets
        at = line_start(tree.text, start)
        if only_blank(tree.text, at, start):
            return [Splice(at, node.end, fresh)]
        return [Splice(_without_blanks(tree.text, Splice(start, start, "")).start, node.end, eol(tree.text) + fresh)]
    if node.anchor:
        return [Splice(node.end, node.end, eol(tree.text) + fresh)]
    at = next(doc.end for doc in tree.documents if doc.root is node)
    return [append(tree.text, at, fresh)]


def append(text: str, at: int, lines: str) -> Splice:
    """`lines` on lines of their own at the end of a document."""
    before = "" if at == line_start(text, at) else eol(text)
    return Splice(at, at, before + lines + ("" if before else eol(text)))


def begin(tree: Tree, data: Mapping[str, Data]) -> Tree:
    """The first document of a text that holds none, behind its comments."""
    splice = append(tree.text, len(tree.text), _lines(tree, data, 0)[len(eol(tree.text)) :])
    new = parse(apply(tree.text, [splice]))
    if len(new.documents) != 1 or not holds(new.documents[0].root, data):
        raise more_than_meant()
    return new


def drop_key(tree: Tree, mapping: Node, key: Node) -> Tree:
    """The mapping without one of its keys, with its whole line."""
    index = next(number for number, (name, _) in enumerate(pairs(mapping)) if name is key)
    return checked(tree, [_cut(tree, mapping, index)], {id(mapping): shrinks(index)})


def drop_items(tree: Tree, sequence: Node, numbers: Sequence[int]) -> Tree:
    """The block sequence without some of its items, with their whole lines; one that has no lines of its own stays."""
    text = tree.text
    cuts: dict[int, Splice] = {}
    for number in numbers:
        item = sequence.children[number]
        dash = item.start - 1
        while text[dash] in " \t\r\n":
            dash -= 1
        start = line_start(text, dash)
        if text[dash] == "-" and only_blank(text, start, dash):
            cuts[number] = _lines_out(text, start, line_end(text, content_end(text, item)))
    try:
        return checked(tree, [*cuts.values()], {id(sequence): shrinks(*cuts)})
    except TargetError:
        return tree


def _cut(tree: Tree, mapping: Node, index: int) -> Splice:
    text, entries = tree.text, list(pairs(mapping))
    key, gone = entries[index]
    end = max(content_end(text, gone), key.end, value_slot(text, key) or 0)
    following = entries[index + 1][0].start if index + 1 < len(entries) else None
    if mapping.style == "{":
        if following is not None:
            return Splice(key.start, following, "")
        before = entries[index - 1]
        return Splice(max(content_end(text, before[1]), before[0].end, value_slot(text, before[0]) or 0), end, "")
    if not only_blank(text, line_start(text, key.start), key.start):  # behind a dash
        if following is None:
            raise TargetError(f"line {tree.line(key)}: {key.value} is all there is", hint="remove that entry by hand")
        return Splice(key.start, following, "")
    return _lines_out(text, line_start(text, key.start), line_end(text, end))


def _lines_out(text: str, start: int, tail: int) -> Splice:
    """Whole lines, with one line end."""
    if tail < len(text):
        return Splice(start, tail + (2 if text[tail : tail + 2] == "\r\n" else 1), "")
    return Splice(start - (2 if text[start - 2 : start] == "\r\n" else 1), tail, "")
