"""Bitbucket Data Center 7 and newer (REST API 1.0): no labels or assignees; auto-merge since 8.15,
drafts since 8.18.

developer.atlassian.com/server/bitbucket/rest. An update must include the request's current version,
and an update without reviewers removes all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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
from task.forges.client import ForgeAddress, no_repository_error, numbered, web_below
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
from task.forges.protection import open_on_data_center, rules_in
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
_PAGES = 5  # maximum pages to read when listing a head branch's requests
_CONFLICT = 409
_UNAUTHORIZED = 401
_HEADS = "refs/heads/"
_PAGE_OF_REPOSITORY = re.compile(r"/(projects|users)/([^/]+)/repos/([^/]+)")


class DataCenterClient(BitbucketClient):
    """A client for Bitbucket Data Center, which also returns 401 for a missing permission."""

    repository = "/projects/{}/repos/{}"
    page = ("links", "self", 0, "href")

    def error_for(self, answer: Response, what: str) -> TaskError:
        """Return the error for a rejected request.

        A status of 401 may also mean that an authenticated user lacks the permission.
        """
        error = super().error_for(answer, what)
        if answer.status != _UNAUTHORIZED:
            return error
        if _has_error_class(answer, "AuthorisationException"):
            because = f"{answer.status} ({self.message_in(answer)})"
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
        """Return the open pull request from the branch `head` into the branch `base`. If there is
        none, return the newest closed or merged one. If there is no request at all, return None.
        """
        newest_closed: Proposed | None = None
        for pull in self._requests(head):
            if not self._belongs(pull, base, head):
                continue
            request = self.to_proposed(pull)
            if request.state == "open":
                return request
            if newest_closed is None:  # the list is sorted, newest first
                newest_closed = request
        return newest_closed

    def fetch(self, number: str) -> Any:
        """Return Bitbucket's data about a pull request."""
        pull = self._client.json(
            "GET",
            f"{self._path}/pull-requests/{path_part(number)}",
            f"read pull request {number}",
        )
        return mapping(pull)

    def to_proposed(self, pull: Any) -> Proposed:
        """Convert Bitbucket's pull request data to our format."""
        state = _STATES.get(dig(pull, "state"), "closed")
        merge_commit = dig(pull, "properties", "mergeCommit", "id") if state == "merged" else ""
        merge_outcome = dig(pull, "properties", "mergeResult", "outcome")
        conflicts = state == "open" and merge_outcome == "CONFLICTED"
        return Proposed(
            url=dig(pull, "links", "self", 0, "href"),
            number=numbered(dig(pull, "id"), self.place.host),
            state=state,
            title=dig(pull, "title"),
            body=dig(pull, "description"),
            head_commit=dig(pull, "fromRef", "latestCommit"),
            merge_commit=merge_commit,
            conflicts=conflicts,
            note="it conflicts with its base branch" if conflicts else "",
        )

    def branches(self, pull: Any) -> tuple[str, str]:
        """Return the base and head branches from Bitbucket's pull request data."""
        base = dig(pull, "toRef", "id")
        head = dig(pull, "fromRef", "id")
        return base.removeprefix(_HEADS), head.removeprefix(_HEADS)

    def create(self, proposal: Proposal) -> Any:
        """Open a pull request, and return Bitbucket's data about it.

        Raises `AlreadyThere` if this branch already has an open pull request, and `Outpaced` if the
        branch has no changes.
        """
        project, slug = self._present_names()
        repository = {"slug": slug, "project": {"key": project}}
        body: dict[str, Any] = {
            "title": proposal.title,
            "description": proposal.body,
            "fromRef": {"id": f"refs/heads/{proposal.head}", "repository": repository},
            "toRef": {"id": f"refs/heads/{proposal.base}", "repository": repository},
        }
        if proposal.draft:
            body["draft"] = True
        what = f"open a pull request from {proposal.head} into {proposal.base}"
        answer = self._client.ask(
            "POST",
            f"{self._path}/pull-requests",
            what,
            json=body,
            expected=(_CONFLICT,),
        )
        if _has_error_class(answer, "DuplicatePullRequestException"):
            raise AlreadyThere
        if _has_error_class(answer, "EmptyPullRequestException"):
            raise Outpaced(f"{proposal.base} already contains everything in {proposal.head}")
        if answer.status == _CONFLICT:
            raise self._client.error_for(answer, what)
        return self._client.parse(answer, what)

    def change(self, pull: Any, title: str, body: str) -> Any:
        """Change the open pull request's title and text, and return the updated data from
        Bitbucket.

        Raises `Overtaken` if someone has changed or closed the request since it was read.
        """
        return self._put(pull, title, body, _reviewer_names(pull), Notes())

    def complete(self, pull: Any, proposal: Proposal, notes: Notes) -> tuple[Proposed, Any]:
        """Add the proposal's reviewers that the pull request lacks, and request auto-merge. Return
        the request both in our format and as Bitbucket's data.

        Reviewers are never removed. Failures become notes (sentences shown with the request).
        """
        request = self.to_proposed(pull)
        present_names = _reviewer_names(pull)
        new_names = missing(proposal.reviewers, present_names)
        if new_names:
            with notes.on_failure("reviewers", "reviewer", *new_names):
                all_names = [*present_names, *new_names]
                pull = self._put(pull, request.title, request.body, all_names, notes)
        if proposal.auto_merge:
            with notes.on_failure("auto-merge", "auto-merge"):
                pull = self._request_auto_merge(pull, request)
        return self.to_proposed(pull), pull

    def close_request(self, pull: Any, body: str) -> None:
        """Decline the open pull request, and replace its text with `body`."""
        request, pull = self.write(pull, dig(pull, "title"), body)
        version = {"version": pull.get("version")}  # Bitbucket rejects outdated versions
        self._client.ask(
            "POST",
            f"{self._path}/pull-requests/{path_part(request.number)}/decline",
            f"decline pull request {request.number}",
            params=version,
            json=version,
        )

    def others_may_push(self, name: str) -> bool:
        """Return whether other users may push a branch with this name."""
        root = self.place.api.removesuffix("/api/1.0")  # branch permissions have a separate API
        restrictions = self._client.json(
            "GET",
            f"{root}/branch-permissions/2.0{self._path}/restrictions",
            "read the branch permissions",
            params={"type": "read-only", "limit": 1000},
        )
        return open_on_data_center(rules_in(restrictions, "values"), name)

    def tip(self, head: str) -> str:
        """Return the head branch's current commit, or "" if there is no such branch."""
        commits = self._client.json(
            "GET",
            f"{self._path}/commits",
            f"read the branch {head}",
            params={"until": f"refs/heads/{head}", "limit": 1},
            expected=(404,),
        )
        return dig(commits, "values", 0, "id")

    def _put(
        self,
        pull: Any,
        title: str,
        body: str,
        reviewers: list[str],
        notes: Notes,
    ) -> Any:
        """Change a pull request's title, text, and reviewers, and return the updated data from
        Bitbucket.

        If Bitbucket rejects some reviewers, retry without them, and add a note. Raises `Overtaken`
        if someone else has changed or closed the request.
        """
        number = self.to_proposed(pull).number
        path = f"{self._path}/pull-requests/{path_part(number)}"
        what = f"update pull request {number}"
        fields = {
            "version": pull.get("version"),
            "title": title,
            "description": body,
            "reviewers": [{"user": {"name": name}} for name in reviewers],
        }
        answer = self._client.ask("PUT", path, what, json=fields, expected=(_CONFLICT,))

        if _has_error_class(answer, "InvalidPullRequestReviewersException"):
            accepted = self._accepted_reviewers(answer, reviewers, notes)
            fields["reviewers"] = [{"user": {"name": name}} for name in accepted]
            answer = self._client.ask("PUT", path, what, json=fields, expected=(_CONFLICT,))

        if _has_error_class(
            answer,
            "PullRequestOutOfDateException",
            "IllegalPullRequestStateException",
        ):
            raise Overtaken
        if answer.status == _CONFLICT:
            raise self._client.error_for(answer, what)
        return self._client.parse(answer, what)

    def _accepted_reviewers(self, answer: Response, names: list[str], notes: Notes) -> list[str]:
        """Return the names of all reviewers except those that Bitbucket's `answer` rejects. The
        rejected names become a note.

        If Bitbucket does not say which reviewers it rejects, return none.
        """
        rejected: set[str] = set()
        for error in _errors(answer):
            for reviewer_error in elements(error, "reviewerErrors"):
                rejected.add(dig(reviewer_error, "context"))  # the reviewer's name
        accepted = []
        if rejected:
            accepted = [name for name in names if name not in rejected]
        omitted = [name for name in names if name not in accepted]
        notes.add(
            f"reviewer {', '.join(omitted)}: Bitbucket says: {self._client.message_in(answer)}",
            "reviewer",
            *omitted,
        )
        return accepted

    def _request_auto_merge(self, pull: Any, request: Proposed) -> Any:
        """Request auto-merge for a pull request, and return the updated data from Bitbucket.

        Raises `ForgeError` before version 8.15: an older Bitbucket ignores `autoMerge`, and would
        merge without waiting for checks.
        """
        self._check_auto_merge_version()  # called only because it may raise an error
        version = {"version": pull.get("version")}  # Bitbucket rejects outdated versions
        what = "request auto-merge"
        answer = self._client.ask(
            "POST",
            f"{self._path}/pull-requests/{path_part(request.number)}/merge",
            what,
            params=version,
            json={"autoMerge": True, **version},
        )
        return self._client.parse(answer, what)

    def _check_auto_merge_version(self) -> None:
        """Raise `ForgeError` if this Bitbucket is too old for auto-merge."""
        properties = self._client.json(
            "GET",
            "/application-properties",
            "read Bitbucket's version",
        )
        major_and_minor = dig(properties, "version").split(".")[:2]
        release = tuple(int(part) for part in major_and_minor if part.isdigit())  # (8, 15)
        if release < _AUTO_MERGE_SINCE:
            raise ForgeError(
                f"this is Bitbucket {'.'.join(map(str, release))}, but auto-merge needs 8.15 or"
                " newer",
                hint="omit --auto-merge, or update Bitbucket",
            )

    def _present_names(self) -> tuple[str, str]:
        """Return the current names of the project (or `~user`) and of the repository."""
        # after a rename, the URL of the repository's new web page contains them
        new_page = _PAGE_OF_REPOSITORY.search(self._client.moved_to)
        if new_page is None:
            project, repository = self.place.project
            return project, repository
        kind, owner, repository = (unquote(part) for part in new_page.groups())
        if kind == "users":
            return f"~{owner}", repository
        return owner, repository

    def _belongs(self, pull: Any, base: str, head: str) -> bool:
        """Return whether a pull request is from `head` into `base`, with both branches in the same
        repository. A fork's outgoing requests may target other repositories.
        """
        source = _repository(pull.get("fromRef"))
        is_unknown = "" in source
        if is_unknown or _repository(pull.get("toRef")) != source:
            return False
        return self.branches(pull) == (base, head)

    def _requests(self, head: str) -> Iterator[Any]:
        """Yield Bitbucket's data about the pull requests from this head branch, newest first,
        reading one page at a time.
        """
        start = "0"
        for _page in range(_PAGES):
            response = self._client.json(
                "GET",
                f"{self._path}/pull-requests",
                f"find the pull request for {head}",
                params={
                    "direction": "OUTGOING",
                    "at": f"refs/heads/{head}",
                    "state": "ALL",
                    "order": "NEWEST",
                    "start": start,
                    "limit": _PAGE,
                },
            )
            yield from mappings(response, "values")
            start = dig(response, "nextPageStart")
            if not start:
                return


