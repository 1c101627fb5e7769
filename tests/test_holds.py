"""A rollback stays, a hold holds, a release applies what waited: from the command line to the branch."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from runs import WEB, application, manifest, repository, target
from support import Result, changed_paths, commit, git, image_update, show

STATE = ".image-update/apps/a/argocd_a.state"


class Scene:
    """One Application in one repository; events, and a person's word, for it."""

    def __init__(self, folder: Path, strategy: str = "newest-build", **annotations: str) -> None:
        self.repo = repository(folder, "a")
        self.apps = manifest(folder, application("a", self.repo, update_strategy=strategy, **annotations))

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
        return show(self.repo, "main", target("a")).partition("newTag: ")[2].partition("\n")[0].strip("\"'")

    @property
    def tip(self) -> str:
        return git(self.repo, "rev-parse", "main")

    @property
    def commits(self) -> int:
        return int(git(self.repo, "rev-list", "--count", "main"))


@pytest.mark.parametrize(("strategy", "tags"), [("newest-build", "cab"), ("semver", "123"), ("alphabetical", "123")])
@pytest.mark.parametrize("identified", [True, False])
def test_a_rollback_stays_until_it_is_released(
    tmp_path: Path,
    strategy: str,
    tags: str,
    identified: bool,
) -> None:
    one, two, three = (f"2.{tag}.0" if strategy == "semver" else f"b{tag}" for tag in tags)
    scene = Scene(tmp_path, strategy)
    number = {tag: (["--sequence", str(place)] if identified else []) for place, tag in enumerate((one, two, three))}
    assert scene.event(one, *number[one]) == scene.event(two, *number[two]) == ("update", "admitted")
    back = scene.do("rollback", "a", "--to", one, "--reason", "errors")
    assert (back["verdict"], scene.value) == ("update", one)
    assert changed_paths(scene.repo) == [STATE, target("a")]
    tip = scene.tip
    assert scene.event(two, *number[two]) == ("refuse", "superseded")
    assert scene.tip == tip
    assert scene.event(three, *number[three]) == ("defer", "held")
    assert (scene.value, changed_paths(scene.repo)) == (one, [STATE])
    before = scene.commits
    assert scene.do("release", "a")["verdict"] == "update"
    assert (scene.value, scene.commits) == (three, before + 1)
    assert scene.event(two, *number[two])[0] == "refuse"
    assert scene.value == three


def test_the_newest_event_is_remembered_while_held(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.do("hold", "a", "--reason", "freeze")
    assert scene.event("m5", "--sequence", "5") == ("defer", "held")
    assert scene.event("m7", "--sequence", "7") == ("defer", "held")
    tip = scene.tip
    assert scene.event("m6", "--sequence", "6") == ("refuse", "superseded")
    assert scene.event("m7", "--sequence", "7") == ("defer", "held")
    assert (scene.tip, scene.value) == (tip, "1.0.0")
    scene.do("release", "a")
    assert scene.value == "m7"
    assert STATE in git(scene.repo, "ls-tree", "-r", "--name-only", "main")
    assert "freeze" not in show(scene.repo, "main", STATE)


def test_release_may_drop_what_waited(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "semver")
    scene.do("hold", "a", "--reason", "freeze")
    scene.event("1.2.0")
    assert scene.do("release", "a", "--discard")["verdict"] == "unchanged"
    assert scene.value == "1.0.0"
    assert STATE not in git(scene.repo, "ls-tree", "-r", "--name-only", "main")  # nothing is left to remember
    assert scene.do("release", "a")["because"] == "it is not held"


def test_release_asks_the_rules_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "semver")
    scene.do("hold", "a", "--reason", "freeze")
    scene.event("1.2.0")
    scene.apps = manifest(
        tmp_path, application("a", scene.repo, update_strategy="semver", image_list=f"web={WEB}:~1.1")
    )
    found = scene.do("release", "a")
    assert (found["verdict"], found["rule"], scene.value) == ("refuse", "constraint", "1.0.0")


