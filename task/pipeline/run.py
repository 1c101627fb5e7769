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
from task.pipeline.live import patch
from task.pipeline.match import Matched, every, match, meant
from task.pipeline.overlooked import Seen, nobody_called, nobody_tracks, unread_keys, untracked
from task.pipeline.ports import Edges, Order, Outcome, Site, Store
from task.pipeline.scan import scanned

AT_ONCE = 8  # repositories; more would only wait for each other


def run(order: Order, edges: Edges) -> Report:
    """The main job. `plan` is the same with predictions in place of pushes."""
    began = edges.now()
    seen, problems = find(order, edges)
    matched = matching(seen.asking, order, edges)
    found = edges.now()
    done = Outcome(matched.decisions)
    if order.atomic:
        matched, given_up = without_the_broken(matched)
        done = done.plus(Outcome(given_up))
    with shutdown.shield():  # a signal ends every wait in there; what landed until then is told
        for outcome in deliveries(by_login(by_repository(matched, order), edges), order, edges):
            done = done.plus(outcome)
        done = done.plus(patched(matched, order, edges))
        landed = edges.now()
        problems += tuple(edges.follow(done.landed)) + matched.problems
        timings = Timings(order.terms.now, found - began, landed - found, edges.now() - landed)
        return replace(report(order, seen, done, problems), timings=timings)


def find(order: Order, edges: Edges) -> tuple[Seen, tuple[Problem, ...]]:
    """The Applications in question, each with what its annotations ask for, and what is wrong or has no effect."""
    narrow = order.scope.narrow
    found = find_all(edges.applications(), order.scope, edges.locate)
    known = replace(narrow, projects=())  # metadata does not tell an Application's project
    passed = [(app, considered(app, known)) for app in edges.passed_over()]
    seen = Seen(
        subscribed(found, order.scope, order.images),
        found.applications,
        tuple(app for app, within in passed if within),
        (*found.outside, *(app for app, within in passed if not within)),
    )
    if found.sets:
        edges.log("info", f"{found.sets} ApplicationSets are passed over: the Applications they generate count")
    if not (seen.everybody or narrow.names or order.images):
        edges.log("warning", "no Application with Image Updater's annotations was found (--applications, narrowing)")
    problems = found.problems + nobody_called(
        narrow.names, seen.everybody, seen.outside, strict=order.intent is not None
    )
    if order.intent:
        return seen, problems
    whole = not (narrow.projects and seen.passed)
    judged = seen if whole else replace(seen, passed=())
    problems += nobody_tracks(judged, untracked(judged, order.images), whole=whole)
    return seen, problems + unread_keys(judged, order.images)


def matching(asking: Sequence[Subscribed], order: Order, edges: Edges) -> Matched:
    """Whom the event, a person's word, or the registries' newest tags are about."""
    if order.intent:
        return meant(asking, order.intent, order.meant)
    if order.command != "scan":
        return match(asking, order.images)
    matched = every(asking)
    within = [ask for members in by_repository(matched, order) for ask in members]
    patched = [] if order.only else [ask for ask in matched.asks if ask.subscription.method == "argocd"]
    return scanned(replace(matched, asks=(*within, *patched)), order.terms, edges.registry)


def by_repository(matched: Matched, order: Order) -> list[tuple[Ask, ...]]:
    """The asks that Git has to answer, per repository whatever the spelling of its URL."""
    only = {normal_url(public_url(url)) for url in order.only}
    groups: dict[str, list[Ask]] = {}
    for ask in matched.asks:
        if ask.subscription.method == "argocd":
            continue
        url = normal_url(ask.subscription.repo)
        if not only or normal_url(public_url(ask.subscription.repo)) in only:
            groups.setdefault(url, []).append(ask)
    return [tuple(asks) for asks in groups.values()]


