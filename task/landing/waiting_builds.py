"""Pure code for the builds that are waiting on head branches.

Each run reevaluates all of them on the current base: `_decide_alone` decides a build, or
`_meet_ask` if the run is about the same image. In the end, the build is merged, replaced by another
one (superseded), deferred by a hold, or dropped.

A head branch's list has at most one waiting build for each write-back file and alias. A build that
passes is written again, on top of the base's tip. If a person holds a build, it is remembered as
deferred instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    def base_unchanged(self) -> bool:
        """Whether the base is unchanged since this build was listed."""
        memory = self.situation.memory
        when_listed = self.listed.base
        return (
            self.situation.in_git.version == when_listed.version
            and memory.written == when_listed.written
            and memory.replaced == when_listed.replaced
        )


@dataclass(frozen=True)
class Undecided:
    """A listed build that cannot be decided or written now. It stays in the list, but is not part
    of a commit.
    """

    listed: ListedBuild
    error: TaskError

    @property
    def list_entry(self) -> ListedBuild:
        """Its entry in the list."""
        return replace(self.listed, left_out=str(self.error))


@dataclass(frozen=True)
class BuildFate:
    """What became of a listed build, with the move that writes or defers it, if any."""

    listed: ListedBuild
    fate: Fate
    because: str
    move: Move | None = None
    rule: str = ""  # the rule that removes it from the list, whatever the asks do
    doubt: bool = False  # whether a server did not respond
    on_foreign_branch: bool = False  # which the run does not replace

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
        return self.on_foreign_branch or (self.move is not None and self.move.updates)

    @property
    def altered(self) -> bool:
        """Whether the head branch must be rewritten because of this build."""
        if self.on_foreign_branch:
            return False
        if self.move is None or not self.move.updates:  # the branch still has the build
            return True
        if self.listed.left_out:  # the branch does not have the build yet
            return True
        return self.move.decision.candidate.version != self.listed.version


@dataclass(frozen=True)
class FatesOnHead:
    """What became of the builds waiting on one head branch."""

    fates: tuple[BuildFate, ...] = ()
    undecided: tuple[Undecided, ...] = ()
    problems: tuple[Problem, ...] = ()
    releases: tuple[ListedRelease, ...] = ()  # the holds that end with the waiting builds
    obsolete: tuple[ListedRelease, ...] = ()  # releases whose hold has ended in another way
    rewrite: bool = False  # whether the head branch must be written even if no build has changed

    @property
    def altered(self) -> bool:
        """Whether the head branch or its list must be written."""
        return self.rewrite or any(fate.altered for fate in self.fates)

    @property
    def closing_reasons(self) -> list[str]:
        """Why builds and releases are no longer waiting there."""
        of_builds = [
            f"{fate.listed.version}: {fate.because}" for fate in self.fates if not fate.stays_listed
        ]
        of_releases = [
            f"the hold on {release.application} ({release.image or 'all images'}) has ended in"
            " another way"
            for release in self.obsolete
        ]
        return of_builds + of_releases

    @property
    def leaving(self) -> tuple[str, ...]:
        """The builds that leave the list in this run, and why, as strings."""
        return tuple(
            f"{fate.listed.application} ({fate.listed.alias or fate.listed.image})"
            f" {fate.listed.version}: {fate.because}"
            for fate in self.fates
            if not fate.stays_listed
        )

    def rows(self, head: str) -> list[HeadBuildRow]:
        """Return the rows of the report."""
        undecided_fates = (
            BuildFate(undecided.listed, "waits", str(undecided.error))
            for undecided in self.undecided
        )
        return [fate.row(head) for fate in (*self.fates, *undecided_fates)]


NO_FATES = FatesOnHead()  # of the base, where nothing waits


def subscription_of(listed: ListedBuild, base: Snapshot) -> Subscription:
    """Create a subscription for a build whose Application this run did not read."""
    namespace, _, name = listed.application.partition("/")
    image = parse_image(listed.image)
    source = Source(base.repo, listed.source, kind=listed.kind)  # type: ignore[arg-type]
    entry_text = f"{listed.alias}={listed.image}" if listed.alias else listed.image
    entry = Entry(listed.alias, image, "", entry_text)
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
    if in_git.version == listed.base.version:  # the base is unchanged since it was listed
        return False
    if sub is None or listed.rollback:  # without annotations, the order is unknown
        return False
    waiting = Written(listed.tag, listed.digest, listed.build)
    on_base = Written(in_git.tag, in_git.digest)
    return bool(why_older(waiting, on_base, sub.policy, {}))


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
        annotations_read = listed.key in from_annotations
        why_unknown = _why_order_unknown(listed, situation, base.branch)
        if why_unknown and not annotations_read:
            undecided.append(Undecided(listed, TargetError(f"{why_unknown}; {UNREAD}")))
            continue
        waiting.append(WaitingBuild(listed, situation, annotations_read))
    return waiting, undecided


def _why_order_unknown(listed: ListedBuild, situation: Situation, base: str) -> str:
    """Return why a build of an Application that was not read cannot be decided, or "".

    Without the annotations, the run cannot tell which of two versions is newer.
    """
    on_base = situation.in_git.version
    if not on_base:
        return f"{listed.path} no longer has {listed.image}"
    when_listed = listed.base.version
    if listed.rollback or on_base in (when_listed, listed.version):
        return ""
    return f"{base} now has {on_base}, not {when_listed or 'nothing'}"


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
    asked_builds = {ask.key: move.build for ask, move in decided}
    pairs: list[tuple[str, str, str]] = []
    for waiting_build in waiting:
        memory = waiting_build.situation.memory
        remembered = [written.build for written in (memory.written, memory.deferred) if written]
        compared = [(waiting_build.build, build) for build in remembered]
        asked_build = asked_builds.get(waiting_build.subscription.identity)
        if asked_build:
            compared.append((asked_build, waiting_build.build))
        commit_pairs = [commits(new, old) for new, old in compared]
        pairs += [pair for pair in commit_pairs if pair]
    return pairs


# What an event does with a build of the same image that is already there, if updates go to a head
# branch (`run`). The rows are tested in tests/landing/test_waiting_builds.py.
#
#   already there                 event     head branch  deferred     event is   other build is
#   nothing                       admitted  the event's               update
#   a waiting build               newer     the event's               update     superseded
#                                 same      unchanged                 unchanged  waits
#                                 older     unchanged                 refuse     waits
#                                 refused   unchanged                 refuse     waits
#   a hold                        admitted               the event's  defer
#   a hold, a deferred build      newer                  the event's  defer
#                                 older                  unchanged    refuse
#   a waiting build, then a hold  newer                  the event's  defer      superseded
#                                 older                  the waiting  refuse     deferred
#   a waiting build, a freeze     newer     unchanged    the event's  defer      waits
#
# `weigh` chooses between an event and a deferred build, and `TOGETHER` between an ask and a waiting
# build.

# What becomes of a waiting build if a command is for the same image. The outcomes of the ask are:
#   newer, same, older   it writes a build that is newer than the waiting one, the same, or older
#   deferred             an event is deferred, by a hold or a freeze
#   done, no-hold        a command other than `run` takes effect; `no-hold` if it sets no hold
#   nothing              it has no effect
# The table is for a waiting build that would stay or be deferred without the ask. Any other build
# leaves the list for its own reason (the base has it, or a rule refuses it), and the ask's move is
# not changed.
#   reevaluated      the waiting build is decided with what is remembered after the command. Under a
#                    new hold, it is deferred and leaves the list
#   newer_deferred   the same; if the waiting build is deferred, it is newer, and the ask is refused
#   written_by_ask   the ask writes the same build
#   replaced_by_ask  the ask's build replaces the waiting one
#   beats_ask        the ask is refused, because a newer build is waiting
#   ends_hold_only   the same, but the hold ends
#   without_hold     a waiting rollback is written again, without its hold
#   given_up         a person wants another version, and the waiting one is dropped. If the person
#                    wants the waiting version, the ask writes it
# After a `release`, every waiting build is decided without the hold that ends. In all other cases,
# it is decided with what was remembered before the command.
Meeting = Literal[
    "reevaluated",
    "newer_deferred",
    "written_by_ask",
    "replaced_by_ask",
    "beats_ask",
    "ends_hold_only",
    "without_hold",
    "given_up",
]
TOGETHER: Mapping[tuple[str, str], tuple[Meeting, Meeting]] = {
    # (command, outcome of the ask): (if a build is waiting, if a rollback is waiting)
    ("run", "nothing"): ("reevaluated", "reevaluated"),
    ("run", "deferred"): ("newer_deferred", "reevaluated"),
    ("run", "newer"): ("replaced_by_ask", "replaced_by_ask"),
    ("run", "same"): ("written_by_ask", "written_by_ask"),
    ("run", "older"): ("beats_ask", "beats_ask"),
    ("hold", "nothing"): ("reevaluated", "reevaluated"),
    ("hold", "done"): ("reevaluated", "reevaluated"),
    ("release", "nothing"): ("reevaluated", "reevaluated"),
    ("release", "done"): ("reevaluated", "without_hold"),
    ("release", "newer"): ("replaced_by_ask", "replaced_by_ask"),
    ("release", "same"): ("written_by_ask", "written_by_ask"),
    ("release", "older"): ("ends_hold_only", "without_hold"),
    ("rollback", "nothing"): ("reevaluated", "reevaluated"),
    ("rollback", "done"): ("reevaluated", "given_up"),  # its hold defers the build
    ("rollback", "no-hold"): ("given_up", "given_up"),
    ("undo", "nothing"): ("reevaluated", "reevaluated"),
    ("undo", "done"): ("beats_ask", "given_up"),
    ("undo", "no-hold"): ("beats_ask", "given_up"),
}


def fate_alone(base: Snapshot, waiting: WaitingBuild, head: str) -> BuildFate:
    """Return what becomes of a waiting build without an ask for its image."""
    move, fate, because = _decide_alone(base, waiting)
    if move and move.updates:
        why_refused = _why_no_longer_permitted(base, move, head)
        if why_refused:
            rule = NotPermittedError.rule
            return BuildFate(waiting.listed, "dropped", why_refused, rule=rule)
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
            result = _meet_ask(base, build, asks[key], moves[key], terms)
            moves[key] = result.ask_move
            fate = BuildFate(build.listed, result.fate, result.because, result.build_move)
        else:
            move, outcome, because = _decide_alone(base, build)
            fate = BuildFate(build.listed, outcome, because, move)
        if fate.move:
            fate = replace(fate, move=_with_proof(fate.move, build))
        fates.append(fate)
    return moves, fates


def _with_proof(move: Move, waiting: WaitingBuild) -> Move:
    """Add what this run proved about the waiting build to the move that writes it."""
    if not move.updates:
        return move
    return replace(move, decision=replace(move.decision, proof=waiting.proof))


def withdrawn(listed: ListedBuild, decided: Iterable[Decided]) -> str:
    """Return why a promotion's source no longer has the version, or "" if it may have it."""
    if not listed.promoted_from:
        return ""
    identity = parse_image(listed.image).identity
    for ask, move in decided:
        sub = ask.subscription
        promoted_from = ask.promoted.source if ask.promoted else ""
        promoted_again = promoted_from == listed.promoted_from and key_of_entry(sub) == listed.key
        source_rolled_back = (
            move.rolled_back
            and sub.application.key == listed.promoted_from
            and sub.entry.image.identity == identity
        )
        if promoted_again:
            at_source = ask.offered
        elif source_rolled_back:
            at_source = move.decision.candidate
        else:  # it says nothing about the source
            continue
        if not alike(at_source, Reading(tag=listed.tag, digest=listed.digest)):
            return f"{listed.promoted_from} now has {at_source.version}"
    return ""


