"""Lands the updates of one branch: read, decide, edit, push, and repeat if the branch moved.

If someone else pushed first, everything is reevaluated at the new tip. The run never merges
or rebases, so there are no conflicts, and a build that is no longer the newest is not written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from task import DOCS
from task.deciding.cautions import file_cautions
from task.deciding.decide import Identity, decide, failed_asks, places
from task.deciding.job import Job, Outcome, failed, landed_applications
from task.deciding.verify import hindered, signed_for_argo
from task.errors import ContendedError, Outpaced, RepositoryError, TaskError, Trouble
from task.git.names import PREFIX, is_branch_name
from task.landing.before_deciding import (
    CONFIG,
    Gather,
    gatherer,
    govern,
    last_checks,
    with_more,
    with_own_memory_branch,
)
from task.landing.changeset import PreparedCommit, agreed_wording, prepare_commits
from task.landing.contention import Contention
from task.landing.head_branches import (
    HeadBranch,
    memory_branch_warnings,
    name_heads,
    places_of_lists,
    read_heads,
    request_head,
    settled_rollbacks,
    unnamed_heads,
)
from task.landing.lists import Lists, strange_in, with_lists_of
from task.landing.memory_branch import MemoryBranchWriter
from task.landing.overridden import with_overridden
from task.landing.ports import Batch, World
from task.landing.pull_request import as_it_stands, propose, withdraw
from task.landing.states import deferred_until_landed, memory_files_after
from task.landing.together import decide_together
from task.landing.waiting_builds import BuildFate, WaitsOnHead
from task.landing.waiting_list import WaitingList
from task.model import (
    Commit,
    Decision,
    Files,
    HeadBuildRow,
    LandedCommit,
    Person,
    Problem,
    Snapshot,
    Verdict,
)
from task.output.diff import unified_diff
from task.pipeline.match import not_written
from task.text import printable
from task.urls import without_login

MOST_STRANGE = 5  # unknown files on the memory branch that are reported
MOST_HEADS = 20  # head branches that are fetched together with their base


@dataclass(frozen=True)
class Delivery:
    """Everything that a batch is going to do."""

    base: Snapshot
    heads: Mapping[str, HeadBranch]
    commits: tuple[PreparedCommit, ...]
    settled: tuple[Decision, ...]
    lists: Lists  # the head branches' lists after the run
    waited: tuple[HeadBuildRow, ...]
    problems: tuple[Problem, ...]
    memory_files: Files  # the state files on the memory branch, after the run
    author: Person
    # asks whose decision is stored only on the memory branch: a hold or a deferred build
    only_remembered: frozenset[Identity]


def deliver(batch: Batch, job: Job, world: World) -> Outcome:
    """Read, decide, edit, and push until everything has landed or the deadline is over.

    Errors become decisions.
    """
    done = Outcome()
    contention = Contention(f"moving {batch.base}", job.deadline, world)
    gather = gatherer(batch, job, world)
    expected = branches_of_requests(batch)
    repo = batch.asks[0].subscription.repo if batch.asks else ""
    of_lists = partial(places_of_lists, repo=repo, branch=batch.base)

    while batch.asks:
        contention.begin()
        try:
            wanted = (place for ask in batch.asks for place in places(ask))
            snapshot = batch.repository.snapshot(
                batch.base,
                chain(CONFIG, wanted),
                expected,
                CONFIG,
                of_lists,
            )
            snapshot = with_own_memory_branch(snapshot, batch.repository)
            if snapshot.prefix != PREFIX:  # the waiting builds are only known now
                more = of_lists(snapshot.memory_files)
                snapshot = with_more(snapshot, more, batch.repository)
            governed, snapshot, worded = govern(batch, snapshot, job)
            delivery = prepare(governed, snapshot, gather, contention, worded, world)
        except TaskError as error:
            return done.plus(failed_asks(batch.asks, error, job.terms, config_read=False))

        stopped = _stopped_by_an_error(delivery) if job.atomic else None
        if stopped:
            return done.plus(stopped)
        try:
            lander = land_delivery(delivery, batch, contention.attempts, job, world)
        except Outpaced:
            pass  # another run wrote the memory branch, so nothing landed: decide everything again
        else:
            again = lander.again
            settled = [
                decision
                for decision in lander.settled
                if decision.subscription.identity not in again
            ]
            done = done.plus(lander.outcome()).plus(_without_commit(settled, snapshot, job))
            batch = replace(batch, asks=tuple(ask for ask in batch.asks if ask.key in again))
        if batch.asks:
            number = contention.attempts + 1
            try:
                contention.pause(
                    f"{without_login(batch.asks[0].subscription.repo)}: {batch.base} has"
                    f" moved; reevaluating at its new tip (attempt {number})"
                )
            except ContendedError as error:
                return done.plus(failed_asks(batch.asks, error, job.terms))
    return done


def _stopped_by_an_error(delivery: Delivery) -> Outcome | None:
    """With `--atomic`, return the outcome without writing if a decision is an error."""
    broken = next((decision for decision in delivery.settled if decision.verdict == "error"), None)
    if broken is None:
        return None
    verdict = not_written(broken)
    stopped = (
        replace(decision, judged=verdict)
        for prepared in delivery.commits
        for decision in prepared.decisions
    )
    return Outcome((*delivery.settled, *stopped))


def branches_of_requests(batch: Batch) -> list[str]:
    """Return the asks' head branches, if their names are known before the config is read."""
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
    batch: Batch,
    snapshot: Snapshot,
    gather: Gather,
    contention: Contention,
    job: Job,
    world: World,
) -> Delivery:
    """Return the commits for this snapshot, and the decisions that don't need a commit.

    The repository's config is already applied to the asks, the snapshot, and the job's wording.
    """
    by_hand = job.intent is not None
    facts = gather(snapshot, batch.asks)
    moves = name_heads(decide(snapshot, batch.asks, job.terms, facts), by_hand=by_hand)
    heads, moves = read_heads(batch, snapshot, moves, job, world)
    decided = list(zip(batch.asks, moves, strict=True))
    remembered, ended = settled_rollbacks(heads.values(), snapshot, decided)
    memory_there = snapshot.memory_files
    if remembered != memory_there:
        # Some rollbacks were declined or merged, so their holds no longer apply.
        snapshot = replace(snapshot, memory_files=remembered)
        facts = gather(snapshot, batch.asks)
        free = name_heads(decide(snapshot, batch.asks, job.terms, facts), by_hand=by_hand)
        # Moves stay errors if no request can be opened for them, or if their list cannot be read.
        moves = [
            move if move.decision.verdict == "error" else again
            for move, again in zip(moves, free, strict=True)
        ]
    with contention.clock_paused():
        together = decide_together(
            batch,
            snapshot,
            heads,
            moves,
            facts,
            gather,
            job,
            world,
            last_checks(job, world),
        )
    snapshot = together.base
    moves = signed_for_argo(together.moves, world.keys_wanted, world.signing_keys)
    prepared = prepare_commits(
        snapshot,
        moves,
        job.terms,
        job.wording,
        heads,
        together.waits,
    )
    lists = Lists.after(heads, prepared, together.waits, snapshot, job.terms.now)
    waits = together.waits
    commits, settled = with_overridden(snapshot, prepared.commits, prepared.settled, job.terms)
    problems = [
        *memory_branch_warnings(snapshot),
        *unnamed_heads(heads),
        *_strange_files(memory_there),
        *ended,
        *(problem for wait in waits.values() for problem in wait.problems),
    ]
    problems += hindered(moves, lambda sub: world.hindrance(sub, job.terms.now))
    return Delivery(
        # unchanged, because `MemoryBranchWriter` compares the new files with it
        base=replace(snapshot, memory_files=memory_there),
        heads=heads,
        commits=tuple(commits),
        settled=tuple(settled),
        lists=lists,
        waited=(*_merged_rows(heads, snapshot.branch), *_waiting_rows(waits)),
        problems=tuple(problems),
        memory_files=memory_files_after(snapshot, moves),
        author=agreed_wording(job.wording, [move.subscription for move in moves]).author,
        only_remembered=frozenset(
            move.subscription.identity
            for move in moves
            if move.remember and move.decision.head != snapshot.branch
        ),
    )


