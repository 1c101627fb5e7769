"""Pure code for `check`, which finds the tracked entries that a change affects and judges each
entry as a run would.

The base's memory, holds, and config apply, but the change's annotations. `check` uses the rules of
`weigh`, with some differences. People may do more than a run: an older version, or a version whose
order is unknown, only causes a warning, unless the config refuses it. A rollback that the state
file describes is allowed. A hold that the change ends does not apply, and is reported. If a server
does not respond, the decision is an error. A missing digest is never looked up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from task.annotations.write_back import refuse_files
from task.deciding.by_hand import TEXTS_FOR_A_TAG
from task.deciding.decide import (
    NOTHING,
    TRIAL_TAG,
    file_of,
    own_states,
    reading,
    state_path,
    states_of,
)
from task.deciding.hiding import refuse_hidden
from task.deciding.job import Ask, Move, Promoted, Terms, error_decision, failed
from task.deciding.target import earlier_reading, own_reading, resolve, target_of
from task.deciding.weigh import (
    Facts,
    Offer,
    Situation,
    by_age_at_source,
    by_the_order,
    by_the_rules,
    facts_needed_by_offer,
    key_of,
    question_about,
    registry_error,
    unless_too_young,
)
from task.editors import EDITORS
from task.editors.file_text import identity_of, split_tag
from task.errors import SourceError, TargetError, TaskError, Trouble
from task.image import live_image
from task.model import (
    Answer,
    Build,
    Decision,
    Fact,
    Hold,
    Image,
    Memory,
    Problem,
    Question,
    Reading,
    Snapshot,
    State,
    Subscription,
    TargetKind,
    Verdict,
    Written,
)
from task.policy.builds import active, alike, hold_text
from task.policy.judge import objection
from task.policy.strategies import needs
from task.repository_config.config import RepositoryConfig, last_to_end, refuse_stricter

OF_ORDER = ("not-newer", "superseded")  # people may break these rules, unless the config refuses it


@dataclass(frozen=True)
class Pair:
    """A tracked entry in the base and in the change. One of the two may be missing."""

    before: Subscription | None
    after: Subscription | None

    @property
    def effective(self) -> Subscription:
        """The subscription whose annotations apply: the change's, or else the base's."""
        sub = self.after or self.before
        if sub is None:
            raise ValueError("a pair without subscriptions")
        return sub


@dataclass(frozen=True)
class Sides:
    """The files in the base and in the change."""

    base: Snapshot
    merged: Snapshot
    paths: frozenset[str]  # the paths that merging the change would modify


@dataclass(frozen=True)
class Touched:
    """A tracked entry whose version or name changes."""

    pair: Pair
    kind: TargetKind
    in_git: Reading  # the target's reading in the base
    old: Reading  # from the target in the base, or else from the Application's own sources
    new: Reading


@dataclass(frozen=True)
class NotJudged:
    """A tracked entry that cannot be judged, with the reason."""

    pair: Pair
    error: TaskError
    broken: bool  # whether the change makes the entry unreadable, as opposed to removing it


def paired(before: Iterable[Subscription], after: Iterable[Subscription]) -> list[Pair]:
    """Return pairs of the tracked entries before and after a change.

    An entry is one image of one Application. Both entries of a pair have the same Application and
    alias. If several entries have the same alias, entries that are written to the same place are
    paired first. If an entry exists on only one side, the other side of its pair is None.
    """
    unpaired_before: dict[tuple[str, str], list[Subscription]] = {}
    for sub in before:
        unpaired_before.setdefault(_entry_key(sub), []).append(sub)

    pairs: list[Pair] = []
    moved_or_new_entries: list[Subscription] = []
    for sub in after:
        same_alias = unpaired_before.get(_entry_key(sub), [])
        same_place = [entry for entry in same_alias if _place(entry) == _place(sub)]
        if same_place:
            same_alias.remove(same_place[0])  # also removes the entry from `unpaired_before`
            pairs.append(Pair(same_place[0], sub))
        else:
            moved_or_new_entries.append(sub)

    for sub in moved_or_new_entries:
        same_alias = unpaired_before.get(_entry_key(sub), [])
        entry_before_move = same_alias.pop(0) if same_alias else None
        pairs.append(Pair(entry_before_move, sub))

    for removed_entries in unpaired_before.values():
        pairs += [Pair(sub, None) for sub in removed_entries]
    return pairs


def _entry_key(sub: Subscription) -> tuple[str, str]:
    """Return what identifies an entry on both sides: its Application, and its alias or else its
    name.
    """
    return sub.application.key, key_of(sub)


def _place(sub: Subscription) -> tuple[str, str]:
    """Return where an entry is written."""
    return sub.target, sub.path


def _entry_reading(snapshot: Snapshot, sub: Subscription, terms: Terms) -> Reading:
    """Return an entry's version in the target, or else in the Application's own sources. An entry
    is one image of one Application.

    Raises `TaskError` if a file cannot be read.
    """
    in_target = reading(snapshot, sub, terms)
    kind = resolve(sub, snapshot)
    if in_target.version:
        return _with_other_places(in_target, snapshot, sub, kind)
    return replace(own_reading(snapshot.files, sub, kind), file=in_target.file)


def _with_other_places(
    in_target: Reading,
    snapshot: Snapshot,
    sub: Subscription,
    kind: TargetKind,
) -> Reading:
    """Return the target's reading (`in_target`), with `also` filled in.

    Manifests and Flux resources may contain the image in several places, perhaps with different
    versions. The reading contains one of these versions, and the others are added to `also`.
    """
    if kind not in ("manifests", "flux"):
        return in_target
    # An update writes to all of these places, so the edits of a trial write reveal the current
    # values.
    trial_image = replace(sub.entry.image, tag=TRIAL_TAG, digest="")
    _, edits = EDITORS[kind].write(snapshot.files, target_of(sub, kind), trial_image)

    other_versions: list[str] = []
    for edit in edits:
        may_be_image = ":" in edit.old or "/" in edit.old  # as opposed to just a tag
        image = live_image(edit.old) if may_be_image else None
        if image is None or image.version in ("", in_target.version):
            continue
        if image.version not in other_versions:
            other_versions.append(image.version)
    return replace(in_target, also=tuple(other_versions))


def touched_entry(pair: Pair, sides: Sides, terms: Terms) -> Touched | NotJudged | None:
    """Return how a change affects an entry: `Touched` if its version or name changes, `NotJudged`
    if the entry has no usable version after the change, and None if nothing changes.

    An entry is one image of one Application.
    """
    sub = pair.effective
    sub_before = pair.before or sub  # a new entry may track an image that is already in the base

    old_or_error = _reading_or_error(sides.base, sub_before, terms)
    new = _reading_or_error(sides.merged, sub, terms)
    if isinstance(new, TaskError):
        return _unreadable_entry(pair, old_or_error, new, sides)
    old = Reading() if isinstance(old_or_error, TaskError) else old_or_error
    if not new.version and not old.version:
        return None
    if not new.version:
        error = TargetError("the change removes its version", subject=new.file or old.file)
        return NotJudged(pair, error, broken=False)

    # A target is hidden if something else, such as a Helm parameter, overrides its version.
    hidden_error = _hidden_error(sides.merged, sub)
    becomes_hidden = hidden_error is not None and _hidden_error(sides.base, sub_before) is None
    if not becomes_hidden and not names_another_version(old, new, sub):
        return None
    if hidden_error is not None:
        return NotJudged(pair, hidden_error, broken=True)

    kind = resolve(sub, sides.merged)
    in_git = _reading_or_nothing(sides.base, sub_before, terms)
    return Touched(pair, kind, in_git, old, new)


def _unreadable_entry(
    pair: Pair,
    old_or_error: Reading | TaskError,
    new_error: TaskError,
    sides: Sides,
) -> NotJudged | None:
    """Return `NotJudged` for an entry that cannot be read after the change, or None if the change
    is not the cause.

    `old_or_error` is the reading or the error before the change, and `new_error` is the error after
    the change.
    """
    was_readable = not isinstance(old_or_error, TaskError)
    is_new_entry = pair.before is None
    has_different_error = not is_new_entry and str(old_or_error) != str(new_error)
    if was_readable or has_different_error:
        # A `SourceError` means that the change removes the target, as opposed to breaking it.
        return NotJudged(pair, new_error, broken=not isinstance(new_error, SourceError))
    # The target was already unreadable. The change is still responsible if it adds the entry or
    # modifies the target.
    if is_new_entry or _is_at_or_below(pair.effective.path, sides.paths):
        return NotJudged(pair, new_error, broken=False)
    return None  # the entry was already unreadable for the same reason


def _is_at_or_below(path: str, changed_paths: Collection[str]) -> bool:
    """Return whether one of the changed paths is this path, or a submodule or link that contains
    it.
    """
    return any(f"{path}/".startswith(f"{changed}/") for changed in changed_paths)


def left_behind(pair: Pair, sides: Sides, terms: Terms) -> Touched | None:
    """Return the version that a change writes to the old place of an entry whose target the change
    moves. Return None if no version is written there, or the same version as at the new place.

    This version is judged by the base's annotations. Otherwise, a change could move the target and
    write anything to the old place, which Argo CD might still apply.
    """
    if pair.before is None or pair.after is None or pair.before == pair.after:
        return None
    at_old_place = touched_entry(Pair(pair.before, None), sides, terms)
    if not isinstance(at_old_place, Touched):
        return None
    at_new_place = _reading_or_error(sides.merged, pair.after, terms)
    if isinstance(at_new_place, TaskError):
        return at_old_place
    if names_another_version(at_old_place.new, at_new_place, pair.after):
        return at_old_place
    return None  # the same version is judged at the new place


def _reading_or_error(snapshot: Snapshot, sub: Subscription, terms: Terms) -> Reading | TaskError:
    """Return an entry's reading (see `_entry_reading`), or the error that prevents it."""
    try:
        return _entry_reading(snapshot, sub, terms)
    except TaskError as error:
        return error


