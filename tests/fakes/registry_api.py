"""A fake registry in the test process, for situations that are impossible to create with a real
registry.

The fake follows the OCI distribution specification and Docker's token documentation. Where these
are silent, it follows real registries: for example, a manifest is not found if its type is not in
`Accept`. `faults` replace individual responses.
"""

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, urlsplit

from fakes.oci_images import Content
from support.serving import serving

Reply = tuple[int, dict[str, str], bytes]


class Seen(NamedTuple):
    """A request that was received."""

    method: str
    path: str
    headers: dict[str, str]  # names in lowercase
    body: bytes = b""

    @property
    def login(self) -> str:
        """The `Authorization` header, or "" if there is none."""
        return self.headers.get("authorization", "")


class RegistryApi(ThreadingHTTPServer):
    """A fake registry. All of its settings may be changed while it is running."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str = "127.0.0.1") -> None:
        super().__init__((host, 0), _Handler)
        self.host = host
        self.tags: dict[str, dict[str, str]] = {}  # repository → tag → digest
        self.manifests: dict[str, tuple[str, bytes]] = {}
        self.blobs: dict[str, bytes] = {}
        self.challenge = ""  # the challenge sent to a client without a login: "Basic …", "Bearer …"
        self.users: dict[str, str] = {}
        self.refresh_tokens: set[str] = set()
        self.anonymous = False  # whether everyone receives a token
        self.basic_tokens = True  # whether Basic authentication yields a token
        self.token_answer: Callable[[str], Any] = lambda token: {"token": token, "expires_in": 300}
        self.tokens: set[str] = set()
        self.page = 0  # tags per page; 0 means all
        self.link = "relative"
        self.referrers_api = True
        self.faults: dict[
            str, Callable[[Seen], Reply | None]
        ] = {}  # end of a path → the response to send instead
        self.lies: dict[str, str] = {}  # headers to set in every response; "" removes a header
        self.seen: list[Seen] = []
        self.busy, self.most_at_once = 0, 0
        self.delay = 0.0
        self.crowd = 0  # requests block until this many have been in progress at once
        self.gate = threading.Condition()

    def handle_error(self, *_request: object) -> None:
        """Log nothing, because clients drop connections in these tests."""

    @property
    def name(self) -> str:
        """The registry's name in image references."""
        return f"{self.host}:{self.server_address[1]}"

    @property
    def url(self) -> str:
        """The registry's URL."""
        return f"http://{self.name}"

    @property
    def asked(self) -> list[str]:
        """The methods and paths of all requests, without queries."""
        return [f"{one.method} {one.path.partition('?')[0]}" for one in self.seen]

    def put(self, repository: str, tag: str, content: Content) -> str:
        """Store an image, and return its digest."""
        self.blobs |= content.blobs
        self.manifests |= content.manifests
        self.tags.setdefault(repository, {})[tag] = content.digest
        return content.digest

    def ask_for_tokens(self, realm: str = "", **users: str) -> None:
        """Require a token. `realm` is the token server, which is this server by default."""
        self.users |= users
        self.challenge = f'Bearer realm="{realm or self.url + "/token"}",service="registry.example"'


@contextmanager
def registry_api(host: str = "127.0.0.1") -> Iterator[RegistryApi]:
    """Run a registry for the duration of the block."""
    with serving(RegistryApi(host)) as server:
        yield server


