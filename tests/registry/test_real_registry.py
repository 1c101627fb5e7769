"""A real registry, Debian's docker-registry: without authentication, with credentials, and over
TLS.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.oci_images import DOCKER, OCI, Content, image, index, layout, push
from support import needs
from support.real_registry import (
    PASSWORD,
    USER,
    Real,
    bearer,
    open_registry,
    password_registry,
    tls_registry,
    token_registry,
)

from task.errors import RegistryAccessError, RegistryError
from task.http import Limits
from task.image import parse_image
from task.model import Answer, Fact, Question
from task.registry.client import Registry
from task.registry.docker_config import RegistryLogin
from task.registry.logins import Logins
from task.secret import Secret

pytestmark = [pytest.mark.servers, pytest.mark.xdist_group("registry")]

DATE = "2026-01-02T03:04:05.678Z"
SINGLE = {kind: image("linux/amd64", DATE, {"a": "b"}, kind=kind) for kind in (OCI, DOCKER)}
MULTI = {
    kind: index(
        [SINGLE[kind], image("linux/arm64/v8", "2026-01-01T00:00:00Z", kind=kind)],
        kind=kind,
        attested=kind == OCI,
    )
    for kind in (OCI, DOCKER)
}
UNDATED = image("linux/amd64", None)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    with open_registry(tmp_path_factory.mktemp("open")) as running:
        for kind in (OCI, DOCKER):
            push(running.url, "acme/api", f"single-{kind}", SINGLE[kind])
            push(running.url, "acme/api", f"multi-{kind}", MULTI[kind])
        push(running.url, "acme/api", "undated", UNDATED)
        yield running


def registry(
    login: tuple[str, str] | None = None,
    name: str = "",
    ca: str = "",
    lines: list[str] | None = None,
) -> Registry:
    given = {name: RegistryLogin(login[0], Secret(login[1]))} if login else {}
    return Registry(
        Logins({}, given),
        (lines if lines is not None else []).append,
        ca=ca,
        limits=Limits(tries=1),
    )


def answer(
    asking: Registry, reference: str, *facts: Fact, platforms: tuple[str, ...] = ()
) -> Answer:
    question = Question(parse_image(reference), facts, platforms)
    return asking.answer([question])[question]


@pytest.mark.parametrize(
    ("tag", "content"),
    [
        ("single-oci", SINGLE[OCI]),
        ("single-docker", SINGLE[DOCKER]),
        ("multi-oci", MULTI[OCI]),
        ("multi-docker", MULTI[DOCKER]),
        ("undated", UNDATED),
    ],
)
def test_the_digest_of_a_pushed_image_takes_one_request(
    real: Real, tag: str, content: Content
) -> None:
    lines: list[str] = []
    asking = registry(lines=lines)
    assert (
        answer(asking, f"{real.name}/acme/api:{tag}", "digest", "exists").digest == content.digest
    )
    assert len(lines) == 1


@pytest.mark.parametrize("kind", [OCI, DOCKER])
def test_facts_about_images_and_indexes_are_read(real: Real, kind: str) -> None:
    every = ("created", "platforms", "labels", "digest")
    single = answer(registry(), f"{real.name}/acme/api:single-{kind}", *every)  # type: ignore[arg-type]
    assert single == Answer(True, SINGLE[kind].digest, DATE, ("linux/amd64",), {"a": "b"})
    both = ("linux/amd64", "linux/arm64/v8")
    multi = answer(registry(), f"{real.name}/acme/api:multi-{kind}", *every)  # type: ignore[arg-type]
    assert multi == Answer(True, MULTI[kind].digest, DATE, both, {"a": "b"})
    arm = answer(
        registry(), f"{real.name}/acme/api:multi-{kind}", "created", platforms=("linux/arm64",)
    )
    assert arm.created == "2026-01-01T00:00:00Z"


def test_images_without_a_date_and_missing_images_are_distinguished(real: Real) -> None:
    assert answer(registry(), f"{real.name}/acme/api:undated", "created") == Answer()
    for reference in ("acme/api:none", "acme/none:1", f"acme/api@sha256:{'0' * 64}"):
        assert answer(registry(), f"{real.name}/{reference}", "exists", "created") == Answer(
            exists=False
        )
        assert answer(registry(), f"{real.name}/{reference}", "exists") == Answer(exists=False)


def test_the_tags_of_a_repository_are_listed(real: Real) -> None:
    found = registry().repository(parse_image(f"{real.name}/acme/api")).tags()
    assert sorted(found) == ["multi-docker", "multi-oci", "single-docker", "single-oci", "undated"]
    with pytest.raises(RegistryError, match="no repository"):
        registry().repository(parse_image(f"{real.name}/acme/none")).tags()


def test_without_the_referrers_api_and_the_tag_an_image_has_no_referrers(real: Real) -> None:
    assert (
        registry().repository(parse_image(f"{real.name}/acme/api")).referrers(UNDATED.digest) == ()
    )


def test_an_index_copied_by_skopeo_is_read(real: Real, tmp_path: Path) -> None:
    folder = layout(tmp_path / "layout", {"multi": MULTI[OCI]})
    argv = [
        "copy",
        "--quiet",
        "--all",
        "--preserve-digests",
        "--dest-tls-verify=false",
        f"oci:{folder}:multi",
        f"docker://{real.name}/sko/peo:1",
    ]
    subprocess.run([*needs("skopeo"), "--insecure-policy", *argv], check=True, capture_output=True)
    found = answer(registry(), f"{real.name}/sko/peo:1", "digest", "created", "platforms")
    assert (found.digest, found.created, len(found.platforms)) == (MULTI[OCI].digest, DATE, 2)


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    with password_registry(tmp_path_factory.mktemp("locked")) as running:
        push(running.url, "acme/api", "1", UNDATED, auth=(USER, PASSWORD))
        yield running


def test_a_registry_is_accessed_with_a_password(locked: Real) -> None:
    asking = registry((USER, PASSWORD), locked.name)
    assert answer(asking, f"{locked.name}/acme/api:1", "digest").digest == UNDATED.digest
    assert answer(asking, f"{locked.name}/acme/none:1", "exists") == Answer(exists=False)


@pytest.mark.parametrize("login", [None, (USER, "wrong")])
def test_a_missing_or_wrong_password_causes_an_access_error(
    locked: Real, login: tuple[str, str] | None
) -> None:
    error = answer(registry(login, locked.name), f"{locked.name}/acme/api:1", "digest").error
    assert type(error) is RegistryAccessError
    assert "wrong" not in error.message


def test_a_config_file_written_by_skopeo_is_used(locked: Real, tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    argv = [
        "login",
        "--tls-verify=false",
        "--authfile",
        str(path),
        "-u",
        USER,
        "-p",
        PASSWORD,
        locked.name,
    ]
    subprocess.run([*needs("skopeo"), *argv], check=True, capture_output=True)
    asking = Registry(Logins({"REGISTRY_AUTH_FILE": str(path)}))
    assert answer(asking, f"{locked.name}/acme/api:1", "digest").digest == UNDATED.digest


def test_a_registry_with_a_token_server_is_accessed(tmp_path: Path) -> None:
    with token_registry(tmp_path) as running:
        for repository in ("acme/api", "public/web"):
            push(running.url, repository, "1", UNDATED, headers=bearer(tmp_path, repository))
        lines: list[str] = []
        asking, anyone = registry((USER, PASSWORD), running.name, lines=lines), registry()
        assert (
            answer(asking, f"{running.name}/acme/api:1", "digest", "created").digest
            == UNDATED.digest
        )
        assert len(lines) == 4  # rejected request, token, manifest, config
        assert asking.repository(parse_image(f"{running.name}/acme/api")).tags() == ("1",)
        assert answer(asking, f"{running.name}/acme/api:2", "exists") == Answer(exists=False)
        assert answer(anyone, f"{running.name}/public/web:1", "digest").digest == UNDATED.digest
        assert isinstance(
            answer(anyone, f"{running.name}/acme/api:1", "digest").error, RegistryAccessError
        )
        wrong = registry((USER, "wrong"), running.name)
        assert isinstance(
            answer(wrong, f"{running.name}/acme/api:1", "digest").error, RegistryAccessError
        )


def test_a_registry_with_a_private_certificate_authority_requires_its_certificate(
    tmp_path: Path,
) -> None:
    with tls_registry(tmp_path) as running:
        assert running.ca is not None
        push(running.url, "acme/api", "1", UNDATED, verify=str(running.ca))
        asking = registry(ca=running.ca.read_text())
        assert answer(asking, f"{running.name}/acme/api:1", "digest").digest == UNDATED.digest
        error = answer(registry(), f"{running.name}/acme/api:1", "digest").error
        assert type(error) is RegistryAccessError
        assert "--ca-file" in error.hint
