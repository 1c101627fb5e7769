"""Bitbucket Cloud (REST API 2.0): no labels, assignees, or auto-merge.

developer.atlassian.com/cloud/bitbucket/rest/api-group-pullrequests. It differs from other forges in
two ways: lists omit reviewers, and opening a second request for a branch does not fail, but changes
the title of the open one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar
from urllib.parse import quote

from task.errors import ForgeError, Outpaced, TaskError
from task.forges.client import Client, ForgeAddress, Reach, no_repository_error, numbered, web_below
from task.forges.host import (
    MOVED,
    AlreadyThere,
    Comment,
    Comments,
    ForgeKind,
    Host,
    Notes,
    Overtaken,
)
from task.forges.proposal import described, has_same_text
from task.forges.protection import open_on_bitbucket_cloud, rules_in
from task.git.hosts import RemoteUrl
from task.http import Response, basic, bearer
from task.model import Proposal, Proposed
from task.plain_data import dig, elements, mappings
from task.retry import until
from task.urls import origin, path_part

BARE = "x-token-auth"  # Git's username for a project, repository, or workspace token
# Features that both Bitbucket Cloud and Data Center lack, with the messages shown to users.
WITHOUT = {
    "labels": "Bitbucket pull requests have no labels",
    "assignees": "Bitbucket pull requests have no assignees: add them as reviewers",
}
COMMENTS_NEED = (
    "grant the token read access to the repository and write access to its pull requests"
)
COMMENT_PAGES = 10
COMMENT_PAGE = 50
_STATES: dict[str, Any] = {
    "OPEN": "open",
    "MERGED": "merged",
    "DECLINED": "closed",
    "SUPERSEDED": "closed",
}
_PAGE = 20
_PAGES = 20
_PAUSES = (0.3, 0.7, 1.0)
_REFUSED = 400


class BitbucketClient(Client):
    """A client for the API of Bitbucket Cloud or Data Center."""

    def login(self) -> Mapping[str, str]:
        """Return the authentication header: Bearer for an access token without a username, else
        Basic for a username with a password or token.
        """
        token = self.reach.token
        if token.user in ("", BARE):
            return bearer(token.secret)
        return basic(token.user, token.secret)


class CloudClient(BitbucketClient):
    """A client for Bitbucket Cloud, which returns 401 for a bare token that needs a username."""

    repository = "/repositories/{}/{}"
    page = ("links", "html", "href")

    def error_for(self, answer: Response, what: str) -> TaskError:
        """Return the error for a rejected request. For 401, the hint mentions the username."""
        error = super().error_for(answer, what)
        if answer.status != 401:
            return error
        hint = (
            f"{error.hint}; an access token does not need a username; an API token (ATATT…) needs"
            " its account's email address as --forge-username"
        )
        return type(error)(error.message, hint=hint, subject=error.subject)


class BitbucketCloud(Host):
    """A repository on bitbucket.org."""

    connect = CloudClient
    needs = (
        "grant the token write access to pull requests (scopes read:pullrequest and"
        " write:pullrequest)"
    )
    without: ClassVar[Mapping[str, str]] = WITHOUT | {
        "auto_merge": (
            "Bitbucket Cloud's API cannot turn on auto-merge: a person has to turn it on"
        )
    }

    def __init__(self, reach: Reach) -> None:
        super().__init__(reach)
        self._name = "/".join(reach.place.project).lower()

    def newest(self, base: str, head: str) -> Proposed | None:
        """Return the open pull request from the branch `head` into the branch `base`. If there is
        none, return the newest closed or merged one. If there is no request at all, return None.
        """
        requests = self._requests(base, head)
        # the repository's name is part of the query, so query again if the name has changed
        if not requests and self._update_name():
            requests = self._requests(base, head)
        if not requests:
            return None

        chosen = requests[0]  # the newest
        for pull in requests:
            is_open = dig(pull, "state") == "OPEN"
            if is_open:
                chosen = pull
                break
        return self.to_proposed(chosen)

    def _update_name(self) -> bool:
        """If Bitbucket has reported a new name for the repository, use that name from now on, and
        return True. Otherwise, return False.
        """
        page_parts = self._client.moved_to.split("/")  # …/workspace/repository
        new_name = "/".join(page_parts[-2:]).lower()
        if new_name in ("", self._name):
            return False
        self._name = new_name
        return True

    def _requests(self, base: str, head: str) -> list[Any]:
        """Return Bitbucket's data about the pull requests from `head` into `base`, newest first."""
        # without a state, Bitbucket lists only open requests
        states = " OR ".join(f"state = {_query_string(state)}" for state in _STATES)
        conditions = (
            f"source.repository.full_name = {_query_string(self._name)}",
            f"source.branch.name = {_query_string(head)}",
            f"destination.branch.name = {_query_string(base)}",
            f"({states})",
        )
        response = self._client.json(
            "GET",
            f"{self._path}/pullrequests",
            f"find the pull request for {head}",
            params={
                "q": " AND ".join(conditions),
                "sort": "-created_on",
                "pagelen": _PAGE,
            },
        )
        return [
            pull
            for pull in elements(response, "values")
            if dig(pull, "source", "repository", "full_name").lower() == self._name
            and self.branches(pull) == (base, head)
        ]

    def read_completely(self, number: str) -> Proposed:
        """Return a pull request with the full id of its merge commit."""
        request = super().read_completely(number)
        short_commit = request.merge_commit  # Bitbucket returns only its first twelve digits
        if not short_commit:
            return request
        commit = self._client.json(
            "GET",
            f"{self._path}/commit/{path_part(short_commit)}",
            f"read the merge commit of pull request {number}",
        )
        return replace(request, merge_commit=dig(commit, "hash") or short_commit)

    def fetch(self, number: str) -> Any:
        """Return Bitbucket's data about the pull request with this number."""
        return self._client.json(
            "GET",
            f"{self._path}/pullrequests/{path_part(number)}",
            f"read pull request {number}",
        )

    def to_proposed(self, pull: Any) -> Proposed:
        """Convert Bitbucket's pull request data to our format."""
        state = _STATES.get(dig(pull, "state"), "closed")
        merge_commit = dig(pull, "merge_commit", "hash") if state == "merged" else ""

        # Bitbucket returns only the first 12 digits of the commit id. If the request's text,
        # written by us, describes this commit, it contains the full id.
        body = dig(pull, "description")
        our_commit = described(body)
        head_commit = dig(pull, "source", "commit", "hash")
        if head_commit != "" and our_commit.startswith(head_commit):
            head_commit = our_commit

        return Proposed(
            url=dig(pull, "links", "html", "href"),
            number=numbered(dig(pull, "id"), self.place.host),
            state=state,
            title=dig(pull, "title"),
            body=body,
            head_commit=head_commit,
            merge_commit=merge_commit,
        )

    def branches(self, pull: Any) -> tuple[str, str]:
        """Return the base and head branches from Bitbucket's pull request data."""
        return dig(pull, "destination", "branch", "name"), dig(pull, "source", "branch", "name")

    def create(self, proposal: Proposal) -> Any:
        """Open a pull request, and return Bitbucket's data about it.

        Raises `AlreadyThere` if this branch already has an open pull request.
        """
        # if a newer build has opened a request, the POST below would change that request's title
        newer_request = self._opened_by_a_newer_build(proposal)
        if newer_request:
            raise AlreadyThere(newer_request)
        body = {
            "title": proposal.title,
            "description": proposal.body,
            "source": {"branch": {"name": proposal.head}},
            "destination": {"branch": {"name": proposal.base}},
            "close_source_branch": self.ours_to_delete(proposal),
            "draft": proposal.draft,
        }
        pull = self._send(
            "POST",
            f"{self._path}/pullrequests",
            body,
            f"open a pull request from {proposal.head} into {proposal.base}",
        )
        request = self.to_proposed(pull)
        # if a request was already open, Bitbucket has changed only its title, not its text
        has_our_text = has_same_text(request, proposal)
        if not has_our_text:
            raise AlreadyThere(request)
        return pull

    def change(self, pull: Any, title: str, body: str) -> Any:
        """Change the open pull request's title and text, and return the updated data from
        Bitbucket.

        Raises `Overtaken` if the request has been merged or declined.
        """
        return self._put(pull, {"title": title, "description": body})

    def complete(self, pull: Any, proposal: Proposal, notes: Notes) -> tuple[Proposed, Any]:
        """Add the proposal's reviewers that the pull request lacks. Reviewers are never removed.
        Return the request both in our format and as Bitbucket's data.

        If Bitbucket rejects one reviewer, it does not add the others either. Failures become notes
        (sentences shown with the request).
        """
        request = self.to_proposed(pull)
        present_uuids = [dig(reviewer, "uuid") for reviewer in elements(pull, "reviewers")]
        wanted_uuids = self._uuids_of(proposal.reviewers, notes)
        all_uuids = list(dict.fromkeys([*present_uuids, *wanted_uuids]))
        if all_uuids == present_uuids:
            return request, pull
        fields = {
            "title": request.title,
            "description": request.body,
            "reviewers": [{"uuid": uuid} for uuid in all_uuids],
        }
        with notes.on_failure("no reviewers were added", "reviewer", *proposal.reviewers):
            pull = self._put(pull, fields)
        return self.to_proposed(pull), pull

    def close_request(self, pull: Any, body: str) -> None:
        """Decline the open pull request, and replace its text with `body`."""
        request, _pull = self.write(pull, dig(pull, "title"), body)
        self._client.ask(
            "POST",
            f"{self._path}/pullrequests/{path_part(request.number)}/decline",
            f"decline pull request {request.number}",
        )

    def others_may_push(self, name: str) -> bool:
        """Return whether other users may push a branch with this name."""
        restrictions = self._client.json(
            "GET",
            f"{self._path}/branch-restrictions",
            "read the branch restrictions",
            params={"kind": "push", "pagelen": 100},
        )
        return open_on_bitbucket_cloud(rules_in(restrictions, "values"), name)

    def tip(self, head: str) -> str:
        """Return the head branch's current commit, or "" if there is no such branch."""
        branch = self._client.json(
            "GET",
            f"{self._path}/refs/branches/{quote(head)}",
            f"read the branch {head}",
            expected=(404,),
        )
        return dig(branch, "target", "hash")

    def _opened_by_a_newer_build(self, proposal: Proposal) -> Proposed | None:
        """If another run has pushed a newer commit to the head branch than the proposal's, return
        the open pull request, with `head_commit` set to that newer commit. Otherwise, return None.

        The other run may still be opening the request, so wait a moment.
        """
        our_commit = described(proposal.body)
        if not our_commit:
            return None
        tip = self.tip(proposal.head)
        if tip in ("", our_commit):
            return None
        find_newest = partial(self.newest, proposal.base, proposal.head)
        newest = until(
            lambda request: request is not None and request.state == "open",
            None,  # pause before the first query, too
            find_newest,
            _PAUSES,
        )
        if newest is None or newest.state != "open":
            return None
        return replace(newest, head_commit=tip, note=MOVED)

    def _put(self, pull: Any, fields: dict[str, Any]) -> Any:
        """Change these fields of an open pull request, and return the updated data from Bitbucket.

        Raises `Overtaken` if the request has been merged or declined.
        """
        number = self.to_proposed(pull).number
        # Bitbucket removes all reviewers that an update omits
        reviewers = [{"uuid": dig(reviewer, "uuid")} for reviewer in elements(pull, "reviewers")]
        try:
            return self._send(
                "PUT",
                f"{self._path}/pullrequests/{path_part(number)}",
                {"reviewers": reviewers, **fields},
                f"update pull request {number}",
            )
        except ForgeError:
            # Bitbucket rejects changes to a request that is no longer open
            current = self.to_proposed(self.fetch(number))
            if current.state == "open":
                raise
            raise Overtaken from None

    def _send(
        self,
        method: str,
        path: str,
        body: dict[str, Any],
        what: str,
    ) -> Any:
        """Send an HTTP request with this JSON body, and return the JSON in the response.

        Raises `Outpaced` if the head branch has no changes.
        """
        answer = self._client.ask(method, path, what, json=body, expected=(_REFUSED,))
        if answer.status != _REFUSED:
            return self._client.parse(answer, what)
        if b"no changes to be pulled" in answer.body:
            raise Outpaced("the base branch already contains everything in the head branch")
        raise self._client.error_for(answer, what)

    def _uuids_of(self, names: tuple[str, ...], notes: Notes) -> list[str]:
        """Return the UUIDs of the reviewers with these names.

        A name may be a UUID, an account id, or a nickname. Unknown names become notes.
        """
        uuids = []
        for name in dict.fromkeys(names):
            is_uuid = name.startswith("{")
            with notes.on_failure(f"reviewer {name}", "reviewer", name):
                uuids.append(name if is_uuid else self._uuid(name))
        return uuids

    def _uuid(self, name: str) -> str:
        """Return the UUID of the workspace member with this nickname or account id.

        Raises `ForgeError` if there is no match, or more than one.
        """
        workspace, _repository = self.place.project
        for field in ("nickname", "account_id"):
            matching_members = self._pages(
                f"/workspaces/{path_part(workspace)}/members",
                {"q": f"user.{field} = {_query_string(name)}"},
                f"look up the reviewer {name}",
            )
            members = list(matching_members)
            if len(members) != 1:  # several people may have the same nickname
                continue
            uuid = dig(members[0], "user", "uuid")
            if uuid:
                return uuid
        raise ForgeError(
            f"the workspace {workspace} has no member with that name, or more than one",
            hint="specify the person by nickname or account ID",
        )

    def _pages(self, path: str, query: dict[str, Any], what: str) -> Iterator[Any]:
        """Yield the items of a paginated API list.

        Raises `ForgeError` if the next page is on another server, which must not receive the token.
        """
        address = path
        params: dict[str, Any] | None = query
        for _page in range(_PAGES):
            response = self._client.json("GET", address, what, params=params)
            yield from elements(response, "values")
            address = dig(response, "next")
            params = None  # the URL of the next page includes the query
            if not address:
                return
            if origin(address) != origin(self.place.api):
                raise ForgeError(
                    f"{self.place.host} returned a next-page link to {origin(address)}: could not"
                    f" {what}",
                    hint="check the Git host in --forge or the URL",
                )


