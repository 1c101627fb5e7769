"""Sends requests to one registry, with the login that it asks for, a few at a time, and turns refusals into errors."""

from __future__ import annotations

import ipaddress
import re
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import BoundedSemaphore, Lock
from urllib.parse import quote

from task import shutdown
from task.errors import RegistryAccessError, RegistryDownError, TaskError
from task.http import Http, Limits, NoAnswerError, Response
from task.registry import bearer_tokens
from task.registry.docker_config import RegistryLogin
from task.registry.endpoint import Endpoint
from task.registry.refusal import no_answer, refused
from task.secret import Secret
from task.urls import origin, split

AT_ONCE = 8  # requests to one registry at the same time
DOWN = 30.0  # seconds in which a registry that is down gets no request, so that a thousand questions fail at once
LIMITS = Limits(total=60.0, size=16 * 1024 * 1024, values=1_000_000, slow=1800.0)
Headers = dict[str, str]


class RegistryApi:
    """The API of one registry. Safe to use from several threads."""

    def __init__(self, endpoint: Endpoint, log: Callable[[str], None], limits: Limits = LIMITS) -> None:
        self.endpoint = endpoint
        self._log, self._limits = log, limits
        self._room = BoundedSemaphore(AT_ONCE)
        self._lock, self._first = Lock(), Lock()
        self._http: Http | None = None  # for the first URL that answered
        self._servers: dict[str, Http] = {}  # token servers, by origin
        self._challenges: tuple[Challenge, ...] = ()
        self._tokens: dict[tuple[str, RegistryLogin | None], bearer_tokens.BearerToken] = {}
        self._turns: dict[tuple[str, RegistryLogin | None], Lock] = {}
        self._next = 0.0  # when the next request may start
        self._down: tuple[TaskError, float] | None = None  # why nothing answers, and until when that is assumed

    def ask(
        self,
        method: str,
        repository: str,
        path: str,
        login: RegistryLogin | None = None,
        accept: str = "",
        also: tuple[int, ...] = (),
    ) -> Response:
        """Return the answer to `/v2/<repository><path>` if its status is 200, 404, or in `also`.

        Raises `RegistryDownError`, `RegistryAccessError`, or `RegistryError` for every other answer. A registry that
        could not be reached is not asked again for a while.
        """
        url = f"/v2/{quote(repository)}{path}"
        headers = {"Accept": accept} if accept else {}
        sent = self._authorized(repository, login)
        answer = self._send(method, url, {**headers, **sent})
        if answer.status == 401:
            self._challenges = challenges(answer.headers.get("WWW-Authenticate", "")) or self._challenges
            known = self._tokens.get((repository, login))
            # The token may have ended early. If it is not the one that was sent, another thread already has a new one.
            if known is not None and sent == bearer_tokens.bearer(known.text):
                self._tokens.pop((repository, login), None)
            again = self._authorized(repository, login)
            if again and again != sent:
                answer = self._send(method, url, {**headers, **again})
        if answer.status in (200, 404, *also):
            return answer
        error = refused(self.endpoint.name, repository, answer, login)
        if answer.status == 429:
            self._down = (error, time.monotonic() + DOWN)
        raise error

    def close(self) -> None:
        """Close all connections."""
        for http in (self._http, *self._servers.values()):
            if http is not None:
                http.close()

    def _send(self, method: str, url: str, headers: Headers) -> Response:
        with self._room:
            self._wait_for_turn()
            shutdown.check()
            self._raise_if_down()
            try:
                return self._answer(method, url, headers)
            except NoAnswerError as error:
                problem = no_answer(self.endpoint.name, error)
                if isinstance(problem, RegistryDownError | RegistryAccessError):
                    self._down = (problem, time.monotonic() + DOWN)
                raise problem from None

    def _wait_for_turn(self) -> None:
        """Wait, so that the registry gets only as many requests in a second as registries.conf allows."""
        if not self.endpoint.limit:
            return
        with self._lock:
            now = time.monotonic()
            start = max(now, self._next)
            self._next = start + 1 / self.endpoint.limit
        shutdown.sleep(start - now)

    def _answer(self, method: str, url: str, headers: Headers) -> Response:
        """Return the answer at the registry's URL that answered first."""
        if self._http is None:
            with self._first:
                self._raise_if_down()
                if self._http is None:
                    return self._first_answer(method, url, headers)
        return self._http.ask(method, url, headers=headers)

    def _raise_if_down(self) -> None:
        """Raise the recent error again."""
        if self._down is not None and time.monotonic() < self._down[1]:
            raise self._down[0]

    def _first_answer(self, method: str, url: str, headers: Headers) -> Response:
        """Return the answer to the first request, which finds out whether the registry uses https or http.

        It never has a login, because the registry has not asked for one yet.
        """
        for base in self.endpoint.urls if len(self.endpoint.urls) > 1 else ():
            http = self._client(base)
            try:
                answer = http.ask(method, url, headers=headers, again=False)
            except NoAnswerError as error:
                if error.kind != "unreachable":
                    raise
                continue
            # nginx and Go's server answer 400 to http on a port for https. A registry's own 400 has a JSON body.
            registrys = "Docker-Distribution-Api-Version" in answer.headers or answer.body.lstrip()[:1] == b"{"
            if answer.status != 400 or registrys:
                self._http = http
                busy = answer.status == 429 or answer.status >= 500  # `again=False` has not repeated these
                return http.ask(method, url, headers=headers) if busy else answer
        http = self._client(self.endpoint.urls[0])
        answer = http.ask(method, url, headers=headers)
        self._http = http
        return answer

    def _client(self, base: str, *, ours: bool = True) -> Http:
        return Http(
            base,
            more_ca=self.endpoint.ca,
            verify=self.endpoint.verify or not ours,
            proxy="" if ours and self.endpoint.local else None,
            limits=self._limits,
            log=self._log,
        )

    # Logins

    def _authorized(self, repository: str, login: RegistryLogin | None) -> Headers:
        """Return the headers that log in to a repository, or {} if the registry has not asked for a login yet."""
        bearer = next((challenge for challenge in self._challenges if challenge.scheme == "bearer"), None)
        basic = next((challenge for challenge in self._challenges if challenge.scheme == "basic"), None)
        if login and login.token and (bearer or basic):
            return bearer_tokens.bearer(login.token)
        if basic and login and login.password and not (bearer and self._trusts(bearer, login)):
            return bearer_tokens.basic(login)
        return bearer_tokens.bearer(self._token(bearer, repository, login)) if bearer else {}

    def _token(self, challenge: Challenge, repository: str, login: RegistryLogin | None) -> Secret:
        key = (repository, login)
        with self._lock:
            turn = self._turns.setdefault(key, Lock())
        with turn:  # a second thread gets the token of the first one
            known = self._tokens.get(key)
            if known is not None and known.good:
                return known.text
            realm = challenge.parameters.get("realm", "")
            if refusal := self._refusal(challenge, login):
                what, hint = refusal
                message = f"registry {self.endpoint.name} sends us to {origin(realm)[:200]!r} for a token: {what}"
                raise RegistryAccessError(message, hint=hint)
            wanted = {"service": challenge.parameters.get("service", ""), "scope": f"repository:{repository}:pull"}
            known = self._tokens[key] = bearer_tokens.fetch(self._server, realm, wanted, login)
            return known.text

    def _refusal(self, challenge: Challenge, login: RegistryLogin | None) -> tuple[str, str] | None:
        """Return why the challenge's realm is not asked, and what to do, or None if it may be asked."""
        realm = challenge.parameters.get("realm", "")
        theirs = split(realm).host.strip("[]")
        if login and not self._trusts(challenge, login):
            hint = "check the registry's address: a login goes to its own host only, over https"
            if self._encrypted_enough(realm):
                hint += (
                    f"; if this is its token server, name it: --registry-credentials-for {theirs[:200]}, or an entry "
                )
                hint += "with the same login in Docker's config file"
            return "the login is not sent there", hint
        if not self._encrypted_enough(realm):
            return "that is not encrypted", "let the registry name a token server with https"
        if not login and not may_be_asked(split(self._base).host.strip("[]"), theirs):
            return "that is a private address, and the registry is none", "let the registry name its token server"
        return None

    def _trusts(self, challenge: Challenge, login: RegistryLogin) -> bool:
        """Tell whether the registry's login may be sent to the challenge's realm."""
        realm = challenge.parameters.get("realm", "")
        ours, theirs = split(self._base).host.strip("[]"), split(realm).host.strip("[]")
        return self._encrypted_enough(realm) and (theirs in login.hosts or may_get_login(ours, theirs))

    def _encrypted_enough(self, realm: str) -> bool:
        """Tell whether the realm is https, or http on the host of a registry that uses http itself."""
        if realm.startswith("https://"):
            return True
        same = split(realm).host == split(self._base).host
        return realm.startswith("http://") and self._base.startswith("http://") and same

    @property
    def _base(self) -> str:
        return self._http.base if self._http else self.endpoint.urls[-1]

    def _server(self, realm: str) -> Http:
        where = origin(realm)
        with self._lock:
            if where not in self._servers:
                ours = split(where).host == split(self._base).host
                self._servers[where] = self._client(where, ours=ours)
            return self._servers[where]


