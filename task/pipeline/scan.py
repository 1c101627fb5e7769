"""`scan`: no event. The newest tag that each entry takes is found in the registries, and goes on as if just built.

As few requests as it takes: each repository is listed once; creation times are asked only where they decide, platforms
only from the newest tag down to the first that fits. Everything else is asked on the road that all commands share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from task.errors import TaskError
from task.model import Answer, Decision, Fact, Policy, Question, Verdict
from task.pipeline.decide import Ask
from task.pipeline.facts import subject, suits, wrong
from task.pipeline.match import Matched
from task.pipeline.target import live, live_reading
from task.pipeline.weigh import Terms
from task.policy.judge import objection
from task.policy.pick import dates_needed, ranked

Registry = Callable[[Collection[Question]], Mapping[Question, Answer]]
AT_ONCE = 8  # tags of one repository that are looked at beyond the newest one


@dataclass(frozen=True)
class Choice:
    """Asks that choose from the same tags by the same rules."""

    asks: tuple[Ask, ...]
    tags: tuple[str, ...] = ()
    dates: Mapping[str, str] = field(default_factory=dict)
    error: TaskError | None = None

    @property
    def policy(self) -> Policy:
        """The rules."""
        return self.asks[0].subscription.policy

    def about(self, tag: str) -> Question:
        """A question about one of the tags."""
        sub = self.asks[0].subscription
        return subject(sub, replace(sub.entry.image, tag=tag, digest=""))


def scanned(matched: Matched, terms: Terms, registry: Registry) -> Matched:
    """The asks, each with the tag that its entry takes; and a decision where there is none, or no answer."""
    ready = {id(ask): now for ask in matched.asks if (now := _without_asking(ask, terms))}
    choices = _dated(_listed([ask for ask in matched.asks if id(ask) not in ready], registry), registry)
    fitting = _fitting([one for one in choices if one.error is None], registry)
    decisions: list[Decision] = []
    for choice in choices:
        tag, error = fitting.get(id(choice), ("", choice.error))
        if tag and not error:
            ready |= {id(ask): _with(ask, tag) for ask in choice.asks}
        else:
            decisions += _without_a_tag(choice, error)
    asks = tuple(ready[id(ask)] for ask in matched.asks if id(ask) in ready)
    return replace(matched, asks=asks, decisions=(*matched.decisions, *decisions))


def _without_asking(ask: Ask, terms: Terms) -> Ask | None:
    """The ask, where no list of tags can change what becomes of it; `digest` knows its one tag."""
    sub = ask.subscription
    if sub.suspended or (terms.require_live and not live(sub)):
        return ask
    return _with(ask, sub.policy.constraints[0]) if sub.policy.strategy == "digest" and sub.policy.constraints else None


def _with(ask: Ask, tag: str) -> Ask:
    return replace(ask, candidates=(replace(ask.subscription.entry.image, tag=tag, digest=""),))


def _listed(asks: Iterable[Ask], registry: Registry) -> list[Choice]:
    """All tags, of each repository once."""
    groups: dict[tuple[Question, Policy], list[Ask]] = {}
    for ask in asks:
        sub = ask.subscription
        secret = sub.policy.pull_secret
        image = replace(sub.entry.image, tag="", digest="")
        listing = Question(image, ("tags",), (), secret, sub.application.namespace if secret else "")
        groups.setdefault((listing, sub.policy), []).append(ask)
    answers = registry(tuple(dict.fromkeys(listing for listing, _ in groups))) if groups else {}
    return [
        Choice(tuple(members), answers[listing].tags, error=answers[listing].error)
        for (listing, _), members in groups.items()
    ]


def _dated(choices: Sequence[Choice], registry: Registry) -> list[Choice]:
    """With the creation times that decide; what has gone since it was listed is left out."""
    needed = {id(one): dates_needed(one.tags, one.policy) for one in choices}
    about = {
        (id(one), tag): replace(one.about(tag), facts=_facts(one.policy)) for one in choices for tag in needed[id(one)]
    }
    answers = registry(tuple(dict.fromkeys(about.values()))) if about else {}
    found = []
    for one in choices:
        of_tags = {tag: answers[about[id(one), tag]] for tag in needed[id(one)]}
        error = one.error or next((answer.error for answer in of_tags.values() if answer.error), None)
        gone = {tag for tag, answer in of_tags.items() if not answer.exists}
        dates = {tag: answer.created for tag, answer in of_tags.items()}
        left = tuple(tag for tag in one.tags if tag not in gone)
        found.append(replace(one, tags=left, dates=dates, error=error))
    return found


def _facts(policy: Policy) -> tuple[Fact, ...]:
    """The same manifest tells both."""
    return ("created", "platforms") if policy.platforms else ("created",)


def _fitting(choices: Sequence[Choice], registry: Registry) -> dict[int, tuple[str, TaskError | None]]:
    """The tag of each choice: the newest that is for one of its platforms; the newest, where none is. Or an error."""
    orders = {id(one): ranked(one.tags, one.policy, one.dates) for one in choices}
    found = {key: (next(iter(job), ""), None) for key, job in orders.items()}
    settled: dict[int, tuple[str, TaskError | None]] = {**found}
    left, start, size = [one for one in choices if one.policy.platforms and orders[id(one)]], 0, 1
    while left:
        parts = {id(one): orders[id(one)][start : start + size] for one in left}
        every = ((one, tag) for one in left for tag in parts[id(one)])
        about = {(id(one), tag): replace(one.about(tag), facts=("platforms",)) for one, tag in every}
        answers = registry(tuple(dict.fromkeys(about.values())))
        for one in left:
            looked_at = [(tag, answers[about[id(one), tag]]) for tag in parts[id(one)]]
            wanted = one.policy.platforms
            first = next(
                (
                    (tag, answer)
                    for tag, answer in looked_at
                    if answer.error or (answer.exists and suits(wanted, answer.platforms))
                ),
                None,
            )
            if first:
                settled[id(one)] = (first[0], first[1].error)
                orders[id(one)] = ()
        start, size = start + size, AT_ONCE
        left = [one for one in left if orders[id(one)][start:]]
    return settled


def _without_a_tag(choice: Choice, error: TaskError | None) -> list[Decision]:
    """The refusals or errors of asks that no tag was found for."""
    example, verdict = ("", Verdict("error", "registry", "")) if error else _none(choice)
    found = []
    for ask in choice.asks:
        offered = ask if error else _with(ask, example)
        decision = Decision(ask.subscription, offered.offered, verdict, live_reading(ask.subscription))
        found.append(wrong(decision, error) if error else decision)
    return found


def _none(choice: Choice) -> tuple[str, Verdict]:
    """Why no tag is admitted: the rule that refuses most of them, with an example, and that tag."""
    sub = choice.asks[0].subscription
    if not choice.tags:
        return "", Verdict("refuse", "not-in-registry", f"the registry has no tag of {sub.entry.image.name}")
    refusals = [(tag, no) for tag in choice.tags if (no := objection(tag, choice.policy))]
    if not refusals:
        return "", Verdict("refuse", "not-in-registry", "all tags in the registry are signatures")
    rule = Counter(no.rule for _, no in refusals).most_common(1)[0][0]
    tag, example = max((tag, no.because) for tag, no in refusals if no.rule == rule)
    many = f"none of the {len(choice.tags)} tags in the registry is" if len(choice.tags) > 1 else "the only tag is not"
    return tag, Verdict("refuse", rule, f"{many} admitted: {example}")
