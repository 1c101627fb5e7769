"""`scan`: finds each entry's newest tag in the registries, and continues as if that tag had just
been built.

This requires only a few requests. Each repository is listed once. Creation times are only queried
if they matter, and platforms only from the newest tag down to the first match. All other queries
are the same as in the other commands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from task.commands.branches import read_branches
from task.deciding.decide import Identity, places
from task.deciding.job import Ask, Job, Terms, error_decision
from task.deciding.target import all_live, live_reading
from task.deciding.weigh import question_about, registry_error
from task.errors import TaskError
from task.landing.before_deciding import CONFIG, as_wanted, with_more
from task.landing.ports import Batch, World
from task.model import Answer, Decision, Fact, Policy, Question, Verdict
from task.pipeline.match import Matched, asks_for_all, by_repository, warn_if_all_excluded
from task.pipeline.overlooked import Seen
from task.policy.judge import (
    MOST_YOUNG,
    dates_needed,
    objection,
    ranked,
    suits,
    too_young,
    young_until,
)
from task.policy.strategies import rules_of
from task.repository_config.config import for_some_paths
from task.repository_config.reading import config_in

Registry = Callable[[Collection[Question]], Mapping[Question, Answer]]
_TAGS_AT_ONCE = 8  # how many tags per repository are checked at a time after the newest one


@dataclass(frozen=True)
class Choice:
    """Asks that choose from the same tags according to the same rules."""

    asks: tuple[Ask, ...]
    tags: tuple[str, ...] = ()
    dates: Mapping[str, str] = field(default_factory=dict)
    error: TaskError | None = None

    @property
    def key(self) -> Identity:
        """The key of the choice's first ask, which identifies the choice."""
        return self.asks[0].key

    @property
    def policy(self) -> Policy:
        """The rules that these asks share."""
        return self.asks[0].subscription.policy

    def about(self, tag: str) -> Question:
        """Return the question to ask the registry about one tag."""
        sub = self.asks[0].subscription
        return question_about(sub, replace(sub.entry.image, tag=tag, digest=""))


def match_newest(seen: Seen, job: Job, world: World) -> tuple[Job, Matched]:
    """Return the job unchanged, and the asks for `scan`: for each image-list entry, a request to
    decide about the newest tag in the registry that its rules admit.
    """
    matched = asks_for_all(seen.subscribed)
    in_git = [ask for members in by_repository(matched, job) for ask in members]
    # with `--only-repository`, separate runs handle live Applications
    live = () if job.only else matched.live
    problems = (*warn_if_all_excluded(matched, job), *matched.problems)
    matched = replace(matched, asks=(*in_git, *live), problems=problems)
    matched = _with_configs(matched, job, world)
    matched_with_tags, _ = chosen(matched, job.terms, world.registry)
    return job, matched_with_tags


def _with_configs(matched: Matched, job: Job, world: World) -> Matched:
    """Apply the repositories' configs to the asks (requests to decide about one image), because a
    config may order tags differently.

    If a config cannot be read, each ask to which it would apply becomes a decision with the error.
    """
    asks_to_read = tuple(ask for ask in matched.in_git if not _needs_no_tag_list(ask, job.terms))

    def read(batch: Batch) -> tuple[Sequence[Ask], Sequence[Decision]]:
        """Return the asks for one branch with the branch's config applied, and no errors."""
        snapshot = batch.repository.snapshot(batch.base, CONFIG)
        config = config_in(snapshot.files)
        if for_some_paths(config):  # a rule may depend on which files an Application writes to
            targets = chain.from_iterable(map(places, batch.asks))
            snapshot = with_more(snapshot, targets, batch.repository)
        return as_wanted(batch.asks, snapshot, config, job.terms), ()

    def failed(
        asks: Sequence[Ask],
        error: TaskError,
        base: str,
    ) -> tuple[Sequence[Ask], Sequence[Decision]]:
        """Return no asks, and an error for each ask for a branch that cannot be read."""
        return (), [error_decision(ask.subscription, ask.offered, error, base) for ask in asks]

    of_branches = read_branches(replace(matched, asks=asks_to_read), job, world, read, failed)
    changed_asks: dict[Identity, Ask] = {}  # the asks to which a config was applied
    errors: list[Decision] = []
    for branch_asks, branch_errors in of_branches:
        changed_asks |= {ask.key: ask for ask in branch_asks}
        errors += branch_errors

    failed_keys = {decision.subscription.identity for decision in errors}
    remaining = tuple(
        changed_asks.get(ask.key, ask) for ask in matched.asks if ask.key not in failed_keys
    )
    return replace(matched, asks=remaining, decisions=(*matched.decisions, *errors))


