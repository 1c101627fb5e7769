"""The properties of each command. Other modules check these properties instead of a
command's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CommandKind:
    """The properties of one command."""

    writes: bool = False  # the command commits, unless --dry-run is set
    by_hand: bool = False  # a person requests the change, and its commit may not contain an update
    dry: bool = False  # the command decides like a run, but does not write
    judges: bool = False  # the command judges someone else's change
    takes_images: bool = False  # the command receives the images of the event
    deploys_only: bool = False  # the CI job that runs the command did not build the images
    lists_tags: bool = False  # the command looks up the newest tags in the registries
    # an unreadable source is only a finding, not an error of the command
    lists_mistakes: bool = False
    # CI systems call the command, so it hands over results whether it succeeds or fails
    for_ci: bool = False
    reports: bool = False  # the command returns a report of decisions


_BY_HAND = CommandKind(
    writes=True,
    by_hand=True,
    for_ci=True,
    reports=True,
)
COMMANDS: Mapping[str, CommandKind] = {
    "run": CommandKind(
        writes=True,
        takes_images=True,
        for_ci=True,
        reports=True,
    ),
    "plan": CommandKind(
        dry=True,
        takes_images=True,
        for_ci=True,
        reports=True,
    ),
    "scan": CommandKind(
        writes=True,
        deploys_only=True,
        lists_tags=True,
        for_ci=True,
        reports=True,
    ),
    "promote": CommandKind(
        writes=True,
        deploys_only=True,
        for_ci=True,
        reports=True,
    ),
    "hold": _BY_HAND,
    "release": _BY_HAND,
    "rollback": _BY_HAND,
    "status": CommandKind(dry=True, for_ci=True),
    "wait": CommandKind(for_ci=True),
    "lint": CommandKind(lists_mistakes=True, for_ci=True),
    "check": CommandKind(
        dry=True,
        judges=True,
        deploys_only=True,
        for_ci=True,
        reports=True,
    ),
    "report": CommandKind(),
    "demo": CommandKind(),
}


def kind_of(command: str) -> CommandKind:
    """Return the properties of a command by its name."""
    return COMMANDS.get(command, CommandKind())


def commands_that(is_one: Callable[[CommandKind], bool]) -> tuple[str, ...]:
    """Return the names of the commands for which `is_one` returns True."""
    return tuple(name for name, command in COMMANDS.items() if is_one(command))
