"""CDEvents of the type `artifact.published` that contain an image's package URL, either bare or
wrapped in a CloudEvent.

Sources: https://cdevents.dev/docs/artifacts, https://github.com/package-url/purl-spec (types oci
and docker), and goharbor/harbor, src/pkg/notifier/formats/cdevents.go, which writes the whole
reference as `repository_url` (November 2026).
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qsl, unquote

from task.ci.events.event import Document, EventOrSkipped, ImageLocation, Skipped, is_digest, pushed
from task.plain_data import mapping, text

_TYPE = "dev.cdevents."
_PUBLISHED = "dev.cdevents.artifact.published."
_LONGEST_QUERY = 2000
_HUB = ("hub.docker.com", "index.docker.io")


def known(document: Document) -> bool:
    """Return whether this is a CDEvent."""
    return text(_inner_event(document), "context", "type").startswith(_TYPE)


def _inner_event(document: Document) -> Document:
    """Return the CDEvent, which may be wrapped in a CloudEvent."""
    is_cloud_event = "specversion" in document
    return mapping(document, "data") if is_cloud_event else document


def read(document: Document, registry: str) -> Iterator[EventOrSkipped]:
    """Yield the event: the published image, or the reason why the event is about something else."""
    event = _inner_event(document)
    kind = text(event, "context", "type")
    package_url = text(event, "subject", "id")
    if not kind.startswith(_PUBLISHED):
        yield Skipped(f"its type is {kind!r}")
        return
    if not package_url.startswith(("pkg:oci/", "pkg:docker/")):
        yield Skipped("its subject is not an image")
        return
    time = text(event, "context", "timestamp")
    yield _event_of_package_url(package_url, time, registry)


def _event_of_package_url(package_url: str, time: str, registry: str) -> EventOrSkipped:
    """Return the event for a package URL: `pkg:KIND/NAME@VERSION?repository_url=URL&tag=TAG`.

    KIND is `oci` (VERSION is a digest) or `docker` (VERSION may be a tag). `time` is the event's
    time, and `registry` is the registry's name if the user has set one, or "".
    """
    without_fragment, _, _ = package_url.partition("#")
    without_query, _, query = without_fragment.partition("?")
    path, _, quoted_version = without_query.partition("@")
    kind, _, quoted_name = path.removeprefix("pkg:").partition("/")
    version = unquote(quoted_version)
    parameters = dict(parse_qsl(query[:_LONGEST_QUERY]))
    tag = parameters.get("tag", "")

    url = parameters.get("repository_url", "")
    _, _, after_scheme = url.partition("://")
    host, _, path_of_url = (after_scheme or url).partition("/")
    if kind == "docker":  # for `docker`, repository_url is the registry
        if not host or host in _HUB:
            host = "docker.io"
        repository = unquote(quoted_name)
    else:  # for `oci`, repository_url may be a complete reference
        without_digest, _, _ = path_of_url.partition("@")
        repository, _, _ = without_digest.partition(":")

    digest = ""
    if is_digest(version):
        digest = version
    elif kind == "docker":  # for `docker`, the version may be a tag
        tag = tag or version
    return pushed(
        ImageLocation(host, repository), tag=tag, digest=digest, at=time, registry=registry
    )
