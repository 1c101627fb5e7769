"""Comments on GitLab's merge requests, which its API calls notes (docs.gitlab.com/api/notes)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from task.forges.client import Client, dig
from task.forges.host import PAGES, Comment, holds
from task.plain_data import mappings

NEEDS = (
    "give a personal, project or group access token with scope api and role Reporter "
    "(a job token, CI_JOB_TOKEN, cannot write comments; a pipeline of a fork does not get protected variables)"
)
_SIZE = 100


class GitLabComments:
    """The comments on merge requests of one project."""

    def __init__(self, client: Client, path: str) -> None:
        self._client, self._path = client, path

    def marked(self, request: str, mark: str) -> Iterator[Comment]:
        """As `CommentApi.marked`."""
        params = {"order_by": "created_at", "sort": "desc", "per_page": _SIZE}
        for page in range(1, PAGES + 1):
            what = "look for the comment"
            found = mappings(self._client.json("GET", self._notes(request), what, params={**params, "page": page}))
            for one in found:
                if holds(dig(one, "body"), mark) and dig(one, "author", "id") == self._me:
                    yield Comment(dig(one, "id"), dig(one, "body"), self._page(request, dig(one, "id")))
            if len(found) < _SIZE:
                break

    def add(self, request: str, body: str) -> str:
        """As `CommentApi.add`."""
        said = self._client.json("POST", self._notes(request), "write the comment", json={"body": body})
        return self._page(request, dig(said, "id"))

    def change(self, request: str, comment: Comment, body: str) -> str:
        """As `CommentApi.change`."""
        path = f"{self._notes(request)}/{comment.number}"
        self._client.ask("PUT", path, "edit the comment", json={"body": body}, again=True)
        return comment.url

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    @cached_property
    def _me(self) -> str:
        return dig(self._client.json("GET", "/user", "see whose the API token is"), "id")

    def _notes(self, request: str) -> str:
        return f"{self._path}/merge_requests/{request}/notes"

    def _page(self, request: str, number: str) -> str:
        """Return the page of a comment, which GitLab's answers do not have."""
        return f"{self._client.reach.place.web}/-/merge_requests/{request}#note_{number}"
