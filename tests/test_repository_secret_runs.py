"""Repository secrets in whole runs: Argo CD's own, for URLs with and without `.git`, and those
named by Applications.
"""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.kubernetes_api import APPLICATIONS, SECRETS, KubernetesApi, running
from support import Result, git, image_update, show
from support.clusters import full_application, in_cluster, kubeconfig, of_argo_cd
from support.git_servers import git_server
from support.http_proxy import http_proxy
from support.runs import application, arguments, manifest, repository, run, target
from support.serving import certificate

TOKEN = "b3arer-t0ken"
# (the kind of secret, the ending of its URL, the ending of the Application's URL)
ENDS = [
    ("repository", "repo", "repo.git"),
    ("repository", "repo.git", "repo"),
    ("repository", "repo.git", "repo.git"),
    ("repository", "repo", "repo"),
    ("repo-creds", "", "repo.git"),
    ("repo-creds", "", "repo"),
]
IN_GIT = [row for row in ENDS if row[2].endswith(".git")]


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
def test_a_bearer_token_from_a_repository_secret_is_used(
    tmp_path: Path, repo: Path, api: KubernetesApi, kind: str, ours: str, theirs: str
) -> None:
    with git_server(tmp_path) as server:
        server.bearer = TOKEN
        api.add(SECRETS, of_argo_cd(f"{server.url}{ours}", kind, bearerToken=TOKEN))
        landed(repo, in_cluster(tmp_path, api, f"{server.url}{theirs}"))


@pytest.mark.parametrize(("kind", "ours", "theirs"), IN_GIT)
def test_a_client_certificate_works_with_an_insecure_server(
    tmp_path: Path, repo: Path, api: KubernetesApi, kind: str, ours: str, theirs: str
) -> None:
    found, key = certificate(tmp_path)
    with git_server(tmp_path, (found, key), of_clients=found) as server:
        ours_is = {
            "tlsClientCertData": found.read_text(),
            "tlsClientCertKey": key.read_text(),
            "insecure": "true",
        }
        api.add(SECRETS, of_argo_cd(f"{server.url}{ours}", kind, **ours_is))
        landed(repo, in_cluster(tmp_path, api, f"{server.url}{theirs}"))


def test_the_server_certificate_is_checked_unless_the_secret_disables_it(
    tmp_path: Path, repo: Path, api: KubernetesApi
) -> None:
    with git_server(tmp_path, certificate(tmp_path)) as server:
        api.add(SECRETS, of_argo_cd(f"{server.url}repo.git", username="u", password=TOKEN))
        result = in_cluster(tmp_path, api, f"{server.url}repo.git")
    assert result.code == 4, result.stderr
    assert "the server's TLS certificate was not accepted" in result.stderr
    assert server.seen == []
    assert "newTag: 1.0.0" in show(repo, "main", target("web"))


@pytest.mark.parametrize(("kind", "ours", "theirs"), IN_GIT)
def test_the_proxy_from_a_repository_secret_is_used(
    tmp_path: Path, repo: Path, api: KubernetesApi, kind: str, ours: str, theirs: str
) -> None:
    with git_server(tmp_path) as server, http_proxy(f"bob:{TOKEN}") as proxy:
        url = f"http://bob:{TOKEN}@127.0.0.1:{proxy.port}"
        api.add(SECRETS, of_argo_cd(f"{server.url}{ours}", kind, proxy=url))
        landed(repo, in_cluster(tmp_path, api, f"{server.url}{theirs}"))
        assert any(one.endswith("/git-receive-pack") for one in proxy.seen)


@pytest.mark.parametrize(
    ("said", "used"), [("127.0.0.1,other.example.com", False), ("other.example.com", True)]
)
def test_the_no_proxy_list_of_the_secret_is_respected(
    tmp_path: Path,
    repo: Path,
    api: KubernetesApi,
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    used: bool,
) -> None:
    monkeypatch.setenv(
        "NO_PROXY", "other.example.com" if not used else "127.0.0.1"
    )  # only the list in the secret applies
    with git_server(tmp_path) as server, http_proxy() as proxy:
        api.add(
            SECRETS,
            of_argo_cd(
                server.url, "repo-creds", proxy=f"http://127.0.0.1:{proxy.port}", noProxy=said
            ),
        )
        landed(repo, in_cluster(tmp_path, api, f"{server.url}repo.git"))
        assert bool(proxy.seen) is used


