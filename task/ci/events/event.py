"""What the parsers of events share: the image that was pushed, or why an event is not a push."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from task.errors import Malformed
from task.image import parse_image
from task.model import Event
from task.timestamps import of_unix, utc

Document = Mapping[str, Any]

MANIFESTS = frozenset(
    (
        "application/vnd.docker.distribution.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v1+prettyjws",
        "application/vnd.docker.distribution.manifest.v2+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.oci.image.index.v1+json",
    )
)
# The configs of images. A chart, a signature and an attestation have others.
CONFIGS = frozenset(
    (
        "application/vnd.docker.container.image.v1+json",
        "application/vnd.oci.image.config.v1+json",
    )
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
# cosign's tags for what it attaches to an image, and the fallback tag of the referrers API.
_ATTACHED = re.compile(r"sha(?:256|512)-[0-9a-f]{64,128}(?:\.[a-z]+)?")


class PassedOver(NamedTuple):
    """An event that is not a push of a tagged image."""

    why: str


Found = Event | PassedOver


@dataclass(frozen=True)
class Events:
    """What was read: the pushes in order, and why each other event was passed over."""

    pushes: tuple[Event, ...] = ()
    passed_over: tuple[str, ...] = ()

    def plus(self, other: Events) -> Events:
        """Return both together."""
        return Events(self.pushes + other.pushes, self.passed_over + other.passed_over)


UNTAGGED = PassedOver("it has no tag; an index or a tag follows")


class Named(NamedTuple):
    """Where an event says that its image is. The user may name the registry instead."""

    host: str  # "" if the event does not say it
    repository: str
    short: str = ""  # the repository below the registry that the user names; "" is the same


def pushed(
    place: Named,
    tag: str,
    digest: str = "",
    at: object = None,
    registry: str = "",
) -> Found:
    """Return the event of a push.

    `registry` is what the user says about the registry's name, or "".

    Raises `Malformed` if that is not an image that a registry would accept.
    """
    if not tag or is_digest(tag):
        return UNTAGGED
    if _ATTACHED.fullmatch(tag):
        return PassedOver("it is a signature, an attestation or an SBOM")
    host = place.host.partition("://")[2] or place.host
    host = registry or host.strip("/")
    if not host:
        hint = "say where its images are: --images-registry HOST[:PORT][/PATH]"
        raise Malformed("it does not name its registry", hint)
    repository = place.short if registry and place.short else place.repository
    image = parse_image(f"{host}/{repository}:{tag}")
    if digest and not is_digest(digest):
        raise Malformed("its digest is not valid", "it has to be sha256: and 64 digits 0-9a-f")
    return Event(replace(image, digest=digest), at=time_of(at))


def is_digest(text: str) -> bool:
    """Tell whether a text is a digest."""
    return _DIGEST.fullmatch(text) is not None


def time_of(value: object) -> str:
    """Return a text, or seconds since 1970, as RFC 3339 in UTC; "" for anything else."""
    try:
        if isinstance(value, str):
            return utc(value)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return of_unix(value)
    except Malformed:
        pass
    return ""
