"""Pure code for the builds that are waiting on head branches.

Each run reevaluates all of them on the current base: `_decide_alone` decides a build, or
`_decide_with_ask` if the run has an ask for the same image. Eventually, the build is merged,
replaced by another build (superseded), deferred by a hold, or dropped.

A head branch's list has at most one waiting build for each write-back file and alias. A build that
passes is rewritten on top of the base's tip. If a person holds a build, it is remembered as
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
LONG_AGO = "1970-01-01T00:00:00Z"  # a waiting build was already old enough when it was listed
UNANSWERED = "registry"  # the rule for a build that is kept because a server did not respond
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
        """The build's position in the order of builds."""
        return self.listed.build

    @property
    def base_unchanged(self) -> bool:
        """Whether the image is unchanged on the base since this build was listed."""
        memory = self.situation.memory
        when_listed = self.listed.base
        return (
            self.situation.in_git.version == when_listed.version
            and memory.written == when_listed.written
            and memory.replaced == when_listed.replaced
        )


@dataclass(frozen=True)
class Undecided:
    """A listed build (one waiting on a head branch) that cannot be decided or written now. It
    remains in the list, but is not part of a commit.
    """

    listed: ListedBuild
    error: TaskError

    @property
    def list_entry(self) -> ListedBuild:
        """The build's entry in the list."""
        return replace(self.listed, left_out=str(self.error))


@dataclass(frozen=True)
class BuildFate:
    """What became of a listed build (one waiting on a head branch), with the move that writes or
    defers it, if any.
    """

    listed: ListedBuild
    fate: Fate
    because: str
    move: Move | None = None
    rule: str = ""  # the rule that removes it from the list, regardless of the asks
    doubt: bool = False  # whether a server did not respond
    on_foreign_branch: bool = False  # the run does not replace such a branch

    def row(self, head: str) -> HeadBuildRow:
        """Return the build's row in the report."""
        listed = self.listed
        return HeadBuildRow(
            application=listed.application,
            alias=listed.alias,
            tag=listed.tag,
            digest=listed.digest,
            head=head,
            outcome=self.fate,
            because=self.because,
        )

    @property
    def stays_listed(self) -> bool:
        """Whether the build remains in the list and on the branch."""
        is_written_again = self.move is not None and self.move.updates
        return self.on_foreign_branch or is_written_again

    @property
    def altered(self) -> bool:
        """Whether the head branch must be rewritten because of this build."""
        if self.on_foreign_branch:
            return False
        if self.move is None or not self.move.updates:  # the branch still contains the build
            return True
        if self.listed.left_out:  # the branch does not contain the build yet
            return True
        return self.move.decision.candidate.version != self.listed.version


@dataclass(frozen=True)
class FatesOnHead:
    """What became of the builds waiting on one head branch."""

    fates: tuple[BuildFate, ...] = ()
    undecided: tuple[Undecided, ...] = ()
    problems: tuple[Problem, ...] = ()
    releases: tuple[ListedRelease, ...] = ()  # the holds that end together with the waiting builds
    obsolete: tuple[ListedRelease, ...] = ()  # releases whose hold has ended in another way
    rewrite: bool = False  # whether the head branch must be written even if no build has changed

    @property
    def altered(self) -> bool:
        """Whether the head branch or its list must be written."""
        return self.rewrite or any(fate.altered for fate in self.fates)

    @property
    def closing_reasons(self) -> list[str]:
        """Human-readable reasons why builds and releases are no longer waiting on the branch."""
        reasons = [
            f"{fate.listed.version}: {fate.because}" for fate in self.fates if not fate.stays_listed
        ]
        for release in self.obsolete:
            image = release.image or "all images"
            reasons.append(f"the hold on {release.application} ({image}) has ended in another way")
        return reasons

    @property
    def leaving(self) -> tuple[str, ...]:
        """The builds that this run removes from the list, as strings that include the reason."""
        texts = []
        for fate in self.fates:
            if not fate.stays_listed:
                listed = fate.listed
                name = listed.alias or listed.image
                texts.append(f"{listed.application} ({name}) {listed.version}: {fate.because}")
        return tuple(texts)

    def rows(self, head: str) -> list[HeadBuildRow]:
        """Return the report's rows for the waiting builds."""
        undecided_fates = (
            BuildFate(undecided.listed, "waits", str(undecided.error))
            for undecided in self.undecided
        )
        return [fate.row(head) for fate in (*self.fates, *undecided_fates)]


