"""JFrog Artifactory webhooks, domain `docker`.

These webhooks have no field for the registry's name. With the repository path method, the image's
name is HOST/REPOSITORY/IMAGE, which is the default here. For any other method, users must set
--images-registry. Source:
https://jfrog.com/help/r/jfrog-platform-administration-documentation/domain-docker (November 2026).
"""

from __future__ import annotations

from collections.abc import Iterator

from task.ci.events.event import Document, EventOrSkipped, ImageLocation, Skipped, pushed
from task.plain_data import mapping, text


def known(document: Document) -> bool:
    """Return whether this is an Artifactory webhook for this or any other domain."""
    if {"repo_key", "event_type"} <= set(document):
        return True
    return {"domain", "event_type"} <= set(document)


def read(document: Document, registry: str) -> Iterator[EventOrSkipped]:
    """Yield the webhook's event: the image that was pushed, or why the event is not a push of an
    image.
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
    # if the user sets the registry, the repository is just the image's name
    location = ImageLocation(host, repository, short=image_name)
    yield pushed(location, tag=text(data, "tag"), digest=digest, registry=registry)
