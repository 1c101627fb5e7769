"""The help of a command, with its options in groups.

Typer's own help draws boxes and, at 80 columns, cuts our longer names and variables. Click's plain help cuts nothing.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand


class GroupedHelp(TyperCommand):
    """A command whose help has a section for each `rich_help_panel` of its options."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections in the order in which the command names its options."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if record := param.get_help_record(ctx):
                sections.setdefault(getattr(param, "rich_help_panel", None) or "Options", []).append(record)
        for name, records in sections.items():
            with formatter.section(name):
                formatter.write_dl(records)
