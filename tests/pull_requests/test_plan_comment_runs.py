"""The `plan --comment` command: one comment on the pull request for which the CI job runs."""

import json
from pathlib import Path

from fakes.github_api import NAME, GitHub
from support import commit, git
from support.request_scenes import Scene
from support.runs import KUSTOMIZATION, WEB, target


def environ(server: GitHub, request: int = 1) -> dict[str, str]:
    return {
        "GITHUB_SERVER_URL": server.url,
        "GITHUB_REPOSITORY": NAME,
        "GITHUB_REF": f"refs/pull/{request}/merge",
        "GITHUB_SHA": "0123456789" * 4,
    }


def test_one_comment_is_written_for_each_set_of_images(scene: Scene, server: GitHub) -> None:
    scene.flags = ("--comment",)
    server.add(base="main", head="feature", title="t", body="b")
    env = environ(server)
    for tag in ("1.1.0", "1.2.0"):
        result = scene.call("plan", "--image", f"{WEB}:{tag}", env=env)
        assert (result.code, result.json["status"], result.json["errors"]) == (0, "updated", []), (
            result.stderr
        )
        assert (
            "posted the plan as a comment: https://github.example.com/acme/deploy/pull/1#issuecomment-"
            in result.stderr
        )
    (note,) = server.notes
    assert (
        f"| would update | `argocd/a` | `web={WEB}` | `1.0.0` → `1.2.0` | `semver admits it` |"
        in note.body
    )
    assert f"({server.url}/{NAME}/commit/{env['GITHUB_SHA']})" in note.body
    scene.call(
        "run", "--dry-run", "--image", "ghcr.io/acme/api:2.0.0", env=env
    )  # another job in the same pipeline
    assert [one.body.count("| `argocd/a` |") for one in server.notes] == [1, 1]
    assert list(server.branches) == ["main"]


def test_a_rejected_comment_does_not_change_the_plan(scene: Scene, server: GitHub) -> None:
    scene.flags = ("--comment",)
    server.add(base="main", head="feature", title="t", body="b")
    server.fail(server.refusal("forbidden"), "POST", "/comments")
    result = scene.call("plan", "--image", f"{WEB}:1.1.0", env=environ(server))
    assert (result.code, result.json["status"]) == (0, "updated")
    (warning,) = result.json["errors"]
    assert warning["severity"] == "warning"
    assert "pull-requests: write" in warning["hint"]


def test_a_plan_for_events_finds_its_pull_request(
    scene: Scene, server: GitHub, tmp_path: Path
) -> None:
    """The job built nothing, but runs for a pull request."""
    events = tmp_path / "events.jsonl"
    events.write_text(json.dumps({"image": f"{WEB}:1.2.0"}))
    scene.flags = ("--comment", "--images-format", "lines", "--registry-check", "never")
    server.add(base="main", head="feature", title="t", body="b")
    result = scene.call("plan", "--images-from", str(events), env=environ(server))
    assert (result.code, len(server.notes)) == (0, 1), result.stderr


def test_check_writes_one_comment_for_each_pull_request(scene: Scene, server: GitHub) -> None:
    """A request's check has a separate comment, which is edited after each push."""
    scene.flags = ("--comment", "--repository", scene.url, "--base", "main", "--head", "change")
    server.add(base="main", head="change", title="t", body="b")
    git(scene.repo, "branch", "change", "main")
    for tag, code, word in (("1.2.0", 0, "admitted"), ("latest", 5, "refused")):
        commit(scene.repo, {target("a"): KUSTOMIZATION.replace("1.0.0", tag)}, "change")
        result = scene.call("check", env=environ(server))
        assert (result.code, "posted the result as a comment: https://" in result.stderr) == (
            code,
            True,
        ), result.stderr
        (note,) = server.notes
        assert f"| {word} | `argocd/a` | `web={WEB}` | `1.0.0` → `{tag}` |" in note.body
        assert f"`{target('a')}:" in note.body
    assert sorted(server.branches) == ["change", "main"]


def test_the_comment_option_requires_a_plan_and_a_pull_request(
    scene: Scene, server: GitHub
) -> None:
    scene.flags = ("--comment",)
    wrote = scene.call("run", "--image", f"{WEB}:1.1.0", env=environ(server))
    assert (wrote.code, "--dry-run" in wrote.stderr) == (2, True)
    nobody = scene.call("plan", "--image", f"{WEB}:1.1.0")
    assert (nobody.code, "no CI variables for a pull request" in nobody.stderr) == (2, True)
    assert (server.seen, list(server.branches)) == ([], ["main"])