NO_FATES = FatesOnHead()  # for the base, where nothing waits


def subscription_of(listed: ListedBuild, base: Snapshot) -> Subscription:
    """Create a subscription (what to update, and where) from the entry of a waiting build in its
    head branch's list, for an Application whose annotations this run did not read.
    """
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
    """Return whether the base branch already has a waiting build, or a newer one.

    `sub` is None if the Application's annotations were not read. No server is queried.
    """
    try:
        in_git = reading(base, sub or subscription_of(listed, base), Terms())
    except TaskError:
        return False
    if in_git.version == listed.version:
        return in_git.sound  # False if the text must still be rewritten, such as an unquoted 1.10
    if in_git.version == listed.base.version:  # the base is unchanged since it was listed
        return False
    if sub is None or listed.rollback:  # without annotations, the order is unknown
        return False
    waiting = Written(listed.tag, listed.digest, listed.build)
    on_base = Written(in_git.tag, in_git.digest)
    reason = why_older(waiting, on_base, sub.policy, {})
    return reason != ""


def waiting_in(
    waiting_list: WaitingList,
    base: Snapshot,
    from_annotations: Mapping[BuildKey, Subscription],
    from_list: Mapping[BuildKey, Subscription],
    terms: Terms,
    facts: Facts,
) -> tuple[list[WaitingBuild], list[Undecided]]:
    """Read the base branch's state of each image in a head branch's list.

    `from_annotations` are the subscriptions (what to update, and where) that this run has read.
    `from_list` contains a subscription for each of the other builds. Return the builds that can be
    decided, and those that cannot, with the reason.
    """
    waiting: list[WaitingBuild] = []
    undecided: list[Undecided] = []
    # without the terms that only apply to the run's new builds
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
    """Return why a waiting build cannot be decided without its Application's annotations, or "" if
    it can.

    Without the annotations, the run cannot tell which of two versions is newer. That matters only
    if the base branch has changed since the build was listed, and now has neither the version that
    it had then nor this build's version.
    """
    on_base = situation.in_git.version
    if not on_base:
        return f"{listed.path} no longer has {listed.image}"
    when_listed = listed.base.version
    if listed.rollback or on_base in (when_listed, listed.version):
        return ""
    return f"{base} now has {on_base}, not {when_listed or 'nothing'}"


def asks_of(waiting: Iterable[WaitingBuild]) -> list[Ask]:
    """Return an ask for each of these waiting builds, as if the build were new. The asks determine
    which facts have to be looked up. None are needed for rollbacks, or for builds whose annotations
    were not read.
    """
    return [
        Ask(build.subscription, (build.image,), build=build.build)
        for build in waiting
        if build.annotations_read and not build.listed.rollback
    ]


def pairs_of(
    waiting: Iterable[WaitingBuild], decided: Sequence[Decided]
) -> list[tuple[str, str, str]]:
    """Return the pairs of source commits to compare in order to tell which of two builds is newer:
    (repository, commit, other commit).

    A waiting build is compared with the newest written build, the deferred build (one that a hold
    kept back), and the new build of the same image in `decided`.
    """
    new_builds = {ask.key: move.build for ask, move in decided}
    comparisons: list[tuple[Build, Build]] = []
    for waiting_build in waiting:
        build = waiting_build.build
        memory = waiting_build.situation.memory
        if memory.written:
            comparisons.append((build, memory.written.build))
        if memory.deferred:
            comparisons.append((build, memory.deferred.build))
        new_build = new_builds.get(waiting_build.subscription.identity)
        if new_build:
            comparisons.append((new_build, build))

    pairs: list[tuple[str, str, str]] = []
    for new, old in comparisons:
        pair = commits(new, old)
        if pair:
            pairs.append(pair)
    return pairs


