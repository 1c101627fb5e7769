"""Pure code for the builds that are waiting on head branches.

Each run decides all of them again, on the current base. A build is added to the list, then decided
again by each run (`_decide_alone`, or `_meet_ask` if the run is about the same image). In the end,
it is written (merged), replaced (superseded), deferred by a hold, or dropped.

A head branch's list has at most one waiting build for each write-back file and alias. A build that
passes again is written on top of the base's tip. If a person holds a build, it is remembered as
deferred instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from task.annotations.write_back import refuse_files
from task.deciding.decide import Identity, reading, situation_of, state_of, state_path
from task.deciding.job import Ask, Move, Promoted, Remember, Terms
from task.deciding.target import resolve, target_of, target_places
from task.deciding.weigh import Facts, Offer, Situation, key_of, weigh
from task.editors import EDITORS
from task.errors import NotPermittedError, TargetError, TaskError
from task.image import parse_image
from task.landing.waiting_list import (
    BaseThen,
    BuildKey,
    KnownRequest,
    ListedBuild,
    ListedRelease,
    WaitingList,
    declined_by,
    key_of_entry,
)
from task.model import (
    Build,
    Entry,
    Fate,
    Files,
    HeadBuildRow,
    Image,
    Memory,
    Place,
    Policy,
    Problem,
    Reading,
    Snapshot,
    Source,
    Subscription,
    Tracker,
    Verdict,
    Written,
)
from task.policy.builds import alike, commits, hold_text, released, rolled_back, why_older
from task.proof import Proof

Decided = tuple[Ask, Move]  # an ask and the move decided for it
LONG_AGO = "1970-01-01T00:00:00Z"  # a waiting build was old enough when it was listed
UNANSWERED = "registry"  # the rule for a build that stays because a server did not respond
UNREAD = "this run did not read its annotations"


@dataclass(frozen=True)
class WaitingBuild:
    """A listed build, and the current state of its image on the base."""

    listed: ListedBuild
    situation: Situation
    annotations_read: bool = True  # whether the run has read the Application's annotations
    proof: Proof | None = None  # what this run proved

    @property
    def subscription(self) -> Subscription:
        """The build's subscription."""
        return self.situation.subscription

    @property
    def image(self) -> Image:
        """The waiting image."""
        return self.subscription.image_at(self.listed)

    @property
    def build(self) -> Build:
        """The build's place in the order of builds."""
        return self.listed.build

    @property
    def as_then(self) -> bool:
        """Whether the base is unchanged since this build was listed."""
        memory = self.situation.memory
        then = self.listed.base
        on_base = self.situation.in_git.version
        return (on_base, memory.written, memory.replaced) == (
            then.version,
            then.written,
            then.replaced,
        )


@dataclass(frozen=True)
class Undecided:
    """A listed build that cannot be decided or written now. It stays in the list, but is not part
    of a commit.
    """

    listed: ListedBuild
    error: TaskError

    @property
    def left_out(self) -> ListedBuild:
        """Its entry in the list."""
        return replace(self.listed, left_out=str(self.error))


@dataclass(frozen=True)
class BuildFate:
    """What became of a listed build, with the move that writes or defers it, if any."""

    listed: ListedBuild
    fate: Fate
    because: str
    move: Move | None = None
    rule: str = ""  # why it must not wait any longer, whatever else is decided
    doubt: bool = False  # whether a server did not respond
    stands: bool = False  # on someone else's branch, which the run does not replace

    def row(self, head: str) -> HeadBuildRow:
        """Return the build's row in the report."""
        listed = self.listed
        return HeadBuildRow(
            listed.application,
            listed.alias,
            listed.tag,
            listed.digest,
            head,
            self.fate,
            self.because,
        )

    @property
    def stays_listed(self) -> bool:
        """Whether the build stays in the list and in the commit."""
        return self.stands or (self.move is not None and self.move.updates)

    @property
    def altered(self) -> bool:
        """Whether the head branch must be rewritten because of this build."""
        if self.stands:
            return False
        if self.move is None or not self.move.updates or self.listed.left_out:
            return True
        return self.move.decision.candidate.version != self.listed.version


