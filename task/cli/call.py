"""One command-line call: its variables and arguments, even if its options cannot be parsed."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from typer.core import TyperGroup

from task.cli import form
from task.command_kinds import commands_that
from task.errors import Trouble, UsageError
from task.model import Problem
from task.option import ENV_PREFIX, PARAMETER_PREFIX, RESULTS_PREFIX, variable_of
from task.output.console import stderr_console
from task.output.log import Log
from task.secret import Secret
from task.settings import SECRETS, every_option
from task.text import nearest

# The commands that CI systems call, which write results even if they fail.
CI_COMMANDS = commands_that(lambda command: command.for_ci)


class Adopted(NamedTuple):
    """The result of `adopt`: what a CI system's form adds to the command line."""

    # variable → the name of the form's parameter
    parameter_by_variable: Mapping[str, str] = {}
    fields: Collection[str] = ()  # the names of the form's parameters
    words: Sequence[str] = ()  # command-line arguments from the parameter `options`
    mistake: UsageError | None = None  # a mistake in the form


def adopt(
    environ: MutableMapping[str, str],
    command: str,
    commands: Mapping[str, Any],
    options: Sequence[str] = (),
) -> Adopted:
    """Move the parameters of a CI system's form from `environ` to the variables of the command's
    options. A mistake in the form is returned rather than raised.

    `commands` contains the Typer commands, and `options` are a Tekton step's arguments. A parameter
    that is empty or equal to its default counts as unset, because every step passes all parameters.
    """
    parameters = _pop_parameters(environ)  # parameter name (such as "dry-run") → value
    if not parameters:
        return Adopted()
    if not command:
        mistake = UsageError(
            f"the parameter `command` is missing; the commands are {', '.join(CI_COMMANDS)}",
            hint="set it to one of them",
        )
        return Adopted(mistake=mistake)

    entries = [*options, *parameters.pop("options", "").splitlines()]
    fields = frozenset(parameters)
    default_values = defaults()
    set_by_user = {
        name: text
        for name, text in parameters.items()
        if text.strip() not in ("", default_values.get(name))
    }
    variable_by_parameter = variables(commands[command].params)  # only accepted parameters
    parameter_by_variable = _set_variables(environ, set_by_user, fields, variable_by_parameter)

    # A script in the job may also call `report`, which ignores parameters for other commands.
    if command not in CI_COMMANDS:
        return Adopted(parameter_by_variable, fields)
    refused = [name for name in set_by_user if name not in variable_by_parameter]
    if refused:
        return Adopted(
            parameter_by_variable,
            fields,
            mistake=_unaccepted_parameters(refused, command, commands),
        )
    params_of_commands = {name: commands[name].params for name in CI_COMMANDS}
    try:
        words = form.arguments(entries, command, params_of_commands, fields, environ)
    except UsageError as mistake:
        return Adopted(parameter_by_variable, fields, mistake=mistake)
    return Adopted(parameter_by_variable, fields, words)


def _set_variables(
    environ: MutableMapping[str, str],
    set_by_user: Mapping[str, str],
    fields: Collection[str],
    variable_by_parameter: Mapping[str, str],
) -> dict[str, str]:
    """Set the options' variables in `environ` to the values of the form's parameters. Return
    variable → parameter for each variable whose value, or lack of a value, comes from the form.

    `set_by_user` contains the values, keyed by parameter, and `fields` contains the names of all
    parameters.
    """
    for name, text in set_by_user.items():
        if name in variable_by_parameter:
            environ[variable_by_parameter[name]] = text
    parameter_by_variable = {}
    for name, variable in variable_by_parameter.items():
        # An error about a missing value must name the empty parameter or, if the job itself sets
        # the variable, that variable.
        is_unset = name in fields and variable not in environ
        if name in set_by_user or is_unset:
            parameter_by_variable[variable] = name
    return parameter_by_variable


def _pop_parameters(environ: MutableMapping[str, str]) -> dict[str, str]:
    """Remove a form's parameters from the environment, and return them.

    For example, `IMAGE_UPDATE_PARAMETER_DRY_RUN` contains the parameter `dry-run`.
    """
    return {
        name.removeprefix(PARAMETER_PREFIX).lower().replace("_", "-"): environ.pop(name)
        for name in sorted(environ)
        if name.startswith(PARAMETER_PREFIX)
    }


def _unaccepted_parameters(
    refused: Sequence[str],
    command: str,
    commands: Mapping[str, Any],
) -> UsageError:
    """Return the error for form parameters that the command does not accept.

    The hint lists the commands that accept all of them.
    """
    matching_commands = [
        name for name in CI_COMMANDS if set(refused) <= variables(commands[name].params).keys()
    ]
    is_plural = len(refused) > 1
    hint = "remove them" if is_plural else "remove it"
    if matching_commands:
        *others, last = matching_commands
        listed = f"{', '.join(others)} or {last}" if others else last
        subject = "they are" if is_plural else "it is"
        hint += f"; {subject} for {listed}"
    return UsageError(f"{', '.join(refused)}: not a parameter of {command}", hint=hint)


def variables(params: Collection[Any]) -> dict[str, str]:
    """Return the variables of a command's options, keyed by the options' parameters in a form."""
    return {
        parameter_of(param): str(param.envvar) for param in params if getattr(param, "envvar", None)
    }


def parameter_of(param: Any) -> str:
    """Return the name of an option's parameter in a form. For the argument APP, which has no flag,
    this is `names`.
    """
    return "names" if param.name == "app" else str(param.opts[0]).removeprefix("--")


