"""The parameter `options` of a host's form: options without a parameter of their own.

Dashboards draw a field for each parameter, so only those that people fill in are parameters.
Everything else is written as on the command line, one option per line. No shell reads it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from task.cli.mistakes import unknown_option
from task.errors import UsageError
from task.option import variable_of

# After this word, the arguments are those of `options`. Tekton hands over an array in no other way.
MARK = "--options"
_ENTRY = re.compile(r"(--[a-z][a-z0-9-]*)(?:\s*=\s*|\s+|$)(.*)", re.DOTALL)
# The manifest says where the host reads the results, and where it mounts certificates and logins.
_RESULTS = ("--results-dir", "--dotenv")
_MOUNTED = ("--basic-auth-directory", "--ca-file", "--report")
# Files with a secret that the manifest may pass as a variable.
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
    """Return what `options` adds to the command line.

    `flags` has the options of each command, as Typer knows them, and `parameters` the names of the
    form's other parameters. Raises `UsageError` for an entry that is not an option, or that the
    form or the manifest gives.
    """
    known = {name: flag for flag in flags[command] for name in (*flag.opts, *flag.secondary_opts)}
    texts = (entry.strip() for entry in entries)
    found = (
        _as_argument(
            text,
            command,
            known,
            flags,
            parameters,
            environ,
        )
        for text in texts
        if text
    )
    return [word for word in found if word]


def _as_argument(
    text: str,
    command: str,
    known: Mapping[str, Any],
    flags: Mapping[str, Collection[Any]],
    parameters: Collection[str],
    environ: Mapping[str, str],
) -> str:
    """Return what one entry adds: "" if its value is empty, which counts as not given."""
    entry = _ENTRY.fullmatch(text)
    if entry is None:
        hint = "write one option per line, as --name value or --name=value; names begin with --"
        raise UsageError(f"options: {text[:200]!r} is not an option with its value", hint=hint)
    name = entry[1]
    value = entry[2].strip()
    _refuse_what_is_given(name, known.get(name), parameters, environ)
    if name not in known or known[name].hidden:
        names = {one: _flags_of(params) for one, params in flags.items()}
        error = unknown_option(name, command, names)
        raise UsageError(f"options: {error.message}", hint=error.hint)
    if known[name].is_flag:
        if value:
            switch = str(known[name].opts[0])
            hint = f"write {switch} or --no-{switch.removeprefix('--')} alone"
            raise UsageError(f"options: {name} takes no value", hint=hint)
        return name
    if text.endswith("=") and not value:
        return ""
    if not value:
        raise UsageError(f"options: {name} needs a value", hint=f"write {name} value")
    return f"{name}={value}"


def _refuse_what_is_given(
    name: str,
    option: Any,
    parameters: Collection[str],
    environ: Mapping[str, str],
) -> None:
    """Raise `UsageError` for an option that repeats a parameter or undoes what is set."""
    first = str(option.opts[0]) if option is not None else name
    named = first.removeprefix("--")
    if named in parameters:
        raise UsageError(
            f"options: {name} is a parameter of its own",
            hint=f"set the parameter {named}",
        )
    if first in _RESULTS or (first in _MOUNTED and variable_of(first) in environ):
        raise UsageError(f"options: the manifest sets {name}", hint="leave it out")
    secret = _SECRETS.get(first, "")
    if secret and environ.get(secret, "").strip():
        hint = "leave it out, or remove the key from the secret"
        raise UsageError(
            f"options: the manifest's secret already gives what {name} reads",
            hint=hint,
        )


def _flags_of(params: Collection[Any]) -> list[str]:
    return [flag for param in params if not getattr(param, "hidden", False) for flag in param.opts]
