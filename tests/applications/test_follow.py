"""`--follow-apps`: Applications deployed by other Applications, and reports on unreadable ones."""

import json
import os
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support import Link, bare_repo, git, needs
from support.reports import trouble_of

from task.applications.app_of_apps import FollowedApplications
from task.applications.application_sets import RenderedSets
from task.applications.git import MOST_REPOSITORIES, Repositories
from task.applications.manifest_text import found_in, is_project, is_set
from task.applications.rendering import Rendering
from task.errors import TaskError, UnreachableError
from task.git.command import Git
from task.git.repository.bare import BareRepository
from task.model import Found, Place, Snapshot

KIND = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application"}


def manifest_text(
    name: str, repo: Path | str, path: str, *, spec: Mapping[str, Any] | None = None, **source: Any
) -> str:
    """Return the manifest of an Application. `Path("")` in a source means no path."""
    return json.dumps(
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "metadata": {"name": name, "namespace": "argocd"},
            "spec": {
                "source": {"repoURL": str(repo), "path": path, "targetRevision": "main", **source},
                **(spec or {}),
            },
        }
    )


class Below:
    """The Applications reached from one manifest, and the calls needed to reach them."""

    def __init__(self) -> None:
        self.git = Git(dict(os.environ), protocols=frozenset({"file"}))
        self.opened: list[str] = []
        self.repositories = Repositories(self.open)

    def open(self, repo: str) -> BareRepository:
        self.opened.append(repo)
        return BareRepository(self.git, repo)

    def of(
        self, manifest: str, depth: int = 5, rendering: Rendering | None = None, most: int = 100
    ) -> list[Found]:
        sets = RenderedSets(self.repositories)
        following = FollowedApplications(
            self.repositories,
            rendering or Rendering(),
            depth,
            lambda found: sets.of(found) if is_set(found.item) else iter((found,)),
            most,
        )
        for found in found_in(manifest.encode(), "root.yaml"):
            following.note(found)
        return list(following.below())


@pytest.fixture
def below() -> Iterator[Below]:
    made = Below()
    yield made
    made.repositories.close()
    made.git.close()


def names(found: list[Found]) -> list[str]:
    return [one.item["metadata"]["name"] for one in found if one.item]


def problems(found: list[Found]) -> list[str]:
    return [trouble_of(one).message for one in found if one.trouble]


def test_applications_are_followed_across_repositories_to_the_requested_depth(
    tmp_path: Path, below: Below
) -> None:
    one, two = tmp_path / "one.git", tmp_path / "two.git"
    bare_repo(
        tmp_path,
        {
            "apps/a.yaml": manifest_text("a", one, "more"),
            "apps/b.yaml": manifest_text("b", f"{two}/", "apps"),
            "apps/sub/c.yaml": manifest_text("c", one, "x"),  # the parent is not recursive
            "apps/pod.yaml": "kind: Pod",
            "more/d.yaml": manifest_text("d", two, "apps"),
        },
        name="one.git",
    )
    bare_repo(tmp_path, {"apps/e.yaml": manifest_text("e", one, "gone")}, name="two.git")
    root = manifest_text("root", one, "apps")
    assert names(below.of(root, 0)) == []
    assert names(below.of(root, 1)) == ["a", "b"]
    found = below.of(root)
    assert names(found) == ["a", "b", "d", "e"]
    assert problems(found) == [
        f"Applications from argocd/e are not followed: there are no files in 'gone' on main of {one}"
    ]
    assert below.opened == [str(one), f"{two}/"]
    assert below.git.calls.count("fetch") == 2  # small repositories are fetched with all files
    assert [each.origin for each in found[:2]] == [f"{one}//apps/a.yaml:1", f"{one}//apps/b.yaml:1"]
    assert found[0].place == (str(one), "main", "apps/a.yaml")


def test_a_cycle_of_applications_is_followed_once(tmp_path: Path, below: Below) -> None:
    repo = tmp_path / "repo.git"
    files = {
        "apps/self.yaml": manifest_text("self", repo, "apps"),
        "apps/b.yaml": manifest_text("b", repo, "other"),
    }
    bare_repo(tmp_path, {**files, "other/back.yaml": manifest_text("back", repo, "apps")})
    assert names(below.of(manifest_text("root", repo, "apps"), 20)) == ["b", "self", "back"]


def test_the_number_of_applications_is_bounded(tmp_path: Path, below: Below) -> None:
    repo = tmp_path / "repo.git"
    bare_repo(
        tmp_path,
        {f"apps/{number}.yaml": manifest_text(str(number), repo, "x") for number in range(5)},
    )
    found = below.of(manifest_text("root", repo, "apps"), most=3)
    assert len(names(found)) == 3
    assert (trouble_of(found[-1]).message, trouble_of(found[-1]).severity) == (
        "--follow-apps: there are more than 3 Applications to follow",
        "error",
    )


