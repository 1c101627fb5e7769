"""Adds keys and items to YAML text, in the style of their neighbours, and removes them."""

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
    entry_end,
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
    """Return the tree with new keys at the end of a mapping. A null becomes a mapping."""
    return _grow(tree, mapping, data)


def add_items(tree: Tree, sequence: Node, data: Sequence[Data]) -> Tree:
    """Return the tree with new items at the end of a sequence. A null becomes a sequence."""
    return _grow(tree, sequence, data)


def _grow(tree: Tree, node: Node, more: Mapping[str, Data] | Sequence[Data]) -> Tree:
    text, check, parent = tree.text, {id(node): grows(more)}, tree.parent(node)
    in_flow = parent is None or parent.style == "{"
    # Brackets stay, but an empty list below a block key becomes a block list (in AIU, it stays a flow list).
    if node.kind != "scalar" and node.style == "{" and (node.children or isinstance(more, Mapping) or in_flow):
        return checked(tree, _grow_flow(tree, node, more), check)
    if not node.children:
        return checked(tree, _fill(tree, node, more), check)
    try:
        at = line_end(text, content_end(text, node))
        width = dash_width(text, node) if node.kind == "sequence" else 2
        return checked(tree, [Splice(at, at, _lines(tree, more, column(text, node), width))], check)
    except TargetError:
        # No line can follow some last entries, such as a block scalar at the end of the file. Insert before them.
        last = node.children[-2] if node.kind == "mapping" else node.children[-1]
        at = line_start(text, last.start)
        lines = _lines(tree, more, column(text, node))[len(eol(text)) :] + eol(text)
        return checked(tree, [Splice(at, at, lines)], {id(node): grows(more, last=False)})


def _lines(tree: Tree, data: Mapping[str, Data] | Sequence[Data], indent: int, width: int = 2) -> str:
    """Return the data as block lines, each after a line ending."""
    lines = block(data, indent_step(tree), sequence_shift(tree), width)
    return "".join(f"{eol(tree.text)}{' ' * indent}{line}" for line in lines)


def _grow_flow(tree: Tree, node: Node, more: Mapping[str, Data] | Sequence[Data]) -> list[Splice]:
    text, close = tree.text, node.end - 1
    quote = quoted_keys(tree, node)
    fresh = flow(more, quote=quote)[1:-1]
    if not node.children:
        return [Splice(close, close, fresh)]
    end = content_end(text, node.children[-1])
    if node.kind == "mapping" and end <= node.children[-2].end:  # `{a: }`: the last value is empty
        end = max(node.children[-2].end, value_slot(text, node.children[-2]) or 0)
    first = node.children[0].start
    if not only_blank(text, line_start(text, first), first):
        return [Splice(end, end, f", {fresh}")]
    tail = line_end(text, end)
    if tail > close:  # the bracket closes on the last entry's line
        return [Splice(end, end, f", {fresh}")]
    # There is one entry on each line. If the last one has a trailing comma, the new one gets a comma as well.
    comma = "" if text[end:tail].lstrip().startswith(",") else ","
    margin = text[line_start(text, first) : first]
    return [Splice(end, end, comma), Splice(tail, tail, f"{eol(text)}{margin}{fresh}" + ("" if comma else ","))]


def _fill(tree: Tree, node: Node, more: Mapping[str, Data] | Sequence[Data]) -> list[Splice]:
    """Return the splices that replace a null or empty brackets.

    The new content is block lines below the key, or flow style inside flow style.
    """
    text, parent = tree.text, tree.parent(node)
    start = body(text, node)
    empty = start >= node.end
    if parent is None:
        return [_fill_root(tree, node, _lines(tree, more, 0)[len(eol(text)) :])]
    at = slot(tree, node) if empty and not node.anchor else start
    if parent.style == "{":
        gap = " " if empty else ""
        return [Splice(at, max(at, node.end), gap + flow(more, quote=quoted_keys(tree, parent)))]
    if parent.kind == "sequence":
        dash = column(text, parent)
        lines = _lines(tree, more, dash + 2)[len(eol(text)) + dash + 2 :]
        gap = "" if text[at - 1 : at] == " " else " "
        return [Splice(at, max(at, node.end), gap + lines)]
    # `key: ~` or `key: []` loses its value, and a comment after it stays on the key's line.
    cut = [] if empty else [Splice(_before_blanks(text, start), node.end, "")]
    indent = column(text, parent) + (indent_step(tree) if isinstance(more, Mapping) else sequence_shift(tree))
    tail = line_end(text, at if empty else node.end)
    return [*cut, Splice(tail, tail, _lines(tree, more, indent))]


