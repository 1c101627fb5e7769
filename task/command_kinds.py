"""What kind of command each one is. Others ask for its properties here, not for its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CommandKind:
    """The properties of one command."""

    writes: bool = False  # it commits, unless --dry-run is given
    by_hand: bool = False  # a person asks for the change, and its commit may have no update
    dry: bool = False  # it decides as a run does, and writes nothing
    judges: bool = False  # it decides about a change that somebody else has made
    takes_images: bool = False  # it is given the images of the event
    deploys_only: bool = False  # the CI job has not built the images
    lists_tags: bool = False  # it asks the registries for the newest tags
    lists_mistakes: bool = False  # a source that cannot be read is one mistake, and not the end
    hosted: bool = False  # a CI host calls it: it hands over results, however it ends
    reports: bool = False  # the results are a report of decisions


_BY_HAND = CommandKind(
    writes=True,
    by_hand=True,
    hosted=True,
    reports=True,
)
COMMANDS: Mapping[str, CommandKind] = {
    "run": CommandKind(
        writes=True,
        takes_images=True,
        hosted=True,
        reports=True,
    ),
    "plan": CommandKind(
        dry=True,
        takes_images=True,
        hosted=True,
        reports=True,
    ),
    "scan": CommandKind(
        writes=True,
        deploys_only=True,
        lists_tags=True,
        hosted=True,
        reports=True,
    ),
    "promote": CommandKind(
        writes=True,
        deploys_only=True,
        hosted=True,
        reports=True,
    ),
    "hold": _BY_HAND,
    "release": _BY_HAND,
    "rollback": _BY_HAND,
    "status": CommandKind(dry=True, hosted=True),
    "wait": CommandKind(hosted=True),
    "lint": CommandKind(lists_mistakes=True, hosted=True),
    "check": CommandKind(
        dry=True,
        judges=True,
        deploys_only=True,
        hosted=True,
        reports=True,
    ),
    "report": CommandKind(),
    "demo": CommandKind(),
}


def kind_of(command: str) -> CommandKind:
    """Return the properties of a command by its name."""
    return COMMANDS.get(command, CommandKind())


def commands_that(is_one: Callable[[CommandKind], bool]) -> tuple[str, ...]:
    """Return the names of the commands with this property."""
    return tuple(name for name, command in COMMANDS.items() if is_one(command))
