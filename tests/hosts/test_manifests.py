"""The hosts' manifests: valid, complete, and consistent with the command's options and results."""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hosts.checks import texts
from support import ROOT
from support.host_schemas import problems

from scripts import hosts as table
from scripts.typer_options import options_of
from task import __version__
from task.ci.publish import NAMES as RESULTS
from task.cli import form
from task.cli.call import CI_COMMANDS, parameter_of
from task.option import PARAMETER_PREFIX

TASK, STEP_ACTION, TEMPLATE, ACTION = table.TASK, table.STEP_ACTION, table.TEMPLATE, table.ACTION
MANIFESTS = {"tekton": TASK, "stepaction": STEP_ACTION, "argo": TEMPLATE, "github": ACTION}
GIVEN = table.secrets()  # other secret variables belong to CI systems
# Parameters that a host has in addition to the table.
OWN = {
    "tekton": {"secret", "user-home"},
    "stepaction": {
        "secret", "user-home", "source-directory", "basic-auth-directory", "ssl-ca-directory", "dockerconfig-directory",
    },
    "argo": {"secret", "ssh-secret", "basic-auth-secret", "ca-secret", "dockerconfig-secret"},
    "github": {"github-token", *GIVEN},
}  # fmt: skip
REFERENCE = {
    "tekton": re.compile(r"\$\(params\.([^)[]+)[^)]*\)"),
    "stepaction": re.compile(r"\$\(params\.([^)[]+)[^)]*\)"),
    "argo": re.compile(r"\{\{=?inputs\.parameters\.([\w-]+)[^}]*\}\}"),
    "github": re.compile(r"\$\{\{ inputs\.(\S+) \}\}"),
}
# Tekton Chains interprets these results as "this run built that image".
SIGNED = re.compile(
    r"(IMAGE_URL|IMAGE_DIGEST|ARTIFACT_URI|ARTIFACT_DIGEST|ARTIFACT_OUTPUTS)$|^IMAGES$|^CHAINS-GIT_"
)


@cache
def load(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)


def leaf() -> Any:
    (template,) = (one for one in load(TEMPLATE)["spec"]["templates"] if "container" in one)
    return template


def parameters(host: str) -> dict[str, str | None]:
    """Return declared parameters and their defaults. For required parameters, the default is
    `None`.
    """
    if host in ("tekton", "stepaction"):
        return {one["name"]: one.get("default") for one in load(MANIFESTS[host])["spec"]["params"]}
    if host == "argo":
        return {one["name"]: one.get("value") for one in leaf()["inputs"]["parameters"]}
    return {name: one.get("default") for name, one in load(ACTION)["inputs"].items()}


def declared(path: Path) -> dict[str, Any]:
    """Return all fields in a form, keyed by name."""
    document = next(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    spec = document.get("spec", document)
    if "templates" in spec:
        spec = {"params": leaf()["inputs"]["parameters"]}
    return spec.get("inputs") or {one["name"]: one for one in spec["params"]}


def container(host: str) -> Any:
    if host == "argo":
        return leaf()["container"]
    spec = load(MANIFESTS[host])["spec"]
    return spec["steps"][0] if "steps" in spec else spec


def environment(host: str) -> dict[str, str]:
    if host == "github":
        return dict(load(ACTION)["runs"]["env"])
    return {one["name"]: one.get("value", "") for one in container(host)["env"]}


def results(host: str) -> list[str]:
    if host in ("tekton", "stepaction"):
        return [one["name"] for one in load(MANIFESTS[host])["spec"]["results"]]
    if host == "argo":
        return [one["name"] for one in leaf()["outputs"]["parameters"]]
    return list(load(ACTION)["outputs"])


def used(host: str) -> set[str]:
    return {name for text in texts(load(MANIFESTS[host])) for name in REFERENCE[host].findall(text)}


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        (TASK, "tekton-task-v1"),
        (STEP_ACTION, "tekton-stepaction-v1beta1"),
        (TEMPLATE, "argo-workflows-workflowtemplate-v1alpha1"),
        (table.CLUSTER_TEMPLATE, "argo-workflows-clusterworkflowtemplate-v1alpha1"),
        (ACTION, "github-action"),
    ],
    ids=["tekton", "stepaction", "argo", "argo for the cluster", "github"],
)
def test_each_manifest_matches_the_schema_of_its_host(path: Path, schema: str) -> None:
    assert problems(schema, load(path)) == []


@pytest.mark.parametrize("host", MANIFESTS)
def test_every_parameter_is_declared_and_used(host: str) -> None:
    assert used(host) == set(parameters(host))


