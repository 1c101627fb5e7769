"""Asks for the facts that the rules need: registries, source repositories, signatures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache

from task.deciding.decide import holds_of_others, questions
from task.deciding.job import Ask, Job, Wording
from task.deciding.verify import LastChecks
from task.deciding.weigh import Facts
from task.landing.ports import Batch, World
from task.model import Answer, Question, Snapshot
from task.templates.commit_message import wants_labels

Gather = Callable[[Snapshot, Sequence[Ask]], Facts]  # asks for what neither the event nor a snapshot says


def gatherer(batch: Batch, job: Job, world: World) -> Gather:
    """Return a function that finds the facts that a rule needs and that neither the event nor a snapshot has."""

    @cache
    def exists(question: Question) -> Answer | None:
        return None if job.terms.check == "never" else world.registry((question,)).get(question)

    def gather(snapshot: Snapshot, asks: Sequence[Ask]) -> Facts:
        open_questions = questions(snapshot, asks, job.terms)
        ancestry = {pair: world.ancestry(*pair) for pair in open_questions.ancestry}
        answers = world.registry(open_questions.registry) if open_questions.registry else {}

        def earlier(path: str, most: int) -> Iterable[str]:
            texts = batch.repository.earlier(snapshot.branch, path, most)
            return (text for _commit, text in texts if text is not None)

        by_image = {replace(question, facts=()): answer for question, answer in answers.items()}
        subs = (sub for ask in asks for sub in (ask.subscription, *ask.siblings))
        return Facts(ancestry, by_image, earlier, exists, holds_of_others(snapshot, subs, job.terms))

    return gather


def last_checks(job: Job, wording: Wording, world: World) -> LastChecks:
    """Return what to ask for proofs, and for the labels that the commit message names."""
    labels = job.terms.check != "never" and any(map(wants_labels, (wording.template, *wording.templates.values())))
    return LastChecks(world.registry, world.prove, world.always_prove, labels)
