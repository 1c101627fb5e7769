"""Pure: one image on offer → a decision: the rules, then the order of builds, then what holds it back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from task.errors import AnnotationError, Exit, TargetError, TaskError, UsageError
from task.model import (
    Answer,
    Build,
    Decision,
    Hold,
    Image,
    Memory,
    Question,
    Reading,
    State,
    Subscription,
    Verdict,
    Written,
)
from task.pipeline.facts import caution, dated, image_of, objection, remembered, subject, wrong
from task.policy.judge import Leave, judge
from task.policy.order import Ancestry, later, superseded, version_of
from task.policy.remember import active, holding, said, written


@dataclass(frozen=True)
class Candidate:
    """One image on offer, and what is known of its build."""

    image: Image
    build: Build


@dataclass(frozen=True)
class Intent:
    """What a person asks for with `hold`, `release` or `rollback`, in place of an event."""

    verb: str  # "hold", "release", "rollback"
    hold: Hold | None = None  # None: nothing is held (`release`, `rollback --no-hold`)
    whole: bool = True  # all images of the Application, also those it will have; False: single ones
    to: str = ""  # of a rollback: a tag, tag@digest, "previous" or "3-back"
    discard: bool = False  # of a release: what was deferred is dropped
    unknown: bool = False  # of a rollback: also to a tag that nobody knows


@dataclass(frozen=True)
class Terms:
    """What the command line says about decisions."""

    leave: Leave = Leave()
    carry: bool = True
    require_live: bool = False
    build: Build = Build()
    check: str = "auto"  # --registry-check: auto, always, never
    now: str = "1970-01-01T00:00:00Z"  # which holds have ended; the clock is not asked here


@dataclass(frozen=True)
class Facts:
    """What the world answered to `questions`."""

    ancestry: Ancestry = field(default_factory=dict)
    answers: Mapping[Question, Answer] = field(default_factory=dict)
    # (file, how many) → its texts on the branch, newest first, that of the tip included
    earlier: Callable[[str, int], Iterable[str]] = lambda _path, _most: ()
    exists: Callable[[Question], Answer | None] = lambda _question: None  # asks the registry; None: it must not


@dataclass(frozen=True)
class Moment:
    """All that one decision is made on."""

    where: Decision  # current, kind and branch filled in
    said: Reading  # what Git itself says; `where.current` falls back to what runs
    state: State
    memory: Memory  # of this image
    terms: Terms
    facts: Facts


def key_of(sub: Subscription) -> str:
    """Under which name an image is remembered: its alias, else its name as `image-list` spells it."""
    return sub.entry.alias or sub.entry.image.name


def deferred(sub: Subscription, waiting: Written) -> Candidate:
    """A remembered event, as it was on offer then."""
    return Candidate(replace(sub.entry.image, tag=waiting.tag, digest=waiting.digest), waiting.build)


def weigh(moment: Moment, candidate: Candidate) -> Decision:
    """The decision about one image on offer: the rules, then the order of builds, then what holds it back."""
    where, sub = moment.where, moment.where.subscription
    answer = moment.facts.answers.get(subject(sub, candidate.image))
    wanted = _wanted(candidate.image, where, answer)
    decision = replace(where, candidate=wanted, verdict=judge(wanted, sub.policy, where.current, moment.terms.leave))
    if decision.verdict.verdict == "error":
        return _without_digest(decision, answer)
    if decision.verdict.verdict != "update":
        return decision
    if answer and answer.error and (moment.terms.check == "always" or _is_mistake(answer.error)):
        return wrong(decision, answer.error)
    if verdict := objection(sub, answer):
        return replace(decision, verdict=verdict)
    return _in_order(replace(decision, caution=caution(answer)), dated(wanted, candidate.build, answer), moment)


def _is_mistake(error: TaskError) -> bool:
    """A registry that does not answer may not be needed. Our unreadable file or a forbidden secret has to be said."""
    return isinstance(error, UsageError | AnnotationError)


def _without_digest(decision: Decision, answer: Answer | None) -> Decision:
    """The digest is needed, and neither the event nor the registry tells it."""
    if answer and answer.error:
        return wrong(decision, answer.error)
    if answer and not answer.exists:
        return replace(decision, verdict=objection(decision.subscription, answer) or decision.verdict)
    hint = "give --image-digest, or repo:tag@sha256:… as --image"
    return replace(decision, exit=int(Exit.CONFIGURATION), hint=hint)


def _in_order(decision: Decision, event: Written, moment: Moment) -> Decision:
    """Whether the build is the newest one, and what holds it back if it is."""
    policy, current = decision.subscription.policy, moment.said
    asked = moment.facts.answers.get(subject(decision.subscription, image_of(decision.subscription, current)))
    if asked and asked.error and _is_mistake(asked.error):
        return wrong(decision, asked.error)
    memory = remembered(moment.memory, current, asked)
    if why := superseded(event, policy, current, memory, moment.facts.ancestry):
        return replace(decision, verdict=Verdict("refuse", "superseded", why))
    decision = replace(decision, caution=decision.caution or caution(asked))
    hold = holding(moment.state, moment.memory, moment.terms.now)
    return _deferred(decision, event, hold, moment) if hold else admitted(decision, event, moment)


def admitted(decision: Decision, event: Written, moment: Moment) -> Decision:
    """The update, with what is to be remembered of it."""
    memory, now = moment.memory, moment.terms.now
    new = written(memory, event, decision.subscription.policy)
    new = replace(new, hold=active(new.hold, now))
    over = moment.state.hold is not None and active(moment.state.hold, now) is None
    return replace(decision, memory=new if new != memory else None, hold=(None,) if over else (), build=event.build)


def _deferred(decision: Decision, event: Written, hold: Hold, moment: Moment) -> Decision:
    """Held back: remembered, if it is newer than what is remembered already."""
    known, policy = moment.memory.deferred, decision.subscription.policy
    if known and version_of(known) != version_of(event):
        why = later(event, known, policy, moment.facts.ancestry)
        if why:
            because = f"{said(hold)}; {version_of(known)} is remembered and is newer: {why}"
            return replace(decision, verdict=Verdict("refuse", "superseded", because))
    verdict = Verdict("defer", "held", f"{said(hold)}; {version_of(event)} is remembered for the release")
    new = replace(moment.memory, deferred=event)
    return replace(decision, verdict=verdict, memory=new if new != moment.memory else None, build=event.build)


def _wanted(image: Image, where: Decision, answer: Answer | None) -> Image:
    """What would be written: with the digest where it is asked for, or where the target pins one already."""
    policy = where.subscription.policy
    pinned = policy.pin_digest or policy.strategy == "digest"
    if pinned and not image.digest and answer and answer.exists:
        return replace(image, digest=answer.digest)
    return image if pinned or not image.tag or where.current.digest else replace(image, digest="")


def failed(decision: Decision, error: TaskError) -> Decision:
    """The decision, turned into that error; what is wrong with a file names it."""
    message = str(error) if isinstance(error, TargetError) else error.message
    verdict = Verdict("error", error.rule, message)
    current = decision.current
    if isinstance(error, TargetError) and error.subject and not current.file:
        current = replace(current, file=error.subject)
    return replace(
        decision, verdict=verdict, current=current, exit=int(error.exit), hint=error.hint, memory=None, hold=()
    )
