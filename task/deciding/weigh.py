"""Pure code that decides about one offered image: first by the rules, then by the order of builds,
and finally by the holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from task.deciding.job import Move, Promoted, Remember, Terms, failed, with_reason
from task.errors import AnnotationError, Exit, TamperedError, TaskError, Trouble, UsageError
from task.model import (
    Answer,
    Build,
    Decision,
    Fact,
    Hold,
    Image,
    Memory,
    Policy,
    Question,
    Reading,
    State,
    Subscription,
    TargetKind,
    Verdict,
    Versioned,
    Written,
)
from task.policy.builds import (
    Ancestry,
    active,
    commits,
    compare,
    gone_back,
    hold_text,
    holding,
    superseded,
    why_older,
    written,
)
from task.policy.judge import judge, objection, suits, too_young, young_until
from task.policy.strategies import needs, rules_of


@dataclass(frozen=True)
class Offer:
    """An offered image and its build."""

    image: Image
    build: Build
    pinned: bool = False  # whether the digest is written even if no rule requires it
    promoted: Promoted | None = None  # for `promote`
    origin: str = ""  # where the event came from; "" if there was no event


def question_about(sub: Subscription, version: Versioned) -> Question:
    """Return a question about a version of the image. The question contains the credentials, but
    does not ask for any facts yet.
    """
    return Question(
        image=sub.image_at(version),
        facts=(),
        platforms=sub.policy.platforms,
        secret=sub.policy.pull_secret,
        namespace=sub.application.namespace,
    )


def may_ask(sub: Subscription, check: str) -> bool:
    """Return whether decisions about this subscription may require registry queries.

    `check` is the value of `--registry-check`: "auto", "always", or "never".
    """
    if check == "never":
        return False
    policy = sub.policy
    rules_need_facts = policy.pin_digest or policy.platforms or rules_of(policy).needs
    return check == "always" or bool(rules_need_facts)


def facts_needed_by_offer(
    sub: Subscription,
    offer: Offer,
    current: Reading,
    memory: Memory,
    check: str,
) -> tuple[tuple[Question, Fact], ...]:
    """Return the facts to look up before deciding between an offer (an image with its build) and
    the current version, each with the question that asks for it.

    A fact is "digest", "platforms", "exists", or "created".
    """
    policy = sub.policy
    image = offer.image
    question = question_about(sub, image)
    needed: list[tuple[Question, Fact]] = []
    if not image.digest and needs(policy, "digest"):
        needed.append((question, "digest"))
    if policy.platforms:
        needed.append((question, "platforms"))
    if check == "always":
        needed.append((question, "exists"))
    if needs(policy, "created") and _may_be_newer(current, image, policy):
        needed += _dates_needed(sub, offer, current, memory, check)
    return tuple(needed)


def _dates_needed(
    sub: Subscription,
    offer: Offer,
    current: Reading,
    memory: Memory,
    check: str,
) -> list[tuple[Question, Fact]]:
    """Return the creation dates to look up in order to determine whether the offered build or the
    current one is newer.

    No dates are needed if the builds can be compared by their numbers or commits.
    """
    new = offer.build
    old = Build()
    last_written = memory.written
    if last_written and last_written.version == current.version:
        old = last_written.build

    has_number_or_commit = new.sequence is not None or new.commit != ""
    is_first_known_build = old == Build() and has_number_or_commit
    if check != "always" and is_first_known_build:
        return []  # this build is written; later builds will be compared by its number or commit
    if _comparable_without_dates(new, old):
        return []
    dates: list[tuple[Question, Fact]] = []
    if not new.created:
        dates.append((question_about(sub, offer.image), "created"))
    if not old.created:
        dates.append((question_about(sub, current), "created"))
    return dates


def _may_be_newer(current: Reading, image: Image, policy: Policy) -> bool:
    """Return whether the current version may be newer than the image, which means that the two must
    be compared.

    A current version whose tag the rules no longer admit does not count as newer.
    """
    # The same tag without a digest does not count as a change.
    is_same_image = image.tag == current.tag and image.digest in ("", current.digest)
    if not current.version or is_same_image:
        return False
    if not current.tag:  # the current version consists of only a digest
        return True
    return objection(current.tag, policy) is None


def _comparable_without_dates(new: Build, old: Build) -> bool:
    """Return whether two builds can be compared by their numbers, or perhaps by their commits.
    Git's history is queried before the registry.
    """
    new_without_date = replace(new, created="")
    old_without_date = replace(old, created="")
    relation, _ = compare(new_without_date, old_without_date, {})
    is_ordered_by_number = relation != ""
    return is_ordered_by_number or commits(new_without_date, old_without_date) is not None


def as_questions(needed: Iterable[tuple[Question, Fact]]) -> tuple[Question, ...]:
    """Return one question per image, which asks for all of its facts.

    Each fact in `needed` is paired with a question that does not ask for any facts yet (see
    `question_about`).
    """
    facts_by_question: dict[Question, dict[Fact, None]] = {}  # a dict drops duplicates
    for question, fact in needed:
        facts_by_question.setdefault(question, {})[fact] = None
    return tuple(
        replace(question, facts=tuple(facts)) for question, facts in facts_by_question.items()
    )


def registry_objection(sub: Subscription, answer: Answer | None) -> Verdict | None:
    """Return the refusal of an image that is not in the registry, or that supports none of the
    required platforms. One of these platforms is enough.

    Return None for any other image, or if there is no response.
    """
    if answer is None or answer.error:
        return None
    if not answer.exists:
        return Verdict("refuse", "not-in-registry", "the registry has no such image")
    required = sub.policy.platforms
    are_platforms_known = bool(answer.platforms)
    if required and are_platforms_known and not suits(required, answer.platforms):
        has = ", ".join(answer.platforms[:10])
        because = f"the image is for {has}, but platforms requires {', '.join(required)}"
        return Verdict("refuse", "platforms", because)
    return None


def registry_error(decision: Decision, error: TaskError) -> Decision:
    """Return the decision as an error, with the error message from the registry."""
    rule = error.rule if isinstance(error, AnnotationError) else "registry"
    trouble = Trouble(rule, error.message, error.hint, exit=error.exit)
    return replace(decision, judged=Verdict.of(trouble))


def memory_with_date(memory: Memory, current: Reading, answer: Answer | None) -> Memory:
    """Return the memory (what the state file remembers about the image), with the creation date of
    the build in Git filled in.

    `current` is the version in Git, and `answer` is the registry's response about this version,
    which contains the date. The memory is returned unchanged if the date is already known, or if
    the newest written build is a different one.
    """
    if answer is None or not answer.created:
        return memory
    last_written = memory.written or Written(current.tag, current.digest)
    if last_written.version != current.version or last_written.build.created:
        return memory
    build = replace(last_written.build, created=answer.created)
    return replace(memory, written=replace(last_written, build=build))


def unchecked(answer: Answer | None, needed: Iterable[Fact], sub: Subscription) -> Trouble | None:
    """Return a warning about needed facts that are unknown because the registry did not respond.
    Return None if the registry responded, or if the missing facts have no effect.
    """
    if answer is None or answer.error is None:
        return None
    effect_of_missing = {
        "platforms": (
            f"could not check whether the image supports {' or '.join(sub.policy.platforms)}"
        ),
        "created": (
            "cannot tell which build is newer, so the build that arrives last counts as newer"
        ),
        "labels": "the commit message lacks the image's labels",
    }
    missing = [fact for fact in dict.fromkeys(needed) if fact in effect_of_missing]
    if not missing:  # only another Application needs the facts
        return None
    effects = "; ".join(effect_of_missing[fact] for fact in missing)

    hint = answer.error.hint
    if answer.error.exit == Exit.TEMPORARY:
        hint = ""  # the image is written anyway, so another run would not help
    if not hint and "created" in missing:
        hint = "pass --sequence or --created"
    if not hint:
        hint = "pass --registry-check always to block such updates"
    return Trouble.warning("registry", f"{effects}: {answer.error.message}", hint)


@dataclass(frozen=True)
class Facts:
    """The facts that `questions_to_ask` asks for, and where to look up more."""

    ancestry: Ancestry = field(default_factory=dict)
    answers: Mapping[Question, Answer] = field(default_factory=dict)
    # (file, limit, marked commits) → the file's versions on the branch, including the version at
    # the tip, newest first, each with the newest commit that contains it, or with a marked commit
    earlier: Callable[[str, int, Collection[str]], Iterable[tuple[str, str]]] = (
        lambda _path, _most, _marked: ()
    )
    # the commits that Argo CD has synced successfully, newest first; () if unknown
    synced: Callable[[Subscription], tuple[str, ...]] = lambda _subscription: ()
    # queries the registry; None if queries are turned off
    exists: Callable[[Question], Answer | None] = lambda _question: None
    # other Applications' holds on the same key in the same file, keyed by the subscription's
    # identity
    elsewhere: Mapping[tuple[str, str, str, str, str], Hold] = field(default_factory=dict)


@dataclass(frozen=True)
class Situation:
    """Everything that decisions about one subscription depend on."""

    subscription: Subscription
    branch: str  # "" for a live Application
    kind: TargetKind
    current: Reading  # the version in Git, or the running version if Git has none
    in_git: Reading  # the version in Git; an update on the head branch counts as already merged
    state: State
    memory: Memory  # this image's memory
    terms: Terms
    facts: Facts

    def decision(self, candidate: Image, verdict: Verdict) -> Decision:
        """Return a decision about this subscription."""
        return Decision(
            subscription=self.subscription,
            candidate=candidate,
            judged=verdict,
            current=self.current,
            branch=self.branch,
            head=self.branch,
            kind=self.kind,
        )

    @property
    def hold(self) -> Hold | None:
        """The hold that currently blocks the image: its own hold, or else another Application's
        hold that applies to it, or else a freeze. None if nothing blocks it.
        """
        own_hold = holding(self.state, self.memory, self.terms.now)
        hold_of_others = self.facts.elsewhere.get(self.subscription.identity)
        return own_hold or hold_of_others or self.subscription.freeze


def key_of(sub: Subscription) -> str:
    """Return the key for an image's memory: its alias, or else its name in `image-list`."""
    return sub.entry.alias or sub.entry.image.name


