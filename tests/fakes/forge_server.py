"""The base class of the fake forges: an HTTP server with branches and pull requests, injected
faults, and strict checks.

Fakes respond according to their forges' documentation. Requests that the documentation does not
allow are recorded in `wrong`. Each request is also checked against the forge's own API description
(`fakes.description`).
"""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote

from fakes.description import described


class Request(NamedTuple):
    """A parsed request."""

    method: str
    path: str  # decoded, without the query
    query: dict[str, list[str]]
    headers: dict[str, str]  # names in lowercase
    body: Any  # parsed JSON, or None if there is no body
    target: str = ""  # the path and query, as sent

    def one(self, name: str, default: str = "") -> str:
        return self.query.get(name, [default])[-1]


@dataclass(frozen=True)
class Reply:
    """A response. `status` 0 drops the connection, and `status` -1 drops it after the request has
    taken effect.
    """

    status: int
    body: Any = None  # text is sent as HTML, anything else as JSON
    headers: tuple[tuple[str, str], ...] = ()


@dataclass
class Pull:
    """A pull request."""

    number: int
    base: str
    head: str
    title: str
    body: str
    state: str = "open"  # "open", "merged", "closed"
    draft: bool = False
    reviewers: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    version: int = 0
    merge_commit: str = ""
    auto: dict[str, Any] | None = None  # the requested auto-merge
    fork: bool = False  # whether its head branch is in a different repository


@dataclass
class Note:
    """A comment on a pull request."""

    number: int
    request: int
    body: str
    author: str = "image-bot"  # the owner of our token


@dataclass
class Shown:
    """A deployment, and the states that were set on it."""

    number: int
    environment: str
    commit: str
    states: list[str]
    links: list[str] = field(default_factory=list)  # URLs that link to the environment
    ours: bool = True  # whether we created the deployment, rather than a CI job


@dataclass
class Fault:
    """A fault for the next `times` requests with this method and a path that ends in `end`."""

    method: str
    end: str
    reply: Reply
    times: int = 1


class ForgeServer(ThreadingHTTPServer):
    """A fake forge, including the state of one repository."""

    daemon_threads = True
    login = "Bearer good-token"
    forge, api = (
        "",
        "",
    )  # the forge whose API description is used, and the prefix of the paths in it
    aside: tuple[str, ...] = ()  # prefixes of paths that the description does not cover
    # endings of problems to ignore, because the forge accepts more than it describes
    excused: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.RLock()
        self.branches = {"main": "b" * 40}
        self.pulls: list[Pull] = []
        self.notes: list[Note] = []
        self.deployments: list[Shown] = []
        self.statuses: list[tuple[str, str, str]] = []  # commit statuses: (commit, context, state)
        self.commits: set[str] = set()  # the commits that were built
        self.people: dict[str, str] = {"ann": "", "bob": ""}  # name → the forge's ID
        self.faults: list[Fault] = []
        self.seen: list[Request] = []
        self.wrong: list[str] = []
        self.sent = 0  # total size of all responses, in bytes
        self.connections = 0
        self.before: Callable[[Request], None] = lambda _request: (
            None
        )  # called just before a request is handled, to do what others might do

    def get_request(self) -> Any:
        self.connections += 1
        return super().get_request()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def open(self) -> list[Pull]:
        return [pull for pull in self.pulls if pull.state == "open"]

    @property
    def writes(self) -> list[str]:
        """The method and path of each request that changed something or tried to do so."""
        return [f"{one.method} {one.path}" for one in self.seen if one.method != "GET"]

    def fail(self, reply: Reply, method: str = "", end: str = "", times: int = 1) -> None:
        self.faults.append(Fault(method, end, reply, times))

    def pull(self, number: str | int) -> Pull | None:
        return next((pull for pull in self.pulls if str(pull.number) == str(number)), None)

    def add(self, **what: Any) -> Pull:
        pull = Pull(len(self.pulls) + 1, **what)
        self.pulls.append(pull)
        return pull

    def deploy(self, environment: str, commit: str, *states: str, ours: bool = True) -> Shown:
        """Add a deployment."""
        found = Shown(7_000 + len(self.deployments), environment, commit, list(states), ours=ours)
        self.deployments.append(found)
        return found

    def say(self, request: int, body: str, author: str = "image-bot") -> Note:
        """Add a comment to a request."""
        note = Note(9_000_000_000 + len(self.notes), request, body, author)
        self.notes.append(note)
        return note

    def note(self, number: str | int) -> Note | None:
        return next((note for note in self.notes if str(note.number) == str(number)), None)

    def merge(self, number: str) -> None:
        pull = self.pull(number)
        assert pull is not None
        pull.state, pull.merge_commit = "merged", f"{number:0>4}" + "e" * 36
        pull.version += 1

    def decline(self, number: str) -> None:
        pull = self.pull(number)
        assert pull is not None
        pull.state = "closed"
        pull.version += 1

    def require(self, true: object, what: str) -> None:
        """Record a request as wrong if it violates the documentation."""
        if not true:
            self.wrong.append(what)

    def serve(self, request: Request) -> Reply:
        with self.lock:
            self.seen.append(request)
            self._described(request)
            self.before(request)
            for fault in self.faults:
                if (
                    fault.times
                    and fault.method in ("", request.method)
                    and request.path.endswith(fault.end)
                ):
                    fault.times -= 1
                    if fault.reply.status < 0:
                        self.answer(request)
                    return fault.reply
            if request.headers.get("authorization") != self.login:
                return self.refusal("unauthorized")
            return self.answer(request)

    def _described(self, request: Request) -> None:
        """Record the parts of a request that the forge's API description does not cover."""
        path = request.target.partition("?")[0]
        if not self.forge or not path.startswith(self.api):
            return
        path = path.removeprefix(self.api)
        if not path.startswith(self.aside or "-"):
            found = described(self.forge).problems(
                request.method, path, request.query, request.body
            )
            self.wrong += [one for one in found if not one.endswith(self.excused or "-")]

    def answer(self, request: Request) -> Reply:
        """Return the forge's response. The caller must hold `lock`."""
        raise NotImplementedError

    def refusal(self, kind: str) -> Reply:
        """Return the forge's error response of this kind: "unauthorized", "forbidden", "limited",
        "invalid", or "down".
        """
        raise NotImplementedError


class _Handler(BaseHTTPRequestHandler):
    server: ForgeServer
    protocol_version = "HTTP/1.1"
    wbufsize = 65536  # sends each response as one packet, because a second packet would be delayed

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        size = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(size)
        headers = {name.lower(): value for name, value in self.headers.items()}
        if raw:
            self.server.require(
                "application/json" in headers.get("content-type", ""),
                f"{self.path}: a body, no JSON",
            )
        query_read = parse_qs(query, keep_blank_values=True)
        body = json.loads(raw) if raw else None
        self._send(
            self.server.serve(
                Request(self.command, unquote(path), query_read, headers, body, self.path)
            )
        )

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - http.server's names

    def _send(self, reply: Reply) -> None:
        if reply.status <= 0:
            self.close_connection = True
            return
        html = isinstance(reply.body, str)
        text = reply.body if html else "" if reply.body is None else json.dumps(reply.body)
        content = text.encode()
        self.server.sent += len(content)
        self.send_response(reply.status)
        self.send_header(
            "Content-Type",
            "text/html; charset=utf-8" if html else "application/json; charset=utf-8",
        )
        for name, value in reply.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_message: object) -> None:
        """Log nothing, because `seen` records the requests."""
