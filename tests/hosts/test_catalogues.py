"""Our files meet the rules of Artifact Hub, the Tekton and GitLab catalogs, and GitHub Marketplace.

Their own checkers are Go programs and web forms. `tests/data/catalogues.json` lists the rules.
The checks by actionlint, zizmor, and check-jsonschema's schemas are in test_workflows.py.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hosts.checks import documents
from support import DATA, ROOT
from support.host_schemas import problems

from task import __version__

FACTS = json.loads((DATA / "catalogues.json").read_text(encoding="utf-8"))
HOSTS = ("tekton", "argo-workflows")
OWNERS = [path for host in HOSTS for path in sorted((ROOT / host).glob("**/artifacthub-repo.y*ml"))]
PACKAGES = sorted(ROOT.glob("argo-workflows/*/artifacthub-pkg.yml"))
TEKTON = [ROOT / f"tekton/{kind}/image-update/image-update.yaml" for kind in ("task", "stepaction")]
COMPONENTS = sorted((ROOT / "templates").glob("*.yml"))


def faults(rules: str, document: Any) -> list[str]:
    found = jsonschema.Draft7Validator(FACTS[rules]).iter_errors(document)
    return [f"{one.json_path}: {one.message}" for one in found]


def of_kind(path: Path) -> str:
    return f"{path.parent.parent.name}/{path.parent.name}"


# Artifact Hub


@pytest.mark.parametrize("path", OWNERS, ids=lambda path: path.parent.name)
def test_artifact_hub_accepts_the_repository_file(path: Path) -> None:
    """The owner is whoever adds the repository. An owner in the file is an email address; we have
    none.
    """
    (document,) = documents(path)
    assert problems("artifacthub-repo", document) == []
    assert set(document) <= {"ignore", "repositoryID"}


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: path.parent.name)
def test_artifact_hub_accepts_the_template_packages(path: Path) -> None:
    (package,) = documents(path)
    assert faults("artifacthub-pkg", package) == []
    assert (package["name"], package["version"]) == (path.parent.name, __version__)
    assert package["annotations"]["argo/version"] == ">= 3.6.0"
    assert (path.parent / "manifests.yaml").exists()
    assert (path.parent / "README.md").exists()


@pytest.mark.parametrize("path", TEKTON, ids=of_kind)
def test_artifact_hub_accepts_the_tekton_annotations(path: Path) -> None:
    (document,) = documents(path)
    prefix = "artifacthub.io/"
    given = {
        key.removeprefix(prefix): text
        for key, text in document["metadata"]["annotations"].items()
        if key.startswith(prefix)
    }
    assert set(given) <= set(FACTS["artifacthub-tekton"])
    read = {key: yaml.safe_load(text) for key, text in given.items()}
    package: Mapping[str, Any] = {**read, "provider": {"name": read["provider"]}}
    needed = [
        line for line in faults("artifacthub-pkg", package) if "is a required property" not in line
    ]
    assert needed == []
    assert {"changes", "links", "license", "category"} <= set(read)
    # Artifact Hub shows the support page if a package contains a link with that name.
    assert "support" in [link["name"] for link in read["links"]]


def test_no_catalog_file_contains_an_email_address() -> None:
    shipped = [*OWNERS, *PACKAGES, *TEKTON]
    address = re.compile(r"[\w.-]+@[\w-]+\.[a-z]")
    assert [path for path in shipped if address.search(path.read_text(encoding="utf-8"))] == []


# Tekton's catalog: the requirements of catlin


@pytest.mark.parametrize("path", TEKTON, ids=of_kind)
def test_the_tekton_catalog_accepts_each_manifest(path: Path) -> None:
    (document,) = documents(path)
    metadata, spec = document["metadata"], document["spec"]
    assert faults("tekton-metadata", metadata) == []
    categories = metadata["annotations"]["tekton.dev/categories"].split(",")
    assert {one.strip() for one in categories} <= set(FACTS["tekton-categories"])
    assert metadata["name"] == path.stem == path.parent.name
    summary, blank, _ = spec["description"].split("\n", 2)
    assert summary.endswith(".")
    assert blank == ""
    step = spec.get("steps", [spec])[0]
    registry, _, tag = step["image"].rpartition(":")
    assert "." in registry.partition("/")[0]
    assert tag == f"v{__version__}"
    assert "script" not in step
    names = [one["name"] for one in spec["params"]]
    assert len({name.lower() for name in names}) == len(names)
    readme = (path.parent / "README.md").read_text(encoding="utf-8")
    for heading in ("Install", "Usage", "Parameters", "Results", "Platforms"):
        assert f"\n## {heading}\n" in readme


# GitHub Marketplace


def test_the_github_marketplace_accepts_the_action() -> None:
    (action,) = documents(ROOT / "action.yml")
    assert faults("github-marketplace", action) == []
    assert problems("github-action", action) == []  # the supported icons and colors
    assert not (ROOT / "action.yaml").exists()
    assert (ROOT / "README.md").exists()


# GitLab's CI/CD catalog


@pytest.mark.parametrize("path", COMPONENTS, ids=lambda path: path.stem)
def test_the_gitlab_catalog_accepts_the_component(path: Path) -> None:
    head, _job = documents(path)
    assert faults("gitlab-component", head) == []
    assert (ROOT / "LICENSE").exists()
    assert (path.parent / "README.md").exists()
    assert len(COMPONENTS) <= 30


@pytest.mark.parametrize(
    ("rules", "document"),
    [
        ("artifacthub-pkg", {"version": "1.0", "name": "x"}),
        ("tekton-metadata", {"name": "x", "labels": {}, "annotations": {}}),
        ("github-marketplace", {"name": "x", "description": "x" * 125}),
        ("gitlab-component", {"spec": {"inputs": {"x": {}}}}),
    ],
)
def test_the_catalog_rules_reject_invalid_documents(rules: str, document: Any) -> None:
    assert faults(rules, document)
