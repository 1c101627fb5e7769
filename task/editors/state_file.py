"""Reads and writes the state file of one Application: what is remembered for each file and each alias.

Its path is `.image-update/<path>/<namespace>_<application>.state`. `<path>` is the folder of the first write-back file,
so that two Argo CDs that share a repository and an Application's name do not share its memory.

People may read, edit and revert the file. Its text is YAML, but its name does not end in `.yaml`, because Argo CD's
directory sources would apply it as a manifest. Values are read as texts: a plain `1.10` is that tag, not a number. What
is written has a fixed form. The comments at the beginning stay, and so do keys of a newer version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from task.editors.state_data import data_of, states_of, with_unknown
from task.editors.yaml.layout import Data, eol, flow
from task.editors.yaml.scalar import double_quoted, spell
from task.editors.yaml.tree import Node, Tree, pairs, parse, refuse_odd_breaks
from task.errors import TargetError
from task.model import State

LARGEST = 1_000_000  # characters
_CORRECT = "correct the file, or delete it, which also lifts its holds"
_HEAD = "# What Image Update remembers of this Application: builds written, holds, what waits. People may edit this.\n"
_CONFLICT = ("<<<<<<< ", "=======", ">>>>>>> ")


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


def read_state(text: str) -> dict[str, State]:
    """Return the states in a text, by write-back file, or {} for an empty or comment-only text.

    Times are RFC 3339 in UTC. Raises TargetError, which says what is wrong, in which line, and how to correct it.
    """
    return states_of(_parsed(text))


def write_state(text: str, states: Mapping[str, State]) -> str:
    """Return the text with `states`, or "" if there is nothing to remember and the file has to be removed.

    Nothing changes if `text` already has `states`, in any form. What a newer version wrote stays.
    Raises TargetError if `text` is not a state file, or a time in the states is invalid.
    """
    wanted = data_of(states)
    tree = _parsed(text if text.strip("\ufeff \t\r\n") else "")
    known = data_of(states_of(tree))
    data = with_unknown(tree, wanted)
    if not data:
        return ""
    if known == wanted:
        return text
    result = ("" if tree.text else _HEAD) + in_fixed_form(tree, data)
    new = _parsed(result)
    if data_of(states_of(new)) == wanted and in_flow(_sorted(with_unknown(new, wanted))) == in_flow(_sorted(data)):
        return result
    raise TargetError("there is more to remember than one state file may hold", hint="shorten the reason of the hold")


def _sorted(data: object) -> object:
    """Return the same data with its keys sorted, so that a comparison ignores their order."""
    return {key: _sorted(value) for key, value in sorted(data.items())} if isinstance(data, Mapping) else data


def _parsed(text: str) -> Tree:
    if len(text) > LARGEST:
        raise TargetError("the state file is larger than 1 MB", hint=_CORRECT)
    try:
        tree = parse(text)
    except TargetError as error:
        for number, line in enumerate(text.splitlines(), 1):
            if line.startswith(_CONFLICT[0]):
                signs = ", ".join(sign.strip() for sign in _CONFLICT)
                hint = f"keep one side, and remove the lines that begin with {signs}"
                raise TargetError(f"line {number}: a merge conflict was committed", hint=hint) from error
        raise TargetError(error.message, hint=_CORRECT) from error
    refuse_odd_breaks(tree)
    return tree
