"""Applications as Argo CD's controller writes them at each moment of a rollout. They were compared
with recordings of Argo CD 3.6.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

OLD, NEW = "a" * 40, "b" * 40
REPO = "https://git.example.com/acme/gitops.git"
MORNING = "2026-11-21T06:00:{:02d}Z"


def live_application(name: str = "web", namespace: str = "argocd", **spec: Any) -> dict[str, Any]:
    """Return an Application as the API returns it, with an empty status."""
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "resourceVersion": "1",
            "annotations": {"argocd-image-updater.argoproj.io/image-list": "web=ghcr.io/acme/web"},
            "labels": {"team": "a"},
        },
        "spec": {
            "project": "default",
            "source": {"repoURL": REPO, "path": f"apps/{name}", "targetRevision": "main"},
            "destination": {"server": "https://kubernetes.default.svc", "namespace": name},
            "syncPolicy": {"automated": {}},
            **spec,
        },
        "status": {},
    }


def at(
    app: Mapping[str, Any],
    sync: str,
    health: str,
    *,
    revision: str = NEW,
    compared: int = 10,
    operation: Mapping[str, Any] | None = None,
    resources: Sequence[Mapping[str, Any]] = (),
    conditions: Sequence[Mapping[str, Any]] = (),
    pending: bool = False,
    images: Sequence[str] = (),
    changed: int | None = None,
) -> dict[str, Any]:
    """Return the Application at one moment of a rollout, as Argo CD's controller writes it.

    `compared` is the second of status.reconciledAt, and `changed` is the second at which the health
    changed.
    """
    state = copy.deepcopy(dict(app))
    spec = state["spec"]
    several = "sources" in spec
    revisions: dict[str, Any] = (
        {"revisions": revision.split(",")} if several else {"revision": revision}
    )
    status: dict[str, Any] = {
        "reconciledAt": MORNING.format(compared),
        "sync": {"status": sync, "comparedTo": compared_to(spec), **revisions},
        "health": {"status": health},
        "resources": [dict(one) for one in resources],
        "conditions": [dict(one) for one in conditions],
        "summary": {"images": list(images)} if images else {},
    }
    if changed is not None:
        status["health"]["lastTransitionTime"] = MORNING.format(changed)
    sick = [
        one
        for one in resources
        if one.get("health", {}).get("status") == health and not one.get("hook")
    ]
    if health in ("Degraded", "Progressing", "Suspended") and sick:
        one = sick[0]
        group, namespace = (
            f"{one[part]}/" if one.get(part) else "" for part in ("group", "namespace")
        )
        status["health"]["message"] = f"Caused by {group}{one['kind']}:{namespace}{one['name']}"
    if operation:
        made = copy.deepcopy(dict(operation))
        source = {key: value for key, value in compared_to(spec).items() if key != "destination"}
        if "syncResult" in made:
            made["syncResult"] = {**source, **made["syncResult"]}
        status["operationState"] = made
    state["status"] = status
    if pending:
        order: dict[str, Any] = {"sync": revisions, "initiatedBy": {"automated": True}}
        state["operation"] = status["operationState"]["operation"] if operation else order
    return state


def compared_to(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sources and the destination of a comparison. If there are several sources, there
    is also an empty `source`.
    """
    if "sources" in spec:
        return {
            "source": {"repoURL": ""},
            "sources": spec["sources"],
            "destination": spec["destination"],
        }
    return {
        **{key: spec[key] for key in ("source",) if spec.get(key)},
        "destination": spec["destination"],
    }


def operated(
    phase: str = "Succeeded",
    *,
    revision: str = NEW,
    started: int = 11,
    finished: int | None = 12,
    message: str = "successfully synced (all tasks run)",
    resources: Sequence[Mapping[str, Any]] = (),
    retried: int = 0,
    limit: int = 5,
    began: bool = True,
) -> dict[str, Any]:
    """Return status.operationState. Without `began`, the operation has no result or message yet."""
    several = "," in revision
    order: dict[str, Any] = (
        {"revisions": revision.split(",")} if several else {"revision": revision}
    )
    result = (
        {"revisions": revision.split(","), "revision": ""} if several else {"revision": revision}
    )
    done = {
        "message": message,
        "syncResult": {**result, "resources": [dict(one) for one in resources]},
    }
    return {
        "phase": phase,
        "startedAt": MORNING.format(started),
        **({"finishedAt": MORNING.format(finished)} if finished is not None else {}),
        "operation": {"sync": order, "initiatedBy": {"automated": True}, "retry": {"limit": limit}},
        **(done if began else {}),
        **({"retryCount": retried} if retried else {}),
    }


def resource(
    kind: str, name: str, health: str = "", message: str = "", **more: Any
) -> dict[str, Any]:
    """Return an entry of status.resources, or a node of the resource tree."""
    found = {"kind": kind, "name": name, **more}
    return (
        {**found, "health": {"status": health, **({"message": message} if message else {})}}
        if health
        else found
    )


def node(
    kind: str, name: str, health: str, message: str = "", created: int = 11, reason: str = ""
) -> dict[str, Any]:
    """Return a node of the resource tree. Pods have a reason, such as Running or
    ImagePullBackOff.
    """
    info = (
        [{"name": "Status Reason", "value": reason}]
        if reason
        else [{"name": "Revision", "value": "Rev:2"}]
    )
    return resource(kind, name, health, message, createdAt=MORNING.format(created), info=info)


def sync_windows(*assigned: tuple[str, bool]) -> dict[str, Any]:
    """Return the API's response about sync windows. Each window is given as its kind and whether it
    is active. Empty lists are left out.
    """
    windows = [
        ({"kind": kind, "schedule": "* * * * *", "duration": "1h", "manualSync": False}, on)
        for kind, on in assigned
    ]
    active = [one for one, on in windows if on]
    kinds = {one["kind"] for one in active}
    allowed = "deny" not in kinds and (
        "allow" in kinds or all(kind != "allow" for kind, _ in assigned)
    )
    lists = {"activeWindows": active, "assignedWindows": [one for one, _ in windows]}
    return {**{name: found for name, found in lists.items() if found}, "canSync": allowed}


def applied(
    kind: str, name: str, message: str, status: str = "Synced", **more: Any
) -> dict[str, Any]:
    """Return a resource as it appears in the result of an operation."""
    where = {"group": "", "version": "v1", "namespace": "web"}
    return {"kind": kind, "name": name, "message": message, "status": status, **where, **more}
