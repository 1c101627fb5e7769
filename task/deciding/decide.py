"""Pure code that turns asks into moves, by applying the rules to the files in Git and the
remembered state.

If a push race is lost, everything is reevaluated at the branch's new tip. So this code must not
keep state, write logs, or send requests.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from task.annotations.write_back import LONGEST_NAME, LONGEST_PATH, size
from task.deciding.by_hand import fulfil
from task.deciding.hiding import refuse_hidden
from task.deciding.job import Ask, Move, Outcome, Remember, Terms, error_decision, with_reason
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
# The rules of strategies that compare versions. If a `tagOrder` is set, perhaps by the config,
# these rules judge only the version that it extracts from the tag, so they may admit more tags.
OF_VERSIONS = ("not-a-version", "constraint")
# The tag for a trial write, which only finds out where an update would write. A place that already
# contains this tag would not be found, so the tag must not exist in Git.
TRIAL_TAG = "another"
_STATES = ".image-update"  # contains all state files


def places(ask: Ask) -> tuple[Place, ...]:
    """Return the places (paths in Git) that must be read to decide about an ask.

    An ask is one image of one Application, with the builds offered for it.
    """
    sub = ask.subscription
    has_head_branch = sub.pull_request or sub.head_template != ""
    needed = list(target_places(sub))
    if has_head_branch:  # other updates may wait on the same branch
        for sibling in ask.siblings:
            needed += target_places(sibling)
    return (*dict.fromkeys(needed), Place(state_path(sub)))


def state_path(sub: Subscription) -> str:
    """Return the path of the Application's state file, relative to the repository's root.

    The path includes the folder that is written to, so that two Argo CD instances that use the same
    repository and Application name have separate state files.
    """
    return state_path_in(sub.home, sub.application.key)


def state_path_in(folder: str, app: str) -> str:
    """Return the path of an Application's state file, such as
    `.image-update/apps/argocd_web.state`.

    `folder` is the folder of the Application's first write-back file, here `apps`. `app` is
    `namespace/name`, here `argocd/web`. A name or path that is too long for file systems is
    truncated, and a hash is appended.
    """
    namespace, _, app_name = app.partition("/")
    name = f"{namespace}_{app_name}".replace("/", "_")
    if size(f"{name}.state") > LONGEST_NAME:
        name = f"{name[:50]}-{_digest(name)}"

    # `.image-update/config` is the repository's config, and `.image-update/waiting` contains the
    # lists of head branches. So folders called `config` or `waiting` are renamed here.
    top_folder, slash, subfolders = folder.partition("/")
    if top_folder.casefold() in ("config", "waiting"):
        folder = f"{top_folder}-folder{slash}{subfolders}"

    parent = f"{_STATES}/{folder}" if folder else _STATES
    path = f"{parent}/{name}.state"
    if size(path) > LONGEST_PATH:
        return f"{_STATES}/{_digest(path)}.state"
    return path


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def is_state_path(path: str) -> bool:
    """Return whether a path, relative to the repository's root, is the path of a state file."""
    return path.startswith(f"{_STATES}/") and path.endswith(".state")


def states_of(snapshot: Snapshot, sub: Subscription) -> Mapping[str, State]:
    """Return the Application's states, keyed by write-back file.

    A state contains the Application's hold and what is remembered about each of its images. The
    states on the base branch are combined with those on the memory branch. If commits go directly
    to the base, only the holds on the memory branch are used (see `stricter_only`). Raises
    `TargetError` if a state file is unreadable.
    """
    states_on_base = own_states(snapshot.files, state_path(sub))
    if not snapshot.memory_files:
        return states_on_base
    states_on_memory_branch = own_states(snapshot.memory_files, state_path(sub))
    has_head_branch = sub.pull_request or sub.head_template != ""
    combine = merged if has_head_branch else stricter_only
    combined_states = dict(states_on_base)
    for file, state in states_on_memory_branch.items():
        combined_states[file] = combine(states_on_base.get(file, NOTHING), state)
    return combined_states


def own_states(files: Files, path: str) -> Mapping[str, State]:
    """Return the states in the state file at `path`, keyed by write-back file, or {} if the state
    file is missing or empty.

    A state contains holds and what is remembered about images. Raises `TargetError` if the state
    file is unreadable.
    """
    if path not in files:
        return {}
    text = text_of(files, path)
    if not text:
        return {}
    try:
        return read_state(text)
    except TargetError as error:
        raise error.about(path) from None


