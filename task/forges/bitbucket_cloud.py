"""Bitbucket Cloud (REST API 2.0): no labels, no assignees, and no way to have it merge on its own.

developer.atlassian.com/cloud/bitbucket/rest/api-group-pullrequests. Two things are unlike other
forges: a list shows no reviewers, and opening a second request for a branch is not an error, but
gives the open one the new title.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar
from urllib.parse import quote

from task.errors import ForgeError, Outpaced, TaskError
from task.forges.client import Client, ForgeAddress, Reach, names_none, numbered, web_below
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
from task.forges.proposal import described, same
from task.forges.protection import listed, open_on_bitbucket_cloud
from task.git.hosts import RemoteUrl
from task.http import Response, basic, bearer
from task.model import Proposal, Proposed
from task.plain_data import dig, elements, mappings
from task.retry import until
from task.urls import origin, path_part

BARE = "x-token-auth"  # Git's user name for the token of a project, repository or workspace
# What Bitbucket Cloud and Data Center both lack, for people.
WITHOUT = {
    "labels": "Bitbucket has no labels on pull requests",
    "assignees": "Bitbucket has no assignees on pull requests: name them as reviewers",
}
COMMENTS_NEED = (
    "give the token the permission to read the repository and to write to its pull requests"
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
    """A client of either Bitbucket's API."""

    def login(self) -> Mapping[str, str]:
        """Like `Client.login`: an access token alone, or a user name with a password or token."""
        token = self.reach.token
        return bearer(token.secret) if token.user in ("", BARE) else basic(token.user, token.secret)


class CloudClient(BitbucketClient):
    """Bitbucket answers 401 to a bare token that needs a user name, so the hint says so."""

    repository = "/repositories/{}/{}"
    page = ("links", "html", "href")

    def refused(self, answer: Response, what: str) -> TaskError:
        """Like `Client.refused`."""
        error = super().refused(answer, what)
        if answer.status != 401:
            return error
        hint = (
            f"{error.hint}; an access token needs no user name; an API token (ATATT…) needs its"
            " account's e-mail address as --forge-username"
        )
        return type(error)(error.message, hint=hint, subject=error.subject)


