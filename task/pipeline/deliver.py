"""Landing the updates for one branch: read, decide, edit, push, and repeat if the branch has moved.

If someone else has pushed first, everything is reevaluated at the new tip. The run never merges or
rebases, so there are no conflicts, and a build that is no longer the newest is not written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from task import DOCS
from task.deciding.cautions import file_cautions
from task.deciding.decide import Identity, decide, failed_asks, places
from task.deciding.job import Job, Move, Outcome, failed, landed_applications
from task.deciding.verify import hindered, signed_for_argo
from task.deciding.weigh import Facts
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
    unnamed_heads,
    without_finished_rollbacks,
)
from task.landing.lists import Lists, strange_in, with_lists_of
from task.landing.memory_branch import MemoryBranchWriter
from task.landing.overridden import with_overridden
from task.landing.ports import Batch, World
from task.landing.pull_request import already_proposed, propose, withdraw
from task.landing.states import deferred_until_landed, memory_files_after
from task.landing.together import decide_together
from task.landing.waiting_builds import BuildFate
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

MOST_STRANGE = 5  # unknown files on the memory branch to report
MOST_HEADS = 20  # head branches fetched together with their base


@dataclass(frozen=True)
class Delivery:
    """Everything that is going to be written and reported for a batch."""

    base: Snapshot
    heads: Mapping[str, HeadBranch]
    commits: tuple[PreparedCommit, ...]
    without_commit: tuple[Decision, ...]  # decisions that don't need a commit
    lists: Lists  # the head branches' lists after the run
    waiting_rows: tuple[HeadBuildRow, ...]
    problems: tuple[Problem, ...]
    memory_files: Files  # as on the memory branch after the run, but with the old lists
    author: Person
    # asks whose decision is stored only on the memory branch: a hold or a deferred build
    only_remembered: frozenset[Identity]


def deliver(batch: Batch, job: Job, world: World) -> Outcome:
    """Read the branch, decide, edit, and push. If someone else pushes first, start over, until
    everything has landed (was pushed) or the deadline has passed.

    A batch contains the asks for one base branch of one repository. An ask is one image of an
    Application, with the builds that this run offers for it. Errors become decisions.
    """
    done = Outcome()
    contention = Contention(f"moving {batch.base}", job.deadline, world)
    gather = gatherer(batch, job, world)
    expected_heads = branches_of_requests(batch)

    while batch.asks:
        contention.begin()
        try:
            snapshot = _read_snapshot(batch, expected_heads)
            # The configured ones include the settings from the repository's config at this tip.
            # `batch` and `job` are left unchanged, because the next attempt may read a different
            # config.
            configured_batch, snapshot, configured_job = govern(batch, snapshot, job)
            delivery = prepare(
                configured_batch, snapshot, gather, contention, configured_job, world
            )
        except TaskError as error:
            return done.plus(failed_asks(batch.asks, error, job.terms, config_read=False))

        if job.atomic:
            outcome_of_error = _stopped_by_an_error(delivery)
            if outcome_of_error:
                return done.plus(outcome_of_error)

        try:
            lander = land_delivery(delivery, batch, contention.attempts, job, world)
        except Outpaced:
            pass  # nothing has landed, so retry all asks
        else:
            keys_to_retry = lander.retried
            settled_decisions = [
                decision
                for decision in lander.without_commit
                if decision.subscription.identity not in keys_to_retry
            ]
            done = done.plus(lander.outcome())
            done = done.plus(_outcome_without_commit(settled_decisions, snapshot, job))
            asks_to_retry = tuple(ask for ask in batch.asks if ask.key in keys_to_retry)
            batch = replace(batch, asks=asks_to_retry)

        if batch.asks:
            repo = without_login(batch.asks[0].subscription.repo)
            number = contention.attempts + 1
            try:
                contention.pause(
                    f"{repo}: {batch.base} has moved; reevaluating at its new tip"
                    f" (attempt {number})"
                )
            except ContendedError as error:
                return done.plus(failed_asks(batch.asks, error, job.terms))
    return done


def _read_snapshot(batch: Batch, heads: Collection[str]) -> Snapshot:
    """Return the files at the base branch's tip that are needed to decide the asks and the waiting
    builds (those that pull requests propose), along with the files on its memory branch, which
    lists the waiting builds.

    `heads` are the branches of pull requests, which are fetched at the same time.
    """
    repo = batch.asks[0].subscription.repo
    places_of_asks = chain.from_iterable(map(places, batch.asks))
    places_of_waiting_builds = partial(places_of_lists, repo=repo, branch=batch.base)
    snapshot = batch.repository.snapshot(
        batch.base,
        chain(CONFIG, places_of_asks),
        heads,
        default=CONFIG,
        besides=places_of_waiting_builds,
    )

    snapshot = with_own_memory_branch(snapshot, batch.repository)
    if snapshot.prefix == PREFIX:
        return snapshot
    # The config names a different memory branch, so the waiting builds are only known now.
    more_places = places_of_waiting_builds(snapshot.memory_files)
    return with_more(snapshot, more_places, batch.repository)


def _stopped_by_an_error(delivery: Delivery) -> Outcome | None:
    """Return an outcome that writes nothing if one of the decisions is an error (for `--atomic`).
    In this outcome, all decisions that would have been written are errors too. Without an error,
    return None.
    """
    errors = [decision for decision in delivery.without_commit if decision.verdict == "error"]
    if not errors:
        return None
    verdict = not_written(errors[0])
    decisions = list(delivery.without_commit)
    for prepared in delivery.commits:
        decisions += [replace(decision, judged=verdict) for decision in prepared.decisions]
    return Outcome(tuple(decisions))


def branches_of_requests(batch: Batch) -> list[str]:
    """Return the names of the head branches (the branches of pull requests) that will receive the
    asks' commits, as far as they are known before the repository's config is read.
    """
    subs = [ask.subscription for ask in batch.asks]
    names: list[str] = []
    for sub in subs:
        name = sub.head_template  # the branch in the annotation `git-branch`
        if is_branch_name(name) and "{{" not in name:  # a template's name is not known yet
            names.append(name)
    # without the annotation, the run chooses the name
    names += [
        request_head(sub, batch.base) for sub in subs if sub.pull_request and not sub.head_template
    ]
    distinct_names = list(dict.fromkeys(names))
    return distinct_names[:MOST_HEADS]  # the others are fetched when they are needed


def prepare(
    batch: Batch,
    snapshot: Snapshot,
    gather: Gather,
    contention: Contention,
    job: Job,
    world: World,
) -> Delivery:
    """Decide all asks of a batch on this snapshot of the base branch, without writing anything.

    Return the commits to make, and the decisions that don't need a commit. An ask is one image of
    an Application, with the builds offered for it. A move is the decision about an ask, with the
    change that a commit makes. A head branch is the branch of a pull request. The repository's own
    config has already been applied to `batch`, `snapshot`, and `job`.
    """
    # 1. Decide the new builds, and read the head branches that will receive their commits.
    facts = gather(snapshot, batch.asks)
    first_moves = _decided_moves(batch, snapshot, job, facts)
    heads, moves = read_heads(batch, snapshot, first_moves, job, world)

    # 2. Decide again without the holds (orders to keep a version) of rollbacks that were declined
    #    or merged. The holds are in the memory branch's files.
    memory_files_as_read = snapshot.memory_files
    decided = list(zip(batch.asks, moves, strict=True))
    valid_memory_files, rollback_problems = without_finished_rollbacks(
        heads.values(), snapshot, decided
    )
    if valid_memory_files != memory_files_as_read:
        snapshot = replace(snapshot, memory_files=valid_memory_files)
        facts = gather(snapshot, batch.asks)
        new_moves = _decided_moves(batch, snapshot, job, facts)
        # Moves remain errors if no request can be opened for them, or if their list cannot be read.
        moves = [
            old_move if old_move.decision.verdict == "error" else new_move
            for old_move, new_move in zip(moves, new_moves, strict=True)
        ]

    # 3. Decide about the builds that are already waiting on the head branches.
    checks = last_checks(job, world)
    with contention.clock_paused():  # while proofs are verified
        together = decide_together(batch, snapshot, heads, moves, facts, gather, job, world, checks)
    snapshot = together.base
    head_fates = together.head_fates

    # 4. Edit the files, unless Argo CD would refuse to sync a commit with our signature. Then mark
    #    the refusals of versions that a commit writes to the same place for another entry.
    final_moves = signed_for_argo(together.moves, world.keys_wanted, world.signing_keys)
    prepared = prepare_commits(snapshot, final_moves, job.terms, job.wording, heads, head_fates)
    commits, without_commit = with_overridden(
        snapshot, prepared.commits, prepared.without_commit, job.terms
    )

    # 5. Collect the warnings, and the report's rows about waiting builds.
    problems = [
        *memory_branch_warnings(snapshot),
        *unnamed_heads(heads),
        *_strange_files(memory_files_as_read),
        *rollback_problems,
    ]
    waiting_rows = _merged_rows(heads, snapshot.branch)
    for name, fates_on_head in head_fates.items():
        problems += fates_on_head.problems
        waiting_rows += fates_on_head.rows(name)
    problems += hindered(final_moves, lambda sub: world.hindrance(sub, job.terms.now))
    return Delivery(
        # with the original files, because `MemoryBranchWriter` compares the new ones with them
        base=replace(snapshot, memory_files=memory_files_as_read),
        heads=heads,
        commits=tuple(commits),
        without_commit=tuple(without_commit),
        lists=Lists.after(heads, prepared, head_fates, snapshot, job.terms.now),
        waiting_rows=tuple(waiting_rows),
        problems=tuple(problems),
        memory_files=memory_files_after(snapshot, final_moves),
        author=agreed_wording(job.wording, [move.subscription for move in final_moves]).author,
        only_remembered=_only_remembered(final_moves, snapshot.branch),
    )


def _decided_moves(batch: Batch, snapshot: Snapshot, job: Job, facts: Facts) -> list[Move]:
    """Return the decision about each ask on the base branch, with the name of the head branch that
    will receive its commit.
    """
    moves = decide(snapshot, batch.asks, job.terms, facts)
    return name_heads(moves, by_hand=job.intent is not None)


def _only_remembered(moves: Iterable[Move], base: str) -> frozenset[Identity]:
    """Return the identities of the moves whose hold or deferred build is stored only on the memory
    branch, because no commit on the base contains it.
    """
    return frozenset(
        move.subscription.identity for move in moves if move.remember and move.decision.head != base
    )


def _strange_files(memory_files: Files) -> list[Problem]:
    """Return a warning for each of the first few unknown files on the memory branch. Only runs
    should write to that branch.
    """
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


def _merged_rows(heads: Mapping[str, HeadBranch], base: str) -> list[HeadBuildRow]:
    """Return the report's rows for the builds on these head branches that were merged into `base`
    since the last run.

    The base may have changed since the merge, so it may no longer have these versions.
    """
    return [
        BuildFate(build, "merged", f"{name} was merged into {base}").row(name)
        for name, head in heads.items()
        for build in head.merged_builds
    ]


def land_delivery(
    delivery: Delivery, batch: Batch, attempt: int, job: Job, world: World
) -> DeliveryLander:
    """Push a delivery's commits, and return the object that contains the result.

    Raises `Outpaced` if another run wrote the memory branch first, so that no commit has landed, or
    if the base has moved while it was read.

    The memory branch (holds, and the lists of waiting builds) is written before the base's commits,
    or in one push with a head branch. Finally, pull requests without waiting builds are closed.
    """
    if not delivery.base.tip:  # the decisions are based on the files of two commits
        raise Outpaced(f"{batch.base} has moved")
    lander = DeliveryLander(delivery, batch, attempt, job, world)
    lander.remember_first()
    for prepared in delivery.commits:
        lander.commit(prepared)
    lander.remember_rest()
    lander.close()
    return lander


@dataclass
class DeliveryLander:
    """Lands the commits of one delivery one by one, and writes the memory branch.

    It can fail in these ways, with these consequences:

    - Someone else pushed to a branch first, or merged its request in the meantime (`outpaced`): its
      asks are retried. If it has no asks, a warning reports that the builds waiting there were not
      reevaluated.
    - A commit or its request failed (`failed`): the commit's decisions are errors.
    - The memory branch cannot be written (`memory_error`): the decisions that are stored only there
      are errors, and so are the commits on head branches. No request is closed.
    - Another run wrote the memory branch before this run's first commit: `remember_first` raises
      `Outpaced`, and nothing has landed.
    - Another run wrote the memory branch after the commits, and this run had not written it yet
      (`memory_outpaced`): the asks whose decision is stored only there are retried.
    - A request that is no longer needed cannot be closed, or its branch cannot be deleted: a
      warning is logged, and the next run tries again.

    If a branch is outpaced or failed, requests whose builds move to it remain open. If anything is
    outpaced or failed, builds for the base remain deferred on the memory branch.
    """

    delivery: Delivery
    batch: Batch
    attempt: int
    job: Job
    world: World
    done: Outcome = field(default_factory=Outcome)
    outpaced: set[str] = field(default_factory=set)  # branches
    failed: set[str] = field(default_factory=set)  # branches
    memory_error: TaskError | None = None
    memory_outpaced: bool = False

    def __post_init__(self) -> None:
        """Create the memory branch's writer, with the files to write before the commits."""
        delivery = self.delivery
        base = delivery.base
        files_before_commits = delivery.memory_files
        writes_to_base = any(
            prepared.changeset.head == base.branch for prepared in delivery.commits
        )
        if writes_to_base:
            # a deferred build (one that a hold kept back) is forgotten only after its commit has
            # landed
            files_before_commits = deferred_until_landed(base.memory_files, files_before_commits)
        self.memory_branch = MemoryBranchWriter(base, delivery.author, self.batch, self.job)
        self.memory_branch.wanted = delivery.lists.without_commits(files_before_commits)

    def remember_first(self) -> None:
        """Write the memory branch (holds, and the lists of waiting builds) before the commits.

        If every commit belongs on a head branch (the branch of a pull request), and the server
        accepts two branches in one push, do nothing, because each commit is pushed together with
        the memory branch. Raises `Outpaced` if another run has written the memory branch.
        """
        branches = [prepared.changeset.head for prepared in self.delivery.commits]
        base = self.delivery.base.branch
        only_head_branches = bool(branches) and base not in branches
        in_one_push = only_head_branches and self.batch.repository.atomic
        if not in_one_push:
            self._write_memory_branch()

    def remember_rest(self) -> None:
        """Update the memory branch after the commits: write the changed lists, and forget the
        deferred builds (those that a hold kept back) that have landed on the base.
        """
        any_error = any(decision.verdict == "error" for decision in self.done.decisions)
        all_landed = not self.outpaced and not any_error
        if all_landed:
            # The state files can drop the deferred builds now. The commits have already updated
            # the lists in `wanted`.
            self.memory_branch.wanted = with_lists_of(
                self.delivery.memory_files, self.memory_branch.wanted
            )
        try:
            self._write_memory_branch()
        except Outpaced:
            # The commits have landed, and the next run will write the rest. But if this run has not
            # written the memory branch at all, its holds are missing there.
            if not self.memory_branch.commits:
                self.memory_outpaced = True

    @property
    def retried(self) -> set[Identity]:
        """The keys of the asks to decide and write again, because someone else pushed first."""
        delivery = self.delivery
        all_decisions = list(delivery.without_commit)
        for prepared in delivery.commits:
            all_decisions += prepared.decisions
        keys_to_retry = {
            decision.subscription.identity
            for decision in all_decisions
            if decision.head in self.outpaced
        }
        if self.memory_outpaced:
            keys_to_retry |= delivery.only_remembered
        return keys_to_retry

    @property
    def without_commit(self) -> list[Decision]:
        """The decisions that didn't need a commit.

        A hold (an order to keep a version) or a deferred build (one that a hold keeps back) may be
        stored only on the memory branch. If that branch could not be written, such a decision is an
        error.
        """
        error = self.memory_error
        if error is None:
            return list(self.delivery.without_commit)
        decisions = []
        for decision in self.delivery.without_commit:
            is_lost = decision.subscription.identity in self.delivery.only_remembered
            decisions.append(failed(decision, error) if is_lost else decision)
        return decisions

    def _write_memory_branch(self) -> None:
        """Write the memory branch, or store the error if that fails. Raises `Outpaced` if another
        run has written it first.
        """
        try:
            self.memory_branch.write()
        except TaskError as error:
            self.memory_error = error

    def commit(self, prepared: PreparedCommit) -> None:
        """Push one commit, and open or update its pull request if it belongs on a head branch. For
        `plan`, only predict the commit.

        The result is added to `done`. A failure becomes the error of each of the commit's
        decisions. If someone else has pushed to the branch first, the branch is only added to
        `outpaced`.
        """
        if prepared.warning:
            self.world.log("warning", prepared.warning)
        branch = prepared.changeset.head
        head = self.delivery.heads.get(branch)
        try:
            outcome = self._land_on_head(prepared, head) if head else self._land_on_base(prepared)
        except Outpaced:
            self.outpaced.add(branch)
            return
        except TaskError as error:
            outcome = Outcome(tuple(failed(decision, error) for decision in prepared.decisions))
        any_error = any(decision.verdict == "error" for decision in outcome.decisions)
        if any_error:
            self.failed.add(branch)
        self.done = self.done.plus(replace(outcome, cautions=prepared.cautions))

    def _land_on_base(self, prepared: PreparedCommit) -> Outcome:
        """Push a commit to the base branch, or predict it for `plan`."""
        repository = self.batch.repository
        land = repository.predict if self.job.dry else repository.land
        landed_commit = land(prepared.changeset)
        return self._outcome_of(prepared, landed_commit, self.delivery.base.files)

    def _land_on_head(self, prepared: PreparedCommit, head: HeadBranch) -> Outcome:
        """Push a commit to a head branch (the branch of a pull request), with the list of the
        builds that are waiting there, and open or update the pull request.

        Nothing is pushed for `plan`, or if the open request already proposes the same changes.
        Raises `TaskError` if the push fails.
        """
        job = self.job
        change = prepared.changeset
        lists = self.delivery.lists
        waiting_list = lists.of(change.head)
        self._log_foreign_commit(head)

        outcome_without_push = already_proposed(prepared, head, waiting_list, job, self.world)
        if outcome_without_push:
            if lists.news(waiting_list):
                self.memory_branch.put(waiting_list)
            return outcome_without_push

        predicted = self.batch.repository.predict(change)
        landed_commit = predicted
        if not job.dry:
            if self.memory_error:  # without its list, the next run would not recognize our commit
                raise self.memory_error
            moved_lists = lists.moved_to(change.head)
            landed_commit = self.memory_branch.land_with_list(
                change, waiting_list, predicted, head, moved_lists
            )

        # our own branch is recreated from the base; on someone else's, a commit is added
        files_before = self.delivery.base.files if head.ours else head.files
        outcome = self._outcome_of(prepared, landed_commit, files_before)
        if head.request is None:  # this branch is used without a pull request
            return outcome
        return propose(prepared, head.request, outcome, waiting_list, job, self.world)

    def _log_foreign_commit(self, head: HeadBranch) -> None:
        """Log which commit remains on the head branch if someone else has pushed to it."""
        if head.ours or head.branch is None:
            return
        subject = printable(head.branch.message.partition("\n")[0])
        author = printable(head.branch.by) or "somebody"
        self.world.log("info", f"{head.name} keeps commit {head.tip[:12]} by {author}: {subject}")

    def _outcome_of(
        self, prepared: PreparedCommit, landed_commit: LandedCommit, files_before: Files
    ) -> Outcome:
        """Return the outcome of pushing a commit: its decisions, the commit for the report, and the
        Applications whose image is now in Git. For `plan`, add the diff from `files_before`.

        If the head branch already had this commit, nothing was pushed, and its updates are reported
        as unchanged.
        """
        change = prepared.changeset
        landed = landed_applications(prepared.decisions, change.repo, landed_commit.commit)
        if not landed_commit.pushed:
            same = Verdict("unchanged", "same", f"the branch {change.head} already has this commit")
            return Outcome(prepared.with_updates_as(same), (), landed)
        commit = replace(
            prepared.reported(landed_commit.commit),
            tree=landed_commit.tree,
            files=tuple(sorted(change.files)),
            attempts=self.attempt,
            diff=unified_diff(files_before, change.files) if self.job.dry else None,
            through=landed_commit.through,
        )
        return Outcome(prepared.decisions, (commit,), landed)

    def close(self) -> None:
        """Close the pull requests of head branches where no builds are waiting anymore, and delete
        these branches.

        A request remains open if its builds move to another branch that could not be pushed.
        """
        if self.job.dry or self.memory_error:
            return
        any_closed = False
        for name, reason in self.delivery.lists.closing.items():
            head = self.delivery.heads[name]
            successor = head.instead  # the branch that its builds have moved to, or ""
            if successor in self.outpaced or successor in self.failed:
                continue  # the builds have not arrived there
            because = reason
            if successor:
                page = self._pages().get(successor) or "No request"
                because = f"{reason}. {page} proposes the waiting builds"
            try:
                is_closed = withdraw(because, head.request, self.world)
                if is_closed:
                    self.memory_branch.put(self._delete_branch_of_closed(head))
                    any_closed = True
            except Outpaced:  # another run now proposes something there
                self.outpaced.add(name)
            except TaskError as error:
                self.world.log("warning", f"{name} was not deleted: {error.message}")

        if any_closed and not self.outpaced:
            with suppress(Outpaced):  # the next run will do it
                self._write_memory_branch()

    def _delete_branch_of_closed(self, head: HeadBranch) -> WaitingList:
        """Delete the head branch of a closed pull request, and return its list without builds.

        Builds that people have declined remain recorded, so that they are not proposed again.
        """
        waiting_list = WaitingList(head.name, declined=head.waiting_list.declined)
        if self._delete_branch(head):
            return waiting_list
        # Keep recording the remaining branch as ours: the next build will use it.
        return replace(waiting_list, commit=head.waiting_list.commit)

    def _delete_branch(self, head: HeadBranch) -> bool:
        """Delete a head branch, and return whether it is gone. If it cannot be deleted, log a
        warning.

        GitLab and Gitea don't allow deleting a protected branch with git.
        """
        if head.branch is None:
            return True
        try:
            self.batch.repository.drop(head.name, head.tip)
        except RepositoryError as error:
            self.world.log("warning", f"{head.name} was not deleted: {error.message}")
            return False
        return True

    def _pages(self) -> dict[str, str]:
        """Return the URL of each head branch's pull request, keyed by the branch's name."""
        pages: dict[str, str] = {}
        for commit in self.done.commits:
            if commit.pull_request:
                pages[commit.head] = commit.pull_request
        for name, head in self.delivery.heads.items():
            if head.newest_request:  # it was known before the run
                pages.setdefault(name, head.newest_request.url)
        return pages

    def outcome(self) -> Outcome:
        """Return what has landed (was pushed), what became of the waiting builds, and the
        warnings.
        """
        done = self.done
        memory_commit = self.memory_branch.commit
        # Each commit on a head branch also changes its list, so a memory commit that contains only
        # lists is not worth its own line.
        is_worth_reporting = self.memory_branch.remembers or not done.commits
        if memory_commit and is_worth_reporting:
            done = done.plus(Outcome(commits=(memory_commit,)))

        pages = self._pages()
        rows = [
            replace(row, pull_request=pages.get(row.head, ""))
            for row in self.delivery.waiting_rows
            if row.head not in self.outpaced
        ]
        heads_not_retried = sorted(self._outpaced_without_asks())
        problems = (*self.delivery.problems, *map(_overtaken_head, heads_not_retried))
        return done.plus(Outcome(waiting=tuple(rows), cautions=problems))

    def _outpaced_without_asks(self) -> set[str]:
        """Return the head branches where another run pushed first, and which this run does not
        retry because it has no new builds for them.
        """
        keys_of_asks = {ask.key for ask in self.batch.asks}
        without_asks = set()
        for prepared in self.delivery.commits:
            identities = {decision.subscription.identity for decision in prepared.decisions}
            if identities.isdisjoint(keys_of_asks):
                without_asks.add(prepared.changeset.head)
        return without_asks & self.outpaced