def state_of(snapshot: Snapshot, sub: Subscription) -> State:
    """Return the state of the file that the subscription writes to.

    Raises `TargetError` if a state file is unreadable.
    """
    states = states_of(snapshot, sub)
    if not states:
        return NOTHING
    return states.get(file_of(snapshot, sub, states), NOTHING)


def file_of(snapshot: Snapshot, sub: Subscription, states: Mapping[str, State]) -> str:
    """Return the key under which the state file stores the state of the subscription's target.

    The key is a path, such as `apps/web/values-prod.yaml`, or "." for the repository's root. A key
    that `states` already has is preferred. For a kustomization, the key is the path of its file or
    folder. For manifests, the key is the path of their folder.
    """
    if sub.target == "kustomization":
        file_names = [name for name, kind in SIGNS.items() if kind == "Kustomize"]
        paths = [f"{sub.path}/{name}".lstrip("/") for name in file_names]
        paths.append(sub.path)
    else:
        paths = [sub.path, *sub.fallbacks]
    # In `paths`, the repository's root is "", but its key is ".".
    keys_by_path = {posixpath.normpath(f"/{key}").lstrip("/"): key for key in states}
    for path in paths:
        existing_key = keys_by_path.get(path)
        if existing_key:
            return existing_key
    for path in paths:
        if path in snapshot.files:
            return path or "."
    return paths[0] or "."


def questions_to_ask(
    snapshot: Snapshot,
    asks: Iterable[Ask],
    terms_of_run: Terms,
) -> tuple[list[Commits], tuple[Question, ...]]:
    """Return what must be looked up before deciding about these asks: the pairs of source commits
    to compare, and the questions for the registries.

    An ask is one image of one Application, with the builds offered for it. Nothing is looked up for
    an ask that is decided without Git, or whose files in Git are unreadable.
    """
    commit_pairs: dict[Commits, None] = {}  # a dict keeps the order and drops duplicates
    needed_facts: list[tuple[Question, Fact]] = []
    for ask in asks:
        sub = ask.subscription
        terms = ask.terms(terms_of_run)
        builds = (terms.build, *ask.builds_of(terms))
        has_commit = any(build.commit for build in builds)
        may_query_registry = may_ask(sub, terms.check)
        needs_nothing = not has_commit and not may_query_registry
        if needs_nothing or settled_without_git(ask, terms):
            continue
        try:
            state = state_of(snapshot, sub)
            current = reading(snapshot, sub, terms)
        except TaskError:  # reported when the decision is made
            continue

        memory = state.images.get(key_of(sub), Memory())
        commit_pairs |= dict.fromkeys(_commits_to_compare(ask, memory, terms))
        if may_query_registry:
            if not _may_write_deferred(ask, state, memory, terms):
                memory = replace(memory, deferred=None)  # no facts about this build are needed
            needed_facts += facts_needed_by_ask(ask, current, memory, terms)
    return list(commit_pairs), as_questions(needed_facts)


def _may_write_deferred(ask: Ask, state: State, memory: Memory, terms: Terms) -> bool:
    """Return whether the image's deferred build, if there is one, may be written now."""
    if ask.intent:
        return ask.intent.verb == "release"
    hold = ask.subscription.freeze or holding(state, memory, terms.now)
    return hold is None


MOST_COMPARED = 30  # most builds of an image to compare by commit; the rest are compared by date


def _commits_to_compare(ask: Ask, memory: Memory, terms: Terms) -> Iterator[Commits]:
    """Yield the pairs of source commits to compare: each build's commit is paired with the commits
    of the remembered builds and of the ask's other builds.

    The remembered builds are the newest build that was written and the build that a hold has
    deferred.
    """
    remembered_builds = [version.build for version in (memory.written, memory.deferred) if version]
    builds = list(dict.fromkeys(ask.builds_of(terms)))
    if not builds:  # a person's request offers no builds
        builds = [terms.build]
    for number, build in enumerate(builds):
        builds_before = builds[:number]  # so that each pair appears only once
        for other_build in (*remembered_builds, *builds_before[:MOST_COMPARED]):
            pair = commits(build, other_build)
            if pair:
                yield pair


