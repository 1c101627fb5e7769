"""Azure DevOps pull requests."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fakes.azure_api import ANN, BOB, ORGANIZATION, PROJECT, REPOSITORY, SIGN_IN
from fakes.azure_api import AzureDevOps as Server
from fakes.forge_server import Reply
from support.forge_plays import HEAD, PLAYS, World, completes, fails, plain, text, the_only
from support.serving import serving

from task.errors import CredentialsError, UnreachableError
from task.forges.azure import Azure, AzureClient, identities_api
from task.forges.client import ForgeAddress, ForgeToken, Reach
from task.secret import Secret


@pytest.fixture
def world(server: Server) -> World:
    api, project = f"{server.url}/{ORGANIZATION}", (ORGANIZATION, PROJECT, REPOSITORY)
    return World(
        server,
        ForgeAddress("azure", "dev.azure.com", api, project, f"{api}/Web%20Shop/_git/{REPOSITORY}"),
        Azure,
    )


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
def test_every_scenario_works_on_azure_devops(play: Callable[[World], None], world: World) -> None:
    play(world)


@pytest.mark.parametrize(
    ("user", "secret", "header"),
    [
        ("", "p4t", "Basic OnA0dA=="),
        ("me", "p4t", "Basic bWU6cDR0"),
        ("", "eyJ0eXAi.eyJuYW1l.c2ln", "Bearer eyJ0eXAi.eyJuYW1l.c2ln"),
        ("me", "eyJ0eXAi.eyJuYW1l.c2ln", "Bearer eyJ0eXAi.eyJuYW1l.c2ln"),
    ],
)
def test_each_token_is_sent_in_the_matching_authorization_header(
    user: str, secret: str, header: str, world: World
) -> None:
    assert AzureClient(Reach(world.place, ForgeToken(Secret(secret), user)), "").login() == {
        "Authorization": header
    }


@pytest.mark.parametrize(
    ("api", "people"),
    [
        ("https://dev.azure.com/acme", "https://vssps.dev.azure.com/acme"),
        ("https://dev.azure.com.evil.example/acme", "https://dev.azure.com.evil.example/acme"),
        ("https://tfs.example.com/tfs/Default", "https://tfs.example.com/tfs/Default"),
    ],
)
def test_the_identities_api_address_is_derived_from_the_host(api: str, people: str) -> None:
    assert identities_api(api) == people


@pytest.mark.parametrize(
    "reply",
    [
        Reply(203, SIGN_IN),
        Reply(200, SIGN_IN),
        Reply(302, SIGN_IN),
        Reply(302, SIGN_IN, (("Location", "/_signin"),)),
        Reply(401, SIGN_IN),
        Reply(401),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_sign_in_page_is_reported_as_an_invalid_token(
    reply: Reply, method: str, world: World, server: Server
) -> None:
    wanted = world.push("1.1")
    server.fail(reply, method)
    server.fail(Reply(200, SIGN_IN), "GET", "/_signin")
    error = fails(world, CredentialsError, wanted)
    assert "<html" not in error.message
    completes(world, wanted)


def test_the_token_is_not_sent_to_a_sign_in_page_on_another_host(
    world: World, server: Server
) -> None:
    with serving(Server()) as other:
        server.fail(Reply(302, SIGN_IN, (("Location", f"{other.url}/_signin"),)))
        other.fail(Reply(200, {"value": []}))
        fails(world, CredentialsError, world.push("1.1"))
        assert [one.headers.get("authorization") for one in other.seen] == [None]


def test_an_older_server_is_called_with_an_older_api_version(world: World, server: Server) -> None:
    server.version = "7.0"
    wanted = world.push("1.1")
    world.propose(wanted)
    assert the_only(world) == text(wanted)
    assert [one.one("api-version") for one in server.seen][:2] == ["7.1", "7.0"]
    assert {one.one("api-version") for one in server.seen[1:]} == {"7.0"}


def test_long_descriptions_are_read_in_full(world: World, server: Server) -> None:
    wanted = world.push("1.1")
    wanted = replace(wanted, body=wanted.body.replace("\n\n", "\n\n" + "a line\n" * 300 + "\n", 1))
    world.propose(wanted)
    server.seen.clear()
    world.propose(wanted)
    assert server.writes == []
    found = world.forge().find("main", HEAD)
    assert found is not None
    assert plain(found.body) == wanted.body


def test_reviewers_are_found_by_id_address_and_name(world: World, server: Server) -> None:
    wanted = replace(world.push("1.1"), reviewers=(ANN.upper(), "bob@example.com", "Ann", ANN))
    assert world.propose(replace(wanted, reviewers=(ANN, "bob@example.com"))).note == ""
    assert server.open[0].reviewers == [ANN, BOB]
    server.seen.clear()
    world.propose(wanted)
    assert not any(
        "reviewers" in one for one in server.writes
    )  # adding reviewers again would remove their votes


@pytest.mark.parametrize(
    "reviewer", ["nobody", "a&b=c", "b", "44444444-4444-4444-8444-444444444444"]
)
def test_unknown_reviewers_are_noted(reviewer: str, world: World, server: Server) -> None:
    server.people["bea@example.com"] = "55555555-5555-4555-8555-555555555555"
    done = world.propose(replace(world.push("1.1"), reviewers=(reviewer, "ann@example.com")))
    assert server.open[0].reviewers == [ANN]
    assert f"reviewer {reviewer}" in done.note


def test_labels_are_added_once(world: World, server: Server) -> None:
    wanted = replace(world.push("1.1"), labels=("deploy", "web shop", "Deploy"))
    world.propose(wanted)
    assert server.open[0].labels == ["deploy", "web shop"]
    server.open[0].labels.remove("web shop")
    world.propose(replace(world.push("1.2"), labels=("Deploy", "web shop", "new")))
    assert server.open[0].labels == ["deploy", "new"]


def test_labels_that_could_not_be_added_now_are_added_by_the_next_run(
    world: World, server: Server
) -> None:
    wanted = replace(world.push("1.1"), labels=("deploy",))
    server.fail(
        server.refusal("down"), "POST", "/labels", times=2
    )  # the first failure is retried immediately
    fails(world, UnreachableError, wanted)
    completes(world, wanted)
    assert server.open[0].labels == ["deploy"]


def test_a_draft_is_not_set_to_auto_complete(world: World, server: Server) -> None:
    done = world.propose(replace(world.push("1.1"), draft=True, auto_merge=True))
    assert server.open[0].draft
    assert "auto-complete" in done.note  # a draft never completes


def test_unsupported_assignees_cause_a_note(world: World) -> None:
    assert "assignees" in world.propose(replace(world.push("1.1"), assignees=("ann",))).note


def test_conflicts_are_noted(world: World, server: Server) -> None:
    server.conflicts = True
    assert "conflicts" in world.propose(world.push("1.1")).note


MERGE_TYPES = "fa4e907d-c16b-4a4c-9dfa-4916e5d171ab"
BUILD = "0609b952-1397-4640-95ec-e00a01b2c241"


def policy(number: int, kind: str, *, blocking: bool = True, **settings: bool) -> dict[str, Any]:
    """Return a policy as Azure lists it (learn.microsoft.com/rest/api/azure/devops/policy/configurations)."""
    return {
        "id": number,
        "isEnabled": True,
        "isBlocking": blocking,
        "type": {"id": kind},
        "settings": settings,
    }


@pytest.mark.parametrize(
    ("head", "policies", "options"),
    [
        (HEAD, [], {"deleteSourceBranch": True}),
        ("staging", [], {"deleteSourceBranch": False}),
        (
            HEAD,
            [policy(1, MERGE_TYPES, allowSquash=True) | {"isEnabled": False}],
            {"deleteSourceBranch": True},
        ),
        (
            HEAD,
            [policy(1, MERGE_TYPES, allowSquash=True, allowNoFastForward=False)],
            {"deleteSourceBranch": True, "mergeStrategy": "squash"},
        ),
        (
            HEAD,  # auto-complete waits only for required policies
            [
                policy(7, BUILD, blocking=False),
                policy(8, BUILD),
                policy(9, BUILD, blocking=False) | {"isEnabled": False},
                policy(10, MERGE_TYPES, allowRebase=True),
            ],
            {
                "deleteSourceBranch": True,
                "autoCompleteIgnoreConfigIds": [7],
                "mergeStrategy": "rebase",
            },
        ),
    ],
)
def test_auto_complete_follows_the_branch_policies(
    head: str, policies: list[dict[str, Any]], options: dict[str, Any], world: World, server: Server
) -> None:
    server.policies = policies
    wanted = replace(world.push("1.1", head), auto_merge=True)
    assert world.propose(wanted).note == ""
    assert server.open[0].auto == options
    server.seen.clear()
    world.propose(wanted)
    assert server.writes == []
