"""Orders builds, so that an older build that finishes late never wins, and decides what a state
file records about builds.

Pure.

Two builds are compared by sequence (if both numbers come from the same counter), or else by the
ancestry of their source commits, or else by the images' creation times, or else by order of
arrival. Strategies that order tags compare the tags first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Literal

from task.model import Build, Hold, Image, Meant, Memory, Policy, Reading, State, Written
from task.policy.strategies import Rules, rules_of
from task.timestamps import epoch_seconds, readable
from task.urls import host_and_path

Commits = tuple[str, str, str]  # (repository, new commit, old commit)
Ancestry = Mapping[Commits, str]  # "newer", "older", …


def compare(
    new: Build,
    old: Build,
    ancestry: Ancestry,
) -> tuple[Literal["newer", "older", ""], str]:
    """Return whether `new` is newer or older than `old`, and why. Both results are "" if the order
    is unknown.
    """
    new_number = new.sequence
    old_number = old.sequence
    if new_number is not None and old_number is not None and new.counter == old.counter:
        difference = new_number - old_number
        if difference != 0:
            return _order_by_difference(
                difference, f"sequence {new_number}", f"sequence {old_number}"
            )

    commits_to_compare = commits(new, old)
    relation = ancestry.get(commits_to_compare, "") if commits_to_compare else ""
    if relation == "newer":
        return "newer", f"source commit {new.commit[:12]} descends from {old.commit[:12]}"
    if relation == "older":
        return "older", f"source commit {new.commit[:12]} is an ancestor of {old.commit[:12]}"

    if not new.created or not old.created:
        return "", ""
    seconds = epoch_seconds(new.created) - epoch_seconds(old.created)
    if seconds == 0:
        return "", ""
    return _order_by_difference(seconds, f"created {new.created}", f"created {old.created}")


def _order_by_difference(
    difference: float, new: str, old: str
) -> tuple[Literal["newer", "older"], str]:
    """Return whether the new build is newer or older than the old one, and why.

    `difference` is the new build's number or time minus the old one's. `new` and `old` describe the
    two builds, such as "sequence 12".
    """
    if difference > 0:
        return "newer", f"{new} comes after {old}"
    return "older", f"{new} comes before {old}"


def commits(new: Build, old: Build) -> Commits | None:
    """Return the two builds' source commits if their ancestry decides which build is newer:
    (repository, new commit, old commit).

    Return None if the builds' sequence numbers decide, or if the commits cannot be compared.
    """
    have_numbers = new.sequence is not None and old.sequence is not None
    if have_numbers and new.counter == old.counter and new.sequence != old.sequence:
        return None
    have_commits = bool(new.commit and old.commit)
    if not have_commits or new.commit == old.commit:
        return None
    # Contact only the server named in the event. Other people can edit a state file, so never
    # contact a URL that it contains.
    if not new.repository:
        return None
    if old.repository and host_and_path(new.repository) != host_and_path(old.repository):
        return None
    return new.repository, new.commit, old.commit


def superseded(
    event: Written,
    policy: Policy,
    current: Reading,
    memory: Memory,
    ancestry: Ancestry,
) -> str:
    """Return why the event's build is not the newest build ever written, or "" if it is the newest
    or the order is unknown.

    `event` is the offered build, and `current` is the version in Git. `memory` is what the state
    file records about the image: the newest build ever written, and the versions that have been
    replaced. Because of this check, rerunning an old pipeline after a newer build or a rollback
    does not change anything.
    """
    newest = memory.written
    relation = ""
    because = ""
    if newest:
        relation, because = compare(event.build, newest.build, ancestry)
    if relation == "newer":
        return ""

    version = event.version
    if _was_replaced(event, current, memory.replaced):
        return (
            f"{version} was written earlier and has since been replaced, so a rerun does not"
            " restore it"
        )
    if newest is None:
        return ""

    # If the strategy orders tags, it has already compared them, and the builds
    # are irrelevant. But after a rollback, the strategy has compared the event
    # with an older tag, so the builds are compared here as well. Otherwise, a
    # repeated event would restore a tag that the rollback skipped.
    was_rolled_back = newest.version != current.version
    rules = rules_of(policy)
    if rules.ordered and event.tag != newest.tag:
        rollback_may_have_skipped_it = was_rolled_back and rules.older(event.tag, newest.tag) != ""
        if not rollback_may_have_skipped_it:
            return ""
    if relation == "older":
        return f"a newer build was already written, {newest.version or 'unknown'}: {because}"
    if was_rolled_back and _was_replaced(event, current, (newest.version,)):
        return (
            f"{version} was written earlier and has since been rolled back; a rerun does not undo"
            " the rollback"
        )
    return ""


def _was_replaced(event: Written, current: Reading, versions: Collection[str]) -> bool:
    """Return whether the event's version is one of these earlier `versions` in Git, each written as
    `tag`, `tag@digest`, or the digest.

    `current` is the version that is now in Git. Git may have had only the tag while the event has
    the digest, or vice versa. If Git has the same tag now, the tag is mutable, and only the digest
    distinguishes the builds of that tag.
    """
    if event.version in versions:
        return True
    if event.tag == current.tag:
        return False
    for version in versions:
        tag, _, digest = version.partition("@")
        one_lacks_digest = not digest or not event.digest
        if tag == event.tag and one_lacks_digest:
            return True
    return False


def alike(
    version: Written | Reading | Image | Meant, other: Written | Reading | Image | Meant
) -> bool:
    """Return whether two versions have the same tag and, if both have a digest, the same digest."""
    if version.tag != other.tag:
        return False
    if not version.digest or not other.digest:
        return True
    return version.digest == other.digest


def gone_back(
    event: Written,
    policy: Policy,
    newest: Written,
    current: Reading,
    memory: Memory,
) -> str:
    """Return why a promoted build may be older than the target's build, or "" if it is not older.

    A promotion copies `event`, a source's version, to a target whose version is `current` and whose
    memory is `memory`. `newest` is the newest build with an identity (a sequence number, a commit,
    or a time) that was ever written at the source. If the source now has a different version,
    either the source went back to an older build, or that version is a later build without an
    identity. If the strategy orders tags, it alone compares different tags.
    """
    source_has_changed = newest != Written() and not alike(newest, event)
    if not source_has_changed:
        return ""
    if rules_of(policy).ordered and event.tag != newest.tag:
        return ""

    # unknown, unless the target currently has the newest build ever written there
    target_build = Build()
    if memory.written and alike(memory.written, current):
        target_build = memory.written.build
    event_relation, _ = compare(event.build, target_build, {})
    if event_relation == "newer":
        return ""
    # The target only goes back if it has `newest` itself or a newer build.
    if not alike(newest, current):
        newest_relation, _ = compare(newest.build, target_build, {})
        if newest_relation != "older":
            return ""
    return (
        f"{current.version} is newer: the source went back from {newest.version} to {event.version}"
    )


def why_older(event: Written, known: Written, policy: Policy, ancestry: Ancestry) -> str:
    """Return why the build `event` is older than the build `known`, such as "sequence 3 comes
    before sequence 5". Return "" if it is not older, or if the order is unknown.

    If the strategy orders tags and the tags differ, the tags are compared. Otherwise, the builds
    are compared by sequence, by commit ancestry (`ancestry` contains the known results), or by
    creation time.
    """
    rules = rules_of(policy)
    if rules.ordered and event.tag != known.tag:
        return rules.older(event.tag, known.tag)
    relation, reason = compare(event.build, known.build, ancestry)
    return reason if relation == "older" else ""


MOST = 20  # how many replaced or failed versions are remembered; the newest come first


def written(memory: Memory, event: Written, policy: Policy) -> Memory:
    """Return an image's memory (what the state file records about the image) after `event` was
    written.

    The deferred build and the rollback are then forgotten. The result keeps only what later
    decisions may need: the identity of the build if tags alone do not decide, and the versions that
    a rollback skipped, until a newer tag is written. A build without an identity is not stored,
    because such builds are ordered by arrival.
    """
    rules = rules_of(policy)
    if rules.ordered:
        newest = _newest_by_tag(memory.written, event, rules)
        replaced = []
        for version in memory.replaced:
            tag, _, _ = version.partition("@")
            if rules.older(event.tag, tag):
                replaced.append(version)
    else:
        newest = _newest_by_arrival(memory.written, event)
        replaced = [version for version in memory.replaced if version != event.version]
    return replace(
        memory,
        written=newest,
        replaced=tuple(replaced),
        failed=tuple(version for version in memory.failed if version != event.version),
        deferred=None,
        rollback=None,
    )


def _newest_by_tag(newest: Written | None, event: Written, rules: Rules) -> Written | None:
    """Return the newest build to store after `event` was written, for a strategy that orders tags.

    `newest` is the build stored so far. None means that no build is stored, because the tags
    decide.
    """
    event_is_older = newest is not None and rules.older(event.tag, newest.tag) != ""
    if event_is_older:
        return newest
    # Stored builds only decide between images with the same tag, and only a digest in Git can
    # distinguish such images.
    has_identity = event.build != Build()
    return event if has_identity and event.digest else None


def _newest_by_arrival(newest: Written | None, event: Written) -> Written | None:
    """Return the newest build to store after `event` was written, for a strategy that does not
    order tags. `newest` is the build stored so far.
    """
    has_identity = event.build != Build()
    if has_identity:
        return event
    if newest and newest.build == Build():
        # the stored build comes from a rollback and has no
        # identity, so later events cannot be compared with it
        return None
    return newest


def noted_failure(memory: Memory, version: str) -> Memory:
    """Return an image's memory after the rollout of `version` failed. By now, Git has a different
    version.
    """
    failed = tuple(dict.fromkeys((version, *memory.failed)))
    return replace(memory, failed=failed[:MOST])


def rolled_back(
    memory: Memory,
    current: Reading,
    to: Reading,
    passed: tuple[str, ...],
    words: str,
) -> Memory:
    """Return an image's memory after a rollback from the version `current` to the version `to`.

    `passed` contains the versions that the rollback skipped. Repeated events restore neither these
    versions nor `current`. `words` is the requested target, such as `previous`. It is stored with
    the version that it referred to, so that a job that repeats the rollback finds it already done.
    """
    newest = memory.written or Written(current.tag, current.digest)
    skipped = dict.fromkeys((current.version, *passed, *memory.replaced))
    not_to_restore = [version for version in skipped if version and version != to.version]
    return replace(
        memory,
        written=newest,
        replaced=tuple(not_to_restore[:MOST]),
        rollback=Meant(to=words, tag=to.tag, digest=to.digest, was=current.version),
    )


def released(memory: Memory) -> Memory:
    """Return an image's memory after its hold was released."""
    return replace(
        memory,
        hold=None,
        deferred=None,
        rollback=None,
    )


