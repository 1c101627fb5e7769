"""`--wait` and `wait`, from the push to the end of the rollout: success is never reported wrongly,
and failures are reported with their cause.
"""

import json
import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes.argocd_api import ArgoCDServer, Fault
from fakes.argocd_states import applied, at, operated, resource
from fakes.kubernetes_api import APPLICATIONS, PROJECTS, KubernetesApi, running
from support import Result, commit, git, image_update
from support.clusters import full_application, kubeconfig, live_app, refreshed, rules
from support.runs import (
    KUSTOMIZATION,
    WEB,
    arguments,
    manifest,
    repository,
    run,
    start,
    target,
    wait_until,
)

OLD = "a" * 40
NEW = [f"{WEB}:1.1.0", "docker.io/library/nginx:1"]
OLD_ONE = {"images": [f"{WEB}:1.0.0"]}
Play = Callable[
    [dict[str, Any], str], Sequence[dict[str, Any]]
]  # maps (Application, tip of the branch) to the Application's states


def old(one: dict[str, Any]) -> dict[str, Any]:
    """The state before the run: an older revision that is synced and healthy."""
    before = operated(revision=OLD, started=1, finished=2)
    return at(one, "Synced", "Healthy", revision=OLD, compared=3, operation=before)


def rollout(one: dict[str, Any], tip: str) -> list[dict[str, Any]]:
    before = operated(revision=OLD, started=1, finished=2)
    done = operated(revision=tip)
    return [
        old(one),
        at(one, "OutOfSync", "Healthy", revision=tip, operation=before),
        at(
            one,
            "OutOfSync",
            "Healthy",
            revision=tip,
            operation=operated("Running", revision=tip, finished=None),
        ),
        at(one, "OutOfSync", "Healthy", revision=tip, operation=done),
        at(one, "Synced", "Progressing", revision=tip, compared=13, operation=done),
    ]


def good(one: dict[str, Any], tip: str) -> list[dict[str, Any]]:
    return [
        *rollout(one, tip),
        at(
            one,
            "Synced",
            "Healthy",
            revision=tip,
            compared=14,
            operation=operated(revision=tip),
            images=NEW,
        ),
    ]


def runs_another(one: dict[str, Any], tip: str) -> list[dict[str, Any]]:
    """The old image is still running, because the chart does not read the key that was written."""
    return [
        *rollout(one, tip),
        {**good(one, tip)[-1], "status": {**good(one, tip)[-1]["status"], "summary": OLD_ONE}},
    ]


def runs_nothing(one: dict[str, Any], tip: str) -> list[dict[str, Any]]:
    return [
        *rollout(one, tip),
        {**good(one, tip)[-1], "status": {**good(one, tip)[-1]["status"], "summary": {}}},
    ]


def hook_fails(one: dict[str, Any], tip: str) -> list[dict[str, Any]]:
    failed = [
        applied(
            "Job",
            "migrate",
            "Job has reached the backoff limit",
            hookType="PreSync",
            hookPhase="Failed",
        )
    ]
    done = operated("Failed", revision=tip, message="one or more tasks failed", resources=failed)
    return [*rollout(one, tip)[:3], at(one, "OutOfSync", "Healthy", revision=tip, operation=done)]


def by_hand(one: dict[str, Any], tip: str) -> list[dict[str, Any]]:
    manual = {**one, "spec": {**one["spec"], "syncPolicy": {}}}
    return [old(manual), at(manual, "OutOfSync", "Healthy", revision=tip)]


def paused(one: dict[str, Any], tip: str) -> list[dict[str, Any]]:
    """A paused canary that waits for a person."""
    canary = [
        resource(
            "Rollout", "web", "Suspended", "CanaryPauseStep", group="argoproj.io", namespace="web"
        )
    ]
    done = operated(revision=tip)
    both = [*NEW, *OLD_ONE["images"]]
    return [
        *rollout(one, tip),
        at(
            one,
            "Synced",
            "Suspended",
            revision=tip,
            compared=14,
            operation=done,
            resources=canary,
            images=both,
        ),
    ]


