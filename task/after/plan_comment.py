"""`plan --comment`: a comment on the pull request says which Applications would take its build."""

from __future__ import annotations

from dataclasses import replace

from task.deciding.job import Job
from task.errors import TaskError
from task.forges.marks import HIDDEN, HIDDEN_WITHOUT_HTML, WITHOUT_HTML
from task.forges.proposal import LONGEST, LONGEST_BODY
from task.landing.ports import World
from task.model import Problem, Report
from task.output.report_json import as_json
from task.output.summary import summary

MARK = "image-update-plan"


def commented(report: Report, job: Job, world: World) -> Report:
    """Write the plan as a comment. Return the report, with a warning if the comment could not be written.

    It is no error, because the plan itself is right, and the pipeline of a fork must not write comments.
    """
    if job.comment is None:
        return report
    try:
        comments = world.comments(job.comment.repository)
        html = comments.forge not in WITHOUT_HTML
        mark = (HIDDEN if html else HIDDEN_WITHOUT_HTML).format(MARK, job.comment.key)
        room = LONGEST_BODY.get(comments.forge, LONGEST) - len(mark) - 2
        page = comments.put(job.comment.number, mark, f"{summary(as_json(report), room, html=html)}\n{mark}\n")
    except TaskError as error:
        problem = Problem(
            rule=error.rule,
            message=f"the plan is in no comment: {error.message}",
            hint=error.hint,
            severity="warning",
        )
        return replace(report, problems=(*report.problems, problem))
    world.log("info", f"the plan is in a comment: {page}")
    return report
