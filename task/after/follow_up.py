"""Following up on what has landed: showing deployments, waiting for rollouts, and undoing failed
ones.

A plan does not land anything. With `--comment`, the plan is posted on the pull request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

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
LONGEST_CAUSE = 300  # characters of a cause quoted in a hold
# The report's text about an Application after its rollback; the cause follows it.
_RECOVERY_TEXTS: Mapping[str, str] = {
    "healthy": "the Application is healthy again",
    "late": "the Application is not healthy again yet",
    "failed": "the Application did not become healthy again",
    "unknown": "it is unknown whether the Application is healthy again",
}
MARK = "image-update-plan"


def follow_up(delivered: Delivered, world: World) -> Ended:
    """Show deployments, have Argo CD compare the Applications with Git, and wait for rollouts, as
    the job's options require. `delivered` contains what this run has committed.

    If the job requires it (`undo`), roll back the updates whose rollouts failed. Return the commits
    and decisions of the rollbacks, and all problems.
    """
    job = delivered.job
    landed = delivered.outcome.landed
    seen = delivered.seen
    source = job.deployed
    deployments = None
    if source:
        everyone = (*seen.everyone, *seen.outside)  # including those that this run does not update
        deployments = ShownDeployments(source, job, world, everyone)
        if source.waits_for_rollouts:
            deployments.begin(landed)

    followed = world.follow(landed)
    problems = followed.problems
    if deployments:
        problems += deployments.end(landed, followed)

    must_undo = job.undo and bool(followed.failures)
    is_shutting_down = bool(shutdown.code())
    if not must_undo or is_shutting_down:
        return Ended(problems=problems)
    undone, undo_problems = undo(followed.failures, delivered, world)
    return Ended(Outcome(commits=undone.commits), problems + undo_problems, undone.decisions)


def undo(
    failures: tuple[Failure, ...],
    delivered: Delivered,
    world: World,
) -> tuple[Outcome, tuple[Problem, ...]]:
    """Roll back the updates whose rollouts failed, unless Git has changed since this run wrote
    them, and wait for the rolled-back Applications.

    Return the outcome, and the problems, which also report whether the Applications are healthy
    again.
    """
    job = delivered.job
    seconds_since_start = world.now() - delivered.began
    # `terms.now` is when the run began
    now = of_unix(int(epoch_seconds(job.terms.now) + seconds_since_start))
    asks, ask_problems = asks_to_undo(failures, delivered.matched.asks, now)
    undone = Outcome()
    if asks:
        undone = deliver_all(Matched(tuple(asks)), job_to_undo(job, asks), world)
    merged_now = [landed for landed in undone.landed if not landed.request]
    followed = world.follow_back(merged_now)
    problems = (
        *ask_problems,
        *problems_of_rollback(undone, followed.recoveries),
        *followed.problems,
    )
    return _with_rollbacks_marked(undone), problems


def _with_rollbacks_marked(undone: Outcome) -> Outcome:
    """Return the outcome with `rollback` set in the commits that roll back an Application.

    Other commits only record the failure of a version that has since been replaced in Git.
    """
    rolled_back = {
        decision.subscription.application.key
        for decision in undone.decisions
        if decision.verdict == "update"
    }
    commits = []
    for commit in undone.commits:
        is_rollback = any(app in rolled_back for app in commit.applications)
        commits.append(replace(commit, rollback=is_rollback))
    return replace(undone, commits=tuple(commits))


def asks_to_undo(
    failures: Iterable[Failure],
    asks: Iterable[Ask],
    now: str,
) -> tuple[list[Ask], list[Problem]]:
    """Return an ask (a request to decide about one image) for each failed update that can be
    undone, and a warning with the reason for each one that cannot.

    `failures` are Applications whose rollouts failed, each with this run's changes to it. `asks`
    are the run's asks. Each new ask sets a hold (an order to keep a version) with the cause of the
    failure as its reason.
    """
    # The new asks use the decisions' subscriptions, to which the repository's config was applied.
    # Only the siblings come from the run's asks.
    siblings = {ask.subscription.identity: ask.siblings for ask in asks}
    undo_asks = []
    problems = []
    for failure in failures:
        decisions = chain.from_iterable(landed.decisions for landed in failure.landed)
        updates = [decision for decision in decisions if decision.verdict == "update"]
        if not updates:
            app = failure.landed[0].application.key
            problems.append(not_undone(app, "this run did not update it"))
        for update in updates:
            sub = update.subscription
            why_not_undoable = _why_not_undoable(update)
            if why_not_undoable:
                why = f"{sub.entry.image.name}: {why_not_undoable}"
                problems.append(not_undone(sub.application.key, why))
                continue
            cause = shortened(without_logins(one_line(failure.cause)), LONGEST_CAUSE)
            hold = Hold(f"the rollout of {update.candidate.version} failed: {cause}", BY, now)
            intent = Intent(verb="undo", hold=hold, whole=False, undone=update)
            undo_asks.append(Ask(sub, (), intent, siblings.get(sub.identity, ())))
    return undo_asks, problems


def _why_not_undoable(decision: Decision) -> str:
    """Return why an update cannot be undone, regardless of what is in Git now, or "" if it can.

    Undoing an update restores the version that was in Git before (`current`).
    """
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
    """Return the job that rolls back the images of these asks (requests to decide about one image).
    Its commit messages leave out the trailers about the source commit of the failed build.
    """
    trailers = []
    for name, value in job.wording.trailers:
        is_about_source = name == "Source-Commit" or name.startswith(REFERENCE)
        if not is_about_source:
            trailers.append((name, value))
    wording = replace(job.wording, command="rollback", trailers=tuple(trailers))
    return replace(
        job,
        command="rollback",
        wording=wording,
        atomic=False,
        intent=asks[0].intent,
    )


def problems_of_rollback(undone: Outcome, recoveries: Iterable[RolloutEnd] = ()) -> list[Problem]:
    """Return a problem for each decision of a rollback: a warning that states that the image was
    rolled back or why it was not, or an error if the rollback failed.

    `undone` is the outcome of the rollback, and `recoveries` are the rollouts after it.
    """
    ends = {rollout_end.application: rollout_end for rollout_end in recoveries}
    pull_requests: dict[str, str] = {}  # keyed by Application
    for commit in undone.commits:
        if commit.pull_request:
            pull_requests |= dict.fromkeys(commit.applications, commit.pull_request)
    problems = []
    for decision in undone.decisions:
        app = decision.subscription.application.key
        verdict = decision.judged
        if decision.unchecked:
            message = f"{decision.candidate.reference}: {decision.unchecked.message}"
            problems.append(Problem(replace(decision.unchecked, message=message), application=app))
        if verdict.verdict == "update":
            problems.append(_rollback_problem(decision, pull_requests.get(app), ends.get(app)))
        elif verdict.verdict == "error":
            trouble = replace(verdict.trouble, message=f"not rolled back: {verdict.because}")
            problems.append(Problem(trouble, application=app))
        else:
            name = decision.subscription.entry.image.name
            problems.append(not_undone(app, f"{name}: {verdict.because}"))
    return problems


def _rollback_problem(decision: Decision, request: str | None, end: RolloutEnd | None) -> Problem:
    """Return the problem that describes the rollback of an image: a warning, or an error if the
    Application did not become healthy again.

    `request` is the pull request that will roll it back, or None if the rollback was pushed to the
    base. `end` is how the rollout after the rollback ended, or None if there was no wait for it.
    """
    app = decision.subscription.application.key
    name = decision.subscription.entry.image.name
    version = decision.candidate.version
    hint = f"once the cause is fixed: image-update release {app}"
    if request:
        return warning(app, f"{request} rolls {name} back to {version}", hint)
    message = f"rolled back: {name} is held at {version}"
    if not end:
        return warning(app, message, hint)
    message = f"{message}; {_RECOVERY_TEXTS[end.state]}"
    if end.because:
        message = f"{message}: {end.because}"
    if end.hint:
        hint = f"{end.hint}; {hint}"
    problem = warning(app, message, hint)
    if end.state == "failed":
        trouble = replace(problem.trouble, severity="error", exit=Exit.ROLLOUT)
        return replace(problem, trouble=trouble)
    return problem


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
    """Post the plan, or the result of `check`, as a comment on the pull request.

    Return the report, with a warning if the comment could not be posted. That is not an error,
    because the report itself is correct, and a fork's pipeline may not post comments.
    """
    if job.comment is None:
        return report
    content = "result" if kind_of(job.command).judges else "plan"
    try:
        comments = world.comments(job.comment.repository)
        accepts_html = comments.forge not in WITHOUT_HTML
        # invisible text by which a later run recognizes the comment
        mark_template = HIDDEN if accepts_html else HIDDEN_WITHOUT_HTML
        mark = mark_template.format(MARK, job.comment.key)
        after_summary = f"\n{mark}\n"
        longest_summary = longest_body(comments.forge) - len(after_summary)
        text = summary(as_json(report), longest_summary, html=accepts_html) + after_summary
        page = comments.put(job.comment.number, mark, text)
    except TaskError as error:
        message = f"could not post the {content} as a comment: {error.message}"
        problem = Problem(error.saying(message).as_warning())
        return replace(report, problems=(*report.problems, problem))
    world.log("info", f"posted the {content} as a comment: {page}")
    return report