def _fill_root(tree: Tree, node: Node, lines: str) -> Splice:
    text, start = tree.text, body(tree.text, node)
    if start < node.end:  # an explicit null or empty brackets
        at = line_start(text, start)
        if only_blank(text, at, start):
            return Splice(at, node.end, lines)
        return Splice(_before_blanks(text, start), node.end, eol(text) + lines)
    if node.anchor:
        return Splice(node.end, node.end, eol(text) + lines)
    return append(text, next(doc.end for doc in tree.documents if doc.root is node), lines)


def _before_blanks(text: str, at: int) -> int:
    while text[at - 1] in " \t":
        at -= 1
    return at


def append(text: str, at: int, lines: str) -> Splice:
    """Return the splice that puts `lines` at the end of a document, on their own lines."""
    before = "" if at == line_start(text, at) else eol(text)
    return Splice(at, at, before + lines + ("" if before else eol(text)))


def begin(tree: Tree, data: Mapping[str, Data]) -> Tree:
    """Return the tree of a text that had no documents, with a first document below its comments."""
    splice = append(tree.text, len(tree.text), _lines(tree, data, 0)[len(eol(tree.text)) :])
    new = parse(apply(tree.text, [splice]))
    if len(new.documents) != 1 or not holds(new.documents[0].root, data):
        raise more_than_meant()
    return new


def drop_key(tree: Tree, mapping: Node, key: Node) -> Tree:
    """Return the tree without one key of a mapping, including its line. Raises TargetError if it is the only key."""
    text, entries = tree.text, list(pairs(mapping))
    index = next(number for number, (name, _) in enumerate(entries) if name is key)
    following = entries[index + 1][0].start if index + 1 < len(entries) else None
    end = entry_end(text, *entries[index])
    start = line_start(text, key.start)
    if mapping.style == "{":
        before = entries[index - 1]
        cut = Splice(key.start, following, "") if following is not None else Splice(entry_end(text, *before), end, "")
    elif only_blank(text, start, key.start):
        cut = without_lines(text, start, line_end(text, end))
    elif following is not None:  # after a dash
        cut = Splice(key.start, following, "")
    else:
        raise TargetError(f"line {tree.line(key)}: {key.value} is the only key", hint="remove that entry by hand")
    return checked(tree, [cut], {id(mapping): shrinks(index)})


def drop_items(tree: Tree, sequence: Node, numbers: Sequence[int]) -> Tree:
    """Return the tree without some items of a block sequence, including their lines.

    An item that shares its line with something else stays.
    """
    text = tree.text
    cuts: dict[int, Splice] = {}
    for number in numbers:
        item = sequence.children[number]
        dash = item.start - 1
        while text[dash] in " \t\r\n":  # the item may begin below its dash
            dash -= 1
        start = line_start(text, dash)
        if text[dash] == "-" and only_blank(text, start, dash):
            cuts[number] = without_lines(text, start, line_end(text, content_end(text, item)))
    # Nothing depends on the removal, so if it would change more than these items, they stay.
    try:
        return checked(tree, [*cuts.values()], {id(sequence): shrinks(*cuts)})
    except TargetError:
        return tree


def without_lines(text: str, start: int, tail: int) -> Splice:
    """Return the splice that removes whole lines, together with one line ending."""
    if tail < len(text):
        return Splice(start, tail + (2 if text[tail : tail + 2] == "\r\n" else 1), "")
    return Splice(start - (2 if text[start - 2 : start] == "\r\n" else 1), tail, "")
