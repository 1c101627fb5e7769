"""Sends requests to a registry, a few at a time, with the credentials that the registry requires,
and converts error responses to errors.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from threading import BoundedSemaphore, Lock
from urllib.parse import quote

from task import shutdown
from task.errors import (
    NoAnswerError,
    RegistryAccessError,
    RegistryDownError,
    RegistryError,
    TaskError,
)
from task.http import Http, Limits, Response, basic, bearer, retry_after
from task.plain_data import dig
from task.registry.bearer_tokens import (
    HOW_TO_LOG_IN,
    BearerToken,
    challenges,
    check_realm,
    fetch,
    trusts,
)
from task.registry.docker_config import HUB, RegistryLogin
from task.registry.endpoint import Endpoint
from task.secret import Secret
from task.urls import origin, split

AT_ONCE = 8  # maximum number of concurrent requests to a registry
# the number of seconds for which a registry is assumed to be down, so that queries fail immediately
DOWN = 30.0
LIMITS = Limits(
    total=60.0,
    size=16 * 1024 * 1024,
    values=1_000_000,
    slow=1800.0,
)
Headers = dict[str, str]
_CODE = re.compile(r"[A-Z][A-Z_]{1,40}", re.ASCII)
_HUB_LIMIT = (
    "Docker Hub counts pulls by account, or by IP address if anonymous; set credentials, or use a"
    " mirror in registries.conf"
)


class RegistryApi:
    """A client for a registry's API. Thread-safe."""

    def __init__(
        self,
        endpoint: Endpoint,
        log: Callable[[str], None],
        limits: Limits = LIMITS,
    ) -> None:
        self.endpoint = endpoint
        self._log = log
        self._limits = limits
        self._request_slots = BoundedSemaphore(AT_ONCE)
        self._lock = Lock()
        self._first_request = Lock()
        self._http: Http | None = None  # the client for the first URL that responded
        self._token_servers: dict[str, Http] = {}  # keyed by origin
        self._challenges: Mapping[str, Mapping[str, str]] = {}
        self._tokens: dict[tuple[str, RegistryLogin | None], BearerToken] = {}
        self._token_locks: dict[tuple[str, RegistryLogin | None], Lock] = {}
        self._next_start = 0.0  # when the next request may start
        # why the registry is down, and until when it is assumed to be down
        self._down: tuple[TaskError, float] | None = None

    def ask(
        self,
        method: str,
        repository: str,
        path: str,
        login: RegistryLogin | None = None,
        accept: str = "",
        expected: tuple[int, ...] = (),
    ) -> Response:
        """Send a request for `/v2/<repository><path>`, with the login if the registry requires it.
        Return the response if its status is 200, 404, or in `expected`.

        Raises `RegistryDownError`, `RegistryAccessError`, or `RegistryError` for every other
        response. Once the registry could not be reached, or its rate limit was exceeded, the same
        error is raised for a while (`DOWN`) without sending any requests.
        """
        url = f"/v2/{quote(repository)}{path}"
        headers = {"Accept": accept} if accept else {}
        sent_login = self._login_headers(repository, login)
        answer = self._send(method, url, {**headers, **sent_login})

        if answer.status == 401:  # the response specifies which credentials the registry accepts
            accepted_schemes = challenges(answer.headers.get("WWW-Authenticate", ""))
            if accepted_schemes:
                self._challenges = accepted_schemes
            self._drop_rejected_token(repository, login, sent_login)
            new_login = self._login_headers(repository, login)
            if new_login and new_login != sent_login:  # unless the response would be the same
                answer = self._send(method, url, {**headers, **new_login})

        if answer.status in (200, 404, *expected):
            return answer
        error = registry_error_for(self.endpoint.name, repository, answer, login)
        if answer.status == 429:  # make the run's other requests fail immediately
            self._down = (error, time.monotonic() + DOWN)
        raise error

    def close(self) -> None:
        """Close all connections."""
        for http in (self._http, *self._token_servers.values()):
            if http is not None:
                http.close()

    def _send(self, method: str, url: str, headers: Headers) -> Response:
        """Send a request once the limits allow it, and return the response.

        Raises `RegistryError` or a subclass if there is no response.
        """
        with self._request_slots:
            self._wait_for_turn()
            shutdown.check()  # raises an error if the run has to stop
            self._raise_if_down()
            try:
                return self._send_to_registry(method, url, headers)
            except NoAnswerError as error:
                problem = no_answer_error(self.endpoint.name, error)
                # any other error concerns only this response, which may be too large, for example
                if isinstance(problem, RegistryDownError | RegistryAccessError):
                    self._down = (problem, time.monotonic() + DOWN)
                raise problem from None

    def _wait_for_turn(self) -> None:
        """Wait as long as necessary to respect the limit on requests per second from
        registries.conf.
        """
        if not self.endpoint.limit:
            return
        with self._lock:
            now = time.monotonic()
            start = max(now, self._next_start)
            self._next_start = start + 1 / self.endpoint.limit
        shutdown.sleep(start - now)

    def _send_to_registry(self, method: str, url: str, headers: Headers) -> Response:
        """Send a request to whichever of the registry's URLs (https or http) responds, and return
        the response.
        """
        if self._http is None:
            with self._first_request:
                self._raise_if_down()  # another thread's first request may have failed
                if self._http is None:  # no other thread has sent the first request in the meantime
                    return self._send_first_request(method, url, headers)
        return self._http.ask(method, url, headers=headers)

    def _raise_if_down(self) -> None:
        """Raise the recent error again if the registry is still assumed to be down."""
        if self._down is not None:
            error, until = self._down
            if time.monotonic() < until:
                raise error

    def _send_first_request(self, method: str, url: str, headers: Headers) -> Response:
        """Send the first request, which reveals whether the registry uses https or http, and return
        the response.

        The first request never includes credentials, because the registry has not requested any
        yet.
        """
        alternative_urls = self.endpoint.urls if len(self.endpoint.urls) > 1 else ()
        for base in alternative_urls:
            http = self._client(base)
            try:
                answer = http.ask(method, url, headers=headers, again=False)
            except NoAnswerError as error:
                if error.kind != "unreachable":
                    raise
                continue
            # nginx and Go's server return 400 for an http request to an https port. A 400 from the
            # registry itself has a JSON body.
            is_from_registry = (
                "Docker-Distribution-Api-Version" in answer.headers
                or answer.body.lstrip().startswith(b"{")
            )
            if answer.status == 400 and not is_from_registry:
                continue
            self._http = http
            # such responses have not been retried yet, because of `again=False`
            is_busy = answer.status == 429 or answer.status >= 500
            return http.ask(method, url, headers=headers) if is_busy else answer

        # there is only one URL, or no URL has responded, so try the first one (again)
        http = self._client(self.endpoint.urls[0])
        answer = http.ask(method, url, headers=headers)
        self._http = http
        return answer

    def _client(self, base: str, *, on_registry: bool = True) -> Http:
        """Return an HTTP client for the registry, or for a token server, at the URL `base`.

        `on_registry` is whether the URL is on the registry's own host: only then may certificates
        be left unverified (if the registry is configured so), and a proxy be bypassed (if the
        registry is on this machine). The registry's CA certificates are always trusted.
        """
        return Http(
            base,
            more_ca=self.endpoint.ca,
            verify=self.endpoint.verify or not on_registry,
            proxy="" if on_registry and self.endpoint.local else None,
            limits=self._limits,
            log=self._log,
        )

    # Logins

    def _login_headers(self, repository: str, login: RegistryLogin | None) -> Headers:
        """Return the authentication headers for a repository, with a bearer token or the password.
        The result is {} if the registry has not requested authentication yet, or if it accepts only
        a password and the login does not contain one.
        """
        accepted_schemes = self._challenges  # keys: "bearer", "basic", or both
        challenge = accepted_schemes.get("bearer")
        accepts_password = "basic" in accepted_schemes
        if challenge is None and not accepts_password:
            return {}
        if login and login.token:
            return bearer(login.token)
        # Prefer a token to the password itself, provided that the token server may receive the
        # password.
        if login and login.password and accepts_password:
            realm = challenge.get("realm", "") if challenge else ""
            may_fetch_token = challenge is not None and trusts(self._base, realm, login)
            if not may_fetch_token:
                return basic(login.username, login.password)
        if challenge is None:
            return {}
        return bearer(self._token(challenge, repository, login))

    def _drop_rejected_token(
        self,
        repository: str,
        login: RegistryLogin | None,
        sent_login: Headers,
    ) -> None:
        """Drop the repository's token if it was in the headers (`sent_login`) of a rejected
        request, because the token may have expired early.
        """
        key = (repository, login)
        token = self._tokens.get(key)
        # if a different token was sent, another thread has already renewed it
        if token is not None and sent_login == bearer(token.text):
            self._tokens.pop(key, None)

    def _token(
        self,
        challenge: Mapping[str, str],
        repository: str,
        login: RegistryLogin | None,
    ) -> Secret:
        """Return the bearer token for a repository. Fetch a new token if there is none, or if the
        current one is no longer valid.

        `challenge` contains the parameters from the registry's response: the token server's URL
        (`realm`), and its name for the registry (`service`).
        """
        key = (repository, login)
        with self._lock:
            token_lock = self._token_locks.setdefault(key, Lock())
        with token_lock:  # a second thread reuses the first thread's token
            token = self._tokens.get(key)
            if token is None or not token.is_valid:
                realm = challenge.get("realm", "")
                check_realm(self.endpoint.name, self._base, realm, login)
                parameters = {
                    "service": challenge.get("service", ""),
                    "scope": f"repository:{repository}:pull",
                }
                token = fetch(self._token_server, realm, parameters, login)
                self._tokens[key] = token
            return token.text

    @property
    def _base(self) -> str:
        return self._http.base if self._http else self.endpoint.urls[-1]

    def _token_server(self, realm: str) -> Http:
        """Return the HTTP client for the token server at the URL `realm`."""
        server = origin(realm)
        with self._lock:
            if server not in self._token_servers:
                on_registry = split(server).host == split(self._base).host
                self._token_servers[server] = self._client(server, on_registry=on_registry)
            return self._token_servers[server]