def _reading_or_nothing(snapshot: Snapshot, sub: Subscription, terms: Terms) -> Reading:
    """Return the target's reading, or an empty reading if the target cannot be read."""
    try:
        return reading(snapshot, sub, terms)
    except TaskError:
        return Reading()


def _hidden_error(snapshot: Snapshot, sub: Subscription) -> TaskError | None:
    """Return an error if something overrides the entry's target, or else None."""
    try:
        kind = resolve(sub, snapshot)
        refuse_hidden(snapshot.files, sub, kind, target_of(sub, kind))
    except TaskError as error:
        return error
    return None


def names_another_version(old: Reading, new: Reading, sub: Subscription) -> bool:
    """Return whether two readings have different versions or names, ignoring spelling."""
    if (old.tag, old.digest) != (new.tag, new.digest):
        return True
    if set(old.also) != set(new.also):
        return True
    tracked = sub.entry.image.identity
    old_identity = identity_of(old.name) or tracked
    new_identity = identity_of(new.name) or tracked
    return old_identity != new_identity


def candidates(touched: Touched) -> list[Image]:
    """Return the versions that the change writes for one entry, as images.

    A target may contain the image in several places. A reading contains the version at the main
    place, and its `also` lists the versions at the other places. The version at the main place is
    left out if only other places change.
    """
    sub = touched.pair.effective
    old = touched.old
    new = touched.new
    # `also` may list only tags, so compare the main version both with and without its digest.
    versions_in_base = {old.tag, old.version, *old.also}
    other_images: list[Image] = []
    for version in sorted(set(new.also) - versions_in_base):
        tag, digest = split_tag(version)
        other_images.append(sub.image_at(Written(tag, digest)))

    main_place_changes = names_another_version(replace(old, also=()), replace(new, also=()), sub)
    if other_images and not main_place_changes:
        return other_images
    return [sub.image_at(new), *other_images]