# What happens if an event arrives (`run`) while there is already a build of the same image, and
# updates go to a head branch. The rows are tested in tests/landing/test_waiting_builds.py.
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

# What becomes of a waiting build if a command targets the same image. An ask has these outcomes:
#   newer, same, older   it writes a build newer than the waiting one, the same one, or an older one
#   deferred             an event is deferred by a hold or a freeze
#   done, no-hold        a command other than `run` takes effect; `no-hold` if it sets no hold
#   nothing              it has no effect
# The table is for a waiting build that would stay or be deferred without the ask. Any other build
# leaves the list for its own reason (the base has it, or a rule refuses it), and the ask's move is
# not changed.
#   reevaluated      the waiting build is decided with what is remembered after the command. Under a
#                    new hold, it is deferred and leaves the list
#   newer_deferred   like `reevaluated`, but if the waiting build is deferred, the ask is refused,
#                    because the waiting build is newer
#   written_by_ask   the ask writes the same build
#   replaced_by_ask  the ask's build replaces the waiting one
#   beats_ask        the ask is refused, because a newer build is waiting
#   ends_hold_only   like `beats_ask`, but the hold ends
#   without_hold     a waiting rollback is written again, without its hold
#   given_up         a person wants a different version, so the waiting one is dropped. If it is the
#                    version that the person wants, the ask writes it
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
    """Return the fate of a build that is waiting on the branch `head`, if this run has no new build
    of the image. A build that the repository's config no longer permits is dropped.
    """
    move, fate, because = _decide_alone(base, waiting)
    if move and move.updates:
        why_refused = _why_no_longer_permitted(base, move, head)
        if why_refused:
            rule = NotPermittedError.rule
            return BuildFate(waiting.listed, "dropped", why_refused, rule=rule)
    is_unanswered = move is not None and move.decision.rule == UNANSWERED
    return BuildFate(waiting.listed, fate, because, move, doubt=is_unanswered)


def decide_with_waiting(
    base: Snapshot, waiting: Sequence[WaitingBuild], decided: Sequence[Decided], terms: Terms
) -> tuple[dict[Identity, Move], list[BuildFate]]:
    """Decide the builds waiting on one of our head branches together with this run's new builds for
    that branch.

    `decided` contains the asks for the new builds, with the decisions about them. Return those
    decisions, changed where a waiting build wins, and the fate of each waiting build.
    """
    moves = {ask.key: move for ask, move in decided}
    asks = {ask.key: ask for ask, _ in decided}
    fates: list[BuildFate] = []
    for build in waiting:
        key = build.subscription.identity
        if key in asks:
            result = _decide_with_ask(base, build, asks[key], moves[key], terms)
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
    """Attach what this run verified about a waiting build, such as its signature, to the move that
    writes the build. A move that does not write the build is returned unchanged.
    """
    if not move.updates:
        return move
    return replace(move, decision=replace(move.decision, proof=waiting.proof))


def withdrawn(listed: ListedBuild, decided: Iterable[Decided]) -> str:
    """Return why a waiting promotion is obsolete, or "" if it is not.

    A promotion copies a source Application's version to another Application. It is obsolete if this
    run's decisions show that the source now has a different version, because it is promoted again
    or because a person rolls back the source.
    """
    if not listed.promoted_from:
        return ""
    identity = parse_image(listed.image).identity
    promoted_version = Reading(tag=listed.tag, digest=listed.digest)
    for ask, move in decided:
        sub = ask.subscription
        source = ask.promoted.source if ask.promoted else ""
        promoted_again = source == listed.promoted_from and key_of_entry(sub) == listed.key
        source_rolled_back = (
            move.rolled_back
            and sub.application.key == listed.promoted_from
            and sub.entry.image.identity == identity
        )
        if promoted_again:
            image_at_source = ask.offered
        elif source_rolled_back:
            image_at_source = move.decision.candidate
        else:  # the decision says nothing about the source
            continue
        if not alike(image_at_source, promoted_version):
            return f"{listed.promoted_from} now has {image_at_source.version}"
    return ""


