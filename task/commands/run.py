"""`run` and `plan`: an event in, commits (or their prediction) out; `hold`, `release`, `rollback`: a person's word."""

from __future__ import annotations

from collections.abc import Mapping

from task import stop
from task.edges.log import Log
from task.edges.publish import check_places, publish
from task.model import Report
from task.options import BY_HAND
from task.orders import order_of
from task.parse.event import event_images
from task.pipeline import run as pipeline
from task.settings import Settings
from task.wiring import edges_of


def run(settings: Settings, environ: Mapping[str, str], log: Log) -> int:
    """Carry it out, publish the report; the exit code."""
    check_places(settings.output, environ)
    report = carry_out(settings, environ, log)
    for problem in report.problems:
        where = f"{problem.application}: " if problem.application else ""
        log(problem.severity, f"{where}{problem.message}{f'; {problem.hint}' if problem.hint else ''}")
    with stop.shield():
        publish(report, settings.output, environ)
    return report.exit


def carry_out(settings: Settings, environ: Mapping[str, str], log: Log) -> Report:
    """The pipeline, with the world that these settings want."""
    of_event = settings.command not in BY_HAND
    images = event_images(settings.images, settings.image_digest, settings.tag) if of_event else ()
    order, edges = order_of(settings, images, environ), edges_of(settings, environ, log)
    try:
        return pipeline(order, edges)
    finally:
        with stop.shield():
            edges.close()
