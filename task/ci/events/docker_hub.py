"""Docker Hub webhooks.

Source: https://docs.docker.com/docker-hub/repos/manage/webhooks (November 2026).
"""

from __future__ import annotations

from collections.abc import Iterator

from task.ci.events.event import Document, EventOrSkipped, ImageLocation, pushed
from task.plain_data import mapping, text


def known(document: Document) -> bool:
    """Return whether this is a Docker Hub webhook."""
    repository = mapping(document, "repository")
    return "push_data" in document and "repo_name" in repository


def read(document: Document, registry: str) -> Iterator[EventOrSkipped]:
    """Yield the event for the pushed image, without a digest, because the webhook contains none."""
    location = ImageLocation("docker.io", text(document, "repository", "repo_name"))
    push = mapping(document, "push_data")
    yield pushed(
        location,
        tag=text(push, "tag"),
        at=push.get("pushed_at"),
        registry=registry,
    )