def facts_needed_by_ask(
    ask: Ask,
    current: Reading,
    memory: Memory,
    terms: Terms,
) -> list[tuple[Question, Fact]]:
    """Return the facts to look up about an ask's images, each with the question that asks for it.

    Images that the rules refuse anyway are skipped. A build that a hold has deferred
    (`memory.deferred`) is included.
    """
    sub = ask.subscription
    builds = ask.builds_of(terms)
    offers = [Offer(image, build) for image, build in zip(ask.candidates, builds, strict=True)]
    if memory.deferred:
        offers.append(deferred_offer(sub, memory.deferred))
    needed_facts: list[tuple[Question, Fact]] = []
    for offer in offers:
        if objection(offer.image.tag, sub.policy) is None:
            needed_facts += facts_needed_by_offer(sub, offer, current, memory, terms.check)
    return needed_facts


def settled_without_git(ask: Ask, terms: Terms, *, config_read: bool = True) -> Decision | None:
    """Return the decision about an ask if the decision does not depend on Git, or else None.

    An ask is one image of one Application, with the builds offered for it. `config_read` is true if
    the settings from the repository's config have already been applied to the ask. Otherwise, a
    refusal that these settings could change does not count as a decision.
    """
    if ask.intent:
        return None
    sub = ask.subscription
    reported_image = ask.candidates[0]
    if terms.require_live and not all_live(sub):
        because = f"the Application is not running {sub.entry.image.name} (--require-live)"
        return Decision(sub, reported_image, Verdict("refuse", "not-live", because))
    if sub.locked:
        # Reports show a locked HelmRelease like a held image.
        return Decision(sub, reported_image, Verdict("defer", "held", sub.locked))

    refusals: list[Verdict] = []  # one for each candidate
    for image in ask.candidates:
        refusal = objection(image.tag, sub.policy)
        if refusal is None:  # whether to write it depends on the version in Git
            return None
        refusals.append(refusal)

    # With a `tagOrder` in the config, one of the refused tags may still be admitted.
    config_may_set_tag_order = not config_read and not sub.policy.tag_order
    if config_may_set_tag_order and any(refusal.rule in OF_VERSIONS for refusal in refusals):
        return None
    refusal_of_reported = refusals[0]  # like `reported_image`, use the first candidate's
    return Decision(sub, reported_image, refusal_of_reported, live_reading(sub))


def failed_asks(
    asks: Iterable[Ask],
    error: TaskError,
    terms: Terms,
    *,
    config_read: bool = True,
) -> Outcome:
    """Return a decision for each ask in a repository that failed with `error`.

    An ask is one image of one Application, with the builds offered for it. The decision is the
    error, unless the ask can be decided without Git (see `settled_without_git`).
    """
    decisions = []
    for ask in asks:
        early_decision = settled_without_git(ask, terms, config_read=config_read)
        decisions.append(early_decision or error_decision(ask.subscription, ask.offered, error))
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
    """Return the image in the subscription's target, or an empty reading if the target contains
    none (`current_reading` then looks elsewhere).

    Raises `TaskError` if the target cannot be read.
    """
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
        subscription=sub,
        branch=snapshot.branch,
        kind=kind,
        current=current,
        in_git=in_git,
        state=state,
        memory=memory,
        terms=terms,
        facts=facts,
    )


def decide_one(snapshot: Snapshot, ask: Ask, terms: Terms, facts: Facts = Facts()) -> Move:
    """Return the move for one ask: the decision and the change to commit for it.

    An ask is one image of one Application, with the builds offered for it. If a file in `snapshot`
    cannot be used, the decision is an error.
    """
    sub = ask.subscription
    terms = ask.terms(terms)
    early_decision = settled_without_git(ask, terms)
    if early_decision:
        return Move(_with_version_in_git(early_decision, snapshot, terms))

    kind: TargetKind | None = None  # an error is reported with the kind if it is already known
    try:
        kind = resolve(sub, snapshot)
        situation = situation_of(snapshot, sub, terms, facts)
        is_hold = ask.intent is not None and ask.intent.verb == "hold"
        if not is_hold:  # a hold does not write to the target
            refuse_hidden(snapshot.files, sub, kind, target_of(sub, kind))
    except TaskError as error:
        decision = error_decision(sub, ask.offered, error, snapshot.branch)
        return Move(replace(decision, kind=kind))

    if ask.intent:
        return fulfil(ask.intent, situation, snapshot)
    move = choose(situation, ask)
    if move.decision.verdict == "unchanged" and not situation.in_git.version:
        return _unchanged_outside_git(move)
    return move


