"""Minimal hosts. Each reads its shipped YAML, and creates the container that the host would start.

An unknown reference, a missing parameter, and an undeclared parameter are errors, as on the host.
This module knows nothing about the manifests except their locations.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hosts.steps import Step, Volume, read_files, rights
from support import ROOT

TASK = ROOT / "tekton" / "task" / "image-update" / "image-update.yaml"
STEP_ACTION = ROOT / "tekton" / "stepaction" / "image-update" / "image-update.yaml"
TEMPLATE = ROOT / "argo-workflows" / "image-update" / "manifests.yaml"
ACTION = ROOT / "action.yml"

Given = Mapping[str, str]
Secrets = Mapping[str, Given]  # Secrets in the namespace: name → key → text
Resolve = Callable[[str], str | Sequence[str]]
NOTHING: Mapping[str, Any] = {}

TEKTON = re.compile(r"\$\(([^()]+)\)")
ARGO = re.compile(r"\{\{([^{}]+)\}\}")
CHOICE = re.compile(
    r"=([\w.-]+) == '([^']*)' \? '([^']*)' : '([^']*)'"
)  # the only Argo expression that we use
GITHUB = re.compile(r"\$\{\{ *([^}]+?) *\}\}")


class Refused(Exception):
    """The host refuses to start the step."""


@cache
def manifest(path: Path) -> Any:
    """Return the only document in a manifest. It is read once, and must not be modified."""
    return yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)


# Tekton


def tekton(
    params: Mapping[str, Any],
    workspaces: Mapping[str, Volume] = NOTHING,
    secrets: Secrets = NOTHING,
    *,
    group: int = 0,
    path: Path = TASK,
) -> Step:
    """Return the step of the Task or StepAction.

    Workspaces are bound to these volumes, and `group` is the pod's fsGroup.
    """
    spec = manifest(path)["spec"]
    step = _merged(spec.get("stepTemplate", {}), spec["steps"][0] if "steps" in spec else spec)
    written = "/tekton/results" if "steps" in spec else "/tekton/steps/step-update/results"
    values = values_of(spec.get("params", ()), params)
    bound = {
        one["name"]: one.get("mountPath", f"/workspace/{one['name']}")
        for one in spec.get("workspaces", ())
        if one["name"] in workspaces or not one.get("optional")
    }
    names = [one["name"] for one in spec.get("results", ())]
    resolve = _tekton_names(
        values, {one["name"]: bound.get(one["name"], "") for one in spec.get("workspaces", ())}
    )
    results = {name: f"{written}/{name}" for name in names}
    step = fill(step, TEKTON, lambda name: _result_path(name, results) or resolve(name))
    volumes = {
        place: Volume() for place in ("/workspace", "/tekton/home", "/tekton/creds", written)
    }
    volumes |= {where: replace(workspaces[name], group=group) for name, where in bound.items()}
    volumes |= _mounts(
        fill(spec.get("volumes", ()), TEKTON, resolve), step.get("volumeMounts", ()), secrets, group
    )
    return Step(
        image=step["image"],
        command=[*step["command"], *step.get("args", ())],
        env=dict(_variables(step["env"], secrets)),
        volumes=volumes,
        results=lambda root: read_files(root, results),
        folder=step.get("workingDir", ""),
        options=[
            *rights(step.get("securityContext", {})),
            *([f"--group-add={group}"] if group else []),
        ],
    )


def _tekton_names(params: Mapping[str, Any], workspaces: Given) -> Resolve:
    def resolve(name: str) -> str | Sequence[str]:
        kind, _, rest = name.partition(".")
        if found := re.fullmatch(r"params(?:\.([\w-]+)|\[['\"]([^'\"]+)['\"]\])(\[\*\])?", name):
            value = params[found[1] or found[2]]
            assert isinstance(value, list) == bool(found[3]), name
            return value  # type: ignore[no-any-return]
        if kind == "workspaces" and rest.rpartition(".")[2] in ("path", "bound"):
            workspace, _, what = rest.rpartition(".")
            path = workspaces[workspace]
            return path if what == "path" else str(bool(path)).lower()
        if kind == "context":
            return name.replace("context.", "")
        if name == "credentials.path":
            return "/tekton/creds"
        raise Refused(name)

    return resolve


def _result_path(name: str, results: Given) -> str:
    found = re.fullmatch(r"(?:step\.)?results\.([\w-]+)\.path", name)
    return results[found[1]] if found else ""


# Argo Workflows


def argo(
    given: Given,
    artifacts: Mapping[str, Volume] = NOTHING,
    secrets: Secrets = NOTHING,
    *,
    template: str = "",
    path: Path = TEMPLATE,
) -> Step:
    """Return a template called by templateRef, or by default the whole manifest as submitted."""
    spec = manifest(path)["spec"]
    templates = {one["name"]: one for one in spec["templates"]}
    submitted = (
        {} if template else values_of(spec.get("arguments", {}).get("parameters", ()), given)
    )
    wanted = templates[template or spec["entrypoint"]]
    values = values_of(
        wanted.get("inputs", {}).get("parameters", ()), given if template else submitted
    )
    wanted = fill(wanted, ARGO, _argo_names(values, submitted))
    container, context = wanted["container"], wanted.get("securityContext", {})
    group = context.get("fsGroup", 0)
    volumes = _mounts(wanted.get("volumes", ()), container.get("volumeMounts", ()), secrets, group)
    for one in wanted.get("inputs", {}).get("artifacts", ()):
        if one["name"] in artifacts:
            volumes[one["path"]] = artifacts[one["name"]]
        elif not one.get("optional"):
            raise Refused(one["name"])
    outputs = {one["name"]: one["valueFrom"]["path"] for one in wanted["outputs"]["parameters"]}
    return Step(
        image=container["image"],
        command=[*container["command"], *container.get("args", ())],
        env=dict(_variables(container["env"], secrets)),
        volumes=volumes,
        results=lambda root: read_files(root, outputs),
        folder=container.get("workingDir", ""),
        options=[*rights(context, container.get("securityContext", {}))],
    )


def _argo_names(given: Given, submitted: Given) -> Resolve:
    def resolve(name: str) -> str:
        if choice := CHOICE.fullmatch(name):
            return choice[3] if resolve(choice[1]) == choice[2] else choice[4]
        kind, _, key = name.rpartition(".")
        if kind == "inputs.parameters":
            return given[key]
        if kind == "workflow.parameters":
            return submitted[key]
        if kind in ("workflow", "pod"):
            return f"{kind}-{key}"
        raise Refused(name)

    return resolve


# GitHub Actions


def github(inputs: Given, workspace: Volume, env: Given = NOTHING, *, token: str = "") -> Step:
    """Return the action's container. The workflow step adds `env`."""
    action = manifest(ACTION)
    runs, declared = action["runs"], action["inputs"]
    assert runs["using"] == "docker"
    values = values_of(
        [{"name": name, "default": "", **one} for name, one in declared.items()], inputs
    )
    context = {"github.token": token, **{f"inputs.{name}": value for name, value in values.items()}}
    context = {
        name: GITHUB.sub(lambda found: context[found[1]], value) for name, value in context.items()
    }
    given = fill(runs, GITHUB, context.__getitem__)
    values = {name: context[f"inputs.{name}"] for name in values}
    files = {
        name: f"/github/file_commands/{name}"
        for name in ("set_output_1", "step_summary_1", "set_env_1")
    }
    theirs = Volume(mode=0o755, owner=1001, group=1001)
    folders = ("home", "workflow", "runner_temp")
    return Step(
        image=given["image"].removeprefix("docker://"),
        command=[given["entrypoint"], *given.get("args", ())],
        env={**_github_variables(values), **env, **given.get("env", {})},
        volumes={
            **{f"/github/{name}": theirs for name in folders},
            "/github/file_commands": replace(
                theirs, files=dict.fromkeys(map(_last, files.values()), "")
            ),
            "/github/workspace": replace(workspace, mode=0o755, owner=1001, group=1001),
        },
        results=lambda root: _github_outputs(read_files(root, files)["set_output_1"]),
        folder="/github/workspace",
    )


