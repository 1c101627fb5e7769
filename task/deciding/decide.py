"""Pure code that turns asks into moves:
it applies the rules to the files in Git and to the remembered state.

If a push race is lost, everything is reevaluated at the new tip. So this code must not keep
state, log, or send requests.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from task.annotations.write_back import LONGEST_NAME, LONGEST_PATH, size
from task.deciding.by_hand import fulfil
from task.deciding.hiding import refuse_hidden
from task.deciding.job import Ask, Move, Outcome, Remember, Terms, error_decision
from task.deciding.target import (
    SIGNS,
    all_live,
    live_reading,
    overlay_places,
    own_places,
    own_reading,
    resolve,
    target_of,
    target_places,
)
from task.deciding.weigh import (
    Facts,
    Offer,
    Situation,
    as_questions,
    deferred_offer,
    facts_needed_by_offer,
    key_of,
    may_ask,
    weigh,
)
from task.editors import EDITORS
from task.editors.file_text import text_of
from task.editors.state_file import read_state
from task.errors import TargetError, TaskError
from task.model import (
    Build,
    Decision,
    Fact,
    Files,
    Hold,
    Memory,
    Place,
    Question,
    Reading,
    Snapshot,
    State,
    Subscription,
    TargetKind,
    Verdict,
    Written,
)
from task.policy.builds import (
    Commits,
    commits,
    holding,
    merged,
    stricter,
    stricter_only,
    why_older,
)
from task.policy.judge import objection
from task.policy.strategies import rules_of

NOTHING = State()
OF_VERSIONS = ("not-a-version", "constraint")  # the rules of strategies that compare versions
_STATES = ".image-update"  # the folder of all state files


def places(ask: Ask) -> tuple[Place, ...]:
    """Return the places that a snapshot must contain to decide about `ask`."""
    sub = ask.subscription
    has_head_branch = sub.head_template or sub.pull_request
    subs = (sub, *ask.siblings) if has_head_branch else (sub,)
    of_targets = [place for each_sub in subs for place in target_places(each_sub)]
    return (*dict.fromkeys(of_targets), Place(state_path(sub)))


def state_path(sub: Subscription) -> str:
    """Return the path of the Application's state file, from the repository's root.

    The name contains the folder that is written, so that two Argo CD instances that share a
    repository and an Application name have separate state files.
    """
    return state_path_in(sub.home, sub.application.key)


def state_path_in(folder: str, app: str) -> str:
    """Return the state file path of an Application (`namespace/name`) with its first write-back
    file in this folder.
    """
    namespace, _, app_name = app.partition("/")
    name = f"{namespace}_{app_name}".replace("/", "_")
    if size(f"{name}.state") > LONGEST_NAME:
        name = f"{name[:50]}-{_digest(name)}"
    # `.image-update/config` is the repository's config. `.image-update/waiting` has the lists of
    # head branches.
    first, slash, rest = folder.partition("/")
    if first.casefold() in ("config", "waiting"):
        folder = f"{first}-folder{slash}{rest}"
    parts = [_STATES, folder, f"{name}.state"] if folder else [_STATES, f"{name}.state"]
    path = "/".join(parts)
    return path if size(path) <= LONGEST_PATH else f"{_STATES}/{_digest(path)}.state"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def is_state_path(path: str) -> bool:
    """Return whether a path, from the repository's root, is a state file."""
    return path.startswith(f"{_STATES}/") and path.endswith(".state")


def states_of(snapshot: Snapshot, sub: Subscription) -> Mapping[str, State]:
    """Return the Application's states by write-back file, including those on the memory branch.

    Raises `TargetError` if a state file is unreadable.
    """
    own = own_states(snapshot.files, state_path(sub))
    if not snapshot.memory_files:
        return own
    on_memory_branch = own_states(snapshot.memory_files, state_path(sub))
    has_head_branch = sub.pull_request or sub.head_template
    combine = merged if has_head_branch else stricter_only
    combined = {
        file: combine(own.get(file, NOTHING), state) for file, state in on_memory_branch.items()
    }
    return {**own, **combined}


def own_states(files: Files, path: str) -> Mapping[str, State]:
    """Return the states in a state file, by write-back file.

    Raises `TargetError` if it is unreadable.
    """
    text = text_of(files, path) if path in files else None
    if not text:
        return {}
    try:
        return read_state(text)
    except TargetError as error:
        raise error.about(path) from None


