"""Where an update is written. The cases in `cases/write-back.json` were recorded from AIU."""

import json
from typing import Any

import pytest
from support import DATA

from task.annotations.application import PREFIX, parse_application
from task.annotations.keys import Faulty, git_branch
from task.annotations.write_back import Where, inside, write_backs
from task.errors import NotPermittedError, SourceError, TargetError
from task.model import Application, Source

CASES = json.loads((DATA / "cases" / "write-back.json").read_text())["cases"]
OURS = {
    "target-helmvalues-c": "helmvalues: with nothing behind the colon is as without it",
    "ns-none-argocd": "no method given: git",
    "multi-git-repository-other": "a chart's override file would never be read: an error that shows the way out",
    "target-abs-yaml": "a leading / is the repository's root",
}


def application_of(given: dict[str, Any]) -> Application:
    spec = {"source": given["source"]} if "source" in given else {"sources": given["sources"]}
    status = {
        "sourceType": given.get("source_type", ""),
        "sourceTypes": given.get("source_types", []),
    }
    annotations = {PREFIX + key: value for key, value in given["annotations"].items()}
    metadata = {
        "name": given["app_name"],
        "namespace": given["app_namespace"],
        "annotations": annotations,
    }
    return parse_application(
        {"metadata": metadata, "spec": spec, "status": status},
        namespace=given["controller_namespace"],
    )


def first_of(app: Application, argocd_namespace: str) -> Where:
    wheres, errors = write_backs(app, argocd_namespace)
    if errors:
        raise errors[0]
    return wheres[0]


@pytest.mark.parametrize("case", [c for c in CASES if c["id"] not in OURS], ids=lambda c: c["id"])
def test_the_write_back_is_resolved_as_in_image_updater(case: dict[str, Any]) -> None:
    expected = case.get("expect_v1", case["expect"])
    where = first_of(application_of(case["input"]), case["input"]["controller_namespace"])
    path = expected["kustomize_base"] or expected["target"]
    assert where.path == inside("", path)
    assert where.method == expected["method"]
    assert where.repo == expected["repo"]
    assert where.base == (expected["branch"] or expected["target_revision"]).replace("HEAD", "")
    assert where.head_template == expected["write_branch"]
    assert where.source.kind == expected["type"]


def web(annotations: dict[str, str], **spec: Any) -> Where:
    source = {"repoURL": "https://git.example/x.git", "path": "apps/web", "targetRevision": "main"}
    return first_of(
        application_of(
            {
                "annotations": annotations,
                "app_name": "web",
                "app_namespace": spec.pop("namespace", "argocd"),
                "controller_namespace": "argocd",
                **(spec or {"source": source}),
            }
        ),
        "argocd",
    )


def test_the_override_file_name_follows_argo_cds_rule() -> None:
    assert web({}).path == "apps/web/.argocd-source-web.yaml"
    where = web({}, namespace="team", source={"repoURL": "r", "path": "p"})
    assert (where.path, where.fallbacks) == (
        "p/.argocd-source-team_web.yaml",
        ("p/.argocd-source-web.yaml",),
    )


@pytest.mark.parametrize(
    ("target", "kind", "path"),
    [
        ("kustomization", "kustomization", "apps/web"),
        ("kustomization:", "kustomization", "apps/web"),
        ("kustomization:.", "kustomization", "apps/web"),
        ("kustomization:../base", "kustomization", "apps/base"),
        ("kustomization:/", "kustomization", ""),
        ("helmvalues:", "helmvalues", "apps/web/values.yaml"),
        ("helmvalues:env/prod.yaml", "helmvalues", "apps/web/env/prod.yaml"),
        ("manifests", "manifests", "apps/web"),
        ("manifests:/k8s", "manifests", "k8s"),
        ("/abs.yaml", "file", "abs.yaml"),
        ("deploy/abs.yaml", "file", "deploy/abs.yaml"),
    ],
)
def test_write_back_targets_are_parsed(target: str, kind: str, path: str) -> None:
    where = web({"write-back-target": target})
    assert (where.target, where.path) == (kind, path)


@pytest.mark.parametrize("method", ["git", "argocd", "git:secret:argocd/login"])
def test_a_method_is_not_a_target(method: str) -> None:
    with pytest.raises(Faulty) as caught:
        web({"write-back-target": method})
    assert f"unknown target '{method}': it is a write-back-method" in str(caught.value)
    assert f"set write-back-method: {method}, and " in caught.value.hint


