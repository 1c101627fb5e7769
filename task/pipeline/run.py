"""The story: find the Applications → match the image → decide → land → tell Argo CD → report.

Reads like the README. The world is touched only through the Protocols of `task.pipeline.ports`; every decision is made
by pure code, on values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from task import shutdown
from task.annotations.narrow import considered
from task.annotations.write_back import normal_url
from task.errors import TaskError
from task.model import Decision, Image, Problem, Report, Subscribed, Subscription, Timings
from task.output.caution import cautions
from task.output.outcome import exit_code, public_url
from task.pipeline.atomic import without_the_broken
from task.pipeline.decide import Ask, hopeless
from task.pipeline.deliver import failures, land
from task.pipeline.discover import find as find_all
from task.pipeline.discover import subscribed
from task.pipeline.job import Job, Outcome
from task.pipeline.live import patch
from task.pipeline.match import Matched, every, match, meant
from task.pipeline.overlooked import Seen, nobody_called, nobody_tracks, unread_keys, untracked
from task.pipeline.ports import Repository, Site, World
from task.pipeline.scan import scanned

AT_ONCE = 8  # repositories; more would only wait for each other


def run(job: Job, world: World) -> Report:
    """The main job. `plan` is the same with predictions in place of pushes."""
    began = world.now()
    seen, problems = find(job, world)
    matched = matching(seen.asking, job, world)
    found = world.now()
    done = Outcome(matched.decisions)
    if job.atomic:
        matched, given_up = without_the_broken(matched)
        done = done.plus(Outcome(given_up))
    with shutdown.shield():  # a signal ends every wait in there; what landed until then is told
        for outcome in deliveries(by_login(by_repository(matched, job), world), job, world):
            done = done.plus(outcome)
        done = done.plus(patched(matched, job, world))
        landed = world.now()
        problems += tuple(world.follow(done.landed)) + matched.problems
        timings = Timings(job.terms.now, found - began, landed - found, world.now() - landed)
        return replace(report(job, seen, done, problems), timings=timings)


def find(job: Job, world: World) -> tuple[Seen, tuple[Problem, ...]]:
    """The Applications in question, each with what its annotations ask for, and what is wrong or has no effect."""
    narrow = job.scope.narrow
    found = find_all(world.applications(), job.scope, world.locate)
    known = replace(narrow, projects=())  # metadata does not tell an Application's project
    passed = [(app, considered(app, known)) for app in world.passed_over()]
    seen = Seen(
        subscribed(found, job.scope, job.images),
        found.applications,
        tuple(app for app, within in passed if within),
        (*found.outside, *(app for app, within in passed if not within)),
    )
    if found.sets:
        world.log("info", f"{found.sets} ApplicationSets are passed over: the Applications they generate count")
    if not (seen.everybody or narrow.names or job.images):
        world.log("warning", "no Application with Image Updater's annotations was found (--applications, narrowing)")
    problems = found.problems + nobody_called(narrow.names, seen.everybody, seen.outside, strict=job.intent is not None)
    if job.intent:
        return seen, problems
    whole = not (narrow.projects and seen.passed)
    judged = seen if whole else replace(seen, passed=())
    problems += nobody_tracks(judged, untracked(judged, job.images), whole=whole)
    return seen, problems + unread_keys(judged, job.images)


def matching(asking: Sequence[Subscribed], job: Job, world: World) -> Matched:
    """Whom the event, a person's word, or the registries' newest tags are about."""
    if job.intent:
        return meant(asking, job.intent, job.meant)
    if job.command != "scan":
        return match(asking, job.images)
    matched = every(asking)
    within = [ask for members in by_repository(matched, job) for ask in members]
    patched = [] if job.only else [ask for ask in matched.asks if ask.subscription.method == "argocd"]
    return scanned(replace(matched, asks=(*within, *patched)), job.terms, world.registry)


def by_repository(matched: Matched, job: Job) -> list[tuple[Ask, ...]]:
    """The asks that Git has to answer, per repository whatever the spelling of its URL."""
    only = {normal_url(public_url(url)) for url in job.only}
    groups: dict[str, list[Ask]] = {}
    for ask in matched.asks:
        if ask.subscription.method == "argocd":
            continue
        url = normal_url(ask.subscription.repo)
        if not only or normal_url(public_url(ask.subscription.repo)) in only:
            groups.setdefault(url, []).append(ask)
    return [tuple(asks) for asks in groups.values()]


def by_login(groups: Sequence[Sequence[Ask]], world: World) -> list[tuple[Ask, ...]]:
    """The same, apart where Applications reach one repository as different users: none writes as another one."""
    parts: list[tuple[Ask, ...]] = []
    for asks in groups:
        logins: dict[str, list[Ask]] = {}
        several = len({_owner(ask.subscription) for ask in asks}) > 1
        for ask in asks:
            logins.setdefault(world.login(ask.subscription) if several else "", []).append(ask)
        parts += [tuple(members) for members in logins.values()]
    return parts


def _owner(sub: Subscription) -> tuple[str, str, str]:
    """What the login to a repository may depend on."""
    named = sub.credentials.startswith("secret:")
    return sub.credentials, sub.application.namespace if named else "", sub.application.project


def patched(matched: Matched, job: Job, world: World) -> Outcome:
    """The Applications with `write-back-method: argocd`: nothing of them is in Git."""
    asks = [ask for ask in matched.asks if ask.subscription.method == "argocd"]
    if not asks or job.only:
        return Outcome()
    return patch(asks, job, world)


def deliveries(groups: Sequence[Sequence[Ask]], job: Job, world: World) -> list[Outcome]:
    """Each repository's outcome, in order; several repositories at the same time."""
    if len(groups) < 2:  # noqa: PLR2004 - one needs no threads, which take time to load
        return [deliver(asks, job, world) for asks in groups]
    with ThreadPoolExecutor(min(len(groups), AT_ONCE)) as pool:
        with shutdown.unheard():  # signals are for the main thread, which waits
            outcomes = pool.map(lambda asks: deliver(asks, job, world), groups)
        return list(outcomes)