@pytest.mark.parametrize(
    ("path", "text"), table.files().items(), ids=lambda one: getattr(one, "stem", "")
)
def test_each_manifest_is_generated_from_the_table(path: Path, text: str) -> None:
    assert path.read_text(encoding="utf-8") == text, "python -m scripts.hosts"


@pytest.mark.parametrize("host", MANIFESTS)
def test_the_parameters_and_defaults_of_a_form_match_the_table(host: str) -> None:
    """A command's options come from Typer, and the table's options from the records."""
    words = table.HOSTS[MANIFESTS[host]]
    own = {name: value or "" for name, value in parameters(host).items() if name not in OWN[host]}
    assert own == {one.name: one.default for one in table.of_host(words)}
    flags = {parameter_of(one) for command in CI_COMMANDS for one in options_of(command)}
    assert set(own) - {"command", "options"} == set(table.FORM) - set(words.settled)
    assert set(table.FORM) <= flags


@pytest.mark.parametrize("path", table.HOSTS, ids=lambda path: path.stem)
def test_a_form_is_small_enough_for_dashboards(path: Path) -> None:
    """Dashboards draw a field for each parameter."""
    assert len(declared(path)) <= table.MOST


@pytest.mark.parametrize("path", table.HOSTS, ids=lambda path: path.stem)
def test_descriptions_refer_to_parameters_and_options_correctly(path: Path) -> None:
    """An option that is not a parameter is written as --name, and passed in the `options`
    parameter.
    """
    for name, one in declared(path).items():
        named = re.findall(r"--([a-z-]+)( \(in options\))?", str(one.get("description", "")))
        assert not [flag for flag, _ in named if flag in table.FORM]
        assert name == "options" or all(noted for _, noted in named), (name, named)


def test_tekton_passes_the_options_as_arguments() -> None:
    """A variable cannot contain an array."""
    for host in ("tekton", "stepaction"):
        assert container(host)["args"] == ["$(params.command)", form.MARK, "$(params.options[*])"]


@pytest.mark.parametrize("path", table.HOSTS, ids=lambda path: path.stem)
def test_common_parameters_have_the_same_names_on_every_host(path: Path) -> None:
    named = declared(path)
    assert set(named) >= {
        *table.ASKED,
        "images-from",
        "dry-run",
        "wait",
        "git-credentials-url",
        "ssh-directory",
    }
    said = named["applications"]["description"]
    assert said.startswith(
        "Where to read Applications from: cluster, argocd, a file or folder of manifests, or REPO//PATH?ref=REF."
    )
    assert "stdin" not in said  # no host provides stdin to a step


@pytest.mark.parametrize("host", MANIFESTS)
def test_every_parameter_has_its_own_variable(host: str) -> None:
    """Pipeline-wide variables have different names, so they are never mistaken for parameters."""
    found = {
        name: value
        for name, value in environment(host).items()
        if name.startswith(PARAMETER_PREFIX)
    }
    own = {*OWN[host], "command"}
    if host in ("tekton", "stepaction"):
        own.add("options")  # an array that is passed as arguments
    variables = {
        PARAMETER_PREFIX + name.upper().replace("-", "_"): name
        for name in parameters(host)
        if name not in own
    }
    assert {name: REFERENCE[host].findall(value) for name, value in found.items()} == {
        variable: [name] for variable, name in variables.items()
    }


@pytest.mark.parametrize("host", ["tekton", "stepaction", "argo"])
def test_no_parameter_can_expand_a_secret(host: str) -> None:
    """The kubelet replaces $(NAME) in a variable's value if NAME is an earlier variable."""
    names = [one["name"] for one in container(host)["env"]]
    last = max(number for number, name in enumerate(names) if name.startswith(PARAMETER_PREFIX))
    assert min(names.index(name) for name in GIVEN.values()) > last


@pytest.mark.parametrize("host", MANIFESTS)
def test_the_declared_results_match_the_written_results(host: str) -> None:
    assert results(host) == list(RESULTS)


@pytest.mark.parametrize("host", MANIFESTS)
def test_no_result_claims_that_the_image_was_built_here(host: str) -> None:
    assert [name for name in results(host) if SIGNED.search(name)] == []


@pytest.mark.parametrize("host", MANIFESTS)
def test_each_manifest_uses_the_image_of_this_version(host: str) -> None:
    images = re.findall(
        r"ghcr\.io/argocd-image-update/image-update:\S+",
        MANIFESTS[host].read_text(encoding="utf-8"),
    )
    made_for = "-action" if host == "github" else ""  # container actions run as root
    assert images == [f"ghcr.io/argocd-image-update/image-update:v{__version__}{made_for}"]