@dataclass(frozen=True)
class WaitsOnHead:
    """What became of the builds waiting on one head branch."""

    fates: tuple[BuildFate, ...] = ()
    undecided: tuple[Undecided, ...] = ()
    problems: tuple[Problem, ...] = ()
    releases: tuple[ListedRelease, ...] = ()  # the holds that end with the waiting builds
    ended: tuple[ListedRelease, ...] = ()  # releases that are no longer waiting
    moved: bool = False  # whether an entry came from another head branch's list

    @property
    def altered(self) -> bool:
        """Whether an entry was added to the list, removed from it, or changed."""
        return self.moved or any(fate.altered for fate in self.fates)

    @property
    def gone(self) -> list[str]:
        """Why builds and releases are no longer waiting there."""
        builds = [
            f"{fate.listed.version}: {fate.because}" for fate in self.fates if not fate.stays_listed
        ]
        ends = [
            f"the hold on {release.application} ({release.image or 'all images'}) has ended in"
            " another way"
            for release in self.ended
        ]
        return builds + ends

    @property
    def leaves(self) -> tuple[str, ...]:
        """The builds that leave the list in this run, and why, as strings."""
        return tuple(
            f"{fate.listed.application} ({fate.listed.alias or fate.listed.image})"
            f" {fate.listed.version}: {fate.because}"
            for fate in self.fates
            if not fate.stays_listed
        )

    def rows(self, head: str) -> list[HeadBuildRow]:
        """Return the rows of the report."""
        left = (
            BuildFate(undecided.listed, "waits", str(undecided.error))
            for undecided in self.undecided
        )
        return [fate.row(head) for fate in (*self.fates, *left)]


def subscription_of(listed: ListedBuild, base: Snapshot) -> Subscription:
    """Create a subscription for a build whose Application this run did not read."""
    namespace, _, name = listed.application.partition("/")
    image = parse_image(listed.image)
    source = Source(base.repo, listed.source, kind=listed.kind)  # type: ignore[arg-type]
    entry = Entry(
        listed.alias, image, "", f"{listed.alias}={listed.image}" if listed.alias else listed.image
    )
    return Subscription(
        application=Tracker(namespace, name, project=listed.project, sources=(source,)),
        entry=entry,
        policy=Policy(strategy="newest-build"),
        keys=listed.keys,
        source=source,
        target=listed.target,
        path=listed.path,
        repo=base.repo,
        base=base.branch,
        home=listed.folder,
    )


def places_of(sub: Subscription) -> tuple[Place, ...]:
    """Return the places that must be read on the base to decide a listed build."""
    return (*target_places(sub), Place(state_path(sub)))


def overtaken(base: Snapshot, listed: ListedBuild, sub: Subscription | None) -> bool:
    """Return whether the base now has a listed build, or a newer one.

    `sub` is None for an Application that was not read. This does not query any server.
    """
    try:
        in_git = reading(base, sub or subscription_of(listed, base), Terms())
    except TaskError:
        return False
    if in_git.version == listed.version:
        return in_git.sound
    if sub is None or listed.rollback or in_git.version == listed.base.version:
        return False
    newer = Written(in_git.tag, in_git.digest)
    return bool(why_older(Written(listed.tag, listed.digest, listed.build), newer, sub.policy, {}))


def waiting_in(
    waiting_list: WaitingList,
    base: Snapshot,
    from_annotations: Mapping[BuildKey, Subscription],
    from_list: Mapping[BuildKey, Subscription],
    terms: Terms,
    facts: Facts,
) -> tuple[list[WaitingBuild], list[Undecided]]:
    """Return a list's builds with their state on the base, and the builds for which it is unknown.

    `from_annotations` are the subscriptions that this run has read. `from_list` has one for each
    other build.
    """
    waiting: list[WaitingBuild] = []
    undecided: list[Undecided] = []
    terms = replace(terms, build=Build(), promoted=None, require_live=False, allow_downgrade=False)
    for listed in waiting_list.builds:
        sub = from_annotations.get(listed.key) or from_list[listed.key]
        try:
            # a freeze does not defer builds that are already waiting
            situation = situation_of(base, replace(sub, freeze=None), terms, facts)
        except TaskError as error:
            undecided.append(Undecided(listed, error))
            continue
        read = listed.key in from_annotations
        if not read and (why := _unknown_order(listed, situation, base.branch)):
            undecided.append(Undecided(listed, TargetError(f"{why}; {UNREAD}")))
            continue
        waiting.append(WaitingBuild(listed, situation, read))
    return waiting, undecided


