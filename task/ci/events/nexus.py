"""Sonatype Nexus Repository component webhooks.

The webhooks do not contain the host, so users must set --images-registry.

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
    """Yield the webhook's event: the image that was pushed, or why the event is not a push of an
    image.

    In Nexus, each layer is an asset, and the image is the component.
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
