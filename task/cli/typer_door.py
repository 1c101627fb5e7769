"""The Typer application, built from the table of options: help, completion, and words for mistakes."""

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from task import __version__, shutdown
from task.cli.demo import demo
from task.cli.door import Call
from task.cli.help_page import ABOUT, command_help, root_help
from task.cli.options import COMMANDS, Option, options_of
from task.errors import Exit, UsageError
from task.output.colour import Look

Execute = Callable[[Call], int]
_PLAIN = Look()


def enter(argv: Sequence[str], execute: Execute, look: Look = _PLAIN) -> int:
    """Run Typer on a command line; ends with `SystemExit`. Raises `UsageError` for a line that makes no sense."""
    try:
        result = application(execute, look)(args=_with_value(argv), prog_name="image-update", standalone_mode=False)
    except Exception as error:  # noqa: BLE001 - Typer's own have no public name
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(root_help(look), err=True, nl=False)
            raise SystemExit(Exit.USAGE) from None
        raise _mistake(error, argv) or error from None
    raise SystemExit(result if isinstance(result, int) else 0)


def _mistake(error: Exception, argv: Sequence[str]) -> UsageError | None:
    """Typer's words for a mistake, in our shape; None for what is no mistake of the command line."""
    if not hasattr(error, "format_message"):
        return None
    command = f" {argv[0]}" if argv and argv[0] in COMMANDS else ""
    return UsageError(
        " ".join(error.format_message().split()).rstrip("."), hint=f"image-update{command} --help shows what there is"
    )


def _with_value(argv: Sequence[str]) -> list[str]:
    """`report FILE --html` without a file to write means stdout; Typer knows no value that may be left out."""
    words = list(argv)
    if words[:1] != ["report"] or "--html" not in words:
        return words
    at = words.index("--html")
    following = words[at + 1] if at + 1 < len(words) else "--"
    plain = [word for word in words[1:] if not word.startswith("-") or word == "-"]
    if (following.startswith("-") and following != "-") or len(plain) == 1:
        words[at] = "--html=-"
    return words


def application(execute: Execute, look: Look = _PLAIN) -> typer.Typer:
    """The whole command line as Typer sees it."""

    class Root(TyperGroup):
        """Has our own help."""

        def format_help(self, _ctx: Any, formatter: Any) -> None:
            formatter.write(root_help(look))

    class Command(TyperCommand):
        """Has our own help: one that cuts no line."""

        def format_help(self, _ctx: Any, formatter: Any) -> None:
            formatter.write(command_help(self.name or "", look))

    app = typer.Typer(
        name="image-update",
        cls=Root,
        help=ABOUT,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name, text in COMMANDS.items():
        app.command(name, help=text, cls=Command)(_demo if name == "demo" else _command(name, execute))
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"image-update {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version


def _demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the repository, to play with.")] = False,
) -> None:
    shutdown.hear()
    raise typer.Exit(demo(keep=keep))


def _command(name: str, execute: Execute) -> Callable[..., None]:
    """A function with one keyword parameter for each option of the command."""
    options = options_of(name)

    def body(**given: Any) -> None:
        values = {option.name: _texts(given[option.field]) for option in options}
        raise typer.Exit(execute(Call(name, {key: texts for key, texts in values.items() if texts})))

    body.__signature__ = inspect.Signature([_parameter(option) for option in options])  # type: ignore[attr-defined]
    body.__annotations__ = {option.field: _annotation(option) for option in options}
    return body


def _parameter(option: Option) -> inspect.Parameter:
    many = option.takes in ("words", "lines") and not option.positional
    default: Any = [] if many else None
    return inspect.Parameter(
        option.field, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=_annotation(option)
    )


def _annotation(option: Option) -> Any:
    default = f" (default {option.default})" if option.default and option.takes != "flag" else ""
    choices = f" ({'|'.join(option.choices)})" if option.choices else ""
    flags = f"--{option.name}/--no-{option.name}" if option.takes == "flag" else f"--{option.name}"
    kind: Any = {"flag": bool | None, "words": list[str], "lines": list[str]}.get(option.takes, str | None)
    if option.positional:
        many = option.takes == "words"
        metavar = f"{option.metavar}..." if many else option.metavar
        argument = typer.Argument(help=option.help, metavar=metavar, envvar=option.variable)
        return Annotated[list[str], argument] if many else Annotated[str, argument]
    info = typer.Option(
        flags,
        help=f"{option.help}{choices}{default} ${option.variable}",
        rich_help_panel=option.panel,
        metavar=None if option.takes == "flag" else option.metavar,
        show_default=False,
    )
    return Annotated[kind, info]


def _texts(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, bool):
        return (str(value).lower(),)
    return (value,) if isinstance(value, str) else tuple(value)
