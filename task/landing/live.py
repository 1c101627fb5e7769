"""`write-back-method: argocd`: patch the live Application by the same rules, without writing to
Git.

Without Git, nothing is remembered, so builds are compared by their tags, or else by arrival.
Kubernetes applies a patch only to the version that was read. Argo CD's API checks a patch, renders
the manifests, and only then writes the whole spec, which overwrites any change in between. (With
Argo CD 3.6, one of two simultaneous runs lost its update in five of six tries.) So after writing an
image through that API, the run keeps reading it for a while, and writes it again if it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

from task.deciding.decide import choose, facts_needed_by_ask, failed_asks, settled_without_git
from task.deciding.job import Ask, Job, Outcome, failed, landed_applications
from task.deciding.target import live_reading, target_of
from task.deciding.verify import verified
from task.deciding.weigh import Facts, Situation, as_questions, may_ask
from task.editors.live import place, read, write
from task.errors import Outpaced, SourceError, TaskError
from task.landing.before_deciding import answers_to, last_checks
from task.landing.contention import Contention
from task.landing.ports import LiveApplications, World
from task.model import Decision, Memory, Reading, State, Subscription, Target

SHORTEST_LOOK = 1.0
LONGEST_LOOK = 30.0  # seconds to watch an image that others may overwrite
LOOK = 0.25  # seconds between two reads


def patch(asks: Sequence[Ask], job: Job, world: World) -> Outcome:
    """Decide and patch the Applications one by one, and watch images that may be overwritten.

    A failure does not affect the other Applications.
    """
    outcomes: list[Outcome] = []
    watched: list[_Undoable] = []
    for number, ask in enumerate(asks):
        outcome, more = _without_errors(ask, job, partial(_first, ask, number, job, world))
        outcomes.append(outcome)
        watched += more
    while watched:
        world.sleep(LOOK)
        still_watched: list[_Undoable] = []
        for undoable in watched:
            live_image = _read_again(undoable, world)
            if live_image is None:  # the image was written, so the decision stays an update
                continue
            image = undoable.decision.candidate
            if (live_image.tag, live_image.digest) == (image.tag, image.digest):
                if world.now() < undoable.until:
                    still_watched.append(undoable)
                continue
            outcomes[undoable.number], more = _without_errors(
                undoable.ask,
                job,
                partial(_patch_again, undoable, job, world),
            )
            still_watched += more
        watched = still_watched
    return reduce(Outcome.plus, outcomes, Outcome())


def _read_again(undoable: _Undoable, world: World) -> Reading | None:
    """Return the live image. If it cannot be read, log a warning and return None."""
    try:
        _manifest, _version, live_image = said_live(undoable.ask.subscription, undoable.api)
    except TaskError as error:
        image = undoable.decision.candidate.reference
        app = undoable.ask.subscription.application.key
        message = f"{app}: cannot tell whether {image} is still set: {error.message}"
        world.log("warning", message)
        return None
    return live_image


@dataclass(frozen=True)
class _Undoable:
    """An image written through an API that allows others to overwrite it unnoticed."""

    ask: Ask
    number: int  # index among the asks
    api: LiveApplications
    decision: Decision
    contention: Contention
    until: float  # when to stop watching


_Result = tuple[Decision, list[_Undoable]]


def _without_errors(
    ask: Ask,
    job: Job,
    work: Callable[[], _Result],
) -> tuple[Outcome, list[_Undoable]]:
    try:
        decision, watched = work()
    except TaskError as error:
        return failed_asks([ask], error, job.terms), []
    return Outcome(
        (decision,),
        landed=landed_applications([decision], ask.subscription.repo, ""),
    ), watched


def _first(ask: Ask, number: int, job: Job, world: World) -> _Result:
    if refused := settled_without_git(ask, job.terms):
        return refused, []
    if ask.intent:
        raise SourceError(
            "with write-back-method argocd, there is nothing in Git to hold or roll back",
            hint="use write-back-method: git, or argocd app rollback",
        )
    live = world.live()
    if live is None:
        raise SourceError(
            "write-back-method argocd patches live Applications, but these Applications come from"
            " files",
            hint="use --applications cluster or argocd, or write-back-method: git",
        )
    contention = Contention(f"changing {ask.subscription.application.key}", job.deadline, world)
    return _patch_until_deadline(ask, number, live, contention, job, world)


def _patch_until_deadline(
    ask: Ask,
    number: int,
    api: LiveApplications,
    contention: Contention,
    job: Job,
    world: World,
) -> _Result:
    """Read, decide, and patch. If the Application has changed, retry until the deadline."""
    while True:
        contention.begin()
        with suppress(Outpaced):
            decision, until = _attempt(ask, job, api, world, contention)
            if not until:
                return decision, []
            return decision, [_Undoable(ask, number, api, decision, contention, until)]
        contention.pause()


def _patch_again(undoable: _Undoable, job: Job, world: World) -> _Result:
    image = undoable.decision.candidate.reference
    app = undoable.ask.subscription.application.key
    undoable.contention.pause(f"{app}: someone else overwrote {image}; reevaluating")
    decision, watched = _patch_until_deadline(
        undoable.ask,
        undoable.number,
        undoable.api,
        undoable.contention,
        job,
        world,
    )
    # "unchanged" means that someone has restored the image that this run wrote.
    return (undoable.decision if decision.verdict == "unchanged" else decision), watched


def said_live(sub: Subscription, api: LiveApplications) -> tuple[Mapping[str, Any], str, Reading]:
    """Return the live Application, its resourceVersion, and the image in its spec.

    Raises `TaskError`.
    """
    manifest, version = api.read(sub.application.namespace, sub.application.name)
    return manifest, version, read(manifest, *_target_in_source(sub))


def owner_of(sub: Subscription, world: World) -> str:
    """Return who would revert a patch of the live Application, or "" if unknown."""
    live = world.live() if sub.method == "argocd" else None
    if live is None:
        return ""
    try:
        manifest, _version, _said = said_live(sub, live)
        return world.taken_back_by(manifest, place(manifest, *_target_in_source(sub)))
    except TaskError:
        return ""


def _target_in_source(sub: Subscription) -> tuple[int, Target]:
    """Return the source's index among the Application's sources, and the target in it."""
    sources = sub.application.sources
    return sources.index(sub.source) if sub.source in sources else 0, target_of(
        sub,
        "live",
        carry=False,
    )


def _attempt(
    ask: Ask,
    job: Job,
    api: LiveApplications,
    world: World,
    contention: Contention,
) -> tuple[Decision, float]:
    """Decide and patch. Return the decision and when to stop watching it (0 if it cannot be
    overwritten unnoticed).
    """
    sub = ask.subscription
    terms = ask.terms(job.terms)
    app = sub.application
    manifest, version, said = said_live(sub, api)
    facts = Facts()
    if may_ask(sub, terms.check):
        facts = Facts(
            answers=answers_to(as_questions(facts_needed_by_ask(ask, said, Memory(), terms)), world)
        )
    current = said if said.tag or said.digest else live_reading(sub)
    situation = Situation(
        sub,
        "",
        "live",
        current,
        said,
        State(),
        Memory(),
        terms,
        facts,
    )
    move = replace(choose(situation, ask), remember=None)
    with contention.clock_paused():
        checks = replace(last_checks(job, world), labels=False)
        decision = verified([move], checks)[0].decision
    if decision.verdict != "update":
        return decision, 0.0
    try:
        operations, edits = write(manifest, *_target_in_source(sub), decision.candidate)
    except TaskError as error:
        return failed(decision, error), 0.0
    if operations:
        decision = replace(decision, owner=world.taken_back_by(manifest, edits[0].path))
    if not operations or job.dry:
        return decision, 0.0
    began = world.now()
    if api.patch(app.namespace, app.name, version, operations):
        return decision, 0.0
    # A client that read the Application before this patch may write its old copy back. Writing it
    # back takes about as long as this attempt did.
    now = world.now()
    return decision, now + min(max(SHORTEST_LOOK, 3 * (now - began)), LONGEST_LOOK)
