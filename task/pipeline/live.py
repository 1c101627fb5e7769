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
from task.pipeline.ports import Edges, Live, Order, Outcome
from task.pipeline.target import live_reading, target_of
from task.pipeline.verify import vouched
from task.pipeline.weigh import Facts, Moment, failed


def patch(asks: Sequence[Ask], order: Order, edges: Edges) -> Outcome:
    """Decide and patch, Application after Application; each fails alone."""
    done = Outcome()
    for ask in asks:
        refused = hopeless(ask, order.terms)
        try:
            decision = refused or _patched(ask, order, edges)
        except TaskError as error:
            done = done.plus(failures([ask], error, order.terms))
            continue
        done = done.plus(Outcome((decision,), landed=landed_of([decision], ask.subscription.repo, "")))
    return done


def _patched(ask: Ask, order: Order, edges: Edges) -> Decision:
    """Read, decide, patch; and again when the Application changed meanwhile, until the deadline."""
    if ask.intent:
        raise SourceError(
            "write-back-method argocd leaves nothing in Git to hold or roll back",
            hint="use write-back-method: git, or argocd app rollback",
        )
    if edges.live is None:
        raise SourceError(
            "write-back-method argocd patches the live Application, and these Applications come from files",
            hint="use --applications cluster or argocd, or write-back-method: git",
        )
    end, attempt, api = edges.now() + order.deadline, 0, edges.live()
    while True:
        attempt += 1
        began = edges.now()
        try:
            return _attempt(ask, order, api, edges)
        except Outpaced:
            if attempt == 1:  # how long a signature took to come does not count
                end = edges.now() + order.deadline
            left = end - edges.now()
            if left <= 0:
                key = ask.subscription.application.key
                raise ContendedError(f"others kept changing {key}", hint="run it again") from None
            edges.sleep(pause(attempt, edges.now() - began, left) * edges.jitter())


def _facts(ask: Ask, said: Reading, order: Order, edges: Edges) -> Facts:
    if not may_ask(ask.subscription, order.terms.check):
        return Facts()
    asked = merged(facts_needed(ask, said, Memory(), order.terms))
    answers = edges.registry(asked) if asked else {}
    return Facts(answers={replace(about, facts=()): answer for about, answer in answers.items()})


def _attempt(ask: Ask, order: Order, api: Live, edges: Edges) -> Decision:
    sub = ask.subscription
    app = sub.application
    manifest, version = api.read(app.namespace, app.name)
    index = app.sources.index(sub.source) if sub.source in app.sources else 0
    target = target_of(sub, "live", carry=False)
    where = Decision(sub, ask.offered, Verdict("error", "internal", ""), kind="live")
    said = read(manifest, index, target)
    silent = not (said.tag or said.digest)
    where = replace(where, current=live_reading(sub) if silent else said)
    facts = _facts(ask, said, order, edges)
    decision = choose(Moment(where, said, State(), Memory(), order.terms, facts), ask.candidates)
    decision = vouched([replace(decision, memory=None, hold=())], replace(vouch_of(order, edges), labels=False))[0]
    if decision.verdict.verdict != "update":
        return decision
    try:
        operations, _edits = write(manifest, index, target, decision.candidate)
    except TaskError as error:
        return failed(decision, error)
    if operations and not order.dry:
        api.patch(app.namespace, app.name, version, operations)
    return decision
