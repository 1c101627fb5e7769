"""Writes the data of a state file in a fixed form: comments at the beginning stay, all other lines are written anew.

`state_file` does not trust the result, and reads it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from task.editors.yaml.layout import Data, eol, flow
from task.editors.yaml.scalar import double_quoted, spell
from task.editors.yaml.tree import Node, Tree, pairs

_CORE = "tag:yaml.org,2002:"
_TYPED = set(",[]{}#:\n")  # a plain scalar with one of these may have another meaning in flow style
_LONG_KEY = 1000  # characters; after 1024, libyaml stops searching for the `:` of a simple key
Wanted = Mapping[str, object]  # a Node in it was written by a newer version, and stays as it is


def in_fixed_form(tree: Tree, data: Wanted) -> str:
    """Return the text with all lines written anew, below the comments at its beginning."""
    head, end = [], eol(tree.text)
    for line in tree.text.splitlines():
        if line.strip("\ufeff \t") and line != "---" and not line.lstrip("\ufeff \t").startswith("#"):
            break
        head.append(line)
    return "".join(line + end for line in (*head, *_lines(data)))


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


def _lines(data: Wanted) -> list[str]:
    """Return the data as block lines, with one key or item on each."""
    lines: list[str] = []
    for key, value in data.items():
        name = spell(key)
        if isinstance(value, str):
            lines.append(f"{name}: {spell(value)}")
        elif isinstance(value, Node):
            lines.append(f"{name}: {in_flow(value)}")
        elif not isinstance(value, Mapping):
            lines += [f"{name}:", *(f"- {spell(item)}" for item in cast("list[str]", value))]
        elif len(name) > _LONG_KEY:
            first, *rest = _lines(value)
            lines += [f"? {name}", f": {first}", *(f"  {line}" for line in rest)]
        else:
            lines += [f"{name}:", *("  " + line for line in _lines(value))]
    return lines
