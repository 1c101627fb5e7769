"""Reads and writes the state file of one Application: what is remembered for each file and each alias.

Its path is `.image-update/<path>/<namespace>_<application>.state`, with the folder of the first write-back file as
`<path>`: two Argo CDs that share a repository and an Application's name must not share its memory.

People may read, edit and revert the file. Its text is YAML, but its name does not end in `.yaml`, because Argo CD's
directory sources would apply it as a manifest. Values are read as texts: a plain `1.10` is that tag, not a number.
Writing changes only the lines that are meant; comments, quotes and the order of the others stay.
"""

from __future__ import annotations

from collections.abc import Mapping

from task.editors.state_data import data_of, remembered, states_of, with_unknown
from task.editors.state_lines import edited, fresh, in_flow
from task.editors.yaml.tree import Tree, parse
from task.errors import TargetError
from task.model import State

LARGEST = 1_000_000  # characters
_CORRECT = "correct the file, or delete it, which also lifts its holds"
_HEAD = "# What Image Update remembers of this Application: builds written, holds, what waits. People may edit this.\n"
_CONFLICT = ("<<<<<<< ", "=======", ">>>>>>> ")


def read_state(text: str) -> dict[str, State]:
    """What the text says, by write-back file; {} for an empty or comment-only text.

    Times come as RFC 3339 in UTC. The TargetError says what is wrong, in which line, and how to correct it.
    """
    return states_of(_parsed(text))


def write_state(text: str, states: Mapping[str, State]) -> str:
    """The text that says `states`; "" if nothing is to be remembered, and the file is to be removed.

    As little of `text` as possible changes, and nothing where it says `states` already. What a newer version wrote
    stays. TargetError: `text` is no state file, or a time of the states is invalid.
    """
    states = remembered(states)
    tree = _parsed(text if text.strip("\ufeff \t\r\n") else "")
    known = states_of(tree)
    data = with_unknown(tree, data_of(states))
    if not data:
        return ""
    if known == states:
        return text
    # First line by line. If the result does not say what was meant, all lines are written anew below the file's
    # comments: people write YAML in more forms than a line-by-line edit can follow.
    head, wanted = "" if tree.text else _HEAD, in_flow(_sorted(data))
    for way in (edited, fresh):
        try:
            result = head + way(tree, data)
            new = _parsed(result)
            if states_of(new) == states and in_flow(_sorted(with_unknown(new, data_of(states)))) == wanted:
                return result
        except TargetError:
            continue
    raise TargetError("there is more to remember than one state file may hold", hint="shorten the reason of the hold")


def _sorted(data: object) -> object:
    """The same data with its keys sorted, so that a comparison ignores their order."""
    return {key: _sorted(value) for key, value in sorted(data.items())} if isinstance(data, Mapping) else data


def _parsed(text: str) -> Tree:
    if len(text) > LARGEST:
        raise TargetError("the state file is larger than 1 MB", hint=_CORRECT)
    try:
        return parse(text)
    except TargetError as error:
        for number, line in enumerate(text.splitlines(), 1):
            if line.startswith(_CONFLICT[0]):
                signs = ", ".join(sign.strip() for sign in _CONFLICT)
                hint = f"keep one side, and remove the lines that begin with {signs}"
                raise TargetError(f"line {number}: a merge conflict was committed", hint=hint) from error
        raise TargetError(error.message, hint=_CORRECT) from error
