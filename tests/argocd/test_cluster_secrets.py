"""Credentials in a cluster: the secrets that are read, and the credentials passed to git."""

import base64
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.kubernetes_api import CONFIG_MAPS, SECRETS, Fault, KubernetesApi, running

from task.argocd.cluster_secrets import ClusterSecrets
from task.argocd.repo_secrets import RepoCredentials, credentials_of
from task.errors import AnnotationError, CredentialsError, Malformed, SourceDownError
from task.git.command import Git
from task.git.credentials import Access
from task.http import Limits
from task.kubernetes.access import ClusterAccess
from task.kubernetes.client import Kubernetes
from task.kubernetes.kubeconfig import Kubeconfig, Server, User
from task.secret import Secret

URL = "https://git.example.com/acme/gitops.git"
SSH = "git@git.example.com:acme/gitops.git"


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with running() as found:
        yield found


def secret(name: str, kind: str = "", namespace: str = "argocd", **data: str) -> dict[str, Any]:
    labels = {"argocd.argoproj.io/secret-type": kind} if kind else {}
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "data": encoded}


def reach(
    api: KubernetesApi, lines: list[str] | None = None, token: Secret = Secret("admin-token")
) -> ClusterSecrets:
    access = ClusterAccess(Kubeconfig("x", Server(api.url), User(token=token)), {})
    log = lines if lines is not None else []
    return ClusterSecrets(
        Kubernetes(access, Limits(tries=1)), log=lambda level, line: log.append(f"{level}: {line}")
    )


def test_argo_cds_own_credentials_are_read_once(api: KubernetesApi) -> None:
    api.add(SECRETS, secret("repo-1", "repository", url=URL, username="u", password="s3cret"))
    api.add(
        SECRETS,
        secret(
            "creds", "repo-creds", url="https://git.example.com/", username="t", password="s3cret"
        ),
    )
    api.add(SECRETS, secret("argocd-secret", **{"admin.password": "s3cret"}))
    api.add(
        CONFIG_MAPS,
        {"metadata": {"name": "argocd-tls-certs-cm"}, "data": {"git.example.com": "PEM"}},
    )
    secrets = reach(api)
    own, other = secrets.repository(URL), secrets.repository("https://git.example.com/acme/other")
    assert own is not None
    assert other is not None
    assert (own.secret, own.username, own.authorities) == ("argocd/repo-1", "u", "PEM")
    assert (other.secret, other.username) == ("argocd/creds", "t")
    assert secrets.repository("https://elsewhere.example.com/x") is None
    assert [one.query.get("labelSelector") for one in api.asked if one.resource == SECRETS] == [
        "argocd.argoproj.io/secret-type=repository",
        "argocd.argoproj.io/secret-type=repo-creds",
    ]
    assert len(api.asked) == 3


def test_a_secret_that_cannot_be_read_does_not_hide_the_others(api: KubernetesApi) -> None:
    lines: list[str] = []
    api.add(SECRETS, secret("bad", "repository", url=URL, insecure="s3cret"))
    api.add(SECRETS, secret("good", "repository", url=URL, username="u", password="s3cret"))
    found = reach(api, lines).repository(URL)
    assert found is not None
    assert found.secret == "argocd/good"
    assert any("argocd/bad" in line and line.startswith("warning") for line in lines)
    assert "s3cret" not in "".join(lines)


def test_missing_permission_to_list_secrets_is_not_an_error(api: KubernetesApi) -> None:
    api.tokens["weak"] = "system:serviceaccount:ci:weak"
    lines: list[str] = []
    assert reach(api, lines, Secret("weak")).repository(URL) is None
    assert any("repository secrets are not used" in line for line in lines)


def test_an_unavailable_api_is_distinguished_from_missing_credentials(api: KubernetesApi) -> None:
    api.faults.append(Fault(503, times=5))
    with pytest.raises(SourceDownError):
        reach(api).repository(URL)


