"""Pure code for `check`: finds the tracked entries that a change touches, and judges each as a run
would.

Both sides are only read. The base's memory, holds, and config apply, with the change's annotations.
`check` uses the parts of `weigh`, but people may do more than a run: an older version, or a version
whose order is unknown, is only a warning, unless the config refuses it. A rollback described in the
state file is allowed. A hold that the change ends does not apply, and is reported. `check` is
stricter if a server does not respond: that is an error. Digests are judged as they are, and never
filled in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from task.annotations.write_back import refuse_files
from task.deciding.decide import NOTHING, file_of, own_states, reading, state_path, states_of
from task.deciding.hiding import refuse_hidden
from task.deciding.job import Ask, Move, Promoted, Terms, error_decision, failed
from task.deciding.target import earlier_reading, own_reading, resolve, target_of
from task.deciding.weigh import (
    Facts,
    Offer,
    Situation,
    by_age,
    by_the_order,
    by_the_rules,
    facts_needed_by_offer,
    key_of,
    question_about,
    registry_error,
)
from task.editors import EDITORS
from task.editors.file_text import identity_of, split_tag
from task.errors import SourceError, TargetError, TaskError, Trouble
from task.image import live_image
from task.model import (
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
from task.policy.judge import objection, too_young, young_until
from task.policy.strategies import needs
from task.repository_config.config import RepositoryConfig, refuse_stricter
from task.timestamps import epoch_seconds

OF_ORDER = ("not-newer", "superseded")  # allowed for people, unless the config refuses them


@dataclass(frozen=True)
class Pair:
    """One tracked entry in the base and in the change. One of them may be missing."""

    before: Subscription | None
    after: Subscription | None

    @property
    def effective(self) -> Subscription:
        """The subscription whose annotations apply: the change's, if it still has one."""
        sub = self.after or self.before
        if sub is None:
            raise ValueError("a pair without subscriptions")
        return sub


@dataclass(frozen=True)
class Sides:
    """The files in the base and in the change."""

    base: Snapshot
    merged: Snapshot
    paths: frozenset[str]  # the paths that the merge changes


@dataclass(frozen=True)
class Touched:
    """A tracked entry whose version or name changes."""

    pair: Pair
    kind: TargetKind
    in_git: Reading  # the target in the base
    old: Reading  # the target, or else the Application's own sources, in the base
    new: Reading


@dataclass(frozen=True)
class NotJudged:
    """A tracked entry that cannot be judged, and the reason."""

    pair: Pair
    error: TaskError
    broken: bool  # whether the change makes it unreadable, rather than removing it


def paired(before: Iterable[Subscription], after: Iterable[Subscription]) -> list[Pair]:
    """Pair the entries on both sides that have the same Application and alias."""
    left: dict[tuple[str, str], list[Subscription]] = {}
    for sub in before:
        left.setdefault(_entry_key(sub), []).append(sub)
    pairs: list[Pair] = []
    new: list[Subscription] = []
    for sub in after:
        same = [one for one in left.get(_entry_key(sub), ()) if _place(one) == _place(sub)]
        if same:
            left[_entry_key(sub)].remove(same[0])
            pairs.append(Pair(same[0], sub))
        else:
            new.append(sub)
    for sub in new:  # the target may have moved
        others = left.get(_entry_key(sub))
        pairs.append(Pair(others.pop(0) if others else None, sub))
    return pairs + [Pair(sub, None) for subs in left.values() for sub in subs]


def _entry_key(sub: Subscription) -> tuple[str, str]:
    return sub.application.key, key_of(sub)


def _place(sub: Subscription) -> tuple[str, str]:
    return sub.target, sub.path


