"""Writes data as YAML in such a way that every reader reads a string back as the same string.

YAML 1.1 readers (PyYAML, Helm, Argo CD, Kustomize) and YAML 1.2 readers disagree about a plain
`1e3`, `0o17`, `1:30`, `yes`, or `2024-01-02`. So a string is quoted if any of these readers would
otherwise not read it as a string. The usual problem is a tag that is read as a number: `tag: 1.10`
is rendered as `1.1` (Helm 3.19 and 4.1).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from task.editors.yaml.tree import BREAKS, Node

# Strings that some YAML reader treats as a number, a date, a merge key, or a default value. The
# pattern is anchored at both ends.
_NUMBER = re.compile(
    r"[-+]?(?:"
    r"(?:[0-9][0-9_,]*\.?[0-9_]*|\.[0-9_]+)(?:[eE][-+]?[0-9_]*)?"  # 12, 1_000, 1.10, .5, 5., 12e03
    r"|0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][-+]?[0-9]*)?"
    r"|0[oO][0-7_]*|0[bB][01_]*"
    r"|[0-9][0-9_]*(?::[0-9_]*)+(?:\.[0-9_]*)?"  # sexagesimal: 1:30, 190:20:30.15
    r"|(?<=[-+])_[0-9_]*"  # +_1, which ruamel.yaml treats as a number
    r"|\.(?:inf|nan)"
    r")",
    re.IGNORECASE,
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:$|[Tt\s].*)", re.DOTALL)
_NUMERIC = tuple("+-.0123456789")  # numbers and dates begin with one of these characters
_WORDS = frozenset(
    ("", "~", "null", "y", "n", "yes", "no", "on", "off", "true", "false", "=", "<<", "...")
)
# Characters without a special meaning in YAML, in block and flow style. `:` and spaces are allowed
# only inside the string.
_PLAIN = re.compile(
    r"[A-Za-z0-9_./+=~$(^](?:[A-Za-z0-9_./+=~$()^@;<>-]|:(?=[A-Za-z0-9_./+=~$-])|"
    r" (?=[A-Za-z0-9_./+(]))*"
)
# Characters that must be escaped in double quotes for at least one YAML reader.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\xa0\xad\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
STRING = "tag:yaml.org,2002:str"


def looks_typed(text: str) -> bool:
    """Return whether any YAML reader reads the plain scalar `text` as something other than a
    string.
    """
    if text.lower() in _WORDS:
        return True
    if not text.startswith(_NUMERIC):
        return False
    if text.startswith("-", 4) and _DATE.fullmatch(text):  # 2024-01-02
        return True
    # Most versions contain two dots, and numbers never do, so only other strings need the slow
    # pattern.
    return text.count(".") < 2 and _NUMBER.fullmatch(text) is not None


def plain_safe(text: str) -> bool:
    """Return whether every YAML 1.1 and 1.2 reader reads `text` without quotes as the same string,
    in any context.
    """
    return bool(_PLAIN.fullmatch(text)) and not looks_typed(text)


def reads_as_string(node: Node) -> bool:
    """Return whether every YAML reader reads this scalar as a string."""
    if node.kind != "scalar":
        return False
    if node.tag:
        return node.tag in {STRING, "!"}
    return bool(node.style) or not looks_typed(node.value)


def double_quoted(text: str) -> str:
    """Return `text` in double quotes, escaped as in JSON, because the same code is used to edit
    JSON files.
    """
    return _UNPRINTABLE.sub(
        lambda match: f"\\u{ord(match[0]):04x}",
        json.dumps(text, ensure_ascii=False),
    )


def spell(text: str, style: str = "", *, quote: bool = False) -> str:
    """Return `text` as one line of YAML that every reader reads as this string. The text is plain
    if that is safe, and otherwise quoted.

    `style` requests `'` or `"`. `quote` requests quotes around any text.
    """
    if style == "'" and not _UNPRINTABLE.search(text):
        return "'" + text.replace("'", "''") + "'"
    if style == '"' or quote or not plain_safe(text):
        return double_quoted(text)
    return text


def reblock(old: str, text: str) -> str | None:
    """Return the block scalar `old` (its header `|` or `>` and its lines) with its content replaced
    by `text`. Return None if `old` has no content whose indentation could be copied, or if `text`
    is not a single line without surrounding spaces.

    The header keeps its style and comment, but `-` is added, because a trailing line break would
    become part of the tag.
    """
    header = re.match(rf"([|>])[0-9+-]*([^{BREAKS}]*)(\r\n|[{BREAKS}])", old)
    lines = [line for line in re.split(rf"\r\n|[{BREAKS}]", old) if line.strip()]
    old_content = lines[1:]
    if header is None or not old_content:
        return None
    has_outer_spaces = text.strip() != text
    has_several_lines = not set(text).isdisjoint(BREAKS)
    if not text or has_outer_spaces or has_several_lines:
        return None
    style, comment, line_ending = header.groups()
    first_line = old_content[0]
    indent = " " * (len(first_line) - len(first_line.lstrip(" ")))
    return f"{style}-{comment}{line_ending}{indent}{text}"


Word: TypeAlias = str | bool  # the content of a scalar: a string, or a plain true or false
Data: TypeAlias = "Word | Mapping[str, Data] | Sequence[Data]"


def block(data: Data, step: int, shift: int, width: int = 2) -> list[str]:
    """Return the lines of `data` in block style, without line endings: `["image:", " tag: v1"]`.

    A mapping in a mapping is indented by `step` columns, and a sequence in a mapping by `shift`.
    `width` is the width of an outermost dash, including the spaces after it.
    """
    if isinstance(data, str | bool):
        return [_scalar_text_of(data)]
    lines = []
    if isinstance(data, Mapping):
        for key, value in data.items():
            if isinstance(value, str | bool):
                lines.append(f"{spell(key)}: {_scalar_text_of(value)}")
                continue
            indent = " " * (step if isinstance(value, Mapping) else shift)
            lines.append(f"{spell(key)}:")
            lines += [indent + line for line in block(value, step, shift)]
        return lines
    dash = "-".ljust(width)
    indent = " " * width
    for item in data:
        item_lines = block(item, step, shift)
        # The first line follows the dash, and the other lines are aligned with it.
        lines += [dash + line for line in item_lines[:1]]
        lines += [indent + line for line in item_lines[1:]]
    return lines


def flow(data: Data, *, quote: bool = False) -> str:
    """Return `data` on one line in flow style, such as `{image: {tag: v1}}`. With `quote`, return
    JSON.
    """
    if isinstance(data, str | bool):
        has_colon = ":" in str(data)  # some readers reject `[a:1]`
        return _scalar_text_of(data, quote=quote or has_colon)
    if isinstance(data, Mapping):
        inner = (
            f"{spell(key, quote=quote)}: {flow(value, quote=quote)}" for key, value in data.items()
        )
        return "{" + ", ".join(inner) + "}"
    return "[" + ", ".join(flow(item, quote=quote) for item in data) + "]"


def _scalar_text_of(value: Word, *, quote: bool = False) -> str:
    """Return a scalar in its YAML spelling."""
    return str(value).lower() if isinstance(value, bool) else spell(value, quote=quote)
