"""The samples are valid on their hosts, and consistent with the Task and the template they use."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hosts.checks import documents, maps, texts
from support import ROOT
from support.host_schemas import problems, schema_of

from scripts.transcripts import blocks
from scripts.typer_options import commands
from task.cli.call import defaults

(TASK,) = documents(ROOT / "tekton/task/image-update/image-update.yaml")
(STEP_ACTION,) = documents(ROOT / "tekton/stepaction/image-update/image-update.yaml")
(TEMPLATE,) = documents(ROOT / "argo-workflows/image-update/manifests.yaml")
LEAVES = {one["name"]: one for one in TEMPLATE["spec"]["templates"]}
SAMPLES = [
    path
    for host in ("tekton", "argo-workflows")
    for path in sorted((ROOT / host).glob("**/samples/*.yaml"))
]


def name(path: Path) -> str:
    return f"{path.parent.parent.name}/{path.stem}"


def names(declared: Any) -> set[str]:
    return {one["name"] for one in declared}


def uses(path: Path, reference: str) -> Iterator[Mapping[str, Any]]:
    """Yield the parts of a sample that use our files: `taskRef`, `ref`, or `templateRef`."""
    for document in documents(path):
        for one in maps(document):
            if (
                isinstance(one.get(reference), Mapping)
                and one[reference].get("name") == "image-update"
            ):
                yield one


def test_samples_exist_for_the_common_image_builders() -> None:
    assert len(SAMPLES) >= 9
    text = "".join(path.read_text(encoding="utf-8") for path in SAMPLES)
    assert [
        builder for builder in ("moby/buildkit", "buildah", "ko-build/ko") if builder not in text
    ] == []
    assert "kaniko-project" not in text  # kaniko is archived


def seconds(text: str) -> int:
    """Return the number of seconds in a duration in Kubernetes format."""
    return sum(
        int(number) * {"h": 3600, "m": 60, "s": 1}[unit]
        for number, unit in re.findall(r"(\d+)([hms])", text)
    )


def limits() -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Yield the time limits on our step in samples, READMEs, and guides as (place, parameters,
    limit).
    """
    pages = [
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "tekton").rglob("*.md"),
        *(ROOT / "argo-workflows").rglob("*.md"),
    ]
    shown = [
        (path.name, one.code)
        for path in pages
        for one in blocks(path.read_text())
        if one.language == "yaml"
    ]
    shown += [(path.name, path.read_text(encoding="utf-8")) for path in SAMPLES]
    for place, text in shown:
        for one in maps(list(yaml.safe_load_all(text))):
            used = one.get("taskRef") or one.get("ref") or {}
            if isinstance(used, dict) and used.get("name") == "image-update" and "timeout" in one:
                yield (
                    place,
                    {given["name"]: given["value"] for given in one.get("params", ())},
                    one["timeout"],
                )


def test_no_time_limit_is_shorter_than_the_longest_run() -> None:
    """A killed step writes no results. Tekton once killed a wait after ten minutes."""
    forms = {one["name"]: one.get("default") for one in TASK["spec"]["params"]}
    found = list(limits())
    assert found
    for place, params, limit in found:
        options = dict(one.removeprefix("--").split("=", 1) for one in params.get("options", ()))
        given = {**defaults(), **forms, **params, **options}
        waits = int(given["wait-timeout"]) if given["wait"] == "true" else 0
        assert (
            seconds(limit) >= int(given["deadline"]) + waits + int(given["verify-timeout"]) + 600
        ), place


@pytest.mark.parametrize("path", SAMPLES, ids=name)
def test_each_sample_matches_the_schema_of_its_host(path: Path) -> None:
    for document in documents(path):
        assert document["metadata"].get("name") or document["metadata"].get("generateName")
        if schema := schema_of(document):
            assert problems(schema, document) == []


