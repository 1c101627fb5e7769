"""Realistic Applications, end to end: from the command to the commit in a bare repository, and to
what Argo CD reads.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import DATA, Result, bare_repo, changed_paths, git, image_update, show

EXAMPLES = DATA / "examples"
DIGEST, OTHER = "sha256:" + "a" * 64, "sha256:" + "b" * 64


class Play:
    """One example: its manifest, and a bare repository in place of its Git server."""

    def __init__(
        self, name: str, folder: Path, files: dict[str, str], branch: str = "main"
    ) -> None:
        self.manifest = EXAMPLES / name
        self.application = yaml.safe_load(self.manifest.read_text())
        self.repo = bare_repo(folder, files, branch)
        self.branch = branch
        self.url = self.application["spec"]["source"]["repoURL"]

    def event(self, *images: str, command: str = "run", manifest: Path | None = None) -> Result:
        given = [part for image in images for part in ("--image", image)]
        rewrite = f"{self.url}={self.repo}"
        return image_update(
            command,
            *given,
            "--applications",
            manifest or self.manifest,
            "--allow-protocol",
            "file",
            "--rewrite-url",
            rewrite,
            "--output",
            "json",
        )

    def file(self, path: str) -> str:
        return show(self.repo, self.branch, path)

    def commits(self) -> int:
        return int(git(self.repo, "rev-list", "--count", self.branch))


def rules(result: Result) -> list[str]:
    assert result.code == 0, result.stderr
    return [decision["rule"] for decision in result.json["decisions"]]


def parameters(text: str) -> dict[str, Any]:
    return {entry["name"]: entry["value"] for entry in yaml.safe_load(text)["helm"]["parameters"]}


def test_two_images_from_a_registry_with_a_port_do_not_replace_each_other(tmp_path: Path) -> None:
    folder = "kubernetes/myapp/development"
    play = Play(
        "local-registry-kustomize.yaml",
        tmp_path,
        {f"{folder}/kustomization.yaml": "resources: []\n"},
    )
    assert rules(play.event("192.168.0.100:32000/api-server:abc1234")) == ["admitted"]
    assert rules(play.event("192.168.0.100:32000/app:abc1234")) == ["admitted"]
    images = yaml.safe_load(play.file(f"{folder}/kustomization.yaml"))["images"]
    assert images == [
        {"name": "192.168.0.100:32000/api-server", "newTag": "abc1234"},
        {"name": "192.168.0.100:32000/app", "newTag": "abc1234"},
    ]


def test_tags_with_commit_hashes_are_admitted_and_branch_names_are_refused(tmp_path: Path) -> None:
    play = Play(
        "development-commit-sha.yaml",
        tmp_path,
        {"overlays/development/kustomization.yaml": "resources: []\n"},
    )
    image = "asia.gcr.io/some-gcp-project/some-image-name"
    assert rules(play.event(f"{image}:0f3c2ab")) == ["admitted"]
    assert rules(play.event(f"{image}:latest")) == ["ignore-tags"]
    assert rules(play.event(f"{image}:test")) == ["allow-tags"]
    override = yaml.safe_load(
        play.file("overlays/development/.argocd-source-some-app-development.yaml")
    )
    assert override == {"kustomize": {"images": [f"{image}:0f3c2ab"]}}
    assert play.commits() == 2


def test_a_newer_version_is_written_and_an_older_version_is_refused(tmp_path: Path) -> None:
    play = Play(
        "production-semver.yaml",
        tmp_path,
        {"overlays/production/kustomization.yaml": "resources: []\n"},
    )
    image = "asia.gcr.io/some-gcp-project/some-image-name"
    first = play.event(f"{image}:v1.4.0")
    assert rules(first) == ["admitted"]
    assert first.json["decisions"][0]["current"] == "v1.3.9"
    assert rules(play.event(f"{image}:v1.3.0")) == ["not-newer"]
    assert rules(play.event(f"{image}:latest")) == ["ignore-tags"]


def test_parameters_in_the_spec_still_take_effect(tmp_path: Path) -> None:
    play = Play(
        "helm-gitops-demo.yaml",
        tmp_path,
        {"helm/Chart.yaml": "name: x\nversion: 0.1.0\n"},
        branch="master",
    )
    assert rules(play.event("ghcr.io/cnych/gitops-demo:v0.1.1")) == ["admitted"]
    assert changed_paths(play.repo, "master") == ["helm/.argocd-source-gitops-demo.yaml"]
    assert parameters(play.file("helm/.argocd-source-gitops-demo.yaml")) == {
        "image.name": "ghcr.io/cnych/gitops-demo",
        "image.tag": "v0.1.1",
        "replicaCount": "2",
    }


def test_a_constraint_in_the_update_strategy_is_enforced(tmp_path: Path) -> None:
    play = Play(
        "umbrella-chart.yaml", tmp_path, {"charts/shop/Chart.yaml": "name: x\nversion: 0.1.0\n"}
    )
    image = "registry.example.com/shop/cart"
    assert rules(play.event(f"{image}:1.6.3")) == ["admitted"]
    assert rules(play.event(f"{image}:1.7.0")) == ["constraint"]
    assert rules(play.event(f"{image}:1.6.1")) == ["not-newer"]
    expected = {"cart.image.name": image, "cart.image.tag": "1.6.3"}
    assert parameters(play.file("charts/shop/.argocd-source-shop.yaml")) == expected


def test_a_mutable_tag_is_updated_by_its_digest(tmp_path: Path) -> None:
    play = Play(
        "digest-follow.yaml", tmp_path, {"charts/web/Chart.yaml": "name: x\nversion: 0.1.0\n"}
    )
    image = "registry.example.com/shop/web:staging"
    assert rules(play.event(f"{image}@{DIGEST}")) == ["admitted"]
    assert (
        parameters(play.file("charts/web/.argocd-source-web.yaml"))["web.image.shasum"]
        == f"staging@{DIGEST}"
    )
    assert rules(play.event(f"{image}@{OTHER}")) == ["admitted"]
    assert (
        parameters(play.file("charts/web/.argocd-source-web.yaml"))["web.image.shasum"]
        == f"staging@{OTHER}"
    )
    again = play.event(f"{image}@{OTHER}")
    assert (rules(again), again.json["status"]) == (["same"], "unchanged")


def test_a_tilde_constraint_refuses_the_next_minor_version(tmp_path: Path) -> None:
    play = Play(
        "gitlab-minor.yaml",
        tmp_path,
        {"deploy/charts/frontend/Chart.yaml": "name: x\nversion: 0.1.0\n"},
        "trunk",
    )
    image = "registry.gitlab.com/microservices28/frontend"
    assert rules(play.event(f"{image}:v0.0.40")) == ["admitted"]
    assert rules(play.event(f"{image}:v0.1.0")) == ["constraint"]
    assert changed_paths(play.repo, "trunk") == [
        "deploy/charts/frontend/.argocd-source-frontend.yaml"
    ]


@pytest.mark.parametrize("command", ["plan", "run"])
def test_plan_predicts_the_tree_that_run_writes(tmp_path: Path, command: str) -> None:
    play = Play(
        "umbrella-chart.yaml", tmp_path, {"charts/shop/Chart.yaml": "name: x\nversion: 0.1.0\n"}
    )
    planned = play.event("registry.example.com/shop/cart:1.6.3", command="plan")
    assert play.commits() == 1
    ran = play.event("registry.example.com/shop/cart:1.6.3", command=command)
    assert planned.json["decisions"] == ran.json["decisions"]
    assert [one["tree"] for one in planned.json["commits"]] == [
        one["tree"] for one in ran.json["commits"]
    ]
    assert "+    value: 1.6.3" in planned.json["commits"][0]["diff"]


def test_applications_are_found_in_a_list_with_other_resources(tmp_path: Path) -> None:
    play = Play(
        "umbrella-chart.yaml", tmp_path, {"charts/shop/Chart.yaml": "name: x\nversion: 0.1.0\n"}
    )
    items = [
        {"kind": "ConfigMap"},
        play.application,
        {"kind": "ApplicationSet", "apiVersion": "argoproj.io/v1alpha1"},
    ]
    mixed = tmp_path / "list.json"
    mixed.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    result = play.event("registry.example.com/shop/cart:1.6.3", manifest=mixed)
    assert rules(result) == ["admitted"]
    assert "ApplicationSet argocd/?: the ApplicationSet has no generators" in result.stderr


def test_only_the_tag_of_a_flux_release_is_changed(tmp_path: Path) -> None:
    text = (EXAMPLES / "flux-helmrelease.yaml").read_text()
    repo = bare_repo(tmp_path, {"releases/frontend.yaml": text}, "master")
    work = tmp_path / "work"
    git(tmp_path, "clone", "--quiet", str(repo), str(work))
    image = "registry.gitlab.com/wenger23/microservices-demo/frontend:v0.0.41"
    for source in (work / "releases", f"{repo}//releases?ref=master"):
        args = (
            "run",
            "--image",
            image,
            "--applications",
            source,
            "--allow-protocol",
            "file",
            "--output",
            "json",
        )
        result = image_update(*args)
        assert result.code == 0, result.stderr
        assert [one["target"] for one in result.json["decisions"]] == ["flux"]
    assert show(repo, "master", "releases/frontend.yaml") == text.replace(
        "tag: v0.0.40", "tag: v0.0.41"
    )
