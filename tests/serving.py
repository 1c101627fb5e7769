"""Servers that run in a thread of the test's own process."""

import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import BaseServer, TCPServer
from typing import TypeVar

from support import needs

Server = TypeVar("Server", bound=BaseServer)


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """The server runs, and has ended when the block ends."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate that nobody knows, for `localhost` and 127.0.0.1, and its key."""
    found, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [*needs("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", str(key), "-out", str(found)],
        check=True, capture_output=True,
    )  # fmt: skip
    return found, key


def with_tls(server: TCPServer, found: Path, key: Path, *, of_clients: Path | None = None) -> None:
    """From now on it speaks TLS; `of_clients` is the certificate that clients must have."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(found, key)
    if of_clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(of_clients)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
