"""Code shared by the event parsers, which return the pushed image, or the reason why an event is
not a push.
"""

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
# Media types of image configs. Charts, signatures, and attestations have other types.
CONFIGS = frozenset(
    (
        "application/vnd.docker.container.image.v1+json",
        "application/vnd.oci.image.config.v1+json",
    )
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
# The tags that cosign uses for signatures and attestations, and the referrers API's fallback tag.
_ATTACHED = re.compile(r"sha(?:256|512)-[0-9a-f]{64,128}(?:\.[a-z]+)?")


class Skipped(NamedTuple):
    """An event that is not a push of a tagged image."""

    why: str


EventOrSkipped = Event | Skipped


@dataclass(frozen=True)
class Events:
    """The pushes, in order, and the reasons why the other events were skipped."""

    pushes: tuple[Event, ...] = ()
    passed_over: tuple[str, ...] = ()

    def plus(self, other: Events) -> Events:
        """Return the concatenation of these and other events."""
        return Events(self.pushes + other.pushes, self.passed_over + other.passed_over)


UNTAGGED = Skipped("it has no tag; an event for the index or tag will follow")


class ImageLocation(NamedTuple):
    """The location of an event's image. A registry set by the user replaces the host."""

    host: str  # "" if the event does not include the host
    repository: str
    short: str = ""  # the repository to use if the user sets the registry; "" if it does not differ


def pushed(
    location: ImageLocation,
    tag: str,
    digest: str = "",
    at: object = None,
    registry: str = "",
) -> EventOrSkipped:
    """Return the event for a pushed image, or `Skipped` if it has no tag or is not an image, but a
    signature, for example.

    `at` is the event's time in any format. `registry` is the registry's name if the user has set
    one (which replaces the host in `location`), or "". Raises `Malformed` if the host is unknown,
    or if the image or its digest is invalid.
    """
    if not tag or is_digest(tag):
        return UNTAGGED
    if _ATTACHED.fullmatch(tag):
        return Skipped("it is a signature, an attestation, or an SBOM")
    repository = location.repository
    if registry:
        host = registry
        repository = location.short or repository
    else:
        _, _, after_scheme = location.host.partition("://")
        host = (after_scheme or location.host).strip("/")
    if not host:
        hint = "set its images' registry: --images-registry HOST[:PORT][/PATH]"
        raise Malformed("it does not include the registry", hint)
    image = parse_image(f"{host}/{repository}:{tag}")
    if digest and not is_digest(digest):
        raise Malformed(
            "its digest is not valid",
            "use sha256: followed by 64 hex digits, or sha512: followed by 128",
        )
    return Event(replace(image, digest=digest), at=time_of(at))


def is_digest(text: str) -> bool:
    """Return whether a string is a digest."""
    return _DIGEST.fullmatch(text) is not None


def time_of(value: object) -> str:
    """Convert a time string, or a number of seconds since 1970, to RFC 3339 in UTC. Return "" for
    any other value.
    """
    try:
        if isinstance(value, str):
            return utc(value)
        # in Python, a bool is also an int
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return of_unix(value)
    except Malformed:
        pass
    return ""
