"""Quay repository notifications.

Source: https://docs.redhat.com/en/documentation/red_hat_quay, "Repository notifications" (November
2026).
"""

from __future__ import annotations

from collections.abc import Iterator

from task.ci.events.event import Document, EventOrSkipped, ImageLocation, Skipped, pushed
from task.plain_data import text


def known(document: Document) -> bool:
    """Return whether this is a Quay notification."""
    return {"docker_url", "repository", "namespace"} <= set(document)


def read(document: Document, registry: str) -> Iterator[EventOrSkipped]:
    """Yield a push for each updated tag. The notification contains neither a digest nor a time."""
    tags = document.get("updated_tags")
    if not isinstance(tags, list | dict):  # until 2014, a mapping of tags to image IDs
        yield Skipped("it is about a build, a scan, or a mirror")
        return
    if not tags:
        yield Skipped("no tag was updated")
    host, _, repository = text(document, "docker_url").partition("/")
    location = ImageLocation(host, repository)
    for tag in tags:
        tag_name = tag if isinstance(tag, str) else ""
        yield pushed(location, tag=tag_name, registry=registry)