def _unknown_order(one: ListedBuild, situation: Situation, base: str) -> str:
    """Return why a build of an Application that was not read cannot be decided, or "".

    Without the annotations, the run cannot tell which of two versions is newer.
    """
    on_base = situation.in_git.version
    if not on_base:
        return f"{one.path} no longer has {one.image}"
    then = one.base.version
    if one.rollback or on_base in (then, one.version):
        return ""
    return f"{base} now has {on_base}, not {then or 'nothing'}"


def asks_of(waiting: Iterable[WaitingBuild]) -> list[Ask]:
    """Return asks that need the same facts as these builds."""
    return [
        Ask(entry.subscription, (entry.image,), build=entry.build)
        for entry in waiting
        if entry.annotations_read and not entry.listed.rollback
    ]


def pairs_of(
    waiting: Iterable[WaitingBuild], decided: Sequence[Decided]
) -> list[tuple[str, str, str]]:
    """Return the source commit pairs whose order decides between waiting and other builds."""
    events = {ask.key: move.build for ask, move in decided}
    pairs: list[tuple[str, str, str]] = []
    for entry in waiting:
        memory = entry.situation.memory
        both = [(entry.build, two.build) for two in (memory.written, memory.deferred) if two]
        if event := events.get(entry.subscription.identity):
            both.append((event, entry.build))
        pairs += [pair for new, old in both if (pair := commits(new, old))]
    return pairs


# What becomes of a waiting build if the command is for the same image. The outcomes of the ask
# are: it writes a newer build than the waiting one, an older one, or the same; it has no effect;
# a command other than `run` takes effect ("done", or "no-hold" if a rollback sets no hold).
#   decided_again    the waiting build is reevaluated, with what is remembered after the command.
#                    Under a new hold, it is deferred and leaves the list
#   written_by_ask   the ask writes the same build
#   replaced_by_ask  the ask's build replaces the waiting one
#   beats_ask        the ask is refused, because a newer build is waiting
#   without_hold     a waiting rollback is written again, without its hold
#   given_up         a person wants something else
Meets = Literal[
    "decided_again", "written_by_ask", "replaced_by_ask", "beats_ask", "without_hold", "given_up"
]
TOGETHER: Mapping[tuple[str, str], tuple[Meets, Meets]] = {
    # (command, outcome of the ask): (if a build is waiting, if a rollback is waiting)
    ("run", "nothing"): ("decided_again", "decided_again"),
    ("run", "newer"): ("replaced_by_ask", "replaced_by_ask"),
    ("run", "same"): ("written_by_ask", "written_by_ask"),
    ("run", "older"): ("beats_ask", "beats_ask"),
    ("hold", "nothing"): ("decided_again", "decided_again"),
    ("hold", "done"): ("decided_again", "decided_again"),
    ("release", "nothing"): ("decided_again", "decided_again"),
    ("release", "done"): ("decided_again", "without_hold"),
    ("release", "newer"): ("replaced_by_ask", "replaced_by_ask"),
    ("release", "same"): ("written_by_ask", "written_by_ask"),
    ("release", "older"): ("decided_again", "without_hold"),
    ("rollback", "nothing"): ("decided_again", "decided_again"),
    ("rollback", "done"): ("decided_again", "given_up"),  # its hold defers the build
    ("rollback", "no-hold"): ("given_up", "given_up"),
    ("undo", "nothing"): ("decided_again", "decided_again"),
    ("undo", "done"): ("beats_ask", "given_up"),
    ("undo", "no-hold"): ("beats_ask", "given_up"),
}


def fate_alone(base: Snapshot, waiting: WaitingBuild, head: str) -> BuildFate:
    """Return what becomes of a waiting build without an ask for its image."""
    move, fate, because = _decide_alone(base, waiting)
    if move and move.updates and (why := _why_no_longer_permitted(base, move, head)):
        return BuildFate(waiting.listed, "dropped", why, rule=NotPermittedError.rule)
    doubt = move is not None and move.decision.rule == UNANSWERED
    return BuildFate(waiting.listed, fate, because, move, doubt=doubt)


