"""Pure code that checks whether the written image runs once its Application is healthy.

Synced and healthy means that Argo CD applied what is in Git, but not that the image runs. If no template reads a Helm
key, or Kustomize misreads an entry, the old image stays, and is healthy.
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
from task.text import and_more


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
    now: Callable[[Mapping[str, Any]], Image | None] = lambda _item: None


def expecting(found: Rollout, item: Mapping[str, Any], expected: Sequence[Expected]) -> Rollout:
    """Return a successful rollout again, as failed if an image runs only in other versions.

    That must last for a minute, because an operator whose resource has no health in Argo CD may just be replacing the
    pods. An image that does not run at all is a warning: there may be no replicas, or no job that is due.
    """
    if found.state != "synced-and-healthy":
        return found
    running = mapping(mapping(item, "status"), "summary").get("images")
    live = [image for one in (running if isinstance(running, list) else ()) if (image := live_image(str(one)))]
    warnings = []
    for one in expected:
        others = [image for image in live if image.identity in (one.image.identity, one.replaced)]
        wanted = replace(one.image, digest=one.image.digest or one.digest)
        if any(same(wanted, image) for image in others):
            continue
        if one.revision not in revisions_of(mapping(mapping(item, "status"), "sync")):
            now = one.now(item)
            if now is not None and (now.tag, now.digest) != (one.image.tag, one.image.digest):
                warnings.append(f"{one.image.name} was set to {now.version} meanwhile, no longer {one.image.version}")
                continue
        if not others:
            why = "it may have no replicas, or no job that is due; if it should run,"
            warnings.append(f"{one.image.reference} does not run in it: {why} look at {one.key}")
            continue
        versions = list(dict.fromkeys(image.version or "no tag" for image in others))
        because = f"synced and healthy, but {one.image.name} runs as {and_more(versions)} only, not as "
        because += f"{(wanted if any(image.tag == wanted.tag for image in others) else one.image).version}: "
        because += f"look at {one.key}"
        return replace(found, state="failed", because=because, hint=one.hint, sure=False, slow=True, stale=True)
    return replace(found, warning="; ".join(warnings))


def same(wanted: Image, running: Image) -> bool:
    """Tell whether a running image is the wanted one. If both have a digest, it decides."""
    if wanted.identity != running.identity:
        return False
    if wanted.digest and running.digest:
        return wanted.digest == running.digest
    return bool(wanted.tag) and wanted.tag == running.tag