def chosen(
    matched: Matched, terms: Terms, registry: Registry
) -> tuple[Matched, Mapping[Identity, str]]:
    """Return each ask (a request to decide about one image) with the newest tag in the registry
    that its rules admit. Return a decision for each ask without such a tag.

    Also return when newer tags that are still too young will be old enough, keyed by ask.
    """
    # keyed by ask; an ask is ready once it has a tag or does not need one
    ready_asks: dict[Identity, Ask] = {}
    asks_to_list = []  # the asks for which tags must be listed
    for ask in matched.asks:
        ready_ask = _with_known_tag(ask, terms)
        if ready_ask:
            ready_asks[ask.key] = ready_ask
        else:
            asks_to_list.append(ask)

    # a choice is a group of asks that choose from the same tags according to the same rules
    choices = _with_creation_times(_list_tags(asks_to_list, registry), registry)
    results = _newest_of_each(choices, terms, registry)
    decisions: list[Decision] = []
    old_enough_at: dict[Identity, str] = {}
    for choice in choices:
        newest = results[choice.key]
        if newest.tag and not newest.error:
            for ask in choice.asks:
                ready_asks[ask.key] = _with_tag(ask, newest.tag)
        else:
            decisions += _decisions_without_tag(choice, newest, terms)
        if newest.young:  # even if an older tag was chosen instead
            _, date = newest.young
            for ask in choice.asks:
                old_enough_at[ask.key] = date

    asks = tuple(ready_asks[ask.key] for ask in matched.asks if ask.key in ready_asks)
    all_decisions = (*matched.decisions, *decisions)
    return replace(matched, asks=asks, decisions=all_decisions), old_enough_at


def _needs_no_tag_list(ask: Ask, terms: Terms) -> bool:
    """Return whether an ask does not require a list of tags, because its image is locked, or
    because only running images may be updated (`require_live`) and this image is not running.
    """
    sub = ask.subscription
    if sub.locked:
        return True
    return terms.require_live and not all_live(sub)


def _with_known_tag(ask: Ask, terms: Terms) -> Ask | None:
    """Return the ask (a request to decide about one image) if it does not require a list of tags,
    or else None.

    With the strategy `digest`, the tag is already known: it is the constraint. In that case, return
    the ask with that tag, unless there is a minimum age.
    """
    if _needs_no_tag_list(ask, terms):
        return ask
    policy = ask.subscription.policy
    is_tag_known = bool(policy.constraints) and rules_of(policy).constraint == "tag"
    # With a minimum age, the tag's creation time is needed.
    if is_tag_known and not _minimum_age_of(policy, terms):
        return _with_tag(ask, policy.constraints[0])
    return None


def _minimum_age_of(policy: Policy, terms: Terms) -> int:
    """Return the minimum age of a tag in seconds: the image's or the run's, whichever is longer."""
    return max(policy.minimum_age, terms.minimum_age)


def _with_tag(ask: Ask, tag: str) -> Ask:
    """Return the ask with this tag as its only candidate."""
    candidate = replace(ask.subscription.entry.image, tag=tag, digest="")
    return replace(ask, candidates=(candidate,))


def _list_tags(asks: Iterable[Ask], registry: Registry) -> list[Choice]:
    """List the tags of each registry repository once, and return the choices: groups of asks
    (requests to decide about one image) that choose from the same tags according to the same rules.
    """
    groups: dict[tuple[Question, Policy], list[Ask]] = {}
    for ask in asks:
        sub = ask.subscription
        secret = sub.policy.pull_secret
        # The namespace only matters if there is a secret.
        # Without it, more subscriptions share a question.
        namespace = sub.application.namespace if secret else ""
        image = replace(sub.entry.image, tag="", digest="")
        question = Question(image, ("tags",), secret=secret, namespace=namespace)
        groups.setdefault((question, sub.policy), []).append(ask)
    questions = tuple(dict.fromkeys(question for question, _ in groups))
    answers = registry(questions) if questions else {}

    choices = []
    for (question, _), members in groups.items():
        answer = answers[question]
        choices.append(Choice(tuple(members), answer.tags, error=answer.error))
    return choices


