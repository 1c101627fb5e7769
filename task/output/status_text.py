"""Writes the result of `status` for people: one fact on each line for pipes and logs, a table for terminals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from task.model import ImageStatus, Problem, Status
from task.output.status_words import facts, name, says, state, summary
from task.text import printable, without_logins

MARKS = {"held": "~", "waiting": "~", "proposed": ">", "behind": "<", "differs": "-", "unknown": "?", "tracked": "="}
SYMBOLS = {**MARKS, "held": "◷", "waiting": "◷", "proposed": "↗", "behind": "↓", "differs": "≠"}
STYLES = {
    "held": "cyan", "waiting": "cyan", "proposed": "magenta", "behind": "yellow", "differs": "yellow",
    "unknown": "yellow", "tracked": "dim", "error": "bold red", "warning": "yellow",
}  # fmt: skip


def plain(status: Status) -> str:
    """Return the whole status as plain text, with one fact on each line."""
    lines: list[str] = []
    for app, rows, problems in by_application(status):
        lines.append(app)
        for one in rows:
            word = state(one)
            lines.append(f"  {MARKS[word]} {word:8} {name(one)}  {says(one)}")
            lines += [f"      {label:8} {text}" for label, text in facts(one)]
        for problem in problems:
            lines.append(f"  ! {problem.severity:8} {problem.rule}: {without_logins(problem.message)}")
            lines += [f"      fix      {without_logins(problem.hint)}"] if problem.hint else []
    return "\n".join(map(printable, [*lines, summary(status)])) + "\n"


def table(status: Status, console: Console) -> str:
    """Return the whole status for a console. No line is wider than it."""
    parts: list[RenderableType] = []
    for app, rows, problems in by_application(status):
        parts += [Text(printable(app), "bold blue"), *_rows(rows, console), *map(_problem, problems), Text("")]
    with console.capture() as shown:
        console.print(Group(*parts, Text(summary(status), "bold")))
    return "".join(f"{line.rstrip(' ')}\n" for line in shown.get().splitlines())  # rich fills cells with blanks


def by_application(status: Status) -> Iterator[tuple[str, Sequence[ImageStatus], Sequence[Problem]]]:
    """Yield each Application with its images and its problems. Problems without an Application are in the log."""
    wrong: dict[str, list[Problem]] = {}
    for problem in status.problems:
        if problem.application:
            wrong.setdefault(problem.application, []).append(problem)
    of_app = {app: list(rows) for app, rows in groupby(status.images, lambda one: one.subscription.application.key)}
    for app in sorted({*of_app, *wrong}):
        yield app, of_app.get(app, []), wrong.get(app, [])


def _rows(rows: Sequence[ImageStatus], console: Console) -> Iterator[RenderableType]:
    symbols = SYMBOLS if console.encoding.startswith("utf") else MARKS
    for one in rows:
        word = state(one)
        head = Text.assemble((f"{symbols[word]} {word:8}", STYLES[word]), f" {printable(name(one))}  ")
        head.append(printable(says(one)), "bold")
        yield Padding(head, (0, 0, 0, 2))
        yield _grid([(Text(label, "dim"), Text(printable(text))) for label, text in facts(one)])


def _problem(problem: Problem) -> RenderableType:
    style = STYLES[problem.severity]
    rows = [
        (
            Text(problem.severity, style),
            Text.assemble((printable(problem.rule), style), ": ", printable(without_logins(problem.message))),
        )
    ]
    rows += [(Text("fix", "dim"), Text(printable(without_logins(problem.hint)), "bold"))] if problem.hint else []
    return _grid(rows)


def _grid(rows: Sequence[tuple[Text, Text]]) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=8)
    grid.add_column(overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return Padding(grid, (0, 0, 0, 6))
