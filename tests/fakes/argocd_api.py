"""A fake in-process Argo CD API that plays rollouts. It was compared with recorded responses of
Argo CD 3.6 on 2026-11-22.

tests/argocd/test_argocd_recorded.py puts the fake into the situations in
tests/data/recorded/argocd-3.6, and compares its responses with the recorded ones.

A play is a list of Application states. Each time an Application is read (with a GET or a refresh),
the play advances to the next state, until it reaches the last one. The fake rejects what the real
server rejects. Requests that no client should send are recorded in `wrong`.
"""

from __future__ import annotations

import copy
import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from support.host_schemas import problems
from support.serving import serving

# The supported values of `fields`, without the prefix `items.` (argo-cd
# server/application/forwarder_overwrite.go, v3).
FIELDS = (
    "metadata.name", "metadata.namespace", "metadata.annotations", "metadata.labels", "metadata.creationTimestamp",
    "metadata.deletionTimestamp", "spec", "status.sourceHydrator", "status.sync.status", "status.health",
    "status.summary", "status.operationState.startedAt", "status.operationState.finishedAt", "status.resources",
    "operation.sync", "status.operationState.phase", "status.operationState.operation.sync",
)  # fmt: skip
CODES = {3: 400, 5: 404, 7: 403, 8: 429, 13: 500, 2: 500, 14: 503, 16: 401}  # gRPC → HTTP
KNOWN = {
    "": {
        "name",
        "refresh",
        "projects",
        "project",
        "resourceVersion",
        "selector",
        "repo",
        "appNamespace",
        "fields",
    },
    "resource-tree": {"appNamespace", "project"},
    "resource": {
        "appNamespace",
        "project",
        "namespace",
        "resourceName",
        "version",
        "group",
        "kind",
    },
    "syncwindows": {"appNamespace", "project"},
}


class Request(NamedTuple):
    """A parsed request."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]  # names in lowercase
    body: Any


class Fault(NamedTuple):
    """A fault with which the next request is answered. `status` 0 drops the connection."""

    status: int
    body: str = ""
    headers: Mapping[str, str] = {}
    after: bool = False  # whether the request takes effect before the fault


class ArgoCDServer(ThreadingHTTPServer):
    """The fake server, including the state of an Argo CD instance."""

    daemon_threads = True

    def __init__(self, root: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root = root
        self.lock = threading.RLock()
        self.tokens = {"good-token"}  # if empty, access is anonymous
        self.expired: set[str] = set()
        self.user = "ci"  # the owner of the tokens
        self.projects: set[str] | None = None  # existing projects; None means all exist
        self.tls = ""  # the URL to redirect to if requests must use TLS but arrive without it
        self.settings: dict[str, Any] = {}  # contains `url` only if an administrator has set it
        self.plays: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.trees: dict[tuple[str, str], dict[str, Any]] = {}
        self.windows: dict[tuple[str, str], dict[str, Any]] = {}
        # ApplicationSets and AppProjects that the token may read, keyed by (kind in the API,
        # namespace, name)
        self.others: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.pods: dict[str, dict[str, Any]] = {}  # the manifests of live pods, by name
        # the (namespace, name) of Applications that the token may not read
        self.hidden: set[tuple[str, str]] = set()
        # the (namespace, name) of Applications that the token may not update
        self.frozen: set[tuple[str, str]] = set()
        self.faults: list[Fault] = []
        self.seen: list[Request] = []
        self.wrong: list[str] = []
        # The repository server's error about a patched Application, or "" if it can render the
        # manifests.
        self.render: Callable[[Mapping[str, Any]], str] = lambda _changed: ""

    def secure(self, certificate: str, key: str) -> None:
        """Use TLS from now on."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.socket = context.wrap_socket(self.socket, server_side=True)

    def handle_error(self, *_: object) -> None:
        """Log nothing, because clients disconnect on purpose in these tests."""

    @property
    def address(self) -> str:
        """The server's HOST:PORT, as in ARGOCD_SERVER."""
        return f"127.0.0.1:{self.server_address[1]}"

    def add(self, *states: Mapping[str, Any]) -> None:
        """Add an Application, along with the states that it goes through."""
        for state in states:
            assert not (wrong := invalid(state)), wrong
        metadata = states[0]["metadata"]
        self.plays[metadata["namespace"], metadata["name"]] = [
            copy.deepcopy(dict(one)) for one in states
        ]

    def asked(self, method: str, end: str = "") -> list[Request]:
        """Return the requests received so far with this method and a path that ends in `end`."""
        return [one for one in self.seen if one.method == method and one.path.endswith(end)]


