"""Pure code for the builds that wait on head branches. Every run decides all of them again, on the base as it is now.

A head branch holds at most one waiting build for each write-back file and alias: what our commit there changed against
its own parent. A build that passes again is written on the base's tip. A build that a person holds is remembered
as deferred instead.

What our commit changed for Applications that a run did not read is kept line by line. Files do not say which build
changed them, so each commit on a head branch of ours lists its builds in trailers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import Match, SequenceMatcher
from typing import Literal

from task.annotations.write_back import refuse_files
from task.deciding.decide import (
    file_of,
    is_state_path,
    own_states,
    reading,
    situation_of,
    state_path,
)
from task.deciding.job import Ask, Move, Promoted, Remember, Terms
from task.deciding.target import resolve, target_of, target_places
from task.deciding.weigh import Facts, Offer, Situation, key_of, weigh
from task.editors import EDITORS
from task.errors import Malformed, NotPermittedError, TaskError
from task.image import parse_image
from task.landing.memory import GONE
from task.model import (
    Build,
    Fate,
    File,
    Files,
    Head,
    Image,
    Meant,
    Memory,
    Problem,
    Reading,
    Snapshot,
    State,
    Subscription,
    Verdict,
    Waited,
    Written,
)
from task.policy.builds import alike, commits, hold_text, released, rolled_back, why_older
from task.templates.change import AppChanges, Change
from task.templates.commit_message import MOST_LINES, Trailer

Rest = Mapping[
    str, tuple[File | None, File | None]
]  # by path: before and after a change on a head branch
Decided = tuple[Ask, Move]  # an ask, and the move that was decided for it
LONG_AGO = "1970-01-01T00:00:00Z"  # it was old enough then
WAITS = "Image-Update-Waits"  # a trailer
NONE = "-"  # in the trailer, for an empty word
Key = tuple[str, str, str]  # Application (namespace/name), alias, image
MOST_DIFFERENT = 4000  # lines; more are not compared, because that may take minutes


@dataclass(frozen=True)
class Waiting:
    """One build on a head branch, and what the base says about its image now."""

    situation: Situation
    image: Image
    build: Build
    rollback: Meant | None  # if a person's rollback waits
    replaced: tuple[str, ...]  # the versions that the head branch remembers
    as_then: bool  # whether the base has what it had when this was proposed

    @property
    def subscription(self) -> Subscription:
        """The subscription that it is for."""
        return self.situation.subscription


@dataclass(frozen=True)
class Unread:
    """Something of a subscription that our commit changed on a head branch, and that cannot be decided now."""

    subscription: Subscription
    error: TaskError
    on_head: bool  # whether the head branch cannot be read; else it is the base
    written: Written | None  # what the head branch remembers of it, if that can be read


@dataclass(frozen=True)
class Waits:
    """What became of the builds that waited on one head branch."""

    builds: tuple[Waited, ...] = ()
    problems: tuple[Problem, ...] = ()
    rest: Rest = field(default_factory=dict)  # changes that belong to no Application of this run
    others: tuple[AppChanges, ...] = ()  # the builds among these


def waiting_on(
    head: Head, base: Snapshot, subs: Iterable[Subscription], terms: Terms
) -> tuple[list[Waiting], list[Unread]]:
    """Return the builds of these subscriptions that wait on a head branch of ours, and those that cannot be read."""
    found: list[Waiting] = []
    unread: list[Unread] = []
    if head.before is None or not head.changed:
        return found, unread
    terms = replace(terms, build=Build(), require_live=False, allow_downgrade=False)
    for sub in {sub.identity: sub for sub in subs}.values():
        written, on_head = None, True
        try:
            was, now = (_remembered(one, sub) for one in (head.before, head))
            written = now.written if now.written != was.written else None
            old, new = reading(head.before, sub, terms), reading(head, sub, terms)
            if not new.version or (new.version == old.version and old.sound):
                continue
            on_head = False
            # what waits was proposed before a freeze, and was asked about at the registry then
            situation = situation_of(base, replace(sub, freeze=None), terms)
            own = _remembered(base, sub)
        except TaskError as error:
            if any(_writes(sub, path) for path in head.changed):
                unread.append(Unread(sub, error, on_head, written))
            continue
        image = sub.image_at(new)
        back = now.rollback if now.rollback and alike(now.rollback, new) else None
        back = back if back and back.was == old.version else None
        of_this = now.written and not back and now.written.version == new.version
        build = now.written.build if now.written and of_this else Build()
        then = (old.version, was.written, was.replaced)
        as_then = then == (situation.in_git.version, own.written, own.replaced)
        found.append(Waiting(situation, image, build, back, now.replaced, as_then))
    return found, unread


def _remembered(snapshot: Snapshot, sub: Subscription) -> Memory:
    states = own_states(snapshot.files, state_path(sub))
    return states.get(file_of(snapshot, sub, states), State()).images.get(key_of(sub), Memory())


def _writes(sub: Subscription, path: str) -> bool:
    """Tell whether a file belongs to the subscription: its target, or what is remembered of it."""
    own = (*(place.path for place in target_places(sub)), state_path(sub))
    return any(path == one or path.startswith(f"{one}/") for one in own)


def pairs_of(waiting: Iterable[Waiting], decided: Sequence[Decided]) -> list[tuple[str, str, str]]:
    """Return the pairs of source commits whose order decides between what waits and other builds."""
    events = {ask.key: move.build for ask, move in decided}
    found: list[tuple[str, str, str]] = []
    for one in waiting:
        memory = one.situation.memory
        both = [(one.build, two.build) for two in (memory.written, memory.deferred) if two]
        if event := events.get(one.subscription.identity):
            both.append((event, one.build))
        found += [pair for new, old in both if (pair := commits(new, old))]
    return found


# What becomes of something that waits if the command is about the same image. The outcomes of the ask are: it writes
# a newer build than the one that waits, an older one, or the same; it changes nothing; a person's word counts.
#   stays    it is decided again, on what is remembered after the command
#   again    the ask writes the very same
#   yields   the ask's build takes its place
#   wins     the ask is refused, because something newer waits
#   freed    a rollback is written again without its hold
#   dropped  a person wants something else
Meets = Literal["stays", "again", "yields", "wins", "freed", "dropped"]
TOGETHER: Mapping[tuple[str, str], tuple[Meets, Meets]] = {
    # (command, outcome of the ask): (if a build waits, if a rollback waits)
    ("run", "nothing"): ("stays", "stays"),
    ("run", "newer"): ("yields", "yields"),
    ("run", "same"): ("again", "again"),
    ("run", "older"): ("wins", "wins"),
    ("hold", "nothing"): ("stays", "stays"),
    ("hold", "done"): ("stays", "stays"),
    ("release", "nothing"): ("stays", "stays"),
    ("release", "done"): ("stays", "freed"),
    ("release", "newer"): ("yields", "yields"),
    ("release", "same"): ("again", "again"),
    ("release", "older"): ("stays", "freed"),
    ("rollback", "nothing"): ("stays", "stays"),
    ("rollback", "done"): ("stays", "dropped"),  # its hold defers the build
    ("rollback", "no-hold"): ("dropped", "dropped"),
    ("undo", "nothing"): ("stays", "stays"),
    ("undo", "done"): ("wins", "dropped"),
    ("undo", "no-hold"): ("wins", "dropped"),
}


def decide_again(
    base: Snapshot,
    head: str,
    waiting: Sequence[Waiting],
    unread: Sequence[Unread],
    decided: Sequence[Decided],
    terms: Terms,
    facts: Facts,
) -> tuple[list[Move], Waits]:
    """Decide what waits on a head branch of ours together with the asks that go there.

    Returns the moves of the asks in their order, and after them the moves that keep or defer what waits.
    """
    moves = {ask.key: move for ask, move in decided}
    asks = {ask.key: ask for ask, _ in decided}
    kept: list[Move] = []
    waited: list[Waited] = []
    own: Move | None
    fate: Fate
    for found in waiting:
        key = found.subscription.identity
        one = replace(found, situation=replace(found.situation, facts=facts))
        if key in asks:
            moves[key], own, fate, because = _with_ask(base, one, asks[key], moves[key], terms)
        else:
            own, fate, because = _alone(base, one)
        if own and own.updates and (why := _not_permitted(base, own, head)):
            own, fate, because = None, "dropped", why
        if own:
            kept.append(replace(own, decision=replace(own.decision, head=head), kept=True))
        app, alias = one.subscription.application.key, one.subscription.entry.alias
        waited.append(Waited(app, alias, one.image.tag, one.image.digest, head, fate, because))
    for lost in unread:
        key, policy = lost.subscription.identity, lost.subscription.policy
        if lost.written and key in moves and moves[key].updates and not asks[key].intent:
            new, build = moves[key].decision.candidate, moves[key].build
            if older := why_older(
                Written(new.tag, new.digest, build), lost.written, policy, facts.ancestry
            ):
                why = f"{lost.written.version} waits on the head branch already: {older}"
                moves[key] = moves[key].without_effect(Verdict("refuse", "superseded", why))
    rewritten = any(one.updates for one in moves.values()) or any(
        one.outcome != "waits" for one in waited
    )
    problems: dict[Problem, None] = {}
    for lost in unread:
        app, alias, error = (
            lost.subscription.application.key,
            lost.subscription.entry.alias,
            lost.error,
        )
        message = f"what waits on {head} cannot be decided: {error}"
        problems[
            Problem(
                application=app,
                rule=error.rule,
                message=message,
                hint=error.hint,
                severity="warning",
            )
        ] = None
        fate = "dropped" if rewritten and lost.on_head else "waits"
        if lost.written:
            waited.append(
                Waited(app, alias, lost.written.tag, lost.written.digest, head, fate, str(error))
            )
    return [*moves.values(), *kept], Waits(tuple(waited), tuple(problems))


def _not_permitted(base: Snapshot, move: Move, head: str) -> str:
    """Return why the repository's config no longer lets an Application write what waits, or ""."""
    one = move.decision
    try:
        kind = resolve(one.subscription, base)
        target = target_of(one.subscription, kind)
        refuse_files(
            one.subscription, EDITORS[kind].write(base.files, target, one.candidate)[0], head
        )
    except NotPermittedError as error:
        return str(error)
    except TaskError:  # the edit of the file raises it again, as an error of the decision
        pass
    return ""