def state_of(snapshot: Snapshot, sub: Subscription) -> State:
    """Return the state of the file that the subscription writes.

    Raises `TargetError` if a state file is unreadable.
    """
    states = states_of(snapshot, sub)
    if not states:
        return NOTHING
    return states.get(file_of(snapshot, sub, states), NOTHING)


def file_of(snapshot: Snapshot, sub: Subscription, states: Mapping[str, State]) -> str:
    """Return the state file's key for the subscription's target: an existing key if one matches,
    else the file's path.

    A kustomization's key is the path of its file or its folder. For manifests, it is their folder.
    """
    paths = [sub.path, *sub.fallbacks]
    if sub.target == "kustomization":
        file_names = [name for name, kind in SIGNS.items() if kind == "Kustomize"]
        paths = [*(f"{sub.path}/{name}".lstrip("/") for name in file_names), sub.path]
    keys_by_path = {posixpath.normpath(f"/{key}").lstrip("/"): key for key in states}
    for path in paths:
        if keys_by_path.get(path):
            return keys_by_path[path]
    for path in paths:
        if path in snapshot.files:
            return path or "."
    return paths[0] or "."


def questions_to_ask(
    snapshot: Snapshot,
    asks: Iterable[Ask],
    given: Terms,
) -> tuple[list[Commits], tuple[Question, ...]]:
    """Return the questions to ask before deciding: which pairs of source commits to compare,
    and which facts about images the rules need.

    `weigh.may_ask` decides whether a registry is queried at all. `facts_needed_by_ask` skips images
    that the rules refuse anyway; `facts_needed_by_offer` returns the facts for one offer.
    """
    ancestry: dict[Commits, None] = {}
    needed: list[tuple[Question, Fact]] = []
    for ask in asks:
        terms = ask.terms(given)
        builds = ask.builds_of(terms)
        has_commit = any(build.commit for build in builds) or terms.build.commit
        asks_registry = may_ask(ask.subscription, terms.check)
        if not has_commit and not asks_registry:
            continue
        if settled_without_git(ask, terms):
            continue
        try:
            state = state_of(snapshot, ask.subscription)
            memory = state.images.get(key_of(ask.subscription), Memory())
            current = reading(snapshot, ask.subscription, terms)
        except TaskError:
            continue
        remembered = [written.build for written in (memory.written, memory.deferred) if written]
        ancestry |= dict.fromkeys(_pairs(builds or (terms.build,), remembered))
        if asks_registry:
            if ask.intent:
                writes_deferred = ask.intent.verb == "release"
            else:
                held = ask.subscription.freeze or holding(state, memory, terms.now)
                writes_deferred = not held
            if not writes_deferred:
                memory = replace(memory, deferred=None)
            needed += facts_needed_by_ask(ask, current, memory, terms)
    return list(ancestry), as_questions(needed)


MOST_COMPARED = 30  # builds of one image to compare by commit; the rest are compared by date


def _pairs(builds: Sequence[Build], remembered: Sequence[Build]) -> Iterator[Commits]:
    """Yield the pairs of commits to compare: each build's with those of the remembered and the
    other builds.
    """
    distinct = list(dict.fromkeys(builds))
    for number, build in enumerate(distinct):
        earlier_builds = distinct[:number][:MOST_COMPARED]
        for other in (*remembered, *earlier_builds):
            pair = commits(build, other)
            if pair:
                yield pair


def facts_needed_by_ask(
    ask: Ask,
    current: Reading,
    memory: Memory,
    terms: Terms,
) -> list[tuple[Question, Fact]]:
    """Return the facts needed about an ask's images and its deferred build,
    except for images that the rules refuse anyway.
    """
    sub = ask.subscription
    builds = ask.builds_of(terms)
    offered = [Offer(image, build) for image, build in zip(ask.candidates, builds, strict=True)]
    if memory.deferred:
        offered.append(deferred_offer(sub, memory.deferred))
    needed: list[tuple[Question, Fact]] = []
    for offer in offered:
        if objection(offer.image.tag, sub.policy) is None:
            needed += facts_needed_by_offer(sub, offer, current, memory, terms.check)
    return needed