def test_a_hold_says_who_why_and_until_when(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    found = scene.do("hold", "a", "--reason", "incident 42\n: x", "--by", "jane", "--until", "2099-01-01")
    assert (found["verdict"], found["rule"]) == ("defer", "held")
    for word in ("incident 42 : x", "jane", "2099-01-01T00:00:00Z"):
        assert word in found["because"]
        assert word in show(scene.repo, "main", STATE)
    tip = scene.tip
    assert (
        scene.do("hold", "a", "--reason", "incident 42\n: x", "--by", "jane", "--until", "2099-01-01")["verdict"]
        == "unchanged"
    )
    assert scene.tip == tip
    assert scene.event("m1") == ("defer", "held")
    assert "jane" in git(scene.repo, "log", "-1", "--format=%B", "main")


def test_a_hold_counts_as_something_that_was_written(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.call("hold", "a", "--reason", "x").json["status"] == "updated"
    assert scene.call("hold", "a", "--reason", "x").json["status"] != "updated"


def test_a_hold_ends_by_itself(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    hold, waits = {"reason": "freeze", "until": "2020-01-01T00:00:00Z"}, {"tag": "m9", "sequence": "9"}
    state = {"files": {target("a"): {"hold": hold, "images": {"web": {"deferred": waits}}}}}
    commit(scene.repo, {STATE: json.dumps(state)})
    assert scene.event("m8", "--sequence", "8") == ("update", "admitted")
    assert scene.value == "m9"  # what waited is the newer one
    assert "freeze" not in show(scene.repo, "main", STATE)


@pytest.mark.parametrize(
    ("to", "value"), [("previous", "1.3.0"), ("2-back", "1.2.0"), ("3-back", "1.1.0"), ("1.1.0", "1.1.0")]
)
def test_what_to_go_back_to(tmp_path: Path, to: str, value: str) -> None:
    scene = Scene(tmp_path, "semver")
    for number in range(1, 5):
        scene.event(f"1.{number}.0")
        commit(scene.repo, {"README": str(number)})
    scene.do("rollback", "a", "--to", to)
    assert scene.value == value
    tip = scene.tip
    for tag in ("1.4.0", "1.3.0"):
        verdict, _ = scene.event(tag)
        assert verdict in ("refuse", "unchanged")
    assert scene.tip == tip


@pytest.mark.parametrize("more", [(), ("--no-hold",), ("--image", "web"), ("--reason", "INC-42")])
@pytest.mark.parametrize(("to", "value"), [("previous", "1.2.0"), ("2-back", "1.1.0")])
def test_a_rollback_that_runs_twice_goes_back_once(tmp_path: Path, to: str, value: str, more: tuple[str, ...]) -> None:
    """Git's history says that the value before is now the one that was rolled back from."""
    scene = Scene(tmp_path, "semver")
    for tag in ("1.1.0", "1.2.0", "1.3.0"):
        scene.event(tag)
    assert scene.do("rollback", "a", "--to", to, *more)["verdict"] == "update"
    tip = scene.tip
    again = scene.do("rollback", "a", "--to", to, *more)
    assert (again["verdict"], scene.value, scene.tip) == ("unchanged", value, tip)
    assert f"{value}, which {to} meant" in again["because"]
    state = yaml.safe_load(show(scene.repo, "main", STATE))["files"][target("a")]
    assert state["images"]["web"]["rollback"] == {"to": to, "tag": value}


def test_after_a_release_or_an_update_previous_is_asked_anew(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "semver")
    for tag in ("1.1.0", "1.2.0"):
        scene.event(tag)
    scene.do("rollback", "a", "--to", "previous")
    scene.do("release", "a")
    assert scene.do("rollback", "a", "--to", "previous")["verdict"] == "update"
    assert scene.value == "1.2.0"
    scene.do("release", "a")
    scene.event("1.3.0")
    assert scene.do("rollback", "a", "--to", "previous")["verdict"] == "update"
    assert scene.value == "1.2.0"


@pytest.mark.parametrize(
    ("images", "more", "reason"),
    [
        (f"web={WEB}", (), "rolled back to 1.1.0"),
        (f"web={WEB}, db=ghcr.io/acme/db", ("--image", "web"), "rolled back to 1.1.0"),
        (f"web={WEB}, db=ghcr.io/acme/db", (), "rolled back to previous"),  # it may be another tag for each image
    ],
)
def test_a_hold_without_a_reason_names_the_tag(tmp_path: Path, images: str, more: tuple[str, ...], reason: str) -> None:
    scene = Scene(tmp_path, "semver", image_list=images)
    for tag in ("1.1.0", "1.2.0"):
        scene.event(tag)
        scene.call("run", "--image", f"ghcr.io/acme/db:{tag}")
    scene.do("rollback", "a", "--to", "previous", *more)
    assert f"reason: {reason}\n" in show(scene.repo, "main", STATE)


def test_more_steps_back_than_there_are(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    found = scene.do("rollback", "a", "--to", "3-back", code=3)
    assert (found["verdict"], found["rule"]) == ("error", "target")
    assert "no earlier value" in found["because"]


def test_a_rollback_need_not_hold(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "semver")
    for tag in ("1.1.0", "1.2.0"):
        scene.event(tag)
    scene.do("rollback", "a", "--to", "previous", "--no-hold")
    assert scene.value == "1.1.0"
    assert scene.event("1.2.0") == ("refuse", "superseded")
    assert scene.event("1.1.1") == ("update", "admitted")
    assert scene.event("1.2.0") == ("refuse", "superseded")
    assert scene.event("1.3.0") == ("update", "admitted")
    assert STATE not in git(scene.repo, "ls-tree", "-r", "--name-only", "main")


def test_single_images_and_several_applications(tmp_path: Path) -> None:
    repo = repository(tmp_path, "a", "b")
    apps = manifest(tmp_path, *(application(name, repo, image_list=f"web={WEB}, db=ghcr.io/acme/db") for name in "ab"))
    given = ("--applications", apps, "--allow-protocol", "file", "--output", "json")
    held = image_update("hold", "a", "b", "--image", "web", "--reason", "x", *given)
    assert (held.code, len(held.json["commits"])) == (0, 1)
    for image, verdict in ((f"{WEB}:1.1.0", "defer"), ("ghcr.io/acme/db:1.1.0", "update")):
        decisions = image_update("run", "--image", image, *given).json["decisions"]
        assert [one["verdict"] for one in decisions] == [verdict, verdict]
    assert image_update("hold", "a", "--image", "cache", "--reason", "x", *given).code == 3
    assert image_update("hold", "c", "--reason", "x", *given).code == 3


@pytest.mark.measured
def test_a_dry_run_shows_the_diff_and_writes_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    tip = scene.tip
    result = scene.call("hold", "a", "--reason", "freeze", "--dry-run")
    assert "+      reason: freeze" in result.json["commits"][0]["diff"]
    assert (result.code, scene.tip) == (0, tip)


def test_plan_and_lint_show_what_is_held(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "semver")
    scene.do("hold", "a", "--image", "web", "--reason", "freeze", "--by", "jane")
    scene.event("1.2.0")
    planned = scene.call("plan", "--image", f"{WEB}:1.3.0").json["decisions"][0]
    assert (planned["verdict"], planned["rule"]) == ("defer", "held")
    assert "freeze" in planned["because"]
    (found,) = scene.call("lint").json["findings"]
    assert (found["severity"], found["application"]) == ("info", "argocd/a")
    assert "web is held by jane" in found["message"]
    assert "1.2.0 waits" in found["message"]


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
def test_what_makes_no_sense_is_a_usage_error(tmp_path: Path, args: tuple[str, ...], named: str) -> None:
    scene = Scene(tmp_path)
    result = scene.call(*args)
    assert result.code == 2
    assert named in result.stderr