def _verb(ask: Ask) -> str:
    return ask.intent.verb if ask.intent else "run"


def _with_ask(
    base: Snapshot, one: Waiting, ask: Ask, move: Move, terms: Terms
) -> tuple[Move, Move | None, Fate, str]:
    """Return the ask's move, the move that keeps or defers what waits, what becomes of it, and why."""
    outcome, older = _outcome(ask, move, one, terms)
    meets = TOGETHER[_verb(ask), outcome][1 if one.rollback else 0]
    if meets in ("stays", "freed") or _verb(ask) == "release":
        one = replace(one, situation=_after(one.situation, ask, move))
    own, fate, because = _alone(base, one)
    new = move.decision
    if (
        own is None
        or meets == "again"
        or (meets == "dropped" and new.candidate.version == one.image.version)
    ):
        return move, None, fate, because
    if meets == "yields":
        return move, None, "superseded", f"{new.candidate.version} takes its place"
    if meets == "dropped":
        return move, None, "dropped", new.because
    if meets == "freed" and one.rollback:
        return _freed(move, own, one.rollback.was), None, fate, because
    why = f"{one.image.version} waits on the head branch already{f': {older}' if older else ''}"
    if meets == "wins":
        return move.without_effect(Verdict("refuse", "superseded", why)), own, fate, because
    if outcome == "older":  # the hold ends all the same
        verdict = Verdict("refuse", "superseded", f"{new.because}, but {why}")
        freed = Remember(one.situation.memory, lifted=bool(move.remember and move.remember.lifted))
        move = replace(move, decision=replace(new, judged=verdict), remember=freed)
    elif (fate, new.verdict, ask.intent) == (
        "deferred",
        "defer",
        None,
    ) and new.candidate.version != one.image.version:
        newer = f"{because}; {one.image.version} is remembered and is newer"
        move = move.without_effect(Verdict("refuse", "superseded", newer))
    return move, own, fate, because


