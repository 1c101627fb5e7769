"""One branch of one repository: read, decide, edit, push; and all of it again when the branch moved meanwhile.

A push that was outpaced is answered by deciding again on the new tip, never by a merge: there are no conflicts to
resolve, and no half state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

from task.errors import ContendedError, Outpaced, TaskError
from task.model import Answer, Commit, Decision, Question, Snapshot, Verdict
from task.output.diff import unified_diff
from task.pipeline.ahead import Heads, look_ahead
from task.pipeline.atomic import stopped
from task.pipeline.changeset import Draft, drafts
from task.pipeline.contention import Contention
from task.pipeline.decide import Ask, decide, hopeless, places, questions
from task.pipeline.head_branch import head_of_requests, name_heads
from task.pipeline.job import Job, Landed, Outcome
from task.pipeline.move import failed
from task.pipeline.ports import Batch, World
from task.pipeline.pull_request import landed_at, propose
from task.pipeline.verify import Witnesses, verified
from task.pipeline.weigh import Facts, Terms
from task.templates.commit_message import wants_labels


def deliver(batch: Batch, job: Job, world: World) -> Outcome:
    """Read, decide, edit and push, until everything has landed or the deadline is over."""
    done = Outcome()
    contention = Contention(f"moving {batch.base}", job.deadline, world)
    # The branch of the pull request: the same in every attempt, whichever asks are left.
    subs = [ask.subscription for ask in batch.asks if ask.subscription.pull_request and not ask.subscription.head]
    request = head_of_requests(subs[0].repo, batch.base, subs) if subs else ""

    @cache
    def exists(question: Question) -> Answer | None:
        return None if job.terms.check == "never" else world.registry((question,)).get(question)

    def learn(snapshot: Snapshot, asks: Sequence[Ask]) -> Facts:
        return replace(_facts(batch, snapshot, asks, job, world), exists=exists)

    while batch.asks:
        contention.begin()
        try:
            snapshot = batch.repository.snapshot(batch.base, (place for ask in batch.asks for place in places(ask)))
            facts = learn(snapshot, batch.asks)
            moves = decide(snapshot, batch.asks, job.terms, facts)
            moves = name_heads(moves, request, everywhere=job.intent is not None)
            heads, moves = look_ahead(batch, snapshot, moves, facts, learn, job, world)
            with contention.stopped():
                moves = verified(moves, witnesses(job, world))
            if not job.intent:  # a signature may have told the digest
                moves = heads.undeclined(moves, world)
            changes, settled = drafts(snapshot, moves, job.terms, job.wording, heads.there)
        except TaskError as error:
            return done.plus(failures(batch.asks, error, job.terms))

        if job.atomic and any(one.verdict.verdict == "error" for one in settled):
            return Outcome(stopped(settled, [one for change in changes for one in change.decisions]))
        done = done.plus(Outcome(tuple(settled), landed=_as_it_is(snapshot, settled)))
        outpaced: set[int] = set()
        for change in changes:
            try:
                done = done.plus(_land(batch, snapshot, change, heads, contention.attempts, job, world))
            except Outpaced:
                outpaced |= {id(one.subscription) for one in change.decisions}
            except TaskError as error:
                done = done.plus(Outcome(tuple(failed(one, error) for one in change.decisions)))

        batch = replace(batch, asks=tuple(ask for ask in batch.asks if id(ask.subscription) in outpaced))
        if batch.asks:
            number = contention.attempts + 1
            try:
                contention.pause(f"{batch.base} moved meanwhile; deciding again on its new tip (attempt {number})")
            except ContendedError as error:
                return done.plus(failures(batch.asks, error, job.terms))
    return done


def _facts(batch: Batch, snapshot: Snapshot, asks: Sequence[Ask], job: Job, world: World) -> Facts:
    """What neither the event nor the snapshot says, asked only where a rule needs it."""
    asked = questions(snapshot, asks, job.terms)
    ancestry = {pair: world.ancestry(*pair) for pair in asked.ancestry}
    answers = world.registry(asked.registry) if asked.registry else {}

    def earlier(path: str, most: int) -> Iterable[str]:
        texts = batch.repository.earlier(snapshot.branch, path, most)
        return (text for _commit, text in texts if text is not None)

    return Facts(ancestry, {replace(about, facts=()): answer for about, answer in answers.items()}, earlier)


def witnesses(job: Job, world: World) -> Witnesses:
    """Who is asked for signatures and labels."""
    labels = job.terms.check != "never" and wants_labels(job.wording.template)
    return Witnesses(world.registry, world.signatures, labels)


def _land(  # noqa: PLR0913, PLR0917 - one commit, and all that its report needs
    batch: Batch, snapshot: Snapshot, change: Draft, heads: Heads, attempt: int, job: Job, world: World
) -> Outcome:
    """One changeset, landed or (in `plan`) predicted; with a pull request where one is wanted."""
    destination = change.changeset.destination
    if change.warning:
        world.log("warning", change.warning)

    def commit() -> Outcome:
        landing = (batch.repository.predict if job.dry else batch.repository.land)(change.changeset)
        landed = landed_of(change.decisions, destination.repo, landing.commit)
        if not landing.pushed:
            same = Verdict("unchanged", "same", f"the branch {destination.head} already holds exactly this")
            decisions = (
                replace(one, verdict=same) if one.verdict.verdict == "update" else one for one in change.decisions
            )
            return Outcome(tuple(decisions), (), landed)
        made = Commit(
            repo=destination.repo,
            branch=snapshot.branch,
            head=destination.head,
            commit=landing.commit or None,
            tree=landing.tree,
            files=tuple(sorted(change.changeset.files)),
            applications=tuple(sorted({one.subscription.application.key for one in change.decisions})),
            attempts=attempt,
            diff=unified_diff(snapshot.files, change.changeset.files) if job.dry else None,
        )
        return Outcome(change.decisions, (made,), landed)

    if request := heads.requests.get(destination.head):
        tip = heads.there[destination.head].tip if destination.head in heads.there else ""
        outcome = propose(change, request, tip, job, world, commit)
    else:
        outcome = commit()
    return replace(outcome, strays=change.strays)


def landed_of(decisions: Iterable[Decision], repo: str, commit: str) -> tuple[Landed, ...]:
    """What Argo CD is told: the Applications whose images were written by a commit."""
    return landed_at((one for one in decisions if one.verdict.verdict in ("update", "unchanged")), repo, commit)


def _as_it_is(snapshot: Snapshot, settled: Sequence[Decision]) -> tuple[Landed, ...]:
    """Applications that have the event's image already: a run that waits, waits for what is there."""
    same = [one for one in settled if one.verdict.verdict == "unchanged" and one.head in ("", one.branch)]
    return landed_of(same, snapshot.repo, snapshot.tip)


def failures(asks: Iterable[Ask], error: TaskError, terms: Terms) -> Outcome:
    """The error for every ask that it stopped; a refusal stays one, whatever became of the repository."""
    return Outcome(
        tuple(
            hopeless(ask, terms) or failed(Decision(ask.subscription, ask.offered, Verdict("error", "", "")), error)
            for ask in asks
        )
    )
