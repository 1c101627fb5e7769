"""Pure code for the builds that wait on head branches. Every run decides all of them again, on the base as it is now.

A head branch holds at most one waiting build for each write-back file and alias: what our commit there changed against
its own parent. A build that passes again is written on the base's tip. A build that a person holds is remembered
as deferred instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from task.annotations.writable import refuse_files
from task.deciding.ask import Ask
from task.deciding.decide import file_of, own_states, reading, situation_of, state_of, state_path
from task.deciding.job import Terms
from task.deciding.move import Move, Remember
from task.deciding.questions import Offer
from task.deciding.target import resolve, target_of
from task.deciding.weigh import Facts, Situation, key_of, weigh
from task.editors import EDITORS
from task.errors import NotPermittedError, TaskError
from task.model import (
    Build,
    Fate,
    File,
    Files,
    Head,
    Hold,
    Image,
    Memory,
    Reading,
    Snapshot,
    State,
    Subscription,
    Verdict,
    Waited,
    Written,
)
from task.policy.order import Ancestry, commits, version_of, why_older
from task.policy.remember import hold_text, holding, rolled_back

Rest = Mapping[str, tuple[File | None, File | None]]  # by path: before and after a change on a head branch
GONE = File("", "")
Decided = tuple[Ask, Move]  # an ask, and the move that was decided for it
NOTHING = State()


@dataclass(frozen=True)
class Waiting:
    """One build on a head branch."""

    subscription: Subscription
    image: Image
    build: Build = Build()
    back_from: str = ""  # the version that a person rolled back from; "" for any other build
    passed: tuple[str, ...] = ()  # all that it replaced
    hold: Hold | None = None  # of that rollback
    whole: bool = False  # whether that hold is of all images

    @property
    def written(self) -> Written:
        """The build as memory has it."""
        return Written(self.image.tag, self.image.digest, self.build)


def waiting_on(head: Head, subs: Iterable[Subscription], terms: Terms) -> list[Waiting]:
    """Return the builds of these subscriptions that wait on a head branch of ours."""
    if head.before is None or not head.changed:
        return []
    unique = {sub.identity: sub for sub in subs}
    found = (_waiting(head, head.before, sub, terms) for sub in unique.values())
    return [one for one in found if one]


def _waiting(head: Head, before: Snapshot, sub: Subscription, terms: Terms) -> Waiting | None:
    try:
        old, new = reading(before, sub, terms), reading(head, sub, terms)
        was, now = (_state(one, sub) for one in (before, head))
    except TaskError:
        return None
    if not version_of(new) or (version_of(new) == version_of(old) and old.sound):
        return None
    image, key = replace(sub.entry.image, tag=new.tag, digest=new.digest), key_of(sub)
    memory, known = now.images.get(key, Memory()), was.images.get(key, Memory())
    of_this = memory.written is not None and version_of(memory.written) == version_of(new)
    # A rollback keeps `written`, which may be the very version that it goes back to.
    of_event = of_this and memory.written != known.written
    if not of_event and version_of(old) in memory.replaced and version_of(old) not in known.replaced:
        whole = now.hold is not None and now.hold != was.hold
        hold = now.hold if whole else memory.hold if memory.hold != known.hold else None
        passed = tuple(one for one in memory.replaced if one not in known.replaced)
        return Waiting(sub, image, back_from=version_of(old), passed=passed, hold=hold, whole=whole)
    return Waiting(sub, image, memory.written.build if memory.written and of_this else Build())


def _state(snapshot: Snapshot, sub: Subscription) -> State:
    states = own_states(snapshot.files, state_path(sub))
    return states.get(file_of(snapshot, sub, states), NOTHING) if states else NOTHING


def pairs_of(waiting: Iterable[Waiting], base: Snapshot, decided: Sequence[Decided]) -> list[tuple[str, str, str]]:
    """Return the pairs of source commits whose order decides between what waits and other builds."""
    events = {ask.key: move.build for ask, move in decided}
    found: list[tuple[str, str, str]] = []
    for one in waiting:
        try:
            memory = state_of(base, one.subscription).images.get(key_of(one.subscription), Memory())
        except TaskError:
            continue
        known = [two.build for two in (memory.written, memory.deferred) if two]
        found += [pair for build in known if (pair := commits(one.build, build))]
        if (event := events.get(one.subscription.identity)) and (pair := commits(event, one.build)):
            found.append(pair)
    return found


def rest_of(head: Head, waiting: Iterable[Waiting], subs: Iterable[Subscription], terms: Terms) -> Rest:
    """Return what our commit changed beyond these builds: builds of Applications that this run did not read."""
    if head.before is None or not head.changed:
        return {}
    files = dict(head.before.files)
    for one in waiting:
        try:
            kind = resolve(one.subscription, head.before)
            target = target_of(one.subscription, kind, carry=terms.carry)
            files.update(EDITORS[kind].write(files, target, one.image)[0])
        except TaskError:
            continue
    ours = set(map(state_path, subs))
    pairs = {path: (files.get(path), head.files.get(path)) for path in head.changed if path not in ours}
    return {path: pair for path, pair in pairs.items() if _text(pair[0]) != _text(pair[1])}


def with_rest(base: Files, changed: Files, rest: Rest) -> dict[str, File]:
    """Return the changes with those of other Applications. Where the base has changed the same lines, it wins."""
    files = dict(changed)
    for path, (before, after) in rest.items():
        now = files.get(path, base.get(path))
        text = merged_text(_text(before), _text(after), _text(now))
        if text is None:
            files[path] = File("", "")
        elif text != _text(now):
            files[path] = replace(now or after or File(""), text=text)
    return {path: file for path, file in files.items() if file != base.get(path, GONE)}


def _text(file: File | None) -> str | None:
    return file.text if file and file.mode else None


def merged_text(before: str | None, after: str | None, now: str | None) -> str | None:
    """Return the text of now with the change from before to after. Lines that changed in both stay as they are now."""
    if now in (before, after):
        return after
    if before is None or after is None or now is None:
        return now
    old, new, present = (text.splitlines(keepends=True) for text in (before, after, now))
    blocks = SequenceMatcher(None, old, present, autojunk=False).get_matching_blocks()
    for tag, start, end, first, last in reversed(SequenceMatcher(None, old, new, autojunk=False).get_opcodes()):
        block = next((one for one in blocks if one.a <= start and end <= one.a + one.size and one.size), None)
        if tag != "equal" and block:
            at = start - block.a + block.b
            present[at : at + end - start] = new[first:last]
    return "".join(present)


@dataclass(frozen=True)
class DecidedAgain:
    """What becomes of a head branch: the moves of the asks, those of what waits, and what the report says of it."""

    moves: tuple[Move, ...]
    kept: tuple[Move, ...]
    waited: tuple[Waited, ...]


def decide_again(
    base: Snapshot,
    head: str,
    waiting: Sequence[Waiting],
    decided: Sequence[Decided],
    terms: Terms,
    ancestry: Ancestry,
) -> DecidedAgain:
    """Decide what waits on a head branch of ours together with the asks that go there."""
    moves = {ask.key: move for ask, move in decided}
    asks = {ask.key: ask for ask, _ in decided}
    anew = replace(terms, build=Build(), require_live=False, allow_downgrade=False)
    kept: list[Move] = []
    waited: list[Waited] = []
    for one in waiting:
        key = one.subscription.identity
        own, outcome, because = _alone(base, one, anew, ancestry)
        if key in moves and outcome != "merged":
            together = _together(asks[key], moves[key], one, own, (outcome, because), terms, ancestry)
            moves[key], own, outcome, because = together
        if own and own.updates and (why := _not_permitted(base, own, head, terms)):
            own, outcome, because = None, "dropped", why
        if own:
            kept.append(replace(own, decision=replace(own.decision, head=head), kept=True))
        waited.append(_told(one, head, outcome, because))
    return DecidedAgain(tuple(moves.values()), tuple(kept), tuple(waited))


def _not_permitted(base: Snapshot, move: Move, head: str, terms: Terms) -> str:
    """Return why the repository's config no longer lets an Application write what waits, or ""."""
    one = move.decision
    try:
        kind = resolve(one.subscription, base)
        target = target_of(one.subscription, kind, carry=terms.carry)
        refuse_files(one.subscription, EDITORS[kind].write(base.files, target, one.candidate)[0], head)
    except NotPermittedError as error:
        return str(error)
    except TaskError:  # the edit of the file raises it again, as an error of the decision
        pass
    return ""