def unseen(one: dict[str, Any], tip: str) -> list[dict[str, Any]]:
    """The sync is running, and a busy Argo CD has not compared anything since it began."""
    return rollout(one, tip)[:3]


def stuck(one: dict[str, Any], tip: str) -> list[dict[str, Any]]:
    """The sync never finishes, and Argo CD has noticed that."""
    runs = operated("Running", revision=tip, finished=None)
    now = at(one, "OutOfSync", "Healthy", revision=tip, compared=12, operation=runs, pending=True)
    return [*unseen(one, tip), now]


class Played(dict[tuple[str, str], list[dict[str, Any]]]):
    """Applications that roll out the tip of a branch once it has moved."""

    def __init__(
        self, repo: Path, plays: Mapping[str, Play], apps: Sequence[dict[str, Any]]
    ) -> None:
        super().__init__()
        self.repo, self.plays, self.apps = (
            repo,
            plays,
            {one["metadata"]["name"]: one for one in apps},
        )
        self.tips: dict[str, str] = {}
        for one in apps:
            self["argocd", one["metadata"]["name"]] = [old(one)]

    def __getitem__(self, key: tuple[str, str]) -> list[dict[str, Any]]:
        tip = git(self.repo, "rev-parse", "main")
        if git(self.repo, "rev-list", "--count", "main") != "1" and self.tips.get(key[1]) != tip:
            self.tips[key[1]] = tip
            self[key] = list(self.plays[key[1]](self.apps[key[1]], tip))
        return super().__getitem__(key)


def versioned(one: dict[str, Any]) -> dict[str, Any]:
    return {**one, "metadata": {"resourceVersion": "7", **one["metadata"]}}


def env(argo_cd: ArgoCDServer) -> Mapping[str, str]:
    return {
        "ARGOCD_SERVER": argo_cd.address,
        "ARGOCD_AUTH_TOKEN": "good-token",
        "ARGOCD_OPTS": "--plaintext",
    }


def played(argo_cd: ArgoCDServer, folder: Path, **plays: Play) -> Path:
    """Create a repository with an Application for each play."""
    repo = repository(folder, *plays)
    argo_cd.plays = Played(repo, plays, [versioned(full_application(name, repo)) for name in plays])
    return repo


def waiting(argo_cd: ArgoCDServer, *more: str | Path, **others: Any) -> Result:
    return run("--wait", *more, env=env(argo_cd), **others)


def test_a_run_waits_for_its_own_commit(tmp_path: Path, argo_cd: ArgoCDServer) -> None:
    repo = played(argo_cd, tmp_path, web=good)
    result = waiting(argo_cd)
    assert (result.code, result.json["status"]) == (0, "updated"), result.stderr
    assert result.json["commits"][0]["commit"] == git(repo, "rev-parse", "main")
    lines = [line for line in result.stderr.splitlines() if line.startswith("argocd/web")]
    assert "synced-and-healthy" in lines[-1]
    assert not any("synced-and-healthy" in line for line in lines[:-1])


BAD = [
    (hook_fails, "PreSync hook Job migrate: Job has reached the backoff limit"),
    (by_hand, "someone must sync it"),
]


@pytest.mark.parametrize(("play", "cause"), BAD)
def test_a_failed_rollout_exits_6_with_the_cause(
    tmp_path: Path, argo_cd: ArgoCDServer, play: Play, cause: str
) -> None:
    repo = played(argo_cd, tmp_path, web=play)
    results = tmp_path / "results"
    result = waiting(argo_cd, "--results-dir", results, "--report", tmp_path / "report.json")
    assert (result.code, result.json["status"]) == (6, "failed")
    assert cause in result.stderr
    tip = git(repo, "rev-parse", "main")
    assert (results / "commit").read_text() == tip
    assert (results / "updated").read_text() == "true"
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["commits"][0]["commit"] == tip
    assert report["decisions"][0]["verdict"] == "update"
    assert [(one["rule"], cause in one["message"]) for one in report["errors"]] == [
        ("rollout", True)
    ]