def settled_without_git(ask: Ask, terms: Terms, *, config_read: bool = True) -> Decision | None:
    """Return the decision about an ask if it does not depend on Git, else None.

    Until the repository's config is read, its `tagOrder` may still admit a tag that is not a
    version.
    """
    if ask.intent:
        return None
    sub = ask.subscription
    first = ask.candidates[0]
    if terms.require_live and not all_live(sub):
        because = f"the Application is not running {sub.entry.image.name} (--require-live)"
        return Decision(sub, first, Verdict("refuse", "not-live", because))
    if sub.locked:
        # In reports, a locked HelmRelease looks like a held image.
        return Decision(sub, first, Verdict("defer", "held", sub.locked))
    refusals: list[Verdict] = []
    for image in ask.candidates:
        refusal = objection(image.tag, sub.policy)
        if refusal is None:  # the rules admit it, so the files in Git are needed
            return None
        refusals.append(refusal)
    may_get_tag_order = not config_read and not sub.policy.tag_order
    if may_get_tag_order and any(refusal.rule in OF_VERSIONS for refusal in refusals):
        return None
    return Decision(sub, first, refusals[0], live_reading(sub))


def failed_asks(
    asks: Iterable[Ask],
    error: TaskError,
    terms: Terms,
    *,
    config_read: bool = True,
) -> Outcome:
    """Return an error decision for each ask.

    Asks that the rules refuse without Git stay refused.
    """
    decisions = []
    for ask in asks:
        settled = settled_without_git(ask, terms, config_read=config_read)
        decisions.append(settled or error_decision(ask.subscription, ask.offered, error))
    return Outcome(tuple(decisions))


def decide(
    snapshot: Snapshot,
    asks: Iterable[Ask],
    terms: Terms,
    facts: Facts = Facts(),
) -> list[Move]:
    """Return one move for each ask, based on the files in `snapshot`."""
    return [decide_one(snapshot, ask, terms, facts) for ask in asks]


def reading(snapshot: Snapshot, sub: Subscription, terms: Terms) -> Reading:
    """Read a target in a snapshot. Raises `TaskError` if it cannot be read."""
    kind = resolve(sub, snapshot)
    return EDITORS[kind].read(snapshot.files, target_of(sub, kind, carry=terms.carry))


def situation_of(
    snapshot: Snapshot,
    sub: Subscription,
    terms: Terms,
    facts: Facts = Facts(),
) -> Situation:
    """Return everything that decisions about a subscription depend on.

    Raises `TaskError` if something cannot be read.
    """
    kind = resolve(sub, snapshot)
    state = state_of(snapshot, sub)
    in_git = reading(snapshot, sub, terms)
    memory = state.images.get(key_of(sub), Memory())
    current = current_reading(snapshot, sub, kind, in_git)
    return Situation(
        sub,
        snapshot.branch,
        kind,
        current,
        in_git,
        state,
        memory,
        terms,
        facts,
    )


def decide_one(snapshot: Snapshot, ask: Ask, terms: Terms, facts: Facts = Facts()) -> Move:
    """Return the move for one ask."""
    sub = ask.subscription
    terms = ask.terms(terms)
    settled = settled_without_git(ask, terms)
    if settled:
        return Move(_with_git(settled, snapshot, terms))
    kind: TargetKind | None = None
    try:
        kind = resolve(sub, snapshot)
        situation = situation_of(snapshot, sub, terms, facts)
        is_hold = ask.intent is not None and ask.intent.verb == "hold"
        if not is_hold:
            refuse_hidden(snapshot.files, sub, kind, target_of(sub, kind))
    except TaskError as error:
        return Move(replace(error_decision(sub, ask.offered, error, snapshot.branch), kind=kind))
    if ask.intent:
        return fulfil(ask.intent, situation, snapshot)
    move = choose(situation, ask)
    if situation.in_git.version or move.decision.verdict != "unchanged":
        return move
    # The rules compared the image with the running image, or with the Application's own sources.
    if sub.application.live:
        already = "the live image is already"
    else:
        already = "the Application's own sources already have"
    because = f"{already} {move.decision.candidate.version}, and the target does not set it"
    judged = replace(move.decision.judged, because=because)
    return Move(replace(move.decision, judged=judged), move.build)


def _with_git(refused: Decision, snapshot: Snapshot, terms: Terms) -> Decision:
    """Add the version in Git, if readable, to a refusal that does not depend on Git."""
    sub = refused.subscription
    refused = replace(refused, branch=snapshot.branch, head=snapshot.branch)
    try:
        kind = resolve(sub, snapshot)
        current = current_reading(snapshot, sub, kind, reading(snapshot, sub, terms))
        return replace(refused, current=current, kind=kind)
    except TaskError:
        return refused


def current_reading(
    snapshot: Snapshot,
    sub: Subscription,
    kind: TargetKind,
    in_git: Reading,
) -> Reading:
    """Return the image in the target, else the running image, else the image in the Application's
    own sources.
    """
    if in_git.version:
        return in_git
    found = live_reading(sub)
    if not found.version:
        found = own_reading(snapshot.files, sub, kind)
    return replace(found, file=in_git.file)


