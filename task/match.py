"""Pure: what the Applications ask for, and the event → what has to be asked, and what is settled already.

Whose error counts (contract, section 12): an annotation problem is an error of this run
only where the entry names, or may name, the event's image; anything else is a warning.
"""

from __future__ import annotations

from collections.abc import Sequence

from task.draft import Ask
from task.errors import Exit
from task.model import (
    Application,
    Decision,
    Flaw,
    Image,
    Keys,
    Policy,
    Problem,
    Source,
    Subscribed,
    Subscription,
    Verdict,
)
from task.record import NamedTuple


class Matched(NamedTuple):
    """The asks of an event, and what needs no asking."""

    asks: tuple[Ask, ...]
    decisions: tuple[Decision, ...]
    problems: tuple[Problem, ...]


def match(subscribed: Sequence[Subscribed], images: Sequence[Image]) -> Matched:
    """Which entries take the event's images, and which broken ones might have."""
    built: dict[str, list[Image]] = {}
    for image in images:
        built.setdefault(image.identity, []).append(image)
    asks, decisions, problems = [], [], []
    for one in subscribed:
        asks += [
            Ask(sub, tuple(built[identity]))
            for sub in one.subscriptions
            if (identity := sub.entry.image.identity) in built
        ]
        for flaw in one.flaws:
            decision, problem = _judge_flaw(one.application, flaw, built)
            decisions += [decision] if decision else []
            problems += [problem] if problem else []
    return Matched(tuple(asks), _first_of_each(decisions), tuple(problems))


def _judge_flaw(app: Application, flaw: Flaw, built: dict[str, list[Image]]) -> tuple[Decision | None, Problem | None]:
    """An error with a decision, an error without (the entry is unreadable), or a warning."""
    problem = Problem(app.key, flaw.rule, flaw.message, flaw.hint, "warning", flaw.key, flaw.value)
    if flaw.severity == "info":
        return None, None
    if flaw.severity == "warning":
        return None, problem
    if flaw.entry is None:
        names = (image.repository.rpartition("/")[2] for images in built.values() for image in images)
        return None, problem._replace(severity="error") if any(name in flaw.text for name in names) else problem
    images = built.get(flaw.entry.image.identity)
    if not images:
        return None, problem
    entry = Subscription(app, flaw.entry, Policy(), Keys(), Source(""), target="", path="", repo="")
    verdict = Verdict("error", flaw.rule, flaw.message)
    return Decision(entry, images[0], verdict, hint=flaw.hint, exit=int(Exit.CONFIGURATION)), None


def _first_of_each(decisions: Sequence[Decision]) -> tuple[Decision, ...]:
    """An entry with several flaws has one decision; `lint` shows the others."""
    found: dict[tuple[str, str], Decision] = {}
    for one in decisions:
        found.setdefault((one.subscription.application.key, one.subscription.entry.text), one)
    return tuple(found.values())