def said(snapshot: Snapshot, sub: Subscription, terms: Terms) -> Reading:
    """Read an entry from its target, else from the Application's own sources.

    Raises `TaskError` if it cannot be read.
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
    """Return a reading with the versions in all places that an update writes at once."""
    if kind not in ("manifests", "flux"):
        return in_target
    another = replace(sub.entry.image, tag="another", digest="")
    edits = EDITORS[kind].write(snapshot.files, target_of(sub, kind), another)[1]
    images = [live_image(edit.old) for edit in edits if ":" in edit.old or "/" in edit.old]
    more = {image.version: None for image in images if image and image.version}
    return replace(in_target, also=tuple(text for text in more if text != in_target.version))


def touched_entry(pair: Pair, sides: Sides, terms: Terms) -> Touched | NotJudged | None:
    """Return how a change affects an entry, or None if its version and name do not change."""
    sub = pair.effective
    before = pair.before or sub
    old = _read(sides.base, before, terms)
    new = _read(sides.merged, sub, terms)
    if isinstance(new, TaskError):
        return _cannot_be_read(pair, old, new, sides)
    old_or_nothing = Reading() if isinstance(old, TaskError) else old
    if not new.version:
        gone = TargetError(
            "the change removes its version", subject=new.file or old_or_nothing.file
        )
        return NotJudged(pair, gone, broken=False) if old_or_nothing.version else None
    hidden = _hidden_error(sides.merged, sub)
    hides = hidden is not None and _hidden_error(sides.base, before) is None
    if not names_another_version(old_or_nothing, new, sub) and not hides:
        return None
    if hidden is not None:
        return NotJudged(pair, hidden, broken=True)
    kind = resolve(sub, sides.merged)
    return Touched(pair, kind, _reading_or_nothing(sides.base, before, terms), old_or_nothing, new)


def _cannot_be_read(
    pair: Pair, old: Reading | TaskError, new: TaskError, sides: Sides
) -> NotJudged | None:
    """Return an entry that cannot be read after the change, or None if the change is unrelated."""
    as_before = isinstance(old, TaskError) and (pair.before is None or str(old) == str(new))
    if not as_before:
        return NotJudged(pair, new, broken=not isinstance(new, SourceError))
    unseen = pair.before is None or _changes_above(pair.effective.path, sides.paths)
    return NotJudged(pair, new, broken=False) if unseen else None


def _changes_above(path: str, changed: Collection[str]) -> bool:
    """Return whether a change alters a submodule or link that contains the path."""
    return any(f"{path}/".startswith(f"{one}/") for one in changed)


def left_behind(pair: Pair, sides: Sides, terms: Terms) -> Touched | None:
    """Return the version that a change writes to an entry's old place, if it moves the target.

    The version is judged by the base's annotations. Otherwise, a change could move the target and
    write anything to the old place, which Argo CD still applies.
    """
    if pair.before is None or pair.after is None or pair.before == pair.after:
        return None
    touched = touched_entry(Pair(pair.before, None), sides, terms)
    if not isinstance(touched, Touched):
        return None
    new = _read(sides.merged, pair.after, terms)
    judged_anyway = isinstance(new, Reading) and not names_another_version(
        touched.new, new, pair.after
    )
    return None if judged_anyway else touched


def _read(snapshot: Snapshot, sub: Subscription, terms: Terms) -> Reading | TaskError:
    try:
        return said(snapshot, sub, terms)
    except TaskError as error:
        return error


def _reading_or_nothing(snapshot: Snapshot, sub: Subscription, terms: Terms) -> Reading:
    try:
        return reading(snapshot, sub, terms)
    except TaskError:
        return Reading()


def _hidden_error(snapshot: Snapshot, sub: Subscription) -> TaskError | None:
    try:
        kind = resolve(sub, snapshot)
        refuse_hidden(snapshot.files, sub, kind, target_of(sub, kind))
    except TaskError as error:
        return error
    return None


def names_another_version(old: Reading, new: Reading, sub: Subscription) -> bool:
    """Return whether two readings have different versions or names, ignoring spelling."""
    if (old.tag, old.digest) != (new.tag, new.digest) or set(old.also) != set(new.also):
        return True
    own = sub.entry.image.identity
    return (identity_of(old.name) or own) != (identity_of(new.name) or own)


def _more_versions(old: Reading, new: Reading) -> list[str]:
    """Return the versions in the image's other entries that the base does not have."""
    return sorted(set(new.also) - {old.tag, old.version, *old.also})


def candidates(touched: Touched) -> list[Image]:
    """Return the versions that the change writes."""
    sub = touched.pair.effective
    bare = replace(touched.new, also=())
    more = [
        sub.image_at(Written(*split_tag(text))) for text in _more_versions(touched.old, touched.new)
    ]
    if more and not names_another_version(replace(touched.old, also=()), bare, sub):
        return more
    return [sub.image_at(touched.new), *more]


def asks_of(ones: Iterable[Touched]) -> list[Ask]:
    """Return an ask for each subscription on both sides, for the repository's config."""
    asks = []
    for touched in ones:
        subs = [sub for sub in (touched.pair.after, touched.pair.before) if sub is not None]
        asks += [Ask(sub, tuple(candidates(touched))) for sub in subs]
    return asks


