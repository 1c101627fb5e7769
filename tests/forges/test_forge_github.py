"""GitHub pull requests."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from fakes.forge_server import Reply
from fakes.github_api import NAME, OWNER, REPO
from fakes.github_api import GitHub as Server
from support.forge_plays import HEAD, PLAYS, World

from task.errors import RepositoryError, UnreachableError
from task.forges.client import ForgeAddress
from task.forges.github import GitHub
from task.forges.github_auto_merge import graphql


@pytest.fixture
def world(server: Server) -> World:
    place = ForgeAddress(
        "github",
        "github.example.com",
        f"{server.url}/api/v3",
        (OWNER, REPO),
        f"{server.url}/{NAME}",
    )
    return World(server, place, GitHub)


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
def test_every_scenario_works_on_github(play: Callable[[World], None], world: World) -> None:
    play(world)


def test_labels_people_and_the_draft_state_are_set_once(world: World, server: Server) -> None:
    wanted = replace(
        world.push("1.1"),
        labels=("deploy", "Deploy", "automatic"),
        reviewers=("ann", f"{OWNER}/deployers"),
        assignees=("bob",),
        draft=True,
    )
    done = world.propose(wanted)
    (pull,) = server.open
    assert (pull.labels, pull.reviewers, pull.draft) == (["deploy", "automatic"], ["ann"], True)
    assert (server.asked_teams, server.assigned, done.note) == (
        {1: ["deployers"]},
        {1: ["bob"]},
        "",
    )
    pull.labels, server.asked_teams, server.assigned = [], {}, {}  # a person removed these
    server.seen.clear()
    world.propose(wanted)
    assert server.writes == []


def test_a_rejected_reviewer_does_not_prevent_adding_others(world: World, server: Server) -> None:
    wanted = replace(
        world.push("1.1"), reviewers=("nobody", "ann", "image-bot"), assignees=("ghost", "ann")
    )
    done = world.propose(wanted)
    assert (server.open[0].reviewers, server.assigned) == (["ann"], {1: ["ann"]})
    assert done.state == "open"
    for said in ("nobody was not asked", "image-bot was not asked", "ghost"):
        assert said in done.note


def test_a_reviewer_who_responded_is_not_requested_again(world: World, server: Server) -> None:
    wanted = replace(world.push("1.1"), reviewers=("ann", f"{OWNER}/deployers"))
    world.propose(wanted)
    server.open[0].reviewers, server.asked_teams, server.reviewed = [], {}, {1: ["ann"]}
    server.seen.clear()
    world.propose(wanted)
    assert server.writes == []


def test_rejected_labels_cause_a_note(world: World, server: Server) -> None:
    server.fail(server.refusal("forbidden"), "POST", "/labels")
    done = world.propose(replace(world.push("1.1"), labels=("deploy",)))
    assert (done.state, server.open[0].labels) == ("open", [])
    assert done.note.startswith("labels: ")
    assert "Resource not accessible" in done.note


def test_a_rerun_adds_labels_that_a_server_failure_prevented(world: World, server: Server) -> None:
    wanted = replace(world.push("1.1"), labels=("deploy",))
    server.fail(server.refusal("down"), "POST", "/labels", times=9)
    with pytest.raises(UnreachableError):
        world.propose(wanted)
    server.faults.clear()
    assert world.propose(wanted).note == ""
    assert (len(server.pulls), server.open[0].labels) == (1, ["deploy"])


def test_an_unsupported_draft_causes_a_note(world: World, server: Server) -> None:
    server.drafts = False
    done = world.propose(replace(world.push("1.1"), draft=True))
    assert server.open[0].draft is False
    assert "draft" in done.note


def test_a_draft_made_ready_stays_ready(world: World, server: Server) -> None:
    world.propose(replace(world.push("1.1"), draft=True))
    server.open[0].draft = False
    world.propose(replace(world.push("1.2"), draft=True))
    assert server.open[0].draft is False


@pytest.mark.parametrize(
    ("settings", "method"),
    [
        ({}, "MERGE"),
        ({"allow_merge_commit": False}, "SQUASH"),
        ({"allow_merge_commit": False, "allow_squash_merge": False}, "REBASE"),
    ],
)
def test_auto_merge_uses_an_allowed_merge_method(
    world: World, server: Server, settings: dict[str, bool], method: str
) -> None:
    server.settings.update(settings)
    wanted = replace(world.push("1.1"), auto_merge=True)
    done = world.propose(wanted)
    assert (done.state, done.note) == ("open", "")
    auto = server.open[0].auto
    assert auto == {
        "kind": "enablePullRequestAutoMerge",
        "pullRequestId": "PR_1",
        "mergeMethod": method,
        "expectedHeadOid": server.branches[HEAD],
    }
    server.seen.clear()
    world.propose(wanted)
    assert server.writes == []  # auto-merge is already enabled


def test_auto_merge_that_is_not_allowed_is_noted(world: World, server: Server) -> None:
    server.auto_merge = "not allowed"
    done = world.propose(replace(world.push("1.1"), auto_merge=True))
    assert done.state == "open"
    assert "Auto merge is not allowed for this repository" in done.note
    assert "Allow auto-merge" in done.note


@pytest.mark.parametrize("said", ["clean", "unstable", "no rules"])
@pytest.mark.parametrize("ways", [{"merge"}, {"squash"}, {"rebase"}])
def test_auto_merge_with_nothing_to_wait_for_merges_immediately(
    world: World, server: Server, said: str, ways: set[str]
) -> None:
    server.auto_merge, server.ways = said, ways
    done = world.propose(replace(world.push("1.1"), auto_merge=True))
    assert (done.state, done.merge_commit) == ("merged", server.pulls[0].merge_commit)


def test_auto_merge_adds_the_pull_request_to_the_merge_queue(world: World, server: Server) -> None:
    server.auto_merge, server.queue = "clean", True
    done = world.propose(replace(world.push("1.1"), auto_merge=True))
    auto = server.open[0].auto
    assert auto == {
        "kind": "enqueuePullRequest",
        "pullRequestId": "PR_1",
        "expectedHeadOid": server.branches[HEAD],
    }
    assert (done.state, done.note) == ("open", "")


@pytest.mark.parametrize(
    ("said", "when"), [("waiting", "/graphql"), ("clean", "/graphql"), ("clean", "/merge")]
)
def test_a_later_push_is_never_merged_unseen(
    world: World, server: Server, said: str, when: str
) -> None:
    server.auto_merge = said
    wanted = replace(world.push("1.1"), auto_merge=True)

    def push(request: object) -> None:
        if getattr(request, "path", "").endswith(when):
            server.branches[HEAD] = "9" * 40

    server.before = push
    done = world.propose(wanted)
    assert (done.state, server.pulls[0].state, server.pulls[0].auto) == ("open", "open", None)
    assert "GitHub cannot merge it automatically: Head" in done.note


@pytest.mark.parametrize(
    ("api", "address"),
    [
        ("https://api.github.com", "https://api.github.com/graphql"),
        ("https://git.example.com/api/v3", "https://git.example.com/api/graphql"),
        ("https://api.acme.ghe.com", "https://api.acme.ghe.com/graphql"),
    ],
)
def test_the_graphql_address_is_derived_from_the_api_address(api: str, address: str) -> None:
    assert graphql(api) == address


LIMITS = [
    (
        Reply(
            403,
            {"message": "API rate limit exceeded"},
            (("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1")),
        ),
        True,
    ),
    (
        Reply(
            403, {"message": "You have exceeded a secondary rate limit"}, (("Retry-After", "0"),)
        ),
        True,
    ),
    (
        Reply(403, {"message": "You have exceeded a secondary rate limit"}),
        False,
    ),  # a minute, as GitHub requires
    (
        Reply(
            403,
            {"message": "limit"},
            (("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "9999999999")),
        ),
        False,
    ),
]


@pytest.mark.parametrize(("reply", "short"), LIMITS)
def test_status_403_with_a_rate_limit_is_retried_or_reported(
    world: World, server: Server, reply: Reply, short: bool
) -> None:
    wanted = world.push("1.1")
    server.fail(reply, "POST")
    if short:
        assert world.propose(wanted).state == "open"
        return
    with pytest.raises(UnreachableError) as caught:
        world.propose(wanted)
    assert "rate limit exceeded" in caught.value.message
    assert "seconds" in caught.value.hint
    assert world.propose(wanted).state == "open"


def test_a_workflow_without_pull_request_permission_leads_to_a_hint(
    world: World, server: Server
) -> None:
    said = "GitHub Actions is not permitted to create or approve pull requests."
    server.fail(Reply(403, {"message": said}), "POST")
    with pytest.raises(RepositoryError) as caught:
        world.propose(world.push("1.1"))
    assert said in caught.value.message
    assert "pull-requests: write" in caught.value.hint


def test_a_token_echoed_by_the_forge_is_masked(world: World, server: Server) -> None:
    server.fail(
        Reply(422, {"message": "bad", "errors": [{"message": "token good-token\x1b[2J is bad"}]}),
        "POST",
    )
    with pytest.raises(RepositoryError) as caught:
        world.propose(world.push("1.1"))
    assert "good-token" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert "bad; token ***" in caught.value.message


def test_conflicts_are_reported_while_waiting(world: World, server: Server) -> None:
    done = world.propose(world.push("1.1"))
    server.conflicts = True
    assert world.forge().state(done.number).note == "it conflicts with main"


def test_a_pull_request_without_text_or_author_is_found(world: World, server: Server) -> None:
    server.add(base="main", head=HEAD, title="by hand", body="")
    found = world.forge().find("main", HEAD)
    assert found is not None
    assert (found.title, found.body) == ("by hand", "")


def test_a_newer_builds_text_is_restored(world: World, server: Server) -> None:
    """The older build reads the request before the newer build updates it, but writes later."""
    world.propose(world.push("1.0"))
    older, newer = world.push("1.1"), world.push("1.2")
    server.branches[HEAD] = older.body.partition("commit: ")[2][:40]
    world.propose(older)
    server.open[0].title, server.open[0].body = newer.title, newer.body

    def push(request: object) -> None:
        if getattr(request, "method", "") == "PATCH":
            server.branches[HEAD] = newer.body.partition("commit: ")[2][:40]

    server.before = push
    done = world.propose(older)
    assert (server.open[0].title, server.open[0].body) == (newer.title, newer.body)
    assert "newer" in done.note


def test_auto_merge_tries_other_methods_if_the_settings_are_hidden(
    world: World, server: Server
) -> None:
    server.ways = {"squash"}
    done = world.propose(replace(world.push("1.1"), auto_merge=True))
    auto = server.open[0].auto
    assert auto is not None
    assert (auto["mergeMethod"], done.note) == ("SQUASH", "")


@pytest.mark.parametrize("owner", [OWNER, "before"])
def test_a_renamed_repository_is_followed(world: World, server: Server, owner: str) -> None:
    """Redirects point to a numeric ID; 307 repeats a POST. Queries need the new owner's name."""
    server.old_names = {f"{owner}/old"}
    old = World(
        server,
        replace(world.place, project=(owner, "old"), web=f"{server.url}/{owner}/old"),
        GitHub,
    )
    first = old.propose(replace(old.push("1.1"), labels=("deploy",), assignees=("bob",)))
    second = old.propose(old.push("1.2"))
    assert (first.number, second.number, len(server.pulls)) == ("1", "1", 1)
    assert old.warned[0].startswith(f"{server.url}/{owner}/old has moved to {server.url}/{NAME}")