def test_a_healthy_application_with_another_image_fails_the_wait(
    tmp_path: Path, argo_cd: ArgoCDServer
) -> None:
    played(argo_cd, tmp_path, web=runs_another)
    result = waiting(argo_cd, "--wait-timeout", "4")
    assert (result.code, result.json["status"]) == (6, "failed")
    (error,) = result.json["errors"]
    assert error["application"] == "argocd/web"
    said = f"synced and healthy, but {WEB} is running only as 1.0.0, not as 1.1.0"
    assert error["message"] == f"{said}: check web.kustomize.image-name ({WEB})"
    way_out, page, back = error["hint"].split("; ")
    assert way_out == f"do the manifests use {WEB}?"
    assert re.fullmatch(r"see http://127\.0\.0\.1:\d+/applications/argocd/web", page)
    assert back == "to roll back: image-update rollback argocd/web --to previous"


def test_the_no_expect_image_option_accepts_another_running_image(
    tmp_path: Path, argo_cd: ArgoCDServer
) -> None:
    played(argo_cd, tmp_path, web=runs_another)
    assert waiting(argo_cd, "--no-expect-image").code == 0


def test_an_image_without_running_pods_is_a_warning(tmp_path: Path, argo_cd: ArgoCDServer) -> None:
    played(argo_cd, tmp_path, web=runs_nothing)
    result = waiting(argo_cd)
    assert (result.code, result.json["status"]) == (0, "updated")
    (warning,) = result.json["errors"]
    assert (warning["application"], warning["severity"]) == ("argocd/web", "warning")
    assert warning["message"].startswith(f"{WEB}:1.1.0 is not running: it may have no replicas")


def test_an_image_replaced_by_a_later_commit_is_reported(
    tmp_path: Path, argo_cd: ArgoCDServer
) -> None:
    repo = played(argo_cd, tmp_path, web=good)

    class Newer(Played):
        def __getitem__(self, key: tuple[str, str]) -> list[dict[str, Any]]:
            if git(self.repo, "rev-list", "--count", "main") == "2":
                commit(
                    self.repo,
                    {target("web"): KUSTOMIZATION.replace("1.0.0", "1.2.0")},
                    message="Somebody else's",
                )
            return super().__getitem__(key)

    def newer(one: dict[str, Any], tip: str) -> list[dict[str, Any]]:
        end = good(one, tip)[-1]
        return [
            *rollout(one, tip),
            {**end, "status": {**end["status"], "summary": {"images": [f"{WEB}:1.2.0"]}}},
        ]

    argo_cd.plays = Newer(repo, {"web": newer}, [versioned(full_application("web", repo))])
    result = waiting(argo_cd, "--wait-timeout", "30")
    assert result.code == 0, result.stderr
    assert [one["message"] for one in result.json["errors"]] == [
        f"{WEB} has since been set to 1.2.0 instead of 1.1.0"
    ]


def test_a_timeout_names_the_application_that_is_not_ready(
    tmp_path: Path, argo_cd: ArgoCDServer
) -> None:
    played(argo_cd, tmp_path, web=stuck, api=good)
    result = waiting(argo_cd, "--wait-timeout", "6")
    assert result.code == 6
    (error,) = result.json["errors"]
    assert (error["application"], error["rule"]) == ("argocd/web", "rollout")
    assert error["message"].startswith("not synced and healthy after 6 s: the sync is running")
    assert "1 of 2 Applications did not roll out" in result.stderr


@pytest.mark.parametrize("length", [2, 5])
def test_an_unfinished_rollout_is_never_a_success(
    tmp_path: Path, argo_cd: ArgoCDServer, length: int
) -> None:
    played(argo_cd, tmp_path, web=lambda one, tip: rollout(one, tip)[:length])
    assert waiting(argo_cd, "--wait-timeout", "3").code == 6


def test_a_run_also_waits_for_an_unchanged_version(tmp_path: Path, argo_cd: ArgoCDServer) -> None:
    played(argo_cd, tmp_path, web=good)
    assert run("--no-refresh", env=env(argo_cd)).code == 0
    assert not [one for one in argo_cd.asked("GET") if "refresh" in one.query]
    result = waiting(argo_cd)
    assert (result.code, result.json["status"]) == (0, "unchanged")
    assert "synced-and-healthy" in result.stderr