class DataCenterComments(Comments):
    """Comments on Bitbucket Data Center pull requests. Only the author can edit a comment."""

    connect = DataCenterClient
    needs = COMMENTS_NEED

    def marked(self, request: str, mark: str) -> Iterator[Comment]:
        """Yield a pull request's comments that contain the mark (a hidden line), newest first.

        Bitbucket lists comments among the request's activities.
        """
        path = f"{self._path}/pull-requests/{path_part(request)}/activities"
        start = "0"
        for _page in range(COMMENT_PAGES):
            params = {"start": start, "limit": COMMENT_PAGE}
            response = self._client.json("GET", path, "find the comment", params=params)
            for activity in mappings(response, "values"):
                if dig(activity, "action") != "COMMENTED":
                    continue
                body = dig(activity, "comment", "text")
                if not self.holds(body, mark):
                    continue
                number = dig(activity, "comment", "id")
                yield Comment(
                    number=number,
                    body=body,
                    url=self._page(request, number),
                    version=int(dig(activity, "comment", "version") or 0),
                )
            start = dig(response, "nextPageStart")
            if not start:
                return

    def add(self, request: str, body: str) -> str:
        """Add a comment to a pull request, and return its URL."""
        response = self._client.json(
            "POST",
            f"{self._path}/pull-requests/{path_part(request)}/comments",
            "post the comment",
            json={"text": body},
        )
        return self._page(request, dig(response, "id"))

    def change(self, request: str, comment: Comment, body: str) -> str | None:
        """Change a comment's text, and return the comment's URL. If someone else wrote it, return
        None.
        """
        answer = self._client.ask(
            "PUT",
            f"{self._path}/pull-requests/{path_part(request)}/comments/{path_part(comment.number)}",
            "edit the comment",
            json={"text": body, "version": comment.version},
            expected=(401, 403),
        )
        # Bitbucket also returns 401 for a missing permission
        return None if answer.status in (401, 403) else comment.url

    def _page(self, request: str, number: str) -> str:
        """Return the URL of a comment's web page, which Bitbucket's responses do not include."""
        return f"{self.place.web}/pull-requests/{request}/overview?commentId={number}"


