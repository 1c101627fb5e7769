"""Bitbucket Cloud (REST API 2.0): no labels, no assignees, and no way to have it merge by itself.

developer.atlassian.com/cloud/bitbucket/rest/api-group-pullrequests. Two things are unlike other forges: a list shows
no reviewers, and opening a second request for a branch is no error, but gives the open one the new title.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import quote

from task.errors import ForgeError, Outpaced, TaskError
from task.forges import bitbucket_comments
from task.forges.bitbucket import WITHOUT, login
from task.forges.client import PAIR, Client, ForgeAddress, Reach, dig, listed, names_none, numbered, web_below
from task.forges.host import (
    COMMENTS_STAY,
    MOVED,
    AlreadyThere,
    ForgeKind,
    Host,
    Notes,
    Overtaken,
    ours_to_delete,
    tried,
)
from task.forges.marks import described
from task.forges.proposal import LONGEST_BODY, same
from task.git.hosts import RemoteUrl
from task.http import Response
from task.model import Proposal, Proposed
from task.retry import until
from task.urls import origin, path_part

_NEEDS = "give the token write access to pull requests (scopes read:pullrequest and write:pullrequest)"
_LOGIN = (
    "an access token needs no user name; an API token (ATATT…) needs its account's e-mail address as --forge-username"
)
_NO_AUTO_MERGE = "Bitbucket Cloud's API cannot make a pull request merge by itself: a person has to choose that"
_STATES: dict[str, Any] = {"OPEN": "open", "MERGED": "merged", "DECLINED": "closed", "SUPERSEDED": "closed"}
_PAGE, _PAGES = 20, 20
_PAUSES = (0.3, 0.7, 1.0)
_REFUSED, _GONE = 400, 404


class BitbucketCloud(Host):
    """One repository on bitbucket.org."""

    longest = LONGEST_BODY["bitbucket"]
    without = WITHOUT | {"auto_merge": _NO_AUTO_MERGE}

    def __init__(self, reach: Reach) -> None:
        """Contact nobody yet."""
        self._client = _CloudClient(reach, lambda: login(reach.token), _NEEDS)
        self._host = reach.place.host
        self._workspace, slug = reach.place.project
        self._base = f"/repositories/{path_part(self._workspace)}/{path_part(slug)}"
        self._name = f"{self._workspace}/{slug}".lower()

    def find(self, base: str, head: str) -> Proposed | None:
        """As `ForgeApi.find`."""
        terms = (  # without a state, Bitbucket lists only open ones
            f"source.repository.full_name = {_literal(self._name)}",
            f"source.branch.name = {_literal(head)}",
            f"destination.branch.name = {_literal(base)}",
            f"({' OR '.join(f'state = {_literal(state)}' for state in _STATES)})",
        )
        query = {"q": " AND ".join(terms), "sort": "-created_on", "pagelen": _PAGE}
        what = f"look for the pull request of {head}"
        found = listed(self._client.json("GET", f"{self._base}/pullrequests", what, params=query), "values")
        ours = [one for one in found if dig(one, "source", "repository", "full_name").lower() == self._name]
        newest = next((one for one in ours if dig(one, "state") == "OPEN"), ours[0] if ours else None)
        return self._proposed(newest) if newest else None

    def state(self, number: str) -> Proposed:
        """As `ForgeApi.state`."""
        found = self._proposed(self._read(number))
        if not found.merge_commit:
            return found
        # a request has only the first twelve digits of the commit
        path = f"{self._base}/commit/{path_part(found.merge_commit)}"
        commit = self._client.json("GET", path, f"read the merge commit of pull request {number}")
        return replace(found, merge_commit=dig(commit, "hash") or found.merge_commit)

    def close(self) -> None:
        """As `ForgeApi.close`."""
        self._client.close()

    def create(self, proposal: Proposal) -> tuple[Proposed, Any]:
        """As `Host.create`. If the branch has a newer commit, the newer run opens the request."""
        if found := self._opened_by_a_newer_build(proposal):
            raise AlreadyThere(found)
        body = {
            "title": proposal.title,
            "description": proposal.body,
            "source": {"branch": {"name": proposal.head}},
            "destination": {"branch": {"name": proposal.base}},
            "close_source_branch": ours_to_delete(proposal.head),
            "draft": proposal.draft,
        }
        what = f"open a pull request from {proposal.head} into {proposal.base}"
        item = self._sent("POST", f"{self._base}/pullrequests", body, what)
        made = self._proposed(item)
        if not same(made, proposal):  # it was open already, so Bitbucket changed only the title
            raise AlreadyThere(made)
        return made, item

    def read(self, number: str) -> tuple[Proposed, Any]:
        """As `Host.read`."""
        item = self._read(number)
        return self._proposed(item), item

    def write(self, said: Any, title: str, body: str) -> tuple[Proposed, Any]:
        """As `Host.write`."""
        return self._put(said, {"title": title, "description": body})

    def complete(self, said: Any, proposal: Proposal, notes: Notes) -> tuple[Proposed, Any]:
        """As `Host.complete`. Reviewers are added, but never removed. If Bitbucket refuses some, it takes none."""
        present = [dig(one, "uuid") for one in listed(said, "reviewers")]
        wanted = list(dict.fromkeys([*present, *self._people(proposal.reviewers, notes)]))
        found = self._proposed(said)
        if wanted != present:
            with tried(notes, "no reviewers were added", "reviewer", *proposal.reviewers):
                people = [{"uuid": one} for one in wanted]
                return self._put(said, {"title": found.title, "description": found.body, "reviewers": people})
        return found, said

    def shut(self, said: Any, body: str) -> None:
        """As `Host.shut`."""
        found, _said = self.write(said, dig(said, "title"), body)
        path = f"{self._base}/pullrequests/{path_part(found.number)}/decline"
        self._client.ask("POST", path, f"decline pull request {found.number}")

    def tip(self, head: str) -> str:
        """As `Host.tip`."""
        path = f"{self._base}/refs/branches/{quote(head)}"
        what = f"read the branch {head}"
        answer = self._client.ask("GET", path, what, fine=(404,))
        return dig(self._client.parsed(answer, what), "target", "hash") if answer.status != _GONE else ""

    def _opened_by_a_newer_build(self, proposal: Proposal) -> Proposed | None:
        """Return the newer build's request if the branch has moved on. Ours would overwrite its text unnoticed."""
        ours = described(proposal.body)
        if not ours or (tip := self.tip(proposal.head)) in ("", ours):
            return None
        ask = partial(self.find, proposal.base, proposal.head)
        found = until(lambda one: one is not None and one.state == "open", None, ask, _PAUSES)
        return replace(found, head_commit=tip, note=MOVED) if found and found.state == "open" else None

    def _put(self, said: Any, body: dict[str, Any]) -> tuple[Proposed, Any]:
        """Change an open request. Raises `Overtaken` if it was merged or declined meanwhile."""
        number = self._proposed(said).number
        path, what = f"{self._base}/pullrequests/{path_part(number)}", f"update pull request {number}"
        people = [{"uuid": dig(one, "uuid")} for one in listed(said, "reviewers")]
        try:
            item = self._sent("PUT", path, {"reviewers": people, **body}, what)
        except ForgeError:
            if self._proposed(self._read(number)).state == "open":
                raise
            raise Overtaken from None
        return self._proposed(item), item

    def _sent(self, method: str, path: str, body: dict[str, Any], what: str) -> Any:
        answer = self._client.ask(method, path, what, json=body, fine=(_REFUSED,))
        if answer.status == _REFUSED and b"no changes to be pulled" in answer.body:
            raise Outpaced("the base branch holds all of the head branch by now")
        if answer.status == _REFUSED:
            raise self._client.refused(answer, what)
        return self._client.parsed(answer, what)

    def _people(self, names: tuple[str, ...], notes: Notes) -> list[str]:
        """Return the reviewers' UUIDs. A name may be a UUID, an account id or a nickname. Unknown ones become notes."""
        found = []
        for name in dict.fromkeys(names):
            with tried(notes, f"reviewer {name}", "reviewer", name):
                found.append(name if name.startswith("{") else self._uuid(name))
        return found

    def _uuid(self, name: str) -> str:
        path, what = f"/workspaces/{path_part(self._workspace)}/members", f"look up the reviewer {name}"
        for field in ("nickname", "account_id"):
            items = list(self._pages(path, {"q": f"user.{field} = {_literal(name)}"}, what))
            if len(items) == 1 and (uuid := dig(items[0], "user", "uuid")):
                return uuid
        hint = "name the person by nickname or account id"
        raise ForgeError(f"the workspace {self._workspace} has no member, or several, of that name", hint=hint)

    def _pages(self, path: str, query: dict[str, Any], what: str) -> Iterator[Any]:
        """Yield all items, page by page, while the pages come from the same server."""
        params: dict[str, Any] | None = query
        for _page in range(_PAGES):
            answer = self._client.json("GET", path, what, params=params)
            yield from listed(answer, "values")
            path, params = dig(answer, "next"), None
            if not path:
                return
            if origin(path) != origin(self._client.reach.place.api):
                message = f"{self._host} names a next page on {origin(path)}: could not {what}"
                raise ForgeError(message, hint="check that it is the Git host that --forge or the URL names")

    def _read(self, number: str) -> Any:
        return self._client.json("GET", f"{self._base}/pullrequests/{path_part(number)}", f"read pull request {number}")

    def _proposed(self, item: Any) -> Proposed:
        state, body = _STATES.get(dig(item, "state"), "closed"), dig(item, "description")
        # twelve digits of the commit, and all of them
        head, ours = dig(item, "source", "commit", "hash"), described(body)
        return Proposed(
            url=dig(item, "links", "html", "href"),
            number=numbered(dig(item, "id"), self._host),
            state=state,
            title=dig(item, "title"),
            body=body,
            head_commit=ours if head and ours.startswith(head) else head,
            merge_commit=dig(item, "merge_commit", "hash") if state == "merged" else "",
        )


