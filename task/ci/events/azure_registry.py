"""Azure Container Registry events, from the registry's webhook or from Event Grid (in either
schema).

Sources: https://learn.microsoft.com/azure/container-registry/container-registry-webhook-reference
and https://learn.microsoft.com/azure/event-grid/event-schema-container-registry (November 2026).
"""

from __future__ import annotations

from collections.abc import Iterator

from task.ci.events.distribution import is_notification, of_notification
from task.ci.events.event import Document, EventOrSkipped, Skipped
from task.plain_data import mapping, text

_TYPE = "Microsoft.ContainerRegistry."
_HANDSHAKE = "Microsoft.EventGrid."
_TOPIC = "/Microsoft.ContainerRegistry/"


def known(document: Document) -> bool:
    """Return whether this is an event from the registry's webhook or from Event Grid."""
    if is_notification(document):
        return isinstance(document.get("request"), dict)
    return _is_from_event_grid(document) or _is_ping(document)


def _is_from_event_grid(document: Document) -> bool:
    """Return whether this is an event from Event Grid, in either of its schemas."""
    kind = text(document, "eventType") or text(document, "type")
    # Event Grid's first schema used just `ImagePushed`, without a prefix.
    return kind.startswith((_TYPE, _HANDSHAKE)) or _TOPIC in text(document, "topic")


def _is_ping(document: Document) -> bool:
    """Return whether this is a ping from the webhook."""
    return text(document, "action") == "ping" and {"id", "timestamp"} <= set(document)


def read(document: Document, registry: str) -> Iterator[EventOrSkipped]:
    """Yield the event: the pushed image, or the reason why the event is not a push.

    The webhook's body is a Docker Distribution notification, and so is the data of an Event Grid
    event.
    """
    if _is_ping(document):
        yield Skipped("it is a ping")
        return
    if not _is_from_event_grid(document):
        yield of_notification(document, registry)
        return
    kind = text(document, "eventType") or text(document, "type")
    if not kind.endswith("ImagePushed"):
        yield Skipped(f"its type is {kind!r}")
        return
    time = document.get("eventTime") or document.get("time")
    notification = {"timestamp": time, **mapping(document, "data")}
    yield of_notification(notification, registry)