def _strange_files(memory_files: Files) -> list[Problem]:
    """Return a warning for each unknown file on the memory branch."""
    hint = f"find out who can push to that branch, and protect the branch: {DOCS}/security.md"
    return [
        Problem(
            Trouble.warning(
                "target",
                f"{printable(path)} on the memory branch was not written by a run: the next"
                " commit to the branch will leave it out",
                hint,
            )
        )
        for path in strange_in(memory_files)[:MOST_STRANGE]
    ]


def _waiting_rows(waits: Mapping[str, WaitsOnHead]) -> list[HeadBuildRow]:
    return [row for name, one in waits.items() for row in one.rows(name)]


def _merged_rows(heads: Mapping[str, HeadBranch], base: str) -> list[HeadBuildRow]:
    """Return rows for merged builds. The base may have changed since the merge."""
    return [
        BuildFate(build, "merged", f"{name} was merged into {base}").row(name)
        for name, head in heads.items()
        for build in head.merged_builds
    ]


def land_delivery(
    delivery: Delivery, batch: Batch, attempt: int, job: Job, world: World
) -> DeliveryLander:
    """Land a delivery, and return the result.

    Raises `Outpaced` if someone else pushed first and no commit has landed.

    The memory branch is written before the base's commits, or in one push with a head branch.
    Finally, requests without waiting builds are closed.
    """
    lander = DeliveryLander(delivery, batch, attempt, job, world)
    lander.remember_first()
    for prepared in delivery.commits:
        lander.commit(prepared)
    lander.remember_rest()
    lander.close()
    return lander


