"""The parameters of a step on Tekton, Argo Workflows, GitHub or GitLab, which come in variables of their own.

A host passes every parameter to every command, as IMAGE_UPDATE_PARAMETER_<NAME>. IMAGE_UPDATE_<NAME> may be set for a
whole pipeline, and be meant for another command. So only a parameter can be refused because a command does not take it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping
from typing import Any

from task.errors import UsageError
from task.option import PARAMETER_PREFIX
from task.secret import Secret
from task.settings import every_option

# What a host calls: these hand over results, however they end.
HOSTED = ("run", "plan", "scan", "promote", "hold", "release", "rollback", "status", "wait")


def adopt(
    environ: MutableMapping[str, str], command: str, commands: Mapping[str, Any]
) -> tuple[Mapping[str, str], UsageError | None]:
    """Make the parameters variables of the command's options.

    A blank parameter counts as not given, and so does one with its default, which every step has. Return what hosts
    call each variable, and an error about the parameters that the command does not take.
    """
    given = {
        name.removeprefix(PARAMETER_PREFIX).lower().replace("_", "-"): environ.pop(name)
        for name in sorted(environ)
        if name.startswith(PARAMETER_PREFIX)
    }
    if not given:
        return {}, None
    if not command:
        return {}, UsageError(f"command: it is none of {', '.join(HOSTED)}", hint="choose one of them")
    known, taken = defaults(), variables(commands[command].params)
    given = {name: text for name, text in given.items() if text.strip() not in ("", known.get(name))}
    environ.update({taken[name]: text for name, text in given.items() if name in taken})
    called = {variable: name for name, variable in taken.items() if name in given or variable not in environ}
    refused = [name for name in given if name not in taken]
    if not refused or command not in HOSTED:  # a script of the job may call `report` or `lint` as well
        return called, None
    it, they = ("them", "they are") if refused[1:] else ("it", "it is")
    others = [one for one in HOSTED if set(refused) <= variables(commands[one].params).keys()]
    hint = f"; {they} for {' or '.join(filter(None, (', '.join(others[:-1]), others[-1])))}" if others else ""
    message = f"{', '.join(refused)}: {command} takes no such parameter"
    return called, UsageError(message, hint=f"leave {it} out{hint}")


def variables(params: Collection[Any]) -> dict[str, str]:
    """Return the variables of a command's options, by the names of the hosts' parameters."""
    return {parameter_of(one): str(one.envvar) for one in params if getattr(one, "envvar", None)}


def parameter_of(one: Any) -> str:
    """Return what hosts call an option."""
    return "names" if one.name == "app" else str(one.opts[0]).removeprefix("--")


def defaults() -> dict[str, str]:
    """Return the default of each option as a text, by the name of the parameter.

    It is "" if the repository's own config decides what is not given.
    """
    return {
        (option.flag or field.name).removeprefix("--").replace("_", "-"): _text(field.default)
        for field, _, option in every_option()
        if not option.argument
    }


def _text(default: Any) -> str:
    if default is None or isinstance(default, tuple | Secret):
        return ""
    return str(default).lower() if isinstance(default, bool) else str(default)
