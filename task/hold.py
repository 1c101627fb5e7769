"""Pure: what `hold`, `release` and `rollback` decide about one image, and what is remembered of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from task.edits import EDITORS
from task.errors import TargetError, TaskError
from task.model import Decision, File, Hold, Image, Memory, Reading, Snapshot, State, Verdict
from task.rules.order import version_of
from task.rules.remember import active, holding, rolled_back, said
from task.target import target_of
from task.weigh import Intent, Moment, deferred, failed, weigh

BACK = re.compile(r"([1-9][0-9]{0,3})-back")
MOST_TEXTS = 2000  # of one file's history that are read for a rollback


def fulfil(intent: Intent, moment: Moment, snapshot: Snapshot) -> Decision:
    """The decision about one image that a person's intent is about."""
    try:
        if intent.verb == "hold":
            return _hold(intent, moment)
        return _release(intent, moment) if intent.verb == "release" else _rollback(intent, moment, snapshot)
    except TaskError as error:
        return failed(moment.where, error)


def _hold(intent: Intent, moment: Moment) -> Decision:
    new, where = intent.hold, moment.where._replace(candidate=_as_it_is(moment))
    known = moment.state.hold if intent.whole else moment.memory.hold
    if new is None or _equal(active(known, moment.terms.now), new):
        because = said(known) if known else "nothing is held"
        return where._replace(verdict=Verdict("unchanged", "same", because))
    return _held(where._replace(verdict=Verdict("defer", "held", said(new))), intent, moment.memory, new)


def _as_it_is(moment: Moment) -> Image:
    now = moment.where.current
    return moment.where.subscription.entry.image._replace(tag=now.tag, digest=now.digest)


def _equal(known: Hold | None, new: Hold) -> bool:
    """When it was said makes no difference: saying it twice is saying it once."""
    return known is not None and known._replace(at=new.at) == new


def _held(decision: Decision, intent: Intent, memory: Memory, hold: Hold) -> Decision:
    if intent.whole:
        return decision._replace(memory=memory, hold=(hold,))
    return decision._replace(memory=memory._replace(hold=hold))


def _release(intent: Intent, moment: Moment) -> Decision:
    memory, now = moment.memory, moment.terms.now
    where = moment.where._replace(candidate=_as_it_is(moment))
    if not intent.whole and (all_held := active(moment.state.hold, now)):
        hint = "release the Application without --image; hold single images where only these are meant"
        raise TargetError(f"the whole Application is {said(all_held)}", hint=hint)
    was, waiting = holding(moment.state, memory, now), memory.deferred
    if not (memory.hold or waiting or (intent.whole and moment.state.hold)):
        return where._replace(verdict=Verdict("unchanged", "same", "it is not held"))
    free = memory._replace(hold=None, deferred=None)
    lifted: tuple[Hold | None, ...] = (None,) if intent.whole and moment.state.hold else ()
    told = f"released: it was {said(was)}" if was else "released"
    if waiting is None or intent.discard:
        dropped = f"; {version_of(waiting)} is dropped" if waiting else "; nothing was deferred"
        verdict = Verdict("unchanged", "same", told + dropped)
        return where._replace(verdict=verdict, memory=free, hold=lifted)
    now_free = moment._replace(memory=free, state=State(None, moment.state.images))
    decision = weigh(now_free, deferred(where.subscription, waiting))
    because = f"{told}; {version_of(waiting)} was deferred: {decision.verdict.because}"
    return decision._replace(
        verdict=decision.verdict._replace(because=because), memory=decision.memory or free, hold=lifted
    )


def _rollback(intent: Intent, moment: Moment, snapshot: Snapshot) -> Decision:
    where, now = moment.where, moment.said
    to, passed = _destination(intent.to, moment, snapshot)
    wanted = where.subscription.entry.image._replace(tag=to.tag, digest=to.digest)
    memory = rolled_back(moment.memory, now, to, passed)
    same = version_of(to) == version_of(now) and now.sound
    verdict = (
        Verdict("unchanged", "same", f"Git already says {version_of(to)}")
        if same
        else Verdict("update", "admitted", f"rolled back from {version_of(where.current) or 'nothing'}")
    )
    decision = where._replace(candidate=wanted, verdict=verdict)
    if intent.hold is None:
        return decision if same else decision._replace(memory=memory)
    known = moment.state.hold if intent.whole else memory.hold
    because = f"{verdict.because}; {said(intent.hold)}"
    decision = decision._replace(verdict=verdict._replace(because=because))
    if same and _equal(active(known, moment.terms.now), intent.hold):
        return decision
    return _held(decision, intent, moment.memory if same else memory, intent.hold)


def _destination(to: str, moment: Moment, snapshot: Snapshot) -> tuple[Reading, tuple[str, ...]]:
    """What to go back to, and the versions that are passed over. Raises `TargetError` where Git knows none."""
    back = 1 if to == "previous" else int(found[1]) if (found := BACK.fullmatch(to)) else 0
    passed: list[str] = []
    for earlier in _values(moment, snapshot):
        if back and len(passed) == back - 1:
            return earlier, tuple(passed)
        if not back and version_of(earlier) == to:
            return earlier, tuple(passed)
        passed.append(version_of(earlier))
    if back:
        known = f"only {len(passed)} earlier values" if passed else "no earlier value"
        raise TargetError(
            f"Git's history has {known} of {moment.where.subscription.entry.image.name}",
            hint="name the tag: --to TAG",
            subject=moment.said.file,
        )
    tag, _, digest = to.partition("@")
    found_digest = digest or (tag if tag.startswith("sha256:") else "")
    return Reading(tag="" if tag.startswith("sha256:") else tag, digest=found_digest), ()


def _values(moment: Moment, snapshot: Snapshot) -> Iterator[Reading]:
    """What the target said before, newest first, each value that differs from the one after it."""
    where, path = moment.where, moment.said.file
    kind = where.kind or "helm-override"
    last = version_of(moment.said)
    for number, text in enumerate(moment.facts.earlier(path)):
        if number >= MOST_TEXTS:
            return
        files = {**snapshot.files, path: File(text)}
        try:
            found = EDITORS[kind].read(files, target_of(where.subscription, kind, carry=moment.terms.carry))
        except TaskError:
            continue  # it was broken then, and has been mended
        if version_of(found) and version_of(found) != last:
            last = version_of(found)
            yield found
