"""The base of an open request is renamed. The Git host retargets the request. The head keeps its
name.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.github_api import GitHub
from fakes.github_commits_api import CommittingGitHub
from support import commit, git, show, variants
from support.forge_kinds import KINDS
from support.request_scenes import API, Scene, verdict
from support.runs import WEB, application, manifest, target
from support.serving import serving


@pytest.fixture(params=variants(["github"], at_night=["gitea", "through github"]))
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    if request.param == "through github":
        with serving(CommittingGitHub(tmp_path / "repo.git")) as api:
            scene = Scene(tmp_path, api)
            scene.flags = (*scene.flags, "--commit-through", "github")
            yield scene
        return
    with serving(KINDS[request.param].fake()) as server:
        yield Scene(tmp_path, server, request.param)


def renamed(scene: Scene, base: str = "trunk") -> None:
    """Rename main, as GitHub and Gitea do, and update the Applications accordingly."""
    git(scene.repo, "branch", "-m", "main", base)
    for pull in scene.server.open:
        pull.base = base
    scene.apps.write_text(
        scene.apps.read_text().replace('"targetRevision": "main"', f'"targetRevision": "{base}"')
    )


@pytest.mark.parametrize(
    ("image", "waits"), [("1.2.0", "1.2.0"), ("1.1.0", "1.1.0"), ("1.0.5", "1.1.0")]
)
def test_the_new_pull_request_replaces_the_old_pull_request(
    image: str, waits: str, scene: Scene
) -> None:
    """All waiting builds move to the new request, even if the event is older."""
    scene.event(f"{WEB}:1.1.0")
    (old,) = scene.server.open
    renamed(scene)
    scene.event(f"{WEB}:{image}")
    (new,) = scene.server.open
    assert (new.base, new.head != old.head, old.state) == ("trunk", True, "closed")
    assert f"newTag: {waits}" in show(scene.repo, new.head, target("a"))
    assert old.head not in scene.server.branches
    assert "so Image Update closed this request. `its base is now named trunk. http" in old.body
    assert f"/{new.number} proposes the waiting builds`" in old.body
    tips = scene.tips()
    assert verdict(scene.event(f"{WEB}:{waits}")) == ("unchanged", "same")
    assert verdict(scene.event(f"{WEB}:1.3.0")) == ("update", "admitted")
    assert (scene.server.open, scene.tips() != tips) == ([new], True)


def test_an_old_pull_request_is_closed_if_the_config_groups_its_builds_differently(
    scene: Scene,
) -> None:
    scene.event(f"{WEB}:1.1.0")
    (old,) = scene.server.open
    grouped = "version: 1\npullRequests: {enabled: true, group: repository}\n"
    commit(scene.repo, {".image-update/config": grouped})
    scene.event(f"{WEB}:1.2.0")
    (new,) = scene.server.open
    assert (old.state, new.head != old.head) == ("closed", True)
    assert f"`its builds are now proposed on {new.head}. http" in old.body


def test_the_old_pull_request_is_closed_if_its_updates_have_been_merged(scene: Scene) -> None:
    scene.event(f"{WEB}:1.1.0")
    (old,) = scene.server.open
    renamed(scene)
    git(scene.repo, "update-ref", "refs/heads/trunk", git(scene.repo, "rev-parse", old.head))
    assert verdict(scene.event(f"{WEB}:1.1.0")) == ("unchanged", "same")
    assert (old.state, list(scene.server.branches)) == ("closed", ["trunk"])


def test_the_next_run_closes_an_old_pull_request_that_could_not_be_closed(scene: Scene) -> None:
    scene.event(f"{WEB}:1.1.0")
    (old,) = scene.server.open
    renamed(scene)
    scene.server.before = lambda request: (
        scene.server.fail(scene.server.refusal("forbidden"), "PATCH")
        if request.method == "PATCH"
        and f"/{old.number}" in request.path
        and not scene.server.faults
        else None
    )
    result = scene.call("run", "--image", f"{WEB}:1.2.0")
    assert "is obsolete but could not be closed" in result.stderr
    assert len(scene.server.open) == 2
    scene.server.before = lambda _request: None
    scene.server.faults.clear()
    scene.event(f"{WEB}:1.2.0")
    assert (old.state, len(scene.server.open)) == ("closed", 1)


def test_pull_requests_for_staging_and_production_stay_open(scene: Scene) -> None:
    git(scene.repo, "branch", "staging")
    apps = [application("a", scene.url, image_list=f"web={WEB}") for _ in range(2)]
    apps[1]["metadata"]["name"] = "s"
    apps[1]["spec"]["source"]["targetRevision"] = "staging"
    scene.apps = manifest(scene.folder, *apps)
    for image in ("1.1.0", "1.2.0"):
        scene.event(f"{WEB}:{image}")
    assert sorted(pull.base for pull in scene.server.open) == ["main", "staging"]
    assert [pull.state for pull in scene.server.pulls] == ["open", "open"]


def test_a_pull_request_for_another_image_with_the_same_short_name_stays_open(scene: Scene) -> None:
    other = "quay.io/other/web"
    scene.apps = manifest(
        scene.folder, application("a", scene.url, image_list=f"web={WEB},other={other}")
    )
    commit(scene.repo, {target("a"): scene.text("main") + f"- name: {other}\n  newTag: 1.0.0\n"})
    for image in (f"{WEB}:1.1.0", f"{other}:1.1.0", f"{WEB}:1.2.0"):
        scene.event(image)
    assert [pull.state for pull in scene.server.pulls] == ["open", "open"]


def test_a_pull_request_with_a_persons_commit_stays_open(scene: Scene) -> None:
    scene.event(f"{WEB}:1.1.0")
    (old,) = scene.server.open
    tree = git(scene.repo, "rev-parse", f"{old.head}^{{tree}}")
    made = git(scene.repo, "commit-tree", tree, "-p", old.head, "-m", "Looked at")
    git(scene.repo, "update-ref", f"refs/heads/{old.head}", made)
    renamed(scene)
    scene.event(f"{WEB}:1.2.0")
    assert [pull.state for pull in scene.server.pulls] == ["open", "open"]
    assert scene.server.branches[old.head] == made


def test_the_group_setting_in_the_config_applies_after_a_rename(tmp_path: Path) -> None:
    with serving(GitHub()) as server:
        scene = Scene(tmp_path, server, group="application")
        scene.event(f"{WEB}:1.1.0")
        renamed(scene)
        scene.event(f"{API}:1.1.0")
        assert [pull.state for pull in server.pulls] == ["closed", "open"]
        assert show(scene.repo, server.pulls[1].head, target("a")).count("newTag: 1.1.0") == 2


@pytest.mark.parametrize("seen", [True, False], ids=["a run has seen it", "no run has seen it"])
def test_an_update_closed_by_a_person_stays_closed_after_a_rename(seen: bool, scene: Scene) -> None:
    """A Git host retargets only open requests, so a closed request keeps the old base name."""
    scene.event(f"{WEB}:1.1.0")
    old = scene.decline()
    if seen:
        assert verdict(scene.event(f"{WEB}:1.1.0")) == ("refuse", "superseded")
    renamed(scene)
    report = scene.event(f"{WEB}:1.1.0")
    assert verdict(report) == ("refuse", "superseded")
    assert (
        f"/{old.number}: a person closed the request for this build"
        in report["decisions"][0]["because"]
    )
    assert verdict(scene.event(f"{WEB}:1.0.5")) == ("refuse", "superseded")
    assert scene.server.open == []
    assert verdict(scene.event(f"{WEB}:1.2.0")) == ("update", "admitted")


def test_a_renamed_branch_that_is_not_the_default_loses_its_holds_with_a_warning(
    tmp_path: Path,
) -> None:
    with serving(GitHub()) as server:
        scene = Scene(tmp_path, server)
        git(scene.repo, "branch", "staging")
        text = scene.apps.read_text()
        scene.apps.write_text(text.replace('"main"', '"staging"'))
        scene.call("hold", "a", "--reason", "broken")
        git(scene.repo, "branch", "-m", "staging", "stage")
        scene.apps.write_text(text.replace('"main"', '"stage"'))
        status = scene.call("status", "a")
        assert "for staging, which no longer exists: they do not apply to stage" in status.stderr
        result = scene.call("run", "--image", f"{WEB}:1.1.0")
        assert verdict(result.json) == ("update", "admitted")
        assert "image-update-memory/" in result.stderr
        assert "for staging, which no longer exists: they do not apply to stage" in result.stderr


def test_a_hold_and_its_deferred_update_follow_a_renamed_default_branch(tmp_path: Path) -> None:
    with serving(GitHub()) as server:
        scene = Scene(tmp_path, server)
        scene.call("hold", "a", "--reason", "INC-42")
        assert verdict(scene.event(f"{WEB}:1.1.0")) == ("defer", "held")
        (old,) = [name for name in server.branches if name != "main"]
        renamed(scene)
        held = scene.call("run", "--image", f"{WEB}:1.0.5")
        assert verdict(held.json)[0] in ("defer", "refuse")  # 1.1.0 is remembered, and is newer
        assert "INC-42" in scene.call("status").stdout + held.stdout
        assert old not in server.branches
        released = scene.call("release", "a").json
        assert "not held" not in str(released["decisions"])
        assert "newTag: 1.1.0" in scene.text(server.open[0].head)


def test_a_release_right_after_a_rename_ends_the_hold(scene: Scene) -> None:
    """Nothing is remembered, so there is no new memory branch. The old memory branch is still
    deleted.
    """
    scene.call("hold", "a", "--reason", "INC-42")
    renamed(scene)
    assert "released" in scene.call("release", "a").stdout
    assert [name for name in scene.server.branches if "memory" in name] == []
    assert verdict(scene.event(f"{WEB}:1.1.0")) == ("update", "admitted")
