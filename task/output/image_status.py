"""The status of images: the version in Git, the running version, the waiting build, and recent
builds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from task.model import Hold, Image, Problem, Reading, Subscription, TargetKind, Verdict, Written


@dataclass(frozen=True)
class PastBuild:
    """A version that was once in Git, and the commit that wrote it."""

    tag: str
    digest: str
    commit: str
    at: str  # RFC 3339, UTC
    by: str  # the commit author's name
    pipeline_run: str = ""  # the pipeline run, from the commit's trailer
    url: str = ""  # the commit's page; "" if the Git host is unknown
    proof: str = ""  # the version's proof, from the commit's trailer
    event: str = ""  # the version's origin, from the commit's trailer


@dataclass(frozen=True)
class OpenRequest:
    """An open pull request, and the version that it proposes for one image."""

    url: str  # "" for a head branch that has no request
    number: str
    head: str
    tag: str


@dataclass(frozen=True)
class ImageStatus:
    """One write-back target of one image-list entry: the version in Git, the running version, and
    the waiting build.
    """

    subscription: Subscription
    branch: str = ""  # the base branch's name; "" if Git was not read
    kind: TargetKind | None = None  # None if Git was not read
    in_git: Reading = Reading()  # for a live Application, the image in its spec
    # the image in the Application's own sources, if neither the target nor the status contains one
    in_sources: Reading = Reading()
    live: tuple[Image, ...] = ()
    # the newest tag in the registry that the rules admit; None if there is none or it was not
    # queried
    newest: Image | None = None
    newest_at: str = ""  # RFC 3339, UTC; when the newest tag was created, if queried
    read: bool = True  # False if Git or the live Application could not be read
    too_young_until: str = ""  # RFC 3339, UTC; when the newest tag will satisfy `minimumAge`
    unanswered: bool = False  # whether the registry was queried but did not respond
    hold: Hold | None = None
    scope: Literal["application", "image", "freeze"] = "application"  # the hold's scope
    ends_with: OpenRequest | None = None  # the request that ends the hold when merged
    deferred: Written | None = None
    deferred_at: str = ""  # RFC 3339, UTC
    request: OpenRequest | None = None
    builds: tuple[PastBuild, ...] = ()  # the recent builds, newest first
    would: Verdict | None = None  # what a run would decide about the image passed to `status`
    overridden_by: str = ""  # what would write the image anyway, as in `Decision`


@dataclass(frozen=True)
class Status:
    """The result of `status`."""

    images: tuple[ImageStatus, ...]
    problems: tuple[Problem, ...]
    considered: int  # number of Applications read
    at: str = ""  # when the status was read; RFC 3339, UTC
