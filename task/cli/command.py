"""Creates a Typer command and its help from a function and the fields that define the command's
options.

Typer's own help draws boxes and, at 80 columns, truncates long names and variables. Click's plain
help does not. `--help` shows the options that most users of the command need. `--help-all` shows
all options and their variables.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand, TyperOption

from task import shutdown
from task.cli.exit_codes import FOOT
from task.errors import UsageError
from task.option import Given, Option, Origin, flag_of, one_of, variable_of
from task.secret import Secret
from task.settings import GROUPS, REQUIRED, TAKEN, Settings, check, options_of

SHORT = {
    "--output": "-o",
    "--namespace": "-n",
    "--selector": "-l",
}  # as in kubectl
SOURCES: Mapping[str, Origin] = {"COMMANDLINE": "command line", "ENVIRONMENT": "variable"}


def function_of(command: str, body: Callable[..., int]) -> Callable[..., int]:
    """Return a function with the signature from which Typer creates a command's options.

    `body` is called with the settings and the call. The demo has no settings, and is called with
    the one option that it declares itself.
    """

    def called(
        context: typer.Context,
        **_given: Any,
    ) -> int:  # Typer passes None for an empty list
        shutdown.check()  # a signal during the imports did not raise, and stdin may never end
        if command in TAKEN:
            return body(settings_of(command, context.params), context.obj)
        return body(**context.params)

    required = REQUIRED.get(command, ())
    params = [
        _typer_parameter(*item, needed=item[0].name in required) for item in options_of(command)
    ]
    params = params or list(inspect.signature(body).parameters.values())
    context = inspect.Parameter(
        "context",
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        annotation=typer.Context,
    )
    called.__signature__ = inspect.Signature([context, *params, _help_all()])  # type: ignore[attr-defined]
    called.__annotations__ = {}
    called.__doc__ = body.__doc__
    return called


def settings_of(command: str, given: Mapping[str, Any]) -> Settings:
    """Return the settings for a call.

    `given` contains the values that Typer has parsed. Raises `UsageError` for options that cannot
    be combined.
    """
    taken = TAKEN[command]
    kinds = get_type_hints(Settings)
    records = {place: record_of(kind, given) for place, kind in kinds.items() if kind in taken}
    settings = Settings(
        command,
        **records,
        **{name: given[name] for name in given if name in taken},
    )
    check(settings)
    return settings


def record_of(record: type, given: Mapping[str, Any]) -> Any:
    """Return the record with the given values. Other fields keep their defaults."""
    return record(
        **{field.name: given[field.name] for field in fields(record) if field.name in given}
    )


def _typer_parameter(
    field: Field[Any],
    kind: Any,
    option: Option,
    *,
    needed: bool,
) -> inspect.Parameter:
    """Return the parameter from which Typer creates the field's option.

    A bool becomes `--x/--no-x`.
    """
    flag = kind is bool or bool in get_args(kind)
    many = get_origin(kind) is tuple
    default = "" if many or isinstance(field.default, Secret) else field.default
    declare = typer.Argument
    names = []
    if not option.argument:
        declare = typer.Option
        name = option.flag or flag_of(field.name)
        names.append(f"{name}/--no-{name[2:]}" if flag else name)
        if name in SHORT:
            names.append(SHORT[name])
    info = declare(
        *names,
        envvar=None if option.old_name else variable_of(field.name),
        hidden=option.old_name,
        metavar=option.metavar or None,
        help=option.help,
        rich_help_panel=option.group,
        parser=None if many or flag else str,  # `_reader` expects strings, whatever the default
        callback=_reader(field, option, default, flag=flag, needed=needed),
        autocompletion=(lambda: option.metavar.split("|")) if option.read is one_of else None,
    )
    shown: Any = option.shown or default
    if needed:
        shown = inspect.Parameter.empty
    elif many:
        shown = None
    elif flag:
        shown = bool(default)
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=shown,
        annotation=Annotated[_type_for_typer(flag=flag, many=many, needed=needed), info],
    )


def _reader(
    field: Field[Any],
    option: Option,
    default: Any,
    *,
    flag: bool,
    needed: bool,
) -> Callable[[typer.Context, typer.CallbackParam, Any], Any]:
    """Return the callback that converts the option's value to the field's value."""

    def read(context: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
        given = _given(context, param, value, option, default)
        if flag:  # the variable is the one for `--x`; a blank variable counts as unset
            return value if given.is_given else field.default
        found = option.read(given)
        if needed and not found:
            raise typer.BadParameter("it is blank", param=param)
        return found

    return read


def _type_for_typer(*, flag: bool, many: bool, needed: bool) -> Any:
    if needed:
        return list[str] if many else str
    if flag:
        return bool
    return list[str] | None if many else str


def _given(
    context: typer.Context,
    param: typer.CallbackParam,
    value: Any,
    option: Option,
    default: Any,
) -> Given:
    found = context.get_parameter_source(str(param.name))
    source = SOURCES.get(found.name if found else "", "default")
    if source == "variable":
        value = os.environ[str(param.envvar)]  # the whole value, because Typer splits it at spaces
    values = value if isinstance(value, list | tuple) else (value,)
    if source == "default":
        values = ()
    return Given(param.opts[0], tuple(map(str, values)), source, option.metavar, default)


# arguments that are files, not NAME or NAMESPACE/NAME
_PAGE = re.compile(r"-|.*\.html?|\.{0,2}/.*")


class GroupedHelp(TyperCommand):
    """A command with a help section for each `rich_help_panel` of its options."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words after the command's name.

        Typer would put braces around a required argument.
        """
        arguments = [
            str(get_param.metavar)
            for get_param in self.get_params(ctx)
            if isinstance(get_param, TyperArgument)
        ]
        return ["[OPTIONS]", *arguments]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert a value for `--html` if the option has none, because Typer does not support
        optional values.

        After `report --html`, a single word is the report to read, not the page to write. Raises
        `UsageError` if the word could be the name of an Application.
        """
        if "--html" not in args or not any(param.name == "html" for param in self.params):
            return super().parse_args(ctx, args)
        at = args.index("--html")
        following = args[at + 1] if at + 1 < len(args) else "--"
        has_value = following == "-" or not following.startswith("-")
        shows_a_report = self.name == "report"
        if shows_a_report:
            plain = [word for word in args if not word.startswith("-") or word == "-"]
            has_value = has_value and len(plain) > 1
        if not has_value:
            args = [*args[:at], "--html=-", *args[at + 1 :]]
        elif not (shows_a_report or ctx.resilient_parsing or _PAGE.fullmatch(following)):
            raise UsageError(
                f"--html: {following!r} could be a file or an Application",
                hint=f"for a file, use --html={following}; for an Application, use {following}"
                " --html",
            )
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any, *, everything: bool = False) -> None:
        """Write the help sections in order."""
        sections: dict[str, list[tuple[str, str]]] = {name: [] for name in GROUPS}
        left_out = 0
        declared = {field.name: option for field, _, option in options_of(str(self.name))}
        for param in self.get_params(ctx):
            option = declared.get(str(param.name))
            record = param.get_help_record(ctx)
            if not record:
                continue
            if not everything and not self._is_common(option):
                left_out += 1
                continue
            if option and isinstance(param, TyperOption | TyperArgument):
                named = record[0] if isinstance(param, TyperOption) else str(param.metavar)
                record = _help_row(param, named, option, everything=everything)
            sections.setdefault(option.group if option else "Help", []).append(record)
        for name, records in sections.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)
        if left_out:
            formatter.write_paragraph()
            formatter.write_text(f"{left_out} more options: {ctx.command_path} --help-all")
        formatter.write_paragraph()
        formatter.write_text(FOOT)

    def _is_common(self, option: Option | None) -> bool:
        """Return whether `--help` shows an option. Typer's own options, such as `--help`, are
        always shown.
        """
        if option is None:
            return True
        if isinstance(option.common, tuple):
            return self.name in option.common
        return option.common

    def whole_help(self, context: Any) -> str:
        """Return the help with all options."""
        formatter = context.make_formatter()
        self.format_usage(context, formatter)
        self.format_help_text(context, formatter)
        self.format_options(context, formatter, everything=True)
        return str(formatter.getvalue())


