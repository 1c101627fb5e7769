"""How an unknown host is probed to find out its kind of forge."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from task.errors import ForgeError, UnreachableError
from task.forges.client import ForgeAddress, ForgeToken, Reach
from task.forges.github import GitHub
from task.forges.places import FORGES, LIMITS, Known, probe
from task.git.hosts import RemoteUrl
from task.model import Proposal, Proposed
from task.secret import Secret


class Host(ThreadingHTTPServer):
    """A host that serves known paths, and an HTML page for any other path."""

    answers: dict[str, tuple[int, dict[str, str], str]]
    asked: list[tuple[str, dict[str, str]]]
    daemon_threads = True


class _Handler(BaseHTTPRequestHandler):
    server: Host

    def do_GET(self) -> None:
        self.server.asked.append(
            (self.path, {name.lower(): value for name, value in self.headers.items()})
        )
        status, headers, body = self.server.answers.get(
            self.path, (404, {}, "<html>not found</html>")
        )
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_message: object) -> None:
        """Log nothing."""


@pytest.fixture
def host() -> Iterator[Host]:
    server = Host(("127.0.0.1", 0), _Handler)
    server.answers, server.asked = {}, []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def remote(host: Host, *parts: str, ssh: bool = False) -> RemoteUrl:
    name = f"127.0.0.1:{host.server_address[1]}"
    return RemoteUrl(f"http://{name}", name, parts, ssh)


ANSWERS = [
    ("gitea", "/api/v1/version", (200, {}, '{"version": "1.22.3"}')),
    ("gitea", "/api/v1/version", (200, {}, '{"version": "9.0.0+gitea-1.22.0"}')),
    (
        "gitea",
        "/api/v1/version",
        (403, {}, '{"message": "Only signed in user is allowed to call APIs."}'),
    ),
    ("gitlab", "/api/v4/version", (401, {}, '{"message": "401 Unauthorized"}')),
    ("gitlab", "/api/v4/version", (200, {}, '{"version": "17.5.0", "revision": "abc"}')),
    ("github", "/api/v3/meta", (200, {}, '{"installed_version": "3.17.1"}')),
    (
        "github",
        "/api/v3/meta",
        (401, {"X-GitHub-Request-Id": "a:b"}, '{"message": "Must authenticate"}'),
    ),
    (
        "bitbucket-server",
        "/rest/api/1.0/application-properties",
        (200, {}, '{"displayName": "Bitbucket"}'),
    ),
    (
        "bitbucket-server",
        "/rest/api/1.0/application-properties",
        (401, {"X-AREQUESTID": "x"}, "{}"),
    ),
]


@pytest.mark.parametrize(("forge", "path", "answer"), ANSWERS)
def test_each_forge_is_recognized_by_its_response(
    host: Host, forge: str, path: str, answer: tuple[int, dict[str, str], str]
) -> None:
    host.answers[path] = answer
    there = remote(host, "acme", "deploy")
    assert probe(there) == Known(forge, there.root)


def test_a_forge_below_a_path_is_recognized(host: Host) -> None:
    host.answers["/git/api/v4/version"] = (401, {}, '{"message": "401 Unauthorized"}')
    there = remote(host, "git", "acme", "deploy")
    assert probe(there) == Known("gitlab", f"{there.root}/git")


def test_probing_sends_no_credentials(host: Host) -> None:
    with pytest.raises(ForgeError):
        probe(remote(host, "acme", "deploy"))
    assert len(host.asked) == 4
    assert not [
        headers for _, headers in host.asked if "authorization" in headers or "cookie" in headers
    ]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "null",
        "<html></html>",
        '{"version": 1}',
        # coverage may exceed the recursion limit, too, while it measures a finalizer
        pytest.param('{"a":' * 3000, marks=pytest.mark.slow),
    ],
)
def test_a_host_without_a_known_forge_is_an_error(host: Host, body: str) -> None:
    for path in (
        "/api/v1/version",
        "/api/v4/version",
        "/api/v3/meta",
        "/rest/api/1.0/application-properties",
    ):
        host.answers[path] = (200, {}, body)
    with pytest.raises(ForgeError) as caught:
        probe(remote(host, "acme", "deploy"))
    assert "--forge" in caught.value.hint


def test_an_unreachable_host_is_an_error_with_a_hint() -> None:
    there = RemoteUrl("http://127.0.0.1:9", "127.0.0.1:9", ("a", "b"), ssh=True)
    with pytest.raises(UnreachableError) as caught:
        probe(there, limits=replace(LIMITS, connect=1))
    assert "--forge" in caught.value.hint


def test_a_client_can_be_created_for_every_forge() -> None:
    for name in FORGES:
        project = ("o", "p", "r") if name == "azure" else ("o", "r")
        place = ForgeAddress(name, "h", "https://h.example", project)
        FORGES[name].client(Reach(place, ForgeToken(Secret("x")))).close()


def odd(error: Exception, monkeypatch: pytest.MonkeyPatch) -> GitHub:
    """Return a forge whose HTTP requests raise this error."""

    def ask(*_what: object, **_more: object) -> None:
        raise error

    monkeypatch.setattr("task.forges.client.Client.ask", ask)
    place = ForgeAddress("github", "git.example.com", "https://git.example.com", ("a", "b"), "")
    return GitHub(Reach(place, ForgeToken(Secret("x"))))


@pytest.mark.parametrize(
    "error", [KeyError("iid"), TypeError("x"), ValueError("x"), AttributeError("y"), IndexError()]
)
def test_responses_of_an_unexpected_shape_are_reported_as_errors(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge = odd(error, monkeypatch)
    calls: list[Any] = [
        lambda: forge.find("a", "b"),
        lambda: forge.state("1"),
        lambda: forge.propose(Proposal("r", "b", "h", "t", "b"), None),
        lambda: forge.withdraw(Proposed("", "1", "open"), "because"),
    ]
    for call in calls:
        with pytest.raises(UnreachableError, match="unexpected response"):
            call()
