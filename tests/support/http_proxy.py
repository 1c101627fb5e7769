"""An in-process HTTP proxy with an optional login. It supports CONNECT for HTTPS, and full URLs for
plain HTTP, and rejects requests on demand.
"""

import base64
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from support.serving import serving


class Proxy(ThreadingHTTPServer):
    """A proxy. `seen` records the requests. `refuses` is the status with which every request is
    rejected, or 0.
    """

    daemon_threads = True

    def __init__(self, login: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.login = login
        self.refuses = 0
        self.seen: list[str] = []

    @property
    def port(self) -> int:
        """The port on which the proxy listens."""
        return int(self.server_address[1])


@contextmanager
def http_proxy(login: str = "") -> Iterator[Proxy]:
    """Run a proxy for the duration of the block. `login` is `user:password`."""
    with serving(Proxy(login)) as server:
        yield server


class _Handler(BaseHTTPRequestHandler):
    server: Proxy
    protocol_version = "HTTP/1.1"

    def do_CONNECT(self) -> None:
        host, _, port = self.path.rpartition(":")
        if self._may():
            with socket.create_connection((host, int(port))) as upstream:
                self.send_response(200)
                self.end_headers()
                self._relay(upstream)

    def do_GET(self) -> None:
        if not self._may():
            return
        to = urlsplit(self.path)
        with socket.create_connection((to.hostname, to.port or 80)) as upstream:
            path = f"{to.path}?{to.query}" if to.query else to.path
            kept = [
                (key, value)
                for key, value in self.headers.items()
                if not key.startswith(("Proxy-", "Connection"))
            ]
            lines = [
                f"{self.command} {path} HTTP/1.1",
                *(f"{key}: {value}" for key, value in kept),
                "Connection: close",
            ]
            upstream.sendall("\r\n".join([*lines, "", ""]).encode())
            self._relay(upstream, self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_message: object) -> None:
        """Log nothing, because `seen` records the requests."""

    def _may(self) -> bool:
        self.server.seen.append(f"{self.command} {self.path}")
        wanted = f"Basic {base64.b64encode(self.server.login.encode()).decode()}"
        status = self.server.refuses
        if not status and self.server.login and self.headers.get("Proxy-Authorization") != wanted:
            status = 407
        if status:
            self.send_response(status)
            self.send_header("Proxy-Authenticate", 'Basic realm="proxy"')
            self.send_header("Content-Length", "0")
            self.end_headers()
        return not status

    def _relay(self, upstream: socket.socket, first: bytes = b"") -> None:
        self.close_connection = True
        upstream.sendall(first)
        pairs = {self.connection: upstream, upstream: self.connection}
        with suppress(OSError):
            while True:
                for source in select.select(list(pairs), [], [])[0]:
                    chunk = source.recv(65536)
                    if not chunk:
                        return
                    pairs[source].sendall(chunk)
