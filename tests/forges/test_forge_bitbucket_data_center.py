"""Bitbucket Data Center pull requests."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from fakes.bitbucket_data_center_api import KEY, SLUG
from fakes.bitbucket_data_center_api import BitbucketDataCenter as Server
from fakes.forge_server import Request
from support.forge_plays import HEAD, PLAYS, World, text, the_only

from task.errors import Outpaced, UnreachableError
from task.forges.bitbucket_data_center import BitbucketDataCenter, DataCenterClient
from task.forges.client import ForgeAddress, ForgeToken, Reach
from task.secret import Secret


@pytest.fixture
def world(server: Server) -> World:
    web = f"{server.url}/projects/{KEY}/repos/{SLUG}"
    place = ForgeAddress(
        "bitbucket-server", "git.example.com", f"{server.url}/rest/api/1.0", (KEY, SLUG), web
    )
    return World(server, place, BitbucketDataCenter)


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
def test_every_scenario_works_on_bitbucket_data_center(
    play: Callable[[World], None], world: World
) -> None:
    play(world)


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ("", "Bearer s3cret"),
        ("x-token-auth", "Bearer s3cret"),
        ("deployer", "Basic ZGVwbG95ZXI6czNjcmV0"),
    ],
)
def test_each_token_is_sent_in_the_matching_authorization_header(
    user: str, header: str, world: World
) -> None:
    reach = Reach(world.place, ForgeToken(Secret("s3cret"), user))
    assert DataCenterClient(reach, "").login() == {"Authorization": header}


def test_project_and_repository_names_are_case_insensitive(world: World, server: Server) -> None:
    other = World(server, replace(world.place, project=("ops", "Deploy")), BitbucketDataCenter)
    wanted = world.push("1.1")
    assert world.propose(wanted).number == other.propose(wanted).number


def test_our_pull_request_is_found_among_other_pull_requests(world: World, server: Server) -> None:
    world.propose(world.push("1.1"))
    server.page_size = 1
    for base in ("staging", "production"):
        server.add(base=base, head=HEAD, title="other", body="")
    found = world.forge().find("main", HEAD)
    assert found is not None
    assert found.number == "1"


def test_unknown_reviewers_cause_a_note_and_the_others_are_added(
    world: World, server: Server
) -> None:
    done = world.propose(replace(world.push("1.1"), reviewers=("ann", "nobody")))
    assert server.open[0].reviewers == ["ann"]
    assert "reviewer nobody: " in done.note


def test_an_update_adds_reviewers_without_removing_any(world: World, server: Server) -> None:
    world.propose(world.push("1.1"))
    server.open[0].reviewers = ["bob"]
    wanted = replace(world.push("1.2"), reviewers=("ann",))
    world.propose(wanted)
    assert server.open[0].reviewers == ["bob", "ann"]
    server.seen.clear()
    world.propose(wanted)
    assert server.writes == []


def test_unsupported_labels_and_assignees_cause_a_note(world: World) -> None:
    note = world.propose(replace(world.push("1.1"), labels=("deploy",), assignees=("ann",))).note
    assert "labels" in note
    assert "assignees" in note


@pytest.mark.parametrize(
    ("release", "draft", "note"), [((8, 19, 0), True, ""), ((7, 21, 4), False, "8.18")]
)
def test_drafts_require_bitbucket_8_18(
    release: tuple[int, int, int], draft: bool, note: str, world: World, server: Server
) -> None:
    server.release = release
    done = world.propose(replace(world.push("1.1"), draft=True))
    assert server.open[0].draft is draft
    assert note in done.note


def test_an_update_preserves_concurrent_changes(world: World, server: Server) -> None:
    world.propose(world.push("1.1"))
    wanted, changes = world.push("1.2"), [1, 2]

    def change(request: Request) -> None:
        if request.method == "PUT" and changes:
            changes.pop()
            server.open[0].version += 1
            server.open[0].reviewers = ["bob"]

    server.before = change
    world.propose(wanted)
    assert the_only(world) == text(wanted)
    assert server.open[0].reviewers == ["bob"]


def test_an_update_gives_up_after_repeated_concurrent_changes(world: World, server: Server) -> None:
    world.propose(world.push("1.1"))

    def change(request: Request) -> None:
        if request.method == "PUT":
            server.open[0].version += 1

    server.before = change
    wanted = world.push("1.2")
    with pytest.raises(UnreachableError, match="others keep changing"):
        world.propose(wanted)


def test_a_pull_request_with_nothing_to_merge_is_decided_again(
    world: World, server: Server
) -> None:
    wanted = world.push("1.1")
    server.branches["main"] = server.branches[HEAD]
    with pytest.raises(Outpaced):
        world.propose(wanted)


def test_conflicts_are_noted(world: World, server: Server) -> None:
    server.conflicts = True
    done = world.propose(world.push("1.1"))
    assert "conflicts" in done.note
    assert "conflicts" in world.forge().state(done.number).note


def merges(server: Server) -> list[str]:
    return [one for one in server.writes if one.endswith("/merge")]


def test_auto_merge_is_requested_once_per_commit(world: World, server: Server) -> None:
    wanted = replace(world.push("1.1"), auto_merge=True)
    for _turn in range(2):
        done = world.propose(wanted)
        assert (done.state, done.note) == ("open", "")
    assert len(merges(server)) == 1
    world.propose(replace(world.push("1.2"), auto_merge=True))
    assert len(merges(server)) == 2


def test_auto_merge_merges_immediately_if_all_checks_pass(world: World, server: Server) -> None:
    server.all_checks_pass = True
    done = world.propose(replace(world.push("1.1"), auto_merge=True))
    assert (done.state, done.merge_commit) == ("merged", server.pulls[0].merge_commit)


def test_auto_merge_is_not_requested_if_it_would_skip_the_checks(
    world: World, server: Server
) -> None:
    server.release = (8, 14, 9)
    done = world.propose(replace(world.push("1.1"), auto_merge=True))
    assert merges(server) == []
    assert "8.15" in done.note


def test_auto_merge_that_is_not_allowed_is_noted(world: World, server: Server) -> None:
    server.auto_merge_allowed = False
    done = world.propose(replace(world.push("1.1"), auto_merge=True))
    assert done.state == "open"
    assert "not enabled" in done.note