def _unchanged_outside_git(move: Move) -> Move:
    """Return a move with the reason why nothing changes, although the target in Git has no version.

    The reason is that the running image or the Application's own sources already have the offered
    version.
    """
    if move.subscription.application.live:
        already = "the live image is already"
    else:
        already = "the Application's own sources already have"
    because = f"{already} {move.decision.candidate.version}, and the target does not set it"
    return Move(with_reason(move.decision, because), move.build)


def _with_version_in_git(decision: Decision, snapshot: Snapshot, terms: Terms) -> Decision:
    """Return the decision with the snapshot's branch and, if it can be read,
    the current version.
    """
    sub = decision.subscription
    decision = replace(decision, branch=snapshot.branch, head=snapshot.branch)
    try:
        kind = resolve(sub, snapshot)
        current = current_reading(snapshot, sub, kind, reading(snapshot, sub, terms))
        return replace(decision, current=current, kind=kind)
    except TaskError:  # the decision does not depend on Git
        return decision


def current_reading(
    snapshot: Snapshot,
    sub: Subscription,
    kind: TargetKind,
    in_git: Reading,
) -> Reading:
    """Return the image in the target (`in_git`), or else the running image, or else the image in
    the Application's own sources.

    The result's `file` is always the target's.
    """
    if in_git.version:
        return in_git
    outside_target = live_reading(sub)
    if not outside_target.version:
        outside_target = own_reading(snapshot.files, sub, kind)
    return replace(outside_target, file=in_git.file)


def missing_places(
    snapshot: Snapshot,
    sub: Subscription,
    terms: Terms,
    *,
    whole: bool = False,
) -> tuple[Place, ...]:
    """Return the places (paths in Git) that must be read in addition to the target's.

    For a kustomization, these are the overlays that may hide the target. With `whole`, they include
    the kustomization's whole tree even without overlays, because `lint` looks for the image in the
    manifests. The Application's own sources are also needed if neither the target nor the
    Application's status has a version. The contents of these places may require further places.
    """
    try:
        kind = resolve(sub, snapshot)
        needed: list[Place] = []
        may_have_overlays = sub.path != sub.source.path  # the source's folder is the outermost
        if kind == "kustomization" and (whole or may_have_overlays):
            needed += overlay_places(snapshot.files, sub, kind)
        if not sub.application.live and not reading(snapshot, sub, terms).version:
            needed += own_places(sub, kind)
            needed += overlay_places(snapshot.files, sub, kind)
        already_read = set(target_places(sub))
        return tuple(place for place in dict.fromkeys(needed) if place not in already_read)
    except TaskError:  # reported when the decision is made
        return ()


MOST_TRIED = 5  # maximum number of builds to verify if the proofs of newer builds are refused


def choose(situation: Situation, ask: Ask) -> Move:
    """Return the move for the newest offer that the rules admit, or else the first refusal.

    An offer is an image with its build. The ask contains an offer for each tag of one build, or for
    each event. Once a hold has ended, the build that it deferred is another offer.
    """
    offers = _offers_of(ask, situation.terms)
    # All tags of a build share one proof. If it is refused, there is no need to try the other tags.
    tries = MOST_TRIED if ask.events else 0
    best = _best(offers, situation, tries=tries)
    deferred = situation.memory.deferred
    if deferred is None or situation.hold:
        return best
    if best.decision.verdict == "error":
        return best  # the build remains deferred until a retry

    # The deferred build competes with the offers, unless it cannot be judged now, for example
    # because the registry is down. That error must not replace the decision about the offers.
    offer_of_deferred = deferred_offer(situation.subscription, deferred)
    decision_on_deferred = weigh(situation, offer_of_deferred).decision
    if decision_on_deferred.verdict == "error":
        return _move_keeping_deferred(best, deferred, decision_on_deferred.because)
    # Choose again from all offers, because any of them may also be the best move's alternative.
    return _best([*offers, offer_of_deferred], situation, tries=MOST_TRIED)


def _offers_of(ask: Ask, terms: Terms) -> list[Offer]:
    """Return an offer (an image with its build) for each of the ask's events. If the ask has no
    events, return one for each of its candidates.
    """
    if ask.events:
        return [Offer(event.image, event.build, origin=event.origin) for event in ask.events]
    promoted = terms.promoted
    pinned = promoted is not None and promoted.pinned
    return [Offer(image, terms.build, pinned=pinned, promoted=promoted) for image in ask.candidates]