def _with_creation_times(choices: Sequence[Choice], registry: Registry) -> list[Choice]:
    """Return the choices with the creation times of the tags for which they are needed, and without
    tags that were deleted after they were listed.
    """
    questions_of_choices = [_questions_about_dates(choice) for choice in choices]
    answers = _answers_to_all(questions_of_choices, registry)
    dated_choices = []
    for choice, questions in zip(choices, questions_of_choices, strict=True):
        answers_by_tag = {tag: answers[question] for tag, question in questions.items()}
        dated_choices.append(_with_dates(choice, answers_by_tag))
    return dated_choices


def _questions_about_dates(choice: Choice) -> dict[str, Question]:
    """Return a question for each tag whose creation time is needed."""
    facts: tuple[Fact, ...] = ("created",)
    if choice.policy.platforms:  # platforms are needed later, and are in the same manifest
        facts = ("created", "platforms")
    tags = dates_needed(choice.tags, choice.policy)
    return {tag: replace(choice.about(tag), facts=facts) for tag in tags}


def _with_dates(choice: Choice, answers: Mapping[str, Answer]) -> Choice:
    """Return the choice with the creation times in `answers` (keyed by tag), and without the tags
    that no longer exist. If the answers contain errors, the first one becomes the choice's error.
    """
    deleted_tags = {tag for tag, answer in answers.items() if not answer.exists}
    error = choice.error
    for answer in answers.values():
        error = error or answer.error
    return replace(
        choice,
        tags=tuple(tag for tag in choice.tags if tag not in deleted_tags),
        dates={tag: answer.created for tag, answer in answers.items()},
        error=error,
    )


def _answers_to_all(
    questions_by_tag: Iterable[Mapping[str, Question]],
    registry: Registry,
) -> Mapping[Question, Answer]:
    """Return the registries' answers to the questions of several choices, asking each question only
    once. Each mapping contains the questions of one choice, keyed by tag.
    """
    questions: dict[Question, None] = {}
    for questions_of_choice in questions_by_tag:
        questions |= dict.fromkeys(questions_of_choice.values())
    return registry(tuple(questions)) if questions else {}


@dataclass(frozen=True)
class Newest:
    """A choice's newest tag that supports its platforms and is old enough, or an error."""

    tag: str = ""
    error: TaskError | None = None
    # the newest matching tag if it is too young, and the time
    # at which it will be old enough ("" if no tag has a date)
    young: tuple[str, str] | None = None


def _newest_of_each(
    choices: Sequence[Choice],
    terms: Terms,
    registry: Registry,
) -> dict[Identity, Newest]:
    """Return, for each choice, the newest tag that matches its rules, or the reason why there is
    none. The result is keyed by choice.

    A choice is a group of asks with the same tags and rules. In each round, the next tags of all
    choices are checked with a single call of `registry`.
    """
    searches = [_Search(choice, terms) for choice in choices if choice.error is None]
    unfinished = [search for search in searches if search.unchecked]
    size = 1  # the newest tag usually matches, so the first round only checks that tag
    while unfinished:
        questions_of_searches = [search.take_questions(size) for search in unfinished]
        answers = _answers_to_all(questions_of_searches, registry)
        for search, questions in zip(unfinished, questions_of_searches, strict=True):
            search.examine({tag: answers[question] for tag, question in questions.items()})
        size = _TAGS_AT_ONCE
        unfinished = [search for search in unfinished if search.unchecked]

    results = {choice.key: Newest(error=choice.error) for choice in choices if choice.error}
    for search in searches:
        results[search.choice.key] = search.result
    return results


