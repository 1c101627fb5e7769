"""Groups the asks: one group for each repository and login."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from task.model import Problem
from task.output.words import ELSEWHERE
from task.text import and_more
from task.urls import normal_url, without_login

if TYPE_CHECKING:
    from task.deciding.job import Ask, Job
    from task.landing.ports import Repository, World
    from task.pipeline.match import Matched

AT_ONCE = 8  # repositories; more of them would only wait for each other


def by_branch(repository: Repository, asks: Sequence[Ask]) -> dict[str, list[Ask]]:
    """Group the asks by base branch. Raises `TaskError` if there is no default branch, or Git cannot be reached."""
    default = ""
    if any(not ask.subscription.base for ask in asks):
        # For a pull request, the head branch is read later, and its tip comes together with the base's.
        default = repository.default_branch(tip=not any(ask.subscription.pull_request for ask in asks))
    branches: dict[str, list[Ask]] = {}
    for ask in asks:
        branches.setdefault(ask.subscription.base or default, []).append(ask)
    return branches


def by_repository(matched: Matched, job: Job) -> list[tuple[Ask, ...]]:
    """Group the asks that need Git by repository, even if its URL is spelled in several ways."""
    only = {normal_url(without_login(url)) for url in job.only}
    groups: dict[str, list[Ask]] = {}
    for ask in matched.in_git:
        url = normal_url(ask.subscription.repo)
        if not only or normal_url(without_login(ask.subscription.repo)) in only:
            groups.setdefault(url, []).append(ask)
    return [tuple(asks) for asks in groups.values()]


def left_out(matched: Matched, job: Job) -> tuple[Problem, ...]:
    """Return a warning if `--only-repository` leaves out all Applications in question, with where they are written.

    If only some are left out, that is no mistake: the pipeline runs once for each repository.
    """
    if not job.only or not matched.asks or by_repository(matched, job):
        return ()
    places = {
        ask.subscription.application.key: without_login(ask.subscription.repo)
        if ask.subscription.method == "git"
        else "in the cluster"
        for ask in matched.asks
    }
    named = and_more([f"{name} ({place})" for name, place in sorted(places.items())])
    what = "of this run"
    if job.images:
        what = "that track the image" if len(job.images) == 1 else "that track the images"
    message = f"--only-repository leaves out all Applications {what}: {named}"
    hint = "name a repository as the Application does, or leave out --only-repository"
    return (Problem(rule=ELSEWHERE, message=message, hint=hint, severity="warning"),)


def by_login(groups: Sequence[Sequence[Ask]], world: World) -> list[tuple[Ask, ...]]:
    """Split each group by login, so that no Application writes with another one's credentials."""
    parts: list[tuple[Ask, ...]] = []
    for asks in groups:
        # A login may depend on the owner only. If the owners are the same, so is the login.
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
