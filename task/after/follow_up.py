"""Follows up on what has landed: shows deployments, waits for rollouts,
and undoes failed ones.

A plan does not land anything. With `--comment`, the plan is posted on the pull request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from task import shutdown
from task.after.deployments import ShownDeployments
from task.command_kinds import kind_of
from task.deciding.job import Ask, Failure, Intent, Job, Outcome, RolloutEnd
from task.errors import Exit, TaskError, Trouble
from task.forges.proposal import HIDDEN, HIDDEN_WITHOUT_HTML, WITHOUT_HTML, longest_body
from task.image import live_image
from task.landing.ports import World
from task.model import Decision, Hold, Problem, Report
from task.output.markdown import summary
from task.output.report_json import as_json
from task.pipeline.match import Matched
from task.pipeline.run import Delivered, Ended, deliver_all
from task.templates.commit_message import REFERENCE
from task.text import one_line, shortened, without_logins
from task.timestamps import epoch_seconds, of_unix

BY = "image-update --on-failure rollback"
LONGEST_CAUSE = 300  # characters of a cause that are quoted in a hold
# What a report says about an Application after its rollback, before the cause.
_AGAIN: Mapping[str, str] = {
    "healthy": "the Application is healthy again",
    "late": "the Application is not healthy again yet",
    "failed": "the Application did not become healthy again",
    "unknown": "it is unknown whether the Application is healthy again",
}
MARK = "image-update-plan"


def follow_up(delivered: Delivered, world: World) -> Ended:
    """Show deployments, refresh Argo CD, and wait.

    If the job says so, roll back updates whose rollouts failed.
    """
    job = delivered.job
    landed = delivered.outcome.landed
    seen = delivered.seen
    source = delivered.job.deployed
    deployments = None
    if source:
        everyone = (*seen.everyone, *seen.outside)
        deployments = ShownDeployments(source, job, world, everyone)
        if source.waits_for_rollouts:
            deployments.begin(landed)
    followed = world.follow(landed)
    problems = followed.problems
    if deployments:
        problems += deployments.end(landed, followed)
    if not job.undo or not followed.failures or shutdown.code():
        return Ended(problems=problems)
    back, notes = undo(followed.failures, delivered, world)
    return Ended(Outcome(commits=back.commits), problems + notes, back.decisions)


def undo(
    failures: tuple[Failure, ...],
    delivered: Delivered,
    world: World,
) -> tuple[Outcome, tuple[Problem, ...]]:
    """Roll back the updates whose rollouts failed,
    unless Git has changed since this run wrote them.

    The problems also say whether the Applications are healthy again.
    """
    job = delivered.job
    seconds_since_start = world.now() - delivered.began
    now = of_unix(int(epoch_seconds(job.terms.now) + seconds_since_start))
    asks, problems = asks_to_undo(failures, delivered.matched.asks, now)
    undone = Outcome()
    if asks:
        undone = deliver_all(Matched(tuple(asks)), job_to_undo(job, asks), world)
    followed = world.follow_back([landed for landed in undone.landed if not landed.request])
    rolled_back = {
        decision.subscription.application.key
        for decision in undone.decisions
        if decision.verdict == "update"
    }
    # Other commits only record the failure of a version that has since been replaced in Git.
    commits = tuple(
        replace(commit, rollback=any(app in rolled_back for app in commit.applications))
        for commit in undone.commits
    )
    return replace(undone, commits=commits), (
        *problems,
        *told_of(undone, followed.recoveries),
        *followed.problems,
    )


def asks_to_undo(
    failures: Iterable[Failure],
    asks: Iterable[Ask],
    now: str,
) -> tuple[list[Ask], list[Problem]]:
    """Return an ask for each failed update that can be undone, and a warning with the reason for
    each one that cannot.

    `asks` are the run's asks. As for any rollback, `by_hand` decides about each ask, based on Git's
    state at that time.
    """
    # The repository's config is applied to a decision's subscription, but not to an ask's.
    siblings = {ask.subscription.identity: ask.siblings for ask in asks}
    undoing = []
    problems = []
    for failure in failures:
        updates = [
            decision
            for landed in failure.landed
            for decision in landed.decisions
            if decision.verdict == "update"
        ]
        if not updates:
            problems.append(
                not_undone(failure.landed[0].application.key, "this run did not update it")
            )
        for decision in updates:
            sub = decision.subscription
            why = _why_impossible(decision)
            if why:
                problems.append(not_undone(sub.application.key, f"{sub.entry.image.name}: {why}"))
                continue
            cause = shortened(without_logins(one_line(failure.cause)), LONGEST_CAUSE)
            hold = Hold(f"the rollout of {decision.candidate.version} failed: {cause}", BY, now)
            intent = Intent("undo", hold, whole=False, undone=decision)
            undoing.append(Ask(sub, (), intent, siblings.get(sub.identity, ())))
    return undoing, problems


def _why_impossible(decision: Decision) -> str:
    """Return why an update cannot be undone, regardless of what is in Git now, or "" if it can."""
    sub = decision.subscription
    before = decision.current
    if sub.method == "argocd":
        return "it is not in Git (write-back-method: argocd); use argocd app rollback"
    if decision.head != decision.branch and not sub.pull_request:
        return f"it is on the branch {decision.head}, but it was never on {decision.branch}"
    if not before.version:
        return "there is no previous version"
    previous_image = live_image(before.name) if before.name else None
    if previous_image and previous_image.identity != sub.entry.image.identity:
        return f"the previous image has a different name, {before.name}"
    return ""


def job_to_undo(job: Job, asks: Sequence[Ask]) -> Job:
    """Return the job for these asks: a rollback without the build's source commit."""
    kept = tuple(
        (name, value)
        for name, value in job.wording.trailers
        if name != "Source-Commit" and not name.startswith(REFERENCE)
    )
    wording = replace(job.wording, command="rollback", trailers=kept)
    return replace(
        job,
        command="rollback",
        wording=wording,
        atomic=False,
        intent=asks[0].intent,
    )


