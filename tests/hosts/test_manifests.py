"""The manifests of the hosts: valid, complete, and in step with the command's options and results."""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from host_schemas import problems
from hosts.checks import texts
from support import ROOT

from scripts import hosts as table
from scripts.typer_options import all_options
from task import __version__
from task.ci.results import NAMES as RESULTS
from task.settings import SECRETS

TASK = ROOT / "tekton" / "task" / "image-update" / "image-update.yaml"
TEMPLATE = ROOT / "argo-workflows" / "image-update" / "manifests.yaml"
ACTION = ROOT / "action.yml"
COMPONENT = ROOT / "templates" / "image-update.yml"
STEP_ACTION = ROOT / "tekton" / "stepaction" / "image-update" / "image-update.yaml"
MANIFESTS = {"tekton": TASK, "argo": TEMPLATE, "github": ACTION}

MOUNTED = {"basic-auth-directory", "ca-file"}  # workspaces of Tekton, Secrets of Argo Workflows
GIVEN = [one for one in SECRETS if one.startswith("IMAGE_UPDATE_")]  # the others are variables of CI systems
# What a host settles itself; and what it adds to the command's options, or has another default for.
SETTLED = {
    "tekton": {"results-dir", "dotenv", *MOUNTED},
    "argo": {"results-dir", "dotenv", *MOUNTED},
    "github": {"results-dir", "dotenv"},
}
OWN = {
    "tekton": {"command", "secret", "user-home"},
    "argo": {
        "command",
        "report",
        "secret",
        "ssh-secret",
        "ssh-directory",
        "basic-auth-secret",
        "ca-secret",
        "dockerconfig-secret",
    },
    "github": {
        "command",
        "github-token",
        *(one.removeprefix("IMAGE_UPDATE_").lower().replace("_", "-") for one in GIVEN),
    },
}
# What most pipelines use has the same name on every host.
EVERYWHERE = {
    "image", "image-digest", "images-from", "applications", "application", "dry-run", "require-match", "pin-digest",
    "pull-request", "auto-merge", "forge-token-file", "git-username", "git-password-file", "git-credentials-url",
    "ssh-directory", "wait", "wait-timeout", "output", "report", "log-level", "command",
}  # fmt: skip
REFERENCE = {
    "tekton": re.compile(r"\$\(params\.([^)]+)\)"),
    "argo": re.compile(r"\{\{=?inputs\.parameters\.([\w-]+)[^}]*\}\}"),
    "github": re.compile(r"\$\{\{ inputs\.(\S+) \}\}"),
}
# Tekton Chains reads these as "this run built that image".
SIGNED = re.compile(r"(IMAGE_URL|IMAGE_DIGEST|ARTIFACT_URI|ARTIFACT_DIGEST|ARTIFACT_OUTPUTS)$|^IMAGES$|^CHAINS-GIT_")


@cache
def load(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)


def leaf() -> Any:
    (template,) = (one for one in load(TEMPLATE)["spec"]["templates"] if "container" in one)
    return template


def parameters(host: str) -> dict[str, str | None]:
    """Declared parameters and their defaults; `None` for a required one."""
    if host == "tekton":
        return {one["name"]: one.get("default") for one in load(TASK)["spec"]["params"]}
    if host == "argo":
        return {one["name"]: one.get("value") for one in leaf()["inputs"]["parameters"]}
    return {name: one.get("default") for name, one in load(ACTION)["inputs"].items()}


def container(host: str) -> Any:
    return load(TASK)["spec"]["steps"][0] if host == "tekton" else leaf()["container"]


def environment(host: str) -> dict[str, str]:
    if host == "github":
        return dict(load(ACTION)["runs"]["env"])
    return {one["name"]: one.get("value", "") for one in container(host)["env"]}


def results(host: str) -> list[str]:
    if host == "tekton":
        return [one["name"] for one in load(TASK)["spec"]["results"]]
    if host == "argo":
        return [one["name"] for one in leaf()["outputs"]["parameters"]]
    return list(load(ACTION)["outputs"])


