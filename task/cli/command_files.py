"""The commands by name. A command's file is imported when the command is called.

Click calls this lazy loading of subcommands. `run` does not import what only `wait`, `lint` and the others need, and
does not create their options. `task.wiring` imports only the clients that a run uses. Together, this saves almost half
of the processor time at the start, which matters when many pods start on one node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import cast

import typer
from typer.core import TyperCommand
from typer.main import get_command

from task import shutdown
from task.cli.command import Command
from task.cli.grouped_help import GroupedHelp

NAMES = (
    "run", "plan", "scan", "status", "promote", "hold", "release", "rollback", "wait", "report", "lint", "demo",
)  # fmt: skip


class CommandFiles(Mapping[str, TyperCommand]):
    """Maps each command to the function with its name, in the file with its name in this folder."""

    def __getitem__(self, name: str) -> TyperCommand:
        if name not in NAMES:
            raise KeyError(name)
        return _command(name)

    def __contains__(self, name: object) -> bool:
        return name in NAMES

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


@cache
def _command(name: str) -> TyperCommand:
    # A signal in the middle would leave modules half imported, and the results of a stopped run need this one again.
    with shutdown.shield():
        module = import_module(f"task.cli.{name}")
    found = getattr(module, name)  # the demo has no options of settings, and is a function
    function = found.function() if isinstance(found, Command) else found
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(
        name,
        cls=getattr(module, "COMMAND_CLASS", GroupedHelp),
        short_help=function.__doc__,  # Typer shortens the help in the list of commands, unless it is given as this
        context_settings={"help_option_names": ["-h", "--help"]},  # Click keeps those of a command's first context
    )(function)
    return cast("TyperCommand", get_command(app))
