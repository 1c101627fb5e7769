"""Runs a job: discover the Applications → match the images → decide and deliver → follow → report.

The pipeline reaches the outside only through the Protocols in `task.pipeline.ports`. All decisions are made by pure
code, on values.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from task import shutdown
from task.errors import Exit, TaskError
from task.model import Decision, Problem, Report, Subscribed, Timings
from task.output.outcome import exit_code
from task.pipeline.ask import Ask, settled_without_git
from task.pipeline.atomic import without_the_broken
from task.pipeline.batches import at_once, by_branch, by_login, by_repository, left_out
from task.pipeline.cautions import cautions, first_tags, not_merged, without_request
from task.pipeline.deliver import deliver, failed_asks
from task.pipeline.deployments import ShownDeployments
from task.pipeline.find import StartingPoint, find
from task.pipeline.job import Failure, Job, Outcome, Promotion
from task.pipeline.live import patch
from task.pipeline.match import Matched
from task.pipeline.overlooked import Seen, untracked_problem
from task.pipeline.plan_comment import commented
from task.pipeline.ports import Batch, World
from task.pipeline.promotion import asks_to_promote, pairs_of, wanted
from task.pipeline.scan import scanned
from task.pipeline.source_versions import source_versions
from task.pipeline.undo import asks_to_undo, job_to_undo, told_of
from task.templates.trailers import build_trailers, commit_references
from task.timestamps import epoch_seconds, of_unix


def run(job: Job, world: World, until_told: ExitStack, found: StartingPoint | None = None) -> Report:
    """Do the whole job, and return its report. `plan` is the same with predictions instead of pushes.

    The caller leaves `until_told` once the report has reached its readers. Until then, no signal can lose it. `found`
    is what `find` has returned, if it was called before.
    """
    found = found or find(job, world)
    seen, problems, began = found.seen, found.problems, found.began
    matched = found.matched
    problems += left_out(matched, job)
    if job.command == "scan":
        matched = match_newest(matched, job, world)
    elif job.promotion:
        matched = match_promotion(seen.subscribed, job.promotion, job, world)
        job = with_promoted(job, matched, world)
        problems += left_out(matched, job)
    matched_at = world.now()
    done = Outcome(matched.decisions)
    if job.atomic:
        matched, given_up = without_the_broken(matched)
        done = done.plus(Outcome(given_up))
    # From now on, a signal only ends the waits early: the report still says what landed.
    until_told.enter_context(shutdown.shield())
    for outcome in deliver_all(by_login(by_repository(matched, job), world), job, world):
        done = done.plus(outcome)
    if not job.only:
        done = done.plus(patch(matched.live, job, world))
    landed = world.now()
    shown = ShownDeployments(job.deployed, job, world, (*seen.everyone, *seen.outside)) if job.deployed else None
    if shown and job.deployed and job.deployed.waits:
        shown.begin(done.landed)
    followed = world.follow(done.landed)
    problems += followed.problems
    undone: tuple[Decision, ...] = ()
    if shown:
        problems += shown.end(done.landed, followed)
    if job.undo and followed.failures and not shutdown.code():
        now = of_unix(int(epoch_seconds(job.terms.now) + world.now() - began))
        back, notes = undo(followed.failures, matched.asks, now, job, world)
        done, problems = done.plus(Outcome(commits=back.commits)), problems + notes
        undone = back.decisions
    problems += matched.problems
    timings = Timings(job.terms.now, matched_at - began, landed - matched_at, world.now() - landed)
    made = replace(report(job, seen, matched, done, problems), timings=timings, undone=undone)
    return commented(made, job, world) if job.comment else made


def match_newest(matched: Matched, job: Job, world: World) -> Matched:
    """Return the asks of `scan`: the newest allowed tags in the registries."""
    within = [ask for members in by_repository(matched, job) for ask in members]
    live = () if job.only else matched.live
    return scanned(replace(matched, asks=(*within, *live)), job.terms, world.registry)


def match_promotion(subscribed: Sequence[Subscribed], promotion: Promotion, job: Job, world: World) -> Matched:
    """Return the asks of `promote`: versions of sources, for their targets. Raises `UsageError` if they conflict."""
    pairs, problems = pairs_of(subscribed, promotion)
    known = source_versions(wanted(pairs), job, world)
    matched = asks_to_promote(pairs, known, promotion)
    wrong = any(one.severity == "error" for one in problems)
    if pairs and not (wrong or matched.asks or matched.decisions):
        hint = "both sides have to track the same image; or name an alias that both have: --image ALIAS"
        message = "no target tracks an image of its source"
        problems.append(untracked_problem(message, hint, required=job.require_match))
    return replace(matched, problems=(*problems, *matched.problems))


def with_promoted(job: Job, matched: Matched, world: World) -> Job:
    """Return the job with the promoted images, and with their source commit if all have the same."""
    offered = [*(ask.offered for ask in matched.asks), *(one.candidate for one in matched.decisions)]
    images = tuple(dict.fromkeys(image for image in offered if image.version))
    builds = {(ask.build.commit, ask.build.repository) for ask in matched.asks if ask.build}
    commit, repository = builds.pop() if len(builds) == 1 else ("", "")
    of_build = build_trailers(commit, references=commit_references(commit, repository))
    wording = replace(job.wording, trailers=(*of_build, *job.wording.trailers))
    deployed = replace(job.deployed, commit=commit) if job.deployed and commit and repository else None
    if job.deployed and not deployed and matched.asks:
        why = f"the sources' state does not say which one commit of {job.deployed.repository} was built"
        world.log("warning", f"deployments are not shown: {why}")
    return replace(job, images=images, wording=wording, deployed=deployed)


def deliver_all(groups: Sequence[Sequence[Ask]], job: Job, world: World) -> list[Outcome]:
    """Return the outcome of each group, in order. Several repositories are handled at the same time."""
    return at_once(lambda asks: deliver_repository(asks, job, world), groups)


def deliver_repository(asks: Sequence[Ask], job: Job, world: World) -> Outcome:
    """Decide and land everything for one repository, branch by branch. A failure affects no other repository."""
    refused = [decision for ask in asks if (decision := settled_without_git(ask, job.terms))]
    if len(refused) == len(asks):  # Git cannot change any of these, so it is not read
        return Outcome(tuple(refused))
    try:
        repository = world.repository(asks[0].subscription.repo, asks[0].subscription)
    except TaskError as error:
        return failed_asks(asks, error, job.terms)
    try:
        done = Outcome()
        for base, members in by_branch(repository, asks).items():
            done = done.plus(deliver(Batch(repository, base, tuple(members)), job, world))
        return done
    except TaskError as error:
        return failed_asks(asks, error, job.terms)
    finally:
        repository.close()


def undo(
    failures: Sequence[Failure], asks: Sequence[Ask], now: str, job: Job, world: World
) -> tuple[Outcome, tuple[Problem, ...]]:
    """Restore what was there before these failed rollouts, unless Git has changed since this run wrote it.

    The problems also say whether the Applications are healthy again.
    """
    again, problems = asks_to_undo(failures, asks, now)
    done = Outcome()
    if again:
        back = job_to_undo(job, again)
        for outcome in deliver_all(by_login(by_repository(Matched(tuple(again), (), ()), back), world), back, world):
            done = done.plus(outcome)
    followed = world.follow_back([one for one in done.landed if not one.request])
    commits = tuple(replace(one, rollback=True) for one in done.commits)
    return replace(done, commits=commits), (
        *problems,
        *told_of(done, followed.recoveries),
        *followed.problems,
    )


def report(job: Job, seen: Seen, matched: Matched, done: Outcome, problems: tuple[Problem, ...]) -> Report:
    """Return the report, in a fixed order: by Application, then by alias."""
    sources = {ask.subscription.identity: ask.promoted.source for ask in matched.asks if ask.promoted}
    decisions = tuple(
        sorted(
            (
                replace(one, source=sources[one.subscription.identity]) if one.subscription.identity in sources else one
                for one in done.decisions
            ),
            key=lambda one: (one.subscription.application.key, one.subscription.entry.alias, one.subscription.path),
        )
    )
    written = dict.fromkeys(one.candidate for one in decisions if one.verdict.verdict == "update")
    errors = tuple(
        Problem(one.subscription.application.key, one.verdict.rule, one.verdict.because, one.verdict.hint)
        for one in decisions
        if one.verdict.verdict == "error"
    )
    code = exit_code(decisions, problems)
    if job.require_update and not (code or written):
        code, hint = Exit.NOTHING_UPDATED, "the decisions say why; leave out --require-update if that is no failure"
        problems += (Problem("", "require-update", "--require-update: nothing was updated", hint, exit=int(code)),)
    return Report(
        command=job.command,
        images=job.images or tuple(written),
        considered=seen.considered,
        decisions=decisions,
        commits=tuple(sorted(done.commits, key=lambda one: (one.repo, one.branch, one.head))),
        problems=tuple(
            dict.fromkeys(
                (
                    *errors,
                    *problems,
                    *sorted(done.cautions, key=lambda one: one.application),
                    *cautions(decisions),
                    *(first_tags(decisions) if job.dry and not job.intent else ()),
                    *without_request(decisions, job),
                    *not_merged(decisions, done.commits, job),
                )
            )
        ),
        exit=shutdown.code() or int(code),
        dry=job.dry,
        earlier=done.earlier,
    )