def _errors(answer: Response) -> list[Any]:
    return elements(answer.mapping(), "errors") if answer.status >= 400 else []


def _has_error_class(answer: Response, *names: str) -> bool:
    """Return whether one of the response's errors has one of these Java classes, such as
    `AuthorisationException`.
    """
    for error in _errors(answer):
        class_name = dig(error, "exceptionName").rpartition(".")[2]
        if class_name in names:
            return True
    return False


def _reviewer_names(pull: Any) -> list[str]:
    return [dig(reviewer, "user", "name") for reviewer in elements(pull, "reviewers")]


def _repository(ref: Any) -> tuple[str, str]:
    """Return the project and repository of a pull request's source or target, in lowercase. A
    missing value becomes "".
    """
    project = dig(ref, "repository", "project", "key")
    slug = dig(ref, "repository", "slug")
    return project.lower(), slug.lower()


def _place(remote: RemoteUrl, root: str) -> ForgeAddress:
    """Return a repository's address on Bitbucket, without the host. `remote` contains the parts of
    the repository's URL, and `root` is the root URL of the host's web pages.

    Clone URLs contain /scm/PROJECT/repository, page URLs /projects/PROJECT/repos/repository, and
    ssh URLs only the two names. Any path before these belongs to Bitbucket itself.
    """
    owner, folders = _owner_and_folders(remote)
    repository = remote.parts[-1]
    root = web_below(root, folders)
    page_kind = "projects"
    page_owner = owner
    if owner.startswith("~"):  # a personal repository
        page_kind = "users"
        page_owner = owner[1:]
    return ForgeAddress(
        forge="bitbucket-server",
        host="",
        api=f"{root}/rest/api/1.0",
        project=(owner, repository),
        web=web_below(root, (page_kind, page_owner, "repos", repository)),
    )


def _owner_and_folders(remote: RemoteUrl) -> tuple[str, Sequence[str]]:
    """Return the project or `~user` in a repository's URL, and the leading folders of the URL's
    path that belong to Bitbucket itself.

    Raises `Malformed` if the URL is not a repository on Bitbucket.
    """
    parts = remote.parts
    is_page = len(parts) >= 4 and parts[-4] in {"projects", "users"} and parts[-2] == "repos"
    if is_page:
        *folders, kind, owner, _repos, _repository = parts
        if kind == "users":
            owner = f"~{owner}"
        return owner, folders
    if len(parts) >= 2:
        *folders, owner, _repository = parts
        if remote.ssh:  # an ssh URL omits the path of Bitbucket's web pages
            return owner, ()
        if not folders or folders[-1] == "scm":
            return owner, folders[:-1]  # without `scm`
    raise no_repository_error(
        "Bitbucket Data Center",
        "https://bitbucket.example.com/scm/PROJECT/repository.git",
    )


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
