"""Finds why a rollout fails in what Argo CD says, and makes the texts fit for a log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from task.plain_data import mappings
from task.text import and_more, both_ends, one_line, without_logins

NOTHING: Mapping[str, Any] = {}
LONGEST = 360
_ADVICE = "Use --debug flag to render out invalid YAML"  # all errors of Helm end with this
_PULL = re.compile(
    r"ImagePullBackOff|ErrImagePull|InvalidImageName|ImageInspectError|ErrImageNeverPull|RegistryUnavailable"
    r"|[Bb]ack-off pulling image|[Ff]ailed to pull"
)


def failures(operation: Mapping[str, Any]) -> tuple[str, ...]:
    """Return why an operation failed: Argo CD's own message, then each hook and object, without repetitions."""
    message = _cleaned(text(operation, "message"))
    found = [said(message)] if message else []
    for one in mappings(mapping(operation, "syncResult").get("resources")):
        if text(one, "status") in ("SyncFailed", "PruneFailed") or text(one, "hookPhase") in ("Failed", "Error"):
            why = _cleaned(text(one, "message"))
            # Argo CD's message may already have the API's reason for a refused object
            if not why or why not in message:
                found.append(said(_named(one, why, text(one, "hookType"))))
    return tuple(dict.fromkeys(found))


def unwell(status: Mapping[str, Any], tree: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the unhealthy resources and pods, only the worst, without repetitions.

    If none of them has a message, the Application's own health names the object. Since Argo CD 3.0, resources in
    Kubernetes have no health, but Argo CD's API still adds it.
    """
    resources = [*mappings(status.get("resources")), *mappings(tree.get("nodes"))]
    found: list[str] = []
    objects: set[tuple[str, str]] = set()
    for states in (("Degraded", "Missing"), ("Progressing", "Suspended")):
        for wanted in states:
            for one in resources:
                health = mapping(one, "health")
                message = text(health, "message")
                if text(health, "status") == wanted and (message or wanted in ("Degraded", "Missing")):
                    if not message and (text(one, "kind"), text(one, "name")) in objects:
                        continue
                    objects.add((text(one, "kind"), text(one, "name")))
                    found.append(said(_named(one, message or wanted.lower())))
        if found:
            break
    own = text(mapping(status, "health"), "message")
    if cause := _CAUSED.fullmatch(own):
        if (cause["kind"], cause["name"]) not in objects:
            found.append(said(f"caused by {cause['kind']} {cause['where']}"))
    elif own:
        found.append(said(own))
    return tuple(dict.fromkeys(found))


# "Caused by apps/Deployment:apps/web": [group/]kind:[namespace/]name
_CAUSED = re.compile(r"Caused by (?:[^/:\s]+/)?(?P<kind>[^/:\s]+):(?P<where>(?:[^/:\s]+/)?(?P<name>[^/:\s]+))")
# Argo CD's temporary file has another name at each attempt.
_FILE = re.compile(r'error when \w+ing "/[^"]*": ')


def _cleaned(message: str) -> str:
    return _FILE.sub("", message).strip().removesuffix(".")


def sick_pods(tree: Mapping[str, Any], since: str) -> tuple[str, ...]:
    """Return the unhealthy pods younger than `since`, each with the reason."""
    found = []
    for node in mappings(tree.get("nodes")):
        health = mapping(node, "health")
        young = text(node, "kind") == "Pod" and text(node, "createdAt") >= since
        if young and text(health, "status") == "Degraded" and (message := text(health, "message")):
            found.append(said(_named(node, message)))
    return tuple(found)


def crashing(tree: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the nodes of unhealthy pods whose image is no problem, the newest first."""
    nodes = [one for one in mappings(tree.get("nodes")) if text(one, "kind") == "Pod"]
    sick = [one for one in nodes if text(mapping(one, "health"), "status") == "Degraded"]
    sick.sort(key=lambda one: text(one, "createdAt"), reverse=True)
    return [one for one in sick if not _PULL.search(text(mapping(one, "health"), "message"))]


def pulling(tree: Mapping[str, Any], since: str) -> tuple[str, ...]:
    """Return the pods younger than `since` whose image cannot be pulled."""
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
    """Return the messages of the Application's conditions of these types."""
    found = (one for one in mappings(status.get("conditions")) if text(one, "type") in types)
    return tuple(said(text(one, "message")) or text(one, "type") for one in found)


def _named(resource: Mapping[str, Any], message: str, hook: str = "") -> str:
    if not hook and f'"{text(resource, "name")}"' in message:
        return message  # the message names the object: Deployment "web" exceeded its progress deadline
    what = f"{hook} hook {text(resource, 'kind')}" if hook else text(resource, "kind")
    return f"{what} {text(resource, 'name')}: {message}" if message else f"{what} {text(resource, 'name')}"


def listed(texts: Sequence[str]) -> str:
    """Join the first few texts."""
    return and_more(texts, separator="; ") if texts else "Argo CD does not say why"


def said(message: str) -> str:
    """Return a message as one short printable line without logins. A tool's error is cut at its beginning."""
    return both_ends(one_line(without_logins(message)).removesuffix(_ADVICE).strip(), LONGEST)


def mapping(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the mapping under a key, or an empty one."""
    value = raw.get(key)
    return value if isinstance(value, dict) else NOTHING


def text(raw: Mapping[str, Any], key: str) -> str:
    """Return the text under a key, or ""."""
    value = raw.get(key)
    return value if isinstance(value, str) else ""