@pytest.mark.parametrize("host", MANIFESTS)
def test_values_are_passed_only_through_the_environment(host: str) -> None:
    if host == "github":
        runs = load(ACTION)["runs"]
        command, arguments = [runs["entrypoint"]], runs["args"]
    else:
        command, arguments = container(host)["command"], container(host)["args"]
        assert "script" not in container(host)
    assert command == ["/usr/local/bin/image-update"]
    assert REFERENCE[host].findall(arguments[0]) == ["command"]
    assert {"command", "options"} >= {
        name for argument in arguments for name in REFERENCE[host].findall(argument)
    }
    assert parameters(host)["command"] == "run"


@pytest.mark.parametrize("host", ["tekton", "stepaction", "argo"])
def test_secrets_come_from_an_optional_secret(host: str) -> None:
    found = {
        one["name"]: one["valueFrom"]["secretKeyRef"]
        for one in container(host)["env"]
        if "valueFrom" in one
    }
    assert set(found) == set(GIVEN.values())
    for name, place in found.items():
        assert REFERENCE[host].fullmatch(place["name"])
        assert place["key"] == name.removeprefix("IMAGE_UPDATE_").lower().replace("_", "-")
        assert place["optional"] is True


def test_github_accepts_every_secret_as_an_input() -> None:
    for key, name in GIVEN.items():
        assert environment("github")[name] == f"${{{{ inputs.{key} }}}}"
        assert parameters("github")[key] == ""


def pod(host: str, hosts_own: Mapping[str, Any]) -> Any:
    """Return the pod as completed by the host, with this security context on the root containers.

    Compared with Argo Workflows 4.1 (`newExecContainer`: `executor.securityContext` of the controller's ConfigMap) and
    Tekton Pipelines 1.15 (`set-security-context`).
    """
    names = ("init", "wait") if host == "argo" else ("prepare", "place-scripts")
    own = [{"name": name, "user": 0, "securityContext": hosts_own} for name in names]
    main = {
        "name": "main",
        "user": 65532,
        "securityContext": container(host).get("securityContext", {}),
    }
    if host == "tekton":
        main["securityContext"] = (
            load(TASK)["spec"]["stepTemplate"]["securityContext"] | main["securityContext"]
        )
    return {
        "securityContext": leaf()["securityContext"] if host == "argo" else {},
        "containers": [*own, main],
    }


def effective(pod: Any) -> dict[str, Mapping[str, Any]]:
    """Return each container's security context, with the values inherited from the pod."""
    inherited = {key: value for key, value in pod["securityContext"].items() if key != "fsGroup"}
    return {
        one["name"]: {"runAsUser": one["user"], **inherited, **one["securityContext"]}
        for one in pod["containers"]
    }


def refused_by_the_kubelet(pod: Any) -> list[str]:
    return [
        name
        for name, one in effective(pod).items()
        if one.get("runAsNonRoot") and one["runAsUser"] == 0
    ]


def refused_by_restricted(pod: Any) -> list[str]:
    """Return the containers that violate the Pod Security Standard `restricted`."""
    wanted = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return [name for name, one in effective(pod).items() if not wanted.items() <= one.items()]


@pytest.mark.parametrize("host", ["tekton", "argo"])
def test_a_pod_starts_on_a_default_installation_without_privileges(host: str) -> None:
    completed = pod(host, {})
    assert refused_by_the_kubelet(completed) == []
    assert "main" not in refused_by_restricted(completed)
    assert effective(completed)["main"]["readOnlyRootFilesystem"] is True


def test_an_argo_pod_meets_the_restricted_policy_with_the_settings_in_the_guide() -> None:
    guide = (ROOT / "docs/how-to/argo-workflows.md").read_text(encoding="utf-8")
    (shown,) = re.findall(
        r"^```yaml\n(apiVersion: v1\nkind: ConfigMap\n.*?)^```", guide, re.MULTILINE | re.DOTALL
    )
    completed = pod(
        "argo", yaml.safe_load(yaml.safe_load(shown)["data"]["executor"])["securityContext"]
    )
    assert refused_by_the_kubelet(completed) == refused_by_restricted(completed) == []


def test_argo_writes_only_to_volumes_declared_in_the_template() -> None:
    mounted = {one["mountPath"] for one in leaf()["container"]["volumeMounts"]}
    declared = {one["name"] for one in leaf()["volumes"]}
    assert {one["name"] for one in leaf()["container"]["volumeMounts"]} == declared
    paths = [one["valueFrom"]["path"] for one in leaf()["outputs"]["parameters"]]
    paths += [
        one["path"] for one in (*leaf()["outputs"]["artifacts"], *leaf()["inputs"]["artifacts"])
    ]
    paths += [value for name, value in environment("argo").items() if name in {"HOME", "TMPDIR"}]
    assert {f"/{path.split('/')[1]}" for path in paths} <= mounted
    assert all(
        one["valueFrom"]["path"] == f"/out/{one['name']}" for one in leaf()["outputs"]["parameters"]
    )


