"""The commands by name. A command's file is imported when the command is called.

Click calls this lazy loading of subcommands. `run` does without what `wait`, `lint` and the others import, and without
their options. With `task.wiring`, which imports only the clients that are asked for, it takes little more than half of
the processor time to start: many pods that start on one node feel that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import cast

import typer
from typer.core import TyperCommand
from typer.main import get_command

from task.cli.grouped_help import GroupedHelp

NAMES = (
    "run", "plan", "scan", "status", "promote", "hold", "release", "rollback", "wait", "report", "lint", "demo",
)  # fmt: skip


class CommandFiles(Mapping[str, TyperCommand]):
    """Each command is the function of its own name, in the file of its own name beside this one."""

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
    module = import_module(f"task.cli.{name}")
    function = getattr(module, name)
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    # Typer shortens help in the list of commands, but not the one it is given as short.
    app.command(name, cls=getattr(module, "COMMAND_CLASS", GroupedHelp), short_help=function.__doc__)(function)
    return cast("TyperCommand", get_command(app))