def used(host: str) -> set[str]:
    return {name for text in texts(load(MANIFESTS[host])) for name in REFERENCE[host].findall(text)}


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        (TASK, "tekton-task-v1"),
        (TEMPLATE, "argo-workflows-workflowtemplate-v1alpha1"),
        (ACTION, "github-action"),
    ],
    ids=MANIFESTS,
)
def test_is_what_the_host_takes(path: Path, schema: str) -> None:
    assert problems(schema, load(path)) == []


@pytest.mark.parametrize("host", MANIFESTS)
def test_every_parameter_is_declared_and_used(host: str) -> None:
    assert used(host) == set(parameters(host))


@pytest.mark.parametrize("host", MANIFESTS)
def test_every_option_is_a_parameter_with_its_default(host: str) -> None:
    settled = SETTLED[host] | OWN[host]
    expected = {name_of(one): host_default_of(one) for one in options_of("run") if name_of(one) not in settled}
    declared = {name: value for name, value in parameters(host).items() if name not in OWN[host]}
    assert declared == expected


@pytest.mark.parametrize("path", [*MANIFESTS.values(), COMPONENT, STEP_ACTION], ids=lambda path: path.stem)
def test_what_most_pipelines_use_is_called_the_same_everywhere(path: Path) -> None:
    document = next(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    spec = document.get("spec", document)
    if "templates" in spec:
        spec = leaf()["inputs"] | {"params": leaf()["inputs"]["parameters"]}
    named = spec.get("inputs") or {one["name"]: one for one in spec["params"]}
    assert set(named) >= EVERYWHERE
    said = named["applications"]["description"]
    assert said.startswith(
        "Read Applications from cluster, argocd, a file or folder of manifests, or REPO//PATH?ref=REF."
    )
    assert "stdin" not in said  # no host gives a step any


@pytest.mark.parametrize("host", MANIFESTS)
def test_every_variable_belongs_to_an_option(host: str) -> None:
    given = {name: value for name, value in environment(host).items() if name.startswith("IMAGE_UPDATE_")}
    given = {name: value for name, value in given.items() if name not in SECRETS}
    known = {str(one.envvar): name_of(one) for one in all_options()}
    assert set(given) <= set(known)
    for variable, value in given.items():
        names = REFERENCE[host].findall(value)
        assert names in ([known[variable]], [])
        assert names or known[variable] in SETTLED[host]


@pytest.mark.parametrize("host", MANIFESTS)
def test_the_declared_results_are_those_written(host: str) -> None:
    assert results(host) == list(RESULTS)


@pytest.mark.parametrize("host", MANIFESTS)
def test_no_result_claims_that_the_image_was_built_here(host: str) -> None:
    assert [name for name in results(host) if SIGNED.search(name)] == []


@pytest.mark.parametrize("host", MANIFESTS)
def test_the_image_is_of_this_version(host: str) -> None:
    images = re.findall(r"ghcr\.io/argocd-image-update/image-update:\S+", MANIFESTS[host].read_text(encoding="utf-8"))
    made_for = "-action" if host == "github" else ""  # a container action runs as root
    assert images == [f"ghcr.io/argocd-image-update/image-update:v{__version__}{made_for}"]


@pytest.mark.parametrize("host", MANIFESTS)
def test_values_travel_by_environment_only(host: str) -> None:
    if host == "github":
        runs = load(ACTION)["runs"]
        command, arguments = [runs["entrypoint"]], runs["args"]
    else:
        command, arguments = container(host)["command"], container(host)["args"]
        assert "script" not in container(host)
    assert command == ["/usr/local/bin/image-update"]
    (argument,) = arguments
    assert REFERENCE[host].findall(argument) == ["command"]
    assert parameters(host)["command"] == "run"


@pytest.mark.parametrize("host", ["tekton", "argo"])
def test_secrets_come_from_a_secret_that_need_not_exist(host: str) -> None:
    found = {one["name"]: one["valueFrom"]["secretKeyRef"] for one in container(host)["env"] if "valueFrom" in one}
    assert set(found) == set(GIVEN)
    for name, place in found.items():
        assert REFERENCE[host].fullmatch(place["name"])
        assert place["key"] == name.removeprefix("IMAGE_UPDATE_").lower().replace("_", "-")
        assert place["optional"] is True
    readme = (MANIFESTS[host].parent / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \| `(IMAGE_UPDATE_[A-Z_]+)` \|", readme, re.MULTILINE)
    assert rows == [(place["key"], name) for name, place in found.items()]


def test_github_takes_every_secret_as_an_input() -> None:
    for name in GIVEN:
        key = name.removeprefix("IMAGE_UPDATE_").lower().replace("_", "-")
        assert environment("github")[name] == f"${{{{ inputs.{key} }}}}"
        assert parameters("github")[key] == ""


def pod(host: str, hosts_own: Mapping[str, Any]) -> Any:
    """Return the pod as the host completes it: its own containers, from an image of root, have this security context.

    Compared with Argo Workflows 4.1 (`newExecContainer`: `executor.securityContext` of the controller's ConfigMap) and
    Tekton Pipelines 1.15 (`set-security-context`).
    """
    names = ("init", "wait") if host == "argo" else ("prepare", "place-scripts")
    own = [{"name": name, "user": 0, "securityContext": hosts_own} for name in names]
    main = {"name": "main", "user": 65532, "securityContext": container(host).get("securityContext", {})}
    if host == "tekton":
        main["securityContext"] = load(TASK)["spec"]["stepTemplate"]["securityContext"] | main["securityContext"]
    return {"securityContext": leaf()["securityContext"] if host == "argo" else {}, "containers": [*own, main]}


def effective(pod: Any) -> dict[str, Mapping[str, Any]]:
    """Return each container's security context, with what it takes over from the pod."""
    inherited = {key: value for key, value in pod["securityContext"].items() if key != "fsGroup"}
    return {one["name"]: {"runAsUser": one["user"], **inherited, **one["securityContext"]} for one in pod["containers"]}


def refused_by_the_kubelet(pod: Any) -> list[str]:
    return [name for name, one in effective(pod).items() if one.get("runAsNonRoot") and one["runAsUser"] == 0]


def refused_by_restricted(pod: Any) -> list[str]:
    """Return the containers that break the Pod Security Standard `restricted`."""
    wanted = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return [name for name, one in effective(pod).items() if not wanted.items() <= one.items()]


@pytest.mark.parametrize("host", ["tekton", "argo"])
def test_starts_on_a_default_installation_without_rights(host: str) -> None:
    completed = pod(host, {})
    assert refused_by_the_kubelet(completed) == []
    assert "main" not in refused_by_restricted(completed)
    assert effective(completed)["main"]["readOnlyRootFilesystem"] is True


def test_argo_starts_under_restricted_with_the_setting_of_the_guide() -> None:
    guide = (ROOT / "docs/how-to/argo-workflows.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```yaml\n(apiVersion: v1\nkind: ConfigMap\n.*?)^```", guide, re.MULTILINE | re.DOTALL)
    completed = pod("argo", yaml.safe_load(yaml.safe_load(shown)["data"]["executor"])["securityContext"])
    assert refused_by_the_kubelet(completed) == refused_by_restricted(completed) == []


def test_argo_writes_to_volumes_that_the_template_declares() -> None:
    mounted = {one["mountPath"] for one in leaf()["container"]["volumeMounts"]}
    declared = {one["name"] for one in leaf()["volumes"]}
    assert {one["name"] for one in leaf()["container"]["volumeMounts"]} == declared
    paths = [one["valueFrom"]["path"] for one in leaf()["outputs"]["parameters"]]
    paths += [one["path"] for one in (*leaf()["outputs"]["artifacts"], *leaf()["inputs"]["artifacts"])]
    paths += [value for name, value in environment("argo").items() if name in {"HOME", "TMPDIR"}]
    assert {f"/{path.split('/')[1]}" for path in paths} <= mounted
    assert all(one["valueFrom"]["path"] == f"/out/{one['name']}" for one in leaf()["outputs"]["parameters"])


def test_argo_has_a_default_for_every_output() -> None:
    defaults = {one["name"]: one["valueFrom"]["default"] for one in leaf()["outputs"]["parameters"]}
    assert json.loads(defaults["applications"]) == []
    assert json.loads(defaults["image_ARTIFACT_INPUTS"]) == {"uri": "", "digest": ""}
    assert (defaults["status"], defaults["updated"], defaults["applications-count"]) == ("failed", "false", "0")


def test_argo_tries_again_what_is_temporary() -> None:
    assert "asInt(lastRetry.exitCode) == 75" in leaf()["retryStrategy"]["expression"]


def test_a_caller_decides_about_locks_and_time() -> None:
    """A lock would be held all through `--wait`; a limit of ours would be shorter than somebody's `wait-timeout`."""
    assert not leaf().keys() & {"synchronization", "activeDeadlineSeconds", "timeout"}
    assert "timeout" not in load(TASK)["spec"]["steps"][0]


def test_argo_keeps_a_report_only_where_it_is_wanted() -> None:
    """Argo fails a step whose artifact it cannot keep, and a plain installation has no artifact repository."""
    assert parameters("argo")["report"] == "false"
    (artifact,) = leaf()["outputs"]["artifacts"]
    assert artifact["optional"] is True
    assert (
        environment("argo")["IMAGE_UPDATE_REPORT"]
        == f"{{{{=inputs.parameters.report == 'true' ? '{artifact['path']}' : ''}}}}"
    )


def test_argo_needs_nothing_that_templateref_leaves_behind() -> None:
    spec = load(TEMPLATE)["spec"]
    assert set(spec) == {"entrypoint", "arguments", "templates"}
    assert spec["entrypoint"] == leaf()["name"]
    assert {one["name"] for one in spec["arguments"]["parameters"]} <= set(parameters("argo"))


def test_tekton_names_the_file_as_the_task() -> None:
    metadata = load(TASK)["metadata"]
    assert metadata["name"] == TASK.stem == TASK.parent.name
    assert metadata["labels"]["app.kubernetes.io/version"] == __version__
    assert metadata["annotations"]["tekton.dev/pipelines.minVersion"] == "1.0.0"


def test_tekton_declares_the_shape_of_structured_results() -> None:
    declared = {one["name"]: one for one in load(TASK)["spec"]["results"]}
    assert declared["applications"]["type"] == "array"
    assert declared["image_ARTIFACT_INPUTS"]["properties"] == {"uri": {"type": "string"}, "digest": {"type": "string"}}
    assert environment("tekton")["IMAGE_UPDATE_RESULTS_DIR"] == "/tekton/results"


def test_tekton_workspaces_are_declared_and_used() -> None:
    spec = load(TASK)["spec"]
    names = {name for text in texts(spec["steps"]) for name in re.findall(r"\$\(workspaces\.([^.]+)\.", text)}
    assert names == {one["name"] for one in spec["workspaces"] if one["optional"]}


@pytest.mark.parametrize("host", ["tekton", "argo"])
def test_the_readme_lists_every_parameter_and_result(host: str) -> None:
    readme = (MANIFESTS[host].parent / "README.md").read_text(encoding="utf-8")
    sections = {part.partition("\n")[0]: part for part in readme.split("\n## ")}
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.*) \|$", sections["Parameters"], re.MULTILINE))
    shown = {
        name: f"{'*required*' if value is None else f'`{value}`' if value else ''} |"
        for name, value in parameters(host).items()
    }
    assert {name: row[: len(shown[name])] for name, row in rows.items()} == shown
    told = sections["Results" if host == "tekton" else "Outputs"]
    assert re.findall(r"^\| `([^`]+)` \|", told, re.MULTILINE) == results(host)
