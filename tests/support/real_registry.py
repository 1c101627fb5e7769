"""Debian's docker-registry on loopback (open, with a password file, with tokens, or over TLS), and
its token server.
"""

import base64
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from support import needs
from support.real_servers import free_port, started

USER, PASSWORD = "ci", "s3cret-pass/w@rd"
SERVICE, ISSUER = "registry.example", "tests"
LOGIN = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


class Real(NamedTuple):
    """A running registry."""

    name: str  # as it appears in image references
    url: str
    ca: Path | None = None


@contextmanager
def open_registry(folder: Path) -> Iterator[Real]:
    """Run a registry that gives everyone full access."""
    with _running(folder, "") as port:
        yield Real(f"127.0.0.1:{port}", f"http://127.0.0.1:{port}")


@contextmanager
def notifying_registry(folder: Path, listener: str) -> Iterator[Real]:
    """Run a registry that gives everyone full access, and which sends its events to a listener."""
    endpoint = f"{{name: test, url: '{listener}', timeout: 5s, threshold: 3, backoff: 200ms}}"
    with _running(folder, f"notifications:\n  endpoints:\n  - {endpoint}\n") as port:
        yield Real(f"127.0.0.1:{port}", f"http://127.0.0.1:{port}")


@contextmanager
def password_registry(folder: Path) -> Iterator[Real]:
    """Run a registry with Basic authentication."""
    argv = [*needs("htpasswd"), "-Bbn", USER, PASSWORD]
    (folder / "htpasswd").write_bytes(subprocess.run(argv, check=True, capture_output=True).stdout)
    auth = f"auth:\n  htpasswd: {{realm: registry, path: {folder}/htpasswd}}\n"
    with _running(folder, auth) as port:
        yield Real(f"127.0.0.1:{port}", f"http://127.0.0.1:{port}")


@contextmanager
def tls_registry(folder: Path) -> Iterator[Real]:
    """Run a registry that only supports HTTPS, with an untrusted certificate."""
    _certificate(folder)
    with _running(
        folder, "", f"  tls: {{certificate: {folder}/cert.pem, key: {folder}/key.pem}}\n"
    ) as port:
        yield Real(f"localhost:{port}", f"https://localhost:{port}", folder / "cert.pem")


@contextmanager
def token_registry(folder: Path) -> Iterator[Real]:
    """Run a registry that requires bearer tokens, which are issued by a server on another port.
    Everyone may read `public/…`.
    """
    _certificate(folder)
    with _Tokens(folder) as tokens:
        thread = threading.Thread(target=tokens.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        realm = f"http://127.0.0.1:{tokens.server_address[1]}/auth"
        terms = f"realm: '{realm}', service: {SERVICE}, issuer: {ISSUER}, rootcertbundle: {folder}/cert.pem"
        try:
            with _running(folder, f"auth:\n  token: {{{terms}}}\n") as port:
                yield Real(f"127.0.0.1:{port}", f"http://127.0.0.1:{port}")
        finally:
            tokens.shutdown()
            thread.join()


def bearer(folder: Path, repository: str) -> dict[str, str]:
    """Return the headers of a client that may push to a repository in `token_registry`."""
    return {"Authorization": f"Bearer {_token(folder, repository, ['pull', 'push'])}"}


@contextmanager
def _running(folder: Path, auth: str, http: str = "") -> Iterator[int]:
    program, port = needs("docker-registry"), free_port()
    (folder / "config.yml").write_text(
        f"version: 0.1\nlog: {{level: error}}\nstorage:\n  filesystem: {{rootdirectory: {folder}/store}}\n"
        f"  delete: {{enabled: true}}\nhttp:\n  addr: 127.0.0.1:{port}\n{http}{auth}"
    )
    with started([*program, "serve", str(folder / "config.yml")], port, folder / "registry.log"):
        yield port


def _certificate(folder: Path) -> None:
    subprocess.run(
        [*needs("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")],
        check=True, capture_output=True,
    )  # fmt: skip


class _Tokens(ThreadingHTTPServer):
    """A server that issues tokens according to Docker's documentation."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder


class _Handler(BaseHTTPRequestHandler):
    server: _Tokens

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        repository = query["scope"][0].split(":")[1]
        login = self.headers.get("Authorization", "")
        if login not in ("", LOGIN):
            self.send_error(401)
            return
        allowed = ["pull"] if login or repository.startswith("public/") else []
        body = json.dumps(
            {"token": _token(self.server.folder, repository, allowed), "expires_in": 300}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_message: object) -> None:
        """Log nothing."""


def _token(folder: Path, repository: str, actions: list[str]) -> str:
    """Return a JSON Web Token (RS256) for one repository."""
    pem = (folder / "cert.pem").read_text()
    header = {"typ": "JWT", "alg": "RS256", "x5c": ["".join(pem.splitlines()[1:-1])]}
    now = int(time.time())
    claims = {
        "iss": ISSUER, "sub": USER, "aud": SERVICE, "exp": now + 300, "nbf": now - 10, "iat": now,
        "jti": os.urandom(8).hex(), "access": [{"type": "repository", "name": repository, "actions": actions}],
    }  # fmt: skip
    text = ".".join(_coded(json.dumps(part).encode()) for part in (header, claims))
    argv = [*needs("openssl"), "dgst", "-sha256", "-sign", str(folder / "key.pem")]
    return f"{text}.{_coded(subprocess.run(argv, input=text.encode(), check=True, capture_output=True).stdout)}"


def _coded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
