"""Renders a report as a self-contained HTML page, with the template `report.html.j2`."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from task.output.diff import diff_lines
from task.output.words import (
    JSON,
    commit_name,
    exit_words,
    lines,
    outcome,
    problems_outside_lines,
    shown_and_folded_lines,
    waiting_words,
)
from task.text import counted, visible
from task.urls import web_page

MARKED = (
    "update",
    "unchanged",
    "refuse",
    "defer",
    "error",
    "updated",
    "refused",
    "failed",
    "warning",
)
TIMINGS = {
    "find": "finding the Applications",
    "land": "deciding and pushing",
    "follow": "refreshing and waiting",
}
# absent from older reports
LATER = {
    "timings": None,
    "waiting": (),
    "source": None,
    "pipeline_run": None,
}
OF_COMMITS = {
    "url": None,
    "rollback": False,
    "diff": None,
}


def _text(value: object) -> Markup:
    """Return a template value as HTML text, with control characters made visible. A value that is
    already HTML (`Markup`) is returned unchanged.

    `#` becomes a character reference, so that Azure's runner does not execute `##vso[…]` if the
    page is printed to the job log.
    """
    if isinstance(value, Markup):
        return value
    parts = visible(str(value)).split("#")
    return Markup("&#35;").join(parts)


ENVIRONMENT = Environment(
    loader=PackageLoader("task.output", ""),
    autoescape=True,
    finalize=_text,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.tests["web_page"] = web_page
ENVIRONMENT.globals.update(marked=MARKED, counted=counted)


def page(report: JSON) -> str:
    """Return the HTML page for a JSON report (see `report_of`), which may come from an older
    version.
    """
    shown_lines, folded_lines, title_of_folded = shown_and_folded_lines(lines(report))
    outcome_words = outcome(report)
    images = " ".join(image["reference"] for image in report["images"][:3])
    commits = [{**OF_COMMITS, **commit} for commit in report["commits"]]
    return render(
        "report.html.j2",
        report={**LATER, **report, "commits": commits},
        title=f"{report['command']} {images}: {outcome_words}",
        outcome=outcome_words,
        end=exit_words(report),
        first=shown_lines,
        rest=folded_lines,
        folded=title_of_folded,
        problems=problems_outside_lines(report),
        waiting_words=waiting_words,
        commit_name=commit_name,
        diff_lines=diff_lines,
        phases=TIMINGS,
    )


def render(template: str, **values: Any) -> str:
    """Render a page from a template. All values are escaped."""
    return ENVIRONMENT.get_template(template).render(values)
