"""JFrog Artifactory webhooks for the domain `docker`.

These webhooks do not contain the registry's name. With Artifactory's repository path method, an
image's name is HOST/REPOSITORY/IMAGE, which is the default here. With any other method, users must
set --images-registry. Source:
https://jfrog.com/help/r/jfrog-platform-administration-documentation/domain-docker (November 2026).
"""

from __future__ import annotations

from collections.abc import Iterator

from task.ci.events.event import Document, EventOrSkipped, ImageLocation, Skipped, pushed
from task.plain_data import mapping, text


def known(document: Document) -> bool:
    """Return whether this is an Artifactory webhook, for `docker` or any other domain."""
    if {"repo_key", "event_type"} <= set(document):
        return True
    return {"domain", "event_type"} <= set(document)


def read(document: Document, registry: str) -> Iterator[EventOrSkipped]:
    """Yield the webhook's event: the pushed image, or the reason why the event is not an image
    push.
    """
    data = mapping(document, "data") or document
    domain = text(document, "domain") or "docker"
    kind = text(document, "event_type")
    if domain != "docker" or kind != "pushed":
        yield Skipped(f"it is {domain} {kind}")
        return
    image_name = text(data, "image_name")
    checksum = text(data, "sha256")
    digest = f"sha256:{checksum}" if checksum else ""
    _, _, after_scheme = text(document, "jpd_origin").partition("://")
    host, _, _ = after_scheme.partition("/")
    repository = f"{text(data, 'repo_key')}/{image_name}"
    # if the user sets the registry, the repository is just the image name
    location = ImageLocation(host, repository, short=image_name)
    yield pushed(location, tag=text(data, "tag"), digest=digest, registry=registry)
