"""Lands the updates of one branch: read, decide, edit, push, and all of it again if the branch moved meanwhile.

If somebody else's push was faster, everything is decided again on the new tip. Nothing is merged or rebased, so there
are no conflicts to resolve, and a build that is no longer the newest is not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain

from task.errors import ContendedError, Outpaced, TaskError
from task.model import Answer, Commit, Decision, Problem, Question, Snapshot, Verdict
from task.output.diff import unified_diff
from task.pipeline.ask import Ask, settled_without_git
from task.pipeline.atomic import stop_all
from task.pipeline.cautions import file_cautions
from task.pipeline.changeset import PreparedCommit, prepare_commits
from task.pipeline.contention import Contention
from task.pipeline.decide import decide, places, questions
from task.pipeline.existing_heads import ExistingHeads, Gather, read_heads
from task.pipeline.governed import CONFIG, Governed, govern
from task.pipeline.head_branch import heads_of_requests, name_heads
from task.pipeline.job import Job, Landed, Outcome, Terms, Wording
from task.pipeline.move import error_decision, failed
from task.pipeline.ports import Batch, World
from task.pipeline.pull_request import landed_at, propose
from task.pipeline.verify import LastChecks, signed_for_argo, verified
from task.pipeline.weigh import Facts
from task.templates.commit_message import wants_labels


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
            snapshot, left = governed.snapshot, {id(ask) for ask in batch.asks}
            asks = tuple(now for ask, now in zip(everyone, governed.asks, strict=True) if id(ask) in left)
            heads, commits, settled = prepare(replace(batch, asks=asks), governed, gather, contention, job, world)
        except TaskError as error:
            return done.plus(failed_asks(batch.asks, error, job.terms))

        if job.atomic and any(decision.verdict.verdict == "error" for decision in settled):
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

        batch = replace(batch, asks=_asks_of(outpaced, batch.asks, asks))
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


def gatherer(batch: Batch, job: Job, world: World) -> Gather:
    """Return a function that finds the facts that a rule needs and that neither the event nor a snapshot has."""

    @cache
    def exists(question: Question) -> Answer | None:
        return None if job.terms.check == "never" else world.registry((question,)).get(question)

    def gather(snapshot: Snapshot, asks: Sequence[Ask]) -> Facts:
        open_questions = questions(snapshot, asks, job.terms)
        ancestry = {pair: world.ancestry(*pair) for pair in open_questions.ancestry}
        answers = world.registry(open_questions.registry) if open_questions.registry else {}

        def earlier(path: str, most: int) -> Iterable[str]:
            texts = batch.repository.earlier(snapshot.branch, path, most)
            return (text for _commit, text in texts if text is not None)

        by_image = {replace(question, facts=()): answer for question, answer in answers.items()}
        return Facts(ancestry, by_image, earlier, exists)

    return gather


def last_checks(job: Job, wording: Wording, world: World) -> LastChecks:
    """Return what to ask for signatures, and for the labels that the commit message names."""
    labels = job.terms.check != "never" and any(map(wants_labels, (wording.template, *wording.templates.values())))
    return LastChecks(world.registry, world.signatures, world.by_keys, labels)


def _land(
    prepared: PreparedCommit, batch: Batch, heads: ExistingHeads, attempt: int, job: Job, world: World
) -> Outcome:
    """Land one changeset with its request, or predict it for `plan`. A failure is an outcome. Raises `Outpaced`."""
    if prepared.warning:
        world.log("warning", prepared.warning)
    head = prepared.changeset.destination.head

    def commit() -> Outcome:
        return _commit(batch, heads.base, prepared, attempt, job)

    try:
        request = heads.requests.get(head)
        outcome = propose(prepared, request, job, world, commit) if request else commit()
    except TaskError as error:
        outcome = Outcome(tuple(failed(decision, error) for decision in prepared.decisions))
    return replace(outcome, cautions=prepared.cautions)


def _asks_of(commits: Iterable[PreparedCommit], asks: Iterable[Ask], governed: Iterable[Ask]) -> tuple[Ask, ...]:
    """Return the asks whose decisions are in these changesets. `governed` are the same asks, under the config."""
    # Compare by identity: an Application may have two equal subscriptions, and a decision holds that of its ask.
    subscriptions = {id(decision.subscription) for prepared in commits for decision in prepared.decisions}
    return tuple(ask for ask, now in zip(asks, governed, strict=True) if id(now.subscription) in subscriptions)


def _commit(batch: Batch, snapshot: Snapshot, prepared: PreparedCommit, attempt: int, job: Job) -> Outcome:
    """Commit and push one changeset. Raises `Outpaced` if the branch moved meanwhile."""
    destination = prepared.changeset.destination
    landing = (batch.repository.predict if job.dry else batch.repository.land)(prepared.changeset)
    landed = landed_of(prepared.decisions, destination.repo, landing.commit)
    if not landing.pushed:
        same = Verdict("unchanged", "same", f"the branch {destination.head} already has exactly this")
        decisions = (
            replace(one, verdict=same) if one.verdict.verdict == "update" else one for one in prepared.decisions
        )
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


def landed_of(decisions: Iterable[Decision], repo: str, commit: str) -> tuple[Landed, ...]:
    """Return the Applications whose image is in this commit, whether it was written now or was there before."""
    return landed_at((one for one in decisions if one.verdict.verdict in ("update", "unchanged")), repo, commit)


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
    return [one for one in settled if one.verdict.verdict == "unchanged" and one.head == one.branch]


def _of_earlier_run(snapshot: Snapshot, settled: Sequence[Decision]) -> tuple[Commit, ...]:
    """Return the branch's newest commit if its trailers say that an earlier run has written one of these builds."""
    lines = snapshot.message.rstrip("\n").rpartition("\n\n")[2].splitlines()
    lines += [line.partition("@")[0] for line in lines]  # the target of another Application may take the digest, too
    found = []
    for one in settled:
        tag, digest = one.candidate.tag, one.candidate.digest
        image = replace(one.subscription.entry.image, tag=tag, digest="" if tag else digest)
        key = one.subscription.application.key
        same = one.verdict.verdict == "unchanged" and one.head == one.branch
        if same and {f"Image: {image.reference}", f"Application: {key}"} <= set(lines):
            found.append(key)
    if not found:
        return ()
    apps = tuple(sorted(set(found)))
    return (Commit(snapshot.repo, snapshot.branch, snapshot.branch, snapshot.tip, "", (), apps, already_there=True),)


def failed_asks(asks: Iterable[Ask], error: TaskError, terms: Terms) -> Outcome:
    """Return an error decision for each ask. An ask that the rules refuse without Git stays refused."""
    return Outcome(
        tuple(settled_without_git(ask, terms) or error_decision(ask.subscription, ask.offered, error) for ask in asks)
    )
