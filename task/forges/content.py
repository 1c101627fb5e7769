"""Cuts texts to a forge's limits, and reads fields of its answers, any of which may be missing."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import replace
from itertools import accumulate
from typing import Any
from unicodedata import east_asian_width

from task.errors import UnreachableError
from task.forges.marks import (
    TITLE,
    beside,
    described,
    digest,
    renamed,
    settled,
    split,
    value_of,
    with_mark,
    with_settled,
)
from task.forges.proposal import LONGEST_TITLE
from task.git.names import OURS
from task.model import Proposal, Proposed
from task.urls import web_page

_COMMIT = re.compile("[0-9A-Fa-f]{7,64}")  # Bitbucket returns twelve digits


def fitted(proposal: Proposal, longest: int, now: Proposed | None = None) -> Proposal:
    """Return the proposal with a title and body within the forge's limits, and with marks of both.

    The title and the text that people gave the open request `now` stay. Our part of the body is cut, but not its marks.
    """
    title, body = proposal.title, proposal.body
    # Gitea 1.26 counts columns, of which a wide letter takes two, and cuts longer titles without notice.
    ends = list(accumulate(2 if east_asian_width(letter) in "WF" else 1 for letter in title))
    if ends and ends[-1] > LONGEST_TITLE:
        title = f"{title[: bisect_right(ends, LONGEST_TITLE - 1)]}…"
    if now and renamed(now):
        title, body = now.title, with_mark(body, TITLE, value_of(now.body, TITLE))
    else:
        body = with_mark(body, TITLE, digest(title))
    if now:
        body = beside(now.body, with_settled(body, settled(now.body)))
    if (more := len(body) - longest) > 0:
        before, ours, after = split(body)
        text, _, marks = ours.rpartition("\n\n")
        body = f"{before}{text[: max(0, len(text) - more - 2)]}\n…\n\n{marks}{after}"
    return replace(proposal, title=title, body=body)


def same(found: Proposed, proposal: Proposal) -> bool:
    """Tell whether the request already has this text. Forges change line ends and drop trailing white space."""
    return _plain(found.title) == _plain(proposal.title) and _plain(found.body) == _plain(proposal.body)


def overtaken(found: Proposed, now: Proposed, proposal: Proposal) -> bool:
    """Tell whether another build has written its text since the request was found."""
    return described(now.body) not in (described(found.body), described(proposal.body))


def dig(value: Any, *names: str | int) -> str:
    """Return the text or number under these names and positions, or "" if it is missing or of another type."""
    for name in names:
        try:
            value = value[name]
        except (KeyError, IndexError, TypeError):
            return ""
    return str(value) if isinstance(value, str | int) else ""


def listed(value: Any, name: str) -> list[Any]:
    """Return the list under that name, or an empty one."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def numbered(number: str, host: str, what: str = "a pull request") -> str:
    """Return the number of `what`, which all later steps need. Raises `UnreachableError` if the answer has none."""
    if number:
        return number
    raise UnreachableError(f"{host} answers with something that is not {what}", hint="run it again")


def honest(found: Proposed, page: str) -> Proposed:
    """Return the request without an implausible URL or commit. Its URL is then `page`, the repository's."""
    merged = found.merge_commit if _COMMIT.fullmatch(found.merge_commit) else ""
    return replace(found, url=web_page(found.url) or page, merge_commit=merged)


def ours_to_delete(head: str) -> bool:
    """Tell whether the branch may be deleted after the merge. One that an annotation names may be an environment."""
    return head.startswith(OURS)


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).strip()
