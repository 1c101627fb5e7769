from collections.abc import Callable, Iterator

import pytest
from fakes.forge_server import serving
from fakes.gitea_api import OWNER, REPO
from fakes.gitea_api import Gitea as Server
from forge_plays import HEAD, PLAYS, World

from task.edges.forges import Place
from task.edges.forges.gitea import Gitea


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Server()) as running:
        yield running


@pytest.fixture
def world(server: Server) -> World:
    return World(server, Place("gitea", "gitea.example.com", f"{server.url}/api/v1", (OWNER, REPO), server.url), Gitea)


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
def test_play(play: Callable[[World], None], world: World) -> None:
    play(world)


def test_labels_people_and_draft(world: World, server: Server) -> None:
    wanted = world.push("1.1")._replace(
        labels=("deploy", "automatic", "new"), reviewers=("ann", f"{OWNER}/deployers"), assignees=("bob",), draft=True
    )
    done = world.forge().propose(wanted)
    (pull,) = server.open
    assert (pull.title, done.title) == (f"WIP: {wanted.title}", wanted.title)
    assert sorted(pull.labels) == ["automatic", "deploy", "new"]  # one of the organization, one made
    assert (pull.reviewers, server.teams, server.assigned) == (["ann"], {1: ["deployers"]}, {1: ["bob"]})
    assert done.note == ""
    server.seen.clear()
    world.forge().propose(wanted)
    assert server.writes == []


def test_who_is_not_known_keeps_out_nobody_else(world: World, server: Server) -> None:
    wanted = world.push("1.1")._replace(reviewers=("nobody", "ann"), assignees=("ghost", "bob"))
    done = world.forge().propose(wanted)
    assert (server.open[0].reviewers, server.assigned[1]) == (["ann"], ["bob"])
    assert "nobody" in done.note
    assert "Assignee does not exist: [name: ghost]" in done.note


def test_found_behind_many_others(world: World, server: Server) -> None:
    wanted = world.push("1.1")
    first = world.forge().propose(wanted)
    for number in range(7):
        server.add(base="main", head=f"other-{number}", title="other", body="")
    server.most = 3  # rows of a page, fewer than asked for
    found = world.forge().find("main", HEAD)
    assert found is not None
    assert found.number == first.number


def test_a_draft_stays_one(world: World, server: Server) -> None:
    world.forge().propose(world.push("1.1")._replace(draft=True))
    wanted = world.push("1.2")
    world.forge().propose(wanted)
    assert server.open[0].title == f"WIP: {wanted.title}"


@pytest.mark.parametrize(
    ("settings", "style"),
    [
        ({}, "merge"),
        ({"default_merge_style": "squash"}, "squash"),
        ({"allow_merge_commits": False}, "squash"),
    ],
)
def test_auto_merge(world: World, server: Server, settings: dict[str, object], style: str) -> None:
    server.settings.update(settings)
    wanted = world.push("1.1")._replace(auto_merge=True)
    done = world.forge().propose(wanted)
    auto = server.open[0].auto
    assert auto is not None
    assert (auto["Do"], auto["head_commit_id"]) == (style, server.branches[HEAD])
    assert (done.state, done.note) == ("open", "")
    assert world.forge().propose(wanted).note == ""  # scheduled already


def test_auto_merge_waits_while_gitea_looks(world: World, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("task.edges.forges.gitea._PAUSES", (0.0, 0.0))
    server.looks = 2
    done = world.forge().propose(world.push("1.1")._replace(auto_merge=True))
    assert server.open[0].auto is not None
    assert done.note == ""


def test_auto_merge_without_checks_merges(world: World, server: Server) -> None:
    server.checks = "none"
    done = world.forge().propose(world.push("1.1")._replace(auto_merge=True))
    assert (done.state, done.merge_commit) == ("merged", server.pulls[0].merge_commit)


@pytest.mark.parametrize(("reason", "said"), [("forbidden", "not allowed"), ("draft", "Work in progress")])
def test_auto_merge_that_cannot_be_is_noted(world: World, server: Server, reason: str, said: str) -> None:
    server.checks = reason if reason == "forbidden" else "pending"
    done = world.forge().propose(world.push("1.1")._replace(auto_merge=True, draft=reason == "draft"))
    assert (done.state, server.open[0].auto) == ("open", None)
    assert "cannot merge it by itself" in done.note
    assert said in done.note


def test_conflicts_are_told_while_waiting(world: World, server: Server) -> None:
    done = world.forge().propose(world.push("1.1"))
    server.conflicts = True
    assert "conflicts" in world.forge().state(done.number).note


def test_labels_of_a_user_who_is_no_organization(world: World, server: Server) -> None:
    server.fail(server.refusal("forbidden")._replace(status=404), "GET", f"/orgs/{OWNER}/labels")
    done = world.forge().propose(world.push("1.1")._replace(labels=("new",)))
    assert (server.open[0].labels, done.note) == (["new"], "")