class _Search:
    """A search from a choice's newest tag down to the first match."""

    def __init__(self, choice: Choice, terms: Terms) -> None:
        """Rank the choice's tags, and determine which of them must be checked."""
        self.choice = choice
        self._terms = terms
        self._minimum_age = _minimum_age_of(choice.policy, terms)
        tags = ranked(choice.tags, choice.policy, choice.dates)
        # If no tag supports the platforms, this remains the
        # result, and the decision states the reason.
        self.result = Newest(tags[0] if tags else "")
        # the tags that have yet to be checked, newest first
        if self._minimum_age:
            # limited, because looking up a tag's date takes a request
            self.unchecked = tags[:MOST_YOUNG]
        elif choice.policy.platforms:
            self.unchecked = tags
        else:  # nothing to check, so the newest tag is the result
            self.unchecked = ()

    def take_questions(self, size: int) -> dict[str, Question]:
        """Remove the next `size` unchecked tags, and return a question about each."""
        tags = self.unchecked[:size]
        self.unchecked = self.unchecked[size:]
        facts: tuple[Fact, ...] = ("platforms",) if self.choice.policy.platforms else ()
        if self._minimum_age:
            facts += ("created",)
        return {tag: replace(self.choice.about(tag), facts=facts) for tag in tags}

    def examine(self, answers: Mapping[str, Answer]) -> None:
        """Examine these tags, newest first. End the search at the first tag that matches or whose
        answer is an error. `answers` is keyed by tag.
        """
        for tag, answer in answers.items():
            if answer.error or self._matches(tag, answer):
                self.result = replace(self.result, tag=tag, error=answer.error)
                self.unchecked = ()
                return

    def _matches(self, tag: str, answer: Answer) -> bool:
        # `_is_old_enough` also records a tag that is too young
        return self._is_suitable(answer) and self._is_old_enough(tag, answer)

    def _is_suitable(self, answer: Answer) -> bool:
        """Return whether the tag still exists and supports at least one of the platforms in the
        rules, if the rules contain any.
        """
        if not answer.exists:
            return False
        platforms = self.choice.policy.platforms
        return not platforms or suits(platforms, answer.platforms)

    def _is_old_enough(self, tag: str, answer: Answer) -> bool:
        """Return whether a tag is old enough. A tag that is too young is also recorded in the
        result (`young`), unless the tag that is already recorded there takes precedence.
        """
        if not self._minimum_age:
            return True
        until = ""  # when the tag will be old enough; "" if its creation time is unknown
        if answer.created:
            until = young_until(answer.created, self._minimum_age, self._terms.now)
            if not until:
                return True

        # Tags are examined from the newest down. A tag with
        # a date takes precedence over one without.
        young = self.result.young
        if young is None:
            young = (tag, until)
        else:
            _, earlier_until = young
            if until and not earlier_until:
                young = (tag, until)
        self.result = replace(self.result, tag="", young=young)
        return False


def _decisions_without_tag(choice: Choice, newest: Newest, terms: Terms) -> list[Decision]:
    """Return a decision for each ask of a choice that has no tag: an error if the registry did not
    respond, or else a refusal, because the tag is too young or the rules admit no tag. A choice is
    a group of asks that choose from the same tags according to the same rules.
    """
    error = newest.error
    if error:
        unknown = Verdict("error", "registry", "")
        return [registry_error(_decision_without_tag(ask, unknown), error) for ask in choice.asks]
    if newest.young:
        tag, until = newest.young
        verdict = too_young(tag, _minimum_age_of(choice.policy, terms), until)
    else:
        tag, verdict = _why_none_is_admitted(choice)
    return [_decision_without_tag(_with_tag(ask, tag), verdict) for ask in choice.asks]


def _decision_without_tag(ask: Ask, verdict: Verdict) -> Decision:
    """Return the decision about an ask that has no tag, with this verdict."""
    sub = ask.subscription
    return Decision(sub, ask.offered, verdict, live_reading(sub))


def _why_none_is_admitted(choice: Choice) -> tuple[str, Verdict]:
    """Return an example of a tag that the rules do not admit ("" if there is none), and the refusal
    with the reason.

    The example is a tag that is refused by the rule that refuses the most tags. If the rules
    themselves are invalid, return the error in them instead.
    """
    if not choice.tags:
        name = choice.asks[0].subscription.entry.image.name
        return "", Verdict("refuse", "not-in-registry", f"the registry has no tags for {name}")

    refusals: dict[str, Verdict] = {}
    for tag in choice.tags:
        refusal = objection(tag, choice.policy)
        if refusal is None:
            continue
        if refusal.verdict == "error":
            return "", refusal
        refusals[tag] = refusal
    if not refusals:  # cosign's own tags are never candidates, although no rule refuses them
        return "", Verdict("refuse", "not-in-registry", "all tags in the registry are signatures")

    number_of_tags_by_rule = Counter(refusal.rule for refusal in refusals.values())
    [(rule, _number)] = number_of_tags_by_rule.most_common(1)
    example = max(tag for tag, refusal in refusals.items() if refusal.rule == rule)
    summary = "the only tag is not admitted"
    if len(choice.tags) > 1:
        summary = f"none of the {len(choice.tags)} tags in the registry is admitted"
    return example, Verdict("refuse", rule, f"{summary}: {refusals[example].because}")
