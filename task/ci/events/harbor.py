"""Harbor webhooks, in Harbor's own format or as CloudEvents.

Sources:
https://goharbor.io/docs/main/working-with-projects/project-configuration/configure-webhooks and
goharbor/harbor, src/pkg/notifier/formats/cloudevents.go (November 2026).
"""

from __future__ import annotations

from collections.abc import Iterator

from task.ci.events.event import Document, EventOrSkipped, ImageLocation, Skipped, pushed
from task.plain_data import mapping, mappings, text

_PUSHES = ("PUSH_ARTIFACT", "pushImage", "harbor.artifact.pushed")  # pushImage: up to Harbor 1.10


def known(document: Document) -> bool:
    """Return whether this is a Harbor webhook."""
    kind = document.get("type")
    if not isinstance(kind, str):
        return False
    return isinstance(document.get("event_data"), dict) or kind.startswith("harbor.")


def read(document: Document, registry: str) -> Iterator[EventOrSkipped]:
    """Yield an event for each of the webhook's resources (the pushed images)."""
    kind = text(document, "type")
    if kind not in _PUSHES:
        yield Skipped(f"its type is {kind!r}")
        return
    # Harbor's own format uses `event_data` and `occur_at`; CloudEvents use `data` and `time`
    data = mapping(document, "event_data") or mapping(document, "data")
    time = document.get("time", document.get("occur_at"))
    repository = text(data, "repository", "repo_full_name")
    resources = mappings(data, "resources")
    if not resources:
        yield Skipped("it has no resources")
    for resource in resources:
        without_scheme = text(resource, "resource_url").removeprefix("https://")
        host, _, _ = without_scheme.partition("/")
        yield pushed(
            ImageLocation(host, repository),
            tag=text(resource, "tag"),
            digest=text(resource, "digest"),
            at=time,
            registry=registry,
        )
