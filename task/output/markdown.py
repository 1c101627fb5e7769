"""Renders Markdown in the layout that pull requests, comments, and summaries share.

Untrusted text is formatted as code, where Git hosts do not interpret Markdown, HTML, mentions,
issue references, or commands. (GitLab executes lines such as `/merge`.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from task.output.words import (
    JSON,
    Line,
    exit_words,
    is_only_prediction,
    lines,
    outcome,
    own_commits,
    problems_outside_lines,
    requests,
    shown_and_folded_lines,
    waiting_words,
)
from task.text import counted, printable, printable_lines
from task.urls import without_login

LONGEST_CELL = 300
LONGEST_URL = 500
_TIME = re.compile(r"[0-9TZ:.+-]{1,40}")
_NOT_IN_A_LINK = re.compile(r"[^A-Za-z0-9/?&=%._~:+,;-]")


class Row(NamedTuple):
    """A row in a table of builds. All of its text is untrusted."""

    decision: str  # a word such as "updated"; "" if it is the same for all rows
    application: str
    image: str
    old: str
    new: str  # "" if the version does not change
    why: str = ""
    source: str = ""  # Markdown: where the image was built
    file: str = ""  # the file that the update writes
    fix: str = ""
    proof: str = ""  # the facts proved about the image


# columns that always appear; others appear only if a row has a value for them
ALWAYS = (
    "Application",
    "Image",
    "Version",
)


def builds(rows: Sequence[Row], room: int) -> str:
    """Return a Markdown table of builds with as many rows as fit into `room` characters. If rows
    are omitted, a sentence below the table states how many.

    There must be at least one row.
    """
    cells_per_row = [_cells(row) for row in rows]
    columns = []
    for name in cells_per_row[0]:
        has_value = any(cells[name] for cells in cells_per_row)
        if has_value or name in ALWAYS:
            columns.append(name)

    heading = [_table_line(columns), _table_line(["---"] * len(columns))]
    room_for_sentence = 60  # characters, for the sentence about omitted rows
    remaining = room - sum(map(len, heading)) - room_for_sentence
    lines = []
    for cells in cells_per_row:
        line = _table_line([cells[column] for column in columns])
        remaining -= len(line) + 1  # including its line break
        if remaining < 0:
            break
        lines.append(line)

    table = "\n".join([*heading, *lines])
    omitted = len(rows) - len(lines)
    return f"{table}\n\nand {omitted} more: see the report" if omitted else table


def _cells(row: Row) -> dict[str, str]:
    """Return a row's cells as Markdown, keyed by column."""
    versions = [code(version) for version in (row.old, row.new) if version]
    why = code(row.why)
    if row.fix:
        why = f"{why} fix: {code(row.fix)}"
    return {
        "Decision": row.decision,
        "Application": code(row.application),
        "Image": code(row.image),
        "Version": " → ".join(versions),
        "Why": why,
        "Proof": code(row.proof),
        "Built from": row.source,
        "File": code(row.file),
    }


def folded(title: str, text: str, *, html: bool = True) -> str:
    """Return a collapsed section that the reader can expand.

    Where HTML is not rendered, the text simply appears below its title.
    """
    if not html:
        return f"**{title}**\n\n{text}"
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def code(text: str) -> str:
    """Return untrusted text as Markdown code on one line, shortened if it is long.

    Characters that are invisible, or that would end the code or the table cell, become `?`.
    """
    line = " ".join(printable(text).split())
    if not line:
        return ""
    if len(line) > LONGEST_CELL:
        line = f"{line[: LONGEST_CELL - 1]}…"
    safe_line = ""
    for letter in line:
        is_harmless = letter.isprintable() and letter not in "`|"
        safe_line += letter if is_harmless else "?"
    return f"`{safe_line}`"


def link(url: str, name: str = "") -> str:
    """Return a Markdown link to an HTTP address. The link text is `name`, or else the end of the
    address.

    Addresses with other schemes are returned as code, because a click might start a program on the
    reader's computer. Addresses that are too long are returned as code, too.
    """
    if not url.startswith(("https://", "http://")):
        return code(url)
    address = without_login(url)
    safe_address = _NOT_IN_A_LINK.sub(_percent_encoded, address)
    if len(safe_address) > LONGEST_URL:
        return code(address)

    # The last two parts of a path, with commit hashes shortened, tell the reader enough: for
    # example, `commit/0123456789ab` or `runs/42`. A full hash has 40 or 64 characters.
    _, _, host_and_path = safe_address.partition("://")
    last_parts = host_and_path.rstrip("/").split("/")[-2:]
    short_parts = [part[:12] if len(part) in (40, 64) else part for part in last_parts]
    text = code(name or "/".join(short_parts))
    return f"[{text}]({safe_address})"


def _percent_encoded(match: re.Match[str]) -> str:
    """Return the matched character, percent-encoded for a URL."""
    return "".join(f"%{byte:02X}" for byte in match[0].encode(errors="replace"))


