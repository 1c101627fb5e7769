"""Running a job: discover the Applications → match the images → decide and deliver → follow →
report.

The pipeline accesses the outside world only through `World`. All decisions are made by pure code
that works on values. `scan` and `promote` pass their own function for matching. The steps after
landing are also passed as a function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial

from task import shutdown
from task.deciding.cautions import cautions, first_tags, not_merged, without_request
from task.deciding.decide import failed_asks, settled_without_git
from task.deciding.job import Ask, Job, Outcome
from task.errors import Exit, NotPermittedError, TaskError, Trouble, exit_of
from task.landing.live import patch
from task.landing.overridden import called
from task.landing.ports import NOBODY, Batch, Look, World
from task.model import Commit, Decision, Problem, Report, Timings, Unusable
from task.pipeline.deliver import deliver
from task.pipeline.discover import discover, subscription_lookup
from task.pipeline.match import (
    AT_ONCE,
    Matched,
    by_branch,
    by_login,
    by_repository,
    warn_if_all_excluded,
    without_the_broken,
)
from task.pipeline.overlooked import Seen
from task.threads import in_threads


@dataclass(frozen=True)
class Delivered:
    """The result of landing, and everything that the run knew before that."""

    job: Job
    seen: Seen
    matched: Matched
    outcome: Outcome
    began: float  # on the world's clock


@dataclass(frozen=True)
class Ended:
    """The result of the steps after landing: more commits, undone decisions, and problems."""

    outcome: Outcome = Outcome()
    problems: tuple[Problem, ...] = ()
    undone: tuple[Decision, ...] = ()


Match = Callable[[Seen, Job, World], tuple[Job, Matched]]
After = Callable[[Delivered, World], Ended]


def run(
    job: Job,
    world: World,
    shielded: ExitStack,
    match: Match,
    after: After,
) -> Report:
    """Run the whole job, and return its report.

    `match` returns what the run should update (asks), and `after` performs the steps after landing
    (the pushes). `plan` does the same as `run`, but predicts pushes instead of making them.

    A shield against signals is added to `shielded`. The caller closes it after the report is
    published, so that a signal cannot cause the report to be lost.
    """
    began = world.now()
    seen, problems = discover(job, world)
    job, matched = match(seen, job, world)
    problems += warn_if_all_excluded(matched, job)
    matched_at = world.now()

    done = Outcome(matched.decisions)
    if job.atomic:
        matched, error_decisions = without_the_broken(matched)
        done = done.plus(Outcome(error_decisions))
    # From now on, a signal only cuts waiting short. The report still shows what landed.
    shielded.enter_context(shutdown.shield())
    look = subscription_lookup(seen, job, world)
    done = done.plus(deliver_all(matched, job, world, look))
    landed_at = world.now()

    ended = after(Delivered(job, seen, matched, done, began), world)
    problems += (*ended.problems, *matched.problems)
    timings = Timings(
        started=job.terms.now,
        find=matched_at - began,
        land=landed_at - matched_at,
        follow=world.now() - landed_at,
    )

    without_urls = report(job, seen, matched, done.plus(ended.outcome), problems)
    commits = tuple(
        replace(commit, url=world.commit_page(commit.repo, commit.commit or ""))
        for commit in without_urls.commits
    )
    return replace(
        without_urls,
        timings=timings,
        undone=ended.undone,
        commits=commits,
    )


def deliver_all(matched: Matched, job: Job, world: World, look: Look = NOBODY) -> Outcome:
    """Decide all asks, and land the resulting updates: push them to Git, or patch live Applications
    (those that are changed in the cluster).

    Repositories are processed in parallel, and live Applications last. `look` finds the
    subscriptions of Applications that are not part of the run.
    """
    groups = by_login(by_repository(matched, job), world)
    deliver_group = partial(deliver_repository, job=job, world=world, look=look)
    done = Outcome()
    for outcome in in_threads(deliver_group, groups, AT_ONCE):
        done = done.plus(outcome)
    if job.only:  # `--only-repository` leaves out live Applications
        return done
    return done.plus(patch(matched.live, job, world))


def deliver_repository(asks: Sequence[Ask], job: Job, world: World, look: Look = NOBODY) -> Outcome:
    """Decide and land everything for one repository, branch by branch.

    `asks` are all for this repository, with the same credentials. An ask is one image of an
    Application, with the builds offered for it. `look` finds the subscriptions of Applications that
    are not part of the run. A failure does not affect other repositories: it becomes the asks'
    decision.
    """
    without_git = [settled_without_git(ask, job.terms, config_read=False) for ask in asks]
    decisions_without_git = [decision for decision in without_git if decision]
    # If no ask changes Git, Git is not read. Otherwise, `deliver` decides all asks.
    if len(decisions_without_git) == len(asks):
        return Outcome(tuple(decisions_without_git))
    sub = asks[0].subscription
    try:
        with closing(world.repository(sub.repo, sub)) as repository:
            batches = [
                Batch(repository, base, tuple(members), look)
                for base, members in by_branch(repository, asks).items()
            ]
            done, permitted_batches = _leave_out_refused(batches, job, world)
            for batch in permitted_batches:
                done = done.plus(deliver(batch, job, world))
            return done
    except TaskError as error:
        return failed_asks(asks, error, job.terms, config_read=False)


def _leave_out_refused(
    batches: Sequence[Batch], job: Job, world: World
) -> tuple[Outcome, list[Batch]]:
    """Leave out the Applications that write to several branches if the config of one of these
    branches does not permit their update. Return the decisions about them, and the batches with all
    other asks.

    `batches` contains one batch for each base branch of a repository. Branches are written one by
    one, so without this check, one branch could receive its half of an update before another branch
    refuses the other half.
    """
    predicted = _predict_across_branches(batches, job, world)
    refusals = {
        decision.subscription.application.key: decision.judged
        for decision in predicted
        if decision.rule == NotPermittedError.rule
    }
    decisions = []
    for decision in predicted:
        refusal = refusals.get(decision.subscription.application.key)
        if refusal is None:
            continue  # permitted on all its branches, so it is decided again when it lands
        if decision.verdict == "update":
            # this branch permits the update, but the other branch's refusal applies here too
            decisions.append(replace(decision, judged=refusal))
        else:
            decisions.append(decision)

    permitted_batches = []
    for batch in batches:
        permitted_asks = [
            ask for ask in batch.asks if ask.subscription.application.key not in refusals
        ]
        if permitted_asks:
            permitted_batches.append(replace(batch, asks=tuple(permitted_asks)))
    return Outcome(tuple(decisions)), permitted_batches


def _predict_across_branches(batches: Sequence[Batch], job: Job, world: World) -> list[Decision]:
    """Return the decisions about Applications that have asks in more than one batch. Nothing is
    written.
    """
    apps = _on_several_branches(batches)
    decisions: list[Decision] = []
    for batch in batches:
        asks = tuple(ask for ask in batch.asks if ask.subscription.application.key in apps)
        if asks:
            outcome = deliver(replace(batch, asks=asks), replace(job, dry=True), world)
            decisions += outcome.decisions
    return decisions


def _on_several_branches(batches: Sequence[Batch]) -> set[str]:
    """Return the keys of the Applications with asks on more than one base branch."""
    bases_by_app: dict[str, set[str]] = {}
    for batch in batches:
        for ask in batch.asks:
            bases_by_app.setdefault(ask.subscription.application.key, set()).add(batch.base)
    return {app for app, bases in bases_by_app.items() if len(bases) > 1}


def report(
    job: Job,
    seen: Seen,
    matched: Matched,
    done: Outcome,
    problems: tuple[Problem, ...],
) -> Report:
    """Return the report of a run, with the decisions ordered by Application, then by alias.

    It also contains the run's exit code, which depends on the errors. `--require-update` adds an
    error if nothing was updated.
    """
    decisions = _sorted_decisions(matched, done)
    rows: list[Decision | Unusable] = sorted((*matched.unusable, *decisions), key=_place_in_report)
    written_images = dict.fromkeys(
        decision.candidate for decision in decisions if decision.verdict == "update"
    )

    # the errors, and the exit code that they cause
    all_problems = [
        Problem(decision.judged.trouble, application=decision.subscription.application.key)
        for decision in rows
        if decision.verdict == "error"
    ]
    all_problems += problems
    code = exit_of(all_problems)
    # an error has its own exit code, which must not be replaced
    nothing_happened = not code and not written_images
    if job.require_update and nothing_happened:
        code = Exit.NOTHING_UPDATED
        message = "--require-update: nothing was updated"
        hint = "see the decisions for the reasons; omit --require-update if this is not a failure"
        all_problems.append(Problem(Trouble("require-update", message, hint, exit=code)))

    # the warnings, which do not change the exit code
    all_problems += sorted(done.cautions, key=lambda caution: caution.application)
    all_problems += cautions(decisions)
    if not job.intent:
        all_problems += first_tags(decisions)
    all_problems += without_request(decisions, job)
    all_problems += not_merged(decisions, done.commits, job)

    waiting = sorted(done.waiting, key=lambda row: (row.application, row.alias, row.head, row.tag))
    return Report(
        command=job.command,
        images=job.images or tuple(written_images),  # commands such as `scan` are not given images
        considered=seen.considered,
        decisions=tuple(rows),
        commits=tuple(sorted(done.commits, key=_commit_order)),
        problems=tuple(dict.fromkeys(all_problems)),
        waiting=tuple(waiting),
        exit=shutdown.code_of_run((), code),
        dry=job.dry,
        earlier=done.earlier,
        source=job.requests.source,
        pipeline_run=job.requests.run,
        passed_over=job.passed_over,
    )


def _sorted_decisions(matched: Matched, done: Outcome) -> list[Decision]:
    """Return the decisions in the report's order, with the source of each promoted version."""
    sources = {
        ask.subscription.identity: ask.promoted.source for ask in matched.asks if ask.promoted
    }
    decisions = []
    for decision in _still_overridden(done.decisions):
        if decision.verdict == "update":
            source = decision.source  # empty if a deferred build is written instead of a promotion
        else:
            source = sources.get(decision.subscription.identity, decision.source)
        decisions.append(replace(decision, source=source))
    return sorted(
        decisions, key=lambda decision: (*_place_in_report(decision), decision.subscription.path)
    )


def _commit_order(commit: Commit) -> tuple[str, str, bool, str]:
    """Return a commit's position in the report. Memory branches come last."""
    return commit.repo, commit.branch, commit.remembers, commit.head


def _still_overridden(decisions: Sequence[Decision]) -> list[Decision]:
    """Return the decisions, keeping only the names in `overridden_by` that are still correct.

    A refusal contains another entry's name there if that entry writes the refused version anyway.
    The name is removed if that entry did not become an update.
    """
    writers = {called(decision) for decision in decisions if decision.verdict == "update"}
    return [
        replace(decision, overridden_by="")
        if decision.overridden_by and decision.overridden_by not in writers
        else decision
        for decision in decisions
    ]


def _place_in_report(decision: Decision | Unusable) -> tuple[str, str]:
    """Return a decision's position in the report: its Application, and its alias."""
    return decision.subscription.application.key, decision.subscription.entry.alias
