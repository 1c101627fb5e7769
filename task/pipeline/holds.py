"""Pure: what `hold`, `release` and `rollback` decide about one image, and what is remembered of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches

from task.editors import EDITORS
from task.errors import Exit, TargetError, TaskError, UsageError
from task.image import split_image_list
from task.model import Decision, Fact, File, Hold, Image, Memory, Reading, Snapshot, State, Verdict
from task.pipeline.facts import subject
from task.pipeline.target import target_of
from task.pipeline.weigh import Intent, Moment, deferred, failed, weigh
from task.policy.order import version_of
from task.policy.remember import active, holding, rolled_back, said

BACK = re.compile(r"([1-9][0-9]{0,3})-back")
MOST_TEXTS = 100  # of one file's history that are read to go back so many steps
TEXTS_FOR_A_TAG = 50  # that are read to see whether it ever stood there


def fulfil(intent: Intent, moment: Moment, snapshot: Snapshot) -> Decision:
    """The decision about one image that a person's intent is about."""
    try:
        if intent.verb == "hold":
            return _hold(intent, moment)
        return _release(intent, moment) if intent.verb == "release" else _rollback(intent, moment, snapshot)
    except TaskError as error:
        return failed(moment.where, error)


def _hold(intent: Intent, moment: Moment) -> Decision:
    new, where = intent.hold, replace(moment.where, candidate=_as_it_is(moment))
    known = moment.state.hold if intent.whole else moment.memory.hold
    if new is None or _equal(active(known, moment.terms.now), new):
        because = said(known) if known else "nothing is held"
        return replace(where, verdict=Verdict("unchanged", "same", because))
    return _held(replace(where, verdict=Verdict("defer", "held", said(new))), intent, moment.memory, new)


def _as_it_is(moment: Moment) -> Image:
    now = moment.where.current
    return replace(moment.where.subscription.entry.image, tag=now.tag, digest=now.digest)


def _equal(known: Hold | None, new: Hold) -> bool:
    """When it was said makes no difference: saying it twice is saying it once."""
    return known is not None and replace(known, at=new.at) == new


def _held(decision: Decision, intent: Intent, memory: Memory, hold: Hold) -> Decision:
    if intent.whole:
        return replace(decision, memory=memory, hold=(hold,))
    return replace(decision, memory=replace(memory, hold=hold))


def _release(intent: Intent, moment: Moment) -> Decision:
    memory, now = moment.memory, moment.terms.now
    where = replace(moment.where, candidate=_as_it_is(moment))
    if not intent.whole and (all_held := active(moment.state.hold, now)):
        hint = "release the Application without --image; hold single images where only these are meant"
        raise TargetError(f"the whole Application is {said(all_held)}", hint=hint)
    was, waiting = holding(moment.state, memory, now), memory.deferred
    if not (memory.hold or waiting or (intent.whole and moment.state.hold)):
        return replace(where, verdict=Verdict("unchanged", "same", "it is not held"))
    free = replace(memory, hold=None, deferred=None, rollback=None)
    lifted: tuple[Hold | None, ...] = (None,) if intent.whole and moment.state.hold else ()
    told = f"released: it was {said(was)}" if was else "released"
    if waiting is None or intent.discard:
        dropped = f"; {version_of(waiting)} is dropped" if waiting else "; nothing was deferred"
        verdict = Verdict("unchanged", "same", told + dropped)
        return replace(where, verdict=verdict, memory=free, hold=lifted)
    now_free = replace(moment, memory=free, state=State(None, moment.state.images))
    decision = weigh(now_free, deferred(where.subscription, waiting))
    because = f"{told}; {version_of(waiting)} was deferred: {decision.verdict.because}"
    return replace(
        decision, verdict=replace(decision.verdict, because=because), memory=decision.memory or free, hold=lifted
    )


