"""Parses manifests and image configs, to find an image's platforms, date, and labels."""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from task.errors import RegistryError
from task.plain_data import mapping, parsed_json, text, texts

INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
IMAGES = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
SIGNED = "application/vnd.docker.distribution.manifest.v1+prettyjws"
# Always request all types. Without the right type, Docker's registry 2.8 returns 404 for an OCI
# manifest or index. If only `manifest.v2` is requested, it returns the amd64 member's digest for a
# manifest list.
ACCEPT = ", ".join((*INDEXES, *IMAGES, SIGNED))
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}", re.ASCII)
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt"
    r" ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]+))?([Zz]|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)
_NEVER = "0001-01-01T"  # the date of Go's zero time
_CREATED = "org.opencontainers.image.created"


@dataclass(frozen=True)
class Config:
    """The facts from an image's config."""

    created: str = ""  # RFC 3339 in UTC; "" if there is no date
    platform: str = ""  # os/arch[/variant]
    labels: Mapping[str, str] = field(default_factory=dict)


class Member(NamedTuple):
    """An image: either the only image in its manifest, or a member of an index."""

    digest: str  # the digest of the image's manifest
    platform: str = ""  # "" if the index does not specify it
    config: str = ""  # the config's digest; "" until the image's manifest has been read
    created: str = ""  # the date in the manifest itself, for artifacts without a config


@dataclass(frozen=True)
class Manifest:
    """The manifest that a registry stores under a tag or digest."""

    digest: str
    media_type: str
    data: Mapping[str, Any]

    @property
    def is_index(self) -> bool:
        """Whether the manifest is an index, which lists several images."""
        # `mediaType` is optional in OCI manifests
        kind = text(self.data.get("mediaType")) or self.media_type
        if kind in INDEXES:
            return True
        is_unknown_kind = kind not in (*IMAGES, SIGNED)
        return is_unknown_kind and "manifests" in self.data

    @property
    def is_old(self) -> bool:
        """Whether the manifest uses Docker's schema 1, which has no config."""
        return self.data.get("schemaVersion") == 1


def is_digest(text: str) -> bool:
    """Return whether a string is a digest whose algorithm is known, so that content can be verified
    against it.
    """
    return bool(_DIGEST.fullmatch(text))


def digest_of(body: bytes, algorithm: str = "sha256") -> str:
    """Return the digest of `body`."""
    return f"{algorithm}:{hashlib.new(algorithm, body).hexdigest()}"


def signed_payload(body: bytes, data: Mapping[str, Any]) -> bytes:
    """Return the part of a schema 1 manifest that is covered by its digest: everything except its
    signatures. `body` contains the manifest's bytes, and `data` is the parsed JSON.

    If the signatures cannot be found, return all of `body`.
    """
    # The protected header contains the position at which Docker inserted the signatures
    # (`formatLength`), and the bytes that follow them (`formatTail`).
    try:
        header = parsed_json(_decoded_without_padding(data["signatures"][0]["protected"]))
        tail = header["formatTail"]
        before_signatures = body[: int(header["formatLength"])]
        return before_signatures + _decoded_without_padding(tail)
    except (LookupError, TypeError, ValueError):
        return body


def _decoded_without_padding(text: str) -> bytes:
    """Decode base64 whose trailing "=" characters were omitted."""
    padding = "=" * (-len(text) % 4)
    return urlsafe_b64decode(text + padding)


def members(manifest: Manifest) -> tuple[Member, ...]:
    """Return a manifest's members: the image itself, or the entries of an index. Attestations and
    other artifacts in an index are omitted.

    Raises `RegistryError` for an index without a list of manifests.
    """
    data = manifest.data
    if not manifest.is_index:
        image = Member(
            digest=manifest.digest,
            config=text(data, "config", "digest"),
            created=utc_time(text(data, "annotations", _CREATED)),
        )
        return (image,)
    entries = data.get("manifests")
    if not isinstance(entries, list):
        raise RegistryError(
            "the registry's index is invalid: it has no list of manifests",
            hint="push the image again",
        )
    return tuple(
        Member(digest=entry["digest"], platform=_platform(entry.get("platform")))
        for entry in entries
        if _is_image(entry)
    )


