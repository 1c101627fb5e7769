"""The commands that write to Git, and `plan`: they run the pipeline, and publish its report."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace

from task import shutdown
from task.after.follow_up import commented, follow_up
from task.ci.events.event import Events
from task.ci.publish import check_places, mask, publish
from task.ci.variables import origin_of
from task.cli.call import Call, strange_variables
from task.cli.job import GivenImages, given_images, job_of
from task.command_kinds import kind_of
from task.deciding.job import Job
from task.errors import Exit, UsageError
from task.model import Problem, Report
from task.output.log import Log
from task.output.notify import check_url, count_run, send_events
from task.pipeline.match import match_images
from task.pipeline.run import Match
from task.pipeline.run import run as story
from task.settings import SECRETS, ResultOptions, Settings
from task.text import FEW, and_more, counted
from task.urls import without_login
from task.wiring.world import RealWorld


def match_of(job: Job) -> Match:
    """Return the function that finds the job's candidates (the images that Applications may
    receive). The choice depends on the command, and on whether the images come from events.
    """
    # Imported late, because nearly all runs receive images directly, and should not have to load
    # modules that they do not need.
    if job.events:
        from task.commands.events import match_events  # noqa: PLC0415

        return match_events
    if job.command == "scan":
        from task.commands.scan import match_newest  # noqa: PLC0415

        return match_newest
    if job.command == "promote":
        from task.commands.promotion import match_promotion  # noqa: PLC0415

        return match_promotion
    return match_images


def run(settings: Settings, call: Call) -> int:
    """Write the version of a newly built image to Git, for every Argo CD Application that tracks
    it.
    """
    return update(replace(settings, command="plan") if settings.send.dry_run else settings, call)


def scan(settings: Settings, call: Call) -> int:
    """Look up the newest allowed tag of every tracked image in the registries, then continue like
    run.
    """
    if settings.registry_check == "never":
        raise UsageError(
            "--registry-check: scan cannot work without the registries",
            hint="use auto or always, or remove it",
        )
    return update(settings, call)


def promote(settings: Settings, call: Call) -> int:
    """Promote versions from some Applications to others, if the rules of the target Applications
    allow it.
    """
    return update(settings, call)


def rollback(settings: Settings, call: Call) -> int:
    """Roll back to an older tag and hold the image at that tag, in one commit."""
    return update(settings, call)


def hold(settings: Settings, call: Call) -> int:
    """Keep images at their current version. Later builds are remembered but not written."""
    return update(settings, call)


def release(settings: Settings, call: Call) -> int:
    """End a hold and write the newest waiting build."""
    return update(settings, call)


def plan(settings: Settings, call: Call) -> int:
    """Show what run would do, with the exact diff, without writing anything."""
    return update(settings, call)


def update(settings: Settings, call: Call) -> int:
    """Run the pipeline, publish its report, and return the exit code."""
    return published(settings, call, carry_out, settings.results)


Work = Callable[[Settings, Mapping[str, str], Log, ExitStack], Report]


def published(settings: Settings, call: Call, work: Work, output: ResultOptions) -> int:
    """Call `work`, publish the report that it returns, and return the exit code.

    `output` contains the options that specify where to publish the report, which is also sent to
    the destinations in `settings.send`.
    """
    environ = call.environ
    log = call.log
    if environ.get("GITHUB_ACTIONS") == "true":
        mask(SECRETS, environ)
    send = settings.send
    # these two checks raise `UsageError` for mistakes before any work is done
    check_places(output, environ)
    if send.cloudevent_url:
        check_url(send.cloudevent_url, environ)

    began = time.monotonic()
    with ExitStack() as shielded:
        report = work(settings, environ, log, shielded)
        _log_problems(report, output.output, log)
        # the warnings about variables have already been logged
        report = replace(report, problems=(*report.problems, *strange_variables(environ)))
        errors = publish(report, output, environ)
        for error in errors:
            log.problem("error", "", error.message, error.hint)

        # The results already reflect what landed, so they remain unchanged. Only the exit code
        # reflects that a file could not be written.
        code = shutdown.code_of_run((error.trouble for error in errors), report.exit)
        if send.metrics_file:
            duration = time.monotonic() - began
            count_run(replace(report, exit=code), send.metrics_file, duration, log)
        if send.cloudevent_url:
            source = without_login(settings.commit.pipeline_run or origin_of(environ).run)
            ca_file = settings.access.ca_file
            send_events(report, send.cloudevent_url, source, ca_file, environ, log)
        # ignore signals from now on, because everything has been reported and there is nothing left
        # to stop
        shutdown.deaf()
    return code


def _log_problems(report: Report, form: str, log: Log) -> None:
    """Log a run's problems, except for those that the table of decisions on stdout already shows.

    There is such a table if stdout is a terminal, and `form` (the value of `--output`) is "text".
    """
    in_table: set[tuple[str, str]] = set()  # (Application, message)
    has_table = bool(log.console) and sys.stdout.isatty() and form == "text"
    if has_table:
        shows_every_decision = kind_of(report.command).judges
        in_table = {
            (decision.subscription.application.key, decision.because)
            for decision in report.decisions
            if shows_every_decision or decision.verdict == "error"
        }
    to_log = [
        problem
        for problem in report.problems
        if (problem.application, problem.message) not in in_table
    ]
    places = places_of_manifests(report) if log.form == "github" else {}
    for applications, problem in told_together(to_log):
        place = problem.place or places.get(problem.application, "")
        log.problem(problem.severity, applications, problem.message, problem.hint, place)


def places_of_manifests(report: Report) -> Mapping[str, str]:
    """Return the `file:line` of each Application whose manifest is below the current directory,
    keyed by `namespace/name`.
    """
    places = {}
    for decision in report.decisions:
        app = decision.subscription.application
        path, _, line = app.origin.rpartition(":")
        if not path or not line.isdigit():
            continue
        relative_path = os.path.relpath(path)
        is_below = not relative_path.startswith("..")
        if is_below and os.path.isfile(path):
            places[app.key] = f"{relative_path}:{line}"
    return places


def told_together(problems: Iterable[Problem]) -> Iterator[tuple[str, Problem]]:
    """Yield what to log, in the order of the problems: the affected Applications as a single
    string, and the problem.

    If a server is down, hundreds of Applications may have the same problem. A problem that more
    than `FEW` Applications share is yielded only once, with the first few of them: "a, b, c, d, e
    and 95 more".
    """
    problems = tuple(problems)
    # keyed by the problem without its Application, so that equal problems share a key
    apps_by_problem: dict[Problem, list[str]] = {}
    for problem in problems:
        shared_problem = replace(problem, application="")
        apps_by_problem.setdefault(shared_problem, []).append(problem.application)

    logged_together: set[Problem] = set()
    for problem in problems:
        shared_problem = replace(problem, application="")
        if shared_problem in logged_together:
            continue
        apps = apps_by_problem[shared_problem]
        if len(apps) > FEW:
            logged_together.add(shared_problem)
            yield and_more(apps), problem
        else:
            yield problem.application, problem


def _log_skipped_events(events: Events, log: Log) -> None:
    """Log at debug level how many events were skipped, and why. If all of them were skipped, also
    log this at info level.
    """
    for reason, number in Counter(events.passed_over).items():
        log("debug", f"{counted(number, 'event')} skipped: {reason}")
    if not events.pushes:
        number = len(events.passed_over)
        log("info", f"nothing to do: no push of a tagged image in {counted(number, 'event')}")


def report_without_images(job: Job) -> Report:
    """Return the report for a run whose events include no push of a tagged image."""
    return Report(
        command=job.command,
        images=(),
        considered=0,
        decisions=(),
        commits=(),
        problems=(),
        exit=int(Exit.OK),
        dry=job.dry,
        pipeline_run=job.requests.run,
        passed_over=job.passed_over,
    )


def carry_out(
    settings: Settings,
    environ: Mapping[str, str],
    log: Log,
    shielded: ExitStack,
) -> Report:
    """Run the pipeline with the clients that these settings require, and return its report.

    The pipeline adds a shield against signals to `shielded`, which the caller closes once the
    report is published.
    """
    images_of_run = GivenImages()
    if kind_of(settings.command).takes_images:
        images_of_run = given_images(settings.event, settings.sources.applications)
    images = images_of_run.images
    job = job_of(settings, images, environ, images_of_run.events)
    if images_of_run.events:
        _log_skipped_events(images_of_run.events, log)
    if images_of_run.nothing_to_do:
        return report_without_images(job)

    world = RealWorld(settings, environ, log, job.scope, images)
    try:
        report = story(job, world, shielded, match_of(job), follow_up)
        return commented(report, job, world) if job.comment else report
    finally:
        with shutdown.shield():
            world.close()
