"""Returns an Application's pods as nodes of Argo CD's resource tree, which Kubernetes finds by the pods' owners."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from task.plain_data import mapping, mappings

WORKLOADS = {
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("apps", "ReplicaSet"),
    ("batch", "Job"),
    ("batch", "CronJob"),
    ("argoproj.io", "Rollout"),
}
HERE = ("https://kubernetes.default.svc", "https://kubernetes.default.svc.cluster.local")
# These have an owner between them and the pod: a ReplicaSet <deployment>-<hash>, or a Job <cronjob>-<minute>.
_BETWEEN = {"ReplicaSet": ("Deployment", "Rollout"), "Job": ("CronJob",)}
_STARTING = ("ContainerCreating", "PodInitializing")


def workloads(application: Mapping[str, Any]) -> dict[str, set[tuple[str, str]]]:
    """Return namespace → (kind, name) of what makes pods, or {} if the Application is deployed to another cluster."""
    destination = mapping(mapping(application.get("spec")).get("destination"))
    if destination.get("server") not in HERE and destination.get("name") != "in-cluster":
        return {}
    found: dict[str, set[tuple[str, str]]] = {}
    for one in mappings(mapping(application.get("status")).get("resources")):
        kind, name, namespace = str(one.get("kind")), str(one.get("name")), str(one.get("namespace") or "")
        if (one.get("group"), kind) in WORKLOADS and namespace:
            found.setdefault(namespace, set()).add((kind, name))
    return found


def nodes(pods: Iterable[Mapping[str, Any]], owners: set[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return a node for each unhealthy pod of these owners, with the reason why it waits or how it ended."""
    found = []
    for pod in pods:
        metadata, status = mapping(pod.get("metadata")), mapping(pod.get("status"))
        if not any(_owned(one, owners) for one in mappings(metadata.get("ownerReferences"))):
            continue
        reason, message = trouble(status)
        if reason:
            found.append(
                {
                    "kind": "Pod",
                    "name": str(metadata.get("name")),
                    "createdAt": str(metadata.get("creationTimestamp") or ""),
                    "info": [{"name": "Status Reason", "value": reason}],
                    "health": {"status": "Degraded", "message": message or reason},
                }
            )
    return found


def _owned(owner: Mapping[str, Any], owners: set[tuple[str, str]]) -> bool:
    kind, name = str(owner.get("kind")), str(owner.get("name"))
    above = name.rpartition("-")[0]
    return (kind, name) in owners or any((one, above) in owners for one in _BETWEEN.get(kind, ()))


def trouble(status: Mapping[str, Any]) -> tuple[str, str]:
    """Return (reason, message) of an unhealthy pod, or ("", "") if it is healthy or about to start.

    A container that crashed is unhealthy until it is ready, although it runs again in between.
    """
    for name in ("initContainerStatuses", "containerStatuses"):
        for one in mappings(status.get(name)):
            waits = mapping(mapping(one.get("state")).get("waiting"))
            reason = str(waits.get("reason") or "")
            waits_for_good = bool(reason) and reason not in _STARTING
            crash = "" if one.get("ready") is True else _crash(one)
            if waits_for_good or crash:
                told = [str(waits.get("message") or reason)] if waits_for_good else []
                return reason if waits_for_good else "Error", "; ".join((*told, *filter(None, [crash])))
    if status.get("phase") == "Failed":
        return str(status.get("reason") or "Failed"), str(status.get("message") or "")
    return "", ""


def _crash(container: Mapping[str, Any]) -> str:
    """Return how the container ended the last time, if that was a failure: "container web ended with exit code 1"."""
    for state in ("state", "lastState"):
        ended = mapping(mapping(container.get(state)).get("terminated"))
        if code := ended.get("exitCode"):
            reason = str(ended.get("reason") or "")
            why = "" if reason in ("", "Error") else f" ({reason})"
            message = str(ended.get("message") or "")
            return (
                f"container {container.get('name')} ended with exit code {code}{why}{f': {message}' if message else ''}"
            )
    return ""
