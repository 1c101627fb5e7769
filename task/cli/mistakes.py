"""Pure code that says what is wrong with a command line that Typer cannot read,
and what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from task.command_kinds import COMMANDS, kind_of
from task.errors import UsageError

# Secrets that people try to give on the command line, and how to give them instead.
_SECRETS = {
    "--git-token": "IMAGE_UPDATE_GIT_TOKEN, or give --git-password-file FILE",
    "--git-password": "IMAGE_UPDATE_GIT_PASSWORD, or give --git-password-file FILE",
    "--token": "IMAGE_UPDATE_GIT_TOKEN, or give --git-password-file FILE",
    "--password": "IMAGE_UPDATE_GIT_PASSWORD, or give --git-password-file FILE",
    "--forge-token": "IMAGE_UPDATE_FORGE_TOKEN, or give --forge-token-file FILE",
    "--github-token": "IMAGE_UPDATE_GIT_TOKEN, or give --git-password-file FILE",
    "--gitlab-token": "IMAGE_UPDATE_GIT_TOKEN, or give --git-password-file FILE",
    "--ssh-key": "IMAGE_UPDATE_SSH_KEY, or give --ssh-key-file FILE",
    "--github-app-key": "IMAGE_UPDATE_GITHUB_APP_KEY, or give --github-app-key-file FILE",
    "--argocd-auth-token": "IMAGE_UPDATE_ARGOCD_AUTH_TOKEN, or give --argocd-auth-token-file FILE",
    "--registry-password": "IMAGE_UPDATE_REGISTRY_PASSWORD, or give --registry-password-file FILE",
    "--cloudevent-token": "IMAGE_UPDATE_CLOUDEVENT_TOKEN",
}
# Required options, and what to write.
_REQUIRED = {
    "app": "name at least one Application, as NAME or NAMESPACE/NAME",
    "reason": "say why the images are held",
    "revision": "name the commit that Argo CD has to sync",
    "report_file": "name the JSON report of a run, or - for stdin",
}


def explained(
    error: Any,
    command: str,
    options: Mapping[str, Collection[str]],
    environ: Mapping[str, str],
    argv: Collection[str] = (),
) -> UsageError:
    """Return Typer's error in our words.

    `options`: each command's flags. `command` is "" if it is unknown.
    """
    message = " ".join(error.format_message().split()).rstrip(".")
    called = f"image-update {command}" if command else "image-update"
    kind = type(error).__name__
    param = getattr(error, "param", None)
    if kind == "NoSuchOption":
        return unknown_option(_as_typed(error.option_name, argv), command, options)
    if kind == "MissingParameter" and param is not None:
        return _missing_option(param)
    if kind == "BadParameter" and param is not None and error.message == "it is blank":
        return _missing_option(param, "is empty")
    if kind == "BadParameter" and param is not None and getattr(param, "is_flag", False):
        # Only a variable can give it a value.
        value = environ.get(str(param.envvar), "").strip()
        return UsageError(
            f"{param.opts[0]}: {value!r} is neither true nor false",
            hint="write true or false",
        )
    if kind == "BadOptionUsage" and "requires an argument" in message:
        return UsageError(
            f"{error.option_name} needs a value",
            hint=f"{called} --help-all shows what it takes",
        )
    if kind == "BadOptionUsage" and "does not take a value" in message:
        return _takes_no_value(error.option_name)
    if found := re.match(r"No such command '(.*?)'", message):
        return _unknown_command(found[1], options)
    if found := re.match(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", message):
        first = found[1].partition(" ")[0]
        hint = _instead_of_an_argument(first, command)
        return UsageError(
            f"{command} takes no argument {first!r}",
            hint=hint or f"{called} --help shows what it takes",
        )
    return UsageError(message, hint=f"{called} --help shows what there is")


def _takes_no_value(flag: str) -> UsageError:
    hint = f"write {flag} alone"
    if not flag.startswith("--no-"):
        hint = f"write {flag}, or --no-{flag[2:]}"
    return UsageError(f"{flag} takes no value", hint=hint)


def _unknown_command(name: str, commands: Iterable[str]) -> UsageError:
    near = get_close_matches(name, commands, n=1, cutoff=0.65)  # deploy is not like demo
    ask = f"did you mean {near[0]}? " if near else ""
    return UsageError(
        f"there is no command {name!r}",
        hint=f"{ask}the commands are {', '.join(commands)}",
    )


def _instead_of_an_argument(argument: str, command: str) -> str:
    """Return the hint which option the argument was meant for, or ""."""
    if command == "promote":
        return "name Applications with --from and --to"
    if kind_of(command).takes_images and ("/" in argument or ":" in argument):
        return f"give an image as --image {argument}"
    if kind_of(command).takes_images:
        return f"for one Application, write --application {argument}, and the image as --image REF"
    if command == "scan":
        return f"for one Application, write --application {argument}"
    return ""


def unknown_option(name: str, command: str, options: Mapping[str, Collection[str]]) -> UsageError:
    """Return the error about an option that the command lacks. `options`: each command's flags."""
    if name in _SECRETS:
        message = f"{name} does not exist: on the command line, others could read the secret"
        return UsageError(message, hint=f"set {_SECRETS[name]}")
    if name == "--dry-run" and command in COMMANDS and not kind_of(command).writes:
        return UsageError(
            f"{command} has no --dry-run: it never writes to Git",
            hint="leave it out",
        )
    if name == "--image" and command == "scan":
        message = (
            "scan has no --image: it asks the registries for the newest tag of every tracked image"
        )
        return UsageError(
            message,
            hint="leave it out, or call run, which takes the image that was just built",
        )
    others = [other for other, flags in options.items() if name in flags]
    if others and command:
        return _of_other_commands(name, command, others)
    if others:
        return UsageError(
            f"{name} comes before the command",
            hint=f"write it after: image-update {others[0]} {name} …",
        )
    return _unlike_any(name, command, options.get(command, ()))