def asks_of(touched: Touched) -> list[Ask]:
    """Return an ask for the entry after the change, and one for the entry before it.

    The caller applies the repository's config to both asks (see `governed_pair`).
    """
    subs = (touched.pair.after, touched.pair.before)
    images = tuple(candidates(touched))
    return [Ask(sub, images) for sub in subs if sub is not None]


def governed_pair(pair: Pair, asks: Sequence[Ask]) -> Pair:
    """Return the pair with the rules of the repository's config applied. If the rules for the two
    sides differ, the stricter rules apply.

    `asks` are the pair's asks (see `asks_of`). The config has already been applied to their
    subscriptions.
    """
    subs = [ask.subscription for ask in asks]
    if pair.before is None:
        return Pair(None, subs[0])
    if pair.after is None:
        return Pair(subs[0], None)

    after, before = subs
    # The base may require a digest because of its config or because of the old annotations. Only
    # the config counts here: a change may loosen annotations, and `_loosened_rule_warnings` reports
    # this.
    annotation_pins_before = pair.before.policy.pin_digest
    config_pins_before = before.policy.pin_digest and not annotation_pins_before
    strict_policy = replace(
        after.policy,
        pin_digest=after.policy.pin_digest or config_pins_before,
        minimum_age=max(after.policy.minimum_age, before.policy.minimum_age),
    )
    strict_after = replace(
        after,
        policy=strict_policy,
        freeze=last_to_end(sub.freeze for sub in subs if sub.freeze),
        writes=tuple(dict.fromkeys((*after.writes, *before.writes))),
        demands=tuple(dict.fromkeys((*after.demands, *before.demands))),
    )
    return Pair(before, strict_after)