def _github_variables(values: Given) -> dict[str, str]:
    """Return the variables that the runner always sets."""
    return {
        **{f"INPUT_{name.upper().replace(' ', '_')}": value for name, value in values.items()},
        "HOME": "/github/home",
        "CI": "true",
        "GITHUB_ACTIONS": "true",
        "GITHUB_ENV": "/github/file_commands/set_env_1",
        "GITHUB_OUTPUT": "/github/file_commands/set_output_1",
        "GITHUB_STEP_SUMMARY": "/github/file_commands/step_summary_1",
        "GITHUB_WORKSPACE": "/github/workspace",
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": "acme/web",
        "GITHUB_SHA": "a" * 40,
        "GITHUB_RUN_ID": "17",
        "GITHUB_RUN_NUMBER": "7",
        "GITHUB_RUN_ATTEMPT": "1",
        "RUNNER_TEMP": "/github/runner_temp",
    }


def _github_outputs(text: str) -> Mapping[str, str]:
    """Parse `name=value` lines, and multi-line values between delimiters."""
    found, lines = {}, iter(text.splitlines())
    for line in lines:
        name, heredoc, delimiter = line.partition("<<")
        if heredoc and "=" not in name:
            found[name] = "\n".join(iter(lambda: next(lines), delimiter))
        else:
            name, _, value = line.partition("=")
            found[name] = value
    return found


