"""Renders a report for people: a table with colors for a terminal, or one fact per line for pipes
and logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from task.output.diff import diff_lines
from task.output.words import (
    FOLDED,
    JSON,
    Line,
    commit_name,
    headline,
    lines,
    own_commits,
    requests,
    waiting_words,
)
from task.text import and_more, printable, printable_lines

MARKS = {
    "update": "+",
    "unchanged": "=",
    "refuse": "-",
    "defer": "~",
    "error": "!",
}
SYMBOLS = {
    **MARKS,
    "update": "✓",
    "refuse": "–",
    "defer": "◷",
    "error": "✗",
}  # for terminals that support more than ASCII
STYLES = {
    "update": "green", "unchanged": "dim", "refuse": "yellow", "defer": "cyan", "error": "bold red",
    "updated": "bold green", "refused": "bold yellow", "failed": "bold red",
}  # fmt: skip
DIFF_STYLES = {
    "file": "bold",
    "hunk": "cyan",
    "add": "green",
    "del": "red",
}
_NOTHING = Text("")
AT_A_GLANCE = 10  # in a text of up to this many lines, the first line is still in view
_REASON = 44  # minimum width of the reason column if it is beside the other columns


def table(report: JSON, console: Console) -> str:
    """Return the JSON report as text for a console: the decisions in a table, then the commits,
    requests, and waiting builds. Only diffs can be wider than the console.

    If the text is long, its first line, which states the result, is repeated at the end.
    """
    first_line = Text(printable(headline(report)), STYLES.get(report["status"], "bold"))
    text = rendered(console, first_line, *_grids(report, console))
    for commit in own_commits(report):
        text += rendered(console, _NOTHING, *_commit_lines(report, commit))
        if commit.get("diff"):
            text += diff_text(commit["diff"], console)

    last_lines = [Text.assemble("request ", (printable(url), "cyan")) for url in requests(report)]
    for waiting in report.get("waiting", ()):
        words = f"{waiting['outcome']} {waiting_words(waiting)}"
        last_lines.append(Text(printable(words)))
    if last_lines:
        text += rendered(console, _NOTHING, *last_lines)

    is_long = text.count("\n") > 1 + AT_A_GLANCE  # 1 is the first line
    if is_long:
        text += rendered(console, _NOTHING, first_line)
    return text


def diff_text(diff: str, console: Console | None) -> str:
    """Return a printable unified diff, colored if there is a console."""
    if console is None:
        return printable_lines(diff)
    with console.capture() as captured:
        for kind, line in diff_lines(diff):
            console.print(Text(printable(line), DIFF_STYLES.get(kind, "")), soft_wrap=True)
    return captured.get()


def rendered(console: Console, *parts: RenderableType) -> str:
    """Return these parts as text laid out for a console, without trailing spaces."""
    with console.capture() as captured:
        console.print(Group(*parts))
    # rich pads cells with spaces
    return "".join(f"{line.rstrip(' ')}\n" for line in captured.get().splitlines())


def _grids(report: JSON, console: Console) -> Iterator[RenderableType]:
    """Yield each Application's name and its decisions, in columns that are aligned across all
    Applications. Cells that do not fit side by side are placed below the others.
    """
    has_unicode = console.encoding.startswith("utf")
    rows_by_app: dict[str, list[_Cells]] = {}
    for line in lines(report):
        cells = _cells_of_line(line, has_unicode=has_unicode)
        rows_by_app.setdefault(line.application, []).append(cells)

    all_rows = list(chain.from_iterable(rows_by_app.values()))
    widths = _column_widths(all_rows, console)

    for app, rows in rows_by_app.items():
        yield _NOTHING
        yield Text(printable(app), "bold blue")
        for cells in rows:
            cells_side_by_side = cells[: len(widths)]
            cells_below = cells[len(widths) :]
            grid = Table.grid(padding=(0, 2))
            for width in widths:
                grid.add_column(width=width, overflow="fold")
            grid.add_row(*cells_side_by_side)
            yield Padding(grid, (0, 0, 0, 2))
            for cell in cells_below:
                yield Padding(cell, (0, 0, 0, 6))


# the verdict, image, version, and reason of one decision
_Cells = tuple[Text, Text, Text, Text]


def _cells_of_line(line: Line, *, has_unicode: bool) -> _Cells:
    """Return a decision's cells: its verdict, image, version, and reason."""
    symbols = SYMBOLS if has_unicode else MARKS
    arrow = "→" if has_unicode else "->"
    style = STYLES.get(line.verdict, "")
    return (
        Text(f"{symbols.get(line.verdict, '?')} {line.word}", style),
        Text(printable(line.image)),
        Text(printable(line.version(arrow)), "bold" if line.new else ""),
        _reason(line),
    )


