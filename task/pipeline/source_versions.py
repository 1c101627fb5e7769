"""Reads from Git which version entries have, and which build it was, without deciding anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from task.errors import SourceError, TaskError
from task.model import Image, Memory, Reading, Snapshot, Subscription, Written
from task.pipeline.ask import Ask, live_reading
from task.pipeline.batches import at_once, by_branch, by_login, by_repository
from task.pipeline.decide import current_reading, missing_places, places, reading, state_of
from task.pipeline.job import Job, Terms
from task.pipeline.match import Matched
from task.pipeline.ports import World
from task.pipeline.promotion import SourceVersion
from task.pipeline.target import resolve
from task.pipeline.weigh import key_of
from task.policy.order import alike


def source_versions(subs: Sequence[Subscription], job: Job, world: World) -> list[SourceVersion]:
    """Return the version of each entry, reading several repositories at the same time. A failure concerns one entry."""
    found = [_known(sub, live_reading(sub)) for sub in subs if sub.method != "git"]
    asks = tuple(Ask(sub, (sub.entry.image,)) for sub in subs if sub.method == "git")
    groups = by_login(by_repository(Matched(asks, (), ()), replace(job, only=())), world)
    for of_group in at_once(lambda asks: _of_repository(asks, job.terms, world), groups):
        found += of_group
    return found


def _of_repository(asks: Sequence[Ask], terms: Terms, world: World) -> list[SourceVersion]:
    """Return the versions of the entries in one repository."""
    first = asks[0].subscription
    try:
        repository = world.repository(first.repo, first)
    except TaskError as error:
        return [_unknown(ask.subscription, error) for ask in asks]
    try:
        found = []
        for base, members in by_branch(repository, asks).items():
            snapshot = repository.snapshot(base, (place for ask in members for place in places(ask)))
            more = [place for ask in members for place in missing_places(snapshot, ask.subscription, terms)]
            if more:
                files = repository.read_more(snapshot, tuple(dict.fromkeys(more))).files
                snapshot = replace(snapshot, files={**snapshot.files, **files})
            found += [_version(snapshot, ask.subscription, terms) for ask in members]
        return found
    except TaskError as error:
        return [_unknown(ask.subscription, error) for ask in asks]
    finally:
        repository.close()


def _version(snapshot: Snapshot, sub: Subscription, terms: Terms) -> SourceVersion:
    try:
        kind = resolve(sub, snapshot)
        now = current_reading(snapshot, sub, kind, reading(snapshot, sub, terms))
        memory = state_of(snapshot, sub).images.get(key_of(sub), Memory())
    except TaskError as error:
        return _unknown(sub, error)
    return _known(sub, now, memory.written or Written())


def _known(sub: Subscription, now: Reading, newest: Written = Written()) -> SourceVersion:
    if not (now.tag or now.digest):
        error = SourceError(
            f"neither Git nor the cluster has a version of {sub.entry.image.name}",
            hint="wait for the first build of the source, or name another source with --from",
        )
        return _unknown(sub, error)
    # The state remembers the newest build, and after a rollback Git says another one.
    known = newest if alike(newest, now) else Written()
    digest = now.digest or known.digest or known.image_digest
    image = replace(sub.entry.image, tag=now.tag, digest=digest)
    return SourceVersion(sub, image, known.build, newest, pinned=bool(now.digest))


def _unknown(sub: Subscription, error: TaskError) -> SourceVersion:
    bare: Image = replace(sub.entry.image, tag="", digest="")
    return SourceVersion(sub, bare, error=error)