def deliver(asks: Sequence[Ask], job: Job, world: World) -> Outcome:
    """Decide and land everything of one repository. Whatever fails here fails alone."""
    refused = [decision for ask in asks if (decision := hopeless(ask, job.terms))]
    if len(refused) == len(asks):  # no state of Git can change that: it is not asked
        return Outcome(tuple(refused))
    try:
        repository = world.repository(asks[0].subscription.repo, asks[0].subscription)
    except TaskError as error:
        return failures(asks, error, job.terms)
    try:
        return _deliver(repository, asks, job, world)
    finally:
        repository.close()


def _deliver(repository: Repository, asks: Sequence[Ask], job: Job, world: World) -> Outcome:
    try:
        default = repository.default_branch() if any(not ask.subscription.base for ask in asks) else ""
    except TaskError as error:
        return failures(asks, error, job.terms)
    branches: dict[str, list[Ask]] = {}
    for ask in asks:
        branches.setdefault(ask.subscription.base or default, []).append(ask)
    done = Outcome()
    for branch, members in branches.items():
        done = done.plus(land(Site(repository, branch, job, world), members))
    return done


def written_images(decisions: Iterable[Decision]) -> tuple[Image, ...]:
    """What a command without an event wrote."""
    return tuple(dict.fromkeys(one.candidate for one in decisions if one.verdict.verdict == "update"))


def report(job: Job, seen: Seen, done: Outcome, problems: tuple[Problem, ...]) -> Report:
    """Everything in one value, in a fixed order: by Application, then alias."""
    decisions = tuple(
        sorted(
            done.decisions,
            key=lambda one: (one.subscription.application.key, one.subscription.entry.alias, one.subscription.path),
        )
    )
    unmatched = job.require_match and bool(untracked(seen, job.images))
    errors = tuple(
        Problem(one.subscription.application.key, one.verdict.rule, one.verdict.because, one.hint)
        for one in decisions
        if one.verdict.verdict == "error"
    )
    return Report(
        command=job.command,
        images=job.images or written_images(decisions),
        considered=seen.considered,
        decisions=decisions,
        commits=tuple(sorted(done.commits, key=lambda one: (one.repo, one.branch, one.head))),
        problems=tuple(dict.fromkeys(errors + problems + cautions(decisions))),
        exit=shutdown.code()
        or int(exit_code(decisions, problems, require_update=job.require_update, unmatched=unmatched)),
        dry=job.dry,
    )
