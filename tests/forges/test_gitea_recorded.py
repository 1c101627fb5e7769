"""The fake Gitea server compared with a real Gitea 1.26.0 (tests/data/recorded/gitea-1.26).

For each record, the fake server is set up, receives the recorded request, and computes its
own response. The status must be the same, each field must exist in Gitea's response with the same
type, and the fields that we read must have the same values.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from fakes.forge_server import Pull
from fakes.gitea_api import Gitea
from support.serving import serving

from task.errors import CredentialsError, Outpaced, RepositoryError, TaskError
from task.git.errors import failure, refusal

FOLDER = Path(__file__).parent.parent / "data" / "recorded" / "gitea-1.26"
Record = dict[str, Any]
Situation = Callable[[Gitea, Record], object]
HEAD = "image-update/a"
# The response fields that our client reads, and the `message` field of errors.
SAME = {
    "state",
    "draft",
    "merged",
    "mergeable",
    "title",
    "body",
    "ref",
    "label",
    "login",
    "name",
    "version",
    "message",
}
# The fields that our client reads, keyed by a field that identifies the kind of object.
READ = {
    "mergeable": {
        "number", "html_url", "title", "body", "state", "draft", "merged", "mergeable", "merge_commit_sha", "labels",
        "assignees", "requested_reviewers", "requested_reviewers_teams", "base", "head", "closed_at",
    },
    "repo_id": {"ref", "label", "sha", "repo_id", "repo"},
    "allow_merge_commits": {
        "allow_merge_commits", "allow_squash_merge", "allow_rebase", "allow_rebase_explicit",
        "allow_fast_forward_only_merge", "default_merge_style",
    },
    "color": {"name"},
    "submitted_at": {"user", "team"},
    "protected": {"commit"},
}  # fmt: skip


def records(name: str) -> list[Record]:
    found = json.loads((FOLDER / f"{name}.json").read_text())
    return found if isinstance(found, list) else [found]


def nothing(_server: Gitea, _record: Record) -> None:
    """Do nothing: the repository is new."""


def ready(server: Gitea, record: Record) -> None:
    """Push the head branch of the request that will be opened."""
    server.branches[record["request"]["body"]["head"]] = "a" * 40


def opened(server: Gitea, record: Record, **more: Any) -> Pull:
    """Open a request with the branch and the texts from the record."""
    said = record["response"]["body"]
    said = said[0] if isinstance(said, list) and said else said
    said = said if isinstance(said, dict) and "head" in said else {"head": {"label": HEAD}}
    sent = record["request"]["body"] or {}
    head = sent.get("head") or said["head"]["label"]
    server.branches[head] = "a" * 40
    text = {
        "title": said.get("title", "chore(a): web 1.0.0"),
        "body": said.get("body", "A build is proposed.\n"),
    }
    return server.add(base="main", head=head, **{**text, **more})


def with_state(server: Gitea, record: Record, state: str, *, branch: bool = True) -> None:
    """Open a request that a person then closes or merges, perhaps deleting its branch."""
    pull = opened(server, record)
    {"closed": server.decline, "merged": server.merge}[state](str(pull.number))
    if not branch:
        server.tips[pull.number] = server.branches.pop(pull.head)


def without_branch(server: Gitea, record: Record) -> None:
    """Open a request and delete its branch."""
    pull = opened(server, record)
    server.tips[pull.number] = server.branches.pop(pull.head)


def settings(**values: Any) -> Situation:
    """Return a setup with an open request, and these attributes on the fake server."""

    def situation(server: Gitea, record: Record) -> None:
        opened(server, record)
        for name, value in values.items():
            setattr(server, name, value)

    return situation


def draft(server: Gitea, record: Record) -> None:
    opened(server, record, title="WIP: chore(a): web 1.0.0")


def labels(*has: str, role: str = "write", one: bool = False) -> Situation:
    """Return a setup with labels on the request, in the repository, and in the organization."""

    def situation(server: Gitea, record: Record) -> None:
        server.known_labels, server.organization_labels = (
            {3: "deploy", 4: "deploy"},
            {2: "automatic-2"},
        )
        if one:
            del server.known_labels[4]
        opened(server, record).labels += has
        server.role = role

    return situation


def asked(server: Gitea, record: Record) -> None:
    opened(server, record).reviewers.append("person")


def reviews(server: Gitea, record: Record) -> None:
    pull = opened(server, record)
    pull.reviewers += ["person", "stranger"]
    server.teams[pull.number] = ["ops"]


def scheduled(server: Gitea, record: Record) -> None:
    opened(server, record).auto = {"Do": "merge"}


def assigned(*names: str) -> Situation:
    """Return a setup with these assignees and different requested reviewers."""

    def situation(server: Gitea, record: Record) -> None:
        reviews(server, record)
        server.assigned[1] = list(names)

    return situation


def newer(server: Gitea, record: Record) -> None:
    """Schedule auto-merge, and push a newer commit that the request does not show yet."""
    scheduled(server, record)
    server.branches[HEAD] = "c" * 40


def of_a_fork(server: Gitea, record: Record) -> None:
    opened(server, record, fork=True)


def of_a_fork_that_is_gone(server: Gitea, record: Record) -> None:
    of_a_fork(server, record)
    server.fork_gone = True


def two(server: Gitea, record: Record) -> None:
    """Open two requests, with a page size of one."""
    server.branches["image-update/first"] = "a" * 40
    server.add(base="main", head="image-update/first", title="first", body="")
    opened(server, record)
    server.most = 1


def other_title(server: Gitea, record: Record) -> None:
    opened(server, record, title="before", body="before")


def closed_and_other_title(server: Gitea, record: Record) -> None:
    other_title(server, record)
    server.decline("1")


ISSUES, REPOSITORY = "write:issue", "write:repository"
NOT_OURS = settings(login="token of-somebody-else")
PRIVATE = settings(private=True, role="none")
OLD_NAME = settings(old_names={"was"})
SITUATIONS: dict[str, list[Situation]] = {
    "version-open": [nothing],
    "version-sign-in-required": [settings(sign_in_required=True)] * 2,
    "repository-found": [nothing],
    "repository-not-found": [nothing, nothing, settings(without_pulls=True)],
    "repository-archived": [
        settings(archived=True), settings(archived=True), other_title, settings(archived=True, known_labels={}),
    ],
    "repository-renamed": [OLD_NAME] * 4,
    "repository-no-permission": [PRIVATE, PRIVATE, settings(role="none")],
    "token-wrong": [NOT_OURS, NOT_OURS, NOT_OURS, settings(prohibited=True)],
    "token-scope-missing": [
        settings(scopes=["read:repository"]),
        settings(scopes=["read:user"]),
        settings(private=True, public_only=True),
        settings(scopes=[REPOSITORY]),
        settings(scopes=[REPOSITORY]),
        settings(scopes=[REPOSITORY]),
    ],
    "labels-of-organization-scope-missing": [nothing],
    "token-none": [settings(private=True)] * 2,
    "list-open-found": [opened],
    "list-pages": [nothing, opened, two],
    "list-closed-branch-kept": [lambda server, record: with_state(server, record, "closed")],
    "list-closed-branch-deleted": [
        lambda server, record: with_state(server, record, "closed", branch=False), without_branch,
    ],
    "list-merged-branch-kept": [lambda server, record: with_state(server, record, "merged")],
    "list-merged-branch-deleted": [lambda server, record: with_state(server, record, "merged", branch=False)],
    "list-of-a-fork": [of_a_fork, of_a_fork_that_is_gone],
    "create-ok": [ready],
    "create-already-open": [opened],
    "create-no-difference": [ready],
    "create-branch-missing": [ready, nothing],
    "create-not-valid": [nothing, ready],
    "create-title-too-long": [ready],
    "create-draft": [ready, draft],
    "read-open": [opened, opened, lambda server, record: with_state(server, record, "closed")],
    "read-missing": [opened, opened],
    "edit-ok": [other_title],
    "edit-other": [other_title, opened, closed_and_other_title],
    "assignees": [assigned(), assigned("person"), assigned("person")],
    "branch": [lambda server, _record: server.branches.update({"image-update/a-b9b01252": "a" * 40}), nothing],
    "labels-read": [
        settings(known_labels={3: "deploy", 4: "deploy"}),
        settings(scopes=["read:organization"], organization_labels={1: "automatic"}),
        settings(scopes=["read:organization"]),
        settings(known_labels={}),
    ],
    "label-create": [settings(known_labels={}), nothing, settings(role="read")],
    "labels-add-by-id": [
        labels(one=True), labels("deploy", one=True), labels("deploy", "automatic-2"), labels(), labels(role="read"),
    ],
    "labels-add-by-name": [labels(), labels("automatic-2"), labels("automatic-2", "deploy"), labels()],
    "reviews": [opened, reviews],
    "reviewers": [opened, asked, opened, opened, opened, settings(private=True), opened, opened],
    "merge-scheduled": [opened, scheduled, scheduled, newer],
    "merge-at-once": [settings(checks="none"), settings(checks="none"),
                      lambda server, record: with_state(server, record, "merged", branch=False)],
    "still-looking": [settings(looks=1), settings(looks=1)],
    "conflict": [settings(conflicts=True)] * 2,
    "merge-accepted": [settings(checks="none"), settings(checks="none"), opened, opened],
    "merge-refused": [draft, settings(checks="forbidden"), settings(role="read"), settings(signs_not=True),
                      lambda server, record: with_state(server, record, "merged")],
}  # fmt: skip
ROWS = [
    (name, number) for name, situations in SITUATIONS.items() for number in range(len(situations))
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), ROWS)
def test_the_fake_server_responds_like_gitea(name: str, number: int) -> None:
    record = records(name)[number]
    sent, said = record["request"], record["response"]
    with serving(Gitea()) as server:
        SITUATIONS[name][number](server, record)
        server.wrong.clear()
        path = sent["path"].replace(
            "/acme/deploy", "/acme/was" if server.old_names else "/acme/deploy"
        )
        headers = {
            key: value.replace("***", "good-token") for key, value in sent["headers"].items()
        }
        answer = requests.request(
            sent["method"], f"{server.url}{path}", params=sent["query"], json=sent["body"], headers=headers,
            allow_redirects=False, timeout=10,
        )  # fmt: skip
    assert answer.status_code == said["status"], f"{record['when']} {answer.text}"
    if "Location" in said["headers"]:
        there = said["headers"]["Location"].replace("deploy-new", "deploy")
        assert answer.headers["Location"] == there
        return
    count = "X-Total-Count"
    assert (answer.headers.get(count), "Link" in answer.headers) == (
        said["headers"].get(count),
        "Link" in said["headers"],
    )
    assert differences(said["body"], answer.json() if answer.content else None) == []


def differences(said: Any, ours: Any, at: str = "") -> list[str]:
    """Return the differences between Gitea's response and ours in fields, types, and values."""
    if type(said) is not type(ours):
        return [f"{at}: {said!r} is {ours!r} here"]
    if isinstance(said, list):
        if len(said) != len(ours):
            return [f"{at}: {len(said)} items are {len(ours)} here"]
        return [
            one
            for n, pair in enumerate(zip(said, ours, strict=True))
            for one in differences(*pair, f"{at}[{n}]")
        ]
    if isinstance(said, dict):
        cut = set(said) <= {"id", "login", "full_name"}  # truncated in the recording
        found = [f"{at}: Gitea has no {name}" for name in ours if name not in said and not cut]
        read = set().union(*(fields for kind, fields in READ.items() if kind in said))
        found += [f"{at}: there is no {name} here" for name in read - set(ours)]
        both = [name for name in ours if name in said]
        return found + [
            one for name in both for one in differences(said[name], ours[name], f"{at}.{name}")
        ]
    field = at.rpartition(".")[2]
    if field in SAME and not at.endswith("commit.message"):
        numbers = re.compile(r"\d+")
        if numbers.sub("N", str(said)) != numbers.sub("N", str(ours)):
            return [f"{at}: {said!r} is {ours!r} here"]
    return []