def test_the_proxy_of_one_repository_is_not_used_for_another(
    tmp_path: Path, repo: Path, api: KubernetesApi
) -> None:
    second = repository(tmp_path, "api", name="second.git")
    git(second, "config", "http.receivepack", "true")
    with git_server(tmp_path) as server, http_proxy() as proxy:
        api.add(SECRETS, of_argo_cd(f"{server.url}repo", proxy=f"http://127.0.0.1:{proxy.port}"))
        api.add(APPLICATIONS, full_application("api", f"{server.url}second.git"))
        landed(repo, in_cluster(tmp_path, api, f"{server.url}repo.git"))
    assert proxy.seen
    assert not [one for one in proxy.seen if "second" in one]


PLATFORM = "pl4tform-t0ken"
OWN = {"username": "mine", "password": "s3cret-mine"}


def named(name: str, namespace: str, **data: str) -> dict[str, Any]:
    """A secret that a team has created for its own Applications."""
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"metadata": {"name": name, "namespace": namespace}, "data": encoded}


@pytest.mark.parametrize("own", [OWN, {"bearerToken": "s3cret-mine"}], ids=["password", "bearer"])
@pytest.mark.parametrize("accepted", [True, False])
def test_an_unverified_server_gets_no_platform_login(
    tmp_path: Path, api: KubernetesApi, own: dict[str, str], accepted: bool
) -> None:
    """Whoever chooses the proxy and disables the certificate check can read the traffic."""
    repo = repository(tmp_path, "web")
    git(repo, "config", "http.receivepack", "true")
    home = tmp_path / "home"
    home.mkdir()
    with git_server(tmp_path, certificate(tmp_path)) as server:
        if "password" in own:
            server.logins = {"mine": "s3cret-mine" if accepted else "other"}
        else:
            server.bearer = "s3cret-mine" if accepted else "other"
        host = server.url.rstrip("/")
        (home / ".netrc").write_text(f"machine 127.0.0.1 login netrc password {PLATFORM}\n")
        (home / ".git-credentials").write_text(
            f"https://stored:{PLATFORM}@{host.partition('://')[2]}\n"
        )
        (home / "askpass").write_text(f"#!/bin/sh\necho {PLATFORM}\n")
        (home / "askpass").chmod(0o755)
        (home / ".gitconfig").write_text(
            f'[http "{host}/"]\n\textraHeader = X-Platform: {PLATFORM}\n\tcookieFile = {home}/cookies\n'
            f'[credential "{host}"]\n\thelper = store\n[core]\n\taskPass = {home}/askpass\n'
        )
        (home / "cookies").write_text(f"127.0.0.1\tFALSE\t/\tTRUE\t0\tsession\t{PLATFORM}\n")
        api.add(SECRETS, named("git", "team", **own, insecure="true"))
        api.add(
            APPLICATIONS,
            full_application(
                "web", f"{server.url}repo.git", "team", write_back_method="git:secret:team/git"
            ),
        )
        env = {"HOME": str(home), "GIT_ASKPASS": str(home / "askpass")}
        result = run(
            "--applications", "cluster", "--kubeconfig", kubeconfig(tmp_path, api), env=env
        )
        told = server.told
    assert result.code == (0 if accepted else 4), result.stderr
    assert ("newTag: 1.1.0" in show(repo, "main", target("web"))) is accepted
    assert [one for one in told if PLATFORM in one] == []


def test_an_ignored_secret_is_named_once(tmp_path: Path) -> None:
    repo = repository(tmp_path, "a", "b")
    secret = "git:secret:argocd/git-creds"
    apps = manifest(
        tmp_path, *(application(name, repo, write_back_method=secret) for name in ("a", "b"))
    )
    ended = image_update(*arguments(apps))
    assert (ended.code, ended.json["counts"]["updated"]) == (0, 2)
    told = [line for line in ended.stderr.splitlines() if "git-creds" in line]
    assert len(told) == 1
    assert (
        "git:secret:argocd/git-creds of argocd/a is read only with --applications cluster"
        in told[0]
    )


def test_no_warning_is_logged_if_no_secret_is_named(tmp_path: Path) -> None:
    apps = manifest(tmp_path, application("a", repository(tmp_path, "a"), write_back_method="git"))
    assert "--applications cluster" not in image_update(*arguments(apps)).stderr
