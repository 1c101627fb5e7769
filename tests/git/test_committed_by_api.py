"""Commits through GitHub's API: compare-and-swap as in a push, and no duplicates after retries."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.forge_server import Reply, Request
from fakes.github_api import OWNER, REPO
from fakes.github_commits_api import NODE, CommittingGitHub
from fakes.github_graphql import invalid
from support import bare_repo, commit, git, show
from support.serving import serving

from task.errors import (
    CredentialsError,
    Outpaced,
    RepositoryError,
    TargetError,
    TaskError,
    UnreachableError,
)
from task.forges import github_auto_merge
from task.forges.client import ForgeAddress, ForgeToken, Reach
from task.forges.github_commits import COMMIT, MOVE, REPOSITORY, CommittedByApi, GitHubCommits
from task.git.command import Git
from task.http import Limits
from task.model import Changeset, File, Person, Place, Snapshot
from task.retry import NotDoneError
from task.secret import Secret

HEAD = "image-update/main"
GRAPHQL = "/graphql"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("task.retry._PAUSES", (0.01, 0.01))


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return bare_repo(tmp_path, {"shared.yaml": "", "a.yaml": "old\n", "b.yaml": "old\n"})


@pytest.fixture
def server(repo: Path) -> Iterator[CommittingGitHub]:
    with serving(CommittingGitHub(repo)) as running:
        yield running


def opened(server: CommittingGitHub) -> CommittedByApi:
    page = f"{server.url}/acme/deploy"
    place = ForgeAddress("github", "git.example.com", f"{server.url}/api/v3", (OWNER, REPO), page)
    api = GitHubCommits(Reach(place, ForgeToken(Secret("good-token")), limits=Limits(total=20)))
    return CommittedByApi(
        Git(os.environ, protocols=frozenset({"file"})), str(server.repo), lambda: api
    )


def change(
    snapshot: Snapshot, head: str = "main", files: dict[str, File] | None = None, **more: Any
) -> Changeset:
    where = (snapshot.repo, "main", head)
    files = {"a.yaml": File("new\n")} if files is None else files
    return Changeset(
        *where,
        snapshot.tip,
        files,
        "deploy: web\n\nTicket: ABC-1\n",
        Person("T", "t@example.com"),
        **more,
    )


def read(store: CommittedByApi, *paths: str) -> Snapshot:
    return store.snapshot("main", [Place(path) for path in paths or ("a.yaml",)])


def commits(repo: Path, branch: str = "main") -> int:
    return int(git(repo, "rev-list", "--count", branch))


def branches(repo: Path) -> list[str]:
    return git(repo, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads").splitlines()


def test_the_api_commits_files_and_message_to_the_base_branch(
    server: CommittingGitHub, repo: Path
) -> None:
    with opened(server) as store:
        snapshot = read(store)
        files = {"a.yaml": File("new\n"), "b.yaml": File("", ""), "c/ü.yaml": File("é\r\n")}
        planned = store.predict(change(snapshot, files=files))
        landing = store.land(change(snapshot, files=files))
    assert (planned.commit, planned.tree, planned.through) == ("", landing.tree, "github")
    assert landing.commit == git(repo, "rev-parse", "main")
    assert landing.tree == git(repo, "rev-parse", "main^{tree}")
    assert git(repo, "log", "-1", "--format=%P", "main") == snapshot.tip
    assert git(repo, "log", "-1", "--format=%B", "main").rstrip() == "deploy: web\n\nTicket: ABC-1"
    assert git(repo, "ls-tree", "--name-only", "-r", "-z", "main").split("\0")[:3] == [
        "a.yaml",
        "c/ü.yaml",
        "shared.yaml",
    ]
    assert show(repo, "main", "c/ü.yaml") == "é\r\n"
    assert [one.path for one in server.seen] == ["/api/graphql"]


def test_a_change_without_a_difference_sends_no_api_request(server: CommittingGitHub) -> None:
    with opened(server) as store:
        assert not store.land(change(read(store), files={"a.yaml": File("old\n")})).pushed
    assert server.seen == []


def test_a_stale_head_is_a_lost_race(server: CommittingGitHub, repo: Path) -> None:
    with opened(server) as store:
        snapshot = read(store)
        commit(repo, {"b.yaml": "theirs\n"})
        with pytest.raises(Outpaced):
            store.land(change(snapshot))
        store.land(change(read(store)))
    assert (commits(repo), show(repo, "main", "b.yaml")) == (3, "theirs\n")


def test_a_new_head_branch_starts_at_the_tip_of_the_base(
    server: CommittingGitHub, repo: Path
) -> None:
    with opened(server) as store:
        landing = store.land(change(read(store), HEAD, head_commit=""))
    assert git(repo, "rev-parse", HEAD) == landing.commit
    assert git(repo, "rev-parse", f"{HEAD}^") == git(repo, "rev-parse", "main")
    assert server.writes == ["POST /api/v3/repos/acme/deploy/git/refs", "POST /api/graphql"]


def test_an_existing_head_branch_is_moved_in_one_step(server: CommittingGitHub, repo: Path) -> None:
    """It never points to its base in between, because GitHub would close its request for good."""
    was = commit(repo, {"a.yaml": "earlier\n"}, HEAD)
    commit(repo, {"b.yaml": "theirs\n"})
    seen = []
    server.before = lambda _request: seen.append(git(repo, "rev-parse", HEAD))
    with opened(server) as store:
        snapshot = read(store)
        store.head(HEAD)
        landing = store.land(change(snapshot, HEAD, head_commit=was))
        assert store.head(HEAD)
        assert not store.land(change(snapshot, HEAD, head_commit=landing.commit)).pushed
    assert seen == [was] * 4
    assert git(repo, "rev-parse", HEAD) == landing.commit
    assert git(repo, "rev-parse", f"{HEAD}^") == snapshot.tip
    assert branches(repo) == [HEAD, "main"]


def test_a_head_branch_left_at_its_base_gets_the_missing_commit(
    server: CommittingGitHub, repo: Path
) -> None:
    tip = git(repo, "rev-parse", "main")
    git(repo, "update-ref", f"refs/heads/{HEAD}", tip)
    with opened(server) as store:
        landing = store.land(change(read(store), HEAD, head_commit=tip))
    assert git(repo, "rev-parse", HEAD) == landing.commit
    assert server.writes == ["POST /api/graphql"]


@pytest.mark.parametrize("there", [True, False])
def test_a_head_branch_that_others_moved_is_a_lost_race(
    server: CommittingGitHub, repo: Path, there: bool
) -> None:
    was = commit(repo, {"a.yaml": "earlier\n"}, HEAD) if there else ""
    with opened(server) as store:
        snapshot = read(store)
        store.head(HEAD)
        theirs = commit(repo, {"a.yaml": "theirs\n"}, HEAD)
        with pytest.raises(Outpaced):
            store.land(change(snapshot, HEAD, head_commit=was))
    assert git(repo, "rev-parse", HEAD) == theirs
    assert branches(repo) == [HEAD, "main"]  # the temporary branch was deleted


LOST = [
    *(
        (step, Reply(after))
        for step in ("/git/refs", "createCommitOnBranch", "updateRefs", "base")
        for after in (-1, 0)
    ),
    ("base", Reply(502, "<html>Unicorn!</html>")),
    ("/git/refs", Reply(200, "<html>login</html>")),
    ("updateRefs", Reply(200, {})),
]


@pytest.mark.measured
@pytest.mark.parametrize(("step", "reply"), LOST)
def test_a_lost_response_does_not_duplicate_the_commit(
    server: CommittingGitHub, repo: Path, step: str, reply: Reply
) -> None:
    was = commit(repo, {"a.yaml": "earlier\n"}, HEAD)

    def fail_once(request: Request) -> None:
        wanted = "createCommitOnBranch" if step == "base" else step
        if request.path.endswith(wanted) or wanted in str(request.body):
            server.before = lambda _request: None
            server.fail(reply)

    server.before = fail_once
    head = "main" if step == "base" else HEAD
    with opened(server) as store:
        snapshot = read(store)
        store.head(HEAD)
        landing = store.land(change(snapshot, head, head_commit=None if step == "base" else was))
    assert git(repo, "rev-parse", head) == landing.commit
    assert git(repo, "rev-parse", f"{head}^") == snapshot.tip
    assert branches(repo) == [HEAD, "main"]
    assert commits(repo) == (2 if step == "base" else 1)


@pytest.mark.measured
def test_a_commit_with_a_lost_response_is_recognized_below_a_newer_commit(
    server: CommittingGitHub, repo: Path
) -> None:
    tips = []
    answer = server.answer

    def answered(request: Request) -> Reply:
        answer(request)
        tips.append(git(repo, "rev-parse", "main"))
        commit(repo, {"b.yaml": "on top\n"})
        return Reply(0)

    server.answer = answered  # type: ignore[method-assign]
    with opened(server) as store:
        landing = store.land(change(read(store)))
    assert [landing.commit] == tips
    assert commits(repo) == 3


REFUSED: list[tuple[Reply, type[TaskError], str]] = [
    (Reply(401, {"message": "Bad credentials"}), CredentialsError, "does not accept the API token"),
    (Reply(403, {"message": "Resource not accessible by integration"}), RepositoryError, "Contents: write"),
    (Reply(200, {"errors": [{"type": "FORBIDDEN", "message": "Resource not accessible by integration"}]}),
     RepositoryError, "Contents: write"),
    (Reply(200, {"errors": [{"type": "NOT_FOUND", "message": "Could not resolve to a Repository"}]}),
     RepositoryError, "has no such repository or branch"),
    (Reply(200, {"errors": [{"type": "UNPROCESSABLE", "message": "Repository rule violations found"}]}),
     RepositoryError, "--pull-request"),
    (Reply(200, {"errors": [{"type": "UNPROCESSABLE", "message": "A pull request for this branch has been added to a "
     "merge queue. Branches that are queued for merging cannot be updated."}]}), NotDoneError, "left the merge queue"),
    (Reply(200, {"errors": [{"message": "Field 'createCommitOnBranch' doesn't exist on type 'Mutation'"}]}),
     RepositoryError, "doesn't exist"),
    (Reply(200, {"errors": [{"type": "RATE_LIMITED", "message": "API rate limit exceeded"}]},
           (("x-ratelimit-remaining", "0"), ("Retry-After", "900"))), NotDoneError, "in 900 seconds"),
    (Reply(403, {"message": "You have exceeded a secondary rate limit"}, (("Retry-After", "900"),)),
     NotDoneError, "in 900 seconds"),
    # a digit according to str.isdigit, but not a valid number
    (Reply(403, {"message": "You have exceeded a secondary rate limit"}, (("Retry-After", "\u00b2"),)),
     NotDoneError, "in 60 seconds"),
    (Reply(403, {"message": "Limited"}, (("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "\u00b2"))),
     NotDoneError, "in 60 seconds"),
    (Reply(200, {"errors": "no list"}), UnreachableError, "unexpected response"),
    (Reply(200, {"data": {"createCommitOnBranch": {"commit": {"oid": "\x1b[2J"}}}}),
     UnreachableError, "unexpected response"),
    (Reply(200, {"errors": [{"message": "Something went wrong while executing your query."}]}),
     UnreachableError, "failed"),
]  # fmt: skip


@pytest.mark.parametrize(("reply", "kind", "words"), REFUSED)
def test_each_api_rejection_is_mapped_to_an_error_with_a_hint(
    server: CommittingGitHub, repo: Path, reply: Reply, kind: type[TaskError], words: str
) -> None:
    server.fail(reply, end=GRAPHQL, times=5)
    with opened(server) as store, pytest.raises(kind) as caught:
        store.land(change(read(store)))
    assert words in f"{caught.value.message} {caught.value.hint}"
    assert "good-token" not in str(caught.value)
    assert "\x1b" not in caught.value.message
    assert "pushed branch" not in caught.value.hint
    assert (commits(repo), len(server.seen)) == (1, 3 if kind is UnreachableError else 1)


def test_any_rejection_counts_as_a_lost_race_if_the_branch_has_moved(
    server: CommittingGitHub, repo: Path
) -> None:
    server.refuses = "A conflict occurred while updating the ref"
    with opened(server) as store:
        snapshot = read(store)
        commit(repo, {"b.yaml": "theirs\n"})
        with pytest.raises(Outpaced):
            store.land(change(snapshot))


@pytest.mark.parametrize(
    ("path", "mode", "size", "words"),
    [
        ("a.yaml", "100755", 4, "executable bit"),
        ("\udcff.yaml", "100644", 4, "not UTF-8"),
        ("a.yaml", "100644", 31_000_000, "accepts at most"),
    ],
)
def test_files_that_the_api_cannot_write_cause_target_errors(
    server: CommittingGitHub, path: str, mode: str, size: int, words: str
) -> None:
    with opened(server) as store:
        made = change(read(store), files={path: File("x" * size, mode)})
        with pytest.raises(TargetError, match=words):
            store.land(made)
    assert server.seen == []


def test_a_rate_limited_commit_is_retried(server: CommittingGitHub, repo: Path) -> None:
    limited = Reply(
        403, {"message": "You have exceeded a secondary rate limit"}, (("Retry-After", "0"),)
    )
    server.fail(limited, end=GRAPHQL)
    with opened(server) as store:
        store.land(change(read(store)))
    assert (commits(repo), len(server.seen)) == (2, 2)


def test_a_rejected_branch_move_leaves_no_temporary_branch(
    server: CommittingGitHub, repo: Path
) -> None:
    was = commit(repo, {"a.yaml": "earlier\n"}, HEAD)
    server.refuses_moves = "Cannot force-push to this branch"
    with opened(server) as store:
        snapshot = read(store)
        store.head(HEAD)
        with pytest.raises(RepositoryError, match="Cannot force-push"):
            store.land(change(snapshot, HEAD, head_commit=was))
    assert branches(repo) == [HEAD, "main"]
    assert git(repo, "rev-parse", HEAD) == was


OID = "a" * 40
GIVEN = {
    "branch": {"repositoryNameWithOwner": "acme/deploy", "branchName": "main"},
    "message": {"headline": "h", "body": ""},
    "fileChanges": {"additions": [{"path": "a", "contents": "eA=="}], "deletions": [{"path": "b"}]},
    "expectedHeadOid": OID,
}
PULL = {"pullRequestId": "P", "mergeMethod": "SQUASH"}
QUERIES: list[tuple[str, dict[str, Any], str]] = [
    (COMMIT, GIVEN, ""),
    (COMMIT, GIVEN | {"expectedHeadOid": None}, "expectedHeadOid"),
    (COMMIT, GIVEN | {"author": "x"}, "author"),
    (COMMIT.replace("oid", "sha"), GIVEN, "Cannot query field 'sha'"),
    (
        MOVE,
        {
            "repositoryId": NODE,
            "refUpdates": [{"name": "refs/heads/a", "afterOid": OID, "force": True}],
        },
        "",
    ),
    (
        MOVE,
        {
            "repositoryId": NODE,
            "refUpdates": [{"name": "refs/heads/a", "after": OID, "afterOid": OID}],
        },
        "after",
    ),
    (github_auto_merge.ENABLE, PULL, ""),
    (github_auto_merge.ENQUEUE, {"pullRequestId": "P", "expectedHeadOid": OID}, ""),
    (github_auto_merge.ENABLE, PULL | {"mergeMethod": "FAST"}, "FAST"),
]


@pytest.mark.parametrize(("query", "given", "words"), QUERIES)
def test_our_mutations_match_githubs_schema(query: str, given: dict[str, Any], words: str) -> None:
    found = invalid(query, {"input": given})
    assert words in found
    assert bool(found) is bool(words)


def test_our_query_matches_githubs_schema() -> None:
    assert invalid(REPOSITORY, {"owner": "a", "name": "b"}) == ""
    assert "name" in invalid(REPOSITORY, {"owner": "a"})


def test_a_head_branch_that_cannot_be_created_causes_a_repository_error(
    server: CommittingGitHub, repo: Path
) -> None:
    server.fail(Reply(422, {"message": "Reference update failed"}), end="/git/refs")
    with opened(server) as store, pytest.raises(RepositoryError, match="create the branch"):
        store.land(replace(change(read(store), HEAD), head_commit=""))
    assert branches(repo) == ["main"]
