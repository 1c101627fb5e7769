"""The Typer application, built from the table of options: help, completion, and words for mistakes."""

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from task import __version__, stop
from task.door import Call
from task.options import COMMANDS, Option, options_of

Execute = Callable[[Call], int]


def enter(argv: Sequence[str], execute: Execute) -> int:
    """Run Typer on a command line; the exit code."""
    result = application(execute)(args=list(argv), prog_name="image-update", standalone_mode=True)
    return result if isinstance(result, int) else 0


def application(execute: Execute) -> typer.Typer:
    """The whole command line as Typer sees it."""
    app = typer.Typer(
        name="image-update",
        help="Deploys an image just built: finds the Argo CD Applications that ask for it, commits the new tag.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name, text in COMMANDS.items():
        app.command(name, help=text)(_demo if name == "demo" else _command(name, execute))
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
    from task.commands.demo import demo

    stop.hear()
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
        argument = typer.Argument(help=option.help, metavar=f"{option.metavar}...", envvar=option.variable)
        return Annotated[list[str], argument]
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
