"""Orders builds, so that an older build that finishes later never wins;
and what a state file remembers of them.

Pure.

Two builds are compared by their sequence (if one counter made both), else by the ancestry of their
source commits, else by the creation time of the image, else by arrival. Strategies that order tags
compare the tags first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from task.model import Build, Hold, Image, Meant, Memory, Policy, Reading, State, Written
from task.policy.strategies import rules_of
from task.timestamps import epoch_seconds, readable
from task.urls import host_and_path

Commits = tuple[str, str, str]  # (repository, new commit, old commit)
Ancestry = Mapping[Commits, str]  # "newer", "older", …


def compare(
    new: Build,
    old: Build,
    ancestry: Ancestry,
) -> tuple[Literal["newer", "older", ""], str]:
    """Tell whether `new` is newer or older than `old`, and why. Both are "" if that is unknown."""
    ours = new.sequence
    theirs = old.sequence
    if ours is not None and theirs is not None and ours != theirs and new.counter == old.counter:
        return _by_number(ours - theirs, f"sequence {ours}", f"sequence {theirs}")
    pair = commits(new, old)
    relation = ancestry.get(pair, "") if pair else ""
    if relation == "newer":
        return "newer", f"source commit {new.commit[:12]} descends from {old.commit[:12]}"
    if relation == "older":
        return "older", f"source commit {new.commit[:12]} is an ancestor of {old.commit[:12]}"
    if (
        new.created
        and old.created
        and (age := epoch_seconds(new.created) - epoch_seconds(old.created))
    ):
        return _by_number(age, f"created {new.created}", f"created {old.created}")
    return "", ""


def _by_number(difference: float, new: str, old: str) -> tuple[Literal["newer", "older"], str]:
    return (
        ("newer", f"{new} comes after {old}")
        if difference > 0
        else ("older", f"{new} comes before {old}")
    )


def commits(new: Build, old: Build) -> Commits | None:
    """Return the commits whose ancestry decides, or None.

    None means that a sequence decides, or that the commits cannot be compared.
    """
    counted = new.sequence is not None and old.sequence is not None and new.counter == old.counter
    if counted and new.sequence != old.sequence:
        return None
    if not (new.commit and old.commit) or new.commit == old.commit:
        return None
    # Contact only the event's server. Other people can write a state file, so its URL must not be
    # contacted.
    if not new.repository:
        return None
    same = not old.repository or host_and_path(new.repository) == host_and_path(old.repository)
    return (new.repository, new.commit, old.commit) if same else None


def superseded(
    event: Written,
    policy: Policy,
    current: Reading,
    memory: Memory,
    ancestry: Ancestry,
) -> str:
    """Return why the event's build is not the newest that was ever written, or "" if it is,
    or that is unknown.

    So a repeated run of an old pipeline changes nothing, neither after a newer build nor after a
    rollback.
    """
    newest = memory.written
    relation, because = compare(event.build, newest.build, ancestry) if newest else ("", "")
    if relation == "newer":
        return ""
    version = event.version
    if _was_replaced(event, current, memory.replaced):
        return (
            f"{version} was written before and has been replaced since, so a repeated run does not"
            " bring it back"
        )
    if newest is None:
        return ""
    rolled_back = newest.version != current.version
    # If the strategy orders tags, only it compares them. After a rollback, builds count as well, so
    # that a repeated event does not bring back a tag that the rollback skipped.
    ordered = rules_of(policy).ordered and event.tag != newest.tag
    if ordered and not (rolled_back and rules_of(policy).older(event.tag, newest.tag)):
        return ""
    if relation == "older":
        return f"a newer build was written, {newest.version or 'unknown'}: {because}"
    if rolled_back and _was_replaced(event, current, (newest.version,)):
        return (
            f"{version} was written before, and Git has gone back since: a repeated run does not"
            " undo that"
        )
    return ""


def _was_replaced(event: Written, current: Reading, versions: Iterable[str]) -> bool:
    """Tell whether the event's version is one of these, which Git had before.

    Git may have had the tag alone, and the event may have its digest, or the other way round. If
    Git has the same tag now, it is a tag that moves, and only the digest tells its builds apart.
    """
    if event.version in versions:
        return True
    if event.tag == current.tag:
        return False
    tags = {tag for tag, _, digest in (one.partition("@") for one in versions) if not digest}
    known = {one.partition("@")[0] for one in versions}
    return event.tag in (tags if event.digest else known)


def alike(
    version: Written | Reading | Image | Meant, other: Written | Reading | Image | Meant
) -> bool:
    """Tell whether two have the same version. If both have a digest, it decides as well."""
    return version.tag == other.tag and (
        not (version.digest and other.digest) or version.digest == other.digest
    )


def gone_back(
    event: Written,
    policy: Policy,
    newest: Written,
    current: Reading,
    memory: Memory,
) -> str:
    """Return why a promoted build may be older than what the target has, or "" if it is not.

    `newest` is the newest build with an identity that was written at the source. If the source has
    another version now, it went back to an older one, or that is a later build without an identity.
    If the strategy orders tags, only it compares them.
    """
    if (
        newest == Written()
        or alike(newest, event)
        or (rules_of(policy).ordered and event.tag != newest.tag)
    ):
        return ""
    target = memory.written if memory.written and alike(memory.written, current) else Written()
    if compare(event.build, target.build, {})[0] == "newer":
        return ""
    if alike(newest, current) or compare(newest.build, target.build, {})[0] == "older":
        return (
            f"{current.version} is newer: the source went back from {newest.version} to"
            f" {event.version}"
        )
    return ""


def why_older(event: Written, known: Written, policy: Policy, ancestry: Ancestry) -> str:
    """Return why the event is older than a build that waits or was declined, or "" if it is not,
    or that is unknown.

    If the strategy orders tags, they decide. Builds of the same tag are compared as builds.
    """
    if rules_of(policy).ordered and event.tag != known.tag:
        return rules_of(policy).older(event.tag, known.tag)
    relation, because = compare(event.build, known.build, ancestry)
    return because if relation == "older" else ""


MOST = 20  # versions that are recognised when their event is repeated


def written(memory: Memory, event: Written, policy: Policy) -> Memory:
    """Return the memory after an update, which also settles a deferred event.

    It keeps only what a later decision may need: the build's identity if tags alone do not decide,
    and the versions that a rollback skipped, until a newer tag is written. Without an identity,
    arrival decides, and nothing is kept.
    """
    known = event.build != Build()
    memory = replace(
        memory,
        failed=tuple(version for version in memory.failed if version != event.version),
    )
    if rules_of(policy).ordered:
        older = rules_of(policy).older
        fence = tuple(
            version for version in memory.replaced if older(event.tag, version.partition("@")[0])
        )
        newest = memory.written if memory.written and older(event.tag, memory.written.tag) else None
        kept = newest or (event if known and event.digest else None)
        return replace(
            memory,
            written=kept,
            replaced=fence,
            deferred=None,
            rollback=None,
        )
    others = tuple(version for version in memory.replaced if version != event.version)
    # What a rollback remembered without an identity tells nothing about an event that arrives
    # later.
    identified = memory.written if memory.written and memory.written.build != Build() else None
    return replace(
        memory,
        written=event if known else identified,
        replaced=others,
        deferred=None,
        rollback=None,
    )


def noted_failure(memory: Memory, version: str) -> Memory:
    """Return the memory after the rollout of a version failed that Git has replaced meanwhile."""
    return replace(memory, failed=tuple(dict.fromkeys((version, *memory.failed)))[:MOST])


def rolled_back(
    memory: Memory,
    current: Reading,
    to: Reading,
    passed: tuple[str, ...],
    words: str,
) -> Memory:
    """Return the memory after a rollback from `current` that skipped the versions `passed`.

    No repeated event restores them. `words` is the request, such as `previous`. Its meaning is
    remembered, so that a job that runs the same rollback again finds it done.
    """
    newest = memory.written or Written(current.tag, current.digest)
    target = to.version
    replaced = dict.fromkeys((current.version, *passed, *memory.replaced))
    kept = tuple(version for version in replaced if version and version != target)
    meant = Meant(words, to.tag, to.digest, current.version)
    return replace(
        memory,
        written=newest,
        replaced=kept[:MOST],
        rollback=meant,
    )


def released(memory: Memory) -> Memory:
    """Return the memory after a release."""
    return replace(
        memory,
        hold=None,
        deferred=None,
        rollback=None,
    )


def active(hold: Hold | None, now: str) -> Hold | None:
    """Return the hold, or None if its time is over."""
    return (
        None
        if hold is None or (hold.until and epoch_seconds(hold.until) <= epoch_seconds(now))
        else hold
    )


def holding(state: State, memory: Memory, now: str) -> Hold | None:
    """Return the hold on an image now: the image's own, else the Application's, else None."""
    return active(memory.hold, now) or active(state.hold, now)


def merged(base: State, more: State) -> State:
    """Return what the base and the memory branch remember together. The stricter hold counts."""
    images = {key: _merged(base.images.get(key, Memory()), one) for key, one in more.images.items()}
    return State(stricter(base.hold, more.hold), {**base.images, **images})


def stricter_only(base: State, more: State) -> State:
    """Return what counts for updates of the base itself: what it remembers,
    and the holds of the memory branch.

    That branch may be less protected than the base. So it can hold something back there, and never
    let it through.
    """
    images = dict(base.images)
    for key, memory in more.images.items():
        known = images.get(key, Memory())
        images[key] = replace(known, hold=stricter(known.hold, memory.hold))
    return State(stricter(base.hold, more.hold), images)


def _merged(base: Memory, more: Memory) -> Memory:
    return Memory(
        written=_newer(base.written, more.written),
        replaced=tuple(dict.fromkeys((*base.replaced, *more.replaced))),
        failed=tuple(dict.fromkeys((*base.failed, *more.failed))),
        hold=stricter(base.hold, more.hold),
        deferred=more.deferred or base.deferred,
        rollback=base.rollback or more.rollback,
    )


def _newer(written: Written | None, other: Written | None) -> Written | None:
    """Return the build with the higher number; one that cannot be compared is the base's."""
    if written is None or other is None:
        return written or other
    numbers = [each.build.sequence for each in (written, other)]
    if written.build.counter != other.build.counter or None in numbers:
        return written
    return max(written, other, key=lambda each: each.build.sequence or 0)


def stricter(hold: Hold | None, other: Hold | None) -> Hold | None:
    """Return the hold that ends later, the first one of two that are alike."""
    if hold is None or other is None:
        return hold or other
    return (
        other
        if hold.until
        and (not other.until or epoch_seconds(other.until) > epoch_seconds(hold.until))
        else hold
    )


def apart(base: Memory, wanted: Memory) -> Memory:
    """Return what the memory branch has to remember, next to the base: a hold that the base does
    not have, and what was deferred.
    """
    return Memory(
        hold=wanted.hold if wanted.hold != base.hold else None,
        deferred=wanted.deferred if wanted.deferred != base.deferred else None,
    )


def hold_text(hold: Hold) -> str:
    """Return `held by jane since … until …: reason`, on one line."""
    who = f"{hold.source}," if hold.source else hold.by
    known = (("by", who), ("since", readable(hold.at)), ("until", readable(hold.until)))
    line = " ".join(("held", *(f"{word} {value}" for word, value in known if value)))
    return " ".join(f"{line}: {hold.reason}".split()) if hold.reason else line