def test_child_applications_receive_their_namespace_as_in_argo_cd(
    tmp_path: Path, below: Below
) -> None:
    repo = tmp_path / "repo.git"
    child = manifest_text("child", repo, "x").replace('"namespace": "argocd"', '"labels": {}')
    bare_repo(tmp_path, {"apps/a.yaml": child, "apps/b.yaml": manifest_text("b", repo, "x")})
    found = below.of(
        manifest_text("root", repo, "apps", spec={"destination": {"namespace": "team"}})
    )
    assert [one.item["metadata"]["namespace"] for one in found if one.item] == ["team", "argocd"]


def test_projects_next_to_the_children_are_read(tmp_path: Path, below: Below) -> None:
    """The projects may require signed commits."""
    repo = tmp_path / "repo.git"
    project = manifest_text("shop", repo, "x").replace('"Application"', '"AppProject"')
    bare_repo(
        tmp_path,
        {
            "apps/a.yaml": project,
            "apps/b.yaml": '{"apiVersion": "argoproj.io/v1alpha1", "kind": "X"}',
        },
    )
    found = below.of(manifest_text("root", repo, "apps"))
    assert [(one.item["kind"], is_project(one.item)) for one in found] == [("AppProject", True)]


def test_application_sets_among_the_children_are_rendered(tmp_path: Path, below: Below) -> None:
    repo = tmp_path / "repo.git"
    template = {
        "metadata": {"name": "{{name}}"},
        "spec": {"source": {"repoURL": str(repo), "path": "{{name}}"}},
    }
    spec = {
        "generators": [{"list": {"elements": [{"name": "x"}, {"name": "y"}]}}],
        "template": template,
    }
    made = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "ApplicationSet",
        "metadata": {"name": "set"},
        "spec": spec,
    }
    bare_repo(
        tmp_path, {"apps/set.json": json.dumps(made), "x/z.yaml": manifest_text("z", repo, "none")}
    )
    assert names(below.of(manifest_text("root", repo, "apps"))) == ["x", "y", "z"]


CHART = {
    "chart/Chart.yaml": "apiVersion: v2\nname: chart\nversion: 0.1.0\n",
    "chart/values.yaml": "names: [a]\n",
    "chart/values-prod.yaml": "names: [b, c]\n",
    "chart/templates/apps.yaml": """\
{{- range .Values.names }}
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: "{{ $.Release.Name }}-{{ . }}{{ $.Values.suffix }}", namespace: "{{ $.Release.Namespace }}"}
spec: {source: {repoURL: https://h/x.git, chart: web}}
{{- end }}
""",
}


def test_a_chart_is_rendered_with_its_applications_options(tmp_path: Path, below: Below) -> None:
    helm = needs("helm")
    repo = bare_repo(tmp_path, CHART)
    given = {
        "releaseName": "prod",
        "valueFiles": ["values-prod.yaml", "gone.yaml"],
        "ignoreMissingValueFiles": True,
    }
    given["parameters"] = [{"name": "suffix", "value": "-x"}]
    root = manifest_text(
        "root", repo, "chart", helm=given, spec={"destination": {"namespace": "team"}}
    )
    rendering = Rendering(["helm"], {"PATH": os.path.dirname(helm[0])})
    found = below.of(root, 1, rendering)
    git(tmp_path, "clone", "-q", str(repo), "clone")
    chart = tmp_path / "clone" / "chart"
    made = subprocess.run(
        [
            *helm,
            "template",
            "--namespace",
            "team",
            "-f",
            chart / "values-prod.yaml",
            "--set",
            "suffix=-x",
            "prod",
            chart,
        ],
        check=True,
        capture_output=True,
    ).stdout
    assert [one.item for one in found] == [one.item for one in found_in(made, "")]
    assert names(found) == ["prod-b-x", "prod-c-x"]
    assert found[0].origin == f"{repo}//chart"
    assert names(below.of(manifest_text("dev", repo, "chart"), 1, rendering)) == ["dev-a"]