def taken_out(
    base: Snapshot, waiting: WaitingBuild, ask: Ask, move: Move, terms: Terms
) -> BuildFate:
    """Return the fate of a waiting build if a person issues a command for its image and the
    command's commit belongs on another branch.

    `move` is the decision about the command (`ask`). If the command's commit writes this build, the
    build is dropped here.
    """
    result = _decide_with_ask(base, waiting, ask, move, terms)
    # the build still waits, but has no move: the command's move writes it elsewhere
    is_written_by_command = result.fate == "waits" and result.build_move is None
    if is_written_by_command:
        return BuildFate(waiting.listed, "dropped", move.decision.because)
    return BuildFate(waiting.listed, result.fate, result.because, result.build_move)


def fates_on_foreign_branch(
    waiting_list: WaitingList,
    files: Files,
    subs: Mapping[BuildKey, Subscription],
    decided: Sequence[Decided],
    base: Snapshot,
) -> FatesOnHead:
    """Return what became of the builds in a head branch's list if a person has pushed to that
    branch.

    The run does not replace the branch, so a build waits there until the branch's `files` no longer
    have its version. `subs` are the subscriptions (what to update, and where) that this run has
    read, and `decided` contains the decisions about its new builds.
    """
    foreign_branch = replace(base, files={**base.files, **files})
    new_builds = {key_of_entry(ask.subscription): move for ask, move in decided if move.updates}
    fates: list[BuildFate] = []
    for listed in waiting_list.builds:
        new_build = new_builds.get(listed.key)
        if new_build is not None:
            because = f"replaced by {new_build.decision.candidate.version}"
            fates.append(BuildFate(listed, "superseded", because))
            continue
        sub = subs.get(listed.key) or subscription_of(listed, base)
        if _version_in(base, sub) == listed.version:
            because = f"{base.branch} now has {listed.version}"
            fates.append(BuildFate(listed, "merged", because))
            continue
        version_on_branch = _version_in(foreign_branch, sub)
        if version_on_branch == listed.version:
            because = f"it is on {waiting_list.head}"
            fates.append(BuildFate(listed, "waits", because, on_foreign_branch=True))
        else:
            because = f"{waiting_list.head} now has {version_on_branch or 'nothing'}"
            fates.append(BuildFate(listed, "dropped", because))
    return FatesOnHead(tuple(fates))


def _version_in(branch: Snapshot, sub: Subscription) -> str:
    """Return a branch's version of an image, or "" if it has none or cannot be read."""
    try:
        return reading(branch, sub, Terms()).version
    except TaskError:
        return ""


def _why_no_longer_permitted(base: Snapshot, move: Move, head: str) -> str:
    """Return why the repository's config no longer permits writing a waiting build to the branch
    `head`, or "" if it is permitted. `move` is the decision to write it.
    """
    decision = move.decision
    sub = decision.subscription
    try:
        kind = resolve(sub, base)
        target = target_of(sub, kind)
        changed_files, _ = EDITORS[kind].write(base.files, target, decision.candidate)
        refuse_files(sub, changed_files, head)  # raises `NotPermittedError`
    except NotPermittedError as error:
        return str(error)
    except TaskError:  # the edit will raise the same error, which becomes the verdict
        pass
    return ""


def _verb(ask: Ask) -> str:
    """Return the command of an ask, as in `TOGETHER`. All commands for new builds are `run`."""
    return ask.intent.verb if ask.intent else "run"


@dataclass(frozen=True)
class _MeetingResult:
    """The result when an ask (a new build, or a person's command) targets the same image as a
    waiting build.
    """

    ask_move: Move  # the decision about the ask
    build_move: Move | None  # the decision that keeps or defers the waiting build, if any
    fate: Fate  # what becomes of the waiting build
    because: str


