"""Creates Kubernetes Events on updated Applications, like those of Argo CD Image Updater (AIU)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from task.templates.change import Change

COMPONENT = "ArgocdImageUpdater"
REASON = "ImagesUpdated"
_PREFIX = "argocd-image-updater.image-"
_LONGEST_NAME = 253
_LONGEST_MESSAGE = 1024  # bytes; the API server refuses longer ones


def updated_event(metadata: Mapping[str, Any], changes: Sequence[Change], now: float) -> dict[str, Any]:
    """Return the Event that lists an Application's changed images. `now` is in seconds since 1970.

    Reason, type and annotations are AIU's, with the images counted from 0. The Event is in the Application's namespace,
    because its owner looks there and Kubernetes allows no other.
    """
    name, namespace = str(metadata.get("name", "")), str(metadata.get("namespace", ""))
    time = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # whole seconds, like `metav1.Time`
    tail = f".{round(now * 1e9):x}"  # unique by time, like the names that Kubernetes' own components use
    annotations: dict[str, str] = {}
    for number, change in enumerate(changes):
        said = {
            "full-image-name": change.image.name,
            "image-name": change.name,
            "old-tag": change.old,
            "new-tag": change.new,
        }
        annotations |= {f"{_PREFIX}{number}/{key}": value for key, value in said.items()}
    involved = {key: metadata[key] for key in ("resourceVersion", "uid") if metadata.get(key)}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": name[: _LONGEST_NAME - len(tail)].rstrip("-.") + tail,
            "namespace": namespace,
            "annotations": annotations,
        },
        "involvedObject": {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "name": name,
            "namespace": namespace,
            **involved,
        },
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": COMPONENT,
        "type": "Normal",
        "reason": REASON,
        "message": f"Successfully updated application '{name}'"[:_LONGEST_MESSAGE],
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }
