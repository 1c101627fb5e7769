"""Comments on pull requests of Gitea and Forgejo."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from task.forges.client import Client, dig
from task.forges.host import Comment, holds
from task.plain_data import mappings

NEEDS = "give a token with write:issue and read:user, of a user who may write to the repository"


class GiteaComments:
    """The comments on pull requests of one repository."""

    def __init__(self, client: Client, path: str) -> None:
        self._client, self._path = client, path

    def marked(self, request: str, mark: str) -> Iterator[Comment]:
        """As `CommentApi.marked`. Gitea gives all comments at once, the oldest first."""
        path = f"{self._path}/issues/{request}/comments"
        for one in reversed(mappings(self._client.json("GET", path, "look for the comment"))):
            if holds(dig(one, "body"), mark) and dig(one, "user", "id") == self._me:
                yield Comment(dig(one, "id"), dig(one, "body"), dig(one, "html_url"))

    def add(self, request: str, body: str) -> str:
        """As `CommentApi.add`."""
        path = f"{self._path}/issues/{request}/comments"
        return dig(self._client.json("POST", path, "write the comment", json={"body": body}), "html_url")

    def change(self, request: str, comment: Comment, body: str) -> str:  # noqa: ARG002 - Gitea numbers all of them
        """As `CommentApi.change`."""
        path = f"{self._path}/issues/comments/{comment.number}"
        said = self._client.json("PATCH", path, "edit the comment", json={"body": body}, again=True)
        return dig(said, "html_url")

    def close(self) -> None:
        """Connections are closed."""
        self._client.close()

    @cached_property
    def _me(self) -> str:
        return dig(self._client.json("GET", "/user", "see whose the API token is"), "id")
