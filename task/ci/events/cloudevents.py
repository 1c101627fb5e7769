"""CloudEvents about images, created from custom templates, for example with EventBridge.

Image Updater's webhook also accepts them.

Source: argoproj-labs/argocd-image-updater, pkg/webhook/cloudevents.go and
config/examples/cloudevents (November 2026).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from task.ci.events.ecr import host_of
from task.ci.events.event import Document, Found, Named, PassedOver, is_digest, pushed
from task.plain_data import mapping, text

_ECR = re.compile(r"(?:urn|arn):aws[a-z-]*:ecr:([a-z0-9-]+):([0-9]+):.*")
_NO_PUSH = ("delete", "pull", "scan", "untag")
_OF_OTHERS = ("harbor.", "dev.cdevents.", "Microsoft.")


def known(document: Document) -> bool:
    """Return whether this is a CloudEvent about an image in a form without its own parser."""
    kind = text(document, "type")
    if not text(document, "specversion") or kind.startswith(_OF_OTHERS):
        return False
    return kind.startswith("com.amazon.ecr.") or "container" in kind or "image" in kind


def read(document: Document, registry: str) -> Iterator[Found]:
    """Yield the event."""
    kind = text(document, "type")
    data = mapping(document, "data")
    if any(word in kind.lower() for word in _NO_PUSH):
        yield PassedOver(f"its type is {kind!r}")
        return
    name_of_subject, _, tag_of_subject = text(document, "subject").partition(":")
    repository = text(data, "repositoryName") or text(data, "repository") or name_of_subject
    tag = text(data, "imageTag") or text(data, "tag") or tag_of_subject
    digest = text(data, "imageDigest") or text(data, "digest")
    if is_digest(tag_of_subject) and not digest:
        digest = tag_of_subject
    place = Named(_source_host(document, data), repository)
    yield pushed(place, tag, digest, document.get("time"), registry)


def _source_host(document: Document, data: Document) -> str:
    """Return the registry's host, from the data or else from the source, or "" if unknown."""
    registry = text(data, "registryUrl") or text(data, "registry")
    if registry:
        return registry
    source = text(document, "source")
    if ecr := _ECR.fullmatch(source):
        region, account = ecr.groups()
        return host_of(text(data, "registryId") or account, region)
    without_scheme = source.partition("://")[2] or source
    host = without_scheme.partition("/")[0]
    return host if "." in host or ":" in host else ""