def by_login(groups: Sequence[Sequence[Ask]], edges: Edges) -> list[tuple[Ask, ...]]:
    """The same, apart where Applications reach one repository as different users: none writes as another one."""
    parts: list[tuple[Ask, ...]] = []
    for asks in groups:
        logins: dict[str, list[Ask]] = {}
        several = len({_owner(ask.subscription) for ask in asks}) > 1
        for ask in asks:
            logins.setdefault(edges.login(ask.subscription) if several else "", []).append(ask)
        parts += [tuple(members) for members in logins.values()]
    return parts


def _owner(sub: Subscription) -> tuple[str, str, str]:
    """What the login to a repository may depend on."""
    named = sub.credentials.startswith("secret:")
    return sub.credentials, sub.application.namespace if named else "", sub.application.project


def patched(matched: Matched, order: Order, edges: Edges) -> Outcome:
    """The Applications with `write-back-method: argocd`: nothing of them is in Git."""
    asks = [ask for ask in matched.asks if ask.subscription.method == "argocd"]
    if not asks or order.only:
        return Outcome()
    return patch(asks, order, edges)


def deliveries(groups: Sequence[Sequence[Ask]], order: Order, edges: Edges) -> list[Outcome]:
    """Each repository's outcome, in order; several repositories at the same time."""
    if len(groups) < 2:  # noqa: PLR2004 - one needs no threads, which take time to load
        return [deliver(asks, order, edges) for asks in groups]
    with ThreadPoolExecutor(min(len(groups), AT_ONCE)) as pool:
        with shutdown.unheard():  # signals are for the main thread, which waits
            outcomes = pool.map(lambda asks: deliver(asks, order, edges), groups)
        return list(outcomes)


def deliver(asks: Sequence[Ask], order: Order, edges: Edges) -> Outcome:
    """Decide and land everything of one repository. Whatever fails here fails alone."""
    refused = [decision for ask in asks if (decision := hopeless(ask, order.terms))]
    if len(refused) == len(asks):  # no state of Git can change that: it is not asked
        return Outcome(tuple(refused))
    try:
        store = edges.store(asks[0].subscription.repo, asks[0].subscription)
    except TaskError as error:
        return failures(asks, error, order.terms)
    try:
        return _deliver(store, asks, order, edges)
    finally:
        store.close()


def _deliver(store: Store, asks: Sequence[Ask], order: Order, edges: Edges) -> Outcome:
    try:
        default = store.default_branch() if any(not ask.subscription.base for ask in asks) else ""
    except TaskError as error:
        return failures(asks, error, order.terms)
    branches: dict[str, list[Ask]] = {}
    for ask in asks:
        branches.setdefault(ask.subscription.base or default, []).append(ask)
    done = Outcome()
    for branch, members in branches.items():
        done = done.plus(land(Site(store, branch, order, edges), members))
    return done


def written_images(decisions: Iterable[Decision]) -> tuple[Image, ...]:
    """What a command without an event wrote."""
    return tuple(dict.fromkeys(one.candidate for one in decisions if one.verdict.verdict == "update"))


def report(order: Order, seen: Seen, done: Outcome, problems: tuple[Problem, ...]) -> Report:
    """Everything in one value, in a fixed order: by Application, then alias."""
    decisions = tuple(
        sorted(
            done.decisions,
            key=lambda one: (one.subscription.application.key, one.subscription.entry.alias, one.subscription.path),
        )
    )
    unmatched = order.require_match and bool(untracked(seen, order.images))
    errors = tuple(
        Problem(one.subscription.application.key, one.verdict.rule, one.verdict.because, one.hint)
        for one in decisions
        if one.verdict.verdict == "error"
    )
    return Report(
        command=order.command,
        images=order.images or written_images(decisions),
        considered=seen.considered,
        decisions=decisions,
        commits=tuple(sorted(done.commits, key=lambda one: (one.repo, one.branch, one.head))),
        problems=tuple(dict.fromkeys(errors + problems + cautions(decisions))),
        exit=shutdown.code()
        or int(exit_code(decisions, problems, require_update=order.require_update, unmatched=unmatched)),
        dry=order.dry,
    )
