"""Waits for Argo CD, with the loop of `argocd.rollouts`, the rules of `argocd.rollout`, and progress on screen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import Any

from task.argocd.rollout import ROLLED_OUT, Rollout, Wanted, judge
from task.argocd.rollout_display import display, summary
from task.argocd.rollouts import Awaited, Judge, Pace, RolloutApi, Rollouts, RolloutState
from task.errors import PRECEDENCE, RolloutError, TaskError
from task.git.ancestry import Lineage
from task.git.command import Git
from task.model import Subscription
from task.output.log import Log
from task.plain_data import mapping, mappings
from task.urls import normal_url

_FULL = 40  # characters of a commit id
_AGAIN = 15.0  # seconds before an unanswered question is repeated

# (subscription, repository, revision, commit) → how they relate: "newer" contains it, "" is unknown
Descends = Callable[[Subscription | None, str, str, str], str]
_TOLD = ("newer", "same", "older", "unrelated")


def watch(
    api: RolloutApi,
    awaited: Sequence[Awaited],
    limit: float,
    environ: Mapping[str, str],
    log: Log,
    *,
    refresh: bool = True,
) -> tuple[tuple[RolloutState, ...], Mapping[str, TaskError]]:
    """Wait for all of them with progress, and return how each ended, and the errors about unknown ends."""
    rollouts = Rollouts(api, awaited, Pace(limit), log=log, refreshes=refresh)
    with display(log, environ, limit) as show:
        for sight in rollouts.sights():
            show(sight)
    return rollouts.rows, rollouts.errors


def judge_of(accepts: Callable[[str], bool], repository: str = "", *, spec: bool = False) -> Judge:
    """Return a judge that accepts these revisions in the sources of one repository ("" means any)."""

    def ours(other: str) -> bool:
        return same(repository, other)

    return lambda item, since, *seen: judge(item, Wanted(accepts, since, ours, spec), *seen)


def same(repository: str, other: str) -> bool:
    """Tell whether two URLs are for the same repository; "" means any."""
    return not repository or normal_url(other) == normal_url(repository)


def repositories(item: Mapping[str, Any]) -> list[str]:
    """Return the repositories of the Application's sources."""
    spec = mapping(item.get("spec"))
    several = (*mappings(spec.get("sources")), mapping(spec.get("source")))
    return [str(one["repoURL"]) for one in several if one.get("repoURL")]


def descent(git: Callable[[], Git], repo: str, pair: tuple[str, str], log: Log) -> str:
    """Return how (revision, commit) relate, like `Lineage`, or "" if Git cannot be asked."""
    revision, commit = pair
    try:
        lineage = Lineage(git())
    except TaskError as error:
        log("debug", f"{revision[:12]} is not looked at: {error}")
        return ""
    try:
        kin = lineage.order(repo, commit, revision)
    finally:
        lineage.close()
    if kin.why:
        log("debug", f"it is not known whether {revision[:12]} contains {commit[:12]}: {kin.why}")
    return str(kin.order)


def holding(asked: Callable[[str], str], commit: str, now: Callable[[], float] = monotonic) -> Callable[[str], bool]:
    """Tell whether a revision contains a commit: it is that commit, or a later one ("newer") as `asked` says.

    If the answer is unknown now, the question is repeated after a while.
    """
    known: dict[str, bool] = {}
    pauses: dict[str, float] = {}

    def holds(revision: str) -> bool:
        if accepts(commit, revision):
            return True
        if revision in known or not revision or now() < pauses.get(revision, 0.0):
            return known.get(revision, False)
        said = asked(revision)
        if said in _TOLD:
            known[revision] = said in ("newer", "same")
        else:
            pauses[revision] = now() + _AGAIN
        return known.get(revision, False)

    return holds


def all_of(judges: Sequence[Judge]) -> Judge:
    """Combine judges: return the first result that is not rolled out, else one that is not sure or paused."""
    if len(judges) == 1:
        return judges[0]

    def judged(*seen: Any) -> Rollout:
        found = [judge(*seen) for judge in judges]
        return max(found, key=lambda one: (one.state not in ROLLED_OUT, not one.sure, one.state == "paused"))

    return judged


def accepts(revision: str, found: str) -> bool:
    """Tell whether a revision is the wanted one, which may be abbreviated."""
    return found == revision or (len(revision) < _FULL and found.startswith(revision))


def rollout_error(rows: Iterable[RolloutState], errors: Mapping[str, TaskError] = {}) -> TaskError | None:
    """Return the error for rollouts that did not succeed, or None. An error of the API comes first."""
    if errors:
        return min(errors.values(), key=lambda one: PRECEDENCE.index(one.exit))
    every = list(rows)
    bad = [row for row in every if row.state not in ROLLED_OUT]
    if not bad:
        return None
    hints = dict.fromkeys(row.hint for row in bad if row.hint)
    return RolloutError(summary(every), hint="; ".join(hints))