def _decide_with_ask(
    base: Snapshot, waiting: WaitingBuild, ask: Ask, move: Move, terms: Terms
) -> _MeetingResult:
    """Decide between a build that waits on a head branch and an ask for the same image: a new
    build, or a person's command.

    `move` is the decision about the ask as if nothing were waiting. The table `TOGETHER` determines
    what happens to both. Return the final decision about the ask, and the fate of the waiting
    build, with the move that keeps it, if any.
    """
    outcome, why_ask_is_older = _outcome(ask, move, waiting, terms)
    if_build, if_rollback = TOGETHER[_verb(ask), outcome]
    meeting = if_rollback if waiting.listed.rollback else if_build
    needs_memory_after_command = meeting in ("reevaluated", "newer_deferred")
    if _verb(ask) == "release" or needs_memory_after_command:
        waiting = replace(waiting, situation=_situation_after(waiting.situation, ask, move))
    build_move, fate, because = _decide_alone(base, waiting)
    # If the waiting build has no move, it leaves the list, no matter what the ask does.
    if build_move is None or meeting == "written_by_ask":
        return _MeetingResult(move, build_move=None, fate=fate, because=because)

    each_alone = _MeetingResult(move, build_move=build_move, fate=fate, because=because)
    if meeting in ("given_up", "replaced_by_ask"):
        return _without_waiting_build(each_alone, meeting, waiting)
    if meeting == "without_hold":  # the waiting rollback is written again, but not its hold
        rollback_without_hold = _without_hold(move, build_move, waiting.listed)
        return replace(each_alone, ask_move=rollback_without_hold, build_move=None)
    # In all other cases, the waiting build remains, or a hold defers it, and the ask may be
    # refused.
    ask_move = _ask_beside_waiting(each_alone, meeting, waiting, why_ask_is_older)
    return replace(each_alone, ask_move=ask_move)


def _without_waiting_build(
    each_alone: _MeetingResult, meeting: Meeting, waiting: WaitingBuild
) -> _MeetingResult:
    """Return the result of a meeting in which only the ask's move remains.

    `each_alone` contains the decisions about the ask and the waiting build before the two are
    compared.
    """
    decision = each_alone.ask_move.decision
    only_ask = replace(each_alone, build_move=None)
    if meeting == "replaced_by_ask":
        because = f"replaced by {decision.candidate.version}"
        return replace(only_ask, fate="superseded", because=because)
    # The person gives up the waiting build, unless its version is the one that the person wants. In
    # that case, the ask's move writes it.
    if decision.candidate.version == waiting.image.version:
        return only_ask
    return replace(only_ask, fate="dropped", because=decision.because)


def _ask_beside_waiting(
    each_alone: _MeetingResult, meeting: Meeting, waiting: WaitingBuild, why_ask_is_older: str
) -> Move:
    """Return the move for an ask whose image has a waiting build that remains or is deferred: the
    ask's own move, or a refusal because the waiting build is newer.

    `each_alone` contains the decisions about the ask and the waiting build before the two are
    compared.
    """
    move = each_alone.ask_move
    decision = move.decision
    version = waiting.image.version
    already_waiting = f"{version} is already waiting on the head branch"
    if why_ask_is_older:
        already_waiting += f": {why_ask_is_older}"

    if meeting == "beats_ask":
        return move.without_effect(Verdict("refuse", "superseded", already_waiting))
    if meeting == "ends_hold_only":  # also refused, but the person's release ends the hold
        verdict = Verdict("refuse", "superseded", f"{decision.because}, but {already_waiting}")
        lifted = move.remember is not None and move.remember.lifted
        # after a release, `waiting.situation` already leaves out the hold
        without_hold = Remember(waiting.situation.memory, lifted=lifted)
        return replace(move, decision=replace(decision, judged=verdict), remember=without_hold)
    other_build_deferred = each_alone.fate == "deferred" and decision.candidate.version != version
    if meeting == "newer_deferred" and other_build_deferred:
        # of two builds under a hold, only the newer one is remembered
        newer = f"{each_alone.because}; the newer {version} is remembered"
        return move.without_effect(Verdict("refuse", "superseded", newer))
    return move


