"""Orders builds, so that an older build that finishes later never wins. Pure.

Two builds are compared by their sequence (if one counter made both), else by the ancestry of their source commits, else
by the creation time of the image, else by arrival. Strategies that order tags compare the tags first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from task.model import Build, Image, Meant, Memory, Policy, Reading, Written
from task.policy.strategies import rules_of
from task.timestamps import epoch_seconds
from task.urls import host_and_path

Ancestry = Mapping[tuple[str, str, str], str]  # (repository, new commit, old commit) → "newer", "older", …


@dataclass(frozen=True)
class BuildOrder:
    """Whether a build is newer or older than another, and why. `relation` is "" if that is unknown."""

    relation: Literal["newer", "older", ""]
    because: str = ""


def compare(new: Build, old: Build, ancestry: Ancestry) -> BuildOrder:
    """Tell whether `new` is newer or older than `old`."""
    ours, theirs = new.sequence, old.sequence
    if ours is not None and theirs is not None and ours != theirs and new.counter == old.counter:
        return _by_number(ours - theirs, f"sequence {ours}", f"sequence {theirs}")
    pair = commits(new, old)
    relation = ancestry.get(pair, "") if pair else ""
    if relation == "newer":
        return BuildOrder("newer", f"source commit {new.commit[:12]} descends from {old.commit[:12]}")
    if relation == "older":
        return BuildOrder("older", f"source commit {new.commit[:12]} is an ancestor of {old.commit[:12]}")
    if new.created and old.created and (age := epoch_seconds(new.created) - epoch_seconds(old.created)):
        return _by_number(age, f"created {new.created}", f"created {old.created}")
    return BuildOrder("")


def _by_number(difference: float, new: str, old: str) -> BuildOrder:
    if difference > 0:
        return BuildOrder("newer", f"{new} comes after {old}")
    return BuildOrder("older", f"{new} comes before {old}")


def commits(new: Build, old: Build) -> tuple[str, str, str] | None:
    """Return the (repository, new commit, old commit) whose ancestry decides, or None.

    None means that a sequence decides, or that the commits cannot be compared.
    """
    counted = new.sequence is not None and old.sequence is not None and new.counter == old.counter
    if counted and new.sequence != old.sequence:
        return None
    if not (new.commit and old.commit) or new.commit == old.commit:
        return None
    # Contact only the event's server. Other people can write a state file, so its URL must not be contacted.
    if not new.repository:
        return None
    same = not old.repository or host_and_path(new.repository) == host_and_path(old.repository)
    return (new.repository, new.commit, old.commit) if same else None


def superseded(event: Written, policy: Policy, current: Reading, memory: Memory, ancestry: Ancestry) -> str:
    """Return why the event's build is not the newest that was ever written, or "" if it is, or that is unknown.

    So a repeated run of an old pipeline changes nothing, neither after a newer build nor after a rollback.
    """
    newest = memory.written
    order = compare(event.build, newest.build, ancestry) if newest else BuildOrder("")
    if order.relation == "newer":
        return ""
    version = version_of(event)
    if version in memory.replaced:
        return f"{version} was written before and has been replaced since, so a repeated run does not bring it back"
    if newest is None:
        return ""
    rolled_back = version_of(newest) != version_of(current)
    # If the strategy orders tags, only it compares them. After a rollback, builds count as well, so that a repeated
    # event does not bring back a tag that the rollback skipped.
    ordered = rules_of(policy).ordered and event.tag != newest.tag
    if ordered and not (rolled_back and rules_of(policy).older(event.tag, newest.tag)):
        return ""
    if order.relation == "older":
        return f"a newer build was written, {version_of(newest) or 'unknown'}: {order.because}"
    replayed = rolled_back and version == version_of(newest)
    return (
        f"{version} was written before, and Git has gone back since: a repeated run does not undo that"
        if replayed
        else ""
    )


def alike(one: Written | Reading | Image | Meant, other: Written | Reading | Image | Meant) -> bool:
    """Tell whether two have the same version. If both have a digest, it decides as well."""
    return one.tag == other.tag and (not (one.digest and other.digest) or one.digest == other.digest)


def gone_back(event: Written, policy: Policy, newest: Written, current: Reading, memory: Memory) -> str:
    """Return why a promoted build is older than what the target has, or "" if it is not, or that is unknown.

    `newest` was written at the source. If the source has another version now, it went back to an older one. If the
    strategy orders tags, only it compares them.
    """
    if newest == Written() or alike(newest, event) or (rules_of(policy).ordered and event.tag != newest.tag):
        return ""
    target = memory.written if memory.written and alike(memory.written, current) else Written()
    if compare(event.build, target.build, {}).relation == "newer":
        return ""
    if alike(newest, current) or compare(newest.build, target.build, {}).relation == "older":
        return f"{version_of(current)} is newer: the source went back from {version_of(newest)} to {version_of(event)}"
    return ""


def version_of(what: Written | Reading | Meant) -> str:
    """Return `tag`, `tag@digest` or the digest alone, or "" if it has neither."""
    return f"{what.tag}@{what.digest}" if what.tag and what.digest else what.tag or what.digest


def why_older(event: Written, known: Written, policy: Policy, ancestry: Ancestry) -> str:
    """Return why the event is older than a build that waits or was declined, or "" if it is not, or that is unknown.

    If the strategy orders tags, they decide. Builds of the same tag are compared as builds.
    """
    if rules_of(policy).ordered and event.tag != known.tag:
        return rules_of(policy).older(event.tag, known.tag)
    order = compare(event.build, known.build, ancestry)
    return order.because if order.relation == "older" else ""
