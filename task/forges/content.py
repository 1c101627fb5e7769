"""Texts cut to a forge's limits, and fields of its answers, any of which may be missing."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import replace
from itertools import accumulate
from typing import Any
from unicodedata import east_asian_width

from task.errors import UnreachableError
from task.forges.proposal import BRANCHES, LONGEST_TITLE, described, marked
from task.model import Proposal, Proposed
from task.urls import web_page

_COMMIT = re.compile("[0-9A-Fa-f]{7,64}")  # Bitbucket tells twelve digits


def fitted(proposal: Proposal, longest: int) -> Proposal:
    """The proposal with a title and body that the forge takes; the marks at the body's end are kept whole."""
    title = proposal.title
    # Gitea 1.26 counts columns, of which a wide letter takes two, and cuts what is longer without a word.
    ends = list(accumulate(2 if east_asian_width(letter) in "WF" else 1 for letter in title))
    if ends and ends[-1] > LONGEST_TITLE:
        title = f"{title[: bisect_right(ends, LONGEST_TITLE - 1)]}…"
    if len(proposal.body) <= longest:
        return replace(proposal, title=title)
    text, _, marks = proposal.body.rstrip().rpartition("\n\n")
    if not (marked(marks) or described(marks)):
        text, marks = proposal.body, ""
    end = f"\n…\n\n{marks}\n" if marks else "\n…\n"
    return replace(proposal, title=title, body=text[: longest - len(end)] + end)


def same(found: Proposed, proposal: Proposal) -> bool:
    """Whether the request has this text already; forges change line ends and drop white space at an end."""
    return _plain(found.title) == _plain(proposal.title) and _plain(found.body) == _plain(proposal.body)


def overtaken(found: Proposed, now: Proposed, proposal: Proposal) -> bool:
    """Whether another build described itself since the request was found."""
    return described(now.body) not in (described(found.body), described(proposal.body))


def dig(value: Any, *names: str | int) -> str:
    """The text or number under these names and positions; "" if anything on the way is missing or of another type."""
    for name in names:
        try:
            value = value[name]
        except (KeyError, IndexError, TypeError):
            return ""
    return str(value) if isinstance(value, str | int) else ""


def listed(value: Any, name: str) -> list[Any]:
    """The list under that name; empty if there is none."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def numbered(number: str, host: str, what: str = "a pull request") -> str:
    """The number of `what`, which everything else needs. Raises `UnreachableError` if an answer has none."""
    if number:
        return number
    raise UnreachableError(f"{host} answers with something that is not {what}", hint="run it again")


def honest(found: Proposed, page: str) -> Proposed:
    """The request, without a URL or a commit that cannot be one; then its URL is `page`, the repository's."""
    merged = found.merge_commit if _COMMIT.fullmatch(found.merge_commit) else ""
    return replace(found, url=web_page(found.url) or page, merge_commit=merged)


def ours_to_delete(head: str) -> bool:
    """Whether the branch may go once it is merged: one that an annotation names may be somebody's environment."""
    return head.startswith(BRANCHES)


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).strip()