def history_config(data: Mapping[str, Any]) -> Config:
    """Return the config from the newest history entry of a schema 1 manifest."""
    try:
        return read_config(parsed_json(data["history"][0]["v1Compatibility"]))
    except (LookupError, TypeError, ValueError):
        return Config()


def read_config(data: Any) -> Config:
    """Parse an image config. Missing or malformed parts result in empty fields."""
    config = mapping(data)
    # An image config without `os` is for Linux. A config that also lacks an architecture belongs to
    # an artifact.
    default_os = "linux" if config.get("architecture") else ""
    os = config.get("os") or default_os
    return Config(
        created=utc_time(text(config, "created")),
        platform=_platform({**config, "os": os}),
        labels=texts(config, "config", "Labels"),
    )


def utc_time(text: str) -> str:
    """Convert an RFC 3339 time to UTC, keeping all digits of the fraction:
    `2024-05-01T12:00:00.123456789Z`. Return "" for any other text, or for Go's zero time.
    """
    match = _TIME.fullmatch(text.strip())
    if not match or text.startswith(_NEVER):
        return ""
    day, clock, fraction, zone = match.groups()
    offset = zone.upper().replace("Z", "+00:00")
    try:
        in_utc = datetime.fromisoformat(f"{day}T{clock}{offset}").astimezone(UTC)
    except (ValueError, OverflowError):
        return ""
    # `datetime` would keep only six digits of the fraction
    has_fraction = fraction and fraction.strip("0")  # any digit other than 0
    decimals = f".{fraction}" if has_fraction else ""
    return f"{in_utc.replace(tzinfo=None).isoformat()}{decimals}Z"


def creation_sort_key(created: str) -> tuple[str, str]:
    """Return a sort key for a result of `utc_time`. An image without a time ("") counts as the
    oldest.
    """
    whole_seconds, _, fraction = created.removesuffix("Z").partition(".")
    return whole_seconds, fraction


def is_wanted_platform(wanted: Sequence[str], platform: str) -> bool:
    """Return whether a platform, such as `linux/arm64/v8`, is one of the `wanted` platforms.

    A wanted platform without a variant (`linux/arm64`) matches any variant. An empty `wanted`
    matches every platform.
    """
    if not wanted:
        return True
    os, arch, variant = _parts_of_platform(platform)
    for wanted_platform in wanted:
        wanted_os, wanted_arch, wanted_variant = _parts_of_platform(wanted_platform.strip())
        # a mistyped platform must not match an unknown one ("")
        if not wanted_os or not wanted_arch:
            continue
        same_system = wanted_os == os and wanted_arch == arch
        if same_system and wanted_variant in ("", variant):
            return True
    return False


def _parts_of_platform(platform: str) -> tuple[str, str, str]:
    """Split a platform, such as `linux/arm64/v8`, into three parts. Missing parts are ""."""
    os, _, rest = platform.partition("/")
    arch, _, variant = rest.partition("/")
    return os, arch, variant


def _is_image(data: Any) -> bool:
    """Return whether an index entry is an image or another index, rather than an artifact."""
    entry = mapping(data)
    if not is_digest(text(entry, "digest")):
        return False
    # BuildKit stores provenance and SBOMs as members of the index, with the platform
    # unknown/unknown.
    is_attestation = "vnd.docker.reference.type" in mapping(entry, "annotations")
    if is_attestation or entry.get("artifactType"):
        return False
    platform = mapping(entry, "platform")
    if "unknown" in (platform.get("os"), platform.get("architecture")):
        return False
    return text(entry, "mediaType") in ("", *INDEXES, *IMAGES, SIGNED)


def _platform(data: Any) -> str:
    """Return the platform, such as `linux/arm64/v8`, from an index entry or a config, or "" if the
    OS or the architecture is missing.
    """
    os = text(data, "os")
    arch = text(data, "architecture")
    variant = text(data, "variant")
    if not os or not arch:
        return ""
    return f"{os}/{arch}/{variant}" if variant else f"{os}/{arch}"
