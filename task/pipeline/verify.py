"""What is asked last, and only of what is about to be written: its signature, and the labels that the message tells."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from task.errors import TaskError
from task.model import Answer, Decision, Question, Verdict
from task.pipeline.facts import caution, subject, wrong

# Why an image is not signed as it must be; "" where it is; an error where nobody could tell.
Signatures = Callable[[Collection[Question]], Mapping[Question, str | TaskError]]


@dataclass(frozen=True)
class Vouch:
    """Who is asked; None is not asked at all."""

    registry: Callable[[Collection[Question]], Mapping[Question, Answer]]
    signatures: Signatures | None = None
    labels: bool = False  # whether the message tells them


def vouched(decisions: Sequence[Decision], vouch: Vouch) -> list[Decision]:
    """The decisions; an update is refused where its signature is, and never passes where that cannot be checked."""
    found = list(decisions)
    if vouch.signatures is not None:
        found = _signed(_pinned(found, vouch), vouch.signatures)
    return _labelled(found, vouch) if vouch.labels else found


def _written(one: Decision) -> bool:
    """What waits on a head branch already was asked about when it was written there."""
    return one.verdict.verdict == "update" and not one.carried


def _about(one: Decision) -> Question:
    return subject(one.subscription, one.candidate)


def _pinned(decisions: Sequence[Decision], vouch: Vouch) -> list[Decision]:
    """With the digest that is signed, and that is what gets written."""
    about = [replace(_about(one), facts=("digest",)) for one in decisions if _written(one) and not one.candidate.digest]
    answers = vouch.registry(tuple(dict.fromkeys(about))) if about else {}
    return [
        _with_digest(one, answers[replace(_about(one), facts=("digest",))])
        if _written(one) and not one.candidate.digest
        else one
        for one in decisions
    ]


def _with_digest(one: Decision, answer: Answer) -> Decision:
    if answer.error:
        return _stopped(wrong(one, answer.error))
    if not answer.exists or not answer.digest:
        return _stopped(replace(one, verdict=Verdict("refuse", "not-in-registry", "the registry has no such image")))
    return replace(one, candidate=replace(one.candidate, digest=answer.digest))


def _signed(decisions: Sequence[Decision], signatures: Signatures) -> list[Decision]:
    about = tuple(dict.fromkeys(_about(one) for one in decisions if _written(one)))
    answers = signatures(about) if about else {}
    return [_with_signature(one, answers[_about(one)]) if _written(one) else one for one in decisions]


def _with_signature(one: Decision, why: str | TaskError) -> Decision:
    if isinstance(why, TaskError):
        return _stopped(wrong(one, why))
    if not why:
        return one
    return _stopped(replace(one, verdict=Verdict("refuse", "signature", f"{one.candidate.version}: {why}")))


def _stopped(one: Decision) -> Decision:
    """Nothing is remembered of what is not written."""
    return replace(one, memory=None, hold=())


def _labelled(decisions: Sequence[Decision], vouch: Vouch) -> list[Decision]:
    """Labels decide nothing: without an answer they are empty, and a warning says so."""
    asked = {id(one): replace(_about(one), facts=("labels",)) for one in decisions if _written(one)}
    answers = vouch.registry(tuple(dict.fromkeys(asked.values()))) if asked else {}
    found = []
    for one in decisions:
        answer = answers.get(asked[id(one)]) if id(one) in asked else None
        labels = answer.labels if answer else {}
        found.append(replace(one, labels=labels, caution=one.caution or caution(answer)) if answer else one)
    return found
