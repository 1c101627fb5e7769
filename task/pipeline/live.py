"""`write-back-method: argocd`: the live Application is patched, by the same rules, and nothing is written to Git.

Without Git there is no memory: builds are told apart by their tags, else by arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from task.editors.live import read, write
from task.errors import ContendedError, Outpaced, SourceError, TaskError
from task.model import Decision, Memory, Reading, State, Verdict
from task.pipeline.decide import Ask, choose, facts_needed, hopeless
from task.pipeline.deliver import failures, landed_of, pause, vouch_of
from task.pipeline.facts import may_ask, merged
from task.pipeline.job import Job, Outcome
from task.pipeline.ports import LiveApplications, World
from task.pipeline.target import live_reading, target_of
from task.pipeline.verify import vouched
from task.pipeline.weigh import Facts, Moment, failed


def patch(asks: Sequence[Ask], job: Job, world: World) -> Outcome:
    """Decide and patch, Application after Application; each fails alone."""
    done = Outcome()
    for ask in asks:
        refused = hopeless(ask, job.terms)
        try:
            decision = refused or _patched(ask, job, world)
        except TaskError as error:
            done = done.plus(failures([ask], error, job.terms))
            continue
        done = done.plus(Outcome((decision,), landed=landed_of([decision], ask.subscription.repo, "")))
    return done


def _patched(ask: Ask, job: Job, world: World) -> Decision:
    """Read, decide, patch; and again when the Application changed meanwhile, until the deadline."""
    if ask.intent:
        raise SourceError(
            "write-back-method argocd leaves nothing in Git to hold or roll back",
            hint="use write-back-method: git, or argocd app rollback",
        )
    if world.live is None:
        raise SourceError(
            "write-back-method argocd patches the live Application, and these Applications come from files",
            hint="use --applications cluster or argocd, or write-back-method: git",
        )
    end, attempt, api = world.now() + job.deadline, 0, world.live()
    while True:
        attempt += 1
        began = world.now()
        try:
            return _attempt(ask, job, api, world)
        except Outpaced:
            if attempt == 1:  # how long a signature took to come does not count
                end = world.now() + job.deadline
            left = end - world.now()
            if left <= 0:
                key = ask.subscription.application.key
                raise ContendedError(f"others kept changing {key}", hint="run it again") from None
            world.sleep(pause(attempt, world.now() - began, left) * world.jitter())


def _facts(ask: Ask, said: Reading, job: Job, world: World) -> Facts:
    if not may_ask(ask.subscription, job.terms.check):
        return Facts()
    asked = merged(facts_needed(ask, said, Memory(), job.terms))
    answers = world.registry(asked) if asked else {}
    return Facts(answers={replace(about, facts=()): answer for about, answer in answers.items()})


def _attempt(ask: Ask, job: Job, api: LiveApplications, world: World) -> Decision:
    sub = ask.subscription
    app = sub.application
    manifest, version = api.read(app.namespace, app.name)
    index = app.sources.index(sub.source) if sub.source in app.sources else 0
    target = target_of(sub, "live", carry=False)
    where = Decision(sub, ask.offered, Verdict("error", "internal", ""), kind="live")
    said = read(manifest, index, target)
    silent = not (said.tag or said.digest)
    where = replace(where, current=live_reading(sub) if silent else said)
    facts = _facts(ask, said, job, world)
    decision = choose(Moment(where, said, State(), Memory(), job.terms, facts), ask.candidates)
    decision = vouched([replace(decision, memory=None, hold=())], replace(vouch_of(job, world), labels=False))[0]
    if decision.verdict.verdict != "update":
        return decision
    try:
        operations, _edits = write(manifest, index, target, decision.candidate)
    except TaskError as error:
        return failed(decision, error)
    if operations and not job.dry:
        api.patch(app.namespace, app.name, version, operations)
    return decision