class _Denied(Exception):
    """A gRPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class _Handler(BaseHTTPRequestHandler):
    server: ArgoCDServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise, each response waits 40 ms for an acknowledgement

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Request(self.command, unquote(parts.path), parse_qs(parts.query), headers, body)
        with self.server.lock:
            self.server.seen.append(asked)
            fault = self.server.faults.pop(0) if self.server.faults else None
        if fault and not fault.after:
            return self._fault(fault)
        status, found, more = self._answer(asked)
        return self._fault(fault) if fault else self._send(status, found, more)

    def _fault(self, fault: Fault) -> None:
        if not fault.status:
            self.close_connection = True
            self.connection.close()
            return
        self.send_response(fault.status)
        for name, value in {
            "Content-Length": str(len(fault.body.encode())),
            **fault.headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(fault.body.encode())

    def _send(self, status: int, found: Any, headers: Mapping[str, str] = {}) -> None:
        text = isinstance(found, str)
        html = text and found.startswith("<")
        content = (found if text else json.dumps(found)).encode()
        self.send_response(status)
        kind = f"text/{'html' if html else 'plain'}; charset=utf-8" if text else "application/json"
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            **headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _answer(self, asked: Request) -> tuple[int, Any, Mapping[str, str]]:
        server, api = self.server, f"{self.server.root}/api/v1/"
        if server.tls and asked.path.startswith(f"{server.root}/"):
            to = f"{server.tls}{unquote(self.path)}"
            return 307, f'<a href="{to}">Temporary Redirect</a>.\n\n', {"Location": to}
        if not asked.path.startswith(api):
            if "text/html" in asked.headers.get("accept", ""):
                return (
                    200,
                    "<!doctype html><title>Argo CD</title>",
                    {},
                )  # all other paths belong to the user interface
            return 404, "404 page not found\n", {}
        if asked.path == f"{api}settings":  # this endpoint does not require a login
            return 200, {"appLabelKey": "app.kubernetes.io/instance", **server.settings}, {}
        try:
            self._logged_in(asked)
            raw = urlsplit(self.path).path.removeprefix(api)
            parts = [unquote(one) for one in raw.split("/")]
            if parts[0] in ("applicationsets", "projects"):
                return 200, self._other(asked, *parts[:2]), {}
            if parts[0] != "applications":
                return 404, "Not Found", {}
            if asked.method == "PATCH":
                return 200, self._patch(asked, parts[1]), {}
            with server.lock:
                return 200, self._routed(asked, parts), {}
        except _Denied as error:
            return (
                CODES[error.code],
                {"error": error.message, "code": error.code, "message": error.message},
                {},
            )

    def _logged_in(self, asked: Request) -> None:
        header = asked.headers.get("authorization", "")
        token = header.removeprefix("Bearer ")
        if self.server.tokens and token in self.server.expired:
            raise _Denied(16, "invalid session: token has invalid claims: token is expired")
        if (
            self.server.tokens and token not in self.server.tokens
        ):  # no token, or one that is not a JWT
            raise _Denied(16, "no session information")

    def _routed(self, asked: Request, parts: Sequence[str]) -> Any:
        unknown = set(asked.query) - KNOWN["".join(parts[2:3])]
        self.server.wrong += [f"{asked.path}: unknown parameter {one}" for one in sorted(unknown)]
        if len(parts) == 1:
            return self._list(asked)
        namespace, project = (
            asked.query.get(name, [""])[0] for name in ("appNamespace", "project")
        )
        key = self._key(namespace, project, parts[1])
        if len(parts) == 2:
            return self._look(key, refresh="refresh" in asked.query)
        if parts[2] == "resource":
            pod = self.server.pods.get(asked.query["resourceName"][0])
            if pod is None:
                raise _Denied(
                    3,
                    f"Pod {asked.query['resourceName'][0]} not found as part of application {parts[1]}",
                )
            return {"manifest": json.dumps(pod)}
        return {"resource-tree": self.server.trees, "syncwindows": self.server.windows}[
            parts[2]
        ].get(key, {})

    def _other(self, asked: Request, kind: str, name: str) -> dict[str, Any]:
        namespace = asked.query.get("appsetNamespace", ["argocd"])[0]
        if found := self.server.others.get((kind, namespace, name)):
            return found
        raise _Denied(7, "permission denied")

    def _key(self, namespace: str, project: str, name: str) -> tuple[str, str]:
        """Return the key of an Application that the token may see.

        For any other name, the error does not reveal whether the Application exists: it is "not
        found" if the request names a project, and "permission denied" otherwise.
        """
        key = (namespace or "argocd", name)
        play = self.server.plays.get(key) if key not in self.server.hidden else None
        if project and (not play or play[0]["spec"]["project"] != project):
            raise _Denied(5, f'applications.argoproj.io "{name}" not found')
        if not play:
            raise _Denied(7, "permission denied")
        own = play[0]["spec"]["project"]
        if self.server.projects is not None and own not in self.server.projects:
            raise _Denied(
                3, f'app is not allowed in project "{own}", or the project does not exist'
            )
        return key

    def _look(self, key: tuple[str, str], *, refresh: bool) -> dict[str, Any]:
        play = self.server.plays[key]
        state = play.pop(0) if len(play) > 1 and not refresh else play[0]
        if refresh and len(play) > 1:
            play.pop(0)
        return {name: value for name, value in state.items() if name not in ("kind", "apiVersion")}

    def _list(self, asked: Request) -> dict[str, Any]:
        namespace = asked.query.get("appNamespace", [""])[0]
        projects = asked.query.get("projects", [])
        found = [
            play[0]
            for key, play in sorted(self.server.plays.items(), key=lambda one: one[0][1])
            if key not in self.server.hidden and namespace in ("", key[0])
        ]
        found = [one for one in found if not projects or one["spec"].get("project") in projects]
        if selector := asked.query.get("selector", [""])[0]:
            if wrong := re.search(r"\bin\s+([^\s(])", selector):
                said = f"unable to parse requirement: found '{wrong[1]}' expected: '('"
                raise _Denied(2, f"error parsing the selector: {said}")
            name, _, value = selector.partition("=")
            found = [one for one in found if one["metadata"].get("labels", {}).get(name) == value]
        fields = asked.query.get("fields", [""])[0]
        if not fields:
            return {"metadata": {"resourceVersion": "7"}, "items": found or None}
        wanted = [
            one.removeprefix("items.") for one in fields.split(",") if one.startswith("items.")
        ]
        self.server.wrong += [f"{one} cannot be selected" for one in wanted if one not in FIELDS]
        picked = [_picked(one, [field for field in wanted if field in FIELDS]) for one in found]
        return {"metadata": {"resourceVersion": "7"}, "items": picked or None}

    def _patch(self, asked: Request, name: str) -> dict[str, Any]:
        """Test and apply the patch, render the manifests, and then overwrite the entire current
        spec.
        """
        server = self.server
        with server.lock:
            key = self._key(asked.body.get("appNamespace", ""), "", name)
            if key in server.frozen:
                right = f"applications, update, {server.plays[key][0]['spec']['project']}/{name}"
                raise _Denied(
                    7, f"permission denied: {right}, sub: {server.user}, iat: 2026-11-21T06:14:26Z"
                )
            if asked.body.get("patchType", "") not in ("json", ""):
                server.wrong.append("only JSON patches are expected")
            try:
                changed = apply_patch(server.plays[key][0], json.loads(asked.body["patch"]))
            except PatchError as error:
                raise _Denied(2, f"error applying patch: {error}") from None
            if wrong := invalid(changed):
                raise _Denied(3, f"application spec for {name} is invalid: {wrong}")
        if wrong := server.render(changed):
            said = f"InvalidSpecError: Unable to generate manifests in {changed['spec']['source'].get('path')}: {wrong}"
            raise _Denied(3, f"application spec for {name} is invalid: {said}")
        with server.lock:
            now = server.plays[key][0]
            meta = {
                part: changed["metadata"][part]
                for part in ("annotations", "labels")
                if part in changed["metadata"]
            }
            version = str(int(now["metadata"].get("resourceVersion", "1")) + 1)
            metadata = {**now["metadata"], **meta, "resourceVersion": version}
            server.plays[key] = [{**now, "metadata": metadata, "spec": changed["spec"]}]
            return copy.deepcopy(server.plays[key][0])


def invalid(item: Mapping[str, Any]) -> str:
    """Return the errors in an Application according to Argo CD's schema, or "" if it is valid."""
    whole = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", **item}
    return "; ".join(problems("argo-cd-application-v1alpha1", whole))[:500]


