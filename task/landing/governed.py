"""What the repository's own config decides about the asks of one branch.

An annotation wins over an option or a variable, an option over the config, and the config over the default. There is
one exception: a pull request, a digest or a freeze is certain if any of them asks for it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from task.deciding.decide import missing_places, places
from task.deciding.job import Ask, Job, Wording
from task.errors import TargetError
from task.model import Files, Place, Snapshot, Subscription
from task.repository_config.config import (
    MISTAKEN,
    NO_CONFIG,
    PATH,
    RepositoryConfig,
    also_limited,
    governed,
    keys_named,
)
from task.repository_config.reading import config_in, of_config, template_in, with_keys

CONFIG = (Place(PATH), *(Place(path, "exists") for path in MISTAKEN))


class ReadsMore(Protocol):
    """A repository that shows more places of a snapshot."""

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:
        """Return these places, at the same commit."""


@dataclass(frozen=True)
class Governed:
    """The asks as the config wants them, with all that is needed to decide about them."""

    asks: tuple[Ask, ...]  # in the order in which they were given
    snapshot: Snapshot
    wording: Wording


def as_wanted(
    asks: Sequence[Ask], config: RepositoryConfig, now: str, default: RepositoryConfig = NO_CONFIG
) -> tuple[Ask, ...]:
    """Return the asks with what a config says about their subscriptions now.

    `default` is that of the default branch, which limits what is written to any branch.
    """
    subs = {id(sub): sub for ask in asks for sub in (ask.subscription, *ask.siblings)}
    wanted = dict(zip(subs, also_limited(governed(subs.values(), config, now), default), strict=True))
    return tuple(
        replace(ask, subscription=wanted[id(ask.subscription)], siblings=tuple(wanted[id(sub)] for sub in ask.siblings))
        for ask in asks
    )


def govern(asks: Sequence[Ask], snapshot: Snapshot, repository: ReadsMore, job: Job) -> Governed:
    """Return the asks as the config of this snapshot wants them. Raises `TargetError` for a config with a mistake.

    If more files are necessary, such as the template of the message, one more fetch reads them.
    """
    config = config_in(snapshot.files) if job.repository_config else NO_CONFIG
    default = _of_default_branch(snapshot) if job.repository_config else NO_CONFIG
    found = tuple(asks)
    if config != NO_CONFIG or default != NO_CONFIG:
        found = as_wanted(asks, config, job.terms.now, default)
    wishes = [ask.subscription.wishes for ask in found]
    named = [] if job.wording.template is not None else [one.template for one in wishes if one.template]
    # Where a pull request is asked for now, updates of the Application's other images may wait on its branch.
    more: list[Place] = []
    for before, ask in zip(asks, found, strict=True):
        if ask.subscription.pull_request and not before.subscription.pull_request:
            known = set(places(before))
            more += [place for place in places(ask) if place not in known]
        more += missing_places(snapshot, ask.subscription, job.terms)
    more += map(Place, (*named, *keys_named(wishes)))
    if more:
        files = repository.read_more(snapshot, tuple(dict.fromkeys(more))).files
        snapshot = replace(snapshot, files={**snapshot.files, **files})
    if config == NO_CONFIG:
        return Governed(found, snapshot, job.wording)
    lines = dict(config.templates)
    try:
        templates = {path: template_in(snapshot.files, path, lines[path]) for path in dict.fromkeys(named)}
        found = tuple(replace(ask, subscription=with_all_keys(ask.subscription, snapshot.files)) for ask in found)
    except TargetError as error:
        raise of_config(error) from error
    return Governed(found, snapshot, replace(job.wording, common=config.wishes, templates=templates, config=config))


def with_all_keys(sub: Subscription, files: Files) -> Subscription:
    """Return a subscription whose demands have the texts of their keys. Raises `TargetError`."""
    return replace(sub, demands=tuple(with_keys(one, files) for one in sub.demands)) if sub.demands else sub


def _of_default_branch(snapshot: Snapshot) -> RepositoryConfig:
    try:
        return config_in(snapshot.default)
    except TargetError as error:
        raise TargetError(f"on the default branch: {error.message}", hint=error.hint, subject=error.subject) from error
