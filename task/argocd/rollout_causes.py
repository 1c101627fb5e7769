"""Finds the causes of a failed rollout in Argo CD's data, and cleans up messages for logging."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from task.plain_data import mappings, text
from task.text import and_more, both_ends, one_line, without_logins

JsonObject = Mapping[str, Any]  # an Application, its resource tree, or part of one of these
LONGEST = 360
ADVICE = "Use --debug flag to render out invalid YAML"  # every Helm error ends with this sentence
_PULL_PROBLEM = re.compile(
    r"ImagePullBackOff|ErrImagePull|InvalidImageName|ImageInspectError|ErrImageNeverPull|RegistryUnavailable"
    r"|[Bb]ack-off pulling image|[Ff]ailed to pull"
)
# Signs that the repository server, or Git or a cluster behind it, was temporarily unavailable, and
# that Argo CD will retry. Errors from Helm and Kustomize do not contain any of these.
_TRANSIENT_SIGNS = (
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
    "no endpoints available for service",  # an admission webhook's pods are restarting
)


def is_transient(message: str) -> bool:
    """Return whether Argo CD reports a transient error that a retry may clear."""
    lowercase_message = message.lower()
    return any(sign in lowercase_message for sign in _TRANSIENT_SIGNS)


def failure_messages(operation: JsonObject) -> tuple[str, ...]:
    """Return the reasons why a sync operation failed: Argo CD's own message, followed by the
    message for each failed hook and object, without duplicates.
    """
    message = _cleaned_message(text(operation, "message"))
    causes = [short_line(message)] if message else []
    for resource in mappings(operation, "syncResult", "resources"):
        sync_failed = text(resource, "status") in ("SyncFailed", "PruneFailed")
        hook_failed = text(resource, "hookPhase") in ("Failed", "Error")
        if not sync_failed and not hook_failed:
            continue
        resource_message = _cleaned_message(text(resource, "message"))
        # Argo CD's message may already include the API's reason for rejecting an object
        if resource_message and resource_message in message:
            continue
        hook = text(resource, "hookType")
        causes.append(short_line(_with_name(resource, resource_message, hook)))
    return tuple(dict.fromkeys(causes))


def health_messages(status: JsonObject, tree: JsonObject) -> tuple[str, ...]:
    """Return messages about an Application's unhealthy resources and pods, without duplicates.

    `status` is the Application's, and `tree` is its resource tree. Resources that are still
    progressing or suspended are included only if none is degraded or missing. The last message
    comes from the Application's own health ("Caused by apps/Deployment:apps/web"), unless it names
    a resource that is already included. Since Argo CD 3.0, an Application in Kubernetes does not
    contain its resources' health, but Argo CD's API still adds it.
    """
    resources = [*mappings(status, "resources"), *mappings(tree, "nodes")]
    messages: list[str] = []
    listed_objects: set[tuple[str, str]] = set()  # (kind, name) of the resources in `messages`
    for state in ("Degraded", "Missing"):
        for resource in _in_state(state, resources):
            kind_and_name = (text(resource, "kind"), text(resource, "name"))
            message = text(resource, "health", "message")
            # a resource may be in both the status and the tree, but have a message in only one of
            # them
            if message or kind_and_name not in listed_objects:
                listed_objects.add(kind_and_name)
                messages.append(short_line(_with_name(resource, message or state.lower())))
    if not messages:
        unfinished = _in_state("Progressing", resources) + _in_state("Suspended", resources)
        for resource in unfinished:
            message = text(resource, "health", "message")
            if message:  # an unfinished resource without a message is not worth a line
                listed_objects.add((text(resource, "kind"), text(resource, "name")))
                messages.append(short_line(_with_name(resource, message)))

    own_message = text(status, "health", "message")
    cause = _CAUSED_BY.fullmatch(own_message)
    if cause is None:
        if own_message:
            messages.append(short_line(own_message))
    elif (cause["kind"], cause["name"]) not in listed_objects:
        messages.append(short_line(f"caused by {cause['kind']} {cause['where']}"))
    return tuple(dict.fromkeys(messages))


def _in_state(state: str, resources: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the resources whose health is in the given state."""
    return [resource for resource in resources if text(resource, "health", "status") == state]


