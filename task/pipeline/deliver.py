"""Lands the updates of one branch: read, decide, edit, push, and all of it again if the branch moved meanwhile.

If somebody else's push was faster, everything is decided again on the new tip. Nothing is merged or rebased, so there
are no conflicts to resolve, and a build that is no longer the newest is not written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from task.deciding.ask import failed_asks
from task.deciding.cautions import file_cautions
from task.deciding.decide import decide, places
from task.deciding.job import Job, Landed, Outcome, Terms, landed_of
from task.deciding.move import failed
from task.deciding.verify import signed_for_argo, verified
from task.errors import ContendedError, Outpaced, TaskError
from task.landing.changeset import PreparedCommit, prepare_commits
from task.landing.contention import Contention
from task.landing.existing_heads import ExistingHeads, read_heads
from task.landing.gathering import Gather, gatherer, last_checks
from task.landing.governed import CONFIG, Governed, govern
from task.landing.head_branch import heads_of_requests, name_heads
from task.landing.ports import Batch, World
from task.landing.pull_request import as_it_stands, propose
from task.model import Commit, Decision, Problem, Snapshot, Verdict
from task.output.diff import unified_diff
from task.pipeline.atomic import stop_all


def deliver(batch: Batch, job: Job, world: World) -> Outcome:
    """Read, decide, edit and push until everything has landed or the deadline is over. Errors become decisions."""
    done = Outcome()
    contention = Contention(f"moving {batch.base}", job.deadline, world)
    gather = gatherer(batch, job, world)
    everyone = batch.asks
    expected = branch_of_requests(batch)

    while batch.asks:
        contention.begin()
        try:
            wanted = (place for ask in batch.asks for place in places(ask))
            snapshot = batch.repository.snapshot(batch.base, chain(CONFIG, wanted), expected)
            governed = govern(everyone, snapshot, batch.repository, job)
            snapshot, left = governed.snapshot, {ask.key for ask in batch.asks}
            asks = tuple(ask for ask in governed.asks if ask.key in left)
            heads, commits, settled = prepare(replace(batch, asks=asks), governed, gather, contention, job, world)
        except TaskError as error:
            return done.plus(failed_asks(batch.asks, error, job.terms, config_read=not job.repository_config))

        if job.atomic and any(decision.verdict == "error" for decision in settled):
            return done.plus(Outcome(stop_all(settled, [one for prepared in commits for one in prepared.decisions])))
        told = _cautions(snapshot, settled, job.terms)
        earlier = () if job.dry else _of_earlier_run(snapshot, settled)
        there = _already_in_git(snapshot, settled)
        done = done.plus(Outcome(tuple(settled), landed=there, cautions=told, earlier=earlier))
        outpaced: list[PreparedCommit] = []
        for prepared in commits:
            try:
                done = done.plus(_land(prepared, batch, heads, contention.attempts, job, world))
            except Outpaced:
                outpaced.append(prepared)

        again = {one.subscription.identity for prepared in outpaced for one in prepared.decisions}
        batch = replace(batch, asks=tuple(ask for ask in batch.asks if ask.key in again))
        if batch.asks:
            number = contention.attempts + 1
            try:
                contention.pause(f"{batch.base} moved meanwhile; deciding again on its new tip (attempt {number})")
            except ContendedError as error:
                return done.plus(failed_asks(batch.asks, error, job.terms))
    return done


def branch_of_requests(batch: Batch) -> str:
    """Return a head branch for the asks that want a pull request, whatever the config says; "" if there are none."""
    return next(iter(heads_of_requests(batch.base, [ask.subscription for ask in batch.asks]).values()), "")


def prepare(
    batch: Batch, governed: Governed, gather: Gather, contention: Contention, job: Job, world: World
) -> tuple[ExistingHeads, list[PreparedCommit], list[Decision]]:
    """Return what to commit on this snapshot, and the decisions that need no commit.

    `batch` has those of the governed asks that are not delivered yet.
    """
    snapshot = governed.snapshot
    facts = gather(snapshot, batch.asks)
    moves = decide(snapshot, batch.asks, job.terms, facts)
    # The names come from all asks. A later attempt has fewer asks, and must write to the same branches.
    requests = heads_of_requests(batch.base, [ask.subscription for ask in governed.asks])
    moves = name_heads(moves, requests, everywhere=job.intent is not None)
    heads, moves = read_heads(batch, snapshot, moves, job, world)
    decided = list(zip(batch.asks, moves, strict=True))
    moves = heads.decide_again(decided, heads.more_facts(decided, facts, gather), job.terms, world)
    with contention.clock_paused():
        moves = verified(moves, last_checks(job, governed.wording, world))
    if not job.intent:  # once more, because verifying may have found the digest that a person declined
        moves = heads.without_declined(moves, world)
    moves = signed_for_argo(moves, world.keys_wanted, world.signing_keys)
    commits, settled = prepare_commits(snapshot, moves, job.terms, governed.wording, heads.snapshots)
    return heads, commits, settled


def _land(
    prepared: PreparedCommit, batch: Batch, heads: ExistingHeads, attempt: int, job: Job, world: World
) -> Outcome:
    """Land one changeset with its request, or predict it for `plan`. A failure is an outcome. Raises `Outpaced`."""
    if prepared.warning:
        world.log("warning", prepared.warning)
    head = prepared.changeset.destination.head

    try:
        request = heads.requests.get(head)
        outcome = as_it_stands(prepared, request, job) if request else None
        if outcome is None:
            outcome = _commit(batch, heads.base, prepared, attempt, job)
            if request:
                outcome = propose(prepared, request, outcome, job, world)
    except TaskError as error:
        outcome = Outcome(tuple(failed(decision, error) for decision in prepared.decisions))
    return replace(outcome, cautions=prepared.cautions)


def _commit(batch: Batch, snapshot: Snapshot, prepared: PreparedCommit, attempt: int, job: Job) -> Outcome:
    """Commit and push one changeset. Raises `Outpaced` if the branch moved meanwhile."""
    destination = prepared.changeset.destination
    landing = (batch.repository.predict if job.dry else batch.repository.land)(prepared.changeset)
    landed = landed_of(prepared.decisions, destination.repo, landing.commit)
    if not landing.pushed:
        same = Verdict("unchanged", "same", f"the branch {destination.head} already has exactly this")
        decisions = (replace(one, judged=same) if one.verdict == "update" else one for one in prepared.decisions)
        return Outcome(tuple(decisions), (), landed)
    commit = Commit(
        repo=destination.repo,
        branch=snapshot.branch,
        head=destination.head,
        commit=landing.commit or None,
        tree=landing.tree,
        files=tuple(sorted(prepared.changeset.files)),
        applications=tuple(sorted({decision.subscription.application.key for decision in prepared.decisions})),
        attempts=attempt,
        diff=unified_diff(snapshot.files, prepared.changeset.files) if job.dry else None,
        through=landing.through,
    )
    return Outcome(prepared.decisions, (commit,), landed)


def _already_in_git(snapshot: Snapshot, settled: Sequence[Decision]) -> tuple[Landed, ...]:
    """Return the Applications that already have the image. With `--wait`, the run waits for their rollouts as well."""
    return landed_of(_unchanged(settled), snapshot.repo, snapshot.tip)


def _cautions(snapshot: Snapshot, settled: Sequence[Decision], terms: Terms) -> tuple[Problem, ...]:
    """Return the warnings about files that already have the image."""
    return tuple(
        caution
        for one in _unchanged(settled)
        if one.kind
        for caution in file_cautions(snapshot.files, one.subscription, one.kind, one.candidate, terms)
    )


def _unchanged(settled: Sequence[Decision]) -> list[Decision]:
    return [one for one in settled if one.verdict == "unchanged" and one.head == one.branch]


def _of_earlier_run(snapshot: Snapshot, settled: Sequence[Decision]) -> tuple[Commit, ...]:
    """Return the branch's newest commit if its trailers say that an earlier run has written one of these builds."""
    lines = snapshot.message.rstrip("\n").rpartition("\n\n")[2].splitlines()
    lines += [line.partition("@")[0] for line in lines]  # the target of another Application may take the digest, too
    found = []
    for one in settled:
        tag, digest = one.candidate.tag, one.candidate.digest
        image = replace(one.subscription.entry.image, tag=tag, digest="" if tag else digest)
        key = one.subscription.application.key
        same = one.verdict == "unchanged" and one.head == one.branch
        if same and {f"Image: {image.reference}", f"Application: {key}"} <= set(lines):
            found.append(key)
    if not found:
        return ()
    apps = tuple(sorted(set(found)))
    return (Commit(snapshot.repo, snapshot.branch, snapshot.branch, snapshot.tip, "", (), apps, already_there=True),)