def test_every_recorded_response_is_replayed() -> None:
    files = {path.stem for path in FOLDER.glob("*.json")} - {"git-push-refusals"}
    assert files == set(SITUATIONS)
    assert {name: len(records(name)) for name in files} == {
        name: len(rows) for name, rows in SITUATIONS.items()
    }


PUSHES: dict[str, tuple[type[TaskError] | type[Outpaced] | None, str]] = {
    "push-protected-branch": (RepositoryError, "--pull-request"),
    "push-signed-commits-required": (RepositoryError, "--signing-key"),
    "push-not-on-the-list": (RepositoryError, "--pull-request"),
    "push-protected-file": (RepositoryError, "--pull-request"),
    "push-protected-new-branch": (RepositoryError, "--pull-request"),
    "push-archived": (RepositoryError, "read and write"),
    "push-token-wrong": (CredentialsError, "token"),
    "push-token-read-only": (RepositoryError, "read and write"),
    "push-no-permission": (RepositoryError, "follow the server's message"),
    "push-no-permission-private": (RepositoryError, "read and write"),
    "push-renamed": (None, ""),
    "push-moved": (Outpaced, ""),
    "push-protected-branch-ssh": (RepositoryError, "--pull-request"),
    "push-archived-ssh": (RepositoryError, "read and write"),
}


@pytest.mark.parametrize("push", records("git-push-refusals"), ids=lambda push: push["name"])
def test_each_recorded_push_rejection_is_mapped_to_an_error(push: Record) -> None:
    kind, hint = PUSHES[push["name"]]
    if kind is None:
        assert push["exit"] == 0
        return
    status = next((line for line in push["stdout"].splitlines() if line.startswith("!")), "")
    subject = "https://git.example.com/acme/deploy.git@main"
    error = refusal(status, push["stderr"], subject) if status else failure(push["stderr"], subject)
    assert type(error) is kind
    assert hint in getattr(error, "hint", "")
