"""A report → one page of HTML that needs nothing else; the page itself is `report.html.j2`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from task.output.diff import diff_lines
from task.text import visible
from task.urls import web_page

COUNTS = {
    "applications": "looked at", "matched": "asking for it", "updated": "updated", "unchanged": "unchanged",
    "refused": "refused", "deferred": "deferred", "failed": "failed",
}  # fmt: skip
TIMINGS = {"find": "finding the Applications", "land": "deciding and pushing", "follow": "what follows a push"}
MARKED = ("update", "unchanged", "refuse", "defer", "error", "updated", "refused", "failed", "warning")


def _text(value: object) -> Markup:
    """Whatever the template prints: no markup, and nothing that hides or turns the text beside it.

    `#` is written as a reference, so that no runner reads a command where the page is printed to its log.
    """
    return value if isinstance(value, Markup) else Markup("&#35;").join(visible(str(value)).split("#"))


_ENVIRONMENT = Environment(
    loader=PackageLoader("task.output", ""),
    autoescape=True,
    finalize=_text,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.tests["web_page"] = web_page


def page(report: Mapping[str, Any]) -> str:
    """The page of a report that `task.output.saved_report` has checked."""
    return _ENVIRONMENT.get_template("report.html.j2").render(
        report=report,
        applications=[
            (name, list(ones)) for name, ones in groupby(report["decisions"], lambda one: one["application"])
        ],
        hints={(one["application"], one["message"]): one["hint"] for one in report["errors"]},
        counts=COUNTS,
        timings=TIMINGS,
        marked=MARKED,
        diff_lines=diff_lines,
    )