def _told(one: Waiting, head: str, outcome: Fate, because: str) -> Waited:
    sub = one.subscription
    return Waited(sub.application.key, sub.entry.alias, one.image.tag, one.image.digest, head, outcome, because)


def _alone(base: Snapshot, one: Waiting, terms: Terms, ancestry: Ancestry) -> tuple[Move | None, Fate, str]:
    """Decide what waits on the base of now: the move that keeps or defers it, what becomes of it, and why."""
    # what waits was proposed before the freeze, and was asked about at the registry then
    sub = replace(one.subscription, freeze=None)
    try:
        situation = situation_of(base, sub, terms, Facts(ancestry))
    except TaskError as error:
        return None, "dropped", error.message
    there = version_of(situation.in_git)
    if there == one.image.version and situation.in_git.sound:
        return None, "merged", f"{base.branch} says {there} by now"
    if one.back_from:
        if there != one.back_from:
            return None, "superseded", f"{base.branch} says {there or 'nothing'} by now, not {one.back_from}"
        because = f"rolled back from {one.back_from}{f'; {hold_text(one.hold)}' if one.hold else ''}"
        return _rollback(one, situation, because), "waits", because
    move = weigh(situation, Offer(one.image, one.build))
    move = replace(move, decision=replace(move.decision, candidate=one.image)) if move.updates else move
    verdict = move.decision.judged
    if verdict.verdict == "update":
        return _deferring(move, situation.memory.deferred), "waits", verdict.because
    if verdict.verdict == "defer":
        hold = holding(situation.state, situation.memory, terms.now)
        return move, "deferred", hold_text(hold) if hold else verdict.because
    return None, "superseded" if verdict.rule == "superseded" else "dropped", verdict.because


