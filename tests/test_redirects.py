"""Git servers that redirect: a login is sent only to its own server, and https never becomes
http.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.kubernetes_api import SECRETS, KubernetesApi, running
from support import Result, git, image_update, show
from support.clusters import in_cluster, of_argo_cd
from support.git_servers import GitServer, git_server
from support.runs import application, arguments, manifest, repository, target
from support.serving import certificate

from task.errors import NoAnswerError
from task.http import Http

TOKEN = "b3arer-t0ken"
ELSEWHERE = (
    "a token sent as a header (http.extraHeader, bearerToken) is sent only to its own server"
)


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with running() as found:
        yield found


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    found = repository(tmp_path, "web", name="new.git")
    git(found, "config", "http.receivepack", "true")
    return found


@pytest.fixture
def other(repo: Path) -> Iterator[GitServer]:
    """Another server, which serves the repository to everyone and records the headers it
    receives.
    """
    with git_server(repo.parent) as server:
        yield server


def run_with_config(
    folder: Path, url: str, *more: str | Path, config: str = "", env: dict[str, str] | None = None
) -> Result:
    """Run the command on one repository. `config` is the user's git configuration."""
    (folder / ".gitconfig").write_text(config)
    given = {"HOME": str(folder), **(env or {})}
    return image_update(*arguments(manifest(folder, application("web", url)), *more), env=given)


def tokens(server: GitServer) -> set[str]:
    return {token for _, token in server.headers if token}


def landed(repo: Path) -> bool:
    return "newTag: 1.1.0" in show(repo, "main", target("web"))


@pytest.mark.parametrize("end", ["old.git", "old"])
def test_the_bearer_token_of_argo_cd_is_not_sent_to_another_server(
    tmp_path: Path, repo: Path, other: GitServer, api: KubernetesApi, end: str
) -> None:
    with git_server(tmp_path) as server:
        server.moved["/old"] = f"{other.url}new"
        api.add(SECRETS, of_argo_cd(f"{server.url}old", bearerToken=TOKEN))
        result = in_cluster(tmp_path, api, f"{server.url}{end}")
    assert tokens(other) == set()
    assert result.code == 4, result.stderr
    assert ELSEWHERE in result.stderr
    assert f"the server redirects to {other.url.rstrip('/')}" in result.stderr
    assert not landed(repo)


@pytest.mark.parametrize(
    "config",
    [
        f"[http]\n\textraHeader = Authorization: Bearer {TOKEN}\n",
        f'[http "SERVER"]\n\textraHeader = AUTHORIZATION: basic {TOKEN}\n',  # as left by actions/checkout
        f'[http "SERVER"]\n\textraHeader = Authorization: Bearer {TOKEN}\n\tfollowRedirects = true\n',
        f'[http "SERVER/old.git"]\n\textraHeader = PRIVATE-TOKEN: {TOKEN}\n',
    ],
)
def test_headers_from_the_git_configuration_are_not_sent_to_another_server(
    tmp_path: Path, repo: Path, other: GitServer, config: str
) -> None:
    with git_server(tmp_path) as server:
        server.moved["/old"] = f"{other.url}new"
        result = run_with_config(
            tmp_path,
            f"{server.url}old.git",
            config=config.replace("SERVER", server.url.rstrip("/")),
        )
    assert (result.code, other.headers) == (4, [])
    assert ELSEWHERE in result.stderr
    assert TOKEN not in result.stdout + result.stderr
    assert not landed(repo)


def test_headers_from_git_config_variables_are_not_sent_to_another_server(
    tmp_path: Path, repo: Path, other: GitServer
) -> None:
    pairs = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "http.extraHeader",
        "GIT_CONFIG_VALUE_0": f"X: {TOKEN}",
    }
    with git_server(tmp_path) as server:
        server.moved["/old"] = f"{other.url}new"
        result = run_with_config(tmp_path, f"{server.url}old.git", env=pairs)
    assert (result.code, other.headers, landed(repo)) == (4, [], False), result.stderr


