"""Where registry credentials come from, and who may choose them."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from task.annotations.keys import CredentialSource
from task.errors import (
    AnnotationError,
    Malformed,
    RegistryAccessError,
    RegistryDownError,
    RegistryError,
    TaskError,
    UsageError,
)
from task.registry.docker_config import RegistryLogin, password_of
from task.registry.logins import Logins
from task.secret import Secret

pytestmark = pytest.mark.measured


def config(**auths: str) -> str:
    return json.dumps(
        {
            "auths": {
                key.replace("__", "/"): {"username": user, "password": "p"}
                for key, user in auths.items()
            }
        }
    )


def wrote(path: Path, text: str, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def user(environ: Mapping[str, str], host: str = "ghcr.io", repository: str = "acme/api") -> str:
    login = Logins(environ).of_host(host, repository)
    return login.username if login else ""


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ""),
        ({"HOME": "home"}, "home"),
        ({"HOME": "home", "DOCKER_CONFIG": ""}, "home"),
        ({"HOME": "home", "DOCKER_CONFIG": "docker"}, "docker"),
        ({"HOME": "home", "DOCKER_CONFIG": "nothing"}, ""),
        ({"DOCKER_CONFIG": "secret"}, "mounted"),
        ({"DOCKER_CONFIG": "docker/config.json"}, "docker"),
        ({"HOME": "home", "REGISTRY_AUTH_FILE": "podman.json"}, "podman"),
        ({"HOME": "home", "REGISTRY_AUTH_FILE": "missing.json"}, "home"),
        ({"XDG_RUNTIME_DIR": "run"}, "run"),
        ({"HOME": "home", "DOCKER_AUTH_CONFIG": config(**{"ghcr.io": "gitlab"})}, "gitlab"),
    ],
)
def test_config_files_are_found_in_the_usual_places(
    tmp_path: Path, environ: dict[str, str], expected: str
) -> None:
    for path, name in (
        ("home/.docker/config.json", "home"), ("docker/config.json", "docker"), ("podman.json", "podman"),
        ("secret/.dockerconfigjson", "mounted"), ("run/containers/auth.json", "run"),
    ):  # fmt: skip
        wrote(tmp_path / path, config(**{"ghcr.io": name}))
    given = {
        key: value if value.startswith("{") or not value else str(tmp_path / value)
        for key, value in environ.items()
    }
    assert user(given) == expected


def test_a_second_config_file_supplies_missing_credentials(tmp_path: Path) -> None:
    wrote(tmp_path / ".docker/config.json", config(**{"quay.io": "home"}))
    environ = {"HOME": str(tmp_path), "DOCKER_AUTH_CONFIG": config(**{"ghcr.io": "gitlab"})}
    assert (user(environ), user(environ, "quay.io"), user(environ, "gcr.io")) == (
        "gitlab",
        "home",
        "",
    )


def test_the_longest_key_wins(tmp_path: Path) -> None:
    wrote(tmp_path / ".docker/config.json", config(**{"ghcr.io": "all", "ghcr.io__acme": "acme"}))
    environ = {"HOME": str(tmp_path)}
    assert (user(environ), user(environ, repository="other/api")) == ("acme", "all")


@pytest.mark.parametrize("text", ["{", "[]", '{"auths": {"ghcr.io": {"auth": "c2VjcmV0"}}}'])
def test_the_error_for_an_invalid_config_file_omits_its_content(tmp_path: Path, text: str) -> None:
    path = wrote(tmp_path / ".docker/config.json", text)
    with pytest.raises(RegistryAccessError) as refused:
        user({"HOME": str(tmp_path)})
    assert str(path) in refused.value.message
    assert "c2Vj" not in refused.value.message


USER = '{"username": "u", "password": "p"}'
HELPER = """#!/bin/sh
read -r server
case "$1 $server" in
  "get ghcr.io") echo '{"ServerURL": "ghcr.io", "Username": "helped", "Secret": "s"}' ;;
  "get https://index.docker.io/v1/") echo '{"Username": "<token>", "Secret": "refresh"}' ;;
  "get empty.example") echo '{"Username": "", "Secret": ""}' ;;
  "get odd.example") echo 'Username: x' ;;
  "get env.example") echo "{\\"Username\\": \\"${IMAGE_UPDATE_GIT_TOKEN:-hidden}$CLOUD\\", \\"Secret\\": \\"s\\"}" ;;
  "get none.example") echo "credentials not found in native keychain"; exit 1 ;;
  *) echo "s3cret details" >&2; exit 2 ;;
