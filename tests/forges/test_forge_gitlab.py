"""GitLab merge requests."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from fakes.description import FOLDER
from fakes.forge_server import Reply
from fakes.gitlab_api import PROJECT
from fakes.gitlab_api import GitLab as Server
from support.forge_plays import HEAD, PLAYS, World

from task.errors import RepositoryError
from task.forges.client import ForgeAddress
from task.forges.gitlab import GitLab
from task.forges.proposal import applied_wishes, wish_key


@pytest.fixture
def world(server: Server) -> World:
    parts = tuple(PROJECT.split("/"))
    return World(
        server,
        ForgeAddress("gitlab", "gitlab.example.com", f"{server.url}/api/v4", parts, server.url),
        GitLab,
    )


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
def test_every_scenario_works_on_gitlab(play: Callable[[World], None], world: World) -> None:
    play(world)


def test_the_project_is_one_segment_of_the_api_path(world: World) -> None:
    world.propose(world.push("1.1"))
    assert any("/api/v4/projects/acme%2Fteam%2Fdeploy/merge_requests" in line for line in world.log)


def test_labels_people_and_the_draft_state_are_set_once(world: World, server: Server) -> None:
    wanted = replace(
        world.push("1.1"),
        labels=("deploy", "a,b"),
        reviewers=("ann", "Bob"),
        assignees=("bob",),
        draft=True,
    )
    done = world.propose(wanted)
    (pull,) = server.open
    assert (pull.title, done.title) == (f"Draft: {wanted.title}", wanted.title)
    assert (pull.labels, pull.reviewers, server.assigned) == (
        ["deploy"],
        ["ann", "bob"],
        {1: ["bob"]},
    )
    assert done.note == "label 'a,b': GitLab labels cannot contain a comma"
    assert server.removes == {1: True}
    pull.labels, server.assigned = [], {}  # a person removed these
    server.seen.clear()
    world.propose(wanted)
    assert server.writes == []


def test_reviewers_are_added_to_existing_reviewers(world: World, server: Server) -> None:
    world.propose(replace(world.push("1.1"), reviewers=("ann",)))
    done = world.propose(replace(world.push("1.2"), reviewers=("bob", "nobody")))
    assert server.open[0].reviewers == ["ann", "bob"]
    assert "reviewer nobody" in done.note


def test_several_reviewers_require_gitlab_premium(world: World, server: Server) -> None:
    server.premium = False
    done = world.propose(replace(world.push("1.1"), reviewers=("ann", "bob")))
    assert server.open[0].reviewers == ["ann"]
    assert "reviewer bob" in done.note
    assert "Premium" in done.note


def test_a_draft_made_ready_stays_ready(world: World, server: Server) -> None:
    world.propose(replace(world.push("1.1"), draft=True))
    server.open[0].title = server.open[0].title.removeprefix("Draft: ")
    wanted = replace(world.push("1.2"), draft=True)
    world.propose(wanted)
    assert server.open[0].title == wanted.title


def test_an_update_keeps_the_draft_state(world: World, server: Server) -> None:
    world.propose(replace(world.push("1.1"), draft=True))
    wanted = world.push("1.2")
    world.propose(wanted)
    assert server.open[0].title == f"Draft: {wanted.title}"


def test_auto_merge_is_enabled_once(world: World, server: Server) -> None:
    wanted = replace(world.push("1.1"), auto_merge=True)
    done = world.propose(wanted)
    assert (done.state, done.note) == ("open", "")
    sent = {"auto_merge": True, "merge_when_pipeline_succeeds": True, "sha": server.branches[HEAD]}
    assert server.open[0].auto == sent
    server.seen.clear()
    world.propose(wanted)
    assert server.writes == []


def test_auto_merge_is_set_again_for_a_newer_build(world: World, server: Server) -> None:
    """GitLab cancels auto-merge on a push."""
    world.propose(replace(world.push("1.1"), auto_merge=True))
    world.propose(replace(world.push("1.2"), auto_merge=True))
    auto = server.open[0].auto
    assert auto is not None
    assert auto["sha"] == server.branches[HEAD]


def test_auto_merge_waits_for_gitlabs_merge_check(
    world: World, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("task.forges.gitlab._PAUSES", (0.0, 0.0, 0.0, 0.0))
    server.looks = 5
    done = world.propose(replace(world.push("1.1"), auto_merge=True))
    assert server.open[0].auto is not None
    assert done.note == ""


def test_auto_merge_without_a_pipeline_merges_immediately(
    world: World, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("task.forges.gitlab._PAUSES", (0.0,))
    server.pipeline = "none"
    done = world.propose(replace(world.push("1.1"), auto_merge=True))
    assert (done.state, done.merge_commit) == ("merged", server.pulls[0].merge_commit)


@pytest.mark.parametrize("reason", ["forbidden", "conflicts", "draft", "required"])
def test_refused_auto_merge_is_noted(
    world: World, server: Server, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    monkeypatch.setattr("task.forges.gitlab._PAUSES", (0.0,))
    server.pipeline = reason if reason in ("forbidden", "required") else "running"
    server.conflicts = reason == "conflicts"
    done = world.propose(replace(world.push("1.1"), auto_merge=True, draft=reason == "draft"))
    assert (done.state, server.open[0].auto) == ("open", None)
    assert "GitLab cannot merge" in done.note


def test_the_merge_commit_of_a_fast_forward_is_the_head_commit(
    world: World, server: Server
) -> None:
    done = world.propose(world.push("1.1"))
    server.merge(done.number)
    server.pulls[0].merge_commit = ""
    assert world.forge().state(done.number).merge_commit == server.branches[HEAD]


def test_conflicts_are_reported_while_waiting(world: World, server: Server) -> None:
    done = world.propose(world.push("1.1"))
    server.conflicts = True
    assert world.forge().state(done.number).note == "it conflicts with main"


def test_the_error_mentions_a_job_token(world: World, server: Server) -> None:
    server.fail(server.refusal("forbidden"), "POST")
    with pytest.raises(RepositoryError) as caught:
        world.propose(world.push("1.1"))
    assert "CI_JOB_TOKEN" in caught.value.hint


def test_a_renamed_project_is_followed(world: World, server: Server) -> None:
    """GitLab redirects reads of the old path, but rejects writes to it."""
    server.old_names = {"acme/old"}
    old = World(
        server, replace(world.place, project=("acme", "old"), web=f"{server.url}/acme/old"), GitLab
    )
    first = old.propose(replace(old.push("1.1"), labels=("deploy",)))
    second = old.propose(old.push("1.2"))
    assert (first.number, second.number, len(server.pulls)) == ("1", "1", 1)
    assert old.warned[0].startswith(f"{server.url}/acme/old has moved to {server.url}/{PROJECT}")


TRAINS = json.loads((FOLDER / "gitlab-merge-trains.json").read_text())["states"]


@pytest.mark.parametrize("state", TRAINS, ids=lambda state: state["state"])
def test_each_merge_train_response_causes_the_expected_note(
    state: Mapping[str, Any], world: World, server: Server
) -> None:
    server.trains = True
    server.pipeline = "running" if state["checks"] == "ci_still_running" else "passed"
    for asked, status, body in state["answers"]:
        server.fail(Reply(status, body), *asked.split(" "))
    done = world.propose(replace(world.push("1.1"), auto_merge=True))
    assert [fault for fault in server.faults if fault.times] == []
    assert (wish_key("auto-merge") in applied_wishes(server.open[0].body)) is state["is_set"]
    assert (done.note != "") is (state["note"] != "")
    assert state["note"] in done.note
    assert [one for one in server.writes if one.endswith("/merge")] == []


@pytest.mark.parametrize("pipeline", ["running", "passed"])
def test_a_newer_build_rejoins_the_merge_train(world: World, server: Server, pipeline: str) -> None:
    server.trains, server.pipeline = True, pipeline
    for build in ("1.1", "1.2"):
        assert world.propose(replace(world.push(build), auto_merge=True)).note == ""
        auto = server.open[0].auto
        assert auto is not None
        assert (auto["train"], auto["sha"]) == (True, server.branches[HEAD])
