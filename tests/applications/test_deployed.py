"""The folders that an Application deploys."""

from typing import Any

import pytest

from task.applications.app_of_apps import Deployed, NoFolder, deployed
from task.applications.rendering import Release

REPO = "https://h/x.git"


def of(*sources: dict[str, Any], **spec: Any) -> list[Deployed]:
    several = {"sources": list(sources)} if len(sources) != 1 else {"source": sources[0]}
    found = list(deployed({"metadata": {"name": "root"}, "spec": {**several, **spec}}))
    return [one for one in found if isinstance(one, Deployed)]


def one(path: str = "apps", **source: Any) -> Deployed:
    (found,) = of({"repoURL": REPO, "path": path, **source})
    return found


def test_a_git_source_deploys_a_folder() -> None:
    assert of({"repoURL": REPO, "path": "./apps/", "targetRevision": "dev"}) == [
        Deployed(REPO, "dev", "apps", release=Release("root"), app="root")
    ]
    assert [
        found.path for found in of({"repoURL": REPO, "path": "a"}, {"repoURL": REPO, "path": "."})
    ] == ["a", ""]
    dry = {
        "sourceHydrator": {"drySource": {"repoURL": REPO, "path": "dry", "targetRevision": "main"}}
    }
    assert list(deployed({"spec": dry})) == [Deployed(REPO, "main", "dry")]
    assert one("apps/../more").path == "more"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"repoURL": "https://charts", "chart": "web", "path": "x"}, [NoFolder("chart")]),
        ({"repoURL": REPO, "path": "x", "plugin": {}}, [NoFolder("plugin")]),
        ({"repoURL": REPO, "path": "../x"}, [NoFolder("outside", "../x")]),
        ({"repoURL": REPO, "path": "x/../.."}, [NoFolder("outside", "x/../..")]),
        ({"repoURL": REPO, "ref": "values"}, []),
        ({"path": "x"}, [NoFolder("no repoURL")]),
        ({"repoURL": "", "path": "x"}, [NoFolder("no repoURL")]),
        ({"repoURL": {}, "path": []}, [NoFolder("no repoURL")]),
        (None, []),
        ("x", []),
    ],
)
def test_the_reason_is_given_for_each_source_without_a_git_folder(
    source: Any, expected: list[NoFolder]
) -> None:
    assert list(deployed({"spec": {"source": source}})) == expected
    assert list(deployed({"metadata": [], "spec": {"sources": source}})) == []


@pytest.mark.parametrize(
    ("directory", "held"),
    [
        ({}, ["a.yaml", "b.json"]),
        ({"recurse": True}, ["a.yaml", "b.json", "deep/c.yaml"]),
        ({"include": "*.yaml", "recurse": True}, ["a.yaml", "deep/c.yaml"]),
        ({"include": "{a,x}.yaml"}, ["a.yaml"]),
        ({"include": "{a.{yaml,yml},b.*}"}, ["a.yaml", "b.json"]),
        ({"exclude": "{b.json,deep/*}", "recurse": True}, ["a.yaml"]),
        ({"include": "*", "exclude": "[ab].*"}, []),
    ],
)
def test_directory_options_select_the_manifests(directory: dict[str, Any], held: list[str]) -> None:
    files = ["a.yaml", "b.json", "deep/c.yaml"]
    assert [name for name in files if one(directory=directory).holds(f"apps/{name}")] == held
    assert [name for name in files if one(".", directory=directory).holds(name)] == held


def test_expensive_globs_are_matched_quickly() -> None:
    assert not one(directory={"include": "{a,b}" * 60}).holds("apps/x.yaml")
    assert not one(directory={"include": "*a" * 1000}).holds(f"apps/{'a' * 1000}b.yaml")


def test_helm_options_become_release_arguments() -> None:
    helm = {
        "releaseName": "prod",
        "valueFiles": ["values-prod.yaml", "../common.yaml", "/root.yaml"],
        "valuesObject": {"a": "b"},
        "values": "not: this",
        "parameters": [
            {"name": "list", "value": "{a,b}"},
            {"name": "text", "value": r"a,b\,c"},
            {"name": "number", "value": "1", "forceString": True},
            "broken",
        ],
    }
    found = one("charts/apps", helm=helm)
    assert found.release == Release(
        "prod",
        "",
        ("charts/apps/values-prod.yaml", "charts/common.yaml", "root.yaml"),
        '{"a": "b"}',
        (
            ("--set", "list", "{a,b}"),
            ("--set", "text", r"a\,b\,c"),
            ("--set-string", "number", "1"),
        ),
    )
    assert not found.unsupported
    (found,) = of(
        {"repoURL": REPO, "path": "x", "helm": {"values": "a: b"}},
        destination={"namespace": "team"},
    )
    assert found.release == Release("root", "team", (), "a: b", ())


@pytest.mark.parametrize(
    ("source", "unsupported"),
    [
        ({"helm": {"valueFiles": ["$values/x.yaml"]}}, "helm.valueFiles '$values/x.yaml'"),
        ({"helm": {"valueFiles": ["https://h/x.yaml"]}}, "helm.valueFiles 'https://h/x.yaml'"),
        ({"helm": {"fileParameters": [{"name": "x", "path": "y"}]}}, "helm.fileParameters"),
        ({"kustomize": {"namePrefix": "a-"}}, "kustomize.namePrefix"),
        ({"kustomize": {"namePrefix": "a-", 1: "b"}}, "kustomize.1"),
        ({"kustomize": {"version": "v5"}}, ""),
    ],
)
def test_unsupported_source_options_are_named(source: dict[str, Any], unsupported: str) -> None:
    assert one(**source).unsupported == unsupported
