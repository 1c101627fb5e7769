"""A Kubernetes API in this process that behaves as a real one did when it was tried (paging, 410, 403, gzip, as=…).

Access is decided by RBAC manifests, written Applications are checked against Argo CD's own schema where it is at hand.
"""

import base64
import copy
import gzip
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote

import jsonschema
from fakes.kubernetes_rules import Unprocessable, granted, merged, operate
from support import schemas

APPLICATIONS, UPDATERS = "argoproj.io/applications", "argocd-image-updater.argoproj.io/imageupdaters"
EVENTS, SECRETS, CONFIG_MAPS = "/events", "/secrets", "/configmaps"
KINDS = {
    APPLICATIONS: ("argoproj.io/v1alpha1", "Application"),
    UPDATERS: ("argocd-image-updater.argoproj.io/v1alpha1", "ImageUpdater"),
    EVENTS: ("v1", "Event"),
    SECRETS: ("v1", "Secret"),
    CONFIG_MAPS: ("v1", "ConfigMap"),
}
PARTIAL = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
GZIP_FROM = 128 * 1024  # bytes, as the API server has it
ADMIN = "admin"
Object = dict[str, Any]


class Asked(NamedTuple):
    """One request as RBAC sees it."""

    user: str
    verb: str
    resource: str
    namespace: str
    name: str
    query: Mapping[str, str]
    accept: str
    sent: int  # bytes that the answer took
    allowed: bool
    content: Any


@dataclass
class Fault:
    """What happens to the next `times` requests whose path holds `path`."""

    status: int = 0  # 0: see `how`
    how: str = ""  # "reset", "half", "drip", "drip-head", "html", "huge", "text"
    times: int = 1
    path: str = ""
    headers: tuple[tuple[str, str], ...] = ()


