"""Comments on Bitbucket's pull requests, Cloud and Data Center. Only its author may edit a comment."""

from __future__ import annotations

from collections.abc import Iterator

from task.forges.client import Client, dig, listed
from task.forges.host import Comment, NotOursError, holds
from task.plain_data import mappings
from task.urls import path_part

NEEDS = "give the token the permission to read the repository and to write to its pull requests"
_SIZE, _PAGES = 50, 10
_LOOK, _WRITE, _EDIT = "look for the comment", "write the comment", "edit the comment"
_REFUSED = (401, 403)


class CloudComments:
    """The comments on pull requests of one repository on bitbucket.org."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._path = f"/repositories/{'/'.join(map(path_part, client.reach.place.project))}/pullrequests"

    def marked(self, request: str, mark: str) -> Iterator[Comment]:
        """As `CommentApi.marked`."""
        params = {"sort": "-created_on", "pagelen": _SIZE}
        for page in range(1, _PAGES + 1):
            said = self._client.json("GET", self._comments(request), _LOOK, params={**params, "page": page})
            for one in mappings(listed(said, "values")):
                if not one.get("deleted") and holds(dig(one, "content", "raw"), mark):
                    yield Comment(dig(one, "id"), dig(one, "content", "raw"), dig(one, "links", "html", "href"))
            if not dig(said, "next"):
                return

    def add(self, request: str, body: str) -> str:
        """As `CommentApi.add`."""
        said = self._client.json("POST", self._comments(request), _WRITE, json={"content": {"raw": body}})
        return dig(said, "links", "html", "href")

    def change(self, request: str, comment: Comment, body: str) -> str:
        """As `CommentApi.change`."""
        path, text = f"{self._comments(request)}/{path_part(comment.number)}", {"content": {"raw": body}}
        answer = self._client.ask("PUT", path, _EDIT, json=text, fine=(403,), again=True)
        if answer.status == 403:
            raise NotOursError
        return comment.url

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _comments(self, request: str) -> str:
        return f"{self._path}/{path_part(request)}/comments"


class DataCenterComments:
    """The comments on pull requests of one repository on Bitbucket Data Center."""

    def __init__(self, client: Client) -> None:
        self._client = client
        key, slug = map(path_part, client.reach.place.project)
        self._path = f"/projects/{key}/repos/{slug}/pull-requests"

    def marked(self, request: str, mark: str) -> Iterator[Comment]:
        """As `CommentApi.marked`. Comments are part of a request's activities, newest first."""
        start = "0"
        for _page in range(_PAGES):
            params = {"start": start, "limit": _SIZE}
            said = self._client.json("GET", f"{self._path}/{path_part(request)}/activities", _LOOK, params=params)
            for one in mappings(listed(said, "values")):
                if dig(one, "action") == "COMMENTED" and holds(dig(one, "comment", "text"), mark):
                    number, version = dig(one, "comment", "id"), int(dig(one, "comment", "version") or 0)
                    yield Comment(number, dig(one, "comment", "text"), self._page(request, number), version)
            start = dig(said, "nextPageStart")
            if not start:
                return

    def add(self, request: str, body: str) -> str:
        """As `CommentApi.add`."""
        path = f"{self._path}/{path_part(request)}/comments"
        return self._page(request, dig(self._client.json("POST", path, _WRITE, json={"text": body}), "id"))

    def change(self, request: str, comment: Comment, body: str) -> str:
        """As `CommentApi.change`."""
        path = f"{self._path}/{path_part(request)}/comments/{path_part(comment.number)}"
        text = {"text": body, "version": comment.version}
        answer = self._client.ask("PUT", path, _EDIT, json=text, fine=_REFUSED)
        if answer.status in _REFUSED:
            raise NotOursError
        return comment.url

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _page(self, request: str, number: str) -> str:
        """Return the page of a comment, which Bitbucket's answers do not have."""
        return f"{self._client.reach.place.web}/pull-requests/{request}/overview?commentId={number}"
