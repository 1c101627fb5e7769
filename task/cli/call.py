"""One call of the command: what is known before its options are read, or if they cannot be read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from typer.core import TyperGroup

from task.cli.parameters import HOSTED, adopt
from task.cli.strange_variables import strange_variables
from task.output.console import stderr_console
from task.output.log import Log


class Call:
    """The call, which commands find in `context.obj`."""

    def __init__(self, group: TyperGroup, argv: Sequence[str]) -> None:
        self._group = group
        self._words = list(argv[1:])
        self.command = argv[0] if argv and argv[0] in group.commands else ""
        self._called, self.mistake = adopt(os.environ, self.command, group.commands)
        if self.mistake and self.command not in HOSTED:
            self.command = "run"  # whose options say where the results of the failed step go
        self.environ: Mapping[str, str] = dict(os.environ)

    @cached_property
    def _read(self) -> Any:
        """Return what can be read from a line that may have a mistake, or None if it names no command."""
        return self.command and self._group.commands[self.command].make_context(
            self.command, list(self._words), resilient_parsing=True, ignore_unknown_options=True, allow_extra_args=True
        )

    @property
    def given(self) -> Mapping[str, Any]:
        """Return the readable options by name. A line with a mistake still says where the results go."""
        return {name: value for name, value in self._read.params.items() if value is not None} if self._read else {}

    @property
    def variables(self) -> Mapping[str, str]:
        """Return the flags whose values come from variables, and what an error calls them instead.

        That is the variable, or the parameter of a host.
        """
        if not self._read:
            return {}
        params = [one for one in self._group.commands[self.command].params if one.envvar]
        return {
            one.opts[0] if one.opts[0].startswith("--") else str(one.metavar): self._called.get(
                str(one.envvar), str(one.envvar)
            )
            for one in params
            if one.envvar in self._called
            or ((source := self._read.get_parameter_source(one.name)) is not None and source.name == "ENVIRONMENT")
        }

    @cached_property
    def log(self) -> Log:
        """Return the log. It begins with warnings about unknown variables, which may explain later errors."""
        form = self.given.get("log_format", "auto")
        if form == "auto":
            form = "github" if self.environ.get("GITHUB_ACTIONS") == "true" else "text"
        log = Log(self.given.get("log_level", "info"), form, console=stderr_console(self.environ))
        for one in strange_variables(self.environ):
            log.problem(one.severity, "", one.message, one.hint)
        return log
