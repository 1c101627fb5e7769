"""Decides what a state file remembers after a decision. Pure: an old memory and an event make a new memory."""

from __future__ import annotations

from dataclasses import replace

from task.model import Build, Hold, Meant, Memory, Policy, Reading, State, Written
from task.policy.order import version_of
from task.policy.strategies import rules_of
from task.timestamps import epoch_seconds

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

    No repeated event restores them. `words` is the request, such as `previous`, or "" for a tag. Its meaning is
    remembered, so that a job that runs the same rollback again finds it done.
    """
    newest = memory.written or Written(current.tag, current.digest)
    target = version_of(to)
    replaced = dict.fromkeys((version_of(current), *passed, *memory.replaced))
    kept = tuple(version for version in replaced if version and version != target)
    meant = Meant(words, to.tag, to.digest) if words else None
    return replace(memory, written=newest, replaced=kept[:MOST], rollback=meant)


def active(hold: Hold | None, now: str) -> Hold | None:
    """Return the hold, or None if its time is over."""
    return None if hold is None or (hold.until and epoch_seconds(hold.until) <= epoch_seconds(now)) else hold


def holding(state: State, memory: Memory, now: str) -> Hold | None:
    """Return the hold on an image now: the image's own, else the Application's, else None."""
    return active(memory.hold, now) or active(state.hold, now)


def hold_text(hold: Hold) -> str:
    """Return `held by jane since … until …: reason`, on one line."""
    known = (("by", hold.by), ("since", hold.at), ("until", hold.until))
    line = " ".join(("held", *(f"{word} {value}" for word, value in known if value)))
    return " ".join(f"{line}: {hold.reason}".split()) if hold.reason else line
