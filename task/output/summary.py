"""Makes the Markdown of a report: the step's summary, and the comment of `plan --comment`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from task.output.markdown import Row, builds, code, folded, link
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
from task.text import counted, printable_lines

MOST = 20  # images, commits, builds that wait, and problems


def summary(report: JSON, longest: int, *, html: bool = True, diffs: bool = False) -> str:
    """Return the report in at most `longest` characters: numbers first, then failures, holds and changes.

    What changes nothing is folded. Diffs are only for who may see the repository.
    """
    first, rest, title = parted(lines(report))
    words = (("Built from", report.get("source")), ("by", report.get("pipeline_run")))
    end = [f"{word} {link(url)}" for word, url in words if url]
    end += [f"as of {timings['started']}"] if (timings := report.get("timings")) else []
    end += ["nothing was written"] if would_be(report) else []
    images = ", ".join(code(one["reference"]) for one in report["images"][:MOST])
    parts = [
        f"### Image Update: {outcome(report, code)}",
        " · ".join(filter(None, (images, code(report["command"]), exit_words(report)))),
        "",  # the table
        "",  # what is folded
        "\n".join([*_commits(report), *_problems(others(report))]),
        " · ".join(end),
    ]
    room = longest - sum(len(part) + 2 for part in parts)
    parts[2] = builds([_row(one) for one in first], room) if first else ""
    room -= len(parts[2])
    if rest and room > LEAST:
        parts[3] = folded(title, builds([_row(one) for one in rest], room - 100), html=html)
    room -= len(parts[3])
    for commit in report["commits"][:MOST] if diffs else ():
        if diff := commit.get("diff"):
            parts.insert(5, _diff(commit, diff, room))
            room -= len(parts[5])
    return "\n\n".join(filter(None, parts)) + "\n"


LEAST = 500  # characters: a folded table that has no room for a line is left out


def _row(one: Line) -> Row:
    image = one.image if one.new else f"{one.image} {one.offered}".rstrip()
    return Row(one.word, one.application, image, one.old, one.new, one.why, fix=one.fix)


def _commits(report: JSON) -> list[str]:
    told = [
        f"- {'rollback ' if one.get('rollback') else ''}commit {link(one.get('url') or one['commit'])}"
        f" on {code(one['head'])} of {link(one['repository'])}"
        for one in own_commits(report)
        if one["commit"]
    ]
    told += [f"- request {link(url)}" for url in requests(report)]
    told += [f"- {one['outcome']}: {code(waiting_words(one))}" for one in report.get("waiting", ())]
    return [*told[:MOST], f"- and {len(told) - MOST} more: see the report"] if len(told) > MOST else told


def _problems(problems: Sequence[JSON]) -> list[str]:
    told = [
        f"- {one['severity']}: {' '.join(code(text) for text in (one['application'], one['message']) if text)}"
        + (f" fix: {code(one['hint'])}" if one["hint"] else "")
        for one in problems[:MOST]
    ]
    return [*told, f"- and {len(problems) - MOST} more: see the log"] if len(problems) > MOST else told


def _diff(commit: JSON, diff: str, room: int) -> str:
    # The fence is longer than any run of backquotes in the diff, so that no line of it ends the block.
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", diff))])
    text = f"{fence}diff\n{printable_lines(diff.rstrip())}\n{fence}"
    where = f"{code(commit['head'])} of {code(commit['repository'])}"
    title = f"{counted(len(commit['files']), 'file')} on "
    if len(text) > room:
        return f"- {title}{where}: the diff is in the log"
    return folded(f"{title}the branch", f"{where}\n\n{text}")
