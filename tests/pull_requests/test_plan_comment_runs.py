"""`plan --comment` by the command: one comment on the pull request that the job runs for."""

from fakes.github_api import NAME, GitHub
from request_scenes import Scene
from runs import WEB


def environ(server: GitHub, request: int = 1) -> dict[str, str]:
    return {
        "GITHUB_SERVER_URL": server.url,
        "GITHUB_REPOSITORY": NAME,
        "GITHUB_REF": f"refs/pull/{request}/merge",
        "GITHUB_SHA": "0123456789" * 4,
    }


def test_one_comment_for_each_set_of_images(scene: Scene, server: GitHub) -> None:
    scene.flags = ("--comment",)
    server.add(base="main", head="feature", title="t", body="b")
    env = environ(server)
    for tag in ("1.1.0", "1.2.0"):
        result = scene.call("plan", "--image", f"{WEB}:{tag}", env=env)
        assert (result.code, result.json["status"], result.json["errors"]) == (0, "updated", []), (
            result.stderr
        )
        assert (
            "the plan is in a comment: https://github.example.com/acme/deploy/pull/1#issuecomment-"
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
    )  # another job of the same pipeline
    assert [one.body.count("| `argocd/a` |") for one in server.notes] == [1, 1]
    assert list(server.branches) == ["main"]


def test_a_comment_that_is_refused_leaves_the_plan_as_it_is(scene: Scene, server: GitHub) -> None:
    scene.flags = ("--comment",)
    server.add(base="main", head="feature", title="t", body="b")
    server.fail(server.refusal("forbidden"), "POST", "/comments")
    result = scene.call("plan", "--image", f"{WEB}:1.1.0", env=environ(server))
    assert (result.code, result.json["status"]) == (0, "updated")
    (warning,) = result.json["errors"]
    assert warning["severity"] == "warning"
    assert "pull-requests: write" in warning["hint"]


def test_where_it_makes_no_sense(scene: Scene, server: GitHub) -> None:
    scene.flags = ("--comment",)
    wrote = scene.call("run", "--image", f"{WEB}:1.1.0", env=environ(server))
    assert (wrote.code, "--dry-run" in wrote.stderr) == (2, True)
    nobody = scene.call("plan", "--image", f"{WEB}:1.1.0")
    assert (nobody.code, "GITHUB_REF" in nobody.stderr) == (2, True)
    assert (server.seen, list(server.branches)) == ([], ["main"])
