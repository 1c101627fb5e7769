"""The cluster and Argo CD: sources of Applications, live write-back, and what happens after a push."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from task.edges.log import Log
from task.errors import Malformed, UsageError
from task.find import Manifest, Scope, concerns
from task.light import once
from task.model import Image, Subscription
from task.secret import Secret
from task.settings import ArgoSettings, Settings
from task.world import Live

if TYPE_CHECKING:
    from task.edges.access import Plan
    from task.edges.cluster_secrets import ClusterSecrets
    from task.edges.http import Limits
    from task.edges.kubernetes import Kubernetes
    from task.edges.rollouts import Api

TOKENS = ("IMAGE_UPDATE_ARGOCD_AUTH_TOKEN", "ARGOCD_AUTH_TOKEN")


class Argo:
    """What one run asks of a cluster or of Argo CD's API, each opened when it is first needed."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], log: Log, opened: ExitStack) -> None:
        self._given: ArgoSettings = settings.argo
        self._settings, self._opened = settings, opened
        self.environ, self.log = environ, log
        self.kubernetes: Callable[[], Kubernetes] = once(self._kubernetes)
        self.secrets: Callable[[], ClusterSecrets] = once(self._secrets)
        self.kind = next((one for one in sources(settings, environ) if one in ("cluster", "argocd")), "")

    def _kubernetes(self) -> Kubernetes:
        from task.edges.cluster_access import cluster_access
        from task.edges.kubernetes import Kubernetes

        found = Kubernetes(cluster_access(self.environ, self._given.kubeconfig, self._given.context), log=self.log)
        self._opened.callback(found.close)
        return found

    def _secrets(self) -> ClusterSecrets:
        from task.edges.cluster_secrets import ClusterSecrets

        return ClusterSecrets(self.kubernetes(), self._settings.argocd_namespace, self.log)

    def manifests(self, source: str, scope: Scope, images: Sequence[Image]) -> Iterable[Manifest]:
        """The Applications that may take the images."""
        wanted = concerns(images, scope.prefix)
        if source == "cluster":
            from task.edges.applications.cluster import Cluster

            return Cluster(
                self.kubernetes(),
                prefix=scope.prefix,
                narrow=scope.narrow,
                argocd_namespace=self._settings.argocd_namespace,
                wanted=wanted,
                log=self.log,
            ).all()
        from task.edges.applications.argocd import ArgoCD

        narrow = scope.narrow
        return ArgoCD(
            self.server(),
            wanted,
            projects=narrow.projects,
            selector=narrow.selector,
            namespaces=narrow.namespaces,
        ).all()

    def server(self, limits: Limits | None = None) -> Any:
        """Argo CD's API."""
        from task.edges.argocd import ArgoCDApi
        from task.edges.http import Limits
        from task.parse.argocd_options import Connection, parse_headers

        given = self._given
        try:
            headers = parse_headers(given.headers)
        except Malformed as error:
            raise UsageError(f"--argocd-header: {error.message}", hint=error.hint) from None
        connection = Connection(
            server=given.server,
            token=Secret(self.environ.get(TOKENS[0], "").strip()),
            token_file=given.token_file,
            plaintext=given.plaintext,
            insecure=given.insecure,
            ca_file=given.ca_file,
            root_path=given.root_path,
            headers=headers,
        )
        found = ArgoCDApi(
            connection,
            self.environ,
            namespace=self._settings.argocd_namespace,
            limits=limits or Limits(),
            log=lambda line: self.log("debug", line),
        )
        self._opened.callback(found.close)
        return found

    def api(self, *, patient: bool = False) -> Api:
        """What reads, patches and refreshes single Applications. `patient`: it is asked again and again anyway."""
        if self.kind == "cluster":
            from task.edges.stores.live import ClusterApplications

            return ClusterApplications(self.kubernetes())
        from task.edges.rollouts import LIMITS

        api: Api = self.server(LIMITS if patient else None)
        return api

    def live(self) -> Live:
        """Live Applications, to be patched."""
        from task.edges.stores.live import LiveApplications

        return LiveApplications(self.api())  # type: ignore[arg-type] # both APIs patch

    def plan(self, repo: str, sub: Subscription) -> Plan | None:
        """What the cluster's secrets hold for a repository: those that an annotation names, else Argo CD's own."""
        from task.edges.repo_access import plan_of, settings_of

        secrets, app = self.secrets(), sub.application
        named = sub.credentials.startswith("secret:")
        found = secrets.named(sub.credentials, repo, app.namespace) if named else secrets.repository(repo, app.project)
        if found is None:
            return None
        return plan_of(found, repo)._replace(pairs=lambda folder: settings_of(found, repo, folder))


def sources(settings: Settings, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Where Applications are read. Raises `UsageError` where nothing says so (contract, section 2)."""
    if settings.applications:
        return settings.applications
    if environ.get("KUBERNETES_SERVICE_HOST"):
        from task.edges.cluster_access import in_cluster

        if in_cluster(environ):
            return ("cluster",)
    if settings.argo.server or environ.get("ARGOCD_SERVER"):
        return ("argocd",)
    return ()
