"""Scenes for whole runs with a cluster or with Argo CD: a kubeconfig, Applications, and the
requests to the API.
"""

import base64
import json
from pathlib import Path
from typing import Any

from fakes.kubernetes_api import APPLICATIONS, KubernetesApi

from support import Result
from support.runs import WEB, application, run

REFRESH = "argocd.argoproj.io/refresh"


def kubeconfig(folder: Path, api: KubernetesApi, token: str = "admin-token") -> Path:  # noqa: S107 - the fake's
    """Write a kubeconfig for the API, and return its path."""
    path = folder / "kubeconfig"
    one = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": api.url}}],
        "users": [{"name": "me", "user": {"token": token}}],
    }
    path.write_text(json.dumps(one))
    return path


def full_application(
    name: str,
    repo: Path | str,
    namespace: str = "argocd",
    project: str = "default",
    **annotations: str,
) -> Any:
    """Return an Application that conforms to Argo CD's schema, and that is updated in its
    kustomization.
    """
    found = application(
        name, repo, namespace=namespace, **{"write_back_method": "git", **annotations}
    )
    found["spec"] |= {
        "project": project,
        "destination": {"server": "https://kubernetes.default.svc", "namespace": name},
        "syncPolicy": {"automated": {}},
    }
    found["status"] = {"sourceType": "Kustomize", "summary": {"images": [f"{WEB}:1.0.0"]}}
    return found


def live_app(
    name: str, repo: Path | str = "https://git.example.com/acme/gitops.git", **annotations: str
) -> Any:
    """Return an Application whose updates are applied as patches in the cluster."""
    return full_application(
        name, repo, **{"write_back_method": "argocd", "write_back_target": "", **annotations}
    )


def rules(result: Result) -> dict[str, str]:
    """Return the rule behind each Application's decision."""
    return {one["application"]: one["rule"] for one in result.json["decisions"]}


def refreshed(api: KubernetesApi) -> list[str]:
    """Return the Applications that Argo CD had to refresh, in order."""
    return [
        f"{one.namespace}/{one.name}"
        for one in api.asked
        if one.verb == "patch" and one.resource == APPLICATIONS and REFRESH in str(one.content)
    ]


def of_argo_cd(url: str, kind: str = "repository", **data: str) -> dict[str, Any]:
    """Return a secret that belongs to Argo CD."""
    encoded = {
        key: base64.b64encode(value.encode()).decode()
        for key, value in {"url": url, **data}.items()
    }
    labels = {"argocd.argoproj.io/secret-type": kind}
    return {
        "metadata": {"name": f"{kind}-1", "namespace": "argocd", "labels": labels},
        "data": encoded,
    }


def in_cluster(folder: Path, api: KubernetesApi, url: str, *more: str | Path) -> Result:
    """Run the command for one Application in a cluster, with its repository at `url`."""
    api.add(APPLICATIONS, full_application("web", url))
    return run("--applications", "cluster", "--kubeconfig", kubeconfig(folder, api), *more)
