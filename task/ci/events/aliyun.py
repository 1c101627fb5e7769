"""Alibaba Cloud Container Registry webhooks.

An Enterprise Edition instance has its own host name, which the event does not include, so its users
must set --images-registry. Source:
https://www.alibabacloud.com/help/en/acr/user-guide/manage-webhooks (November 2026).
"""

from __future__ import annotations

from collections.abc import Iterator

from task.ci.events.event import Document, EventOrSkipped, ImageLocation, pushed
from task.plain_data import mapping, text


def known(document: Document) -> bool:
    """Return whether this is an Alibaba Cloud Container Registry webhook."""
    repository = mapping(document, "repository")
    return "push_data" in document and "region" in repository and "repo_name" not in repository


def read(document: Document, registry: str) -> Iterator[EventOrSkipped]:
    """Yield the event for the pushed image, without a time.

    The webhook's time, such as "2016-07-17 09:40:56", is in the region's time zone, which the
    webhook does not specify.
    """
    repository = mapping(document, "repository")
    push = mapping(document, "push_data")
    name = text(repository, "repo_full_name")
    if not name:
        name = f"{text(repository, 'namespace')}/{text(repository, 'name')}"
    location = ImageLocation(f"registry.{text(repository, 'region')}.aliyuncs.com", name)
    yield pushed(
        location,
        tag=text(push, "tag"),
        digest=text(push, "digest"),
        registry=registry,
    )
