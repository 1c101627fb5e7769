"""Checks whether the written images run once their Application is synced and healthy,
and says where to look if not.

Synced and healthy means that Argo CD applied what is in Git, but not that the image runs. If no
template reads a Helm key, or Kustomize misreads an entry, the old image stays, and is healthy.
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

_KEEP = "write write-back-method: git, or let the owner ignore the field"
Repositories = Callable[[str, Subscription | None], Repository]


@dataclass(frozen=True)
class Expected:
    """One image that must run."""

    image: Image
    key: str  # where to look if it does not run: "web.helm.image-tag (image.tag)"
    hint: str = ""  # what to look for
    revision: str = ""  # the commit that has the image; "" for a live Application
    digest: str = ""  # of the build, even if only its tag was written; "" if unknown
    replaced: str = ""  # another name for the image in the manifests
    # What the target says at a later revision, or the live Application now. None if unknown.
    current: Callable[[Mapping[str, Any]], Image | None] = lambda _item: None


def expected(landed: Sequence[LandedApplication], repository: Repositories) -> list[Expected]:
    """Return the images of one Application that were written, or were there before."""
    images = []
    for item in landed:
        for decision in item.decisions:
            sub = decision.subscription
            image = decision.candidate
            if not (image.tag or image.digest) or decision.verdict not in ("update", "unchanged"):
                continue
            key, hint = _place(decision)
            replaced = live_image(sub.keys.kustomize_name) if sub.keys.kustomize_name else None
            images.append(
                Expected(
                    image=image,
                    key=key,
                    hint=hint,
                    revision=item.commit,
                    digest=decision.built,
                    replaced=replaced.identity if replaced else "",
                    current=(
                        _at_the_tip(decision, repository)
                        if item.commit
                        else partial(_live, decision)
                    ),
                )
            )
    return images


def _place(decision: Decision) -> tuple[str, str]:
    """Return where to look if the image does not run, and what for: the annotation with its key,
    or the file.
    """
    sub = decision.subscription
    alias = f"{sub.entry.alias}." if sub.entry.alias else ""
    match _tool(decision):
        case "helm":
            key = sub.keys.spec or sub.keys.tag or "image.tag"
            name = "helm.image-spec" if sub.keys.spec else "helm.image-tag"
            return f"{alias}{name} ({key})", f"does a template of the chart read {key}?"
        case "kustomize":
            name = sub.keys.kustomize_name or sub.entry.image.name
            both = decision.candidate.digest and decision.candidate.tag
            more = " Kustomize before 5 misreads tag@digest" if both else ""
            return f"{alias}kustomize.image-name ({name})", f"do the manifests name {name}?{more}"
        case "plugin":
            key = sub.keys.spec or sub.keys.tag or "its variables"
            name = "plugin.image-spec" if sub.keys.spec else "plugin.image-tag"
            return f"{alias}{name} ({key})", f"does the plugin read {key}?"
        case _:
            return decision.current.file or "what was written", "does the Application deploy it?"


def _tool(decision: Decision) -> str:
    """Return what makes the Application's manifests of the value that was written, or ""."""
    if decision.kind == "live":
        source = decision.subscription.source
        section = source.kind or source.section
        return {"Helm": "helm", "Kustomize": "kustomize"}.get(section, "plugin")
    tools = {
        "helm-override": "helm",
        "helmvalues": "helm",
        "kustomize-override": "kustomize",
        "kustomization": "kustomize",
        "plugin-override": "plugin",
    }
    return tools.get(str(decision.kind), "")


def _live(decision: Decision, item: Mapping[str, Any]) -> Image | None:
    reading = _live_reading(decision, item)
    return _image(decision, reading) if reading else None


def _live_reading(decision: Decision, item: Mapping[str, Any]) -> Reading | None:
    sub = decision.subscription
    sources = sub.application.sources
    index = sources.index(sub.source) if sub.source in sources else 0
    try:
        return read_live(item, index, target_of(sub, "live", carry=False))
    except TaskError:
        return None


