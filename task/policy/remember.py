"""Decides what a state file remembers after a decision. Pure: an old memory and an event make a new memory."""

from __future__ import annotations

from dataclasses import replace

from task.model import Build, Hold, Meant, Memory, Policy, Reading, State, Written
from task.policy.order import version_of
from task.policy.strategies import rules_of
from task.timestamps import epoch_seconds, readable

MOST = 20  # versions that are recognised when their event is repeated


def written(memory: Memory, event: Written, policy: Policy) -> Memory:
    """Return the memory after an update, which also settles a deferred event.

    It keeps only what a later decision may need: the build's identity if tags alone do not decide, and the versions
    that a rollback skipped, until a newer tag is written. Without an identity, arrival decides, and nothing is kept.
    """
    known = event.build != Build()
    if rules_of(policy).ordered:
        older = rules_of(policy).older
        fence = tuple(version for version in memory.replaced if older(event.tag, version.partition("@")[0]))
        newest = memory.written if memory.written and older(event.tag, memory.written.tag) else None
        kept = newest or (event if known and event.digest else None)
        return replace(memory, written=kept, replaced=fence, deferred=None, rollback=None)
    others = tuple(version for version in memory.replaced if version != version_of(event))
    # What a rollback remembered without an identity tells nothing about an event that arrives later.
    identified = memory.written if memory.written and memory.written.build != Build() else None
    return replace(memory, written=event if known else identified, replaced=others, deferred=None, rollback=None)


def rolled_back(memory: Memory, current: Reading, to: Reading, passed: tuple[str, ...], words: str) -> Memory:
    """Return the memory after a rollback from `current` that skipped the versions `passed`.

    No repeated event restores them. `words` is the request, such as `previous`. Its meaning is remembered, so that a
    job that runs the same rollback again finds it done.
    """
    newest = memory.written or Written(current.tag, current.digest)
    target = version_of(to)
    replaced = dict.fromkeys((version_of(current), *passed, *memory.replaced))
    kept = tuple(version for version in replaced if version and version != target)
    meant = Meant(words, to.tag, to.digest, version_of(current))
    return replace(memory, written=newest, replaced=kept[:MOST], rollback=meant)


def released(memory: Memory) -> Memory:
    """Return the memory after a release."""
    return replace(memory, hold=None, deferred=None, rollback=None)


def active(hold: Hold | None, now: str) -> Hold | None:
    """Return the hold, or None if its time is over."""
    return None if hold is None or (hold.until and epoch_seconds(hold.until) <= epoch_seconds(now)) else hold


def holding(state: State, memory: Memory, now: str) -> Hold | None:
    """Return the hold on an image now: the image's own, else the Application's, else None."""
    return active(memory.hold, now) or active(state.hold, now)


def merged(base: State, more: State) -> State:
    """Return what the base and the memory branch remember together. The stricter hold counts."""
    images = {key: _merged(base.images.get(key, Memory()), one) for key, one in more.images.items()}
    hold = stricter(None if _ended(base.hold, more.released) else base.hold, more.hold)
    return State(hold, {**base.images, **images})


def _merged(base: Memory, more: Memory) -> Memory:
    return Memory(
        written=_newer(base.written, more.written),
        replaced=tuple(dict.fromkeys((*base.replaced, *more.replaced))),
        hold=stricter(None if _ended(base.hold, more.released) else base.hold, more.hold),
        deferred=more.deferred or (None if more.released else base.deferred),
        rollback=base.rollback or more.rollback,
    )


def _newer(one: Written | None, other: Written | None) -> Written | None:
    """Return the build with the higher number; one that cannot be compared is the base's."""
    if one is None or other is None:
        return one or other
    numbers = [two.build.sequence for two in (one, other)]
    if one.build.counter != other.build.counter or None in numbers:
        return one
    return max(one, other, key=lambda two: two.build.sequence or 0)


def _ended(hold: Hold | None, released: str) -> bool:
    return bool(hold and released and (not hold.at or epoch_seconds(hold.at) <= epoch_seconds(released)))


def stricter(one: Hold | None, other: Hold | None) -> Hold | None:
    """Return the hold that ends later, the first one of two that are alike."""
    if one is None or other is None:
        return one or other
    return other if one.until and (not other.until or epoch_seconds(other.until) > epoch_seconds(one.until)) else one


def apart(base: Memory, known: Memory, wanted: Memory, now: str) -> Memory:
    """Return what the memory branch has to remember, beside the base, so that both together say what is wanted.

    `known` is what it remembers by now. It has only holds and what they deferred.
    """
    hold = wanted.hold if wanted.hold != base.hold else None
    deferred = wanted.deferred if wanted.deferred != base.deferred else None
    over = (base.hold and not wanted.hold) or (base.deferred and not wanted.deferred)
    released = (known.released or now) if over and not hold else ""
    if base.hold and not wanted.hold and not _ended(base.hold, released):
        released = now
    return Memory(hold=hold, deferred=deferred, rollback=known.rollback, released=released)


def hold_text(hold: Hold) -> str:
    """Return `held by jane since … until …: reason`, on one line."""
    known = (("by", hold.by), ("since", readable(hold.at)), ("until", readable(hold.until)))
    line = " ".join(("held", *(f"{word} {value}" for word, value in known if value)))
    return " ".join(f"{line}: {hold.reason}".split()) if hold.reason else line
