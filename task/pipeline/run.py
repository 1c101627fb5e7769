"""Runs a job: discover the Applications → match the images → decide and deliver → follow → report.

The pipeline accesses the outside only through `World`. All decisions are made by pure code, on
values. `scan` and `promote` pass their own function for matching. The steps after landing are also
passed as a function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from task.landing.ports import NOBODY, Batch, Look, Repository, World
from task.model import Commit, Decision, Problem, Report, Timings, Unusable
from task.pipeline.deliver import deliver
from task.pipeline.discover import discover, looker
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
    """The result of landing, and everything that the run knew before."""

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

    `match` returns what the run should update (asks), and `after` takes the steps after landing
    (the pushes). `plan` does the same as `run`, but predicts pushes instead of making them.

    A shield against signals is added to `shielded`. The caller closes it once the report is
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
    # From now on, a signal only ends waiting early. The report still shows what landed.
    shielded.enter_context(shutdown.shield())
    done = done.plus(deliver_all(matched, job, world, looker(seen, job, world)))
    landed_at = world.now()

    ended = after(Delivered(job, seen, matched, done, began), world)
    problems += (*ended.problems, *matched.problems)
    timings = Timings(
        job.terms.now,
        matched_at - began,
        landed_at - matched_at,
        world.now() - landed_at,  # the steps after landing
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

    Repositories are handled in parallel, and live Applications last.
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

    `asks` are for this repository, with the same credentials. An ask is one image of an
    Application, with the builds offered for it. `look` looks up Applications that are not part of
    the run. A failure does not affect other repositories: it becomes the asks' decision.
    """
    without_git = [settled_without_git(ask, job.terms, config_read=False) for ask in asks]
    decisions_without_git = [decision for decision in without_git if decision]
    if len(decisions_without_git) == len(asks):  # none of them changes Git, so Git is not read
        return Outcome(tuple(decisions_without_git))
    sub = asks[0].subscription
    try:
        with closing(world.repository(sub.repo, sub)) as repository:
            branches = by_branch(repository, asks)
            done, permitted = _leave_out_refused(repository, branches, job, world, look)
            for base, members in permitted.items():
                batch = Batch(repository, base, tuple(members), look)
                done = done.plus(deliver(batch, job, world))
            return done
    except TaskError as error:
        return failed_asks(asks, error, job.terms, config_read=False)


def _leave_out_refused(
    repository: Repository,
    branches: Mapping[str, Sequence[Ask]],
    job: Job,
    world: World,
    look: Look,
) -> tuple[Outcome, Mapping[str, Sequence[Ask]]]:
    """Plan Applications with targets on several branches first, and leave out those with an update
    that the config of one branch does not permit.

    Otherwise, the first branch would get its half of an update before the other one refuses.
    `branches` has the asks by base branch. Return the decisions about the Applications left out,
    and the asks for all others.
    """
    planned = _plan_of_spread(repository, branches, job, world, look)
    refusals = {
        decision.subscription.application.key: decision.judged
        for decision in planned
        if decision.rule == NotPermittedError.rule
    }
    decisions = []
    for decision in planned:
        refusal = refusals.get(decision.subscription.application.key)
        if refusal is None:  # decided again later, together with all other asks for its branch
            continue
        if decision.verdict == "update":
            decisions.append(replace(decision, judged=refusal))
        else:
            decisions.append(decision)

    permitted: dict[str, Sequence[Ask]] = {}
    for base, asks in branches.items():
        not_refused = [ask for ask in asks if ask.subscription.application.key not in refusals]
        if not_refused:
            permitted[base] = not_refused
    return Outcome(tuple(decisions)), permitted


def _plan_of_spread(
    repository: Repository,
    branches: Mapping[str, Sequence[Ask]],
    job: Job,
    world: World,
    look: Look,
) -> list[Decision]:
    """Return the decisions about the Applications with asks on several base branches, without
    writing anything.

    `branches` has the asks by base branch: each is one image, with the builds offered for it.
    """
    spread_apps = _on_several_branches(branches)
    planned: list[Decision] = []
    for base, asks in branches.items():
        members = tuple(ask for ask in asks if ask.subscription.application.key in spread_apps)
        if members:
            batch = Batch(repository, base, members, look)
            planned += deliver(batch, replace(job, dry=True), world).decisions
    return planned


def _on_several_branches(branches: Mapping[str, Sequence[Ask]]) -> set[str]:
    """Return the Applications with asks on more than one base branch."""
    bases_by_app: dict[str, set[str]] = {}
    for base, asks in branches.items():
        for ask in asks:
            bases_by_app.setdefault(ask.subscription.application.key, set()).add(base)
    return {app for app, bases in bases_by_app.items() if len(bases) > 1}


def report(
    job: Job,
    seen: Seen,
    matched: Matched,
    done: Outcome,
    problems: tuple[Problem, ...],
) -> Report:
    """Return the report of a run, with the decisions ordered by Application, then by alias.

    It also has the run's exit code, which the errors determine. `--require-update` adds an error if
    nothing was updated.
    """
    decisions = _sorted_decisions(matched, done)
    rows: list[Decision | Unusable] = sorted((*matched.unusable, *decisions), key=_place_in_report)
    written = dict.fromkeys(
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
    nothing_happened = not code and not written
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
        images=job.images or tuple(written),
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
        source = sources.get(decision.subscription.identity, decision.source)
        if decision.verdict == "update":
            source = decision.source  # none if a deferred build is written instead of a promotion
        decisions.append(replace(decision, source=source))
    return sorted(
        decisions, key=lambda decision: (*_place_in_report(decision), decision.subscription.path)
    )


def _commit_order(commit: Commit) -> tuple[str, str, bool, str]:
    """Return a commit's position in the report. Memory branches come last."""
    return commit.repo, commit.branch, commit.remembers, commit.head


def _still_overridden(decisions: Sequence[Decision]) -> list[Decision]:
    """Return the decisions. A refusal may name another entry that writes the refused version anyway
    (`overridden_by`); the name is removed if that entry did not become an update.
    """
    writers = {called(decision) for decision in decisions if decision.verdict == "update"}
    return [
        decision if decision.overridden_by in writers else replace(decision, overridden_by="")
        for decision in decisions
    ]


def _place_in_report(decision: Decision | Unusable) -> tuple[str, str]:
    """Return a decision's position in the report: its Application, and its alias."""
    return decision.subscription.application.key, decision.subscription.entry.alias
