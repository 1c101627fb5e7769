"""Why a rollout fails, as Argo CD knows it. Its texts are made fit for a log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from task.text import one_line, shortened, without_logins

NOTHING: Mapping[str, Any] = {}
MOST, LONGEST = 5, 300
_PULL = re.compile(
    r"ImagePullBackOff|ErrImagePull|InvalidImageName|ImageInspectError|ErrImageNeverPull|RegistryUnavailable"
    r"|[Bb]ack-off pulling image|[Ff]ailed to pull"
)


def causes(status: Mapping[str, Any], operation: Mapping[str, Any], tree: Mapping[str, Any]) -> tuple[str, ...]:
    """What failed, most telling first: the operation, what it could not apply, resources and pods that are not well."""
    message = text(operation, "message")
    found = [message] if message else []
    found += [
        _named(one, text(one, "message"), text(one, "hookType"))
        for one in mappings(mapping(operation, "syncResult").get("resources"))
        if text(one, "status") in ("SyncFailed", "PruneFailed") or text(one, "hookPhase") in ("Failed", "Error")
    ]
    for resources in (mappings(status.get("resources")), mappings(tree.get("nodes"))):
        for wanted in ("Degraded", "Missing", "Progressing", "Suspended"):
            for one in resources:
                message = text(mapping(one, "health"), "message")
                says = message or wanted in ("Degraded", "Missing")
                if says and text(mapping(one, "health"), "status") == wanted:
                    found.append(_named(one, message or wanted.lower()))
    return tuple(dict.fromkeys(said(one) for one in found))


def pulling(tree: Mapping[str, Any], since: str) -> tuple[str, ...]:
    """Pods younger than `since` whose image cannot be pulled."""
    found = []
    for node in mappings(tree.get("nodes")):
        if text(node, "kind") != "Pod" or (since and text(node, "createdAt") < since):
            continue
        info = [text(one, "value") for one in mappings(node.get("info"))]
        message = text(mapping(node, "health"), "message")
        reason = next((one for one in (message, *info) if _PULL.search(one)), "")
        if reason:
            found.append(said(_named(node, reason)))
    return tuple(found)


def conditions(status: Mapping[str, Any], *types: str) -> tuple[str, ...]:
    """The messages of the Application's conditions of these types."""
    found = (one for one in mappings(status.get("conditions")) if text(one, "type") in types)
    return tuple(said(text(one, "message")) or text(one, "type") for one in found)


def _named(resource: Mapping[str, Any], message: str, hook: str = "") -> str:
    what = f"{hook} hook {text(resource, 'kind')}" if hook else text(resource, "kind")
    return f"{what} {text(resource, 'name')}: {message}" if message else f"{what} {text(resource, 'name')}"


def listed(texts: Sequence[str]) -> str:
    """The first few, joined."""
    more = f" and {len(texts) - MOST} more" if len(texts) > MOST else ""
    return "; ".join(texts[:MOST]) + more if texts else "Argo CD does not say why"


def said(message: str) -> str:
    """A message on one line: short, printable, without logins in URLs."""
    return shortened(one_line(without_logins(message)), LONGEST)


def mapping(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The mapping under a key; an empty one where there is none."""
    value = raw.get(key)
    return value if isinstance(value, dict) else NOTHING


def mappings(raw: object) -> list[Mapping[str, Any]]:
    """The mappings of a list."""
    return [one for one in raw if isinstance(one, dict)] if isinstance(raw, list) else []


def text(raw: Mapping[str, Any], key: str) -> str:
    """The text under a key; "" where there is none."""
    value = raw.get(key)
    return value if isinstance(value, str) else ""
