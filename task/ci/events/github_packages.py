"""GitHub's `package` and `registry_package` events, from webhooks, GitHub Apps, and workflows.

Source: https://docs.github.com/webhooks/webhook-events-and-payloads#registry_package, and the
deliveries in octokit/webhooks.net#178 and octokit/webhooks.js#646 (November 2026).
"""

from __future__ import annotations

from collections.abc import Iterator

from task.ci.events.event import (
    CONFIGS,
    Document,
    EventOrSkipped,
    ImageLocation,
    Skipped,
    is_digest,
    pushed,
)
from task.plain_data import mapping, text

_ACTIONS = ("published", "updated")
_TYPES = ("container", "docker")


def known(document: Document) -> bool:
    """Return whether this is a package event, or a new webhook's ping."""
    return "package_type" in _package(document) or {"zen", "hook_id"} <= set(document)


def _package(document: Document) -> Document:
    return mapping(document, "registry_package") or mapping(document, "package")


def read(document: Document, registry: str) -> Iterator[EventOrSkipped]:
    """Yield the event: the published image, or the reason why the event is about something else."""
    package = _package(document)
    if not package:
        yield Skipped("it is a ping")
        return
    action = text(document, "action")
    if action not in _ACTIONS:
        yield Skipped(f"its action is {action!r}")
        return
    kind = text(package, "package_type")
    if kind.lower() not in _TYPES:
        yield Skipped(f"it is a package of type {kind!r}")
        return
    yield _event_of_version(package, mapping(package, "package_version"), registry)


def _event_of_version(package: Document, version: Document, registry: str) -> EventOrSkipped:
    """Return the event for a container package's version: the image, or why it is not an image."""
    metadata = mapping(version, "container_metadata")
    manifest = mapping(metadata, "manifest")
    config_type = text(manifest, "config", "media_type")
    if config_type and config_type not in CONFIGS:
        return Skipped("it is a chart, a signature, or another artifact")
    tag = text(metadata, "tag", "name")
    version_name = text(version, "name")
    # A version's name is its digest or, in events from GitHub's older registry, its tag.
    if not tag and not is_digest(version_name):
        tag = version_name
    time = version.get("updated_at") or version.get("created_at") or package.get("updated_at")
    return pushed(
        _location(package, version),
        tag=tag,
        digest=_package_digest(version, manifest),
        at=time,
        registry=registry,
    )


def _location(package: Document, version: Document) -> ImageLocation:
    """Return the location of the image in a package.

    A version's `package_url` has the form `ghcr.io/owner/name:tag`, sometimes with an empty tag.
    """
    url = text(version, "package_url").removeprefix("https://").rstrip(":")
    host, slash, path = url.partition("/")
    if slash and "." in host:
        path_without_digest, _, _ = path.partition("@")
        repository, _, _ = path_without_digest.partition(":")
        return ImageLocation(host, repository.lower())
    owner = text(package, "owner", "login") or text(package, "namespace")
    return ImageLocation("ghcr.io", f"{owner}/{text(package, 'name')}".lower())


def _package_digest(version: Document, manifest: Document) -> str:
    """Return the digest of a package version, or "" if there is none."""
    fields = (text(version, "version"), text(manifest, "digest"), text(version, "name"))
    for value in fields:
        if is_digest(value):
            return value
    return ""
