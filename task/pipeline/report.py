"""The report of a run: decisions, commits and problems in a fixed order, and the exit code."""

from __future__ import annotations

from dataclasses import replace

from task import shutdown
from task.deciding.job import Job, Outcome
from task.model import Problem, Report
from task.output.outcome import exit_code
from task.pipeline.cautions import cautions, not_merged, without_request
from task.pipeline.match import Matched
from task.pipeline.overlooked import Seen, untracked


def report(job: Job, seen: Seen, matched: Matched, done: Outcome, problems: tuple[Problem, ...]) -> Report:
    """Return the report, in a fixed order: by Application, then by alias."""
    sources = {ask.subscription.identity: ask.source for ask in matched.asks if ask.source}
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
    unmatched = job.require_match and bool(untracked(seen, job.images) or (job.promotion and not decisions))
    code = exit_code(decisions, problems, require_update=job.require_update, unmatched=unmatched)
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
                    *cautions(decisions, done.strays),
                    *without_request(decisions, job),
                    *not_merged(decisions, done.commits, job),
                )
            )
        ),
        waiting=tuple(sorted(done.waiting, key=lambda one: (one.application, one.alias, one.head, one.tag))),
        exit=shutdown.code() or int(code),
        dry=job.dry,
    )
