"""Renders Markdown in the layout shared by requests, comments, and summaries.

Untrusted text is formatted as code, where Git hosts do not interpret Markdown, HTML, mentions,
issue references, or commands (GitLab executes lines such as `/merge`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from task.output.words import (
    JSON,
    Line,
    exit_words,
    lines,
    others,
    outcome,
    own_commits,
    parted,
    requests,
    waiting_words,
    would_be,
)
from task.text import counted, printable, printable_lines
from task.urls import without_login

LONGEST_CELL = 300
LONGEST_URL = 500
_TIME = re.compile(r"[0-9TZ:.+-]{1,40}")
_NOT_IN_A_LINK = re.compile(r"[^A-Za-z0-9/?&=%._~:+,;-]")


class Row(NamedTuple):
    """A row in a table of builds. All of its text is untrusted."""

    decision: str  # a word such as "updated"; "" if all rows have the same decision
    application: str
    image: str
    old: str
    new: str  # "" if the version does not change
    why: str = ""
    source: str = ""  # Markdown: where the image was built
    file: str = ""  # the file that is written
    fix: str = ""
    proof: str = ""  # the facts proved about the image


# columns that always appear; others appear only if a row has a value for them
ALWAYS = (
    "Application",
    "Image",
    "Version",
)


def builds(rows: Sequence[Row], room: int) -> str:
    """Return a table of builds with as many rows as fit in `room` characters, and the number of
    omitted rows.
    """
    cells_per_row = [_cells(row) for row in rows]
    all_columns = list(cells_per_row[0])
    empty_columns = [name for name in all_columns if not any(row[name] for row in cells_per_row)]
    columns = [name for name in all_columns if name in ALWAYS or name not in empty_columns]

    heading = [_table_line(columns), _table_line(["---"] * len(columns))]
    remaining = room - sum(map(len, heading)) - 60  # for the last sentence
    lines = []
    for cells in cells_per_row:
        line = _table_line([cells[column] for column in columns])
        remaining -= len(line) + 1
        if remaining < 0:
            break
        lines.append(line)

    table = "\n".join([*heading, *lines])
    omitted = len(rows) - len(lines)
    return f"{table}\n\nand {omitted} more: see the report" if omitted else table


def _cells(row: Row) -> dict[str, str]:
    """Return a row's cells as Markdown, by column."""
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
    """Return a section that a reader can expand.

    If HTML is not rendered, the text appears below its title.
    """
    if not html:
        return f"**{title}**\n\n{text}"
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def code(text: str) -> str:
    """Return the text as code, with `?` for characters that are invisible
    or would end the code or the cell.
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
    """Return a link to an HTTP address.

    Anything else is returned as code, because it may start a program on the reader's computer.
    """
    if not url.startswith(("https://", "http://")):
        return code(url)
    address = without_login(url)
    safe_address = _NOT_IN_A_LINK.sub(_percent_encoded, address)
    if len(safe_address) > LONGEST_URL:
        return code(address)

    # The last two parts of a path, with short commit hashes, are enough for a reader, such as
    # `commit/0123456789ab` or `runs/42`.
    _, _, host_and_path = safe_address.partition("://")
    last_parts = host_and_path.rstrip("/").split("/")[-2:]
    short_parts = [part[:12] if len(part) in (40, 64) else part for part in last_parts]
    return f"[{code(name or '/'.join(short_parts))}]({safe_address})"


def _percent_encoded(match: re.Match[str]) -> str:
    """Return the matched character as it is encoded in a URL."""
    return "".join(f"%{byte:02X}" for byte in match[0].encode(errors="replace"))


def _table_line(cells: Sequence[str]) -> str:
    """Return one line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def _time(text: str) -> str:
    """Return a time, or any other text as code, because the report may be untrusted."""
    return text if _TIME.fullmatch(text) else code(text)


MOST = 20  # images, commits, waiting builds, and problems


def summary(report: JSON, longest: int, *, html: bool = True, diffs: bool = False) -> str:
    """Return the report in at most `longest` characters: numbers first, then failures, holds, and
    changes.

    Decisions without a change are folded. Diffs are included only for people who can read the
    repository.
    """
    shown_lines, folded_lines, title = parted(lines(report))
    images = ", ".join(code(image["reference"]) for image in report["images"][:MOST])
    heading = f"### Image Update: {outcome(report, code)}"
    command = " · ".join(filter(None, (images, code(report["command"]), exit_words(report))))
    commits_and_problems = "\n".join([*_commit_list(report), *_problems(others(report))])
    last_line = " · ".join(_circumstances(report))

    # These parts are always complete. The table comes first for the remaining room, then the
    # folded table, and then the diffs.
    complete_parts = (heading, command, commits_and_problems, last_line)
    room = longest - sum(map(len, complete_parts)) - 6 * len("\n\n")  # six parts, besides the diffs
    checks = report["command"] == "check"
    rows = [_decision_row(line, with_files=checks) for line in shown_lines]
    table = builds(rows, room) if rows else ""
    room -= len(table)

    folded_table = ""
    if folded_lines and room > LEAST:
        rows = [_decision_row(line, with_files=checks) for line in folded_lines]
        folded_table = folded(title, builds(rows, room - 100), html=html)
    room -= len(folded_table)

    diff_sections = _diff_sections(report, room) if diffs else []
    parts = (
        heading,
        command,
        table,
        folded_table,
        commits_and_problems,
        *reversed(diff_sections),
        last_line,
    )
    return "\n\n".join(filter(None, parts)) + "\n"


def _diff_sections(report: JSON, room: int) -> list[str]:
    """Return the sections with the commits' diffs, as far as there is room for them."""
    sections = []
    for commit in report["commits"][:MOST]:
        diff = commit.get("diff")
        if diff:
            section = _diff(commit, diff, room)
            room -= len(section)
            sections.append(section)
    return sections


def _circumstances(report: JSON) -> list[str]:
    """Return the parts of the last line: the source, the time, and whether anything was written."""
    parts = []
    if report.get("source"):
        parts.append(f"Built from {link(report['source'])}")
    if report.get("pipeline_run"):
        parts.append(f"Pipeline run: {link(report['pipeline_run'])}")
    timings = report.get("timings")
    if timings:
        parts.append(f"as of {_time(timings['started'])}")
    if report.get("base") and report.get("head"):  # of `check`
        parts.append(f"{code(report['head'][:12])} against {code(report['base'][:12])}")
    if would_be(report):
        parts.append("nothing was written")
    return parts


LEAST = 500  # characters; a folded table without room for any rows is omitted


def _decision_row(line: Line, *, with_files: bool) -> Row:
    """Return the row for a decision. A version that is not written is shown with the image."""
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
    """Return list items for the commits, the requests, and the builds that were waiting."""
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
    """Return list items for errors and warnings."""
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
    """Return a section with the commit's diff, or only a list item if there is no room for it."""
    # The fence is longer than any run of backticks in the diff, so that the diff cannot end the
    # block.
    longest_run = max(map(len, re.findall("`+", diff)), default=0)
    fence = "`" * max(3, longest_run + 1)
    text = f"{fence}diff\n{printable_lines(diff.rstrip())}\n{fence}"
    branch = f"{code(commit['head'])} of {code(commit['repository'])}"
    files = counted(len(commit["files"]), "file")
    if len(text) > room:
        return f"- {files} on {branch}: the diff is in the log"
    return folded(f"{files} on the branch", f"{branch}\n\n{text}")
