"""Finds the promotions in a change by its commit message, and checks that the source has them.

A message only names the source. The claim must be true, but a true claim does not prove anything
else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from task.commands.promotion import SourceVersion, source_versions
from task.deciding.job import Job
from task.deciding.judged_changes import Version
from task.errors import Trouble
from task.landing.ports import World
from task.model import Problem, Subscribed, Subscription, Verdict
from task.policy.builds import alike
from task.text import and_more, shortened

TRAILER = "promoted-from:"
MOST = 500  # sources that commit messages may name


def sources_named(messages: Iterable[str]) -> tuple[str, ...]:
    """Return the Applications that commit messages name as promotion sources."""
    names: dict[str, None] = {}
    for message in messages:
        text = message.replace("\r\n", "\n").rstrip("\n")
        last_paragraph = text.rpartition("\n\n")[2]  # Git reads trailers only there
        for line in last_paragraph.split("\n"):
            if line.lower().startswith(TRAILER):
                _, _, name = line.partition(":")
                names[name.strip()] = None
    return tuple(names)[:MOST]


def with_sources(
    versions: Sequence[Version],
    names: Collection[str],
    subscribed: Sequence[Subscribed],
    job: Job,
    world: World,
) -> tuple[list[Version], tuple[Problem, ...]]:
    """Return the versions, each with the source that it was promoted from, and the warnings.

    `names` are the sources that the commit messages name. A version is denied if one of them tracks
    the image but has a different version.
    """
    if not names or not versions:
        return list(versions), ()

    images = {version.image.identity for version in versions}
    source_subs: list[Subscription] = []
    for item in subscribed:
        if item.application.key in names:
            source_subs += [sub for sub in item.subscriptions if sub.entry.image.identity in images]
    in_sources = source_versions(source_subs, job, world)

    apps = {item.application.key for item in subscribed}
    missing_sources = sorted(set(names) - apps)
    with_source = [_with_source(version, in_sources, versions) for version in versions]
    return with_source, _missing_sources(missing_sources)


def _missing_sources(names: Sequence[str]) -> tuple[Problem, ...]:
    """Return a warning about the named sources that are not among the Applications."""
    if not names:
        return ()
    listed = and_more([shortened(name, 100) for name in names])
    message = (
        f"the commit message says it promotes versions from {listed}, but --applications does not"
        " include them"
    )
    hint = "add them to --applications; otherwise, these versions will be checked like any others"
    return (Problem(Trouble.warning("source", message, hint)),)


def _with_source(
    version: Version,
    in_sources: Sequence[SourceVersion],
    versions: Sequence[Version],
) -> Version:
    """Return the version with its source, or denied if a named source has a different version.

    `in_sources` has the sources' versions of all images, and `versions` all versions that the
    change writes.
    """
    app = version.touched.pair.effective.application.key
    image = version.image
    givers = [
        giver
        for giver in in_sources
        if giver.source != app and giver.subscription.entry.image.identity == image.identity
    ]
    for giver in givers:
        if giver.error is None and alike(giver.image, image):
            return replace(version, promoted=giver.promoted)

    unmatched = [giver for giver in givers if not _is_promoted(giver, versions)]
    if not unmatched:  # this version was not promoted, but waited next to the promoted one
        return version
    giver = unmatched[0]
    if giver.error:
        return replace(version, denied=giver.error)
    because = (
        f"the commit message says it promotes {image.name} from {giver.source}, but"
        f" {giver.source} has {giver.image.version}, not {image.version}"
    )
    return replace(version, denied=Verdict("refuse", "source", because))


def _is_promoted(giver: SourceVersion, versions: Sequence[Version]) -> bool:
    """Return whether the change writes the version that the source has."""
    if giver.error is not None:
        return False
    for version in versions:
        is_same_image = version.image.identity == giver.image.identity
        if is_same_image and alike(giver.image, version.image):
            return True
    return False
