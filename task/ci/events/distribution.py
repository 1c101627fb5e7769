"""Docker Distribution notifications, which GitLab's registry also sends.

There is one event for each blob and each manifest, and a request contains several events. Source:
https://distribution.github.io/distribution/about/notifications (November 2026).
"""

from __future__ import annotations

from collections.abc import Iterator

from task.ci.events.event import MANIFESTS, Document, Found, Named, PassedOver, pushed
from task.plain_data import elements, mapping, text


def known(document: Document) -> bool:
    """Return whether this is an envelope with notifications."""
    if not isinstance(document.get("events"), list):
        return False
    return all(is_notification(element) for element in elements(document, "events"))


def is_notification(event: object) -> bool:
    """Return whether this is a single notification, which Azure's registry sends without an
    envelope.
    """
    return isinstance(event, dict) and "action" in event and isinstance(event.get("target"), dict)


def read(document: Document, registry: str) -> Iterator[Found]:
    """Yield the notifications' events."""
    for event in elements(document, "events"):
        yield of_notification(event, registry)


def of_notification(event: Document, registry: str) -> Found:
    """Return a notification's event."""
    action = text(event, "action")
    target = mapping(event, "target")
    if action != "push":
        return PassedOver(f"its action is {action!r}")
    kind = text(target, "mediaType")
    if kind and kind not in MANIFESTS:
        return PassedOver("it is a blob or another artifact")
    place = Named(text(event, "request", "host"), text(target, "repository"))
    time = event.get("timestamp")
    return pushed(
        place,
        text(target, "tag"),
        text(target, "digest"),
        time,
        registry,
    )
