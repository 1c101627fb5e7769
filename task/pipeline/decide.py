"""Pure: (snapshot, asks) → one decision each: what the rules say, on what Git says now and what is remembered.

A lost push race is answered by deciding again on the new tip, so nothing here may remember, log, or look at the world.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from task.editors import EDITORS
from task.editors.state_file import read_state
from task.editors.texts import text_of
from task.errors import TargetError, TaskError
from task.model import (
    Decision,
    Fact,
    Image,
    Memory,
    Place,
    Question,
    Reading,
    Snapshot,
    State,
    Subscription,
    Verdict,
    Written,
)
from task.pipeline.facts import Asked, facts_of, may_ask, merged
from task.pipeline.holds import fulfil
from task.pipeline.target import SIGNS, live, live_reading, resolve, target_of
from task.pipeline.target import places as target_places
from task.pipeline.weigh import Candidate, Facts, Intent, Moment, Terms, deferred, failed, key_of, weigh
from task.policy.judge import objection
from task.policy.order import commits, later
from task.policy.remember import holding
from task.policy.strategies import STRATEGIES

NOTHING = State()


@dataclass(frozen=True)
class Ask:
    """A subscription and the event's images of its repository (one for each tag that was built)."""

    subscription: Subscription
    candidates: tuple[Image, ...]
    intent: Intent | None = None
    siblings: tuple[Subscription, ...] = ()  # all of an Application whose updates wait on a head branch

    @property
    def offered(self) -> Image:
        """The image on offer; of a person's intent, what the entry names."""
        return self.candidates[0] if self.candidates else self.subscription.entry.image


def hopeless(ask: Ask, terms: Terms) -> Decision | None:
    """The refusal of an ask that no state of Git can change; None when Git has to be read."""
    if ask.intent:
        return None
    if terms.require_live and not live(ask.subscription):
        name = ask.subscription.entry.image.name
        verdict = Verdict("refuse", "not-live", f"no live image of the Application is {name} (--require-live)")
        return Decision(ask.subscription, ask.candidates[0], verdict)
    if ask.subscription.held:
        verdict = Verdict("defer", "held", ask.subscription.held)
        return Decision(ask.subscription, ask.candidates[0], verdict)
    refusals = [objection(image, ask.subscription.policy) for image in ask.candidates]
    first = refusals[0]
    if first is None or None in refusals:
        return None
    return Decision(ask.subscription, ask.candidates[0], first, live_reading(ask.subscription))


def places(ask: Ask) -> tuple[Place, ...]:
    """What a snapshot must show to decide about `ask`."""
    found = (place for sub in (ask.subscription, *ask.siblings) for place in target_places(sub))
    return (*dict.fromkeys(found), Place(state_path(ask.subscription)))


def state_path(sub: Subscription) -> str:
    """Where the Application's state lies, from the repository's root; whatever its name, in that folder.

    The folder of what is written stands in it: two Argo CDs that share a repository and an Application's name
    remember apart.
    """
    name = f"{sub.application.namespace}_{sub.application.name}".replace("/", "_")
    return "/".join(part for part in (".image-update", sub.home, f"{name}.state") if part)


def states_of(snapshot: Snapshot, sub: Subscription) -> Mapping[str, State]:
    """The Application's whole state file, by write-back file. Raises `TargetError` where nobody can read it."""
    path = state_path(sub)
    text = text_of(snapshot.files, path) if path in snapshot.files else None
    if not text:
        return {}
    try:
        return read_state(text)
    except TargetError as error:
        raise error.about(path) from None


def state_of(snapshot: Snapshot, sub: Subscription) -> State:
    """What is remembered of the Application in the file that the subscription writes. Raises as `states_of`."""
    states = states_of(snapshot, sub)
    return states.get(file_of(snapshot, sub, states), NOTHING) if states else NOTHING


def file_of(snapshot: Snapshot, sub: Subscription, states: Mapping[str, State]) -> str:
    """Under which path a state file tells of the subscription's target: as it stands there, else as the file is called.

    A kustomization is named by its file (its folder is understood, too), a folder of manifests by the folder.
    """
    names: tuple[str, ...] = (sub.path, *sub.fallbacks)
    if sub.target == "kustomization":
        names = (*(f"{sub.path}/{sign}".lstrip("/") for sign, kind in SIGNS.items() if kind == "Kustomize"), sub.path)
    there = {posixpath.normpath(f"/{path}").lstrip("/"): path for path in states}
    known = next((there[name] for name in names if name in there), "")
    return known or next((name for name in names if name in snapshot.files), names[0]) or "."


