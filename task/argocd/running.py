"""Pure: whether the image that was written runs once its Application is healthy.

Synced and healthy says that what Git holds was applied, not that it makes the image run: a Helm key that no template
reads, or a Kustomize that misreads an entry, leaves the old image where it is, in good health.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from task.argocd.rollout import Rollout
from task.argocd.rollout_causes import mapping
from task.argocd.rollout_view import revisions_of
from task.image import live_image
from task.model import Image

FEW = 5  # versions that are named


@dataclass(frozen=True)
class Expected:
    """One image that must run."""

    image: Image
    key: str  # where a person looks if it does not: "web.helm.image-tag (image.tag)"
    hint: str = ""  # and what for
    revision: str = ""  # the commit that says so; "" for a live Application
    replaced: str = ""  # another name that it has in the manifests
    # What the target says at a later revision, or the live Application by now: None where that is not known.
    now: Callable[[Mapping[str, Any]], Image | None] = lambda _item: None


def expecting(found: Rollout, item: Mapping[str, Any], expected: Sequence[Expected]) -> Rollout:
    """A rollout that ended well, once more: failed where an image runs with other versions only.

    That must last for a minute before it counts: an operator whose resource has no health in Argo CD may just be
    replacing the pods. An image that does not run at all is a warning: there may be no replicas, or no job that is due.
    """
    if found.state != "synced-and-healthy":
        return found
    running = mapping(mapping(item, "status"), "summary").get("images")
    live = [image for one in (running if isinstance(running, list) else ()) if (image := live_image(str(one)))]
    warnings = []
    for one in expected:
        others = [image for image in live if image.identity in (one.image.identity, one.replaced)]
        if any(same(one.image, image) for image in others):
            continue
        if one.revision not in revisions_of(mapping(mapping(item, "status"), "sync")):
            now = one.now(item)
            if now is not None and (now.tag, now.digest) != (one.image.tag, one.image.digest):
                warnings.append(f"{one.image.name} was set to {now.version} meanwhile, no longer {one.image.version}")
                continue
        if not others:
            why = "no replicas, or no job that is due?"
            warnings.append(f"{one.image.reference} does not run in it: {why} Else look at {one.key}")
            continue
        versions = list(dict.fromkeys(image.version or "no tag" for image in others))
        more = f" and {len(versions) - FEW} more" if len(versions) > FEW else ""
        because = f"synced and healthy, but {one.image.name} runs as {', '.join(versions[:FEW])}{more} only, not as "
        because += f"{one.image.version}: look at {one.key}"
        return replace(found, state="failed", because=because, hint=one.hint, sure=False, slow=True, stale=True)
    return replace(found, warning="; ".join(warnings))


def same(wanted: Image, running: Image) -> bool:
    """Whether a running image is the wanted one. A digest decides where both have one."""
    if wanted.identity != running.identity:
        return False
    if wanted.digest and running.digest:
        return wanted.digest == running.digest
    return bool(wanted.tag) and wanted.tag == running.tag
