"""Manifests that are made from others: in step with them, and what the host takes."""

import re
from typing import Any

import pytest
import yaml
from host_schemas import problems
from hosts.checks import texts
from support import ROOT

from scripts import cluster_template, stepaction

TASK = yaml.safe_load(stepaction.TASK.read_text(encoding="utf-8"))
STEP_ACTION = yaml.safe_load(stepaction.STEP_ACTION.read_text(encoding="utf-8"))
PARAMS = [one["name"] for one in TASK["spec"]["params"]]
# Where the Task has a parameter of the same name, that one is the path.
FOLDERS = [stepaction.folder_of(one["name"]) for one in TASK["spec"]["workspaces"] if one["name"] not in PARAMS]


@pytest.mark.parametrize(
    ("module", "path"), [(stepaction, stepaction.STEP_ACTION), (cluster_template, cluster_template.CLUSTER)]
)
def test_is_made_from_its_source(module: Any, path: Any) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == module.rendered(), f"python -m {module.__name__}"
    assert "do not edit" in text.partition("\n")[0]


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        (stepaction.STEP_ACTION, "tekton-stepaction-v1beta1"),
        (cluster_template.CLUSTER, "argo-workflows-clusterworkflowtemplate-v1alpha1"),
    ],
)
def test_is_what_the_host_takes(path: Any, schema: str) -> None:
    assert problems(schema, yaml.safe_load(path.read_text(encoding="utf-8"))) == []


def test_the_cluster_template_differs_by_its_kind_alone() -> None:
    one, other = (yaml.safe_load(path.read_text()) for path in (cluster_template.TEMPLATE, cluster_template.CLUSTER))
    assert other == {**one, "kind": "ClusterWorkflowTemplate"}


def test_the_stepaction_has_the_parameters_of_the_task_and_a_path_for_each_workspace() -> None:
    names = [one["name"] for one in STEP_ACTION["spec"]["params"]]
    assert names == PARAMS + FOLDERS
    assert len({name.lower() for name in names}) == len(names)
    paths = [one for one in STEP_ACTION["spec"]["params"] if one["name"] in FOLDERS]
    assert [one["default"] for one in paths] == [""] * len(FOLDERS)


def test_the_folders_of_logins_are_called_alike() -> None:
    assert FOLDERS == ["source-directory", "basic-auth-directory", "ssl-ca-directory", "dockerconfig-directory"]
    assert "ssh-directory" in PARAMS


def test_the_stepaction_uses_what_it_declares_and_nothing_else() -> None:
    used = {name for text in texts(STEP_ACTION["spec"]) for name in re.findall(r"\$\(params\.([^)]+)\)", text)}
    assert used == {one["name"] for one in STEP_ACTION["spec"]["params"]}
    others = {name for text in texts(STEP_ACTION["spec"]) for name in re.findall(r"\$\(([^)]+)\)", text)}
    assert {name for name in others if not name.startswith("params.")} == {"step.results.status.path"}


def test_the_stepaction_has_the_results_of_the_task() -> None:
    assert STEP_ACTION["spec"]["results"] == TASK["spec"]["results"]


def test_the_results_of_a_stepaction_lie_beside_the_one_whose_path_it_knows() -> None:
    env = {one["name"]: one.get("value") for one in STEP_ACTION["spec"]["env"]}
    assert env["IMAGE_UPDATE_RESULTS_DIR"] == "$(step.results.status.path)/.."


def test_the_readme_lists_the_paths() -> None:
    readme = (ROOT / "tekton/stepaction/image-update/README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z-]+)` \|", readme, re.MULTILINE)) == set(FOLDERS)
