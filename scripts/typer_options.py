"""The options of each command according to Typer.

Documentation and manifests are made from them, and compared with them.
"""

from __future__ import annotations

from functools import cache

from typer.core import TyperArgument, TyperOption

from task.cli.app import group
from task.cli.command import GroupedHelp
from task.settings import EVENT, GROUPS

REFERENCE = tuple(
    dict.fromkeys((EVENT, *GROUPS))
)  # the groups, of which most people need the image first
TyperParam = TyperOption | TyperArgument


@cache
def commands() -> dict[str, str]:
    """Return the commands, each with the first line of its help."""
    return {name: str(one.short_help) for name, one in group.commands.items()}


@cache
def options_of(command: str) -> tuple[TyperParam, ...]:
    """Return those options of a command that have a variable, in the order of its signature."""
    found = group.commands[command].params
    return tuple(one for one in found if isinstance(one, TyperParam) and one.envvar)


@cache
def all_options() -> tuple[TyperParam, ...]:
    """Return the options of all commands, group by group. Each comes once, or once for each of its meanings."""
    order = (
        "run",
        "rollback",
        *commands(),
    )  # most commands have the options of these two, or fewer
    found = {(name_of(one), one.help): one for command in order for one in options_of(command)}
    return tuple(
        one for panel in REFERENCE for one in found.values() if one.rich_help_panel == panel
    )


def both_helps(command: str) -> str:
    """Return what `--help` and `--help-all` of a command print; for "", the help of the whole."""
    named = group.commands[command] if command else group
    context = named.make_context(
        f"image-update {command}".strip(), [], resilient_parsing=True, max_content_width=120
    )
    whole = named.whole_help(context) if isinstance(named, GroupedHelp) else ""
    return f"{named.get_help(context)}\n{'-' * 120}\n{whole}"


def name_of(one: TyperParam) -> str:
    """Return the option's name without the dashes."""
    return str(one.name).replace("_", "-")


def default_of(one: TyperParam) -> str:
    """Return the option's default as a string. A switch is true or false."""
    if one.default is None:
        return ""
    return str(one.default).lower() if isinstance(one.default, bool) else str(one.default)


def choices_of(one: TyperParam) -> list[str]:
    """Return the words that the option takes, or [] if it takes any."""
    words = str(one.metavar).split("|")
    return words if len(words) > 1 else []


def takes_many(one: TyperParam) -> bool:
    """Tell whether the option takes several values."""
    return one.nargs != 1 or bool(getattr(one, "multiple", False))
