"""The help of a command, with its options in groups.

Typer's own help draws boxes and, at 80 columns, cuts our longer names and variables. Click's plain help cuts nothing.
`--help` shows the options that most users of the command need. `--help-all` shows all, each with its variable.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, cast

import typer
from typer.core import TyperArgument, TyperCommand, TyperOption
from typer.main import get_command

from task.option import Option
from task.settings import GROUPS, every_option


class GroupedHelp(TyperCommand):
    """A command whose help has a section for each `rich_help_panel` of its options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_help_all())

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words after the command's name. Typer would put braces around a required argument."""
        arguments = [str(one.metavar) for one in self.get_params(ctx) if isinstance(one, TyperArgument)]
        return ["[OPTIONS]", *arguments]

    def format_options(self, ctx: Any, formatter: Any, *, everything: bool = False) -> None:
        """Write the sections in their order."""
        sections: dict[str, list[tuple[str, str]]] = {name: [] for name in GROUPS}
        left_out, declared = 0, {(field.name, option.help): option for field, _, option in every_option()}
        for param in self.get_params(ctx):
            option = declared.get((str(param.name), str(getattr(param, "help", ""))))
            common = option is None or (
                self.name in option.common if isinstance(option.common, tuple) else option.common
            )
            record = param.get_help_record(ctx)
            if record and not everything and not common:
                left_out += 1
            elif record:
                if option and isinstance(param, TyperOption | TyperArgument):
                    named = record[0] if isinstance(param, TyperOption) else str(param.metavar)
                    record = _row(param, named, option, everything=everything)
                sections.setdefault(option.group if option else "Help", []).append(record)
        for name, records in sections.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)
        if left_out:
            formatter.write_paragraph()
            formatter.write_text(f"{left_out} more options: {ctx.command_path} --help-all")

    def whole_help(self, context: Any) -> str:
        """Return the help with all options."""
        formatter = context.make_formatter()
        self.format_usage(context, formatter)
        self.format_help_text(context, formatter)
        self.format_options(context, formatter, everything=True)
        return str(formatter.getvalue())


@cache
def _help_all() -> Any:
    """Return the option `--help-all`, made by Typer itself: how it constructs one differs from version to version."""
    app = typer.Typer(add_completion=False)
    app.command()(_only_help_all)
    return get_command(app).params[0]


def _show_everything(context: typer.Context, wanted: bool) -> None:  # noqa: FBT001 - as Typer calls it
    if wanted and not context.resilient_parsing:
        typer.echo(cast("GroupedHelp", context.command).whole_help(context).rstrip("\n"))
        raise typer.Exit


def _only_help_all(
    *,
    help_all: Annotated[
        bool,
        typer.Option(
            "--help-all",
            is_eager=True,
            expose_value=False,
            callback=_show_everything,
            help="Show all options with their variables and exit.",
        ),
    ] = False,
) -> None:
    """Do nothing: this is where `--help-all` is written down for Typer."""


def _row(param: TyperOption | TyperArgument, shown: str, option: Option, *, everything: bool) -> tuple[str, str]:
    """Return the option's name and value, and its description with the default."""
    notes, text = [], option.help
    if everything:
        notes.append(f"env var: {param.envvar}")
    elif isinstance(param.default, bool) and not param.default:
        shown = param.opts[0]  # `--no-x` is useful only if a variable or the default switches it on
    elif any(option.brief):
        shown, text = shown.replace(option.metavar, option.brief[0]), option.brief[1]
    if getattr(param, "multiple", False):
        notes.append("repeatable")
    if param.required:
        notes.append("required")
    elif isinstance(param.default, bool):
        notes += ["default: on"] if param.default else []
    elif param.default not in (None, ""):
        notes.append(f"default: {param.default}")
    return shown, f"{text}  [{'; '.join(notes)}]" if notes else text