def test_an_unchanged_run_fails_if_its_rollout_fails(tmp_path: Path, argo_cd: ArgoCDServer) -> None:
    played(argo_cd, tmp_path, web=hook_fails)
    assert run(env=env(argo_cd)).code == 0
    result = waiting(argo_cd)
    assert (result.code, rules(result)) == (6, {"argocd/web": "same"})


def test_a_wait_without_refresh_sends_no_refresh_requests(
    tmp_path: Path, argo_cd: ArgoCDServer
) -> None:
    played(argo_cd, tmp_path, web=good)
    result = waiting(argo_cd, "--no-refresh")
    assert result.code == 0, result.stderr
    assert not [one for one in argo_cd.asked("GET") if "refresh" in one.query]


def test_a_rollout_of_a_later_commit_that_contains_ours_is_a_success(
    tmp_path: Path, argo_cd: ArgoCDServer
) -> None:
    repo = played(argo_cd, tmp_path, web=good)

    class Moved(Played):
        def __getitem__(self, key: tuple[str, str]) -> list[dict[str, Any]]:
            if git(self.repo, "rev-list", "--count", "main") == "2":
                commit(self.repo, {"other": "x"}, message="Somebody else's")
            return super().__getitem__(key)

    argo_cd.plays = Moved(repo, {"web": good}, [versioned(full_application("web", repo))])
    result = waiting(argo_cd, "--wait-timeout", "30")
    assert result.code == 0, result.stderr
    assert result.json["commits"][0]["commit"] == git(repo, "rev-parse", "main~1")


@pytest.mark.measured
def test_a_rollout_of_a_commit_without_ours_is_never_a_success(
    tmp_path: Path, argo_cd: ArgoCDServer
) -> None:
    repo = repository(tmp_path, "web")
    before = git(repo, "rev-parse", "main")
    one = versioned(full_application("web", repo))
    argo_cd.plays = Played(repo, {"web": lambda app, _tip: good(app, before)}, [one])
    result = waiting(argo_cd, "--wait-timeout", "3")
    assert result.code == 6
    assert before[:12] in result.stderr


def test_a_run_for_an_untracked_image_does_not_wait(tmp_path: Path, argo_cd: ArgoCDServer) -> None:
    played(argo_cd, tmp_path, web=stuck)
    result = waiting(argo_cd, image="ghcr.io/acme/unknown:1.0.0")
    assert (result.code, result.json["status"]) == (0, "unchanged")


@pytest.mark.measured
def test_a_run_does_not_wait_for_a_head_branch(tmp_path: Path, argo_cd: ArgoCDServer) -> None:
    repo = repository(tmp_path, "web")
    argo_cd.plays = Played(
        repo, {"web": stuck}, [versioned(full_application("web", repo, git_branch="main:updates"))]
    )
    result = waiting(argo_cd)
    assert (result.code, result.json["status"]) == (0, "updated"), result.stderr
    warning = result.json["errors"][0]
    assert (warning["severity"], "until updates is merged" in warning["message"]) == (
        "warning",
        True,
    )
    assert not [one for one in argo_cd.asked("GET") if "refresh" in one.query]


def test_a_run_does_not_wait_for_a_repository_that_is_not_a_source(
    tmp_path: Path, argo_cd: ArgoCDServer
) -> None:
    repo = repository(tmp_path, "web")
    one = full_application(
        "web", "https://git.example.com/charts.git", git_repository=str(repo), git_branch="main"
    )
    argo_cd.plays = Played(repo, {"web": stuck}, [versioned(one)])
    result = waiting(argo_cd)
    assert (result.code, result.json["status"]) == (0, "updated"), result.stderr
    assert "none of its sources is in" in result.json["errors"][0]["message"]