@dataclass
class DeliveryLander:
    """Lands the commits of one delivery one by one, and the memory that belongs to them."""

    delivery: Delivery
    batch: Batch
    attempt: int
    job: Job
    world: World
    done: Outcome = field(default_factory=Outcome)
    outpaced: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)  # branches whose commit or request failed
    broken: TaskError | None = None  # why the memory branch cannot be written
    forgotten: bool = False  # whether another run wrote it first, so that this one could not

    def __post_init__(self) -> None:
        base = self.delivery.base
        delivery = self.delivery
        to_base = any(prepared.changeset.head == base.branch for prepared in delivery.commits)
        # Builds for the base stay deferred until they have landed there.
        first = (
            deferred_until_landed(base.memory_files, delivery.memory_files)
            if to_base
            else delivery.memory_files
        )
        self.memory_branch = MemoryBranchWriter(base, delivery.author, self.batch, self.job)
        self.memory_branch.wanted = delivery.lists.without_commits(first)

    def remember_first(self) -> None:
        """Write the memory branch before the commits, unless each commit is for a head branch and
        the server accepts both branches in one push.
        """
        delivery = self.delivery
        heads = [
            prepared
            for prepared in delivery.commits
            if prepared.changeset.head != delivery.base.branch
        ]
        if len(heads) < len(delivery.commits) or not heads or not self.batch.repository.atomic:
            self._remember()

    def remember_rest(self) -> None:
        """Write the rest of the memory, and remove builds that have landed on the base."""
        failed_any = any(decision.verdict == "error" for decision in self.done.decisions)
        if not (self.outpaced or failed_any):
            self.memory_branch.wanted = with_lists_of(
                self.delivery.memory_files, self.memory_branch.wanted
            )
        try:
            self._remember()
        except Outpaced:  # the commits have landed, and the next run writes the rest
            if not self.memory_branch.commits:
                self.forgotten = True

    @property
    def again(self) -> set[Identity]:
        """The asks that must be decided again, because someone else pushed first."""
        delivery = self.delivery
        found = set(delivery.only_remembered if self.forgotten else ())
        decisions = chain(
            delivery.settled,
            *(prepared.decisions for prepared in delivery.commits),
        )
        return found | {
            decision.subscription.identity
            for decision in decisions
            if decision.head in self.outpaced
        }

    @property
    def settled(self) -> list[Decision]:
        """The decisions that didn't need a commit.

        If the memory branch could not be written, those stored only there are errors.
        """
        error = self.broken
        return [
            (
                failed(decision, error)
                if error and decision.subscription.identity in self.delivery.only_remembered
                else decision
            )
            for decision in self.delivery.settled
        ]

    def _remember(self) -> None:
        try:
            self.memory_branch.write()
        except TaskError as error:
            self.broken = error

    def commit(self, prepared: PreparedCommit) -> None:
        """Land one commit with its list and its request, or predict it for `plan`.

        Failures are part of the outcome.
        """
        if prepared.warning:
            self.world.log("warning", prepared.warning)
        name = prepared.changeset.head
        head = self.delivery.heads.get(name)
        try:
            outcome = self._land_commit(prepared, head)
        except Outpaced:
            self.outpaced.add(name)
            return
        except TaskError as error:
            outcome = Outcome(tuple(failed(decision, error) for decision in prepared.decisions))
        if any(item.verdict == "error" for item in outcome.decisions):
            self.failed.add(name)
        self.done = self.done.plus(replace(outcome, cautions=prepared.cautions))

    def _land_commit(self, prepared: PreparedCommit, head: HeadBranch | None) -> Outcome:
        repository = self.batch.repository
        job = self.job
        change = prepared.changeset
        if head is None:
            landed_commit = (repository.predict if job.dry else repository.land)(change)
            return self._told(prepared, landed_commit, None)
        self._log_kept(head)
        listed = self.delivery.lists.of(change.head)
        if stands := as_it_stands(prepared, head, listed, job, self.world):
            if self.delivery.lists.news(listed):
                self.memory_branch.put(listed)
            return stands
        predicted = repository.predict(change)
        landed_commit = predicted
        if not job.dry:
            if self.broken:
                raise self.broken
            bound = self.delivery.lists.bound_to(change.head)
            landed_commit = self.memory_branch.land_with_list(
                change, listed, predicted, head, bound
            )
        outcome = self._told(prepared, landed_commit, head)
        if head.request:
            outcome = propose(prepared, head.request, outcome, listed, job, self.world)
        return outcome

    def _log_kept(self, head: HeadBranch) -> None:
        if head.ours or head.branch is None:
            return
        said = printable(head.branch.message.partition("\n")[0])
        by = printable(head.branch.by) or "somebody"
        self.world.log("info", f"{head.branch.branch} keeps commit {head.tip[:12]} by {by}: {said}")

    def _told(
        self,
        prepared: PreparedCommit,
        landed_commit: LandedCommit,
        head: HeadBranch | None,
    ) -> Outcome:
        under = head.files if head and not head.ours else self.delivery.base.files
        diff = unified_diff(under, prepared.changeset.files) if self.job.dry else None
        return _outcome_of(prepared, landed_commit, self.attempt, diff)

    def close(self) -> None:
        """Close the requests of head branches with no waiting builds, and delete the branches."""
        if self.job.dry or self.broken:
            return
        closed = False
        for name, reason in self.delivery.lists.closing.items():
            head = self.delivery.heads[name]
            because = reason
            if head.instead and head.instead in self.outpaced | self.failed:
                continue
            if head.instead:
                page = self._pages().get(head.instead) or "No request"
                because = f"{reason}. {page} proposes the waiting builds"
            try:
                if withdraw(because, head.request, self.world):
                    undeleted = not self._dropped(head)
                    listed = WaitingList(name, declined=head.listed.declined)
                    # Remember a remaining branch as ours: the next build uses it.
                    self.memory_branch.put(
                        replace(listed, commit=head.listed.commit) if undeleted else listed
                    )
                    closed = True
            except Outpaced:  # another run now proposes something there
                self.outpaced.add(name)
            except TaskError as error:
                self.world.log("warning", f"{name} was not deleted: {error.message}")
        if closed and not self.outpaced:
            with suppress(Outpaced):  # the next run will do it
                self._remember()

    def _dropped(self, head: HeadBranch) -> bool:
        """Delete a head branch, and return whether it is gone.

        GitLab and Gitea don't allow deleting a protected branch with git.
        """
        if head.branch is None:
            return True
        try:
            self.batch.repository.drop(head.branch.branch, head.tip)
        except RepositoryError as error:
            self.world.log("warning", f"{head.branch.branch} was not deleted: {error.message}")
            return False
        return True

    def _pages(self) -> dict[str, str]:
        """Return the requests' URLs, by head branch."""
        pages = {
            commit.head: commit.pull_request for commit in self.done.commits if commit.pull_request
        }
        for name, head in self.delivery.heads.items():
            if head.newest_request:
                pages.setdefault(name, head.newest_request.url)
        return pages

    def outcome(self) -> Outcome:
        """Return the result of landing, and what became of the waiting builds."""
        done = self.done
        pages = self._pages()
        remembered = self.memory_branch.commit
        if remembered and (self.memory_branch.remembers or not done.commits):
            done = done.plus(Outcome(commits=(remembered,)))
        rows = [
            replace(waited, pull_request=pages.get(waited.head, ""))
            for waited in self.delivery.waited
            if waited.head not in self.outpaced
        ]
        problems = [*self.delivery.problems, *map(_overtaken_head, sorted(self._left))]
        return done.plus(Outcome(waiting=tuple(rows), cautions=tuple(problems)))

    @property
    def _left(self) -> set[str]:
        """The head branches where another run pushed first, and that will not be decided again."""
        asked = {ask.key for ask in self.batch.asks}
        prepared = self.delivery.commits
        retried = {
            commit.changeset.head
            for commit in prepared
            if any(decision.subscription.identity in asked for decision in commit.decisions)
        }
        return {commit.changeset.head for commit in prepared} & self.outpaced - retried


