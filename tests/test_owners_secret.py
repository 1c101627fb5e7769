"""An Application's owner may turn checks off for the login that is their own, and for nobody else's."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import app, kubeconfig, run
from fakes.kubernetes_api import APPLICATIONS, SECRETS, KubernetesApi, running
from git_servers import git_server
from runs import repository, target
from serving import certificate
from support import git, show

PLATFORM = "pl4tform-t0ken"
OWN = {"username": "mine", "password": "s3cret-mine"}


def named(name: str, namespace: str, **data: str) -> dict[str, Any]:
    """A secret that a team made for itself."""
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"metadata": {"name": name, "namespace": namespace}, "data": encoded}


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with running() as found:
        yield found


@pytest.mark.parametrize("own", [OWN, {"bearerToken": "s3cret-mine"}], ids=["password", "bearer"])
@pytest.mark.parametrize("accepted", [True, False])
def test_an_unchecked_server_is_told_no_login_of_the_platform(
    tmp_path: Path, api: KubernetesApi, own: dict[str, str], accepted: bool
) -> None:
    """Whoever chooses the proxy and has no certificate checked, reads along."""
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
        (home / ".git-credentials").write_text(f"https://stored:{PLATFORM}@{host.partition('://')[2]}\n")
        (home / "askpass").write_text(f"#!/bin/sh\necho {PLATFORM}\n")
        (home / "askpass").chmod(0o755)
        (home / ".gitconfig").write_text(
            f'[http "{host}/"]\n\textraHeader = X-Platform: {PLATFORM}\n\tcookieFile = {home}/cookies\n'
            f'[credential "{host}"]\n\thelper = store\n[core]\n\taskPass = {home}/askpass\n'
        )
        (home / "cookies").write_text(f"127.0.0.1\tFALSE\t/\tTRUE\t0\tsession\t{PLATFORM}\n")
        api.add(SECRETS, named("git", "team", **own, insecure="true"))
        api.add(APPLICATIONS, app("web", f"{server.url}repo.git", "team", write_back_method="git:secret:team/git"))
        env = {"HOME": str(home), "GIT_ASKPASS": str(home / "askpass")}
        result = run("--applications", "cluster", "--kubeconfig", kubeconfig(tmp_path, api), env=env)
        told = server.told
    assert result.code == (0 if accepted else 4), result.stderr
    assert ("newTag: 1.1.0" in show(repo, "main", target("web"))) is accepted
    assert [one for one in told if PLATFORM in one] == []
