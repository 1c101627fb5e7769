"""Docker's config file: credentials, helpers, and the key that covers a repository."""

import base64
import json
import time
from typing import Any

import pytest

from task.errors import Malformed
from task.registry.docker_config import DockerConfig, best_key, normal, parse_docker_config


def auth(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"auth": auth("ci:pass:word")}, ("ci", "pass:word", "", "")),
        ({"auth": auth("ci:pass").rstrip("=")}, ("ci", "pass", "", "")),
        ({"auth": auth("ci:pass\0\0")}, ("ci", "pass", "", "")),
        ({"auth": auth("ci:grün")}, ("ci", "grün", "", "")),
        ({"username": "ci", "password": "pass"}, ("ci", "pass", "", "")),
        (
            {"username": "x", "password": "y", "auth": auth("ci:pass"), "email": "a@b"},
            ("ci", "pass", "", ""),
        ),
        ({"auth": auth("0000:"), "identitytoken": "refresh"}, ("0000", "", "refresh", "")),
        ({"registrytoken": "finished"}, ("", "", "", "finished")),
        ({}, None),
        (None, None),
        ({"auth": ""}, None),
        ({"username": "ci"}, None),
    ],
)
def test_logins_are_read_from_docker_config_entries(
    entry: Any, expected: tuple[str, ...] | None
) -> None:
    login = parse_docker_config(json.dumps({"auths": {"reg.example": entry}}), "here").logins.get(
        "reg.example"
    )
    if expected is None:
        assert login is None
    else:
        assert login is not None
        found = (
            login.username,
            *(secret.reveal() for secret in (login.password, login.identity, login.token)),
        )
        assert (found, login.origin) == (expected, "here")


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "5", '{"auths": []}', '{"auths": {"a": []}}', '{"auths": {"a": {"auth": 5}}}',
        '{"auths": {"a": {"auth": "c2VjcmV0"}}}', '{"auths": {"a": {"auth": "s3cret!"}}}',
        '{"auths": {"a": {"auth": "/////w=="}}}', '{"credHelpers": {"a": 5}}', '{"credsStore": ["a"]}', "[" * 100_000,
    ],
)  # fmt: skip
def test_invalid_config_files_are_rejected_without_showing_secrets(text: str) -> None:
    with pytest.raises(Malformed) as refused:
        parse_docker_config(text)
    assert "c2VjcmV0" not in refused.value.message
    assert "secret" not in refused.value.message
    assert "s3cret" not in refused.value.message


@pytest.mark.slow
def test_many_hosts_with_one_login_are_read_quickly() -> None:
    """2,000 hosts once took 25 seconds and 511 MB, because a set of all hosts was kept for each
    host.
    """

    def seconds(number: int) -> float:
        entry = {"auth": auth("ci:s3cret")}
        text = json.dumps({"auths": {f"r{n}.example": entry for n in range(number)}})
        began = time.process_time()
        config = parse_docker_config(text)
        took = time.process_time() - began
        assert len(config.logins) == number
        (hosts,) = {id(login.hosts): login.hosts for login in config.logins.values()}.values()
        assert len(hosts) == number
        return took

    assert min(seconds(4000) for _ in range(3)) < 24 * min(seconds(500) for _ in range(3))


def test_credential_helpers_are_read() -> None:
    config = parse_docker_config(
        '{"credHelpers": {"https://GCR.io": "gcr", "x": ""}, "credsStore": "desktop"}'
    )
    assert (config.helpers, config.store, config.logins) == ({"gcr.io": "gcr"}, "desktop", {})


def test_the_older_config_format_is_read() -> None:
    config = parse_docker_config(json.dumps({"https://reg.example/v1/": {"auth": auth("a:b")}}))
    assert set(config.logins) == {"reg.example"}


@pytest.mark.parametrize(
    "text",
    ["{}", '{"currentContext": "desktop", "HttpHeaders": {"User-Agent": "x"}}', '{"auths": null}'],
)
def test_a_config_file_without_logins_is_empty(text: str) -> None:
    assert parse_docker_config(text) == DockerConfig({}, {}, "")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("https://index.docker.io/v1/", "docker.io"),
        ("index.docker.io", "docker.io"),
        ("registry-1.docker.io", "docker.io"),
        ("docker.io/acme", "docker.io/acme"),
        ("https://reg.example/v2/", "reg.example"),
        ("https://reg.example/", "reg.example"),
        ("http://Reg.Example:5000", "reg.example:5000"),
        ("ghcr.io/acme/", "ghcr.io/acme"),
    ],
)
def test_registry_keys_are_normalized(key: str, expected: str) -> None:
    assert normal(key) == expected


@pytest.mark.parametrize(
    ("keys", "registry", "repository", "expected"),
    [
        (
            ("ghcr.io", "ghcr.io/acme", "ghcr.io/acme/api"),
            "ghcr.io",
            "acme/api",
            "ghcr.io/acme/api",
        ),
        (("ghcr.io", "ghcr.io/acme"), "ghcr.io", "acme2/api", "ghcr.io"),
        (("ghcr.io/acme",), "ghcr.io", "other/api", None),
        (("ghcr.io",), "ghcr.io.evil.example", "acme/api", None),
        (("reg.example",), "reg.example:5000", "a/b", None),
        (("reg.example:5000",), "reg.example:5000", "a/b", "reg.example:5000"),
        (("docker.io",), "registry-1.docker.io", "library/nginx", "docker.io"),
        (("docker.io/library",), "docker.io", "library/nginx", "docker.io/library"),
        (("*.azurecr.io",), "acme.azurecr.io", "a/b", "*.azurecr.io"),
        (("*.azurecr.io", "acme.azurecr.io"), "acme.azurecr.io", "a/b", "acme.azurecr.io"),
        (("*.azurecr.io",), "a.b.azurecr.io", "a/b", None),
        (
            ("*.dkr.ecr.*.amazonaws.com",),
            "1.dkr.ecr.eu-west-1.amazonaws.com",
            "a",
            "*.dkr.ecr.*.amazonaws.com",
        ),
        (("*",), "ghcr.io", "a/b", None),
        ((), "ghcr.io", "a/b", None),
    ],
)
def test_the_longest_key_that_covers_a_repository_is_chosen(
    keys: tuple[str, ...], registry: str, repository: str, expected: str | None
) -> None:
    assert best_key(dict.fromkeys(keys), registry, repository) == expected
