"""Renders the result of `status` as one self-contained HTML page, with the template `status.html.j2`."""

from __future__ import annotations

from task.model import Status
from task.output.report_page import ENVIRONMENT
from task.output.status_text import by_application
from task.output.status_words import facts, name, says, state, summary
from task.text import without_logins

MARKS = {
    "held": "defer", "waiting": "defer", "proposed": "update",
    "behind": "warning", "differs": "warning", "unknown": "warning",
}  # fmt: skip


def page(status: Status) -> str:
    """Return the page of a status."""
    return ENVIRONMENT.get_template("status.html.j2").render(
        applications=list(by_application(status)),
        others=[problem for problem in status.problems if not problem.application],
        summary=summary(status),
        considered=status.considered,
        facts=facts,
        name=name,
        says=says,
        state=state,
        marks=MARKS,
        plain=without_logins,
    )
