"""Two Argo CD instances share a repository and an Application name, but not their memory.

The decisions for each event are tested in tests/deciding/test_memory_of_two_clusters.py.
"""

from pathlib import Path
from typing import Any

from support import Result, bare_repo, git, image_update
from support.runs import WEB, application, manifest

CHART = "apiVersion: v2\nname: web\nversion: 0.1.0\n"
VALUES = "image:\n  tag: main-1\n"


class Scene:
    """`argocd/web` in two clusters, staging and prod, which share one repository."""

    def __init__(
        self, folder: Path, files: dict[str, str], staging: dict[str, str], prod: dict[str, str]
    ) -> None:
        self.repo = bare_repo(folder, files)
        self.manifests = {
            name: manifest(folder, self._application(where), name=f"{name}.json")
            for name, where in (("staging", staging), ("prod", prod))
        }

    def _application(self, where: dict[str, str]) -> dict[str, Any]:
        given = where.get("target", "")
        made = application(
            "web",
            self.repo,
            path=where["path"],
            update_strategy="newest-build",
            write_back_method="git",
            write_back_target=given,
        )
        files = [text.removeprefix("helmvalues:") for text in given.split(", ")]
        if len(files) > 1:
            made["spec"]["source"]["helm"] = {"valueFiles": files}
        return made

    def call(self, cluster: str, command: str, *more: str) -> Result:
        given = (
            "--applications",
            str(self.manifests[cluster]),
            "--allow-protocol",
            "file",
            "--output",
            "json",
        )
        return image_update(command, *more, *given)

    def event(self, cluster: str, build: int) -> tuple[str, str]:
        result = self.call(
            cluster, "run", "--image", f"{WEB}:main-{build}", "--sequence", str(build)
        )
        assert result.code == 0, result.stderr
        found = result.json["decisions"][0]
        return found["verdict"], found["rule"]

    @property
    def states(self) -> list[str]:
        names = git(self.repo, "ls-tree", "-r", "--name-only", "main").splitlines()
        return [name for name in names if name.startswith(".image-update/")]


def folders(folder: Path) -> Scene:
    """A scene in which each cluster has its own folder."""
    text = f"resources: []\nimages:\n- name: {WEB}\n  newTag: main-1\n"
    files = {f"clusters/{name}/web/kustomization.yaml": text for name in ("staging", "prod")}
    paths = [
        {"path": f"clusters/{name}/web", "target": "kustomization"} for name in ("staging", "prod")
    ]
    return Scene(folder, files, paths[0], paths[1])


def test_a_hold_on_staging_does_not_hold_production(tmp_path: Path) -> None:
    two = folders(tmp_path)
    assert two.call("staging", "hold", "web", "--reason", "load test").code == 0
    assert two.event("prod", 3) == ("update", "admitted")
    assert two.event("staging", 3) == ("defer", "held")
    assert two.call("prod", "lint").json["findings"] == []
    held, waits = (found["message"] for found in two.call("staging", "lint").json["findings"])
    assert ("load test" in held, "main-3" in waits) == (True, True), waits
    assert (
        two.call("prod", "release", "web").json["decisions"][0]["because"]
        == "it is not held, and no build is waiting"
    )
    back = two.call("prod", "rollback", "web", "--to", "previous", "--reason", "errors").json[
        "decisions"
    ][0]
    assert (back["verdict"], back["candidate"]) == ("update", "main-1")
    assert len(two.call("staging", "lint").json["findings"]) == 2
    assert two.call("staging", "release", "web").json["decisions"][0]["verdict"] == "update"
    assert two.event("prod", 4) == ("defer", "held")


def test_several_targets_are_held_and_released_together(tmp_path: Path) -> None:
    both = {"path": "web", "target": "helmvalues:staging.yaml, helmvalues:../other/prod.yaml"}
    one = Scene(
        tmp_path,
        {"web/Chart.yaml": CHART, "web/staging.yaml": VALUES, "other/prod.yaml": VALUES},
        both,
        both,
    )
    assert one.call("prod", "hold", "web", "--reason", "load test").code == 0
    assert one.states == [".image-update/web/argocd_web.state"]
    held = one.call("prod", "run", "--image", f"{WEB}:main-2", "--sequence", "2").json["decisions"]
    assert [each["verdict"] for each in held] == ["defer", "defer"]
    found = [each["message"] for each in one.call("prod", "lint").json["findings"]]
    assert [
        sum(f" in {name}" in each for each in found)
        for name in ("web/staging.yaml", "other/prod.yaml")
    ] == [2, 2]
    freed = one.call("prod", "release", "web").json["decisions"]
    assert [each["verdict"] for each in freed] == ["update", "update"]
