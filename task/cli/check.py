"""`check`: judges every version change between two commits and reports the result."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from task import shutdown
from task.after.follow_up import commented
from task.ci.compared import compared_of
from task.cli.call import Call
from task.cli.job import job_of
from task.cli.update import published
from task.commands.check import check as judge
from task.model import Report
from task.output.log import Log
from task.settings import Settings
from task.wiring.world import RealWorld


def check(settings: Settings, call: Call) -> int:
    """Check every version change between two commits against the rules, as a required check for
    pull requests.
    """
    return published(settings, call, carry_out, settings.check)


def carry_out(
    settings: Settings,
    environ: Mapping[str, str],
    log: Log,
    shielded: ExitStack,
) -> Report:
    """Judge the version changes between the two commits in the settings, and return the report.

    Nothing is written to Git, but with `--comment`, the report is posted as a comment. A shield
    against signals is added to `shielded`, which the caller closes once the report is published.
    """
    compared = compared_of(settings.check, environ)
    job = job_of(settings, (), environ)
    world = RealWorld(settings, environ, log, job.scope)
    try:
        report = judge(job, world, compared)
        if log.form == "github":
            _attach_admitted_versions(report, log)
        shielded.enter_context(shutdown.shield())  # a signal can no longer lose the report
        return commented(report, job, world) if job.comment else report
    finally:
        with shutdown.shield():
            world.close()


def _attach_admitted_versions(report: Report, log: Log) -> None:
    """Log a notice for each admitted version, which GitHub shows at the version's line. Refused
    versions need no notice: they are reported as errors, which already include the line.
    """
    for decision in report.updates:
        app = decision.subscription.application
        log.notice(app.key, decision.because, decision.place)