def _outcome(ask: Ask, move: Move, one: Waiting, terms: Terms) -> tuple[str, str]:
    """Return what an ask comes to, as `TOGETHER` calls it, and why it is older than what waits."""
    verb, new = _verb(ask), move.decision.candidate
    if verb not in ("run", "release"):
        if move.decision.verdict in ("error", "refuse") or (verb == "undo" and not move.updates):
            return "nothing", ""
        return "done" if ask.intent and ask.intent.hold else "no-hold", ""
    if not move.updates:
        return "done" if verb == "release" and move.remember else "nothing", ""
    if new.version == one.image.version:
        return "same", ""
    if terms.allow_downgrade:
        return "newer", ""
    event, there = (
        Written(new.tag, new.digest, move.build),
        Written(one.image.tag, one.image.digest, one.build),
    )
    older = why_older(event, there, one.subscription.policy, one.situation.facts.ancestry)
    return "older" if older else "newer", older


def _after(situation: Situation, ask: Ask, move: Move) -> Situation:
    """Return the situation with what an ask that writes nothing newer wants to be remembered."""
    remember = move.remember
    if remember is None:
        return situation
    writes = _verb(ask) == "release" and move.updates
    memory = released(situation.memory) if writes else remember.memory or situation.memory
    hold = None if remember.lifted else remember.hold or situation.state.hold
    return replace(situation, memory=memory, state=replace(situation.state, hold=hold))


