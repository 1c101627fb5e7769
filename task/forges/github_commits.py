"""Commits through GitHub's API, which GitHub signs (docs.github.com/graphql: createCommitOnBranch, updateRefs).

The author is whom the token belongs to: the API takes no other one.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from task.errors import Outpaced, RepositoryError, TargetError, TaskError, UnreachableError
from task.forges.client import Limited, Reach, wait_of
from task.forges.github import GitHubClient, graphql
from task.forges.host import Connected
from task.http import Response
from task.model import Changeset
from task.plain_data import dig, elements
from task.retry import NotDoneError
from task.text import one_line

COMMIT = "mutation($input: CreateCommitOnBranchInput!) { createCommitOnBranch(input: $input) { commit { oid } } }"
REPOSITORY = "query($owner: String!, $name: String!) { repository(owner: $owner, name: $name) { id } }"
MOVE = "mutation($input: UpdateRefsInput!) { updateRefs(input: $input) { clientMutationId } }"
MOST = 40_000_000  # bytes of files as base64; GitHub accepts a little more in one request
_GIT = "or commit with git: --commit-through git"
_OID = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_STALE = ("expected branch to point to", "pull and try again")
# GitHub may have carried out a query that took too long.
_UNKNOWN = ("something went wrong while executing", "timed out", "timeout")
_RULES = ("rule violations", "protected branch", "pull request", "required status")


class GitHubCommits(Connected):
    """One repository on GitHub with `task.git.repository.committed_by_api.CommitApi`: commits through GitHub's API."""

    connect = GitHubClient
    needs = (
        'give the token or the GitHub App "Contents: write" (a classic token: repo); in GitHub Actions, permissions: '
        "contents: write"
    )
    stays = "it finds what has landed"

    def __init__(self, reach: Reach) -> None:
        super().__init__(reach)
        self._owner, self._repo = reach.place.project
        self._name = f"{self._owner}/{self._repo}"
        self._refs = f"{self._path}/git/refs"
        self._id = ""  # of the repository, after the first query

    def commit(self, branch: str, change: Changeset) -> str:
        """As `CommitApi.commit`."""
        headline, _, body = change.message.replace("\0", "").strip().partition("\n")
        additions = [
            {"path": path, "contents": b64encode(file.text.encode("utf-8", "surrogateescape")).decode()}
            for path, file in sorted(change.files.items())
            if file.mode
        ]
        size = sum(len(one["contents"]) for one in additions)
        if size > MOST:
            raise TargetError(
                f"the files of one commit have {size / 1e6:.0f} MB, and GitHub's API takes {MOST / 1e6:.0f} MB at most",
                hint=f"let fewer Applications share a commit, {_GIT}",
                subject=self._name,
            )
        said = self._graphql(
            COMMIT,
            f"commit to {branch}",
            input={
                "branch": {"repositoryNameWithOwner": self._name, "branchName": branch},
                "message": {"headline": headline.strip(), "body": body.strip("\n")},
                "fileChanges": {
                    "additions": additions,
                    "deletions": [{"path": path} for path, file in sorted(change.files.items()) if not file.mode],
                },
                "expectedHeadOid": change.tip,
            },
        )
        commit = dig(said, "createCommitOnBranch", "commit", "oid")
        if not _OID.fullmatch(commit):
            raise self._odd(f"commit to {branch}")
        return commit

    def create(self, branch: str, commit: str) -> None:
        """As `CommitApi.create`."""
        what = f"make the branch {branch}"
        body = {"ref": f"refs/heads/{branch}", "sha": commit}
        answer = self._ask("POST", self._refs, what, json=body, fine=(409, 422))
        if answer.status == 422 and b"already exists" in answer.body:
            raise Outpaced(f"{self._name}: {branch} exists by now")
        if answer.status >= 300:
            raise self._denied(what, self._client.words(answer))
        if answer.status != 201 or not answer.mapping():
            raise self._odd(what)

    def replace(self, head: str, was: str, aside: str, commit: str) -> None:
        """As `CommitApi.replace`."""
        self._id = self._id or self._found()
        updates = [
            {"name": f"refs/heads/{head}", "beforeOid": was, "afterOid": commit, "force": True},
            {"name": f"refs/heads/{aside}", "beforeOid": commit, "afterOid": "0" * len(commit), "force": True},
        ]
        said = self._graphql(MOVE, f"replace {head}", input={"repositoryId": self._id, "refUpdates": updates})
        if not isinstance(said.get("updateRefs"), dict):
            raise self._odd(f"replace {head}")

    def delete(self, branch: str) -> None:
        """As `CommitApi.delete`."""
        self._ask("DELETE", f"{self._refs}/heads/{quote(branch)}", f"delete the branch {branch}", fine=(404, 422))

    def _found(self) -> str:
        what = f"look for {self._name}"
        said = self._graphql(REPOSITORY, what, owner=self._owner, name=self._repo)
        found = dig(said, "repository", "id")
        if not found:
            raise self._odd(what)
        return found

    def _graphql(self, query: str, what: str, **variables: Any) -> Mapping[str, Any]:
        """Return the data of the answer, or raise its errors: GraphQL answers 200 even then."""
        body = {"query": query, "variables": variables}
        answer = self._ask("POST", graphql(self._place.api), what, json=body)
        said = self._client.parsed(answer, what)
        errors = elements(said, "errors")
        if errors:
            raise self._meant(errors, answer, what)
        data = said.get("data") if isinstance(said, dict) else None
        if not isinstance(data, dict):
            raise self._odd(what)
        return data

    def _ask(self, method: str, path: str, what: str, **more: Any) -> Response:
        try:
            return self._client.ask(method, path, what, **more)
        except UnreachableError as error:
            if isinstance(error.__cause__, Limited):
                raise NotDoneError(error.message, hint=error.hint) from error
            raise

    def _meant(self, errors: list[Any], answer: Response, what: str) -> TaskError | Outpaced:
        kinds = {dig(one, "type") for one in errors}
        texts = [one_line(dig(one, "message"))[:300] for one in errors]
        words = "; ".join(dict.fromkeys(filter(None, texts))).replace(
            self._client.reach.token.secret.reveal() or "\0", "***"
        )
        low = words.lower()
        if "STALE_DATA" in kinds or any(one in low for one in _STALE):
            return Outpaced(f"{self._name}: {words}")
        host = self._place.host
        if "RATE_LIMITED" in kinds or "rate limit" in low:
            hint = f"run it again in {wait_of(answer):.0f} seconds; {self.stays}"
            return NotDoneError(f"{host} limits the rate of requests: could not {what}: {words}", hint=hint)
        if any(one in low for one in _UNKNOWN):
            return UnreachableError(f"{host} failed: could not {what}: {words}", hint=f"run it again; {self.stays}")
        if "NOT_FOUND" in kinds:
            message = f"{host} knows no such repository or branch, or this API token may not see it: could not {what}"
            return RepositoryError(f"{message}: {words}", hint=f"check the repository's URL; {self.needs}")
        if "FORBIDDEN" in kinds or "INSUFFICIENT_SCOPES" in kinds:
            return RepositoryError(
                f"{host} does not let this API token {what}: {words}", hint=f"{self.needs}; {self.stays}"
            )
        return self._denied(what, words)

    def _denied(self, what: str, words: str) -> RepositoryError:
        hint = f"correct what it names, {_GIT}"
        if any(one in words.lower() for one in _RULES):
            hint = "let this token's owner pass the branch's rules, or open a pull request instead: --pull-request"
        said = f": {words}" if words else ""
        return RepositoryError(f"{self._place.host} refuses: could not {what}{said}", hint=hint)

    def _odd(self, what: str) -> UnreachableError:
        """Return the error for an odd answer: it is unknown whether the request was carried out."""
        message = f"{self._place.host} answers in a way that is not understood: could not {what}"
        return UnreachableError(message, hint="run it again")