def deferred_offer(sub: Subscription, deferred: Written) -> Offer:
    """Return a deferred build (one that a hold or a freeze has blocked) as an offer again."""
    image = sub.image_at(replace(deferred, digest=deferred.digest or deferred.image_digest))
    return Offer(image, deferred.build, pinned=bool(deferred.digest))


def weigh(situation: Situation, offer: Offer) -> Move:
    """Return the move for one offered image: the decision and the change to commit for it.

    First the rules decide, then the order of builds, and finally the holds.
    """
    question = question_about(situation.subscription, offer.image)
    answer = situation.facts.answers.get(question)  # the registry's response, if it was queried
    promoted = offer.promoted

    decision = by_the_rules(offer, answer, situation)
    offered_version = _version_of_offer(offer, decision.candidate, answer)
    # The other checks can only turn an update into a refusal or an error.
    if decision.verdict == "update" and promoted:
        decision = by_age_at_source(decision, promoted, situation.terms)
    if decision.verdict == "update":
        decision = by_the_order(decision, offered_version, answer, situation, promoted)

    if promoted and decision.rule in ("not-newer", "superseded"):  # it is older than the one in Git
        because = f"{decision.because}; to promote it anyway: --allow-downgrade"
        return Move(with_reason(decision, because))
    if decision.verdict != "update":
        return Move(decision)
    hold = situation.hold
    if hold:
        return _deferred_move(decision, offered_version, hold, situation)
    return Move(decision, offered_version.build, _remembered_update(offered_version, situation))