def _outcome(ask: Ask, move: Move, waiting: WaitingBuild, terms: Terms) -> tuple[str, str]:
    """Return the outcome of an ask (a new build, or a person's command), and why its build is older
    than the waiting build ("" if it is not).

    The outcome is a word from the table `TOGETHER`: "nothing", "deferred", "done", "no-hold",
    "newer", "same", or "older". `move` is the decision about the ask.
    """
    verb = _verb(ask)
    verdict = move.decision.verdict
    if verb not in ("run", "release"):  # no builds are compared
        if verdict in ("error", "refuse"):
            return "nothing", ""
        if verb == "undo" and not move.updates:
            return "nothing", ""
        sets_hold = ask.intent is not None and ask.intent.hold is not None
        return "done" if sets_hold else "no-hold", ""
    if not move.updates:
        if verb == "release":
            return "done" if move.remember else "nothing", ""
        return "deferred" if verdict == "defer" else "nothing", ""

    # From here on, the ask is a run or a release that writes a build.
    candidate = move.decision.candidate
    if candidate.version == waiting.image.version:
        return "same", ""
    if terms.allow_downgrade:
        return "newer", ""
    new_build = Written(candidate.tag, candidate.digest, move.build)
    waiting_build = Written(waiting.image.tag, waiting.image.digest, waiting.build)
    ancestry = waiting.situation.facts.ancestry
    reason = why_older(new_build, waiting_build, waiting.subscription.policy, ancestry)
    return "older" if reason else "newer", reason


def _situation_after(situation: Situation, ask: Ask, move: Move) -> Situation:
    """Return the situation of an image (everything that decisions about it depend on) after a
    person's command or a new build (`ask`), with the memory and the holds that the ask leaves
    behind.

    `move` is the decision about the ask. If a `release` writes a build, the memory is the earlier
    memory without its hold and without the build that the hold kept back.
    """
    remember = move.remember
    if remember is None:
        return situation
    if _verb(ask) == "release" and move.updates:
        # In `remember.memory`, the ask's build is already the newest, so the waiting build would
        # seem outdated. But only `TOGETHER` decides between the two.
        memory = released(situation.memory)
    else:
        memory = remember.memory or situation.memory
    hold_on_app = remember.hold or situation.state.hold
    if remember.lifted:
        hold_on_app = None
    state = replace(situation.state, hold=hold_on_app)
    return replace(situation, memory=memory, state=state)


def _without_hold(release: Move, rollback: Move, listed: ListedBuild) -> Move:
    """Return a move (decision) that writes a waiting rollback again, but without its hold.

    `release` is the decision about the person's command that ends the hold, and `rollback` is the
    decision that writes the rollback with its hold. `listed` is the rollback's entry in the list.
    """
    replaced_version = listed.rollback.was if listed.rollback else ""
    verdict = Verdict(
        "update", "admitted", f"{release.decision.because}; rolled back from {replaced_version}"
    )
    lifted = release.remember is not None and release.remember.lifted
    memory = rollback.remember.memory if rollback.remember else None
    return replace(
        rollback,
        decision=replace(rollback.decision, judged=verdict, head=release.decision.head),
        remember=Remember(memory, lifted=lifted),
        released=release.released,
    )


def _decide_alone(base: Snapshot, waiting: WaitingBuild) -> tuple[Move | None, Fate, str]:
    """Decide a waiting build on the current base branch, as if this run had no new builds.

    A waiting build is proposed on a head branch (the branch of a pull request), and is not merged
    yet. Return a move that writes or defers it (None if it leaves the list), its fate ("waits",
    "merged", "superseded", "deferred", or "dropped"), and the reason.
    """
    situation = waiting.situation
    on_base = situation.in_git.version
    if on_base == waiting.image.version and situation.in_git.sound:
        return None, "merged", f"{base.branch} now has {on_base}"
    if waiting.listed.rollback:
        return _decide_rollback_alone(base, waiting)

    move = weigh(situation, _offer(waiting))
    is_older = move.decision.rule in ("not-newer", "superseded")
    if is_older and waiting.base_unchanged:  # since it was listed, so a person allowed it
        move = _as_allowed(waiting, move)
    verdict = move.decision.judged
    because = verdict.because
    if verdict.verdict == "defer":
        why_deferred = hold_text(situation.hold) if situation.hold else because
        return move, "deferred", why_deferred
    if verdict.verdict == "error":  # a server did not respond, so the build is kept
        kept_verdict = Verdict("update", UNANSWERED, f"{because}; the build is kept")
        kept_move = Move(situation.decision(waiting.image, kept_verdict), waiting.build)
        return kept_move, "waits", because
    if verdict.verdict != "update":
        fate: Fate = "superseded" if verdict.rule == "superseded" else "dropped"
        return None, fate, because
    why_it_waits = because if waiting.annotations_read else UNREAD
    return _with_memory_after(waiting, move), "waits", why_it_waits


