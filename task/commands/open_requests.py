"""The open pull requests of one base branch, and the version that each proposes for an image."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from task.errors import TaskError
from task.forges.proposal import proposes
from task.forges.proposed_builds import Builds, build_key
from task.git.names import OURS
from task.landing.ports import Batch, World
from task.model import ImageStatus, OpenRequest, Problem, Proposed, Subscription
from task.policy.order import version_of
from task.urls import without_login

MOST = 50  # head branches of one repository that are looked up at the forge


def with_requests(rows: list[ImageStatus], batch: Batch, world: World) -> tuple[list[ImageStatus], tuple[Problem, ...]]:
    """Return the rows with the newest open request for their images, and why requests could not be read."""
    repo = batch.asks[0].subscription.repo
    if not rows:
        return rows, ()
    try:
        forge = world.forge(repo)
    except TaskError as error:  # there is no token for it, or no forge at all
        world.log("info", f"open pull requests of {without_login(repo)} are not shown: {error.message}")
        return rows, ()
    try:
        heads = batch.repository.branches(sorted(beginnings(one.subscription for one in rows)))
        asked = [(head, forge.find(batch.base, head)) for head in heads[:MOST]]
    except TaskError as error:
        message = f"open pull requests of {without_login(repo)} are not known: {error.message}"
        return rows, (Problem(rule=error.rule, message=message, hint=error.hint, severity="warning"),)
    if len(heads) > MOST:
        world.log("warning", f"{without_login(repo)}: only {MOST} of {len(heads)} head branches were looked at")
    opened = [(head, one, proposes(one.body)) for head, one in asked if one and one.state == "open"]
    opened.sort(key=lambda found: (len(found[1].number), found[1].number), reverse=True)  # the newest first
    return [_with_request(one, opened) for one in rows], ()


def beginnings(subs: Iterable[Subscription]) -> set[str]:
    """Return the prefixes of head branches that may have a request: ours, and those that `git-branch` names."""
    named = (sub.head_template.partition("{{")[0] for sub in subs if sub.pull_request and sub.head_template)
    return {OURS, *filter(None, named)}


def _with_request(one: ImageStatus, opened: Sequence[tuple[str, Proposed, Builds]]) -> ImageStatus:
    sub = one.subscription
    key = build_key(sub.application.key, sub.entry.alias, sub.entry.image.identity)
    for head, found, builds in opened:
        if proposed := builds.get(key):
            request = OpenRequest(found.url, found.number, head, proposed.tag or version_of(proposed))
            return replace(one, request=request)
    return one
