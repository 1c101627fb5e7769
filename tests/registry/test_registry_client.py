"""Everything around registry queries: the configuration file, threads, and the end of a run."""

from pathlib import Path

import certifi
import pytest
from fakes.oci_images import image, index
from fakes.registry_api import RegistryApi

from task.errors import Exit, RegistryDownError, RegistryError, UsageError
from task.http import Limits
from task.image import parse_image
from task.model import Question
from task.registry.client import Registry
from task.registry.docker_config import RegistryLogin
from task.registry.endpoint import RegistryConf, read_registries_conf
from task.registry.logins import Logins
from task.secret import Secret

pytestmark = pytest.mark.measured


@pytest.fixture
def server(oci_registry: RegistryApi) -> RegistryApi:
    oci_registry.put("acme/api", "1.0", image())
    return oci_registry


def question(server: RegistryApi) -> Question:
    return Question(parse_image(f"{server.name}/acme/api:1.0"), ("created",))


def test_registries_conf_is_read(tmp_path: Path, server: RegistryApi) -> None:
    path = tmp_path / "registries.conf"
    path.write_text(f"registries:\n- {{name: x, api_url: '{server.url}', prefix: reg.example}}\n")
    entries = read_registries_conf(str(path))
    asked = Question(parse_image("reg.example/acme/api:1.0"), ("created",))
    assert Registry(Logins({}), entries=entries).answer([asked])[asked].created


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot read"),
        (b"\xff", "not a text file"),
        (b"registries: 1", "not a list"),
        (b"x: 1", "unknown key"),
    ],
)
def test_an_invalid_registries_conf_causes_a_usage_error(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "registries.conf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=words) as refused:
        read_registries_conf(str(path))
    assert str(path) in refused.value.message


def test_an_unreadable_ca_file_in_registries_conf_causes_a_usage_error(server: RegistryApi) -> None:
    entry = RegistryConf("x", server.url, server.name, ca_file="/nonexistent/ca.pem")
    asked = question(server)
    error = Registry(Logins({}), entries=(entry,)).answer([asked])[asked].error
    assert isinstance(error, UsageError)
    assert "ca_file" in error.message


def test_a_ca_file_in_registries_conf_is_read_once(server: RegistryApi, tmp_path: Path) -> None:
    """The file was once reread for each query, even in the middle of its renewal."""
    file = tmp_path / "ca.pem"
    file.write_text(Path(certifi.where()).read_text())
    entry = RegistryConf("x", server.url, server.name, ca_file=str(file))
    registry = Registry(Logins({}), entries=(entry,))
    first = registry.repository(question(server).image)
    file.unlink()
    assert registry.repository(question(server).image) is first


def test_the_cache_is_written_at_the_end_of_a_run(server: RegistryApi, tmp_path: Path) -> None:
    registry = Registry(Logins({}), cache_dir=str(tmp_path / "cache"))
    registry.answer([question(server)])
    registry.close()
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.parametrize(
    ("status", "kind"), [(503, RegistryDownError), (429, RegistryDownError), (0, RegistryDownError)]
)
def test_an_unavailable_token_server_causes_a_temporary_error(
    server: RegistryApi, status: int, kind: type[RegistryError]
) -> None:
    server.ask_for_tokens(ci="p")
    server.faults["/token"] = lambda _: (
        status or 200,
        {"Content-Length": "" if status else "99"},
        b"{",
    )
    login = {server.name: RegistryLogin("ci", Secret("p"))}
    asked = question(server)
    error = (
        Registry(Logins({}, login), limits=Limits(silence=0.5, tries=1))
        .answer([asked])[asked]
        .error
    )
    assert type(error) is kind


@pytest.mark.parametrize("path", ["/token", "/v2/acme/api/manifests/1.0"])
def test_a_response_that_is_too_large_is_a_permanent_error(server: RegistryApi, path: str) -> None:
    server.ask_for_tokens(ci="p")
    server.faults[path] = lambda _: (200, {}, b" " * 100_000)
    login = {server.name: RegistryLogin("ci", Secret("p"))}
    asked = question(server)
    limits = Limits(size=50_000, tries=1)
    error = Registry(Logins({}, login), limits=limits).answer([asked])[asked].error
    assert isinstance(error, RegistryError)
    assert "more than 50000 bytes" in error.message
    assert error.exit in (Exit.CONFIGURATION, Exit.ACCESS)


def test_an_index_member_that_is_itself_an_index_has_no_date(server: RegistryApi) -> None:
    inner = index([image("linux/arm64")])
    server.put(
        "acme/api",
        "1.0",
        index([], extra=[(inner, {"platform": {"os": "linux", "architecture": "arm64"}})]),
    )
    asked = question(server)
    answer = Registry(Logins({})).answer([asked])[asked]
    assert answer.created == ""