def test_argo_has_a_default_for_every_output() -> None:
    defaults = {one["name"]: one["valueFrom"]["default"] for one in leaf()["outputs"]["parameters"]}
    assert json.loads(defaults["applications"]) == []
    assert json.loads(defaults["image_ARTIFACT_INPUTS"]) == {"uri": "", "digest": ""}
    assert (defaults["status"], defaults["updated"], defaults["applications-count"]) == (
        "failed",
        "false",
        "0",
    )


def test_argo_retries_temporary_failures() -> None:
    assert "asInt(lastRetry.exitCode) == 75" in leaf()["retryStrategy"]["expression"]


def test_locks_and_timeouts_are_left_to_the_caller() -> None:
    """A lock would be held during `--wait`. A time limit might be shorter than `wait-timeout`."""
    assert not leaf().keys() & {"synchronization", "activeDeadlineSeconds", "timeout"}
    assert "timeout" not in load(TASK)["spec"]["steps"][0]


def test_argo_declares_the_report_artifact_as_optional() -> None:
    """Argo fails a step if it cannot store the artifact. By default, Argo has no artifact
    repository.
    """
    assert parameters("argo")["report"] == "false"
    (artifact,) = leaf()["outputs"]["artifacts"]
    assert artifact["optional"] is True
    assert (
        environment("argo")["IMAGE_UPDATE_PARAMETER_REPORT"]
        == f"{{{{=inputs.parameters.report == 'true' ? '{artifact['path']}' : ''}}}}"
    )


def test_the_argo_template_needs_no_fields_that_templateref_drops() -> None:
    spec = load(TEMPLATE)["spec"]
    assert set(spec) == {"entrypoint", "arguments", "templates"}
    assert spec["entrypoint"] == leaf()["name"]
    assert {one["name"] for one in spec["arguments"]["parameters"]} <= set(parameters("argo"))


def test_the_tekton_task_is_named_after_its_file() -> None:
    metadata = load(TASK)["metadata"]
    assert metadata["name"] == TASK.stem == TASK.parent.name
    assert metadata["labels"]["app.kubernetes.io/version"] == __version__
    assert metadata["annotations"]["tekton.dev/pipelines.minVersion"] == "1.0.0"


def test_tekton_declares_the_types_of_structured_results() -> None:
    declared = {one["name"]: one for one in load(TASK)["spec"]["results"]}
    assert declared["applications"]["type"] == "array"
    assert declared["image_ARTIFACT_INPUTS"]["properties"] == {
        "uri": {"type": "string"},
        "digest": {"type": "string"},
    }
    assert environment("tekton")["IMAGE_UPDATE_RESULTS_DIR"] == "/tekton/results"


def test_tekton_workspaces_are_declared_and_used() -> None:
    spec = load(TASK)["spec"]
    names = {
        name
        for text in texts(spec["steps"])
        for name in re.findall(r"\$\(workspaces\.([^.]+)\.", text)
    }
    assert names == {one["name"] for one in spec["workspaces"] if one["optional"]}


def test_the_stepaction_and_the_task_differ_only_in_their_folders() -> None:
    task, action = load(TASK)["spec"], load(STEP_ACTION)["spec"]
    assert (action["description"], action["results"]) == (task["description"], task["results"])
    assert action["securityContext"] == task["stepTemplate"]["securityContext"]
    assert load(STEP_ACTION)["metadata"] == load(TASK)["metadata"]
    folders = {f"{one['name'].removesuffix('-directory')}-directory" for one in task["workspaces"]}
    assert folders - {"report-directory"} <= set(parameters("stepaction"))
    # Only the path of each result is known, so the folder is derived from that path.
    assert environment("stepaction")["IMAGE_UPDATE_RESULTS_DIR"] == "$(step.results.status.path)/.."
    names = [name.lower() for name in parameters("stepaction")]
    assert len(set(names)) == len(names)
    readme = (STEP_ACTION.parent / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z-]+)` \|", readme, re.MULTILINE)) == folders - {
        "ssh-directory", "report-directory",
    }  # fmt: skip


def test_the_cluster_template_differs_from_the_template_only_in_its_kind() -> None:
    assert load(table.CLUSTER_TEMPLATE) == {**load(TEMPLATE), "kind": "ClusterWorkflowTemplate"}
