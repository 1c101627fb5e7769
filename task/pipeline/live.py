"""`write-back-method: argocd`: the live Application is patched, by the same rules, and nothing is written to Git.

Without Git there is no memory: builds are told apart by their tags, else by arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from task.editors.live import read, write
from task.errors import Outpaced, SourceError, TaskError
from task.model import Decision, Memory, State
from task.pipeline.contention import Contention
from task.pipeline.decide import Ask, choose, facts_needed, settled_without_git
from task.pipeline.deliver import failed_asks, landed_of, last_checks
from task.pipeline.facts import may_ask, merged
from task.pipeline.job import Job, Outcome
from task.pipeline.move import failed
from task.pipeline.ports import LiveApplications, World
from task.pipeline.target import live_reading, target_of
from task.pipeline.verify import verified
from task.pipeline.weigh import Facts, Situation


def patch(asks: Sequence[Ask], job: Job, world: World) -> Outcome:
    """Decide and patch, Application after Application; each fails alone."""
    done = Outcome()
    for ask in asks:
        refused = settled_without_git(ask, job.terms)
        try:
            decision = refused or _patched(ask, job, world)
        except TaskError as error:
            done = done.plus(failed_asks([ask], error, job.terms))
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
    api = world.live()
    contention = Contention(f"changing {ask.subscription.application.key}", job.deadline, world)
    while True:
        contention.begin()
        try:
            return _attempt(ask, job, api, world, contention)
        except Outpaced:
            contention.pause()


def _attempt(ask: Ask, job: Job, api: LiveApplications, world: World, contention: Contention) -> Decision:
    sub = ask.subscription
    app = sub.application
    manifest, version = api.read(app.namespace, app.name)
    index = app.sources.index(sub.source) if sub.source in app.sources else 0
    target = target_of(sub, "live", carry=False)
    said = read(manifest, index, target)
    facts = Facts()
    if may_ask(sub, job.terms.check):
        asked = merged(facts_needed(ask, said, Memory(), job.terms))
        answers = world.registry(asked) if asked else {}
        facts = Facts(answers={replace(about, facts=()): answer for about, answer in answers.items()})
    current = said if said.tag or said.digest else live_reading(sub)
    situation = Situation(sub, "", "live", current, said, State(), Memory(), job.terms, facts)
    move = replace(choose(situation, ask.candidates), remember=None)
    with contention.clock_paused():
        decision = verified([move], replace(last_checks(job, world), labels=False))[0].decision
    if decision.verdict.verdict != "update":
        return decision
    try:
        operations, _edits = write(manifest, index, target, decision.candidate)
    except TaskError as error:
        return failed(decision, error)
    if operations and not job.dry:
        api.patch(app.namespace, app.name, version, operations)
    return decision
