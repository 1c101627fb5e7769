"""What YAML text looks like: how a string is spelled, where a node's text is, and what new lines look like.

A string is spelled so that every reader takes it for the same string. YAML 1.1 readers (PyYAML, Helm, Argo CD,
kustomize) and YAML 1.2 readers disagree about a plain `1e3`, `0o17`, `1:30`, `yes` or `2024-01-02`. So a text is quoted
if any of them does not read a string. The usual case is a tag that becomes a number: `tag: 1.10` is rendered as `1.1`
(Helm 3.19 and 4.1).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from task.editors.yaml.tree import BREAKS, Node, Tree, pairs, walk
from task.errors import TargetError

# Texts that some reader takes for a number, a date, a merge key or a default value, anchored at both ends.
_NUMBER = re.compile(
    r"[-+]?(?:"
    r"(?:[0-9][0-9_,]*\.?[0-9_]*|\.[0-9_]+)(?:[eE][-+]?[0-9_]*)?"  # 12, 1_000, 1.10, .5, 5., 12e03
    r"|0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][-+]?[0-9]*)?"
    r"|0[oO][0-7_]*|0[bB][01_]*"
    r"|[0-9][0-9_]*(?::[0-9_]*)+(?:\.[0-9_]*)?"  # sexagesimal: 1:30, 190:20:30.15
    r"|(?<=[-+])_[0-9_]*"  # +_1, for ruamel.yaml
    r"|\.(?:inf|nan)"
    r")",
    re.IGNORECASE,
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:$|[Tt\s].*)", re.DOTALL)
_NUMERIC = "+-.0123456789"  # numbers and dates begin with one of these; "" is in it, too
_WORDS = frozenset(("", "~", "null", "y", "n", "yes", "no", "on", "off", "true", "false", "=", "<<", "..."))
# Characters without a meaning in YAML, in block and in flow style. `:` and a blank are allowed only inside.
_PLAIN = re.compile(
    r"[A-Za-z0-9_./+=~$(^](?:[A-Za-z0-9_./+=~$()^@;<>-]|:(?=[A-Za-z0-9_./+=~$-])| (?=[A-Za-z0-9_./+(]))*"
)
# Characters that must be escaped between double quotes, for one reader or another.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\xa0\xad\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
STRING = "tag:yaml.org,2002:str"


def looks_typed(text: str) -> bool:
    """Tell whether any YAML reader takes the plain scalar `text` for something other than a string."""
    if text[:1] in _NUMERIC:
        dated = text[4:5] == "-" and _DATE.fullmatch(text)
        # Most versions have two points, and no number has, so the slow pattern is needed only for the others.
        return not text or text == "..." or bool(dated or (text.count(".") < 2 and _NUMBER.fullmatch(text)))
    return text.lower() in _WORDS


def plain_safe(text: str) -> bool:
    """Tell whether every YAML 1.1 and 1.2 reader takes an unquoted `text` for the same string, at any place."""
    return bool(_PLAIN.fullmatch(text)) and not looks_typed(text)


def sound(node: Node) -> bool:
    """Tell whether every YAML reader takes this scalar for a string."""
    if node.kind != "scalar":
        return False
    if node.tag:
        return node.tag in {STRING, "!"}
    return bool(node.style) or not looks_typed(node.value)


def double_quoted(text: str) -> str:
    """Return `text` in double quotes, escaped as in JSON, because JSON files are edited by the same code."""
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=False))


def spell(text: str, style: str = "", *, quote: bool = False) -> str:
    """Return `text` as one line of YAML that every reader takes for this string: plain if that is safe, else quoted.

    `style` requests `'` or `"`. `quote` requests quotes around any text.
    """
    if style == "'" and not _UNPRINTABLE.search(text):
        return "'" + text.replace("'", "''") + "'"
    if style == '"' or quote or not plain_safe(text):
        return double_quoted(text)
    return text


def reblock(old: str, text: str) -> str | None:
    """Return the block scalar `old` (header and lines) with the content `text`, or None if that style cannot have it.

    The header keeps its kind and comment. It gets a `-`, because a trailing line break would be part of the tag.
    """
    match = re.match(rf"([|>])[0-9+-]*([^{BREAKS}]*)(\r\n|[{BREAKS}])", old)
    lines = [line for line in re.split(rf"\r\n|[{BREAKS}]", old) if line.strip()][1:]
    if match is None or not lines or not text or text.strip() != text or set(text) & set(BREAKS):
        return None
    kind, comment, eol = match.groups()
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip(" "))]
    return f"{kind}-{comment}{eol}{indent}{text}"


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
def indents(tree: Tree) -> tuple[int, int]:
    """Return by how many columns this text indents mappings in mappings (or 2), and sequences in mappings (or 0)."""
    step = shift = -1
    # The first mapping in a mapping and the first sequence in a mapping show the file's style.
    blocks = (
        (node, child)
        for root in tree.roots
        for node in walk(root)
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
