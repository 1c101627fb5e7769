"""GitHub's merge queue and auto-merge: every state in documented or observed responses."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from fakes.description import FOLDER
from fakes.forge_server import Reply
from fakes.github_api import NAME, OWNER, REPO
from fakes.github_api import GitHub as Server
from support.forge_plays import World

from task.forges.client import ForgeAddress
from task.forges.github import GitHub
from task.forges.proposal import applied_wishes, lacking, wish_key

STATES = json.loads((FOLDER / "github-merge-queue.json").read_text())


@pytest.fixture
def world(server: Server) -> World:
    api, web = f"{server.url}/api/v3", f"{server.url}/{NAME}"
    place = ForgeAddress("github", "github.example.com", api, (OWNER, REPO), web)
    return World(server, place, GitHub)


def answers(server: Server, state: Mapping[str, Any]) -> None:
    for asked, status, body in state["answers"]:
        method, end = asked.split(" ")
        server.fail(Reply(status, body), method, end)


def is_set(server: Server) -> bool:
    return wish_key("auto-merge") in applied_wishes(server.open[0].body)


@pytest.mark.parametrize("state", STATES["asked"], ids=lambda state: state["state"])
def test_each_auto_merge_response_from_github_causes_the_expected_note(
    state: Mapping[str, Any], world: World, server: Server
) -> None:
    answers(server, state)
    done = world.propose(replace(world.push("1.1"), auto_merge=True))
    assert [fault for fault in server.faults if fault.times] == []
    assert is_set(server) is state["is_set"]
    assert (done.note != "") is (state["note"] != "")
    assert state["note"] in done.note


@pytest.mark.parametrize("state", STATES["later"], ids=lambda state: state["state"])
def test_only_a_pull_request_removed_by_the_queue_is_queued_again(
    state: Mapping[str, Any], world: World, server: Server
) -> None:
    server.auto_merge, server.queue = "ready", True
    wanted = replace(world.push("1.1"), auto_merge=True)
    world.propose(wanted)
    assert (is_set(server), server.queued) == (True, {1})
    server.queued.clear()
    server.open[0].auto = None
    answers(server, state)
    server.seen.clear()
    found = world.forge().find(wanted.base, wanted.head)
    assert found is not None
    assert lacking(wanted, found.body).auto_merge is state["joins"]
    done = world.forge().propose(wanted, found)
    assert server.queued == ({1} if state["joins"] else set())
    assert (done.note != "") is (state["note"] != "")
    assert state["note"] in done.note
    assert is_set(server)


def test_a_waiting_pull_request_needs_no_queue_request(world: World, server: Server) -> None:
    wanted = replace(world.push("1.1"), auto_merge=True)
    world.propose(wanted)
    server.seen.clear()
    world.forge().find(wanted.base, wanted.head)
    assert [one.path for one in server.seen] == [f"/api/v3/repos/{NAME}/pulls"]


def test_a_pull_request_that_cannot_rejoin_is_retried_by_the_next_run(
    world: World, server: Server
) -> None:
    server.auto_merge, server.queue = "ready", True
    wanted = replace(world.push("1.1"), auto_merge=True)
    world.propose(wanted)
    server.happened(1, "RemovedFromMergeQueueEvent", "failed_checks")
    server.auto_merge, server.queue_refuses = "not allowed", "Pull request is not mergeable"
    done = world.propose(wanted)
    assert "Pull request is not mergeable" in done.note
    assert not is_set(server)
    server.queue_refuses = ""
    world.propose(wanted)
    assert (server.queued, is_set(server)) == ({1}, True)


def test_a_newer_build_is_queued_again(world: World, server: Server) -> None:
    server.auto_merge, server.queue = "ready", True
    world.propose(replace(world.push("1.1"), auto_merge=True))
    server.happened(1, "RemovedFromMergeQueueEvent", "merge_conflict")
    done = world.propose(replace(world.push("1.2"), auto_merge=True))
    assert "removed it (merge conflict)" in done.note
    assert server.queued == {1}


def test_a_pull_request_without_auto_merge_does_not_rejoin_the_queue(
    world: World, server: Server
) -> None:
    server.auto_merge, server.queue = "ready", True
    wanted = replace(world.push("1.1"), auto_merge=True)
    world.propose(wanted)
    server.happened(1, "RemovedFromMergeQueueEvent", "failed_checks")
    done = world.propose(replace(wanted, auto_merge=False))
    assert (server.queued, done.note) == (set(), "")