def _of_other_commands(name: str, command: str, others: Sequence[str]) -> UsageError:
    have = f"{others[0]} has it"
    if len(others) > 1:
        have = f"{', '.join(others[:-1])} and {others[-1]} have it"
    return UsageError(
        f"{command} has no {name}",
        hint=f"{have}; image-update {command} --help-all shows the options of {command}",
    )


def _unlike_any(name: str, command: str, flags: Collection[str]) -> UsageError:
    """Return the error about an option that no command has. One of `flags` may be meant."""
    called = f"image-update {command}" if command else "image-update"
    if short := _meant_by(name, flags):
        hint = f"did you mean {short}? {called} --help-all shows all options"
        return UsageError(f"there is no option {name}", hint=hint)
    # The beginning of a name says more than a likeness: --app means --application, not --tag.
    begun = sorted((flag for flag in flags if flag.startswith(name)), key=len)
    near = begun[:1] or get_close_matches(name, flags, n=1)
    ask = f"did you mean {near[0]}? " if near else ""
    hint = f"{ask}{called} {'--help-all' if command else '--help'} shows all options"
    return UsageError(f"there is no option {name}", hint=hint)


# What people of kubectl, git and curl mean by a letter that no option has.
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


def _as_typed(name: str, argv: Collection[str]) -> str:
    """Return an option as it was written: Typer takes `-image` for `-i`."""
    if name.startswith("--"):
        return name
    words = (word.partition("=")[0] for word in argv)
    return next((word for word in words if len(word) > 2 and word.startswith(name)), name)


def _meant_by(name: str, flags: Collection[str]) -> str:
    """Return the option that a short one means, or one with a dash too few; "" if it is another."""
    if name.startswith("--"):
        return ""
    if f"-{name}" in flags:
        return f"-{name}"
    meant = _LETTERS.get(name, "")
    if meant == "--version" or meant.partition(" ")[0] in flags:
        return meant
    begun = sorted((flag for flag in flags if flag.startswith(f"-{name}")), key=len)
    return begun[0] if begun else ""


def _missing_option(param: Any, what: str = "is missing") -> UsageError:
    flag = param.opts[0] if str(param.opts[0]).startswith("--") else str(param.metavar)
    return UsageError(
        f"{flag} {what}",
        hint=f"{_REQUIRED[param.name]} ({flag}, or the variable {param.envvar})",
    )


def as_given(error: UsageError, called: Mapping[str, str]) -> UsageError:
    """Return the error with what `called` says for a flag: the variable of its value,
    or the parameter of a host.
    """
    flags = re.match(r"(--[a-z-]+|APP\.\.\.)(, --[a-z-]+)*( and --[a-z-]+)?", error.message)
    if flags is None:
        return error
    named = re.sub(r"--[a-z-]+|APP\.\.\.", lambda flag: called.get(flag[0], flag[0]), flags[0])
    # Who fills in a form gives neither an option nor a variable.
    hint = (
        error.hint
        if named == flags[0]
        else re.sub(r" \(\S+, or the variable \w+\)$", "", error.hint)
    )
    return type(error)(
        named + error.message[flags.end() :],
        hint=hint,
        subject=error.subject,
    )