def governed_pair(pair: Pair, asks: Sequence[Ask]) -> Pair:
    """Return the pair with the stricter of the config's rules for the two sides.

    `asks` are the pair's asks, with the config applied.
    """
    subs = [ask.subscription for ask in asks]
    if pair.after is None or pair.before is None:
        return Pair(pair.before and subs[0], pair.after and subs[0])
    ours, theirs = subs
    by_config = theirs.policy.pin_digest and not pair.before.policy.pin_digest
    freezes = [sub.freeze for sub in subs if sub.freeze]
    policy = replace(
        ours.policy,
        pin_digest=ours.policy.pin_digest or by_config,
        minimum_age=max(ours.policy.minimum_age, theirs.policy.minimum_age),
    )
    strict = replace(
        ours,
        policy=policy,
        freeze=max(freezes, key=lambda hold: epoch_seconds(hold.until), default=None),
        writes=tuple(dict.fromkeys((*ours.writes, *theirs.writes))),
        demands=tuple(dict.fromkeys((*ours.demands, *theirs.demands))),
    )
    return Pair(theirs, strict)


@dataclass(frozen=True)
class Memories:
    """An entry's memory in the base, and in the change's state file."""

    state: State  # the base's, without the holds that the change ends
    before: Memory  # in the base's state file alone
    after: Memory  # in the change's state file
    hold_after: Hold | None  # the change's hold on the image, or on all images


def memories_of(touched: Touched, sides: Sides, now: str) -> Memories:
    """Return an entry's memories. Raises `TargetError` if a state file is unreadable.

    A hold applies unless this change ends it. A hold that this change adds does not apply yet.
    """
    sub = touched.pair.before or touched.pair.effective
    base, own = _states_with_memory_branch(sides.base, sub)
    with_holds = replace(sides.merged, memory_files=sides.base.memory_files)
    merged, changed = _states_with_memory_branch(with_holds, touched.pair.effective)
    if touched.pair.after and touched.pair.before and not changed.images and not changed.hold:
        merged, changed = _states_with_memory_branch(
            with_holds, touched.pair.before
        )  # the state file was not moved with the target
    key = key_of(sub)
    memory = base.images.get(key, Memory())
    before = own.images.get(key, Memory())
    after = changed.images.get(key_of(touched.pair.effective), Memory())
    of_merge = merged.images.get(key_of(touched.pair.effective), Memory())
    images = dict(base.images)
    images[key] = replace(memory, hold=of_merge.hold if before.hold else memory.hold)
    state = State(merged.hold if own.hold else base.hold, images)
    hold = active(after.hold, now) or active(changed.hold, now)
    return Memories(state, before, after, hold)


def _states_with_memory_branch(snapshot: Snapshot, sub: Subscription) -> tuple[State, State]:
    """Return the state including the memory branch, and the state in the file alone."""
    states = states_of(snapshot, sub)
    own = own_states(snapshot.files, state_path(sub))
    file = file_of(snapshot, sub, {**states, **own})
    return states.get(file, NOTHING), own.get(file, NOTHING)


@dataclass(frozen=True)
class Judging:
    """The input for judging a change's versions."""

    sides: Sides
    terms: Terms
    config: RepositoryConfig = RepositoryConfig()
    facts: Facts = field(default_factory=Facts)
    refused: frozenset[str] = frozenset()  # the ordering rules enforced by the config


@dataclass(frozen=True)
class Version:
    """One version that a change writes, and its entry's memories."""

    touched: Touched
    image: Image
    memories: Memories
    promoted: Promoted | None = None  # the source that it was promoted from, which has this version
    denied: TaskError | Verdict | None = None  # why it is not the promotion that it claims to be


@dataclass(frozen=True)
class Judgement:
    """The decision about one version, and the warnings."""

    touched: Touched
    move: Move
    told: tuple[Problem, ...] = ()


def situation_of_change(touched: Touched, memories: Memories, judging: Judging) -> Situation:
    """Return everything that the decision about a version depends on."""
    sub = touched.pair.effective
    state = memories.state
    memory = state.images.get(key_of(touched.pair.before or sub), Memory())
    branch = judging.sides.base.branch
    return Situation(
        sub,
        branch,
        touched.kind,
        touched.old,
        touched.in_git,
        state,
        memory,
        judging.terms,
        judging.facts,
    )


def offer_of(image: Image, memories: Memories) -> Offer:
    """Return a version as an offer, with the build in the change's state file."""
    last_written = memories.after.written
    build = (
        last_written.build
        if last_written and last_written != memories.before.written and alike(last_written, image)
        else Build()
    )
    return Offer(image, build, pinned=bool(image.digest))


