"""Report → the few short results that a host's next step reads (contract, section 10).

All together stay below 2 KiB: Tekton's limit of 4096 bytes is shared with other steps, and a step that exceeds it fails
after its push. No name may look to Tekton Chains as if this step had built the image.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from task.model import Report
from task.output.outcome import current, status
from task.text import exact_json, printable_lines, visible
from task.urls import web_page, without_login

LIMIT = 2048
LARGEST_SUMMARY, MOST_COMMITS = 500_000, 20  # bytes of rows; GitHub takes a summary of 1 MiB, or none of it
LONGEST_CELL = 1000  # characters
NOTES = 20  # problems that a summary lists
WOULD = {"updated": "would update", "refused": "would refuse", "unchanged": "nothing to do"}  # of a dry run
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
    "image_ARTIFACT_INPUTS",
)


def results(report: Report) -> Mapping[str, str]:
    """Every result, always; "" where there is nothing to say.

    A name that is longer than an honest one is left out: a cut name would be the name of something else. The report has
    it whole.
    """
    updates = [one.subscription for one in report.decisions if one.verdict.verdict == "update"]
    written = {(one.repo, one.application.key) for one in updates}
    # The first commit that was written, and rather one with an image than one with the memory of a hold alone.
    commit = min(
        report.commits,
        key=lambda one: (one.already_there, not any((one.repo, app) in written for app in one.applications)),
        default=None,
    )
    image = report.images[0] if report.images else None
    updated = sorted({one.application.key for one in updates})
    uri = image.name + (f":{image.tag}" if image.tag else "") if image else ""
    inputs = {"uri": (uri, 400), "digest": (image.digest if image else "", 135)}
    found = {
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
        # Chains reads it as a material of this run. Tekton wants both members.
        "image_ARTIFACT_INPUTS": json.dumps(
            {name: text if len(json.dumps(text)) <= most + 2 else "" for name, (text, most) in inputs.items()}
        ),
    }
    room = LIMIT - 1 - sum(len(name) + len(value.encode()) for name, value in found.items()) - len("[]")
    kept: list[str] = []
    for name in updated:
        room -= len(json.dumps(name, ensure_ascii=False).encode()) + len(", ")
        if room < 0:
            break
        kept.append(name)
    return {**found, "applications": json.dumps(kept, ensure_ascii=False)}


def _within(size: int, text: str | None) -> str:
    """The text on one line; "" where it takes more bytes than that."""
    line = " ".join((text or "").encode(errors="replace").decode().splitlines())
    return line if len(line.encode()) <= size else ""


def repositories(report: Report) -> str:
    """The repositories that are written, for one run each with `--only-repository`: a JSON list on one line."""
    found = sorted({without_login(commit.repo) for commit in report.commits})
    return exact_json(json.dumps(found, ensure_ascii=False)) + "\n"


def dotenv(found: Mapping[str, str]) -> str:
    """GitLab's dotenv report: letters, digits and `_` in keys, one line each.

    Later jobs get these lines as variables, which win over a component's inputs. So no name may be that of an option:
    `IMAGE_UPDATE_PULL_REQUEST=` made the second update of a pipeline push where it should have proposed.
    """
    lines = (f"{DOTENV_PREFIX}{name.upper().replace('-', '_')}={_one_line(value)}\n" for name, value in found.items())
    return "".join(lines)


def github_output(found: Mapping[str, str]) -> str:
    """`name=value` lines for $GITHUB_OUTPUT; no value of ours holds a line break."""
    return "".join(f"{name}={_one_line(value)}\n" for name, value in found.items())


def _one_line(value: str) -> str:
    return " ".join(value.splitlines())


def github_summary(report: Report) -> str:
    """A Markdown table for $GITHUB_STEP_SUMMARY, and the diff of what `plan` would write."""
    title, was, now = status(report), "Was", "Now"
    if report.dry:
        title, was, now = WOULD.get(title, title), "Now", "Then"
    rows = [f"| Application | Image | {was} | {now} | Decision |", "|---|---|---|---|---|"]
    left = LARGEST_SUMMARY
    for number, one in enumerate(report.decisions):
        before, verdict, offered = current(one) or "", one.verdict, one.candidate
        # A request changes nothing on the base branch before it is merged.
        changed = verdict.verdict == "update" and (report.dry or one.head == one.branch)
        hint = f"; {verdict.hint}" if verdict.verdict == "error" and verdict.hint else ""
        tag = f":{offered.tag}" if offered.tag else ""
        cells = (
            one.subscription.application.key,
            f"{one.subscription.entry.image.name}{tag}",
            before,
            offered.version if changed else before,
            f"{verdict.verdict} ({verdict.rule}): {verdict.because}{hint}",
        )
        row = "| " + " | ".join(_cell(cell) for cell in cells) + " |"
        left -= len(row.encode(errors="replace")) + 1
        if left < 0:
            rows.append(f"\nand {len(report.decisions) - number} more decisions: see the report")
            break
        rows.append(row)
    commits = [
        f"\nCommit <code>{_cell(one.commit)}</code> on <code>{_cell(one.head)}</code>"
        f" of {_cell(without_login(one.repo))}"
        for one in report.commits[:MOST_COMMITS]
        if one.commit and not one.already_there
    ]
    pages = (web_page(one.pull_request) for one in report.commits[:MOST_COMMITS])
    requests = dict.fromkeys(f"\nPull request: <{url}>" for url in pages if url)
    # What the table does not show: errors without a decision, and warnings (an image that no Application tracks).
    shown = {(one.subscription.application.key, one.verdict.because) for one in report.decisions}
    rest = [one for one in report.problems if (one.application, one.message) not in shown]
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
            text = _block(commit.diff)
            where = f"<code>{_cell(commit.head)}</code> of {_cell(without_login(commit.repo))}"
            left -= len(text.encode(errors="replace"))
            diffs.append(f"\nOn {where}:\n\n{text}" if left >= 0 else f"\nOn {where}: the diff is in the log")
    return "\n".join([f"### Image Update: {title}", "", *rows, *commits, *requests, *diffs, *notes]) + "\n"


def _block(diff: str) -> str:
    """A diff in Markdown: no line of it ends the block that it stands in."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", diff))])
    return f"{fence}diff\n{printable_lines(diff.rstrip())}\n{fence}"


def _cell(text: str) -> str:
    """Text of others in Markdown, on one line or in a cell of a table; it stays text.

    Markup becomes character references, which are text everywhere; a backslash would be shown in code. Addresses and
    `www.` would become links by themselves.
    """
    shown = visible(text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}…")
    return _MARKDOWN.sub(lambda found: f"{found[1] or ''}&#{ord(found[0][-1])};", shown)