class PatchError(Exception):
    """Raised when a JSON patch cannot be applied."""


def apply_patch(
    document: dict[str, Any], operations: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Apply the operations `add`, `replace`, `remove`, and `test` of RFC 6902. The error messages
    are those of evanphx/json-patch.
    """
    document = copy.deepcopy(document)
    for one in operations:
        path = one["path"]
        *parents, last = [
            part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]
        ]
        holder: Any = document
        for part in parents:
            try:
                holder = holder[int(part)] if isinstance(holder, list) else holder[part]
            except (KeyError, IndexError, ValueError, TypeError):
                raise PatchError(
                    f"{one['op']} operation does not apply: doc is missing path: {path}: missing value"
                ) from None
        _apply(holder, last, one, path)
    return document


def _apply(holder: Any, last: str, one: Mapping[str, Any], path: str) -> None:
    if isinstance(holder, list):
        index = len(holder) if last == "-" else int(last)
        there = index < len(holder)
        now = holder[index] if there else None
    elif isinstance(holder, dict):
        there, now, index = last in holder, holder.get(last), -1
    else:
        raise PatchError(f"{one['op']} operation does not apply: {path}: missing value")
    if one["op"] == "test":
        if now != one.get("value"):
            raise PatchError(f"testing value {path} failed: test failed")
    elif one["op"] == "add":
        if isinstance(holder, list):
            if index > len(holder):
                raise PatchError("Unable to access invalid index: missing value")
            holder.insert(index, one["value"])
        else:
            holder[last] = one["value"]
    elif not there:
        raise PatchError(
            f"{one['op']} operation does not apply: doc is missing key: {path}: missing value"
        )
    elif one["op"] == "replace":
        holder[index if isinstance(holder, list) else last] = one["value"]
    else:
        del holder[index if isinstance(holder, list) else last]


def _picked(item: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields:
        *parents, last = field.split(".")
        value: Any = item
        for part in (*parents, last):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is None and field != "metadata.labels":
            continue
        holder = found
        for part in parents:
            holder = holder.setdefault(part, {})
        holder[last] = value
    return found


@contextmanager
def argocd_server(root: str = "") -> Iterator[ArgoCDServer]:
    """Run a server for the duration of the block. Afterwards, fail if a client has sent anything
    that no client should send.
    """
    with serving(ArgoCDServer(root)) as server:
        yield server
    assert not server.wrong, server.wrong
