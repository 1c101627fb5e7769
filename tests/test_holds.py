"""Rollbacks persist, holds take effect, and releases apply waiting builds: tested from the command
line to the branch.

The decisions for each event are tested in tests/deciding/test_by_hand.py.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import Result, changed_paths, commit, git, image_update, show
from support.runs import WEB, application, manifest, repository, target

STATE = ".image-update/apps/a/argocd_a.state"


class Scene:
    """One Application in one repository, with events and manual commands for it."""

    def __init__(self, folder: Path, strategy: str = "newest-build", **annotations: str) -> None:
        self.repo = repository(folder, "a")
        self.apps = manifest(
            folder, application("a", self.repo, update_strategy=strategy, **annotations)
        )

    def call(self, command: str, *more: str) -> Result:
        given = ("--applications", str(self.apps), "--allow-protocol", "file", "--output", "json")
        return image_update(command, *more, *given)

    def event(self, tag: str, *more: str) -> tuple[str, str]:
        result = self.call("run", "--image", f"{WEB}:{tag}", *more)
        assert result.code == 0, result.stderr
        found = result.json["decisions"][0]
        return found["verdict"], found["rule"]

    def do(self, command: str, *more: str, code: int = 0) -> Any:
        result = self.call(command, *more)
        assert result.code == code, result.stderr + result.stdout
        return result.json["decisions"][0] if result.json["decisions"] else result.json

    @property
    def value(self) -> str:
        return (
            show(self.repo, "main", target("a"))
            .partition("newTag: ")[2]
            .partition("\n")[0]
            .strip("\"'")
        )

    @property
    def tip(self) -> str:
        return git(self.repo, "rev-parse", "main")

    @property
    def commits(self) -> int:
        return int(git(self.repo, "rev-list", "--count", "main"))


def test_a_rollback_stays_until_its_release(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert (
        scene.event("bc", "--sequence", "1")
        == scene.event("ba", "--sequence", "2")
        == ("update", "admitted")
    )
    back = scene.do("rollback", "a", "--to", "bc", "--reason", "errors")
    assert (back["verdict"], scene.value) == ("update", "bc")
    assert changed_paths(scene.repo) == [STATE, target("a")]
    tip = scene.tip
    assert scene.event("ba", "--sequence", "2") == ("refuse", "superseded")
    assert scene.tip == tip
    assert scene.event("bb", "--sequence", "3") == ("defer", "held")
    assert (scene.value, changed_paths(scene.repo)) == ("bc", [STATE])
    before = scene.commits
    assert scene.do("release", "a")["verdict"] == "update"
    assert (scene.value, scene.commits) == ("bb", before + 1)
    assert STATE in git(
        scene.repo, "ls-tree", "-r", "--name-only", "main"
    )  # only the newest build is remembered


def test_a_hold_records_its_reason_author_and_end(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    found = scene.do(
        "hold", "a", "--reason", "incident 42\n: x", "--by", "jane", "--until", "2099-01-01"
    )
    assert (found["verdict"], found["rule"]) == ("defer", "held")
    for word in ("incident 42 : x", "jane", "2099-01-01"):
        assert word in found["because"]
        assert word in show(scene.repo, "main", STATE)
    tip = scene.tip
    assert (
        scene.do(
            "hold", "a", "--reason", "incident 42\n: x", "--by", "jane", "--until", "2099-01-01"
        )["verdict"]
        == "unchanged"
    )
    assert scene.tip == tip
    assert scene.event("m1") == ("defer", "held")
    assert "jane" in git(scene.repo, "log", "-1", "--format=%B", "main")


def test_placing_a_hold_results_in_the_status_updated(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.call("hold", "a", "--reason", "x").json["status"] == "updated"
    assert scene.call("hold", "a", "--reason", "x").json["status"] != "updated"


@pytest.mark.parametrize("more", [(), ("--no-hold", "--alias", "web")])
def test_repeating_a_rollback_does_not_go_back_further(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    scene = Scene(tmp_path, "semver")
    for tag in ("1.1.0", "1.2.0"):
        scene.event(tag)
        commit(scene.repo, {"README": tag})
    assert scene.do("rollback", "a", "--to", "2-back", *more)["verdict"] == "update"
    tip = scene.tip
    again = scene.do("rollback", "a", "--to", "2-back", *more)
    assert (again["verdict"], scene.value, scene.tip) == ("unchanged", "1.0.0", tip)
    state = yaml.safe_load(show(scene.repo, "main", STATE))["files"][target("a")]
    assert state["images"]["web"]["rollback"] == {"to": "2-back", "tag": "1.0.0", "was": "1.2.0"}


def test_release_can_discard_the_waiting_update(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "semver")
    scene.do("hold", "a", "--reason", "freeze")
    scene.event("1.2.0")
    assert scene.do("release", "a", "--discard")["verdict"] == "unchanged"
    assert scene.value == "1.0.0"
    assert STATE not in git(
        scene.repo, "ls-tree", "-r", "--name-only", "main"
    )  # there is nothing left to remember


def test_rolling_back_further_than_the_history_is_an_error(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    found = scene.do("rollback", "a", "--to", "3-back", code=3)
    assert (found["verdict"], found["rule"]) == ("error", "target")
    assert "no earlier version" in found["because"]


def test_hold_and_release_work_for_single_images_and_several_applications(tmp_path: Path) -> None:
    repo = repository(tmp_path, "a", "b")
    apps = manifest(
        tmp_path,
        *(application(name, repo, image_list=f"web={WEB}, db=ghcr.io/acme/db") for name in "ab"),
    )
    given = ("--applications", apps, "--allow-protocol", "file", "--output", "json")
    held = image_update("hold", "a", "b", "--alias", "web", "--reason", "x", *given)
    assert (held.code, len(held.json["commits"])) == (0, 1)
    for image, verdict in ((f"{WEB}:1.1.0", "defer"), ("ghcr.io/acme/db:1.1.0", "update")):
        decisions = image_update("run", "--image", image, *given).json["decisions"]
        assert [one["verdict"] for one in decisions] == [verdict, verdict]
    assert image_update("hold", "a", "--alias", "cache", "--reason", "x", *given).code == 3
    assert image_update("hold", "c", "--reason", "x", *given).code == 3


@pytest.mark.parametrize(
    ("template", "beginning"),
    [
        (
            "",
            "build: automatic update of acme/web to 1.1.0 for a, b\n\nupdates image acme/web tag '1.0.0' to '1.1.0' for a, b\n",
        ),
        ("chore: {{.AppName}}", "chore: a, b\n"),
    ],
)
def test_a_commit_message_lists_updated_and_deferred_applications(
    tmp_path: Path, template: str, beginning: str
) -> None:
    repo = repository(tmp_path, "a", "b", "c")
    if template:
        commit(
            repo,
            {
                ".image-update/config": "version: 1\ncommit: {template: .image-update/message}",
                ".image-update/message": template,
            },
        )
    sources = manifest(tmp_path, *(application(name, repo) for name in "abc"))
    apps = ("--applications", str(sources), "--allow-protocol", "file")
    assert image_update("hold", "c", "--reason", "INC-42", *apps).code == 0
    assert image_update("run", "--image", f"{WEB}:1.1.0", *apps).code == 0
    text, _, trailers = git(repo, "log", "-1", "--format=%B", "main").rpartition("\n\n")
    assert text.startswith(beginning)
    kept = r"^Held back:\nc \(web\): held since .*INC-42.*; 1\.1\.0 is waiting: image-update release argocd/c ends the hold"
    assert re.search(kept, text, re.MULTILINE)
    assert trailers.splitlines() == [
        f"Image: {WEB}:1.1.0",
        "Application: argocd/a",
        "Application: argocd/b",
    ]


@pytest.mark.measured
def test_a_dry_run_shows_the_diff_and_writes_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    tip = scene.tip
    result = scene.call("hold", "a", "--reason", "freeze", "--dry-run")
    assert "+      reason: freeze" in result.json["commits"][0]["diff"]
    assert (result.code, scene.tip) == (0, tip)


@pytest.mark.parametrize("branch", ["main", "main:held-{{.SHA256}}", "main:bump"])
def test_a_hold_takes_effect_at_once_for_every_kind_of_branch(tmp_path: Path, branch: str) -> None:
    scene = Scene(tmp_path, "semver", git_branch=branch)
    result = scene.call("hold", "a", "--reason", "freeze")
    (commit,) = result.json["commits"]
    assert commit["head"].partition("/")[0] == (
        "main" if branch == "main" else "image-update-memory"
    )
    assert result.json["errors"] == []
    assert scene.event("1.2.0") == ("defer", "held")


def test_plan_and_lint_show_holds(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "semver")
    scene.do("hold", "a", "--alias", "web", "--reason", "freeze", "--by", "jane")
    scene.event("1.2.0")
    planned = scene.call("plan", "--image", f"{WEB}:1.3.0").json["decisions"][0]
    assert (planned["verdict"], planned["rule"]) == ("defer", "held")
    assert "freeze" in planned["because"]
    (found,) = scene.call("lint").json["findings"]
    assert (found["severity"], found["application"]) == ("info", "argocd/a")
    assert "web is held by jane" in found["message"]
    assert "1.2.0 is waiting" in found["message"]


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (("hold", "a"), "--reason"),
        (("hold", "a", "--reason", "x", "--until", "yesterday"), "--until"),
        (("hold", "a", "--reason", "x", "--until", "2020-01-01"), "--until"),
        (("rollback", "a"), "--to"),
        (("rollback", "a", "--to", "--upload-pack"), "--to"),
        (("rollback", "a", "--to", "a b"), "--to"),
        (("release",), "APP"),
    ],
)
def test_missing_or_invalid_options_are_usage_errors(
    tmp_path: Path, args: tuple[str, ...], named: str
) -> None:
    scene = Scene(tmp_path)
    result = scene.call(*args)
    assert result.code == 2
    assert named in result.stderr


def test_hold_and_release_report_that_they_committed(tmp_path: Path) -> None:
    repo = repository(tmp_path, "a")
    apps = manifest(tmp_path, application("a", repo))
    given = ("a", "--applications", str(apps), "--allow-protocol", "file")
    ends = [
        (("hold", "--reason", "freeze", "--dry-run"), "1 held, would commit"),
        (("hold", "--reason", "freeze"), "1 held, committed"),
        (("release", "--dry-run"), "1 current, would commit"),
        (("release",), "1 current, committed"),
        (("release",), "1 current"),
    ]
    for (command, *more), words in ends:
        assert (
            image_update(command, *more, *given).stdout.splitlines()[0]
            == f"image-update {command} argocd/a: {words}"
        )
