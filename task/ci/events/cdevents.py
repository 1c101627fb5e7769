"""CDEvents `artifact.published` events for an image's package URL, either bare or inside a
CloudEvent.

Sources: https://cdevents.dev/docs/artifacts, https://github.com/package-url/purl-spec (types oci
and docker), and goharbor/harbor, src/pkg/notifier/formats/cdevents.go, which writes the whole
reference as `repository_url` (November 2026).
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qsl, unquote

from task.ci.events.event import Document, Found, Named, PassedOver, is_digest, pushed
from task.plain_data import mapping, text

_TYPE = "dev.cdevents."
_PUBLISHED = "dev.cdevents.artifact.published."
_LONGEST_QUERY = 2000
_HUB = ("hub.docker.com", "index.docker.io")


def known(document: Document) -> bool:
    """Return whether this is a CDEvent."""
    return text(_inner(document), "context", "type").startswith(_TYPE)


def _inner(document: Document) -> Document:
    return mapping(document, "data") if "specversion" in document else document


def read(document: Document, registry: str) -> Iterator[Found]:
    """Yield the event."""
    event = _inner(document)
    kind = text(event, "context", "type")
    purl = text(event, "subject", "id")
    if not kind.startswith(_PUBLISHED):
        yield PassedOver(f"its type is {kind!r}")
        return
    if not purl.startswith(("pkg:oci/", "pkg:docker/")):
        yield PassedOver("its subject is not an image")
        return
    yield _of_purl(purl, event, registry)


def _of_purl(purl: str, event: Document, registry: str) -> Found:
    """Return the event for a package URL: `pkg:KIND/NAME@VERSION?repository_url=URL&tag=TAG`."""
    without_query, _, query = purl.partition("#")[0].partition("?")
    parameters = dict(parse_qsl(query[:_LONGEST_QUERY]))
    path, _, quoted_version = without_query.partition("@")
    kind, _, quoted_name = path.removeprefix("pkg:").partition("/")
    version = unquote(quoted_version)
    name = unquote(quoted_name)
    url = parameters.get("repository_url", "")
    tag = parameters.get("tag", "")
    host, _, repository = (url.partition("://")[2] or url).partition("/")
    if kind == "docker":  # here, repository_url is the registry, and the version may be a tag
        host = "docker.io" if not host or host in _HUB else host
        repository = name
    else:
        repository = repository.partition("@")[0].partition(":")[0]
    digest = version if is_digest(version) else ""
    if not tag and not digest and kind == "docker":
        tag = version
    time = text(event, "context", "timestamp")
    return pushed(Named(host, repository), tag, digest, time, registry)
