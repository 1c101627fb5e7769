"""Writes the result of `status` for people: plain text for pipes and logs, a table for terminals.

Errors and warnings are in the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from task.model import ImageStatus, Status
from task.output.status_words import facts, name, note, ordered, says, state, summary
from task.text import printable

MARKS = {"held": "~", "waiting": "~", "proposed": ">", "behind": "<", "differs": "-", "unknown": "?", "ok": "="}
SYMBOLS = {**MARKS, "held": "◷", "waiting": "◷", "proposed": "↗", "behind": "↓", "differs": "≠", "ok": "✓"}
STYLES = {
    "held": "cyan", "waiting": "cyan", "proposed": "magenta", "behind": "yellow", "differs": "yellow",
    "unknown": "yellow", "ok": "dim",
}  # fmt: skip


def plain(status: Status, *, brief: bool = False) -> str:
    """Return the status as plain text: one line for each image and, unless it is to be brief, its facts below."""
    lines: list[str] = []
    for one in ordered(status):
        lines.append(f"{state(one):8}  {'  '.join(filter(None, _words(one, brief=brief)))}")
        lines += () if brief else [f"      {label:8} {text}" for label, text in facts(one)]
    return "\n".join(map(printable, [*lines, summary(status)])) + "\n"


def table(status: Status, console: Console, *, brief: bool = False) -> str:
    """Return the status for a console, as `plain`. No line is wider than the console."""
    symbols = SYMBOLS if console.encoding.startswith("utf") else MARKS
    parts: list[RenderableType] = []
    rows = [
        (Text(f"{symbols[state(one)]} {state(one):8}", STYLES[state(one)]), *map(_cell, _words(one, brief=brief)))
        for one in ordered(status)
    ]
    if brief:
        parts.append(_grid(rows))
    for one, row in () if brief else zip(ordered(status), rows, strict=True):
        known = [(Text(f"{label:8}", "dim"), _cell(text)) for label, text in facts(one)]
        parts += [Text("  ").join(row), Padding(_grid(known), (0, 0, 0, 6))]
    with console.capture() as shown:
        console.print(Group(*parts, Text(summary(status), "bold")))
    return "".join(f"{line.rstrip(' ')}\n" for line in shown.get().splitlines())  # rich fills cells with blanks


def _words(one: ImageStatus, *, brief: bool) -> tuple[str, str, str, str]:
    return one.subscription.application.key, name(one), says(one), note(one) if brief else ""


def _cell(text: str) -> Text:
    return Text(printable(text))


def _grid(rows: Sequence[tuple[Text, ...]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for _ in rows[0] if rows else ():
        grid.add_column(overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid
