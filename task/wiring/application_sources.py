"""Where Applications are read. This needs no client."""

from __future__ import annotations

from collections.abc import Mapping

from task.kubernetes.in_cluster import in_cluster
from task.settings import ArgoOptions, Settings


def sources(settings: Settings, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return where Applications are read: sources as for `--applications`, or () if nothing says so."""
    if settings.sources.applications:
        return settings.sources.applications
    if environ.get("KUBERNETES_SERVICE_HOST") and in_cluster(environ):
        return ("cluster",)
    return ("argocd",) if names_server(settings.argo, environ) else ()


def names_server(given: ArgoOptions, environ: Mapping[str, str]) -> bool:
    """Tell whether a server of Argo CD is given."""
    if given.argocd_server or environ.get("ARGOCD_SERVER", "").strip():
        return True
    return "--server" in environ.get("ARGOCD_OPTS", "")
