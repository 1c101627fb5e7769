"""Registry events: checks with the registries whether events are true, and which build is newer.

Anyone who can call a webhook can send arbitrary content. So an event's claims about an image are
verified before the rules apply, and a forged event can only announce images that the rules would
admit anyway. Builds are ordered by information in the image itself. The time of the event is only
used if no other information is available.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from task.deciding.decide import OF_VERSIONS, Identity, settled_without_git
from task.deciding.job import Ask, Job
from task.deciding.weigh import question_about, registry_error
from task.errors import TaskError, Trouble
from task.landing.ports import World
from task.model import (
    Answer,
    Build,
    Decision,
    Event,
    Fact,
    Image,
    Problem,
    Question,
    Subscription,
    Verdict,
)
from task.pipeline.match import Matched, asks_for_images, by_repository
from task.pipeline.overlooked import Seen
from task.policy.judge import objection
from task.policy.strategies import needs

REVISION = "org.opencontainers.image.revision"
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_FIRST_DATE = "1981"  # reproducible builds use dates in 1970 or 1980 for "no date"
_DIGEST_CHARACTERS = 19  # how much of a digest to quote in a message: "sha256:" and 12 digits
_NOT_IN_REGISTRY = Verdict("refuse", "not-in-registry", "the registry has no such image")


@dataclass(frozen=True)
class Checked:
    """An event for a subscription, and the outcome of checking the event's image with the
    registry.
    """

    event: Event
    build: Build = Build()
    refusal: Verdict | None = None
    error: TaskError | None = None

    @property
    def is_confirmed(self) -> bool:
        """Whether the registry neither contradicts the event nor failed to respond."""
        return self.refusal is None and self.error is None


def match_events(seen: Seen, job: Job, world: World) -> tuple[Job, Matched]:
    """Return the job unchanged, the asks (requests to decide about one image) for events that
    registries confirm, and decisions that refuse all other events.
    """
    matched = asks_for_images(seen.subscribed, job.images)
    events_by_image: dict[str, list[Event]] = {}
    for event in job.events:
        events_by_image.setdefault(event.image.identity, []).append(event)
    # Keyed by ask. If an ask's decision does not depend on its events (for example, because the
    # rules do not admit the tag), the events need not be checked.
    events_to_check = {
        ask.key: events_by_image[ask.offered.identity]
        for ask in _asks_of_this_run(matched, job)
        if not settled_without_git(ask, job.terms)
    }
    answers = _answers_about_events(matched, events_to_check, job, world)

    asks: list[Ask] = []
    decisions: list[Decision] = []
    problems: list[Problem] = []
    for ask in matched.asks:
        if ask.key not in events_to_check:
            asks.append(ask)
            continue
        # One confirmed event is enough. Unconfirmed events are skipped. If an event could not be
        # checked, an error is reported.
        events = events_to_check[ask.key]
        checked = [_checked_event(ask.subscription, event, answers, job) for event in events]
        confirmed = [item for item in checked if item.is_confirmed]
        if not confirmed:
            decisions.append(_refusal_of_events(ask, checked))
            continue
        asks.append(_with_events(ask, confirmed))
        problems += [
            _unchecked_event_problem(ask, item.event, item.error) for item in checked if item.error
        ]

    _warn_if_ordered_by_events(asks, job, world)
    return job, replace(
        matched,
        asks=tuple(asks),
        decisions=tuple(decisions),
        problems=tuple(dict.fromkeys((*matched.problems, *problems))),
    )


def _asks_of_this_run(matched: Matched, job: Job) -> Iterable[Ask]:
    """Return the asks that this run decides about. With `--only-repository` (`job.only`), these are
    only the asks for the given repositories, because separate runs handle the others.
    """
    in_git = [ask for asks in by_repository(matched, job) for ask in asks]
    live = () if job.only else matched.live
    return (*in_git, *live)


def _answers_about_events(
    matched: Matched,
    events_to_check: Mapping[Identity, Sequence[Event]],
    job: Job,
    world: World,
) -> Mapping[Question, Answer]:
    """Query the registries once per image for all facts that the image's entries need (such as its
    digest), and return the answers.

    The keys of the result are the questions without facts, one for each image.
    """
    # the inner dictionaries serve as ordered sets of facts
    facts_by_image: dict[Question, dict[Fact, None]] = {}
    for ask in matched.asks:
        for event in events_to_check.get(ask.key, ()):
            question = _question_about_event(ask.subscription, event, job)
            if question:
                facts = facts_by_image.setdefault(_without_facts(question), {})
                facts.update(dict.fromkeys(question.facts))
    questions = tuple(
        replace(question, facts=tuple(facts)) for question, facts in facts_by_image.items()
    )
    answers = world.registry(questions) if questions else {}
    return {_without_facts(question): answer for question, answer in answers.items()}


def _without_facts(question: Question) -> Question:
    """Return the question without its facts, as a key that identifies the image."""
    return replace(question, facts=())


def _question_about_event(sub: Subscription, event: Event, job: Job) -> Question | None:
    """Return the question to ask the registry about an event's image for one subscription, or None
    if there is nothing to ask.

    The question includes the digest if the event must be confirmed or does not contain a digest. It
    includes the creation time (and labels) if the event has no build but the strategy needs the
    image's age.
    """
    if job.terms.check == "never":
        return None
    refusal = objection(event.image.tag, sub.policy)
    # A refusal by these rules is not final: the repository's config is read later, and its
    # `tagOrder` may extract a version from the tag.
    if refusal and refusal.rule not in OF_VERSIONS:
        return None

    facts: list[Fact] = []
    if event.claimed or not event.image.digest:
        facts.append("digest")
    has_no_build = event.build == Build()
    if has_no_build and needs(sub.policy, "created"):
        facts.append("created")
        if job.source_repository:
            facts.append("labels")
    if not facts:
        return None

    image = event.image
    if event.claimed:
        # The registry returns the tag's current digest. The
        # digest in our own `--image` may be an older one.
        image = replace(image, digest="")
    return replace(question_about(sub, image), facts=tuple(facts))


def _checked_event(
    sub: Subscription,
    event: Event,
    answers: Mapping[Question, Answer],
    job: Job,
) -> Checked:
    """Compare an event with the registry's response. Return the event with the digest and the build
    that are now known, or with a refusal or an error.

    A `claimed` event could have been sent by anyone, so the registry must confirm it.
    """
    question = _question_about_event(sub, event, job)
    answer = answers.get(_without_facts(question)) if question else None
    if answer and answer.error:
        if event.claimed:
            return Checked(event, error=answer.error)
        # the event is trusted, so the missing facts are looked up again for the decision
        answer = None

    build = _build_of_event(event, answer, job)
    if answer is None:
        return Checked(event, build)
    if not answer.exists:
        return Checked(event, refusal=_NOT_IN_REGISTRY)

    event_digest = event.image.digest
    is_contradiction = event_digest not in ("", answer.digest)
    if event.claimed and is_contradiction:
        because = (
            f"{event.image.tag} is {_shortened_digest(answer.digest)} in the registry, but the"
            f" event says {_shortened_digest(event_digest)}"
        )
        return Checked(event, refusal=replace(_NOT_IN_REGISTRY, because=because))
    image = replace(event.image, digest=event_digest or answer.digest)
    return Checked(replace(event, image=image), build)


def _shortened_digest(digest: str) -> str:
    return f"{digest[:_DIGEST_CHARACTERS]}…"


def _build_of_event(event: Event, answer: Answer | None, job: Job) -> Build:
    """Return the build of an event's image: the event's own build, if it has one.

    Otherwise, the build consists of the commit in the image's label and the image's creation date,
    if the registry's `answer` contains them. If neither is usable, the build only has the event's
    time.
    """
    if event.build != Build():
        if not event.build.commit:
            return event.build
        repository = event.build.repository or job.source_repository
        return replace(event.build, repository=repository)

    created = ""
    revision = ""
    if answer:
        revision = answer.labels.get(REVISION, "").lower()
        if answer.created >= _FIRST_DATE:  # RFC 3339 strings sort in chronological order
            created = answer.created
    if job.source_repository and _COMMIT.fullmatch(revision):
        return Build(commit=revision, repository=job.source_repository, created=created)
    return Build(created=created or event.at)


def _with_events(ask: Ask, checked: Sequence[Checked]) -> Ask:
    """Return the ask (a request to decide about one image) with the images of these confirmed
    events as its candidates. The events are included, each with its build. Duplicates are skipped.
    """
    distinct: dict[tuple[Image, Build], Event] = {}
    for item in checked:
        event = replace(item.event, build=item.build)
        distinct.setdefault((event.image, event.build), event)
    images = tuple(image for image, _ in distinct)
    return replace(ask, candidates=images, events=tuple(distinct.values()))


def _refusal_of_events(ask: Ask, checked: Sequence[Checked]) -> Decision:
    """Return the decision about an ask (a request to decide about one image) if the registry
    confirms none of its events.

    The decision is the error for the first event that could not be checked, or else the refusal of
    the first event.
    """
    failed = [item for item in checked if item.error]
    checked_event = failed[0] if failed else checked[0]
    verdict = checked_event.refusal or _NOT_IN_REGISTRY
    decision = Decision(
        ask.subscription, checked_event.event.image, verdict, event=checked_event.event.origin
    )
    if checked_event.error:
        return registry_error(decision, checked_event.error)
    return decision


def _unchecked_event_problem(ask: Ask, event: Event, error: TaskError) -> Problem:
    """Return the error for an event that is skipped because it could not be checked."""
    app = ask.subscription.application.key
    message = f"{event.image.reference} could not be checked, so it is skipped: {error.message}"
    trouble = Trouble("registry", message, error.hint, exit=error.exit)
    return Problem(trouble, application=app)


def _warn_if_ordered_by_events(asks: Sequence[Ask], job: Job, world: World) -> None:
    """Log a warning, only once, if a strategy orders builds by age, but the age of a build is only
    known from its event's time.
    """
    times = {event.at for event in job.events if event.at and event.build == Build()}
    for ask in asks:
        if not needs(ask.subscription.policy, "created"):
            continue
        for event in ask.events:
            # `_build_of_event` only uses the event's time if it finds no other date.
            has_only_its_time = event.build == Build(created=event.at) and event.at in times
            if has_only_its_time:
                why = "the images have no creation date, or the registry was not queried"
                world.log("warning", f"builds are ordered by the times of their events: {why}")
                return
