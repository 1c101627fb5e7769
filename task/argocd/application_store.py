"""Reads and patches live Applications. Patching an outdated resourceVersion raises `Outpaced`.

Reads and patches go through Argo CD's API or Kubernetes. `ClusterApplications` provides the same
methods as Argo CD's API on top of Kubernetes, and finds an Application's pods by their owner
references.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Protocol

from task.argocd.projects import live_destination, sync_windows
from task.argocd.rollout_causes import JsonObject
from task.errors import AbsentError, Outpaced, SourceDownError, SourceError, UsageError
from task.kubernetes.client import (
    APPLICATION_SETS,
    APPLICATIONS,
    PODS,
    PROJECTS,
    ForbiddenError,
    Kubernetes,
)
from task.plain_data import mapping, mappings, text

Operation = Mapping[str, Any]  # a JSON Patch operation
_PODS_HINT = {
    "hint": (
        "the step is not allowed to list pods, which would give more details: apply rbac/pods.yaml"
    )
}
_MOST_PODS = 2_000  # the maximum number of pods to check per namespace
_TRIES = 4  # attempts to request a refresh if other programs keep changing the object
REFRESH = "argocd.argoproj.io/refresh"
# Since 3.6, Argo CD removes a refresh request only if its timestamp has not changed since the
# refresh started (argo-cd 28392). Without the timestamp, a request made during a refresh is lost.
# Older versions ignore the timestamp.
STAMP = "argocd.argoproj.io/refresh-timestamp"
# Argo CD 3.3 and 3.4 check a hydrated Application's dry source only if hydration is also requested;
# later versions check it every few minutes. Argo CD's API sets both annotations.
HYDRATE = "argocd.argoproj.io/hydrate"
HYDRATE_STAMP = "argocd.argoproj.io/hydrate-timestamp"
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
# Workloads that own their pods through an intermediate object: a ReplicaSet named
# <deployment>-<hash>, or a Job named <cronjob>-<minute>.
_OWNER_KINDS = {"ReplicaSet": ("Deployment", "Rollout"), "Job": ("CronJob",)}
_REASONS_WHILE_STARTING = ("ContainerCreating", "PodInitializing")


class ApplicationApi(Protocol):
    """Argo CD's API (`ArgoCDApi`), or Kubernetes with the same methods (`ClusterApplications`)."""

    def get_application(self, namespace: str, name: str, project: str = "") -> JsonObject:
        """Return the Application.

        Raises `AbsentError` if the Application does not exist; Argo CD only reveals this if the
        project is given.
        """

    def keys(self) -> Sequence[tuple[str, str]]:
        """Return the (namespace, name) of every Application.

        Raises `SourceError` on failure, including if listing all Applications is forbidden.
        """

    def patch_application(
        self,
        namespace: str,
        name: str,
        operations: Sequence[Operation],
    ) -> JsonObject:
        """Apply a JSON patch to an Application, and return the patched Application.

        Raises `Outpaced` if one of the patch's tests fails.
        """

    def refresh_application(self, namespace: str, name: str) -> None:
        """Have Argo CD compare the Application with Git now."""

    def resource_tree(self, namespace: str, name: str) -> JsonObject:
        """Return the Application's live resources, down to pods, or {} if unknown."""

    def sync_windows(self, namespace: str, name: str) -> JsonObject:
        """Return the Application's sync windows, or {} if unknown."""

    def application_set(self, namespace: str, name: str) -> JsonObject:
        """Return the ApplicationSet. Raises `SourceError`."""

    def project(self, namespace: str, name: str) -> JsonObject:
        """Return the AppProject. Raises `SourceError`."""


