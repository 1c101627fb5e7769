"""Turns a report into the few short results that the next step of the pipeline reads.

Together they stay below 2 KiB: all steps share Tekton's limit of 4096 bytes, and a step above it fails after its push.
Tekton Chains takes results named `*IMAGE_URL`, `*IMAGE_DIGEST`, `IMAGES` or `*ARTIFACT_OUTPUTS` for images that the
step has built, so none of ours has such a name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from task.model import Report
from task.output.report_json import counts, current, status, waited_as_json
from task.output.report_text import summary
from task.output.words import NOT_READ, ROLLED_BACK, VERDICTS, ending, waiting_line
from task.text import exact_json, one_line, printable, printable_lines, visible
from task.urls import web_page, without_login

LIMIT = 2048
LARGEST_SUMMARY, MOST_COMMITS = 500_000, 20  # bytes of rows; GitHub drops a summary of more than 1 MiB
LONGEST_CELL = 1000  # characters
LONGEST_MESSAGE, _SHORT_MESSAGE = 300, 30  # bytes; the short one where all other values are as long as can be
_OF_APPLICATIONS = 100  # bytes that the message leaves for the names of Applications
NOTES = 20  # problems that a summary lists
_MARKDOWN = re.compile(r"(www)\.|[\\`*_~|<>\[\]&$]|:(?! |$)", re.IGNORECASE)
DOTENV_PREFIX = "IMAGE_UPDATE_RESULT_"
NAMES = (
    "status",
    "updated",
    "commit",
    "pull-request",
    "repository",
    "branch",
    "tag",
    "digest",
    "applications",
    "applications-count",
    "rolled-back",
    "message",
    "image_ARTIFACT_INPUTS",
)


def results(report: Report) -> Mapping[str, str]:
    """Return all results.

    Those without a value are "", because a pipeline fails if it reads a result that was not written. A name that is too
    long is left out, because a cut name would mean something else. The report has the whole name.
    """
    written = {(one.subscription.repo, one.subscription.application.key) for one in report.updates}
    # Take the first commit that was written. One with an image comes before one that only remembers an event.
    commit = min(
        report.commits or report.earlier,
        key=lambda commit: (
            commit.already_there,
            not any((commit.repo, app) in written for app in commit.applications),
        ),
        default=None,
    )
    image = report.images[0] if report.images else None
    updated = sorted({one.subscription.application.key for one in report.updates})
    uri = image.name + (f":{image.tag}" if image.tag else "") if image else ""
    inputs = {"uri": (uri, 400), "digest": (image.digest if image else "", 135)}
    values = {
        "status": status(report),
        "updated": "true" if updated and not report.dry else "false",  # a hold's memory alone changes no image
        "commit": _within(64, commit.commit) if commit else "",
        "pull-request": web_page(commit.pull_request, 400) if commit else "",
        "repository": _within(250, without_login(commit.repo)) if commit else "",
        "branch": _within(250, commit.head) if commit else "",
        "tag": _within(128, image.tag) if image else "",
        "digest": _within(135, image.digest) if image else "",
        "applications": "",
        "applications-count": str(len(updated)),
        "rolled-back": "true" if any(one.rollback for one in report.commits) else "false",
        "message": "",
        # For Chains, this is a material of this run. A Tekton step fails if its object result lacks a declared member.
        "image_ARTIFACT_INPUTS": json.dumps(
            {name: text if len(json.dumps(text)) <= most + 2 else "" for name, (text, most) in inputs.items()}
        ),
    }
    room = LIMIT - 1 - sum(len(name) + len(value.encode()) for name, value in values.items()) - len("[]")
    message = cut(_message(report), min(LONGEST_MESSAGE, max(room - _OF_APPLICATIONS, _SHORT_MESSAGE)))
    room -= len(message.encode())
    kept: list[str] = []
    for name in updated:
        room -= len(json.dumps(name, ensure_ascii=False).encode()) + len(", ")
        if room < 0:
            break
        kept.append(name)
    return {**values, "message": message, "applications": json.dumps(kept, ensure_ascii=False)}


def _message(report: Report) -> str:
    """Return the first error, or else the last line of the summary."""
    for one in report.problems:
        if one.severity == "error":
            return f"{one.application}: {one.message}" if one.application else one.message
    back = any(one.rollback for one in report.commits)
    return summary(status(report), counts(report), dry=report.dry, back=back)


def cut(text: str, size: int) -> str:
    """Return the beginning of the text that fits into `size` bytes, on one line that no terminal or runner obeys."""
    line = printable(one_line(text)).encode(errors="replace")
    return (line if len(line) <= size else line[: size - len("…".encode())] + "…".encode()).decode(errors="ignore")


def _within(size: int, text: str | None) -> str:
    """Return the text on one line, or "" if it is longer than `size` bytes."""
    line = " ".join((text or "").encode(errors="replace").decode().splitlines())
    return line if len(line.encode()) <= size else ""


def repositories(report: Report) -> str:
    """Return the repositories that would be written, as a JSON list on one line.

    A pipeline can start one run with `--only-repository` for each.
    """
    repos = sorted({without_login(commit.repo) for commit in report.commits})
    return exact_json(json.dumps(repos, ensure_ascii=False)) + "\n"


def dotenv(values: Mapping[str, str]) -> str:
    """Return the results as GitLab's dotenv report: one line each, with letters, digits and `_` in the keys.

    Later jobs get these lines as variables, and variables win over a component's inputs. So no key may be an option's
    variable: `IMAGE_UPDATE_PULL_REQUEST=` made the second update of a pipeline push to the branch.
    """
    # The runner expands variables in these values, and "$$" becomes "$". An error may quote "$CI_JOB_TOKEN".
    lines = {f"{DOTENV_PREFIX}{name.upper().replace('-', '_')}": _one_line(value) for name, value in values.items()}
    return "".join(f"{name}={value.replace('$', '$$')}\n" for name, value in lines.items())


def github_output(values: Mapping[str, str]) -> str:
    """Return the results as `name=value` lines for $GITHUB_OUTPUT.

    A value with a line break would need a delimiter, so that it could not set another output. Ours have none.
    """
    return "".join(f"{name}={_one_line(value)}\n" for name, value in values.items())


def _one_line(value: str) -> str:
    return " ".join(value.splitlines())


def github_summary(report: Report) -> str:
    """Return the report as Markdown for $GITHUB_STEP_SUMMARY.

    It has a table, commits, requests, the diffs of a dry run, and problems.
    """
    title = ending(status(report), counts(report), dry=report.dry)
    title += f", {ROLLED_BACK}" if any(commit.rollback for commit in report.commits) else ""
    was, now = ("Now", "Then") if report.dry else ("Was", "Now")
    rows = [f"| Application | Image | {was} | {now} | Decision |", "|---|---|---|---|---|"]
    left = LARGEST_SUMMARY
    for number, decision in enumerate(report.decisions):
        verdict, offered = decision.judged, decision.candidate
        before = current(decision) or ("" if decision.kind else NOT_READ)
        # Until it is merged, a request changes nothing on the base branch.
        updates, proposed = verdict.verdict == "update", decision.head != decision.branch
        changed = updates and (report.dry or not proposed)
        where = f" on {decision.head}" if updates and proposed else ""
        hint = f"; {verdict.hint}" if verdict.verdict == "error" and verdict.hint else ""
        tag = f":{offered.tag}" if offered.tag else ""
        cells = (
            decision.subscription.application.key,
            f"{decision.subscription.entry.image.name}{tag}",
            before,
            offered.version if changed else before,
            f"{VERDICTS[verdict.verdict]} ({verdict.rule}){where}: {verdict.because}{hint}",
        )
        row = "| " + " | ".join(_cell(cell) for cell in cells) + " |"
        left -= len(row.encode(errors="replace")) + 1
        if left < 0:
            rows.append(f"\nand {len(report.decisions) - number} more decisions: see the report")
            break
        rows.append(row)
    commits = [
        f"\n{'Rollback commit' if commit.rollback else 'Commit'} <code>{_cell(commit.commit)}</code>"
        f" on <code>{_cell(commit.head)}</code>"
        f" of {_cell(without_login(commit.repo))}"
        for commit in report.commits[:MOST_COMMITS]
        if commit.commit and not commit.already_there
    ]
    pages = (web_page(commit.pull_request) for commit in report.commits[:MOST_COMMITS])
    requests = dict.fromkeys(f"\nPull request: <{url}>" for url in pages if url)
    waits = [f"- {_cell(waiting_line(waited_as_json(one)))}" for one in report.waiting[:MOST_COMMITS]]
    waits = ["", "Waiting before this run:", "", *waits] if waits else []
    # The table does not show errors without a decision, and warnings such as an image that no Application tracks.
    shown = {(decision.subscription.application.key, decision.because) for decision in report.decisions}
    rest = [problem for problem in report.problems if (problem.application, problem.message) not in shown]
    notes = [""] if rest else []
    for problem in rest[:NOTES]:
        message = f"{problem.application}: {problem.message}" if problem.application else problem.message
        hint = f"; {_cell(problem.hint)}" if problem.hint else ""
        notes.append(f"- {problem.severity}: {_cell(message)}{hint}")
    if len(rest) > NOTES:
        notes.append(f"- and {len(rest) - NOTES} more, in the log")
    diffs = []
    for commit in report.commits[:MOST_COMMITS]:
        if commit.diff:
            # The fence is longer than any run of backquotes in the diff, so that no line of it ends the block.
            fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", commit.diff))])
            text = f"{fence}diff\n{printable_lines(commit.diff.rstrip())}\n{fence}"
            where = f"<code>{_cell(commit.head)}</code> of {_cell(without_login(commit.repo))}"
            left -= len(text.encode(errors="replace"))
            diffs.append(f"\nOn {where}:\n\n{text}" if left >= 0 else f"\nOn {where}: the diff is in the log")
    return "\n".join([f"### Image Update: {title}", "", *rows, *commits, *requests, *waits, *diffs, *notes]) + "\n"


def _cell(text: str) -> str:
    """Escape untrusted text for a line of Markdown or a cell of a table.

    Markup becomes character references, which are text everywhere. A backslash would show in code. GitHub turns plain
    addresses and `www.` into links, so these are escaped as well.
    """
    shown = visible(text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}…")
    return _MARKDOWN.sub(lambda match: f"{match[1] or ''}&#{ord(match[0][-1])};", shown)
