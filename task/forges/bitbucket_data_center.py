"""Bitbucket Data Center 7 and newer (REST API 1.0): no labels or assignees; auto-merge since 8.15,
drafts since 8.18.

developer.atlassian.com/server/bitbucket/rest. A change has to include the current version, and a
change without reviewers removes all reviewers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from task.errors import CredentialsError, ForgeError, Outpaced, RepositoryError, TaskError
from task.forges.bitbucket_cloud import (
    COMMENT_PAGE,
    COMMENT_PAGES,
    COMMENTS_NEED,
    WITHOUT,
    BitbucketClient,
)
from task.forges.client import ForgeAddress, names_none, numbered, web_below
from task.forges.host import (
    AlreadyThere,
    Comment,
    Comments,
    ForgeKind,
    Host,
    Notes,
    Overtaken,
    missing,
)
from task.forges.protection import listed, open_on_data_center
from task.git.hosts import RemoteUrl
from task.http import Response
from task.model import Proposal, Proposed
from task.plain_data import dig, elements, mapping, mappings
from task.urls import path_part

_STATES: dict[str, Any] = {
    "OPEN": "open",
    "MERGED": "merged",
    "DECLINED": "closed",
}
_AUTO_MERGE_SINCE = (8, 15)
_PAGE = 50
_PAGES = 5  # pages of a head branch's requests
_CONFLICT = 409
_UNAUTHORIZED = 401
_HEADS = "refs/heads/"
_PAGE_OF_REPOSITORY = re.compile(r"/(projects|users)/([^/]+)/repos/([^/]+)")


class DataCenterClient(BitbucketClient):
    """Bitbucket also returns 401 for an authenticated user without the permission."""

    repository = "/projects/{}/repos/{}"
    page = ("links", "self", 0, "href")

    def refused(self, answer: Response, what: str) -> TaskError:
        """Like `Client.refused`."""
        error = super().refused(answer, what)
        if answer.status != _UNAUTHORIZED:
            return error
        if _has_error_class(answer, "AuthorisationException"):
            said = f"{answer.status} ({self.words(answer)})"
            message = f"{self.reach.place.host} does not allow this API token to {what}: {said}"
            return RepositoryError(message, hint=f"{self._needs}; {self._stays}")
        return CredentialsError(
            error.message,
            hint=f"{error.hint}; with a password, pass its username as --forge-username",
        )


class BitbucketDataCenter(Host):
    """A repository on Bitbucket Data Center."""

    connect = DataCenterClient
    needs = "grant the token write access to the repository"
    without = WITHOUT
    without_drafts = "this Bitbucket version does not support drafts, which need 8.18 or newer"
    auto_merge_after_push = "ends"

    def newest(self, base: str, head: str) -> Proposed | None:
        """Like `Host.newest`."""
        query = {
            "direction": "OUTGOING",
            "at": f"refs/heads/{head}",
            "state": "ALL",
            "order": "NEWEST",
        }
        newest: Proposed | None = None
        for item in self._pages(query, f"find the pull request for {head}"):
            if self._belongs(item, base, head):
                found = self.proposed(item)
                if found.state == "open":
                    return found
                newest = newest or found
        return newest

    def ask(self, number: str) -> Any:
        """Like `Host.ask`."""
        path = f"{self._path}/pull-requests/{path_part(number)}"
        return mapping(self._client.json("GET", path, f"read pull request {number}"))

    def proposed(self, said: Any) -> Proposed:
        """Like `Host.proposed`."""
        state = _STATES.get(dig(said, "state"), "closed")
        conflicts = (
            state == "open" and dig(said, "properties", "mergeResult", "outcome") == "CONFLICTED"
        )
        return Proposed(
            url=dig(said, "links", "self", 0, "href"),
            number=numbered(dig(said, "id"), self.place.host),
            state=state,
            title=dig(said, "title"),
            body=dig(said, "description"),
            head_commit=dig(said, "fromRef", "latestCommit"),
            merge_commit=dig(said, "properties", "mergeCommit", "id") if state == "merged" else "",
            conflicts=conflicts,
            note="it conflicts with its base branch" if conflicts else "",
        )

    def branches(self, said: Any) -> tuple[str, str]:
        """Like `Host.branches`."""
        base = dig(said, "toRef", "id")
        head = dig(said, "fromRef", "id")
        return base.removeprefix(_HEADS), head.removeprefix(_HEADS)

    def create(self, proposal: Proposal) -> Any:
        """Like `Host.create`."""
        key, slug = self._present_names()
        repository = {"slug": slug, "project": {"key": key}}
        body = {
            "title": proposal.title,
            "description": proposal.body,
            "fromRef": {"id": f"refs/heads/{proposal.head}", "repository": repository},
            "toRef": {"id": f"refs/heads/{proposal.base}", "repository": repository},
            **({"draft": True} if proposal.draft else {}),
        }
        what = f"open a pull request from {proposal.head} into {proposal.base}"
        answer = self._client.ask(
            "POST",
            f"{self._path}/pull-requests",
            what,
            json=body,
            fine=(_CONFLICT,),
        )
        if _has_error_class(answer, "DuplicatePullRequestException"):
            raise AlreadyThere
        if _has_error_class(answer, "EmptyPullRequestException"):
            raise Outpaced(f"{proposal.base} already contains everything in {proposal.head}")
        if answer.status == _CONFLICT:
            raise self._client.refused(answer, what)
        return self._client.parsed(answer, what)

    def change(self, said: Any, title: str, body: str) -> Any:
        """Like `Host.change`.

        Also raises `Overtaken` if someone has changed the request since it was read.
        """
        people = [dig(element, "user", "name") for element in elements(said, "reviewers")]
        return self._put(said, title, body, people, Notes())

    def complete(self, said: Any, proposal: Proposal, notes: Notes) -> tuple[Proposed, Any]:
        """Like `Host.complete`. Reviewers are added, but never removed."""
        found = self.proposed(said)
        present = [dig(element, "user", "name") for element in elements(said, "reviewers")]
        if new := missing(proposal.reviewers, present):
            with notes.tried("reviewers", "reviewer", *new):
                said = self._put(said, found.title, found.body, [*present, *new], notes)
        if proposal.auto_merge:
            with notes.tried("auto-merge", "auto-merge"):
                said = self._auto_merged(said, found)
        return self.proposed(said), said

    def shut(self, said: Any, body: str) -> None:
        """Like `Host.shut`."""
        found, said = self.write(said, dig(said, "title"), body)
        path = f"{self._path}/pull-requests/{path_part(found.number)}"
        version = said.get("version")
        what = f"decline pull request {found.number}"
        given = {"version": version}
        self._client.ask("POST", f"{path}/decline", what, params=given, json=given)

    def is_open(self, name: str) -> bool:
        """Like `Host.is_open`. Uses another part of the API."""
        root = self.place.api.removesuffix("/api/1.0")
        path = f"{root}/branch-permissions/2.0{self._path}/restrictions"
        query = {"type": "read-only", "limit": 1000}
        found = self._client.json("GET", path, "read the branch permissions", params=query)
        return open_on_data_center(listed(found, "values"), name)

    def tip(self, head: str) -> str:
        """Like `Host.tip`."""
        path = f"{self._path}/commits"
        query = {"until": f"refs/heads/{head}", "limit": 1}
        found = self._client.json(
            "GET",
            path,
            f"read the branch {head}",
            params=query,
            fine=(404,),
        )
        return dig(found, "values", 0, "id")

    def _put(
        self,
        said: Any,
        title: str,
        body: str,
        people: list[str],
        notes: Notes,
    ) -> Any:
        """Change a request. If Bitbucket rejects some reviewers, retry without them."""
        number = self.proposed(said).number
        path = f"{self._path}/pull-requests/{path_part(number)}"
        what = f"update pull request {number}"
        whole = {
            "version": said.get("version"),
            "title": title,
            "description": body,
        }
        whole["reviewers"] = [{"user": {"name": name}} for name in people]
        answer = self._client.ask("PUT", path, what, json=whole, fine=(_CONFLICT,))
        if _has_error_class(answer, "InvalidPullRequestReviewersException"):
            refused = {
                dig(reviewer, "context")
                for error in _errors(answer)
                for reviewer in elements(error, "reviewerErrors")
            }
            left = [name for name in people if refused and name not in refused]
            lost = [name for name in people if name not in left]
            notes.add(
                f"reviewer {', '.join(lost)}: Bitbucket says: {self._client.words(answer)}",
                "reviewer",
                *lost,
            )
            whole["reviewers"] = [{"user": {"name": name}} for name in left]
            answer = self._client.ask(
                "PUT",
                path,
                what,
                json=whole,
                fine=(_CONFLICT,),
            )
        if _has_error_class(
            answer,
            "PullRequestOutOfDateException",
            "IllegalPullRequestStateException",
        ):
            raise Overtaken
        if answer.status == _CONFLICT:
            raise self._client.refused(answer, what)
        return self._client.parsed(answer, what)

    def _auto_merged(self, item: Any, found: Proposed) -> Any:
        """Request auto-merge, and return the request.

        Before 8.15, Bitbucket would merge without waiting for checks.
        """
        told = dig(
            self._client.json("GET", "/application-properties", "read Bitbucket's version"),
            "version",
        )
        release = tuple(int(part) for part in told.split(".")[:2] if part.isdigit())
        if release < _AUTO_MERGE_SINCE:
            message = (
                f"this is Bitbucket {'.'.join(map(str, release))}, but auto-merge needs 8.15 or"
                " newer"
            )
            raise ForgeError(message, hint="omit --auto-merge, or update Bitbucket")
        what = "request auto-merge"
        path = f"{self._path}/pull-requests/{path_part(found.number)}"
        version = {"version": item.get("version")}
        answer = self._client.ask(
            "POST",
            f"{path}/merge",
            what,
            params=version,
            json={"autoMerge": True, **version},
        )
        return self._client.parsed(answer, what)

    def _present_names(self) -> tuple[str, str]:
        """Return the project's and the repository's names: after a rename, from the repository's
        page.
        """
        found = _PAGE_OF_REPOSITORY.search(self._client.moved_to)
        if found is None:
            return self.place.project[0], self.place.project[1]
        kind, owner, name = (unquote(part) for part in found.groups())
        return (f"~{owner}" if kind == "users" else owner), name

    def _belongs(self, item: Any, base: str, head: str) -> bool:
        """Return whether the request's source and target are both in this repository.

        A fork's outgoing requests may target other repositories.
        """
        out = _repository(item.get("fromRef"))
        inside = "" not in out and _repository(item.get("toRef")) == out
        return inside and self.branches(item) == (base, head)

    def _pages(self, query: dict[str, Any], what: str) -> Iterator[Any]:
        start = "0"
        for _page in range(_PAGES):
            params = {
                **query,
                "start": start,
                "limit": _PAGE,
            }
            answer = self._client.json("GET", f"{self._path}/pull-requests", what, params=params)
            yield from mappings(answer, "values")
            start = dig(answer, "nextPageStart")
            if not start:
                return


class DataCenterComments(Comments):
    """Comments on Bitbucket Data Center pull requests. Only the author can edit a comment."""

    connect = DataCenterClient
    needs = COMMENTS_NEED

    def marked(self, request: str, mark: str) -> Iterator[Comment]:
        """Like `Comments.marked`. Comments are part of a request's activities, newest first."""
        path = f"{self._path}/pull-requests/{path_part(request)}/activities"
        start = "0"
        for _page in range(COMMENT_PAGES):
            params = {"start": start, "limit": COMMENT_PAGE}
            said = self._client.json("GET", path, "find the comment", params=params)
            for text in mappings(said, "values"):
                if dig(text, "action") == "COMMENTED" and self.holds(
                    dig(text, "comment", "text"),
                    mark,
                ):
                    number = dig(text, "comment", "id")
                    version = int(dig(text, "comment", "version") or 0)
                    yield Comment(
                        number,
                        dig(text, "comment", "text"),
                        self._page(request, number),
                        version,
                    )
            start = dig(said, "nextPageStart")
            if not start:
                return

    def add(self, request: str, body: str) -> str:
        """Like `Comments.add`."""
        path = f"{self._path}/pull-requests/{path_part(request)}/comments"
        said = self._client.json("POST", path, "post the comment", json={"text": body})
        return self._page(request, dig(said, "id"))

    def change(self, request: str, comment: Comment, body: str) -> str | None:
        """Like `Comments.change`."""
        path = (
            f"{self._path}/pull-requests/{path_part(request)}/comments/{path_part(comment.number)}"
        )
        text = {"text": body, "version": comment.version}
        answer = self._client.ask(
            "PUT",
            path,
            "edit the comment",
            json=text,
            fine=(401, 403),
        )
        return None if answer.status in (401, 403) else comment.url

    def _page(self, request: str, number: str) -> str:
        """Return the URL of a comment's page, which Bitbucket's responses do not include."""
        return f"{self.place.web}/pull-requests/{request}/overview?commentId={number}"


