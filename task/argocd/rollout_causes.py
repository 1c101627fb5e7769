"""Finds the causes of a failed rollout in Argo CD's data, and cleans up messages for a log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from task.plain_data import mappings, text
from task.text import and_more, both_ends, one_line, without_logins

LONGEST = 360
ADVICE = "Use --debug flag to render out invalid YAML"  # all Helm errors end with this
_PULL = re.compile(
    r"ImagePullBackOff|ErrImagePull|InvalidImageName|ImageInspectError|ErrImageNeverPull|RegistryUnavailable"
    r"|[Bb]ack-off pulling image|[Ff]ailed to pull"
)
# The repository server, or Git or a cluster behind it, was temporarily unavailable, and Argo CD
# retries. Helm and Kustomize errors do not contain any of these.
_PASSING = (
    "code = unavailable",
    "code = deadlineexceeded",
    "code = canceled",
    "code = resourceexhausted",
    "connection refused",
    "connection reset",
    "context deadline exceeded",
    "i/o timeout",
    "tls handshake timeout",
    "no such host",
    "temporary failure",
    "no endpoints available for service",  # from an admission webhook whose pods are restarting
)


def passing(message: str) -> bool:
    """Return whether Argo CD reports a transient error that a retry may clear."""
    low = message.lower()
    return any(sign in low for sign in _PASSING)


def failures(operation: Mapping[str, Any]) -> tuple[str, ...]:
    """Return why an operation failed: Argo CD's own message, then each hook and object, without
    duplicates.
    """
    message = _cleaned(text(operation, "message"))
    found = [said(message)] if message else []
    for resource in mappings(operation, "syncResult", "resources"):
        sync_failed = text(resource, "status") in ("SyncFailed", "PruneFailed")
        hook_failed = text(resource, "hookPhase") in ("Failed", "Error")
        if not (sync_failed or hook_failed):
            continue
        why = _cleaned(text(resource, "message"))
        # Argo CD's message may already contain the API's reason for rejecting an object
        if why and why in message:
            continue
        found.append(said(_named(resource, why, text(resource, "hookType"))))
    return tuple(dict.fromkeys(found))


def unwell(status: Mapping[str, Any], tree: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the worst of the unhealthy resources and pods, without duplicates.

    If none of them has a message, use the message in the Application's own health. Since Argo CD
    3.0, resources in Kubernetes do not have a health, but Argo CD's API still adds it.
    """
    resources = [*mappings(status, "resources"), *mappings(tree, "nodes")]
    found: list[str] = []
    listed_objects: set[tuple[str, str]] = set()
    worst_states = "Degraded", "Missing"
    for states in (worst_states, ("Progressing", "Suspended")):
        for state, resource in product(states, resources):
            if text(resource, "health", "status") != state:
                continue
            kind_and_name = (text(resource, "kind"), text(resource, "name"))
            message = text(resource, "health", "message")
            # without a message, a resource is only worth a line if it is in one of the worst states
            new_without_message = state in worst_states and kind_and_name not in listed_objects
            if message or new_without_message:
                listed_objects.add(kind_and_name)
                found.append(said(_named(resource, message or state.lower())))
        if found:
            break
    own_message = text(status, "health", "message")
    cause = _CAUSED.fullmatch(own_message)
    if cause is None:
        if own_message:
            found.append(said(own_message))
    elif (cause["kind"], cause["name"]) not in listed_objects:
        found.append(said(f"caused by {cause['kind']} {cause['where']}"))
    return tuple(dict.fromkeys(found))


# "Caused by apps/Deployment:apps/web": [group/]kind:[namespace/]name
_CAUSED = re.compile(
    r"Caused by (?:[^/:\s]+/)?(?P<kind>[^/:\s]+):(?P<where>(?:[^/:\s]+/)?(?P<name>[^/:\s]+))"
)
# Argo CD's temporary file has a different name at each attempt.
_FILE = re.compile(r'error when \w+ing "/[^"]*": ')


def _cleaned(message: str) -> str:
    return _FILE.sub("", message).strip().removesuffix(".")


def sick_pods(tree: Mapping[str, Any], since: str) -> tuple[str, ...]:
    """Return the unhealthy pods younger than `since`, each with the reason."""
    sick = [(pod, text(pod, "health", "message")) for pod in _pods(tree, since) if _degraded(pod)]
    return tuple(said(_named(pod, message)) for pod, message in sick if message)


def crashing(tree: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the nodes of unhealthy pods whose image is not the problem, newest first."""
    sick = [
        pod
        for pod in _pods(tree)
        if _degraded(pod) and not _PULL.search(text(pod, "health", "message"))
    ]
    return sorted(sick, key=lambda pod: text(pod, "createdAt"), reverse=True)


def pulling(tree: Mapping[str, Any], since: str) -> tuple[str, ...]:
    """Return the pods younger than `since` whose image cannot be pulled."""
    found = []
    for pod in _pods(tree, since):
        infos = [text(info, "value") for info in mappings(pod, "info")]
        for reason in (text(pod, "health", "message"), *infos):
            if _PULL.search(reason):
                found.append(said(_named(pod, reason)))
                break
    return tuple(found)


def _pods(tree: Mapping[str, Any], since: str = "") -> list[Mapping[str, Any]]:
    """Return the nodes of the pods that were created since then."""
    nodes = mappings(tree, "nodes")
    return [
        node for node in nodes if text(node, "kind") == "Pod" and text(node, "createdAt") >= since
    ]


def _degraded(node: Mapping[str, Any]) -> bool:
    return text(node, "health", "status") == "Degraded"


def conditions(status: Mapping[str, Any], *types: str) -> tuple[str, ...]:
    """Return the messages of the Application's conditions of these types."""
    return tuple(
        said(text(condition, "message")) or text(condition, "type")
        for condition in mappings(status, "conditions")
        if text(condition, "type") in types
    )


def _named(resource: Mapping[str, Any], message: str, hook: str = "") -> str:
    """Return the message, with the object's kind and name in front unless it contains the name.

    `hook` is the type of hook (PreSync, …), or "" for other objects.
    """
    name = text(resource, "name")
    if not hook and f'"{name}"' in message:
        return message  # Deployment "web" exceeded its progress deadline
    kind = text(resource, "kind")
    subject = f"{hook} hook {kind} {name}" if hook else f"{kind} {name}"
    return f"{subject}: {message}" if message else subject


def listed(texts: Sequence[str]) -> str:
    """Join the first few messages."""
    return and_more(texts, separator="; ") if texts else "Argo CD does not give a reason"


def said(message: str) -> str:
    """Return a message as one short printable line without credentials.

    A tool's error is truncated at the start.
    """
    return both_ends(one_line(without_logins(message)).removesuffix(ADVICE).strip(), LONGEST)
