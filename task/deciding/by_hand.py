"""Pure code that carries out `hold`, `release`, and `rollback`: it decides about one image and
determines the changes to the Application's state file.

A run with `--on-failure rollback` also uses this code for its automatic rollbacks. `weigh` decides
whether a hold blocks an update.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import groupby
from typing import NamedTuple

from task.deciding.job import Intent, Move, Remember, failed, with_reason
from task.deciding.target import earlier_reading, target_of
from task.deciding.weigh import (
    Situation,
    deferred_offer,
    question_about,
    stops_in_any_mode,
    weigh,
)
from task.errors import TargetError, TaskError, Trouble, UsageError
from task.image import live_image, split_image_list
from task.model import (
    Decision,
    Fact,
    Hold,
    Image,
    Memory,
    Reading,
    Snapshot,
    State,
    Subscription,
    Verdict,
    Written,
)
from task.policy.builds import active, hold_text, holding, noted_failure, released, rolled_back
from task.policy.judge import same
from task.text import counted

BACK = re.compile(r"([1-9][0-9]{0,3})-back")
MOST_TEXTS = 100  # maximum number of file versions to read for `N-back`
TEXTS_FOR_A_TAG = 50  # maximum number to read when searching for a specific tag
_NO_END = "release cannot end a freeze"
MOST_SHOWN = 3  # maximum number of earlier versions to list in a message


@dataclass(frozen=True)
class RollbackDestination:
    """The reading that a rollback restores."""

    reading: Reading
    passed: tuple[str, ...] = ()  # versions skipped on the way back from Git's version
    doubt: Trouble | None = None  # a warning that the version may not exist


def fulfil(intent: Intent, situation: Situation, snapshot: Snapshot) -> Move:
    """Return the move that carries out a person's command (`intent`) for one image.

    A move is a decision and the change to commit for it. A `TaskError` is turned into an error
    decision.
    """
    try:
        if intent.verb == "hold":
            return _hold(intent, situation)
        if intent.verb == "release":
            return _release(intent, situation)
        if intent.undone:
            return _undo(intent, intent.undone, situation, snapshot)
        return _roll_back(intent, situation, snapshot)
    except TaskError as error:
        image = situation.subscription.entry.image
        decision = situation.decision(image, Verdict("error", "", ""))  # filled in by `failed`
        return Move(failed(decision, error))


def _hold(intent: Intent, situation: Situation) -> Move:
    """Return a move that sets a hold, or that changes nothing if the same hold is already set.

    A hold blocks updates to one image, or of all images of an Application (`intent.whole`).
    """
    new_hold = intent.hold
    if new_hold is None:
        raise ValueError("a request to hold without a hold")
    old_hold = situation.state.hold if intent.whole else situation.memory.hold
    active_hold = active(old_hold, situation.terms.now)
    image = situation.subscription.image_at(situation.current)
    if active_hold and _same_hold(active_hold, new_hold):
        verdict = Verdict("unchanged", "same", hold_text(active_hold))
        return Move(situation.decision(image, verdict))
    verdict = Verdict("defer", "held", _held_until_released(new_hold, situation))
    remember = _record_of_hold(intent, situation.memory, new_hold)
    return Move(situation.decision(image, verdict), remember=remember, hold=new_hold)


def _held_until_released(hold: Hold, situation: Situation) -> str:
    """Return a description of the hold, including the command that ends it."""
    return (
        f"{hold_text(hold)}; image-update release {situation.subscription.application.key} ends the"
        " hold"
    )


def _same_hold(old: Hold | None, new: Hold) -> bool:
    """Return whether two holds are the same, ignoring when they were set.

    Setting the same hold twice does not change anything.
    """
    return old is not None and replace(old, at=new.at) == new


def _record_of_hold(intent: Intent, memory: Memory, hold: Hold) -> Remember:
    """Return the state-file change that records a hold, either on all of the Application's images
    or only on this one.

    `memory` is everything else that the state file remembers about the image.
    """
    if intent.whole:
        return Remember(memory, hold=hold)
    return Remember(replace(memory, hold=hold))


def _release(intent: Intent, situation: Situation) -> Move:
    """Return the move that ends a hold. It also writes the build that the hold kept back (the
    deferred build), unless `intent.discard` is set.

    Raises `TargetError` if only one image is to be released, but the hold is on all images.
    """
    memory = situation.memory
    image = situation.subscription.image_at(situation.current)
    hold_on_all = active(situation.state.hold, situation.terms.now)
    if hold_on_all and not intent.whole:
        hint = "release the Application without --alias; to hold only some images, use hold --alias"
        raise TargetError(f"the whole Application is {hold_text(hold_on_all)}", hint=hint)

    lifts_hold_on_all = intent.whole and situation.state.hold is not None
    has_own_hold = memory.hold is not None
    has_deferred_build = memory.deferred is not None
    has_effect = has_own_hold or has_deferred_build or lifts_hold_on_all
    if not has_effect:
        verdict = Verdict("unchanged", "same", _nothing_to_release(situation))
        return Move(situation.decision(image, verdict))
    if memory.deferred is None or intent.discard:
        return _release_without_build(situation, image, lifted=lifts_hold_on_all)
    return _release_build(situation, memory.deferred, lifted=lifts_hold_on_all)


def _release_without_build(situation: Situation, image: Image, *, lifted: bool) -> Move:
    """Return the move that ends a hold and discards the build that the hold kept back, if any.

    `lifted` is true if this ends a hold on all of the Application's images.
    """
    deferred = situation.memory.deferred
    because = f"{_released_text(situation)}; Git keeps {situation.in_git.version or 'no version'}"
    if deferred:
        because = f"{because}; {deferred.version} is discarded"
    decision = situation.decision(image, Verdict("unchanged", "same", because))
    remember = Remember(released(situation.memory), lifted=lifted)
    return Move(decision, remember=remember, released=True)


def _release_build(situation: Situation, deferred: Written, *, lifted: bool) -> Move:
    """Return the move that ends a hold and writes the build that the hold kept back (`deferred`),
    provided that the rules still admit it.

    If the build cannot be checked, the hold remains in place. `lifted` is true if this ends a hold
    on all of the Application's images.
    """
    # Decide about the deferred build as if there were no hold. Other Applications' holds and
    # freezes still apply.
    memory_without_hold = released(situation.memory)
    state = State(None, situation.state.images)
    situation_without_hold = replace(situation, memory=memory_without_hold, state=state)
    offer = deferred_offer(situation.subscription, deferred)
    move = weigh(situation_without_hold, offer)
    judgement = move.decision.judged
    if judgement.verdict == "error":  # the hold remains until the release is retried
        because = f"not released: {deferred.version} is waiting, and {judgement.because}"
        return move.without_effect(replace(judgement, because=because))

    is_frozen = move.hold is not None and move.hold.is_freeze
    if is_frozen:  # the build remains deferred
        because = f"still {judgement.because}; {_NO_END}"
        if situation.hold and situation.hold != move.hold:  # the hold that ends is a different one
            because = f"{_released_text(situation)}; {because}"
    else:
        start = _released_text(situation)
        because = f"{start}; {deferred.version} was waiting: {judgement.because}"
    decision = with_reason(move.decision, because)
    memory = memory_without_hold
    if move.remember and move.remember.memory is not None:  # the build is written or still deferred
        memory = move.remember.memory
    remember = Remember(memory, lifted=lifted)
    return replace(move, decision=decision, remember=remember, released=True)


def _released_text(situation: Situation) -> str:
    """Return the beginning of a release's reason, which describes the hold that the release
    ends.
    """
    old_hold = situation.hold
    return f"released: it was {hold_text(old_hold)}" if old_hold else "released"


def _nothing_to_release(situation: Situation) -> str:
    """Return why a release has no effect."""
    freeze = situation.subscription.freeze
    if freeze:
        return f"still {hold_text(freeze)}; {_NO_END}"
    return "it is not held, and no build is waiting"


def _roll_back(intent: Intent, situation: Situation, snapshot: Snapshot) -> Move:
    """Return the move that writes an earlier version (the rollback's destination) and sets the
    intent's hold, if any.

    If the intent is to undo a failed version that is no longer in Git, nothing is rolled back.
    """
    if intent.failed and not _git_still_has(intent.failed, situation):
        return _only_remember_failure(intent.failed, situation, snapshot)

    destination = _destination(intent, situation, snapshot)
    reading_to_write = destination.reading
    in_git = situation.in_git
    steps_requested = intent.to if _steps_back(intent.to) else ""  # such as "3-back"
    # Rewrite even the same version if its form in Git is unsound, such as the number 1.10.
    already_in_git = reading_to_write.version == in_git.version and in_git.sound
    if already_in_git:
        memory = situation.memory
        verdict = _unchanged_verdict(reading_to_write, steps_requested)
    else:
        memory = rolled_back(
            situation.memory, in_git, reading_to_write, destination.passed, steps_requested
        )
        verdict = _rollback_verdict(destination, situation)

    image = situation.subscription.image_at(reading_to_write)
    decision = replace(situation.decision(image, verdict), unchecked=destination.doubt)
    remember = None if already_in_git else Remember(memory)
    move = Move(decision, remember=remember, rolled_back=not already_in_git)
    if intent.hold:
        hold = _hold_with_reason(intent.hold, intent, situation.subscription, reading_to_write)
        return _rollback_with_hold(move, memory, hold, intent, situation)

    old_hold = holding(situation.state, situation.memory, situation.terms.now)
    if old_hold:
        because = f"{verdict.because}; still {hold_text(old_hold)}"
        move = replace(move, decision=with_reason(decision, because))
    return move


def _rollback_with_hold(
    move: Move,
    memory: Memory,
    hold: Hold,
    intent: Intent,
    situation: Situation,
) -> Move:
    """Return a rollback's move, modified so that it also sets `hold`, which blocks later updates.

    `memory` is what the state file will remember about the image after the rollback. If Git already
    contains both the version and the hold, only the reason is changed.
    """
    because = f"{move.decision.because}; {_held_until_released(hold, situation)}"
    move_with_reason = replace(move, decision=with_reason(move.decision, because))
    old_hold = situation.state.hold if intent.whole else memory.hold
    has_same_hold = _same_hold(active(old_hold, situation.terms.now), hold)
    is_version_in_git = not move.rolled_back
    if has_same_hold and is_version_in_git:
        return move_with_reason
    return replace(move_with_reason, remember=_record_of_hold(intent, memory, hold))


def _unchanged_verdict(to: Reading, steps_requested: str) -> Verdict:
    """Return the verdict for a rollback to the version that is already in Git.

    `steps_requested` is "previous" or, for example, "3-back". For a rollback to a specific version,
    it is "".
    """
    request = f" ({steps_requested})" if steps_requested else ""
    return Verdict("unchanged", "same", f"Git already has {to.version}{request}")


def _rollback_verdict(destination: RollbackDestination, situation: Situation) -> Verdict:
    """Return the verdict for writing a rollback's destination."""
    because = f"rolled back from {situation.current.version or 'nothing'}"
    if destination.doubt:
        because = f"{because}; not checked: {destination.reading.version} might not exist"
    return Verdict("update", "admitted", because)


def _hold_with_reason(hold: Hold, intent: Intent, sub: Subscription, to: Reading) -> Hold:
    """Return a rollback's hold. If the hold has no reason, the rollback to `to` is given as the
    reason.
    """
    if hold.reason:
        return hold
    if intent.failed:
        return replace(hold, reason=f"a test of {intent.failed.version} failed")
    # A hold on several images has a single reason, so the reason cannot name one image's version.
    entries = split_image_list(sub.application.annotations.get("image-list", ""))
    is_for_several = intent.whole and len(entries) > 1
    version = intent.to if is_for_several else to.version
    return replace(hold, reason=f"rolled back to {version}")


def _only_remember_failure(image: Image, situation: Situation, snapshot: Snapshot) -> Move:
    """Return a move that leaves the version in Git unchanged and, if `image` was in Git before,
    records its failure in the state file.
    """
    because = f"nothing to undo: Git now has {situation.in_git.version or 'no version'}"
    remember = None
    for failed_reading, _was_synced in _earlier_readings(situation, snapshot, TEXTS_FOR_A_TAG):
        if _is_version(image, failed_reading.tag, failed_reading.digest):
            remember = _record_of_failure(failed_reading.version, situation)
            because = f"{because}{_warning_if_unrecorded(failed_reading.version, situation)}"
            break
    verdict = Verdict("unchanged", "same", because)
    decision = situation.decision(situation.subscription.image_at(situation.current), verdict)
    return Move(decision, remember=remember)


def _git_still_has(image: Image, situation: Situation) -> bool:
    """Return whether Git still contains this image's version. If the image and the version in Git
    both have a digest, only the digests are compared.
    """
    in_git = situation.in_git
    digest = in_git.digest
    last_written = situation.memory.written
    # Even if Git has only the tag, the state file may know its digest.
    if not digest and last_written and last_written.tag == in_git.tag:
        digest = last_written.digest or last_written.image_digest
    return _is_version(image, in_git.tag, digest)


def _is_version(image: Image, tag: str, digest: str) -> bool:
    """Return whether the image has this digest or, if either digest is missing, this tag."""
    if image.digest and digest:
        return image.digest == digest
    return bool(image.tag) and image.tag == tag


def _undo(intent: Intent, undone: Decision, situation: Situation, snapshot: Snapshot) -> Move:
    """Return the move that rolls back an update whose rollout failed (`undone`).

    If Git has changed since that update, nothing is rolled back. Only the failure is recorded,
    unless it is already known or people merge the commits. If someone else has put the image on
    hold, nothing changes.
    """
    image = undone.candidate
    if not same(image, situation.current):
        because = (
            f"Git now has {situation.current.version or 'no version'}, not {image.version}"
            f"{_warning_if_unrecorded(image.version, situation)}"
        )
        decision = situation.decision(image, Verdict("refuse", "superseded", because))
        return Move(decision, remember=_record_of_failure(image.version, situation))

    hold = holding(situation.state, situation.memory, situation.terms.now)
    # Neither a freeze nor a hold that an earlier run set blocks a rollback. If two builds fail in a
    # row, the newer one may have been rolled back to the older one before the older one failed,
    # too.
    author_of_runs = intent.hold.by if intent.hold else ""
    if hold and hold.by != author_of_runs:
        return Move(situation.decision(image, Verdict("defer", "held", hold_text(hold))))

    destination = _destination_of_undo(undone, situation, snapshot)
    reading_to_write = destination.reading
    memory = rolled_back(
        situation.memory, situation.in_git, reading_to_write, destination.passed, ""
    )
    because = f"rolled back from {image.version}"
    if intent.hold:
        because = f"{because}; {hold_text(intent.hold)}"
    verdict = Verdict("update", "admitted", because)
    decision = situation.decision(situation.subscription.image_at(reading_to_write), verdict)
    return Move(
        decision,
        remember=Remember(replace(memory, hold=intent.hold)),
        rolled_back=True,
    )


def _record_of_failure(version: str, situation: Situation) -> Remember | None:
    """Return the state-file change that records this version as failed, so that later rollbacks do
    not return to it.

    Return None if the failure is already recorded or cannot be recorded.
    """
    if _is_known_as_bad(version, situation) or _is_merged_by_people(situation.subscription):
        return None
    return Remember(noted_failure(situation.memory, version), notes=True)


def _warning_if_unrecorded(version: str, situation: Situation) -> str:
    """Return a warning if this version's failure cannot be recorded, or else ""."""
    if _is_known_as_bad(version, situation) or not _is_merged_by_people(situation.subscription):
        return ""
    return f"; the failure of {version} cannot be remembered, so a later rollback may return to it"


def _is_known_as_bad(version: str, situation: Situation) -> bool:
    """Return whether the state file already records that this version failed or was rolled back."""
    return version in (*situation.memory.failed, *situation.memory.replaced)


def _is_merged_by_people(sub: Subscription) -> bool:
    """Return whether commits are merged by people, who would not merge a change to the state file
    alone.
    """
    return sub.pull_request or bool(sub.head_template)


def _steps_back(to: str) -> int:
    """Return how many versions to go back in Git: 1 for "previous", 3 for "3-back", and 0 if `to`
    is a specific version.
    """
    if to == "previous":
        return 1
    match = BACK.fullmatch(to)
    return int(match[1]) if match else 0


def _destination_of_undo(
    undone: Decision, situation: Situation, snapshot: Snapshot
) -> RollbackDestination:
    """Return the version to restore after an update whose rollout failed (`undone`).

    This is normally the version before the update. If that version is known to be bad, or if Argo
    CD's sync history is known, the last good version in Git is restored instead, if there is one.
    """
    reading_before_update = undone.current
    is_known_as_bad = _is_known_as_bad(reading_before_update.version, situation)
    prefers_last_good = is_known_as_bad or bool(situation.facts.synced(situation.subscription))
    if prefers_last_good:
        # The file's history may contain no good version, because the version before the update may
        # come from a different file.
        with suppress(TargetError):
            return _last_good_destination(situation, snapshot)
    return RollbackDestination(reading_before_update)


def _destination(intent: Intent, situation: Situation, snapshot: Snapshot) -> RollbackDestination:
    """Return a rollback's destination: the version requested with `--to`, or else the last good
    version.
    """
    if intent.to:
        return _requested_destination(intent, situation, snapshot)
    return _last_good_destination(situation, snapshot)


def _last_good_destination(situation: Situation, snapshot: Snapshot) -> RollbackDestination:
    """Return the last good version in Git as the destination of a rollback.

    A version is good if it did not fail and was not rolled back. If Argo CD's history is known, a
    good version that was synced successfully is preferred. Raises `TargetError` if there is no good
    version.
    """
    in_git = situation.in_git
    synced_commits = situation.facts.synced(situation.subscription)
    is_history_known = bool(synced_commits)
    newest_unsynced: RollbackDestination | None = None  # the fallback if no good version was synced
    passed_versions: list[str] = []
    for earlier, was_synced in _earlier_readings(situation, snapshot, MOST_TEXTS, synced_commits):
        if _is_good(earlier, situation):
            destination = RollbackDestination(earlier, tuple(passed_versions))
            if was_synced or not is_history_known:
                return destination
            if newest_unsynced is None:
                newest_unsynced = destination
        passed_versions.append(earlier.version)
    if newest_unsynced:
        return newest_unsynced
    name = situation.subscription.entry.image.name
    message = f"Git's history has no earlier version of {name} to roll back to"
    raise TargetError(message, hint="specify the tag: --to TAG", subject=in_git.file)


def _is_good(earlier: Reading, situation: Situation) -> bool:
    """Return whether an earlier reading is for the same image, and its version is neither the
    current one nor known to be bad.
    """
    image = live_image(earlier.name) if earlier.name else None
    if image is not None and image.identity != situation.subscription.entry.image.identity:
        return False
    is_current = earlier.version == situation.in_git.version
    return not is_current and not _is_known_as_bad(earlier.version, situation)


def _requested_destination(
    intent: Intent,
    situation: Situation,
    snapshot: Snapshot,
) -> RollbackDestination:
    """Return the version requested with `--to`, as the destination of a rollback.

    `--to` is a version, such as `v1.2`, or a number of steps, such as `3-back`. Raises
    `TargetError` if Git's history does not go back that many steps, and `UsageError` if neither Git
    nor the registry has the version.
    """
    if _is_at_destination(intent, situation):
        return RollbackDestination(situation.in_git)

    steps = _steps_back(intent.to)  # 0 if `--to` is a specific version
    most = MOST_TEXTS if steps else TEXTS_FOR_A_TAG
    passed_versions: list[str] = []
    earlier_readings = _earlier_readings(situation, snapshot, most)
    for steps_so_far, (earlier, _was_synced) in enumerate(earlier_readings, start=1):
        if steps:
            is_requested = steps_so_far == steps
        else:
            is_requested = intent.to in (earlier.version, earlier.tag)
        if is_requested:
            return RollbackDestination(earlier, tuple(passed_versions))
        passed_versions.append(earlier.version)
    if not steps:
        return _destination_from_registry(intent, situation, passed_versions)

    history = "no earlier version"
    if passed_versions:
        history = f"only {counted(len(passed_versions), 'earlier version')}"
    raise TargetError(
        f"Git's history has {history} of {situation.subscription.entry.image.name}",
        hint="specify the tag: --to TAG",
        subject=situation.in_git.file,
    )


def _is_at_destination(intent: Intent, situation: Situation) -> bool:
    """Return whether Git is already at the version requested with `--to`."""
    in_git = situation.in_git
    last_rollback = situation.memory.rollback
    # A rerun job must not go back further if Git is already at the job's destination.
    if last_rollback and last_rollback.to == intent.to and last_rollback.version == in_git.version:
        return True
    if _steps_back(intent.to):
        return False
    return intent.to in (in_git.version, in_git.tag)


def _destination_from_registry(
    intent: Intent,
    situation: Situation,
    versions_in_history: Sequence[str],
) -> RollbackDestination:
    """Return the version requested with `--to`, which is missing from Git's history, as the
    destination of a rollback.

    If the registry cannot be queried, the destination carries a warning (`doubt`). Raises
    `UsageError` if the registry does not have the version. `versions_in_history` are used to
    suggest corrections.
    """
    to = intent.to
    reading = _reading_of_version(to)
    if intent.unknown:  # with `--unknown-tag`, the version need not exist
        return RollbackDestination(reading)

    sub = situation.subscription
    image = replace(sub.entry.image, tag=reading.tag, digest=reading.digest)
    # If Git has a digest next to the tag, that old digest must not remain.
    needs_digest = bool(situation.in_git.digest or sub.policy.pin_digest)
    adds_digest = needs_digest and not reading.digest
    facts: tuple[Fact, ...] = ("exists", "digest") if adds_digest else ("exists",)
    answer = situation.facts.exists(replace(question_about(sub, image), facts=facts))

    if answer is None:
        why = "the registry is not queried (--registry-check never)"
        return RollbackDestination(reading, doubt=_doubt_about(to, why, versions_in_history))
    if answer.error:
        # The registry may be down, but an unreadable local file is the user's mistake.
        if situation.terms.check == "always" or stops_in_any_mode(answer.error):
            raise answer.error
        doubt = _doubt_about(to, answer.error.message, versions_in_history)
        return RollbackDestination(reading, doubt=doubt)
    if not answer.exists:
        raise UsageError(
            f"{image.reference} is neither in the registry nor in the last {TEXTS_FOR_A_TAG}"
            f" versions of {situation.in_git.file}",
            hint=(
                f"{_suggestion(to, versions_in_history)}select one image with --alias ALIAS, "
                "or roll back to the tag anyway with --unknown-tag"
            ),
        )
    if adds_digest:
        reading = replace(reading, digest=answer.digest)
    return RollbackDestination(reading)


def _reading_of_version(version: str) -> Reading:
    """Return a reading with this version: a tag, a digest, or `tag@digest`."""
    if version.startswith("sha256:"):
        return Reading(digest=version)
    tag, _, digest = version.partition("@")
    return Reading(tag=tag, digest=digest)


def _doubt_about(to: str, why: str, versions_in_history: Sequence[str]) -> Trouble:
    """Return a warning that the version `to` might not exist. `why` explains why this could not be
    checked.

    `versions_in_history` are used to suggest corrections.
    """
    history = ", ".join(versions_in_history[:MOST_SHOWN])
    hint = f"this file's history has {history}" if history else "check it in the registry"
    message = f"{to} might not exist: it is not in Git's history, and {why}"
    return Trouble.warning("registry", message, f"{_suggestion(to, versions_in_history)}{hint}")


def _suggestion(to: str, versions: Sequence[str]) -> str:
    """Return the beginning of a hint that suggests the most similar version, or "" if no version is
    similar.
    """
    similar = get_close_matches(to, versions, 1)
    return f"did you mean {similar[0]}? " if similar else ""


class _ReadingAtCommit(NamedTuple):
    """A target's reading, and a commit that contains it."""

    commit: str
    reading: Reading


def _earlier_readings(
    situation: Situation,
    snapshot: Snapshot,
    most: int,
    synced: Collection[str] = (),
) -> Iterator[tuple[Reading, bool]]:
    """Yield the image's earlier versions in Git, newest first. Each is a reading of the target,
    with whether one of the `synced` commits contains that version.

    Consecutive commits with the same version count as one. At most `most` versions of the file are
    read from Git, one at a time.
    """
    readings_at_commits = _readings_of_all_versions(situation, snapshot, most, synced)
    groups = groupby(readings_at_commits, key=lambda at_commit: at_commit.reading.version)
    for number, (version, readings_of_version) in enumerate(groups):
        newest = next(readings_of_version)
        is_current = number == 0 and version == situation.in_git.version
        if is_current:
            continue
        was_synced = False
        if synced:  # otherwise, do not read this version's older commits here
            commits = [newest.commit, *(older.commit for older in readings_of_version)]
            was_synced = any(commit in synced for commit in commits)
        yield newest.reading, was_synced


def _readings_of_all_versions(
    situation: Situation,
    snapshot: Snapshot,
    most: int,
    preferred_commits: Collection[str],
) -> Iterator[_ReadingAtCommit]:
    """Yield a reading of the image from each version of the target's file in Git, newest first,
    with a commit that contains that version of the file.

    If several commits contain it, the commit is one of `preferred_commits`, or else the newest.
    File versions that are broken or lack the image are skipped. `most` limits the number of file
    versions.
    """
    sub = situation.subscription
    path = situation.in_git.file
    target = target_of(sub, situation.kind, carry=situation.terms.carry)
    for commit, text in situation.facts.earlier(path, most, preferred_commits):
        reading = earlier_reading(snapshot.files, target, path, text)
        if reading and reading.version:
            yield _ReadingAtCommit(commit, reading)