def active(hold: Hold | None, now: str) -> Hold | None:
    """Return the hold (an order not to update an image), or None if the hold has expired at the
    time `now`.
    """
    if hold and hold.until and epoch_seconds(hold.until) <= epoch_seconds(now):
        return None
    return hold


def holding(state: State, memory: Memory, now: str) -> Hold | None:
    """Return the active hold on an image: the hold on the image itself (in `memory`), or else the
    hold on the whole Application (in `state`), or else None.
    """
    return active(memory.hold, now) or active(state.hold, now)


def merged(base: State, memory_branch: State) -> State:
    """Combine the states of the base branch and of its memory branch (which stores holds and
    deferred builds if commits do not go directly to the base). The stricter hold wins.
    """
    images = dict(base.images)
    for key, memory in memory_branch.images.items():
        images[key] = _merge_memories(images.get(key, Memory()), memory)
    return State(stricter(base.hold, memory_branch.hold), images)


def stricter_only(base: State, memory_branch: State) -> State:
    """Return the state that applies to updates of the base branch itself: its own state, plus the
    holds from its memory branch.

    The memory branch may be less protected than the base. So it can hold builds back from the base,
    but can never let a build through.
    """
    images = dict(base.images)
    for key, memory in memory_branch.images.items():
        base_memory = images.get(key, Memory())
        images[key] = replace(base_memory, hold=stricter(base_memory.hold, memory.hold))
    return State(stricter(base.hold, memory_branch.hold), images)