def decide_with_waiting(
    base: Snapshot, waiting: Sequence[WaitingBuild], decided: Sequence[Decided], terms: Terms
) -> tuple[dict[Identity, Move], list[BuildFate]]:
    """Decide the waiting builds on one of our head branches together with the asks for it.

    Return the asks' moves, and what becomes of each waiting build.
    """
    moves = {ask.key: move for ask, move in decided}
    asks = {ask.key: ask for ask, _ in decided}
    fates: list[BuildFate] = []
    for build in waiting:
        key = build.subscription.identity
        if key in asks:
            met = _meet_ask(base, build, asks[key], moves[key], terms)
            moves[key] = met.ask_move
            fate = BuildFate(build.listed, met.fate, met.because, met.build_move)
        else:
            own, outcome, because = _decide_alone(base, build)
            fate = BuildFate(build.listed, outcome, because, own)
        fates.append(replace(fate, move=fate.move and _with_proof(fate.move, build)))
    return moves, fates


def _with_proof(move: Move, waiting: WaitingBuild) -> Move:
    if not move.updates:
        return move
    return replace(move, decision=replace(move.decision, proof=waiting.proof))


def withdrawn(listed: ListedBuild, decided: Iterable[Decided]) -> str:
    """Return why a promotion's source no longer has the version, or "" if it may have it."""
    if not listed.promoted_from:
        return ""
    image = parse_image(listed.image).identity
    for ask, move in decided:
        sub = ask.subscription
        promoted = ask.promoted.source if ask.promoted else ""
        back = move.rolled_back and sub.application.key == listed.promoted_from
        if promoted == listed.promoted_from and key_of_entry(sub) == listed.key:
            at_source = ask.offered
        elif back and sub.entry.image.identity == image:
            at_source = move.decision.candidate
        else:
            continue
        if not alike(at_source, Reading(tag=listed.tag, digest=listed.digest)):
            return f"{listed.promoted_from} now has {at_source.version}"
    return ""


def taken_out(
    base: Snapshot, waiting: WaitingBuild, ask: Ask, move: Move, terms: Terms
) -> BuildFate:
    """Return what becomes of a build on another head branch after a person's command for the same
    entry.
    """
    if move.decision.verdict in ("error", "refuse"):
        own, _, _ = _decide_alone(base, waiting)
        return BuildFate(waiting.listed, "waits", move.decision.because, own)
    met = _meet_ask(base, waiting, ask, move, terms)
    if met.fate == "waits" and met.build_move is None:
        return BuildFate(waiting.listed, "dropped", move.decision.because)
    return BuildFate(waiting.listed, met.fate, met.because, met.build_move)


def standing_on(
    waiting_list: WaitingList,
    files: Files,
    subs: Mapping[BuildKey, Subscription],
    decided: Sequence[Decided],
    base: Snapshot,
) -> WaitsOnHead:
    """Return what became of the listed builds on a branch that a person has pushed to.

    The run does not replace that branch.
    """
    view = replace(base, files={**base.files, **files})
    written = {key_of_entry(ask.subscription): move for ask, move in decided if move.updates}
    fates: list[BuildFate] = []
    for listed in waiting_list.builds:
        if (move := written.get(listed.key)) is not None:
            because = f"replaced by {move.decision.candidate.version}"
            fates.append(BuildFate(listed, "superseded", because))
            continue
        sub = subs.get(listed.key) or subscription_of(listed, base)
        if _version_in(base, sub) == listed.version:
            because = f"{base.branch} now has {listed.version}"
            fates.append(BuildFate(listed, "merged", because))
            continue
        on_branch = _version_in(view, sub)
        if on_branch == listed.version:
            fates.append(BuildFate(listed, "waits", f"it is on {waiting_list.head}", stands=True))
        else:
            fates.append(
                BuildFate(
                    listed, "dropped", f"{waiting_list.head} now has {on_branch or 'nothing'}"
                )
            )
    return WaitsOnHead(tuple(fates))


def _version_in(view: Snapshot, sub: Subscription) -> str:
    with suppress(TaskError):
        return reading(view, sub, Terms()).version
    return ""


