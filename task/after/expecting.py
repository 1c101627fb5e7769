"""Checking whether the written images are running once their Application is synced and healthy, and
reporting where to look if they are not.

Synced and healthy means that Argo CD has applied the files in Git, not that the image is running.
If no template reads a Helm key, or Kustomize misreads an entry, the old image keeps running and is
healthy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from task.argocd.owners import set_of
from task.argocd.rollout import Rollout, revisions_of
from task.deciding.job import LandedApplication
from task.deciding.target import resolve, target_of, target_places
from task.editors import EDITORS
from task.editors.live import read as read_live
from task.errors import TaskError
from task.image import live_image
from task.landing.ports import Repository
from task.model import Decision, Image, Reading, Subscription
from task.plain_data import elements, mapping, text
from task.text import and_more
from task.threads import once

_REVERTED_HINT = "set write-back-method: git, or have the owner ignore the field"
Repositories = Callable[[str, Subscription | None], Repository]


@dataclass(frozen=True)
class Expected:
    """An image that should be running."""

    image: Image
    key: str  # where to look if it is not running: "web.helm.image-tag (image.tag)"
    hint: str = ""  # what to look for there
    revision: str = ""  # the commit that contains the image; "" for a live Application
    digest: str = ""  # the build's digest, even if only its tag was written; "" if unknown
    # the name in the manifests that Kustomize replaces with the image's name, or ""
    replaced: str = ""
    # returns the image that is now on the branch or in the live Application; None if unknown
    current: Callable[[Mapping[str, Any]], Image | None] = lambda _item: None


def expected(landed: Sequence[LandedApplication], repository: Repositories) -> list[Expected]:
    """Return one Application's images that should be running: those that were written, and those
    that were already in Git.

    `landed` contains the decisions about the Application's images, by repository and commit.
    """
    images = []
    for item in landed:
        for decision in item.decisions:
            has_version = bool(decision.candidate.version)
            is_in_effect = decision.verdict in ("update", "unchanged")
            if has_version and is_in_effect:
                images.append(_expected_image(decision, item.commit, repository))
    return images


def _expected_image(decision: Decision, commit: str, repository: Repositories) -> Expected:
    """Return the image that should be running after a decision, along with what is needed to tell
    later whether it has changed. `commit` is the commit that sets the image, or "" for a live
    Application.
    """
    key, hint = _where_to_look(decision)
    kustomize_name = decision.subscription.keys.kustomize_name
    replaced = live_image(kustomize_name) if kustomize_name else None
    current: Callable[[Mapping[str, Any]], Image | None] = partial(_live_image, decision)
    if commit:
        current = _reader_of_branch(decision, repository)
    return Expected(
        image=decision.candidate,
        key=key,
        hint=hint,
        revision=commit,
        digest=decision.built,
        replaced=replaced.identity if replaced else "",
        current=current,
    )


def _where_to_look(decision: Decision) -> tuple[str, str]:
    """Return where to look if the image is not running, such as "web.helm.image-tag (image.tag)" or
    a file, and a question that points out what to look for.
    """
    sub = decision.subscription
    alias = f"{sub.entry.alias}." if sub.entry.alias else ""
    match _rendering_tool(decision):
        case "helm":
            key = sub.keys.spec or sub.keys.tag or "image.tag"
            name = "helm.image-spec" if sub.keys.spec else "helm.image-tag"
            return f"{alias}{name} ({key})", f"does a chart template read {key}?"
        case "kustomize":
            name = sub.keys.kustomize_name or sub.entry.image.name
            hint = f"do the manifests use {name}?"
            if decision.candidate.digest and decision.candidate.tag:
                hint = f"{hint} Kustomize before 5 misreads tag@digest"
            return f"{alias}kustomize.image-name ({name})", hint
        case "plugin":
            key = sub.keys.spec or sub.keys.tag or "its variables"
            name = "plugin.image-spec" if sub.keys.spec else "plugin.image-tag"
            return f"{alias}{name} ({key})", f"does the plugin read {key}?"
        case _:
            return decision.current.file or "the written file", "does the Application deploy it?"


def _rendering_tool(decision: Decision) -> str:
    """Return the tool that renders the manifests from the written value ("helm", "kustomize", or
    "plugin"), or "" if the value is in the manifests themselves.
    """
    if decision.kind == "live":
        source = decision.subscription.source
        source_kind = source.kind or source.section
        return {"Helm": "helm", "Kustomize": "kustomize"}.get(source_kind, "plugin")
    tools = {
        "helm-override": "helm",
        "helmvalues": "helm",
        "kustomize-override": "kustomize",
        "kustomization": "kustomize",
        "plugin-override": "plugin",
    }
    return tools.get(str(decision.kind), "")


def _live_image(decision: Decision, item: Mapping[str, Any]) -> Image | None:
    """Return the image in the live Application, or None if it cannot be read."""
    reading = _live_reading(decision, item)
    return _image_in_reading(decision, reading) if reading else None


def _live_reading(decision: Decision, item: Mapping[str, Any]) -> Reading | None:
    """Return the tag and the digest of the image in the live Application `item`, or None if they
    cannot be read.
    """
    sub = decision.subscription
    sources = sub.application.sources
    index = sources.index(sub.source) if sub.source in sources else 0
    try:
        return read_live(item, index, target_of(sub, "live", carry=False))
    except TaskError:
        return None


def reverted(decisions: Sequence[Decision], item: Mapping[str, Any]) -> Rollout | None:
    """Return a failed rollout if the live Application `item` is back at the version that it had
    before this run's patch, or has no version. Otherwise, return None.

    The pods keep running the new image for a while, so they cannot show this. Any other version is
    not a failure, because a later run must have written it.
    """
    for decision in decisions:
        if decision.verdict != "update":
            continue
        reading = _live_reading(decision, item)
        if reading is None:
            continue
        is_unset = not reading.tag and not reading.digest
        before = decision.current
        is_as_before = (reading.tag, reading.digest) == (before.tag, before.digest)
        if is_unset or is_as_before:
            return _reverted_by_owner(decision, item)
    return None


def _reverted_by_owner(decision: Decision, item: Mapping[str, Any]) -> Rollout:
    """Return the failed rollout for an update that was reverted in the live Application `item`."""
    application_set = set_of(item)
    owner = "the owner of the Application, such as a parent"
    if application_set:
        owner = f"ApplicationSet {application_set}"
    because = (
        f"the live Application no longer uses {decision.candidate.reference}: {owner}"
        " reverted the patch"
    )
    compared_at = text(item, "status", "reconciledAt")
    return Rollout("failed", because, hint=_REVERTED_HINT, sure=False, compared_at=compared_at)


def _reader_of_branch(
    decision: Decision,
    repository: Repositories,
) -> Callable[[Mapping[str, Any]], Image | None]:
    """Return a function that returns the image on the decision's branch, or None if it cannot be
    read.

    The function reads the branch on the first call only. It ignores its argument, the live
    Application, which other functions in `Expected.current` need.
    """

    @once
    def image_on_branch() -> Image | None:
        """Read the image from the tip of the branch."""
        sub = decision.subscription
        try:
            with closing(repository(sub.repo, sub)) as opened:
                snapshot = opened.snapshot(decision.branch, target_places(sub))
            kind = resolve(sub, snapshot)
            reading = EDITORS[kind].read(snapshot.files, target_of(sub, kind))
            return _image_in_reading(decision, reading)
        except TaskError:
            return None

    return lambda _item: image_on_branch()


def _image_in_reading(decision: Decision, reading: Reading) -> Image | None:
    """Return the decision's image with the tag and the digest from a reading (what a file or a live
    Application contains), or None if the reading has neither.
    """
    if not reading.tag and not reading.digest:
        return None
    image = decision.candidate
    return Image(
        name=image.name,
        registry=image.registry,
        repository=image.repository,
        tag=reading.tag,
        digest=reading.digest,
    )


def expecting(rollout: Rollout, item: Mapping[str, Any], images: Sequence[Expected]) -> Rollout:
    """Return the rollout of the Application `item`, marked as failed if only other versions of an
    expected image are running.

    The failure is marked as unsure and slow, so it counts only if it persists: an operator whose
    resource has no health in Argo CD may still be replacing the pods. An image that was changed
    since this run wrote it, or that is not running at all, is only a warning.
    """
    if rollout.state != "synced-and-healthy":
        return rollout
    references = elements(item, "status", "summary", "images")
    live_images = [image for image in map(live_image, map(str, references)) if image]
    warnings = []
    for entry in images:
        # if Kustomize does not replace the name, the old image still uses the old name
        names = (entry.image.identity, entry.replaced)
        running = [image for image in live_images if image.identity in names]
        # even if only the tag was written, the build's digest may be known
        wanted = replace(entry.image, digest=entry.image.digest or entry.digest)
        if any(same(wanted, image) for image in running):
            continue

        change_text = _changed_since(entry, item)
        if change_text:
            warnings.append(change_text)
        elif not running:
            why = "it may have no replicas, or no job may be due; if it should be running,"
            warnings.append(f"{entry.image.reference} is not running: {why} check {entry.key}")
        else:
            return replace(
                rollout,
                state="failed",
                because=_mismatch_text(entry, wanted, running),
                hint=entry.hint,
                sure=False,
                slow=True,
                stale=True,
            )
    return replace(rollout, warning="; ".join(warnings))


def _changed_since(expected: Expected, item: Mapping[str, Any]) -> str:
    """Return a sentence about the different version that someone has set since this run wrote the
    expected one, or "" if there is none, or if the current version is unknown. `item` is the live
    Application.
    """
    synced_revisions = revisions_of(mapping(item, "status", "sync"))
    if expected.revision in synced_revisions:  # Argo CD deploys this commit, not a later one
        return ""
    image = expected.image
    current = expected.current(item)
    if current is None:
        return ""
    if (current.tag, current.digest) == (image.tag, image.digest):
        return ""
    return f"{image.name} has since been set to {current.version} instead of {image.version}"


def _mismatch_text(expected: Expected, wanted: Image, running: Sequence[Image]) -> str:
    """Return a sentence about the versions of an image that are running instead of the expected
    one.

    `wanted` is the expected image with its digest.
    """
    versions = list(dict.fromkeys(image.version or "no tag" for image in running))
    # if the tag is running, only the digest is wrong, so show the expected digest
    tag_is_running = any(image.tag == wanted.tag for image in running)
    shown_image = wanted if tag_is_running else expected.image
    return (
        f"synced and healthy, but {shown_image.name} is running only as {and_more(versions)}, "
        f"not as {shown_image.version}: check {expected.key}"
    )


def same(wanted: Image, running: Image) -> bool:
    """Return whether a running image is the wanted one. If both have a digest, the digests are
    compared.
    """
    if wanted.identity != running.identity:
        return False
    if wanted.digest and running.digest:
        return wanted.digest == running.digest
    return wanted.tag != "" and wanted.tag == running.tag
