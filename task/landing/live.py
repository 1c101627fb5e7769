"""`write-back-method: argocd`: patch the live Application under the same rules, without writing to
Git.

Without Git, nothing is remembered, so builds are compared by their tags, or else by order of
arrival. Kubernetes applies a patch only to the version that was read. Argo CD's API checks a patch,
renders the manifests, and only then writes the whole spec, which overwrites any change made in the
meantime. (With Argo CD 3.6, one of two simultaneous runs lost its update in five of six tries.) So
after writing an image through that API, the run keeps checking it for a while, and writes it again
if it was overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

# how long, in seconds, to watch an image that others may overwrite
SHORTEST_WATCH = 1.0
LONGEST_WATCH = 30.0
READ_INTERVAL = 0.25  # seconds between reads of that image


def patch(asks: Sequence[Ask], job: Job, world: World) -> Outcome:
    """Decide and patch the live Applications one by one. Then watch the images that other programs
    may overwrite, and patch them again if that happens.

    An ask is one image of an Application, with the builds that this run offers for it. A failure
    does not affect the other Applications.
    """
    outcomes: list[Outcome] = []  # one for each ask
    watched: list[_WatchedImage] = []
    for number, ask in enumerate(asks):
        first_patch = partial(_patch_first, ask, number, job, world)
        outcome, newly_watched = _without_errors(ask, job, first_patch)
        outcomes.append(outcome)
        watched += newly_watched

    while watched:
        world.sleep(READ_INTERVAL)
        still_watched: list[_WatchedImage] = []
        for watched_image in watched:
            live_image = _image_now(watched_image, world)
            if live_image is None:  # unreadable now, but it was written, so it counts as updated
                continue
            image = watched_image.decision.candidate
            is_still_set = (live_image.tag, live_image.digest) == (image.tag, image.digest)
            if is_still_set:
                if world.now() < watched_image.until:
                    still_watched.append(watched_image)
                continue
            # someone else has overwritten it
            next_patch = partial(_patch_again, watched_image, job, world)
            outcome, newly_watched = _without_errors(watched_image.ask, job, next_patch)
            outcomes[watched_image.number] = outcome
            still_watched += newly_watched
        watched = still_watched
    return reduce(Outcome.plus, outcomes, Outcome())


def _image_now(watched: _WatchedImage, world: World) -> Reading | None:
    """Return the image that is currently set in a live Application (in the cluster). If it cannot
    be read, log a warning and return None.
    """
    sub = watched.ask.subscription
    try:
        _manifest, _version, live_image = said_live(sub, watched.api)
    except TaskError as error:
        image = watched.decision.candidate.reference
        app = sub.application.key
        message = f"{app}: cannot tell whether {image} is still set: {error.message}"
        world.log("warning", message)
        return None
    return live_image


@dataclass(frozen=True)
class _WatchedImage:
    """An image written through an API that allows others to overwrite it unnoticed."""

    ask: Ask
    number: int  # index among the asks
    api: LiveApplications
    decision: Decision
    contention: Contention
    until: float  # when to stop watching


_Result = tuple[Decision, list[_WatchedImage]]


def _without_errors(
    ask: Ask,
    job: Job,
    work: Callable[[], _Result],
) -> tuple[Outcome, list[_WatchedImage]]:
    """Call `work`, which decides one ask and patches its Application. Return the decision as an
    outcome, and the images to watch. An error becomes the ask's decision.
    """
    try:
        decision, watched = work()
    except TaskError as error:
        return failed_asks([ask], error, job.terms), []
    landed = landed_applications([decision], ask.subscription.repo, "")
    return Outcome((decision,), landed=landed), watched


def _patch_first(ask: Ask, number: int, job: Job, world: World) -> _Result:
    """Patch the live Application of an ask (one image, with the builds offered for it) for the
    first time, unless the ask can be decided without reading it.

    Return the decision, and the images to watch. Raises `TaskError`, including when the run is a
    person's command or when Applications come from files. `number` is the ask's index.
    """
    decision = settled_without_git(ask, job.terms)
    if decision:
        return decision, []
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
    """Read the live Application, decide, and patch it. If someone else changes it in the meantime,
    retry until the deadline.

    Return the decision, and the images to watch: the image that was written, if others may
    overwrite it unnoticed.
    """
    while True:
        contention.begin()
        try:
            decision, watch_until = _attempt_patch(ask, job, api, world, contention)
        except Outpaced:
            contention.pause()  # raises `ContendedError` after the deadline
            continue
        if not watch_until:  # others cannot overwrite it unnoticed
            return decision, []
        watched = _WatchedImage(
            ask=ask,
            number=number,
            api=api,
            decision=decision,
            contention=contention,
            until=watch_until,
        )
        return decision, [watched]


def _patch_again(overwritten: _WatchedImage, job: Job, world: World) -> _Result:
    """Decide and patch an Application again, because someone else has overwritten the image. Return
    the decision, and the images to watch.
    """
    ask = overwritten.ask
    image = overwritten.decision.candidate.reference
    app = ask.subscription.application.key
    overwritten.contention.pause(f"{app}: someone else overwrote {image}; reevaluating")
    decision, watched = _patch_until_deadline(
        ask, overwritten.number, overwritten.api, overwritten.contention, job, world
    )
    if decision.verdict == "unchanged":  # someone has restored the image that this run wrote
        return overwritten.decision, watched
    return decision, watched


def said_live(sub: Subscription, api: LiveApplications) -> tuple[Mapping[str, Any], str, Reading]:
    """Read a live Application from the cluster. Return its manifest, its resourceVersion (which
    Kubernetes changes with each write), and the image in its spec.

    Raises `TaskError` if the Application or its image cannot be read.
    """
    manifest, version = api.read(sub.application.namespace, sub.application.name)
    return manifest, version, read(manifest, *_target_in_source(sub))


def owner_of(sub: Subscription, world: World) -> str:
    """Return what would revert a change to the image in a live Application (one that is patched in
    the cluster), such as "ApplicationSet web", or "" if that is unknown.
    """
    if sub.method != "argocd":
        return ""
    live = world.live()
    if live is None:
        return ""
    try:
        manifest, _version, _live_image = said_live(sub, live)
        image_field = place(manifest, *_target_in_source(sub))
        return world.taken_back_by(manifest, image_field)
    except TaskError:
        return ""


def _target_in_source(sub: Subscription) -> tuple[int, Target]:
    """Return the index of the subscription's source among the Application's sources, and the place
    in that source where the image is written.
    """
    sources = sub.application.sources
    index = sources.index(sub.source) if sub.source in sources else 0
    return index, target_of(sub, "live", carry=False)


def _attempt_patch(
    ask: Ask,
    job: Job,
    api: LiveApplications,
    world: World,
    contention: Contention,
) -> tuple[Decision, float]:
    """Read a live Application, decide, and patch it once.

    Return the decision, and when to stop watching the image (0 if others cannot overwrite it
    unnoticed). Raises `Outpaced` if the Application has changed in the meantime.
    """
    sub = ask.subscription
    app = sub.application
    manifest, resource_version, in_spec = said_live(sub, api)
    decision = _decided_live(ask, in_spec, job, world, contention)
    if decision.verdict != "update":
        return decision, 0.0

    try:
        operations, edits = write(manifest, *_target_in_source(sub), decision.candidate)
    except TaskError as error:
        return failed(decision, error), 0.0
    if not operations:
        return decision, 0.0
    # an owner, such as an ApplicationSet, may revert the change; the report mentions it
    decision = replace(decision, owner=world.taken_back_by(manifest, edits[0].path))
    if job.dry:
        return decision, 0.0

    began = world.now()
    is_final = api.patch(app.namespace, app.name, resource_version, operations)
    if is_final:
        return decision, 0.0
    # A client that read the Application before this patch may write its old copy back. Its write
    # takes about as long as this patch did, so watching for three times as long should be enough.
    ended = world.now()
    seconds = min(max(SHORTEST_WATCH, 3 * (ended - began)), LONGEST_WATCH)
    return decision, ended + seconds


def _decided_live(
    ask: Ask, in_spec: Reading, job: Job, world: World, contention: Contention
) -> Decision:
    """Decide an ask (one image, with the builds offered for it) for a live Application, and verify
    the signatures and other proofs of the build.

    `in_spec` is the image in the Application's spec. It is empty if the spec does not set the
    image. In that case, the running image is the current one.
    """
    sub = ask.subscription
    terms = ask.terms(job.terms)
    facts = Facts()
    if may_ask(sub, terms.check):
        needed = facts_needed_by_ask(ask, in_spec, Memory(), terms)
        facts = Facts(answers=answers_to(as_questions(needed), world))
    spec_has_version = bool(in_spec.tag or in_spec.digest)
    current = in_spec if spec_has_version else live_reading(sub)
    # nothing is remembered about live Applications
    situation = Situation(
        subscription=sub,
        branch="",
        kind="live",
        current=current,
        in_git=in_spec,
        state=State(),
        memory=Memory(),
        terms=terms,
        facts=facts,
    )
    move = replace(choose(situation, ask), remember=None)

    checks = replace(last_checks(job, world), labels=False)  # no commit message needs the labels
    with contention.clock_paused():  # while proofs are verified
        (verified_move,) = verified([move], checks)
    return verified_move.decision
