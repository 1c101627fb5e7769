"""Pure code that matches Applications with images: which asks go to Git, and which are settled already.

A wrong annotation is an error of this run only if its entry names, or may name, an image of the event. Otherwise it is
a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from task.deciding.job import Ask, Intent, Job
from task.errors import Exit
from task.landing.ports import World
from task.model import (
    Decision,
    Flaw,
    Image,
    Problem,
    Subscribed,
    Subscription,
    Tracked,
    Tracker,
    Unusable,
    Verdict,
)
from task.pipeline.overlooked import Seen, about_others
from task.text import FEW


@dataclass(frozen=True)
class Matched:
    """The asks of an event, the decisions that need none, and the entries that could not be asked."""

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
        """The asks of Applications that are patched live (`write-back-method: argocd`)."""
        return tuple(ask for ask in self.asks if ask.subscription.method == "argocd")


def match_images(seen: Seen, job: Job, world: World) -> tuple[Job, Matched]:  # noqa: ARG001 - as `scan` is called
    """Return the asks for the built images, or for what a person named."""
    if job.intent:
        return job, asks_by_hand(seen.subscribed, job.intent, job.aliases)
    return job, asks_for_images(seen.subscribed, job.images)


def asks_for_images(subscribed: Sequence[Subscribed], images: Sequence[Image]) -> Matched:
    """Return asks for the entries that take the event's images, and errors for broken ones that might."""
    built: dict[str, list[Image]] = {}
    for image in images:
        built.setdefault(image.identity, []).append(image)
    asks, unusable, problems = [], [], []
    wrong_elsewhere: list[Problem] = []
    noted_elsewhere: list[Problem] = []
    for one in subscribed:
        taken = [
            Ask(sub, tuple(built[identity]), siblings=siblings_of(sub, one))
            for sub in one.subscriptions
            if (identity := sub.entry.image.identity) in built
        ]
        asks += taken
        concerned = bool(taken) or any(flaw.entry and flaw.entry.image.identity in built for flaw in one.flaws)
        for flaw in one.flaws:
            entry, problem = _judge_flaw(one.application, flaw, built)
            unusable += [entry] if entry else []
            if problem and (concerned or problem.severity == "error"):
                problems.append(problem)
            elif problem:
                (noted_elsewhere if flaw.severity == "warning" else wrong_elsewhere).append(problem)
    problems += _of_others(wrong_elsewhere, noted_elsewhere)
    return Matched(tuple(asks), problems=tuple(problems), unusable=_first_of_each(unusable))


def asks_for_all(subscribed: Sequence[Subscribed]) -> Matched:
    """Return asks for all entries, without a tag yet, and an error for each broken entry."""
    asks, unusable, problems = [], [], []
    for one in subscribed:
        asks += [
            Ask(sub, (replace(sub.entry.image, digest=""),), siblings=siblings_of(sub, one))
            for sub in one.subscriptions
        ]
        named = {flaw.entry.image.identity: [flaw.entry.image] for flaw in one.flaws if flaw.entry}
        for flaw in one.flaws:
            entry, problem = _judge_flaw(one.application, flaw, named)
            unreadable = problem is not None and flaw.entry is None and flaw.severity == "error" and flaw.text
            unusable += [entry] if entry else []
            problems += [replace(problem, severity="error") if unreadable else problem] if problem else []
    return Matched(tuple(asks), problems=tuple(problems), unusable=_first_of_each(unusable))


def asks_by_hand(subscribed: Sequence[Subscribed], intent: Intent, images: Sequence[str]) -> Matched:
    """Return the asks for a person's intent: all images of the Applications, or those with these aliases or names.

    An unreadable entry is an error, because otherwise nobody would know that it was left as it is.
    """
    asks, problems = [], []
    known: set[str] = set()
    for one in subscribed:
        for sub in one.subscriptions:
            names = {sub.entry.alias, sub.entry.image.name, sub.entry.image.identity}
            known |= names
            asks += [Ask(sub, (), intent, siblings_of(sub, one))] if not images or names & set(images) else []
        for flaw in one.flaws:
            severity: Literal["error", "warning"] = "error" if flaw.severity == "error" else "warning"
            if flaw.severity != "info":
                told = Problem(
                    application=one.application.key,
                    rule=flaw.rule,
                    message=flaw.message,
                    hint=flaw.hint,
                    severity=severity,
                    key=flaw.key,
                    value=flaw.value,
                )
                problems.append(told)
    for name in images:
        if name not in known:
            hint = "name an alias of the annotation image-list, or the image as it is written there"
            problems.append(
                Problem(
                    rule="annotation",
                    message=f"--alias {name}: none of these Applications has it",
                    hint=hint,
                )
            )
    return Matched(tuple(asks), problems=tuple(problems))


def siblings_of(sub: Subscription, of: Subscribed) -> tuple[Subscription, ...]:
    """Return the subscriptions whose updates may wait on the same head branch, if a pull request is asked for."""
    return tuple(one for one in of.subscriptions if one.head_template == sub.head_template and one.repo == sub.repo)


def _judge_flaw(app: Tracker, flaw: Flaw, built: dict[str, list[Image]]) -> tuple[Unusable | None, Problem | None]:
    """Return the error of an entry, or a problem: an error if the entry is unreadable, else a warning."""
    problem = Problem(
        application=app.key,
        rule=flaw.rule,
        message=flaw.message,
        hint=flaw.hint,
        severity="warning",
        key=flaw.key,
        value=flaw.value,
    )
    if flaw.severity == "info":
        return None, None
    if flaw.severity == "warning":
        return None, problem
    if flaw.misspelt and flaw.entry and flaw.entry.image.identity not in built:
        return None, None  # `overlooked` warns about it, in one line for many Applications
    if flaw.entry is None:
        names = (image.repository.rpartition("/")[2] for images in built.values() for image in images)
        return None, replace(problem, severity="error") if any(name in flaw.text for name in names) else problem
    images = built.get(flaw.entry.image.identity)
    if not images:
        return None, problem
    verdict = Verdict("error", flaw.rule, flaw.message, flaw.hint, int(Exit.CONFIGURATION))
    return Unusable(Tracked(app, flaw.entry), images[0], verdict, strategy=flaw.strategy), None


def _of_others(wrong: Sequence[Problem], noted: Sequence[Problem]) -> tuple[Problem, ...]:
    """Return the warnings about Applications that do not take the images: few lines, however many they are.

    The first few Applications with mistakes (`wrong`) have a line for each. Everything that is only a warning
    (`noted`), such as a deprecated name, shares one line.
    """
    apps = sorted({one.application for one in wrong})
    full = tuple(one for one in wrong if one.application in apps[:FEW])
    rest = [(one.application, one.key) for one in wrong if one.application not in apps[:FEW]]
    return (
        *full,
        *about_others(rest, "annotations that are wrong, so their images are not updated"),
        *about_others(
            [(one.application, one.key) for one in noted], "annotations that work, but that lint warns about"
        ),
    )


def _first_of_each(unusable: Sequence[Unusable]) -> tuple[Unusable, ...]:
    """Keep the first error of each entry. If an entry has several flaws, `lint` shows the others."""
    found: dict[tuple[str, str], Unusable] = {}
    for one in unusable:
        found.setdefault((one.subscription.application.key, one.subscription.entry.text), one)
    return tuple(found.values())
