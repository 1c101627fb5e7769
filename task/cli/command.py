"""Creates a Typer command and its help from a function and from the settings' fields that define
the command's options.

Typer's own help draws boxes and, at 80 columns, truncates long names and variables, so Click's
plain help is used instead. `--help` shows the options that most of the command's users need, and
`--help-all` shows all options and their variables.
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
}  # the same short options as in kubectl
SOURCES: Mapping[str, Origin] = {"COMMANDLINE": "command line", "ENVIRONMENT": "variable"}


def function_of(command: str, body: Callable[..., int]) -> Callable[..., int]:
    """Return a function from whose signature Typer creates the command's options.

    The function calls `body` with the settings and the call. `demo` has no settings, so its body is
    called with the single option that it declares itself.
    """

    def run_command(
        context: typer.Context,
        **_parsed: Any,  # equals `context.params`, but with None for empty lists
    ) -> int:
        """Call `body`, and return its exit code."""
        # stop now if a signal arrived during the imports, because reading stdin might block forever
        shutdown.check()
        has_settings = command in TAKEN
        if has_settings:
            return body(settings_of(command, context.params), context.obj)
        return body(**context.params)

    required_names = REQUIRED.get(command, ())
    params = [
        _typer_parameter(field, kind, option, is_required=field.name in required_names)
        for field, kind, option in options_of(command)
    ]
    if not params:
        params = list(inspect.signature(body).parameters.values())
    context = inspect.Parameter(
        "context",
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        annotation=typer.Context,
    )

    # Typer reads these attributes instead of the actual signature and docstring of `run_command`.
    signature = inspect.Signature([context, *params, _help_all_parameter()])
    run_command.__signature__ = signature  # type: ignore[attr-defined]
    run_command.__annotations__ = {}
    run_command.__doc__ = body.__doc__
    return run_command


def settings_of(command: str, parsed_values: Mapping[str, Any]) -> Settings:
    """Return the settings for a call of the command.

    `parsed_values` contains the values that Typer parsed, keyed by the options' fields, such as
    `git_username`. Raises `UsageError` for options that cannot be combined, or that require another
    option.
    """
    accepted = TAKEN[command]  # the option records and single options that the command accepts
    record_types = get_type_hints(Settings)
    records = {
        name: record_of(record_type, parsed_values)
        for name, record_type in record_types.items()
        if record_type in accepted
    }
    single_options = {name: value for name, value in parsed_values.items() if name in accepted}
    settings = Settings(command, **records, **single_options)
    check(settings)
    return settings


def record_of(record: type, values: Mapping[str, Any]) -> Any:
    """Create a record from those values that match its fields. All other fields keep their
    defaults.
    """
    names = [field.name for field in fields(record) if field.name in values]
    return record(**{name: values[name] for name in names})


def _typer_parameter(
    field: Field[Any],
    kind: Any,
    option: Option,
    *,
    is_required: bool,
) -> inspect.Parameter:
    """Return a parameter of a function signature from which Typer creates an option or argument of
    the command.

    `field` is a field of the settings, such as `git_username`, and `kind` is its type. A bool
    becomes a flag (`--x/--no-x`), and a tuple becomes a repeatable option.
    """
    is_flag = kind is bool or bool in get_args(kind)  # `bool`, or `bool | None`
    is_list = get_origin(kind) is tuple
    has_single_text = not is_flag and not is_list
    has_choices = option.read is one_of
    # "" represents an empty tuple or an empty secret
    default = "" if is_list or isinstance(field.default, Secret) else field.default

    declare = typer.Argument if option.argument else typer.Option
    declaration = declare(
        *_names_for_typer(field, option, is_flag=is_flag),
        envvar=None if option.old_name else variable_of(field.name),
        hidden=option.old_name,  # old names still work, but the help omits them
        metavar=option.metavar or None,
        help=option.help,
        rich_help_panel=option.group,
        # `_reader` expects strings, regardless of the default's type
        parser=str if has_single_text else None,
        callback=_reader(field, option, default, is_flag=is_flag, is_required=is_required),
        # a choice's metavar lists the valid values, such as `auto|always|never`
        autocompletion=(lambda: option.metavar.split("|")) if has_choices else None,
    )

    # Typer shows the default in the help. It parses all values except flags as strings, which
    # `_reader` converts.
    default_for_typer: Any = option.shown or default
    type_for_typer: Any = str
    if is_required:  # Typer treats a parameter without a default as required
        default_for_typer = inspect.Parameter.empty
        type_for_typer = list[str] if is_list else str
    elif is_list:
        default_for_typer = None
        type_for_typer = list[str] | None
    elif is_flag:
        default_for_typer = bool(default)
        type_for_typer = bool
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default_for_typer,
        annotation=Annotated[type_for_typer, declaration],
    )


def _names_for_typer(field: Field[Any], option: Option, *, is_flag: bool) -> list[str]:
    """Return an option's names in Typer's notation, such as `["--output", "-o"]` or
    `["--wait/--no-wait"]`. The list is empty for an argument.
    """
    if option.argument:
        return []
    name = option.flag or flag_of(field.name)
    names = [f"{name}/--no-{name.removeprefix('--')}" if is_flag else name]
    if name in SHORT:
        names.append(SHORT[name])
    return names


def _reader(
    field: Field[Any],
    option: Option,
    default: Any,
    *,
    is_flag: bool,
    is_required: bool,
) -> Callable[[typer.Context, typer.CallbackParam, Any], Any]:
    """Return the callback with which Typer converts an option's parsed value to the value of the
    settings' field.

    `default` is the option's default value in Typer.
    """

    def read(context: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
        """Convert an option's value. Raises `BadParameter` if a required value is blank."""
        given = _given_values(context, param, value, option, default)
        if is_flag:  # Typer has parsed the bool, but a blank variable must count as unset
            return value if given.is_given else field.default
        result = option.read(given)
        if is_required and not result:
            raise typer.BadParameter("it is blank", param=param)
        return result

    return read


