"""Shows rollouts: a live table on a terminal, one line per change in a log, and a sentence at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from rich.cells import cell_len
from rich.console import ConsoleDimensions, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from task import shutdown
from task.argocd.rollout import ROLLED_OUT
from task.argocd.rollouts import RolloutState, Sight
from task.output.log import Log
from task.text import and_more, printable

# The mark and the style of each state.
MARKS = {
    "waiting": ("..", ""),
    "progressing": ("->", "cyan"),
    "synced-and-healthy": ("ok", "green"),
    "paused": ("||", "yellow"),
    "failed": ("!!", "red"),
    "needs-sync": ("??", "yellow"),
    "timed-out": ("!!", "red"),
}
_WEIGHTS = {
    "failed": 0,
    "timed-out": 0,
    "needs-sync": 1,
    "paused": 1,
    "synced-and-healthy": 3,
}  # 2 is for all other states


@contextmanager
def display(log: Log, environ: Mapping[str, str], limit: float) -> Iterator[Callable[[Sight], None]]:
    """Show the sights as they come. The log of a CI job gets a line for each change.

    A failure is not logged as an error here, because the command's own error repeats it at the end, with what to do.
    """

    def tell(sight: Sight) -> None:
        for row in sight.changed:
            log("info", line(replace(row, hint="")))

    console = None if environ.get("CI") else log.console
    if console is None:
        yield tell
        return
    live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
    try:
        live.start()
        yield lambda sight: live.update(picture(sight.rows, sight.seconds, limit, console.size), refresh=True)
    finally:
        with shutdown.shield():  # restores the cursor
            live.stop()


def picture(rows: Sequence[RolloutState], seconds: float, limit: float, size: ConsoleDimensions) -> RenderableType:
    """Draw all Applications at `seconds` of at most `limit`, one line each, cut at the terminal's width.

    If they need more than the height, failed ones come first, then open ones.
    """
    most = max(size.height, 4) - 2
    shown = rows if len(rows) <= most else sorted(rows, key=lambda row: _WEIGHTS.get(row.state, 2))[: most - 1]
    done = sum(row.state == "synced-and-healthy" for row in rows)
    bar = Table.grid(padding=(0, 1))
    bar.add_row(
        ProgressBar(total=max(len(rows), 1), completed=done if rows else 1, width=20),
        Text(f"{done} of {len(rows)} rolled out, {_time(seconds)} of {_time(limit)}"),
    )
    widest = max((cell_len(printable(row.application)) for row in shown), default=0)
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(width=2)
    table.add_column(width=min(widest, size.width // 2), no_wrap=True)
    table.add_column(ratio=1, no_wrap=True)
    for row in shown:
        mark, style = MARKS[row.state]
        table.add_row(Text(mark, style), Text(printable(row.application)), Text(printable(row.because)))
    more = [Text(f"   and {len(rows) - len(shown)} more")] if len(shown) < len(rows) else []
    return Group(bar, table, *more)


def line(row: RolloutState) -> str:
    """Return one change as a line for the log."""
    hint = f"; {printable(row.hint)}" if row.hint and row.ended else ""
    return f"{printable(row.application)}: {row.state} after {_time(row.seconds)}: {printable(row.because)}{hint}"


def told(row: RolloutState) -> str:
    """Return what happened to an Application that is not rolled out."""
    late = f"not synced and healthy after {_time(row.seconds)}: " if row.state == "timed-out" else ""
    return f"{late}{printable(row.because)}"


def summary(rows: Sequence[RolloutState]) -> str:
    """Return what is wrong in one sentence. If several are not rolled out, it has only their names."""
    bad = [row for row in rows if row.state not in ROLLED_OUT]
    if len(rows) == 1:
        return f"{printable(bad[0].application)}: {told(bad[0])}"
    names = and_more([printable(row.application) for row in bad])
    return f"{len(bad)} of {len(rows)} Applications are not rolled out: {names}"


def _time(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:  # a minute
        return f"{whole} s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02} min"
