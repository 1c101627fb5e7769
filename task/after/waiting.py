"""Waiting for Argo CD, using the loop in `argocd.rollouts` and the rules in `argocd.rollout`.

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

_FULL_LENGTH = 40  # characters of a commit id
_SECONDS_BETWEEN_QUERIES = 15.0  # seconds before a failed query is repeated
# (subscription, repository, revision, commit) → how they relate: a "newer" revision contains the
# commit, and "" means unknown
Descends = Callable[[Subscription | None, str, str, str], str]
_KNOWN_RELATIONS = ("newer", "same", "older", "unrelated")
# The mark, style, and rank of each state. The rank matters if there is not enough room for all
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
    """Wait for the rollouts of all awaited Applications for at most `limit` seconds, and show
    progress. With `refresh`, have Argo CD compare the Applications with Git in the meantime.

    Return how each rollout ended, and the errors for rollouts whose outcome is unknown, keyed by
    Application.
    """
    rollouts = Rollouts(api, awaited, Pace(limit), log=log, refreshes=refresh)
    with display(log, environ, limit) as show:
        for sight in rollouts.sights():
            show(sight)
    return rollouts.rows, rollouts.errors


def judge_of(
    is_wanted: Callable[[str], bool], repository: str = "", *, spec: bool = False
) -> Judge:
    """Return a judge (a function that returns a rollout's progress) for the rollout of any revision
    for which `is_wanted` returns True.

    Only the Application's sources from `repository` must be at such a revision ("" means all
    sources). With `spec`, Argo CD must have compared with the Application's current spec.
    """
    is_in_repository = partial(same, repository)

    def judge_revision(item: Mapping[str, Any], since: str, details: Details) -> Rollout:
        """Return the progress of the rollout of the Application `item`."""
        wanted = Wanted(is_wanted, since, applies_to=is_in_repository, needs_current_spec=spec)
        return judge(item, wanted, details)

    return judge_revision


def same(repository: str, other: str) -> bool:
    """Return whether two URLs are for the same repository. "" matches any repository."""
    return not repository or normal_url(other) == normal_url(repository)


def repositories(item: Mapping[str, Any]) -> list[str]:
    """Return the repositories of the Application's sources."""
    spec = mapping(item, "spec")
    sources = (*mappings(spec, "sources"), mapping(spec, "source"))
    return [str(source["repoURL"]) for source in sources if source.get("repoURL")]


def holding(relation_to_commit: Callable[[str], str], commit: str) -> Callable[[str], bool]:
    """Return a function that returns whether a revision contains a commit.

    It does if it is that commit, or if `relation_to_commit` returns "newer" or "same" for it. It
    does not if the result is "older" or "unrelated". These results are cached. Any other result
    means that the relation is unknown: the revision is not accepted for now, and
    `relation_to_commit` is called again after `_SECONDS_BETWEEN_QUERIES`.
    """
    contains_by_revision: dict[str, bool] = {}
    next_query: dict[str, float] = {}  # when to repeat a query whose result was unknown

    def contains_commit(revision: str) -> bool:
        """Return whether the revision is known to contain the commit."""
        if accepts(commit, revision):
            return True
        if not revision:  # Argo CD has not synced yet
            return False
        if revision in contains_by_revision:
            return contains_by_revision[revision]
        if monotonic() < next_query.get(revision, 0.0):
            return False
        relation = relation_to_commit(revision)
        if relation not in _KNOWN_RELATIONS:
            next_query[revision] = monotonic() + _SECONDS_BETWEEN_QUERIES
            return False
        contains_by_revision[revision] = relation in ("newer", "same")
        return contains_by_revision[revision]

    return contains_commit


def all_of(judges: Sequence[Judge]) -> Judge:
    """Combine several judges (functions that return a rollout's progress) into one.

    The combined judge returns the most serious of their results: a rollout that is not complete, or
    else one that is unsure, or else one that is paused.
    """
    if len(judges) == 1:
        return judges[0]

    def judge_by_all(item: Mapping[str, Any], since: str, details: Details) -> Rollout:
        rollouts = [judge(item, since, details) for judge in judges]
        return max(rollouts, key=_seriousness)

    return judge_by_all


def _seriousness(rollout: Rollout) -> tuple[bool, bool, bool]:
    """Return a sort key that is greater for a more serious state. Rollouts that are not complete
    are the most serious, then those that are unsure, then those that are paused.
    """
    is_incomplete = rollout.state not in ROLLED_OUT
    is_unsure = not rollout.sure
    return is_incomplete, is_unsure, rollout.state == "paused"


def accepts(wanted: str, revision: str) -> bool:
    """Return whether a revision is the wanted one. The wanted one may be abbreviated."""
    is_abbreviated = len(wanted) < _FULL_LENGTH
    return revision == wanted or (is_abbreviated and revision.startswith(wanted))