def taken_out(
    base: Snapshot, waiting: WaitingBuild, ask: Ask, move: Move, terms: Terms
) -> BuildFate:
    """Return what becomes of a waiting build after a person's command for the same entry, if the
    command is for another branch.
    """
    if move.decision.verdict in ("error", "refuse"):
        build_move, _, _ = _decide_alone(base, waiting)
        return BuildFate(waiting.listed, "waits", move.decision.because, build_move)
    result = _meet_ask(base, waiting, ask, move, terms)
    if result.fate == "waits" and result.build_move is None:
        return BuildFate(waiting.listed, "dropped", move.decision.because)
    return BuildFate(waiting.listed, result.fate, result.because, result.build_move)


def fates_on_foreign_branch(
    waiting_list: WaitingList,
    files: Files,
    subs: Mapping[BuildKey, Subscription],
    decided: Sequence[Decided],
    base: Snapshot,
) -> FatesOnHead:
    """Return what became of the listed builds on a branch that a person has pushed to.

    The run does not replace that branch.
    """
    foreign_branch = replace(base, files={**base.files, **files})
    written = {key_of_entry(ask.subscription): move for ask, move in decided if move.updates}
    fates: list[BuildFate] = []
    for listed in waiting_list.builds:
        move = written.get(listed.key)
        if move is not None:
            because = f"replaced by {move.decision.candidate.version}"
            fates.append(BuildFate(listed, "superseded", because))
            continue
        sub = subs.get(listed.key) or subscription_of(listed, base)
        if _version_in(base, sub) == listed.version:
            because = f"{base.branch} now has {listed.version}"
            fates.append(BuildFate(listed, "merged", because))
            continue
        on_branch = _version_in(foreign_branch, sub)
        if on_branch == listed.version:
            because = f"it is on {waiting_list.head}"
            fates.append(BuildFate(listed, "waits", because, on_foreign_branch=True))
        else:
            because = f"{waiting_list.head} now has {on_branch or 'nothing'}"
            fates.append(BuildFate(listed, "dropped", because))
    return FatesOnHead(tuple(fates))


