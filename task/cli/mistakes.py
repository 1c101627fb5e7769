"""Pure code that says what is wrong with a command line that Typer cannot read,
and what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

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
_WRITES_NOTHING = ("plan", "status", "wait", "report", "lint", "demo")
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
        return _missing(param)
    if kind == "BadParameter" and param is not None and error.message == "it is blank":
        return _missing(param, "is empty")
    if kind == "BadParameter" and param is not None and getattr(param, "is_flag", False):
        # Only a variable can give it a value.
        value = environ.get(str(param.envvar), "").strip()
        return UsageError(
            f"{param.opts[0]}: {value!r} is neither true nor false", hint="write true or false"
        )
    if kind == "BadOptionUsage" and "requires an argument" in message:
        return UsageError(
            f"{error.option_name} needs a value", hint=f"{called} --help-all shows what it takes"
        )
    if kind == "BadOptionUsage" and "does not take a value" in message:
        name = error.option_name
        hint = (
            f"write {name} alone"
            if name.startswith("--no-")
            else f"write {name}, or --no-{name[2:]}"
        )
        return UsageError(f"{name} takes no value", hint=hint)
    if found := re.match(r"No such command '(.*?)'", message):
        near = get_close_matches(found[1], options, n=1, cutoff=0.65)  # deploy is not like demo
        ask = f"did you mean {near[0]}? " if near else ""
        return UsageError(
            f"there is no command {found[1]!r}", hint=f"{ask}the commands are {', '.join(options)}"
        )
    if found := re.match(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", message):
        first = found[1].partition(" ")[0]
        image = command in ("run", "plan") and ("/" in first or ":" in first)
        hint = (
            f"give an image as --image {first}" if image else f"{called} --help shows what it takes"
        )
        if command in ("run", "plan", "scan") and not image:
            image_too = "" if command == "scan" else ", and the image as --image REF"
            hint = f"for one Application, write --application {first}{image_too}"
        if command == "promote":
            hint = "name Applications with --from and --to"
        return UsageError(f"{command} takes no argument {first!r}", hint=hint)
    return UsageError(message, hint=f"{called} --help shows what there is")


def unknown_option(name: str, command: str, options: Mapping[str, Collection[str]]) -> UsageError:
    """Return the error about an option that the command lacks. `options`: each command's flags."""
    if name in _SECRETS:
        message = f"{name} does not exist: on the command line, others could read the secret"
        return UsageError(message, hint=f"set {_SECRETS[name]}")
    if name == "--dry-run" and command in _WRITES_NOTHING:
        return UsageError(
            f"{command} has no --dry-run: it never writes to Git", hint="leave it out"
        )
    if name == "--image" and command == "scan":
        message = (
            "scan has no --image: it asks the registries for the newest tag of every tracked image"
        )
        return UsageError(
            message, hint="leave it out, or call run, which takes the image that was just built"
        )
    called = f"image-update {command}" if command else "image-update"
    if command and (others := [other for other, flags in options.items() if name in flags]):
        hint = (
            f"{' and '.join((', '.join(others[:-1]), others[-1])) if len(others) > 1 else others[0]}"
            " have it"
        )
        hint = f"{hint}; {called} --help-all shows the options of {command}"
        return UsageError(
            f"{command} has no {name}",
            hint=hint if len(others) > 1 else hint.replace("have", "has", 1),
        )
    if not command and (
        owner := next((other for other, flags in options.items() if name in flags), "")
    ):
        return UsageError(
            f"{name} comes before the command",
            hint=f"write it after: image-update {owner} {name} …",
        )
    if short := _meant_by(name, options.get(command, ())):
        hint = f"did you mean {short}? {called} --help-all shows all options"
        return UsageError(f"there is no option {name}", hint=hint)
    # The beginning of a name says more than a likeness: --app means --application, not --tag.
    begun = sorted((flag for flag in options.get(command, ()) if flag.startswith(name)), key=len)
    near = begun[:1] or get_close_matches(name, options.get(command, ()), n=1)
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


def _missing(param: Any, what: str = "is missing") -> UsageError:
    flag = param.opts[0] if str(param.opts[0]).startswith("--") else str(param.metavar)
    return UsageError(
        f"{flag} {what}", hint=f"{_REQUIRED[param.name]} ({flag}, or the variable {param.envvar})"
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
    return type(error)(named + error.message[flags.end() :], hint=hint, subject=error.subject)