def _table_line(cells: Sequence[str]) -> str:
    """Return one line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def _time(text: str) -> str:
    """Return a time as it is, and any other text as code, because the report may be untrusted."""
    return text if _TIME.fullmatch(text) else code(text)


MOST = 20  # maximum number of images, commits, waiting builds, and problems


def summary(report: JSON, longest: int, *, html: bool = True, diffs: bool = False) -> str:
    """Return the report as Markdown, in at most `longest` characters: first the numbers, then a
    table of failures, holds (builds that were deferred), and changes.

    Decisions without a change are in a second table, which is collapsed (shown only on demand). Set
    `diffs` only if everyone who can read the summary can also read the repository.
    """
    shown_lines, folded_lines, title = shown_and_folded_lines(lines(report))
    images = ", ".join(code(image["reference"]) for image in report["images"][:MOST])
    heading = f"### Image Update: {outcome(report, code)}"
    command = " · ".join(filter(None, (images, code(report["command"]), exit_words(report))))
    commits_and_problems = "\n".join(
        [*_commit_list(report), *_problems(problems_outside_lines(report))]
    )
    last_line = " · ".join(_circumstances(report))

    # These parts are never truncated. The remaining room is given first to the table, then to the
    # collapsed table, and then to the diffs.
    complete_parts = (heading, command, commits_and_problems, last_line)
    room_for_breaks = 6 * len("\n\n")  # one after each of the six parts that are not diffs
    room = longest - sum(map(len, complete_parts)) - room_for_breaks
    checks = report["command"] == "check"
    rows = [_decision_row(line, with_files=checks) for line in shown_lines]
    table = builds(rows, room) if rows else ""
    room -= len(table)

    folded_table = ""
    if folded_lines and room > LEAST:
        rows = [_decision_row(line, with_files=checks) for line in folded_lines]
        room_for_title = 100
        folded_table = folded(title, builds(rows, room - room_for_title), html=html)
    room -= len(folded_table)

    diff_sections = _diff_sections(report, room) if diffs else []
    parts = (
        heading,
        command,
        table,
        folded_table,
        commits_and_problems,
        *reversed(diff_sections),  # the last commit's diff comes first
        last_line,
    )
    return "\n\n".join(filter(None, parts)) + "\n"


def _diff_sections(report: JSON, room: int) -> list[str]:
    """Return a section for each commit with a diff. The section contains the diff, or only a line
    about the diff if there is no room for it.
    """
    sections = []
    for commit in report["commits"][:MOST]:
        diff = commit.get("diff")
        if diff:
            section = _diff(commit, diff, room)
            room -= len(section)
            sections.append(section)
    return sections


def _circumstances(report: JSON) -> list[str]:
    """Return the parts of the summary's last line: the source, the pipeline run, the time, the
    commits that `check` compares, and a note if nothing was written.
    """
    parts = []
    if report.get("source"):
        parts.append(f"Built from {link(report['source'])}")
    if report.get("pipeline_run"):
        parts.append(f"Pipeline run: {link(report['pipeline_run'])}")
    timings = report.get("timings")
    if timings:
        parts.append(f"as of {_time(timings['started'])}")
    if report.get("base") and report.get("head"):  # only in `check` reports
        parts.append(f"{code(report['head'][:12])} against {code(report['base'][:12])}")
    if is_only_prediction(report):
        parts.append("nothing was written")
    return parts


LEAST = 500  # characters; with less room, the collapsed table is omitted, because no row would fit


def _decision_row(line: Line, *, with_files: bool) -> Row:
    """Return the table row for a decision. If the version does not change, the candidate that was
    not written is shown next to the image.
    """
    image = line.image if line.new else f"{line.image} {line.offered}".rstrip()
    return Row(
        decision=line.word,
        application=line.application,
        image=image,
        old=line.old,
        new=line.new,
        why=line.why,
        file=line.file if with_files else "",
        fix=line.fix,
    )


def _commit_list(report: JSON) -> list[str]:
    """Return Markdown list items for the commits, the pull requests, and the builds that were
    waiting on head branches.
    """
    items = []
    for commit in own_commits(report):
        if not commit["commit"]:
            continue
        kind = "rollback commit" if commit.get("rollback") else "commit"
        page = link(commit.get("url") or commit["commit"])
        branch = f"{code(commit['head'])} of {link(commit['repository'])}"
        items.append(f"- {kind} {page} on {branch}")
    items += [f"- request {link(url)}" for url in requests(report)]
    for waiting in report.get("waiting", ()):
        items.append(f"- {waiting['outcome']}: {code(waiting_words(waiting))}")
    if len(items) > MOST:
        return [*items[:MOST], f"- and {len(items) - MOST} more: see the report"]
    return items


def _problems(problems: Sequence[JSON]) -> list[str]:
    """Return Markdown list items for these errors and warnings."""
    lines = []
    for problem in problems[:MOST]:
        words = [f"- {problem['severity']}:"]
        if problem["application"]:
            words.append(code(problem["application"]))
        words.append(code(problem["message"]))
        if problem["hint"]:
            words.append(f"fix: {code(problem['hint'])}")
        lines.append(" ".join(words))
    if len(problems) > MOST:
        lines.append(f"- and {len(problems) - MOST} more: see the log")
    return lines


def _diff(commit: JSON, diff: str, room: int) -> str:
    """Return a collapsed section with a commit's diff, or only a list item if the diff is longer
    than `room` characters.
    """
    # The fence is longer than any run of backticks in the diff, so that the diff cannot close the
    # code block.
    longest_run = max(map(len, re.findall("`+", diff)), default=0)
    fence = "`" * max(3, longest_run + 1)
    text = f"{fence}diff\n{printable_lines(diff.rstrip())}\n{fence}"
    branch = f"{code(commit['head'])} of {code(commit['repository'])}"
    files = counted(len(commit["files"]), "file")
    if len(text) > room:
        return f"- {files} on {branch}: the diff is in the log"
    return folded(f"{files} on the branch", f"{branch}\n\n{text}")
