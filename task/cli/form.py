"""The parameter `options` in a CI system's form, for options that do not have a dedicated
parameter.

Dashboards display a field for each parameter, so only options that people fill in interactively
have one. All other options are written as on the command line, one per line, and never pass through
a shell.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from task.cli.mistakes import unknown_option
from task.errors import UsageError
from task.option import variable_of

# The arguments after this marker come from `options`, because Tekton can pass an array only as
# arguments.
MARK = "--options"
_ENTRY = re.compile(r"(--[a-z][a-z0-9-]*)(?:\s*=\s*|\s+|$)(.*)", re.DOTALL)
# Options that the manifest sets: where the CI system reads results, and where it mounts
# certificates and credentials.
_RESULTS = ("--results-dir", "--dotenv")
_MOUNTED = ("--basic-auth-directory", "--ca-file", "--report")
# Options for secrets, which the manifest may pass in variables.
_SECRETS = {
    "--ssh-key-file": "IMAGE_UPDATE_SSH_KEY",
    "--github-app-key-file": "IMAGE_UPDATE_GITHUB_APP_KEY",
    "--argocd-auth-token-file": "IMAGE_UPDATE_ARGOCD_AUTH_TOKEN",
    "--registry-password-file": "IMAGE_UPDATE_REGISTRY_PASSWORD",
}


def arguments(
    entries: Sequence[str],
    command: str,
    flags: Mapping[str, Collection[Any]],
    parameters: Collection[str],
    environ: Mapping[str, str],
) -> list[str]:
    """Return the arguments that the `options` parameter adds to the command line.

    `entries` are the parameter's lines, such as `--tag 1.2`, which becomes `--tag=1.2`. `flags`
    contains each command's Typer options, and `parameters` contains the names of the form's other
    parameters. Raises `UsageError` for an entry that is not an option, or for an option that the
    form or the manifest already sets.
    """
    option_by_name = {}
    for option in flags[command]:
        for name in (*option.opts, *option.secondary_opts):
            option_by_name[name] = option

    words = []
    for entry in entries:
        text = entry.strip()
        if not text:
            continue
        word = _as_argument(text, command, option_by_name, flags, parameters, environ)
        if word:
            words.append(word)
    return words


def _as_argument(
    text: str,
    command: str,
    option_by_name: Mapping[str, Any],
    flags: Mapping[str, Collection[Any]],
    parameters: Collection[str],
    environ: Mapping[str, str],
) -> str:
    """Convert an entry of `options` to a command-line argument: `--name=value`, or `--name` for a
    flag.

    An option with an empty value (`--name=`) counts as unset, and the result is "". Raises
    `UsageError` for an invalid entry.
    """
    entry = _ENTRY.fullmatch(text)
    if entry is None:
        raise UsageError(
            f"options: {text[:200]!r} is not a valid option",
            hint="use one option per line, as --name value or --name=value; names start with --",
        )
    name, value = entry.groups()
    value = value.strip()

    option = option_by_name.get(name)
    _refuse_repeated_option(name, option, parameters, environ)
    if option is None or option.hidden:  # hidden: an old name
        flags_of_commands = {other: shown_flags(params) for other, params in flags.items()}
        error = unknown_option(name, command, flags_of_commands)
        raise UsageError(f"options: {error.message}", hint=error.hint)

    if option.is_flag:
        if value:
            flag = str(option.opts[0])
            raise UsageError(
                f"options: {name} does not take a value",
                hint=f"use {flag} or --no-{flag.removeprefix('--')} without a value",
            )
        return name

    is_unset = not value and text.endswith("=")
    if is_unset:
        return ""
    if not value:
        raise UsageError(f"options: {name} requires a value", hint=f"use {name} value")
    return f"{name}={value}"


def _refuse_repeated_option(
    name: str,
    option: Any,
    parameters: Collection[str],
    environ: Mapping[str, str],
) -> None:
    """Raise `UsageError` for an option that has a dedicated parameter in the form, or that the
    manifest (the CI system's definition of this step) already sets.

    `option` is the Typer option called `name`, or None if there is no such option.
    """
    flag = str(option.opts[0]) if option is not None else name  # `name` may be a short form
    parameter = flag.removeprefix("--")
    if parameter in parameters:
        raise UsageError(
            f"options: {name} has its own parameter",
            hint=f"set the parameter {parameter} instead",
        )

    is_mounted = flag in _MOUNTED and variable_of(flag) in environ
    is_set_by_manifest = is_mounted or flag in _RESULTS
    if is_set_by_manifest:
        raise UsageError(f"options: the manifest already sets {name}", hint="remove it")

    secret_variable = _SECRETS.get(flag, "")
    if secret_variable and environ.get(secret_variable, "").strip():
        raise UsageError(
            f"options: {name} duplicates a credential in the manifest's secret",
            hint="remove the option, or remove the key from the secret",
        )


def shown_flags(params: Collection[Any]) -> list[str]:
    """Return the flags listed in a command's help. `params` are the command's Typer options."""
    shown_params = [param for param in params if not getattr(param, "hidden", False)]
    return [flag for param in shown_params for flag in param.opts]
