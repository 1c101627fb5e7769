"""A report as a person at a terminal reads it: decisions in a table by Application, then the commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from task.output.colour import Look, paint, painted_diff
from task.output.columns import columns, pad, wrap
from task.text import printable

JSON = Mapping[str, Any]
# How each verdict looks: a symbol, the same in ASCII, a style.
VERDICTS = {
    "update": ("✓", "+", "green"),
    "unchanged": ("=", "=", "dim"),
    "refuse": ("✗", "-", "yellow"),
    "defer": ("◷", "~", "cyan"),
    "error": ("!", "!", "bold red"),
}
STATUSES = {"updated": "bold green", "unchanged": "bold", "refused": "bold yellow", "failed": "bold red"}
_VERDICT, _GAP, _REASON = 11, 2, 44  # columns: of the first one with its mark; between two; that a reason needs


@dataclass(frozen=True)
class _Row:
    """One decision, as texts."""

    verdict: str
    image: str
    change: str
    rule: str
    because: str
    more: tuple[str, ...]


def table(report: JSON, look: Look) -> str:
    """The whole report, no line of the table wider than the look allows."""
    if not (report["images"] or report["decisions"] or report["commits"]):
        return _summary(report, look) + "\n"
    lines = [*_title(report, look), *_decisions(report, look)]
    for commit in report["commits"]:
        lines += ["", *_commit(commit, look)]
    return "\n".join([*lines, "", _summary(report, look)]) + "\n"


def _title(report: JSON, look: Look) -> list[str]:
    images = ", ".join(printable(one["reference"]) for one in report["images"])
    return [paint(line, "bold", look) for line in wrap(f"{printable(report['command'])} {images}", look.width)]


def _decisions(report: JSON, look: Look) -> list[str]:
    hints = {(one["application"], one["message"]): one["hint"] for one in report["errors"] if one["hint"]}
    groups = [
        (app, [_row(one, hints, look) for one in members])
        for app, members in groupby(report["decisions"], key=lambda one: str(one["application"]))
    ]
    if not groups and report["status"] != "failed":
        return ["", *wrap(f"no Application takes it ({report['counts']['applications']} looked at)", look.width)]
    sizes = _sizes([row for _, rows in groups for row in rows], look.width)
    lines = []
    for app, rows in groups:
        lines += ["", *(paint(line, "bold blue", look) for line in wrap(printable(app), look.width))]
        lines += [line for row in rows for line in _shown(row, sizes, look)]
    return lines


def _row(one: JSON, hints: Mapping[tuple[str, str], str], look: Look) -> _Row:
    alias = f"{one['alias']}=" if one["alias"] else ""
    was, now = printable(one["current"] or "(none)"), printable(one["candidate"] or "(none)")
    arrow = "→" if look.symbols else "->"
    change = {"update": f"{was} {arrow} {now}", "unchanged": was}.get(one["verdict"], f"{was}, not {now}")
    hint = hints.get((one["application"], one["because"])) if one["verdict"] == "error" else None
    file = one["file"] if one["verdict"] in ("update", "unchanged") else None
    more = (f"do: {printable(hint)}" if hint else "", printable(file) if file else "")
    image = printable(alias + one["image"])
    texts = (one["verdict"], image, change, printable(one["rule"]), printable(one["because"]))
    return _Row(*texts, tuple(filter(None, more)))


def _sizes(rows: Iterable[_Row], width: int) -> tuple[int, int, int]:
    """Columns for image, change and reason; 0 where it goes on lines of its own."""
    image, change = max(columns(row.image) for row in rows), max(columns(row.change) for row in rows)
    left = width - _GAP - _VERDICT - image - _GAP
    if left < change:
        return 0, 0, 0
    reason = left - change - 2 * _GAP
    return image, change, reason if reason >= _REASON else 0


def _shown(row: _Row, sizes: tuple[int, int, int], look: Look) -> list[str]:
    """The row side by side as far as there is room, and below each other where there is none."""
    symbol, ascii_mark, style = VERDICTS.get(row.verdict, ("?", "?", ""))
    verdict = f"{symbol if look.symbols else ascii_mark} {row.verdict}"
    head = " " * _GAP + paint(pad(verdict, _VERDICT), style, look)
    image, change, reason = sizes
    bold = "bold" if row.verdict == "update" else ""
    if not image:
        return [
            " " * _GAP + paint(verdict, style, look),
            *_below(row.image, "", look),
            *_below(row.change, bold, look),
            *_reasons(row, look),
        ]
    line = f"{head}{pad(row.image, image)}{' ' * _GAP}"
    if not reason:
        return [line + paint(row.change, bold, look), *_reasons(row, look)]
    line += paint(pad(row.change, change), bold, look)
    first, *others = [
        piece for number, text in enumerate(_texts(row)) for piece in _styled(text, number, row, reason, look)
    ]
    indent = " " * (look.width - reason)
    return [f"{line}{' ' * (2 * _GAP)}{first}", *(indent + other for other in others)]


def _texts(row: _Row) -> tuple[str, ...]:
    return (f"{row.rule}: {row.because}", *row.more)


def _reasons(row: _Row, look: Look) -> list[str]:
    room = look.width - 3 * _GAP
    pieces = (piece for number, text in enumerate(_texts(row)) for piece in _styled(text, number, row, room, look))
    return [" " * (3 * _GAP) + piece for piece in pieces]


def _styled(text: str, number: int, row: _Row, width: int, look: Look) -> list[str]:
    """A text in lines; the rule stands out, the file does not."""
    lines = wrap(text, width)
    if number:
        return [paint(line, "bold" if text.startswith("do: ") else "dim", look) for line in lines]
    if lines[0].startswith(f"{row.rule}:"):
        style = VERDICTS.get(row.verdict, ("", "", ""))[2]
        lines[0] = paint(row.rule, style, look) + lines[0][len(row.rule) :]
    return lines


def _below(text: str, style: str, look: Look) -> list[str]:
    return [" " * (2 * _GAP) + paint(line, style, look) for line in wrap(text, look.width - 2 * _GAP)]


def _commit(one: JSON, look: Look) -> list[str]:
    name = f"commit {printable(one['commit'][:12])}" if one["commit"] else "would commit"
    place = f"on {printable(one['head'])} of {printable(one['repository'])}"
    first, *rest = wrap(f"{name} {place}", look.width)
    if first.startswith(name):
        first = paint(name, "bold magenta", look) + first[len(name) :]
    lines = [first, *rest]
    if one["attempts"] > 1:
        lines += _below(f"others were faster {one['attempts'] - 1} times", "dim", look)
    if one["pull_request"]:
        lines += _below(printable(one["pull_request"]), "cyan", look)
    if one.get("diff"):
        return [*lines, *painted_diff(one["diff"], look)]
    return [*lines, *(line for file in one["files"] for line in _below(printable(file), "", look))]


def _summary(report: JSON, look: Look) -> str:
    numbers = {name: number for name, number in report["counts"].items() if name not in ("applications", "matched")}
    parts = ", ".join(f"{number} {name}" for name, number in numbers.items() if number)
    nothing = "nothing was done" if report["status"] == "failed" else "nothing to do"
    style = STATUSES.get(report["status"], "")
    return "\n".join([paint(line, style, look) for line in wrap(f"{report['status']}: {parts or nothing}", look.width)])