def _version_in(branch: Snapshot, sub: Subscription) -> str:
    """Return a branch's version of an image, or "" if it has none or cannot be read."""
    try:
        return reading(branch, sub, Terms()).version
    except TaskError:
        return ""


def _why_no_longer_permitted(base: Snapshot, move: Move, head: str) -> str:
    """Return why the repository's config no longer permits a waiting build, or ""."""
    decision = move.decision
    try:
        kind = resolve(decision.subscription, base)
        target = target_of(decision.subscription, kind)
        files, _ = EDITORS[kind].write(base.files, target, decision.candidate)
        refuse_files(decision.subscription, files, head)
    except NotPermittedError as error:
        return str(error)
    except TaskError:  # the edit raises it again, as the decision's error
        pass
    return ""


def _verb(ask: Ask) -> str:
    """Return the command of an ask, as in `TOGETHER`. All commands for new builds are `run`."""
    return ask.intent.verb if ask.intent else "run"


@dataclass(frozen=True)
class _MeetingResult:
    """The result when an ask meets a waiting build of the same image."""

    ask_move: Move
    build_move: Move | None  # the move that keeps or defers the waiting build, if any
    fate: Fate  # of the waiting build
    because: str


def _meet_ask(
    base: Snapshot, waiting: WaitingBuild, ask: Ask, move: Move, terms: Terms
) -> _MeetingResult:
    """Decide a waiting build together with an ask for the same image, as `TOGETHER` says."""
    outcome, why_ask_is_older = _outcome(ask, move, waiting, terms)
    if_build, if_rollback = TOGETHER[_verb(ask), outcome]
    meeting = if_rollback if waiting.listed.rollback else if_build
    if _verb(ask) == "release" or meeting in ("reevaluated", "newer_deferred"):
        waiting = replace(waiting, situation=_situation_after(waiting.situation, ask, move))
    build_move, fate, because = _decide_alone(base, waiting)
    if build_move is None or meeting == "written_by_ask":
        return _MeetingResult(move, None, fate, because)

    version = waiting.image.version
    asked = move.decision
    same_version = asked.candidate.version == version
    if meeting == "given_up":
        if same_version:
            return _MeetingResult(move, None, fate, because)
        return _MeetingResult(move, None, "dropped", asked.because)
    if meeting == "replaced_by_ask":
        return _MeetingResult(move, None, "superseded", f"replaced by {asked.candidate.version}")
    if meeting == "without_hold":
        return _MeetingResult(_without_hold(move, build_move, waiting.listed), None, fate, because)

    # In all other cases, the waiting build stays or is deferred. The ask may be refused.
    already_waiting = f"{version} is already waiting on the head branch"
    if why_ask_is_older:
        already_waiting += f": {why_ask_is_older}"
    if meeting == "beats_ask":
        move = move.without_effect(Verdict("refuse", "superseded", already_waiting))
    elif meeting == "ends_hold_only":
        verdict = Verdict("refuse", "superseded", f"{asked.because}, but {already_waiting}")
        lifted = move.remember is not None and move.remember.lifted
        released_hold = Remember(waiting.situation.memory, lifted=lifted)
        move = replace(move, decision=replace(asked, judged=verdict), remember=released_hold)
    elif meeting == "newer_deferred" and fate == "deferred" and not same_version:
        newer = f"{because}; the newer {version} is remembered"
        move = move.without_effect(Verdict("refuse", "superseded", newer))
    return _MeetingResult(move, build_move, fate, because)


