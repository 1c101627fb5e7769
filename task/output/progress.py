"""How rollouts are told: a picture drawn anew on a terminal, one line per change in a log, a sentence at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from task.output.columns import columns
from task.text import printable

# How each state looks: a mark, a colour of the terminal's own, and whether it is an end.
LOOKS = {
    "waiting": ("..", "", False),
    "progressing": ("->", "36", False),
    "synced-and-healthy": ("ok", "32", True),
    "failed": ("!!", "31", True),
    "needs-sync": ("??", "33", True),
    "timed-out": ("!!", "31", True),
}
_NARROWEST, _BAR = 20, 20


@dataclass(frozen=True)
class Row:
    """One Application's rollout at a moment."""

    application: str  # namespace/name
    state: str  # one of LOOKS
    because: str
    hint: str = ""
    seconds: float = 0.0  # since the wait began

    @property
    def ended(self) -> bool:
        """Whether nothing more is waited for."""
        return LOOKS[self.state][2]


def line(row: Row) -> str:
    """One change, for a log."""
    hint = f"; {printable(row.hint)}" if row.hint and row.ended else ""
    return f"{printable(row.application)}: {row.state} after {_time(row.seconds)}: {printable(row.because)}{hint}"


def picture(rows: Sequence[Row], seconds: float, limit: float, *, size: tuple[int, int], colour: bool) -> list[str]:
    """The lines to show at `seconds` of at most `limit`, none wider or more than `size` (columns, lines) allows.

    Where not all Applications fit, those that are still open, and those that failed, come first.
    """
    width, height = max(size[0], _NARROWEST), max(size[1], 4)
    most = height - 2
    shown = rows if len(rows) <= most else sorted(rows, key=_weight)[: most - 1]
    widest = max((columns(row.application) for row in shown), default=0)
    lines = [_bar(rows, seconds, limit, width), *(_row(row, min(widest, width // 2), width, colour) for row in shown)]
    if len(shown) < len(rows):
        lines.append(_cut(f"   and {len(rows) - len(shown)} more", width))
    return lines


def redraw(lines: Sequence[str], before: int) -> str:
    """What to write to a terminal: the lines in place of the `before` lines written last."""
    up = f"\x1b[{before}A\r\x1b[J" if before else ""
    return up + "".join(f"{one}\n" for one in lines)


def summary(rows: Sequence[Row]) -> str:
    """What became of all, in one sentence."""
    bad = [row for row in rows if row.state != "synced-and-healthy"]
    if not bad:
        names = printable(rows[0].application) if len(rows) == 1 else f"{len(rows)} Applications"
        return f"{names}: synced and healthy"
    if len(rows) == 1:
        return f"{printable(bad[0].application)}: {_why(bad[0])}"
    each = "; ".join(f"{printable(row.application)}: {_why(row)}" for row in bad)
    return f"{len(bad)} of {len(rows)} Applications are not rolled out: {each}"


def _why(row: Row) -> str:
    late = f"not synced and healthy after {_time(row.seconds)}: " if row.state == "timed-out" else ""
    return late + printable(row.because)


def _weight(row: Row) -> int:
    return {"failed": 0, "timed-out": 0, "needs-sync": 1, "synced-and-healthy": 3}.get(row.state, 2)


def _bar(rows: Sequence[Row], seconds: float, limit: float, width: int) -> str:
    done = sum(row.state == "synced-and-healthy" for row in rows)
    full = _BAR * done // len(rows) if rows else _BAR
    bar = f"[{'#' * full}{'-' * (_BAR - full)}] "
    text = f"{done} of {len(rows)} rolled out, {_time(seconds)} of {_time(limit)}"
    return _cut(bar + text if width > len(bar + text) else text, width)


def _row(row: Row, widest: int, width: int, colour: bool) -> str:  # noqa: FBT001 - as `picture` has it
    mark, code, _ = LOOKS[row.state]
    name = _cut(printable(row.application), widest)
    name += " " * (widest - columns(name))
    text = _cut(
        f"{name}  {printable(row.because)}", width - 4
    ).rstrip()  # the last column stays empty: some terminals wrap
    return f"\x1b[{code}m{mark}\x1b[0m {text}" if colour and code else f"{mark} {text}"


def _cut(text: str, width: int) -> str:
    """The text in so many columns; what is cut off is marked."""
    if columns(text) < width or (text.isascii() and len(text) <= width):
        return text
    kept, used = "", 0
    for char in text:
        used += columns(char)
        if used > width - 1:
            return f"{kept}…"
        kept += char
    return kept


def _time(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:  # noqa: PLR2004 - a minute
        return f"{whole} s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02} min"
