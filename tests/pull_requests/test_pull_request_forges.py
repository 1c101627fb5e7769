"""Pull requests on every forge: opened, unchanged, updated, merged, closed, and failed."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.forge_server import Request
from fakes.gitea_api import OWNER, REPO, Gitea
from support import git, image_update, variants
from support.forge_kinds import KINDS
from support.request_scenes import MEMORY, TOKEN, Scene, a_reviewers_week, url_of, verdict
from support.runs import WEB, application, manifest
from support.serving import serving


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    with serving(KINDS[request.param].fake()) as server:
        yield Scene(tmp_path, server, request.param)


def story(scene: Scene) -> None:
    """Open a request, leave it unchanged, update it, merge it, and open the next one."""
    first = scene.event(f"{WEB}:1.1.0")
    assert verdict(first) == ("update", "admitted")
    looks = [one.path for one in scene.server.seen if one.method == "GET"]
    assert len(looks) == (
        2 if scene.kind.name == "bitbucket" else 1
    )  # Bitbucket also requires the branch tip
    (pull,) = scene.server.open
    assert (pull.base, pull.head) == ("main", scene.head)
    assert scene.server.branches[scene.head] in pull.body
    assert "`1.1.0`" in pull.body
    tips = scene.tips()
    scene.server.seen.clear()
    again = scene.event(f"{WEB}:1.1.0")
    assert verdict(again) == ("unchanged", "same")
    assert (url_of(again), scene.tips(), scene.server.writes) == (url_of(first), tips, [])
    assert verdict(scene.event(f"{WEB}:1.2.0")) == ("update", "admitted")
    (pull,) = scene.server.pulls
    assert "`1.2.0`" in pull.body
    assert scene.server.branches[scene.head] in pull.body
    assert "newTag: 1.2.0" in scene.text()
    assert scene.on_top() == 1
    tips = scene.tips()
    assert verdict(scene.event(f"{WEB}:1.1.0")) == ("refuse", "superseded")
    assert scene.tips() == tips
    merged = scene.merge()
    assert verdict(scene.event(f"{WEB}:1.2.0")) == ("unchanged", "same")
    assert scene.server.open == []
    third = scene.event(f"{WEB}:1.3.0")
    assert verdict(third) == ("update", "admitted")
    (pull,) = scene.server.open
    assert pull.number != merged.number
    assert scene.on_top() == 1


def closed(scene: Scene) -> None:
    """Close a request. The same build does not reopen it, but a newer build opens another one."""
    scene.event(f"{WEB}:1.1.0")
    scene.decline()
    assert verdict(scene.event(f"{WEB}:1.1.0")) == ("refuse", "superseded")
    tips = scene.tips()  # the list contains the declined build
    assert verdict(scene.event(f"{WEB}:1.1.0")) == ("refuse", "superseded")
    assert (scene.server.open, scene.tips()) == ([], tips)
    scene.event(f"{WEB}:1.2.0")
    (pull,) = scene.server.open
    assert pull.number == scene.server.pulls[-1].number != scene.server.pulls[0].number
    assert scene.on_top() == 1


def closed_and_branch_deleted(scene: Scene) -> None:
    """Close a request and delete its branch. The request remains closed."""
    scene.event(f"{WEB}:1.1.0")
    scene.decline()
    scene.delete()
    for older in ("1.1.0", "1.0.5"):
        assert verdict(scene.event(f"{WEB}:{older}")) == ("refuse", "superseded")
    assert [name for name in scene.server.branches if not name.startswith(MEMORY)] == ["main"]
    scene.event(f"{WEB}:1.2.0")
    (pull,) = scene.server.open
    assert pull.number != scene.server.pulls[0].number


def branch_deleted(scene: Scene) -> None:
    """Delete the branch. The branch returns with its request, or with a new request if that was
    closed.
    """
    scene.event(f"{WEB}:1.1.0")
    scene.delete()
    assert verdict(scene.event(f"{WEB}:1.1.0")) == ("update", "admitted")
    assert "newTag: 1.1.0" in scene.text()
    assert len(scene.server.open) == 1


def merged_between_push_and_text(scene: Scene) -> None:
    """Merge a request together with a recent push, so nothing remains to be proposed."""
    scene.event(f"{WEB}:1.1.0")

    def merge(request: Request) -> None:
        if request.method in ("PATCH", "PUT") and scene.server.open:
            scene.merge(delete=True)

    scene.server.before = merge
    assert verdict(scene.event(f"{WEB}:1.2.0")) == ("unchanged", "same")
    assert [pull.state for pull in scene.server.pulls] == ["merged"]
    assert "newTag: 1.2.0" in scene.text("main")


@pytest.mark.parametrize(
    ("play", "scene"),
    [
        *((a_reviewers_week, kind) for kind in KINDS),
        *((story, kind) for kind in variants(["github"], at_night=[*KINDS][1:])),
    ],
    indirect=["scene"],
)
def test_a_pull_request_is_opened_updated_and_merged_on_every_forge(
    play: Callable[[Scene], None], scene: Scene
) -> None:
    play(scene)


# tests/support/forge_plays.py covers the client for each forge. These tests use a forge that keeps
# the request of a deleted branch, and the forge that closes it.
@pytest.mark.parametrize("scene", variants(["github"], at_night=["gitea"]), indirect=True)
@pytest.mark.parametrize(
    "play",
    [closed, closed_and_branch_deleted, branch_deleted, merged_between_push_and_text],
    ids=lambda play: play.__name__,
)
def test_closed_and_merged_pull_requests_are_handled_on_github_and_gitea(
    play: Callable[[Scene], None], scene: Scene
) -> None:
    play(scene)


@pytest.mark.parametrize("scene", ["gitea"], indirect=True)
def test_a_pull_request_for_a_renamed_repository_is_opened_at_the_new_address(scene: Scene) -> None:
    """Git follows the redirect in a push, and so do we. A warning contains the new address."""
    assert isinstance(scene.server, Gitea)
    scene.server.old_names = {"old"}
    old, new = f"{scene.server.url}/{OWNER}/old", f"{scene.server.url}/{OWNER}/{REPO}"
    scene.url = f"{old}.git"
    scene.apps = manifest(scene.folder, application("a", scene.url))
    result = scene.call("run", "--image", f"{WEB}:1.1.0")
    assert result.code == 0, result.stderr
    assert f"{old} has moved to {new}" in result.stderr
    (pull,) = scene.server.open
    assert pull.head == scene.head


@pytest.mark.parametrize("scene", ["gitea"], indirect=True)
@pytest.mark.parametrize("secret", ["s3cret", TOKEN])
def test_the_git_credentials_are_used_for_the_gitea_api(scene: Scene, secret: str) -> None:
    assert isinstance(scene.server, Gitea)
    scene.server.passwords["ci"] = "s3cret"
    prefix = ("--git-credentials-url", f"{scene.server.url}/", "--git-username", "ci")
    scene.env = {"IMAGE_UPDATE_GIT_PASSWORD": secret}
    assert verdict(scene.event(f"{WEB}:1.1.0", *prefix)) == ("update", "admitted")
    assert len(scene.server.open) == 1


@pytest.mark.parametrize("scene", ["gitea"], indirect=True)
def test_a_gitea_server_that_requires_sign_in_is_recognized(scene: Scene) -> None:
    assert isinstance(scene.server, Gitea)
    scene.server.sign_in_required = True
    credentials = ("--git-credentials-url", f"{scene.server.url}/")
    given = scene.given("run", "--image", f"{WEB}:1.1.0", *credentials)
    at = given.index("--forge")
    result = image_update(*given[:at], *given[at + 2 :], env=scene.env)
    assert result.code == 0, result.stdout
    assert len(scene.server.open) == 1


FAULTS = [
    ("github", "forbidden", "POST", 4, "repository"),
    ("github", "limited", "POST", 75, "repository"),
    ("github", "invalid", "POST", 3, "repository"),
    ("github", "down", "", 75, "repository"),
    ("github", "unauthorized", "", 4, "credentials"),
    ("gitlab", "forbidden", "POST", 4, "repository"),
    ("azure", "down", "POST", 75, "repository"),
]


@pytest.mark.parametrize(("scene", "refusal", "method", "code", "rule"), FAULTS, indirect=["scene"])
def test_the_next_run_completes_a_pull_request_after_a_forge_failure(
    refusal: str, method: str, code: int, rule: str, scene: Scene
) -> None:
    reply = scene.server.refusal(refusal)
    limited = refusal == "limited"
    reply = replace(reply, headers=(("Retry-After", "3600"),)) if limited else reply
    scene.server.fail(reply, method, times=99)
    report = scene.event(f"{WEB}:1.1.0", code=code)
    assert verdict(report) == ("error", rule)
    assert report["errors"][0]["hint"]
    assert "newTag: 1.1.0" in scene.text()
    tip = git(scene.repo, "rev-parse", scene.head)
    scene.server.faults.clear()
    done = scene.event(f"{WEB}:1.1.0")
    assert verdict(done) == ("update", "admitted")
    assert url_of(done).endswith(f"/{scene.server.open[0].number}")
    assert done["commits"][0]["commit"] == tip == git(scene.repo, "rev-parse", scene.head)
