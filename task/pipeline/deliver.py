"""Lands the updates of one branch: read, decide, edit, push, and all of it again if the branch moved meanwhile.

If somebody else's push was faster, everything is decided again on the new tip. Nothing is merged or rebased, so there
are no conflicts to resolve, and a build that is no longer the newest is not written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain

from task.deciding.cautions import file_cautions
from task.deciding.decide import decide, failed_asks, places, state_path
from task.deciding.job import Job, Outcome, failed, landed_of
from task.deciding.verify import hindered, signed_for_argo, verified
from task.errors import ContendedError, Outpaced, TaskError
from task.git.names import is_branch_name, memory_branch
from task.landing.before_deciding import CONFIG, Gather, gatherer, govern, last_checks
from task.landing.changeset import PreparedCommit, agreed_wording, prepare_commits
from task.landing.contention import Contention
from task.landing.head_branches import ExistingHeads, name_heads, read_heads, request_head
from task.landing.memory import GONE, memory_after, until_landed
from task.landing.overridden import with_overridden
from task.landing.ports import Batch, World
from task.landing.pull_request import as_it_stands, close, propose
from task.model import (
    Changeset,
    Commit,
    Decision,
    Files,
    Landing,
    Person,
    Problem,
    Snapshot,
    Verdict,
    Waited,
)
from task.output.diff import unified_diff
from task.pipeline.match import not_written
from task.text import printable

MOST_HEADS = 20  # head branches that are fetched together with their base


@dataclass(frozen=True)
class Plan:
    """What a batch is going to do."""

    heads: ExistingHeads
    commits: list[PreparedCommit]
    settled: list[Decision]
    obsolete: dict[str, str]  # head branches to delete, each with the reason
    waited: list[Waited]
    problems: list[Problem]
    known: Files  # of the memory branch
    memory: Files  # of it afterwards
    author: Person


def deliver(batch: Batch, job: Job, world: World) -> Outcome:
    """Read, decide, edit and push until everything has landed or the deadline is over. Errors become decisions."""
    done = Outcome()
    contention = Contention(f"moving {batch.base}", job.deadline, world)
    gather = gatherer(batch, job, world)
    expected = branches_of_requests(batch)

    while batch.asks:
        contention.begin()
        try:
            wanted = (place for ask in batch.asks for place in places(ask))
            snapshot = batch.repository.snapshot(
                batch.base, chain(CONFIG, wanted), expected, CONFIG
            )
            governed, snapshot, worded = govern(batch, snapshot, job)
            plan = prepare(governed, snapshot, gather, contention, worded, world)
        except TaskError as error:
            return done.plus(failed_asks(batch.asks, error, job.terms, config_read=False))

        changing = [one for prepared in plan.commits for one in prepared.decisions]
        broken = next((one for one in plan.settled if one.verdict == "error"), None)
        if job.atomic and broken:
            stopped = (replace(one, judged=not_written(broken)) for one in changing)
            return done.plus(Outcome((*plan.settled, *stopped)))
        with suppress(Outpaced):  # of the memory: then nothing has landed
            landed, outpaced = land(plan, batch, contention.attempts, job, world)
            again = {
                one.subscription.identity
                for one in (*plan.settled, *changing)
                if one.head in outpaced
            }
            settled = [one for one in plan.settled if one.subscription.identity not in again]
            done = done.plus(landed).plus(_without_commit(settled, snapshot, job))
            batch = replace(batch, asks=tuple(ask for ask in batch.asks if ask.key in again))
        if batch.asks:
            number = contention.attempts + 1
            try:
                contention.pause(
                    f"{batch.base} moved meanwhile; deciding again on its new tip (attempt {number})"
                )
            except ContendedError as error:
                return done.plus(failed_asks(batch.asks, error, job.terms))
    return done


def branches_of_requests(batch: Batch) -> list[str]:
    """Return head branches of the asks that want one, if nothing but the config could say otherwise."""
    subs = [ask.subscription for ask in batch.asks]
    named = [
        sub.head_template
        for sub in subs
        if is_branch_name(sub.head_template) and "{{" not in sub.head_template
    ]
    named += [
        request_head(sub, batch.base) for sub in subs if sub.pull_request and not sub.head_template
    ]
    return list(dict.fromkeys(named))[:MOST_HEADS]


def prepare(
    batch: Batch, snapshot: Snapshot, gather: Gather, contention: Contention, job: Job, world: World
) -> Plan:
    """Return what to commit on this snapshot, and the decisions that need no commit.

    Asks, snapshot and the job's wording are as the repository's config wants them.
    """
    known = snapshot.memory
    facts = gather(snapshot, batch.asks)
    moves = decide(snapshot, batch.asks, job.terms, facts)
    moves = name_heads(moves, by_hand=job.intent is not None)
    heads, moves = read_heads(batch, snapshot, moves, job, world)
    remembered, ended = heads.declined_rollbacks(list(zip(batch.asks, moves, strict=True)))
    if ended:  # as if nobody had held them
        heads = replace(heads, base=replace(heads.base, memory=remembered))
        facts = gather(heads.base, batch.asks)
        moves = name_heads(
            decide(heads.base, batch.asks, job.terms, facts), by_hand=job.intent is not None
        )
    snapshot = heads.base
    moves, waits = heads.decide_again(
        list(zip(batch.asks, moves, strict=True)), facts, gather, job.terms, world
    )
    with contention.clock_paused():
        moves = verified(moves, last_checks(job, world))
    if (
        not job.intent
    ):  # once more, because verifying may have found the digest that a person declined
        moves = [heads.unless_declined(move, world) for move in moves]
    moves = signed_for_argo(moves, world.keys_wanted, world.signing_keys)
    commits, settled, obsolete = prepare_commits(
        snapshot, moves, job.terms, job.wording, heads, waits
    )
    commits, settled = with_overridden(snapshot, commits, settled, job.terms)
    author = agreed_wording(job.wording, [move.subscription for move in moves]).author
    waited = [one for of_head in waits.values() for one in of_head.builds]
    problems = [*ended, *(one for of_head in waits.values() for one in of_head.problems)]
    problems += hindered(moves, lambda sub: world.hindrance(sub, job.terms.now))
    memory = memory_after(snapshot, moves, job.terms.now)
    return Plan(heads, commits, settled, obsolete, waited, problems, known, memory, author)


def land(
    plan: Plan, batch: Batch, attempt: int, job: Job, world: World
) -> tuple[Outcome, Collection[str]]:
    """Land a plan, and return the head branches on which somebody else was faster. Raises `Outpaced` if nothing landed.

    What is to be remembered comes first, then the commits. At last, the requests on which nothing waits are closed.
    """
    heads, base = plan.heads, plan.heads.base
    first = until_landed(plan.known, plan.memory)
    remembered = _remember(plan.known, first, base.memory_tip, plan, batch, job)
    done = Outcome()
    outpaced: set[str] = set()
    for prepared in plan.commits:
        try:
            done = done.plus(_land(prepared, batch, heads, attempt, job, world))
        except Outpaced:
            outpaced.add(prepared.changeset.head)
    for name, because in {} if job.dry else plan.obsolete.items():
        try:
            close(heads.found[name], because, heads.requests.get(name), batch.repository, world)
        except Outpaced:  # another run proposes something there by now
            outpaced.add(name)
    broken = any(one.verdict == "error" for one in done.decisions)
    pages = {one.head: one.pull_request for one in done.commits if one.pull_request}
    earlier = {
        name: one.found for name, one in heads.requests.items() if one.found and name not in pages
    }
    pages |= {name: one.url for name, one in earlier.items() if one.state == "open"}
    waits = {one.head for one in plan.waited if one.outcome == "waits"}
    for name, olds in {} if broken or outpaced else heads.renamed.items():
        for old, request in olds if name in pages or name not in waits else ():
            because = f"its base is called {base.branch} now. {pages.get(name, 'No request')} proposes what waits"
            with suppress(Outpaced):  # the next run looks again
                close(old, because, request, batch.repository, world)
    pages |= {name: one.url for name, one in earlier.items()}
    if plan.memory != first and not outpaced and not broken:
        with suppress(
            Outpaced
        ):  # what has landed is no longer deferred; the next run finds that out as well
            tip = remembered.commit or "" if remembered else base.memory_tip
            remembered = _remember(first, plan.memory, tip, plan, batch, job) or remembered
    if remembered and not done.commits:
        done = done.plus(Outcome(commits=(remembered,)))
    waited = [replace(one, pull_request=pages.get(one.head, "")) for one in plan.waited]
    waited += [row for prepared in plan.commits for row in _rows_of_others(prepared, pages)]
    waiting = tuple(one for one in waited if one.head not in outpaced)
    return done.plus(Outcome(waiting=waiting, cautions=tuple(plan.problems))), outpaced


def _rows_of_others(prepared: PreparedCommit, pages: Mapping[str, str]) -> list[Waited]:
    """Return rows for builds whose Applications the run did not read: those that the commit loses, and keeps."""
    head, base = prepared.changeset.head, prepared.changeset.base
    page, because = pages.get(head, ""), "kept as it is: this run did not read its Application"
    rows = []
    for path in prepared.lost:
        overtaken = f"{base} has changed the same lines of {path}, which belong to no Application of this run"
        rows.append(Waited("", "", "", "", head, "dropped", overtaken))
    for app in prepared.others:
        key = f"{app.namespace}/{app.name}"
        rows += [
            Waited(key, one.alias, one.new_tag, one.new_digest, head, "waits", because, page)
            for one in app.changes
        ]
    return rows + [
        Waited("", "", "", "", head, "waits", f"{path}: {because}", page)
        for path in prepared.unlisted
    ]


def _remember(
    before: Files, files: Files, tip: str, plan: Plan, batch: Batch, job: Job
) -> Commit | None:
    """Write the memory branch if it changes, and return the commit. Raises `Outpaced` if it moved meanwhile."""
    if files == before:
        return None
    base = plan.heads.base
    name = memory_branch(base.repo, base.branch)
    message = f"Remember holds, and builds that wait, beside {base.branch}\n"
    change = Changeset(base.repo, base.branch, name, "", files, message, plan.author, tip)
    landing = Landing("", "") if job.dry else batch.repository.remember(change)
    changed = {
        path: files.get(path, GONE)
        for path in (*before, *files)
        if files.get(path) != before.get(path)
    }
    apps = {
        ask.subscription.application.key
        for ask in batch.asks
        if state_path(ask.subscription) in changed
    }
    return Commit(
        base.repo,
        base.branch,
        name,
        landing.commit or None,
        landing.tree,
        tuple(sorted(changed)),
        tuple(sorted(apps)),
        diff=unified_diff(before, changed) if job.dry else None,
        through="git",
    )


def _land(
    prepared: PreparedCommit,
    batch: Batch,
    heads: ExistingHeads,
    attempt: int,
    job: Job,
    world: World,
) -> Outcome:
    """Land one changeset with its request, or predict it for `plan`. A failure is an outcome. Raises `Outpaced`."""
    if prepared.warning:
        world.log("warning", prepared.warning)
    head, theirs = prepared.changeset.head, heads.theirs(prepared.changeset.head)
    if theirs:
        said = printable(theirs.message.partition("\n")[0])
        world.log(
            "info",
            f"{head} keeps {theirs.tip[:12]} by {printable(theirs.by) or 'somebody'}: {said}",
        )

    try:
        # Builds that this run knows nothing about keep their request as it is.
        request = heads.requests.get(head) if prepared.decisions or prepared.apps else None
        outcome = as_it_stands(prepared, request, job, world) if request else None
        if outcome is None:
            landing = (batch.repository.predict if job.dry else batch.repository.land)(
                prepared.changeset
            )
            diff = (
                unified_diff((theirs or heads.base).files, prepared.changeset.files)
                if job.dry
                else None
            )
            outcome = _landed(prepared, landing, attempt, diff)
            if request:
                outcome = propose(prepared, request, outcome, job, world)
    except TaskError as error:
        outcome = Outcome(tuple(failed(decision, error) for decision in prepared.decisions))
    return replace(outcome, cautions=prepared.cautions)


def _landed(prepared: PreparedCommit, landing: Landing, attempt: int, diff: str | None) -> Outcome:
    """Return the outcome of a commit. If the head branch had exactly this, there is no new one."""
    change = prepared.changeset
    landed = landed_of(prepared.decisions, change.repo, landing.commit)
    if not landing.pushed:
        same = Verdict("unchanged", "same", f"the branch {change.head} already has exactly this")
        return Outcome(prepared.with_updates_as(same), (), landed)
    commit, files = prepared.reported(landing.commit), tuple(sorted(prepared.changeset.files))
    commit = replace(
        commit, tree=landing.tree, files=files, attempts=attempt, diff=diff, through=landing.through
    )
    return Outcome(prepared.decisions, (commit,), landed)


def _without_commit(settled: Sequence[Decision], snapshot: Snapshot, job: Job) -> Outcome:
    """Return the outcome of decisions that need no commit. What the base already has counts as landed.

    So with `--wait`, the run waits for its rollout as well.
    """
    there = [one for one in settled if one.verdict == "unchanged" and one.head == one.branch]
    cautions = tuple(
        caution
        for one in there
        if one.kind
        for caution in file_cautions(
            snapshot.files, one.subscription, one.kind, one.candidate, job.terms
        )
    )
    earlier = () if job.dry else _of_earlier_run(there, snapshot)
    return Outcome(
        tuple(settled), (), landed_of(there, snapshot.repo, snapshot.tip), cautions, earlier
    )


def _of_earlier_run(there: Sequence[Decision], snapshot: Snapshot) -> tuple[Commit, ...]:
    """Return the branch's newest commit if its trailers say that an earlier run has written one of these builds."""
    lines = snapshot.message.rstrip("\n").rpartition("\n\n")[2].splitlines()
    lines += [
        line.partition("@")[0] for line in lines
    ]  # the target of another Application may take the digest, too
    apps = set()
    for one in there:
        tag, digest = one.candidate.tag, one.candidate.digest
        image = replace(one.subscription.entry.image, tag=tag, digest="" if tag else digest)
        key = one.subscription.application.key
        if {f"Image: {image.reference}", f"Application: {key}"} <= set(lines):
            apps.add(key)
    branch, names = snapshot.branch, tuple(sorted(apps))
    commit = Commit(snapshot.repo, branch, branch, snapshot.tip, "", (), names, already_there=True)
    return (commit,) if apps else ()