def _version_of_offer(offer: Offer, image: Image, answer: Answer | None) -> Written:
    """Return the offered version in the form in which a state file remembers it: its tag, digest,
    and build.

    `image` is the offered image, but without its digest if only the tag is written.
    """
    build = offer.build
    if not build.created and answer:
        build = replace(build, created=answer.created)
    unwritten_digest = "" if image.digest else offer.image.digest
    return Written(image.tag, image.digest, build, unwritten_digest)


def _remembered_update(offered_version: Written, situation: Situation) -> Remember | None:
    """Return how an update to the offered version changes the state file, or None if the file does
    not change.

    The changed file records the build as written, and no longer contains expired holds.
    """
    now = situation.terms.now
    memory = written(situation.memory, offered_version, situation.subscription.policy)
    memory = replace(memory, hold=active(memory.hold, now))
    has_memory_changed = memory != situation.memory
    hold_on_all = situation.state.hold
    has_hold_on_all_expired = hold_on_all is not None and active(hold_on_all, now) is None
    if not has_memory_changed and not has_hold_on_all_expired:
        return None
    changed_memory = memory if has_memory_changed else None
    return Remember(memory=changed_memory, lifted=has_hold_on_all_expired)


def by_the_rules(offer: Offer, answer: Answer | None, situation: Situation) -> Decision:
    """Return the decision about an offered image, based on the subscription's rules and the
    registry's response (`answer`).
    """
    sub = situation.subscription
    terms = situation.terms
    image = _image_to_judge(offer, answer, situation)
    verdict = judge(image, sub.policy, situation.current, allow_downgrade=terms.allow_downgrade)
    decision = replace(
        situation.decision(image, verdict),
        source=offer.promoted.source if offer.promoted else "",
        built=offer.image.digest,
        event=offer.origin,
    )
    if decision.verdict not in ("update", "error"):
        return decision

    if decision.rule == "annotation":
        return decision  # no response from the registry can fix an invalid annotation
    lacks_digest = decision.verdict == "error"  # a digest is required, but the event contains none
    error = answer.error if answer else None
    if error:
        needs_response = lacks_digest or terms.check == "always"
        if needs_response or stops_in_any_mode(error):
            return registry_error(decision, error)
    may_exist = answer is None or answer.exists
    if lacks_digest and may_exist:
        hint = "pass --image-digest, or --image with repo:tag@sha256:…"
        if offer.promoted:
            hint = f"set pin-digest for {offer.promoted.source} too, or pass --registry-check auto"
        judged = replace(decision.judged, hint=hint, exit=Exit.CONFIGURATION)
        return replace(decision, judged=judged)

    objection_of_registry = registry_objection(sub, answer)
    if objection_of_registry:
        return replace(decision, judged=objection_of_registry)
    return decision


