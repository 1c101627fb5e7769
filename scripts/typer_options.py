"""The options of each command, as read from Typer.

Documentation and manifests are generated from these options, and compared with them.
"""

from __future__ import annotations

from functools import cache

from typer.core import TyperArgument, TyperOption

from task.cli.app import group
from task.cli.command import GroupedHelp
from task.settings import EVENT, GROUPS

REFERENCE = tuple(
    dict.fromkeys((EVENT, *GROUPS))
)  # the order of the groups, beginning with the image, which most people need first
TyperParam = TyperOption | TyperArgument


@cache
def commands() -> dict[str, str]:
    """Return the commands, each with the first line of its help."""
    return {name: str(one.short_help) for name, one in group.commands.items()}


@cache
def options_of(command: str) -> tuple[TyperParam, ...]:
    """Return those options of a command that have a variable, in signature order."""
    found = group.commands[command].params
    return tuple(one for one in found if isinstance(one, TyperParam) and one.envvar)


@cache
def all_options() -> tuple[TyperParam, ...]:
    """Return the options of all commands, ordered by group. Each option is listed once, or once per
    meaning.
    """
    order = (
        "run",
        "rollback",
        *commands(),
    )  # most commands have the same options as these two, or a subset of them
    found = {(name_of(one), one.help): one for command in order for one in options_of(command)}
    return tuple(
        one for panel in REFERENCE for one in found.values() if one.rich_help_panel == panel
    )


def both_helps(command: str) -> str:
    """Return the output of `--help` and `--help-all` for a command, or for the program itself if
    the command is "".
    """
    named = group.commands[command] if command else group
    context = named.make_context(
        f"image-update {command}".strip(), [], resilient_parsing=True, max_content_width=120
    )
    whole = named.whole_help(context) if isinstance(named, GroupedHelp) else ""
    return f"{named.get_help(context)}\n{'-' * 120}\n{whole}"


def name_of(one: TyperParam) -> str:
    """Return the name of an option without its dashes."""
    return str(one.name).replace("_", "-")


def default_of(one: TyperParam) -> str:
    """Return the default of an option as a string. For flags, it is true or false."""
    if one.default is None:
        return ""
    return str(one.default).lower() if isinstance(one.default, bool) else str(one.default)


def choices_of(one: TyperParam) -> list[str]:
    """Return the values that an option accepts, or [] if it accepts any value."""
    words = str(one.metavar).split("|")
    return words if len(words) > 1 else []


def takes_many(one: TyperParam) -> bool:
    """Return whether an option accepts several values."""
    return one.nargs != 1 or bool(getattr(one, "multiple", False))
