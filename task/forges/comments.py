"""One comment on a pull request: found by its mark and edited, so that it is never repeated.

Only a comment of the token's own user counts. Anybody may copy a mark, and who may write to a repository may edit the
comments of others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

STAYS = "the plan is made; running it again writes the comment"
PAGES = 5  # of a hundred comments each, the newest first: what lies behind them is not looked for


@dataclass(frozen=True)
class Comment:
    """A comment as the forge has it."""

    number: str  # its id there
    body: str
    url: str


class CommentApi(Protocol):
    """The comments on pull requests of one repository."""

    def find(self, request: str, mark: str) -> Comment | None:
        """Our newest comment on that request that holds the mark."""

    def add(self, request: str, body: str) -> str:
        """A new comment; its page."""

    def change(self, request: str, comment: Comment, body: str) -> str:
        """Give a comment another text; its page."""

    def close(self) -> None:
        """Connections are closed."""


def put(api: CommentApi, request: str, mark: str, body: str) -> str:
    """Our comment with that mark has this text, whether it was there or not; its page."""
    found = api.find(request, mark)
    if found is None:
        return api.add(request, body)
    if _plain(found.body) == _plain(body):
        return found.url
    return api.change(request, found, body)


def marked(body: str, mark: str) -> bool:
    """Whether a line of the text is the mark."""
    return mark in _plain(body)


def _plain(body: str) -> list[str]:
    """Its lines: forges change line ends and drop white space at an end."""
    return [line.rstrip() for line in body.strip().splitlines()]
