"""A real Kubernetes API server on loopback, with etcd, RBAC, and Argo CD's Application definition.

There are no controllers, so nothing is reconciled, scheduled, or cleaned up.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from real.programs import installed
from support import needs
from support.real_servers import free_port, started
from support.runs import wait_until

ADMIN = "admin-of-the-tests"
GROUP = "argoproj.io/v1alpha1"
PREFERRED = {"Accept": "application/json"}
# The API keeps every field in these objects, and Argo CD's own definition also validates them.
CRDS = (
    ("argoproj.io", "applications", "Application"),
    ("argocd-image-updater.argoproj.io", "imageupdaters", "ImageUpdater"),
)


@dataclass(frozen=True)
class KubernetesServer:
    """The address of the API, and requests sent as an administrator."""

    url: str
    ca: Path

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        kind: str = "application/json",
        token: str = ADMIN,
    ) -> Any:
        """Return the response to a request."""
        heads = {"Authorization": f"Bearer {token}", "Content-Type": kind, **PREFERRED}
        data = None if body is None else json.dumps(body)
        return requests.request(
            method, f"{self.url}{path}", data=data, headers=heads, verify=str(self.ca), timeout=30
        )

    def create(self, *objects: Mapping[str, Any]) -> None:
        """Create objects. Existing objects are kept."""
        for one in objects:
            answer = self.ask("POST", self.path(one), one)
            assert answer.status_code in (201, 409), answer.text

    def path(self, one: Mapping[str, Any]) -> str:
        """Return the API path of objects like this one."""
        version, namespace = one["apiVersion"], one["metadata"].get("namespace")
        plural = "serviceaccounts" if one["kind"] == "ServiceAccount" else f"{one['kind'].lower()}s"
        root = f"/api/{version}" if version == "v1" else f"/apis/{version}"
        return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"

    def application(self, namespace: str, name: str) -> Any:
        """Return an Application's current state."""
        return self.ask("GET", f"/apis/{GROUP}/namespaces/{namespace}/applications/{name}").json()

    def service_account(self, namespace: str, name: str) -> str:
        """Return a service account token like the one that a pod receives."""
        wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = self.ask(
            "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", wanted
        )
        assert answer.status_code == 201, answer.text
        return str(answer.json()["status"]["token"])

    def kubeconfig(self, folder: Path, token: str = ADMIN) -> Path:
        """Return a kubeconfig that contains the token."""
        path = folder / "kubeconfig"
        one = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            "clusters": [
                {
                    "name": "here",
                    "cluster": {"server": self.url, "certificate-authority": str(self.ca)},
                }
            ],
            "users": [{"name": "me", "user": {"token": token}}],
        }
        path.write_text(json.dumps(one))
        return path


@contextmanager
def kubernetes_server(folder: Path) -> Iterator[KubernetesServer]:
    """Yield a server with Applications and ImageUpdaters defined, and the namespaces `argocd`,
    `team`, and `ci`.
    """
    etcd, apiserver = installed("bin/etcd"), installed("bin/kube-apiserver")
    client, peer, port = free_port(), free_port(), free_port()
    store = [
        f"--{kind}-urls=http://127.0.0.1:{at}"
        for kind, at in (
            ("listen-client", client),
            ("advertise-client", client),
            ("listen-peer", peer),
            ("initial-advertise-peer", peer),
        )
    ]
    cluster = f"--initial-cluster=default=http://127.0.0.1:{peer}"
    with started(
        [etcd, f"--data-dir={folder}/etcd", "--unsafe-no-fsync", cluster, *store],
        client,
        folder / "etcd.log",
    ):
        argv = [apiserver, *_options(folder, client, port)]
        with started(argv, port, folder / "kube-apiserver.log"):
            server = KubernetesServer(
                f"https://127.0.0.1:{port}", folder / "certificates" / "apiserver.crt"
            )
            wait_until(lambda: server.ask("GET", "/readyz").status_code == 200, seconds=120)
            _prepare(server)
            yield server


def _options(folder: Path, store: int, port: int) -> list[str]:
    key = folder / "accounts.pem"
    subprocess.run(
        [*needs("openssl"), "genrsa", "-out", str(key), "2048"], check=True, capture_output=True
    )
    (folder / "tokens.csv").write_text(f'{ADMIN},admin,0,"system:masters"\n')
    return [
        f"--etcd-servers=http://127.0.0.1:{store}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--secure-port={port}",
        f"--cert-dir={folder}/certificates",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--authorization-mode=RBAC",
        f"--token-auth-file={folder}/tokens.csv",
        "--service-account-issuer=https://kubernetes.example.com",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
    ]


def _prepare(server: KubernetesServer) -> None:
    for group, plural, kind in CRDS:
        server.create(_definition(group, plural, kind))
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": one}}
        for one in ("argocd", "team", "ci")
    ]
    server.create(*namespaces)
    paths = [f"/apis/{group}/v1alpha1/{plural}" for group, plural, _ in CRDS]
    wait_until(lambda: all(server.ask("GET", path).status_code == 200 for path in paths))


def _definition(group: str, plural: str, kind: str) -> dict[str, Any]:
    """Return the definition of a kind whose objects may contain any fields."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