def test_a_redirect_to_another_server_is_followed_without_the_login(
    tmp_path: Path, repo: Path, other: GitServer
) -> None:
    (tmp_path / "password").write_text(TOKEN)
    with git_server(tmp_path) as server:
        server.moved["/old"] = f"{other.url}new"
        login = ("--git-username", "u", "--git-password-file", tmp_path / "password")
        result = run_with_config(
            tmp_path, f"{server.url}old.git", *login, "--git-credentials-url", server.url
        )
    assert (result.code, landed(repo), tokens(other)) == (0, True, set()), result.stderr


@pytest.mark.parametrize("fields", [{"bearerToken": TOKEN}, {"username": "u", "password": TOKEN}])
@pytest.mark.parametrize("kind", ["repository", "repo-creds"])
def test_a_renamed_repository_is_found_on_the_same_server(
    tmp_path: Path, repo: Path, api: KubernetesApi, kind: str, fields: dict[str, str]
) -> None:
    with git_server(tmp_path) as server:
        server.moved = {"/older": "/old", "/old": f"{server.url}new"}
        server.bearer = fields.get("bearerToken", "")
        server.logins = {} if server.bearer else {"u": TOKEN}
        api.add(
            SECRETS,
            of_argo_cd(
                f"{server.url}older" if kind == "repository" else server.url, kind, **fields
            ),
        )
        result = in_cluster(tmp_path, api, f"{server.url}older.git")
    assert (result.code, landed(repo)) == (0, True), result.stderr
    if server.bearer:
        assert "has moved to" in result.stderr
    assert TOKEN not in result.stdout + result.stderr


def test_a_renamed_repository_is_found_with_a_configured_header(tmp_path: Path, repo: Path) -> None:
    with git_server(tmp_path) as server:
        server.moved["/old"], server.bearer = "/new", TOKEN
        config = f'[http "{server.url}"]\n\textraHeader = Authorization: Bearer {TOKEN}\n'
        result = run_with_config(tmp_path, f"{server.url}old.git", config=config)
    assert (result.code, landed(repo)) == (0, True), result.stderr


@pytest.mark.parametrize(
    ("moved", "said"), [("/old/x", "in a loop"), ("/login?", "but git does not follow")]
)
def test_redirects_to_a_dead_end_are_errors(
    tmp_path: Path, repo: Path, moved: str, said: str
) -> None:
    with git_server(repo.parent) as server:
        server.moved["/old"] = moved
        config = f"[http]\n\textraHeader = Authorization: Bearer {TOKEN}\n"
        result = run_with_config(tmp_path, f"{server.url}old.git", config=config)
    assert result.code == 4, result.stderr
    assert said in result.stderr


@pytest.mark.parametrize("config", ["", f"[http]\n\textraHeader = Authorization: Bearer {TOKEN}\n"])
def test_git_never_follows_a_redirect_from_https_to_plain_http(
    tmp_path: Path, repo: Path, other: GitServer, config: str
) -> None:
    found, key = certificate(tmp_path)
    with git_server(tmp_path, (found, key)) as server:
        server.moved["/old"] = f"{other.url}new"
        result = run_with_config(
            tmp_path, f"{server.url}old.git", "--ca-file", found, config=config
        )
    assert (result.code, other.headers, landed(repo)) == (4, [], False), result.stderr
    assert ("redirects from https to plain http" if not config else ELSEWHERE) in result.stderr


def test_an_https_url_may_be_rewritten_to_http_by_the_git_configuration(
    tmp_path: Path, repo: Path, other: GitServer
) -> None:
    config = f'[url "{other.url}"]\n\tinsteadOf = https://git.example.com/\n'
    result = run_with_config(tmp_path, "https://git.example.com/new.git", config=config)
    assert (result.code, landed(repo)) == (0, True), result.stderr


def test_services_are_never_redirected_from_https_to_plain_http(
    tmp_path: Path, other: GitServer
) -> None:
    """Registries, forges, Argo CD, and Kubernetes all use the same HTTP client."""
    found, key = certificate(tmp_path)
    with git_server(tmp_path, (found, key)) as server:
        server.moved["/old"] = f"{other.url}new"
        door = Http(server.url, login=lambda: {"Authorization": TOKEN}, ca_file=str(found))
        with pytest.raises(NoAnswerError, match="which is not encrypted") as refused:
            door.ask("GET", "/old")
        door.close()
    assert (refused.value.kind, other.headers) == ("redirect", [])
