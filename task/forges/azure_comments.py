"""Comments on Azure DevOps' pull requests. Each begins a thread, and only its author may edit it."""

from __future__ import annotations

from collections.abc import Iterator

from task.forges.client import Client, dig, listed
from task.forges.host import Comment, NotOursError, holds
from task.plain_data import mappings
from task.urls import path_part

_TEXT, _CLOSED = 1, 4  # of CommentType and CommentThreadStatus; a policy may require that all open threads are resolved


class AzureComments:
    """The comments on pull requests of one repository."""

    def __init__(self, client: Client) -> None:
        self._client = client
        _organization, project, repository = map(path_part, client.reach.place.project)
        self._path = f"/{project}/_apis/git/repositories/{repository}/pullRequests"

    def marked(self, request: str, mark: str) -> Iterator[Comment]:
        """As `CommentApi.marked`. Azure returns all threads at once, oldest first."""
        said = self._client.json("GET", self._threads(request), "look for the comment")
        for thread in reversed(mappings(listed(said, "value"))):
            for one in mappings(thread.get("comments"))[:1]:
                if not one.get("isDeleted") and holds(dig(one, "content"), mark):
                    number = f"{dig(thread, 'id')}/comments/{dig(one, 'id')}"
                    yield Comment(number, dig(one, "content"), self._page(request, dig(thread, "id")))

    def add(self, request: str, body: str) -> str:
        """As `CommentApi.add`."""
        thread = {"comments": [{"parentCommentId": 0, "content": body, "commentType": _TEXT}], "status": _CLOSED}
        said = self._client.json("POST", self._threads(request), "write the comment", json=thread)
        return self._page(request, dig(said, "id"))

    def change(self, request: str, comment: Comment, body: str) -> str:
        """As `CommentApi.change`."""
        path, text = f"{self._threads(request)}/{comment.number}", {"content": body}
        answer = self._client.ask("PATCH", path, "edit the comment", json=text, fine=(403,), again=True)
        if answer.status == 403:
            raise NotOursError
        return comment.url

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _threads(self, request: str) -> str:
        return f"{self._path}/{path_part(request)}/threads"

    def _page(self, request: str, thread: str) -> str:
        """Return the page of a comment. Azure's answers have only the address in its API."""
        return f"{self._client.reach.place.web}/pullrequest/{request}?discussionId={thread}"
