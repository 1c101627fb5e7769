"""Pure code for `--atomic`: one Application that fails stops the whole commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from task.model import Decision, Judged, Verdict
from task.pipeline.match import Matched
from task.urls import normal_url


def stop_all(settled: Sequence[Decision], changing: Sequence[Decision]) -> tuple[Decision, ...]:
    """Return all decisions, where one settled error has turned those that would change something into errors."""
    broken = next(one for one in settled if one.verdict == "error")
    return (*settled, *(replace(one, judged=_because_of(broken)) for one in changing))


def _because_of(broken: Judged) -> Verdict:
    name = broken.subscription.application.key
    because, hint = f"not written: {name} failed and --atomic is given", f"fix {name}, or leave out --atomic"
    return Verdict("error", broken.rule, because, hint, broken.exit)


def without_the_broken(matched: Matched) -> tuple[Matched, tuple[Decision, ...]]:
    """Drop the asks for repositories of an Application with wrong annotations; return error decisions for them."""
    broken = {
        normal_url(source.repo): one
        for one in (*matched.decisions, *matched.unusable)
        if one.verdict == "error"
        for source in one.subscription.application.sources
    }
    kept, given_up = [], []
    for ask in matched.asks:
        culprit = broken.get(normal_url(ask.subscription.repo))
        if culprit is None:
            kept.append(ask)
        else:
            given_up.append(Decision(ask.subscription, ask.offered, _because_of(culprit)))
    return replace(matched, asks=tuple(kept)), tuple(given_up)