def _image_to_judge(offer: Offer, answer: Answer | None, situation: Situation) -> Image:
    """Return the offered image in the form in which it would be written, with or without a digest.

    If the rules need a digest and the offer lacks one, the digest is taken from the registry's
    response (`answer`). If the rules do not need a digest, the offer's digest is kept only if an
    update writes it or if there is no tag.
    """
    image = offer.image
    rules_need_digest = needs(situation.subscription.policy, "digest")
    if rules_need_digest:
        if image.digest or answer is None or not answer.exists:
            return image
        return replace(image, digest=answer.digest)

    is_digest_only = image.tag == ""
    if is_digest_only or _writes_digest(offer, situation):
        return image
    return replace(image, digest="")


def _writes_digest(offer: Offer, situation: Situation) -> bool:
    """Return whether an update writes the offered digest even though no rule requires a digest.

    This is the case if the current version has a digest, if the offer or a proof requires the
    digest, or if the target has a separate key for the digest.
    """
    if situation.current.digest or offer.pinned:  # the target or the source has a digest
        return True
    sub = situation.subscription
    # A proof applies to one digest only. The registry's tag may point to a different build.
    if sub.demands or situation.terms.verify:
        return True
    if not sub.keys.digest:
        return False
    # Only Helm has a separate key for the digest.
    if situation.kind == "live":
        source_kind = sub.source.kind or sub.source.section
        return source_kind == "Helm"
    return situation.kind in ("helm-override", "helmvalues")


def by_age_at_source(decision: Decision, promoted: Promoted, terms: Terms) -> Decision:
    """Return the decision about a promotion, or a refusal if the version has not been in the source
    Application for long enough.
    """
    age = max(decision.subscription.policy.minimum_age, terms.minimum_age)
    if not age:
        return decision
    try:
        since = promoted.since()
    except TaskError as error:
        return failed(decision, error)
    return unless_too_young(decision, since, age, terms.now)


def unless_too_young(decision: Decision, since: str, age: int, now: str) -> Decision:
    """Return the decision, or a refusal if the version is younger than `age` seconds.

    The age is counted from `since`. If this time is unknown (""), the version is refused.
    """
    allowed_from = young_until(since, age, now) if since else ""
    is_old_enough = since != "" and allowed_from == ""
    if is_old_enough:
        return decision
    return replace(decision, judged=too_young(decision.candidate.version, age, allowed_from))


def by_the_order(
    decision: Decision,
    offered_version: Written,
    answer: Answer | None,
    situation: Situation,
    promoted: Promoted | None,
) -> Decision:
    """Return the decision (an update), or a refusal if the offered build is older than the one in
    Git. An older build must not win just because it finishes later.

    `answer` is the registry's response about the offered version. If needed facts are unknown
    because the registry did not respond, the update receives a warning (`unchecked`).
    """
    sub = situation.subscription
    in_git = situation.in_git
    offer = Offer(sub.image_at(offered_version), offered_version.build)
    # Facts are needed about the offered image and, for the order, about the image in Git.
    needed = facts_needed_by_offer(sub, offer, in_git, situation.memory, situation.terms.check)
    question_about_git = question_about(sub, in_git)
    facts_about_git = [fact for question, fact in needed if question == question_about_git]
    facts_about_offer = [fact for question, fact in needed if question != question_about_git]

    answer_about_git = situation.facts.answers.get(question_about_git)
    # If `facts_about_git` is empty, the question was asked for another Application, so an error has
    # no effect here.
    if facts_about_git and answer_about_git:
        error = answer_about_git.error
        if error and stops_in_any_mode(error):
            return registry_error(decision, error)

    decision = replace(decision, unchecked=unchecked(answer, facts_about_offer, sub))
    if promoted and situation.terms.allow_downgrade:
        return decision  # with --allow-downgrade, a promotion may be older
    memory = memory_with_date(situation.memory, in_git, answer_about_git)
    refusal = _refusal_as_older(decision, offered_version, memory, situation, promoted)
    if refusal:
        return refusal
    # Warn about unknown facts of either image.
    doubt = decision.unchecked or unchecked(answer_about_git, facts_about_git, sub)
    if doubt is None:
        return decision
    return replace(decision, unchecked=_doubt_with_counters(doubt, offered_version, memory.written))