def is_rollback(touched: Touched, image: Image, memories: Memories) -> bool:
    """Return whether the change is a rollback that its state file describes.

    If a rollback is repeated because someone restored the other version, the state file does not
    change.
    """
    meant = memories.after.rollback
    return meant is not None and alike(meant, image) and meant.was == touched.in_git.version


def versions(touched: Touched, sides: Sides, now: str) -> list[Version]:
    """Return the versions that the change writes. Raises `TargetError` like `memories_of`."""
    memories = memories_of(touched, sides, now)
    return [Version(touched, image, memories) for image in candidates(touched)]


def facts_needed_by_version(version: Version, judging: Judging) -> list[tuple[Question, Fact]]:
    """Return the facts needed about a version: those that a run would need,
    and whether a digest in the change exists.
    """
    touched, image, memories = version.touched, version.image, version.memories
    sub = touched.pair.effective
    check = judging.terms.check
    if (
        check == "never"
        or objection(image.tag, sub.policy)
        or is_rollback(touched, image, memories)
    ):
        return []
    situation = situation_of_change(touched, memories, judging)
    offer = offer_of(image, memories)
    needed = list(facts_needed_by_offer(sub, offer, touched.in_git, situation.memory, check))
    if image.digest:
        needed.append((question_about(sub, image), "exists"))
    if sub.policy.minimum_age and not (offer.build.created or version.promoted):
        needed.append((question_about(sub, image), "created"))
    return needed


def judged(version: Version, judging: Judging) -> Judgement:
    """Return what a run would decide about a version that a change writes."""
    touched, image, memories = version.touched, version.image, version.memories
    situation = situation_of_change(touched, memories, judging)
    try:
        _refuse_files(touched, judging)
    except TaskError as error:
        failed = error_decision(touched.pair.effective, image, error, judging.sides.base.branch)
        return Judgement(touched, Move(replace(failed, current=touched.old, kind=touched.kind)))
    if is_rollback(touched, image, memories):
        return _rolled_back(touched, image, memories, situation, judging)
    if denied := _denied(version, situation):
        return Judgement(touched, denied)
    offer = replace(offer_of(image, memories), promoted=version.promoted)
    if verdict := _by_what_git_says(touched, image, judging):
        return Judgement(touched, Move(situation.decision(image, verdict)))
    decision, told = _ordered(offer, situation, judging)
    source = offer.promoted.source if offer.promoted else ""
    decision = replace(
        decision,
        candidate=image,
        built=image.digest,
        source=source,
    )
    if decision.verdict == "update":
        decision = _aged(decision, offer, situation)
    if decision.verdict == "update":
        decision = _unless_unanswered(decision, version, judging)
    if decision.verdict != "update":
        return Judgement(touched, Move(decision))
    if hold := situation.hold:
        return Judgement(
            touched, Move(replace(decision, judged=_held(image, hold, situation)), hold=hold)
        )
    return Judgement(
        touched,
        Move(decision, offer.build),
        (*told, *_loosened(touched, image)),
    )


def _refuse_files(touched: Touched, judging: Judging) -> None:
    """Raise `NotPermittedError` if the Application must not write a file that the change writes."""
    sub = touched.pair.effective
    if not touched.new.file or touched.new.file not in judging.sides.paths:
        return
    refuse_files(sub, {touched.new.file}, judging.sides.base.branch)
    refuse_stricter(sub, {touched.new.file}, judging.config)


def _by_what_git_says(touched: Touched, image: Image, judging: Judging) -> Verdict | None:
    """Return why a value must not be in Git, regardless of its build: its name, rules, or
    digest.
    """
    sub = touched.pair.effective
    named = live_image(touched.new.name) if touched.new.name else None
    if named and named.repository != sub.entry.image.repository:
        because = f"the change sets {named.name}, but image-list tracks {sub.entry.image.name}"
        return Verdict("refuse", "annotation", because)
    if refusal := objection(image.tag, sub.policy):
        return refusal
    of_another_entry = touched.kind == "kustomization" and image.tag in touched.new.also
    if image.digest or of_another_entry:  # readings of other entries do not have a digest
        return None
    if needs(sub.policy, "digest"):
        because = f"{image.version} has no digest, but one is required"
        return Verdict("refuse", "pin-digest", because)
    if sub.demands or sub.signed_by or judging.terms.verify:
        because = f"{image.version} has no digest, but only a digest can be proved"
        return Verdict("refuse", "pin-digest", because)
    return None


