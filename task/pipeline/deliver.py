"""Lands the updates of one branch: read, decide, edit, push,
and all of it again if the branch moved meanwhile.

If somebody else's push was faster, everything is decided again on the new tip. Nothing is merged or
rebased, so there are no conflicts to resolve, and a build that is no longer the newest is not
written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain

from task.deciding.cautions import file_cautions
from task.deciding.decide import Identity, decide, failed_asks, places
from task.deciding.job import Job, Outcome, failed, landed_of
from task.deciding.verify import hindered, signed_for_argo
from task.errors import ContendedError, Outpaced, TaskError
from task.git.names import is_branch_name
from task.landing.before_deciding import CONFIG, Gather, gatherer, govern, last_checks
from task.landing.changeset import PreparedCommit, agreed_wording, prepare_commits
from task.landing.contention import Contention
from task.landing.head_branches import (
    HeadBranch,
    declined_rollbacks,
    name_heads,
    read_heads,
    request_head,
)
from task.landing.lists import Lists, with_lists_of
from task.landing.memory import memory_after, until_landed
from task.landing.memory_branch import MemoryBranch
from task.landing.overridden import with_overridden
from task.landing.ports import Batch, World
from task.landing.pull_request import as_it_stands, propose, withdraw
from task.landing.together import decide_together
from task.landing.waiting_list import WaitingList
from task.model import (
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

    base: Snapshot
    heads: Mapping[str, HeadBranch]
    commits: tuple[PreparedCommit, ...]
    settled: tuple[Decision, ...]
    lists: Lists  # of the head branches, afterwards
    waited: tuple[Waited, ...]
    problems: tuple[Problem, ...]
    memory: Files  # the states on the memory branch afterwards
    author: Person
    needs_memory: frozenset[Identity]  # what is decided for these is nothing without that branch


def deliver(batch: Batch, job: Job, world: World) -> Outcome:
    """Read, decide, edit and push until everything has landed or the deadline is over.

    Errors become decisions.
    """
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
        broken = next((decision for decision in plan.settled if decision.verdict == "error"), None)
        if job.atomic and broken:
            stopped = (replace(decision, judged=not_written(broken)) for decision in changing)
            return done.plus(Outcome((*plan.settled, *stopped)))
        with suppress(Outpaced):  # of the memory: then nothing has landed
            landed = land(plan, batch, contention.attempts, job, world)
            again = landed.again
            settled = [
                decision
                for decision in landed.settled
                if decision.subscription.identity not in again
            ]
            done = done.plus(landed.outcome()).plus(_without_commit(settled, snapshot, job))
            batch = replace(batch, asks=tuple(ask for ask in batch.asks if ask.key in again))
        if batch.asks:
            number = contention.attempts + 1
            try:
                contention.pause(
                    f"{batch.base} moved meanwhile; deciding again on its new tip (attempt"
                    f" {number})"
                )
            except ContendedError as error:
                return done.plus(failed_asks(batch.asks, error, job.terms))
    return done


def branches_of_requests(batch: Batch) -> list[str]:
    """Return head branches of the asks that want one,
    if nothing but the config could say otherwise.
    """
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
    by_hand = job.intent is not None
    facts = gather(snapshot, batch.asks)
    moves = name_heads(decide(snapshot, batch.asks, job.terms, facts), by_hand=by_hand)
    heads, moves = read_heads(batch, snapshot, moves, job, world)
    decided = list(zip(batch.asks, moves, strict=True))
    remembered, ended = declined_rollbacks(heads.values(), snapshot, decided)
    known = snapshot.memory
    if ended:  # as if nobody had held them
        snapshot = replace(snapshot, memory=remembered)
        facts = gather(snapshot, batch.asks)
        moves = name_heads(decide(snapshot, batch.asks, job.terms, facts), by_hand=by_hand)
    with contention.clock_paused():
        together = decide_together(
            batch, snapshot, heads, moves, facts, gather, job, world, last_checks(job, world)
        )
    snapshot = together.base
    moves = signed_for_argo(together.moves, world.keys_wanted, world.signing_keys)
    prepared = prepare_commits(snapshot, moves, job.terms, job.wording, heads, together.waits)
    lists = Lists.after(heads, prepared, together.waits, snapshot, job.terms.now)
    waits = together.waits
    commits, settled = with_overridden(snapshot, prepared.commits, prepared.settled, job.terms)
    problems = [*ended, *(problem for wait in waits.values() for problem in wait.problems)]
    problems += hindered(moves, lambda sub: world.hindrance(sub, job.terms.now))
    return Plan(
        base=replace(snapshot, memory=known),
        heads=heads,
        commits=tuple(commits),
        settled=tuple(settled),
        lists=lists,
        waited=tuple(row for name, one in waits.items() for row in one.rows(name)),
        problems=tuple(problems),
        memory=memory_after(snapshot, moves, job.terms.now),
        author=agreed_wording(job.wording, [move.subscription for move in moves]).author,
        needs_memory=frozenset(
            move.subscription.identity
            for move in moves
            if move.remember and move.decision.head != snapshot.branch
        ),
    )


def land(plan: Plan, batch: Batch, attempt: int, job: Job, world: World) -> Landings:
    """Land a plan, and return what has landed.

    Raises `Outpaced` if nothing has, as somebody else was faster.

    What is to be remembered comes before the base's commits, and goes in one push with a head
    branch. At last, the requests on which nothing waits are closed.
    """
    landing = Landings(plan, batch, attempt, job, world)
    landing.remember_first()
    for prepared in plan.commits:
        landing.commit(prepared)
    landing.remember_rest()
    landing.close()
    return landing


@dataclass
class Landings:
    """Lands the commits of one plan, one after the other,
    and what is to be remembered with them.
    """

    plan: Plan
    batch: Batch
    attempt: int
    job: Job
    world: World
    done: Outcome = field(default_factory=Outcome)
    outpaced: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)  # branches whose commit, or whose request, failed
    broken: TaskError | None = None  # why the memory branch cannot be written
    forgotten: bool = False  # whether another run has written it meanwhile, and this one has not

    def __post_init__(self) -> None:
        base = self.plan.base
        plan = self.plan
        to_base = any(
            prepared_commit.changeset.head == base.branch for prepared_commit in plan.commits
        )
        # What goes to the base is deferred until it has landed there.
        first = until_landed(base.memory, plan.memory) if to_base else plan.memory
        self.memory = MemoryBranch(base, plan.author, self.batch, self.job)
        self.memory.wanted = plan.lists.without_commits(first)

    def remember_first(self) -> None:
        """Write what is to be remembered, if something goes to the base,
        or nothing goes anywhere.
        """
        plan = self.plan
        heads = [
            prepared_commit
            for prepared_commit in plan.commits
            if prepared_commit.changeset.head != plan.base.branch
        ]
        if len(heads) < len(plan.commits) or not heads or not self.batch.repository.atomic:
            self._remember()

    def remember_rest(self) -> None:
        """Write what no head branch has taken along, and drop what has landed on the base."""
        failed_any = any(decision.verdict == "error" for decision in self.done.decisions)
        if not (self.outpaced or failed_any):
            self.memory.wanted = with_lists_of(self.plan.memory, self.memory.wanted)
        try:
            self._remember()
        except Outpaced:
            if not self.memory.commits:
                self.forgotten = True

    @property
    def again(self) -> set[Identity]:
        """The asks for which somebody else was faster."""
        plan = self.plan
        found = set(plan.needs_memory if self.forgotten else ())
        decisions = chain(
            plan.settled, *(prepared_commit.decisions for prepared_commit in plan.commits)
        )
        return found | {
            decision.subscription.identity
            for decision in decisions
            if decision.head in self.outpaced
        }

    @property
    def settled(self) -> list[Decision]:
        """The decisions that needed no commit.

        Those that are nothing without the memory branch may be errors.
        """
        error = self.broken
        return [
            (
                failed(decision, error)
                if error and decision.subscription.identity in self.plan.needs_memory
                else decision
            )
            for decision in self.plan.settled
        ]

    def _remember(self) -> None:
        try:
            self.memory.write()
        except TaskError as error:
            self.broken = error

    def commit(self, prepared: PreparedCommit) -> None:
        """Land one commit with its list and its request, or predict it for `plan`.

        A failure is an outcome.
        """
        if prepared.warning:
            self.world.log("warning", prepared.warning)
        name = prepared.changeset.head
        head = self.plan.heads.get(name)
        try:
            outcome = self._landed(prepared, head)
        except Outpaced:
            self.outpaced.add(name)
            return
        except TaskError as error:
            outcome = Outcome(tuple(failed(decision, error) for decision in prepared.decisions))
        if any(item.verdict == "error" for item in outcome.decisions):
            self.failed.add(name)
        self.done = self.done.plus(replace(outcome, cautions=prepared.cautions))

    def _landed(self, prepared: PreparedCommit, head: HeadBranch | None) -> Outcome:
        repository = self.batch.repository
        job = self.job
        change = prepared.changeset
        if head is None:
            landing = (repository.predict if job.dry else repository.land)(change)
            return self._told(prepared, landing, None)
        self._log_kept(head)
        listed = self.plan.lists.of(change.head)
        if stands := as_it_stands(prepared, head, listed, job, self.world):
            if self.plan.lists.news(listed):
                self.memory.put(listed)
            return stands
        predicted = repository.predict(change)
        landing = predicted
        if not job.dry:
            if self.broken:
                raise self.broken
            bound = self.plan.lists.bound_to(change.head)
            landing = self.memory.land(change, listed, predicted, head, bound)
        outcome = self._told(prepared, landing, head)
        if head.request:
            outcome = propose(prepared, head.request, outcome, listed, job, self.world)
        return outcome

    def _log_kept(self, head: HeadBranch) -> None:
        if head.ours or head.branch is None:
            return
        said = printable(head.branch.message.partition("\n")[0])
        by = printable(head.branch.by) or "somebody"
        self.world.log("info", f"{head.branch.branch} keeps {head.tip[:12]} by {by}: {said}")

    def _told(self, prepared: PreparedCommit, landing: Landing, head: HeadBranch | None) -> Outcome:
        under = head.files if head and not head.ours else self.plan.base.files
        diff = unified_diff(under, prepared.changeset.files) if self.job.dry else None
        return _landed(prepared, landing, self.attempt, diff)

    def close(self) -> None:
        """Close the requests of head branches on which nothing waits any more,
        and delete the branches.
        """
        if self.job.dry or self.broken:
            return
        closed = False
        for name, reason in self.plan.lists.closing.items():
            head = self.plan.heads[name]
            because = reason
            if head.instead in (self.outpaced | self.failed) - {""}:
                continue
            if head.instead:
                page = self._pages().get(head.instead) or "No request"
                because = f"{reason}. {page} proposes what waits"
            try:
                if withdraw(because, head.request, self.world):
                    self._drop(head)
                    self.memory.put(WaitingList(name, declined=head.listed.declined))
                    closed = True
            except Outpaced:  # another run proposes something there by now
                self.outpaced.add(name)
            except TaskError as error:
                self.world.log("warning", f"{name} was not deleted: {error.message}")
        if closed and not self.outpaced:
            with suppress(Outpaced):  # the next run does it
                self._remember()

    def _drop(self, head: HeadBranch) -> None:
        if head.branch:
            self.batch.repository.drop(head.branch.branch, head.tip)

    def _pages(self) -> dict[str, str]:
        """Return the pages of the requests, by head branch."""
        pages = {
            commit.head: commit.pull_request for commit in self.done.commits if commit.pull_request
        }
        for name, head in self.plan.heads.items():
            if head.found:
                pages.setdefault(name, head.found.url)
        return pages

    def outcome(self) -> Outcome:
        """Return what has landed, and what became of what waited."""
        done = self.done
        pages = self._pages()
        if self.memory.commits and not done.commits:
            done = done.plus(Outcome(commits=tuple(self.memory.commits[-1:])))
        rows = [
            replace(waited, pull_request=pages.get(waited.head, ""))
            for waited in self.plan.waited
            if waited.head not in self.outpaced
        ]
        return done.plus(Outcome(waiting=tuple(rows), cautions=self.plan.problems))


def _landed(prepared: PreparedCommit, landing: Landing, attempt: int, diff: str | None) -> Outcome:
    """Return the outcome of a commit. If the head branch had exactly this, there is no new one."""
    change = prepared.changeset
    landed = landed_of(prepared.decisions, change.repo, landing.commit)
    if not landing.pushed:
        same = Verdict("unchanged", "same", f"the branch {change.head} already has exactly this")
        return Outcome(prepared.with_updates_as(same), (), landed)
    commit = prepared.reported(landing.commit)
    files = tuple(sorted(prepared.changeset.files))
    commit = replace(
        commit, tree=landing.tree, files=files, attempts=attempt, diff=diff, through=landing.through
    )
    return Outcome(prepared.decisions, (commit,), landed)


def _without_commit(settled: Sequence[Decision], snapshot: Snapshot, job: Job) -> Outcome:
    """Return the outcome of decisions that need no commit.

    What the base already has counts as landed.

    So with `--wait`, the run waits for its rollout as well.
    """
    there = [
        decision
        for decision in settled
        if decision.verdict == "unchanged" and decision.head == decision.branch
    ]
    cautions = tuple(
        caution
        for decision in there
        if decision.kind
        for caution in file_cautions(
            snapshot.files, decision.subscription, decision.kind, decision.candidate, job.terms
        )
    )
    earlier = () if job.dry else _of_earlier_run(there, snapshot)
    return Outcome(
        tuple(settled), (), landed_of(there, snapshot.repo, snapshot.tip), cautions, earlier
    )


def _of_earlier_run(there: Sequence[Decision], snapshot: Snapshot) -> tuple[Commit, ...]:
    """Return the branch's newest commit if its trailers say
    that an earlier run has written one of these builds.
    """
    lines = snapshot.message.rstrip("\n").rpartition("\n\n")[2].splitlines()
    # the target of another Application may take the digest, too
    lines += [line.partition("@")[0] for line in lines]
    apps = set()
    for decision in there:
        tag = decision.candidate.tag
        digest = decision.candidate.digest
        image = replace(decision.subscription.entry.image, tag=tag, digest="" if tag else digest)
        key = decision.subscription.application.key
        if {f"Image: {image.reference}", f"Application: {key}"} <= set(lines):
            apps.add(key)
    branch = snapshot.branch
    names = tuple(sorted(apps))
    commit = Commit(snapshot.repo, branch, branch, snapshot.tip, "", (), names, already_there=True)
    return (commit,) if apps else ()