def told_of(undone: Outcome, recoveries: Iterable[RolloutEnd] = ()) -> list[Problem]:
    """Return a line for each update, whether it was undone or not. A failure is an error.

    The exit code is that of the failed rollout, which made the rollback necessary.
    """
    ends = {rollout_end.application: rollout_end for rollout_end in recoveries}
    proposed = {
        app: commit.pull_request
        for commit in undone.commits
        if commit.pull_request
        for app in commit.applications
    }
    problems = []
    for decision in undone.decisions:
        app = decision.subscription.application.key
        verdict = decision.judged
        if decision.unchecked:
            message = f"{decision.candidate.reference}: {decision.unchecked.message}"
            problems.append(Problem(replace(decision.unchecked, message=message), application=app))
        if verdict.verdict == "update":
            problems.append(
                _rollback_line(
                    decision,
                    proposed.get(app),
                    ends.get(app),
                )
            )
        elif verdict.verdict == "error":
            trouble = replace(verdict.trouble, message=f"not rolled back: {verdict.because}")
            problems.append(Problem(trouble, application=app))
        else:
            name = decision.subscription.entry.image.name
            problems.append(not_undone(app, f"{name}: {verdict.because}"))
    return problems


def _rollback_line(decision: Decision, request: str | None, end: RolloutEnd | None) -> Problem:
    """Return the line for an image that was rolled back, or that a request will roll back."""
    app = decision.subscription.application.key
    name = decision.subscription.entry.image.name
    version = decision.candidate.version
    hint = f"once the cause is fixed: image-update release {app}"
    if request:
        return warning(app, f"{request} rolls {name} back to {version}", hint)
    rolled_back = f"rolled back: {name} is held at {version}"
    if not end:
        return warning(app, rolled_back, hint)
    recovery = f"{_AGAIN[end.state]}: {end.because}" if end.because else _AGAIN[end.state]
    hints = f"{end.hint}; {hint}" if end.hint else hint
    line = warning(app, f"{rolled_back}; {recovery}", hints)
    if end.state == "failed":
        return replace(line, trouble=replace(line.trouble, severity="error", exit=Exit.ROLLOUT))
    return line


def not_undone(app: str, why: str) -> Problem:
    """Return the warning that an update was kept although its rollout failed."""
    return warning(
        app,
        f"not rolled back: {why}",
        f"roll back by hand: image-update rollback {app} --to previous",
    )


def warning(app: str, message: str, hint: str) -> Problem:
    """Return a warning about the rollout of one Application."""
    return Problem(Trouble.warning("rollout", message, hint), application=app)


def commented(report: Report, job: Job, world: World) -> Report:
    """Post the plan, or the result of `check`, as a comment.

    Return the report, with a warning if the comment could not be posted. That is not an error,
    because the report itself is correct, and a fork's pipeline may not post comments.
    """
    if job.comment is None:
        return report
    what = "result" if kind_of(job.command).judges else "plan"
    try:
        comments = world.comments(job.comment.repository)
        html = comments.forge not in WITHOUT_HTML
        mark = (HIDDEN if html else HIDDEN_WITHOUT_HTML).format(MARK, job.comment.key)
        after_summary = f"\n{mark}\n"
        room = longest_body(comments.forge) - len(after_summary)
        text = summary(as_json(report), room, html=html) + after_summary
        page = comments.put(job.comment.number, mark, text)
    except TaskError as error:
        message = f"could not post the {what} as a comment: {error.message}"
        problem = Problem(error.saying(message).as_warning())
        return replace(report, problems=(*report.problems, problem))
    world.log("info", f"posted the {what} as a comment: {page}")
    return report