class _CloudClient(Client):
    """Bitbucket answers 401 to a bare token that needs a user name, so the hint says so."""

    def refused(self, answer: Response, what: str) -> TaskError:
        error = super().refused(answer, what)
        if answer.status == 401:
            return type(error)(error.message, hint=f"{error.hint}; {_LOGIN}", subject=error.subject)
        return error


def _literal(text: str) -> str:
    """Return any text as a string of Bitbucket's query language."""
    inner = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inner}"'


def _place(remote: RemoteUrl, root: str) -> ForgeAddress:
    if len(remote.parts) != PAIR:
        raise names_none("Bitbucket", "https://bitbucket.org/workspace/repository")
    return ForgeAddress("bitbucket", "", "https://api.bitbucket.org/2.0", remote.parts, web_below(root, remote.parts))


KIND = ForgeKind(
    name="bitbucket",
    aliases=("bitbucket-cloud",),
    hosts=("bitbucket.org",),
    client=BitbucketCloud,
    place=_place,
    comments=lambda reach: bitbucket_comments.CloudComments(
        _CloudClient(reach, lambda: login(reach.token), bitbucket_comments.NEEDS, stays=COMMENTS_STAY)
    ),
    commit="{0}/commits/{1}",
    compare="{0}/branches/compare/{2}%0D{1}",
)
