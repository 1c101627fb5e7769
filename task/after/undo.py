"""Pure code for `--on-failure rollback`: which updates to undo after a failed rollout, and what to report.

`by_hand` decides about each one on what Git says by then, and `deliver` lands it like any rollback.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from task.deciding.ask import Ask
from task.deciding.job import Failure, Intent, Job, Outcome, Recovery
from task.errors import Exit
from task.image import live_image
from task.model import Decision, Hold, Problem
from task.policy.order import version_of
from task.templates.commit_message import REFERENCE
from task.text import one_line, shortened, without_logins

BY = "image-update --on-failure rollback"
LONGEST = 300  # characters of the cause that a hold quotes
# What a report says of an Application after its rollback, followed by the cause.
_AGAIN: Mapping[str, str] = {
    "healthy": "the Application is healthy again",
    "late": "the Application is not healthy again yet",
    "failed": "the Application is not healthy again",
    "unknown": "whether the Application is healthy again is not known",
}


def asks_to_undo(failures: Iterable[Failure], asks: Iterable[Ask], now: str) -> tuple[list[Ask], list[Problem]]:
    """Return an ask for each failed update that can be undone, and a warning with the reason for each that cannot.

    `asks` are those of the run.
    """
    # A decision holds the subscription as the repository's config wants it, the ask has the one before.
    siblings = {ask.subscription.identity: ask.siblings for ask in asks}
    found, problems = [], []
    for failure in failures:
        updates = [two for one in failure.landed for two in one.decisions if two.verdict == "update"]
        if not updates:
            problems.append(not_undone(failure.landed[0].application.key, "this run wrote nothing there"))
        for one in updates:
            sub = one.subscription
            if why := _never(one):
                problems.append(not_undone(sub.application.key, f"{sub.entry.image.name}: {why}"))
                continue
            cause = shortened(without_logins(one_line(failure.cause)), LONGEST)
            hold = Hold(f"the rollout of {one.candidate.version} failed: {cause}", BY, now)
            intent = Intent("undo", hold, whole=False, undone=one)
            found.append(Ask(sub, (), intent, siblings.get(sub.identity, ())))
    return found, problems


def _never(one: Decision) -> str:
    """Return why an update can never be undone, whatever Git says by now; "" if it can."""
    sub, before = one.subscription, one.current
    if sub.method == "argocd":
        return "it was not written to Git (write-back-method argocd): use argocd app rollback"
    if one.head != one.branch and not sub.pull_request:
        return f"it is on the branch {one.head}, and {one.branch} never had it"
    if not version_of(before):
        return "there was no version before it"
    was = live_image(before.name) if before.name else None
    if was and was.identity != sub.entry.image.identity:
        return f"the image before it was another one, {before.name}"
    return ""


def job_to_undo(job: Job, asks: Sequence[Ask]) -> Job:
    """Return the job for these asks: a rollback, which does not name the build's source commit."""
    kept = [one for one in job.wording.trailers if one[0] != "Source-Commit" and not one[0].startswith(REFERENCE)]
    wording = replace(job.wording, command="rollback", trailers=tuple(kept))
    return replace(job, command="rollback", wording=wording, atomic=False, intent=asks[0].intent)


def told_of(undone: Outcome, recoveries: Iterable[Recovery] = ()) -> list[Problem]:
    """Return a line for each update that was undone, or was not. A failure is an error.

    Its exit code is that of the failed rollout, which made the rollback necessary.
    """
    ends = {one.application: one for one in recoveries}
    proposed = {app: one.pull_request for one in undone.commits if one.head != one.branch for app in one.applications}
    found = []
    for one in undone.decisions:
        app, name, verdict = one.subscription.application.key, one.subscription.entry.image.name, one.judged
        if one.unchecked:
            found.append(
                Problem(
                    application=app,
                    rule="registry",
                    message=f"{one.candidate.reference}: {one.unchecked.message}",
                    hint=one.unchecked.hint,
                    severity="warning",
                )
            )
        if verdict.verdict == "update":
            request = proposed.get(app)
            because = f"{request} rolls {name} back" if request else f"rolled back: {name} is held at"
            because = f"{because} {'to ' if request else ''}{one.candidate.version}"
            hint = f"once the cause is repaired: image-update release {app}"
            end = None if request else ends.get(app)
            if end:
                because = f"{because}; {_AGAIN[end.state]}{f': {end.because}' if end.because else ''}"
                hint = f"{end.hint}; {hint}" if end.hint else hint
            if end and end.state == "failed":
                found.append(
                    Problem(application=app, rule="rollout", message=because, hint=hint, exit=int(Exit.ROLLOUT))
                )
            else:
                found.append(Problem(application=app, rule="rollout", message=because, hint=hint, severity="warning"))
        elif verdict.verdict == "error":
            because = f"not rolled back: {verdict.because}"
            found.append(
                Problem(application=app, rule=verdict.rule, message=because, hint=verdict.hint, exit=verdict.exit)
            )
        else:
            found.append(not_undone(app, f"{name}: {verdict.because}"))
    return found


def not_undone(app: str, why: str) -> Problem:
    """Return the warning that an update stays although its rollout failed."""
    hint = f"go back by hand: image-update rollback {app} --to previous"
    return Problem(application=app, rule="rollout", message=f"not rolled back: {why}", hint=hint, severity="warning")