def _freed(move: Move, own: Move, was: str) -> Move:
    """Return the move of a release that writes again the rollback that waits (`own`), without its hold."""
    verdict = Verdict("update", "admitted", f"{move.decision.because}; rolled back from {was}")
    lifted = move.remember is not None and move.remember.lifted
    remember = Remember(own.remember.memory if own.remember else None, lifted=lifted)
    return replace(
        own,
        decision=replace(own.decision, judged=verdict, head=move.decision.head),
        remember=remember,
    )


def _alone(base: Snapshot, one: Waiting) -> tuple[Move | None, Fate, str]:
    """Decide what waits on the base of now: the move that keeps or defers it, what becomes of it, and why."""
    situation = one.situation
    there, hold = situation.in_git.version, situation.hold
    if there == one.image.version and situation.in_git.sound:
        return None, "merged", f"{base.branch} says {there} by now"
    if one.rollback:
        if there != one.rollback.was:
            return (
                None,
                "superseded",
                f"{base.branch} says {there or 'nothing'} by now, not {one.rollback.was}",
            )
        because = f"rolled back from {one.rollback.was}{f'; {hold_text(hold)}' if hold else ''}"
        to = Reading(tag=one.image.tag, digest=one.image.digest)
        memory = rolled_back(situation.memory, situation.in_git, to, one.replaced, one.rollback.to)
        remember = Remember(
            memory, hold=None if memory.hold else situation.state.hold
        )  # what is held now goes with it
        decision = situation.decision(one.image, Verdict("update", "admitted", because))
        return Move(decision, remember=remember, rolled_back=True), "waits", because
    move = weigh(situation, Offer(one.image, one.build))
    if one.as_then and move.decision.rule in (
        "not-newer",
        "superseded",
    ):  # a person has allowed an older version
        allowed = replace(situation, terms=replace(situation.terms, allow_downgrade=True))
        offer = Offer(one.image, one.build, promoted=Promoted("", since=lambda: LONG_AGO))
        move = (
            again
            if (again := weigh(allowed, offer)).decision.verdict in ("update", "defer")
            else move
        )
    verdict = move.decision.judged
    if verdict.verdict == "defer":
        return move, "deferred", hold_text(hold) if hold else verdict.because
    if verdict.verdict != "update":
        return None, "superseded" if verdict.rule == "superseded" else "dropped", verdict.because
    deferred = situation.memory.deferred  # as well: it stays, unless it is this very build
    deferred = deferred if deferred and not alike(deferred, one.image) else None
    remember = move.remember or Remember()
    memory = replace(remember.memory or situation.memory, deferred=deferred)
    decision = replace(move.decision, candidate=one.image)
    return (
        replace(move, decision=decision, remember=replace(remember, memory=memory)),
        "waits",
        verdict.because,
    )


