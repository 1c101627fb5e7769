"""Report → the few short results that a host's next step reads (contract, section 10).

All together stay below 2 KiB: Tekton's limit of 4096 bytes is shared with other steps and
is hit after the push. No name may look to Tekton Chains as if this step had built the image.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from task.model import Report
from task.output.outcome import current, status
from task.text import exact_json, visible
from task.urls import web_page, without_login

LIMIT = 2048
LARGEST_SUMMARY, MOST_COMMITS = 500_000, 20  # bytes of rows; GitHub takes a summary of 1 MiB, or none of it
LONGEST_CELL = 1000  # characters
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
    "image_ARTIFACT_INPUTS",
)


def results(report: Report) -> Mapping[str, str]:
    """Every result, always; "" where there is nothing to say.

    Also where others named something at greater length than anybody honest does: what is cut is the name of something
    else, and the report has it whole.
    """
    updates = [one.subscription for one in report.decisions if one.verdict.verdict == "update"]
    written = {(one.repo, one.application.key) for one in updates}
    # The first that was written, and with an image rather than with a hold's memory alone.
    commit = min(
        report.commits,
        key=lambda one: (one.stands, not any((one.repo, app) in written for app in one.applications)),
        default=None,
    )
    image = report.images[0] if report.images else None
    updated = sorted({one.application.key for one in updates})
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
        "image_ARTIFACT_INPUTS": _inputs(report),
    }
    room = LIMIT - 1 - sum(len(name) + len(value.encode()) for name, value in found.items())
    return {**found, "applications": _fitting(updated, room)}


def _within(size: int, text: str | None) -> str:
    """The text on one line; "" where it takes more bytes than that."""
    line = " ".join((text or "").encode(errors="replace").decode().splitlines())
    return line if len(line.encode()) <= size else ""


def _inputs(report: Report) -> str:
    """Chains reads it as a material of this run; an image without a digest is none. Tekton wants both members."""
    image = report.images[0] if report.images else None
    uri = image.name + (f":{image.tag}" if image.tag else "") if image else ""
    digest = image.digest if image else ""
    short = {name: text if len(json.dumps(text)) <= most + 2 else "" for name, text, most in
             (("uri", uri, 400), ("digest", digest, 135))}  # fmt: skip
    return json.dumps(short)


def _fitting(names: Sequence[str], room: int) -> str:
    """A JSON list of as many names as fit."""
    kept: list[str] = []
    size = 2
    for name in names:
        size += len(json.dumps(name, ensure_ascii=False).encode()) + 2
        if size > room:
            break
        kept.append(name)
    return json.dumps(kept, ensure_ascii=False)


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
    """A Markdown table for $GITHUB_STEP_SUMMARY."""
    rows = ["| Application | Image | Was | Now | Decision |", "|---|---|---|---|---|"]
    left = LARGEST_SUMMARY
    for number, one in enumerate(report.decisions):
        cells = (
            one.subscription.application.key,
            one.subscription.entry.image.name,
            current(one) or "",
            one.candidate.version,
            f"{one.verdict.verdict} ({one.verdict.rule}): {one.verdict.because}",
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
        if one.commit and not one.stands
    ]
    pages = (web_page(one.pull_request) for one in report.commits[:MOST_COMMITS])
    requests = dict.fromkeys(f"\nPull request: <{url}>" for url in pages if url)
    return "\n".join([f"### Image Update: {status(report)}", "", *rows, *commits, *requests, *_notes(report)]) + "\n"


def _notes(report: Report) -> list[str]:
    """What the table does not show: errors without a decision, and warnings (an image that nobody tracks)."""
    shown = {(one.subscription.application.key, one.verdict.because) for one in report.decisions}
    rest = [one for one in report.problems if (one.application, one.message) not in shown]
    notes = []
    for one in rest[:NOTES]:
        where = f"{one.application}: " if one.application else ""
        notes.append(
            f"- {one.severity}: {_cell(f'{where}{one.message}')}" + (f"; {_cell(one.hint)}" if one.hint else "")
        )
    more = [f"- and {len(rest) - NOTES} more, in the log"] if len(rest) > NOTES else []
    return ["", *notes, *more] if notes else []


def _cell(text: str) -> str:
    """Text of others on one line of Markdown or in a cell of a table: as it is, and nothing else than text.

    Written as character references, which are text wherever they stand; a backslash would not be, in code. Addresses
    and `www.` would become links by themselves.
    """
    shown = visible(text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}…")
    return _MARKDOWN.sub(lambda found: f"{found[1] or ''}&#{ord(found[0][-1])};", shown)
