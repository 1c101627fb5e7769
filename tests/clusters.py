"""Scenes for whole runs with a cluster or an Argo CD: a kubeconfig, Applications, and the API's requests."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fakes.kubernetes_api import APPLICATIONS, KubernetesApi
from runs import PREFIX, WEB
from support import Result, image_update

IMAGE = f"{WEB}:1.1.0"
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


def app(
    name: str,
    repo: Path | str,
    namespace: str = "argocd",
    project: str = "default",
    **annotations: str,
) -> Any:
    """Return an Application that is valid in Argo CD's schema, and is updated in its kustomization."""
    given = {
        "image-list": f"web={WEB}",
        "write-back-method": "git",
        "write-back-target": "kustomization",
    }
    given |= {key.replace("__", ".").replace("_", "-"): value for key, value in annotations.items()}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {PREFIX + key: value for key, value in given.items() if value},
        },
        "spec": {
            "project": project,
            "destination": {"server": "https://kubernetes.default.svc", "namespace": name},
            "source": {"repoURL": str(repo), "path": f"apps/{name}", "targetRevision": "main"},
            "syncPolicy": {"automated": {}},
        },
        "status": {"sourceType": "Kustomize", "summary": {"images": [f"{WEB}:1.0.0"]}},
    }


def live_app(
    name: str, repo: Path | str = "https://git.example.com/acme/gitops.git", **annotations: str
) -> Any:
    """Return an Application that is patched in the cluster."""
    return app(
        name, repo, **{"write_back_method": "argocd", "write_back_target": "", **annotations}
    )


def run(
    *more: str | Path,
    command: str = "run",
    image: str = IMAGE,
    env: Mapping[str, str] | None = None,
    **others: Any,
) -> Result:
    """Run the command with an image, and with a JSON report on stdout."""
    given = ("--image", image) if command in ("run", "plan") else ()
    words = (command, *given, "--allow-protocol", "file", "--output", "json", *more)
    return image_update(*words, env={"NO_COLOR": "1", **(env or {})}, **others)


def rules(result: Result) -> dict[str, str]:
    """Return the rule of each Application's decision."""
    return {one["application"]: one["rule"] for one in result.json["decisions"]}


def refreshed(api: KubernetesApi) -> list[str]:
    """Return the Applications that Argo CD had to refresh, in order."""
    return [
        f"{one.namespace}/{one.name}"
        for one in api.asked
        if one.verb == "patch" and one.resource == APPLICATIONS and REFRESH in str(one.content)
    ]


def of_argo_cd(url: str, kind: str = "repository", **data: str) -> dict[str, Any]:
    """Return a secret of Argo CD's own."""
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
    """Run for one Application of a cluster with that repository."""
    api.add(APPLICATIONS, app("web", url))
    return run("--applications", "cluster", "--kubeconfig", kubeconfig(folder, api), *more)
