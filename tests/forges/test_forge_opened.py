"""Which forge client a run opens for a repository, and how often the run probes the host."""

from collections.abc import Iterator

import pytest
from fakes.forge_server import Reply, Request
from fakes.gitea_api import Gitea as Server
from support import costs_at_most
from support.forge_plays import HEAD
from support.serving import Answers, serving

from task.errors import CredentialsError, ForgeError, UnreachableError
from task.forges.opened import Forges
from task.forges.places import Known
from task.forges.tokens import Tokens

TOKEN = {"IMAGE_UPDATE_FORGE_TOKEN": "good-token"}


class Version(Server):
    """A server that reveals its version without authentication."""

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
    return Forges(known, lambda: Tokens(TOKEN, scope=(server.url,)))


def test_an_unknown_host_is_probed_once_without_a_login(server: Version) -> None:
    opened = forges(server)
    for _ in range(2):
        assert opened.of(f"{server.url}/acme/deploy.git").find("main", HEAD) is None
    asked = [one for one in server.seen if one.path == "/api/v1/version"]
    assert len(asked) == 1
    assert "authorization" not in asked[0].headers
    opened.close()


def test_a_known_host_is_not_probed(server: Version) -> None:
    opened = forges(server, Known("gitea", server.url))
    first = opened.of(f"{server.url}/acme/deploy.git")
    assert opened.of(f"{server.url}/acme/deploy") is first
    assert server.seen == []
    opened.close()


def test_a_host_chosen_by_an_annotation_receives_no_token(server: Version) -> None:
    opened = Forges((), lambda: Tokens(TOKEN, scope=("https://github.com",)))
    with pytest.raises(CredentialsError):
        opened.of(f"{server.url}/acme/deploy")
    assert not [one for one in server.seen if "authorization" in one.headers]


@pytest.mark.parametrize(
    "url", ["/srv/git/deploy.git", "https://github.com/acme", "https://u:s3cret@github.com/a"]
)
def test_a_url_without_a_forge_is_an_error_that_hides_the_login(url: str) -> None:
    opened = Forges((), lambda: Tokens({}))
    with pytest.raises(ForgeError) as caught:
        opened.of(url)
    assert "s3cret" not in f"{caught.value.message}{caught.value.hint}"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("repo", "reached", "known", "host"),
    [
        ("https://github.com/acme/deploy", "/srv/mirror/deploy.git", (), "github.com"),
        ("https://github.com/acme/deploy", "file:///srv/mirror/deploy.git", (), "github.com"),
        (
            "https://github.com/acme/deploy",
            "https://proxy.example.com/github.com/acme/deploy",
            (),
            "github.com",
        ),
        (
            "https://git.internal/acme/deploy",
            "https://gitlab.example.com/acme/deploy",
            (),
            "gitlab.example.com",
        ),
        (
            "https://github.com/acme/deploy",
            "ssh://git@gitlab.example.com/acme/deploy",
            (),
            "gitlab.example.com",
        ),
        (
            "https://github.com/acme/deploy",
            "https://proxy.example.com/github.com/acme/deploy",
            (Known("github", "", chosen=True),),
            "github.com",
        ),
        ("/srv/deploy.git", "https://github.com/acme/deploy", (), "github.com"),
    ],
)
def test_the_forge_of_a_rewritten_url_is_determined(
    repo: str, reached: str, known: tuple[Known, ...], host: str
) -> None:
    tokens = Tokens(TOKEN, scope=("https://github.com",))
    opened = Forges(known, lambda: tokens, reached=lambda _repo: reached)
    assert opened.place(repo).host == host


def test_a_local_repository_has_no_forge() -> None:
    opened = Forges((), lambda: Tokens({}), reached=lambda _repo: "/srv/mirror.git")
    with pytest.raises(ForgeError, match="local repository"):
        opened.place("/srv/deploy.git")


@pytest.mark.parametrize(
    ("forge", "form", "item"),
    [
        ("github", b"[%s{}]", b"{},"),
        ("gitlab", b"[%s{}]", b"[],"),
        ("gitea", b"%s", b"    "),
        ("bitbucket-server", b'{"values": [%s1]}', b"1,"),
        ("azure", b'{"value": [%s1]}', b"1,"),
    ],
)
def test_a_response_that_would_fill_the_memory_is_not_read(
    forge: str, form: bytes, item: bytes
) -> None:
    body = form % (item * 5_000_000)
    with serving(Answers()) as server:
        server.reply = lambda _path: (200, {"Content-Type": "application/json"}, body)
        path = "acme/shop/_git/deploy" if forge == "azure" else "acme/deploy"
        opened = Forges((Known(forge, server.url),), lambda: Tokens(TOKEN, scope=(server.url,)))
        with (
            costs_at_most(),
            pytest.raises(UnreachableError, match="returned more than") as refused,
        ):
            opened.of(f"{server.url}/{path}").find("main", HEAD)
        opened.close()
    assert refused.value.hint


def test_a_forge_without_deployments_is_reported(server: Version) -> None:
    opened = forges(server, Known("gitea", server.url))
    with pytest.raises(
        ForgeError, match=r"deployments are not supported on 127\.0\.0\.1"
    ) as caught:
        opened.deployments(f"{server.url}/acme/deploy")
    assert (
        caught.value.hint
        == "omit --deployments; only these hosts support deployments: gitlab, github"
    )


def test_a_comment_with_an_invalid_page_links_to_the_repository(server: Version) -> None:
    opened = forges(server, Known("gitea", server.url))
    comments = opened.comments(f"{server.url}/acme/deploy")
    server.add(base="main", head="feature", title="t", body="b")
    assert (
        comments.forge,
        comments.put("1", "<!-- m -->", "x\n<!-- m -->").partition("#")[2][:13],
    ) == (
        "gitea",
        "issuecomment-",
    )
    server.fail(Reply(200, {"html_url": "javascript:alert(1)"}), "PATCH")
    assert comments.put("1", "<!-- m -->", "y\n<!-- m -->") == f"{server.url}/acme/deploy"
    opened.close()