def _why_no_longer_permitted(base: Snapshot, move: Move, head: str) -> str:
    """Return why the repository's config no longer permits a waiting build, or ""."""
    decision = move.decision
    try:
        kind = resolve(decision.subscription, base)
        target = target_of(decision.subscription, kind)
        refuse_files(
            decision.subscription,
            EDITORS[kind].write(base.files, target, decision.candidate)[0],
            head,
        )
    except NotPermittedError as error:
        return str(error)
    except TaskError:  # the edit raises it again, as the decision's error
        pass
    return ""


def _verb(ask: Ask) -> str:
    return ask.intent.verb if ask.intent else "run"


@dataclass(frozen=True)
class _Met:
    """The result when an ask meets a waiting build of the same image."""

    ask_move: Move
    build_move: Move | None  # the move that keeps or defers the waiting build, if any
    fate: Fate  # of the waiting build
    because: str


def _meet_ask(base: Snapshot, waiting: WaitingBuild, ask: Ask, move: Move, terms: Terms) -> _Met:
    """Decide a waiting build together with an ask for the same image."""
    outcome, older = _outcome(ask, move, waiting, terms)
    meets = TOGETHER[_verb(ask), outcome][1 if waiting.listed.rollback else 0]
    if meets in ("decided_again", "without_hold") or _verb(ask) == "release":
        waiting = replace(waiting, situation=_situation_after(waiting.situation, ask, move))
    own, fate, because = _decide_alone(base, waiting)
    new = move.decision
    if (
        own is None
        or meets == "written_by_ask"
        or (meets == "given_up" and new.candidate.version == waiting.image.version)
    ):
        return _Met(move, None, fate, because)
    if meets == "replaced_by_ask":
        return _Met(move, None, "superseded", f"replaced by {new.candidate.version}")
    if meets == "given_up":
        return _Met(move, None, "dropped", new.because)
    if meets == "without_hold" and waiting.listed.rollback:
        rewritten = _without_hold(move, own, waiting.listed.rollback.was)
        return _Met(rewritten, None, fate, because)
    why = (
        f"{waiting.image.version} is already waiting on the head branch"
        f"{f': {older}' if older else ''}"
    )
    if meets == "beats_ask":
        refused = move.without_effect(Verdict("refuse", "superseded", why))
        return _Met(refused, own, fate, because)
    if outcome == "older":  # the hold still ends
        verdict = Verdict("refuse", "superseded", f"{new.because}, but {why}")
        released_hold = Remember(
            waiting.situation.memory, lifted=bool(move.remember and move.remember.lifted)
        )
        move = replace(move, decision=replace(new, judged=verdict), remember=released_hold)
    elif (fate, new.verdict, ask.intent) == (
        "deferred",
        "defer",
        None,
    ) and new.candidate.version != waiting.image.version:
        newer = f"{because}; the newer {waiting.image.version} is remembered"
        move = move.without_effect(Verdict("refuse", "superseded", newer))
    return _Met(move, own, fate, because)


def _outcome(ask: Ask, move: Move, waiting: WaitingBuild, terms: Terms) -> tuple[str, str]:
    """Return an ask's outcome, as in `TOGETHER`, and why it is older than the waiting build."""
    verb = _verb(ask)
    new = move.decision.candidate
    if verb not in ("run", "release"):
        if move.decision.verdict in ("error", "refuse") or (verb == "undo" and not move.updates):
            return "nothing", ""
        return "done" if ask.intent and ask.intent.hold else "no-hold", ""
    if not move.updates:
        return "done" if verb == "release" and move.remember else "nothing", ""
    if new.version == waiting.image.version:
        return "same", ""
    if terms.allow_downgrade:
        return "newer", ""
    event = Written(new.tag, new.digest, move.build)
    already = Written(waiting.image.tag, waiting.image.digest, waiting.build)
    older = why_older(event, already, waiting.subscription.policy, waiting.situation.facts.ancestry)
    return "older" if older else "newer", older


def _situation_after(situation: Situation, ask: Ask, move: Move) -> Situation:
    """Return the situation with the memory that an ask leaves if it doesn't write a newer build."""
    remember = move.remember
    if remember is None:
        return situation
    writes = _verb(ask) == "release" and move.updates
    memory = released(situation.memory) if writes else remember.memory or situation.memory
    hold = None if remember.lifted else remember.hold or situation.state.hold
    return replace(situation, memory=memory, state=replace(situation.state, hold=hold))


