"""Sonatype Nexus Repository component webhooks.

These webhooks do not include the host, so users must set --images-registry.

Source: https://help.sonatype.com/en/example-headers-and-payloads.html, and the delivery in
spinnaker/spinnaker#2638 (November 2026).
"""

from __future__ import annotations

from collections.abc import Iterator

from task.ci.events.event import Document, EventOrSkipped, ImageLocation, Skipped, pushed
from task.plain_data import mapping, text

_ACTIONS = ("CREATED", "UPDATED")


def known(document: Document) -> bool:
    """Return whether this is a Nexus webhook."""
    subjects = {"component", "asset", "repository", "audit"} & set(document)
    return "nodeId" in document and bool(subjects)


def read(document: Document, registry: str) -> Iterator[EventOrSkipped]:
    """Yield the webhook's event: the pushed image, or the reason why the event is not an image
    push.

    In Nexus, an image is a component, and its layers are assets.
    """
    component = mapping(document, "component")
    action = text(document, "action")
    if text(component, "format") != "docker":
        yield Skipped("it is not about a Docker component")
    elif action not in _ACTIONS:
        yield Skipped(f"its action is {action!r}")
    else:
        location = ImageLocation("", text(component, "name"))
        time = document.get("timestamp")
        yield pushed(location, tag=text(component, "version"), at=time, registry=registry)
