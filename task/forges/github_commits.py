"""Commits through GitHub's API, which GitHub signs (docs.github.com/graphql: createCommitOnBranch,
updateRefs).

The commit's author is the token's owner: the API does not accept any other author.

The API appends a commit to a branch only if the branch is still at the commit that we read:
compare-and-swap, like our push. It cannot replace a branch's commits. So an existing head branch is
moved, in one step, to a commit that was created on a temporary branch. If the head branch were
first reset to its base, GitHub would close its pull request for good.
"""

from __future__ import annotations

import re
import secrets
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar
from urllib.parse import quote

from task.errors import Outpaced, RepositoryError, TargetError, TaskError, UnreachableError
from task.forges.client import Limited, Reach, seconds_until_allowed
from task.forges.github import GitHubClient
from task.forges.github_auto_merge import graphql
from task.forges.host import Connected
from task.git.command import Git
from task.git.errors import LEAVES_QUEUE, is_in_merge_queue
from task.git.repository.bare import BareRepository
from task.http import Response
from task.model import Changeset, LandedCommit, Through
from task.plain_data import dig, elements, value_at
from task.retry import NotDoneError, send_once
from task.text import blanked, one_line

COMMIT = (
    "mutation($input: CreateCommitOnBranchInput!) { createCommitOnBranch(input: $input) { commit {"
    " oid } } }"
)
REPOSITORY = (
    "query($owner: String!, $name: String!) { repository(owner: $owner, name: $name) { id } }"
)
MOVE = "mutation($input: UpdateRefsInput!) { updateRefs(input: $input) { clientMutationId } }"
MOST = 40_000_000  # bytes of base64-encoded files; GitHub accepts slightly more in one request
_GIT = "or commit with git: --commit-through git"
_EXECUTABLE = "100755"
_OID = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_STALE = ("expected branch to point to", "pull and try again")
# GitHub may have executed a query that timed out
_UNKNOWN = ("something went wrong while executing", "timed out", "timeout")
_RULES = ("rule violations", "protected branch", "pull request", "required status")