def _ordered(
    offer: Offer,
    situation: Situation,
    judging: Judging,
) -> tuple[Decision, tuple[Problem, ...]]:
    """Return the decision by the rules and by the order of builds, and the warnings.

    A version that a run refuses only because it is older is a warning, unless the config refuses
    it.
    """
    sub = situation.subscription
    answer = situation.facts.answers.get(question_about(sub, offer.image))
    told: list[Problem] = []
    decision = by_the_rules(offer, answer, situation)
    if decision.rule == "not-newer" and "not-newer" not in judging.refused:
        told.append(_older_version_problem(decision))
        terms = replace(situation.terms, allow_downgrade=True)
        decision = by_the_rules(offer, answer, replace(situation, terms=terms))
    if decision.verdict == "unchanged":  # in a different form, such as without a digest
        because = "the same version in another form"
        decision = replace(decision, judged=Verdict("update", "admitted", because))
    if decision.verdict != "update":
        return decision, ()
    image = offer.image
    of_event = Written(image.tag, image.digest, offer.build)
    ordered = by_the_order(decision, of_event, answer, situation, offer.promoted)
    if ordered.verdict == "refuse" and ordered.rule not in judging.refused:
        told.append(_older_version_problem(ordered))
        ordered = replace(decision, unchecked=ordered.unchecked)
    if ordered.verdict == "error" and not judging.refused:
        ordered = decision
    return ordered, tuple(told)


def _older_version_problem(decision: Decision) -> Problem:
    sub = decision.subscription
    hint = (
        f"to refuse such changes, add check: {{refuse: [{decision.rule}]}} to the repository's"
        " config"
    )
    message = f"{sub.entry.image.name}: {decision.because.partition('; to write it')[0]}"
    return Problem(Trouble.warning(decision.rule, message, hint), application=sub.application.key)


def _denied(version: Version, situation: Situation) -> Move | None:
    """Return the decision about a version that does not match the commit message."""
    if version.denied is None:
        return None
    decision = situation.decision(version.image, Verdict("refuse", "source", ""))
    if isinstance(version.denied, TaskError):
        return Move(failed(decision, version.denied))
    return Move(replace(decision, judged=version.denied))


def _aged(decision: Decision, offer: Offer, situation: Situation) -> Decision:
    """Return the decision, or the refusal of a version that is too young.

    A promoted version's age is its age in the source.
    """
    sub = situation.subscription
    if offer.promoted:
        return by_age(decision, offer.promoted, situation.terms)
    age = max(sub.policy.minimum_age, situation.terms.minimum_age)
    answer = situation.facts.answers.get(question_about(sub, offer.image))
    created = offer.build.created or (answer.created if answer else "")
    until = young_until(created, age, situation.terms.now) if age and created else ""
    unanswered = not created and answer is not None and answer.error is not None
    if (
        not age or unanswered or (created and not until)
    ):  # `_unless_unanswered` handles missing answers
        return decision
    return replace(decision, judged=too_young(offer.image.version, age, until))


def _unless_unanswered(decision: Decision, version: Version, judging: Judging) -> Decision:
    """Return the decision, or an error if a required registry query failed."""
    for question, fact in facts_needed_by_version(version, judging):
        answer = judging.facts.answers.get(replace(question, facts=()))
        ordering = fact == "created" and not (judging.refused or _ages(version.touched, judging))
        if not ordering and answer and answer.error:
            return registry_error(decision, answer.error)
    return decision


def _ages(touched: Touched, judging: Judging) -> bool:
    return bool(touched.pair.effective.policy.minimum_age or judging.terms.minimum_age)


def _held(image: Image, hold: Hold, situation: Situation) -> Verdict:
    app = situation.subscription.application.key
    way = f"image-update release {app} ends the hold"
    if hold == situation.subscription.freeze:
        way = "run the check again after the freeze"
    return Verdict("defer", "held", f"{hold_text(hold)}; {image.version} has to wait: {way}")


