"""One comment on a pull request, which is found by its mark and edited, so that it is never repeated."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

STAYS = "the plan is made; running it again writes the comment"
PAGES = 5  # of a hundred comments each, newest first; older comments are not searched


class NotOursError(Exception):
    """The comment belongs to somebody else, and only its author may edit it. Never leaves `put`."""


@dataclass(frozen=True)
class Comment:
    """A comment on the forge."""

    number: str  # its id there
    body: str
    url: str
    version: int = 0  # needed if a change has to name the version that it changes


class CommentApi(Protocol):
    """The comments on pull requests of one repository."""

    def marked(self, request: str, mark: str) -> Iterable[Comment]:
        """Return the comments on that request that have the mark, newest first, and only ours if the forge can tell."""

    def add(self, request: str, body: str) -> str:
        """Add a comment, and return its URL."""

    def change(self, request: str, comment: Comment, body: str) -> str:
        """Change the text of a comment, and return its URL. Raises `NotOursError` if it is somebody else's."""

    def close(self) -> None:
        """Close the connections."""


def put(api: CommentApi, request: str, mark: str, body: str) -> str:
    """Write our comment with that mark, or replace its text if it exists. Return its URL."""
    for found in api.marked(request, mark):
        if _plain(found.body) == _plain(body):
            return found.url
        with suppress(NotOursError):
            return api.change(request, found, body)
    return api.add(request, body)


def holds(body: str, mark: str) -> bool:
    """Tell whether a line of the text is the mark."""
    return mark in _plain(body)


def _plain(body: str) -> list[str]:
    """Return the lines without trailing white space, because forges change line ends."""
    return [line.rstrip() for line in body.strip().splitlines()]
