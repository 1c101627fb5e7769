"""The state file of one Application: what is remembered, for each file that is written and each alias.

`.image-update/<path>/<namespace>_<application>.state`, with the folder of the first write-back file as path.

YAML that people may read, edit and revert. Values are read as texts: a plain `1.10` is that tag, not a number. Writing
changes only the lines that are meant; comments, quotes and order of the others stay.
"""

from __future__ import annotations

from collections.abc import Mapping

from task.editors.state_data import data_of, remembered, states_of, with_unknown
from task.editors.state_lines import edited, fresh, in_flow
from task.editors.yaml.tree import Tree, parse
from task.errors import TargetError
from task.model import State

LARGEST = 1_000_000  # characters
_MEND = "correct the file, or delete it: then nothing is remembered, and no hold holds"
_HEAD = "# What Image Update remembers of this Application: builds written, holds, what waits. People may edit this.\n"
_CONFLICT = ("<<<<<<< ", "=======", ">>>>>>> ")


def read_state(text: str) -> dict[str, State]:
    """What the text says, by write-back file; nothing for an empty or comment-only one.

    TargetError: what is wrong, in which line, and how to mend it. Times come as RFC 3339, UTC.
    """
    return states_of(_parsed(text))


def write_state(text: str, states: Mapping[str, State]) -> str:
    """The text that says `states`; "" where there is nothing to remember: then the file is removed.

    As little of `text` as possible changes, nothing where it says so already; what a newer version wrote stays.
    TargetError: `text` is no state file, or the states hold what is no time.
    """
    states = remembered(states)
    tree = _parsed(text if text.strip("\ufeff \t\r\n") else "")
    known = states_of(tree)
    data = with_unknown(tree, data_of(states))
    if not data:
        return ""
    if known == states:
        return text
    # Line by line; if the result does not say what was meant, all lines anew below the file's comments.
    head, wanted = "" if tree.text else _HEAD, in_flow(_sorted(data))
    for way in (edited, fresh):
        try:
            result = head + way(tree, data)
            new = _parsed(result)
            if states_of(new) == states and in_flow(_sorted(with_unknown(new, data_of(states)))) == wanted:
                return result
        except TargetError:
            continue
    raise TargetError("what is to be remembered is too much for one file", hint="shorten the reason of the hold")


def _sorted(data: object) -> object:
    """The same data with its keys in order, so that order makes no difference."""
    return {key: _sorted(value) for key, value in sorted(data.items())} if isinstance(data, Mapping) else data


def _parsed(text: str) -> Tree:
    if len(text) > LARGEST:
        raise TargetError("the state file is larger than 1 MB", hint=_MEND)
    try:
        return parse(text)
    except TargetError as error:
        for number, line in enumerate(text.splitlines(), 1):
            if line.startswith(_CONFLICT[0]):
                signs = ", ".join(sign.strip() for sign in _CONFLICT)
                hint = f"keep one side, and remove the lines that begin with {signs}"
                raise TargetError(f"line {number}: a merge conflict was committed", hint=hint) from error
        raise TargetError(error.message, hint=_MEND) from error
