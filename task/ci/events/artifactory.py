"""JFrog Artifactory webhooks, domain `docker`.

These webhooks have no field for the registry's name. With the path method, the image's name is
HOST/REPOSITORY/IMAGE, which is the default here. For any other method, set --images-registry.
Source: https://jfrog.com/help/r/jfrog-platform-administration-documentation/domain-docker (November
2026).
"""

from __future__ import annotations

from collections.abc import Iterator

from task.ci.events.event import Document, Found, Named, PassedOver, pushed
from task.plain_data import mapping, text


def known(document: Document) -> bool:
    """Return whether this is an Artifactory webhook for this or any other domain."""
    if {"repo_key", "event_type"} <= set(document):
        return True
    return {"domain", "event_type"} <= set(document)


def read(document: Document, registry: str) -> Iterator[Found]:
    """Yield the webhook's event."""
    data = mapping(document, "data") or document
    domain = text(document, "domain") or "docker"
    kind = text(document, "event_type")
    if (domain, kind) != ("docker", "pushed"):
        yield PassedOver(f"it is {domain} {kind}")
        return
    image = text(data, "image_name")
    checksum = text(data, "sha256")
    host = text(document, "jpd_origin").partition("://")[2].partition("/")[0]
    place = Named(host, f"{text(data, 'repo_key')}/{image}", short=image)
    digest = f"sha256:{checksum}" if checksum else ""
    yield pushed(place, text(data, "tag"), digest, registry=registry)