def defaults() -> dict[str, str]:
    """Return each option's default as a user would enter it in a form, keyed by parameter name.

    For `--dry-run`, for example, the result contains `"dry-run": "false"`. If an option has no
    default, the value is "".
    """
    default_values = {}
    for field, _, option in every_option():
        if option.argument:
            continue
        flag_or_field = option.flag or field.name
        parameter = flag_or_field.removeprefix("--").replace("_", "-")
        default_values[parameter] = _default_as_text(field.default)
    return default_values


def _default_as_text(default: Any) -> str:
    """Return a default value as a user would enter it in a form."""
    if default is None or isinstance(default, tuple | Secret):
        return ""
    return str(default).lower() if isinstance(default, bool) else str(default)


# Variables that Kubernetes sets in every container for each Service in the namespace, which could
# be named image-update-….
OF_A_SERVICE = re.compile(
    r".*_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_.*)?)?)"
)


def strange_variables(environ: Mapping[str, str]) -> tuple[Problem, ...]:
    """Return a warning for each unknown non-empty variable with our prefix (`IMAGE_UPDATE_`). The
    warning does not contain the value.
    """
    known_variables = {*(variable_of(field.name) for field, _, _ in every_option()), *SECRETS}
    warnings = []
    for name in sorted(environ):
        is_ours = name.startswith(ENV_PREFIX)
        is_blank = not environ[name].strip()
        if not is_ours or is_blank:
            continue
        is_result = name.startswith(RESULTS_PREFIX)
        if name in known_variables or is_result or OF_A_SERVICE.fullmatch(name):
            continue
        hint = "see the options in the reference, or remove the variable"
        similar = nearest(name, sorted(known_variables))
        if similar:
            hint = f"did you mean {similar}?"
        warnings.append(Problem(Trouble.warning("usage", f"unknown variable {name}", hint)))
    return tuple(warnings)


class Call:
    """A command-line call, which commands access through `context.obj`."""

    def __init__(self, group: TyperGroup, argv: Sequence[str]) -> None:
        """Read the arguments in `argv` and the CI system's form, if there is one.

        `group` contains the commands. The form's parameters are converted to variables in
        `os.environ`.
        """
        self._group = group
        is_known = bool(argv) and argv[0] in group.commands
        self.command = argv[0] if is_known else ""

        words = argv[1:]
        options_of_step: Sequence[str] = ()
        has_parameters = any(name.startswith(PARAMETER_PREFIX) for name in os.environ)
        # a Tekton step's arguments are all entries of its form's `options`
        if has_parameters and words[:1] == [form.MARK]:
            options_of_step = words[1:]
            words = ()

        adopted = adopt(os.environ, self.command, group.commands, options_of_step)
        self._parameter_by_variable = adopted.parameter_by_variable
        self._fields = adopted.fields  # the names of the form's parameters
        self.mistake = adopted.mistake  # a mistake in the form
        self._words = [*words, *adopted.words]  # the arguments after the command's name
        self.argv = [*argv[:1], *self._words]
        if self.mistake and self.command not in CI_COMMANDS:
            self.command = "run"  # results of a failed step are written as for `run`
        self.environ: Mapping[str, str] = dict(os.environ)

    @cached_property
    def _context(self) -> Any:
        """The Click context of the command line, omitting the parts that cannot be parsed. None if
        the command is missing or unknown.
        """
        if not self.command:
            return None
        command = self._group.commands[self.command]
        return command.make_context(
            self.command,
            list(self._words),
            resilient_parsing=True,
            ignore_unknown_options=True,
            allow_extra_args=True,
        )

    @property
    def given(self) -> Mapping[str, Any]:
        """The values of all options that can be parsed, keyed by their fields, such as
        `log_format`.

        This includes where to write the results, even if the command line is invalid.
        """
        if self._context is None:
            return {}
        return {
            option: value for option, value in self._context.params.items() if value is not None
        }

    @property
    def variables(self) -> Mapping[str, str]:
        """The flags whose values come from variables, each with the name by which the user knows
        it: the form's parameter or the variable itself.

        For example, `{"--git-username": "git-username"}`.
        """
        if self._context is None:
            return {}
        names: dict[str, str] = {}
        for param in self._group.commands[self.command].params:
            if not param.envvar:
                continue
            variable = str(param.envvar)
            source = self._context.get_parameter_source(param.name)
            is_from_variable = source is not None and source.name == "ENVIRONMENT"
            is_form_parameter = variable in self._parameter_by_variable
            if is_form_parameter or is_from_variable:
                first_name = param.opts[0]
                flag = first_name if first_name.startswith("--") else str(param.metavar)
                names[flag] = self._parameter_by_variable.get(variable, variable)
        return names

    def in_words_of_the_form(self, text: str) -> str:
        """Return a message in which options are replaced with the names of the form's parameters.

        If the form has a parameter `tag`, then `--tag` becomes `tag`, and `--tag=` becomes `tag: `.
        """

        def parameter_for(flag: re.Match[str]) -> str:
            """Return the parameter for a matched flag, or the flag itself if the form has no such
            parameter.
            """
            name, equals = flag.groups()
            if name not in self._fields:
                return flag[0]
            return f"{name}: " if equals else name

        return re.sub(r"--([a-z][a-z-]*)(=?)", parameter_for, text)

    @cached_property
    def log(self) -> Log:
        """The log in the requested format. The first access creates the log, and logs a warning for
        each unknown variable, because these variables may explain later errors.
        """
        log_format = self.given.get("log_format", "auto")
        if log_format == "auto":
            is_github = self.environ.get("GITHUB_ACTIONS") == "true"
            log_format = "github" if is_github else "text"
        log = Log(
            self.given.get("log_level", "info"),
            log_format,
            console=stderr_console(self.environ),
        )
        for problem in strange_variables(self.environ):
            log.problem(problem.severity, "", problem.message, problem.hint)
        return log
