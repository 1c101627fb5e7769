"""`--wait --on-failure rollback`, from the push to the rollback commit: what is rolled back, and
what is reported.
"""

import json
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes.argocd_api import ArgoCDServer, Fault
from fakes.argocd_states import at, operated
from support import Result, commit, git, image_update, show
from support.clusters import full_application
from support.runs import KUSTOMIZATION, WEB, arguments, manifest, start, target, wait_until
from test_wait_runs import (
    OLD_ONE,
    Play,
    Played,
    by_hand,
    env,
    good,
    hook_fails,
    old,
    paused,
    played,
    stuck,
    unseen,
    versioned,
    waiting,
)

BACK = f"rolled back: {WEB} is held at 1.0.0; "
STATE = ".image-update/apps/web/argocd_web.state"
ON_FAILURE = ("--on-failure", "rollback", "--wait-timeout", "6")


def undoing(argo_cd: ArgoCDServer, *more: str | Path, **others: Any) -> Result:
    return waiting(argo_cd, *ON_FAILURE, *more, **others)


def then(*plays: Play) -> Play:
    """Return a play that uses the first of these plays for the update, and the second for the
    rollback.
    """
    left = iter(plays)

    def play(one: dict[str, Any], tip: str) -> Sequence[dict[str, Any]]:
        return next(left)(one, tip)

    return play


def nothing_to_sync(one: dict[str, Any], tip: str) -> list[dict[str, Any]]:
    """A play for a rollback that has nothing to sync: the failed sync has changed nothing, so the
    version that is back in Git is the running one.
    """
    failed = operated("Failed", revision="b" * 40)
    states = [
        at(one, "Synced", "Healthy", revision=tip, compared=at_, operation=failed)
        for at_ in (13, 14, 15, 16)
    ]
    return [{**state, "status": {**state["status"], "summary": OLD_ONE}} for state in states]


def synced_again(one: dict[str, Any], tip: str) -> list[dict[str, Any]]:
    states = good(one, tip)
    return [*states[:-1], {**states[-1], "status": {**states[-1]["status"], "summary": OLD_ONE}}]


def warnings(result: Result) -> list[str]:
    return [one["message"] for one in result.json["errors"] if one["severity"] == "warning"]


def test_only_the_failing_application_is_rolled_back(tmp_path: Path, argo_cd: ArgoCDServer) -> None:
    repo = played(argo_cd, tmp_path, web=hook_fails, api=good)
    results, report = tmp_path / "results", tmp_path / "report.json"
    result = undoing(argo_cd, "--results-dir", results, "--report", report)
    assert (result.code, result.json["status"]) == (6, "failed")
    assert "newTag: 1.0.0" in show(repo, "main", target("web"))
    assert "newTag: 1.1.0" in show(repo, "main", target("api"))
    update, back = result.json["commits"]
    assert (update["rollback"], update["applications"]) == (False, ["argocd/api", "argocd/web"])
    assert (back["rollback"], back["applications"]) == (True, ["argocd/web"])
    assert back["commit"] == git(repo, "rev-parse", "main")
    assert {
        name: (results / name).read_text() for name in ("updated", "rolled-back", "commit")
    } == {
        "updated": "true",
        "rolled-back": "true",
        "commit": update["commit"],
    }
    hold = show(repo, "main", ".image-update/apps/web/argocd_web.state")
    assert "PreSync hook Job migrate: Job has reached the backoff limit" in hold
    assert show(repo, "main", "apps/api/kustomization.yaml").count("newTag") == 1
    assert "rolled back: ghcr.io/acme/web is held at 1.0.0" in result.stderr
    for shown in (
        image_update("report", report).stdout,
        image_update("report", report, "--html", "-").stdout,
    ):
        assert "rolled back" in shown
        assert "failed" in shown
    again = undoing(argo_cd)  # `held`: nothing is written, but the run waits for the rollout
    assert {one["application"]: one["rule"] for one in again.json["decisions"]} == {
        "argocd/api": "same",
        "argocd/web": "superseded",
    }


