"""Columns, line endings and indentation: where a node's text is, and what new lines look like."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from task.editors.yaml.scalar import spell
from task.editors.yaml.tree import BREAKS, Node, Tree, pairs, walk
from task.errors import TargetError

Word: TypeAlias = str | bool  # the content of one scalar: a string, or a plain true or false
Data: TypeAlias = "Word | Mapping[str, Data] | Sequence[Data]"
_WIDEST = 9  # columns after a dash; a wider gap does not count as the file's style
_BREAK = re.compile(f"[{BREAKS}]")
_PROPS = re.compile(r"(?:[&!][^\s]*(?:\s+|$)|#[^\n\r]*|\s+)*")


def eol(text: str) -> str:
    """Return the line ending of the text: that of its first line."""
    at = text.find("\n")
    if at < 0 and "\r" in text:  # in YAML, a carriage return alone ends a line as well
        return "\r"
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"


def line_end(text: str, at: int) -> int:
    """Return where the line with `at` ends, before its line ending."""
    match = _BREAK.search(text, at)
    return match.start() if match else len(text)


def line_start(text: str, at: int) -> int:
    """Return where the line with `at` begins. A byte order mark before the first line does not belong to it."""
    while at > 0 and text[at - 1] not in BREAKS and not (at == 1 and text[0] == "\ufeff"):
        at -= 1
    return at


def only_blank(text: str, start: int, end: int) -> bool:
    """Tell whether there are only blanks in `text[start:end]`."""
    return not text[start:end].strip(" \t")


def body(text: str, node: Node) -> int:
    """Return where the node's own text begins, after its anchor and tag."""
    if not (node.anchor or node.tag) or node.kind == "alias":
        return node.start
    match = _PROPS.match(text, node.start, node.end)
    return match.end() if match else node.start


def content_end(text: str, node: Node) -> int:
    """Return where the node's content ends. Trailing blank lines and comments do not belong to it."""
    # For the parsers, a block collection ends where the next token begins, so its last scalar decides.
    while node.children and node.style != "{":
        key = node.children[-2] if node.kind == "mapping" else None
        node = node.children[-1]
        if key is not None and node.kind == "scalar" and node.start >= node.end:  # `key:` without a value
            return max(key.end, value_slot(text, key) or 0)
    if node.kind != "scalar" or node.style not in {"|", ">"}:
        return node.end
    start = body(text, node)
    if "+" not in text[start : start + 3].split(" ", maxsplit=1)[0]:
        return len(text[: node.end].rstrip())
    end = node.end - int(text[: node.end].endswith(tuple(BREAKS)))  # `|+` keeps its trailing blank lines
    return end - int(text[:end].endswith("\r") and text[end : end + 1] == "\n")


def entry_end(text: str, key: Node, value: Node) -> int:
    """Return where an entry of a mapping ends: after its value, or after its `:` if it has none."""
    return max(content_end(text, value), key.end, value_slot(text, key) or 0)


def value_slot(text: str, key: Node) -> int | None:
    """Return the place after the `:` of a key, or None if the key has no `:`."""
    at = key.end
    while at < len(text) and text[at] in " \t":
        at += 1
    return at + 1 if text[at : at + 1] == ":" else None


def slot(tree: Tree, node: Node) -> int:
    """Return where the value would begin for a key or item that has none. Raises TargetError if the key has no `:`."""
    key = tree.key_of(node)
    at = node.end if key is None else value_slot(tree.text, key)
    if at is None or key is node:
        raise TargetError(f"line {tree.line(node)} has a key without a value", hint="write `key: value` there")
    return at


def quoted_keys(tree: Tree, node: Node) -> bool:
    """Tell whether the keys around the node are in double quotes, as in JSON."""
    for parent in tree.ancestors(node):
        if parent.kind == "mapping" and parent.children:
            return parent.style == "{" and parent.children[0].style == '"'
    return False


def column(text: str, node: Node) -> int:
    """Return the column where the entries of a block collection begin: its keys, or its dashes."""
    if node.kind == "sequence":
        at = body(text, node)
    else:
        at = node.children[0].start
        at = at - 2 if text[at - 2 : at] == "? " else at  # an explicit key begins at its question mark
    return at - line_start(text, at)


@lru_cache(maxsize=2)
def _steps(tree: Tree) -> tuple[int, int]:
    """Return by how many columns this text indents mappings in mappings, and sequences in mappings."""
    step = shift = -1
    # The first mapping in a mapping and the first sequence in a mapping show the file's style.
    blocks = (
        (node, child)
        for document in tree.documents
        for node in walk(document.root)
        if node.kind == "mapping" and node.style != "{"
        for _, child in pairs(node)
        if child.children and child.style != "{"
    )
    for parent, child in blocks:
        distance = column(tree.text, child) - column(tree.text, parent)
        if child.kind == "sequence" and shift < 0:
            shift = max(0, distance)
        elif child.kind == "mapping" and step < 0 < distance:
            step = distance
        if min(step, shift) >= 0:
            break
    return (step if step > 0 else shift if shift > 0 else 2), max(0, shift)


def indent_step(tree: Tree) -> int:
    """Return by how many columns this text indents a mapping in a mapping (2 if it has none)."""
    return _steps(tree)[0]


def sequence_shift(tree: Tree) -> int:
    """Return by how many columns this text indents a sequence in a mapping (0 if it has none)."""
    return _steps(tree)[1]


def dash_width(text: str, sequence: Node) -> int:
    """Return how many columns after its dash the last item of a block sequence begins: 2 for `- item`."""
    item = sequence.children[-1].start
    width = item - line_start(text, item) - column(text, sequence)
    return width if 1 < width < _WIDEST and only_blank(text, item - width + 1, item) else 2


def block(data: Data, step: int, shift: int, width: int = 2) -> list[str]:
    """Return the lines of `data` in block style, without line endings. `width` is that of the outermost dashes."""
    if isinstance(data, Mapping):
        lines = []
        for key, value in data.items():
            if isinstance(value, str | bool):
                lines.append(f"{spell(key)}: {_word(value)}")
            else:
                margin = " " * (step if isinstance(value, Mapping) else shift)
                lines += [f"{spell(key)}:", *(margin + line for line in block(value, step, shift))]
        return lines
    if isinstance(data, str | bool):
        return [_word(data)]
    dash, margin = "-".ljust(width), " " * width
    return [
        (margin if number else dash) + line for item in data for number, line in enumerate(block(item, step, shift))
    ]


def flow(data: Data, *, quote: bool = False) -> str:
    """Return `data` on one line, in flow style, or with `quote` as JSON."""
    if isinstance(data, str | bool):
        return _word(data, quote=quote or ":" in str(data))  # `[a:1]` is an error for some readers
    if isinstance(data, Mapping):
        inner = (f"{spell(key, quote=quote)}: {flow(value, quote=quote)}" for key, value in data.items())
        return "{" + ", ".join(inner) + "}"
    return "[" + ", ".join(flow(item, quote=quote) for item in data) + "]"


def _word(value: Word, *, quote: bool = False) -> str:
    return str(value).lower() if isinstance(value, bool) else spell(value, quote=quote)