def _given_values(
    context: typer.Context,
    param: typer.CallbackParam,
    value: Any,
    option: Option,
    default: Any,
) -> Given:
    """Return an option's values as strings, together with their source.

    `value` is the value that Typer parsed. If the user did not set the option, there are no
    strings.
    """
    typer_source = context.get_parameter_source(str(param.name))
    source: Origin = "default"
    if typer_source is not None:
        source = SOURCES.get(typer_source.name, "default")

    texts: tuple[str, ...] = ()
    if source == "variable":
        # not `value`, because Typer splits a variable's value at spaces
        texts = (os.environ[str(param.envvar)],)
    elif source == "command line":
        values = value if isinstance(value, list | tuple) else [value]
        texts = tuple(map(str, values))
    return Given(
        name=param.opts[0],
        texts=texts,
        source=source,
        metavar=option.metavar,
        default=default,
    )


# matches arguments that must be files, rather than NAME or NAMESPACE/NAME
_PAGE = re.compile(r"-|.*\.html?|\.{0,2}/.*")


class GroupedHelp(TyperCommand):
    """A command whose help has a section for each `rich_help_panel` of its options."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words that follow the command's name in the usage line.

        Typer's own version puts braces around a required argument.
        """
        arguments = [
            str(param.metavar) for param in self.get_params(ctx) if isinstance(param, TyperArgument)
        ]
        return ["[OPTIONS]", *arguments]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line's arguments. If `--html` has no value, it is first set to `-`
        (stdout), because Typer does not support optional values.

        In `report --html report.json`, the only argument that is not an option is the report to
        read, not the value of `--html`. For other commands, raises `UsageError` if the word after
        `--html` could be the name of an Application.
        """
        has_html_option = any(param.name == "html" for param in self.params)
        if not has_html_option or "--html" not in args:
            return super().parse_args(ctx, args)

        index = args.index("--html")
        words_before = args[:index]
        words_after = args[index + 1 :]
        # the end of the command line is treated like another option
        next_word = words_after[0] if words_after else "--"
        has_value = not _is_option(next_word)
        shows_a_report = self.name == "report"
        if shows_a_report:
            plain_words = [word for word in args if not _is_option(word)]
            has_value = has_value and len(plain_words) > 1
        if not has_value:
            return super().parse_args(ctx, [*words_before, "--html=-", *words_after])

        is_page = shows_a_report or bool(_PAGE.fullmatch(next_word))
        may_raise = not ctx.resilient_parsing
        if not is_page and may_raise:
            raise UsageError(
                f"--html: {next_word!r} could be a file or an Application",
                hint=f"for a file, use --html={next_word}; for an Application, use {next_word}"
                " --html",
            )
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any, *, everything: bool = False) -> None:
        """Write the help sections in the order of `GROUPS`, and the number of omitted options.

        Only common options are included unless `everything` is set.
        """
        rows_by_section: dict[str, list[tuple[str, str]]] = {name: [] for name in GROUPS}
        declared_options = {field.name: option for field, _, option in options_of(str(self.name))}
        hidden_options = 0
        for param in self.get_params(ctx):
            row = param.get_help_record(ctx)
            if not row:
                continue
            option = declared_options.get(str(param.name))
            is_shown = everything or self._is_common(option)
            if not is_shown:
                hidden_options += 1
                continue
            if option and isinstance(param, TyperOption | TyperArgument):
                is_argument = isinstance(param, TyperArgument)
                name = str(param.metavar) if is_argument else row[0]
                row = _help_row(param, name, option, everything=everything)
            section = option.group if option else "Help"
            rows_by_section.setdefault(section, []).append(row)

        for section, rows in rows_by_section.items():
            if rows:
                with formatter.section(section):
                    formatter.write_dl(rows)
        if hidden_options:
            formatter.write_paragraph()
            formatter.write_text(f"{hidden_options} more options: {ctx.command_path} --help-all")
        formatter.write_paragraph()
        formatter.write_text(FOOT)

    def _is_common(self, option: Option | None) -> bool:
        """Return whether `--help` lists an option. Typer's own options, such as `--help` itself,
        are always listed.
        """
        if option is None:
            return True
        if isinstance(option.common, tuple):
            return self.name in option.common
        return option.common

    def whole_help(self, context: Any) -> str:
        """Return the command's help, including all options."""
        formatter = context.make_formatter()
        self.format_usage(context, formatter)
        self.format_help_text(context, formatter)
        self.format_options(context, formatter, everything=True)
        return str(formatter.getvalue())


