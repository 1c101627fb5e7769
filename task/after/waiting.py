"""Waits for Argo CD, using the loop in `argocd.rollouts` and the rules in `argocd.rollout`.

Progress is shown in a live table on a terminal, or in a log with one line per change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any

from rich.cells import cell_len
from rich.console import ConsoleDimensions, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from task import shutdown
from task.argocd.application_store import ApplicationApi
from task.argocd.rollout import ROLLED_OUT, Details, Rollout, Wanted, judge
from task.argocd.rollouts import Awaited, Judge, Pace, Rollouts, RolloutState, Sight
from task.errors import PRECEDENCE, RolloutError, TaskError
from task.model import Subscription
from task.output.log import Log
from task.plain_data import mapping, mappings
from task.text import and_more, printable
from task.urls import normal_url

_FULL = 40  # characters of a commit id
_AGAIN = 15.0  # seconds before a failed query is repeated
# (subscription, repository, revision, commit) → how they relate: "newer" contains the commit, "" is
# unknown
Descends = Callable[[Subscription | None, str, str, str], str]
_KNOWN_RELATIONS = ("newer", "same", "older", "unrelated")
# Each state's mark, style, and rank. The rank matters if there is not enough room for all
# Applications.
MARKS = {
    "failed": ("!!", "red", 0),
    "timed-out": ("!!", "red", 0),
    "needs-sync": ("??", "yellow", 1),
    "paused": ("||", "yellow", 1),
    "waiting": ("..", "", 2),
    "progressing": ("->", "cyan", 2),
    "synced-and-healthy": ("ok", "green", 3),
}


def watch(
    api: ApplicationApi,
    awaited: Sequence[Awaited],
    limit: float,
    environ: Mapping[str, str],
    log: Log,
    *,
    refresh: bool = True,
) -> tuple[tuple[RolloutState, ...], Mapping[str, TaskError]]:
    """Wait for all Applications and show progress.

    Return how each rollout ended, and the errors for rollouts whose outcome is unknown.
    """
    rollouts = Rollouts(api, awaited, Pace(limit), log=log, refreshes=refresh)
    with display(log, environ, limit) as show:
        for sight in rollouts.sights():
            show(sight)
    return rollouts.rows, rollouts.errors


def judge_of(accepts: Callable[[str], bool], repository: str = "", *, spec: bool = False) -> Judge:
    """Return a judge that accepts these revisions in sources from one repository ("" means any)."""
    ours = partial(same, repository)
    return lambda item, since, details: judge(item, Wanted(accepts, since, ours, spec), details)


def same(repository: str, other: str) -> bool:
    """Return whether two URLs are for the same repository. "" matches any."""
    return not repository or normal_url(other) == normal_url(repository)


def repositories(item: Mapping[str, Any]) -> list[str]:
    """Return the repositories of the Application's sources."""
    spec = mapping(item, "spec")
    sources = (*mappings(spec, "sources"), mapping(spec, "source"))
    return [str(source["repoURL"]) for source in sources if source.get("repoURL")]


def holding(asked: Callable[[str], str], commit: str) -> Callable[[str], bool]:
    """Return a function that returns whether a revision contains a commit:
    it is that commit, or `asked` reports it as later ("newer"). If the result is unknown, the query
    is repeated after a while.
    """
    known: dict[str, bool] = {}  # whether a revision contains the commit
    next_query: dict[str, float] = {}  # when to repeat a query whose result was unknown

    def holds(revision: str) -> bool:
        if accepts(commit, revision):
            return True
        if not revision:
            return False
        if revision in known:
            return known[revision]
        if monotonic() < next_query.get(revision, 0.0):
            return False
        relation = asked(revision)
        if relation not in _KNOWN_RELATIONS:
            next_query[revision] = monotonic() + _AGAIN
            return False
        known[revision] = relation in ("newer", "same")
        return known[revision]

    return holds


def all_of(judges: Sequence[Judge]) -> Judge:
    """Combine judges: return the first result that is not rolled out, else a result that is unsure
    or paused.
    """
    if len(judges) == 1:
        return judges[0]

    def judged(item: Mapping[str, Any], since: str, details: Details) -> Rollout:
        rollouts = [judge(item, since, details) for judge in judges]
        return max(rollouts, key=_concern)

    return judged


