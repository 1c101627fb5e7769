"""Runs a job: discover the Applications → match the images → decide and deliver → follow → report.

The pipeline reaches the outside only through the Protocols in `task.pipeline.ports`. All decisions are made by pure
code, on values.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from task import shutdown
from task.annotations.narrow import check_selector, considered
from task.errors import TaskError
from task.model import Decision, Problem, Report, Subscribed, Timings
from task.output.outcome import exit_code
from task.pipeline.atomic import without_the_broken
from task.pipeline.batches import at_once, by_branch, by_login, by_repository
from task.pipeline.cautions import cautions
from task.pipeline.decide import Ask, settled_without_git
from task.pipeline.deliver import deliver, failed_asks
from task.pipeline.deployments import ShownDeployments
from task.pipeline.discover import find, subscribed
from task.pipeline.job import Failure, Job, Outcome
from task.pipeline.live import patch
from task.pipeline.match import Matched, asks_by_hand, asks_for_all, asks_for_images
from task.pipeline.overlooked import Seen, unknown_names, unread_keys, untracked, untracked_warnings
from task.pipeline.plan_comment import commented
from task.pipeline.ports import Batch, World
from task.pipeline.promotion import Promotion, asks_to_promote, check_promotion, pairs_of, wanted
from task.pipeline.scan import scanned
from task.pipeline.source_versions import source_versions
from task.pipeline.undo import as_rollback, asks_to_undo, job_to_undo, told_of
from task.templates.trailers import build_trailers, commit_references
from task.timestamps import epoch_seconds, of_unix


def run(job: Job, world: World, until_told: ExitStack) -> Report:
    """Do the whole job, and return its report. `plan` is the same with predictions instead of pushes.

    The caller leaves `until_told` once the report has reached its readers. Until then, no signal can lose it.
    """
    began = world.now()
    seen, problems = discover(job, world)
    matched = match_images(seen.asking, job, world)
    if job.promotion:
        job = with_promoted(job, matched, world)
    found = world.now()
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
    timings = Timings(job.terms.now, found - began, landed - found, world.now() - landed)
    made = replace(report(job, seen, matched, done, problems), timings=timings, undone=undone)
    return commented(made, job, world) if job.comment else made


def discover(job: Job, world: World) -> tuple[Seen, tuple[Problem, ...]]:
    """Return the Applications in question with what their annotations ask for, and the problems with them."""
    narrow = job.scope.narrow
    check_selector(narrow)
    if job.promotion:
        check_promotion(job.promotion)
    found = find(world.applications(), job.scope, world.locate)
    by_metadata = replace(narrow, projects=())  # the metadata does not have the project
    skipped = [(app, considered(app, by_metadata)) for app in world.passed_over()]
    seen = Seen(
        subscribed(found, job.scope, job.images),
        found.applications,
        tuple(app for app, within in skipped if within),
        (*found.outside, *(app for app, within in skipped if not within)),
    )
    if found.sets:
        world.log("info", f"ApplicationSets rendered: {found.sets}; Applications that they generate: {found.generated}")
    if not (seen.everyone or narrow.names or job.images):
        world.log(
            "warning",
            "no Application with Image Updater's annotations was found: check --applications and what narrows it",
        )
    strict = job.intent is not None
    problems = found.problems + unknown_names(narrow.names, seen.everyone, seen.outside, strict=strict)
    if job.intent:
        return seen, problems
    # The projects of skipped Applications are unknown, so they do not count if projects narrow the run.
    whole = not (narrow.projects and seen.skipped)
    counted = seen if whole else replace(seen, skipped=())
    problems += untracked_warnings(counted, untracked(counted, job.images), whole=whole)
    return seen, problems + unread_keys(counted, job.images)


def match_images(asking: Sequence[Subscribed], job: Job, world: World) -> Matched:
    """Return the asks for the built images, for what a person named, or (`scan`) for the newest tags."""
    if job.intent:
        return asks_by_hand(asking, job.intent, job.aliases)
    if job.promotion:
        return match_promotion(asking, job.promotion, job, world)
    if job.command != "scan":
        return asks_for_images(asking, job.images)
    matched = asks_for_all(asking)
    within = [ask for members in by_repository(matched, job) for ask in members]
    live = () if job.only else matched.live
    return scanned(replace(matched, asks=(*within, *live)), job.terms, world.registry)


def match_promotion(asking: Sequence[Subscribed], promotion: Promotion, job: Job, world: World) -> Matched:
    """Return the asks of `promote`: versions of sources, for their targets. Raises `UsageError` if they conflict."""
    pairs, problems = pairs_of(asking, promotion)
    known = source_versions(wanted(pairs), job, world)
    matched = asks_to_promote(pairs, known, promotion)
    if pairs and not (problems or matched.asks or matched.decisions):
        hint = "both sides have to track the same image; or name an alias that both have: --image ALIAS"
        problems.append(Problem("", "untracked", "no target tracks an image of its source", hint, "warning"))
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
    return replace(done, commits=as_rollback(done.commits)), (
        *problems,
        *told_of(done, followed.recoveries),
        *followed.problems,
    )


def report(job: Job, seen: Seen, matched: Matched, done: Outcome, problems: tuple[Problem, ...]) -> Report:
    """Return the report, in a fixed order: by Application, then by alias."""
    sources = {ask.subscription.place: ask.source for ask in matched.asks if ask.source}
    decisions = tuple(
        sorted(
            (
                replace(one, source=sources[one.subscription.place]) if one.subscription.place in sources else one
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
    unmatched = job.require_match and bool(untracked(seen, job.images) or (job.promotion and not decisions))
    code = exit_code(decisions, problems, require_update=job.require_update, unmatched=unmatched)
    return Report(
        command=job.command,
        images=job.images or tuple(written),
        considered=seen.considered,
        decisions=decisions,
        commits=tuple(sorted(done.commits, key=lambda one: (one.repo, one.branch, one.head))),
        problems=tuple(dict.fromkeys(errors + problems + cautions(decisions, done.strays))),
        exit=shutdown.code() or int(code),
        dry=job.dry,
    )
