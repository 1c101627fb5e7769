"""`run` and `plan`: an event in, commits (or their prediction) out; `hold`, `release`, `rollback`: a person's word."""

from __future__ import annotations

from collections.abc import Mapping

from task import stop
from task.edges.log import Log
from task.edges.publish import check_places, publish
from task.model import Image, Report
from task.options import BY_HAND
from task.orders import order_of
from task.parse.event import event_images
from task.pipeline import run as pipeline
from task.settings import Settings
from task.wiring import SECRETS, edges_of


def run(settings: Settings, environ: Mapping[str, str], log: Log) -> int:
    """Carry it out, publish the report; the exit code."""
    if environ.get("GITHUB_ACTIONS") == "true":
        from task.edges.masking import mask

        mask(SECRETS, environ)
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
    images = _images(settings) if of_event else ()
    order = order_of(settings, images, environ)
    edges = edges_of(settings, environ, log, order.scope, images)
    try:
        return pipeline(order, edges)
    finally:
        with stop.shield():
            edges.close()


def _images(settings: Settings) -> tuple[Image, ...]:
    """The images of the event, by name or by what their builder wrote."""
    references, digest = settings.images, settings.image_digest
    if settings.images_from:
        from task.edges.builder_files import read_built
        from task.parse.builders import with_built

        references, digest = with_built(references, digest, read_built(settings.images_from))
    return event_images(references, digest, settings.tag)