@pytest.mark.parametrize("path", SAMPLES, ids=name)
def test_each_sample_is_listed_in_a_readme(path: Path) -> None:
    assert f"samples/{path.name}" in (path.parent.parent / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", [path for path in SAMPLES if "tekton" in path.parts], ids=name)
def test_tekton_samples_use_only_declared_parameters(path: Path) -> None:
    spec, found = TASK["spec"], [*uses(path, "taskRef")]
    for one in found:
        given = [*one.get("params", ()), *one.get("matrix", {}).get("params", ())]
        assert names(given) <= names(spec["params"])
        assert names(one.get("workspaces", ())) <= names(spec["workspaces"])
        assert "applications" in names(given)
        assert names(given) & {"image", "images-from", "names"}
        for parameter in one.get("params", ()):
            is_array = parameter["name"] == "options"
            assert isinstance(parameter["value"], list if is_array else str)
    for one in uses(path, "ref"):
        assert names(one["params"]) <= names(STEP_ACTION["spec"]["params"])
        found.append(one)
    assert found
    for text in texts(documents(path)):
        for result in re.findall(r"\$\((?:tasks|steps)\.update\.results\.([\w-]+)\)", text):
            assert result in names(spec["results"])


@pytest.mark.parametrize("path", [path for path in SAMPLES if "tekton" in path.parts], ids=name)
def test_tekton_pipelines_refer_only_to_declared_names(path: Path) -> None:
    for document in documents(path):
        if document["kind"] != "Pipeline":
            continue
        spec = document["spec"]
        tasks = names(spec["tasks"])
        for one in (*spec["tasks"], *spec.get("finally", ())):
            outer = {key: value for key, value in one.items() if key != "taskSpec"}
            for text in texts(outer):
                assert set(re.findall(r"\$\(params\.([\w-]+)", text)) <= names(spec["params"])
                assert set(re.findall(r"\$\(tasks\.([\w-]+)\.", text)) <= tasks
            assert {bound["workspace"] for bound in one.get("workspaces", ())} <= names(
                spec["workspaces"]
            )
        assert all("$(" not in step.get("script", "") for step in maps(spec))


@pytest.mark.parametrize(
    "path", [path for path in SAMPLES if "argo-workflows" in path.parts], ids=name
)
def test_argo_samples_use_only_declared_parameters(path: Path) -> None:
    found = [*uses(path, "templateRef")]
    for one in found:
        leaf = LEAVES[one["templateRef"]["template"]]
        values = {
            parameter["name"]: parameter["value"] for parameter in one["arguments"]["parameters"]
        }
        assert set(values) <= names(leaf["inputs"]["parameters"])
        assert values.get("command", "run") in (*commands(), "{{workflow.parameters.command}}")
    for one in uses(path, "workflowTemplateRef"):
        found.append(one)
        given = names(one["arguments"]["parameters"])
        assert given <= names(LEAVES[TEMPLATE["spec"]["entrypoint"]]["inputs"]["parameters"])
        assert {
            required["name"]
            for required in TEMPLATE["spec"]["arguments"]["parameters"]
            if "value" not in required
        } <= given
    assert found
    for text in texts(documents(path)):
        for output in re.findall(r"\{\{steps\.update\.outputs\.parameters\.([\w-]+)\}\}", text):
            assert output in names(LEAVES["update"]["outputs"]["parameters"])


@pytest.mark.parametrize(
    "path", [path for path in SAMPLES if "argo-workflows" in path.parts], ids=name
)
def test_argo_workflows_refer_only_to_declared_names(path: Path) -> None:
    for document in documents(path):
        if document["kind"] not in ("Workflow", "CronWorkflow"):
            continue
        spec = document["spec"].get("workflowSpec", document["spec"])
        templates = names(spec["templates"])
        assert {spec["entrypoint"], *([spec["onExit"]] if "onExit" in spec else [])} <= templates
        assert {
            one["template"]
            for one in maps(spec["templates"])
            if isinstance(one.get("template"), str)
        } - {"update"} <= templates
        declared = names(spec.get("arguments", {}).get("parameters", ()))
        for text in texts(spec):
            assert set(re.findall(r"\{\{workflow\.parameters\.([\w-]+)\}\}", text)) <= declared


def test_the_fan_out_sample_updates_each_repository_separately() -> None:
    (plan, update) = uses(ROOT / "argo-workflows/image-update/samples/fan-out.yaml", "templateRef")
    given = {one["name"]: one["value"] for one in plan["arguments"]["parameters"]}
    each = {one["name"]: one["value"] for one in update["arguments"]["parameters"]}
    assert (given["command"], given["output"]) == ("plan", "repositories")
    assert update["withParam"] == "{{steps.plan.outputs.result}}"
    assert "--only-repository={{item}}" in each["options"].splitlines()
