"""A GitHub App's token, requested from an HTTP server that responds like GitHub."""

import base64
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from support import costs_at_most, needs
from support.http_proxy import http_proxy
from support.serving import Answers, serving

from task.errors import CredentialsError, TaskError, UnreachableError, UsageError
from task.git import github_app
from task.git.credentials import access_of
from task.git.github_app import App, signed, token
from task.secret import Secret
from task.settings import AccessOptions


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("app") / "app.pem"
    subprocess.run(
        [*needs("openssl"), "genrsa", "-out", path, "2048"], check=True, capture_output=True
    )
    return path


class GitHub(HTTPServer):
    """A server that sends `answers` in turn, repeating the last. `asked` lists paths and logins."""

    answers: list[tuple[int, object]]
    asked: list[tuple[str, str]]


class _Handler(BaseHTTPRequestHandler):
    server: GitHub

    def do_POST(self) -> None:
        self.server.asked.append((self.path, self.headers["Authorization"]))
        status, body = (
            self.server.answers.pop(0) if len(self.server.answers) > 1 else self.server.answers[0]
        )
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_message: object) -> None:
        """Log nothing."""


@pytest.fixture
def github() -> Iterator[GitHub]:
    with GitHub(("127.0.0.1", 0), _Handler) as server:
        server.answers, server.asked = [(201, {"token": "ghs_t0ken"})], []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def app(server: GitHub, key: Path) -> App:
    return App("12", "34", Secret(key.read_text()), f"http://127.0.0.1:{server.server_address[1]}")


def part(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@pytest.mark.parametrize(
    ("no_proxy", "used"), [("", True), ("other.example.com", True), ("127.0.0.1", False)]
)
def test_the_api_is_reached_through_the_proxy_in_the_argo_cd_secret(
    github: GitHub, key: Path, no_proxy: str, used: bool
) -> None:
    with http_proxy() as proxy:
        through = Secret(f"http://127.0.0.1:{proxy.port}")
        assert token(app(github, key), proxy=through, no_proxy=no_proxy).reveal() == "ghs_t0ken"
        assert bool(proxy.seen) is used


def test_the_signed_json_web_token_conforms_to_the_github_documentation(
    tmp_path: Path, key: Path
) -> None:
    head, claims, signature = (
        signed(App("12", "34", Secret(key.read_text()), ""), 1000).reveal().split(".")
    )
    assert json.loads(part(head)) == {"alg": "RS256", "typ": "JWT"}
    assert json.loads(part(claims)) == {"iat": 940, "exp": 1540, "iss": "12"}
    (tmp_path / "signature").write_bytes(part(signature))
    public = tmp_path / "public"
    subprocess.run(
        ["openssl", "rsa", "-in", key, "-pubout", "-out", public], check=True, capture_output=True
    )
    check: list[str | Path] = [
        "openssl",
        "dgst",
        "-sha256",
        "-verify",
        public,
        "-signature",
        tmp_path / "signature",
    ]
    subprocess.run(check, input=f"{head}.{claims}".encode(), check=True, capture_output=True)


def test_a_token_is_requested_for_the_installation(key: Path, github: GitHub) -> None:
    assert token(app(github, key)).reveal() == "ghs_t0ken"
    ((path, authorization),) = github.asked
    assert path == "/app/installations/34/access_tokens"
    assert authorization.startswith("Bearer ey")


def test_a_netrc_file_does_not_replace_the_app_credentials(
    key: Path, github: GitHub, home: Path
) -> None:
    (home / ".netrc").write_text("machine 127.0.0.1 login a password b\n")
    token(app(github, key))
    assert github.asked[0][1].startswith("Bearer ")


def test_temporary_api_errors_are_retried(
    key: Path, github: GitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(github_app, "_PAUSES", (0.01,))
    github.answers = [(502, {}), (201, {"token": "x"})]
    assert token(app(github, key)).reveal() == "x"
    assert len(github.asked) == 2


@pytest.mark.parametrize(
    ("status", "body", "error", "told"),
    [
        (
            401,
            {"message": "A JSON web token could not be decoded"},
            CredentialsError,
            "A JSON web token could not",
        ),
        (404, {"message": "Not Found"}, CredentialsError, "installation 34 of App 12"),
        (403, ["odd"], CredentialsError, "403"),
        (302, {}, CredentialsError, "302"),
        (503, {}, UnreachableError, "503"),
    ],
)
def test_rejected_token_requests_are_reported(
    key: Path, github: GitHub, monkeypatch: pytest.MonkeyPatch,
    status: int, body: object, error: type[TaskError], told: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(github_app, "_PAUSES", ())
    github.answers = [(status, body)]
    with pytest.raises(error) as caught:
        token(app(github, key))
    assert told in caught.value.message
    assert "ey" not in caught.value.message.split()


def test_an_invalid_app_key_causes_a_usage_error() -> None:
    with pytest.raises(UsageError, match="not an unencrypted RSA private key"):
        signed(App("1", "2", Secret("-----BEGIN nonsense"), ""), 0)


def test_the_token_is_fetched_once_and_used_only_for_its_server(
    key: Path, github: GitHub, tmp_path: Path
) -> None:
    environ = {
        "GITHUB_API_URL": f"http://127.0.0.1:{github.server_address[1]}",
        "GITHUB_SERVER_URL": "https://github.example.com",
        "IMAGE_UPDATE_GITHUB_APP_KEY": key.read_text().replace("\n", "\\n"),
        "TMPDIR": str(tmp_path),
        **{name: os.environ[name] for name in ("PATH",)},
    }
    access = access_of(AccessOptions(github_app_id="12", github_app_installation_id="34"), environ)
    assert access.logins("https://git.example.com/x.git", helped=False) == ()
    assert github.asked == []
    logins = [access.logins("https://github.example.com/a/b.git", helped=False) for _ in range(2)][
        1
    ]
    assert [(one.prefix, one.user, one.password.reveal()) for one in logins] == [
        ("https://github.example.com", "x-access-token", "ghs_t0ken")
    ]
    assert len(github.asked) == 1


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b" " * 5_000_000, "more than 1048576 bytes"),
        (b'{"token": [%s1]}' % (b"1," * 200_000), "more than 100,000 values"),
        (b"<html>", "did not issue a token"),
        (b'{"token": 1}', "did not issue a token"),
        (b"[1]", "did not issue a token"),
    ],
    ids=["size", "values", "a page", "no text", "a list"],
)
def test_responses_without_a_valid_token_are_rejected(key: Path, body: bytes, told: str) -> None:
    with serving(Answers()) as server:
        server.reply = lambda _path: (201, {}, body)
        with costs_at_most(), pytest.raises(CredentialsError, match=told) as caught:
            token(App("12", "34", Secret(key.read_text()), server.url))
    assert caught.value.hint
