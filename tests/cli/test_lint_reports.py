"""Machine-readable lint reports: JUnit, SARIF, and GitLab Code Quality."""

import json
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from support import DATA, image_update

from task.annotations.lint import Finding, noted
from task.cli import lint_views

FACTS = json.loads((DATA / "findings.json").read_text(encoding="utf-8"))
WRONG = """apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: web
  namespace: argocd
  annotations:
    argocd-image-updater.argoproj.io/image-list: web=ghcr.io/acme/web
    argocd-image-updater.argoproj.io/web.allow-tags: ^v1
    argocd-image-updater.argoproj.io/old.allow-tags: any
spec:
  project: default
  source: {repoURL: https://git.example.com/gitops.git, path: apps/web, targetRevision: main}
  destination: {namespace: web}
"""


def finding(severity: Any = "error", *, message: str = "it is wrong", key: str = "") -> Finding:
    return Finding(noted(severity, message, "write it right"), "argocd/web", key, "value")


FOUND: dict[str, list[lint_views.Placed]] = {
    "nothing": [],
    "every severity": [
        (finding("error", key="web.allow-tags"), "apps/web.yaml", 7),
        (finding("warning"), "apps/my app.yaml", 0),
        (finding("info", message="<b>&\"'"), "", 0),
    ],
    "twice the same": [(finding(), "apps/web.yaml", 7), (finding(), "apps/web.yaml", 9)],
    "from Git": [(finding(), "https://git.example.com/gitops.git//apps/web.yaml", 7)],
    "from stdin": [(finding(), "stdin", 7)],
    "an absolute path": [(finding(), f"{os.getcwd()}/apps/web.yaml", 7)],
    "of nobody": [(Finding(noted("error", "no Application", "")), "", 0)],
    "a login": [(finding(message="https://ann:s3cret@git.example.com/x is no key"), "a.yaml", 1)],
}
EACH = pytest.mark.parametrize("found", FOUND.values(), ids=FOUND)


@EACH
@pytest.mark.parametrize("form", ["sarif", "gitlab"])
def test_sarif_and_gitlab_reports_match_their_schemas(
    found: list[lint_views.Placed], form: str
) -> None:
    document = json.loads(lint_views.REPORTS[form](found))
    errors = jsonschema.Draft7Validator(FACTS[form]).iter_errors(document)
    assert [f"{error.json_path}: {error.message}" for error in errors] == []


@EACH
def test_junit_reports_contain_only_known_elements(found: list[lint_views.Placed]) -> None:
    root = ET.fromstring(lint_views.junit(found))  # noqa: S314 - our own
    for element in root.iter():
        known = FACTS["junit"][element.tag]
        assert set(known["required"]) <= set(element.attrib) <= set(known["attributes"])
        assert {child.tag for child in element} <= set(known["children"])
    for counted in (root, *root):
        assert int(counted.attrib["tests"]) == len(list(counted.iter("testcase")))
        assert int(counted.attrib["failures"]) == len(list(counted.iter("failure")))


@EACH
@pytest.mark.parametrize("form", lint_views.REPORTS)
def test_no_report_contains_credentials(found: list[lint_views.Placed], form: str) -> None:
    assert "s3cret" not in lint_views.REPORTS[form](found)


def test_each_finding_has_a_unique_and_stable_fingerprint() -> None:
    def prints(found: list[lint_views.Placed]) -> list[str]:
        return [one["fingerprint"] for one in json.loads(lint_views.gitlab(found))]

    first = prints(FOUND["twice the same"])
    assert len(set(first)) == 2
    moved = [(one, path, line + 5) for one, path, line in FOUND["twice the same"]]
    assert prints(moved) == first


def test_locations_are_relative_paths_or_the_application_name() -> None:
    def places(name: str) -> list[str]:
        return [one["location"]["path"] for one in json.loads(lint_views.gitlab(FOUND[name]))]

    assert places("an absolute path") == ["apps/web.yaml"]
    assert places("from stdin") == ["argocd/web"]
    assert places("of nobody") == ["."]
    (run,) = json.loads(lint_views.sarif(FOUND["every severity"]))["runs"]
    physical = [one["locations"][0]["physicalLocation"] for one in run["results"]]
    assert [one["artifactLocation"]["uri"] for one in physical] == [
        "apps/web.yaml",
        "apps/my%20app.yaml",
        "argocd/web",
    ]
    assert [one["region"]["startLine"] for one in physical] == [7, 1, 1]
    assert [one["level"] for one in run["results"]] == ["error", "warning", "note"]


def test_each_line_of_text_begins_with_its_location(tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text(WRONG)
    result = image_update("lint", ".", cwd=tmp_path)
    assert result.code == 3
    first, fix, *_ = result.stdout.splitlines()
    assert first.startswith("web.yaml:8: error: argocd/web: web.allow-tags: ")
    assert fix.startswith("    fix: ")
    assert "web.yaml:9: warning: argocd/web: " in result.stdout


@pytest.mark.parametrize("form", lint_views.REPORTS)
def test_stdout_is_always_a_single_valid_report(form: str, tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text(WRONG)
    for source, code in ((".", 3), ("nowhere", 2)):
        result = image_update("lint", source, "--output", form, cwd=tmp_path)
        assert result.code == code
        if form == "junit":
            root = ET.fromstring(result.stdout)  # noqa: S314 - our own
            assert root.attrib["failures"] == "1"
        else:
            assert json.loads(result.stdout)