def _concern(rollout: Rollout) -> tuple[bool, bool, bool]:
    """Return a key that is greater for a rollout that matters more to a person."""
    return rollout.state not in ROLLED_OUT, not rollout.sure, rollout.state == "paused"


def accepts(revision: str, other: str) -> bool:
    """Return whether the other revision is the wanted one, which may be abbreviated."""
    return other == revision or (len(revision) < _FULL and other.startswith(revision))


def rollout_error(
    rows: Iterable[RolloutState],
    errors: Mapping[str, TaskError] = {},
) -> TaskError | None:
    """Return the error for rollouts that did not succeed, or None.

    API errors come first.
    """
    if errors:
        return min(errors.values(), key=lambda error: PRECEDENCE.index(error.exit))
    all_rows = list(rows)
    failed = [row for row in all_rows if row.state not in ROLLED_OUT]
    if not failed:
        return None
    hints = dict.fromkeys(row.hint for row in failed if row.hint)
    return RolloutError(summary(all_rows), hint="; ".join(hints))


@contextmanager
def display(
    log: Log,
    environ: Mapping[str, str],
    limit: float,
) -> Iterator[Callable[[Sight], None]]:
    """Display each sight. In a CI job, log one line per change.

    A failure is not logged as an error here, because the command's error repeats it at the end,
    with a hint.
    """

    def tell(sight: Sight) -> None:
        for row in sight.changed:
            log("info", line(replace(row, hint="")))

    console = None if environ.get("CI") else log.console
    if console is None:
        yield tell
        return
    live = Live(
        console=console,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    try:
        live.start()
        yield lambda sight: live.update(
            picture(sight.rows, sight.seconds, limit, console.size),
            refresh=True,
        )
    finally:
        with shutdown.shield():  # restores the cursor
            live.stop()


def picture(
    rows: Sequence[RolloutState],
    seconds: float,
    limit: float,
    size: ConsoleDimensions,
) -> RenderableType:
    """Draw one line per Application, cut to the terminal's width, after `seconds` of `limit`.

    If they do not all fit the height, failed Applications come first, then those in progress.
    """
    most = max(size.height, 4) - 2  # without the bar, and the cursor's line
    shown = rows
    if len(rows) > most:
        by_rank = sorted(rows, key=lambda row: MARKS[row.state][2])
        shown = by_rank[: most - 1]  # the last line has the number of the others
    done = sum(row.state == "synced-and-healthy" for row in rows)
    bar = Table.grid(padding=(0, 1))
    bar.add_row(
        ProgressBar(
            total=max(len(rows), 1),
            completed=done if rows else 1,
            width=20,
        ),
        Text(f"{done} of {len(rows)} rolled out, {_minutes(seconds)} of {_minutes(limit)}"),
    )
    widest = max((cell_len(printable(row.application)) for row in shown), default=0)
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(width=2)
    table.add_column(width=min(widest, size.width // 2), no_wrap=True)
    table.add_column(ratio=1, no_wrap=True)
    for row in shown:
        mark, style, _rank = MARKS[row.state]
        table.add_row(
            Text(mark, style),
            Text(printable(row.application)),
            Text(printable(row.because)),
        )
    more = [Text(f"   and {len(rows) - len(shown)} more")] if len(shown) < len(rows) else []
    return Group(bar, table, *more)


def line(row: RolloutState) -> str:
    """Return the log line for one change."""
    hint = f"; {printable(row.hint)}" if row.hint and row.ended else ""
    return (
        f"{printable(row.application)}: {row.state} after {_minutes(row.seconds)}:"
        f" {printable(row.because)}{hint}"
    )


def told(row: RolloutState) -> str:
    """Return what happened to an Application that did not roll out."""
    because = printable(row.because)
    if row.state == "timed-out":
        return f"not synced and healthy after {_minutes(row.seconds)}: {because}"
    return because


def summary(rows: Sequence[RolloutState]) -> str:
    """Return a sentence about the failures.

    If several Applications did not roll out, it only lists their names.
    """
    failed = [row for row in rows if row.state not in ROLLED_OUT]
    if len(rows) == 1:
        return f"{printable(failed[0].application)}: {told(failed[0])}"
    names = and_more([printable(row.application) for row in failed])
    return f"{len(failed)} of {len(rows)} Applications did not roll out: {names}"


def _minutes(seconds: float) -> str:
    """Return a duration: `42 s`, `3:05 min`, or `1:03:05`."""
    all_minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(all_minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02} min" if minutes else f"{rest} s"