def _rollback(one: Waiting, situation: Situation, because: str) -> Move:
    memory = rolled_back(situation.memory, situation.in_git, _reading(one), one.passed, "")
    # The base may have a hold already. Only `release` ends it.
    hold = None if one.whole else one.hold or memory.hold
    remember = Remember(replace(memory, hold=hold), hold=one.hold if one.whole else None)
    decision = situation.decision(one.image, Verdict("update", "admitted", because))
    return Move(decision, remember=remember, rolled_back=True)


def _reading(one: Waiting) -> Reading:
    return Reading(tag=one.image.tag, digest=one.image.digest)


def _together(
    ask: Ask,
    move: Move,
    one: Waiting,
    own: Move | None,
    told: tuple[Fate, str],
    terms: Terms,
    ancestry: Ancestry,
) -> tuple[Move, Move | None, Fate, str]:
    """Decide between an ask's move and what waits for the same image.

    Return the ask's move, the move that keeps or defers what waits, what becomes of it, and why.
    """
    outcome, because = told
    verb = ask.intent.verb if ask.intent else ""
    new = move.decision.candidate
    if verb == "undo" and not one.back_from and outcome == "waits":
        newer = Verdict("refuse", "superseded", f"{one.image.version} waits on the request by now")
        return move.without_effect(newer), own, outcome, because
    if verb in ("hold", "rollback", "undo"):
        return _by_hand(ask, move, one, own, told, ancestry)
    event = Written(new.tag, new.digest, move.build)
    older = "" if terms.allow_downgrade else why_older(event, one.written, one.subscription.policy, ancestry)
    if verb == "release" and one.back_from and own and (older or not move.updates):
        return _released(move, one, own), None, outcome, because
    if not move.updates:
        if own and outcome == "deferred" and move.remember and move.remember.memory:
            overtaken = why_older(one.written, event, one.subscription.policy, ancestry)
            takes_over = overtaken and move.decision.verdict == "defer"
            kept = move if takes_over else _remembering(move, move.remember, one, ancestry)
            return kept, None, outcome, because
        known = move.remember.memory if move.remember else None
        return move, _deferring(own, known.deferred) if own and known else own, outcome, because
    if own is None or outcome != "waits":
        return move, None, outcome, because
    if new.version == one.image.version:
        return move, None, outcome, because
    if older:
        why = Verdict("refuse", "superseded", f"{one.image.version} waits on the head branch already: {older}")
        ended = replace(move, decision=replace(move.decision, judged=why))  # a release ends the hold all the same
        return ended if verb == "release" else move.without_effect(why), own, outcome, because
    return move, None, "superseded", f"{new.version} takes its place"


def _released(move: Move, one: Waiting, own: Move) -> Move:
    """Return the move of a release that writes a rollback that waits anew, without its hold."""
    verdict = Verdict("update", "admitted", f"{move.decision.because}; rolled back from {one.back_from}")
    memory = own.remember.memory if own.remember and own.remember.memory else Memory()
    lifted = move.remember is not None and move.remember.lifted
    remember = Remember(replace(memory, hold=None, deferred=None), lifted=lifted)
    return replace(own, decision=replace(own.decision, judged=verdict, head=move.decision.head), remember=remember)


def _by_hand(
    ask: Ask, move: Move, one: Waiting, own: Move | None, told: tuple[Fate, str], ancestry: Ancestry
) -> tuple[Move, Move | None, Fate, str]:
    """Take what waits out of the request, for a hold or a rollback. With a hold, it is remembered as deferred."""
    outcome, because = told
    verdict, intent, remember = move.decision.judged, ask.intent, move.remember
    if verdict.verdict in ("error", "refuse") or outcome not in ("waits", "deferred") or intent is None:
        return move, own, outcome, because
    if one.back_from:
        if intent.verb == "hold":
            return move, own, outcome, because  # the hold keeps the rollback
        again = one.image.version == move.decision.candidate.version
        return move, None, outcome if again else "dropped", because if again else verdict.because
    if intent.hold is None:
        return move, None, "dropped", verdict.because
    if remember is None or remember.memory is None:
        return move, own, outcome, because
    return _remembering(move, remember, one, ancestry), None, "deferred", verdict.because


def _deferring(move: Move, deferred: Written | None) -> Move:
    """Return a move that keeps what waits. A build that is deferred as well stays deferred."""
    if not (move.remember and move.remember.memory):
        return move
    return replace(move, remember=replace(move.remember, memory=replace(move.remember.memory, deferred=deferred)))


def _remembering(move: Move, remember: Remember, one: Waiting, ancestry: Ancestry) -> Move:
    """Return a move that defers what waited as well, unless the build that it defers already is newer."""
    memory = remember.memory or Memory()
    if memory.deferred and why_older(one.written, memory.deferred, one.subscription.policy, ancestry):
        return move
    return replace(move, remember=replace(remember, memory=replace(memory, deferred=one.written)))
