"""A small Git server over HTTP for tests: git's own `http-backend`, with optional logins and
injected faults.
"""

import base64
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from ssl import SSLSocket

from support.serving import serving, with_tls


class GitServer(ThreadingHTTPServer):
    """A server for the repositories in a folder. `faults` and `logins` may be changed while it
    runs.
    """

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.logins: dict[str, str] = {}  # if empty, everyone may do everything
        self.public = False  # whether everyone may read; a wrong login is still rejected
        self.readers: set[str] = set()  # logins with read-only access
        self.faults: dict[
            str, int
        ] = {}  # end of a path → status; 0 drops the connection; -1 does, after the work
        self.bearer = ""  # the required token
        self.page = b""  # a web page to send in response to every request
        self.moved: dict[str, str] = {}  # prefix of a path → prefix of the URL that it redirects to
        self.seen: list[tuple[str, str]] = []  # (method and path, user)
        self.headers: list[tuple[str, str]] = []  # (method and path, the Authorization header)
        self.told: list[str] = []  # all headers of each request, with the login decoded

    def handle_error(self, *_request: object) -> None:
        """Log nothing, because clients drop connections in these tests."""

    @property
    def url(self) -> str:
        """The server's URL, with a trailing slash."""
        scheme = "https" if isinstance(self.socket, SSLSocket) else "http"
        return f"{scheme}://127.0.0.1:{self.server_address[1]}/"


@contextmanager
def git_server(
    folder: Path, tls: tuple[Path, Path] | None = None, of_clients: Path | None = None
) -> Iterator[GitServer]:
    """Run a server for the duration of the block. `tls` is its certificate and key, and
    `of_clients` is the certificate that clients must present.
    """
    made = GitServer(folder)
    if tls:
        with_tls(made, *tls, of_clients=of_clients)
    with serving(made) as server:
        yield server


class _Handler(BaseHTTPRequestHandler):
    server: GitServer

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self._body())

    def log_message(self, *_message: object) -> None:
        """Log nothing, because `seen` records the requests."""

    def _serve(self, body: bytes) -> None:
        user, token = self._user(), self.headers.get("Authorization", "")
        self.server.seen.append((f"{self.command} {self.path}", user))
        self.server.headers.append((f"{self.command} {self.path}", token))
        basic = base64.b64decode(token[6:]).decode() if token.startswith("Basic ") else ""
        self.server.told.append(f"{self.headers}{basic}")
        moved = next(
            (where for where in self.server.moved.items() if self.path.startswith(where[0])), None
        )
        fault = next(
            (status for end, status in self.server.faults.items() if self.path.endswith(end)), None
        )
        if self.server.page:
            self._answer(200, {"Content-Type": "text/html; charset=utf-8"}, self.server.page)
        elif moved:
            self._answer(301, {"Location": moved[1] + self.path.removeprefix(moved[0])}, b"")
        elif self.server.bearer and token != f"Bearer {self.server.bearer}":
            self._answer(401, {"WWW-Authenticate": 'Bearer realm="git"'}, b"")
        elif self.server.logins and not user and (token or not self.server.public):
            self._answer(401, {"WWW-Authenticate": 'Basic realm="git"'}, b"")
        elif user in self.server.readers and "receive-pack" in self.path:
            self._answer(403, {}, b"")
        elif fault is None:
            self._answer(*self._backend(body))
        elif fault > 0:
            self._answer(fault, {}, b"")
        else:
            if fault < 0:
                self._backend(body)
            self.close_connection = True

    def _user(self) -> str:
        kind, _, login = self.headers.get("Authorization", "").partition(" ")
        user, _, password = (
            base64.b64decode(login).decode().partition(":") if kind == "Basic" else ("", "", "")
        )
        return user if self.server.logins.get(user) == password and user else ""

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _backend(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        path, _, query = self.path.partition("?")
        environ = {
            **os.environ,
            "GIT_PROJECT_ROOT": str(self.server.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_USER": self._user() or "anybody",
        }
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=environ, capture_output=True, check=False
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        return int(headers.pop("Status", "200").split()[0]), headers, content

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def daemon(folder: Path) -> Iterator[str]:
    """Run `git daemon` on a free port for the duration of the block, and yield its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv = ["git", "daemon", "--export-all", "--reuseaddr", "--listen=127.0.0.1", f"--port={port}"]
    with subprocess.Popen(
        [*argv, f"--base-path={folder}", str(folder)],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as running:
        for _ in range(100):
            with socket.socket() as probe:
                if not probe.connect_ex(("127.0.0.1", port)):
                    break
            time.sleep(0.05)
        try:
            yield f"git://127.0.0.1:{port}"
        finally:
            os.killpg(running.pid, 15)
