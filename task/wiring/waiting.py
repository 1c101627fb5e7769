"""Waiting for Argo CD: the loop of `edges.rollouts`, the rule of `rules.rollout`, and the progress on screen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from task.edges.log import Log
from task.edges.rollout_display import Display
from task.edges.rollouts import Api, Awaited, Judge, Pace, Rollouts
from task.errors import RolloutError, TaskError
from task.parse.write_back import normal_url
from task.rules.rollout import Wanted, judge
from task.words.progress import Row, summary

_FULL = 40  # letters of a commit id


def watch(
    api: Api, awaited: Sequence[Awaited], limit: float, environ: Mapping[str, str], log: Log
) -> tuple[tuple[Row, ...], TaskError | None]:
    """Wait for all of them, with the progress shown: how each ended, and why the API could not tell, if so."""
    rollouts = Rollouts(api, awaited, Pace(limit), log=log)
    display = Display(log, environ, limit)
    for sight in rollouts.sights():
        display.show(sight)
    return rollouts.rows, rollouts.error


def judge_of(accepts: Callable[[str], bool], repository: str = "", *, spec: bool = False) -> Judge:
    """The rule of rollouts, for revisions that are accepted of one repository's sources ("" is any)."""
    url = normal_url(repository) if repository else ""

    def ours(other: str) -> bool:
        return not url or normal_url(other) == url

    return lambda item, since, tree, windows: judge(item, Wanted(accepts, since, ours, spec), tree, windows)


def accepts(revision: str, found: str) -> bool:
    """Whether a revision is the wanted one, which may be given by its beginning."""
    return found == revision or (len(revision) < _FULL and found.startswith(revision))


def rollout_error(rows: Iterable[Row]) -> RolloutError | None:
    """The error for those that are not synced and healthy; None where all are."""
    bad = [row for row in rows if row.state != "synced-and-healthy"]
    if not bad:
        return None
    hints = dict.fromkeys(row.hint for row in bad if row.hint)
    return RolloutError(summary(bad), hint="; ".join(hints))