@dataclass(frozen=True)
class Memories:
    """An entry's memory in the base and in the change."""

    state: State  # the base's state, without the holds that the change ends
    before: Memory  # from the base's state file alone
    after: Memory  # from the change's state file
    hold_after: Hold | None  # the change's hold on the image, or on all images


def memories_of(touched: Touched, sides: Sides, now: str) -> Memories:
    """Return what the state files remember about an entry, before and after the change.

    State files record holds (which block updates), among other things. A hold in the base applies
    unless this change ends it. A hold that this change adds does not apply yet. Raises
    `TargetError` if a state file is unreadable.
    """
    sub = touched.pair.effective
    sub_before = touched.pair.before or sub
    old_key = key_of(sub_before)
    new_key = key_of(sub)

    base = _states_in(sides.base, sub_before)  # the states before the change
    change = _states_after(touched.pair, sides)  # the states after the change
    memory_before = base.in_file.images.get(old_key, Memory())
    memory_after = change.in_file.images.get(new_key, Memory())

    memory = base.with_memory_branch.images.get(old_key, Memory())
    hold_on_all = base.with_memory_branch.hold
    # If the base's file contains a hold, the change decides whether the hold remains.
    if memory_before.hold:
        memory_in_change = change.with_memory_branch.images.get(new_key, Memory())
        memory = replace(memory, hold=memory_in_change.hold)
    if base.in_file.hold:
        hold_on_all = change.with_memory_branch.hold
    state = State(hold_on_all, {**base.with_memory_branch.images, old_key: memory})

    hold_after = active(memory_after.hold, now) or active(change.in_file.hold, now)
    return Memories(state=state, before=memory_before, after=memory_after, hold_after=hold_after)


@dataclass(frozen=True)
class _States:
    """The state of one write-back file, with and without what the memory branch adds."""

    with_memory_branch: State
    in_file: State


def _states_after(pair: Pair, sides: Sides) -> _States:
    """Return the entry's state (its holds and what is remembered) after the change.

    If the change moves the target, the state file may still be at its old path.
    """
    snapshot = replace(sides.merged, memory_files=sides.base.memory_files)
    states = _states_in(snapshot, pair.effective)
    if pair.before is None or pair.after is None or states.in_file != NOTHING:
        return states
    return _states_in(snapshot, pair.before)


def _states_in(snapshot: Snapshot, sub: Subscription) -> _States:
    """Return the state of the file that the subscription writes to."""
    with_memory_branch = states_of(snapshot, sub)
    in_file = own_states(snapshot.files, state_path(sub))
    key = file_of(snapshot, sub, {**with_memory_branch, **in_file})
    return _States(with_memory_branch.get(key, NOTHING), in_file.get(key, NOTHING))


@dataclass(frozen=True)
class Judging:
    """The input for judging a change's versions."""

    sides: Sides
    terms: Terms
    config: RepositoryConfig = RepositoryConfig()
    facts: Facts = field(default_factory=Facts)
    refused: frozenset[str] = frozenset()  # the ordering rules that the config enforces


@dataclass(frozen=True)
class Version:
    """One version that a change writes, and its entry's memories."""

    touched: Touched
    image: Image
    memories: Memories
    promoted: Promoted | None = None  # the source from which this version was promoted
    denied: TaskError | Verdict | None = None  # why this is not the promotion that it claims to be


@dataclass(frozen=True)
class Judgement:
    """The decision about one version, and the warnings."""

    touched: Touched
    move: Move
    warnings: tuple[Problem, ...] = ()