def _move_keeping_deferred(move: Move, deferred: Written, error: str) -> Move:
    """Return the move, modified so that the state file keeps the deferred build.

    That build was deferred by a hold, and could not be checked now because of `error`. So the next
    run has to check it again.
    """
    if not move.updates or move.remember is None or move.remember.memory is None:
        return move
    because = f"{move.decision.because}; {deferred.version} is still waiting: {error}"
    memory = replace(move.remember.memory, deferred=deferred)
    return replace(
        move,
        decision=with_reason(move.decision, because),
        remember=replace(move.remember, memory=memory),
    )


def _best(offers: Sequence[Offer], situation: Situation, *, tries: int) -> Move:
    """Return the best of the moves for these offers.

    If one of the moves keeps the tag in Git, it may be preferred (see `_move_keeping_tag`).
    Otherwise, the best move's `otherwise` is the next best move, which is used if the best move's
    proof is refused. The next best move may have an `otherwise`, too, and so on, up to `tries`
    moves.
    """
    moves = [weigh(situation, offer) for offer in offers]
    best = moves[0]
    for move in moves[1:]:
        if _is_better(move, best, situation):
            best = move
    move_keeping_tag = _move_keeping_tag(moves, best, situation)
    if move_keeping_tag:
        return move_keeping_tag

    other_offers = [offer for offer, move in zip(offers, moves, strict=True) if move is not best]
    if not best.updates or not other_offers or tries == 0:
        return best
    deferred = situation.memory.deferred
    is_deferred_build = deferred is not None and best.decision.candidate.tag == deferred.tag
    if is_deferred_build:
        otherwise = _best_without_deferred(other_offers, situation, tries=tries - 1)
    else:
        otherwise = _best(other_offers, situation, tries=tries - 1)
    return replace(best, otherwise=otherwise) if otherwise.updates else best


def _best_without_deferred(offers: Sequence[Offer], situation: Situation, *, tries: int) -> Move:
    """Return the best move for these offers, modified so that the deferred build is removed from
    the state file.

    This move is used if the deferred build's proof is refused. If that build remained in the state
    file, it would compete again in the next run.
    """
    memory = replace(situation.memory, deferred=None)
    move = _best(offers, replace(situation, memory=memory), tries=tries)
    remember = move.remember or Remember()
    if remember.memory is None:
        remember = replace(remember, memory=memory)
    return replace(move, remember=remember)


def _move_keeping_tag(moves: Sequence[Move], best: Move, situation: Situation) -> Move | None:
    """Return the move that keeps the tag in Git if the best move would merely write a different tag
    for the same image. Otherwise, return None.

    Without this, every time an event with two tags is delivered, Git would switch from one tag to
    the other.
    """
    if not best.updates:
        return None
    if rules_of(situation.subscription.policy).ordered:  # a different tag is a different version
        return None
    in_git = situation.in_git
    last_written = situation.memory.written
    digest_in_git = in_git.digest
    # Even if Git has only the tag, the state file may know its digest.
    if not digest_in_git and last_written and last_written.version == in_git.version:
        digest_in_git = last_written.image_digest
    if not digest_in_git or digest_in_git != best.decision.built:
        return None
    for move in moves:
        if move.decision.verdict == "unchanged":
            return move
    return None


# the ranks of the verdicts, best first; a refusal has rank 0
RANK = {
    "update": 4,
    "defer": 3,
    "unchanged": 2,
    "error": 1,
}


def _is_better(new: Move, old: Move, situation: Situation) -> bool:
    """Return whether a later offer's move (`new`) beats an earlier offer's move (`old`).

    The better verdict wins. If both are refusals, the earlier move wins. If the verdicts are
    otherwise the same, the later offer wins, unless it is older.
    """
    new_rank = RANK.get(new.decision.verdict, 0)
    old_rank = RANK.get(old.decision.verdict, 0)
    if new_rank != old_rank:
        return new_rank > old_rank
    if new_rank == 0:  # both are refusals; report the first one
        return False

    policy = situation.subscription.policy
    ancestry = situation.facts.ancestry
    is_older_by_tag = rules_of(policy).older(
        new.decision.candidate.tag,
        old.decision.candidate.tag,
    )
    if is_older_by_tag:
        return False
    why_older_build = why_older(_version_written(new), _version_written(old), policy, ancestry)
    return why_older_build == ""


def _version_written(move: Move) -> Written:
    candidate = move.decision.candidate
    return Written(candidate.tag, candidate.digest, move.build)


Identity = tuple[str, str, str, str, str]  # identifies a subscription


