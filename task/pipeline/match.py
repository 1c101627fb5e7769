"""Matches Applications with images: which asks need Git, which are already settled, and which
belong together.

A wrong annotation is an error only if its entry matches, or may match, one of the event's images.
Otherwise, it is a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from task.annotations.write_back import Neighbours
from task.deciding.job import Ask, Intent, Job
from task.errors import Exit, Trouble
from task.landing.ports import Repository, World
from task.model import (
    Decision,
    Flaw,
    Image,
    Judged,
    Problem,
    Subscribed,
    Subscription,
    Tracked,
    Tracker,
    Unusable,
    Verdict,
)
from task.output.words import ELSEWHERE
from task.pipeline.overlooked import Seen, about_others
from task.text import FEW, and_more
from task.urls import normal_url, without_login

AT_ONCE = 8  # repositories; more threads would only wait for each other


@dataclass(frozen=True)
class Matched:
    """An event's asks, the decisions that don't need an ask, and the entries without a usable
    ask.
    """

    asks: tuple[Ask, ...]
    decisions: tuple[Decision, ...] = ()
    problems: tuple[Problem, ...] = ()
    unusable: tuple[Unusable, ...] = ()

    @property
    def in_git(self) -> tuple[Ask, ...]:
        """The asks that need Git."""
        return tuple(ask for ask in self.asks if ask.subscription.method == "git")

    @property
    def live(self) -> tuple[Ask, ...]:
        """The asks for Applications that are patched live (`write-back-method: argocd`)."""
        return tuple(ask for ask in self.asks if ask.subscription.method == "argocd")


def match_images(seen: Seen, job: Job, world: World) -> tuple[Job, Matched]:  # noqa: ARG001 - as `scan` is called
    """Return the asks for the built images, or for a person's command."""
    if job.intent:
        return job, asks_by_hand(seen.subscribed, job.intent, job.aliases)
    return job, asks_for_images(seen.subscribed, job.images)


def asks_for_images(subscribed: Sequence[Subscribed], images: Sequence[Image]) -> Matched:
    """Return asks for the entries that match the event's images, and errors for broken entries that
    may match.
    """
    built: dict[str, list[Image]] = {}
    for image in images:
        built.setdefault(image.identity, []).append(image)

    asks = []
    neighbours = Neighbours(item.application for item in subscribed)
    for item in subscribed:
        for sub in item.subscriptions:
            matching = built.get(sub.entry.image.identity)
            if matching:
                siblings = siblings_of(sub, item)
                asks.append(Ask(neighbours.noted(sub), tuple(matching), siblings=siblings))

    problems, unusable = _judge_all_flaws(subscribed, built)
    return Matched(tuple(asks), problems=problems, unusable=_first_of_each(unusable))


def _judge_all_flaws(
    subscribed: Sequence[Subscribed], built: dict[str, list[Image]]
) -> tuple[tuple[Problem, ...], list[Unusable]]:
    """Return the problems with the annotations, and the broken entries that match a built image."""
    unusable = []
    problems: list[Problem] = []
    # problems of the Applications that do not use the images
    mistakes_of_others: list[Problem] = []
    warnings_of_others: list[Problem] = []
    for item in subscribed:
        entries = [sub.entry for sub in item.subscriptions]
        entries += [flaw.entry for flaw in item.flaws if flaw.entry]
        uses_images = any(entry.image.identity in built for entry in entries)
        for flaw in item.flaws:
            judged = _judge_flaw(item.application, flaw, built)
            if judged is None:
                continue
            if isinstance(judged, Unusable):
                unusable.append(judged)
            elif uses_images or judged.severity == "error":
                problems.append(judged)
            elif flaw.severity == "warning":
                warnings_of_others.append(judged)
            else:
                mistakes_of_others.append(judged)
    problems += _of_others(mistakes_of_others, warnings_of_others)
    return tuple(problems), unusable