def situation_of_change(version: Version, judging: Judging) -> Situation:
    """Return everything that the decision about a version depends on, in the form used by runs.

    The version is one that a change writes. The current version is the one in the base.
    """
    touched = version.touched
    sub = touched.pair.effective
    state = version.memories.state
    memory = state.images.get(key_of(touched.pair.before or sub), Memory())
    branch = judging.sides.base.branch
    return Situation(
        subscription=sub,
        branch=branch,
        kind=touched.kind,
        current=touched.old,
        in_git=touched.in_git,
        state=state,
        memory=memory,
        terms=judging.terms,
        facts=judging.facts,
    )


def offer_of(version: Version) -> Offer:
    """Return a version as an offer: an image with its build.

    The build is known only if the change also records the build in the state file.
    """
    image = version.image
    recorded_version = version.memories.after.written
    is_newly_recorded = recorded_version != version.memories.before.written
    build = Build()
    if recorded_version and is_newly_recorded and alike(recorded_version, image):
        build = recorded_version.build
    return Offer(image, build, pinned=bool(image.digest), promoted=version.promoted)


def is_rollback(version: Version) -> bool:
    """Return whether the change is a rollback that its state file describes.

    The description may be older than the change: if someone undid a rollback and the change now
    repeats it, the state file already contains the description.
    """
    rollback = version.memories.after.rollback
    if rollback is None:
        return False
    starts_at_current = rollback.was == version.touched.in_git.version
    return starts_at_current and alike(rollback, version.image)


def versions(touched: Touched, sides: Sides, now: str) -> list[Version]:
    """Return the versions that the change writes. Raises the same errors as `memories_of`."""
    memories = memories_of(touched, sides, now)
    return [Version(touched, image, memories) for image in candidates(touched)]


def facts_needed_by_version(version: Version, judging: Judging) -> list[tuple[Question, Fact]]:
    """Return the facts to look up about a version, each with the question that asks for it.

    These are the facts that a run would need, and whether the change's digest exists in the
    registry.
    """
    situation = situation_of_change(version, judging)
    sub = situation.subscription
    check = judging.terms.check
    offer = offer_of(version)
    if check == "never" or is_rollback(version):
        return []
    is_refused_anyway = objection(offer.image.tag, sub.policy) is not None
    if is_refused_anyway:
        return []

    question = question_about(sub, offer.image)
    needed = list(facts_needed_by_offer(sub, offer, situation.in_git, situation.memory, check))
    if offer.image.digest:
        needed.append((question, "exists"))
    age_is_known = offer.build.created or offer.promoted
    if sub.policy.minimum_age and not age_is_known:
        needed.append((question, "created"))
    return needed


def judged(version: Version, judging: Judging) -> Judgement:
    """Return a `Judgement` with what a run would decide about a version that a change writes.

    The checks run one after another, and the first check that does not admit the version decides.
    Only admitted versions receive warnings.
    """
    touched = version.touched
    image = version.image
    situation = situation_of_change(version, judging)

    try:
        _refuse_files(touched, judging)
    except TaskError as error:
        decision = error_decision(touched.pair.effective, image, error, judging.sides.base.branch)
        return Judgement(touched, Move(replace(decision, current=touched.old, kind=touched.kind)))
    if is_rollback(version):
        return _judged_rollback(version, situation, judging)
    if version.denied is not None:
        return Judgement(touched, _denied_move(image, version.denied, situation))
    refusal = _refusal_of_unfit_value(touched, image, judging)
    if refusal is not None:
        return Judgement(touched, Move(situation.decision(image, refusal)))

    # Each of these checks runs only if the previous checks admit the version.
    offer = offer_of(version)
    decision_as_in_run, warnings = _by_rules_and_order(offer, situation, judging)
    # A run may add or omit the digest. Here, the image is exactly what the change writes.
    decision = replace(decision_as_in_run, candidate=image)
    if decision.verdict == "update":
        decision = _by_minimum_age(decision, offer, situation)
    if decision.verdict == "update":
        decision = _error_if_unanswered(decision, version, judging)
    if decision.verdict != "update":
        return Judgement(touched, Move(decision))

    hold = situation.hold
    if hold is not None:
        held_decision = replace(decision, judged=_verdict_of_hold(image, hold, situation))
        return Judgement(touched, Move(held_decision, hold=hold))
    warnings += _loosened_rule_warnings(touched, image)
    return Judgement(touched, Move(decision, offer.build), warnings)


