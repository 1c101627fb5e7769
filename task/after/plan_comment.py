"""`plan --comment`: a comment on the pull request says which Applications would take its build.

Text that others chose is shown as code, as in the requests that we open, so that no forge interprets it or notifies
anybody.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from task.deciding.job import Job
from task.errors import TaskError
from task.forges.marks import HIDDEN, HIDDEN_WITHOUT_HTML, WITHOUT_HTML
from task.forges.proposal import LONGEST, LONGEST_BODY
from task.landing.ports import World
from task.model import Judged, Problem, Report
from task.output.markdown import code, link
from task.output.report_json import counts, current
from task.output.words import ELSEWHERE, NOT_READ, VERDICTS, counted
from task.text import without_logins

MARK = "image-update-plan"
HEAD = "| Application | Image | Now | Decision | Why |\n| --- | --- | --- | --- | --- |"
PROBLEMS = 10  # how many problems are listed
_FIRST = ("update", "error", "defer", "refuse", "unchanged")


def commented(report: Report, job: Job, world: World) -> Report:
    """Write the plan as a comment. Return the report, with a warning if the comment could not be written.

    It is no error, because the plan itself is right, and the pipeline of a fork must not write comments.
    """
    if job.comment is None:
        return report
    try:
        comments = world.comments(job.comment.repository)
        mark = (HIDDEN_WITHOUT_HTML if comments.forge in WITHOUT_HTML else HIDDEN).format(MARK, job.comment.key)
        longest = LONGEST_BODY.get(comments.forge, LONGEST)
        page = comments.put(job.comment.number, mark, text_of(report, job, mark, longest))
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


def text_of(report: Report, job: Job, mark: str, longest: int = LONGEST) -> str:
    """Return the plan as Markdown with at most `longest` characters, and with the whole mark at its end."""
    numbers = ", ".join(f"{number} {word}" for word, number in counted(counts(report), dry=True).items())
    images = ", ".join(code(image.reference) for image in report.images[:20])
    words = (("Built from", job.requests.source), ("planned by", job.requests.run))
    end = " · ".join([*(f"{word} {link(url)}" for word, url in words if url), "Nothing was written."])
    problems = _problems(report)
    elsewhere = any(problem.rule == ELSEWHERE for problem in report.problems)
    nobody = f"no Application {'of these repositories ' if elsewhere else ''}tracks this build"
    start = f"### Image Update: {numbers or nobody}\n\nPlan for {images}"
    room = longest - sum(map(len, (start, HEAD, problems, end, mark))) - 100
    read = "1 Application was read." if report.considered == 1 else f"{report.considered} Applications were read."
    table = _table(report.decisions, room) if report.decisions else read
    return "\n\n".join(part for part in (start, table, problems, end, mark) if part) + "\n"


def _table(decisions: Iterable[Judged], room: int) -> str:
    """Return as many rows as fit, with changes first, and the number of rows that are left out."""
    ordered = sorted(decisions, key=lambda one: _FIRST.index(one.verdict))
    lines = [HEAD]
    for one in ordered:
        name, version = one.subscription.entry.image.name, one.candidate.version
        image = f"{name}{'@' if not one.candidate.tag else ':'}{version}" if version else name
        now = current(one)
        was = code(now) if now else "(none)" if one.kind else NOT_READ
        cells = (code(one.subscription.application.key), code(image), was)
        decided = f"{VERDICTS[one.verdict]} {code(one.rule)}"
        row = f"| {' | '.join(cells)} | {decided} | {code(without_logins(one.because))} |"
        room -= len(row) + 1
        if room < 0:
            break
        lines.append(row)
    more = len(ordered) + 1 - len(lines)
    return "\n".join(lines) + (f"\n\nand {more} more: see the report" if more else "")


def _problems(report: Report) -> str:
    """Return what the table does not show: errors without a decision, and warnings."""
    shown = {(one.subscription.application.key, one.because) for one in report.decisions}
    rest = [one for one in report.problems if (one.application, one.message) not in shown]
    lines = []
    for one in rest[:PROBLEMS]:
        texts = (one.application, without_logins(one.message), without_logins(one.hint))
        lines.append(f"- {one.severity}: {' '.join(code(text) for text in texts if text)}")
    if len(rest) > PROBLEMS:
        lines.append(f"- and {len(rest) - PROBLEMS} more: see the log")
    return "\n".join(lines)