def _errors(answer: Response) -> list[Any]:
    return elements(answer.mapping(), "errors") if answer.status >= 400 else []


def _has_error_class(answer: Response, *names: str) -> bool:
    """Return whether one of the response's errors has that class."""
    return any(dig(error, "exceptionName").rpartition(".")[2] in names for error in _errors(answer))


def _repository(ref: Any) -> tuple[str, str]:
    project = dig(ref, "repository", "project", "key")
    slug = dig(ref, "repository", "slug")
    return project.lower(), slug.lower()


def _place(remote: RemoteUrl, root: str) -> ForgeAddress:
    """Clone URLs have /scm/PROJECT/repository, pages /projects/PROJECT/repos/repository, and ssh
    URLs only the two names.
    """
    folders = remote.parts[:-2]
    parts = remote.parts
    if len(parts) >= 4 and parts[-4] in {"projects", "users"} and parts[-2] == "repos":
        folders = parts[:-4]
        owner = parts[-3] if parts[-4] == "projects" else f"~{parts[-3]}"
    elif len(parts) >= 2 and (remote.ssh or not folders or folders[-1] == "scm"):
        folders = () if remote.ssh else folders[:-1]
        owner = parts[-2]
    else:
        raise names_none(
            "Bitbucket Data Center",
            "https://bitbucket.example.com/scm/PROJECT/repository.git",
        )
    root = web_below(root, folders)
    kind, name = ("users", owner[1:]) if owner.startswith("~") else ("projects", owner)
    web = web_below(root, (kind, name, "repos", parts[-1]))
    return ForgeAddress("bitbucket-server", "", f"{root}/rest/api/1.0", (owner, parts[-1]), web)


def _is_it(answer: Response) -> bool:
    return answer.mapping().get("displayName") == "Bitbucket" or "X-AREQUESTID" in answer.headers


KIND = ForgeKind(
    name="bitbucket-server",
    aliases=("bitbucket-data-center",),
    words=("bitbucket",),
    client=BitbucketDataCenter,
    place=_place,
    question=("/rest/api/1.0/application-properties", _is_it),
    comments=DataCenterComments,
    commit="{0}/commits/{1}",
    compare="{0}/compare/commits?targetBranch=refs/heads/{1}&sourceBranch=refs/heads/{2}",
    range="{0}/compare/commits?targetBranch={1}&sourceBranch={2}",
)
