"""Gitea and Forgejo pull requests."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from fakes.forge_server import Reply
from fakes.gitea_api import OWNER, REPO
from fakes.gitea_api import Gitea as Server
from support.forge_plays import HEAD, PLAYS, SECRET, World, fails, text, the_only
from support.serving import serving

from task.errors import CredentialsError, ForgeError
from task.forges.client import ForgeAddress
from task.forges.gitea import Gitea


@pytest.fixture
def world(server: Server) -> World:
    return World(
        server,
        ForgeAddress(
            "gitea", "gitea.example.com", f"{server.url}/api/v1", (OWNER, REPO), server.url
        ),
        Gitea,
    )


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("task.forges.gitea._PAUSES", (0.0, 0.0, 0.0))


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
def test_every_scenario_works_on_gitea(play: Callable[[World], None], world: World) -> None:
    play(world)


def test_labels_people_and_the_draft_state_are_set_once(world: World, server: Server) -> None:
    wanted = replace(
        world.push("1.1"),
        labels=("deploy", "automatic", "new"),
        reviewers=("ann", f"{OWNER}/deployers"),
        assignees=("bob",),
        draft=True,
    )
    done = world.propose(wanted)
    (pull,) = server.open
    assert (pull.title, done.title) == (f"WIP: {wanted.title}", wanted.title)
    assert sorted(pull.labels) == [
        "automatic",
        "deploy",
        "new",
    ]  # one organization label, one newly created label
    assert list(server.known_labels.values()) == ["deploy", "new"]
    assert (pull.reviewers, server.teams, server.assigned) == (
        ["ann"],
        {1: ["deployers"]},
        {1: ["bob"]},
    )
    assert done.note == ""
    pull.labels, server.teams, server.assigned = [], {}, {}  # a person removed these
    server.seen.clear()
    world.propose(wanted)
    assert server.writes == []


def test_an_unknown_user_does_not_prevent_adding_others(world: World, server: Server) -> None:
    wanted = replace(world.push("1.1"), reviewers=("nobody", "ann"), assignees=("ghost", "bob"))
    done = world.propose(wanted)
    assert (server.open[0].reviewers, server.assigned[1]) == (["ann"], ["bob"])
    assert "nobody" in done.note
    assert "Assignee does not exist" in done.note
    assert "ghost" in done.note


def test_a_refused_assignee_does_not_prevent_the_pull_request(world: World, server: Server) -> None:
    """Gitea 1.26 responds with 422 for a user who may not read the repository."""
    said = {"message": "user doesn't have access to repo [user_id: 7]"}
    server.fail(Reply(422, said), "PATCH", "/pulls/1", times=1)
    wanted = replace(world.push("1.1"), assignees=("bob",), reviewers=("ann",), labels=("deploy",))
    done = world.propose(wanted)
    assert (done.state, server.open[0].reviewers) == ("open", ["ann"])
    assert "assignee bob: " in done.note
    assert "doesn't have access" in done.note


def test_the_newest_pull_request_is_found_among_many_others(world: World, server: Server) -> None:
    """By base and head, Gitea returns the oldest request, a merged one. The list contains both."""
    server.merge(world.propose(world.push("1.1")).number)
    second = world.propose(world.push("1.2"))
    for number in range(7):
        other = server.add(base="main", head=f"other-{number}", title="other", body="")
        server.branches[other.head] = "c" * 40
    server.most = 3  # rows per page, fewer than the client requests
    found = world.forge().find("main", HEAD)
    assert found is not None
    assert (found.number, found.state) == (second.number, "open")


def test_a_base_with_a_slash_works_behind_a_proxy_that_rejects_slashes(
    world: World, server: Server
) -> None:
    server.branches["release/1.0"] = "b" * 40
    wanted = replace(world.push("1.1"), base="release/1.0")
    first = world.propose(wanted)
    server.fail(Reply(404, "<html>not found</html>"), "GET", f"pulls/release/1.0/{HEAD}", times=9)
    found = world.forge().find("release/1.0", HEAD)
    assert found is not None
    assert found.number == first.number


def test_an_existing_pull_request_named_in_the_rejection_is_updated(
    world: World, server: Server
) -> None:
    """A person reopened an older request, and the newest request is closed."""
    for build in ("1.1", "1.2"):
        server.decline(world.propose(world.push(build)).number)
    server.pulls[0].state = "open"
    server.fail(Reply(404, {"message": "not found"}), "GET", f"pulls/main/{HEAD}")
    wanted = world.push("1.3")
    assert world.propose(wanted).number == "1"
    assert the_only(world) == text(wanted)


@pytest.mark.parametrize(
    ("labels", "made"),
    [
        (("automatic",), []),  # the token may not read the organization's labels
        (("DEPLOY", "Automatic"), ["Automatic"]),
        (("needs review", "needs review"), ["needs review"]),
        (("deploy", "x,y"), ["x,y"]),
    ],
)
def test_missing_labels_are_created_once(
    world: World, server: Server, labels: tuple[str, ...], made: list[str]
) -> None:
    for build in ("1.1", "1.2"):
        assert world.propose(replace(world.push(build), labels=labels)).note == ""
    assert list(server.known_labels.values()) == ["deploy", *made]
    assert {name.lower() for name in server.open[0].labels} == {name.lower() for name in labels}


def test_organization_labels_are_case_insensitive(world: World, server: Server) -> None:
    server.scopes.append("read:organization")
    world.propose(replace(world.push("1.1"), labels=("AUTOMATIC",)))
    assert (server.open[0].labels, list(server.known_labels.values())) == (
        ["automatic"],
        ["deploy"],
    )


@pytest.mark.parametrize("user", ["ci", "x-access-token"])
def test_a_git_login_also_works_for_the_api(world: World, server: Server, user: str) -> None:
    """The Git login is either a password, or a token with any user name."""
    server.passwords["ci"] = "s3cret"
    world.user = user
    forge = world.forge("s3cret" if user == "ci" else SECRET)
    wanted = world.push("1.1")
    assert forge.propose(wanted, forge.find("main", HEAD)).state == "open"


def test_a_password_without_a_user_name_is_rejected(world: World, server: Server) -> None:
    server.passwords["ci"] = "s3cret"
    forge = world.forge("s3cret")
    with pytest.raises(CredentialsError):
        forge.find("main", HEAD)


def test_a_renamed_repository_is_followed(world: World, server: Server) -> None:
    server.old_names = {"old"}
    old = World(
        server, replace(world.place, project=(OWNER, "old"), web=f"{server.url}/{OWNER}/old"), Gitea
    )
    first = old.propose(
        replace(old.push("1.1"), labels=("deploy", "new"), reviewers=("ann",), assignees=("bob",))
    )
    second = old.propose(old.push("1.2"))
    assert (first.number, second.number, len(server.pulls)) == ("1", "1", 1)
    said = f"{server.url}/{OWNER}/old has moved to {server.url}/{OWNER}/{REPO}"
    assert [line.startswith(said) for line in old.warned] == [True, True]  # one for each run


def test_a_redirect_to_another_host_is_not_followed(world: World, server: Server) -> None:
    with serving(Server()) as other:
        wanted = world.push("1.1")
        there = (("Location", f"{other.url}/api/v1/repos/{OWNER}/{REPO}/pulls"),)
        server.fail(Reply(301, None, there), "POST")
        assert "moved" in fails(world, ForgeError, wanted).hint
        assert other.seen == []


def test_an_update_keeps_the_draft_state(world: World, server: Server) -> None:
    world.propose(replace(world.push("1.1"), draft=True))
    wanted = world.push("1.2")
    world.propose(wanted)
    assert server.open[0].title == f"WIP: {wanted.title}"


@pytest.mark.parametrize(
    ("settings", "style"),
    [
        ({}, "merge"),
        ({"default_merge_style": "squash"}, "squash"),
        ({"allow_merge_commits": False}, "squash"),
    ],
)
def test_auto_merge_uses_an_allowed_merge_style(
    world: World, server: Server, settings: dict[str, object], style: str
) -> None:
    server.settings.update(settings)
    wanted = replace(world.push("1.1"), auto_merge=True)
    done = world.propose(wanted)
    auto = server.open[0].auto
    assert auto is not None
    assert (auto["Do"], auto["head_commit_id"]) == (style, server.branches[HEAD])
    assert (done.state, done.note) == ("open", "")


def test_auto_merge_is_set_again_for_a_newer_build(world: World, server: Server) -> None:
    """Gitea would merge the newer build because auto-merge was scheduled for the older one."""
    world.propose(replace(world.push("1.1"), auto_merge=True))
    done = world.propose(replace(world.push("1.2"), auto_merge=True))
    auto = server.open[0].auto
    assert auto is not None
    assert auto["head_commit_id"] == server.branches[HEAD]
    assert "set again" in done.note


def test_auto_merge_waits_for_giteas_conflict_check(world: World, server: Server) -> None:
    server.looks = 2
    done = world.propose(replace(world.push("1.1"), auto_merge=True))
    assert server.open[0].auto is not None
    assert done.note == ""


def test_auto_merge_without_required_checks_merges_a_moment_later(
    world: World, server: Server
) -> None:
    server.checks = "none"
    done = world.propose(replace(world.push("1.1"), auto_merge=True))
    assert done.state == "open"
    states = [world.forge().state(done.number) for _ in range(2)]
    assert [one.state for one in states] == ["open", "merged"]
    assert states[1].merge_commit == server.pulls[0].merge_commit


@pytest.mark.parametrize(
    ("reason", "said"), [("forbidden", "not allowed"), ("draft", "Work in progress")]
)
def test_refused_auto_merge_is_noted(world: World, server: Server, reason: str, said: str) -> None:
    server.checks = reason if reason == "forbidden" else "pending"
    done = world.propose(replace(world.push("1.1"), auto_merge=True, draft=reason == "draft"))
    assert (done.state, server.open[0].auto) == ("open", None)
    assert "cannot merge it automatically" in done.note
    assert said in done.note


def test_conflicts_are_reported_while_waiting(world: World, server: Server) -> None:
    done = world.propose(world.push("1.1"))
    server.conflicts = True
    now = world.forge().state(done.number)
    assert (now.conflicts, now.note) == (True, "it conflicts with main")


def test_a_running_conflict_check_is_not_reported_as_a_conflict(
    world: World, server: Server
) -> None:
    done = world.propose(world.push("1.1"))
    server.looks = 2  # "mergeable" is false during the check
    now = world.forge().state(done.number)
    assert (now.conflicts, now.note) == (False, "")


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([("close", "delete_branch")], "gone"),
        ([("close",)], "closed"),
        ([("close",), ("delete_branch",)], "closed"),  # one minute later
        ([("close", "delete_branch"), ("reopen",), ("close",)], "closed"),
    ],
)
def test_the_timeline_shows_why_a_pull_request_without_a_branch_was_closed(
    world: World, server: Server, events: list[tuple[str, ...]], state: str
) -> None:
    world.propose(world.push("1.1"))
    del server.branches[HEAD]
    server.pulls[0].state = "closed"
    for kinds in events:
        server.happened(server.pulls[0], *kinds)
    found = world.forge().find("main", HEAD)
    assert found is not None
    assert found.state == state


def test_a_pull_request_with_an_unreadable_timeline_counts_as_closed_by_a_person(
    world: World, server: Server
) -> None:
    world.propose(world.push("1.1"))
    del server.branches[HEAD]
    server.fail(server.refusal("forbidden"), "GET", "/timeline")
    found = world.forge().find("main", HEAD)
    assert found is not None
    assert found.state == "closed"


def test_labels_work_for_a_user_who_is_not_an_organization(world: World, server: Server) -> None:
    server.fail(replace(server.refusal("forbidden"), status=404), "GET", f"/orgs/{OWNER}/labels")
    done = world.propose(replace(world.push("1.1"), labels=("new",)))
    assert (server.open[0].labels, done.note) == (["new"], "")