class ApplicationStore:
    """Reads and patches one Application at a time."""

    def __init__(self, api: ApplicationApi, *, atomic: bool) -> None:
        """Use `api`. `atomic` states whether its patches apply only to the tested resourceVersion.

        Kubernetes guarantees this; Argo CD's API does not.
        """
        self._api = api
        self._atomic = atomic

    def read(self, namespace: str, name: str) -> tuple[JsonObject, str]:
        """Return the Application and its resourceVersion. Raises `SourceError`."""
        application = self._api.get_application(namespace, name)
        version = text(application, "metadata", "resourceVersion")
        if not version:
            raise SourceError(
                f"{namespace}/{name}: the API returned it without a resourceVersion",
                hint="read the Applications from Kubernetes: --applications cluster",
            )
        return application, version

    def patch(
        self,
        namespace: str,
        name: str,
        version: str,
        operations: Sequence[Operation],
    ) -> bool:
        """Apply JSON patch operations to the Application if its resourceVersion is still `version`.

        Return whether the patch was atomic; an atomic patch cannot have overwritten another change.
        Raises `Outpaced` if the Application has a different version.
        """
        # as the first operation, this test makes the whole patch fail for any other version
        version_test = {
            "op": "test",
            "path": "/metadata/resourceVersion",
            "value": version,
        }
        self._api.patch_application(namespace, name, [version_test, *operations])
        return self._atomic


class PreferredStore:
    """Reads Applications from Argo CD's API, but patches them through Kubernetes if it has the same
    objects.

    The kubeconfig may be for a different cluster that has an Application with the same name, so the
    UIDs are compared. If an Application cannot be read from or patched through Kubernetes, Argo
    CD's API is used.
    """

    def __init__(
        self,
        argocd: ApplicationStore,
        kubernetes: Callable[[], ApplicationStore],
        log: Callable[[str, str], None],
    ) -> None:
        self._argocd = argocd
        self._kubernetes = kubernetes
        self._log = log
        self._kubernetes_problem = ""  # why Kubernetes is no longer used; "" while it is
        # (namespace, name) → the store that the Application was read from
        self._read_by: dict[tuple[str, str], ApplicationStore] = {}

    def read(self, namespace: str, name: str) -> tuple[JsonObject, str]:
        """Return the Application and its resourceVersion, from the API that will patch it.

        That API is Kubernetes if it has the same object. Otherwise, it is Argo CD's API, and
        Kubernetes is not used again.
        """
        application, version = self._argocd.read(namespace, name)
        self._read_by[namespace, name] = self._argocd  # `patch` must use the API that was read from
        if self._kubernetes_problem:
            return application, version

        try:
            cluster_application, cluster_version = self._kubernetes().read(namespace, name)
        except (SourceError, UsageError) as error:
            self._stop_using_kubernetes(error.message)
            return application, version

        uid = text(application, "metadata", "uid")
        cluster_uid = text(cluster_application, "metadata", "uid")
        is_same_object = bool(cluster_uid) and cluster_uid == uid
        if not is_same_object:
            self._stop_using_kubernetes(f"{namespace}/{name} is a different object in that cluster")
            return application, version

        self._read_by[namespace, name] = self._kubernetes()
        return cluster_application, cluster_version

    def patch(
        self,
        namespace: str,
        name: str,
        version: str,
        operations: Sequence[Operation],
    ) -> bool:
        """Like `ApplicationStore.patch`, through the API that the Application was read from."""
        store = self._read_by[namespace, name]
        try:
            return store.patch(namespace, name, version, operations)
        except ForbiddenError as error:
            if store is self._argocd:
                raise
            self._stop_using_kubernetes(error.message)
            # makes the caller read the Application again, this time from Argo CD's API
            raise Outpaced(error.message) from None

    def _stop_using_kubernetes(self, why: str) -> None:
        """Use only Argo CD's API from now on, and log why."""
        self._kubernetes_problem = why
        self._log(
            "info",
            f"Applications are patched through Argo CD's API, not through Kubernetes: {why}",
        )