def missing_places(
    snapshot: Snapshot,
    sub: Subscription,
    terms: Terms,
    *,
    whole: bool = False,
) -> tuple[Place, ...]:
    """Return more places to read: those with the current version, and those that may hide the
    target.

    A kustomization's overlays may hide it. If neither the target nor a status has a version, the
    Application's own sources are needed. These places may refer to further ones. `whole` returns
    everything that a kustomization includes, for `lint`.
    """
    try:
        kind = resolve(sub, snapshot)
        needed: list[Place] = []
        if kind == "kustomization" and (whole or sub.path != sub.source.path):
            needed += overlay_places(snapshot.files, sub, kind)
        if not sub.application.live and not reading(snapshot, sub, terms).version:
            needed += own_places(sub, kind)
            needed += overlay_places(snapshot.files, sub, kind)
        already_read = set(target_places(sub))
        return tuple(place for place in dict.fromkeys(needed) if place not in already_read)
    except TaskError:  # reported when the decision is made
        return ()


MOST_TRIED = 5  # builds to verify if the proofs of newer builds are refused


def choose(situation: Situation, ask: Ask) -> Move:
    """Return the move for the newest offer that the rules admit, else the first refusal.

    The offers are the tags of one build, or several events, each with its own build. A deferred
    build is one of them once its hold has ended.
    """
    if ask.events:
        tries = MOST_TRIED
        offers = [Offer(event.image, event.build, origin=event.origin) for event in ask.events]
    else:
        tries = 0
        promoted = situation.terms.promoted
        pinned = bool(promoted and promoted.pinned)
        build = situation.terms.build
        offers = [Offer(image, build, pinned, promoted) for image in ask.candidates]
    best = _best(offers, situation, tries=tries)
    deferred = situation.memory.deferred
    if deferred is None or situation.hold:
        return best
    if best.decision.verdict == "error":
        return best  # the build stays deferred until this is retried
    of_deferred = deferred_offer(situation.subscription, deferred)
    decision = weigh(situation, of_deferred).decision
    if decision.verdict == "error":
        return _still_deferring(best, deferred, decision.because)
    return _best([*offers, of_deferred], situation, tries=MOST_TRIED)


def _still_deferring(move: Move, deferred: Written, error: str) -> Move:
    """Return the move, with a memory that keeps the deferred build, which could not be checked."""
    if not move.updates or move.remember is None or move.remember.memory is None:
        return move
    judged = move.decision.judged
    because = f"{judged.because}; {deferred.version} is still waiting: {error}"
    memory = replace(move.remember.memory, deferred=deferred)
    return replace(
        move,
        decision=replace(move.decision, judged=replace(judged, because=because)),
        remember=replace(move.remember, memory=memory),
    )


def _best(offers: Sequence[Offer], situation: Situation, *, tries: int) -> Move:
    """Return the best move among the offers.

    The best move's `otherwise` is the next best move, and so on, `tries` times. `verified` uses it
    if the best move's proof is refused.
    """
    moves = [weigh(situation, offer) for offer in offers]
    best = moves[0]
    for move in moves[1:]:
        if _is_better(move, best, situation):
            best = move
    kept = _kept_tag(moves, best, situation)
    if kept:
        return kept
    other_offers = [offer for offer, move in zip(offers, moves, strict=True) if move is not best]
    if not best.updates or not other_offers or tries == 0:
        return best
    deferred = situation.memory.deferred
    if deferred and best.decision.candidate.tag == deferred.tag:
        otherwise = _best_without_deferred(other_offers, situation, tries=tries - 1)
    else:
        otherwise = _best(other_offers, situation, tries=tries - 1)
    return replace(best, otherwise=otherwise) if otherwise.updates else best


def _best_without_deferred(offers: Sequence[Offer], situation: Situation, *, tries: int) -> Move:
    """Return the best move if the deferred build's proof is refused.

    The build is then forgotten, so that it does not compete again.
    """
    memory = replace(situation.memory, deferred=None)
    move = _best(offers, replace(situation, memory=memory), tries=tries)
    remember = move.remember or Remember()
    return replace(move, remember=replace(remember, memory=remember.memory or memory))