_PIECE = re.compile(r'[\s,]*([A-Za-z0-9!#$&^_`|~.+*%\'-]+)(?:\s*=\s*("(?:[^"\\]|\\.)*"|[^\s,"]*))?', re.ASCII)

# Registries whose token server has another name, as their documentation says: (registry, token server), whole names.
_PAIRS = (
    (r"(?:.+\.)?docker\.io|registry\.hub\.docker\.com", r"auth\.docker\.io"),
    (r"registry\.connect\.redhat\.com", r"sso\.redhat\.com"),
    (r"registry\.digitalocean\.com", r"api\.digitalocean\.com"),
    (r"docker\.elastic\.co", r"docker-auth\.elastic\.co"),
    (r"registry2\.balena-cloud\.com", r"api\.balena-cloud\.com"),
    (r".+\.pkg\.coding\.net", r"auth\.pkg\.coding\.net"),
    (r".+\.scw\.cloud", r"api\.scaleway\.com"),
    (r".+\.aliyuncs\.com", r"dockerauth(?:-ee)?(?:\.[a-z]{2}-[a-z0-9-]+)?\.aliyuncs\.com"),
)
# GitLab's registry: registry.gitlab.example.com → gitlab.example.com, registry.example.com → gitlab.example.com.
_GITLAB = re.compile(r"registry\.((?:[^.\s]+\.)+[^.\s]+) (?:gitlab\.)?\1")