class _Handler(BaseHTTPRequestHandler):
    server: RegistryApi
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise, each response waits 40 ms for an acknowledgement

    def do_GET(self) -> None:
        self._serve()

    def do_HEAD(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def log_message(self, *_message: object) -> None:
        """Log nothing, because `seen` records the requests."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        seen = Seen(self.command, self.path, headers, body)
        server = self.server
        with server.gate:
            server.seen.append(seen)
            server.busy += 1
            server.most_at_once = max(server.most_at_once, server.busy)
            server.gate.notify_all()
            server.gate.wait_for(lambda: server.most_at_once >= server.crowd, timeout=10)
        threading.Event().wait(server.delay)
        try:
            fault = next(
                (fault for end, fault in server.faults.items() if _ends(self.path, end)), None
            )
            self._reply(*((fault(seen) if fault else None) or self._answer(seen)))
        except ConnectionError:
            self.close_connection = True
        finally:
            with server.gate:
                server.busy -= 1

    def _answer(self, seen: Seen) -> Reply:
        url = urlsplit(seen.path)
        if url.path == "/token":
            return self._token(seen, {**parse_qs(url.query), **parse_qs(seen.body.decode())})
        repository, _, rest = url.path.partition("/v2/")[2].rpartition("/")
        repository, _, verb = repository.rpartition("/")
        if self.server.challenge and not self._may(seen, repository):
            return _refusal(401, "UNAUTHORIZED", {"WWW-Authenticate": self.server.challenge})
        return (
            self._found(repository, verb, rest, seen)
            if repository in self.server.tags
            else _refusal(404, "NAME_UNKNOWN")
        )

    def _found(self, repository: str, verb: str, rest: str, seen: Seen) -> Reply:
        if verb == "tags":
            return self._tags(repository, parse_qs(urlsplit(seen.path).query))
        if verb == "manifests":
            return self._manifest(repository, rest, seen.headers.get("accept", ""))
        if verb == "referrers" and self.server.referrers_api:
            return self._referrers(rest)
        found = self.server.blobs.get(rest)
        return (
            (200, {}, found)
            if found is not None and verb == "blobs"
            else _refusal(404, "BLOB_UNKNOWN")
        )

    def _may(self, seen: Seen, repository: str) -> bool:
        kind, _, login = seen.login.partition(" ")
        if self.server.challenge.startswith("Basic"):
            return kind == "Basic" and self._user(login) != ""
        return (
            kind == "Bearer"
            and login in self.server.tokens
            and login.endswith(quote(repository, safe=""))
        )

    def _user(self, login: str) -> str:
        user, _, password = base64.b64decode(login).decode().partition(":")
        return user if self.server.users.get(user) == password else ""

    def _token(self, seen: Seen, wanted: dict[str, list[str]]) -> Reply:
        kind, _, login = seen.login.partition(" ")
        if seen.method == "POST":
            good = wanted.get("refresh_token", [""])[0] in self.server.refresh_tokens
        elif kind == "Basic":
            good = self.server.basic_tokens and self._user(login) != ""
        else:
            good = self.server.anonymous
        scope = wanted.get("scope", [""])[0]
        if not good:
            return _refusal(401, "UNAUTHORIZED")
        with self.server.gate:
            token = f"t{len(self.server.seen)}.{quote(scope.split(':')[1], safe='')}"
            self.server.tokens.add(token)
        return (
            200,
            {"Content-Type": "application/json"},
            json.dumps(self.server.token_answer(token)).encode(),
        )

    def _tags(self, repository: str, query: dict[str, list[str]]) -> Reply:
        names, page = sorted(self.server.tags[repository]), self.server.page
        last = query.get("last", [""])[0]
        rest = [name for name in names if name > last] if last else names
        headers = {}
        if page and len(rest) > page:
            rest = rest[:page]
            target = f"/v2/{repository}/tags/list?last={quote(rest[-1])}&n={page}"
            link = {"relative": target, "absolute": self.server.url + target}.get(
                self.server.link, self.server.link
            )
            headers["Link"] = f'<{link}>; rel="next"'
        return 200, headers, json.dumps({"name": repository, "tags": rest}).encode()

    def _manifest(self, repository: str, reference: str, accept: str) -> Reply:
        digest = self.server.tags[repository].get(reference, reference)
        media_type, body = self.server.manifests.get(digest, ("", b""))
        if not media_type or media_type not in accept.replace(" ", "").split(","):
            return _refusal(404, "MANIFEST_UNKNOWN")
        return 200, {"Content-Type": media_type, "Docker-Content-Digest": digest}, body

    def _referrers(self, digest: str) -> Reply:
        found = []
        for own, (media_type, body) in self.server.manifests.items():
            data = json.loads(body)
            if (data.get("subject") or {}).get("digest") == digest:
                one = {
                    "mediaType": media_type,
                    "digest": own,
                    "artifactType": data.get("artifactType", ""),
                }
                found.append({**one, "annotations": data.get("annotations") or {}})
        index = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": found,
        }
        return (
            200,
            {"Content-Type": "application/vnd.oci.image.index.v1+json"},
            json.dumps(index).encode(),
        )

    def _reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Length": str(len(body)),
            **headers,
            **self.server.lies,
        }.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _ends(path: str, end: str) -> bool:
    return path.endswith(end) or path.partition("?")[0].endswith(end)


def _refusal(status: int, code: str, headers: dict[str, str] | None = None) -> Reply:
    body = json.dumps({"errors": [{"code": code, "message": "as it is"}]}).encode()
    return status, {"Content-Type": "application/json", **(headers or {})}, body