def _refusal_as_older(
    decision: Decision,
    offered_version: Written,
    memory: Memory,
    situation: Situation,
    promoted: Promoted | None,
) -> Decision | None:
    """Return the refusal of an offered version that is older than the one in Git, or else None.

    A promoted version is also refused if the promotion's source was rolled back to it.
    """
    sub = situation.subscription
    in_git = situation.in_git
    because = superseded(offered_version, sub.policy, in_git, memory, situation.facts.ancestry)
    if because:
        if promoted is None:  # `weigh` gives different advice for promotions
            app = sub.application.key
            version = offered_version.version
            because = f"{because}; to write it anyway: image-update rollback {app} --to {version}"
        return replace(decision, judged=Verdict("refuse", "superseded", because))
    if promoted is None:
        return None
    why_gone_back = gone_back(offered_version, sub.policy, promoted.newest, in_git, memory)
    if not why_gone_back:
        return None
    return _refusal_after_source_rollback(decision, promoted, why_gone_back)


def _doubt_with_counters(
    doubt: Trouble, offered_version: Written, last_written: Written | None
) -> Trouble:
    """Return the warning that the order of two builds is unknown (`doubt`).

    If this is because the build numbers come from different counters, the warning's hint says so.
    """
    new = offered_version.build
    old = last_written.build if last_written else Build()
    if new.sequence is None or old.sequence is None or new.counter == old.counter:
        return doubt
    new_counter = new.counter or "--sequence"
    old_counter = old.counter or "--sequence"
    why = "numbers from different counters cannot be compared"
    hint = f"pass --created: {why} (this build uses {new_counter}, the one in Git {old_counter})"
    return replace(doubt, hint=hint)


def _refusal_after_source_rollback(
    decision: Decision, promoted: Promoted, because: str
) -> Decision | None:
    """Return the refusal of a version to which the promotion's source was rolled back, or an error
    if this cannot be determined. Return None if the source was not rolled back.

    `because` is the reason for the refusal. It comes from `gone_back`, which only indicates a
    possible rollback. The source's history in Git shows whether there was one.
    """
    try:
        went_back = promoted.went_back()
    except TaskError as error:
        return failed(decision, error)
    if not went_back:
        return None
    return replace(decision, judged=Verdict("refuse", "not-newer", because))


def _deferred_move(
    decision: Decision, offered_version: Written, hold: Hold, situation: Situation
) -> Move:
    """Return the move for an offered version that is blocked by a hold or a freeze. Nothing is
    written, but the state file remembers the version as the deferred build.

    The version is refused if it is older than the build that is already deferred.
    """
    sub = situation.subscription
    deferred = situation.memory.deferred
    if deferred and deferred.version != offered_version.version:
        why = why_older(offered_version, deferred, sub.policy, situation.facts.ancestry)
        if why:
            because = f"{hold_text(hold)}; {deferred.version} is already waiting, and {why}"
            return Move(replace(decision, judged=Verdict("refuse", "superseded", because)))

    hold_of_others = situation.facts.elsewhere.get(sub.identity)
    if hold.is_freeze:
        end = "the first run after the freeze will write it"
    elif hold == hold_of_others:
        end = "the first run after that hold will write it"
    else:
        end = f"image-update release {sub.application.key} ends the hold and writes it"
    verdict = Verdict(
        "defer", "held", f"{hold_text(hold)}; {offered_version.version} is waiting: {end}"
    )
    memory = replace(situation.memory, deferred=offered_version)
    remember = Remember(memory) if memory != situation.memory else None
    return Move(replace(decision, judged=verdict), offered_version.build, remember, hold=hold)


def stops_in_any_mode(error: TaskError) -> bool:
    """Return whether an error blocks an update regardless of `--registry-check`.

    Examples are an unreadable local file, and an image that does not match its digest.
    """
    return isinstance(error, UsageError | AnnotationError | TamperedError)
