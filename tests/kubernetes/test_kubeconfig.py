"""Kubeconfig files as read by kubectl, the pod's service account, exec plugins, and TLS."""

import base64
import json
import os
import ssl
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from fakes.kubernetes_api import APPLICATIONS, Fault, KubernetesApi, cluster_application, running

from task.errors import SourceAccessError, UsageError
from task.http import Limits
from task.kubernetes import client
from task.kubernetes.access import ClusterAccess, cluster_access
from task.kubernetes.client import Kubernetes
from task.kubernetes.kubeconfig import kubeconfig

pytestmark = pytest.mark.measured

QUICK = Limits(connect=2, silence=2, total=5, tries=1)
V1 = "client.authentication.k8s.io/v1"


class Keys(NamedTuple):
    """A certificate authority, a server certificate for a name, and a client certificate."""

    folder: Path

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()

    def data(self, name: str) -> str:
        return base64.b64encode((self.folder / name).read_bytes()).decode()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    folder = tmp_path_factory.mktemp("keys")

    def openssl(*args: str) -> None:
        subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)

    ec = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *ec, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca", "-days", "2",
            "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")  # fmt: skip
    for name, alternative in (
        ("server", "IP:127.0.0.1"),
        ("named", "DNS:kubernetes.default.svc"),
        ("client", "DNS:me"),
    ):
        (folder / f"{name}.ext").write_text(f"subjectAltName={alternative}\n")
        openssl("req", *ec, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.pem")  # fmt: skip
    return Keys(folder)


def tls(keys: Keys, name: str = "server", *, clients: bool = False) -> Any:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys.folder / f"{name}.pem", keys.folder / f"{name}.key")
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(keys.folder / "ca.pem")
    return lambda sock: context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with running() as found:
        found.add(APPLICATIONS, cluster_application("web"))
        yield found


def config(
    server: str,
    user: Mapping[str, Any],
    cluster: Mapping[str, Any] | None = None,
    name: str = "main",
) -> Any:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": name, "user": dict(user)}],
    }


def write(folder: Path, content: Any, name: str = "config") -> dict[str, str]:
    file = folder / name
    file.write_text(yaml.safe_dump(content))
    return {"KUBECONFIG": str(file), "PATH": os.environ["PATH"], "TMPDIR": str(folder)}


def names(access: ClusterAccess) -> list[str]:
    kubernetes = Kubernetes(access, QUICK)
    try:
        return [one["metadata"]["name"] for one in kubernetes.list(client.APPLICATIONS)]
    finally:
        kubernetes.close()