def test_a_run_waits_for_a_patched_application(argo_cd: ArgoCDServer) -> None:
    one = versioned(live_app("web"))
    before = old(one)
    before["status"] |= one["status"]
    argo_cd.add(before)

    class Synced(dict[tuple[str, str], list[dict[str, Any]]]):
        def __getitem__(self, key: tuple[str, str]) -> list[dict[str, Any]]:
            found = super().__getitem__(key)
            spec = found[0]["spec"]
            asked = any("refresh" in one.query for one in argo_cd.asked("GET"))
            if "kustomize" in spec["source"] and len(found) == 1 and asked:
                done = operated(revision=OLD)
                done["syncResult"]["source"] = spec["source"]
                after = at(found[0], "Synced", "Healthy", revision=OLD, compared=14, operation=done)
                after["status"]["sync"]["comparedTo"] = {
                    "source": spec["source"],
                    "destination": spec["destination"],
                }
                found[:] = [found[0], found[0], after]
            return found

    argo_cd.plays = Synced(argo_cd.plays)
    result = waiting(argo_cd, "--wait-timeout", "20")
    assert (result.code, result.json["status"]) == (0, "updated"), result.stderr


def test_a_patch_reverted_by_its_owner_exits_6(argo_cd: ArgoCDServer) -> None:
    """The ApplicationSet restores the old spec, and the pods of the patched version keep running
    for a moment.
    """
    one = versioned(live_app("web"))
    owner = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "ApplicationSet",
        "name": "gen",
        "uid": "5",
    }
    one["metadata"]["ownerReferences"] = [owner]
    before = old(one)
    before["status"] |= one["status"]
    argo_cd.add(before)
    argo_cd.others["applicationsets", "argocd", "gen"] = {"spec": {"generators": []}}
    seconds = iter(range(14, 60))

    class TakenBack(dict[tuple[str, str], list[dict[str, Any]]]):
        def __getitem__(self, key: tuple[str, str]) -> list[dict[str, Any]]:
            found = super().__getitem__(key)
            if any("refresh" in request.query for request in argo_cd.asked("GET")):
                done = operated(revision=OLD)
                done["syncResult"]["source"] = one["spec"]["source"]
                state = at(
                    one,
                    "Synced",
                    "Healthy",
                    revision=OLD,
                    compared=next(seconds),
                    operation=done,
                    images=NEW,
                )
                found[:] = [state]
            return found

    argo_cd.plays = TakenBack(argo_cd.plays)
    result = waiting(argo_cd, "--wait-timeout", "4")
    assert (result.code, result.json["status"]) == (6, "failed"), result.stderr
    (warning, error) = sorted(result.json["errors"], key=lambda found: found["severity"] == "error")
    assert warning["message"].startswith("ApplicationSet gen reverts the patch")
    gone = f"the live Application no longer uses {WEB}:1.1.0: ApplicationSet gen reverted the patch"
    assert error["message"] == gone


def test_waiting_for_applications_from_files_requires_an_argo_cd_server(
    tmp_path: Path, argo_cd: ArgoCDServer
) -> None:
    repo = played(argo_cd, tmp_path, web=good)
    apps = tmp_path / "apps.json"
    apps.write_text(json.dumps(full_application("web", repo)))
    result = run("--applications", apps, "--wait")
    assert (result.code, git(repo, "rev-list", "--count", "main")) == (2, "1")
    assert "--argocd-server" in result.stderr
    wrong = run(
        "--applications",
        apps,
        "--wait",
        "--argocd-server",
        "http://x/",
        env={"ARGOCD_AUTH_TOKEN": "x"},
    )
    assert (wrong.code, git(repo, "rev-list", "--count", "main")) == (2, "1")
    assert waiting(argo_cd, "--applications", apps).code == 0


def test_a_server_that_goes_down_is_a_temporary_failure(
    tmp_path: Path, argo_cd: ArgoCDServer
) -> None:
    repo = played(argo_cd, tmp_path, web=stuck)

    class Down(Played):
        def __getitem__(self, key: tuple[str, str]) -> list[dict[str, Any]]:
            if git(self.repo, "rev-list", "--count", "main") != "1":
                argo_cd.faults += [Fault(503)] * 50
            return super().__getitem__(key)

    argo_cd.plays = Down(repo, {"web": stuck}, [versioned(full_application("web", repo))])
    result = waiting(argo_cd, "--wait-timeout", "4")
    assert (result.code, result.json["status"]) == (75, "failed")
    assert result.json["commits"][0]["commit"] == git(repo, "rev-parse", "main")