def rest_of(
    head: Head, waiting: Iterable[Waiting], unread: Iterable[Unread], subs: Iterable[Subscription]
) -> Rest:
    """Return what our commit changed beyond these builds: builds of Applications that this run did not read.

    A build that cannot be decided is among them, unless its file on the head branch cannot be read: that may be broken.
    """
    if head.before is None or not head.changed:
        return {}
    files = dict(head.before.files)
    for one in waiting:
        with suppress(TaskError):
            kind = resolve(one.subscription, head.before)
            target = target_of(one.subscription, kind, carry=one.situation.terms.carry)
            files.update(EDITORS[kind].write(files, target, one.image)[0])
    broken = [one.subscription for one in unread if one.on_head]
    ours = set(map(state_path, subs)) - {
        state_path(one.subscription) for one in unread if not one.on_head
    }
    left = [
        path
        for path in head.changed
        if path not in ours and not any(_writes(one, path) for one in broken)
    ]
    pairs = {path: (files.get(path), head.files.get(path)) for path in left}
    return {path: pair for path, pair in pairs.items() if _text(pair[0]) != _text(pair[1])}


def with_rest(base: Files, changed: Files, rest: Rest) -> tuple[dict[str, File], list[str]]:
    """Return the changes with those of other Applications, and the files where some of the latter are lost.

    Where the base has changed the same lines, it wins.
    """
    files, lost = dict(changed), []
    for path, (before, after) in rest.items():
        if path in changed and is_state_path(path):
            continue  # what is remembered is no text to merge
        now = files.get(path, base.get(path))
        text, whole = merged_text(_text(before), _text(after), _text(now))
        lost += [] if whole or is_state_path(path) else [path]
        if text is None:
            files[path] = GONE
        elif text != _text(now):
            files[path] = replace(now or after or File(""), text=text)
    return {path: file for path, file in files.items() if file != base.get(path, GONE)}, lost


def _text(file: File | None) -> str | None:
    return file.text if file and file.mode else None


def merged_text(before: str | None, after: str | None, now: str | None) -> tuple[str | None, bool]:
    """Return the text of now with the change from before to after, and whether it has all of that change.

    Lines that changed in both stay as they are now. So does a whole text in which too many lines differ.
    """
    if now in (before, after):
        return after, True
    if before is None or after is None or now is None:
        return now, False
    old, new, present = (text.splitlines(keepends=True) for text in (before, after, now))
    blocks, hunks = _blocks(old, present), _blocks(old, new)
    if blocks is None or hunks is None:
        return now, False
    whole, start, first = True, 0, 0
    edits = []
    for hunk in hunks:
        if (hunk.a, hunk.b) != (start, first):
            inside = int(
                start == hunk.a and 0 < start < len(old)
            )  # what is only inserted needs its neighbours
            where = bisect_left(
                blocks, hunk.a + inside, key=lambda one: one.a + one.size
            )  # it ends there or later
            block = blocks[where] if where < len(blocks) else None
            if block and block.a <= start - inside:
                at = start - block.a + block.b
                edits.append((at, at + hunk.a - start, new[first : hunk.b]))
            else:
                whole = False
        start, first = hunk.a + hunk.size, hunk.b + hunk.size
    for at, end, lines in reversed(edits):
        present[at:end] = lines
    return "".join(present), whole


