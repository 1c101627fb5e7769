"""Pipelines that finish in the wrong order: the newest build wins, and replaying an old pipeline
changes nothing.
"""

from pathlib import Path
from typing import Any

import pytest
from support import Result, bare_repo, changed_paths, commit, git, image_update, show
from support.runs import WEB, application, manifest, repository, target

STATE = ".image-update/apps/a/argocd_a.state"
DIGESTS = [f"sha256:{number:064x}" for number in range(1, 9)]
DAY = "2026-11-{:02}T06:00:00Z"


class Scene:
    """One Application in one repository, and events for its image."""

    def __init__(self, folder: Path, strategy: str, **annotations: str) -> None:
        self.folder, self.strategy = folder, strategy
        self.repo = repository(folder, "a")
        commit(
            self.repo,
            {target("a"): "resources: []\nimages:\n- name: ghcr.io/acme/web\n  newTag: 0-first\n"},
        )
        given = {"update_strategy": strategy, **annotations}
        self.apps = manifest(folder, application("a", self.repo, **given))

    def event(self, version: str, *more: str, command: str = "run", code: int = 0) -> Any:
        """Run the command for one event, and return its decision."""
        result = self.call(command, "--image", f"{WEB}:{version}", *more)
        assert result.code == code, result.stderr
        return result.json["decisions"][0]

    def call(self, command: str, *more: str) -> Result:
        return image_update(
            command,
            *more,
            "--applications",
            self.apps,
            "--allow-protocol",
            "file",
            "--output",
            "json",
        )

    @property
    def value(self) -> str:
        text = show(self.repo, "main", target("a"))
        return text.partition("newTag: ")[2].partition("\n")[0].strip("\"'")

    @property
    def tip(self) -> str:
        return git(self.repo, "rev-parse", "main")


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A source repository with five consecutive commits."""
    repo = bare_repo(tmp_path_factory.mktemp("source"), {"a": "0"}, name="source.git")
    return repo, [commit(repo, {"a": str(number)}) for number in range(1, 6)]


# Decisions are made by pure code, and tests/deciding/test_build_orders.py tests every order and
# identity. The following tests check two of them in whole runs.


def test_the_newest_build_by_commit_order_wins(
    tmp_path: Path, history: tuple[Path, list[str]]
) -> None:
    scene, (source, commits) = Scene(tmp_path, "newest-build"), history
    for number in (1, 5, 2, 4, 3):
        tag = f"main-{number * 7 % 5}{number}"  # tags that are not in build order
        scene.event(tag, "--source-commit", commits[number - 1], "--source-repository", str(source))
    assert scene.value == "main-05"


def test_the_newest_build_by_creation_time_wins(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "digest", image_list=f"web={WEB}:live")
    for number in (3, 5, 2, 4, 1):
        scene.event(f"live@{DIGESTS[number]}", "--created", DAY.format(number))
    assert DIGESTS[5] in show(scene.repo, "main", target("a"))


def test_the_reason_names_both_builds_and_their_sequence_numbers(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "newest-build")
    scene.event("main-b", "--sequence", "12")
    found = scene.event("main-a", "--sequence", "11")
    assert (found["verdict"], found["rule"]) == ("refuse", "superseded")
    assert "main-b" in found["because"]
    assert "sequence 11 comes before sequence 12" in found["because"]
    assert scene.value == "main-b"


def test_a_state_file_is_committed_with_the_version_but_only_if_needed(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path, "newest-build")
    scene.event("main-b", "--sequence", "12")
    assert changed_paths(scene.repo) == [STATE, target("a")]
    assert 'sequence: "12"' in show(scene.repo, "main", STATE)
    other = tmp_path / "other"
    other.mkdir()
    by_tag = Scene(other, "semver")
    by_tag.event("1.1.0", "--sequence", "12")
    assert changed_paths(by_tag.repo) == [target("a")]


def test_replaying_an_old_pipeline_changes_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "newest-build")
    builds = [
        (tag, "--sequence", number)
        for tag, number in (("main-b", "1"), ("main-a", "2"), ("main-c", "3"))
    ]
    for build in builds:
        scene.event(*build)
    tip = scene.tip
    for build in builds[:2]:
        found = scene.event(*build)
        assert (found["verdict"], found["rule"]) == ("refuse", "superseded")
    assert scene.event(*builds[2])["verdict"] == "unchanged"
    assert scene.tip == tip


def test_a_broken_state_file_is_an_error_for_its_images(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "newest-build")
    commit(scene.repo, {STATE: "images: [unfinished\n"})
    tip = scene.tip
    found = scene.event("main-b", code=3)
    assert (found["verdict"], found["rule"]) == ("error", "target")
    assert STATE in found["because"]
    assert scene.tip == tip


def test_numbers_from_different_counters_are_not_compared(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "newest-build")
    github = {
        "GITHUB_RUN_NUMBER": "90",
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": "acme/web",
    }
    for env, tag in (
        ({**github, "GITHUB_WORKFLOW": "build"}, "main-a"),
        ({"BUILD_NUMBER": "3", "JOB_NAME": "j"}, "main-b"),
    ):
        result = image_update(
            "run",
            "--image",
            f"{WEB}:{tag}",
            "--applications",
            scene.apps,
            "--allow-protocol",
            "file",
            env=env,
        )
        assert result.code == 0
        assert scene.value == tag


def test_plan_and_run_report_the_same_decisions(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "newest-build")
    for more in (
        ["main-b", "--sequence", "12"],
        ["main-a", "--sequence", "11"],
        ["main-c", "--sequence", "13"],
    ):
        planned = scene.call("plan", "--image", f"{WEB}:{more[0]}", *more[1:]).json
        done = scene.call("run", "--image", f"{WEB}:{more[0]}", *more[1:]).json
        assert planned["decisions"] == done["decisions"]
        assert [one["tree"] for one in planned["commits"]] == [
            one["tree"] for one in done["commits"]
        ]