def holds_of_others(
    snapshot: Snapshot,
    subs: Iterable[Subscription],
    terms: Terms,
) -> Mapping[Identity, Hold]:
    """Return the holds of other Applications that also apply to these subscriptions.

    A hold blocks updates to an image. For example, if `argocd/web` is on hold, and `argocd/api`
    writes the same key in the same file, then the hold on `argocd/web` also applies to
    `argocd/api`.
    """
    subs_by_file: dict[tuple[str, str], dict[Identity, Subscription]] = {}
    for sub in subs:
        subs_by_file.setdefault((sub.target, sub.path), {})[sub.identity] = sub

    holds: dict[Identity, Hold] = {}
    for subs_of_file in subs_by_file.values():
        apps = {sub.application.key for sub in subs_of_file.values()}
        is_shared = len(apps) > 1
        if is_shared:
            holds |= _holds_in_file(snapshot, subs_of_file, terms)
    return holds


def _holds_in_file(
    snapshot: Snapshot,
    subs: Mapping[Identity, Subscription],
    terms: Terms,
) -> dict[Identity, Hold]:
    """Return the holds of other Applications that also apply to these subscriptions, which all
    write to the same file.

    A hold applies if the other Application writes to one of the same keys.
    """
    # First find the subscriptions that are on hold themselves, and the places to which they write.
    held_places: list[_HeldPlaces] = []
    for sub in subs.values():
        own_hold = _active_hold(snapshot, sub, terms)
        if own_hold:
            places_of_hold = edited_places(snapshot, sub, terms)
            held_places.append(_HeldPlaces(sub.application.key, own_hold, places_of_hold))
    if not held_places:
        return {}

    # Then find the subscriptions of other Applications that write to the same keys.
    holds: dict[Identity, Hold] = {}
    for identity, sub in subs.items():
        own_places = edited_places(snapshot, sub, terms)
        hold = _hold_of_others(sub.application.key, own_places, held_places)
        if hold:
            holds[identity] = hold
    return holds


class _HeldPlaces(NamedTuple):
    """An Application on hold, and the files and keys that its updates would write to."""

    application: str
    hold: Hold
    places: set[tuple[str, str]]  # (file, key) pairs, as in `edited_places`


def _hold_of_others(
    application: str,
    own_places: set[tuple[str, str]],
    held_places: Iterable[_HeldPlaces],
) -> Hold | None:
    """Return the strictest hold of another Application that writes to one of `own_places`, or None
    if there is none.

    `own_places` are the (file, key) pairs that `application` writes to.
    """
    strictest: Hold | None = None
    for held in held_places:
        writes_same_place = not held.places.isdisjoint(own_places)
        if held.application != application and writes_same_place:
            reason = f"{held.hold.reason} (hold on {held.application})"
            strictest = stricter(strictest, replace(held.hold, reason=reason))
    return strictest


def _active_hold(snapshot: Snapshot, sub: Subscription, terms: Terms) -> Hold | None:
    """Return the active hold on the image. Return None if there is none, or if the state is
    unreadable.
    """
    try:
        state = state_of(snapshot, sub)
    except TaskError:  # reported when the decision is made
        return None
    return holding(state, state.images.get(key_of(sub), Memory()), terms.now)


def changed_files(snapshot: Snapshot, sub: Subscription, terms: Terms) -> tuple[str, ...]:
    """Return the files that an update would change, whether or not it writes a digest."""
    without_digest = edited_places(snapshot, sub, terms)
    with_digest = edited_places(snapshot, sub, terms, digest=f"sha256:{'0' * 64}")
    paths = {path for path, _key in without_digest | with_digest}
    return tuple(sorted(paths))


def edited_places(
    snapshot: Snapshot,
    sub: Subscription,
    terms: Terms,
    digest: str = "",
) -> set[tuple[str, str]]:
    """Return the (file, key) pairs that an update writes to, such as `("values-prod.yaml",
    "image.tag")`.

    If `digest` is set, the update also writes a digest. The result is empty if the update cannot be
    written.
    """
    trial_image = replace(sub.entry.image, tag=TRIAL_TAG, digest=digest)
    try:
        kind = resolve(sub, snapshot)
        target = target_of(sub, kind, carry=terms.carry)
        _, edits = EDITORS[kind].write(snapshot.files, target, trial_image)
    except TaskError:
        return set()
    return {(edit.path, edit.key) for edit in edits}