@pytest.mark.parametrize(
    ("text", "namespace"),
    [("secret:team/git", "team"), ("secret:git", "team"), ("secret:argocd/git", "argocd")],
)
def test_a_named_secret_is_read_from_its_namespace(
    api: KubernetesApi, text: str, namespace: str
) -> None:
    for home in ("team", "argocd"):
        api.add(SECRETS, secret("git", namespace=home, username="u", password="s3cret"))
    assert reach(api).named(text, URL, namespace).password.reveal() == "s3cret"


@pytest.mark.parametrize("text", ["secret:other/git", "secret:kube-system/git"])
def test_a_secret_in_another_namespace_is_refused_without_reading_it(
    api: KubernetesApi, text: str
) -> None:
    api.add(SECRETS, secret("git", namespace="other", username="u", password="s3cret"))
    with pytest.raises(AnnotationError, match="not in the Application's namespace"):
        reach(api).named(text, URL, "team")
    assert api.asked == []


NAMED = [
    ("secret:argocd/plain", "for Applications in namespace argocd"),
    ("secret:argocd/cluster-prod", "belongs to Argo CD"),
    ("secret:argocd/argocd-secret", "belongs to Argo CD"),
    ("secret:argocd/elsewhere", "credentials for another repository"),
    ("secret:argocd/theirs", "a project other than 'shop'"),
    ("secret:argocd/ours", ""),
    ("secret:argocd/template", ""),
]


@pytest.mark.parametrize(("text", "words"), NAMED)
def test_secrets_of_argo_cd_are_used_only_for_their_purpose(
    api: KubernetesApi, text: str, words: str
) -> None:
    login, other = {"username": "u", "password": "s3cret"}, "https://git.example.com/other/repo"
    api.add(SECRETS, secret("plain", **login), secret("cluster-prod", "cluster", url=URL, **login))
    api.add(
        SECRETS,
        secret("argocd-secret", url=URL, **login),
        secret("elsewhere", "repository", url=other, **login),
    )
    api.add(SECRETS, secret("theirs", "repository", url=URL, project="bank", **login))
    api.add(
        SECRETS, secret("ours", "repository", url=URL.removesuffix(".git"), project="shop", **login)
    )
    api.add(SECRETS, secret("template", "repo-creds", url="https://git.example.com/acme", **login))
    if not words:
        assert reach(api).named(text, URL, "team", "shop").password.reveal() == "s3cret"
        return
    with pytest.raises(AnnotationError, match=words) as refused:
        reach(api).named(text, URL, "team", "shop")
    assert refused.value.hint
    assert "bank" not in str(refused.value)


@pytest.mark.parametrize("text", ["secret:a/b/c", "secret:", "secret:../argocd"])
def test_an_invalid_secret_name_causes_an_annotation_error(api: KubernetesApi, text: str) -> None:
    with pytest.raises(AnnotationError, match="does not refer to a secret"):
        reach(api).named(text, URL, "team")


def test_a_missing_or_unsuitable_named_secret_causes_a_credentials_error(
    api: KubernetesApi,
) -> None:
    with pytest.raises(CredentialsError, match="secret team/git not found"):
        reach(api).named("secret:git", URL, "team")
    api.add(SECRETS, secret("git", namespace="team", sshPrivateKey="k"))
    with pytest.raises(CredentialsError, match="does not have a username and password"):
        reach(api).named("secret:git", URL, "team")


def test_argo_cds_known_hosts_are_used(api: KubernetesApi) -> None:
    api.add(SECRETS, secret("git", sshPrivateKey="k"))
    api.add(
        CONFIG_MAPS,
        {
            "metadata": {"name": "argocd-ssh-known-hosts-cm"},
            "data": {"ssh_known_hosts": "h ssh-rsa A"},
        },
    )
    assert reach(api).named("secret:git", SSH, "argocd").known_hosts == "h ssh-rsa A"


def test_a_pull_secret_is_read_for_a_registry(api: KubernetesApi) -> None:
    api.add(SECRETS, secret("pull", namespace="team", **{".dockerconfigjson": "{}"}))
    assert reach(api).of_registry("team", "pull") == {".dockerconfigjson": b"{}"}
    with pytest.raises(LookupError):
        reach(api).of_registry("team", "gone")


