"""Pure code for `hold`, `release` and `rollback`: what becomes of one image,
and what its state file remembers.

`--on-failure rollback` uses it too, when a run rolls back by itself. Whether a hold keeps an image
as it is, is decided in `weigh`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from itertools import groupby

from task.deciding.job import Intent, Move, Remember, failed
from task.deciding.target import earlier_reading, target_of
from task.deciding.weigh import Situation, always_counts, deferred, question_about, weigh
from task.errors import TargetError, TaskError, UsageError
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
    Unchecked,
    Verdict,
)
from task.policy.builds import active, hold_text, holding, released, rolled_back
from task.policy.judge import same
from task.text import counted

BACK = re.compile(r"([1-9][0-9]{0,3})-back")
MOST_TEXTS = 100  # how many versions of a file are read to go back N steps
TEXTS_FOR_A_TAG = 50  # how many are read to find out whether a tag was ever written
SURE = "check that the image exists: nothing else has checked it"


def fulfil(intent: Intent, situation: Situation, snapshot: Snapshot) -> Move:
    """Return the move for one image of a person's intent.

    A `TaskError` becomes an error decision.
    """
    try:
        if intent.verb == "hold":
            return _hold(intent, situation)
        if intent.verb == "release":
            return _release(intent, situation)
        if intent.undone:
            return _undo(intent, intent.undone, situation, snapshot)
        return _rollback(intent, situation, snapshot)
    except TaskError as error:
        return Move(
            failed(
                situation.decision(situation.subscription.entry.image, Verdict("error", "", "")),
                error,
            )
        )


def _hold(intent: Intent, situation: Situation) -> Move:
    new = intent.hold
    image = situation.subscription.image_at(situation.current)
    known = situation.state.hold if intent.whole else situation.memory.hold
    if new is None or _equal(active(known, situation.terms.now), new):
        because = hold_text(known) if known else "nothing is held"
        return Move(situation.decision(image, Verdict("unchanged", "same", because)))
    decision = situation.decision(
        image, Verdict("defer", "held", _held_until_released(new, situation))
    )
    return Move(decision, remember=_held(intent, situation.memory, new), hold=new)


def _held_until_released(hold: Hold, situation: Situation) -> str:
    return (
        f"{hold_text(hold)}; image-update release {situation.subscription.application.key} ends the"
        " hold"
    )


def _equal(known: Hold | None, new: Hold) -> bool:
    """Compare two holds without their time: a hold that is given twice is one hold."""
    return known is not None and replace(known, at=new.at) == new


def _held(intent: Intent, memory: Memory, hold: Hold) -> Remember:
    if intent.whole:
        return Remember(memory, hold=hold)
    return Remember(replace(memory, hold=hold))


def _release(intent: Intent, situation: Situation) -> Move:
    memory = situation.memory
    now = situation.terms.now
    image = situation.subscription.image_at(situation.current)
    if not intent.whole and (all_held := active(situation.state.hold, now)):
        hint = (
            "release the Application without --alias; to hold only some images, name them with hold"
            " --alias"
        )
        raise TargetError(f"the whole Application is {hold_text(all_held)}", hint=hint)
    was = situation.hold
    event = memory.deferred
    if not (memory.hold or event or (intent.whole and situation.state.hold)):
        return Move(
            situation.decision(
                image, Verdict("unchanged", "same", "it is not held, and no build waits")
            )
        )
    free = released(memory)
    lifted = intent.whole and situation.state.hold is not None
    told = f"released: it was {hold_text(was)}" if was else "released"
    if event is None or intent.discard:
        dropped = (
            f"; {event.version} is dropped" if event else "; no build waits, so nothing is written"
        )
        decision = situation.decision(image, Verdict("unchanged", "same", told + dropped))
        return Move(decision, remember=Remember(free, lifted=lifted))
    now_free = replace(situation, memory=free, state=State(None, situation.state.images))
    move = weigh(now_free, deferred(situation.subscription, event))
    because = f"{told}; {event.version} waited: {move.decision.because}"
    decision = replace(move.decision, judged=replace(move.decision.judged, because=because))
    memory = move.remember.memory if move.remember and move.remember.memory is not None else free
    return replace(move, decision=decision, remember=Remember(memory, lifted=lifted))


def _rollback(intent: Intent, situation: Situation, snapshot: Snapshot) -> Move:
    sub = situation.subscription
    now = situation.in_git
    if intent.failed and not _in_git(intent.failed, situation):
        because = f"nothing to undo: Git has {now.version or 'no version'} by now"
        verdict = Verdict("unchanged", "same", because)
        return Move(situation.decision(sub.image_at(situation.current), verdict))
    to, passed, unchecked = _version_to_write(intent, situation, snapshot)
    wanted = sub.image_at(to)
    words = intent.to if _steps(intent.to) else ""
    memory = rolled_back(situation.memory, now, to, passed, words)
    there = to.version == now.version and now.sound
    because = f"rolled back from {situation.current.version or 'nothing'}"
    if unchecked:
        because = f"{because}; not checked: {to.version} may not exist"
    verdict = Verdict("update", "admitted", because)
    if there:
        meant = f", which {words} meant" if words else ""
        verdict = Verdict("unchanged", "same", f"Git already says {to.version}{meant}")
    decision = replace(situation.decision(wanted, verdict), unchecked=unchecked)
    if intent.hold is None:
        return Move(decision, remember=None if there else Remember(memory), rolled_back=not there)
    hold = intent.hold
    if not hold.reason:  # a hold of several images has one reason
        listed = split_image_list(sub.application.annotations.get("image-list", ""))
        several = intent.whole and len(listed) > 1
        back = f"rolled back to {intent.to if several else to.version}"
        failed_one = f"a test of {intent.failed.version} failed" if intent.failed else ""
        hold = replace(hold, reason=failed_one or back)
    known = situation.state.hold if intent.whole else memory.hold
    because = f"{verdict.because}; {_held_until_released(hold, situation)}"
    decision = replace(decision, judged=replace(verdict, because=because))
    if there and _equal(active(known, situation.terms.now), hold):
        return Move(decision)
    remember = _held(intent, situation.memory if there else memory, hold)
    return Move(decision, remember=remember, rolled_back=not there)


def _in_git(image: Image, situation: Situation) -> bool:
    """Tell whether Git still has this version. If both have a digest, it decides."""
    now = situation.in_git
    written = situation.memory.written
    digest = now.digest
    if not digest and written and written.tag == now.tag:
        digest = written.digest or written.image_digest
    if image.digest and digest:
        return image.digest == digest
    return bool(image.tag) and image.tag == now.tag


def _undo(intent: Intent, undone: Decision, situation: Situation, snapshot: Snapshot) -> Move:
    """Go back from an update that failed.

    It stays if Git says something else by now, or if somebody else holds it.
    """
    image = undone.candidate
    if not same(image, situation.current):
        because = (
            f"{image.version} is not what Git says now: {situation.current.version or 'nothing'}"
        )
        return Move(situation.decision(image, Verdict("refuse", "superseded", because)))
    hold = holding(situation.state, situation.memory, situation.terms.now)
    # A freeze stops no rollback, and neither does one of ours: of two builds that fail in a row,
    # the newer one may have gone back to the older one before anybody knew that it fails, too.
    ours = intent.hold.by if intent.hold else ""
    if hold and hold.by != ours:
        return Move(situation.decision(image, Verdict("defer", "held", hold_text(hold))))
    before, passed = _before(undone, situation, snapshot)
    memory = rolled_back(situation.memory, situation.in_git, before, passed, "")
    wanted = situation.subscription.image_at(before)
    because = (
        f"rolled back from {image.version}{f'; {hold_text(intent.hold)}' if intent.hold else ''}"
    )
    decision = situation.decision(wanted, Verdict("update", "admitted", because))
    return Move(decision, remember=Remember(replace(memory, hold=intent.hold)), rolled_back=True)


def _steps(to: str) -> int:
    """Return how many values to go back, or 0 if `to` names a version."""
    return 1 if to == "previous" else int(found[1]) if (found := BACK.fullmatch(to)) else 0


def _before(
    undone: Decision, situation: Situation, snapshot: Snapshot
) -> tuple[Reading, tuple[str, ...]]:
    """Return the value to go back to from an update that failed, and the versions in between."""
    before = undone.current
    if before.version in situation.memory.replaced or situation.facts.synced(
        situation.subscription
    ):
        with suppress(TargetError):  # the value before it may not be of this file
            return _last_good(situation, snapshot)
    return before, ()


def _version_to_write(
    intent: Intent, situation: Situation, snapshot: Snapshot
) -> tuple[Reading, tuple[str, ...], Unchecked | None]:
    """Return what `_meant_value` returns, and without a destination, the last good value."""
    if intent.to:
        return _meant_value(intent, situation, snapshot)
    return *_last_good(situation, snapshot), None


def _last_good(situation: Situation, snapshot: Snapshot) -> tuple[Reading, tuple[str, ...]]:
    """Return the value to go back to from one that failed, and the versions in between.

    It is the last one that nobody went back from, and that Argo CD has synced with success, where
    its history says so. Raises `TargetError` if there is none.
    """
    sub = situation.subscription
    file = situation.in_git.file
    bad = (situation.in_git.version, *situation.memory.replaced)
    synced = situation.facts.synced(sub)
    unsynced: tuple[Reading, tuple[str, ...]] | None = None
    passed: list[str] = []
    for earlier, ran in _values(situation, snapshot, MOST_TEXTS, synced):
        named = live_image(earlier.name) if earlier.name else None
        ours = named is None or named.identity == sub.entry.image.identity
        if ours and earlier.version not in bad:
            if ran or not synced:
                return earlier, tuple(passed)
            unsynced = unsynced or (earlier, tuple(passed))
        passed.append(earlier.version)
    if unsynced:
        return unsynced
    message = f"Git's history has no earlier value of {sub.entry.image.name} to go back to"
    raise TargetError(message, hint="name the tag: --to TAG", subject=file)


def _meant_value(
    intent: Intent, situation: Situation, snapshot: Snapshot
) -> tuple[Reading, tuple[str, ...], Unchecked | None]:
    """Return the value to go back to, the versions in between, and the doubt whether it exists.

    Raises `TargetError` if Git's history is too short, and `UsageError` if neither Git nor the
    registry knows the tag.
    """
    to, name, back = intent.to, situation.subscription.entry.image.name, _steps(intent.to)
    meant = situation.memory.rollback
    # A job that runs a second time must not go back once more: its value is the one that Git has
    # now.
    again = meant and meant.to == to and meant.version == situation.in_git.version
    if again or (not back and to in (situation.in_git.version, situation.in_git.tag)):
        return situation.in_git, (), None
    passed: list[str] = []
    for earlier, _ran in _values(situation, snapshot, MOST_TEXTS if back else TEXTS_FOR_A_TAG):
        if len(passed) == back - 1 if back else to in (earlier.version, earlier.tag):
            return earlier, tuple(passed), None
        passed.append(earlier.version)
    if back:
        known = f"only {counted(len(passed), 'earlier value')}" if passed else "no earlier value"
        message = f"Git's history has {known} of {name}"
        file = situation.in_git.file
        raise TargetError(message, hint="name the tag: --to TAG", subject=file)
    tag, _, digest = ("", "", to) if to.startswith("sha256:") else to.partition("@")
    if intent.unknown:
        return Reading(tag=tag, digest=digest), (), None
    near = get_close_matches(to, passed, 1)
    meant_tag = f"did you mean {near[0]}? " if near else ""
    sub = situation.subscription
    wanted = replace(sub.entry.image, tag=tag, digest=digest)
    pinned = not digest and bool(situation.in_git.digest or sub.policy.pin_digest)
    facts: tuple[Fact, ...] = ("exists", "digest") if pinned else ("exists",)
    answer = situation.facts.exists(replace(question_about(sub, wanted), facts=facts))
    if answer is None or answer.error:
        # The registry may be down, but an unreadable file on our side is a mistake of the user.
        if (
            answer
            and answer.error
            and (situation.terms.check == "always" or always_counts(answer.error))
        ):
            raise answer.error
        why = (
            answer.error.message
            if answer and answer.error
            else "the registry is not asked (--registry-check never)"
        )
        doubt = Unchecked(f"Git's history does not have it, and {why}", f"{meant_tag}{SURE}")
        return Reading(tag=tag, digest=digest), (), doubt
    if not answer.exists:
        raise UsageError(
            f"the registry has no {wanted.reference}, and the last {TEXTS_FOR_A_TAG} versions of "
            f"{situation.in_git.file} do not have it either",
            hint=(
                f"{meant_tag}name one image with --alias ALIAS, "
                "or go back to the tag all the same with --unknown-tag"
            ),
        )
    return Reading(tag=tag, digest=digest or (answer.digest if pinned else "")), (), None


def _values(
    situation: Situation, snapshot: Snapshot, most: int, synced: Collection[str] = ()
) -> Iterator[tuple[Reading, bool]]:
    """Yield the values that the target had before, newest first, without repetitions.

    With each, tell whether one of the `synced` commits had it.
    """
    readings = _earlier_readings(situation, snapshot, most, synced)
    groups = groupby(readings, key=lambda one: one[1].version)
    for number, (version, group) in enumerate(groups):
        _commit, reading = first = next(group)
        if number == 0 and version == situation.in_git.version:
            continue
        ran = bool(synced) and any(commit in synced for commit, _ in (first, *group))
        yield reading, ran


def _earlier_readings(
    situation: Situation, snapshot: Snapshot, most: int, marked: Collection[str]
) -> Iterator[tuple[str, Reading]]:
    """Yield (commit, what the target said) for each version of its file, newest first."""
    sub = situation.subscription
    path = situation.in_git.file
    target = target_of(sub, situation.kind, carry=situation.terms.carry)
    for commit, text in situation.facts.earlier(path, most, marked):
        found = earlier_reading(snapshot.files, target, path, text)
        if found and found.version:
            yield commit, found