def asks_for_all(subscribed: Sequence[Subscribed]) -> Matched:
    """Return asks without tags for all entries, and an error for each broken entry."""
    asks = []
    unusable = []
    problems = []
    neighbours = Neighbours(item.application for item in subscribed)
    for item in subscribed:
        asks += [
            Ask(
                neighbours.noted(sub),
                (replace(sub.entry.image, digest=""),),
                siblings=siblings_of(sub, item),
            )
            for sub in item.subscriptions
        ]
        entries = [flaw.entry for flaw in item.flaws if flaw.entry]
        images_by_identity = {entry.image.identity: [entry.image] for entry in entries}
        for flaw in item.flaws:
            judged = _judge_flaw(item.application, flaw, images_by_identity)
            if judged is None:
                continue
            is_unreadable_entry = flaw.severity == "error" and flaw.entry is None and flaw.text
            if isinstance(judged, Unusable):
                unusable.append(judged)
            elif is_unreadable_entry:
                problems.append(_problem(item.application, flaw))
            else:
                problems.append(judged)
    return Matched(
        tuple(asks),
        problems=tuple(problems),
        unusable=_first_of_each(unusable),
    )


def asks_by_hand(
    subscribed: Sequence[Subscribed],
    intent: Intent,
    images: Sequence[str],
) -> Matched:
    """Return the asks for a person's command: all images of the Applications, or those with these
    aliases or names.

    For a failed version, only that image's entries are used. An unreadable entry is an error,
    because otherwise it would be skipped silently.
    """
    asks = []
    problems = []
    all_names: set[str] = set()
    neighbours = Neighbours(item.application for item in subscribed)
    for item in subscribed:
        for sub in item.subscriptions:
            names = {sub.entry.alias, sub.entry.image.name, sub.entry.image.identity}
            all_names |= names
            if images and names.isdisjoint(images):
                continue
            if intent.failed and intent.failed.identity != sub.entry.image.identity:
                continue
            asks.append(Ask(neighbours.noted(sub), (), intent, siblings_of(sub, item)))
        problems += [_problem(item.application, flaw) for flaw in item.flaws]
    hint = "use an alias or image name from the image-list annotation"
    for name in images:
        if name not in all_names:
            message = f"--alias {name}: not found in any of these Applications"
            problems.append(Problem(Trouble("annotation", message, hint)))
    if intent.failed and not asks and subscribed:
        message = f"--failed: none of these Applications tracks {intent.failed.name}"
        hint = "use the image name from the image-list annotation, with the tag that was tested"
        problems.append(Problem(Trouble("usage", message, hint, exit=Exit.USAGE)))
    return Matched(tuple(asks), problems=tuple(problems))


def siblings_of(sub: Subscription, of: Subscribed) -> tuple[Subscription, ...]:
    """Return the subscriptions whose updates may be waiting on the same head branch, if pull
    requests are used.
    """
    return tuple(
        subscription
        for subscription in of.subscriptions
        if subscription.head_template == sub.head_template and subscription.repo == sub.repo
    )


def _judge_flaw(
    app: Tracker,
    flaw: Flaw,
    built: dict[str, list[Image]],
) -> Unusable | Problem | None:
    """Return the result of a flaw in the annotations for the built images, or None if `overlooked`
    reports the flaw.

    An error in an entry for one of the images makes the entry unusable. An error in an unreadable
    entry that mentions one of the images stays an error. All other errors are only warnings.
    """
    problem = _problem(app, flaw)
    if flaw.severity != "error":
        return problem
    warning = replace(problem, trouble=flaw.trouble.as_warning())
    if flaw.entry is None:
        names = [
            image.repository.rpartition("/")[2] for images in built.values() for image in images
        ]
        return problem if any(name in flaw.text for name in names) else warning
    matching = built.get(flaw.entry.image.identity)
    if matching:
        verdict = Verdict.of(flaw.trouble)
        return Unusable(Tracked(app, flaw.entry), matching[0], verdict, strategy=flaw.strategy)
    # `overlooked` warns about misspelled keys, in one line for many Applications
    return None if flaw.misspelled else warning


def _problem(app: Tracker, flaw: Flaw) -> Problem:
    return Problem(
        flaw.trouble,
        application=app.key,
        key=flaw.key,
        value=flaw.value,
    )


def _of_others(mistakes: Sequence[Problem], warnings: Sequence[Problem]) -> tuple[Problem, ...]:
    """Return a few warnings about Applications that do not use the images, no matter how many there
    are.

    The first few Applications with mistakes get one line per mistake. All plain warnings, such as
    deprecated names, share one line.
    """
    first_apps = sorted({problem.application for problem in mistakes})[:FEW]
    singly = tuple(problem for problem in mistakes if problem.application in first_apps)
    other_mistakes = [
        (problem.application, problem.key)
        for problem in mistakes
        if problem.application not in first_apps
    ]
    warned_keys = [(problem.application, problem.key) for problem in warnings]
    return (
        *singly,
        *about_others(other_mistakes, "invalid annotations, so their images are not updated"),
        *about_others(warned_keys, "annotations that work but that lint warns about"),
    )


