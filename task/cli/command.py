"""Makes a Typer command from a function and the records whose fields are its options."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, dataclass, fields
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

import typer

from task import shutdown
from task.cli.call import Call
from task.errors import UsageError
from task.option import Given, Option, Origin, one_of, variable_of
from task.secret import Secret
from task.settings import CommitOptions, PromoteOptions, Settings, VerifyOptions, options_of

Body = Callable[[Settings, Call], int]
SOURCES: Mapping[str, Origin] = {"COMMANDLINE": "command line", "ENVIRONMENT": "variable"}


@dataclass(frozen=True)
class Command:
    """A command: what it does, and the records whose fields are its options."""

    body: Body
    taken: tuple[type, ...]
    required: Collection[str]  # fields that only this command has to have

    @property
    def name(self) -> str:
        """The name that users type."""
        return self.body.__name__

    def settings(self, given: Mapping[str, Any]) -> Settings:
        """Return the settings of a call. `given` is what Typer has read. Raises `UsageError` if they do not fit."""
        places = {kind: place for place, kind in get_type_hints(Settings).items()}
        settings = Settings(self.name, **{places[record]: record_of(record, given) for record in self.taken})
        check(settings, self.taken)
        return settings

    def function(self) -> Callable[..., int]:
        """Return the function from whose signature Typer makes the options."""

        def called(context: typer.Context, **_given: Any) -> int:  # Typer hands over None for an empty list
            shutdown.check()  # a signal during the imports has raised nothing, and stdin may never end
            return self.body(self.settings(context.params), context.obj)

        params = [_parameter(*one, self.required) for record in self.taken for one in options_of(record)]
        context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
        called.__signature__ = inspect.Signature([context, *params])  # type: ignore[attr-defined]
        called.__annotations__, called.__doc__ = {}, self.body.__doc__
        return called


def command(*taken: type, required: Collection[str] = ()) -> Callable[[Body], Command]:
    """Return a decorator that makes a command. Its function gets the settings of the call."""
    return lambda body: Command(body, taken, required)


def record_of(record: type, given: Mapping[str, Any]) -> Any:
    """Return the record with what is given. A field without a value keeps its default."""
    return record(**{field.name: given[field.name] for field in fields(record) if field.name in given})


def _parameter(field: Field[Any], kind: Any, option: Option, required: Collection[str]) -> inspect.Parameter:
    """Return the parameter from which Typer makes the option of this field."""
    needed = option.required or field.name in required
    if kind is bool or bool in get_args(kind):
        return _flag(field, option)
    many = get_origin(kind) is tuple

    def read(context: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
        found = option.read(_given(context, param, value, option, default))
        if needed and not found:
            raise typer.BadParameter("it is blank", param=param)
        return found

    named = option.flag or "--" + field.name.replace("_", "-")
    default = option.shown or ("" if many or isinstance(field.default, Secret) else field.default)
    info = (typer.Argument if option.argument else typer.Option)(
        *(() if option.argument else (named,)),
        envvar=None if option.old_name else variable_of(field.name),
        hidden=option.old_name,
        metavar=option.metavar,
        help=option.help,
        rich_help_panel=option.group,
        parser=None if many else str,  # `read` takes texts, whatever type the default has
        callback=read,
        autocompletion=(lambda: option.metavar.split("|")) if option.read is one_of else None,
    )
    shown = inspect.Parameter.empty if needed else None if many else default
    typed = Annotated[list[str] if needed else list[str] | None, info] if many else Annotated[str, info]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=shown, annotation=typed)


def _flag(field: Field[Any], option: Option) -> inspect.Parameter:
    """Return the parameter for `--x/--no-x`. Its variable is that of `--x`, and a blank one counts as not given."""

    def read(context: typer.Context, param: typer.CallbackParam, value: bool) -> bool | None:  # noqa: FBT001
        given = _given(context, param, value, option, field.default)
        return value if given.is_given else cast("bool | None", field.default)

    name = field.name.replace("_", "-")
    info = typer.Option(
        f"--{name}/--no-{name}",
        envvar=variable_of(field.name),
        help=option.help,
        rich_help_panel=option.group,
        callback=read,
    )
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=bool(field.default), annotation=Annotated[bool, info]
    )


def _given(context: typer.Context, param: typer.CallbackParam, value: Any, option: Option, default: Any) -> Given:
    found = context.get_parameter_source(str(param.name))
    source = SOURCES.get(found.name if found else "", "default")
    if source == "variable":
        value = os.environ[str(param.envvar)]  # whole: Typer splits it at blanks
    texts = tuple(map(str, value)) if isinstance(value, list | tuple) else () if value is None else (str(value),)
    return Given(param.opts[0], texts, source, option.metavar, default)


def check(settings: Settings, taken: Collection[type]) -> None:
    """Raise `UsageError` for the first mistake. `taken`: the records that the command takes."""
    _check_verify(settings.verify)
    if settings.alias.alias and settings.alias.image:
        raise UsageError("--alias and --image are both given", hint="leave out --image, the old name of --alias")
    if settings.undo.on_failure == "rollback":
        if not settings.rollout.wait:
            raise UsageError("--on-failure=rollback is given without --wait", hint="give --wait: it sees the failure")
        if settings.forge.pull_request and not settings.request.auto_merge:
            raise UsageError(
                "--on-failure=rollback does not go with a pull request that a person merges",
                hint="give --auto-merge, or leave out --on-failure and run: image-update rollback",
            )
    for option in settings.commit.push_option:
        if not option.isprintable():
            raise UsageError(f"--push-option: {option!r} has a control character", hint="remove it")
    if settings.commit.commit_through == "github":
        _check_api(settings.commit)
    if PromoteOptions in taken:
        given = settings.promote
        for flag, named in (
            ("--from", given.promote_from or given.from_selector),
            ("--to", given.promote_to or given.to_selector),
        ):
            if not named:
                hint = f"name Applications with {flag}, or their labels with {flag}-selector"
                raise UsageError(f"{flag} is missing", hint=hint)


def _check_verify(given: VerifyOptions) -> None:
    if bool(given.verify_identity) != bool(given.verify_issuer):
        raise UsageError(
            f"{'--verify-identity' if given.verify_identity else '--verify-issuer'} is given alone",
            hint="give --verify-identity and --verify-issuer together: who signed, and which OIDC issuer says so",
        )
    if given.verify and given.verify_identity:
        raise UsageError(
            "--verify and --verify-identity are both given", hint="choose one: a public key, or an identity"
        )


def _check_api(given: CommitOptions) -> None:
    """Raise `UsageError` for what a commit through GitHub's API cannot have: an author, or our signature."""
    options = (
        ("--signing-key", bool(given.signing_key)),
        ("--signing-format", bool(given.signing_format)),
        ("--sign-off", given.sign_off),
        ("--push-option", bool(given.push_option)),
        ("--git-author-name", bool(given.git_author_name)),
        ("--git-author-email", bool(given.git_author_email)),
    )
    if named := [option for option, is_given in options if is_given]:
        raise UsageError(
            f"{', '.join(named)} and --commit-through github are {'all' if named[1:] else 'both'} given",
            hint=f"leave out --commit-through, or {'the others' if named[1:] else named[0]}: "
            "the author is whom the token belongs to, and GitHub signs the commit",
        )