def reverted(decisions: Sequence[Decision], item: Mapping[str, Any]) -> Rollout | None:
    """Return a failure if a live Application has again what it had before the patch of this run.

    Its pods still run the new image for a while, so they say nothing. Another version is no
    failure, because a later run wrote it.
    """
    for decision in decisions:
        reading = _live_reading(decision, item) if decision.verdict == "update" else None
        if reading and (reading.tag, reading.digest) in (
            ("", ""),
            (decision.current.tag, decision.current.digest),
        ):
            owner = (
                f"ApplicationSet {set_of(item)}"
                if set_of(item)
                else "the owner of the Application, such as a parent"
            )
            because = (
                f"the live Application no longer has {decision.candidate.reference}: {owner}"
                " reverted the patch"
            )
            compared = text(item, "status", "reconciledAt")
            return Rollout("failed", because, _KEEP, sure=False, compared=compared)
    return None


def _at_the_tip(
    decision: Decision,
    repository: Repositories,
) -> Callable[[Mapping[str, Any]], Image | None]:
    """Return what the branch has now.

    It is read once, because a later commit is the reason for the question.
    """

    @once
    def said() -> Image | None:
        sub = decision.subscription
        try:
            with closing(repository(sub.repo, sub)) as opened:
                snapshot = opened.snapshot(decision.branch, target_places(sub))
            kind = resolve(sub, snapshot)
            return _image(decision, EDITORS[kind].read(snapshot.files, target_of(sub, kind)))
        except TaskError:
            return None

    return lambda _item: said()


def _image(decision: Decision, reading: Reading) -> Image | None:
    """Return the image of a reading, or None if it has none."""
    image = decision.candidate
    return (
        Image(image.name, image.registry, image.repository, reading.tag, reading.digest)
        if reading.tag or reading.digest
        else None
    )


def expecting(rollout: Rollout, item: Mapping[str, Any], expected: Sequence[Expected]) -> Rollout:
    """Return a successful rollout again, as failed if an image runs only in other versions.

    That must last for a minute, because an operator whose resource has no health in Argo CD may
    just be replacing the pods. An image that does not run at all is a warning: there may be no
    replicas, or no job that is due.
    """
    if rollout.state != "synced-and-healthy":
        return rollout
    texts = elements(item, "status", "summary", "images")
    live = [image for text in texts if (image := live_image(str(text)))]
    warnings = []
    for wish in expected:
        others = [other for other in live if other.identity in (wish.image.identity, wish.replaced)]
        wanted = replace(wish.image, digest=wish.image.digest or wish.digest)
        if any(same(wanted, other) for other in others):
            continue
        if meanwhile := _set_meanwhile(wish, item):
            warnings.append(meanwhile)
        elif not others:
            why = "it may have no replicas, or no job that is due; if it should run,"
            warnings.append(f"{wish.image.reference} does not run in it: {why} look at {wish.key}")
        else:
            return replace(
                rollout,
                state="failed",
                because=_runs_as(wish, wanted, others),
                hint=wish.hint,
                sure=False,
                slow=True,
                stale=True,
            )
    return replace(rollout, warning="; ".join(warnings))


def _set_meanwhile(expected: Expected, item: Mapping[str, Any]) -> str:
    """Return the version that somebody has set since, in a sentence, or ""."""
    if expected.revision in revisions_of(mapping(item, "status", "sync")):
        return ""
    image = expected.image
    current = expected.current(item)
    if current is None or (current.tag, current.digest) == (image.tag, image.digest):
        return ""
    return f"{image.name} was set to {current.version} meanwhile, instead of {image.version}"


def _runs_as(expected: Expected, wanted: Image, others: Sequence[Image]) -> str:
    """Return in which versions an image runs, and in which it should."""
    versions = list(dict.fromkeys(other.version or "no tag" for other in others))
    image = wanted if any(other.tag == wanted.tag for other in others) else expected.image
    return (
        f"synced and healthy, but {image.name} runs as {and_more(versions)} only, "
        f"not as {image.version}: look at {expected.key}"
    )


def same(wanted: Image, running: Image) -> bool:
    """Tell whether a running image is the wanted one. If both have a digest, it decides."""
    if wanted.identity != running.identity:
        return False
    if wanted.digest and running.digest:
        return wanted.digest == running.digest
    return bool(wanted.tag) and wanted.tag == running.tag