@pytest.mark.parametrize(
    "target",
    [
        "kustomizationX",
        "helmvalues.yaml",
        "Helmvalues",
        "MANIFESTS",
        "git:x",
        "helm",
        "Kustomize",
        "values",
    ],
)
def test_misspelled_targets_are_rejected(target: str) -> None:
    with pytest.raises(Faulty, match="unknown target"):
        web({"write-back-target": target})


@pytest.mark.parametrize(
    ("revision", "annotation", "base"),
    [
        ("main", "", "main"),
        ("", "", ""),
        ("HEAD", "", ""),
        ("refs/heads/dev", "", "dev"),
        ("v1.0", "", "v1.0"),
        ("main", "dev", "dev"),
        ("main", "HEAD", ""),  # the default branch, named explicitly
        ("main", "refs/heads/dev", "dev"),
        ("main", ":upd", "main"),
    ],
)
def test_the_base_branch_comes_from_the_annotation_or_the_revision(
    revision: str, annotation: str, base: str
) -> None:
    where = web(
        {"git-branch": annotation}, source={"repoURL": "r", "path": "p", "targetRevision": revision}
    )
    assert where.base == base


@pytest.mark.parametrize(
    "target",
    [
        "helmvalues:/.image-update/config",
        "helmvalues:/.Image-Update/argocd_other.state",
        "helmvalues:../../.image-update/apps/other/argocd_other.state",
        "kustomization:/.image-update",
        "/apps/.git/config",
        "helmvalues:/.GIT./x.yaml",
        "helmvalues:/.gitmodules",
        "helmvalues:x/.GitAttributes",
        "/.gitignore",
        "helmvalues:$ref/.git/config",
    ],
)
def test_annotations_may_not_write_state_or_git_files(target: str) -> None:
    source = {"repoURL": "https://git.example/x.git", "path": "apps/web", "ref": "ref"}
    with pytest.raises(NotPermittedError) as refused:
        web({"write-back-target": target}, sources=[source])
    assert refused.value.rule == "not-permitted"
    assert "write-back-target" in refused.value.hint


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"name": "n" * 240}, "has 260 bytes"),
        ({"target": f"helmvalues:/{'v' * 300}"}, "has 300 bytes"),
        ({"target": f"helmvalues:/{'ä' * 128}"}, "has 256 bytes"),
        ({"target": "helmvalues:/" + "folder/" * 600 + "values.yaml"}, "has 4,211 bytes"),
    ],
)
def test_overlong_file_names_cause_target_errors(spec: dict[str, str], words: str) -> None:
    source = Source("https://git.example/x.git", "apps/web")
    app = Application(
        "argocd", spec.get("name", "web"), {"write-back-target": spec.get("target", "")}, (source,)
    )
    with pytest.raises(TargetError, match=words) as refused:
        first_of(app, "argocd")
    assert refused.value.rule == "target"


def test_a_bare_kustomization_file_is_rejected_with_the_correct_target() -> None:
    with pytest.raises(Faulty) as refused:
        web({"write-back-target": "/apps/web/kustomization.yaml"})
    assert "kustomization:/apps/web" in refused.value.hint


CHART = {
    "repoURL": "https://charts.example",
    "chart": "c",
    "targetRevision": "1.2.3",
    "helm": {"valueFiles": ["$values/v.yaml"]},
}
VALUES = {"repoURL": "https://git.example/vals.git", "targetRevision": "prod", "ref": "values"}


def test_a_chart_source_is_never_cloned_with_git() -> None:
    for annotations in (
        {},
        {"write-back-target": "helmvalues:/v.yaml"},
        {"git-repository": "https://git.example/vals.git"},
    ):
        with pytest.raises(SourceError) as refused:
            web(annotations, sources=[CHART, VALUES])
        assert "helmvalues:$" in refused.value.hint


def test_a_ref_target_is_written_to_the_repository_of_that_ref() -> None:
    where = web({"write-back-target": "helmvalues:$values/envs/v.yaml"}, sources=[CHART, VALUES])
    assert (where.repo, where.base, where.path) == (
        "https://git.example/vals.git",
        "prod",
        "envs/v.yaml",
    )