def _first_of_each(unusable: Sequence[Unusable]) -> tuple[Unusable, ...]:
    """Keep the first error of each entry. `lint` shows the others."""
    first: dict[tuple[str, str], Unusable] = {}
    for item in unusable:
        first.setdefault((item.subscription.application.key, item.subscription.entry.text), item)
    return tuple(first.values())


def without_the_broken(matched: Matched) -> tuple[Matched, tuple[Decision, ...]]:
    """Remove the asks for repositories that an Application with wrong annotations uses, and return
    error decisions for them.
    """
    broken = {
        normal_url(source.repo): judged
        for judged in (*matched.decisions, *matched.unusable)
        if judged.verdict == "error"
        for source in judged.subscription.application.sources
    }
    remaining = []
    given_up = []
    for ask in matched.asks:
        culprit = broken.get(normal_url(ask.subscription.repo))
        if culprit is None:
            remaining.append(ask)
        else:
            given_up.append(Decision(ask.subscription, ask.offered, not_written(culprit)))
    return replace(matched, asks=tuple(remaining)), tuple(given_up)


def not_written(broken: Judged) -> Verdict:
    """Return the error for a decision that `--atomic` stops because of this error."""
    name = broken.subscription.application.key
    because = f"not written, because {name} failed and --atomic is set"
    hint = f"fix {name}, or leave out --atomic"
    return Verdict("error", broken.rule, because, hint, broken.exit)


def by_branch(repository: Repository, asks: Sequence[Ask]) -> dict[str, list[Ask]]:
    """Group the asks by base branch.

    Raises `TaskError` if there is no default branch, or Git cannot be reached.
    """
    default = ""
    if any(not ask.subscription.base for ask in asks):
        # For a pull request, the head branch is read later, and its tip is fetched together with
        # the base's tip.
        any_request = any(ask.subscription.pull_request for ask in asks)
        default = repository.default_branch(tip=not any_request)
    branches: dict[str, list[Ask]] = {}
    for ask in asks:
        branches.setdefault(ask.subscription.base or default, []).append(ask)
    return branches


def by_repository(matched: Matched, job: Job) -> list[tuple[Ask, ...]]:
    """Group the asks that need Git by repository, even if its URL has several spellings."""
    only = {normal_url(without_login(url)) for url in job.only}
    groups: dict[str, list[Ask]] = {}
    for ask in matched.in_git:
        url = normal_url(ask.subscription.repo)
        is_selected = not only or normal_url(without_login(ask.subscription.repo)) in only
        if is_selected:
            groups.setdefault(url, []).append(ask)
    return [tuple(asks) for asks in groups.values()]


def warn_if_all_excluded(matched: Matched, job: Job) -> tuple[Problem, ...]:
    """Return a warning if `--only-repository` excludes all Applications, with their repositories.

    Excluding only some is not a mistake, because the pipeline runs once for each repository.
    """
    if not job.only or not matched.asks or by_repository(matched, job):
        return ()
    places = {}
    for ask in matched.asks:
        sub = ask.subscription
        place = without_login(sub.repo) if sub.method == "git" else "in the cluster"
        places[sub.application.key] = place
    named = and_more([f"{name} ({place})" for name, place in sorted(places.items())])
    which = "in this run"
    if job.images:
        which = "that track the image" if len(job.images) == 1 else "that track the images"
    message = f"--only-repository excludes all Applications {which}: {named}"
    hint = "use a repository URL from an Application, or omit --only-repository"
    return (Problem(Trouble.warning(ELSEWHERE, message, hint)),)


def by_login(groups: Sequence[Sequence[Ask]], world: World) -> list[tuple[Ask, ...]]:
    """Split each group by credentials, so that Applications never write with another's
    credentials.
    """
    parts: list[tuple[Ask, ...]] = []
    for asks in groups:
        # The credentials depend only on the owner.
        owners = set()
        for ask in asks:
            sub = ask.subscription
            namespace = sub.application.namespace if sub.credentials.startswith("secret:") else ""
            owners.add((sub.credentials, namespace, sub.application.project))
        logins: dict[str, list[Ask]] = {}
        for ask in asks:
            login = world.login(ask.subscription) if len(owners) > 1 else ""
            logins.setdefault(login, []).append(ask)
        parts += [tuple(members) for members in logins.values()]
    return parts