class CloudComments(Comments):
    """Comments on Bitbucket Cloud pull requests. Only the author can edit a comment."""

    connect = CloudClient
    needs = COMMENTS_NEED

    def marked(self, request: str, mark: str) -> Iterator[Comment]:
        """Yield a pull request's comments that contain the mark (a hidden line), newest first."""
        for page in range(1, COMMENT_PAGES + 1):
            response = self._client.json(
                "GET",
                self._comments(request),
                "find the comment",
                params={"sort": "-created_on", "pagelen": COMMENT_PAGE, "page": page},
            )
            for comment in mappings(response, "values"):
                body = dig(comment, "content", "raw")
                if not comment.get("deleted") and self.holds(body, mark):
                    yield Comment(
                        number=dig(comment, "id"),
                        body=body,
                        url=dig(comment, "links", "html", "href"),
                    )
            if not dig(response, "next"):  # the last page
                return

    def add(self, request: str, body: str) -> str:
        """Add a comment to a pull request, and return its URL."""
        text = {"content": {"raw": body}}
        response = self._client.json("POST", self._comments(request), "post the comment", json=text)
        return dig(response, "links", "html", "href")

    def change(self, request: str, comment: Comment, body: str) -> str | None:
        """Change a comment's text, and return the comment's URL. If someone else wrote it, return
        None.
        """
        answer = self._client.ask(
            "PUT",
            f"{self._comments(request)}/{path_part(comment.number)}",
            "edit the comment",
            json={"content": {"raw": body}},
            expected=(403,),
            repeatable=True,
        )
        return None if answer.status == 403 else comment.url

    def _comments(self, request: str) -> str:
        return f"{self._path}/pullrequests/{path_part(request)}/comments"


def _query_string(text: str) -> str:
    """Return the value as a string literal in Bitbucket's query language."""
    inner = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inner}"'


def _place(remote: RemoteUrl, root: str) -> ForgeAddress:
    """Return a repository's address on Bitbucket, without the host. `remote` contains the parts of
    the repository's URL, and `root` is the root URL of the host's web pages.
    """
    if len(remote.parts) != 2:
        raise no_repository_error("Bitbucket", "https://bitbucket.org/workspace/repository")
    return ForgeAddress(
        forge="bitbucket",
        host="",
        api="https://api.bitbucket.org/2.0",
        project=remote.parts,
        web=web_below(root, remote.parts),
    )


KIND = ForgeKind(
    name="bitbucket",
    aliases=("bitbucket-cloud",),
    hosts=("bitbucket.org",),
    client=BitbucketCloud,
    place=_place,
    comments=CloudComments,
    commit="{0}/commits/{1}",
    compare="{0}/branches/compare/{2}%0D{1}",
)