def _outcome(ask: Ask, move: Move, waiting: WaitingBuild, terms: Terms) -> tuple[str, str]:
    """Return an ask's outcome, as in `TOGETHER`, and why it is older than the waiting build ("" if
    it is not).
    """
    verb = _verb(ask)
    verdict = move.decision.verdict
    if verb not in ("run", "release"):
        if verdict in ("error", "refuse") or (verb == "undo" and not move.updates):
            return "nothing", ""
        return "done" if ask.intent and ask.intent.hold else "no-hold", ""
    if not move.updates:
        if verb == "release":
            return "done" if move.remember else "nothing", ""
        return "deferred" if verdict == "defer" else "nothing", ""

    # a run or a release that writes a build
    candidate = move.decision.candidate
    if candidate.version == waiting.image.version:
        return "same", ""
    if terms.allow_downgrade:
        return "newer", ""
    asked = Written(candidate.tag, candidate.digest, move.build)
    listed = Written(waiting.image.tag, waiting.image.digest, waiting.build)
    ancestry = waiting.situation.facts.ancestry
    why = why_older(asked, listed, waiting.subscription.policy, ancestry)
    return "older" if why else "newer", why


def _situation_after(situation: Situation, ask: Ask, move: Move) -> Situation:
    """Return the situation with what is remembered after a command.

    A build that a release writes is not part of it: the waiting build is not compared with it here.
    """
    remember = move.remember
    if remember is None:
        return situation
    if _verb(ask) == "release" and move.updates:
        memory = released(situation.memory)
    else:
        memory = remember.memory or situation.memory
    hold = None if remember.lifted else remember.hold or situation.state.hold
    return replace(situation, memory=memory, state=replace(situation.state, hold=hold))