def never_synced(one: dict[str, Any], tip: str) -> list[dict[str, Any]]:
    before = operated(revision="a" * 40, started=1, finished=2)
    return [old(one), at(one, "OutOfSync", "Healthy", revision=tip, operation=before)]


def test_a_paused_canary_is_left_alone(tmp_path: Path, argo_cd: ArgoCDServer) -> None:
    repo = played(argo_cd, tmp_path, web=paused, api=good)
    result = undoing(argo_cd)
    assert (result.code, result.json["status"]) == (0, "updated"), result.stderr
    assert "newTag: 1.1.0" in show(repo, "main", target("web"))
    assert [one["rollback"] for one in result.json["commits"]] == [False]
    assert warnings(result) == ["paused, and not healthy yet: Rollout web: CanaryPauseStep"]


@pytest.mark.parametrize("play", [by_hand, never_synced])
def test_a_change_that_was_never_synced_is_not_rolled_back(
    tmp_path: Path, argo_cd: ArgoCDServer, play: Play
) -> None:
    repo = played(argo_cd, tmp_path, web=play)
    result = undoing(argo_cd)
    assert result.code == 6
    assert "newTag: 1.1.0" in show(repo, "main", target("web"))
    assert warnings(result) == ["not rolled back: no sync of this change has failed"]


def test_a_sync_that_takes_too_long_is_rolled_back(tmp_path: Path, argo_cd: ArgoCDServer) -> None:
    repo = played(argo_cd, tmp_path, web=stuck)
    result = undoing(argo_cd)
    assert (result.code, [one["rollback"] for one in result.json["commits"]]) == (6, [False, True])
    assert "newTag: 1.0.0" in show(repo, "main", target("web"))
    why = "--wait-timeout has run out"
    assert warnings(result) == [
        f"{BACK}it is unknown whether the Application is healthy again: {why}"
    ]


def uncompared(one: dict[str, Any], tip: str) -> list[dict[str, Any]]:
    """The sync has succeeded, but a busy Argo CD has not compared the Application since."""
    done = operated(revision=tip)
    return [*unseen(one, tip), at(one, "OutOfSync", "Healthy", revision=tip, operation=done)]


@pytest.mark.parametrize("play", [unseen, uncompared])
def test_a_slow_argo_cd_does_not_cause_a_rollback(
    tmp_path: Path, argo_cd: ArgoCDServer, play: Play
) -> None:
    repo = played(argo_cd, tmp_path, web=play)
    result = undoing(argo_cd)
    assert result.code == 6
    assert "newTag: 1.1.0" in show(repo, "main", target("web"))
    assert [one["rollback"] for one in result.json["commits"]] == [False]
    (told,) = warnings(result)
    assert told.startswith("not rolled back: the state of the rollout is unknown: Argo CD has not")


def during(argo_cd: ArgoCDServer, repo: Path, happens: Callable[[], object]) -> None:
    """Make something else happen while the run waits for the rollout."""

    class Busy(Played):
        def __getitem__(self, key: tuple[str, str]) -> list[dict[str, Any]]:
            if git(self.repo, "rev-list", "--count", "main") == "2":
                happens()
            return super().__getitem__(key)

    argo_cd.plays = Busy(repo, {"web": hook_fails}, [versioned(full_application("web", repo))])


def test_a_newer_build_is_not_rolled_back(tmp_path: Path, argo_cd: ArgoCDServer) -> None:
    repo = played(argo_cd, tmp_path, web=hook_fails)
    newer = {target("web"): KUSTOMIZATION.replace("1.0.0", "1.2.0")}
    during(argo_cd, repo, lambda: commit(repo, newer, message="A newer build"))
    result = undoing(argo_cd)
    assert result.code == 6
    assert "newTag: 1.2.0" in show(repo, "main", target("web"))
    assert [one["rollback"] for one in result.json["commits"]] == [False, False]
    assert "failed:" in show(repo, "main", STATE)
    assert result.json["status"] == "failed"
    assert "Git now has 1.2.0, not 1.1.0" in warnings(result)[0]