def no_answer_error(name: str, error: NoAnswerError) -> RegistryError:
    """Return the error for a registry that did not respond. `name` is the registry as written in
    image names.
    """
    if error.kind == "tls":
        return RegistryAccessError(
            f"registry {name}: {error.message}",
            hint="set its certificate authority: --ca-file, or ca_file in registries.conf",
        )
    if error.kind in ("redirect", "large"):
        return RegistryError(
            f"registry {name}: {error.message}",
            hint="check the host in the image name",
        )
    return RegistryDownError(f"registry {name}: {error.message}", hint="run it again")


def registry_error_for(
    name: str,
    repository: str,
    answer: Response,
    login: RegistryLogin | None,
) -> RegistryError:
    """Return the error for a response that is neither a success nor "not found".

    `name` is the registry as written in image names. `login` is the login that was used, if any.
    """
    status = answer.status
    code = _code(answer)
    shown = f"{status} {code}" if code else str(status)

    if status == 429 or code == "TOOMANYREQUESTS":  # an error code from the OCI specification
        seconds = retry_after(answer)
        wait = "" if seconds is None else f"; retry after {seconds:.0f} s"
        hint = "send fewer requests (limit in registries.conf), or run it again later"
        if name == HUB:
            hint = _HUB_LIMIT
        return RegistryDownError(f"registry {name}: rate limit exceeded ({shown}){wait}", hint=hint)
    if status >= 500:
        return RegistryDownError(f"registry {name} returned {shown}", hint="run it again")
    if status not in (401, 403):
        return RegistryError(
            f"registry {name} returned {shown} for {repository}",
            hint="check the host in the image name",
        )

    # To hide private repositories, registries also return 401 or 403 for missing ones. So the
    # messages mention both possibilities.
    if login is None:
        return RegistryAccessError(
            f"registry {name} does not allow anonymous access to {repository} ({shown}), or has no"
            " such repository",
            hint=HOW_TO_LOG_IN,
        )
    return RegistryAccessError(
        f"registry {name} does not accept the credentials for {repository} ({shown}), or has no"
        " such repository",
        hint=(
            "update the credentials, or grant them read access to the repository (they are from"
            f" {login.origin})"
        ),
    )


def _code(answer: Response) -> str:
    """Return the error code from a registry's response, such as `TOOMANYREQUESTS`, or "".

    The registry's own error message is never shown, because it may contain anything, even a token.
    """
    code = dig(answer.mapping(), "errors", 0, "code")
    return code if _CODE.fullmatch(code) else ""
