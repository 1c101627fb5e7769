"""Groups of asks: one for each repository and login."""

from __future__ import annotations

from collections.abc import Sequence

from task.pipeline.decide import Ask
from task.pipeline.job import Job
from task.pipeline.match import Matched
from task.pipeline.ports import World
from task.urls import normal_url, without_login


def by_repository(matched: Matched, job: Job) -> list[tuple[Ask, ...]]:
    """The asks that Git has to answer, per repository whatever the spelling of its URL."""
    only = {normal_url(without_login(url)) for url in job.only}
    groups: dict[str, list[Ask]] = {}
    for ask in matched.in_git:
        url = normal_url(ask.subscription.repo)
        if not only or normal_url(without_login(ask.subscription.repo)) in only:
            groups.setdefault(url, []).append(ask)
    return [tuple(asks) for asks in groups.values()]


def by_login(groups: Sequence[Sequence[Ask]], world: World) -> list[tuple[Ask, ...]]:
    """Split each group by login, so that no Application writes with another one's credentials."""
    parts: list[tuple[Ask, ...]] = []
    for asks in groups:
        # What a login may depend on. Where that is the same for all, there is one login.
        owners = {
            (
                ask.subscription.credentials,
                ask.subscription.application.namespace if ask.subscription.credentials.startswith("secret:") else "",
                ask.subscription.application.project,
            )
            for ask in asks
        }
        logins: dict[str, list[Ask]] = {}
        for ask in asks:
            logins.setdefault(world.login(ask.subscription) if len(owners) > 1 else "", []).append(ask)
        parts += [tuple(members) for members in logins.values()]
    return parts
