"""Renders a report for people: a table with colors for a terminal, or one fact per line for pipes
and logs.
"""

from __future__ import annotations

from collections.abc import Iterator

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
AT_A_GLANCE = 10  # up to this many lines, the first line is still in view
_REASON = 44  # minimum width of the reason column if it is next to the other columns


def table(report: JSON, console: Console) -> str:
    """Render the JSON report for a console: failures and changes first, then the commits.

    Only diffs can be wider than the console.
    """
    head = Text(printable(headline(report)), STYLES.get(report["status"], "bold"))
    text = rendered(console, head, *_grids(report, console))
    for commit in own_commits(report):
        text += rendered(console, _NOTHING, *_commit_lines(report, commit))
        if commit.get("diff"):
            text += diff_text(commit["diff"], console)
    below = [Text.assemble("request ", (printable(url), "cyan")) for url in requests(report)]
    below += [
        Text(printable(f"{waiting['outcome']} {waiting_words(waiting)}"))
        for waiting in report.get("waiting", ())
    ]
    if below:
        text += rendered(console, _NOTHING, *below)
    is_long = text.count("\n") > 1 + AT_A_GLANCE
    if is_long:
        text += rendered(console, _NOTHING, head)
    return text


def diff_text(diff: str, console: Console | None) -> str:
    """Return a unified diff, with colors if there is a console."""
    if console is None:
        return printable_lines(diff)
    with console.capture() as shown:
        for kind, line in diff_lines(diff):
            console.print(Text(printable(line), DIFF_STYLES.get(kind, "")), soft_wrap=True)
    return shown.get()


def rendered(console: Console, *parts: RenderableType) -> str:
    """Render these parts as lines for a console."""
    with console.capture() as shown:
        console.print(Group(*parts))
    # rich fills cells with spaces
    return "".join(f"{line.rstrip(' ')}\n" for line in shown.get().splitlines())


def _grids(report: JSON, console: Console) -> Iterator[RenderableType]:
    """Yield each Application with its decisions, in columns as wide as the console allows."""
    symbols = MARKS
    arrow = "->"
    if console.encoding.startswith("utf"):
        symbols = SYMBOLS
        arrow = "→"
    apps: dict[str, list[list[Text]]] = {}  # the cells for the verdict, image, version, and reason
    for line in lines(report):
        mark = Text(f"{symbols.get(line.verdict, '?')} {line.word}", STYLES.get(line.verdict, ""))
        version = Text(printable(line.version(arrow)), "bold" if line.new else "")
        apps.setdefault(line.application, []).append(
            [mark, Text(printable(line.image)), version, _reason(line)]
        )
    # Put all cells side by side, or all cells except the reason, or, on a narrow terminal, only the
    # verdict.
    rows = [row for rows in apps.values() for row in rows]
    widths = [max((cell_len(row[column].plain) for row in rows), default=0) for column in range(3)]
    remaining = console.width - 8 - sum(widths)  # 8 is the indent plus two spaces between columns
    if remaining >= _REASON:
        widths.append(remaining)
    elif remaining < 0:
        widths = widths[:1]
    for app, members in apps.items():
        yield _NOTHING
        yield Text(printable(app), "bold blue")
        for cells in members:
            grid = Table.grid(padding=(0, 2))
            for width in widths:
                grid.add_column(width=width, overflow="fold")
            grid.add_row(*cells[: len(widths)])
            yield Padding(grid, (0, 0, 0, 2))
            for cell in cells[len(widths) :]:
                yield Padding(cell, (0, 0, 0, 6))


def _reason(line: Line) -> Text:
    """Return the reason, and below it the fix and the file, if there are any."""
    reason = Text(printable(line.why))
    if line.fix:
        reason.append(f"\nfix: {printable(line.fix)}", "bold")
    if line.file:
        reason.append(f"\n{printable(line.file)}", "dim")
    return reason


def _commit_lines(report: JSON, commit: JSON) -> Iterator[RenderableType]:
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
    """Return the whole report as plain text.

    In a long log, the first or the last line is enough, because both have the whole result. Error
    messages appear only in the log, with their fixes.
    """
    head = headline(report)
    shown = [head, *_decisions(report), *_commits(report)]
    for commit in report["commits"]:
        if commit.get("diff"):
            shown += commit["diff"].rstrip("\n").split("\n")
    if len(shown) > 1 + AT_A_GLANCE:
        shown.append(head)
    # nearly all of this content is untrusted: names, URLs, diffs
    return "\n".join(map(printable, shown)) + "\n"


def _decisions(report: JSON) -> Iterator[str]:
    """Yield one line for each decision, in aligned columns."""
    rows = []
    for line in lines(report):
        why = line.why
        if line.verdict == "error":
            why = f"({line.rule})"
        elif line.verdict in FOLDED:
            why = f"({line.why})"
        why_and_file = f"{why}  {line.file}".rstrip()
        rows.append((line.word, line.application, line.image, line.version(), why_and_file))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _commits(report: JSON) -> Iterator[str]:
    for commit in own_commits(report):
        word = commit_name(report, commit)
        yield f"{word} {commit_words(commit)}: {and_more(commit['files'])}"
    yield from (f"request {url}" for url in requests(report))
    yield from (f"{item['outcome']} {waiting_words(item)}" for item in report.get("waiting", ()))


def commit_words(commit: JSON) -> str:
    """Return a commit's page, if the Git host is known, and the commit's branch."""
    url = commit.get("url")
    if url:
        return f"{url} on {commit['head']}"
    place = f"on {commit['head']} of {commit['repository']}"
    return f"{commit['commit'][:12]} {place}" if commit["commit"] else place