def _without_hold(move: Move, own: Move, was: str) -> Move:
    """Return the move of a release that rewrites the waiting rollback (`own`) without its hold."""
    verdict = Verdict("update", "admitted", f"{move.decision.because}; rolled back from {was}")
    lifted = move.remember is not None and move.remember.lifted
    remember = Remember(own.remember.memory if own.remember else None, lifted=lifted)
    return replace(
        own,
        decision=replace(own.decision, judged=verdict, head=move.decision.head),
        remember=remember,
        released=move.released,
    )


def _decide_alone(base: Snapshot, waiting: WaitingBuild) -> tuple[Move | None, Fate, str]:
    """Decide a waiting build on the current base. Return the move that keeps or defers it, its
    fate, and the reason.
    """
    on_base = waiting.situation.in_git.version
    if on_base == waiting.image.version and waiting.situation.in_git.sound:
        return None, "merged", f"{base.branch} now has {on_base}"
    if waiting.listed.rollback:
        return _decide_rollback_alone(base, waiting)
    move = weigh(waiting.situation, _offer(waiting))
    if waiting.as_then and move.decision.rule in ("not-newer", "superseded"):
        move = _as_allowed(waiting, move)
    verdict = move.decision.judged
    if verdict.verdict == "defer":
        hold = waiting.situation.hold
        return move, "deferred", hold_text(hold) if hold else verdict.because
    if verdict.verdict == "error":  # a server did not respond, so the build stays
        unknown = Verdict("update", UNANSWERED, f"{verdict.because}; the build is kept")
        return (
            Move(waiting.situation.decision(waiting.image, unknown), waiting.build),
            "waits",
            verdict.because,
        )
    if verdict.verdict != "update":
        return None, "superseded" if verdict.rule == "superseded" else "dropped", verdict.because
    because = verdict.because if waiting.annotations_read else UNREAD
    return _with_memory_after(waiting, move), "waits", because


def _offer(waiting: WaitingBuild) -> Offer:
    pinned = bool(waiting.image.digest and waiting.image.tag)
    return Offer(waiting.image, waiting.build, pinned=pinned, origin=waiting.listed.event)


def _as_allowed(waiting: WaitingBuild, move: Move) -> Move:
    """Return the move of an older build that a person has allowed, as long as the base is
    unchanged.

    The rules for age and order admit such a build only as a promotion, so it is weighed as one.
    """
    allowed = replace(
        waiting.situation, terms=replace(waiting.situation.terms, allow_downgrade=True)
    )
    offer = replace(_offer(waiting), pinned=False, promoted=Promoted("", since=lambda: LONG_AGO))
    again = weigh(allowed, offer)
    return again if again.decision.verdict in ("update", "defer") else move


def _with_memory_after(waiting: WaitingBuild, move: Move) -> Move:
    """Return the move with the base's memory after it. If a different build is deferred, it stays
    deferred.
    """
    deferred = waiting.situation.memory.deferred
    if deferred and alike(deferred, waiting.image):
        deferred = None
    remember = move.remember or Remember()
    memory = replace(remember.memory or waiting.situation.memory, deferred=deferred)
    written = memory.written
    if written and written.version == waiting.image.version and not written.digest:
        written = replace(written, image_digest=waiting.listed.image_digest)
        memory = replace(memory, written=written)
    candidate = waiting.image if waiting.image.digest else move.decision.candidate
    if not waiting.image.digest and not waiting.subscription.policy.pin_digest:
        candidate = waiting.image
    decision = replace(move.decision, candidate=candidate, source=waiting.listed.promoted_from)
    return replace(move, decision=decision, remember=replace(remember, memory=memory))


