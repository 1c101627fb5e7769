"""CloudEvents about images that users create from their own templates, for example with
EventBridge.

Image Updater's webhook accepts these events, too.

Source: argoproj-labs/argocd-image-updater, pkg/webhook/cloudevents.go and
config/examples/cloudevents (November 2026).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from task.ci.events.ecr import host_of
from task.ci.events.event import Document, EventOrSkipped, ImageLocation, Skipped, is_digest, pushed
from task.plain_data import mapping, text

_ECR = re.compile(r"(?:urn|arn):aws[a-z-]*:ecr:([a-z0-9-]+):([0-9]+):.*")
_WORDS_OF_OTHER_TYPES = ("delete", "pull", "scan", "untag")
_TYPES_OF_OTHERS = ("harbor.", "dev.cdevents.", "Microsoft.")


def known(document: Document) -> bool:
    """Return whether this is a CloudEvent about an image. Formats that other modules parse, such as
    Harbor's, are excluded.
    """
    kind = text(document, "type")
    is_cloud_event = bool(text(document, "specversion"))
    if not is_cloud_event or kind.startswith(_TYPES_OF_OTHERS):
        return False
    return kind.startswith("com.amazon.ecr.") or "container" in kind or "image" in kind


def read(document: Document, registry: str) -> Iterator[EventOrSkipped]:
    """Yield the event: the pushed image, or the reason why the event is not a push.

    Key names vary between templates. Whatever the data lacks is taken from the subject, which has
    the form `REPOSITORY:TAG`.
    """
    kind = text(document, "type")
    if any(word in kind.lower() for word in _WORDS_OF_OTHER_TYPES):
        yield Skipped(f"its type is {kind!r}")
        return
    data = mapping(document, "data")
    subject_repository, _, subject_tag = text(document, "subject").partition(":")
    repository = text(data, "repositoryName") or text(data, "repository") or subject_repository
    tag = text(data, "imageTag") or text(data, "tag") or subject_tag
    digest = text(data, "imageDigest") or text(data, "digest")
    if not digest and is_digest(subject_tag):
        digest = subject_tag
    location = ImageLocation(_source_host(document, data), repository)
    yield pushed(location, tag=tag, digest=digest, at=document.get("time"), registry=registry)


def _source_host(document: Document, data: Document) -> str:
    """Return the registry's host, from the event's data or else from its source, or "" if unknown.

    The source may be an ECR repository's ARN or a URL.
    """
    registry = text(data, "registryUrl") or text(data, "registry")
    if registry:
        return registry
    source = text(document, "source")
    ecr_source = _ECR.fullmatch(source)
    if ecr_source:
        region, account = ecr_source.groups()
        return host_of(text(data, "registryId") or account, region)
    _, _, after_scheme = source.partition("://")
    host, _, _ = (after_scheme or source).partition("/")
    is_host = "." in host or ":" in host
    return host if is_host else ""
