"""Releasing a hold on the base opens a pull request like any other."""

from fakes.github_api import GitHub
from support import commit, git, image_update
from support.request_scenes import API, Scene
from support.runs import WEB, target

STATE = ".image-update/apps/a/argocd_a.state"
HELD = f"files:\n  {target('a')}:\n    images:\n      web:\n        hold: {{reason: broken}}\n"


def said(scene: Scene, *command: str) -> str:
    """Return the human-readable output of a command."""
    given = scene.given(*command)
    given[given.index("json")] = "text"
    return image_update(*given, env=scene.env).stdout


def test_releasing_a_hold_on_the_base_opens_a_pull_request(scene: Scene, server: GitHub) -> None:
    commit(scene.repo, {STATE: HELD})
    text = said(scene, "release", "a", "--alias", "web")
    assert f"the hold on main ends when {scene.head} is merged" in text
    (pull,) = server.open
    assert pull.title == "release a"
    assert "**Holds that end with the merge**\n\n- `argocd/a (web): held: broken`" in pull.body
    assert "hold     broken (this image); ends when #1 is merged\n" in said(scene, "status", "a")
    report = scene.call("status", "a").json
    (web,) = [one for one in report["images"] if one["alias"] == "web"]
    assert web["hold"]["ends_with"].endswith("/pull/1")
    assert "is not held" in said(scene, "release", "a", "--alias", "web")
    scene.merge()
    assert STATE not in git(scene.repo, "ls-tree", "-r", "--name-only", "main")
    scene.event(f"{WEB}:1.1.0")
    (pull,) = server.open
    assert pull.title == "a: ghcr.io/acme/web 1.0.0 → 1.1.0"


def test_closing_a_releases_pull_request_keeps_the_hold(scene: Scene, server: GitHub) -> None:
    commit(scene.repo, {STATE: HELD})
    scene.call("release", "a", "--alias", "web")
    scene.decline()
    assert scene.event(f"{WEB}:1.1.0")["decisions"][0]["verdict"] == "defer"
    assert "ends with" not in said(scene, "status", "a")
    scene.call("release", "a", "--alias", "web")
    (pull,) = server.open
    assert "newTag: 1.1.0" in scene.text()
    assert "hold:" not in pull.body


def test_a_releases_title_names_its_build_only_once(scene: Scene, server: GitHub) -> None:
    commit(scene.repo, {STATE: HELD})
    scene.event(f"{WEB}:1.1.0")
    scene.call("release", "a", "--alias", "web")
    assert server.open[0].title == "release a: ghcr.io/acme/web 1.0.0 → 1.1.0"


def test_a_release_reports_that_the_memory_branch_is_empty(scene: Scene) -> None:
    said(scene, "hold", "a", "--alias", "web", "--reason", "broken")
    text = said(scene, "release", "a", "--alias", "web")
    assert "would commit" not in text
    assert "\nnothing left on image-update-memory/" in text


def test_the_refusal_of_a_declined_build_names_the_closed_pull_request(
    scene: Scene, server: GitHub
) -> None:
    scene.event(f"{WEB}:1.1.0")
    scene.decline()
    scene.event(f"{API}:2.0.0")
    assert [pull.number for pull in server.open] == [2]
    (decision,) = scene.event(f"{WEB}:1.1.0")["decisions"]
    assert decision["because"].partition(": ")[0].endswith("/pull/1")


def test_a_pull_request_lists_removed_builds_with_the_reason(scene: Scene, server: GitHub) -> None:
    scene.event(f"{WEB}:1.1.0 {API}:2.0.0")
    scene.event(f"{WEB}:1.2.0")
    (pull,) = server.open
    assert "**No longer in this request**" in pull.body
    assert "- `argocd/a (web) 1.1.0: replaced by 1.2.0`" in pull.body
    scene.call("hold", "a", "--alias", "api", "--reason", "INC-42")
    (pull,) = server.open
    assert "- `argocd/a (api) 2.0.0: held " in pull.body
    assert "replaced by" not in pull.body
