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
    cells = [
        {
            "Decision": row.decision,
            "Application": code(row.application),
            "Image": code(row.image),
            "Version": " → ".join(code(text) for text in (row.old, row.new) if text),
            "Why": f"{code(row.why)} fix: {code(row.fix)}" if row.fix else code(row.why),
            "Proof": code(row.proof),
            "Built from": row.source,
            "File": code(row.file),
        }
        for row in rows
    ]
    head = [name for name in cells[0] if name in ALWAYS or any(cell[name] for cell in cells)]
    lines = [_table_line(head), _table_line(["---"] * len(head))]
    left = room - sum(map(len, lines)) - 60
    for cell in cells:
        line = _table_line([cell[name] for name in head])
        left -= len(line) + 1
        if left < 0:
            break
        lines.append(line)
    more = len(rows) + 2 - len(lines)
    return "\n".join(lines) + (f"\n\nand {more} more: see the report" if more else "")


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
    letters = ("?" if letter in "`|" or not letter.isprintable() else letter for letter in line)
    return f"`{''.join(letters)}`"


def link(url: str, name: str = "") -> str:
    """Return a link to an HTTP address.

    Anything else is returned as code, because it may start a program on the reader's computer.
    """
    if not url.startswith(("https://", "http://")):
        return code(url)
    address = without_login(url)
    safe = _NOT_IN_A_LINK.sub(
        lambda found: "".join(f"%{item:02X}" for item in found[0].encode(errors="replace")),
        address,
    )
    if len(safe) > LONGEST_URL:
        return code(address)
    # The last two parts of a path are enough for a reader, such as `commit/0123456789ab` or
    # `runs/42`.
    parts = safe.partition("://")[2].rstrip("/").split("/")[-2:]
    short = "/".join(part[:12] if len(part) in (40, 64) else part for part in parts)
    return f"[{code(name or short)}]({safe})"


def _table_line(cells: Sequence[str]) -> str:
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
    first, rest, title = parted(lines(report))
    images = ", ".join(code(item["reference"]) for item in report["images"][:MOST])
    parts = [
        f"### Image Update: {outcome(report, code)}",
        " · ".join(filter(None, (images, code(report["command"]), exit_words(report)))),
        "",  # the table
        "",  # the folded part
        "\n".join([*_commit_list(report), *_problems(others(report))]),
        " · ".join(_circumstances(report)),
    ]
    room = longest - sum(len(part) + 2 for part in parts)
    checks = report["command"] == "check"
    rows = [_decision_row(text, with_files=checks) for text in first]
    parts[2] = builds(rows, room) if rows else ""
    room -= len(parts[2])
    if rest and room > LEAST:
        rows = [_decision_row(text, with_files=checks) for text in rest]
        parts[3] = folded(title, builds(rows, room - 100), html=html)
    room -= len(parts[3])
    if diffs:
        for commit in report["commits"][:MOST]:
            if diff := commit.get("diff"):
                parts.insert(5, _diff(commit, diff, room))
                room -= len(parts[5])
    return "\n\n".join(filter(None, parts)) + "\n"


def _circumstances(report: JSON) -> list[str]:
    """Return the parts of the last line: the source, the time, and whether anything was written."""
    words = (("Built from", report.get("source")), ("Pipeline run:", report.get("pipeline_run")))
    parts = [f"{word} {link(url)}" for word, url in words if url]
    if timings := report.get("timings"):
        parts.append(f"as of {_time(timings['started'])}")
    if report.get("base") and report.get("head"):  # of `check`
        parts.append(f"{code(report['head'][:12])} against {code(report['base'][:12])}")
    if would_be(report):
        parts.append("nothing was written")
    return parts


LEAST = 500  # characters; a folded table without room for any rows is omitted


def _decision_row(line: Line, *, with_files: bool) -> Row:
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
    items = []
    for commit in own_commits(report):
        if commit["commit"]:
            what = "rollback commit" if commit.get("rollback") else "commit"
            page = link(commit.get("url") or commit["commit"])
            items.append(
                f"- {what} {page} on {code(commit['head'])} of {link(commit['repository'])}"
            )
    items += [f"- request {link(url)}" for url in requests(report)]
    for waiting in report.get("waiting", ()):
        items.append(f"- {waiting['outcome']}: {code(waiting_words(waiting))}")
    if len(items) > MOST:
        return [*items[:MOST], f"- and {len(items) - MOST} more: see the report"]
    return items


def _problems(problems: Sequence[JSON]) -> list[str]:
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
    # The fence is longer than any run of backticks in the diff, so that the diff cannot end the
    # block.
    longest_run = max(map(len, re.findall("`+", diff)), default=0)
    fence = "`" * max(3, longest_run + 1)
    text = f"{fence}diff\n{printable_lines(diff.rstrip())}\n{fence}"
    where = f"{code(commit['head'])} of {code(commit['repository'])}"
    title = f"{counted(len(commit['files']), 'file')} on "
    if len(text) > room:
        return f"- {title}{where}: the diff is in the log"
    return folded(f"{title}the branch", f"{where}\n\n{text}")