def _column_widths(rows: Sequence[_Cells], console: Console) -> list[int]:
    """Return the widths of the columns that fit side by side on the console.

    These are all four columns, all except the reason, or, on a narrow terminal, only the verdict.
    """
    widths = []
    for column in range(3):  # all columns except the reason, which uses the remaining width
        cell_widths = [cell_len(cells[column].plain) for cells in rows]
        widths.append(max(cell_widths, default=0))
    remaining = console.width - 8 - sum(widths)  # 8 is the indent plus two spaces between columns
    if remaining >= _REASON:
        return [*widths, remaining]
    if remaining < 0:
        return widths[:1]
    return widths


def _reason(line: Line) -> Text:
    """Return the reason, followed by lines with the fix and the file, if there are any."""
    reason = Text(printable(line.why))
    if line.fix:
        reason.append(f"\nfix: {printable(line.fix)}", "bold")
    if line.file:
        reason.append(f"\n{printable(line.file)}", "dim")
    return reason


def _commit_lines(report: JSON, commit: JSON) -> Iterator[RenderableType]:
    """Yield the lines about a commit: its name and location, the number of push attempts if there
    was more than one, and its files, unless a diff already shows them.
    """
    name = commit_name(report, commit)
    yield Text.assemble((name, "bold magenta"), f" {printable(commit_words(commit))}")
    if commit["attempts"] > 1:
        yield Padding(
            Text(f"{commit['attempts']} attempts, because others pushed first", "dim"),
            (0, 0, 0, 4),
        )
    if not commit.get("diff"):
        for file in commit["files"]:
            yield Padding(Text(printable(file)), (0, 0, 0, 4))


def plain(report: JSON) -> str:
    """Return the whole JSON report as plain text.

    In a long log, reading the first or the last line is enough, because each states the whole
    result. Error messages are left out, because they are in the log, along with their fixes.
    """
    first_line = headline(report)
    all_lines = [first_line, *_decision_lines(report), *_lines_about_commits(report)]
    for commit in report["commits"]:
        if commit.get("diff"):
            all_lines += commit["diff"].rstrip("\n").split("\n")
    is_long = len(all_lines) > 1 + AT_A_GLANCE
    if is_long:
        all_lines.append(first_line)
    # nearly all of this content is untrusted: names, URLs, diffs
    return "\n".join(map(printable, all_lines)) + "\n"


def _decision_lines(report: JSON) -> Iterator[str]:
    """Yield one line for each decision in a JSON report, in aligned columns: the verdict, the
    Application, the image, the version, and the reason with the file.
    """
    rows = []
    for line in lines(report):
        why = line.why
        if line.verdict == "error":
            why = f"({line.rule})"
        elif line.verdict in FOLDED:
            why = f"({line.why})"
        why_and_file = f"{why}  {line.file}".rstrip()
        rows.append((line.word, line.application, line.image, line.version(), why_and_file))

    columns = zip(*rows, strict=True)
    widths = [max(map(len, column)) for column in columns]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()


def _lines_about_commits(report: JSON) -> Iterator[str]:
    """Yield a line for each commit and pull request in a JSON report, and for each build that was
    waiting on a head branch.
    """
    for commit in own_commits(report):
        name = commit_name(report, commit)
        yield f"{name} {commit_words(commit)}: {and_more(commit['files'])}"
    for url in requests(report):
        yield f"request {url}"
    for waiting in report.get("waiting", ()):
        yield f"{waiting['outcome']} {waiting_words(waiting)}"


def commit_words(commit: JSON) -> str:
    """Return a commit's location, such as `0123456789ab on main of https://git.example/config`. If
    the URL of the commit's page is known, the text starts with that URL instead of the hash.
    """
    url = commit.get("url")
    if url:
        return f"{url} on {commit['head']}"
    place = f"on {commit['head']} of {commit['repository']}"
    if not commit["commit"]:
        return place
    return f"{commit['commit'][:12]} {place}"
