"""Pull requests opened by the command: holds, plans, tokens, auto-merge, simultaneous events."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fakes.forge_server import Pull
from fakes.github_api import NAME, GitHub
from support import commit, git, image_update, show
from support.request_scenes import API, TOKEN, Scene, verdict
from support.runner_rules import dangers
from support.runs import WEB, application, manifest, repository, target
from support.serving import serving

STATE = ".image-update/apps/a/argocd_a.state"


def test_a_hold_takes_effect_immediately_and_opens_no_pull_request(
    scene: Scene, server: GitHub
) -> None:
    scene.event(f"{API}:2.0.0")
    assert scene.call("hold", "a", "--image", "web", "--reason", "freeze").code == 0
    assert "freeze" in scene.memory
    assert verdict(scene.event(f"{WEB}:1.1.0")) == ("defer", "held")
    assert "1.1.0" in scene.memory
    assert "newTag: 1.1.0" not in scene.text()
    assert "newTag: 2.0.0" in scene.text()
    assert scene.call("release", "a", "--image", "web").code == 0
    assert scene.memory == ""
    assert all(words in scene.text() for words in ("newTag: 1.1.0", "newTag: 2.0.0"))
    (pull,) = server.pulls
    assert all(
        words in pull.body for words in ("`1.1.0`", "`2.0.0`", scene.server.branches[scene.head])
    )


def test_a_hold_removes_the_waiting_update_from_its_pull_request(
    scene: Scene, server: GitHub
) -> None:
    scene.event(f"{WEB}:1.1.0 {API}:2.0.0")
    report = scene.call("hold", "a", "--image", "web", "--reason", "freeze").json
    assert [(one["alias"], one["outcome"]) for one in report["waiting"]] == [
        ("api", "waits"),
        ("web", "deferred"),
    ]
    assert "newTag: 1.1.0" not in scene.text()
    assert "1.1.0" in scene.memory
    (pull,) = server.open
    assert "→ `1.1.0`" not in pull.body
    assert "a (web) 1.1.0: held since" in pull.body  # the build that the hold removed
    scene.call("hold", "a", "--image", "api", "--reason", "freeze")
    assert (server.open, list(server.branches)[:-1]) == (
        [],
        [name for name in server.branches if "memory" in name],
    )
    assert "No updates are waiting anymore" in server.pulls[0].body
    scene.call("release", "a", "--image", "web")
    (pull,) = server.open
    assert "newTag: 1.1.0" in scene.text()


def test_a_rollback_is_proposed_as_a_pull_request(scene: Scene, server: GitHub) -> None:
    commit(scene.repo, {target("a"): scene.text("main").replace("1.0.0", "1.5.0")})
    assert scene.call("rollback", "a", "--image", "web", "--to", "previous").code == 0
    (pull,) = server.open
    assert "| `1.5.0` → `1.0.0` |" in pull.body
    assert "newTag: 1.0.0" in scene.text()
    assert verdict(scene.event(f"{WEB}:1.6.0")) == ("defer", "held")
    scene.merge()
    assert "newTag: 1.0.0" in scene.text("main")
    assert verdict(scene.event(f"{WEB}:1.7.0")) == ("defer", "held")


def test_a_rollbacks_pull_request_keeps_its_title_and_reason(
    server: GitHub, tmp_path: Path
) -> None:
    """Builds that arrive while the request is open change only the other builds in the request."""
    scene = Scene(tmp_path, server, group="application", update_strategy="newest-build")
    commit(scene.repo, {target("a"): scene.text("main").replace("1.0.0", "1.5.0")})
    scene.call("rollback", "a", "--image", "web", "--to", "previous", "--reason", "5xx since noon")
    title = "roll back a: ghcr.io/acme/web 1.5.0 → 1.0.0"
    assert server.open[0].title == title
    assert verdict(scene.event(f"{API}:2.0.0")) == ("update", "admitted")
    assert verdict(scene.event(f"{WEB}:1.6.0")) == ("defer", "held")
    assert verdict(scene.event(f"{API}:2.1.0")) == ("update", "admitted")
    (pull,) = server.pulls
    assert pull.title == title
    assert all(
        words in pull.body
        for words in ("rolled back from 1.5.0", "5xx since noon", "`1.0.0`", "`2.1.0`")
    )
    message = git(scene.repo, "log", "-1", "--format=%B", scene.head)
    assert message.startswith("roll back a\n")
    assert "5xx since noon" in message


def test_plan_needs_no_token_and_sends_no_requests_to_the_forge(
    scene: Scene, server: GitHub
) -> None:
    given = ("plan", "--image", f"{WEB}:1.1.0")
    scene.env = {}
    before = scene.call(*given)
    assert before.code == 0, before.stderr
    (planned,) = before.json["commits"]
    assert (planned["commit"], planned["pull_request"]) == (None, None)
    assert "+  newTag: 1.1.0" in planned["diff"]
    assert server.seen == []
    assert list(server.branches) == ["main"]
    scene.env = {"IMAGE_UPDATE_FORGE_TOKEN": TOKEN}
    done = scene.event(f"{WEB}:1.1.0")
    (landed,) = done["commits"]
    assert (landed["tree"], landed["head"]) == (planned["tree"], planned["head"])
    assert done["decisions"] == before.json["decisions"]


def test_a_missing_token_is_an_error_before_any_push(scene: Scene, server: GitHub) -> None:
    scene.env = {}
    report = scene.event(f"{WEB}:1.1.0", code=4)
    assert verdict(report) == ("error", "credentials")
    assert "IMAGE_UPDATE_FORGE_TOKEN" in report["errors"][0]["hint"]
    assert (list(server.branches), server.seen) == (["main"], [])


def test_the_token_is_never_sent_to_a_host_named_by_an_annotation(
    scene: Scene, server: GitHub, tmp_path: Path
) -> None:
    with serving(GitHub()) as other:
        other.branches = server.branches
        app = application(
            "a", scene.url, pull_request="true", git_repository=f"{other.url}/acme/deploy.git"
        )
        scene.apps = manifest(tmp_path, app)
        rewrite = ("--rewrite-url", f"{other.url}={tmp_path}/", "--forge", f"github={server.url}")
        report = scene.event(f"{WEB}:1.1.0", *rewrite, code=4)
        assert verdict(report)[0] == "error"
        assert not [one for one in other.seen if "authorization" in one.headers]


def test_an_immediate_merge_is_reported_as_the_landed_commit(scene: Scene, server: GitHub) -> None:
    """There are no checks, so the run reports the merge commit, which is what Argo CD will see."""
    server.auto_merge = "clean"
    report = scene.event(f"{WEB}:1.1.0", "--auto-merge")
    (pull,) = server.pulls
    assert pull.state == "merged"
    (told,) = report["commits"]
    assert (told["commit"], told["head"]) == (pull.merge_commit, "main")
    assert told["pull_request"].endswith("/1")


def test_auto_merge_waits_for_the_checks(scene: Scene, server: GitHub) -> None:
    scene.event(f"{WEB}:1.1.0", "--auto-merge")
    (pull,) = server.open
    assert pull.auto is not None


class Boasting(GitHub):
    """A forge that returns implausible page URLs for its requests."""

    page = ""

    def shown(self, pull: Pull) -> dict[str, Any]:
        """Return the request with this page URL."""
        return super().shown(pull) | {"html_url": self.page}


@pytest.mark.parametrize(
    "page", [f"https://git.example/{'x' * 20_000}", "##[add-mask]x", "https://x/\n::add-mask::x"]
)
def test_implausible_forge_responses_are_not_written_to_results(tmp_path: Path, page: str) -> None:
    with serving(Boasting()) as server:
        server.page = page
        scene, results = Scene(tmp_path, server), tmp_path / "results"
        summary = tmp_path / "summary"
        given = ("run", "--image", f"{WEB}:1.1.0", "--results-dir", str(results))
        done = scene.call(*given, env={"GITHUB_STEP_SUMMARY": str(summary)})
        assert (done.code, done.json["status"]) == (0, "updated"), done.stderr
        assert (
            done.json["commits"][0]["pull_request"] == f"{server.url}/{NAME}"
        )  # replaced with the URL of the repository's page
        found = {path.name: path.read_text() for path in results.iterdir()}
        assert (found["updated"], len(found["commit"])) == ("true", 40)
        assert sum(len(name) + len(text.encode()) for name, text in found.items()) < 2048
        assert len(summary.read_text()) < 2048
        again = scene.call(*given)  # this includes the decision about the request
        assert len(again.stdout) < 4096
        assert dangers(done.stdout + done.stderr + again.stdout + summary.read_text()) == []


def test_ten_simultaneous_events_open_one_pull_request(server: GitHub, tmp_path: Path) -> None:
    scene = Scene(tmp_path, server, update_strategy="newest-build")
    events = [
        ("--image", f"{WEB}:1.{number}.0", "--sequence", str(number)) for number in range(1, 11)
    ]
    running = [scene.started(*event) for event in events]
    with ThreadPoolExecutor(len(running)) as pool:
        ends = list(pool.map(lambda one: (*one.communicate(timeout=120), one.returncode), running))
    assert [code for _, _, code in ends] == [0] * len(events), [
        err.decode()[-500:] for _, err, _ in ends
    ]
    verdicts = [verdict(json.loads(out)) for out, _, _ in ends]
    assert verdicts[-1] == ("update", "admitted")
    assert set(verdicts) <= {("update", "admitted"), ("refuse", "superseded")}
    (pull,) = server.pulls
    assert "`1.10.0`" in pull.body
    assert server.branches[scene.head] in pull.body
    assert "newTag: 1.10.0" in scene.text()
    assert scene.on_top() == 1


def test_simultaneous_events_for_two_images_open_one_pull_request(
    scene: Scene, server: GitHub
) -> None:
    events = [
        ("--image", f"{image}:1.{number}.0") for number in range(1, 4) for image in (WEB, API)
    ]
    running = [scene.started(*event) for event in events]
    with ThreadPoolExecutor(len(running)) as pool:
        ends = list(pool.map(lambda one: (*one.communicate(timeout=120), one.returncode), running))
    assert [code for _, _, code in ends] == [0] * len(events), [
        err.decode()[-500:] for _, err, _ in ends
    ]
    (pull,) = server.pulls
    assert f"| `{API}` | `(none)` → `1.3.0` |" in pull.body
    assert f"| `{WEB}` | `1.0.0` → `1.3.0` |" in pull.body
    assert server.branches[scene.head] in pull.body
    assert scene.text().count("newTag: 1.3.0") == 2


def test_plan_and_run_report_the_same_error_for_a_repository_without_a_forge(
    tmp_path: Path,
) -> None:
    app = application("a", repository(tmp_path, "a"), **{"pull-request": "true"})
    given = (
        "--applications",
        manifest(tmp_path, app),
        "--allow-protocol",
        "file",
        "--output",
        "json",
    )
    planned, done = (
        image_update(name, "--image", f"{WEB}:1.1.0", *given) for name in ("plan", "run")
    )
    assert (planned.code, done.code) == (3, 3)
    assert "cannot open a pull request" in done.json["errors"][0]["message"]
    assert planned.json["errors"] == done.json["errors"]


def test_a_declined_rollback_ends_its_hold(scene: Scene) -> None:
    commit(scene.repo, {target("a"): scene.text("main").replace("1.0.0", "1.5.0")})
    scene.call("rollback", "a", "--image", "web", "--to", "1.0.0")
    assert scene.event(f"{WEB}:1.6.0")["decisions"][0]["rule"] == "held"
    scene.decline()
    report = scene.event(f"{WEB}:1.5.1")
    assert [one["verdict"] for one in report["decisions"]] == ["update"]
    (warning,) = [one for one in report["errors"] if "declined" in one["message"]]
    assert "/pull/1" in warning["message"]
    assert scene.memory == ""
    assert "newTag: 1.6.0" in scene.text()  # this build was deferred, and is newer


def test_a_hold_made_after_a_rollback_survives_the_declined_pull_request(scene: Scene) -> None:
    commit(scene.repo, {target("a"): scene.text("main").replace("1.0.0", "1.5.0")})
    scene.call("rollback", "a", "--image", "web", "--to", "1.0.0")
    scene.call("hold", "a", "--image", "web", "--reason", "for another reason")
    scene.decline()
    assert scene.event(f"{WEB}:1.6.0")["decisions"][0]["rule"] == "held"


def test_releasing_a_proposed_rollback_keeps_the_rollback_without_its_hold(
    scene: Scene, server: GitHub
) -> None:
    commit(scene.repo, {target("a"): scene.text("main").replace("1.0.0", "1.5.0")})
    scene.call("rollback", "a", "--to", "1.0.0")
    before = server.open[0].body
    assert "hold:" in show(scene.repo, scene.head, STATE)
    scene.call("release", "a")
    assert "newTag: 1.0.0" in scene.text()
    assert "hold:" not in show(scene.repo, scene.head, STATE)
    assert (scene.memory, server.open[0].body == before) == ("", False)