def _decide_rollback_alone(base: Snapshot, waiting: WaitingBuild) -> tuple[Move | None, Fate, str]:
    """Decide a waiting rollback. It is valid while the base has the version that it replaces."""
    situation = waiting.situation
    rollback = waiting.listed.rollback
    on_base = situation.in_git.version
    hold = situation.hold
    if rollback is None or on_base != rollback.was:
        was = rollback.was if rollback else ""
        return None, "superseded", f"{base.branch} now has {on_base or 'nothing'}, not {was}"
    because = f"rolled back from {rollback.was}{f'; {hold_text(hold)}' if hold else ''}"
    to = Reading(tag=waiting.image.tag, digest=waiting.image.digest)
    memory = rolled_back(
        situation.memory, situation.in_git, to, waiting.listed.skipped, rollback.to
    )
    # the current hold is written with it
    remember = Remember(memory, hold=None if memory.hold else situation.state.hold)
    decision = situation.decision(waiting.image, Verdict("update", "admitted", because))
    return Move(decision, waiting.build, remember, rolled_back=True), "waits", because


def list_after(
    waiting_list: WaitingList,
    done: Iterable[Move],
    waits: WaitsOnHead,
    left: Iterable[ListedBuild],
    base: Snapshot,
    now: str,
) -> WaitingList:
    """Return the list after a run: the builds that its commit writes, and those that could not be
    decided or written.
    """
    # A build that left the list is listed again, based on the current base.
    lost = {one.listed.key for one in waits.fates if one.fate != "waits"}
    old = {listed.key: listed for listed in waiting_list.builds if listed.key not in lost}
    new: dict[BuildKey, ListedBuild] = {}
    for move in done:
        if move.updates:
            build = listed_of(move, old.get(key_of_entry(move.subscription)), base, now)
            new[build.key] = build
    for listed in (*(undecided.left_out for undecided in waits.undecided), *left):
        new.setdefault(listed.key, listed)
    builds = tuple(sorted(new.values(), key=lambda build: build.key))
    again = {build.declined_key for build in builds}
    declined = tuple(one for one in waiting_list.declined if one.key not in again)
    return replace(
        waiting_list, builds=builds, releases=waits.releases, declined=declined, closing=""
    )


def listed_of(move: Move, before: ListedBuild | None, base: Snapshot, now: str) -> ListedBuild:
    """Return the list entry for a build that is written to a head branch.

    If the same build was listed before (`before`), its details are kept.
    """
    decision = move.decision
    sub = move.subscription
    if (
        before
        and before.version == decision.candidate.version
        and bool(before.rollback) == move.rolled_back
    ):
        identity = before.build if before.build != Build() else move.build
        proof = str(decision.proof or before.proof)
        return replace(before, build=identity, proof=proof, left_out="")
    memory = move.remember.memory if move.remember and move.remember.memory else Memory()
    rollback = memory.rollback if move.rolled_back else None
    return ListedBuild(
        application=sub.application.key,
        project=sub.application.project,
        alias=sub.entry.alias,
        image=sub.entry.image.name,
        tag=decision.candidate.tag,
        digest=decision.candidate.digest,
        image_digest="" if decision.candidate.digest else decision.built,
        target=sub.target,
        path=sub.path,
        folder=sub.home,
        source=sub.source.path,
        kind=sub.source.kind,
        keys=sub.keys,
        build=move.build,
        base=base_then(base, sub),
        admitted=decision.because,
        proof=str(decision.proof or ""),
        promoted_from=decision.source,
        event=decision.event,
        since=now,
        rollback=rollback,
        skipped=memory.replaced if rollback else (),
    )


def base_then(base: Snapshot, sub: Subscription) -> BaseThen:
    """Return the base's current version and memory of an image."""
    with suppress(TaskError):
        memory = state_of(base, sub).images.get(key_of(sub), Memory())
        in_git = reading(base, sub, Terms())
        return BaseThen(in_git.tag, in_git.digest, memory.written, memory.replaced)
    return BaseThen()


def settled_list(
    waiting_list: WaitingList, *, absent: bool, merged: bool, request: KnownRequest | None
) -> WaitingList:
    """Update a list for changes to its branch and request since the last run.

    `absent`: the branch does not exist. `merged`: its builds were merged. `request` is the newest
    request.
    """
    seen = waiting_list.request
    news = request if request and (seen is None or seen != request) else None
    same = bool(news and seen and news.number == seen.number and seen.state != "open")
    if news and news.state == "closed" and not same and not waiting_list.closing:
        waiting_list = declined_by(waiting_list, news.url)
    elif merged or (absent and waiting_list.arrived):
        waiting_list = replace(waiting_list, builds=(), releases=())
    return replace(waiting_list, request=request or seen)