def _rollback(intent: Intent, moment: Moment, snapshot: Snapshot) -> Decision:
    where, now = moment.where, moment.said
    to, passed, caution = _destination(intent, moment, snapshot)
    wanted = replace(where.subscription.entry.image, tag=to.tag, digest=to.digest)
    words = intent.to if _steps(intent.to) else ""
    memory = rolled_back(moment.memory, now, to, passed, words)
    same = version_of(to) == version_of(now) and now.sound
    verdict = (
        Verdict("unchanged", "same", f"Git already says {version_of(to)}{f', which {words} meant' if words else ''}")
        if same
        else Verdict("update", "admitted", f"rolled back from {version_of(where.current) or 'nothing'}")
    )
    decision = replace(where, candidate=wanted, verdict=verdict, caution=caution, rolled_back=not same)
    if intent.hold is None:
        return decision if same else replace(decision, memory=memory)
    hold = intent.hold
    if not hold.reason:  # a hold of several images has one reason
        listed = split_image_list(where.subscription.application.annotations.get("image-list", ""))
        several = intent.whole and len(listed) > 1
        hold = replace(hold, reason=f"rolled back to {intent.to if several else version_of(to)}")
    known = moment.state.hold if intent.whole else memory.hold
    decision = replace(decision, verdict=replace(verdict, because=f"{verdict.because}; {said(hold)}"))
    if same and _equal(active(known, moment.terms.now), hold):
        return decision
    return _held(decision, intent, moment.memory if same else memory, hold)


def _steps(to: str) -> int:
    """How many values to go back, 0 where a version is named."""
    return 1 if to == "previous" else int(found[1]) if (found := BACK.fullmatch(to)) else 0


def _destination(intent: Intent, moment: Moment, snapshot: Snapshot) -> tuple[Reading, tuple[str, ...], str]:
    """What to go back to, the versions that are passed over, and what could not be found out about it.

    Raises `TargetError` where Git's history does not go back so far, `UsageError` for a tag that nobody knows.
    """
    to, name, back = intent.to, moment.where.subscription.entry.image.name, _steps(intent.to)
    meant = moment.memory.rollback
    # A job that runs again means what it meant: in the history, the value before is now the one it came from.
    again = meant and meant.to == to and version_of(meant) == version_of(moment.said)
    if again or (not back and to in (version_of(moment.said), moment.said.tag)):
        return moment.said, (), ""
    passed: list[str] = []
    for earlier in _values(moment, snapshot, MOST_TEXTS if back else TEXTS_FOR_A_TAG):
        if len(passed) == back - 1 if back else to in (version_of(earlier), earlier.tag):
            return earlier, tuple(passed), ""
        passed.append(version_of(earlier))
    if back:
        known = f"only {len(passed)} earlier values" if passed else "no earlier value"
        raise TargetError(
            f"Git's history has {known} of {name}",
            hint="name the tag: --to TAG",
            subject=moment.said.file,
        )
    tag, _, digest = ("", "", to) if to.startswith("sha256:") else to.partition("@")
    if intent.unknown:
        return Reading(tag=tag, digest=digest), (), ""
    sub = moment.where.subscription
    wanted = replace(sub.entry.image, tag=tag, digest=digest)
    pinned = not digest and bool(moment.said.digest or sub.policy.pin_digest)
    facts: tuple[Fact, ...] = ("exists", "digest") if pinned else ("exists",)
    answer = moment.facts.exists(replace(subject(sub, wanted), facts=facts))
    if answer is None or answer.error:
        # A file of ours that cannot be read is a mistake all the same.
        if answer and answer.error and (moment.terms.check == "always" or answer.error.exit == Exit.USAGE):
            raise answer.error
        why = answer.error.message if answer and answer.error else "the registry is not asked (--registry-check never)"
        return Reading(tag=tag, digest=digest), (), f"Git's history does not have it, and {why}"
    if not answer.exists:
        near = next(iter(get_close_matches(to, passed, 1)), "")
        raise UsageError(
            f"the registry has no {wanted.reference}, and the last {TEXTS_FOR_A_TAG} versions of "
            f"{moment.said.file} do not have it either",
            hint=f"{f'did you mean {near}? ' if near else ''}--image ALIAS means one image only; "
            "--unknown-tag goes back to it all the same",
        )
    return Reading(tag=tag, digest=digest or (answer.digest if pinned else "")), (), ""


def _values(moment: Moment, snapshot: Snapshot, most: int) -> Iterator[Reading]:
    """What the target said before, newest first, each value that differs from the one after it."""
    where, path = moment.where, moment.said.file
    kind = where.kind or "helm-override"
    last = version_of(moment.said)
    for text in moment.facts.earlier(path, most):
        files = {**snapshot.files, path: File(text)}
        try:
            found = EDITORS[kind].read(files, target_of(where.subscription, kind, carry=moment.terms.carry))
        except TaskError:
            continue  # it was broken then, and has been mended
        if version_of(found) and version_of(found) != last:
            last = version_of(found)
            yield found
