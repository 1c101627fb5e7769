"""Finds the promotions in a change by its commit messages, and checks that the sources actually
have the promoted versions.

A commit message only names the source. The claim must be true, but a true claim proves nothing
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
MOST = 500  # how many sources the commit messages may name


def sources_named(messages: Iterable[str]) -> tuple[str, ...]:
    """Return the Applications that commit messages name as promotion sources, in lines such as
    "Promoted-From: staging/web".
    """
    names: dict[str, None] = {}
    for message in messages:
        text = message.replace("\r\n", "\n").rstrip("\n")
        # Git only reads trailers from the last paragraph
        last_paragraph = text.rpartition("\n\n")[2]
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
    """Return the versions that a change writes, each with the source that it was promoted from, and
    the warnings.

    `names` are the sources named in the commit messages, and `subscribed` are all Applications. A
    version is `denied` if a named source tracks the image but has a different version, unless the
    change also writes the source's version.
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
    return with_source, _warn_of_missing_sources(missing_sources)


def _warn_of_missing_sources(names: Sequence[str]) -> tuple[Problem, ...]:
    """Return a warning about named sources that are not among the Applications, or () if all of
    them are.
    """
    if not names:
        return ()
    source_names = and_more([shortened(name, 100) for name in names])
    message = (
        f"the commit message says it promotes versions from {source_names}, but --applications does"
        " not include them"
    )
    hint = "add them to --applications; otherwise, these versions will be checked like any others"
    return (Problem(Trouble.warning("source", message, hint)),)


def _with_source(
    version: Version,
    in_sources: Sequence[SourceVersion],
    versions: Sequence[Version],
) -> Version:
    """Return the version with its source (`promoted`), or with `denied` if a named source has a
    different version. If no named source has the image, return the version unchanged.

    `in_sources` contains the sources' versions of all images, and `versions` are all versions that
    the change writes. If the change also writes a source's version elsewhere, that source does not
    deny this version.
    """
    app = version.touched.pair.effective.application.key
    image = version.image
    sources_of_image = [
        source_version
        for source_version in in_sources
        if source_version.source != app
        and source_version.subscription.entry.image.identity == image.identity
    ]
    for source_version in sources_of_image:
        if source_version.error is None and alike(source_version.image, image):
            return replace(version, promoted=source_version.promoted)

    # If the change writes a source's version to another entry, the message refers to that entry.
    sources_without_promotion = [
        source_version
        for source_version in sources_of_image
        if not _is_promoted(source_version, versions)
    ]
    if not sources_without_promotion:  # this version was only waiting alongside a promoted one
        return version
    denying_source = sources_without_promotion[0]
    if denying_source.error:
        return replace(version, denied=denying_source.error)
    because = (
        f"the commit message says it promotes {image.name} from {denying_source.source}, but"
        f" {denying_source.source} has {denying_source.image.version}, not {image.version}"
    )
    return replace(version, denied=Verdict("refuse", "source", because))


def _is_promoted(source_version: SourceVersion, versions: Sequence[Version]) -> bool:
    """Return whether the change also writes the version that the source has."""
    if source_version.error is not None:
        return False
    for version in versions:
        is_same_image = version.image.identity == source_version.image.identity
        if is_same_image and alike(source_version.image, version.image):
            return True
    return False