def _blocks(old: Sequence[str], new: Sequence[str]) -> list[Match] | None:
    """Return the blocks of lines that two texts share, or None if too many lines differ to find that out."""
    least = min(len(old), len(new))
    start = next((count for count in range(least) if old[count] != new[count]), least)
    least -= start
    end = next((count for count in range(least) if old[-1 - count] != new[-1 - count]), least)
    middle, other = old[start : len(old) - end], new[start : len(new) - end]
    same = [
        Match(at, at, 1)
        for at, pair in enumerate(zip(middle, other, strict=False))
        if pair[0] == pair[1]
    ]
    # If values have changed, line by line, unless hardly any line is the same
    if len(middle) != len(other) or 2 * len(same) < len(middle) - 1:
        if max(len(middle), len(other)) > MOST_DIFFERENT:
            return None
        same = SequenceMatcher(None, middle, other).get_matching_blocks()
    inner = [Match(one.a + start, one.b + start, one.size) for one in same]
    return _joined([Match(0, 0, start), *inner, Match(len(old) - end, len(new) - end, end)])


def _joined(blocks: Iterable[Match]) -> list[Match]:
    """Return the blocks, with those that follow each other as one."""
    found: list[Match] = []
    for one in blocks:
        last = found[-1] if found else None
        if last and (last.a + last.size, last.b + last.size) == (one.a, one.b):
            found[-1] = Match(last.a, last.b, last.size + one.size)
        else:
            found.append(one)
    return found


def trailers_of(apps: Sequence[AppChanges]) -> list[Trailer]:
    """Return a trailer for each change: Application, alias, new and old version, file."""
    found: list[Trailer] = []
    for app, one in [(owner, change) for owner in apps for change in owner.changes]:
        image = replace(one.image, tag=one.new_tag, digest=one.new_digest)
        old = "@".join(filter(None, (one.old_tag, one.old_digest)))
        words = (f"{app.namespace}/{app.name}", one.alias, image.reference, old, one.file)
        found.append((WAITS, " ".join(word or NONE for word in words)))
    return found[:MOST_LINES]


def listed(message: str, ours: Collection[Key]) -> Iterator[AppChanges]:
    """Yield the changes that the trailers of a commit list, without those of entries that this run knows."""
    for line in message.rstrip("\n").rpartition("\n\n")[2].splitlines():
        start, *words = line.split(" ", 5)
        if start != f"{WAITS}:" or len(words) != 5:
            continue
        app, alias, reference, old, file = ("" if word == NONE else word for word in words)
        tag, _, digest = (f"@{old}" if old.startswith("sha256:") else old).partition("@")
        with suppress(Malformed):
            image, why = parse_image(reference), "waits since an earlier run"
            change = Change(image, alias, tag, image.tag, digest, image.digest, why=why, file=file)
            if (app, alias, image.identity) not in ours:
                yield AppChanges(*app.partition("/")[::2], (change,))


def carried_on(
    others: Sequence[AppChanges], rest: Rest, edited: Files, files: Files
) -> tuple[list[AppChanges], list[str]]:
    """Return the changes of others that a commit keeps, and the files that it keeps for none of these.

    `edited` are the changed files of this run's own builds, `files` those of the commit.
    """
    kept = [
        path for path in rest if not is_state_path(path) and files.get(path) != edited.get(path)
    ]
    found = {
        path: [one for one in others if f"{path}/".startswith(f"{one.changes[0].file}/")]
        for path in kept
    }
    changes = [one for one in others if any(one in there for there in found.values())]
    return changes, [path for path, there in found.items() if not there]
