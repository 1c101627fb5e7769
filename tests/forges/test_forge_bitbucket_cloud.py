"""Bitbucket Cloud pull requests."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from fakes.bitbucket_cloud_api import ANN, BOB, SLUG, WORKSPACE
from fakes.bitbucket_cloud_api import BitbucketCloud as Server
from fakes.forge_server import Reply, Request
from support.forge_plays import HEAD, PLAYS, World
from support.serving import serving

from task.errors import CredentialsError
from task.forges import bitbucket_cloud
from task.forges.bitbucket_cloud import BitbucketCloud, CloudClient
from task.forges.client import ForgeAddress, ForgeToken, Reach
from task.secret import Secret


@pytest.fixture
def world(server: Server) -> World:
    web = f"https://bitbucket.org/{WORKSPACE}/{SLUG}"
    place = ForgeAddress("bitbucket", "bitbucket.org", f"{server.url}/2.0", (WORKSPACE, SLUG), web)
    return World(server, place, BitbucketCloud)


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
def test_every_scenario_works_on_bitbucket_cloud(
    play: Callable[[World], None], world: World
) -> None:
    play(world)


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ("", "Bearer s3cret"),
        ("x-token-auth", "Bearer s3cret"),
        ("me@example.com", "Basic bWVAZXhhbXBsZS5jb206czNjcmV0"),
    ],
)
def test_each_token_is_sent_in_the_matching_authorization_header(
    user: str, header: str, world: World
) -> None:
    reach = Reach(world.place, ForgeToken(Secret("s3cret"), user))
    assert CloudClient(reach, "").login() == {"Authorization": header}


def test_a_rejected_token_leads_to_a_hint_about_the_user_name(world: World) -> None:
    forge = world.forge("wrong-token")
    with pytest.raises(CredentialsError) as caught:
        forge.find("main", HEAD)
    assert "--forge-username" in caught.value.hint


def test_reviewers_are_found_by_uuid_and_nickname(world: World, server: Server) -> None:
    server.author = "{somebody-else}"
    done = world.propose(replace(world.push("1.1"), reviewers=("ann", BOB, "ann")))
    assert server.open[0].reviewers == [ANN, BOB]
    assert done.note == ""


@pytest.mark.parametrize("reviewer", ["nobody", '" OR user.nickname = "ann'])
def test_unknown_reviewers_are_noted(reviewer: str, world: World, server: Server) -> None:
    done = world.propose(replace(world.push("1.1"), reviewers=(reviewer, "ann")))
    assert server.open[0].reviewers == [ANN]
    assert reviewer in done.note


def test_rejected_reviewers_do_not_prevent_the_pull_request(world: World, server: Server) -> None:
    done = world.propose(replace(world.push("1.1"), reviewers=("bob",)))
    assert server.open[0].reviewers == []
    assert "is the author" in done.note


def test_reviewers_that_cannot_be_looked_up_cause_a_note(world: World, server: Server) -> None:
    server.can_list_members = False
    done = world.propose(replace(world.push("1.1"), reviewers=("ann",)))
    assert len(server.open) == 1
    assert "reviewer ann" in done.note


def test_an_update_adds_reviewers_without_removing_any(world: World, server: Server) -> None:
    server.author = "{somebody-else}"
    world.propose(world.push("1.1"))
    server.open[0].reviewers = [BOB]
    wanted = replace(world.push("1.2"), reviewers=("ann",))
    world.propose(wanted)
    assert server.open[0].reviewers == [BOB, ANN]
    server.seen.clear()
    world.propose(wanted)
    assert server.writes == []


def test_unsupported_options_cause_a_note_each_time(world: World) -> None:
    wanted = replace(world.push("1.1"), labels=("deploy",), assignees=("ann",), auto_merge=True)
    for _turn in range(2):
        note = world.propose(wanted).note
        assert [
            word for word in ("labels", "assignees", "turn on auto-merge") if word not in note
        ] == []


def test_a_draft_can_be_opened(world: World, server: Server) -> None:
    world.propose(replace(world.push("1.1"), draft=True))
    assert server.open[0].draft


@pytest.mark.parametrize(("head", "deleted"), [(HEAD, True), ("staging", False)])
def test_only_our_own_branches_are_deleted_when_merged(
    head: str, deleted: bool, world: World, server: Server
) -> None:
    world.propose(world.push("1.1", head))
    (made,) = (one.body for one in server.seen if one.method == "POST")
    assert made["close_source_branch"] is deleted


def test_our_pull_request_is_found_among_pull_requests_from_forks(
    world: World, server: Server
) -> None:
    world.propose(world.push("1.1"))
    server.page_size = 1
    for _fork in range(3):
        server.add(base="main", head=HEAD, title="fork", body="", fork=True)
    found = world.forge().find("main", HEAD)
    assert found is not None
    assert found.number == "1"


def test_a_next_page_on_another_host_is_not_requested(world: World, server: Server) -> None:
    with serving(Server()) as other:
        elsewhere = Reply(200, {"values": [], "next": f"{other.url}/2.0/workspaces/acme/members"})
        server.fail(elsewhere, "GET", "/members")
        assert (
            "next-page link" in world.propose(replace(world.push("1.1"), reviewers=("ann",))).note
        )
        assert other.seen == []


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bitbucket_cloud, "_PAUSES", (0.0, 0.0))


@pytest.mark.usefixtures("quick")
def test_an_older_build_lets_the_newer_build_open_the_pull_request(
    world: World, server: Server
) -> None:
    older, newer = world.push("1.1"), world.push("1.2")

    def open_it(_request: Request) -> None:
        if len(server.seen) == 3:  # this run found no request, and read the branch
            server.add(base="main", head=HEAD, title=newer.title, body=newer.body)

    server.before = open_it
    done = world.propose(older)
    assert (done.title, done.head_commit) == (newer.title, server.branches[HEAD])
    assert "newer" in done.note
    assert server.writes == []


@pytest.mark.usefixtures("quick")
def test_an_older_build_opens_the_pull_request_if_the_newer_build_never_does(
    world: World, server: Server
) -> None:
    older = world.push("1.1")
    world.push("1.2")
    world.propose(older)
    assert server.open[0].title == older.title