def test_an_unavailable_argo_cd_does_not_cause_a_rollback(
    tmp_path: Path, argo_cd: ArgoCDServer
) -> None:
    repo = played(argo_cd, tmp_path, web=hook_fails)
    during(argo_cd, repo, lambda: argo_cd.faults.extend([Fault(503)] * 50))
    result = undoing(argo_cd)
    assert (result.code, result.json["status"]) == (75, "failed")
    assert "newTag: 1.1.0" in show(repo, "main", target("web"))


@pytest.mark.parametrize("again", [nothing_to_sync, synced_again])
def test_the_report_confirms_that_a_restored_version_is_healthy(
    tmp_path: Path, argo_cd: ArgoCDServer, again: Play
) -> None:
    played(argo_cd, tmp_path, web=then(hook_fails, again))
    result = undoing(argo_cd, "--wait-timeout", "20")
    assert result.code == 6
    assert warnings(result) == [BACK + "the Application is healthy again"]


def test_a_restored_version_that_also_fails_is_an_error(
    tmp_path: Path, argo_cd: ArgoCDServer
) -> None:
    repo = played(argo_cd, tmp_path, web=hook_fails)
    result = undoing(argo_cd, "--wait-timeout", "20")
    assert (result.code, "newTag: 1.0.0" in show(repo, "main", target("web"))) == (6, True)
    cause, back = (one["message"] for one in result.json["errors"] if one["severity"] == "error")
    assert "PreSync hook Job migrate" in cause
    assert back == f"{BACK}the Application did not become healthy again: {cause}"


def test_a_restored_version_that_is_not_healthy_in_time_is_a_warning(
    tmp_path: Path, argo_cd: ArgoCDServer
) -> None:
    repo = played(argo_cd, tmp_path, web=then(hook_fails, stuck))
    result = undoing(argo_cd)
    assert result.code == 6
    (told,) = warnings(result)
    assert told.startswith(f"{BACK}the Application is not healthy again yet: the sync is running")
    hint = result.json["errors"][-1]["hint"]
    assert hint.startswith(
        f"image-update wait argocd/web --revision {git(repo, 'rev-parse', 'main')}; once the cause"
    )


def test_losing_argo_cd_after_the_rollback_keeps_the_exit_code(
    tmp_path: Path, argo_cd: ArgoCDServer
) -> None:
    def gone(one: dict[str, Any], tip: str) -> list[dict[str, Any]]:
        argo_cd.faults.extend([Fault(503)] * 50)
        return stuck(one, tip)

    played(argo_cd, tmp_path, web=then(hook_fails, gone))
    result = undoing(argo_cd)
    assert result.code == 6
    (told,) = warnings(result)
    assert told.startswith(f"{BACK}it is unknown whether the Application is healthy again: ")


def test_sigterm_after_the_rollback_still_reports_the_rollback(
    tmp_path: Path, argo_cd: ArgoCDServer
) -> None:
    looked: list[str] = []

    def looking(one: dict[str, Any], tip: str) -> Sequence[dict[str, Any]]:
        looked.append(tip)
        return stuck(one, tip)

    repo = played(argo_cd, tmp_path, web=then(hook_fails, looking))
    results = tmp_path / "results"
    more = ("--wait", *ON_FAILURE, "--wait-timeout", "60", "--results-dir", results)
    one = start(
        arguments(manifest(tmp_path, full_application("web", repo)), *more), env=env(argo_cd)
    )
    wait_until(lambda: looked)
    os.kill(one.pid, signal.SIGTERM)
    out, err = one.communicate(timeout=30)
    assert one.returncode == 143, err
    assert (results / "rolled-back").read_text() == "true"
    (told,) = (
        each["message"] for each in json.loads(out)["errors"] if each["severity"] == "warning"
    )
    assert (
        told == f"{BACK}it is unknown whether the Application is healthy again: stopped by SIGTERM"
    )


def test_a_rollback_is_reported_as_text(tmp_path: Path, argo_cd: ArgoCDServer) -> None:
    played(argo_cd, tmp_path, web=hook_fails)
    told = undoing(argo_cd, "--output", "text")
    assert told.code == 6
    words = "1 failed rollout (argocd/web), 1 updated, rolled back; exit code 6 (for the developer)"
    assert told.stdout.splitlines()[0].endswith(f": {words}")
    assert "\nrollback commit " in told.stdout
