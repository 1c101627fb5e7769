"""Order of builds: an older build that finishes later never wins (contract, section 5). Pure.

What tells two builds apart, in this precedence: the sequence (of one counter), the ancestry of their
source commits, the creation time of the image, arrival. Strategies whose tags carry an order ask the tag first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from task.model import Build, Meant, Memory, Policy, Reading, Written
from task.policy.strategies import STRATEGIES

UNORDERED = ("newest-build", "digest")  # their tags carry no order
Ancestry = Mapping[tuple[str, str, str], str]  # (repository, new commit, old commit) → "newer", "older", …


@dataclass(frozen=True)
class BuildOrder:
    """How a build stands to another, and in which words; `relation` is "" where nothing tells them apart."""

    relation: Literal["newer", "older", ""]
    because: str = ""


def compare(new: Build, old: Build, ancestry: Ancestry) -> BuildOrder:
    """How `new` stands to `old`."""
    ours, theirs = new.sequence, old.sequence
    if ours is not None and theirs is not None and ours != theirs and new.counter == old.counter:
        return _order(ours > theirs, f"sequence {ours}", f"sequence {theirs}")
    if pair := commits(new, old):
        relation = ancestry.get(pair, "")
        if relation in ("newer", "older"):
            words = (f"source commit {new.commit[:12]}", f"{old.commit[:12]}")
            because = f"{words[0]} {'descends from' if relation == 'newer' else 'is an ancestor of'} {words[1]}"
            return BuildOrder("newer" if relation == "newer" else "older", because)
    if new.created and old.created and (ages := (instant(new.created), instant(old.created)))[0] != ages[1]:
        return _order(ages[0] > ages[1], f"created {new.created}", f"created {old.created}")
    return BuildOrder("")


def _order(newer: bool, ours: str, theirs: str) -> BuildOrder:  # noqa: FBT001 - the answer itself
    return BuildOrder("newer" if newer else "older", f"{ours} comes {'after' if newer else 'before'} {theirs}")


def commits(new: Build, old: Build) -> tuple[str, str, str] | None:
    """(repository, new commit, old commit) whose ancestry would tell; None where a sequence does, or nothing can."""
    told = new.sequence is not None and old.sequence is not None and new.counter == old.counter
    if (told and new.sequence != old.sequence) or not (new.commit and old.commit) or new.commit == old.commit:
        return None
    if not new.repository:  # what a state file names is not reason enough to ask a server
        return None
    same = not old.repository or _same_repository(new.repository) == _same_repository(old.repository)
    return (new.repository, new.commit, old.commit) if same else None


def _same_repository(url: str) -> str:
    """One spelling for `https://host/a/b.git`, `ssh://git@host/a/b` and `git@host:a/b`."""
    rest = url.partition("://")[2] or url.replace(":", "/", 1)
    host, _, path = rest.partition("/")
    return f"{host.rpartition('@')[2].partition(':')[0]}/{path}".removesuffix("/").removesuffix(".git").lower()


def instant(text: str) -> float:
    """Seconds since 1970 of an RFC 3339 time."""
    when = datetime.fromisoformat(text)
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def superseded(event: Written, policy: Policy, current: Reading, memory: Memory, ancestry: Ancestry) -> str:
    """Why the event's build is not the newest that was ever written; "" when it is, or nothing says otherwise.

    A replay of an old pipeline changes nothing, after a newer build as after a rollback.
    """
    order = compare(event.build, memory.written.build, ancestry) if memory.written else BuildOrder("")
    if order.relation == "newer":
        return ""
    version = version_of(event)
    if version in memory.replaced:
        return f"{version} was written before and has been replaced since: a replay changes nothing"
    if memory.written is None or not _comparable(event, memory.written, policy, current):
        return ""
    if order.relation == "older":
        return f"a newer build was written: {_newest(memory.written)}; {order.because}"
    if version == version_of(memory.written) and version != version_of(current):
        return f"{version} was written before and is no longer wanted: a replay changes nothing"
    return ""


def _comparable(event: Written, written: Written, policy: Policy, current: Reading) -> bool:
    """Where tags carry an order, builds are compared of one tag, or after a rollback of those it passed over."""
    if policy.strategy in UNORDERED or event.tag == written.tag:
        return True
    rolled_back = version_of(written) != version_of(current)
    return rolled_back and bool(STRATEGIES[policy.strategy].older(event.tag, written.tag))


def _newest(written: Written) -> str:
    return version_of(written) or "unknown"


def version_of(what: Written | Reading | Meant) -> str:
    """`tag`, `tag@digest` or digest; "" where there is none."""
    return f"{what.tag}@{what.digest}" if what.tag and what.digest else what.tag or what.digest


def later(event: Written, remembered: Written, policy: Policy, ancestry: Ancestry) -> str:
    """Why `remembered`, a deferred event, comes after the event; "" when the event is the newer one."""
    if policy.strategy not in UNORDERED and event.tag != remembered.tag:
        return STRATEGIES[policy.strategy].older(event.tag, remembered.tag)
    order = compare(event.build, remembered.build, ancestry)
    return order.because if order.relation == "older" else ""