def _offer(waiting: WaitingBuild) -> Offer:
    """Return a waiting build as an offer, the form in which the rules judge new builds."""
    pinned = bool(waiting.image.digest and waiting.image.tag)
    return Offer(waiting.image, waiting.build, pinned=pinned, origin=waiting.listed.event)


def _as_allowed(waiting: WaitingBuild, refused: Move) -> Move:
    """Weigh a waiting build again as if downgrades were allowed: a person allowed the build
    although it is older than the base's version. Return that move, or `refused` (the earlier move)
    if a rule still refuses the build.

    The rules for age and order admit such a build only as a promotion, so it is weighed as one.
    """
    terms = replace(waiting.situation.terms, allow_downgrade=True)
    promoted = Promoted("", since=lambda: LONG_AGO)  # old enough for any minimum age
    offer = replace(_offer(waiting), pinned=False, promoted=promoted)
    move = weigh(replace(waiting.situation, terms=terms), offer)
    return move if move.decision.verdict in ("update", "defer") else refused


def _with_memory_after(waiting: WaitingBuild, move: Move) -> Move:
    """Return the move that rewrites a waiting build, with the image's memory added: what the state
    file remembers about the image after the move, such as the newest written build.

    The digest and the promotion's source come from the list entry.
    """
    image = waiting.image
    memory_before = waiting.situation.memory
    remember = move.remember or Remember()
    still_deferred = memory_before.deferred
    if still_deferred and alike(still_deferred, image):  # the move writes this build
        still_deferred = None
    memory = replace(remember.memory or memory_before, deferred=still_deferred)

    written = memory.written
    if written and written.version == image.version and not written.digest:
        # only the tag is written, but the event that reported the build also contained its digest
        with_digest = replace(written, image_digest=waiting.listed.image_digest)
        memory = replace(memory, written=with_digest)

    candidate = image
    if waiting.subscription.policy.pin_digest and not image.digest:
        candidate = move.decision.candidate  # `weigh` may have pinned the tag
    decision = replace(move.decision, candidate=candidate, source=waiting.listed.promoted_from)
    return replace(move, decision=decision, remember=replace(remember, memory=memory))


def _decide_rollback_alone(base: Snapshot, waiting: WaitingBuild) -> tuple[Move | None, Fate, str]:
    """Decide a waiting rollback (a person's change back to an older version) on the current base
    branch. It keeps waiting until the base no longer has the version that it replaces.

    Return a move that writes it (None if it leaves the list), its fate ("waits" or "superseded"),
    and the reason.
    """
    situation = waiting.situation
    rollback = waiting.listed.rollback
    on_base = situation.in_git.version
    replaced_version = rollback.was if rollback else ""
    if rollback is None or on_base != replaced_version:
        because = f"{base.branch} now has {on_base or 'nothing'}, not {replaced_version}"
        return None, "superseded", because

    because = f"rolled back from {rollback.was}"
    if situation.hold:
        because += f"; {hold_text(situation.hold)}"
    decision = situation.decision(waiting.image, Verdict("update", "admitted", because))
    target = Reading(tag=waiting.image.tag, digest=waiting.image.digest)
    memory = rolled_back(
        situation.memory, situation.in_git, target, waiting.listed.skipped, rollback.to
    )
    # the current hold is written with it
    hold_on_app = None if memory.hold else situation.state.hold
    remember = Remember(memory, hold=hold_on_app)
    return Move(decision, waiting.build, remember, rolled_back=True), "waits", because


