"""Docker Distribution notifications, which are also sent by GitLab's registry.

Each blob and each manifest causes its own event, and a request contains several events. Source:
https://distribution.github.io/distribution/about/notifications (November 2026).
"""

from __future__ import annotations

from collections.abc import Iterator

from task.ci.events.event import MANIFESTS, Document, EventOrSkipped, ImageLocation, Skipped, pushed
from task.plain_data import elements, mapping, text


def known(document: Document) -> bool:
    """Return whether this is an envelope that contains notifications."""
    if not isinstance(document.get("events"), list):
        return False
    return all(is_notification(element) for element in elements(document, "events"))


def is_notification(event: object) -> bool:
    """Return whether this is a single notification, which Azure's registry sends without an
    envelope.
    """
    return isinstance(event, dict) and "action" in event and isinstance(event.get("target"), dict)


def read(document: Document, registry: str) -> Iterator[EventOrSkipped]:
    """Yield an event for each notification."""
    for event in elements(document, "events"):
        yield of_notification(event, registry)


def of_notification(event: Document, registry: str) -> EventOrSkipped:
    """Return a notification's event: the pushed image, or the reason why the notification is not
    about an image push.
    """
    action = text(event, "action")
    if action != "push":
        return Skipped(f"its action is {action!r}")
    target = mapping(event, "target")
    media_type = text(target, "mediaType")
    if media_type and media_type not in MANIFESTS:
        return Skipped("it is a blob or another artifact")
    return pushed(
        ImageLocation(text(event, "request", "host"), text(target, "repository")),
        tag=text(target, "tag"),
        digest=text(target, "digest"),
        at=event.get("timestamp"),
        registry=registry,
    )
