"""Pure: `--atomic`, one failing Application stops its whole commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from task.annotations.write_back import normal_url
from task.model import Decision, Verdict
from task.pipeline.changeset import changes
from task.pipeline.match import Matched


def stopped(decisions: Sequence[Decision]) -> tuple[Decision, ...]:
    """One error stops every update of the same commit. At least one of the decisions is an error."""
    broken = next(one for one in decisions if one.verdict.verdict == "error")
    why = f"not written: {broken.subscription.application.key} failed and --atomic is given"
    verdict = Verdict("error", broken.verdict.rule, why)
    hint = f"mend {broken.subscription.application.key}, or leave out --atomic"
    return tuple(
        replace(one, verdict=verdict, exit=broken.exit, hint=hint, memory=None, hold=()) if changes(one) else one
        for one in decisions
    )


def without_the_broken(matched: Matched) -> tuple[Matched, tuple[Decision, ...]]:
    """An Application whose annotations are wrong stops the commits to its own repositories."""
    broken = {
        normal_url(source.repo): one
        for one in matched.decisions
        if one.verdict.verdict == "error"
        for source in one.subscription.application.sources
    }
    kept, given_up = [], []
    for ask in matched.asks:
        culprit = broken.get(normal_url(ask.subscription.repo))
        if culprit is None:
            kept.append(ask)
        else:
            meant = Decision(ask.subscription, ask.candidates[0], Verdict("update", "admitted", ""))
            given_up.append(stopped((culprit, meant))[1])
    return replace(matched, asks=tuple(kept)), tuple(given_up)