def _refuse_files(touched: Touched, judging: Judging) -> None:
    """Raise `NotPermittedError` if the change modifies a file that the Application must not write
    to.
    """
    sub = touched.pair.effective
    file = touched.new.file
    if file and file in judging.sides.paths:
        refuse_files(sub, {file}, judging.sides.base.branch)
        refuse_stricter(sub, {file}, judging.config)


def _refusal_of_unfit_value(touched: Touched, image: Image, judging: Judging) -> Verdict | None:
    """Return the refusal of a value that must not be in Git, or None if the value is allowed.

    A value is refused if it names a different image, if the rules refuse its tag, or if it lacks a
    required digest.
    """
    sub = touched.pair.effective
    tracked = sub.entry.image
    written_image = live_image(touched.new.name) if touched.new.name else None
    if written_image and written_image.repository != tracked.repository:
        because = f"the change sets {written_image.name}, but image-list tracks {tracked.name}"
        return Verdict("refuse", "annotation", because)
    refusal = objection(image.tag, sub.policy)
    if refusal:
        return refusal
    # For an image's further entries in a kustomization, a reading lists only the tags, so it is
    # unknown whether these entries have digests.
    is_of_other_entry = touched.kind == "kustomization" and image.tag in touched.new.also
    if image.digest or is_of_other_entry:
        return None
    if needs(sub.policy, "digest"):
        because = f"{image.version} has no digest, but one is required"
        return Verdict("refuse", "pin-digest", because)
    needs_proof = bool(sub.demands or sub.signed_by or judging.terms.verify)
    if needs_proof:
        because = f"{image.version} has no digest, but only a digest can be proved"
        return Verdict("refuse", "pin-digest", because)
    return None


def _by_rules_and_order(
    offer: Offer,
    situation: Situation,
    judging: Judging,
) -> tuple[Decision, tuple[Problem, ...]]:
    """Return the decision based on the rules and the order of builds, and the warnings.

    A run refuses an older version. Here, an older version only causes a warning, unless the config
    refuses it (`judging.refused`). The rules compare tags, and the order compares builds, so either
    comparison may reveal that the version is older.
    """
    answer = situation.facts.answers.get(question_about(situation.subscription, offer.image))
    by_rules, warnings = _by_rules(offer, answer, situation, judging)
    if by_rules.verdict != "update":
        return by_rules, ()

    version = Written(offer.image.tag, offer.image.digest, offer.build)
    by_order = by_the_order(by_rules, version, answer, situation, offer.promoted)
    if by_order.verdict == "refuse" and by_order.rule not in judging.refused:  # the build is older
        warnings += (_older_version_problem(by_order),)
        return replace(by_rules, unchecked=by_order.unchecked), warnings
    # If the config does not refuse older versions, an unknown order cannot block the change.
    if by_order.verdict == "error" and not judging.refused:
        return by_rules, warnings
    return by_order, warnings


def _by_rules(
    offer: Offer,
    answer: Answer | None,
    situation: Situation,
    judging: Judging,
) -> tuple[Decision, tuple[Problem, ...]]:
    """Return the decision based on the rules and the registry's response (`answer`), and a warning
    if the tag is older but allowed.

    The verdict is never "unchanged", because the change does write something.
    """
    by_rules = by_the_rules(offer, answer, situation)
    warnings: tuple[Problem, ...] = ()
    has_older_tag = by_rules.rule == "not-newer"
    if has_older_tag and "not-newer" not in judging.refused:  # still apply all other rules
        warnings = (_older_version_problem(by_rules),)
        terms = replace(situation.terms, allow_downgrade=True)
        by_rules = by_the_rules(offer, answer, replace(situation, terms=terms))

    if by_rules.verdict == "unchanged":  # only the form differs, such as a missing digest
        because = "the same version in another form"
        by_rules = replace(by_rules, judged=Verdict("update", "admitted", because))
    return by_rules, warnings