esac
"""


def helped(folder: Path, text: str) -> dict[str, str]:
    wrote(folder / "bin/docker-credential-ours", HELPER, 0o755)
    wrote(folder / ".docker/config.json", text)
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return {
        "HOME": str(folder),
        "PATH": path,
        "CLOUD": "-cloud",
        "IMAGE_UPDATE_GIT_TOKEN": "s3cret",
    }


@pytest.mark.parametrize(
    ("text", "host", "expected"),
    [
        ('{"credHelpers": {"ghcr.io": "ours"}}', "ghcr.io", "helped"),
        ('{"credsStore": "ours"}', "ghcr.io", "helped"),
        ('{"credsStore": "ours"}', "none.example", ""),
        ('{"credsStore": "ours"}', "empty.example", ""),
        ('{"credsStore": "ours"}', "env.example", "hidden-cloud"),
        ('{"credsStore": "desktop"}', "ghcr.io", ""),  # a config file from another machine
        ('{"credsStore": "ours", "credHelpers": {"quay.io": "desktop"}}', "ghcr.io", "helped"),
        (f'{{"credHelpers": {{"ghcr.io": "ours"}}, "auths": {{"ghcr.io/acme": {USER}}}}}', "ghcr.io", "u"),
        (f'{{"credHelpers": {{"ghcr.io": "ours"}}, "auths": {{"ghcr.io": {USER}}}}}', "ghcr.io", "helped"),
        ('{"credsStore": "ours", "auths": {"ghcr.io": {}}}', "ghcr.io", "helped"),
    ],
)  # fmt: skip
def test_credential_helpers_supply_credentials(
    tmp_path: Path, text: str, host: str, expected: str
) -> None:
    assert user(helped(tmp_path, text), host) == expected


def test_a_helper_can_supply_a_docker_hub_token(tmp_path: Path) -> None:
    login = Logins(helped(tmp_path, '{"credsStore": "ours"}')).of_host(
        "registry-1.docker.io", "library/nginx"
    )
    assert login is not None
    assert (login.identity.reveal(), login.username, bool(login.password)) == ("refresh", "", False)


@pytest.mark.parametrize(
    ("text", "host", "words"),
    [
        ('{"credHelpers": {"ghcr.io": "missing"}}', "ghcr.io", "not installed"),
        (
            '{"credHelpers": {"ghcr.io": "../../bin/sh"}}',
            "ghcr.io",
            "not a valid credential helper name",
        ),
        ('{"credHelpers": {"ghcr.io": "-x"}}', "ghcr.io", "not a valid credential helper name"),
        ('{"credHelpers": {"ghcr.io": "a b; c"}}', "ghcr.io", "not a valid credential helper name"),
        ('{"credsStore": "ours"}', "failing.example", "exit code 2"),
        ('{"credsStore": "ours"}', "odd.example", "did not return credentials"),
    ],
)
def test_a_failing_helper_causes_an_access_error(
    tmp_path: Path, text: str, host: str, words: str
) -> None:
    with pytest.raises(RegistryAccessError, match=words) as refused:
        user(helped(tmp_path, text), host)
    assert "s3cret" not in refused.value.message + refused.value.hint


def test_a_helper_is_called_once_per_registry(tmp_path: Path) -> None:
    environ = helped(tmp_path, '{"credsStore": "ours"}')
    helper = tmp_path / "bin/docker-credential-ours"
    helper.write_text(
        helper.read_text().replace("read -r server", f"read -r server; echo x >> {tmp_path}/calls")
    )
    logins = Logins(environ)
    assert logins.of_host("ghcr.io", "acme/api") is logins.of_host("ghcr.io", "acme/web")
    assert (tmp_path / "calls").read_text().split() == ["x"]


def test_a_login_from_options_is_used_only_for_its_registries() -> None:
    login = RegistryLogin("ci", Secret("p"))
    logins = Logins({}, {"ghcr.io/acme": login, "docker.io": login})
    assert logins.of_host("ghcr.io", "acme/api") is login
    assert logins.of_host("registry-1.docker.io", "library/nginx") is login
    assert logins.of_host("ghcr.io", "other/api") is None
    assert logins.of_host("evil.example", "acme/api") is None


@pytest.mark.parametrize(
    ("username", "file", "variable", "expected"),
    [
        ("ci", "pass\n", "", "pass"),
        ("ci", None, "token", "token"),
        ("", None, "", None),
        ("ci", None, "", "the registry credentials are incomplete"),
        ("", "pass", "", "the registry credentials are incomplete"),
        ("", None, "token", "the registry credentials are incomplete"),
        ("ci", "pass", "token", "both set"),
        ("ci", "", "", "empty"),
    ],
)
def test_login_options_must_be_complete_and_unambiguous(
    tmp_path: Path, username: str, file: str | None, variable: str, expected: str | None
) -> None:
    path = str(wrote(tmp_path / "password", file)) if file is not None else ""
    environ = {"IMAGE_UPDATE_REGISTRY_PASSWORD": variable}
    if expected in ("the registry credentials are incomplete", "both set", "empty"):
        with pytest.raises(UsageError, match=expected):
            password_of(username, path, environ)
        return
    login = password_of(username, path, environ)
    assert (login.password.reveal() if login else None) == expected


def test_a_missing_password_file_causes_a_usage_error() -> None:
    with pytest.raises(UsageError, match="cannot read"):
        password_of("ci", "/nonexistent", {})


SECRETS = {
    ("web", "regcred"): {".dockerconfigjson": config(**{"ghcr.io": "pull"}).encode()},
    ("argocd", "pull"): {".dockerconfigjson": config(**{"ghcr.io": "central"}).encode()},
    ("argocd", "quay"): {".dockerconfigjson": config(**{"quay.io": "central"}).encode()},
    ("web", "shared"): {
        "creds": b"shared:with:colon\n",
        "bad": b"s3cret",
        "empty": b"",
        "json": b'{"token": "s3cret"}',
        "pem": b"-----BEGIN X-----\nProc-Type: s3cret",
    },
    ("web", "old"): {
        ".dockercfg": b'{"ghcr.io": {"username": "old", "password": "p", "auth": ""}}'
    },
    ("web", "broken"): {".dockerconfigjson": b"{"},
    ("web", "other"): {"x": b"y"},
}


def secret(namespace: str, name: str) -> Mapping[str, bytes]:
    if name == "cluster-prod":
        raise Malformed("it is Argo CD's", "name another one")
    return SECRETS[namespace, name]


def of_annotation(
    text: str, environ: Mapping[str, str] | None = None, **allowed: Any
) -> RegistryLogin | None:
    terms = {"namespace": "argocd", **allowed}
    return Logins(environ or {}, secret=secret, **terms).of_annotation(
        text, "web", "ghcr.io", "acme/api"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pullsecret:web/regcred", "pull"),
        ("pullsecret:web/old", "old"),
        ("pullsecret:argocd/pull", "central"),
        ("secret:web/shared#creds", "shared"),
        ("ghcr.io=secret:web/shared#creds", "shared"),
        ("quay.io=secret:web/shared#creds", ""),  # the secret is not for this registry
    ],
)
def test_secrets_named_by_annotations_supply_credentials(text: str, expected: str) -> None:
    login = of_annotation(text)
    assert (login.username if login else "") == expected


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("secret:kube-system/x#y", AnnotationError, "namespace kube-system"),
        ("pullsecret:other/regcred", AnnotationError, "namespace other"),
        (
            "secret:argocd/shared#creds",
            AnnotationError,
            "namespace argocd, but the Application is in web",
        ),
        (
            "ghcr.io=SECRET:argocd/shared#creds",
            AnnotationError,
            "namespace argocd, but the Application is in web",
        ),
        (
            "secret: argocd/shared#creds",
            AnnotationError,
            "namespace  argocd, but the Application is in web",
        ),
        (
            "secret:argocd/cluster-prod#config",
            AnnotationError,
            "namespace argocd, but the Application is in web",
        ),
        ("secret:web/cluster-prod#config", AnnotationError, "it is Argo CD's"),
        ("pullsecret:argocd/quay", RegistryAccessError, "has no credentials for ghcr.io"),
        ("pullsecret:argocd/cluster-prod", AnnotationError, "it is Argo CD's"),
        ("secret:web/shared#bad", RegistryAccessError, "does not contain user:password"),
        ("secret:web/shared#json", RegistryAccessError, "does not contain user:password"),
        ("secret:web/shared#pem", RegistryAccessError, "does not contain user:password"),
        ("secret:web/shared#empty", RegistryAccessError, "does not contain user:password"),
        ("secret:web/shared#none", RegistryAccessError, "has no field none"),
        ("pullsecret:web/none", RegistryAccessError, "secret web/none not found"),
        ("pullsecret:web/other", RegistryAccessError, "has no field .dockerconfigjson"),
        ("pullsecret:web/broken", RegistryAccessError, "is not JSON"),
        ("env:HOME", RegistryError, "annotations are not allowed to use"),
        ("ext:/bin/true", RegistryError, "--allow-exec"),
        ("vault:x", RegistryError, "unknown credential kind"),
        ("x", RegistryError, "not a credential source"),
    ],
)
def test_forbidden_or_invalid_credentials_in_annotations_are_refused(
    text: str, kind: type[TaskError], words: str
) -> None:
    with pytest.raises(TaskError, match=words) as refused:
        of_annotation(text, {"HOME": "s3cret:x"})
    assert type(refused.value) is kind
    assert refused.value.hint
    assert "s3cret" not in refused.value.message


def test_a_secret_requires_access_to_a_cluster() -> None:
    with pytest.raises(RegistryError, match="no cluster"):
        Logins({}).of_annotation("pullsecret:web/regcred", "web", "ghcr.io", "acme/api")


def test_an_allowed_variable_supplies_a_login() -> None:
    login = of_annotation("env:REG", {"REG": "ci:a:b"}, allow_env=("REG",))
    assert login is not None
    assert (login.username, login.password.reveal()) == ("ci", "a:b")
    with pytest.raises(RegistryAccessError, match="variable REG"):
        of_annotation("env:REG", {"REG": "s3cret"}, allow_env=("REG",))


def script(folder: Path, text: str, mode: int = 0o755) -> str:
    return str(wrote(folder / "login.sh", f"#!/bin/sh\n{text}\n", mode))


def test_an_allowed_script_supplies_a_login(tmp_path: Path) -> None:
    path = script(tmp_path, 'echo "ci:${IMAGE_UPDATE_GIT_TOKEN:-hidden}"')
    login = of_annotation(f"ext:{path}", {"IMAGE_UPDATE_GIT_TOKEN": "s3cret"}, allow_exec=True)
    assert login is not None
    assert (login.username, login.password.reveal()) == ("ci", "hidden")


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("echo s3cret; exit 3", 0o755, "exit code 3"),
        ("echo s3cret", 0o755, "does not contain user:password"),
        ("echo a:b", 0o644, "is not an executable file"),
    ],
)
def test_a_failing_script_causes_an_access_error(
    tmp_path: Path, text: str, mode: int, words: str
) -> None:
    with pytest.raises(RegistryAccessError, match=words) as refused:
        of_annotation(f"ext:{script(tmp_path, text, mode)}", allow_exec=True)
    assert "s3cret" not in refused.value.message


def test_a_slow_script_causes_a_temporary_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("task.registry.logins._PATIENCE", {"script": 0.3})
    with pytest.raises(RegistryDownError, match="within"):
        of_annotation(f"ext:{script(tmp_path, 'sleep 600')}", allow_exec=True)


@pytest.mark.parametrize("path", ["login.sh", "./login.sh", "/bin/../bin/true", "/nonexistent"])
def test_a_script_must_be_an_absolute_path(path: str) -> None:
    with pytest.raises(RegistryError, match=r"absolute|not an executable file"):
        of_annotation(f"ext:{path}", allow_exec=True)


def test_credentials_from_registries_conf_are_renewed_when_they_expire(tmp_path: Path) -> None:
    path = script(tmp_path, f"echo x >> {tmp_path}/calls; echo ci:p")
    source = CredentialSource("ext", script=path)
    logins = Logins({}, allow_exec=True)
    for _ in range(3):
        logins.of_conf(source, 0, "ghcr.io", "acme/api")
    assert (tmp_path / "calls").read_text().split() == ["x"]
    short = Logins({}, allow_exec=True)
    short.of_conf(source, 0.001, "ghcr.io", "acme/api")
    time.sleep(0.01)
    short.of_conf(source, 0.001, "ghcr.io", "acme/api")
    assert (tmp_path / "calls").read_text().split() == ["x"] * 3


def test_registries_conf_may_name_any_variable_and_any_secret() -> None:
    logins = Logins({"REG": "ci:p"}, secret=secret)
    by_variable = logins.of_conf(CredentialSource("env", env="REG"), 0, "ghcr.io", "a/b")
    place = CredentialSource("secret", namespace="web", name="shared", field="creds")
    by_secret = logins.of_conf(place, 0, "ghcr.io", "a/b")
    assert [login.username if login else "" for login in (by_variable, by_secret)] == [
        "ci",
        "shared",
    ]
    with pytest.raises(RegistryError, match="--allow-exec"):
        logins.of_conf(CredentialSource("ext", script="/bin/true"), 0, "ghcr.io", "a/b")
    with pytest.raises(RegistryError, match="it is Argo CD's"):
        logins.of_conf(replace(place, name="cluster-prod"), 0, "ghcr.io", "a/b")


def test_the_repr_of_credentials_reveals_no_secret() -> None:
    assert "p4ss" not in repr(RegistryLogin("ci", Secret("p4ss"), Secret("p4ss"), Secret("p4ss")))