def test_the_git_repository_annotation_uses_the_branch_of_the_source_with_that_url() -> None:
    annotations = {
        "write-back-target": "helmvalues:/v.yaml",
        "git-repository": "https://git.example/vals",
    }
    where = web(annotations, sources=[CHART, VALUES])
    assert (where.repo, where.base) == ("https://git.example/vals", "prod")


def test_an_unknown_git_repository_uses_the_branch_of_the_selected_source() -> None:
    first = {"repoURL": "https://git.example/k.git", "path": "k", "targetRevision": "kb"}
    second = {"repoURL": "https://git.example/h.git", "path": "h", "targetRevision": "hb"}
    where = web(
        {"git-repository": "https://git.example/o"},
        sources=[first, second],
        source_types=["", "Kustomize"],
    )
    assert (where.repo, where.base, where.path) == (
        "https://git.example/o",
        "hb",
        "h/.argocd-source-web.yaml",
    )


def test_an_oci_artifact_is_never_cloned_with_git() -> None:
    source = {"repoURL": "oci://ghcr.io/acme/charts/web", "path": ".", "targetRevision": "1.2.3"}
    with pytest.raises(
        SourceError, match=r"the OCI artifact oci://ghcr\.io/acme/charts/web, not a Git"
    ) as refused:
        web({}, source=source)
    assert "git-repository" in refused.value.hint
    elsewhere = {
        "write-back-target": "helmvalues:/v.yaml",
        "git-repository": "https://git.example/vals.git",
    }
    assert web(elsewhere, source=source).repo == "https://git.example/vals.git"


def test_a_chart_version_is_not_a_branch() -> None:
    annotations = {
        "write-back-target": "helmvalues:/v.yaml",
        "git-repository": "https://git.example/other",
    }
    assert web(annotations, sources=[CHART, VALUES]).base == ""


@pytest.mark.parametrize(
    ("name", "repo"),
    [
        ("0", "https://charts.example"),
        ("values", "https://git.example/vals.git"),
        ("the chart", "https://charts.example"),
    ],
)
def test_the_write_back_source_annotation_selects_a_source_by_index_ref_or_name(
    name: str, repo: str
) -> None:
    annotations = {
        "write-back-source": name,
        "write-back-target": "helmvalues:/v.yaml",
        "git-repository": "x",
    }
    sources = [{**CHART, "name": "the chart"}, VALUES]
    assert web(annotations, sources=sources).source.repo == repo


def test_a_source_with_a_numeric_name_is_selected_by_name() -> None:
    annotations = {"write-back-source": "0", "write-back-target": "helmvalues:/v.yaml"}
    annotations["git-repository"] = "x"
    sources = [CHART, {**VALUES, "name": "0"}]
    assert web(annotations, sources=sources).source.repo == "https://git.example/vals.git"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("main", ("main", "")),
        ("main:", ("main", "")),
        (":upd", ("", "upd")),
        ("main:upd-{{.SHA256}}", ("main", "upd-{{.SHA256}}")),
        (
            'main:{{ if eq "a:b" .AppName }}x{{ end }}',
            ("main", '{{ if eq "a:b" .AppName }}x{{ end }}'),
        ),
        (" main : upd ", ("main", "upd")),
        ("", ("", "")),
    ],
)
def test_the_git_branch_annotation_is_split_into_base_and_head(
    value: str, expected: tuple[str, str]
) -> None:
    assert git_branch(value) == expected


@pytest.mark.parametrize(
    ("folder", "path", "expected"),
    [
        ("a/b", "../c", "a/c"),
        ("a", "/c/./d", "c/d"),
        ("", "x", "x"),
        (".", "x", "x"),
        ("a//b/", "c", "a/b/c"),
        ("apps", "/apps/../x.yaml", "x.yaml"),
    ],
)
def test_paths_are_normalized(folder: str, path: str, expected: str) -> None:
    assert inside(folder, path) == expected


@pytest.mark.parametrize(
    ("folder", "path"),
    [("a", "../../b"), ("", ".."), ("a", "/../b"), ("a", "b\nc"), ("a", "..\\b")],
)
def test_paths_that_leave_the_repository_are_refused(folder: str, path: str) -> None:
    with pytest.raises(TargetError):
        inside(folder, path)