# "Caused by apps/Deployment:apps/web": [group/]kind:[namespace/]name
_CAUSED_BY = re.compile(
    r"Caused by (?:[^/:\s]+/)?(?P<kind>[^/:\s]+):(?P<where>(?:[^/:\s]+/)?(?P<name>[^/:\s]+))"
)
# The temporary file that Argo CD applies has a different name in each attempt.
_TEMPORARY_FILE = re.compile(r'error when \w+ing "/[^"]*": ')


def _cleaned_message(message: str) -> str:
    """Return a message without the names of temporary files and the final period."""
    return _TEMPORARY_FILE.sub("", message).strip().removesuffix(".")


def sick_pods(tree: JsonObject, since: str) -> tuple[str, ...]:
    """Return descriptions of the degraded pods created at or after `since`: names and reasons.

    Pods that report no reason are omitted.
    """
    descriptions = []
    for pod in _pods(tree, since):
        reason = text(pod, "health", "message")
        if _is_degraded(pod) and reason:
            descriptions.append(short_line(_with_name(pod, reason)))
    return tuple(descriptions)


def crashing_pods(tree: JsonObject) -> list[JsonObject]:
    """Return the resource tree's nodes for degraded pods, newest first, excluding pods whose image
    cannot be pulled.
    """
    pods = []
    for pod in _pods(tree):
        cannot_pull = _PULL_PROBLEM.search(text(pod, "health", "message"))
        if _is_degraded(pod) and not cannot_pull:
            pods.append(pod)
    return sorted(pods, key=lambda pod: text(pod, "createdAt"), reverse=True)


def unpulled_pods(tree: JsonObject, since: str) -> tuple[str, ...]:
    """Return descriptions of the pods created at or after `since` whose image cannot be pulled,
    such as "Pod web-5d4f: ImagePullBackOff".
    """
    descriptions = []
    for pod in _pods(tree, since):
        messages = [text(pod, "health", "message")]
        messages += [text(info, "value") for info in mappings(pod, "info")]
        for message in messages:
            if _PULL_PROBLEM.search(message):
                descriptions.append(short_line(_with_name(pod, message)))
                break
    return tuple(descriptions)


def _pods(tree: JsonObject, since: str = "") -> list[JsonObject]:
    """Return the resource tree's nodes for pods created at or after `since`."""
    pods = [node for node in mappings(tree, "nodes") if text(node, "kind") == "Pod"]
    # Kubernetes uses the same format for all times, so they can be compared as text
    return [pod for pod in pods if text(pod, "createdAt") >= since]


def _is_degraded(node: JsonObject) -> bool:
    return text(node, "health", "status") == "Degraded"


def conditions(status: JsonObject, *types: str) -> tuple[str, ...]:
    """Return the messages of an Application's conditions that have one of these types."""
    return tuple(
        short_line(text(condition, "message")) or text(condition, "type")
        for condition in mappings(status, "conditions")
        if text(condition, "type") in types
    )


def _with_name(resource: JsonObject, message: str, hook: str = "") -> str:
    """Return a message about a resource, prefixed with the resource's kind and name unless the
    message already contains the name.

    `hook` is the resource's hook type (PreSync, …), or "" if the resource is not a hook.
    """
    name = text(resource, "name")
    if not hook and f'"{name}"' in message:
        return message  # Deployment "web" exceeded its progress deadline
    subject = f"{text(resource, 'kind')} {name}"
    if hook:
        subject = f"{hook} hook {subject}"
    return f"{subject}: {message}" if message else subject


def joined_messages(texts: Sequence[str]) -> str:
    """Join the first few messages, and state how many are omitted."""
    return and_more(texts, separator="; ") if texts else "Argo CD does not give a reason"


def short_line(message: str) -> str:
    """Return a message as a single short, printable line without credentials.

    A long message is shortened in the middle, because a tool's error often ends with the reason.
    """
    return both_ends(one_line(without_logins(message)).removesuffix(ADVICE).strip(), LONGEST)