@dataclass
class KubernetesApi:
    """The state of the cluster, and what was asked of it."""

    tokens: dict[str, str] = field(default_factory=lambda: {"admin-token": ADMIN})
    rules: list[Object] = field(default_factory=list)  # RBAC manifests
    objects: dict[str, dict[tuple[str, str], Object]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    asked: list[Asked] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    knows_metadata: bool = True
    compresses: bool = True
    compacted: int = 0  # continue tokens of this and earlier versions are too old
    own_continue: bool = True  # whether 410 holds a token that goes on
    version: int = 100
    url: str = ""
    before: Callable[[Asked], None] = lambda _asked: None  # something else that happens meanwhile
    lock: threading.RLock = field(default_factory=threading.RLock)

    def add(self, resource: str, *items: Object) -> None:
        """Objects that are there."""
        for item in items:
            self.version += 1
            made = copy.deepcopy(item)
            api, kind = KINDS[resource]
            made = {"apiVersion": api, "kind": kind, **made}
            made["metadata"] = {"namespace": "argocd", "uid": f"uid-{self.version}", **made["metadata"]}
            made["metadata"]["resourceVersion"] = str(self.version)
            self.objects[resource][made["metadata"]["namespace"], made["metadata"]["name"]] = made

    def forget(self, resource: str) -> None:
        """The kind is not installed."""
        del self.objects[resource]

    def of(self, resource: str, name: str, namespace: str = "argocd") -> Any:
        return self.objects[resource][namespace, name]

    def requests(self) -> list[str]:
        """Verb, resource and place of every request."""
        return [
            f"{one.verb} {one.resource.partition('/')[2]} {one.namespace or '*'}{f'/{one.name}' if one.name else ''}"
            for one in self.asked
        ]

    def denied(self) -> list[Asked]:
        return [one for one in self.asked if not one.allowed]

    @property
    def sent(self) -> int:
        return sum(one.sent for one in self.asked)


class Status(Exception):
    """An answer that is no success."""

    def __init__(self, code: int, reason: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.code = code
        meta = {"continue": more.pop("token")} if more.get("token") else {}
        more.pop("token", None)
        self.body = {
            "kind": "Status", "apiVersion": "v1", "metadata": meta, "status": "Failure", "message": message,
            "reason": reason, "code": code, **more,
        }  # fmt: skip


@contextmanager
def running(
    api: KubernetesApi | None = None, wrap: Callable[[Any], Any] = lambda sock: sock
) -> Iterator[KubernetesApi]:
    """The API behind an address; `wrap` puts TLS around its socket."""
    found = api or KubernetesApi()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(found))
    server.daemon_threads = True
    wrapped = wrap(server.socket)
    scheme = "http" if wrapped is server.socket else "https"
    server.socket = wrapped
    found.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


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
            path = re.sub(r"^http://[^/]*", "", path)  # as a proxy is asked
            fault = next((one for one in api.faults if one.path in path), None)
            if fault:
                fault.times -= 1
                if not fault.times:
                    api.faults.remove(fault)
                _break(self, fault)
                return
            given = {key: values[-1] for key, values in parse_qs(query, keep_blank_values=True).items()}
            with api.lock:
                code, body, asked = _answer(api, self, path, given, content)
            data = json.dumps(body, separators=(",", ":")).encode()
            packed = api.compresses and len(data) > GZIP_FROM and "gzip" in self.headers.get("Accept-Encoding", "")
            data = gzip.compress(data, 1) if packed else data
            api.asked.append(asked._replace(sent=len(data)))
            self.send(code, data, packed=packed)

        def send(self, code: int, data: bytes, kind: str = "application/json", *, packed: bool = False) -> None:
            self.send_response(code)
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
    """Something goes wrong."""
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
        write(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"items": [')
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


def _answer(
    api: KubernetesApi, handler: Any, path: str, query: Mapping[str, str], content: bytes
) -> tuple[int, Any, Asked]:
    user = api.tokens.get(handler.headers.get("Authorization", "").removeprefix("Bearer "), "")
    resource, namespace, name = _place(path)
    verb = {"GET": "get" if name else "list", "POST": "create", "PATCH": "patch", "PUT": "update"}.get(
        handler.command, "delete"
    )
    allowed = bool(user) and (user == ADMIN or granted(api.rules, user, verb, resource, namespace, name))
    accept = handler.headers.get("Accept", "")
    asked = Asked(user, verb, resource, namespace, name, query, accept, 0, allowed, content.decode() or None)
    try:
        _admit(api, asked)
        api.before(asked)
        code, body = _do(api, asked, handler.headers.get("Content-Type", ""))
    except Status as status:
        code, body = status.code, status.body
    return code, body, asked


def _admit(api: KubernetesApi, asked: Asked) -> None:
    if not asked.user:
        raise Status(401, "Unauthorized", "Unauthorized")
    group, _, plural = asked.resource.partition("/")
    if not asked.allowed:
        where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
        raise Status(
            403,
            "Forbidden",
            f"{plural}{f'.{group}' if group else ''}{f' {asked.name!r}' if asked.name else ''} is forbidden: "
            f'User "{asked.user}" cannot {asked.verb} resource "{plural}" in API group "{group}" {where}',
        )
    if asked.resource not in api.objects:
        raise Status(404, "NotFound", "the server could not find the requested resource")


def _place(path: str) -> tuple[str, str, str]:
    """(group/plural, namespace, name)."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    return f"{group}/{rest[0]}", namespace, rest[1] if len(rest) > 1 else ""


def _do(api: KubernetesApi, asked: Asked, kind: str) -> tuple[int, Any]:
    if asked.verb == "list":
        return 200, _list(api, asked)
    group, _, plural = asked.resource.partition("/")
    if asked.verb == "create":
        return 201, _create(api, asked)
    found = api.objects[asked.resource].get((asked.namespace, asked.name))
    if found is None:
        raise Status(404, "NotFound", f'{plural}.{group} "{asked.name}" not found')
    if asked.verb == "get":
        return 200, copy.deepcopy(found)
    if asked.verb != "patch":
        raise Status(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    return 200, _patch(api, asked, found, kind)


def _list(api: KubernetesApi, asked: Asked) -> Object:
    if asked.query.get("fieldSelector"):
        raise Status(400, "BadRequest", f"field label not supported: {asked.query['fieldSelector']}")
    items = sorted(
        (key, one)
        for key, one in api.objects[asked.resource].items()
        if (not asked.namespace or key[0] == asked.namespace) and _selected(one, asked.query.get("labelSelector", ""))
    )
    limit, token = int(asked.query.get("limit") or 0), asked.query.get("continue", "")
    if asked.query.get("resourceVersion") == "0":
        limit = 0  # as served from the watch cache
    start, version = _continued(api, token)
    items = [(key, one) for key, one in items if key > start]
    page = items[:limit] if limit else items
    metadata: Object = {"resourceVersion": str(version)}
    if len(page) < len(items):
        metadata |= {"continue": _token(version, page[-1][0]), "remainingItemCount": len(items) - len(page)}
    version_of, kind = KINDS[asked.resource]
    accepted = asked.accept.split(",")
    if accepted and all(";as=" in one and PARTIAL not in one for one in accepted):
        raise Status(406, "NotAcceptable", "only the following media types are accepted: application/json")
    if api.knows_metadata and PARTIAL in accepted[0]:
        partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
        found = [{**partial, "metadata": one["metadata"]} for _, one in page]
        return {
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "items": found,
        }
    return {"apiVersion": version_of, "kind": f"{kind}List", "metadata": metadata, "items": [one for _, one in page]}


def _token(version: int, start: tuple[str, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps([version, *start]).encode()).decode()


def _continued(api: KubernetesApi, token: str) -> tuple[tuple[str, str], int]:
    if not token:
        return ("", ""), api.version
    try:
        version, *start = json.loads(base64.urlsafe_b64decode(token))
    except ValueError:
        raise Status(400, "BadRequest", "continue key is not valid: illegal base64 data at input byte 0") from None
    if version <= api.compacted:
        more = _token(api.version, (start[0], start[1])) if api.own_continue else ""
        raise Status(
            410,
            "Expired",
            "The provided continue parameter is too old to display a consistent list result. You can start a new list "
            "without the continue parameter, or use the continue token in this response to retrieve the remainder of "
            "the results.",
            token=more,
        )
    return (start[0], start[1]), version


def _selected(item: Object, selector: str) -> bool:
    labels = item["metadata"].get("labels") or {}
    for part in (one for one in selector.split(",") if one):
        if "(" in part or " " in part.strip():
            raise Status(400, "BadRequest", f"unable to parse requirement: {part}")
        key, found, value = part.partition("=")
        if (labels.get(key) != value.lstrip("=")) if found else key not in labels:
            return False
    return True


def _create(api: KubernetesApi, asked: Asked) -> Any:
    item = json.loads(asked.content)
    metadata = item["metadata"]
    if metadata.get("namespace", asked.namespace) != asked.namespace:
        raise Status(400, "BadRequest", "the namespace of the provided object does not match the request")
    if asked.resource == EVENTS:
        _check_event(item, asked.namespace)
    if (asked.namespace, metadata["name"]) in api.objects[asked.resource]:
        raise Status(409, "AlreadyExists", f'{asked.resource.partition("/")[2]} "{metadata["name"]}" already exists')
    api.add(asked.resource, item)
    return api.of(asked.resource, metadata["name"], asked.namespace)


def _check_event(item: Object, namespace: str) -> None:
    involved = item["involvedObject"]
    if involved.get("namespace") != namespace:
        raise Status(
            422, "Invalid", "Event is invalid: involvedObject.namespace: Invalid value: does not match event.namespace"
        )
    if item.get("type") not in ("Normal", "Warning") or len(item.get("message", "")) > 1024:
        raise Status(422, "Invalid", "Event is invalid")
    for name in ("firstTimestamp", "lastTimestamp"):
        time.strptime(item[name], "%Y-%m-%dT%H:%M:%SZ")


def _patch(api: KubernetesApi, asked: Asked, found: Object, kind: str) -> Any:
    change, made = json.loads(asked.content), copy.deepcopy(found)
    if kind == "application/json-patch+json":
        try:
            operate(made, change)
        except Unprocessable as error:
            causes = [{"reason": "UnexpectedServerResponse", "message": str(error)}]
            said = "the server rejected our request due to an error in our request"
            raise Status(422, "Invalid", said, details={"causes": causes}) from None
    elif kind == "application/merge-patch+json":
        made = merged(made, change)
    else:
        raise Status(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
    if made["metadata"].get("resourceVersion") != found["metadata"]["resourceVersion"]:
        raise Status(
            409,
            "Conflict",
            f'Operation cannot be fulfilled on applications.argoproj.io "{asked.name}": the object has been modified; '
            "please apply your changes to the latest version and try again",
        )
    if asked.resource == APPLICATIONS and (wrong := invalid(made)):
        raise Status(422, "Invalid", f'Application.argoproj.io "{asked.name}" is invalid: {wrong}')
    if made != found:
        api.add(asked.resource, made)
    return api.of(asked.resource, asked.name, asked.namespace)


@cache
def _schema() -> Any:
    try:
        folder = schemas()
    except BaseException as missing:  # pytest's skip: then nothing is checked
        if "no folder" not in str(missing):
            raise
        return None
    text = (folder / "strict" / "argo-cd-application-v1alpha1.json").read_text(encoding="utf-8")
    return jsonschema.Draft7Validator(json.loads(text))


def invalid(item: Object) -> str:
    """What Argo CD's schema says against an Application; "" for nothing."""
    schema = _schema()
    errors = [] if schema is None else [f"{one.json_path}: {one.message}" for one in schema.iter_errors(item)]
    return "; ".join(errors)[:500]


def application(name: str, namespace: str = "argocd", images: str = "", padding: int = 0, **more: Any) -> Object:
    """An Application with annotations for these images, as large as wanted."""
    annotations = {"argocd-image-updater.argoproj.io/image-list": images} if images else {}
    history = [
        {"revision": f"{n:040x}", "deployedAt": "2026-01-01T00:00:00Z", "id": n, "source": {"repoURL": "https://x"}}
        for n in range(padding // 130)
    ]
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations, **more.pop("metadata", {})},
        "spec": {
            "project": "default",
            "destination": {"server": "https://kubernetes.default.svc", "namespace": "web"},
            "source": {"repoURL": "https://git.example.com/gitops.git", "path": f"apps/{name}", "helm": {}},
            **more.pop("spec", {}),
        },
        "status": {
            "sourceType": "Helm",
            "summary": {"images": [images.partition("=")[2].partition(":")[0] + ":1.0.0"] if images else []},
            **({"history": history} if padding else {}),
        },
    }  # fmt: skip