def _overtaken_head(name: str) -> Problem:
    message = f"the builds waiting on {name} were not reevaluated: another run was faster"
    hint = (
        "the next run that writes to the branch will decide them; do not merge the branch before"
        " then"
    )
    return Problem(Trouble.warning("target", message, hint))


def _outcome_of(
    prepared: PreparedCommit,
    landed_commit: LandedCommit,
    attempt: int,
    diff: str | None,
) -> Outcome:
    """Return a commit's outcome. If the head branch already had it, there is no new commit."""
    change = prepared.changeset
    landed = landed_applications(prepared.decisions, change.repo, landed_commit.commit)
    if not landed_commit.pushed:
        same = Verdict("unchanged", "same", f"the branch {change.head} already has this commit")
        return Outcome(
            prepared.with_updates_as(same),
            (),
            landed,
        )
    commit = prepared.reported(landed_commit.commit)
    files = tuple(sorted(prepared.changeset.files))
    commit = replace(
        commit,
        tree=landed_commit.tree,
        files=files,
        attempts=attempt,
        diff=diff,
        through=landed_commit.through,
    )
    return Outcome(prepared.decisions, (commit,), landed)


def _without_commit(settled: Sequence[Decision], snapshot: Snapshot, job: Job) -> Outcome:
    """Return the outcome of decisions that don't need a commit.

    Versions that the base already has count as landed, so with `--wait`, the run also waits for
    their rollouts.
    """
    on_base = [
        decision
        for decision in settled
        if decision.verdict == "unchanged" and decision.head == decision.branch
    ]
    cautions = tuple(
        caution
        for decision in on_base
        if decision.kind
        for caution in file_cautions(
            snapshot.files,
            decision.subscription,
            decision.kind,
            decision.candidate,
            job.terms,
        )
    )
    earlier = () if job.dry else _of_earlier_run(on_base, snapshot)
    return Outcome(
        tuple(settled),
        (),
        landed_applications(on_base, snapshot.repo, snapshot.tip),
        cautions,
        earlier,
    )


def _of_earlier_run(on_base: Sequence[Decision], snapshot: Snapshot) -> tuple[Commit, ...]:
    """Return the branch's newest commit if, by its trailers, an earlier run wrote one of these
    builds in it.
    """
    lines = snapshot.message.rstrip("\n").rpartition("\n\n")[2].splitlines()
    # another Application's target may also have the digest
    lines += [line.partition("@")[0] for line in lines]
    apps = set()
    for decision in on_base:
        tag = decision.candidate.tag
        digest = decision.candidate.digest
        image = replace(decision.subscription.entry.image, tag=tag, digest="" if tag else digest)
        key = decision.subscription.application.key
        if {f"Image: {image.reference}", f"Application: {key}"} <= set(lines):
            apps.add(key)
    branch = snapshot.branch
    names = tuple(sorted(apps))
    commit = Commit(
        snapshot.repo,
        branch,
        branch,
        snapshot.tip,
        "",
        (),
        names,
        already_there=True,
    )
    return (commit,) if apps else ()