@pytest.mark.parametrize(
    ("files", "source", "expected", "told"),
    [
        (CHART, {}, [], "chart: this Helm chart generates Applications, but it is not rendered"),
        ({**CHART, "chart/templates/apps.yaml": "kind: Deployment"}, {}, [], ""),
        ({"chart/kustomization.yaml": "resources: [a.yaml]", "chart/a.yaml": "APP"}, {}, ["a"], ""),
        (
            {
                "chart/kustomization.yaml": "resources: [../base]",
                "base/kustomization.yml": "resources: [a.yaml]",
                "base/a.yaml": "APP",
                "base/unlisted.yaml": "APP",
            },
            {},
            ["a"],
            "",
        ),
        (
            {
                "chart/kustomization.yaml": "resources: [a.yaml]\nnamePrefix: b-",
                "chart/a.yaml": "APP",
            },
            {},
            [],
            "chart: this kustomization generates Applications, but it is not rendered",
        ),
        (
            {
                "chart/kustomization.yaml": "resources: [a.yaml]\nnamePrefix: b-",
                "chart/a.yaml": "kind: Pod",
            },
            {},
            [],
            "",
        ),
        (
            {"chart/kustomization.yaml": "resources: [a.yaml]", "chart/a.yaml": "APP"},
            {"kustomize": {"namePrefix": "b-"}},
            [],
            "chart: this kustomization generates Applications, but it is not rendered",
        ),
        (
            {"chart/kustomization.yaml": "resources: [a.yaml]", "chart/a.yaml": "kind: Pod"},
            {"kustomize": {"namePrefix": "b-"}},
            [],
            "",
        ),
        (
            {"chart/kustomization.yaml": "resources: [a.yaml]", "chart/a.yaml": "APP"},
            {"kustomize": {"version": "v5"}},
            ["a"],
            "",
        ),
        (
            {"chart/kustomization.yaml": "resources: [https://h/x]"},
            {},
            [],
            "chart, which argocd/root deploys, is not followed: chart/kustomization.yaml: 'https://h/x' is not in the",
        ),
        (
            {"chart/kustomization.yaml": "resources: [b.yaml]", "chart/a.yaml": "APP"},
            {"directory": {"recurse": False}},
            ["a"],
            "",
        ),
        (
            {"chart/a.yaml": "APP"},
            {"plugin": {"name": "x"}},
            [],
            "--follow-apps does not follow plugin output; Applications with such a source: 1 (argocd/root)",
        ),
    ],
)
def test_folders_are_followed_without_helm_or_kustomize(
    tmp_path: Path,
    below: Below,
    files: dict[str, str],
    source: dict[str, Any],
    expected: list[str],
    told: str,
) -> None:
    repo = bare_repo(
        tmp_path,
        {
            path: text.replace("APP", manifest_text("a", "https://h/x", ""))
            for path, text in files.items()
        },
    )
    found = below.of(manifest_text("root", repo, "chart", **source), 1)
    assert names(found) == expected
    assert [one.removeprefix(f"{repo}//")[: len(told)] for one in problems(found)] == (
        [told] if told else []
    )
    assert all(one.advice for one in found if one.trouble)


def test_kustomize_options_in_an_application_prevent_rendering(
    tmp_path: Path, below: Below
) -> None:
    (tmp_path / "kustomize").write_text("#!/bin/sh\n")
    (tmp_path / "kustomize").chmod(0o755)
    files = {
        "k/kustomization.yaml": "resources: [a.yaml]\nnamePrefix: b-",
        "k/a.yaml": manifest_text("a", "https://h/x", ""),
    }
    repo = bare_repo(tmp_path, files)
    rendering = Rendering(["kustomize"], {"PATH": str(tmp_path)})
    root = manifest_text("root", repo, "k", kustomize={"nameSuffix": "-c"})
    (advice,) = below.of(root, rendering=rendering)
    assert below.of(root) == [advice]  # --render would not help
    assert trouble_of(advice).hint.startswith(
        "argocd/root has kustomize.nameSuffix, which is not followed"
    )


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("gone", "there are no files in 'gone' on main of REPO"),
        ("apps/a.yaml", "'apps/a.yaml' is not a folder on main of REPO"),
        ("apps/a.yaml/deep", "'apps/a.yaml/deep' is not a folder on main of REPO"),
        ("link", "'link' is not a folder on main of REPO"),
        ("../x", "the path '../x' points outside the repository"),
    ],
)
def test_a_path_that_is_not_a_folder_is_reported(
    tmp_path: Path, below: Below, path: str, told: str
) -> None:
    repo = bare_repo(
        tmp_path, {"apps/a.yaml": manifest_text("a", "https://h/x", ""), "link": Link("apps")}
    )
    (found,) = below.of(manifest_text("root", repo, path))
    assert (
        trouble_of(found).message
        == f"Applications from argocd/root are not followed: {told.replace('REPO', str(repo))}"
    )
    assert (trouble_of(found).severity, found.advice, bool(trouble_of(found).hint)) == (
        "warning",
        True,
        True,
    )


def test_a_source_without_a_repository_is_reported(below: Below) -> None:
    (found,) = below.of(manifest_text("root", "", "apps"))
    assert (
        trouble_of(found).message
        == "Applications from argocd/root are not followed: its source has no repoURL"
    )
    assert (trouble_of(found).severity, found.advice, trouble_of(found).hint.partition(",")[0]) == (
        "warning",
        True,
        "set repoURL in its source",
    )


