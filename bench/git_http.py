"""A Git server over HTTP that requires a login: Git's `http-backend` with persistent connections,
as on a Git host.
"""

import base64
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LOGIN = "bench:secret"
_ALLOWED = f"Basic {base64.b64encode(LOGIN.encode()).decode()}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    folder = Path()


@contextmanager
def git_http(folder: Path) -> Iterator[int]:
    """Serve the repositories in a folder to the user `LOGIN` during the block, and yield
    the port.
    """
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.folder = folder
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # send a response in one piece, instead of line by line
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self._body())

    def log_message(self, *_message: object) -> None:
        return

    def _serve(self, body: bytes) -> None:
        if self.headers.get("Authorization") == _ALLOWED:
            self._answer(*self._backend(body))
        else:
            self._answer(401, {"WWW-Authenticate": 'Basic realm="git"'}, b"")

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
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.server.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_USER": LOGIN.partition(":")[0],
        }
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=environ, capture_output=True, check=True
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
        self.wfile.flush()
