"""The options of each command as Typer knows them: what documentation and manifests are made from and compared with."""

from __future__ import annotations

from functools import cache

from typer.core import TyperArgument, TyperOption

from task.cli.app import group

TyperParam = TyperOption | TyperArgument


@cache
def commands() -> dict[str, str]:
    """The commands with their help."""
    return {name: str(one.help) for name, one in group.commands.items()}


@cache
def options_of(command: str) -> tuple[TyperParam, ...]:
    """The options with a variable that a command takes, in the order of its signature."""
    found = group.commands[command].params
    return tuple(one for one in found if isinstance(one, TyperParam) and one.envvar)


@cache
def all_options() -> tuple[TyperParam, ...]:
    """The options of all commands, group by group; each once, or once for each thing that it means."""
    order = ("run", "rollback", *commands())  # most of them take what these two take, or less
    found = {(name_of(one), one.help): one for command in order for one in options_of(command)}
    # The first group, the image, belongs to run; rollback has something of each other group.
    panels = dict.fromkeys(one.rich_help_panel for one in (*options_of("run")[:1], *options_of("rollback")))
    return tuple(one for panel in panels for one in found.values() if one.rich_help_panel == panel)


def name_of(one: TyperParam) -> str:
    """Its name without the dashes, as hosts call their parameters."""
    return str(one.name).replace("_", "-")


def default_of(one: TyperParam) -> str:
    """Its default as a text; a switch is true or false."""
    if one.default is None:
        return ""
    return str(one.default).lower() if isinstance(one.default, bool) else str(one.default)


# The repository's own config may decide these, where nobody gives them. A host gives nothing unless its user does.
OPEN = ("git-author-name", "git-author-email", "sign-off", "pull-request-draft", "auto-merge")


def host_default_of(one: TyperParam) -> str:
    """The default of a host's parameter."""
    return "" if name_of(one) in OPEN else default_of(one)


def choices_of(one: TyperParam) -> list[str]:
    """The words it takes; none where it takes any."""
    words = str(one.metavar).split("|")
    return words if len(words) > 1 else []


def takes_many(one: TyperParam) -> bool:
    """Whether its variable holds one value per line."""
    return one.nargs != 1 or bool(getattr(one, "multiple", False))