class ClusterApplications:
    """Applications in Kubernetes, accessed through the same methods as Argo CD's API. Anything that
    only Argo CD knows remains unknown.
    """

    def __init__(
        self,
        cluster: Kubernetes,
        home: str = "argocd",
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`home` is the control plane's namespace, where the AppProjects are."""
        self._cluster = cluster
        self._argocd_namespace = home
        self._now = now
        self._pods_forbidden = False  # set once a request to list pods was forbidden

    def get_application(self, namespace: str, name: str, project: str = "") -> JsonObject:  # noqa: ARG002
        """Return the complete Application; `project` is ignored. Raises `AbsentError`."""
        application = self._cluster.get(APPLICATIONS, namespace, name)
        if application is None:
            raise AbsentError(
                f"Application {namespace}/{name} not found",
                hint="check its name and namespace",
            )
        return application

    def keys(self) -> Sequence[tuple[str, str]]:
        """Return the (namespace, name) of every Application.

        Raises `SourceError`, including if listing all Applications is forbidden.
        """
        return [key_of(item) for item in self._cluster.list(APPLICATIONS)]

    def patch_application(
        self,
        namespace: str,
        name: str,
        operations: Sequence[Operation],
    ) -> JsonObject:
        """Apply a JSON patch to an Application, and return the patched Application.

        Raises `Outpaced` if one of the patch's tests fails.
        """
        return self._cluster.patch(APPLICATIONS, namespace, name, operations)

    def refresh_application(self, namespace: str, name: str) -> None:
        """Request a refresh by setting annotations, which Argo CD removes after comparing with Git.

        For a hydrated Application, also request hydration.
        """
        application = self._set_annotations(namespace, name, REFRESH, STAMP)
        # only the response reveals whether the Application is hydrated
        is_hydrated = bool(mapping(application, "spec", "sourceHydrator"))
        if is_hydrated:
            self._set_annotations(namespace, name, REFRESH, STAMP, HYDRATE, HYDRATE_STAMP)

    def _set_annotations(self, namespace: str, name: str, *keys: str) -> JsonObject:
        """Set the annotations with these keys on an Application, and return the changed
        Application.

        Timestamps are set to the current time, and all other annotations to "normal". Raises
        `SourceDownError` if several attempts fail because other programs keep changing the
        Application.
        """
        annotations = dict.fromkeys(keys, "normal")
        now = self._now().isoformat()
        for key in keys:
            if key in (STAMP, HYDRATE_STAMP):
                annotations[key] = now
        change = {"metadata": {"annotations": annotations}}
        for _ in range(_TRIES):
            with suppress(Outpaced):  # the controller is changing the same object: try again
                return self._cluster.merge(APPLICATIONS, namespace, name, change)
        raise SourceDownError(f"others keep changing {namespace}/{name}", hint="run it again")

    def resource_tree(self, namespace: str, name: str) -> JsonObject:
        """Return a resource tree in the format of Argo CD's API. It contains only the Application's
        unhealthy pods as `nodes`, or only a `hint` if listing pods is not allowed.

        Only Argo CD has the whole resource tree.
        """
        if self._pods_forbidden:
            return _PODS_HINT
        application = self.get_application(namespace, name)
        pod_nodes: list[JsonObject] = []
        for pods_namespace, owners in workloads(application).items():
            try:
                pods = self._cluster.list(PODS, pods_namespace, full=True)
                pod_nodes += nodes(islice(pods, _MOST_PODS), owners)
            except ForbiddenError:
                self._pods_forbidden = True
                return _PODS_HINT
        return {"nodes": pod_nodes}

    def sync_windows(self, namespace: str, name: str) -> JsonObject:
        """Return the AppProject's sync windows for an Application, and why they block it.

        Raises `SourceError`.
        """
        application = self.get_application(namespace, name)
        project_name = text(application, "spec", "project") or "default"
        project = self.project(self._argocd_namespace, project_name)
        destination = live_destination(application)
        return sync_windows(project, name, destination, self._now().isoformat())

    def application_set(self, namespace: str, name: str) -> JsonObject:
        """Return the ApplicationSet, or {} if it does not exist."""
        return self._cluster.get(APPLICATION_SETS, namespace, name) or {}

    def project(self, namespace: str, name: str) -> JsonObject:
        """Return the AppProject, or {} if it does not exist."""
        return self._cluster.get(PROJECTS, namespace, name) or {}


def key_of(item: JsonObject) -> tuple[str, str]:
    """Return an object's (namespace, name)."""
    return text(item, "metadata", "namespace"), text(item, "metadata", "name")


def workloads(application: JsonObject) -> dict[str, set[tuple[str, str]]]:
    """Return the workloads of a live Application, such as Deployments: namespace → {(kind, name)}.

    Return {} if the Application is deployed to a different cluster.
    """
    destination = mapping(application, "spec", "destination")
    is_in_this_cluster = (
        destination.get("server") in HERE or destination.get("name") == "in-cluster"
    )
    if not is_in_this_cluster:
        return {}
    workloads_by_namespace: dict[str, set[tuple[str, str]]] = {}
    for resource in mappings(application, "status", "resources"):
        kind = text(resource, "kind")
        name = text(resource, "name")
        namespace = text(resource, "namespace")
        is_workload = (resource.get("group"), kind) in WORKLOADS
        if is_workload and namespace:
            workloads_by_namespace.setdefault(namespace, set()).add((kind, name))
    return workloads_by_namespace


def nodes(pods: Iterable[JsonObject], owners: set[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return a node in the format of Argo CD's resource tree for each unhealthy pod that belongs to
    the workloads in `owners`.

    A workload is its kind and name, such as ("Deployment", "web"). A node contains the reason why
    its pod is waiting or has failed (such as an eviction), or a container's exit code.
    """
    unhealthy_nodes = []
    for pod in pods:
        metadata = mapping(pod, "metadata")
        references = mappings(metadata, "ownerReferences")
        if not any(_is_owned_by(reference, owners) for reference in references):
            continue
        reason, message = pod_problem(mapping(pod, "status"))
        if not reason:
            continue
        unhealthy_nodes.append(
            {
                "kind": "Pod",
                "name": text(metadata, "name"),
                "createdAt": text(metadata, "creationTimestamp"),
                "info": [{"name": "Status Reason", "value": reason}],
                "health": {"status": "Degraded", "message": message or reason},
            }
        )
    return unhealthy_nodes


def _is_owned_by(reference: JsonObject, owners: set[tuple[str, str]]) -> bool:
    """Return whether a pod with this owner reference belongs to one of the workloads in `owners`,
    directly or through an intermediate object.
    """
    kind = text(reference, "kind")
    name = text(reference, "name")
    if (kind, name) in owners:
        return True
    # An intermediate object's name begins with its owner's: the ReplicaSet web-5d4f belongs to the
    # Deployment (or Rollout) web.
    owner_name = name.rpartition("-")[0]
    owner_kinds = _OWNER_KINDS.get(kind, ())
    return any((owner_kind, owner_name) in owners for owner_kind in owner_kinds)


def pod_problem(status: JsonObject) -> tuple[str, str]:
    """Return the (reason, message) for an unhealthy pod, such as ("ImagePullBackOff", "Back-off
    pulling …"). Return ("", "") if the pod is healthy or starting. `status` is the pod's status.

    A container that has crashed counts as unhealthy until it is ready, even if it is running again.
    """
    for key in ("initContainerStatuses", "containerStatuses"):
        for container in mappings(status.get(key)):
            waiting = mapping(container, "state", "waiting")
            reason = text(waiting, "reason")
            is_ready = container.get("ready") is True
            crash = "" if is_ready else _described_crash(container)
            if reason and reason not in _REASONS_WHILE_STARTING:
                message = text(waiting, "message") or reason
                # "back-off 20s restarting failed container" does not say why the container failed
                return reason, f"{message}; {crash}" if crash else message
            if crash:
                return "Error", crash
    if status.get("phase") == "Failed":  # the whole pod failed, for example because it was evicted
        return text(status, "reason") or "Failed", text(status, "message")
    return "", ""


def _described_crash(container: JsonObject) -> str:
    """Return a description of a container's most recent failure, such as "container web exited with
    code 1", or "" if the container has not failed.
    """
    for state in ("state", "lastState"):  # `lastState` if it has been restarted
        termination = mapping(container, state, "terminated")
        exit_code = termination.get("exitCode")
        if not exit_code:
            continue
        sentence = f"container {container.get('name')} exited with code {exit_code}"
        reason = text(termination, "reason")
        if reason not in ("", "Error"):
            sentence = f"{sentence} ({reason})"
        message = text(termination, "message")
        return f"{sentence}: {message}" if message else sentence
    return ""
