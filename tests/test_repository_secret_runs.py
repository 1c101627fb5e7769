"""What Argo CD's repository secrets say of a server holds for a repoURL with and without `.git`, and for templates."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import app, kubeconfig
from clusters import run as run_command
from fakes.kubernetes_api import APPLICATIONS, SECRETS, KubernetesApi, running
from git_servers import git_server
from http_proxy import http_proxy
from runs import repository, target
from serving import certificate
from support import Result, git, show

TOKEN = "b3arer-t0ken"
# (the kind of secret, the end of its URL, the end of the Application's)
ENDS = [
    ("repository", "repo", "repo.git"),
    ("repository", "repo.git", "repo"),
    ("repository", "repo.git", "repo.git"),
    ("repository", "repo", "repo"),
    ("repo-creds", "", "repo.git"),
    ("repo-creds", "", "repo"),
]
IN_GIT = [row for row in ENDS if row[2].endswith(".git")]


def of_argo_cd(url: str, kind: str = "repository", **data: str) -> dict[str, Any]:
    """A secret of Argo CD's own."""
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in {"url": url, **data}.items()}
    labels = {"argocd.argoproj.io/secret-type": kind}
    return {"metadata": {"name": f"{kind}-1", "namespace": "argocd", "labels": labels}, "data": encoded}


def in_cluster(folder: Path, api: KubernetesApi, url: str, *more: str | Path) -> Result:
    """A run for one Application of a cluster with that repository."""
    api.add(APPLICATIONS, app("web", url))
    return run_command("--applications", "cluster", "--kubeconfig", kubeconfig(folder, api), *more)


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with running() as found:
        yield found


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    found = repository(tmp_path, "web")
    git(found, "config", "http.receivepack", "true")
    (tmp_path / "repo").symlink_to(found)
    return found


def landed(repo: Path, result: Result) -> None:
    assert result.code == 0, result.stderr
    assert "newTag: 1.1.0" in show(repo, "main", target("web"))
    assert TOKEN not in result.stdout + result.stderr


@pytest.mark.parametrize(("kind", "ours", "theirs"), ENDS)
def test_a_bearer_token(tmp_path: Path, repo: Path, api: KubernetesApi, kind: str, ours: str, theirs: str) -> None:
    with git_server(tmp_path) as server:
        server.bearer = TOKEN
        api.add(SECRETS, of_argo_cd(f"{server.url}{ours}", kind, bearerToken=TOKEN))
        landed(repo, in_cluster(tmp_path, api, f"{server.url}{theirs}"))


@pytest.mark.parametrize(("kind", "ours", "theirs"), IN_GIT)
def test_a_client_certificate_and_an_unchecked_server(
    tmp_path: Path, repo: Path, api: KubernetesApi, kind: str, ours: str, theirs: str
) -> None:
    found, key = certificate(tmp_path)
    with git_server(tmp_path, (found, key), of_clients=found) as server:
        ours_is = {"tlsClientCertData": found.read_text(), "tlsClientCertKey": key.read_text(), "insecure": "true"}
        api.add(SECRETS, of_argo_cd(f"{server.url}{ours}", kind, **ours_is))
        landed(repo, in_cluster(tmp_path, api, f"{server.url}{theirs}"))


def test_a_server_is_checked_where_the_secret_is_silent(tmp_path: Path, repo: Path, api: KubernetesApi) -> None:
    with git_server(tmp_path, certificate(tmp_path)) as server:
        api.add(SECRETS, of_argo_cd(f"{server.url}repo.git", username="u", password=TOKEN))
        result = in_cluster(tmp_path, api, f"{server.url}repo.git")
    assert result.code == 4, result.stderr
    assert "the server's TLS certificate was not accepted" in result.stderr
    assert server.seen == []
    assert "newTag: 1.0.0" in show(repo, "main", target("web"))


@pytest.mark.parametrize(("kind", "ours", "theirs"), IN_GIT)
def test_a_proxy(tmp_path: Path, repo: Path, api: KubernetesApi, kind: str, ours: str, theirs: str) -> None:
    with git_server(tmp_path) as server, http_proxy(f"bob:{TOKEN}") as proxy:
        url = f"http://bob:{TOKEN}@127.0.0.1:{proxy.port}"
        api.add(SECRETS, of_argo_cd(f"{server.url}{ours}", kind, proxy=url))
        landed(repo, in_cluster(tmp_path, api, f"{server.url}{theirs}"))
        assert any(one.endswith("/git-receive-pack") for one in proxy.seen)


@pytest.mark.parametrize(("said", "used"), [("127.0.0.1,other.example.com", False), ("other.example.com", True)])
def test_servers_that_need_no_proxy(
    tmp_path: Path, repo: Path, api: KubernetesApi, monkeypatch: pytest.MonkeyPatch, said: str, used: bool
) -> None:
    monkeypatch.setenv("NO_PROXY", "other.example.com" if not used else "127.0.0.1")  # the secret's word counts alone
    with git_server(tmp_path) as server, http_proxy() as proxy:
        api.add(SECRETS, of_argo_cd(server.url, "repo-creds", proxy=f"http://127.0.0.1:{proxy.port}", noProxy=said))
        landed(repo, in_cluster(tmp_path, api, f"{server.url}repo.git"))
        assert bool(proxy.seen) is used


def test_the_proxy_of_one_repository_is_no_others(tmp_path: Path, repo: Path, api: KubernetesApi) -> None:
    second = repository(tmp_path, "api", name="second.git")
    git(second, "config", "http.receivepack", "true")
    with git_server(tmp_path) as server, http_proxy() as proxy:
        api.add(SECRETS, of_argo_cd(f"{server.url}repo", proxy=f"http://127.0.0.1:{proxy.port}"))
        api.add(APPLICATIONS, app("api", f"{server.url}second.git"))
        landed(repo, in_cluster(tmp_path, api, f"{server.url}repo.git"))
    assert proxy.seen
    assert not [one for one in proxy.seen if "second" in one]