def _kept_tag(moves: Sequence[Move], best: Move, situation: Situation) -> Move | None:
    """Return the move that keeps the tag in Git, if the best move would only give the same image a
    different tag.

    Otherwise, each delivery of an event with two tags would switch from one tag to the other.
    """
    if not best.updates or rules_of(situation.subscription.policy).ordered:
        return None
    in_git = situation.in_git
    last_written = situation.memory.written
    digest = in_git.digest
    if not digest and last_written and last_written.version == in_git.version:
        digest = last_written.image_digest
    is_same_image = bool(digest) and best.decision.built == digest
    if not is_same_image:
        return None
    return next((move for move in moves if move.decision.verdict == "unchanged"), None)


# of the verdicts, best first; a refusal has rank 0
RANK = {
    "update": 4,
    "defer": 3,
    "unchanged": 2,
    "error": 1,
}


def _is_better(new: Move, old: Move, situation: Situation) -> bool:
    """Return whether a later offer's move wins over an earlier one's."""
    new_rank = RANK.get(new.decision.verdict, 0)
    old_rank = RANK.get(old.decision.verdict, 0)
    if new_rank != old_rank:
        return new_rank > old_rank
    if new_rank == 0:  # the first refusal is reported
        return False
    policy = situation.subscription.policy
    if rules_of(policy).older(new.decision.candidate.tag, old.decision.candidate.tag):
        return False
    ancestry = situation.facts.ancestry
    return not why_older(_version_written(new), _version_written(old), policy, ancestry)


def _version_written(move: Move) -> Written:
    candidate = move.decision.candidate
    return Written(candidate.tag, candidate.digest, move.build)


Identity = tuple[str, str, str, str, str]  # a subscription's


def holds_of_others(
    snapshot: Snapshot,
    subs: Iterable[Subscription],
    terms: Terms,
) -> Mapping[Identity, Hold]:
    """Return a hold for each subscription that writes the same key in the same file as another,
    held Application.
    """
    by_file: dict[tuple[str, str], dict[Identity, Subscription]] = {}
    for sub in subs:
        by_file.setdefault((sub.target, sub.path), {})[sub.identity] = sub
    holds: dict[Identity, Hold] = {}
    for group in by_file.values():
        apps = {sub.application.key for sub in group.values()}
        if len(apps) == 1:
            continue
        held: list[tuple[str, Hold, Places]] = []
        for sub in group.values():
            own_hold = _hold(snapshot, sub, terms)
            if own_hold:
                places_held = edited_places(snapshot, sub, terms)
                held.append((sub.application.key, own_hold, places_held))
        if not held:
            continue
        for identity, sub in group.items():
            hold = _hold_of_others(sub, edited_places(snapshot, sub, terms), held)
            if hold:
                holds[identity] = hold
    return holds


Places = set[tuple[str, str]]  # files and keys


def _hold_of_others(
    sub: Subscription,
    own_places: Places,
    held: Iterable[tuple[str, Hold, Places]],
) -> Hold | None:
    """Return the strictest hold of another Application that writes one of these places.

    `held` has each held Application with its hold and what it writes.
    """
    strictest: Hold | None = None
    for app, hold, held_places in held:
        if app != sub.application.key and own_places & held_places:
            with_origin = replace(hold, reason=f"{hold.reason} (hold on {app})")
            strictest = stricter(strictest, with_origin)
    return strictest


def _hold(snapshot: Snapshot, sub: Subscription, terms: Terms) -> Hold | None:
    """Return the active hold on the image, or None if there is none or the state is unreadable."""
    try:
        state = state_of(snapshot, sub)
    except TaskError:  # reported when the decision is made
        return None
    return holding(state, state.images.get(key_of(sub), Memory()), terms.now)


def changed_files(snapshot: Snapshot, sub: Subscription, terms: Terms) -> tuple[str, ...]:
    """Return the files that an update would change, with or without a digest."""
    without_digest = edited_places(snapshot, sub, terms)
    with_digest = edited_places(snapshot, sub, terms, f"sha256:{'0' * 64}")
    paths = {path for path, _key in without_digest | with_digest}
    return tuple(sorted(paths))


def edited_places(
    snapshot: Snapshot,
    sub: Subscription,
    terms: Terms,
    digest: str = "",
) -> set[tuple[str, str]]:
    """Return the files and keys that an update writes, or nothing if it cannot be written."""
    another = replace(sub.entry.image, tag="another", digest=digest)
    try:
        kind = resolve(sub, snapshot)
        target = target_of(sub, kind, carry=terms.carry)
        _, edits = EDITORS[kind].write(snapshot.files, target, another)
    except TaskError:
        return set()
    return {(edit.path, edit.key) for edit in edits}
