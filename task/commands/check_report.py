"""The `check` report: the decisions, the problems that block the merge, and the exit code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from task.deciding.job import Job
from task.errors import Exit, exit_of
from task.model import Decision, Judged, Problem, Report, Timings, Unusable

# Hints for versions that must not be merged, keyed by verdict.
STOPPED = {
    "refuse": "use a version that the rule admits, or change the rule in a separate request",
    "defer": "merge it once the hold or freeze has ended",
}


def check_report(
    job: Job,
    considered: int,
    decisions: Iterable[Decision | Unusable],
    problems: Iterable[Problem],
    commits: tuple[str, str],
    timings: Timings | None = None,
) -> Report:
    """Return the report of `check`, with the decisions sorted by Application, then by alias.

    `considered` is the number of Applications, and `commits` are the compared commits: the base and
    the merge. The exit code is 5 if any version is refused or held, unless a more serious problem
    takes precedence.
    """
    sorted_decisions = tuple(sorted(decisions, key=_decision_sort_key))
    # None for each decision that does not block the merge
    blocking_problems = [stopped(judged) for judged in sorted_decisions]
    all_problems = (*filter(None, blocking_problems), *problems)
    versions = dict.fromkeys(
        judged.candidate for judged in sorted_decisions if judged.candidate.version
    )
    errors = [judged.judged.trouble for judged in sorted_decisions if judged.verdict == "error"]
    base, head = commits
    return Report(
        command=job.command,
        images=tuple(versions),
        considered=considered,
        decisions=sorted_decisions,
        commits=(),
        problems=tuple(dict.fromkeys(all_problems)),
        exit=int(exit_of((*errors, *all_problems))),
        timings=timings,
        dry=job.dry,
        pipeline_run=job.requests.run,
        base=base,
        head=head,
    )


def stopped(judged: Judged) -> Problem | None:
    """Return the error for a version that must not be merged, or None if the version may be merged.

    A version must not be merged if it is refused, if it is deferred by a hold (an order that keeps
    a version) or a freeze, or if it could not be judged. However, a version that another entry
    overrides in the same place (`judged.overridden_by`) does not block the merge.
    """
    is_stopped = judged.verdict in STOPPED  # refused or deferred
    may_be_merged = not is_stopped and judged.verdict != "error"
    if may_be_merged:
        return None
    if judged.overridden_by:  # another entry writes this version anyway, and a run would report it
        return None
    trouble = judged.judged.trouble
    if is_stopped:  # this error makes the run exit with code 5
        hint = trouble.hint or STOPPED[judged.verdict]
        trouble = replace(trouble, hint=hint, exit=Exit.NOTHING_UPDATED)
    return Problem(
        trouble,
        application=judged.subscription.application.key,
        place=judged.place,
    )


def _decision_sort_key(judged: Judged) -> tuple[str, str, str]:
    """Return the key by which decisions are sorted."""
    sub = judged.subscription
    return sub.application.key, sub.entry.alias, judged.current.file
