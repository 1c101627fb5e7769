"""Explains what is wrong with a command line that Typer cannot parse, and suggests alternatives."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from task.command_kinds import COMMANDS, kind_of
from task.errors import UsageError

# Options with which users try to pass secrets on the command line, and how to pass them instead.
_SECRETS = {
    "--git-token": "IMAGE_UPDATE_GIT_TOKEN, or pass --git-password-file FILE",
    "--git-password": "IMAGE_UPDATE_GIT_PASSWORD, or pass --git-password-file FILE",
    "--token": "IMAGE_UPDATE_GIT_TOKEN, or pass --git-password-file FILE",
    "--password": "IMAGE_UPDATE_GIT_PASSWORD, or pass --git-password-file FILE",
    "--forge-token": "IMAGE_UPDATE_FORGE_TOKEN, or pass --forge-token-file FILE",
    "--github-token": "IMAGE_UPDATE_GIT_TOKEN, or pass --git-password-file FILE",
    "--gitlab-token": "IMAGE_UPDATE_GIT_TOKEN, or pass --git-password-file FILE",
    "--ssh-key": "IMAGE_UPDATE_SSH_KEY, or pass --ssh-key-file FILE",
    "--github-app-key": "IMAGE_UPDATE_GITHUB_APP_KEY, or pass --github-app-key-file FILE",
    "--argocd-auth-token": "IMAGE_UPDATE_ARGOCD_AUTH_TOKEN, or pass --argocd-auth-token-file FILE",
    "--registry-password": "IMAGE_UPDATE_REGISTRY_PASSWORD, or pass --registry-password-file FILE",
    "--cloudevent-token": "IMAGE_UPDATE_CLOUDEVENT_TOKEN",
}
# Required options and arguments, and what to pass.
_REQUIRED = {
    "app": "list at least one Application, as NAME or NAMESPACE/NAME",
    "reason": "give a reason for the hold",
    "revision": "set the commit that Argo CD must sync",
    "report_file": "pass a run's JSON report, or - for stdin",
}


def explained(
    error: Any,
    command: str,
    options: Mapping[str, Collection[str]],
    environ: Mapping[str, str],
    argv: Collection[str] = (),
) -> UsageError:
    """Convert an error from Typer's parser to a `UsageError` with our own message and hint.

    `command` is the name of the command in `argv`, or "" if it is unknown. `options` contains each
    command's flags.
    """
    typer_message = " ".join(error.format_message().split()).rstrip(".")
    command_line = f"image-update {command}" if command else "image-update"
    kind = type(error).__name__  # the name of Typer's error class, such as "NoSuchOption"
    param = getattr(error, "param", None)  # the option or argument that caused the error

    if kind == "NoSuchOption":
        return unknown_option(_whole_option(error.option_name, argv), command, options)

    if kind == "MissingParameter" and param is not None:
        return _missing_option(param)

    if kind == "BadParameter" and param is not None:
        if error.message == "it is blank":  # raised by our own `_reader` in command.py
            return _missing_option(param, "is empty")
        if getattr(param, "is_flag", False):
            return _not_true_or_false(param, environ)

    if kind == "BadOptionUsage" and "requires an argument" in typer_message:
        return UsageError(
            f"{error.option_name} requires a value",
            hint=f"{command_line} --help-all shows its values",
        )

    if kind == "BadOptionUsage" and "does not take a value" in typer_message:
        return _takes_no_value(error.option_name)

    unknown_command = re.match(r"No such command '(.*?)'", typer_message)
    if unknown_command:
        return _unknown_command(unknown_command[1], options)

    extra_arguments = re.match(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", typer_message)
    if extra_arguments:
        first_argument = extra_arguments[1].partition(" ")[0]
        hint = _hint_for_argument(first_argument, command)
        return UsageError(
            f"{command} does not accept the argument {first_argument!r}",
            hint=hint or f"{command_line} --help shows its options",
        )

    return UsageError(typer_message, hint=f"{command_line} --help shows what is available")


def _not_true_or_false(param: Any, environ: Mapping[str, str]) -> UsageError:
    """Return the error for a flag whose value is not a boolean.

    The value must come from the flag's variable, because flags do not take a value on the command
    line.
    """
    value = environ.get(str(param.envvar), "").strip()
    return UsageError(
        f"{param.opts[0]}: {value!r} is not true or false",
        hint="use true or false",
    )


def _takes_no_value(flag: str) -> UsageError:
    """Return the error for a flag with a value, such as `--draft=yes`."""
    hint = f"use {flag} without a value"
    if not flag.startswith("--no-"):
        hint = f"use {flag} or --no-{flag.removeprefix('--')}"
    return UsageError(f"{flag} does not take a value", hint=hint)


def _unknown_command(name: str, commands: Iterable[str]) -> UsageError:
    """Return the error for a command that does not exist. The hint suggests the most similar
    command.
    """
    # The cutoff must not be lower, because `deploy` must not match `demo`.
    similar = get_close_matches(name, commands, n=1, cutoff=0.65)
    question = f"did you mean {similar[0]}? " if similar else ""
    return UsageError(
        f"unknown command {name!r}",
        hint=f"{question}the commands are {', '.join(commands)}",
    )


def _hint_for_argument(argument: str, command: str) -> str:
    """Return a hint that names the option to use instead of an argument, or "" if there is no such
    option.
    """
    if command == "promote":
        return "select Applications with --from and --to"
    looks_like_image = "/" in argument or ":" in argument
    if kind_of(command).takes_images and looks_like_image:
        return f"pass the image as --image {argument}"
    if kind_of(command).takes_images:
        return f"pass an Application as --application {argument}, and the image as --image REF"
    if command == "scan":
        return f"pass an Application as --application {argument}"
    return ""


def unknown_option(name: str, command: str, options: Mapping[str, Collection[str]]) -> UsageError:
    """Return the error for an option that the command does not have. The hint suggests an
    alternative.

    `command` is "" if the option precedes the command. `options` contains each command's flags.
    """
    if name in _SECRETS:
        message = f"{name} does not exist: others could read the secret on the command line"
        return UsageError(message, hint=f"set {_SECRETS[name]}")

    is_read_only = command in COMMANDS and not kind_of(command).writes
    if name == "--dry-run" and is_read_only:
        return UsageError(
            f"{command} has no --dry-run: it never writes to Git",
            hint="remove it",
        )

    if name == "--image" and command == "scan":
        message = (
            "scan has no --image: it looks up the newest tag of every tracked image in the"
            " registries"
        )
        return UsageError(
            message,
            hint="remove it, or use run to write the image that was just built",
        )

    commands_with_option = [other for other, flags in options.items() if name in flags]
    if not commands_with_option:
        return _option_of_no_command(name, command, options.get(command, ()))
    if command:
        return _option_of_other_commands(name, command, commands_with_option)
    return UsageError(
        f"{name} comes before the command",
        hint=f"put it after the command: image-update {commands_with_option[0]} {name} …",
    )


def _option_of_other_commands(name: str, command: str, others: Sequence[str]) -> UsageError:
    """Return the error for an option that other commands have, but `command` does not.

    The hint lists the commands that do have the option (`others`, at least one).
    """
    *first_commands, last_command = others
    listed_commands = last_command
    if first_commands:
        listed_commands = f"{', '.join(first_commands)} and {last_command}"
    return UsageError(
        f"{command} has no {name}",
        hint=f"it is an option of {listed_commands}; image-update {command} --help-all lists the"
        f" options for {command}",
    )


def _option_of_no_command(name: str, command: str, flags: Collection[str]) -> UsageError:
    """Return the error for an option that no command has.

    The hint suggests the most similar of `flags`, the options of `command`.
    """
    command_line = f"image-update {command}" if command else "image-update"
    intended_option = _intended_option(name, flags)
    if intended_option:
        return UsageError(
            f"unknown option {name}",
            hint=f"did you mean {intended_option}? {command_line} --help-all shows all options",
        )

    # A common prefix is a better clue than similarity: --app means --application, not --tag.
    completions = sorted((flag for flag in flags if flag.startswith(name)), key=len)
    candidates = completions or get_close_matches(name, flags, n=1)
    question = f"did you mean {candidates[0]}? " if candidates else ""
    help_option = "--help-all" if command else "--help"
    return UsageError(
        f"unknown option {name}",
        hint=f"{question}{command_line} {help_option} shows all options",
    )


# Short options that do not exist here, and the equivalents of their meanings in kubectl, git, or
# curl.
_LETTERS = {
    "-A": "--namespace '*'",
    "-a": "--application",
    "-d": "--dry-run",
    "-f": "--applications",
    "-i": "--image",
    "-t": "--tag",
    "-u": "--git-username",
    "-v": "--log-level debug",
    "-q": "--log-level error",
    "-V": "--version",
    "-w": "--wait",
}


def _whole_option(name: str, argv: Collection[str]) -> str:
    """Return an unknown option as written in `argv`, without its value.

    For an option with a single dash, Typer reports only the first letter: `-i` for `-image`.
    """
    if name.startswith("--"):
        return name
    for word in argv:
        option = word.partition("=")[0]
        is_longer = len(option) > len("-i")
        if is_longer and option.startswith(name):
            return option
    return name


def _intended_option(name: str, flags: Collection[str]) -> str:
    """Return the flag that a user probably meant by a name with a single dash, or "" if none is
    likely.

    The name may lack a dash (`-image`), be a short option of other programs (`-i`), or be the
    beginning of an option (`-im`). `flags` are the command's flags.
    """
    if name.startswith("--"):
        return ""
    if f"-{name}" in flags:
        return f"-{name}"

    long_option = _LETTERS.get(name, "")  # may include a value: `--log-level debug`
    flag = long_option.partition(" ")[0]
    if flag == "--version" or flag in flags:  # `--version` works on every command line
        return long_option

    completions = sorted((other for other in flags if other.startswith(f"-{name}")), key=len)
    return completions[0] if completions else ""


def _missing_option(param: Any, problem: str = "is missing") -> UsageError:
    """Return the error for a required option or argument that has no value.

    The message consists of the option's name and `problem`.
    """
    name = str(param.opts[0])
    flag = name if name.startswith("--") else str(param.metavar)
    return UsageError(
        f"{flag} {problem}",
        hint=f"{_REQUIRED[param.name]} ({flag}, or the variable {param.envvar})",
    )


def in_words_of_the_user(error: UsageError, names_of_flags: Mapping[str, str]) -> UsageError:
    """Return the error, replacing the flags at the start of its message with the names by which the
    user knows them.

    `names_of_flags` contains these names: the variable that set the value, or the form's parameter.
    For example, `--tag: 'x' is not …` becomes `IMAGE_UPDATE_TAG: 'x' is not …`.
    """
    leading_flags = re.match(r"(--[a-z-]+|APP\.\.\.)(, --[a-z-]+)*( and --[a-z-]+)?", error.message)
    if leading_flags is None:
        return error
    flags = leading_flags[0]

    def name_of(flag: re.Match[str]) -> str:
        """Return the name by which the user knows a matched flag."""
        return names_of_flags.get(flag[0], flag[0])

    names = re.sub(r"--[a-z-]+|APP\.\.\.", name_of, flags)
    hint = error.hint
    if names != flags:  # users who fill in a form set neither options nor variables
        hint = re.sub(r" \(\S+, or the variable \w+\)$", "", hint)
    return type(error)(
        names + error.message.removeprefix(flags),
        hint=hint,
        subject=error.subject,
    )