def _without_hold(release: Move, rollback: Move, listed: ListedBuild) -> Move:
    """Return the move of a release that rewrites a waiting rollback without its hold."""
    was = listed.rollback.was if listed.rollback else ""
    verdict = Verdict("update", "admitted", f"{release.decision.because}; rolled back from {was}")
    lifted = release.remember is not None and release.remember.lifted
    memory = rollback.remember.memory if rollback.remember else None
    return replace(
        rollback,
        decision=replace(rollback.decision, judged=verdict, head=release.decision.head),
        remember=Remember(memory, lifted=lifted),
        released=release.released,
    )


def _decide_alone(base: Snapshot, waiting: WaitingBuild) -> tuple[Move | None, Fate, str]:
    """Decide a waiting build on the current base.

    Return the move that keeps or defers it (None if it leaves the list), its fate, and the reason.
    """
    situation = waiting.situation
    on_base = situation.in_git.version
    if on_base == waiting.image.version and situation.in_git.sound:
        return None, "merged", f"{base.branch} now has {on_base}"
    if waiting.listed.rollback:
        return _decide_rollback_alone(base, waiting)
    move = weigh(situation, _offer(waiting))
    if waiting.base_unchanged and move.decision.rule in ("not-newer", "superseded"):
        move = _as_allowed(waiting, move)
    verdict = move.decision.judged
    because = verdict.because
    if verdict.verdict == "defer":
        why_deferred = hold_text(situation.hold) if situation.hold else because
        return move, "deferred", why_deferred
    if verdict.verdict == "error":  # a server did not respond, so the build stays
        kept = Verdict("update", UNANSWERED, f"{because}; the build is kept")
        return Move(situation.decision(waiting.image, kept), waiting.build), "waits", because
    if verdict.verdict != "update":
        fate: Fate = "superseded" if verdict.rule == "superseded" else "dropped"
        return None, fate, because
    why_it_waits = because if waiting.annotations_read else UNREAD
    return _with_memory_after(waiting, move), "waits", why_it_waits


def _offer(waiting: WaitingBuild) -> Offer:
    """Return a waiting build as if it were built now."""
    pinned = bool(waiting.image.digest and waiting.image.tag)
    return Offer(waiting.image, waiting.build, pinned=pinned, origin=waiting.listed.event)