def _older_version_problem(decision: Decision) -> Problem:
    """Return the warning about an older version, which a run would refuse for the reason in
    `decision`.
    """
    sub = decision.subscription
    hint = (
        f"to refuse such changes, add check: {{refuse: [{decision.rule}]}} to the repository's"
        " config"
    )
    because, _, _ = decision.because.partition("; to write it")  # without the advice meant for runs
    message = f"{sub.entry.image.name}: {because}"
    return Problem(Trouble.warning(decision.rule, message, hint), application=sub.application.key)


def _denied_move(image: Image, denied: TaskError | Verdict, situation: Situation) -> Move:
    """Return the move for a version that is not the promotion that it claims to be.

    `denied` is the reason, or the error that prevented the check.
    """
    decision = situation.decision(image, Verdict("refuse", "source", ""))
    if isinstance(denied, TaskError):
        return Move(failed(decision, denied))
    return Move(replace(decision, judged=denied))


def _by_minimum_age(decision: Decision, offer: Offer, situation: Situation) -> Decision:
    """Return the decision, or a refusal if the version is too young or has no date.

    A promoted version's age is counted from the time when the version reached its source.
    """
    sub = situation.subscription
    if offer.promoted:
        return by_age_at_source(decision, offer.promoted, situation.terms)
    age = max(sub.policy.minimum_age, situation.terms.minimum_age)
    if not age:
        return decision
    answer = situation.facts.answers.get(question_about(sub, offer.image))
    created = offer.build.created
    if not created and answer is not None:
        created = answer.created
        if not created and answer.error:
            return decision  # `_error_if_unanswered` reports the error
    return unless_too_young(decision, created, age, situation.terms.now)


def _error_if_unanswered(decision: Decision, version: Version, judging: Judging) -> Decision:
    """Return the decision, or an error if a required registry query failed."""
    for question, fact in facts_needed_by_version(version, judging):
        if fact == "created" and not _requires_date(version, judging):
            continue  # the date only shows which build is older, which only causes a warning
        answer = judging.facts.answers.get(replace(question, facts=()))
        if answer and answer.error:
            return registry_error(decision, answer.error)
    return decision


def _requires_date(version: Version, judging: Judging) -> bool:
    """Return whether the check must fail if the version's date is unknown."""
    policy = version.touched.pair.effective.policy
    return bool(judging.refused or policy.minimum_age or judging.terms.minimum_age)


def _verdict_of_hold(image: Image, hold: Hold, situation: Situation) -> Verdict:
    """Return the verdict for an image that has to wait until a hold or freeze ends."""
    if hold.is_freeze:
        next_step = "run the check again after the freeze"
    else:
        next_step = f"image-update release {situation.subscription.application.key} ends the hold"
    return Verdict("defer", "held", f"{hold_text(hold)}; {image.version} has to wait: {next_step}")


def _judged_rollback(version: Version, situation: Situation, judging: Judging) -> Judgement:
    """Return the decision about a rollback that the change's state file describes.

    A freeze blocks a rollback, unless the change also sets a hold. A rollback to a nonexistent
    version is refused.
    """
    touched = version.touched
    image = version.image
    memories = version.memories
    because = f"rolled back from {touched.old.version or 'nothing'}"
    decision = situation.decision(image, Verdict("update", "admitted", because))

    freeze = situation.subscription.freeze
    if freeze and memories.hold_after is None:
        held_decision = replace(decision, judged=_verdict_of_hold(image, freeze, situation))
        return Judgement(touched, Move(held_decision, hold=freeze))

    refusal_or_error = _doubt_about_existence(touched, image, situation, judging.sides.base)
    if isinstance(refusal_or_error, TaskError):
        return Judgement(touched, Move(registry_error(decision, refusal_or_error)))
    if refusal_or_error is not None:
        return Judgement(touched, Move(replace(decision, judged=refusal_or_error)))

    is_repeated = memories.after.rollback == memories.before.rollback
    warnings = (_repeated_rollback(touched, image),) if is_repeated else ()
    return Judgement(touched, Move(decision, rolled_back=True), warnings)


def _repeated_rollback(touched: Touched, image: Image) -> Problem:
    """Return the warning for a rollback that the state file had already recorded."""
    sub = touched.pair.effective
    app = sub.application.key
    message = (
        f"the change rolls {key_of(sub)} in {app} back from {touched.old.version}"
        f" to {image.version}, as the state file already records"
    )
    hint = "merge the change only if this is intentional"
    return Problem(Trouble.warning("held", message, hint), application=app)


