"""Gitea and Forgejo package webhooks.

Source: go-gitea/gitea, modules/structs/hook.go and package.go;
https://docs.gitea.com/usage/webhooks (November 2026).
"""

from __future__ import annotations

from collections.abc import Iterator

from task.ci.events.event import Document, EventOrSkipped, ImageLocation, Skipped, pushed
from task.plain_data import mapping, text


def known(document: Document) -> bool:
    """Return whether this is a webhook about a package."""
    package = mapping(document, "package")
    return {"type", "version", "html_url"} <= set(package) and "package_type" not in package


def read(document: Document, registry: str) -> Iterator[EventOrSkipped]:
    """Yield the webhook's event: the pushed image, or the reason why the event is not an image
    push.

    The webhook contains a digest only for an untagged manifest, as its version.
    """
    package = mapping(document, "package")
    action = text(document, "action")
    kind = text(package, "type")
    if action != "created":
        yield Skipped(f"its action is {action!r}")
    elif kind != "container":
        yield Skipped(f"it is a package of type {kind!r}")
    else:
        _, _, after_scheme = text(package, "html_url").partition("://")
        host, _, _ = after_scheme.partition("/")
        owner = text(package, "owner", "login") or text(package, "owner", "username")
        location = ImageLocation(host, f"{owner}/{text(package, 'name')}".lower())
        time = package.get("created_at")
        yield pushed(location, tag=text(package, "version"), at=time, registry=registry)