class BitbucketCloud(Host):
    """One repository on bitbucket.org."""

    connect = CloudClient
    needs = (
        "give the token write access to pull requests (scopes read:pullrequest and"
        " write:pullrequest)"
    )
    without: ClassVar[Mapping[str, str]] = WITHOUT | {
        "auto_merge": ("Bitbucket Cloud's API cannot turn on auto-merge: a person has to do that")
    }

    def __init__(self, reach: Reach) -> None:
        super().__init__(reach)
        self._name = "/".join(reach.place.project).lower()

    def newest(self, base: str, head: str) -> Proposed | None:
        """Like `Host.newest`.

        The name is part of the question: under a new name, it is asked again.
        """
        found = self._requests(base, head)
        moved = "/".join(self._client.moved_to.split("/")[-2:]).lower()
        if not found and moved and moved != self._name:
            self._name = moved
            found = self._requests(base, head)
        is_open = (item for item in found if dig(item, "state") == "OPEN")
        newest = next(is_open, found[0] if found else None)
        return self.proposed(newest) if newest else None

    def _requests(self, base: str, head: str) -> list[Any]:
        """Return the requests of this head, newest first."""
        terms = (  # without a state, Bitbucket lists only open ones
            f"source.repository.full_name = {_query_string(self._name)}",
            f"source.branch.name = {_query_string(head)}",
            f"destination.branch.name = {_query_string(base)}",
            f"({' OR '.join(f'state = {_query_string(state)}' for state in _STATES)})",
        )
        query = {
            "q": " AND ".join(terms),
            "sort": "-created_on",
            "pagelen": _PAGE,
        }
        what = f"look for the pull request of {head}"
        found = self._client.json("GET", f"{self._path}/pullrequests", what, params=query)
        return [
            element
            for element in elements(found, "values")
            if dig(element, "source", "repository", "full_name").lower() == self._name
            and self.branches(element) == (base, head)
        ]

    def checked(self, number: str) -> Proposed:
        """Like `Host.checked`."""
        found = super().checked(number)
        if not found.merge_commit:
            return found
        # a request has only the first twelve digits of the commit
        path = f"{self._path}/commit/{path_part(found.merge_commit)}"
        commit = self._client.json("GET", path, f"read the merge commit of pull request {number}")
        return replace(found, merge_commit=dig(commit, "hash") or found.merge_commit)

    def ask(self, number: str) -> Any:
        """Like `Host.ask`."""
        return self._client.json(
            "GET",
            f"{self._path}/pullrequests/{path_part(number)}",
            f"read pull request {number}",
        )

    def proposed(self, said: Any) -> Proposed:
        """Like `Host.proposed`."""
        state = _STATES.get(dig(said, "state"), "closed")
        body = dig(said, "description")
        # twelve digits of the commit, and all of them
        head = dig(said, "source", "commit", "hash")
        ours = described(body)
        return Proposed(
            url=dig(said, "links", "html", "href"),
            number=numbered(dig(said, "id"), self.place.host),
            state=state,
            title=dig(said, "title"),
            body=body,
            head_commit=ours if head and ours.startswith(head) else head,
            merge_commit=dig(said, "merge_commit", "hash") if state == "merged" else "",
        )

    def branches(self, said: Any) -> tuple[str, str]:
        """Like `Host.branches`."""
        return dig(said, "destination", "branch", "name"), dig(said, "source", "branch", "name")

    def create(self, proposal: Proposal) -> Any:
        """Like `Host.create`. If the branch has a newer commit, the newer run opens the request."""
        if found := self._opened_by_a_newer_build(proposal):
            raise AlreadyThere(found)
        body = {
            "title": proposal.title,
            "description": proposal.body,
            "source": {"branch": {"name": proposal.head}},
            "destination": {"branch": {"name": proposal.base}},
            "close_source_branch": self.ours_to_delete(proposal),
            "draft": proposal.draft,
        }
        what = f"open a pull request from {proposal.head} into {proposal.base}"
        item = self._sent("POST", f"{self._path}/pullrequests", body, what)
        made = self.proposed(item)
        if not same(made, proposal):  # it was open already, so Bitbucket changed only the title
            raise AlreadyThere(made)
        return item

    def change(self, said: Any, title: str, body: str) -> Any:
        """Like `Host.change`."""
        return self._put(said, {"title": title, "description": body})

    def complete(self, said: Any, proposal: Proposal, notes: Notes) -> tuple[Proposed, Any]:
        """Like `Host.complete`.

        Reviewers are added, but never removed. If Bitbucket refuses some, it takes none.
        """
        present = [dig(element, "uuid") for element in elements(said, "reviewers")]
        wanted = list(dict.fromkeys([*present, *self._people(proposal.reviewers, notes)]))
        found = self.proposed(said)
        if wanted != present:
            with notes.tried("no reviewers were added", "reviewer", *proposal.reviewers):
                people = [{"uuid": text} for text in wanted]
                said = self._put(
                    said,
                    {
                        "title": found.title,
                        "description": found.body,
                        "reviewers": people,
                    },
                )
        return self.proposed(said), said

    def shut(self, said: Any, body: str) -> None:
        """Like `Host.shut`."""
        found, _said = self.write(said, dig(said, "title"), body)
        path = f"{self._path}/pullrequests/{path_part(found.number)}/decline"
        self._client.ask("POST", path, f"decline pull request {found.number}")

    def is_open(self, name: str) -> bool:
        """Like `Host.is_open`."""
        path = f"{self._path}/branch-restrictions"
        query = {"kind": "push", "pagelen": 100}
        found = self._client.json("GET", path, "read the branch restrictions", params=query)
        return open_on_bitbucket_cloud(listed(found, "values"), name)

    def tip(self, head: str) -> str:
        """Like `Host.tip`."""
        path = f"{self._path}/refs/branches/{quote(head)}"
        return dig(
            self._client.json("GET", path, f"read the branch {head}", fine=(404,)),
            "target",
            "hash",
        )

    def _opened_by_a_newer_build(self, proposal: Proposal) -> Proposed | None:
        """Return the newer build's request if the branch has moved on.

        Ours would overwrite its text unnoticed.
        """
        ours = described(proposal.body)
        if not ours or (tip := self.tip(proposal.head)) in ("", ours):
            return None
        ask = partial(self.newest, proposal.base, proposal.head)
        found = until(
            lambda request: request is not None and request.state == "open", None, ask, _PAUSES
        )
        return (
            replace(found, head_commit=tip, note=MOVED) if found and found.state == "open" else None
        )

    def _put(self, said: Any, body: dict[str, Any]) -> Any:
        """Change an open request. Raises `Overtaken` if it was merged or declined meanwhile."""
        number = self.proposed(said).number
        path = f"{self._path}/pullrequests/{path_part(number)}"
        what = f"update pull request {number}"
        people = [{"uuid": dig(element, "uuid")} for element in elements(said, "reviewers")]
        try:
            return self._sent("PUT", path, {"reviewers": people, **body}, what)
        except ForgeError:
            if self.proposed(self.ask(number)).state == "open":
                raise
            raise Overtaken from None

    def _sent(self, method: str, path: str, body: dict[str, Any], what: str) -> Any:
        answer = self._client.ask(method, path, what, json=body, fine=(_REFUSED,))
        if answer.status == _REFUSED and b"no changes to be pulled" in answer.body:
            raise Outpaced("the base branch already has everything of the head branch")
        if answer.status == _REFUSED:
            raise self._client.refused(answer, what)
        return self._client.parsed(answer, what)

    def _people(self, names: tuple[str, ...], notes: Notes) -> list[str]:
        """Return the reviewers' UUIDs.

        A name may be a UUID, an account id or a nickname. Unknown ones become notes.
        """
        found = []
        for name in dict.fromkeys(names):
            with notes.tried(f"reviewer {name}", "reviewer", name):
                found.append(name if name.startswith("{") else self._uuid(name))
        return found

    def _uuid(self, name: str) -> str:
        path = f"/workspaces/{path_part(self.place.project[0])}/members"
        what = f"look up the reviewer {name}"
        for field in ("nickname", "account_id"):
            items = list(self._pages(path, {"q": f"user.{field} = {_query_string(name)}"}, what))
            if len(items) == 1 and (uuid := dig(items[0], "user", "uuid")):
                return uuid
        hint = "name the person by nickname or account id"
        raise ForgeError(
            f"the workspace {self.place.project[0]} has no member of that name, or several",
            hint=hint,
        )

    def _pages(self, path: str, query: dict[str, Any], what: str) -> Iterator[Any]:
        """Yield all items, page by page, while the pages come from the same server."""
        params: dict[str, Any] | None = query
        for _page in range(_PAGES):
            answer = self._client.json("GET", path, what, params=params)
            yield from elements(answer, "values")
            path = dig(answer, "next")
            params = None
            if not path:
                return
            if origin(path) != origin(self.place.api):
                message = f"{self.place.host} names a next page on {origin(path)}: could not {what}"
                raise ForgeError(
                    message,
                    hint="check that it is the Git host that --forge or the URL names",
                )