def _overtaken_head(name: str) -> Problem:
    """Return the warning for a head branch (the branch of a pull request) where another run pushed
    first.
    """
    message = f"the builds waiting on {name} were not reevaluated: another run was faster"
    hint = (
        "the next run that writes to the branch will decide them; do not merge the branch before"
        " then"
    )
    return Problem(Trouble.warning("target", message, hint))


def _outcome_without_commit(decisions: Sequence[Decision], snapshot: Snapshot, job: Job) -> Outcome:
    """Return the outcome of decisions that don't need a commit.

    Versions that the base branch already has count as landed, so `--wait` also covers their
    rollouts. For these versions, the outcome also contains the warnings about their files, and the
    earlier commit that wrote them.
    """
    on_base = [
        decision
        for decision in decisions
        if decision.verdict == "unchanged" and decision.head == decision.branch
    ]
    warnings: list[Problem] = []
    for decision in on_base:
        if decision.kind:
            warnings += file_cautions(
                snapshot.files,
                decision.subscription,
                decision.kind,
                decision.candidate,
                job.terms,
            )
    return Outcome(
        decisions=tuple(decisions),
        landed=landed_applications(on_base, snapshot.repo, snapshot.tip),
        cautions=tuple(warnings),
        earlier=() if job.dry else _of_earlier_run(on_base, snapshot),
    )


