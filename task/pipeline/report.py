"""The report of a run: decisions, commits and problems in a fixed order, and the exit code."""

from __future__ import annotations

from dataclasses import replace

from task import shutdown
from task.deciding.cautions import cautions, first_tags, not_merged, without_request
from task.deciding.job import Job, Outcome
from task.errors import Exit
from task.model import Decision, Problem, Report, Unusable
from task.output.report_json import exit_code
from task.pipeline.match import Matched
from task.pipeline.overlooked import Seen


def report(job: Job, seen: Seen, matched: Matched, done: Outcome, problems: tuple[Problem, ...]) -> Report:
    """Return the report, in a fixed order: by Application, then by alias."""
    sources = {ask.subscription.identity: ask.promoted.source for ask in matched.asks if ask.promoted}
    decisions = sorted(
        (
            replace(one, source=sources[one.subscription.identity]) if one.subscription.identity in sources else one
            for one in done.decisions
        ),
        key=lambda one: (one.subscription.application.key, one.subscription.entry.alias, one.subscription.path),
    )
    shown: tuple[Decision | Unusable, ...] = (*matched.unusable, *decisions)
    shown = tuple(sorted(shown, key=lambda one: (one.subscription.application.key, one.subscription.entry.alias)))
    written = dict.fromkeys(one.candidate for one in decisions if one.verdict == "update")
    errors = tuple(
        Problem(application=one.subscription.application.key, rule=one.rule, message=one.because, hint=one.hint)
        for one in shown
        if one.verdict == "error"
    )
    code = exit_code(shown, problems)
    if job.require_update and not (code or written):
        code, hint = Exit.NOTHING_UPDATED, "the decisions say why; leave out --require-update if that is no failure"
        problems += (
            Problem(
                rule="require-update",
                message="--require-update: nothing was updated",
                hint=hint,
                exit=int(code),
            ),
        )
    return Report(
        command=job.command,
        images=job.images or tuple(written),
        considered=seen.considered,
        decisions=shown,
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
        waiting=tuple(sorted(done.waiting, key=lambda one: (one.application, one.alias, one.head, one.tag))),
        exit=shutdown.code() or int(code),
        dry=job.dry,
        earlier=done.earlier,
        source=job.requests.source,
        pipeline_run=job.requests.run,
    )