def questions(snapshot: Snapshot, asks: Iterable[Ask], terms: Terms) -> Asked:
    """What has to be known of the builds: of source commits their ancestry, of images what a rule needs."""
    ancestry: dict[tuple[str, str, str], None] = {}
    needed: list[tuple[Question, Fact]] = []
    for ask in asks:
        if not (terms.build.commit or may_ask(ask.subscription, terms.check)) or hopeless(ask, terms):
            continue
        try:
            state = state_of(snapshot, ask.subscription)
            memory = state.images.get(key_of(ask.subscription), Memory())
            current = reading(snapshot, ask.subscription, terms)
        except TaskError:
            continue
        known = (one.build for one in (memory.written, memory.deferred) if one)
        ancestry |= {pair: None for build in known if (pair := commits(terms.build, build))}
        if may_ask(ask.subscription, terms.check):
            free = ask.intent.verb == "release" if ask.intent else not holding(state, memory, terms.now)
            needed += facts_needed(ask, current, memory if free else replace(memory, deferred=None), terms)
    return Asked(tuple(ancestry), merged(needed))


def facts_needed(ask: Ask, current: Reading, memory: Memory, terms: Terms) -> list[tuple[Question, Fact]]:
    """The facts about an ask's images and what waits behind a hold; none about what the rules refuse anyway."""
    sub = ask.subscription
    offered = [Candidate(image, terms.build) for image in ask.candidates]
    offered += [deferred(sub, memory.deferred)] if memory.deferred else []
    admitted = [one for one in offered if objection(one.image, sub.policy) is None]
    return [fact for one in admitted for fact in facts_of(sub, one.image, one.build, current, memory, terms.check)]


def decide(snapshot: Snapshot, asks: Iterable[Ask], terms: Terms, facts: Facts = Facts()) -> tuple[Decision, ...]:
    """One decision for each ask, on what Git says in `snapshot`."""
    return tuple(decide_one(snapshot, ask, terms, facts) for ask in asks)


def reading(snapshot: Snapshot, sub: Subscription, terms: Terms) -> Reading:
    """What the target says in a snapshot. Raises `TaskError` for what cannot be read."""
    kind = resolve(sub, snapshot)
    return EDITORS[kind].read(snapshot.files, target_of(sub, kind, carry=terms.carry))


def decide_one(
    snapshot: Snapshot, ask: Ask, terms: Terms, facts: Facts = Facts(), said: Reading | None = None
) -> Decision:
    """The decision for one ask; `said` is what a head branch says, whose updates count as if they were merged."""
    sub = ask.subscription
    refused = hopeless(ask, terms)
    where = Decision(sub, ask.offered, Verdict("error", "internal", ""), branch=snapshot.branch)
    try:
        kind = resolve(sub, snapshot)
        where = replace(where, kind=kind)
        current = EDITORS[kind].read(snapshot.files, target_of(sub, kind, carry=terms.carry))
        state = NOTHING if refused else state_of(snapshot, sub)
    except TaskError as error:
        return refused or failed(where, error)
    silent = not (current.tag or current.digest)
    where = replace(where, current=replace(live_reading(sub), file=current.file) if silent else current)
    if refused:
        return replace(where, verdict=refused.verdict)
    moment = Moment(where, said or current, state, state.images.get(key_of(sub), Memory()), terms, facts)
    if ask.intent:
        return fulfil(ask.intent, moment, snapshot)
    decision = choose(moment, ask.candidates)
    return _as_live(decision) if silent and decision.verdict.verdict == "unchanged" else decision


def _as_live(decision: Decision) -> Decision:
    """Unchanged because of what runs, which is not what Git says."""
    why = f"the live image is {decision.candidate.version} already, and Git says nothing of it"
    return replace(decision, verdict=replace(decision.verdict, because=why))


def choose(moment: Moment, images: Sequence[Image]) -> Decision:
    """The best of several tags of one build: the newest admitted, else the first refusal.

    What was deferred by a hold whose time is over is on offer again.
    """
    on_offer = [Candidate(image, moment.terms.build) for image in images]
    waiting = moment.memory.deferred
    if waiting and not holding(moment.state, moment.memory, moment.terms.now):
        on_offer.append(deferred(moment.where.subscription, waiting))
    best: Decision | None = None
    for one in on_offer:
        decision = weigh(moment, one)
        if best is None or _better(decision, best, moment):
            best = decision
    return best or moment.where


RANK = {"update": 4, "defer": 3, "unchanged": 2, "error": 1}


def _better(new: Decision, old: Decision, moment: Moment) -> bool:
    ranks = [RANK.get(one.verdict.verdict, 0) for one in (new, old)]
    if ranks[0] != ranks[1] or ranks[0] == 0:
        return ranks[0] > ranks[1]
    policy = new.subscription.policy
    if STRATEGIES[policy.strategy].older(new.candidate.tag, old.candidate.tag):
        return False
    ours, theirs = (Written(one.candidate.tag, one.candidate.digest, one.build) for one in (new, old))
    return not later(ours, theirs, policy, moment.facts.ancestry)