def _of_earlier_run(on_base: Sequence[Decision], snapshot: Snapshot) -> tuple[Commit, ...]:
    """Return a tuple with the base branch's newest commit if an earlier run has written one of
    these builds in it. Otherwise, return an empty tuple.

    Our commit messages end with trailers, such as `Image: ghcr.io/acme/web:1.5.0` and
    `Application: argocd/web`.
    """
    _, _, last_paragraph = snapshot.message.rstrip("\n").rpartition("\n\n")
    trailers = set(last_paragraph.splitlines())
    # Also compare without digests: the images below have no digest, but the trailer has one if
    # another Application's target needed it.
    trailers |= {line.partition("@")[0] for line in trailers}

    apps = set()
    for decision in on_base:
        sub = decision.subscription
        tag = decision.candidate.tag
        digest = "" if tag else decision.candidate.digest  # a digest without a tag must be kept
        image = replace(sub.entry.image, tag=tag, digest=digest)
        app = sub.application.key
        if f"Image: {image.reference}" in trailers and f"Application: {app}" in trailers:
            apps.add(app)
    if not apps:
        return ()

    branch = snapshot.branch
    commit = Commit(
        repo=snapshot.repo,
        branch=branch,
        head=branch,
        commit=snapshot.tip,
        tree="",
        files=(),
        applications=tuple(sorted(apps)),
        already_there=True,
    )
    return (commit,)