def test_the_first_of_several_kubeconfig_files_takes_precedence(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text(
        yaml.safe_dump({"contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]})
    )
    other = config("https://two.example.com", {"token": "t2"}, name="x")
    other["clusters"].append({"name": "c", "cluster": {"server": "https://c.example.com"}})
    other["users"].append({"name": "u", "user": {"token": "of-u"}})
    second.write_text(yaml.safe_dump(other))
    found = kubeconfig({"KUBECONFIG": f"{first}:{tmp_path / 'missing'}::{second}"})
    assert found is not None
    shown = (found.who, found.server.url, found.user.token.reveal())
    assert shown == ("context 'x'", "https://c.example.com", "of-u")


def test_the_kubeconfig_in_the_home_folder_is_the_default(tmp_path: Path) -> None:
    assert kubeconfig({"HOME": str(tmp_path), "KUBECONFIG": ""}) is None
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube", config("https://home.example.com", {}))
    found = kubeconfig({"HOME": str(tmp_path)})
    assert found is not None
    assert found.server.url == "https://home.example.com"


def test_paths_are_relative_to_their_file(tmp_path: Path) -> None:
    user = {"client-certificate": "pki/me.pem", "client-key": "/abs/me.key", "tokenFile": "token",
            "exec": {"apiVersion": V1, "command": "bin/plugin"}}  # fmt: skip
    found = kubeconfig(
        write(tmp_path, config("https://x", user, {"certificate-authority": "ca.pem"}))
    )
    assert found is not None
    assert found.user.certificate_file == str(tmp_path / "pki/me.pem")
    assert (found.user.key_file, found.user.token_file) == ("/abs/me.key", str(tmp_path / "token"))
    assert found.server.ca_file == str(tmp_path / "ca.pem")
    assert found.user.plugin is not None
    assert found.user.plugin.command == str(tmp_path / "bin/plugin")


def of_cluster(cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"clusters": [{"name": "main", "cluster": {"server": "https://x", **cluster}}]}


def of_user(user: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"users": [{"name": "main", "user": user}]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"current-context": "nope"}, "has no context 'nope'"),
        ({"current-context": None}, "has no current context"),
        ({"contexts": [{"name": "main", "context": {"cluster": "gone"}}]}, "'gone', which is not among its clusters"),
        ({"contexts": [{"name": "main", "context": {"cluster": "main", "user": "who"}}]}, "'who'"),
        ({"clusters": [{"name": "main", "cluster": {}}]}, "has no server"),
        (of_cluster({"proxy-url": "socks5://u:s3cret@x"}), "prox"),
        (of_cluster({"certificate-authority-data": "%%"}), "base64"),
        (of_user({"client-key-data": "s3cret!"}), "client-key-data is not base64"),
        (of_user({"auth-provider": {"name": "gcp"}}), "auth-provider"),
        (of_user({"as": "x", "as-groups": ["a"]}), "impersonates groups"),
        (of_user({"exec": {"apiVersion": "v1alpha1", "command": "x"}}), "'v1alpha1'"),
        (of_user({"exec": {"apiVersion": V1, "command": "x", "interactiveMode": "Always"}}), "prompt the user"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_without_secrets(
    tmp_path: Path, change: Mapping[str, Any], words: str
) -> None:
    environ = write(tmp_path, {**config("https://x", {}), **change})
    with pytest.raises(UsageError, match=words) as caught:
        kubeconfig(environ)
    assert caught.value.hint
    assert "s3cret" not in f"{caught.value}{caught.value.hint}"


@pytest.mark.parametrize("text", ["{", "- a\n- b\n", "a: [\n", "text", "\x00"])
def test_a_file_that_is_not_a_yaml_mapping_causes_a_usage_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(UsageError, match=r"is not YAML|is not a mapping"):
        kubeconfig({"KUBECONFIG": str(tmp_path / "config")})


@pytest.mark.parametrize(
    "wrong", [{"clusters": "x"}, {"users": [3]}, {"contexts": [{"name": "main", "context": []}]}]
)
def test_a_kubeconfig_of_the_wrong_shape_causes_a_usage_error(
    tmp_path: Path, wrong: Mapping[str, Any]
) -> None:
    with pytest.raises(UsageError):
        kubeconfig(write(tmp_path, {**config("https://x", {}), **wrong}))


def test_an_empty_file_counts_as_missing(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("")
    assert kubeconfig({"KUBECONFIG": str(tmp_path / "config")}) is None


def test_the_specified_file_and_context_are_used(tmp_path: Path, api: KubernetesApi) -> None:
    content = config(api.url, {"token": "admin-token"})
    content["contexts"].append(
        {"name": "other", "context": {"cluster": "main", "user": "main", "namespace": "n"}}
    )
    write(tmp_path, content, "mine")
    access = cluster_access({}, str(tmp_path / "mine"), "other")
    assert (access.who, names(access)) == ("context 'other'", ["web"])
    with pytest.raises(UsageError, match="does not exist"):
        cluster_access({}, str(tmp_path / "nothing"))


def test_a_missing_cluster_causes_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no cluster"):
        cluster_access({"HOME": str(tmp_path)}, service_account=str(tmp_path))
    with pytest.raises(UsageError, match="none of the files in KUBECONFIG exist"):
        cluster_access({"KUBECONFIG": str(tmp_path / "nothing")}, service_account=str(tmp_path))


def test_a_user_name_and_a_password_are_used(tmp_path: Path, api: KubernetesApi) -> None:
    api.tokens["Basic " + base64.b64encode(b"me:pass").decode()] = "admin"
    assert names(
        cluster_access(write(tmp_path, config(api.url, {"username": "me", "password": "pass"})))
    ) == ["web"]


def test_a_token_is_not_sent_to_another_host_over_plain_http(tmp_path: Path) -> None:
    access = cluster_access(write(tmp_path, config("http://cluster.example.com", {"token": "t"})))
    assert access.login() == {}


@pytest.mark.parametrize(
    ("settings", "scheme"),
    [
        ({}, "http"),
        ({"insecure-skip-tls-verify": True}, "https"),
        ({"tls-server-name": "x"}, "https"),
    ],
)
def test_tls_settings_imply_https_for_a_server_without_a_scheme(
    tmp_path: Path, settings: dict[str, object], scheme: str
) -> None:
    found = kubeconfig(write(tmp_path, config("10.0.0.1:6443", {"token": "t"}, settings)))
    assert found is not None
    assert found.server.url == f"{scheme}://10.0.0.1:6443"


def pod(folder: Path, keys: Keys, port: str, host: str = "127.0.0.1") -> dict[str, str]:
    folder.mkdir()
    (folder / "token").write_text("admin-token\n")
    (folder / "ca.crt").write_text(keys.text("ca.pem"))
    return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}


def test_the_pods_service_account_is_used(tmp_path: Path, keys: Keys) -> None:
    with running(wrap=tls(keys)) as api:
        api.add(APPLICATIONS, cluster_application("web"))
        environ = pod(tmp_path / "sa", keys, api.url.rpartition(":")[2])
        access = cluster_access(environ, service_account=str(tmp_path / "sa"))
        assert (access.who, names(access)) == ("the pod's service account", ["web"])


@pytest.mark.parametrize(
    ("host", "base"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_the_api_address_in_a_pod_comes_from_its_variables(
    tmp_path: Path, keys: Keys, host: str, base: str
) -> None:
    environ = pod(tmp_path / "sa", keys, "", host)
    assert cluster_access(environ, service_account=str(tmp_path / "sa")).base == base


def test_an_unknown_certificate_authority_is_rejected_by_default(
    tmp_path: Path, keys: Keys
) -> None:
    with running(wrap=tls(keys)) as api:
        api.add(APPLICATIONS, cluster_application("web"))
        user = {"token": "admin-token"}
        with pytest.raises(SourceAccessError, match="TLS certificate"):
            names(cluster_access(write(tmp_path, config(api.url, user))))
        insecure = {"insecure-skip-tls-verify": True}
        assert names(cluster_access(write(tmp_path, config(api.url, user, insecure)))) == ["web"]


def test_a_certificate_for_another_name_requires_a_tls_server_name(
    tmp_path: Path, keys: Keys
) -> None:
    with running(wrap=tls(keys, "named")) as api:
        api.add(APPLICATIONS, cluster_application("web"))
        user, cluster = (
            {"token": "admin-token"},
            {"certificate-authority-data": keys.data("ca.pem")},
        )
        with pytest.raises(SourceAccessError, match="TLS certificate"):
            names(cluster_access(write(tmp_path, config(api.url, user, cluster))))
        cluster["tls-server-name"] = "kubernetes.default.svc"
        assert names(cluster_access(write(tmp_path, config(api.url, user, cluster)))) == ["web"]


def test_copied_client_certificates_are_readable_only_by_this_user(
    tmp_path: Path, keys: Keys
) -> None:
    user = {"client-certificate-data": keys.data("client.pem"), "client-key-data": keys.data("client.key"),
            "token": "admin-token"}  # fmt: skip
    with running(wrap=tls(keys, clients=True)) as api:
        api.add(APPLICATIONS, cluster_application("web"))
        access = cluster_access(
            write(
                tmp_path, config(api.url, user, {"certificate-authority-data": keys.data("ca.pem")})
            )
        )
        kubernetes = Kubernetes(access, QUICK)
        assert len(list(kubernetes.list(client.APPLICATIONS))) == 1
        copies = list(tmp_path.glob("image-update-*/*"))
        assert sorted(one.name for one in copies) == ["ca.pem", "client.key", "client.pem"]
        assert {stat.S_IMODE(one.stat().st_mode) for one in copies} == {0o600}
        kubernetes.close()
        assert list(tmp_path.glob("image-update-*")) == []


def test_a_client_certificate_without_its_key_causes_a_usage_error(
    tmp_path: Path, keys: Keys
) -> None:
    user = {"client-certificate-data": keys.data("client.pem")}
    with pytest.raises(UsageError, match="a client certificate without its key"):
        names(cluster_access(write(tmp_path, config("https://127.0.0.1:9", user))))


def plugin(folder: Path, script: str, name: str = "plugin") -> str:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return str(file)


def execute(command: str, **more: Any) -> dict[str, Any]:
    return {"exec": {"apiVersion": V1, "command": command, "interactiveMode": "Never", **more}}


def credential(status: Mapping[str, Any], version: str = V1) -> str:
    said = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
    return f"cat <<'END'\n{said}\nEND"


@pytest.mark.parametrize("version", [V1, "client.authentication.k8s.io/v1beta1"])
def test_an_exec_plugin_provides_a_token(tmp_path: Path, api: KubernetesApi, version: str) -> None:
    check = 'echo run >> "$0.runs"\n[ "$MY_PROFILE:$1" = "prod:a b" ] || exit 3'
    script = f"{check}\n{credential({'token': 'admin-token'}, version)}"
    user = execute(
        plugin(tmp_path, script),
        args=["a b"],
        env=[{"name": "MY_PROFILE", "value": "prod"}],
        apiVersion=version,
    )
    access = cluster_access(write(tmp_path, config(api.url, user)))
    assert names(access) + names(access) == ["web", "web"]
    assert (tmp_path / "plugin.runs").read_text() == "run\n"


def test_a_plugin_found_on_the_path_receives_the_cluster_info(
    tmp_path: Path, api: KubernetesApi
) -> None:
    script = f'echo "$KUBERNETES_EXEC_INFO" > "$0.info"\n{credential({"token": "admin-token"})}'
    plugin(tmp_path, script, "my-plugin")
    environ = write(tmp_path, config(api.url, execute("my-plugin", provideClusterInfo=True)))
    assert names(cluster_access(environ | {"PATH": f"{tmp_path}:{environ['PATH']}"})) == ["web"]
    info = json.loads((tmp_path / "my-plugin.info").read_text())
    assert info == {"apiVersion": V1, "kind": "ExecCredential",
                    "spec": {"interactive": False, "cluster": {"server": api.url}}}  # fmt: skip


@pytest.mark.parametrize(
    ("when", "runs"), [("2000-01-01T00:00:00Z", 2), ("2999-01-01T00:00:00.5Z", 1)]
)
def test_an_expired_plugin_token_is_renewed(
    tmp_path: Path, api: KubernetesApi, when: str, runs: int
) -> None:
    said = credential({"token": "admin-token", "expirationTimestamp": when})
    access = cluster_access(
        write(tmp_path, config(api.url, execute(plugin(tmp_path, f'echo x >> "$0.runs"\n{said}'))))
    )
    names(access)
    assert len((tmp_path / "plugin.runs").read_text().split()) >= runs
    assert runs > 1 or len((tmp_path / "plugin.runs").read_text().split()) == 1


def test_a_rejected_plugin_token_is_renewed(tmp_path: Path, api: KubernetesApi) -> None:
    api.faults.append(Fault(401))
    script = f'echo x >> "$0.runs"\n{credential({"token": "admin-token"})}'
    assert names(
        cluster_access(write(tmp_path, config(api.url, execute(plugin(tmp_path, script)))))
    ) == ["web"]
    assert (tmp_path / "plugin.runs").read_text() == "x\nx\n"


def test_a_plugin_provides_a_certificate(tmp_path: Path, keys: Keys) -> None:
    status = {
        "clientCertificateData": keys.text("client.pem"),
        "clientKeyData": keys.text("client.key"),
        "token": "admin-token",
    }
    with running(wrap=tls(keys, clients=True)) as api:
        api.add(APPLICATIONS, cluster_application("web"))
        user = execute(plugin(tmp_path, credential(status)))
        cluster = {"certificate-authority": str(keys.folder / "ca.pem")}
        assert names(cluster_access(write(tmp_path, config(api.url, user, cluster)))) == ["web"]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("printf 'no session: s3cret-profile\\033[31mlog in' >&2; exit 7", r"\(7\): no session: \*\*\* \[31mlog in"),
        ("echo '{\"token\": \"s3cret\"'", "did not return an ExecCredential"),
        ("echo '[]'", "did not return an ExecCredential"),
        (credential({}), "neither a token"),
        (credential({"clientCertificateData": "x"}), "neither a token"),
        (credential({"token": "t"}, "client.authentication.k8s.io/v1beta1"), "another version"),
    ],
)  # fmt: skip
def test_a_failing_plugin_is_reported_without_its_secrets(
    tmp_path: Path, script: str, words: str
) -> None:
    user = execute(
        plugin(tmp_path, script),
        args=["--token=s3cret-arg"],
        env=[{"name": "P", "value": "s3cret-profile"}],
    )
    with pytest.raises(SourceAccessError, match=words) as caught:
        names(cluster_access(write(tmp_path, config("http://127.0.0.1:9", user))))
    assert "s3cret" not in f"{caught.value}{caught.value.hint}"
    assert caught.value.__cause__ is None


def test_a_missing_plugin_causes_a_usage_error_with_its_install_hint(tmp_path: Path) -> None:
    user = execute("no-such-plugin", installHint="get it from the vendor")
    with pytest.raises(UsageError, match="'no-such-plugin' is not installed") as caught:
        names(cluster_access(write(tmp_path, config("http://127.0.0.1:9", user))))
    assert caught.value.hint == "get it from the vendor"


def test_the_proxy_in_the_kubeconfig_is_used(tmp_path: Path, api: KubernetesApi) -> None:
    environ = write(
        tmp_path, config("http://127.0.0.1:9", {"token": "admin-token"}, {"proxy-url": api.url})
    )
    assert names(cluster_access(environ)) == ["web"]
