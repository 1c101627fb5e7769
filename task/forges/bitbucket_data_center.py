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
            because = f"{answer.status} ({self.words(answer)})"
            message = f"{self.reach.place.host} does not allow this API token to {what}: {because}"
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
        for pull in self._pages(query, f"find the pull request for {head}"):
            if self._belongs(pull, base, head):
                request = self.proposed(pull)
                if request.state == "open":
                    return request
                newest = newest or request
        return newest

    def ask(self, number: str) -> Any:
        """Like `Host.ask`."""
        path = f"{self._path}/pull-requests/{path_part(number)}"
        return mapping(self._client.json("GET", path, f"read pull request {number}"))

    def proposed(self, pull: Any) -> Proposed:
        """Like `Host.proposed`."""
        state = _STATES.get(dig(pull, "state"), "closed")
        conflicts = (
            state == "open" and dig(pull, "properties", "mergeResult", "outcome") == "CONFLICTED"
        )
        return Proposed(
            url=dig(pull, "links", "self", 0, "href"),
            number=numbered(dig(pull, "id"), self.place.host),
            state=state,
            title=dig(pull, "title"),
            body=dig(pull, "description"),
            head_commit=dig(pull, "fromRef", "latestCommit"),
            merge_commit=dig(pull, "properties", "mergeCommit", "id") if state == "merged" else "",
            conflicts=conflicts,
            note="it conflicts with its base branch" if conflicts else "",
        )

    def branches(self, pull: Any) -> tuple[str, str]:
        """Like `Host.branches`."""
        base = dig(pull, "toRef", "id")
        head = dig(pull, "fromRef", "id")
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

    def change(self, pull: Any, title: str, body: str) -> Any:
        """Like `Host.change`.

        Also raises `Overtaken` if someone has changed the request since it was read.
        """
        people = [dig(reviewer, "user", "name") for reviewer in elements(pull, "reviewers")]
        return self._put(pull, title, body, people, Notes())

    def complete(self, pull: Any, proposal: Proposal, notes: Notes) -> tuple[Proposed, Any]:
        """Like `Host.complete`. Reviewers are added, but never removed."""
        found = self.proposed(pull)
        present = [dig(reviewer, "user", "name") for reviewer in elements(pull, "reviewers")]
        new = missing(proposal.reviewers, present)
        if new:
            with notes.tried("reviewers", "reviewer", *new):
                pull = self._put(pull, found.title, found.body, [*present, *new], notes)
        if proposal.auto_merge:
            with notes.tried("auto-merge", "auto-merge"):
                pull = self._auto_merged(pull, found)
        return self.proposed(pull), pull

    def shut(self, pull: Any, body: str) -> None:
        """Like `Host.shut`."""
        found, pull = self.write(pull, dig(pull, "title"), body)
        path = f"{self._path}/pull-requests/{path_part(found.number)}"
        version = {"version": pull.get("version")}
        what = f"decline pull request {found.number}"
        self._client.ask("POST", f"{path}/decline", what, params=version, json=version)

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
        pull: Any,
        title: str,
        body: str,
        people: list[str],
        notes: Notes,
    ) -> Any:
        """Change a request. If Bitbucket rejects some reviewers, retry without them."""
        number = self.proposed(pull).number
        path = f"{self._path}/pull-requests/{path_part(number)}"
        what = f"update pull request {number}"
        fields = {
            "version": pull.get("version"),
            "title": title,
            "description": body,
            "reviewers": [{"user": {"name": name}} for name in people],
        }
        answer = self._client.ask("PUT", path, what, json=fields, fine=(_CONFLICT,))
        if _has_error_class(answer, "InvalidPullRequestReviewersException"):
            refused = {
                dig(reviewer, "context")
                for error in _errors(answer)
                for reviewer in elements(error, "reviewerErrors")
            }
            # if Bitbucket does not name those whom it rejects, omit everyone
            kept = [name for name in people if refused and name not in refused]
            omitted = [name for name in people if name not in kept]
            notes.add(
                f"reviewer {', '.join(omitted)}: Bitbucket says: {self._client.words(answer)}",
                "reviewer",
                *omitted,
            )
            fields["reviewers"] = [{"user": {"name": name}} for name in kept]
            answer = self._client.ask(
                "PUT",
                path,
                what,
                json=fields,
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

    def _auto_merged(self, pull: Any, request: Proposed) -> Any:
        """Request auto-merge, and return the request.

        Before 8.15, Bitbucket would merge without waiting for checks.
        """
        path = "/application-properties"
        properties = self._client.json("GET", path, "read Bitbucket's version")
        major_and_minor = dig(properties, "version").split(".")[:2]
        release = tuple(int(part) for part in major_and_minor if part.isdigit())
        if release < _AUTO_MERGE_SINCE:
            message = (
                f"this is Bitbucket {'.'.join(map(str, release))}, but auto-merge needs 8.15 or"
                " newer"
            )
            raise ForgeError(message, hint="omit --auto-merge, or update Bitbucket")
        what = "request auto-merge"
        path = f"{self._path}/pull-requests/{path_part(request.number)}"
        version = {"version": pull.get("version")}
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
        new_page = _PAGE_OF_REPOSITORY.search(self._client.moved_to)
        if new_page is None:
            owner, name = self.place.project
            return owner, name
        kind, owner, name = (unquote(part) for part in new_page.groups())
        return (f"~{owner}" if kind == "users" else owner), name

    def _belongs(self, pull: Any, base: str, head: str) -> bool:
        """Return whether the request's source and target are both in this repository.

        A fork's outgoing requests may target other repositories.
        """
        source = _repository(pull.get("fromRef"))
        if "" in source or _repository(pull.get("toRef")) != source:
            return False
        return self.branches(pull) == (base, head)

    def _pages(self, query: dict[str, Any], what: str) -> Iterator[Any]:
        """Yield all requests, page by page."""
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
            response = self._client.json("GET", path, "find the comment", params=params)
            for activity in mappings(response, "values"):
                if dig(activity, "action") == "COMMENTED" and self.holds(
                    dig(activity, "comment", "text"),
                    mark,
                ):
                    number = dig(activity, "comment", "id")
                    version = int(dig(activity, "comment", "version") or 0)
                    yield Comment(
                        number,
                        dig(activity, "comment", "text"),
                        self._page(request, number),
                        version,
                    )
            start = dig(response, "nextPageStart")
            if not start:
                return

    def add(self, request: str, body: str) -> str:
        """Like `Comments.add`."""
        path = f"{self._path}/pull-requests/{path_part(request)}/comments"
        response = self._client.json("POST", path, "post the comment", json={"text": body})
        return self._page(request, dig(response, "id"))

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
    """Return the project and repository of a source or target; "" for each that is missing."""
    project = dig(ref, "repository", "project", "key")
    slug = dig(ref, "repository", "slug")
    return project.lower(), slug.lower()


def _place(remote: RemoteUrl, root: str) -> ForgeAddress:
    """Clone URLs have /scm/PROJECT/repository, pages /projects/PROJECT/repos/repository, and ssh
    URLs only the two names.
    """
    parts = remote.parts
    folders = parts[:-2]
    if len(parts) >= 4 and parts[-4] in {"projects", "users"} and parts[-2] == "repos":
        *_folders, kind, owner, _repos, _name = parts
        folders = parts[:-4]
        owner = owner if kind == "projects" else f"~{owner}"
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
