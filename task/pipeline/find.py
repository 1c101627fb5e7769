"""Finds what a run starts from: discover the Applications → match the images → ask the Git servers.

This is the lighter half of the pipeline. The servers are asked before the other half is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from task.annotations.narrow import check_selector, considered
from task.model import Problem, Subscribed
from task.pipeline.ask import settled_without_git
from task.pipeline.atomic import without_the_broken
from task.pipeline.batches import by_login, by_repository
from task.pipeline.discover import discovered, subscriptions_of
from task.pipeline.job import Job
from task.pipeline.match import Matched, asks_by_hand, asks_for_all, asks_for_images
from task.pipeline.overlooked import Seen, unknown_names, unread_keys, untracked, untracked_problems
from task.pipeline.ports import World
from task.pipeline.promotion import check_promotion


@dataclass(frozen=True)
class StartingPoint:
    """The Applications in question, and what to ask about them."""

    seen: Seen
    matched: Matched  # for `scan`, with no tags yet; for `promote`, nothing yet
    problems: tuple[Problem, ...]
    began: float  # when the search began, by the world's clock


def find(job: Job, world: World) -> StartingPoint:
    """Discover the Applications, match them with the images, and begin to read the repository that all need.

    `scan` asks the registries first, which may take longer than a branch stays where it is.
    """
    began = world.now()
    seen, problems = discover(job, world)
    found = StartingPoint(seen, match_images(seen.subscribed, job), problems, began)
    if job.command != "scan":
        begin_to_read(found.matched, job, world)
    return found


def begin_to_read(matched: Matched, job: Job, world: World) -> None:
    """Begin to fetch the branch that is read first, if there is one branch of one repository.

    Several repositories are read at the same time anyway. For a pull request, the tips of both branches come together,
    and the name of the head branch is not known yet.
    """
    if job.atomic:
        matched, _ = without_the_broken(matched)
    groups = by_login(by_repository(matched, job), world)
    if len(groups) != 1 or all(settled_without_git(ask, job.terms) for ask in groups[0]):
        return
    subs = [ask.subscription for ask in groups[0]]
    bases = {sub.base for sub in subs}
    if len(bases) == 1 and not any(sub.pull_request or sub.head_template for sub in subs):
        world.expect(subs[0].repo, subs[0], bases.pop())


def discover(job: Job, world: World) -> tuple[Seen, tuple[Problem, ...]]:
    """Return the Applications in question with what their annotations ask for, and the problems with them."""
    narrow = job.scope.narrow
    check_selector(narrow)
    if job.promotion:
        check_promotion(job.promotion)
    found = discovered(world.applications(), job.scope, world.locate)
    by_metadata = replace(narrow, projects=())  # the metadata does not have the project
    skipped = [(app, considered(app, by_metadata)) for app in world.passed_over()]
    seen = Seen(
        subscriptions_of(found, job.scope, job.images),
        found.applications,
        tuple(app for app, within in skipped if within),
        (*found.outside, *(app for app, within in skipped if not within)),
    )
    if found.sets:
        world.log("info", f"ApplicationSets rendered: {found.sets}; Applications that they generate: {found.generated}")
    if not (seen.everyone or narrow.names or job.images):
        world.log(
            "warning",
            "no Application with Image Updater's annotations was found: check --applications and what narrows it",
        )
    strict = job.intent is not None
    narrowing = f"{'--application, ' if narrow.within else ''}--namespace, --project or --selector"
    unknown = unknown_names(narrow.names, seen.everyone, seen.outside, strict=strict, narrowing=narrowing)
    problems = found.problems
    if not (found.read or found.templates or skipped):  # then the run has nothing to do because of broken files
        problems = tuple(replace(one, severity="error") if one.exit and not one.advice else one for one in problems)
    problems += unknown
    if job.intent:
        return seen, problems
    # The projects of skipped Applications are unknown, so they do not count if projects narrow the run.
    whole = not (narrow.projects and seen.skipped)
    counted = seen if whole else replace(seen, skipped=())
    left = untracked(counted, job.images)
    problems += untracked_problems(counted, left, whole=whole, required=job.require_match)
    return seen, problems + unread_keys(counted, job.images)


def match_images(subscribed: Sequence[Subscribed], job: Job) -> Matched:
    """Return the asks for the built images, or for what a person named. `scan` and `promote` ask servers later."""
    if job.intent:
        return asks_by_hand(subscribed, job.intent, job.aliases)
    if job.promotion:
        return Matched((), (), ())
    return asks_for_all(subscribed) if job.command == "scan" else asks_for_images(subscribed, job.images)
