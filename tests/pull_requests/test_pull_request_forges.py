"""Pull requests by the command, on every forge: opened, left alone, updated, merged, closed, and when it fails."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.forge_server import serving
from request_scenes import KINDS, Scene, url_of, verdict
from runs import WEB
from support import git


@pytest.fixture(params=KINDS)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    with serving(KINDS[request.param].fake()) as server:
        yield Scene(tmp_path, server, request.param)


def story(scene: Scene) -> None:
    """Opened, left alone, updated, merged; and the next one."""
    first = scene.event(f"{WEB}:1.1.0")
    assert verdict(first) == ("update", "admitted")
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
    """Not opened again for the same image; a newer one opens another."""
    scene.event(f"{WEB}:1.1.0")
    scene.decline()
    tips = scene.tips()
    assert verdict(scene.event(f"{WEB}:1.1.0")) == ("refuse", "superseded")
    assert (scene.server.open, scene.tips()) == ([], tips)
    scene.event(f"{WEB}:1.2.0")
    (pull,) = scene.server.open
    assert pull.number == scene.server.pulls[-1].number != scene.server.pulls[0].number
    assert scene.on_top() == 1


def branch_deleted(scene: Scene) -> None:
    """The branch comes back, and its request with it."""
    scene.event(f"{WEB}:1.1.0")
    scene.delete()
    assert verdict(scene.event(f"{WEB}:1.1.0")) == ("update", "admitted")
    assert "newTag: 1.1.0" in scene.text()
    assert len(scene.server.open) == 1


@pytest.mark.parametrize("play", [story, closed, branch_deleted], ids=lambda play: play.__name__)
def test_play(play: Callable[[Scene], None], scene: Scene) -> None:
    play(scene)


FAULTS = [
    ("github", "forbidden", "POST", 4, "repository"),
    ("github", "limited", "POST", 75, "repository"),
    ("github", "invalid", "POST", 3, "repository"),
    ("github", "down", "POST", 75, "repository"),
    ("github", "down", "", 75, "repository"),
    ("github", "limited", "", 75, "repository"),
    ("github", "unauthorized", "", 4, "credentials"),
    ("gitlab", "forbidden", "POST", 4, "repository"),
    ("gitea", "down", "", 75, "repository"),
    ("bitbucket", "invalid", "POST", 3, "repository"),
    ("bitbucket-server", "forbidden", "POST", 4, "repository"),
    ("azure", "limited", "POST", 75, "repository"),
]


@pytest.mark.parametrize(("scene", "refusal", "method", "code", "rule"), FAULTS, indirect=["scene"])
def test_nothing_is_lost(refusal: str, method: str, code: int, rule: str, scene: Scene) -> None:
    reply = scene.server.refusal(refusal)
    limited = refusal == "limited"
    reply = reply._replace(headers=(("Retry-After", "3600"),)) if limited else reply
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
