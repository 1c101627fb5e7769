from collections.abc import Iterator

import pytest
from fakes.forge_server import Reply, Request, serving
from fakes.gitea_api import Gitea as Server
from forge_plays import HEAD

from task.edges.forges.opened import Forges
from task.edges.forges.tokens import Given, Tokens
from task.errors import CredentialsError, ForgeError
from task.parse.forge import Known

TOKEN = {"IMAGE_UPDATE_FORGE_TOKEN": "good-token"}


class Version(Server):
    """Says to anyone what it is."""

    def serve(self, request: Request) -> Reply:
        if request.path == "/api/v1/version":
            self.seen.append(request)
            return Reply(200, {"version": "1.22.3"})
        return super().serve(request)


@pytest.fixture
def server() -> Iterator[Version]:
    with serving(Version()) as running:
        yield running


def forges(server: Version, *known: Known) -> Forges:
    return Forges(known, Tokens(Given(scope=(server.url,)), TOKEN))


def test_an_unknown_host_is_asked_once(server: Version) -> None:
    opened = forges(server)
    for _ in range(2):
        assert opened.of(f"{server.url}/acme/deploy.git").find("main", HEAD) is None
    asked = [one for one in server.seen if one.path == "/api/v1/version"]
    assert len(asked) == 1
    assert "authorization" not in asked[0].headers
    opened.close()


def test_a_known_host_is_not_asked(server: Version) -> None:
    opened = forges(server, Known("gitea", server.url))
    first = opened.of(f"{server.url}/acme/deploy.git")
    assert opened.of(f"{server.url}/acme/deploy") is first
    assert server.seen == []
    opened.close()


def test_no_token_for_a_host_that_an_annotation_chose(server: Version) -> None:
    opened = Forges((), Tokens(Given(scope=("https://github.com",)), TOKEN))
    with pytest.raises(CredentialsError):
        opened.of(f"{server.url}/acme/deploy")
    assert not [one for one in server.seen if "authorization" in one.headers]


@pytest.mark.parametrize("url", ["/srv/git/deploy.git", "https://github.com/acme", "https://u:s3cret@github.com/a"])
def test_no_forge_for_such_a_url(url: str) -> None:
    opened = Forges((), Tokens(Given(), {}))
    with pytest.raises(ForgeError) as caught:
        opened.of(url)
    assert "s3cret" not in f"{caught.value.message}{caught.value.hint}"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("repo", "reached", "known", "host"),
    [
        ("https://github.com/acme/deploy", "/srv/mirror/deploy.git", (), "github.com"),
        ("https://github.com/acme/deploy", "file:///srv/mirror/deploy.git", (), "github.com"),
        ("https://github.com/acme/deploy", "https://proxy.example.com/github.com/acme/deploy", (), "github.com"),
        ("https://git.internal/acme/deploy", "https://gitlab.example.com/acme/deploy", (), "gitlab.example.com"),
        ("https://github.com/acme/deploy", "ssh://git@gitlab.example.com/acme/deploy", (), "gitlab.example.com"),
        (
            "https://github.com/acme/deploy",
            "https://proxy.example.com/github.com/acme/deploy",
            (Known("github", "", chosen=True),),
            "github.com",
        ),
        ("/srv/deploy.git", "https://github.com/acme/deploy", (), "github.com"),
    ],
)
def test_a_repository_that_is_reached_elsewhere(repo: str, reached: str, known: tuple[Known, ...], host: str) -> None:
    opened = Forges(known, Tokens(Given(scope=("https://github.com",)), TOKEN))
    assert opened.place(repo, reached).host == host


def test_a_local_repository_is_on_no_forge() -> None:
    opened = Forges((), Tokens(Given(), {}))
    with pytest.raises(ForgeError, match="local repository"):
        opened.place("/srv/deploy.git", "/srv/mirror.git")
