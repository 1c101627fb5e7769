"""Reads the JSON report of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import TemplateError

from task.errors import Malformed
from task.text import one_line

LARGEST = 64 * 1024 * 1024  # bytes; the diffs of `plan` are in the report
SCHEMA = "image-update/report/v1"
_HINT = "give what --report or --output json wrote"
View = Callable[[Mapping[str, Any]], str]


def report_of(text: str) -> Mapping[str, Any]:
    """Parse a report. Raises `Malformed` for anything else.

    Unknown members are allowed, because a later version may have written the report.
    """
    try:
        report = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"this is not JSON: {error}", _HINT) from None
    if not isinstance(report, dict) or report.get("schema") != SCHEMA:
        raise Malformed(f"this is not a report of image-update: its schema is not {SCHEMA}", _HINT)
    return report


def shown(report: Mapping[str, Any], view: View) -> str:
    """Return what a view makes of a report. Raises `Malformed` if a member is missing, or is of another type."""
    try:
        return view(report)
    except (AttributeError, KeyError, TypeError, ValueError, TemplateError) as error:
        raise Malformed(f"this is not a whole report of image-update: {one_line(str(error))}", _HINT) from error