@dataclass(frozen=True)
class Challenge:
    """One way to log in that a registry offers."""

    scheme: str  # in lower case
    parameters: Mapping[str, str]  # keys in lower case


def challenges(header: str) -> tuple[Challenge, ...]:
    """Return the challenges of a `WWW-Authenticate` header, in order. Malformed parts are left out."""
    offered: list[Challenge] = []
    for match in _PIECE.finditer(header[:8192]):
        name, value = match.group(1).lower(), match.group(2)
        if value is None:
            offered.append(Challenge(name, {}))
        elif offered:
            value = re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
            offered[-1] = Challenge(offered[-1].scheme, {name: value, **offered[-1].parameters})
    return tuple(offered)


def may_get_login(registry: str, other: str) -> bool:
    """Tell whether a registry's login may be sent to another host, although its user has not named it.

    Both are without ports. Allowed are the registry itself and documented pairs. Otherwise anybody who can answer for a
    registry could name his own server as the realm, and get the login.
    """
    pairs = any(re.fullmatch(one, registry) and re.fullmatch(theirs, other) for one, theirs in _PAIRS)
    return bool(other) and (registry == other or pairs or bool(_GITLAB.fullmatch(f"{registry} {other}")))


def may_be_asked(registry: str, other: str) -> bool:
    """Tell whether a token server may be asked at all: a public registry must not send us to an address in our network.

    Only addresses are looked at. Where a name leads to is known when it is used, and only then.
    """
    theirs = _address(other)
    if registry == other or theirs is None or theirs.is_global:
        return True
    ours = _address(registry)
    inside = ours is not None and not ours.is_global and ours.is_loopback == theirs.is_loopback
    return inside and not theirs.is_link_local


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that a host is, if it is none by name. Resolvers take `127.1` and `0x7f.1` as addresses."""
    host = host.strip("[]").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return ipaddress.IPv4Address("127.0.0.1")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except OSError:
            return None
    return getattr(address, "ipv4_mapped", None) or address