@pytest.mark.parametrize(
    ("name", "kind"), [("cluster-prod", "cluster"), ("repo-1", "repository"), ("argocd-secret", "")]
)
def test_argo_cds_own_secrets_are_not_used_as_registry_logins(
    api: KubernetesApi, name: str, kind: str
) -> None:
    api.add(SECRETS, secret(name, kind, config="user:s3cret"))
    with pytest.raises(Malformed, match="does not contain registry credentials"):
        reach(api).of_registry("argocd", name)


def test_git_receives_the_credentials_only_for_that_repository(tmp_path: Path) -> None:
    access = Access(credentials_of(RepoCredentials("argocd/x", "u", Secret("s3cret")), URL))
    door = Git({**os.environ, "HOME": str(tmp_path)}, access=access)

    def filled(url: str) -> str:
        command = ["git", "credential", "fill"]
        done = subprocess.run(
            command,
            input=f"url={url}\n\n",
            env=door.login(url),
            text=True,
            capture_output=True,
            check=False,
        )
        return "".join(line for line in done.stdout.splitlines() if line.startswith("password="))

    try:
        for url in (URL, URL.removesuffix(".git")):
            said = door.run(
                "credential", "fill", stdin=f"url={url}\n\n", env=door.login(url)
            ).out.decode()
            assert "password=s3cret" in said
    finally:
        door.close()
    assert filled("https://other.example.com/acme/gitops.git") == ""


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("key") / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True)
    return file.read_text()


def test_ssh_receives_the_key_and_the_known_hosts(key: str) -> None:
    found = credentials_of(
        RepoCredentials("argocd/x", ssh_key=Secret(key.strip()), known_hosts="h ssh-rsa A"), SSH
    )
    assert found.ssh is not None
    assert found.ssh.files == {"image-update-key": key, "known_hosts": "h ssh-rsa A\n"}
    assert (found.ssh.only_keys, found.ssh.known_hosts, found.logins) == (True, True, ())


def test_an_insecure_secret_disables_host_key_checking(key: str) -> None:
    found = credentials_of(
        RepoCredentials("argocd/x", ssh_key=Secret(key), known_hosts="h ssh-rsa A", insecure=True),
        SSH,
    )
    assert found.ssh is not None
    assert "StrictHostKeyChecking no" in found.ssh.files["config"]
    assert not found.ssh.known_hosts


def test_an_invalid_ssh_key_is_reported_without_showing_it() -> None:
    with pytest.raises(
        CredentialsError, match="argocd/x: sshPrivateKey is not a private key"
    ) as caught:
        credentials_of(RepoCredentials("argocd/x", ssh_key=Secret("s3cret")), SSH)
    assert "s3cret" not in f"{caught.value}{caught.value.hint}"


def test_proxy_certificate_and_tls_settings_from_a_secret_are_applied(tmp_path: Path) -> None:
    found = RepoCredentials("argocd/x", bearer=Secret("b"), certificate="PEM", certificate_key=Secret("KEY"),
                            insecure=True, proxy=Secret("http://u:p@proxy"))  # fmt: skip
    prefix = "http.https://git.example.com"  # with and without `.git`, and for the redirect target
    of_server = credentials_of(found, URL).pairs
    assert of_server is not None
    pairs = dict(of_server(str(tmp_path)))
    assert pairs[f"{prefix}.sslVerify"] == "false"
    assert pairs[f"{prefix}.proxy"] == "http://u:p@proxy"
    assert pairs[f"{prefix}.extraHeader"] == "Authorization: Bearer b"
    assert Path(pairs[f"{prefix}.sslCert"]).read_text() == "PEM"
    assert stat.S_IMODE(Path(pairs[f"{prefix}.sslKey"]).stat().st_mode) == 0o600
    nothing = credentials_of(RepoCredentials(), URL).pairs
    assert nothing is not None
    assert nothing(str(tmp_path)) == []
    assert credentials_of(found, SSH).pairs is None
