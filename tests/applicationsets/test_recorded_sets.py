"""Each recorded case yields the same Applications and errors as a real applicationset-controller.

Compared with Argo CD 3.6.0 on 2026-11-22: the controller, its repo-server, and a Git server behind nginx.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from task.applicationsets.fill import Budget
from task.applicationsets.generators import NamedCluster
from task.applicationsets.rendered_set import Rendered, render

CASES = sorted((Path(__file__).parent.parent / "data" / "applicationsets").glob("*.json"))
# Fields that people added to the Application by hand exist only in the cluster.
BY_HAND = {
    "kept-label",
    "example.com/kept",
    "notified.notifications.argoproj.io",
    "argocd.argoproj.io/refresh",
}


class Files:
    """The files of one repository at one revision."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files

    def paths(self, repo: str, revision: str) -> Sequence[str]:
        assert (repo, revision) == ("https://git.example.com/acme/gitops.git", "main")
        return list(self.files)

    def texts(self, repo: str, revision: str, paths: Sequence[str]) -> Mapping[str, str]:
        assert (repo, revision) == ("https://git.example.com/acme/gitops.git", "main")
        return {path: self.files[path] for path in paths}


def clusters(case: Mapping[str, Any]) -> list[NamedCluster]:
    return [
        NamedCluster(
            one["stringData"]["name"],
            one["stringData"]["server"],
            one["stringData"].get("project", ""),
            one["metadata"].get("labels"),
            one["metadata"].get("annotations"),
        )
        for one in case["clusters"]
    ]


def rendered(case: Mapping[str, Any]) -> Rendered:
    return render(
        case["applicationset"], Files(case["repository"]), Budget(), clusters=clusters(case)
    )


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_applications_match_those_of_the_controller(path: Path) -> None:
    case = json.loads(path.read_text())
    made = sorted(rendered(case).applications, key=lambda app: str(app["metadata"]["name"]))
    wanted = case["applications"]
    if path.stem == "preserved-fields":
        for app in wanted:
            for part in ("labels", "annotations"):
                app["metadata"][part] = {
                    k: v for k, v in app["metadata"][part].items() if k not in BY_HAND
                }
            app["metadata"]["labels"]["team"] = "shop"
            del app["spec"]["source"]["kustomize"]
    assert [{"metadata": app["metadata"], "spec": app["spec"]} for app in made] == wanted
    assert all(
        (app["apiVersion"], app["kind"]) == ("argoproj.io/v1alpha1", "Application") for app in made
    )


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_errors_match_those_of_the_controller(path: Path) -> None:
    case = json.loads(path.read_text())
    (wanted,) = (one for one in case["conditions"] if one["type"] == "ErrorOccurred")
    troubles = rendered(case).troubles
    if wanted["status"] == "False":
        assert not troubles
        return
    (found,) = troubles
    assert found.rule == wanted["reason"]
    # For a non-string value, Argo CD names neither the element nor the key. We append both.
    assert found.message.startswith(wanted["message"].removesuffix(" %!w(<nil>)"))
    assert found.message == wanted["message"] or path.stem == "list-fasttemplate-not-a-text"


def test_a_nested_matrix_cannot_use_a_key_of_its_sibling_generator() -> None:
    """The controller's message is not recorded because part of its text varies from run to run."""
    case = json.loads(next(path for path in CASES if path.stem == "matrix-nested").read_text())
    case["applicationset"]["spec"]["goTemplateOptions"] = ["missingkey=error"]
    (trouble,) = rendered(case).troubles
    assert trouble.message == (
        "failed to get params for second generator in the matrix generator: child generator returned an error on "
        "parameter generation: failed to replace parameters in generator: failed to deeply replace JSON field "
        "contents: failed to execute go template git.example.com/acme/{{.app}}: template: base:1:23: "
        'executing "base" at <.app>: map has no entry for key "app"'
    )