def _show_everything(context: typer.Context, wanted: bool) -> None:  # noqa: FBT001 - as Typer calls it
    if wanted and not context.resilient_parsing:
        typer.echo(cast("GroupedHelp", context.command).whole_help(context).rstrip("\n"))
        raise typer.Exit


def _help_all() -> inspect.Parameter:
    info = typer.Option(
        "--help-all",
        is_eager=True,
        expose_value=False,
        callback=_show_everything,
        help="Show all options with their variables and exit.",
    )
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(
        "help_all",
        kind,
        default=False,
        annotation=Annotated[bool, info],
    )


def _help_row(
    param: TyperOption | TyperArgument,
    shown: str,
    option: Option,
    *,
    everything: bool,
) -> tuple[str, str]:
    """Return the option's name and value, and its description with the default."""
    notes = []
    text = option.help
    if everything:
        notes.append(f"env var: {param.envvar}")
    elif isinstance(param.default, bool) and not param.default:
        shown = param.opts[0]  # `--no-x` is useful only if a variable or the default turns `--x` on
    elif any(option.brief):
        shown = shown.replace(option.metavar, option.brief[0])
        text = option.brief[1]
    if getattr(param, "multiple", False):
        notes.append("repeatable")
    if param.required:
        notes.append("required")
    elif isinstance(param.default, bool):
        if param.default:
            notes.append("default: on")
    elif param.default not in (None, ""):
        notes.append(f"default: {param.default}")
    return shown, f"{text}  [{'; '.join(notes)}]" if notes else text
