"""Runs servers in a thread of the test process."""

import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseServer, TCPServer
from typing import TypeVar

from support import needs

Server = TypeVar("Server", bound=BaseServer)


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Run the server for the duration of the block. Afterwards, fail if the server is a fake that
    has received wrong requests.
    """
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    wrong: list[str] = getattr(server, "wrong", [])
    assert wrong == [], "\n".join(wrong)


def certificate(folder: Path) -> tuple[Path, Path]:
    """Create an untrusted certificate for `localhost` and 127.0.0.1. Return the certificate and its
    key.
    """
    found, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [*needs("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", str(key), "-out", str(found)],
        check=True, capture_output=True,
    )  # fmt: skip
    return found, key


def with_tls(server: TCPServer, found: Path, key: Path, *, of_clients: Path | None = None) -> None:
    """Make the server use TLS. `of_clients` is the certificate that clients must present."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(found, key)
    if of_clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(of_clients)
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )


class Answers(ThreadingHTTPServer):
    """An HTTP server that can send any response: `reply` receives the path and returns the
    response. `seen` records the requests.
    """

    daemon_threads = True

    def __init__(self, host: str = "127.0.0.1") -> None:
        super().__init__((host, 0), _Answering)
        self.url = f"http://{host}:{self.server_address[1]}"
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.reply: Callable[[str], tuple[int, dict[str, str], bytes]] = lambda _path: (
            200,
            {},
            b"{}",
        )

    def handle_error(self, *_request: object) -> None:
        """Log nothing, because clients drop connections in these tests."""

    @property
    def told(self) -> str:
        """All headers received so far, as a string."""
        return str([headers for _, _, headers, _ in self.seen])


class _Answering(BaseHTTPRequestHandler):
    server: Answers
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.command, self.path, dict(self.headers), body))
        status, headers, body = self.server.reply(self.path)
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        self.do_GET()

    def log_message(self, *_message: object) -> None:
        """Log nothing."""
