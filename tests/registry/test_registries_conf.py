"""`registries.conf`, read as in Image Updater."""

from typing import Any

import pytest

from task.annotations.keys import CredentialSource
from task.errors import Malformed
from task.registry.endpoint import RegistryConf, duration, find_registry, parse_registries_conf

FULL = """
registries:
- name: Docker Hub
  prefix: docker.io
  api_url: https://registry-1.docker.io
  credentials: secret:foo/bar#creds
  defaultns: library
  default: yes
- name: Google
  api_url: https://gcr.io/
  prefix: gcr.io
  ping: no
  credentials: pullsecret:foo/bar
  limit: 30
- name: RedHat Quay
  api_url: "https://quay.io"
  prefix: quay.io
  ping: no
  credentials: env:REGISTRY_SECRET
  tagsortmode: none
- name: ECR
  api_url: https://123456789.dkr.ecr.eu-west-1.amazonaws.com
  prefix: 123456789.dkr.ecr.eu-west-1.amazonaws.com
  insecure: false
  credentials: ext:/scripts/auth1.sh
  credsexpire: 10h
  ca_file: /etc/ca.pem
"""


def entry(**more: str) -> str:
    given = {"name": "x", "api_url": "https://x.example", "prefix": "x.example", **more}
    return "registries:\n- " + "\n  ".join(f"{key}: {value}" for key, value in given.items()) + "\n"


def test_the_example_in_the_documentation_is_read() -> None:
    hub, google, quay, ecr = parse_registries_conf(FULL)
    assert hub == RegistryConf(
        "Docker Hub", "https://registry-1.docker.io", "docker.io", defaultns="library", default=True,
        credentials=CredentialSource("secret", namespace="foo", name="bar", field="creds"),
    )  # fmt: skip
    assert (google.api_url, google.ping, google.limit) == ("https://gcr.io", False, 30)
    assert quay.credentials == CredentialSource("env", env="REGISTRY_SECRET")
    assert (ecr.credsexpire, ecr.ca_file, ecr.insecure) == (36000.0, "/etc/ca.pem", False)


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "registries:\n", "registries: []\n", "{}", "---\n"]
)
def test_an_empty_file_configures_no_registry(text: str) -> None:
    assert parse_registries_conf(text) == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("registry: []\n", "unknown key 'registry'"),
        (entry(api="x"), "unknown key 'api'"),
        (entry(Name="x"), "unknown key 'Name'"),
        (entry(prefix="x.example\n  prefix: y"), "appears twice"),
        (entry(tagsortmode="latest-first"), "do not guarantee the order"),
        (entry(tagsortmode="Latest-Last"), "do not guarantee the order"),
        (entry(tagsortmode="newest"), "tagsortmode 'newest'"),
        (entry(tagsortmode="[a]"), "tagsortmode"),
        (entry(name="''"), "name is missing"),
        (entry(api_url=""), "api_url is missing"),
        (entry(api_url="x.example"), "not a registry URL"),
        (entry(api_url="https://user:pw@x.example"), "not a registry URL"),
        (entry(api_url="ftp://x.example"), "not a registry URL"),
        (entry(api_url="https://x.example/?a=b"), "not a registry URL"),
        (entry(prefix="https://x.example"), "is not an image name prefix"),
        (entry(ping="maybe"), "neither true nor false"),
        (entry(insecure="{}"), "not a single value"),
        (entry(limit="many"), "not a number"),
        (entry(limit="-1"), "not a number"),
        (entry(credsexpire="10"), "not a duration"),
        (entry(credentials="vault:x"), "credentials"),
        (entry(ca_data="x"), "does not contain a certificate"),
        (
            entry() + "- name: y\n  api_url: https://y.example\n  prefix: x.example\n",
            "two registries have prefix",
        ),
        (
            entry(prefix="") + "- name: y\n  api_url: https://y.example\n  prefix: docker.io\n",
            "two registries",
        ),
        (
            entry(default="true")
            + "- name: y\n  api_url: https://y.example\n  prefix: y\n  default: on\n",
            "default",
        ),
        ("registries: all\n", "not a list"),
        ("registries:\n- x\n", "not a mapping"),
        ("- x\n", "not a mapping"),
        ("a: b\n---\nc: d\n", "more than one"),
        ("registries: [\n", "not valid YAML"),
        ("a: &a [*a]\n", ""),
        ("registries: " + "[" * 100, ""),
        ("? [a]\n: b\n", "not a string"),
    ],
)
def test_invalid_entries_are_rejected(text: str, words: str) -> None:
    with pytest.raises(Malformed) as refused:
        parse_registries_conf(text)
    assert words in refused.value.message
    assert "pw@" not in refused.value.message


def test_a_certificate_in_the_file_is_read() -> None:
    block = "|\n    -----BEGIN CERTIFICATE-----\n    MII\n    -----END CERTIFICATE-----"
    (found,) = parse_registries_conf(entry(ca_data=block))
    assert found.ca_data == "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"


HUB = RegistryConf("hub", "u", "docker.io")
BARE = RegistryConf("bare", "u", "")
GHCR, ACME = RegistryConf("ghcr", "u", "ghcr.io"), RegistryConf("acme", "u", "ghcr.io/acme")
QUAY_A, QUAY_AB = RegistryConf("a", "u", "quay.io/a"), RegistryConf("ab", "u", "quay.io/a/b")
OURS = RegistryConf("ours", "u", "reg.example", default=True)


@pytest.mark.parametrize(
    ("entries", "registry", "repository", "written", "expected"),
    [
        ((HUB, GHCR), "docker.io", "library/nginx", False, HUB),
        ((BARE, GHCR), "docker.io", "library/nginx", True, BARE),
        ((HUB, OURS), "docker.io", "library/nginx", False, OURS),
        ((HUB, OURS), "docker.io", "library/nginx", True, HUB),
        ((GHCR, ACME), "ghcr.io", "acme/api", True, GHCR),  # an exact prefix takes precedence
        ((ACME,), "ghcr.io", "acme/api", True, ACME),
        ((ACME,), "ghcr.io", "acme2/api", True, None),
        ((QUAY_A, QUAY_AB), "quay.io", "a/b/c", True, QUAY_AB),
        ((QUAY_A, QUAY_AB), "quay.io", "a/c", True, QUAY_A),
        ((QUAY_AB,), "quay.io", "a/b", True, QUAY_AB),
        ((GHCR,), "quay.io", "a/b", True, None),
        ((BARE,), "quay.io", "a/b", True, None),
        ((), "docker.io", "library/nginx", False, None),
    ],
)
def test_the_matching_entry_is_found_for_each_image(
    entries: tuple[RegistryConf, ...], registry: str, repository: str, written: bool, expected: Any
) -> None:
    assert find_registry(entries, registry, repository, has_registry=written) == expected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10h", 36000.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        ("90s", 90.0),
        ("500ms", 0.5),
        ("0", 0.0),
        ("+5m", 300.0),
    ],
)
def test_durations_are_parsed(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["10", "h", "10 h", "-5m", "1d", "1h x", "5m5", ".h"])
def test_invalid_durations_are_rejected(text: str) -> None:
    with pytest.raises(Malformed):
        duration(text)