def test_an_image_that_cannot_be_pulled_is_reported(tmp_path: Path, argo_cd: ArgoCDServer) -> None:
    def starting(one: dict[str, Any], tip: str) -> list[dict[str, Any]]:
        done = operated(revision=tip)
        return [
            *rollout(one, tip),
            *(
                at(one, "Synced", "Progressing", revision=tip, compared=n, operation=done)
                for n in range(14, 60)
            ),
        ]

    played(argo_cd, tmp_path, web=starting)
    pod = resource(
        "Pod",
        "web-1",
        "Degraded",
        f'Back-off pulling image "{WEB}:1.1.0"',
        createdAt="2026-11-21T06:00:12Z",
    )
    argo_cd.trees["argocd", "web"] = {"nodes": [pod]}
    result = waiting(argo_cd, "--wait-timeout", "8")
    assert result.code == 6
    assert "the image cannot be pulled: Pod web-1" in result.json["errors"][0]["message"]


def test_sigterm_during_the_wait_reports_the_landed_commit(
    tmp_path: Path, argo_cd: ArgoCDServer
) -> None:
    repo = played(argo_cd, tmp_path, web=stuck)
    apps = manifest(tmp_path, full_application("web", repo))
    results = tmp_path / "results"
    running_one = start(arguments(apps, "--wait", "--results-dir", results), env=env(argo_cd))
    wait_until(lambda: [one for one in argo_cd.asked("GET") if "refresh" in one.query])
    os.kill(running_one.pid, signal.SIGTERM)
    out, _err = running_one.communicate(timeout=30)
    assert running_one.returncode == 143
    assert json.loads(out)["commits"][0]["commit"] == git(repo, "rev-parse", "main")
    assert (results / "commit").read_text() == git(repo, "rev-parse", "main")


# With a cluster


class Controller:
    """Argo CD's controller: it removes the refresh annotation, and plays a rollout that advances
    with each request.
    """

    def __init__(self, api: KubernetesApi, repo: Path, play: Play) -> None:
        self.api, self.repo, self.play = api, repo, play
        self.states: list[dict[str, Any]] | None = None

    def __call__(self, asked: Any) -> None:
        if asked.verb != "get" or asked.resource != APPLICATIONS:
            return
        now = self.api.of(APPLICATIONS, asked.name, asked.namespace)
        if (
            now["metadata"]["annotations"].pop("argocd.argoproj.io/refresh", "")
            and self.states is None
        ):
            self.states = list(self.play(now, git(self.repo, "rev-parse", "main")))
        if self.states:
            self.api.add(
                APPLICATIONS, self.states.pop(0) if len(self.states) > 1 else self.states[0]
            )


@pytest.mark.parametrize(("play", "code"), [(good, 0), (hook_fails, 6)])
def test_a_run_waits_for_the_rollout_through_the_cluster_without_the_argo_cd_api(
    tmp_path: Path, play: Play, code: int
) -> None:
    repo = repository(tmp_path, "web")
    with running() as api:
        api.add(APPLICATIONS, old(full_application("web", repo)))
        api.before = Controller(api, repo, play)
        config = kubeconfig(tmp_path, api)
        result = run(
            "--applications", "cluster", "--kubeconfig", config, "--wait", "--wait-timeout", "30"
        )
        assert (result.code, len(result.json["commits"])) == (code, 1), result.stderr
        assert refreshed(api)
        assert {one.rpartition("/")[2] for one in refreshed(api)} == {"web"}


def out_of_sync(one: dict[str, Any], tip: str) -> list[dict[str, Any]]:
    return [at(one, "OutOfSync", "Healthy", revision=tip)]