def list_after(
    waiting_list: WaitingList,
    done: Iterable[Move],
    of_head: FatesOnHead,
    unwritten: Iterable[ListedBuild],
    base: Snapshot,
    now: str,
) -> WaitingList:
    """Return a head branch's list of waiting builds (proposed there, and not merged yet) after a
    run.

    It contains the builds that the branch's commit writes (`done`), and those that could not be
    decided (in `of_head`) or written (`unwritten`).
    """
    # A build that left the list and is written again receives a new entry, based on the current
    # base.
    removed_keys = {fate.listed.key for fate in of_head.fates if fate.fate != "waits"}
    old_entries = {
        build.key: build for build in waiting_list.builds if build.key not in removed_keys
    }
    new_entries: dict[BuildKey, ListedBuild] = {}
    for move in done:
        if move.updates:
            old_entry = old_entries.get(key_of_entry(move.subscription))
            new_entry = listed_of(move, old_entry, base, now)
            new_entries[new_entry.key] = new_entry
    undecided_entries = [undecided.list_entry for undecided in of_head.undecided]
    for entry in (*undecided_entries, *unwritten):
        new_entries.setdefault(entry.key, entry)
    builds = tuple(sorted(new_entries.values(), key=lambda build: build.key))

    # a build that is proposed again is no longer declined
    listed_again = {build.declined_key for build in builds}
    declined = tuple(build for build in waiting_list.declined if build.key not in listed_again)
    return replace(
        waiting_list, builds=builds, releases=of_head.releases, declined=declined, closing=""
    )


def listed_of(move: Move, before: ListedBuild | None, base: Snapshot, now: str) -> ListedBuild:
    """Return the entry in a head branch's list of waiting builds for a build that this run writes
    to that branch.

    If the same build was already listed (`before`), most details of the old entry are kept.
    """
    decision = move.decision
    sub = move.subscription
    if before and _is_same_build(before, move):
        build = before.build if before.build != Build() else move.build
        proof = str(decision.proof or before.proof)
        return replace(before, build=build, proof=proof, left_out="")

    memory = Memory()
    if move.remember and move.remember.memory:
        memory = move.remember.memory
    # the memory may also contain an earlier rollback, which this move does not write
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


def _is_same_build(listed: ListedBuild, move: Move) -> bool:
    """Return whether a move writes the listed build for the same purpose (update or rollback)."""
    same_version = listed.version == move.decision.candidate.version
    was_rollback = listed.rollback is not None
    return same_version and was_rollback == move.rolled_back


def base_then(base: Snapshot, sub: Subscription) -> BaseThen:
    """Return the base branch's current version of an image, and what its state file remembers about
    the image: the newest written build, and the replaced versions. All values are empty if one of
    the files cannot be read.
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
    """Return a head branch's list of waiting builds, updated with what people have done with the
    branch and its pull request since the last run.

    If a person has closed the request, the builds are declined. If the builds were merged or the
    branch was deleted, they are no longer waiting. `absent` means that the branch does not exist,
    and `merged` that its builds were merged. `request` is the newest pull request.
    """
    newest_request = request or waiting_list.request
    was_deleted = absent and waiting_list.arrived
    if request and _closed_by_person(request, waiting_list):
        waiting_list = declined_by(waiting_list, request.url)
    elif merged or was_deleted:
        waiting_list = replace(waiting_list, builds=(), releases=())
    return replace(waiting_list, request=newest_request)


def _closed_by_person(request: KnownRequest, waiting_list: WaitingList) -> bool:
    """Return whether a person has closed a pull request since the last run.

    `waiting_list` contains the request as that run saw it, and the reason (`closing`) if that run
    wanted to close it.
    """
    if request.state != "closed":
        return False
    if waiting_list.closing:  # a run wanted to close it
        return False
    before = waiting_list.request
    if before is None or before.number != request.number:  # the last run did not know about it
        return True
    return before.state == "open"