def _rolled_back(
    touched: Touched,
    image: Image,
    memories: Memories,
    situation: Situation,
    judging: Judging,
) -> Judgement:
    """Return the decision about a rollback. Holds set by people, and the order, do not block it."""
    freeze = touched.pair.effective.freeze
    because = f"rolled back from {touched.old.version or 'nothing'}"
    decision = situation.decision(image, Verdict("update", "admitted", because))
    if freeze and memories.hold_after is None:
        held = _held(image, freeze, situation)
        return Judgement(touched, Move(replace(decision, judged=held), hold=freeze))
    doubt = _unknown(touched, image, situation, judging.sides.base)
    if isinstance(doubt, TaskError):
        return Judgement(touched, Move(registry_error(decision, doubt)))
    if doubt:
        return Judgement(touched, Move(replace(decision, judged=doubt)))
    told: tuple[Problem, ...] = ()
    if memories.after.rollback == memories.before.rollback:
        told = (_back_again(touched, image),)
    return Judgement(touched, Move(decision, rolled_back=True), told)


def _back_again(touched: Touched, image: Image) -> Problem:
    """Return the warning for a rollback that the change's state file does not mention."""
    sub = touched.pair.effective
    app = sub.application.key
    message = (
        f"the change rolls {key_of(sub)} in {app} back from {touched.old.version}"
        f" to {image.version}, as the state file already records"
    )
    hint = "merge the change only if this is intentional"
    return Problem(Trouble.warning("held", message, hint), application=app)


TEXTS = 50  # versions of a file to read to find out whether it ever had an image version


def _unknown(
    touched: Touched,
    image: Image,
    situation: Situation,
    snapshot: Snapshot,
) -> Verdict | TaskError | None:
    """Return why a rollback's version may not exist: it was never in Git or the registry."""
    sub = touched.pair.before or touched.pair.effective
    target = target_of(sub, touched.kind, carry=situation.terms.carry)
    try:
        for _, text in situation.facts.earlier(touched.old.file, TEXTS, ()):
            earlier = earlier_reading(snapshot.files, target, touched.old.file, text)
            if earlier and (earlier.tag, earlier.digest) == (image.tag, image.digest):
                return None
    except TaskError as error:
        return error
    answer = situation.facts.exists(replace(question_about(sub, image), facts=("exists",)))
    if answer and answer.error:
        return answer.error
    if answer and not answer.exists:
        because = f"{image.version} is neither in Git's history nor in the registry"
        return Verdict("refuse", "not-in-registry", because)
    return None


def _loosened(touched: Touched, image: Image) -> tuple[Problem, ...]:
    """Return a warning if the change's annotations admit an image that the base's refuse."""
    before, after = touched.pair.before, touched.pair.after
    if before is None or after is None:
        return ()
    whys = []
    if refusal := objection(image.tag, before.policy):
        whys.append(refusal.because)
    whys += _looser(before, after)
    if not whys:
        return ()
    names = ", ".join(_changed_annotations(before, after)) or "its annotations"
    message = (
        f"the change loosens a rule ({names}), but the base refuses {image.version}:"
        f" {'; '.join(whys)}"
    )
    return (
        Problem(
            Trouble.warning(
                "annotation",
                message,
                "review the annotation first: this check uses the change's annotations",
            ),
            application=after.application.key,
        ),
    )


def _looser(before: Subscription, after: Subscription) -> list[str]:
    old, new = before.policy, after.policy
    whys = []
    if old.pin_digest and not new.pin_digest:
        whys.append("it requires a digest")
    if old.platforms and set(new.platforms) != set(old.platforms):
        whys.append(f"it requires the platforms {', '.join(old.platforms)}")
    if before.signed_by and before.signed_by != after.signed_by:
        whys.append(f"it requires a signature by {before.signed_by}")
    if before.pull_request and not after.pull_request:
        whys.append("it requires a pull request")
    return whys


def _changed_annotations(before: Subscription, after: Subscription) -> list[str]:
    old, new = before.application.annotations, after.application.annotations
    return sorted(key for key in {*old, *new} if old.get(key) != new.get(key))[:5]


def line_of(snapshot: Snapshot, touched: Touched, terms: Terms) -> int:
    """Return the version's line in its file, or 0 if unknown.

    This is the first line that a different version would change.
    """
    sub, path = touched.pair.effective, touched.new.file
    if path not in snapshot.files:
        return 0
    before = snapshot.files[path].text
    another = replace(sub.entry.image, tag="another", digest="")
    try:
        files = EDITORS[touched.kind].write(
            snapshot.files,
            target_of(sub, touched.kind, carry=terms.carry),
            another,
        )[0]
    except TaskError:
        return 0
    if path not in files:
        return 0
    lines = zip(
        before.split("\n"),
        files[path].text.split("\n"),
        strict=False,
    )
    return next((number for number, (old, new) in enumerate(lines, 1) if old != new), 0)
