"""Pure: what waits on a head branch. A newer event updates it; an older one changes nothing, and nothing else is lost.

A head branch is always one commit on the base's tip. So what it holds already for images that this event is not
about is decided and written again; and what is remembered there counts as if it were merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from task.errors import TaskError
from task.model import Build, Decision, File, Memory, Reading, Snapshot, Subscription, Verdict
from task.pipeline.decide import Ask, decide_one, reading, state_of, state_path
from task.pipeline.weigh import Facts, Terms, key_of
from task.policy.order import version_of
from task.policy.remember import holding, said
from task.policy.strategies import STRATEGIES

Heads = Mapping[str, Snapshot]  # the head branches that exist, by name


def with_state(base: Snapshot, head: Snapshot, subs: Iterable[Subscription]) -> Snapshot:
    """The base, with what the head branch remembers of these Applications."""
    files = dict(base.files)
    for path in dict.fromkeys(map(state_path, subs)):
        files.pop(path, None)
        if path in head.files:
            files[path] = head.files[path]
    return replace(base, files=files)


def waiting(base: Snapshot, head: Snapshot, sub: Subscription, terms: Terms) -> Decision | None:
    """The update that the head branch holds for an image; None where it has none that the base would still take."""
    try:
        ours, theirs = reading(base, sub, terms), reading(head, sub, terms)
    except TaskError:
        return None
    if not version_of(theirs) or version_of(ours) == version_of(theirs):
        return None
    image = replace(sub.entry.image, tag=theirs.tag, digest=theirs.digest)
    found = decide_one(_forgetful(base), Ask(sub, (image,)), replace(terms, build=Build(), require_live=False))
    why = _rolled_back((ours, theirs), head, sub, terms) if found.verdict.verdict in ("refuse", "update") else ""
    if why:
        return replace(found, candidate=image, verdict=Verdict("update", "admitted", why), rolled_back=True)
    return found if found.verdict.verdict == "update" else None


def _rolled_back(values: tuple[Reading, Reading], head: Snapshot, sub: Subscription, terms: Terms) -> str:
    """What a rollback that waits on a head branch said: from which version, and why it is held; "" where none waits.

    `values` are those of the base and of the head branch.
    """
    ours, theirs = values
    try:
        state = state_of(head, sub)
    except TaskError:
        return ""
    memory = state.images.get(key_of(sub), Memory())
    by_an_event = memory.written is not None and version_of(memory.written) == version_of(theirs)
    if by_an_event or version_of(ours) not in memory.replaced:
        return ""
    hold = holding(state, memory, terms.now)
    return f"rolled back from {version_of(ours)}{f'; {said(hold)}' if hold else ''}"


def _forgetful(base: Snapshot) -> Snapshot:
    """Without what is remembered: the order of builds was asked when the head branch was written."""
    files: dict[str, File] = {path: one for path, one in base.files.items() if not path.startswith(".image-update/")}
    return replace(base, files=files)


def again(base: Snapshot, head: Snapshot, ask: Ask, terms: Terms, facts: Facts) -> Decision:
    """The decision about an ask, now that its head branch has been seen."""
    sub = ask.subscription
    there = waiting(base, head, sub, terms)
    # A person's word is about what the base says, not about what waits.
    said = Reading(tag=there.candidate.tag, digest=there.candidate.digest) if there and not ask.intent else None
    decision = decide_one(with_state(base, head, [sub]), ask, terms, facts, said)
    if there is None or decision.verdict.verdict != "update" or ask.intent:
        return decision
    why = STRATEGIES[sub.policy.strategy].older(decision.candidate.tag, there.candidate.tag)
    if not why or decision.candidate.tag == there.candidate.tag:
        return decision
    because = f"{there.candidate.version} waits on {head.branch} already: {why}"
    return replace(decision, verdict=Verdict("refuse", "superseded", because), memory=None, hold=())


def carried(
    base: Snapshot, head: Snapshot, asked: Sequence[tuple[Ask, Decision]], terms: Terms
) -> tuple[Decision, ...]:
    """What else the head branch holds for these Applications: it is written again, and is no news."""
    written = {_key(one.subscription) for _, one in asked if one.verdict.verdict == "update"}
    siblings = {_key(sub): sub for ask, _ in asked for sub in ask.siblings}
    updates = (waiting(base, head, sub, terms) for key, sub in siblings.items() if key not in written)
    return tuple(
        replace(one, head=head.branch, carried=True, memory=None, hold=()) for one in updates if one is not None
    )


def _key(sub: Subscription) -> tuple[str, str, str, str]:
    return sub.application.key, sub.entry.text, sub.target, sub.path