def test_a_sync_window_is_reported_before_the_push_and_ends_the_wait(tmp_path: Path) -> None:
    """Otherwise, the wait would time out after ten minutes with advice to wait longer."""
    repo = repository(tmp_path, "web")
    window = {"kind": "deny", "schedule": "* * * * *", "duration": "1h", "applications": ["*"]}
    project = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "AppProject",
        "metadata": {"name": "default", "namespace": "argocd"},
        "spec": {
            "syncWindows": [window],
            "destinations": [{"server": "*", "namespace": "*"}],
            "sourceRepos": ["*"],
        },
    }
    told = (
        "a deny window of AppProject default (* * * * *, 1h) prevents Argo CD from syncing until 2"
    )
    with running() as api:
        api.add(PROJECTS, project)
        api.add(APPLICATIONS, old(full_application("web", repo)))
        api.before = Controller(api, repo, out_of_sync)
        reach = ("--applications", "cluster", "--kubeconfig", kubeconfig(tmp_path, api))
        planned = run("--dry-run", *reach)
        (warning,) = planned.json["errors"]
        assert (planned.code, warning["severity"]) == (0, "warning")
        assert warning["message"].startswith(told)
        result = run(*reach, "--wait", "--wait-timeout", "300")
        assert (result.code, len(result.json["commits"])) == (6, 1), result.stderr
        assert (
            told
            in next(one for one in result.json["errors"] if one["severity"] == "error")["message"]
        )
        pushed = result.stderr.index("a deny window")
        assert pushed < result.stderr.index("needs-sync")


# `wait`


def wait(argo_cd: ArgoCDServer, *words: str, **others: Any) -> Result:
    return image_update("wait", *words, env=env(argo_cd), **others)


def rolled_out(argo_cd: ArgoCDServer, folder: Path, play: Play) -> Path:
    """Create a repository with a second commit whose rollout is played."""
    repo = played(argo_cd, folder, web=play)
    commit(repo, {target("web"): KUSTOMIZATION.replace("1.0.0", "1.1.0")})
    return repo


@pytest.mark.measured
def test_the_wait_command_waits_for_a_revision(tmp_path: Path, argo_cd: ArgoCDServer) -> None:
    repo = rolled_out(argo_cd, tmp_path, good)
    result = wait(argo_cd, "web", "--revision", git(repo, "rev-parse", "main"))
    assert result.code == 0, result.stderr
    assert result.stdout.startswith("argocd/web: synced-and-healthy")


def test_the_wait_command_fails_with_the_cause(tmp_path: Path, argo_cd: ArgoCDServer) -> None:
    repo = rolled_out(argo_cd, tmp_path, hook_fails)
    result = wait(argo_cd, "argocd/web", "--revision", git(repo, "rev-parse", "main")[:12])
    assert result.code == 6
    assert "backoff limit" in result.stderr


def test_the_wait_command_accepts_a_later_commit(tmp_path: Path, argo_cd: ArgoCDServer) -> None:
    repo = rolled_out(argo_cd, tmp_path, good)
    wanted = git(repo, "rev-parse", "main")
    commit(repo, {"other": "x"})
    result = wait(
        argo_cd, "web", "--revision", wanted, "--allow-protocol", "file", "--wait-timeout", "30"
    )
    assert result.code == 0, result.stderr
    late = wait(
        argo_cd, "web", "--revision", "f" * 40, "--allow-protocol", "file", "--wait-timeout", "2"
    )
    assert late.code == 6


WRONG = [
    (("web", "--revision", "main"), "is not a commit ID"),
    (("web",), "--revision is missing\n  fix: set the commit"),
    (("--revision", "a" * 40), "APP"),
    (("Web", "--revision", "a" * 40), "not a valid Application name"),
]


@pytest.mark.parametrize(("words", "said"), WRONG)
def test_invalid_options_of_the_wait_command_are_usage_errors(
    argo_cd: ArgoCDServer, words: tuple[str, ...], said: str
) -> None:
    result = wait(argo_cd, *words)
    assert result.code == 2
    assert said in result.stderr
    assert argo_cd.seen == []


def test_the_wait_command_needs_an_argo_cd(tmp_path: Path) -> None:
    result = image_update("wait", "web", "--revision", "a" * 40, env={"HOME": str(tmp_path)})
    assert result.code == 2
    assert "which Argo CD" in result.stderr
