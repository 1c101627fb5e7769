"""Renders a report as one self-contained HTML page, with the template `report.html.j2`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from task.output.diff import diff_lines
from task.output.words import (
    ROLLED_BACK,
    VERDICTS,
    change,
    counted,
    ending,
    nothing_decided,
    proved,
    waiting_line,
    went_back,
    would_be,
)
from task.text import visible
from task.urls import web_page

TIMINGS = {"find": "finding the Applications", "land": "deciding and pushing", "follow": "refreshing and waiting"}
MARKED = ("update", "unchanged", "refuse", "defer", "error", "updated", "refused", "failed", "warning")


def _text(value: object) -> Markup:
    """Return any value that the template prints as text without markup, and with visible control characters.

    `#` becomes a character reference, so that Azure's runner reads no `##vso[…]` if the page is printed to its log.
    """
    return value if isinstance(value, Markup) else Markup("&#35;").join(visible(str(value)).split("#"))


ENVIRONMENT = Environment(
    loader=PackageLoader("task.output", ""),
    autoescape=True,
    finalize=_text,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.tests["web_page"] = web_page


def page(report: Mapping[str, Any]) -> str:
    """Return the page for a report that `task.output.saved_report` has checked."""
    return ENVIRONMENT.get_template("report.html.j2").render(
        report=report,
        applications=[
            (name, list(decisions))
            for name, decisions in groupby(report["decisions"], lambda decision: decision["application"])
        ],
        hints={(error["application"], error["message"]): error["hint"] for error in report["errors"]},
        dry=would_be(report),
        back=ROLLED_BACK if went_back(report) else "",
        change=change,
        counted=counted,
        ending=ending,
        nobody=nothing_decided,
        proved=proved,
        waiting_line=waiting_line,
        words=VERDICTS,
        timings=TIMINGS,
        marked=MARKED,
        diff_lines=diff_lines,
    )