class CloudComments(Comments):
    """Comments on Bitbucket Cloud's pull requests. Only its author may edit a comment."""

    connect = CloudClient
    needs = COMMENTS_NEED

    def marked(self, request: str, mark: str) -> Iterator[Comment]:
        """Like `Comments.marked`."""
        what = "look for the comment"
        params = {"sort": "-created_on", "pagelen": COMMENT_PAGE}
        for page in range(1, COMMENT_PAGES + 1):
            said = self._client.json(
                "GET",
                self._comments(request),
                what,
                params={**params, "page": page},
            )
            for mapping in mappings(said, "values"):
                if not mapping.get("deleted") and self.holds(dig(mapping, "content", "raw"), mark):
                    yield Comment(
                        dig(mapping, "id"),
                        dig(mapping, "content", "raw"),
                        dig(mapping, "links", "html", "href"),
                    )
            if not dig(said, "next"):
                return

    def add(self, request: str, body: str) -> str:
        """Like `Comments.add`."""
        text = {"content": {"raw": body}}
        said = self._client.json("POST", self._comments(request), "write the comment", json=text)
        return dig(said, "links", "html", "href")

    def change(self, request: str, comment: Comment, body: str) -> str | None:
        """Like `Comments.change`."""
        path = f"{self._comments(request)}/{path_part(comment.number)}"
        text = {"content": {"raw": body}}
        answer = self._client.ask(
            "PUT",
            path,
            "edit the comment",
            json=text,
            fine=(403,),
            again=True,
        )
        return None if answer.status == 403 else comment.url

    def _comments(self, request: str) -> str:
        return f"{self._path}/pullrequests/{path_part(request)}/comments"


def _query_string(text: str) -> str:
    """Return any text as a string of Bitbucket's query language."""
    inner = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inner}"'


def _place(remote: RemoteUrl, root: str) -> ForgeAddress:
    if len(remote.parts) != 2:
        raise names_none("Bitbucket", "https://bitbucket.org/workspace/repository")
    return ForgeAddress(
        "bitbucket",
        "",
        "https://api.bitbucket.org/2.0",
        remote.parts,
        web_below(root, remote.parts),
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
