"""What `status` says of images: what is in Git, what runs, what waits, and the last builds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from task.model import Hold, Image, Problem, Reading, Subscription, TargetKind, Verdict, Written


@dataclass(frozen=True)
class PastBuild:
    """A version that was in Git, and the commit that wrote it."""

    tag: str
    digest: str
    commit: str
    at: str  # RFC 3339, UTC
    by: str  # the author's name
    pipeline_run: str = ""  # from the commit's trailer
    url: str = ""  # the commit's page; "" if the Git host is unknown
    proof: str = ""  # what was proved about it, from the commit's trailer
    event: str = ""  # where it came from, from the commit's trailer


@dataclass(frozen=True)
class OpenRequest:
    """An open pull request, and the version of one image that it proposes."""

    url: str  # "" for a head branch that is pushed without a request
    number: str
    head: str
    tag: str


@dataclass(frozen=True)
class ImageStatus:
    """One write-back target of one image-list entry: what is in Git now, what runs,
    and what waits.
    """

    subscription: Subscription
    branch: str = ""  # the base branch's name; "" if Git was not asked
    kind: TargetKind | None = None  # None if Git was not asked
    in_git: Reading = Reading()  # for a live Application, what is in its spec
    # what the Application's own sources say, if neither the target nor a status says it
    in_sources: Reading = Reading()
    live: tuple[Image, ...] = ()
    # in the registry, of those that the rules admit; None if it was not asked, or has none
    newest: Image | None = None
    newest_at: str = ""  # RFC 3339, UTC; when the newest was made, if that was asked
    read: bool = True  # whether Git or the live Application could be read
    too_young_until: str = ""  # RFC 3339, UTC; when the newest tag is old enough for `minimumAge`
    unanswered: bool = False  # whether the registry was asked for the newest, and did not answer
    hold: Hold | None = None
    scope: Literal["application", "image", "freeze"] = "application"  # of the hold
    ends_with: OpenRequest | None = None  # what ends the hold when somebody merges it
    deferred: Written | None = None
    deferred_at: str = ""  # RFC 3339, UTC
    request: OpenRequest | None = None
    builds: tuple[PastBuild, ...] = ()  # the last ones, newest first
    would: Verdict | None = None  # what would happen to the image in question
    overridden_by: str = ""  # who would write it all the same, as in a `Decision`


@dataclass(frozen=True)
class Status:
    """What `status` found."""

    images: tuple[ImageStatus, ...]
    problems: tuple[Problem, ...]
    considered: int  # Applications looked at
    at: str = ""  # when it looked; RFC 3339, UTC
