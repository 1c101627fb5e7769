"""Pure code for `hold`, `release` and `rollback`: what becomes of one image,
and what its state file remembers.

`--on-failure rollback` uses it too, when a run rolls back on its own. `weigh` decides whether a
hold keeps an update back.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from itertools import groupby

from task.deciding.job import Intent, Move, Remember, failed
from task.deciding.target import earlier_reading, target_of
from task.deciding.weigh import Situation, deferred, question_about, stops_in_any_mode, weigh
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
MOST_TEXTS = 100  # how many versions of a file are read to go back N steps
TEXTS_FOR_A_TAG = 50  # how many are read to find out whether a tag was ever written
_NO_END = "release does not end a freeze"
MOST_SHOWN = 3  # of the versions in Git's history


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
        return _roll_back(intent, situation, snapshot)
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
        image,
        Verdict("defer", "held", _held_until_released(new, situation)),
    )
    return Move(
        decision,
        remember=_memory_with_hold(intent, situation.memory, new),
        hold=new,
    )


def _held_until_released(hold: Hold, situation: Situation) -> str:
    return (
        f"{hold_text(hold)}; image-update release {situation.subscription.application.key} ends the"
        " hold"
    )


def _equal(known: Hold | None, new: Hold) -> bool:
    """Compare two holds without their time: a hold that is given twice is one hold."""
    return known is not None and replace(known, at=new.at) == new


def _memory_with_hold(intent: Intent, memory: Memory, hold: Hold) -> Remember:
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
    event = memory.deferred
    if not (memory.hold or event or (intent.whole and situation.state.hold)):
        return Move(
            situation.decision(image, Verdict("unchanged", "same", _nothing_to_release(situation)))
        )
    lifted = intent.whole and situation.state.hold is not None
    if event is None or intent.discard:
        return _release_without_build(situation, image, lifted=lifted)
    return _release_build(situation, event, lifted=lifted)


def _release_without_build(situation: Situation, image: Image, *, lifted: bool) -> Move:
    """Return the move that ends a hold, and discards what waits."""
    was = situation.hold
    event = situation.memory.deferred
    stays = f"released, {situation.in_git.version or 'nothing'} stays"
    told = f"{stays}: it was {hold_text(was)}" if was else stays
    dropped = f"; {event.version} is discarded" if event else ""
    decision = situation.decision(image, Verdict("unchanged", "same", told + dropped))
    remember = Remember(released(situation.memory), lifted=lifted)
    return Move(decision, remember=remember, released=True)


def _release_build(situation: Situation, event: Written, *, lifted: bool) -> Move:
    """Return the move that ends a hold, and writes what waits if the rules still admit it."""
    was = situation.hold
    told = f"released: it was {hold_text(was)}" if was else "released"
    free = released(situation.memory)
    state = State(None, situation.state.images)
    move = weigh(
        replace(situation, memory=free, state=state), deferred(situation.subscription, event)
    )
    if move.decision.verdict == "error":  # it is run again, so the hold stays until then
        because = f"not released: {event.version} waits, and {move.decision.because}"
        return move.without_effect(replace(move.decision.judged, because=because))
    because = f"{told}; {event.version} waited: {move.decision.because}"
    if move.hold and move.hold == situation.subscription.freeze:
        lifts = f"{told}; " if was and was != move.hold else ""
        because = f"{lifts}still {move.decision.because}; {_NO_END}"
    decision = replace(move.decision, judged=replace(move.decision.judged, because=because))
    memory = move.remember.memory if move.remember and move.remember.memory is not None else free
    remember = Remember(memory, lifted=lifted)
    return replace(move, decision=decision, remember=remember, released=True)


def _nothing_to_release(situation: Situation) -> str:
    freeze = situation.subscription.freeze
    if freeze:
        return f"still {hold_text(freeze)}; {_NO_END}"
    return "it is not held, and no build is waiting"


def _roll_back(intent: Intent, situation: Situation, snapshot: Snapshot) -> Move:
    sub = situation.subscription
    now = situation.in_git
    if intent.failed and not _git_still_has(intent.failed, situation):
        return _nothing_to_undo(intent.failed, situation, snapshot)
    to, passed, unchecked = _version_to_write(intent, situation, snapshot)
    words = intent.to if _steps(intent.to) else ""
    memory = rolled_back(situation.memory, now, to, passed, words)
    there = to.version == now.version and now.sound
    verdict = (
        _already_there(to, words) if there else _goes_back(to, situation, checked=not unchecked)
    )
    decision = replace(situation.decision(sub.image_at(to), verdict), unchecked=unchecked)
    if intent.hold is None:
        own = holding(situation.state, situation.memory, situation.terms.now)
        if own:
            because = f"{verdict.because}; still {hold_text(own)}"
            decision = replace(decision, judged=replace(verdict, because=because))
        return Move(
            decision,
            remember=None if there else Remember(memory),
            rolled_back=not there,
        )
    hold = _with_reason(intent.hold, intent, sub, to)
    known = situation.state.hold if intent.whole else memory.hold
    because = f"{verdict.because}; {_held_until_released(hold, situation)}"
    decision = replace(decision, judged=replace(verdict, because=because))
    if there and _equal(active(known, situation.terms.now), hold):
        return Move(decision)
    remember = _memory_with_hold(intent, situation.memory if there else memory, hold)
    return Move(decision, remember=remember, rolled_back=not there)


def _already_there(to: Reading, words: str) -> Verdict:
    meant = f", which {words} meant" if words else ""
    return Verdict("unchanged", "same", f"Git already says {to.version}{meant}")


def _goes_back(to: Reading, situation: Situation, *, checked: bool) -> Verdict:
    because = f"rolled back from {situation.current.version or 'nothing'}"
    doubt = "" if checked else f"; not checked: {to.version} may not exist"
    return Verdict("update", "admitted", f"{because}{doubt}")


def _with_reason(hold: Hold, intent: Intent, sub: Subscription, to: Reading) -> Hold:
    """Return the hold of a rollback. If nobody gave a reason, the rollback is the reason."""
    if hold.reason:
        return hold
    if intent.failed:
        return replace(hold, reason=f"a test of {intent.failed.version} failed")
    # a hold of several images has one reason
    listed = split_image_list(sub.application.annotations.get("image-list", ""))
    several = intent.whole and len(listed) > 1
    return replace(hold, reason=f"rolled back to {intent.to if several else to.version}")


def _nothing_to_undo(image: Image, situation: Situation, snapshot: Snapshot) -> Move:
    """Leave what Git says now, and note that the version failed if Git had it before."""
    because = f"nothing to undo: Git now has {situation.in_git.version or 'no version'}"
    failed_before = next(
        (
            earlier.version
            for earlier, _ran in _values(situation, snapshot, TEXTS_FOR_A_TAG)
            if _is_version(image, earlier.tag, earlier.digest)
        ),
        "",
    )
    remember = None
    if failed_before:
        remember = _noted(failed_before, situation)
        because = f"{because}{_not_noted(failed_before, situation)}"
    verdict = Verdict("unchanged", "same", because)
    decision = situation.decision(situation.subscription.image_at(situation.current), verdict)
    return Move(decision, remember=remember)


def _git_still_has(image: Image, situation: Situation) -> bool:
    """Tell whether Git still has this version. If both have a digest, it decides."""
    now = situation.in_git
    written = situation.memory.written
    digest = now.digest
    if not digest and written and written.tag == now.tag:
        digest = written.digest or written.image_digest
    return _is_version(image, now.tag, digest)


def _is_version(image: Image, tag: str, digest: str) -> bool:
    """Tell whether an image has this version. If both have a digest, it decides."""
    if image.digest and digest:
        return image.digest == digest
    return bool(image.tag) and image.tag == tag


def _undo(intent: Intent, undone: Decision, situation: Situation, snapshot: Snapshot) -> Move:
    """Go back from an update that failed.

    It stays if Git says something else now, or if somebody else holds it.
    """
    image = undone.candidate
    if not same(image, situation.current):
        because = (
            f"{image.version} is not what Git says now: {situation.current.version or 'nothing'}"
            f"{_not_noted(image.version, situation)}"
        )
        decision = situation.decision(image, Verdict("refuse", "superseded", because))
        return Move(decision, remember=_noted(image.version, situation))
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
    return Move(
        decision,
        remember=Remember(replace(memory, hold=intent.hold)),
        rolled_back=True,
    )


def _noted(version: str, situation: Situation) -> Remember | None:
    """Return what tells the rollback of a newer build that this version failed as well."""
    known = (*situation.memory.failed, *situation.memory.replaced)
    if version in known or _by_request(situation.subscription):
        return None
    return Remember(noted_failure(situation.memory, version), notes=True)


def _not_noted(version: str, situation: Situation) -> str:
    """Return the warning where nothing can remember that this version failed."""
    known = (*situation.memory.failed, *situation.memory.replaced)
    if version in known or not _by_request(situation.subscription):
        return ""
    return f"; nothing remembers that {version} failed: a rollback of a newer one may go back to it"


def _by_request(sub: Subscription) -> bool:
    """Tell whether a commit waits for a merge: nobody merges what changes only a state file."""
    return sub.pull_request or bool(sub.head_template)


def _steps(to: str) -> int:
    """Return how many values to go back, or 0 if `to` names a version."""
    return 1 if to == "previous" else int(found[1]) if (found := BACK.fullmatch(to)) else 0


def _before(
    undone: Decision,
    situation: Situation,
    snapshot: Snapshot,
) -> tuple[Reading, tuple[str, ...]]:
    """Return the value to restore after a failed update, and the versions in between."""
    before = undone.current
    bad = (*situation.memory.replaced, *situation.memory.failed)
    if before.version in bad or situation.facts.synced(situation.subscription):
        with suppress(TargetError):  # the value before it may not be of this file
            return _last_good(situation, snapshot)
    return before, ()


def _version_to_write(
    intent: Intent,
    situation: Situation,
    snapshot: Snapshot,
) -> tuple[Reading, tuple[str, ...], Trouble | None]:
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
    memory = situation.memory
    bad = (situation.in_git.version, *memory.replaced, *memory.failed)
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
    intent: Intent,
    situation: Situation,
    snapshot: Snapshot,
) -> tuple[Reading, tuple[str, ...], Trouble | None]:
    """Return the value to go back to, the versions in between, and the doubt whether it exists.

    Raises `TargetError` if Git's history is too short, and `UsageError` if neither Git nor the
    registry knows the tag.
    """
    back = _steps(intent.to)
    if _is_back_already(intent, situation):
        return situation.in_git, (), None
    passed: list[str] = []
    for earlier, _ran in _values(situation, snapshot, MOST_TEXTS if back else TEXTS_FOR_A_TAG):
        if len(passed) == back - 1 if back else intent.to in (earlier.version, earlier.tag):
            return earlier, tuple(passed), None
        passed.append(earlier.version)
    if back:
        known = f"only {counted(len(passed), 'earlier value')}" if passed else "no earlier value"
        message = f"Git's history has {known} of {situation.subscription.entry.image.name}"
        raise TargetError(
            message,
            hint="name the tag: --to TAG",
            subject=situation.in_git.file,
        )
    reading, doubt = _value_outside_git(intent, situation, passed)
    return reading, (), doubt


def _is_back_already(intent: Intent, situation: Situation) -> bool:
    """Tell whether Git has the value to go back to."""
    meant = situation.memory.rollback
    # A job that runs a second time must not go back once more: its value is the one that Git has
    # now.
    if meant and meant.to == intent.to and meant.version == situation.in_git.version:
        return True
    named = (situation.in_git.version, situation.in_git.tag)
    return not _steps(intent.to) and intent.to in named


def _value_outside_git(
    intent: Intent,
    situation: Situation,
    passed: Sequence[str],
) -> tuple[Reading, Trouble | None]:
    """Return the tag or digest of `--to`, which Git's history lacks,
    and the doubt whether the registry has it.

    `passed`: the versions in Git's history, one of which may be meant. Raises `UsageError` if the
    registry does not have it.
    """
    to = intent.to
    tag, _, digest = ("", "", to) if to.startswith("sha256:") else to.partition("@")
    reading = Reading(tag=tag, digest=digest)
    if intent.unknown:
        return reading, None
    near = get_close_matches(to, passed, 1)
    ask = f"did you mean {near[0]}? " if near else ""
    sub = situation.subscription
    wanted = replace(sub.entry.image, tag=tag, digest=digest)
    pinned = not digest and bool(situation.in_git.digest or sub.policy.pin_digest)
    facts: tuple[Fact, ...] = ("exists", "digest") if pinned else ("exists",)
    answer = situation.facts.exists(replace(question_about(sub, wanted), facts=facts))
    if answer is None:
        why = "the registry is not asked (--registry-check never)"
        return reading, _doubt_about(to, why, ask, passed)
    if answer.error:
        # The registry may be down, but an unreadable file on our side is a mistake of the user.
        if situation.terms.check == "always" or stops_in_any_mode(answer.error):
            raise answer.error
        return reading, _doubt_about(to, answer.error.message, ask, passed)
    if not answer.exists:
        raise UsageError(
            f"the registry has no {wanted.reference}, and the last {TEXTS_FOR_A_TAG} versions of "
            f"{situation.in_git.file} do not have it either",
            hint=(
                f"{ask}name one image with --alias ALIAS, "
                "or go back to the tag anyway with --unknown-tag"
            ),
        )
    return (replace(reading, digest=answer.digest) if pinned else reading), None


def _doubt_about(to: str, why: str, ask: str, passed: Sequence[str]) -> Trouble:
    history = ", ".join(passed[:MOST_SHOWN])
    hint = f"this file's history has {history}" if history else "check it in the registry"
    message = f"nobody has checked that {to} exists: Git's history does not have it, and {why}"
    return Trouble.warning("registry", message, f"{ask}{hint}")


def _values(
    situation: Situation,
    snapshot: Snapshot,
    most: int,
    synced: Collection[str] = (),
) -> Iterator[tuple[Reading, bool]]:
    """Yield the values that the target had before, newest first, without repetitions.

    With each, tell whether one of the `synced` commits had it.
    """
    readings = _earlier_readings(situation, snapshot, most, synced)
    groups = groupby(readings, key=lambda found: found[1].version)
    for number, (version, group) in enumerate(groups):
        _commit, reading = first = next(group)
        if number == 0 and version == situation.in_git.version:
            continue
        ran = bool(synced) and any(commit in synced for commit, _ in (first, *group))
        yield reading, ran


def _earlier_readings(
    situation: Situation,
    snapshot: Snapshot,
    most: int,
    marked: Collection[str],
) -> Iterator[tuple[str, Reading]]:
    """Yield (commit, what the target said) for each version of its file, newest first."""
    sub = situation.subscription
    path = situation.in_git.file
    target = target_of(sub, situation.kind, carry=situation.terms.carry)
    for commit, text in situation.facts.earlier(path, most, marked):
        found = earlier_reading(snapshot.files, target, path, text)
        if found and found.version:
            yield commit, found
