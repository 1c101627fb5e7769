"""The live Application as a store: what is read has a resourceVersion, and a patch for another one is `Outpaced`.

Through Argo CD's API or Kubernetes; `ClusterApplications` gives the latter the verbs of the former.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Protocol

from task.errors import AbsentError, Outpaced, SourceDownError, SourceError, UsageError
from task.kubernetes.client import APPLICATIONS, PODS, Resource
from task.kubernetes.errors import ForbiddenError
from task.kubernetes.pods import nodes, workloads

Operation = Mapping[str, Any]  # of a JSON patch
_MOST_PODS = 2_000  # of one namespace that are looked at
_TRIES = 4  # of a refresh that meets other changes
REFRESH = "argocd.argoproj.io/refresh"
# Since 3.6 Argo CD takes a refresh away only if this is what it saw when it began (argo-cd 28392). Without it, what is
# asked for while a refresh runs is forgotten. Older versions pass over it.
STAMP = "argocd.argoproj.io/refresh-timestamp"


class PatchingApi(Protocol):
    """What is needed of `task.argocd.api.ArgoCDApi`, or of `ClusterApplications`."""

    def get_application(self, namespace: str, name: str) -> Mapping[str, Any]:
        """The whole Application."""

    def patch_application(self, namespace: str, name: str, operations: Sequence[Operation]) -> Mapping[str, Any]:
        """Apply a JSON patch; the Application as it is then. Raises `Outpaced` when a test fails."""


class ApplicationStore:
    """Applications, read and patched one at a time."""

    def __init__(self, api: PatchingApi, *, atomic: bool) -> None:
        """`atomic`: a patch lands on what its test saw. Argo CD's API does not promise that, Kubernetes does."""
        self._api, self._atomic = api, atomic

    def read(self, namespace: str, name: str) -> tuple[Mapping[str, Any], str]:
        """The Application and its resourceVersion. Raises `SourceError`s."""
        found = self._api.get_application(namespace, name)
        return found, _version(found, f"{namespace}/{name}")

    def patch(self, namespace: str, name: str, version: str, operations: Sequence[Operation]) -> bool:
        """Change the Application if it still is at that resourceVersion; whether nobody can have overwritten that.

        Raises `Outpaced` where it is not: read it and decide again.
        """
        test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
        self._api.patch_application(namespace, name, [test, *operations])
        return self._atomic


class PreferredStore:
    """Applications that Argo CD's API names, patched through Kubernetes where that has the very same objects.

    A kubeconfig may be one of another cluster, with an Application of the same name: the uid tells. What Kubernetes
    does not show or allow is left to Argo CD's API.
    """

    def __init__(
        self, argocd: ApplicationStore, kubernetes: Callable[[], ApplicationStore], log: Callable[[str, str], None]
    ) -> None:
        self._argocd, self._kubernetes, self._log = argocd, kubernetes, log
        self._why = ""  # why Kubernetes is not asked any more
        self._read_by: dict[tuple[str, str], ApplicationStore] = {}

    def read(self, namespace: str, name: str) -> tuple[Mapping[str, Any], str]:
        """The Application and its resourceVersion, from where it will be patched."""
        found = self._argocd.read(namespace, name)
        self._read_by[namespace, name] = self._argocd
        if not self._why:
            try:
                other = self._kubernetes().read(namespace, name)
            except (SourceError, UsageError) as error:
                self._leave(error.message)
            else:
                if _uid(other[0]) and _uid(other[0]) == _uid(found[0]):
                    self._read_by[namespace, name] = self._kubernetes()
                    return other
                self._leave(f"{namespace}/{name} is another object there")
        return found

    def patch(self, namespace: str, name: str, version: str, operations: Sequence[Operation]) -> bool:
        """As `ApplicationStore.patch` does it, by the API that the Application was read from."""
        store = self._read_by[namespace, name]
        try:
            return store.patch(namespace, name, version, operations)
        except ForbiddenError as error:
            if store is self._argocd:
                raise
            self._leave(error.message)
            raise Outpaced(error.message) from None  # read and patched by Argo CD's API next

    def _leave(self, why: str) -> None:
        self._why = why
        self._log("info", f"Applications are patched through Argo CD's API, not through Kubernetes: {why}")


def _uid(found: Mapping[str, Any]) -> str:
    metadata = found.get("metadata")
    return str(metadata.get("uid") or "") if isinstance(metadata, dict) else ""


def _version(found: Mapping[str, Any], key: str) -> str:
    metadata = found.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if not isinstance(version, str) or not version:
        raise SourceError(
            f"{key}: the API gives it no resourceVersion", hint="ask Kubernetes itself: --applications cluster"
        )
    return version


class Cluster(Protocol):
    """What is needed of `task.kubernetes.client.Kubernetes`."""

    def get(self, resource: Resource, namespace: str, name: str) -> Mapping[str, Any] | None:
        """One whole object; None where there is none."""

    def patch(
        self, resource: Resource, namespace: str, name: str, operations: Sequence[Operation]
    ) -> Mapping[str, Any]:
        """Change an object by a JSON patch. Raises `Outpaced`."""

    def merge(self, resource: Resource, namespace: str, name: str, change: Mapping[str, Any]) -> Mapping[str, Any]:
        """Change an object by a merge patch."""

    def list(self, resource: Resource, namespace: str = "", *, full: bool = False) -> Iterable[Mapping[str, Any]]:
        """Every object of a namespace."""


class ClusterApplications:
    """Applications through Kubernetes, with the verbs of Argo CD's API. What only Argo CD knows stays unknown."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._blind = False  # pods may not be listed

    def get_application(self, namespace: str, name: str, project: str = "") -> Mapping[str, Any]:  # noqa: ARG002
        """The whole Application; its project tells nothing here. Raises `AbsentError`."""
        found = self._cluster.get(APPLICATIONS, namespace, name)
        if found is None:
            raise AbsentError(f"there is no Application {namespace}/{name}", hint="check its name and namespace")
        return found

    def patch_application(self, namespace: str, name: str, operations: Sequence[Operation]) -> Mapping[str, Any]:
        """Apply a JSON patch; the Application as it is then. Raises `Outpaced` when a test fails."""
        return self._cluster.patch(APPLICATIONS, namespace, name, operations)

    def refresh_application(self, namespace: str, name: str) -> None:
        """Argo CD looks at Git soon: it removes the annotations when it has."""
        change = {"metadata": {"annotations": {REFRESH: "normal", STAMP: datetime.now(UTC).isoformat()}}}
        for _ in range(_TRIES):
            with suppress(Outpaced):  # the controller writes the same object
                self._cluster.merge(APPLICATIONS, namespace, name, change)
                return
        raise SourceDownError(f"others keep changing {namespace}/{name}", hint="run it again")

    def resource_tree(self, namespace: str, name: str) -> Mapping[str, Any]:
        """The pods that are not well, where they may be listed: the tree itself is Argo CD's."""
        if self._blind:
            return {}
        application = self.get_application(namespace, name)
        found: list[Mapping[str, Any]] = []
        for where, owners in workloads(application).items():
            try:
                found += nodes(islice(self._cluster.list(PODS, where, full=True), _MOST_PODS), owners)
            except ForbiddenError:
                self._blind = True
                return {}
        return {"nodes": found}

    def sync_windows(self, namespace: str, name: str) -> Mapping[str, Any]:  # noqa: ARG002 - as Argo CD's API has it
        """Nothing: it would take the right to read AppProjects."""
        return {}