def _as_allowed(waiting: WaitingBuild, refused: Move) -> Move:
    """Return the move of an older build that a person has allowed, as long as the base is
    unchanged. If it is refused for another reason, return the refused move.

    The rules for age and order admit such a build only as a promotion, so it is weighed as one.
    """
    terms = replace(waiting.situation.terms, allow_downgrade=True)
    offer = replace(_offer(waiting), pinned=False, promoted=Promoted("", since=lambda: LONG_AGO))
    move = weigh(replace(waiting.situation, terms=terms), offer)
    return move if move.decision.verdict in ("update", "defer") else refused


def _with_memory_after(waiting: WaitingBuild, move: Move) -> Move:
    """Return the move that writes a waiting build again, with the image's memory after it.

    The move has the listed digest and source. If a different build is deferred, it stays deferred.
    """
    image = waiting.image
    memory_before = waiting.situation.memory
    remember = move.remember or Remember()
    deferred = memory_before.deferred
    if deferred and alike(deferred, image):  # no longer deferred, because the move writes it
        deferred = None
    memory = replace(remember.memory or memory_before, deferred=deferred)
    written = memory.written
    if written and written.version == image.version and not written.digest:
        with_digest = replace(written, image_digest=waiting.listed.image_digest)
        memory = replace(memory, written=with_digest)
    # without a listed digest, `weigh` may have pinned the tag
    pinned_by_weigh = waiting.subscription.policy.pin_digest and not image.digest
    candidate = move.decision.candidate if pinned_by_weigh else image
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
    because = f"rolled back from {rollback.was}"
    if hold:
        because += f"; {hold_text(hold)}"
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
    of_head: FatesOnHead,
    unwritten: Iterable[ListedBuild],
    base: Snapshot,
    now: str,
) -> WaitingList:
    """Return the list after a run: the builds that its commit writes (`done`), and those that could
    not be decided or written.
    """
    # A build that left the list is listed again, based on the current base.
    removed = {fate.listed.key for fate in of_head.fates if fate.fate != "waits"}
    old = {listed.key: listed for listed in waiting_list.builds if listed.key not in removed}
    new: dict[BuildKey, ListedBuild] = {}
    for move in done:
        if move.updates:
            old_entry = old.get(key_of_entry(move.subscription))
            new_entry = listed_of(move, old_entry, base, now)
            new[new_entry.key] = new_entry
    undecided_entries = [undecided.list_entry for undecided in of_head.undecided]
    for entry in (*undecided_entries, *unwritten):
        new.setdefault(entry.key, entry)
    builds = tuple(sorted(new.values(), key=lambda build: build.key))
    listed_again = {build.declined_key for build in builds}
    declined = tuple(build for build in waiting_list.declined if build.key not in listed_again)
    return replace(
        waiting_list, builds=builds, releases=of_head.releases, declined=declined, closing=""
    )


def listed_of(move: Move, before: ListedBuild | None, base: Snapshot, now: str) -> ListedBuild:
    """Return the list entry for a build that is written to a head branch.

    If the same build was listed before (`before`), its details are kept.
    """
    decision = move.decision
    sub = move.subscription
    if (  # the same build was listed before
        before
        and before.version == decision.candidate.version
        and bool(before.rollback) == move.rolled_back
    ):
        build = before.build if before.build != Build() else move.build
        proof = str(decision.proof or before.proof)
        return replace(before, build=build, proof=proof, left_out="")
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
    """Return the base's current version and memory of an image. Both are empty if one of them
    cannot be read.
    """
    try:
        memory = state_of(base, sub).images.get(key_of(sub), Memory())
        in_git = reading(base, sub, Terms())
    except TaskError:
        return BaseThen()
    return BaseThen(in_git.tag, in_git.digest, memory.written, memory.replaced)


def updated_list(
    waiting_list: WaitingList, *, absent: bool, merged: bool, request: KnownRequest | None
) -> WaitingList:
    """Update a list for changes to its branch and request since the last run.

    `absent`: the branch does not exist. `merged`: its builds were merged. `request` is the newest
    request.
    """
    known_request = waiting_list.request
    ended_before = (
        known_request is not None
        and request is not None
        and known_request.number == request.number
        and known_request.state != "open"
    )
    is_closed = request is not None and request.state == "closed"
    closed_by_person = is_closed and not ended_before and not waiting_list.closing
    branch_deleted = absent and waiting_list.arrived
    if request and closed_by_person:
        waiting_list = declined_by(waiting_list, request.url)
    elif merged or branch_deleted:
        waiting_list = replace(waiting_list, builds=(), releases=())
    return replace(waiting_list, request=request or known_request)