class GitHubCommits(Connected):
    """A client for creating commits in a repository through GitHub's API.

    Every method raises `Outpaced` if a branch is not at the expected commit, `NotDoneError` (see
    `send_once`), and `UnreachableError` if it is unknown whether the change was made.
    """

    connect = GitHubClient
    needs = (
        'grant the token or the GitHub App "Contents: write" (a classic token: repo); in GitHub'
        " Actions, set permissions: contents: write"
    )
    stays = "the next run detects what has landed"

    def __init__(self, reach: Reach) -> None:
        super().__init__(reach)
        self._name = "/".join(reach.place.project)
        self._refs = f"{self._path}/git/refs"

    def commit(self, branch: str, change: Changeset) -> str:
        """Commit the changeset to a branch, and return the commit's id.

        Raises `Outpaced` if the branch is no longer at `change.tip`.
        """
        headline, _, body = change.message.replace("\0", "").strip().partition("\n")
        what = f"commit to {branch}"
        data = self._graphql(
            COMMIT,
            what,
            input={
                "branch": {"repositoryNameWithOwner": self._name, "branchName": branch},
                "message": {"headline": headline.strip(), "body": body.strip("\n")},
                "fileChanges": self._file_changes(change),
                "expectedHeadOid": change.tip,
            },
        )
        commit = dig(data, "createCommitOnBranch", "commit", "oid")
        if not _OID.fullmatch(commit):
            raise self._unexpected_response_error(what)
        return commit

    def _file_changes(self, change: Changeset) -> dict[str, list[dict[str, str]]]:
        """Return the changeset's files in the form that GitHub's API expects.

        Raises `TargetError` if the files are larger than the API accepts.
        """
        additions = []
        deletions = []
        for path, file in sorted(change.files.items()):
            is_deleted = not file.mode
            if is_deleted:
                deletions.append({"path": path})
                continue
            content = b64encode(file.text.encode("utf-8", "surrogateescape")).decode()
            additions.append({"path": path, "contents": content})

        size = sum(len(addition["contents"]) for addition in additions)
        if size > MOST:
            raise TargetError(
                f"the commit's files total {size / 1e6:.0f} MB, but GitHub's API accepts at most"
                f" {MOST / 1e6:.0f} MB",
                hint=f"put fewer Applications in one commit, {_GIT}",
                subject=self._name,
            )
        return {"additions": additions, "deletions": deletions}

    def create(self, branch: str, commit: str) -> None:
        """Create a branch at this commit. Raises `Outpaced` if the branch exists."""
        what = f"create the branch {branch}"
        body = {"ref": f"refs/heads/{branch}", "sha": commit}
        answer = self._ask("POST", self._refs, what, json=body, expected=(409, 422))
        if answer.status == 422 and b"already exists" in answer.body:
            raise Outpaced(f"{self._name}: {branch} already exists")
        if answer.status >= 300:
            raise self._rejection_error(what, self._client.message_in(answer))
        if answer.status != 201 or not answer.mapping():
            raise self._unexpected_response_error(what)

    def replace(self, head: str, was: str, aside: str, commit: str) -> None:
        """Move the branch `head` from the commit `was` to `commit`, and delete the temporary branch
        `aside`, which is at `commit`. Both happen in one step.
        """
        move_head = {
            "name": f"refs/heads/{head}",
            "beforeOid": was,
            "afterOid": commit,
            "force": True,
        }
        delete_aside = {
            "name": f"refs/heads/{aside}",
            "beforeOid": commit,
            "afterOid": "0" * len(commit),  # zeros mean deletion
            "force": True,
        }
        what = f"replace {head}"
        data = self._graphql(
            MOVE,
            what,
            input={"repositoryId": self._id, "refUpdates": [move_head, delete_aside]},
        )
        if not isinstance(data.get("updateRefs"), dict):
            raise self._unexpected_response_error(what)

    def delete(self, branch: str) -> None:
        """Delete a branch."""
        self._ask(
            "DELETE",
            f"{self._refs}/heads/{quote(branch)}",
            f"delete the branch {branch}",
            expected=(404, 422),
        )

    @cached_property
    def _id(self) -> str:
        """The repository's id in GraphQL."""
        what = f"find {self._name}"
        owner, name = self.place.project
        data = self._graphql(REPOSITORY, what, owner=owner, name=name)
        node_id = dig(data, "repository", "id")
        if not node_id:
            raise self._unexpected_response_error(what)
        return node_id

    def _graphql(self, query: str, what: str, **variables: Any) -> Mapping[str, Any]:
        """Send a GraphQL query with these variables, and return the data in the response.

        Raises an error if the response reports errors, which it does with status 200. `what`
        completes the sentence "could not …".
        """
        body = {"query": query, "variables": variables}
        answer = self._ask("POST", graphql(self.place.api), what, json=body)
        response = self._client.parse(answer, what)
        errors = elements(response, "errors")
        if errors:
            raise self._error_of(errors, answer, what)
        data = value_at(response, "data")
        if not isinstance(data, dict):
            raise self._unexpected_response_error(what)
        return data

    def _ask(self, method: str, path: str, what: str, **more: Any) -> Response:
        """Send an HTTP request to GitHub, and return the response. `more` contains the other
        arguments of `Client.ask`.

        Raises the same errors as `Client.ask`, except that a rate limit raises `NotDoneError`,
        because the request was not executed.
        """
        try:
            return self._client.ask(method, path, what, **more)
        except UnreachableError as error:
            if isinstance(error.__cause__, Limited):
                raise NotDoneError(error.message, hint=error.hint) from error
            raise

    def _error_of(self, errors: list[Any], answer: Response, what: str) -> TaskError | Outpaced:
        """Return our error for the GraphQL `errors` in a response.

        `Outpaced` means that the branch is at a different commit, and `NotDoneError` that the query
        was not executed. `what` completes the sentence "could not …".
        """
        host = self.place.host
        error_types = {dig(error, "type") for error in errors}
        message = self._messages(errors)
        lowercase_message = message.lower()
        is_stale = any(text in lowercase_message for text in _STALE)
        has_unknown_result = any(text in lowercase_message for text in _UNKNOWN)

        if "STALE_DATA" in error_types or is_stale:
            return Outpaced(f"{self._name}: {message}")
        if "RATE_LIMITED" in error_types or "rate limit" in lowercase_message:
            return NotDoneError(
                f"{host}: rate limit exceeded; could not {what}: {message}",
                hint=f"run it again in {seconds_until_allowed(answer):.0f} seconds; {self.stays}",
            )
        if has_unknown_result:
            return UnreachableError(
                f"{host} failed: could not {what}: {message}",
                hint=f"run it again; {self.stays}",
            )
        if "NOT_FOUND" in error_types:
            return RepositoryError(
                f"{host} has no such repository or branch, or this API token cannot see it:"
                f" could not {what}: {message}",
                hint=f"check the repository's URL; {self.needs}",
            )
        if "FORBIDDEN" in error_types or "INSUFFICIENT_SCOPES" in error_types:
            return RepositoryError(
                f"{host} does not allow this API token to {what}: {message}",
                hint=f"{self.needs}; {self.stays}",
            )
        return self._rejection_error(what, message)

    def _messages(self, errors: list[Any]) -> str:
        """Return the messages of GraphQL errors, without duplicates. Any token in them
        is masked.
        """
        messages = [one_line(dig(error, "message"))[:300] for error in errors]
        distinct_messages = dict.fromkeys(filter(None, messages))
        secret = self._client.reach.token.secret.reveal()
        return "; ".join(distinct_messages).replace(secret, "***")

    def _rejection_error(self, what: str, words: str) -> RepositoryError | NotDoneError:
        """Return the error for a change that GitHub rejected. `what` completes the sentence "could
        not …", and `words` is GitHub's message, or "".
        """
        if is_in_merge_queue(words):
            message = f"the pull request is in the merge queue: could not {what}: {words}"
            return NotDoneError(message, hint=LEAVES_QUEUE)
        hint = f"fix the reported problem, {_GIT}"
        is_against_branch_rules = any(rule in words.lower() for rule in _RULES)
        if is_against_branch_rules:
            hint = (
                "allow this token's owner to bypass the branch's rules, or open a pull request"
                " instead: --pull-request"
            )
        because = f": {words}" if words else ""
        return RepositoryError(
            f"{self.place.host} rejected the request: could not {what}{because}", hint=hint
        )

    def _unexpected_response_error(self, what: str) -> UnreachableError:
        """Return the error for an unexpected response: it is unknown whether the request was
        executed.
        """
        message = f"{self.place.host} returned an unexpected response: could not {what}"
        return UnreachableError(message, hint="run it again")


