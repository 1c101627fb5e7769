"""The state of the fake in-process Kubernetes API: its objects, who may do what, and the requests
it has received.
"""

import copy
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

APPLICATIONS, UPDATERS = (
    "argoproj.io/applications",
    "argocd-image-updater.argoproj.io/imageupdaters",
)
APPLICATION_SETS, PROJECTS = "argoproj.io/applicationsets", "argoproj.io/appprojects"
EVENTS, SECRETS, CONFIG_MAPS, PODS = "/events", "/secrets", "/configmaps", "/pods"
KINDS = {
    APPLICATIONS: ("argoproj.io/v1alpha1", "Application"),
    APPLICATION_SETS: ("argoproj.io/v1alpha1", "ApplicationSet"),
    PROJECTS: ("argoproj.io/v1alpha1", "AppProject"),
    UPDATERS: ("argocd-image-updater.argoproj.io/v1alpha1", "ImageUpdater"),
    EVENTS: ("v1", "Event"),
    SECRETS: ("v1", "Secret"),
    CONFIG_MAPS: ("v1", "ConfigMap"),
    PODS: ("v1", "Pod"),
}
PARTIAL = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
ADMIN = "admin"
Object = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """A request as seen by RBAC."""

    user: str
    verb: str
    resource: str
    namespace: str
    name: str
    query: Mapping[str, str]
    accept: str
    sent: int  # size of the response in bytes
    allowed: bool
    content: Any


@dataclass
class Fault:
    """A fault for the next `times` requests whose path contains `path`."""

    status: int = 0  # 0 means that `how` applies
    how: str = ""  # "reset", "half", "drip", "drip-head", "html", "huge", "text"
    times: int = 1
    path: str = ""
    headers: tuple[tuple[str, str], ...] = ()


@dataclass
class KubernetesApi:
    """The state of the cluster, and the requests it has received."""

    tokens: dict[str, str] = field(default_factory=lambda: {"admin-token": ADMIN})
    rules: list[Object] = field(default_factory=list)  # RBAC manifests
    objects: dict[str, dict[tuple[str, str], Object]] = field(
        default_factory=lambda: {kind: {} for kind in KINDS}
    )
    asked: list[Asked] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    knows_metadata: bool = True
    compresses: bool = True
    compacted: int = 0  # continue tokens from this version and older ones have expired
    own_continue: bool = True  # whether a 410 includes a token for continuing the list
    version: int = 100
    # whether the API server has just started, so that its storage is not ready yet
    starting: bool = False
    url: str = ""
    now: str = "2026-11-21T06:17:01Z"  # the time at which objects are created
    before: Callable[[Asked], None] = lambda _asked: (
        None
    )  # called just before a request is handled, to do what others might do
    lock: threading.RLock = field(default_factory=threading.RLock)

    def add(self, resource: str, *items: Object) -> None:
        """Add objects."""
        for item in items:
            self.version += 1
            made = copy.deepcopy(item)
            api, kind = KINDS[resource]
            made = {"apiVersion": api, "kind": kind, **made}
            made["metadata"] = {
                "namespace": "argocd",
                "uid": f"uid-{self.version}",
                **made["metadata"],
            }
            made["metadata"].setdefault("creationTimestamp", self.now)
            made["metadata"]["resourceVersion"] = str(self.version)
            for one in (made.get("status") or {}).get("resources") or ():
                one.pop(
                    "health", None
                )  # Argo CD has not stored this field since 3.0; only its own API adds it
            self.objects[resource][made["metadata"]["namespace"], made["metadata"]["name"]] = made

    def forget(self, resource: str) -> None:
        """Remove this kind, as if it had never been installed."""
        del self.objects[resource]

    def of(self, resource: str, name: str, namespace: str = "argocd") -> Any:
        return self.objects[resource][namespace, name]

    def requests(self) -> list[str]:
        """Return the verb, resource, and place of every request."""
        return [
            f"{one.verb} {one.resource.partition('/')[2]} {one.namespace or '*'}{f'/{one.name}' if one.name else ''}"
            for one in self.asked
        ]

    def denied(self) -> list[Asked]:
        return [one for one in self.asked if not one.allowed]

    @property
    def sent(self) -> int:
        return sum(one.sent for one in self.asked)


class Status(Exception):
    """An error response."""

    def __init__(self, code: int, reason: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.code = code
        token, self.headers = more.pop("token", ""), more.pop("headers", {})
        text = more.pop("text", "")  # a body to send instead of a Status object
        self.body = text or {
            "kind": "Status", "apiVersion": "v1", "metadata": {"continue": token} if token else {}, "status": "Failure",
            "message": message, "reason": reason, "code": code, **more,
        }  # fmt: skip


def cluster_application(
    name: str, namespace: str = "argocd", images: str = "", padding: int = 0, **more: Any
) -> Object:
    """Return an Application with this `image-list`, padded to roughly this many bytes."""
    annotations = {"argocd-image-updater.argoproj.io/image-list": images} if images else {}
    history = [
        {
            "revision": f"{n:040x}",
            "deployedAt": "2026-01-01T00:00:00Z",
            "id": n,
            "source": {"repoURL": "https://x"},
        }
        for n in range(padding // 130)
    ]
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations, **more.pop("metadata", {})},
        "spec": {
            "project": "default",
            "destination": {"server": "https://kubernetes.default.svc", "namespace": "web"},
            "source": {"repoURL": "https://git.example.com/gitops.git", "path": f"apps/{name}", "helm": {}},
            **more.pop("spec", {}),
        },
        "status": {
            "sourceType": "Helm",
            "summary": {"images": [images.partition("=")[2].partition(":")[0] + ":1.0.0"] if images else []},
            **({"history": history} if padding else {}),
        },
    }  # fmt: skip
