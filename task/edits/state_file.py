"""The state file of one Application, `.image-update/<namespace>_<application>.state` (contract, section 7).

YAML that people may read, edit and revert. What is read counts by its letters: a plain `1.10` is that tag, no
number. What is written changes the lines meant only; comments, quotes and order of the others stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from task.edits.state_data import data_of, remembered, state_of
from task.edits.state_lines import edited, fresh
from task.edits.yaml_tree import Tree, parse
from task.errors import TargetError
from task.model import State

FOLDER = ".image-update"
LARGEST = 1_000_000  # characters
_MEND = "correct the file, or delete it: then nothing is remembered, and no hold holds"
_HEAD = "# What Image Update remembers of this Application: builds written, holds, what waits. People may edit this.\n"
_CONFLICT = ("<<<<<<< ", "=======", ">>>>>>> ")


def path_of(namespace: str, application: str) -> str:
    """Where the state of an Application lies, from the repository's root. TargetError for what can be no name."""
    name = f"{namespace}_{application}.state"
    if "/" in name or not name.isprintable() or not (namespace and application) or len(name.encode()) > 255:  # noqa: PLR2004 - what file systems hold
        raise TargetError(
            f"{namespace[:300]!r}, {application[:300]!r} cannot name a file", hint="use names that Kubernetes accepts"
        )
    return f"{FOLDER}/{name}"


def read_state(text: str) -> State:
    """What the text says; nothing for an empty or comment-only one.

    TargetError: what is wrong, in which line, and how to mend it. Times come as RFC 3339, UTC.
    """
    return state_of(_parsed(text))


def write_state(text: str, state: State) -> str:
    """The text that says `state`; "" where nothing is to be remembered: then the file goes.

    As little of `text` as possible changes, nothing where it says so already. TargetError: `text` is no state file,
    or `state` holds what is no time.
    """
    state = remembered(state)
    if state == State():
        return ""
    if not text.strip("\ufeff \t\r\n"):
        return _shortest(parse(""), state)
    return text if read_state(text) == state else _shortest(_parsed(text), state)


def _shortest(tree: Tree, state: State) -> str:
    """The result of the first way to write that says what was meant: line by line, else anew below its comments."""
    ways: tuple[Callable[[Tree, Mapping[str, object]], str], ...] = (edited, fresh)
    head = "" if tree.text else _HEAD
    for way in ways:
        try:
            text = head + way(tree, data_of(state))
            if read_state(text) == state:
                return text
        except TargetError:
            continue
    raise TargetError("what is to be remembered is too much for one file", hint="shorten the reason of the hold")


def _parsed(text: str) -> Tree:
    if len(text) > LARGEST:
        raise TargetError("the state file is larger than 1 MB", hint=_MEND)
    try:
        return parse(text)
    except TargetError as error:
        raise _conflict(text) or TargetError(error.message, hint=_MEND) from error


def _conflict(text: str) -> TargetError | None:
    """What a merge that nobody resolved leaves behind."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(_CONFLICT[0]):
            hint = (
                f"keep one side, and remove the lines that begin with {', '.join(mark.strip() for mark in _CONFLICT)}"
            )
            return TargetError(f"line {number}: a merge conflict was committed", hint=hint)
    return None