def _is_option(word: str) -> bool:
    """Return whether a command-line argument is an option. `-` is not: it is a value that means
    stdin or stdout.
    """
    return word.startswith("-") and word != "-"


def _show_everything(context: typer.Context, wanted: bool) -> None:  # noqa: FBT001 - as Typer calls it
    if wanted and not context.resilient_parsing:
        typer.echo(cast("GroupedHelp", context.command).whole_help(context).rstrip("\n"))
        raise typer.Exit


def _help_all_parameter() -> inspect.Parameter:
    """Return the parameter for `--help-all`, which every command has."""
    declaration = typer.Option(
        "--help-all",
        is_eager=True,
        expose_value=False,
        callback=_show_everything,
        help="Show all options with their variables and exit.",
    )
    return inspect.Parameter(
        "help_all",
        inspect.Parameter.KEYWORD_ONLY,
        default=False,
        annotation=Annotated[bool, declaration],
    )


def _help_row(
    param: TyperOption | TyperArgument,
    name: str,
    option: Option,
    *,
    everything: bool,
) -> tuple[str, str]:
    """Return the two columns of an option's row in the help: its names and value (`name`, possibly
    shortened), and its description with notes in brackets.

    With `everything` (for `--help-all`), a note names the option's variable. Otherwise, the
    option's brief texts are used, if there are any.
    """
    text = option.help
    notes = []  # "repeatable", "default: auto", …
    if everything:
        notes.append(f"env var: {param.envvar}")
    elif isinstance(param.default, bool) and not param.default:
        name = param.opts[0]  # omit `--no-x`, which is useful only if `--x` is on by default
    elif any(option.brief):
        brief_metavar, text = option.brief
        name = name.replace(option.metavar, brief_metavar)

    if getattr(param, "multiple", False):
        notes.append("repeatable")
    if param.required:
        notes.append("required")
    elif isinstance(param.default, bool):
        if param.default:
            notes.append("default: on")
    elif param.default not in (None, ""):
        notes.append(f"default: {param.default}")

    if notes:
        text = f"{text}  [{'; '.join(notes)}]"
    return name, text