def test_charts_from_helm_repositories_are_reported_on_one_line(
    tmp_path: Path, below: Below
) -> None:
    charts = {
        f"apps/{at}.yaml": manifest_text(str(at), "https://charts", "", chart="web")
        for at in range(7)
    }
    repo = bare_repo(tmp_path, charts)
    assert (
        problems(below.of(manifest_text("root", repo, "apps"), 1)) == []
    )  # the requested depth excludes Applications below these charts
    (told,) = problems(below.of(manifest_text("root", repo, "apps"), 2))
    assert told == (
        "--follow-apps does not follow charts from Helm repositories; Applications with such a source: "
        "7 (argocd/0, argocd/1, argocd/2, argocd/3, argocd/4 and 2 more)"
    )


def test_a_repository_that_cannot_be_read_is_reported_once(tmp_path: Path, below: Below) -> None:
    repo = tmp_path / "repo.git"
    bare_repo(
        tmp_path,
        {f"apps/{name}.yaml": manifest_text(name, tmp_path / "none.git", name) for name in "ab"},
    )
    (told,) = [one for one in below.of(manifest_text("root", repo, "apps")) if one.trouble]
    assert trouble_of(told).message.startswith(
        f"Applications from argocd/a and 1 more are not followed: {tmp_path}/none.git"
    )
    assert (trouble_of(told).severity, told.advice, bool(trouble_of(told).hint)) == (
        "warning",
        True,
        True,
    )


def test_a_forbidden_url_does_not_affect_other_applications(tmp_path: Path, below: Below) -> None:
    children = {
        "apps/a.yaml": manifest_text("a", "telnet://h/x", "x"),
        "apps/b.yaml": manifest_text("b", tmp_path / "repo.git", "more"),
    }
    repo = bare_repo(tmp_path, {**children, "more/c.yaml": manifest_text("c", "https://h/x", "")})
    found = below.of(manifest_text("root", repo, "apps"))
    assert names(found) == ["a", "b", "c"]
    (told,) = [one for one in found if one.trouble]
    assert trouble_of(told).message.startswith(
        "Applications from argocd/a are not followed: telnet://h/x: telnet:// is not allowed"
    )
    assert (
        trouble_of(told).severity,
        told.advice,
        "--allow-protocol" in trouble_of(told).hint,
    ) == ("warning", True, False)


def test_a_revision_that_is_not_a_branch_is_reported(tmp_path: Path, below: Below) -> None:
    repo = bare_repo(tmp_path, {"x/a.yaml": manifest_text("a", "https://h/x", "")})
    git(repo, "tag", "v1")
    (told,) = below.of(manifest_text("root", repo, "x", targetRevision="v1"))
    assert (
        "the revision 'v1' is a tag, but updates can only be written to a branch"
        in trouble_of(told).message
    )
    assert trouble_of(told).hint.startswith("set targetRevision to a branch")


def test_the_number_of_repositories_named_by_manifests_is_bounded(
    tmp_path: Path, below: Below
) -> None:
    repo = tmp_path / "repo.git"
    for number in range(MOST_REPOSITORIES):
        below.repositories.of(str(number))
    bare_repo(
        tmp_path,
        {f"apps/{name}.yaml": manifest_text(name, f"https://h/{name}", "x") for name in "ab"},
    )
    below.repositories.of(str(repo), named=False)  # named by --applications
    found = below.of(manifest_text("root", repo, "apps"))
    assert names(found) == ["a", "b"]
    assert problems(found) == [
        f"--follow-apps: the manifests refer to more than {MOST_REPOSITORIES} repositories"
    ]


class Down:
    """A repository on a server that does not respond."""

    def default_branch(self) -> str:
        raise UnreachableError("cannot be reached", hint="run it again")

    def snapshot(self, _branch: str, _places: Collection[Place]) -> Snapshot:
        raise UnreachableError("cannot be reached", hint="run it again")

    def read_more(self, _snapshot: Snapshot, _places: Collection[Place]) -> Snapshot:
        raise AssertionError

    def close(self) -> None:
        """Do nothing."""


def test_an_unavailable_server_causes_a_temporary_error() -> None:
    opening: Callable[[str], Down] = lambda _repo: Down()  # noqa: E731
    following = FollowedApplications(Repositories(opening), Rendering(), 1)
    for one in ("a", "b"):
        for found in found_in(
            manifest_text(one, "https://h/x", "x", targetRevision=one).encode(), ""
        ):
            following.note(found)
    (told,) = following.below()  # another branch in the same repository is not tried
    assert (trouble_of(told).severity, trouble_of(told).exit, trouble_of(told).hint) == (
        "error",
        75,
        "run it again",
    )
    assert issubclass(UnreachableError, TaskError)