def _doubt_about_existence(
    touched: Touched,
    image: Image,
    situation: Situation,
    snapshot: Snapshot,
) -> Verdict | TaskError | None:
    """Return the refusal of a rollback to a version that is neither in Git's history nor in the
    registry, or the error that prevented the check.

    Return None if the version exists, or if the registry is not queried.
    """
    sub = touched.pair.before or touched.pair.effective
    target = target_of(sub, touched.kind, carry=situation.terms.carry)
    path = touched.old.file
    try:
        for _commit, text in situation.facts.earlier(path, TEXTS_FOR_A_TAG, ()):
            earlier = earlier_reading(snapshot.files, target, path, text)
            if earlier and (earlier.tag, earlier.digest) == (image.tag, image.digest):
                return None
    except TaskError as error:
        return error

    answer = situation.facts.exists(replace(question_about(sub, image), facts=("exists",)))
    if answer is None:  # the registry is not queried
        return None
    if answer.error:
        return answer.error
    if not answer.exists:
        because = f"{image.version} is neither in Git's history nor in the registry"
        return Verdict("refuse", "not-in-registry", because)
    return None


def _loosened_rule_warnings(touched: Touched, image: Image) -> tuple[Problem, ...]:
    """Return a warning if the change loosens the annotations that apply to the image it writes.

    The change loosens them if the annotations in the base refuse the image, or contain a
    requirement that the change drops. Otherwise, return no warning.
    """
    before = touched.pair.before
    after = touched.pair.after
    if before is None or after is None:
        return ()
    reasons = _dropped_requirements(before, after)
    refusal_by_base = objection(image.tag, before.policy)
    if refusal_by_base:
        reasons.insert(0, refusal_by_base.because)
    if not reasons:
        return ()
    names = ", ".join(_changed_annotations(before, after)) or "its annotations"
    message = (
        f"the change loosens a rule ({names}), but the base refuses {image.version}:"
        f" {'; '.join(reasons)}"
    )
    hint = "review the annotation first: this check uses the change's annotations"
    warning = Trouble.warning("annotation", message, hint)
    return (Problem(warning, application=after.application.key),)


def _dropped_requirements(before: Subscription, after: Subscription) -> list[str]:
    """Return the base's requirements that the change drops, as phrases such as "it requires a
    digest", where "it" is the base.
    """
    old = before.policy
    new = after.policy
    dropped = []
    if old.pin_digest and not new.pin_digest:
        dropped.append("it requires a digest")
    if old.platforms and set(new.platforms) != set(old.platforms):
        dropped.append(f"it requires the platforms {', '.join(old.platforms)}")
    if before.signed_by and before.signed_by != after.signed_by:
        dropped.append(f"it requires a signature by {before.signed_by}")
    if before.pull_request and not after.pull_request:
        dropped.append("it requires a pull request")
    return dropped


_MOST_ANNOTATIONS = 5  # maximum number of annotations to name in one warning


def _changed_annotations(before: Subscription, after: Subscription) -> list[str]:
    """Return the annotations that differ, in alphabetical order,
    but no more than fit in a warning.
    """
    old = before.application.annotations
    new = after.application.annotations
    changed = [key for key in {*old, *new} if old.get(key) != new.get(key)]
    return sorted(changed)[:_MOST_ANNOTATIONS]


def line_of(snapshot: Snapshot, touched: Touched, terms: Terms) -> int:
    """Return the number of the version's line in its file, or 0 if unknown.

    This is the first line that changes in a trial write of a different version.
    """
    sub = touched.pair.effective
    path = touched.new.file
    if path not in snapshot.files:
        return 0
    trial_image = replace(sub.entry.image, tag=TRIAL_TAG, digest="")
    target = target_of(sub, touched.kind, carry=terms.carry)
    try:
        edited_files, _ = EDITORS[touched.kind].write(snapshot.files, target, trial_image)
    except TaskError:
        return 0
    if path not in edited_files:
        return 0
    lines = snapshot.files[path].text.split("\n")
    edited_lines = edited_files[path].text.split("\n")
    line_pairs = zip(lines, edited_lines, strict=False)
    for number, (line, edited_line) in enumerate(line_pairs, start=1):
        if line != edited_line:
            return number
    return 0