class CommittedByApi(BareRepository):
    """Like `BareRepository`, but `land` commits through an API, which is opened on first use.

    `check` raises an error if the API cannot commit to this repository, and does not need a token.
    """

    through: ClassVar[Through] = "github"

    def __init__(
        self,
        git: Git,
        repo: str,
        api: Callable[[], GitHubCommits],
        cache_dir: str = "",
        check: Callable[[], object] = lambda: None,
    ) -> None:
        """`api` opens the API's client, and `check` raises an error if the API cannot be used."""
        super().__init__(git, repo, cache_dir=cache_dir)
        self._api = api
        self._check = check

    def predict(self, change: Changeset) -> LandedCommit:
        """Return what `land` would return, without committing.

        Raises the error from `check` if there is something to commit, because `land` would fail.
        """
        predicted = super().predict(change)
        if predicted.pushed:
            self._check()  # called only because it may raise an error
        return predicted

    @property
    def atomic(self) -> bool:
        """False: the API updates one branch, and git pushes the memory branch separately."""
        return False

    def _send(
        self,
        change: Changeset,
        made: LandedCommit,
        head_tip: str,
        memory_change: Changeset | None = None,  # noqa: ARG002 - it is not atomic
    ) -> LandedCommit:
        return replace(made, commit=self._commit_to_head(change, made, head_tip))

    def _commit_to_head(self, change: Changeset, made: LandedCommit, head_tip: str) -> str:
        """Commit the changeset to its head branch (which a pull request proposes, or the base
        itself), and return the commit's id.

        `head_tip` is the branch's current commit, or "" if it does not exist. `made` is the
        expected commit, computed locally.
        """
        head = change.head
        # The new commit's parent is `change.tip`. This is the branch's own tip if there is no
        # separate head branch, if the commit goes on top of someone else's commit, or if the head
        # branch has no commits of its own yet.
        can_append = head == change.base or change.on_top or head_tip == change.tip
        if can_append:
            return self._commit(head, change, made)
        if not head_tip:
            self._create(head, change.tip)
            return self._commit(head, change, made)

        # The branch has other commits, which the new one replaces. The API can only append, so
        # commit to a temporary branch first, and then move the head branch to that commit.
        aside = f"{head}-{secrets.token_hex(4)}"
        try:
            self._create(aside, change.tip)
            commit = self._commit(aside, change, made)
            with self._race(head, head_tip):
                send_once(
                    lambda: self._api().replace(head, head_tip, aside, commit),
                    lambda: self._remote.tip(head) == commit,
                    "whether the branch was moved",
                )
        except BaseException:  # even if a signal terminates the run
            with suppress(TaskError, Outpaced):  # a leftover temporary branch is harmless
                self._api().delete(aside)
            raise
        return commit

    def _create(self, branch: str, commit: str) -> None:
        send_once(
            lambda: self._api().create(branch, commit),
            lambda: self._remote.tip(branch) == commit,
            "whether the branch was created",
        )

    def _commit(self, branch: str, change: Changeset, made: LandedCommit) -> str:
        """Commit the changeset to a branch that is at `change.tip`, and return the commit's id.

        `made` is the expected commit, computed locally.
        """
        # If the response is lost, look for a commit with this parent and tree: the same files
        # always result in the same tree, so such a commit is ours or equivalent.
        with self._race(branch, change.tip):
            return send_once(
                lambda: self._api().commit(branch, change),
                lambda: self._remote.child(branch, change.tip, made.tree),
                "whether the commit was created",
            )

    @contextmanager
    def _race(self, branch: str, was: str) -> Iterator[None]:
        """If a change inside the block is rejected, raise `Outpaced` if the branch is no longer at
        the commit `was`.

        In that case, another run was faster, although GitHub's message gives a different reason.
        """
        try:
            yield
        except RepositoryError as error:
            if self._remote.tip(branch) != was:
                raise Outpaced(f"{self._remote.subject(branch)}: {error.message}") from error
            raise

    def _refuse_odd_paths(self, change: Changeset) -> None:
        """Raise `TargetError` for a file that GitHub's API would change or reject."""
        super()._refuse_odd_paths(change)
        subject = self._remote.subject(change.base)
        for path, file in change.files.items():
            if file.mode == _EXECUTABLE:
                raise TargetError(
                    f"{blanked(path)!r} has the executable bit, which GitHub's API would remove",
                    hint=(
                        "remove the bit (git update-index --chmod=-x PATH), or commit with git:"
                        " --commit-through git"
                    ),
                    subject=subject,
                )
            # Python decodes non-UTF-8 bytes to these surrogates
            has_undecodable_bytes = any("\udc80" <= letter <= "\udcff" for letter in path)
            if has_undecodable_bytes:
                raise TargetError(
                    f"{blanked(path)!r} is not UTF-8, and GitHub's API does not support such paths",
                    hint="rename it, or commit with git: --commit-through git",
                    subject=subject,
                )
