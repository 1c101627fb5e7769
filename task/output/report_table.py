"""Writes a report for a terminal: a table with colours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from task.output.diff import diff_lines
from task.output.report_text import MARKS, summary
from task.output.words import VERDICTS, change, nothing_decided, proved, waiting_line, went_back, would_be
from task.text import printable, printable_lines

JSON = Mapping[str, Any]
SYMBOLS = {**MARKS, "update": "✓", "refuse": "✗", "defer": "◷"}  # beyond ASCII
STYLES = {
    "update": "green", "unchanged": "dim", "refuse": "yellow", "defer": "cyan", "error": "bold red",
    "updated": "bold green", "refused": "bold yellow", "failed": "bold red",
}  # fmt: skip
DIFF_STYLES = {"file": "bold", "hunk": "cyan", "add": "green", "del": "red"}
_NOTHING = Text("")
_VERDICT, _REASON = 10, 44  # columns: of a mark and the longest verdict; of the narrowest reason next to the others


def table(report: JSON, console: Console) -> str:
    """Return the JSON report for a console: the decisions by Application, then the commits.

    Only diffs may be wider than the console.
    """
    dry = would_be(report)
    words = summary(report["status"], report["counts"], dry=dry, back=went_back(report))
    end = Text(words, STYLES.get(report["status"], "bold"))
    if not (report["images"] or report["decisions"] or report["commits"]):
        return _rendered(console, end)
    images = ", ".join(image["reference"] for image in report["images"])
    text = _rendered(console, Text(printable(f"{report['command']} {images}"), "bold"), *_decisions(report, console))
    for commit in report["commits"]:
        text += _rendered(console, _NOTHING, *_commit(commit))
        if commit.get("diff"):
            text += diff_text(commit["diff"], console)
    waiting = [Text(printable(waiting_line(one))) for one in report.get("waiting", ())]  # older reports have none
    return text + _rendered(console, *([_NOTHING, *waiting] if waiting else []), _NOTHING, end)


def diff_text(diff: str, console: Console | None) -> str:
    """Return a unified diff, with colours if there is a console."""
    if console is None:
        return printable_lines(diff)
    with console.capture() as shown:
        for kind, line in diff_lines(diff):
            console.print(Text(printable(line), DIFF_STYLES.get(kind, "")), soft_wrap=True)
    return shown.get()


def _rendered(console: Console, *parts: RenderableType) -> str:
    with console.capture() as shown:
        console.print(Group(*parts))
    return "".join(f"{line.rstrip(' ')}\n" for line in shown.get().splitlines())  # rich fills cells with blanks


def _decisions(report: JSON, console: Console) -> Iterator[RenderableType]:
    decisions = report["decisions"]
    if not decisions and report["status"] != "failed":
        yield _NOTHING
        rules = (error["rule"] for error in report["errors"])
        yield Text(nothing_decided("it", report["counts"]["applications"], rules))
    symbols = SYMBOLS if console.encoding.startswith("utf") else MARKS
    arrow = "→" if symbols is SYMBOLS else "->"
    hints = {(error["application"], error["message"]): error["hint"] for error in report["errors"]}
    rows: list[tuple[str, list[Text]]] = []  # the Application; the cells for verdict, image, change and reason
    for decision in decisions:
        verdict, style = decision["verdict"], STYLES.get(decision["verdict"], "")
        was, offered = printable(decision["current"] or ""), printable(decision["candidate"] or "")
        versions = change(verdict, was, offered, arrow, read=bool(decision["target"]))
        reason = Text.assemble((printable(decision["rule"]), style), f": {printable(decision['because'])}")
        hint = hints.get((decision["application"], decision["because"]))
        if verdict == "error" and hint:
            reason.append(f"\nfix: {printable(hint)}", "bold")
        if decision.get("from"):  # reports of 0.1 do not have this member
            reason.append(f"\nfrom {printable(decision['from'])}", "dim")
        if told := proved(decision):
            reason.append(f"\nproof: {printable(told)}", "dim")
        if verdict in ("update", "unchanged") and decision["file"]:
            reason.append(f"\n{printable(decision['file'])}", "dim")
        alias = f"{decision['alias']}=" if decision["alias"] else ""
        image = printable(f"{alias}{decision['image']}")
        change_style = "bold" if verdict == "update" else ""
        mark = Text.assemble((f"{symbols.get(verdict, '?')} {VERDICTS.get(verdict, verdict)}", style))
        cells = [mark, Text(image), Text.assemble((versions, change_style)), reason]
        rows.append((printable(decision["application"]), cells))
    # Put all cells side by side, or all but the reason, or, on a narrow terminal, only the verdict.
    image_width, change_width = (max((cell_len(cells[at].plain) for _, cells in rows), default=0) for at in (1, 2))
    left = console.width - 8 - _VERDICT - image_width - change_width  # 8: the indent, and two blanks between columns
    widths = [_VERDICT, image_width, change_width][: 3 if left >= 0 else 1]
    widths += [left] if left >= _REASON else []
    for app, members in groupby(rows, lambda row: row[0]):
        yield _NOTHING
        yield Text(app, "bold blue")
        for _, cells in members:
            grid = Table.grid(padding=(0, 2))
            for width in widths:
                grid.add_column(width=width, overflow="fold")
            grid.add_row(*cells[: len(widths)])
            yield Padding(grid, (0, 0, 0, 2))
            yield from (Padding(cell, (0, 0, 0, 6)) for cell in cells[len(widths) :])


def _commit(commit: JSON) -> Iterator[RenderableType]:
    name = f"commit {printable(commit['commit'][:12])}" if commit["commit"] else "would commit"
    name = f"rollback {name}" if commit.get("rollback") else name
    place = f" on {printable(commit['head'])} of {printable(commit['repository'])}"
    yield Text.assemble((name, "bold magenta"), place)
    below = []
    if commit["attempts"] > 1:
        below.append(Text(f"others were faster {commit['attempts'] - 1} times", "dim"))
    if commit["pull_request"]:
        below.append(Text(printable(commit["pull_request"]), "cyan"))
    if not commit.get("diff"):
        below += [Text(printable(file)) for file in commit["files"]]
    yield from (Padding(line, (0, 0, 0, 4)) for line in below)