def _last(path: str) -> str:
    return path.rpartition("/")[2]


# What they have in common


def values_of(declared: Sequence[Mapping[str, Any]], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return every declared parameter with its given or default value."""
    if unknown := set(given) - {one["name"] for one in declared}:
        raise Refused(f"not declared: {unknown}")
    values = {
        one["name"]: given.get(one["name"], one.get("value", one.get("default")))
        for one in declared
    }
    if missing := [name for name, value in values.items() if value is None]:
        raise Refused(f"not given: {missing}")
    return values


def fill(value: Any, pattern: re.Pattern[str], resolve: Resolve) -> Any:
    """Return part of a manifest with references replaced. A lone list becomes several elements."""
    if isinstance(value, Mapping):
        return {key: fill(one, pattern, resolve) for key, one in value.items()}
    if isinstance(value, list | tuple):
        filled = [(one, fill(one, pattern, resolve)) for one in value]
        return [
            part
            for one, now in filled
            for part in (now if isinstance(one, str) and isinstance(now, list) else [now])
        ]
    if not isinstance(value, str):
        return value
    if (alone := pattern.fullmatch(value)) and not isinstance(found := resolve(alone[1]), str):
        return list(found)
    return pattern.sub(lambda one: str(resolve(one[1])), value)


def _merged(template: Mapping[str, Any], step: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step with the values from the step template added."""
    own = {one["name"] for one in step.get("env", ())}
    env = [
        *(one for one in template.get("env", ()) if one["name"] not in own),
        *step.get("env", ()),
    ]
    context = {**template.get("securityContext", {}), **step.get("securityContext", {})}
    return {**template, **step, "env": env, "securityContext": context}


def _variables(env: Sequence[Mapping[str, Any]], secrets: Secrets) -> Iterator[tuple[str, str]]:
    for one in env:
        if "value" in one:
            yield one["name"], one["value"]
            continue
        ((kind, wanted),) = one["valueFrom"].items()
        assert kind in ("secretKeyRef", "configMapKeyRef"), kind
        found = secrets.get(wanted["name"], {}).get(wanted["key"])
        if found is not None:
            yield one["name"], found
        elif not wanted.get("optional"):
            raise Refused(f"{kind} {wanted}")


def _mounts(
    volumes: Sequence[Mapping[str, Any]],
    mounts: Sequence[Mapping[str, Any]],
    secrets: Secrets,
    group: int,
) -> dict[str, Volume]:
    """Return the volumes that the kubelet mounts, keyed by path."""
    known = {one["name"]: _volume(one, secrets, group) for one in volumes}
    return {
        one["mountPath"]: replace(known[one["name"]], read_only=one.get("readOnly", False))
        for one in mounts
    }


def _volume(volume: Mapping[str, Any], secrets: Secrets, group: int) -> Volume:
    if "emptyDir" in volume:
        return Volume(group=group)
    secret = volume.get("secret") or {
        **volume["configMap"],
        "secretName": volume["configMap"]["name"],
    }
    files = secrets.get(secret["secretName"])
    if files is None and not secret.get("optional"):
        raise Refused(secret["secretName"])
    return Volume(files or {}, secret=True, mode=secret.get("defaultMode", 0o644), group=group)
