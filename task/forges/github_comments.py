"""Comments on GitHub's pull requests. GraphQL finds ours, as REST does not tell whose token it is; REST writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from task.errors import RepositoryError
from task.forges.client import Client, dig
from task.forges.github_merge import graphql
from task.forges.host import PAGES, Comment, holds
from task.http import Response
from task.plain_data import mappings

NEEDS = (
    'give the token "Pull requests: write" (a classic token: repo); in GitHub Actions, permissions: '
    "pull-requests: write. A run for a fork's pull request gets a token that may only read"
)
QUERY = (
    "query($owner: String!, $name: String!, $number: Int!, $before: String) "
    "{ repository(owner: $owner, name: $name) { pullRequest(number: $number) "
    "{ comments(last: 100, before: $before) { pageInfo { hasPreviousPage startCursor } "
    "nodes { fullDatabaseId body url viewerDidAuthor } } } } }"
)
_LOOK = "look for the comment"


class GitHubComments:
    """The comments on pull requests of one repository."""

    def __init__(self, client: Client, path: str) -> None:
        self._client, self._path = client, path

    def marked(self, request: str, mark: str) -> Iterator[Comment]:
        """As `CommentApi.marked`."""
        for page in self._pages(request):
            for one in reversed(mappings(page.get("nodes"))):
                if one.get("viewerDidAuthor") is True and holds(dig(one, "body"), mark):
                    yield Comment(dig(one, "fullDatabaseId"), dig(one, "body"), dig(one, "url"))

    def add(self, request: str, body: str) -> str:
        """As `CommentApi.add`."""
        path = f"{self._path}/issues/{request}/comments"
        return dig(self._client.json("POST", path, "write the comment", json={"body": body}), "html_url")

    def change(self, request: str, comment: Comment, body: str) -> str:  # noqa: ARG002 - GitHub numbers all of them
        """As `CommentApi.change`."""
        path = f"{self._path}/issues/comments/{comment.number}"
        said = self._client.json("PATCH", path, "edit the comment", json={"body": body}, again=True)
        return dig(said, "html_url")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _pages(self, request: str) -> Iterator[Mapping[str, Any]]:
        """Return the newest hundred comments, then those before them."""
        owner, name = self._client.reach.place.project
        where = graphql(self._client.reach.place.api)
        before: str | None = None
        for _page in range(PAGES):
            variables = {"owner": owner, "name": name, "number": int(request), "before": before}
            body = {"query": QUERY, "variables": variables}
            comments = self._comments(self._client.ask("POST", where, _LOOK, json=body, again=True))
            yield comments
            before = dig(comments, "pageInfo", "startCursor")
            if comments["pageInfo"]["hasPreviousPage"] is not True or not before:
                return

    def _comments(self, answer: Response) -> Mapping[str, Any]:
        """Return the data of a GraphQL answer, which has status 200 even for an error."""
        said = self._client.parsed(answer, _LOOK)
        if pull := ((said.get("data") or {}).get("repository") or {}).get("pullRequest"):
            return pull["comments"]  # type: ignore[no-any-return]
        words = self._client.words(answer) or "it does not say why"
        raise RepositoryError(f"GitHub does not show the pull request: could not {_LOOK}: {words}", hint=NEEDS)
