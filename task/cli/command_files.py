"""The commands by name. A command's file is imported when the command is called.

Click calls this lazy loading of subcommands. `run` does not import what only `wait`, `lint` and the others need, and
does not create their options. `task.wiring` imports only the clients that a run uses. Together, this saves almost half
of the processor time at the start, which matters when many pods start on one node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from task import __version__, shutdown
from task.cli.command import Command
from task.cli.grouped_help import GroupedHelp

DOCS = f"https://github.com/argocd-image-update/image-update/blob/v{__version__}/docs"
# The groups in the help, in their order. Each command has an example, and the page about it.
GROUPS = {
    "Update": {
        "run": ("--image ghcr.io/acme/web:1.5.0 --applications argocd", "reference.md"),
        "scan": ("--applications cluster --dry-run", "registry.md#scan"),
        "promote": ("--from web-staging --to web-production --applications argocd", "how-to/promote.md"),
    },
    "By hand": {
        "rollback": ('web --to previous --reason "errors at checkout" --applications argocd', "how-to/rollback.md"),
        "hold": ('web --reason "load test" --until 3d --applications argocd', "how-to/rollback.md"),
        "release": ("web --applications argocd", "how-to/rollback.md"),
    },
    "Look": {
        "plan": ("--image ghcr.io/acme/web:1.5.0 --applications apps/", "deployments.md"),
        "status": ("web --applications argocd", "status.md"),
        "lint": ("apps/", "lint.md"),
        "wait": ("web --revision 4f2a9c1d --applications argocd", "rollouts.md#wait-for-another-commit"),
        "report": ("report.json --html report.html", "observability.md#a-page-of-a-run"),
    },
    "Try": {"demo": ("--keep", "tutorial.md")},
}
COMMANDS = {name: about for commands in GROUPS.values() for name, about in commands.items()}


class GroupedCommands(TyperGroup):
    """The whole, whose help has a section for each group of commands."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the sections in their order."""
        del ctx
        width = max(map(len, COMMANDS))  # the same in all sections
        for name, commands in GROUPS.items():
            with formatter.section(name):
                formatter.write_dl([(one.ljust(width), str(_command(one).short_help)) for one in commands])


class CommandFiles(Mapping[str, TyperCommand]):
    """Maps each command to the function with its name, in the file with its name in this folder."""

    def __getitem__(self, name: str) -> TyperCommand:
        if name not in COMMANDS:
            raise KeyError(name)
        return _command(name)

    def __contains__(self, name: object) -> bool:
        return name in COMMANDS

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


@cache
def _command(name: str) -> TyperCommand:
    # A signal in the middle would leave modules half imported, and the results of a stopped run need this one again.
    with shutdown.shield():
        module = import_module(f"task.cli.{name}")
    found = getattr(module, name)  # the demo has no options of settings, and is a function
    function = found.function() if isinstance(found, Command) else found
    (example, page), first = COMMANDS[name], str(function.__doc__)
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(
        name,
        cls=getattr(module, "COMMAND_CLASS", GroupedHelp),
        # After \b, Click keeps the lines as they are.
        help=f"{first}\n\n\b\nExample:        image-update {name} {example}\nDocumentation:  {DOCS}/{page}",
        short_help=first,  # Typer shortens the help in the list of commands, unless it is given as this
        context_settings={"help_option_names": ["-h", "--help"]},  # Click keeps those of a command's first context
    )(function)
    return cast("TyperCommand", get_command(app))
