"""Git behind a proxy that is configured in the environment or in git's configuration. Proxy
failures are reported, but never the proxy's password.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.faults import Ground, problem
from support.http_proxy import Proxy, http_proxy
from support.real_servers import Nginx, free_port

pytestmark = [pytest.mark.servers, pytest.mark.xdist_group("servers")]
LOGIN, SECRETS = "bob:pr0xy-s3cret", ("pr0xy", "s3cret")


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with http_proxy(LOGIN) as made:
        yield made


@pytest.fixture
def ground(tmp_path: Path, repos: Path) -> Ground:
    return Ground(tmp_path, repos)


def url(proxy: Proxy, login: str = LOGIN) -> str:
    return f"http://{login}@127.0.0.1:{proxy.port}"


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_a_proxy_variable_is_respected(ground: Ground, web: Nginx, proxy: Proxy, name: str) -> None:
    result = ground.by_https(web, env={name: url(proxy)})
    assert (result.code, ground.landed()) == (0, True), result.stderr
    assert set(proxy.seen) == {f"CONNECT localhost:{web.tls}"}


def test_plain_http_goes_through_the_proxy(ground: Ground, web: Nginx, proxy: Proxy) -> None:
    result = ground.by_http(web.plain, env={"http_proxy": url(proxy)})
    assert (result.code, ground.landed()) == (0, True), result.stderr
    assert any(one.endswith("/git-receive-pack") for one in proxy.seen)


def test_the_proxy_from_the_git_configuration_of_the_user_is_used(
    ground: Ground, web: Nginx, proxy: Proxy
) -> None:
    (ground.folder / ".gitconfig").write_text(f"[http]\n\tproxy = {url(proxy)}\n")
    result = ground.by_https(web)
    assert (result.code, ground.landed(), bool(proxy.seen)) == (0, True, True), result.stderr


def test_the_proxy_from_git_config_variables_is_used(
    ground: Ground, web: Nginx, proxy: Proxy
) -> None:
    pairs = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "http.proxy",
        "GIT_CONFIG_VALUE_0": url(proxy),
    }
    result = ground.by_https(web, env=pairs)
    assert (result.code, ground.landed(), bool(proxy.seen)) == (0, True, True), result.stderr


def test_a_host_in_no_proxy_is_reached_directly(ground: Ground, web: Nginx, proxy: Proxy) -> None:
    result = ground.by_https(web, env={"HTTPS_PROXY": url(proxy), "NO_PROXY": "localhost"})
    assert (result.code, ground.landed(), proxy.seen) == (0, True, []), result.stderr


@pytest.mark.parametrize(
    ("login", "refuses", "code", "rule", "told"),
    [
        (LOGIN, 403, 4, "repository", "the proxy does not allow this"),
        (LOGIN, 502, 75, "repository", "could not be reached"),
        ("bob:pr0xy-wrong", 0, 4, "credentials", "the proxy did not accept the credentials"),
    ],
)
def test_a_refusal_by_the_proxy_is_reported_without_its_password(
    ground: Ground,
    web: Nginx,
    proxy: Proxy,
    login: str,
    refuses: int,
    code: int,
    rule: str,
    told: str,
) -> None:
    proxy.refuses = refuses
    result = ground.by_https(web, env={"HTTPS_PROXY": url(proxy, login)})
    assert problem(result)[:2] == (code, rule)
    assert told in problem(result)[2]
    assert "CONNECT" in problem(result)[2]
    assert len(proxy.seen) >= (3 if code == 75 else 1)  # retried a few times if that might help
    hides(result.stdout + result.stderr)
    proxy.refuses = 0
    assert (ground.by_https(web, env={"HTTPS_PROXY": url(proxy)}).code, ground.landed()) == (
        0,
        True,
    )


def hides(text: str) -> None:
    assert not [one for one in SECRETS if one in text], text


@pytest.mark.parametrize(
    ("where", "given", "code", "told"),
    [
        (
            "HTTPS_PROXY",
            f"http://{LOGIN}@127.0.0.1:{{}}",
            75,
            "the proxy could not be reached",
        ),  # nothing is listening on this port
        ("http.proxy", f"http://{LOGIN}@127.0.0.1:{{}}", 75, "the proxy could not be reached"),
        ("http.proxy", f"http://{LOGIN}@127.0.0.1:port", 4, "the proxy setting is not valid"),
        ("http.proxy", f"http://{LOGIN}@pro xy:3128", 4, "the proxy setting is not valid"),
        ("HTTPS_PROXY", f"{LOGIN}@127.0.0.1:port", 4, "the proxy setting is not valid"),
        ("HTTPS_PROXY", "http://bob:pr0xy/s3cret@127.0.0.1:1", 4, "the proxy setting is not valid"),
        ("http.proxy", "http://bob:pr0xy/s3cret@127.0.0.1:1", 4, "the proxy setting is not valid"),
        (
            "http.proxy",
            "http://bob:pr0xy s3cret@127.0.0.1:{}",
            75,
            "the proxy could not be reached",
        ),
        ("HTTPS_PROXY", "bob:pr0xy'/@s3cret@127.0.0.1:1", 4, "the proxy setting is not valid"),
    ],
)
def test_an_unusable_proxy_is_reported_without_its_password(
    ground: Ground, web: Nginx, where: str, given: str, code: int, told: str
) -> None:
    given = given.format(free_port())
    pairs = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": where, "GIT_CONFIG_VALUE_0": given}
    result = ground.by_https(web, env=pairs if where == "http.proxy" else {where: given})
    hides(result.stdout + result.stderr)
    assert problem(result)[0] == code
    assert told in problem(result)[2]
