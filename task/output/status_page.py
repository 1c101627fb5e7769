"""Renders the result of `status` as one self-contained HTML page, with the template `status.html.j2`."""

from __future__ import annotations

from dataclasses import replace

from task.model import Status
from task.output.report_json import problem_as_json
from task.output.report_page import render
from task.output.status_words import facts, name, note, ordered, says, state, summary

MARKS = {
    "held": "defer", "waiting": "defer", "proposed": "update",
    "behind": "warning", "differs": "warning", "unknown": "warning",
}  # fmt: skip


def page(status: Status) -> str:
    """Return the page of a status."""
    return render(
        "status.html.j2",
        status=status,
        title=summary(replace(status, at="")),
        images=ordered(status),
        problems=list(map(problem_as_json, status.problems)),
        commits=lambda one: {build.commit[:12]: build.url for build in one.builds},
        facts=facts,
        name=name,
        note=note,
        says=says,
        state=state,
        marks=MARKS,
    )
