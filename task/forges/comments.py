"""One comment on a pull request: found by its mark and edited, so that it is never repeated.

Only a comment of the token's own user counts: anybody may copy a mark. On GitHub, GitLab and Gitea, who may write to a
repository may edit the comments of others, so whose a comment is has to be known before. Elsewhere only its author may.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

STAYS = "the plan is made; running it again writes the comment"
PAGES = 5  # of a hundred comments each, the newest first: what lies behind them is not looked for


class NotOursError(Exception):
    """Only its author may edit a comment, and that is somebody else. Never leaves `put`."""


@dataclass(frozen=True)
class Comment:
    """A comment as the forge has it."""

    number: str  # its id there
    body: str
    url: str
    version: int = 0  # where a change has to name the version that it changes


class CommentApi(Protocol):
    """The comments on pull requests of one repository."""

    def marked(self, request: str, mark: str) -> Iterable[Comment]:
        """The comments on that request that hold the mark, the newest first: ours, as far as the forge tells."""

    def add(self, request: str, body: str) -> str:
        """A new comment; its page."""

    def change(self, request: str, comment: Comment, body: str) -> str:
        """Give a comment another text; its page. Raises `NotOursError` if it is somebody else's."""

    def close(self) -> None:
        """Connections are closed."""


def put(api: CommentApi, request: str, mark: str, body: str) -> str:
    """Our comment with that mark has this text, whether it was there or not; its page."""
    for found in api.marked(request, mark):
        if _plain(found.body) == _plain(body):
            return found.url
        with suppress(NotOursError):
            return api.change(request, found, body)
    return api.add(request, body)


def holds(body: str, mark: str) -> bool:
    """Whether a line of the text is the mark."""
    return mark in _plain(body)


def _plain(body: str) -> list[str]:
    """Its lines: forges change line ends and drop white space at an end."""
    return [line.rstrip() for line in body.strip().splitlines()]
