"""Webhooks of Alibaba Cloud's Container Registry.

Instances of the Enterprise Edition have a name of their own, which is not in the event:
--images-registry says it. Source:
https://www.alibabacloud.com/help/en/acr/user-guide/manage-webhooks (November 2026).
"""

from __future__ import annotations

from collections.abc import Iterator

from task.ci.events.event import Document, Found, Named, pushed
from task.plain_data import mapping, text


def known(document: Document) -> bool:
    """Tell whether this is a webhook of this registry."""
    repository = mapping(document, "repository")
    return "push_data" in document and "region" in repository and "repo_name" not in repository


def read(document: Document, registry: str) -> Iterator[Found]:
    """Yield the push."""
    repository = mapping(document, "repository")
    push = mapping(document, "push_data")
    name = text(repository, "repo_full_name")
    name = name or f"{text(repository, 'namespace')}/{text(repository, 'name')}"
    place = Named(f"registry.{text(repository, 'region')}.aliyuncs.com", name)
    # "2016-07-17 09:40:56" is in the time zone of the region, which is not in the event.
    yield pushed(
        place,
        text(push, "tag"),
        text(push, "digest"),
        registry=registry,
    )