def _merge_memories(base: Memory, memory_branch: Memory) -> Memory:
    """Combine the memories that the base branch and the memory branch have of one image (its newest
    build, replaced and failed versions, hold, and so on).
    """
    replaced = dict.fromkeys((*base.replaced, *memory_branch.replaced))
    failed = dict.fromkeys((*base.failed, *memory_branch.failed))
    return Memory(
        written=_newer_build(base.written, memory_branch.written),
        replaced=tuple(replaced),
        failed=tuple(failed),
        hold=stricter(base.hold, memory_branch.hold),
        # the memory branch only has a deferred build if it differs from the base's
        deferred=memory_branch.deferred or base.deferred,
        rollback=base.rollback or memory_branch.rollback,
    )


def _newer_build(written: Written | None, other: Written | None) -> Written | None:
    """Return the build with the higher sequence number, or `written` if the two builds' numbers do
    not come from the same counter.
    """
    if written is None or other is None:
        return written or other
    number = written.build.sequence
    other_number = other.build.sequence
    if number is None or other_number is None or written.build.counter != other.build.counter:
        return written
    return other if other_number > number else written


def stricter(hold: Hold | None, other: Hold | None) -> Hold | None:
    """Return the hold that ends later, or the first one if they end at the same time."""
    if hold is None or other is None:
        return hold or other
    if not hold.until:  # this hold never ends
        return hold
    other_is_later = not other.until or epoch_seconds(other.until) > epoch_seconds(hold.until)
    return other if other_is_later else hold


def apart(base: Memory, wanted: Memory) -> Memory:
    """Return what the memory branch must store about an image: the wanted hold and the wanted
    deferred build, each only if it differs from the base's memory.
    """
    hold = wanted.hold if wanted.hold != base.hold else None
    deferred = wanted.deferred if wanted.deferred != base.deferred else None
    return Memory(hold=hold, deferred=deferred)


def hold_text(hold: Hold) -> str:
    """Return a hold as one line: `held by jane since … until …: reason`. Unknown details are
    omitted.
    """
    who = f"{hold.source}," if hold.source else hold.by
    details = {"by": who, "since": readable(hold.at), "until": readable(hold.until)}
    words = ["held", *(f"{word} {value}" for word, value in details.items() if value)]
    line = " ".join(words)
    if not hold.reason:
        return line
    return " ".join(f"{line}: {hold.reason}".split())  # the reason may contain line breaks
