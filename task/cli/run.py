"""`run` and `plan`: an event in, commits (or their prediction) out; `scan`; `hold`, `release`, `rollback`."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import replace

from task import shutdown
from task.ci.builder_files import read_built
from task.ci.builders import with_built
from task.ci.event import event_images
from task.ci.masking import mask
from task.ci.publish import check_places, publish
from task.ci.variables import origin_of
from task.cli.options import BY_HAND
from task.cli.orders import order_of
from task.cli.strange_variables import strange_variables
from task.model import Image, Report
from task.output.log import Log
from task.output.notify import Told, check_url, notify
from task.output.outcome import first_of
from task.pipeline.run import run as pipeline
from task.settings import Settings
from task.urls import without_login
from task.wiring import SECRETS, world_of


def run(settings: Settings, environ: Mapping[str, str], log: Log) -> int:
    """Carry it out, publish the report; the exit code."""
    if environ.get("GITHUB_ACTIONS") == "true":
        mask(SECRETS, environ)
    check_places(settings.output, environ)
    _check_receiver(settings.output.cloudevent_url, environ)
    began = time.monotonic()
    report = carry_out(settings, environ, log)
    with shutdown.shield():
        on_screen = _on_screen(report, settings, log)
        for problem in report.problems:
            if (problem.application, problem.message) not in on_screen:
                log.problem(problem.severity, problem.application, problem.message, problem.hint)
        report = replace(report, problems=(*report.problems, *strange_variables(environ)))  # the log has them already
        failed = publish(report, settings.output, environ)
        for error in failed:
            log.problem("error", "", error.message, error.hint)
        # The results tell what landed, and stay; that something could not be written is told by the exit code.
        code = shutdown.code() or int(first_of((report.exit, *(error.exit for error in failed))))
        _tell(replace(report, exit=code), settings, time.monotonic() - began, environ, log)
    return code


def _tell(report: Report, settings: Settings, seconds: float, environ: Mapping[str, str], log: Log) -> None:
    """Metrics and events, where they are wanted; nothing of it makes the run fail."""
    output = settings.output
    if not (output.metrics_file or output.cloudevent_url):
        return
    source = without_login(settings.git.pipeline_run or origin_of(environ).run)
    told = Told(output.metrics_file, output.cloudevent_url, source, settings.git.access.ca_file)
    notify(report, told, seconds, environ, log)


def _check_receiver(url: str, environ: Mapping[str, str]) -> None:
    """Raises `UsageError` for a receiver of events that nothing can be sent to."""
    if url:
        check_url(url, environ)


def _on_screen(report: Report, settings: Settings, log: Log) -> set[tuple[str, str]]:
    """The errors that the table of decisions shows; a person who sees both needs them once."""
    if not (log.console and sys.stdout.isatty() and settings.output.format == "text"):
        return set()
    return {
        (one.subscription.application.key, one.verdict.because)
        for one in report.decisions
        if one.verdict.verdict == "error"
    }


def carry_out(settings: Settings, environ: Mapping[str, str], log: Log) -> Report:
    """The pipeline, with the world that these settings want."""
    of_event = settings.command not in (*BY_HAND, "scan")
    images = _images(settings) if of_event else ()
    job = order_of(settings, images, environ)
    world = world_of(settings, environ, log, job.scope, images)
    try:
        return pipeline(job, world)
    finally:
        with shutdown.shield():
            world.close()


def _images(settings: Settings) -> tuple[Image, ...]:
    """The images of the event, by name or by what their builder wrote."""
    references, digest = settings.images, settings.image_digest
    if settings.images_from:
        references, digest = with_built(references, digest, read_built(settings.images_from))
    return event_images(references, digest, settings.tag)
