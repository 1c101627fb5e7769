"""`scan`: finds the newest tag for each entry in the registries,
and continues as if it had just been built.

It needs few requests. Each repository is listed once. Creation times are asked only if they decide,
and platforms only from the newest tag down to the first that fits. All other questions are asked as
for the other commands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from task.commands.branches import read_branches
from task.deciding.decide import places
from task.deciding.job import Ask, Job, Terms, error_decision
from task.deciding.target import all_live, live_reading
from task.deciding.weigh import question_about, registry_error
from task.errors import TaskError
from task.landing.before_deciding import CONFIG, as_wanted, with_more
from task.landing.ports import Batch, World
from task.model import Answer, Decision, Fact, Policy, Question, Verdict
from task.pipeline.match import Matched, asks_for_all, by_repository, left_out
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
Key = tuple[str, str, str, str, str]  # of an ask, or of the first ask of a choice
_TAGS_AT_ONCE = 8  # how many tags of one repository are examined at a time after the newest one


@dataclass(frozen=True)
class Choice:
    """Asks that choose from the same tags by the same rules."""

    asks: tuple[Ask, ...]
    tags: tuple[str, ...] = ()
    dates: Mapping[str, str] = field(default_factory=dict)
    error: TaskError | None = None

    @property
    def key(self) -> Key:
        """The key of its first ask."""
        return self.asks[0].key

    @property
    def policy(self) -> Policy:
        """The rules that these asks share."""
        return self.asks[0].subscription.policy

    def about(self, tag: str) -> Question:
        """Return a question about one of the tags."""
        sub = self.asks[0].subscription
        return question_about(sub, replace(sub.entry.image, tag=tag, digest=""))


def match_newest(seen: Seen, job: Job, world: World) -> tuple[Job, Matched]:
    """Return the asks of `scan`: the newest allowed tags in the registries."""
    matched = asks_for_all(seen.subscribed)
    within = [ask for members in by_repository(matched, job) for ask in members]
    live = () if job.only else matched.live
    problems = (*left_out(matched, job), *matched.problems)
    matched = replace(matched, asks=(*within, *live), problems=problems)
    matched = _as_configs_want(matched, job, world)
    found, _ = chosen(matched, job.terms, world.registry)
    return job, found


def _as_configs_want(matched: Matched, job: Job, world: World) -> Matched:
    """Return the asks with what the repositories' configs say, which may order tags in another way.

    An ask whose config cannot be read gets an error.
    """
    open_ones = replace(
        matched, asks=tuple(ask for ask in matched.in_git if not _settled(ask, job.terms))
    )

    def read(batch: Batch) -> tuple[Sequence[Ask], Sequence[Decision]]:
        snapshot = batch.repository.snapshot(batch.base, CONFIG)
        config = config_in(snapshot.files)
        if for_some_paths(config):
            targets = (place for ask in batch.asks for place in places(ask))
            snapshot = with_more(snapshot, targets, batch.repository)
        return as_wanted(batch.asks, snapshot, config, job.terms), ()

    def failed(
        asks: Sequence[Ask], error: TaskError, base: str
    ) -> tuple[Sequence[Ask], Sequence[Decision]]:
        return (), [error_decision(ask.subscription, ask.offered, error, base) for ask in asks]

    wanted: dict[tuple[str, ...], Ask] = {}
    decisions: list[Decision] = []
    for asks, lost in read_branches(open_ones, job, world, read, failed):
        wanted |= {ask.key: ask for ask in asks}
        decisions += lost
    gone = {decision.subscription.identity for decision in decisions}
    left = tuple(wanted.get(ask.key, ask) for ask in matched.asks if ask.key not in gone)
    return replace(matched, asks=left, decisions=(*matched.decisions, *decisions))


def chosen(matched: Matched, terms: Terms, registry: Registry) -> tuple[Matched, Mapping[Key, str]]:
    """Return the asks, each with its newest tag, and a decision for each ask without one.

    Also return until when the newest tag of an ask is too young, by the key of the ask.
    """
    ready = {ask.key: now for ask in matched.asks if (now := _without_asking(ask, terms))}
    choices = _dated(
        _listed([ask for ask in matched.asks if ask.key not in ready], registry), registry
    )
    fitting, young = _fitting([item for item in choices if item.error is None], terms, registry)
    decisions: list[Decision] = []
    for choice in choices:
        tag, error = fitting.get(choice.key, ("", choice.error))
        if tag and not error:
            ready |= {ask.key: _with(ask, tag) for ask in choice.asks}
        else:
            decisions += _without_a_tag(choice, error, young.get(choice.key))
    asks = tuple(ready[ask.key] for ask in matched.asks if ask.key in ready)
    until = {
        ask.key: young[item.key][1] for item in choices if item.key in young for ask in item.asks
    }
    return replace(matched, asks=asks, decisions=(*matched.decisions, *decisions)), until


def _settled(ask: Ask, terms: Terms) -> bool:
    sub = ask.subscription
    return bool(sub.suspended or (terms.require_live and not all_live(sub)))


def _without_asking(ask: Ask, terms: Terms) -> Ask | None:
    """Return the ask if no list of tags can change its decision, else None.

    With `digest`, the tag is known.
    """
    if _settled(ask, terms):
        return ask
    sub = ask.subscription
    follows = (
        rules_of(sub.policy).constraint == "tag"
        and sub.policy.constraints
        and not _age(sub.policy, terms)
    )
    return _with(ask, sub.policy.constraints[0]) if follows else None


def _age(policy: Policy, terms: Terms) -> int:
    return max(policy.minimum_age, terms.minimum_age)


def _with(ask: Ask, tag: str) -> Ask:
    return replace(ask, candidates=(replace(ask.subscription.entry.image, tag=tag, digest=""),))


def _listed(asks: Iterable[Ask], registry: Registry) -> list[Choice]:
    """List the tags of each repository once."""
    groups: dict[tuple[Question, Policy], list[Ask]] = {}
    for ask in asks:
        sub = ask.subscription
        secret = sub.policy.pull_secret
        image = replace(sub.entry.image, tag="", digest="")
        listing = Question(
            image, ("tags",), (), secret, sub.application.namespace if secret else ""
        )
        groups.setdefault((listing, sub.policy), []).append(ask)
    answers = registry(tuple(dict.fromkeys(listing for listing, _ in groups))) if groups else {}
    return [
        Choice(tuple(members), answers[listing].tags, error=answers[listing].error)
        for (listing, _), members in groups.items()
    ]


def _dated(choices: Sequence[Choice], registry: Registry) -> list[Choice]:
    """Add the creation times if they decide.

    A tag that was deleted since it was listed is left out.
    """
    needed = {choice.key: dates_needed(choice.tags, choice.policy) for choice in choices}
    about: dict[tuple[Key, str], Question] = {}
    for choice in choices:
        # of one manifest
        facts: tuple[Fact, ...] = (
            ("created", "platforms") if choice.policy.platforms else ("created",)
        )
        about |= {
            (choice.key, tag): replace(choice.about(tag), facts=facts) for tag in needed[choice.key]
        }
    answers = registry(tuple(dict.fromkeys(about.values()))) if about else {}
    found = []
    for item in choices:
        of_tags = {tag: answers[about[item.key, tag]] for tag in needed[item.key]}
        error = item.error or next(
            (answer.error for answer in of_tags.values() if answer.error), None
        )
        gone = {tag for tag, answer in of_tags.items() if not answer.exists}
        dates = {tag: answer.created for tag, answer in of_tags.items()}
        left = tuple(tag for tag in item.tags if tag not in gone)
        found.append(replace(item, tags=left, dates=dates, error=error))
    return found


_Fitting = dict[Key, tuple[str, TaskError | None]]


def _fitting(
    choices: Sequence[Choice], terms: Terms, registry: Registry
) -> tuple[_Fitting, dict[Key, tuple[str, str]]]:
    """Return the tag of each choice, or an error: the newest that is for one of its platforms,
    and old enough.

    And of each choice whose newest such tag is too young: that tag, and until when, "" if none has
    a date.
    """
    orders = {choice.key: ranked(choice.tags, choice.policy, choice.dates) for choice in choices}
    settled: _Fitting = {key: (next(iter(tags), ""), None) for key, tags in orders.items()}
    young: dict[Key, tuple[str, str]] = {}
    aged = {choice.key for choice in choices if _age(choice.policy, terms)}
    for choice in choices:
        if choice.key in aged:
            orders[choice.key] = orders[choice.key][:MOST_YOUNG]
    left = [
        item for item in choices if (item.policy.platforms or item.key in aged) and orders[item.key]
    ]
    start = 0
    size = 1
    while left:
        parts = {item.key: orders[item.key][start : start + size] for item in left}
        about: dict[tuple[Key, str], Question] = {}
        for item in left:
            facts: tuple[Fact, ...] = ("platforms",) if item.policy.platforms else ()
            facts += ("created",) if item.key in aged else ()
            about |= {
                (item.key, tag): replace(item.about(tag), facts=facts) for tag in parts[item.key]
            }
        answers = registry(tuple(dict.fromkeys(about.values())))
        for entry in left:
            for tag in parts[entry.key]:
                answer = answers[about[entry.key, tag]]
                wanted = entry.policy.platforms
                if not answer.error and not (
                    answer.exists and (not wanted or suits(wanted, answer.platforms))
                ):
                    continue
                if not answer.error and entry.key in aged:
                    until = answer.created and young_until(
                        answer.created, _age(entry.policy, terms), terms.now
                    )
                    if until or not answer.created:
                        told = young.get(entry.key, ("", ""))[1]
                        if not told:  # a tag without a date hides no tag that has one
                            known = young.get(entry.key, (tag, ""))[0]
                            young[entry.key] = (tag, until) if until else (known, "")
                        continue
                settled[entry.key] = (tag, answer.error)
                orders[entry.key] = ()
                break
        start = start + size
        size = _TAGS_AT_ONCE
        left = [one for one in left if orders[one.key][start:]]
    return {**settled, **{key: ("", None) for key in young if orders[key]}}, young


def _without_a_tag(
    choice: Choice, error: TaskError | None, young: tuple[str, str] | None
) -> list[Decision]:
    """Return the refusals or errors of asks for which no tag was found, or only a young one."""
    if error:
        example = ""
        verdict = Verdict("error", "registry", "")
    elif young:
        example = young[0]
        verdict = too_young(*young)
    else:
        example, verdict = _none(choice)
    found = []
    for ask in choice.asks:
        offered = ask if error else _with(ask, example)
        decision = Decision(
            ask.subscription, offered.offered, verdict, live_reading(ask.subscription)
        )
        found.append(registry_error(decision, error) if error else decision)
    return found


def _none(choice: Choice) -> tuple[str, Verdict]:
    """Return why no tag is admitted: the rule that refuses most of them,
    with one of those tags as an example.
    """
    sub = choice.asks[0].subscription
    if not choice.tags:
        return "", Verdict(
            "refuse", "not-in-registry", f"the registry has no tag of {sub.entry.image.name}"
        )
    refusals = [(tag, no) for tag in choice.tags if (no := objection(tag, choice.policy))]
    if broken := next((no for _, no in refusals if no.verdict == "error"), None):
        return "", broken
    if not refusals:
        return "", Verdict("refuse", "not-in-registry", "all tags in the registry are signatures")
    rule = Counter(no.rule for _, no in refusals).most_common(1)[0][0]
    tag, example = max((tag, no.because) for tag, no in refusals if no.rule == rule)
    many = (
        f"none of the {len(choice.tags)} tags in the registry is"
        if len(choice.tags) > 1
        else "the only tag is not"
    )
    return tag, Verdict("refuse", rule, f"{many} admitted: {example}")
