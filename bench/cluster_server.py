"""`python -m bench.cluster_server COUNT MATCHING`: a Kubernetes API server with COUNT Applications.
It prints its port.

All responses are prepared in advance, so that only the client and the transfer are measured.
`/sent` returns the number of bytes sent since the previous request for `/sent`. `/plain` and
`/gzip` change the encoding of responses.
"""

import gzip
import hashlib
import json
import sys
from collections.abc import Sequence
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from bench.material import IMAGE, PREFIX

PARTIAL = "as=PartialObjectMetadataList"
SIZE = 16_000  # bytes per Application, as for a real one


SPEC = (
    "project",
    "destination",
    "source",
    "syncPolicy",
    "revisionHistoryLimit",
    "ignoreDifferences",
    "info",
)
STATUS = (
    "health", "history", "operationState", "reconciledAt", "resources", "sourceHydrator", "sourceType", "summary",
    "sync", "controllerNamespace", "conditions", "observedAt", "resourceHealthSource",
)  # fmt: skip


def _managed(manager: str, fields: Sequence[str]) -> dict[str, Any]:
    """Return a controller's managed fields, which make up more than half of an object's
    metadata.
    """
    inner: dict[str, Any] = {
        f"f:{key}": {".": {}, "f:name": {}, "f:revision": {}} for key in fields
    }
    return {
        "manager": manager, "operation": "Update", "apiVersion": "argoproj.io/v1alpha1",
        "time": "2026-11-01T06:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:status": inner},
    }  # fmt: skip


def application(number: int, *, matching: bool) -> dict[str, Any]:
    """Return an Application as returned by an API server, with managed fields, resources, and
    history.
    """
    name, digest = f"service-{number:05}", hashlib.sha256(str(number).encode()).hexdigest()
    image = IMAGE if matching else f"ghcr.io/acme/service-{number}"
    managed = [
        _managed("argocd-applicationset-controller", SPEC),
        _managed("argocd-application-controller", STATUS),
    ]
    resources = [
        {"group": "apps", "kind": "Deployment", "name": f"{name}-{part}", "namespace": name, "status": "Synced",
         "version": "v1", "health": {"status": "Healthy"}, "syncWave": part}
        for part in range(25)
    ]  # fmt: skip
    source = {
        "repoURL": "https://git.example.com/deploy/gitops.git",
        "path": f"apps/{name}",
        "targetRevision": "main",
    }
    found: dict[str, Any] = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {
            "name": name, "namespace": "argocd", "resourceVersion": str(1000 + number), "generation": 7,
            "uid": f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}",
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"team": f"team-{number % 40}"},
            "annotations": {f"{PREFIX}/image-list": f"web={image}:1.x", f"{PREFIX}/web.update-strategy": "semver"},
            "managedFields": managed,
        },
        "spec": {"project": "default", "source": {**source, "helm": {}},
                 "destination": {"server": "https://kubernetes.default.svc", "namespace": name}},
        "status": {"resources": resources, "sourceType": "Helm", "history": [],
                   "summary": {"images": [f"{image}:1.0.0"]}},
    }  # fmt: skip
    history, missing = found["status"]["history"], SIZE - len(_json(found))
    while missing > 0:
        revision = hashlib.sha1(
            f"{number} {len(history)}".encode(), usedforsecurity=False
        ).hexdigest()
        entry = {
            "id": len(history),
            "revision": revision,
            "deployedAt": "2026-11-01T06:00:00Z",
            "source": source,
        }
        history.append(entry)
        missing -= len(_json(entry)) + 1
    return found


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def applications(count: int, matching: int) -> list[dict[str, Any]]:
    """Return the given number of Applications, some of which match."""
    every = max(count // max(matching, 1), 1)
    return [
        application(number, matching=number % every == 0 and number // every < matching)
        for number in range(count)
    ]


class Cluster:
    """The server's content, and a counter of the bytes sent."""

    def __init__(self, items: Sequence[dict[str, Any]]) -> None:
        self.full = [_json(one) for one in items]
        partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
        self.partial = [_json({**partial, "metadata": one["metadata"]}) for one in items]
        self.places = {one["metadata"]["name"]: place for place, one in enumerate(items)}
        self.sent, self.compress = 0, True
        self.packed = cache(lambda body: gzip.compress(body, 1))
        self.page = cache(self._page)

    def _page(self, start: int, limit: int, *, partial: bool) -> bytes:
        items = (self.partial if partial else self.full)[start : start + limit]
        more = {"continue": str(start + limit)} if start + limit < len(self.full) else {}
        kind = (
            ("PartialObjectMetadataList", "meta.k8s.io/v1")
            if partial
            else ("ApplicationList", "argoproj.io/v1alpha1")
        )
        head = {
            "kind": kind[0],
            "apiVersion": kind[1],
            "metadata": {"resourceVersion": "99", **more},
        }
        return _json(head)[:-1] + b',"items":[' + b",".join(items) + b"]}"

    def answer(self, path: str, query: str, accept: str) -> tuple[int, bytes]:
        """Return the status code and body of the response to a request."""
        given = {key: values[-1] for key, values in parse_qs(query).items()}
        if path in ("/plain", "/gzip"):
            self.compress = path == "/gzip"
            return 200, b"{}"
        if path == "/sent":
            sent, self.sent = self.sent, 0
            return 200, _json(sent)
        if "imageupdaters" in path:
            return 404, _json({"kind": "Status", "code": 404, "reason": "NotFound"})
        if "/applications" not in path:
            return 200, _json({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []})
        name = path.partition("/applications")[2].strip("/")
        if name:
            return 200, self.full[self.places[name]]
        start, limit = int(given.get("continue", "0")), int(given.get("limit", len(self.full)))
        return 200, self.page(start, limit, partial=PARTIAL in accept)


def server_of(cluster: Cluster) -> ThreadingHTTPServer:
    """Create the server on a free port and return it."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version, wbufsize, disable_nagle_algorithm = "HTTP/1.1", 1 << 16, True

        def log_message(self, *_: object) -> None:
            """Suppress the logging of requests."""

        def do_GET(self) -> None:
            """Handle a GET request."""
            path, _, query = self.path.partition("?")
            status, body = cluster.answer(path, query, self.headers.get("Accept", ""))
            packs = (
                cluster.compress
                and len(body) > 128 * 1024
                and "gzip" in self.headers.get("Accept-Encoding", "")
            )
            body = cluster.packed(body) if packs else body
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if packs:
                self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            self.wfile.write(body)
            cluster.sent += len(body) if path.startswith("/api") else 0

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


if __name__ == "__main__":
    server = server_of(Cluster(applications(int(sys.argv[1]), int(sys.argv[2]))))
    print(server.server_address[1], flush=True)
    server.serve_forever()