def rollout_error(
    rows: Iterable[RolloutState],
    errors: Mapping[str, TaskError] = {},
) -> TaskError | None:
    """Return the error for rollouts that did not succeed, or None if all did (or are paused).

    `errors` are errors from Argo CD's API. If there are any, return the most important of them
    instead.
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
    """Yield a function that shows a sight: the states of all rollouts at one point in time.

    On a terminal, it updates a table. In a CI job or without a terminal, it logs one line for each
    rollout that has changed. A failure is not logged as an error here, because the command's error
    repeats it at the end, with a hint.
    """

    def log_changes(sight: Sight) -> None:
        for row in sight.changed:
            log("info", line(replace(row, hint="")))

    console = None if environ.get("CI") else log.console
    if console is None:
        yield log_changes
        return
    live = Live(
        console=console,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )

    def update_table(sight: Sight) -> None:
        table = picture(sight.rows, sight.seconds, limit, console.size)
        live.update(table, refresh=True)

    try:
        live.start()
        yield update_table
    finally:
        with shutdown.shield():  # restores the cursor
            live.stop()


def picture(
    rows: Sequence[RolloutState],
    seconds: float,
    limit: float,
    size: ConsoleDimensions,
) -> RenderableType:
    """Return a progress bar (for `seconds` elapsed out of `limit`) with one line per Application
    below it, cropped to the terminal's `size`.

    If not all Applications fit, show the first ones by rank: failed Applications, then those that
    need a person, then those in progress. The last line shows how many are left out.
    """
    most_lines = max(size.height, 4) - 2  # without the bar and the cursor's line
    if len(rows) <= most_lines:
        return Group(_progress_bar(rows, seconds, limit), _table_of(rows, size.width))
    by_rank = sorted(rows, key=_rank)
    most_rows = most_lines - 1  # the last line shows how many are left out
    shown_rows = by_rank[:most_rows]
    return Group(
        _progress_bar(rows, seconds, limit),
        _table_of(shown_rows, size.width),
        Text(f"   and {len(rows) - len(shown_rows)} more"),
    )


def _rank(row: RolloutState) -> int:
    _mark, _style, rank = MARKS[row.state]
    return rank


def _progress_bar(rows: Sequence[RolloutState], seconds: float, limit: float) -> Table:
    """Return a bar that shows the number of completed rollouts (`seconds` elapsed out of
    `limit`).
    """
    completed_rows = [row for row in rows if row.state == "synced-and-healthy"]
    completed = len(completed_rows)
    bar = ProgressBar(
        total=max(len(rows), 1),
        completed=completed if rows else 1,  # if there are no rollouts, the bar is full
        width=20,
    )
    times = f"{_duration_text(seconds)} of {_duration_text(limit)}"
    label = f"{completed} of {len(rows)} rolled out, {times}"
    grid = Table.grid(padding=(0, 1))
    grid.add_row(bar, Text(label))
    return grid


def _table_of(rows: Sequence[RolloutState], width: int) -> Table:
    """Return a table with a line for each rollout: a mark for its state (such as "!!"), its
    Application, and the reason for its state.

    `width` is the terminal's width. The Applications take up at most half of it.
    """
    longest_name = max((cell_len(printable(row.application)) for row in rows), default=0)
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(width=2)
    table.add_column(width=min(longest_name, width // 2), no_wrap=True)
    table.add_column(ratio=1, no_wrap=True)
    for row in rows:
        mark, style, _rank = MARKS[row.state]
        table.add_row(
            Text(mark, style),
            Text(printable(row.application)),
            Text(printable(row.because)),
        )
    return table


def line(row: RolloutState) -> str:
    """Return the log line for one rollout's state."""
    hint = ""
    if row.hint and row.ended:
        hint = f"; {printable(row.hint)}"
    return (
        f"{printable(row.application)}: {row.state} after {_duration_text(row.seconds)}:"
        f" {printable(row.because)}{hint}"
    )


def why_not_rolled_out(row: RolloutState) -> str:
    """Return a description of what happened to an Application that did not roll out."""
    because = printable(row.because)
    if row.state == "timed-out":
        return f"not synced and healthy after {_duration_text(row.seconds)}: {because}"
    return because


def summary(rows: Sequence[RolloutState]) -> str:
    """Return a sentence about the Applications that did not roll out. There must be at least one.

    If `rows` has only one Application, the sentence says what happened to it. Otherwise, it lists
    the names: "2 of 3 Applications did not roll out: a/web, a/api".
    """
    failed = [row for row in rows if row.state not in ROLLED_OUT]
    if len(rows) == 1:
        return f"{printable(failed[0].application)}: {why_not_rolled_out(failed[0])}"
    names = and_more([printable(row.application) for row in failed])
    return f"{len(failed)} of {len(rows)} Applications did not roll out: {names}"


def _duration_text(duration: float) -> str:
    """Return a duration in seconds as `42 s`, `3:05 min`, or `1:03:05`."""
    all_minutes, seconds = divmod(int(duration), 60)
    hours, minutes = divmod(all_minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{seconds:02}"
    if minutes:
        return f"{minutes}:{seconds:02} min"
    return f"{seconds} s"
