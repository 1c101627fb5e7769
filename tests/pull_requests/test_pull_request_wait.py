"""`--wait` with pull requests: waiting for the merge, then for the rollout of the merge commit."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.argocd_api import ArgoCDServer, argocd_server
from fakes.argocd_states import OLD, at, live_application, operated
from fakes.github_api import GitHub
from support.request_scenes import TOKEN, Scene
from support.runs import WEB, wait_until
from support.serving import serving


@pytest.fixture
def forge() -> Iterator[GitHub]:
    with serving(GitHub()) as running:
        yield running


@pytest.fixture
def argo() -> Iterator[ArgoCDServer]:
    with argocd_server() as running:
        yield running


@pytest.fixture
def scene(forge: GitHub, argo: ArgoCDServer, tmp_path: Path) -> Scene:
    scene = Scene(tmp_path, forge)
    scene.flags = (
        "--pull-request",
        "--wait",
        "--wait-timeout",
        "20",
        "--argocd-server",
        argo.address,
        "--argocd-plaintext",
    )
    scene.env |= {"ARGOCD_AUTH_TOKEN": TOKEN}
    argo.add(shown(scene, OLD, operated(revision=OLD, started=1, finished=2)))
    return scene


def shown(
    scene: Scene, revision: str, operation: dict[str, Any], compared: int = 10
) -> dict[str, Any]:
    source = {"repoURL": scene.url, "path": "apps/a", "targetRevision": "main"}
    app, runs = live_application("a", source=source), [f"{WEB}:1.1.0"]
    return at(
        app,
        "Synced",
        "Healthy",
        revision=revision,
        operation=operation,
        compared=compared,
        images=runs,
    )


def rolled_out(scene: Scene, argo: ArgoCDServer, revision: str) -> None:
    with argo.lock:
        before = shown(scene, OLD, operated(revision=OLD, started=1, finished=2))
        argo.add(before, shown(scene, revision, operated(revision=revision), compared=13))


def test_a_run_waits_for_the_merge_and_the_rollout(
    scene: Scene, forge: GitHub, argo: ArgoCDServer
) -> None:
    run = scene.started("--image", f"{WEB}:1.1.0")
    wait_until(lambda: forge.open)
    assert run.poll() is None
    pull = scene.merge()
    wait_until(lambda: argo.asked("GET", "/applications/a"))
    rolled_out(scene, argo, pull.merge_commit)
    out, err = run.communicate(timeout=30)
    assert run.returncode == 0, err.decode()
    assert json.loads(out)["status"] == "updated"


def test_a_repeated_event_also_waits_for_the_merge(
    scene: Scene, forge: GitHub, argo: ArgoCDServer
) -> None:
    flags, scene.flags = scene.flags, ("--pull-request",)
    scene.event(f"{WEB}:1.1.0")
    scene.flags = flags
    forge.seen.clear()
    run = scene.started("--image", f"{WEB}:1.1.0")
    wait_until(lambda: [one for one in forge.seen if one.path.endswith("/pulls/1")])
    assert run.poll() is None
    rolled_out(scene, argo, scene.merge().merge_commit)
    out, err = run.communicate(timeout=30)
    assert run.returncode == 0, err.decode()
    assert json.loads(out)["status"] == "unchanged"


def test_closing_the_pull_request_fails_the_wait(scene: Scene, forge: GitHub) -> None:
    run = scene.started("--image", f"{WEB}:1.1.0")
    wait_until(lambda: forge.open)
    scene.decline()
    out, _err = run.communicate(timeout=30)
    assert run.returncode == 6
    report = json.loads(out)
    assert report["status"] == "failed"
    assert "closed without being merged" in report["errors"][0]["message"]
    assert report["commits"][0]["pull_request"].endswith("/1")


@pytest.mark.measured
def test_a_pull_request_that_is_not_merged_in_time_fails_the_wait(scene: Scene) -> None:
    scene.flags = (*scene.flags, "--wait-timeout", "1")
    report = scene.event(f"{WEB}:1.1.0", code=6)
    assert "not merged yet" in report["errors"][0]["message"]


def test_a_failed_rollout_after_the_merge_fails_the_wait(
    scene: Scene, forge: GitHub, argo: ArgoCDServer
) -> None:
    run = scene.started("--image", f"{WEB}:1.1.0")
    wait_until(lambda: forge.open)
    pull = scene.merge()
    with argo.lock:
        failed = operated("Failed", revision=pull.merge_commit, message="no rights")
        argo.add(shown(scene, pull.merge_commit, failed))
    out, _err = run.communicate(timeout=30)
    assert run.returncode == 6
    assert "no rights" in json.loads(out)["errors"][0]["message"]


def test_a_short_outage_of_the_forge_does_not_end_the_wait(
    scene: Scene, forge: GitHub, argo: ArgoCDServer
) -> None:
    run = scene.started("--image", f"{WEB}:1.1.0")
    wait_until(lambda: forge.open)
    with forge.lock:
        forge.fail(forge.refusal("down"), "GET", times=4)
    wait_until(lambda: not any(one.times for one in forge.faults))
    rolled_out(scene, argo, scene.merge().merge_commit)
    _out, err = run.communicate(timeout=30)
    assert run.returncode == 0, err.decode()


def test_a_run_waits_for_the_rollout_after_an_immediate_merge(
    scene: Scene, forge: GitHub, argo: ArgoCDServer
) -> None:
    forge.auto_merge = "clean"
    run = scene.started("--image", f"{WEB}:1.1.0", "--auto-merge")
    wait_until(lambda: forge.pulls and forge.pulls[0].state == "merged")
    rolled_out(scene, argo, forge.pulls[0].merge_commit)
    out, err = run.communicate(timeout=30)
    assert run.returncode == 0, err.decode()
    assert json.loads(out)["errors"] == []


def test_a_failed_rollout_of_a_merged_update_opens_a_rollback_pull_request(
    scene: Scene, forge: GitHub, argo: ArgoCDServer
) -> None:
    run = scene.started("--image", f"{WEB}:1.1.0", "--auto-merge", "--on-failure", "rollback")
    wait_until(lambda: forge.open)
    revision = scene.merge().merge_commit
    with argo.lock:
        argo.add(shown(scene, revision, operated("Failed", revision=revision, message="no rights")))
    out, err = run.communicate(timeout=30)
    assert run.returncode == 6, err.decode()
    report = json.loads(out)
    requests = [one for one in report["commits"] if one["pull_request"]]
    first, second = sorted(requests, key=lambda one: one["pull_request"])
    assert (first["rollback"], second["rollback"]) == (False, True)
    assert forge.pulls[1].title.startswith("roll back a: ")
    assert "no rights" in forge.pulls[1].body
    assert report["errors"][1]["message"].endswith(f"/2 rolls {WEB} back to 1.0.0")
