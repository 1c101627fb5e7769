"""A fake in-process Kubernetes API. It behaves as a real API did in experiments (pagination, 410,
403, gzip, as=…).

Access is determined by RBAC manifests. Applications that clients write are checked against Argo
CD's own schema.
"""

import gzip
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from fakes.kubernetes_answers import answer_of
from fakes.kubernetes_state import (
    APPLICATION_SETS,
    APPLICATIONS,
    CONFIG_MAPS,
    EVENTS,
    PODS,
    PROJECTS,
    SECRETS,
    UPDATERS,
    Asked,
    Fault,
    KubernetesApi,
    Status,
    cluster_application,
)
from support.serving import serving

__all__ = [
    "APPLICATIONS", "APPLICATION_SETS", "CONFIG_MAPS", "EVENTS", "PODS", "PROJECTS", "SECRETS", "UPDATERS", "Asked",
    "Fault", "KubernetesApi", "cluster_application", "running",
]  # fmt: skip
GZIP_FROM = 128 * 1024  # bytes, as in the real API server


@contextmanager
def running(
    api: KubernetesApi | None = None, wrap: Callable[[Any], Any] = lambda sock: sock
) -> Iterator[KubernetesApi]:
    """Run the API on a free port for the duration of the block. `wrap` adds TLS to its socket."""
    found = api or KubernetesApi()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(found))
    server.daemon_threads = True
    wrapped = wrap(server.socket)
    scheme = "http" if wrapped is server.socket else "https"
    server.socket = wrapped
    found.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    with serving(server):
        yield found


def _handler(api: KubernetesApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = 1 << 16

        def log_message(self, *_: object) -> None:
            return

        def handle(self) -> None:
            try:
                super().handle()
            except (ConnectionError, ValueError, OSError):
                self.close_connection = True

        def serve(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            content = self.rfile.read(size) if size else b""
            path, _, query = self.path.partition("?")
            path = re.sub(r"^http://[^/]*", "", path)  # requests to a proxy contain a full URL
            fault = next((one for one in api.faults if one.path in path), None)
            if fault:
                fault.times -= 1
                if not fault.times:
                    api.faults.remove(fault)
                _break(self, fault)
                return
            given = {
                key: values[-1] for key, values in parse_qs(query, keep_blank_values=True).items()
            }
            with api.lock:
                code, body, asked, more = answer_of(api, self, path, given, content)
            text = isinstance(body, str)
            kind = "text/plain; charset=utf-8" if text else "application/json"
            data = (body if text else json.dumps(body, separators=(",", ":"))).encode()
            packed = (
                api.compresses
                and len(data) > GZIP_FROM
                and "gzip" in self.headers.get("Accept-Encoding", "")
            )
            data = gzip.compress(data, 1) if packed else data
            api.asked.append(replace(asked, sent=len(data)))
            self.send(code, data, kind, more, packed=packed)

        def send(
            self,
            code: int,
            data: bytes,
            kind: str = "application/json",
            more: Mapping[str, str] = {},
            *,
            packed: bool = False,
        ) -> None:
            self.send_response(code)
            for name, value in more.items():
                self.send_header(name, value)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            if packed:
                self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            self.wfile.write(data)
            self.wfile.flush()

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = serve  # noqa: N815 - http.server names them

    return Handler


def _break(handler: Any, fault: Fault) -> None:
    """Respond with a fault."""
    write = handler.wfile.write
    if fault.how == "html":
        handler.send(200, b"<html>Please log in</html>", "text/html; charset=utf-8")
    elif fault.how == "text":
        handler.send(200, b'{"kind": "Applicati')
    elif fault.how == "huge":
        handler.send(200, b'{"items": [' + b" " * 3_000_000 + b"]}")
    elif fault.how in ("drip", "drip-head"):
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX: "
        write(head if fault.how == "drip-head" else head + b"y\r\n\r\n")
        for _ in range(200):
            write(b" ")
            handler.wfile.flush()
            time.sleep(0.05)
    elif fault.how == "half":
        write(
            b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"items": ['
        )
    elif fault.status:
        handler.send_response(fault.status)
        for name, value in fault.headers:
            handler.send_header(name, value)
        body = json.dumps(Status(fault.status, "TooManyRequests", "too busy").body).encode()
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        write(body)
    handler.wfile.flush()
    handler.close_connection = fault.how != "html" and not fault.status
