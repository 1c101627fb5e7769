"""Fetches bearer tokens, and sends a registry's credentials only to trusted token servers.

Most registries work as documented by Docker: GET realm?service=…&scope=…, with the credentials as
Basic authentication.
The exceptions:
- Docker Hub: the realm is on a different host (auth.docker.io). For GHCR, GAR, Quay, Harbor, GitLab
  (/jwt/auth), Nexus, and JFrog (/v2/token), it is on the registry's own host, but GitLab often uses
  a different host: registry.example.com → gitlab.example.com.
- ECR, and Nexus without its token realm, use Basic authentication and do not have tokens.
- ACR, after `az acr login`: the user is 00000000-0000-0000-0000-000000000000, and the secret is a
  refresh token. It is exchanged by POST (`grant_type=refresh_token`), like Docker's
  `identitytoken`.
- GHCR issues a token for any repository. GitLab and Quay issue a token that is then rejected (401,
  403).
"""

from __future__ import annotations

import ipaddress
import re
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from task.errors import NoAnswerError, RegistryAccessError, RegistryDownError, RegistryError
from task.http import Http, Response, basic
from task.registry.docker_config import RegistryLogin
from task.secret import Secret
from task.urls import origin, split

ACR_USER = "00000000-0000-0000-0000-000000000000"
_REFRESHED = (ACR_USER, "<token>")  # usernames whose password is actually a refresh token
# In seconds: the lifetime of a token if the server does not specify it (according to Docker's
# documentation), and how long before it expires a token is renewed.
_SHORTEST = 60.0
_LEEWAY = 10.0
_CLIENT = "image-update"
_LONGEST = 64 * 1024
HOW_TO_LOG_IN = (
    "set credentials: in Docker's config file (DOCKER_CONFIG), with --registry-username and"
    " --registry-password-file, or with the pull-secret annotation"
)
ClientFor = Callable[[str], Http]  # URL → the client for that server
_PIECE = re.compile(
    r'[\s,]*([A-Za-z0-9!#$&^_`|~.+*%\'-]+)(?:\s*=\s*("(?:[^"\\]|\\.)*"|[^\s,"]*))?',
    re.ASCII,
)
# Registries that, according to their documentation, use a token server with a different host name.
# Each pair consists of patterns for the full host names: (registry, token server).
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
# GitLab's registry and its token server: registry.gitlab.example.com → gitlab.example.com,
# registry.example.com → gitlab.example.com.
_GITLAB = re.compile(r"registry\.((?:[^.\s]+\.)+[^.\s]+) (?:gitlab\.)?\1")


@dataclass(frozen=True)
class BearerToken:
    """A bearer token for a repository, and its expiry time."""

    text: Secret
    ends: float  # a time on the monotonic clock

    @property
    def is_valid(self) -> bool:
        """Whether the token is still valid."""
        return time.monotonic() < self.ends


def challenges(header: str) -> dict[str, dict[str, str]]:
    """Return the parameters of each authentication scheme in a `WWW-Authenticate` header. If a
    scheme is repeated, the first occurrence wins.

    `Bearer realm="https://a/token",service="a", Basic realm="b"` becomes
    `{"bearer": {"realm": "https://a/token", "service": "a"}, "basic": {"realm": "b"}}`. Malformed
    parts are skipped.
    """
    by_scheme: dict[str, dict[str, str]] = {}
    parameters: dict[str, str] = {}  # the current scheme's parameters
    # each match is a scheme's name, or a parameter with its value
    for match in _PIECE.finditer(header[:8192]):
        name = match.group(1).lower()
        value = match.group(2)
        if value is None:  # the name of the next scheme
            parameters = {}
            by_scheme.setdefault(name, parameters)  # drops the parameters of a repeated scheme
            continue
        if value.startswith('"'):
            without_quotes = value[1:-1]
            value = re.sub(r"\\(.)", r"\1", without_quotes)
        parameters.setdefault(name, value)
    return by_scheme


def check_realm(name: str, base: str, realm: str, login: RegistryLogin | None) -> None:
    """Raise `RegistryAccessError` if the registry at the URL `base` is not allowed to refer us to
    the token server at the URL `realm`.

    If there is a `login`, the token server would receive its credentials. `name` is the registry as
    written in image names.
    """
    token_server = _host(realm)
    is_encrypted = _is_encrypted_enough(base, realm)
    if login and not trusts(base, realm, login):
        problem = "the credentials are not sent to that server"
        hint = "check the address: credentials are sent only to the registry's own host, over HTTPS"
        if is_encrypted:  # so the only problem is that the host is not trusted
            hint += (
                "; if this is the registry's token server, allow it: --registry-credentials-for"
                f" {token_server[:200]}, or an entry with the same credentials in Docker's config"
                " file"
            )
    elif not is_encrypted:
        problem = "that URL is not encrypted"
        hint = "configure the registry with an https token server"
    elif login is None and not may_be_asked(_host(base), token_server):
        # with a login, `trusts` above has already checked the host
        problem = "that is a private address, but the registry's address is not"
        hint = "check the token server configured in the registry"
    else:
        return
    message = f"registry {name} redirects to {origin(realm)[:200]!r} for a token: {problem}"
    raise RegistryAccessError(message, hint=hint)


def trusts(base: str, realm: str, login: RegistryLogin) -> bool:
    """Return whether the credentials for the registry at the URL `base` may be sent to the token
    server at the URL `realm`.
    """
    if not _is_encrypted_enough(base, realm):
        return False
    token_server = _host(realm)
    return token_server in login.hosts or may_get_login(_host(base), token_server)


def _is_encrypted_enough(base: str, realm: str) -> bool:
    """Return whether the token server at the URL `realm` uses https. http is also acceptable if the
    registry at the URL `base` uses http itself, on the same host.
    """
    if realm.startswith("https://"):
        return True
    both_http = realm.startswith("http://") and base.startswith("http://")
    return both_http and _host(realm) == _host(base)


def _host(url: str) -> str:
    return split(url).host.strip("[]")


def may_get_login(registry: str, token_server: str) -> bool:
    """Return whether a registry's credentials may be sent to a token server that the user has not
    listed. It must be on the registry's own host, or form a documented pair with the registry.
    `registry` and `token_server` are hosts without ports.

    Without this check, anyone who controls a registry's responses could obtain the credentials by
    naming their own server.
    """
    if not token_server:
        return False
    if registry == token_server or _GITLAB.fullmatch(f"{registry} {token_server}"):
        return True
    for registry_pattern, server_pattern in _PAIRS:
        if re.fullmatch(registry_pattern, registry) and re.fullmatch(server_pattern, token_server):
            return True
    return False


def may_be_asked(registry: str, token_server: str) -> bool:
    """Return whether a token server may be contacted at all, because a public registry must not
    refer us to an address in our private network. `registry` and `token_server` are hosts without
    ports.

    Only IP addresses are checked; host names are not resolved here.
    """
    server_ip = _ip_address(token_server)  # None for a host name
    if registry == token_server or server_ip is None or server_ip.is_global:
        return True
    # The token server has a private address, so the registry must also have one.
    registry_ip = _ip_address(registry)
    if registry_ip is None or registry_ip.is_global:
        return False
    # both must be on this machine, or both elsewhere in the private network
    same_network = registry_ip.is_loopback == server_ip.is_loopback
    # the metadata server of many clouds, 169.254.169.254, returns credentials
    return same_network and not server_ip.is_link_local


def _ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Convert a host to an IP address, or return None for a host name."""
    host = host.strip("[]").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return ipaddress.IPv4Address("127.0.0.1")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        # resolvers also accept addresses such as `127.1` and `0x7f.1`
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except OSError:
            return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped
    return address


def fetch(
    client_for: ClientFor,
    realm: str,
    wanted: Mapping[str, str],
    login: RegistryLogin | None,
) -> BearerToken:
    """Fetch a token from the token server at the URL `realm`, for the `service` (the registry) and
    the `scope` (the repository) in `wanted`. `client_for` returns the HTTP client for a server.

    Raises `RegistryError` and its subclasses.
    """
    parameters = {key: value for key, value in wanted.items() if value}
    try:
        answer = _ask(client_for(realm), realm, parameters, login)
    except NoAnswerError as error:
        # a wrong certificate or address will not fix itself
        is_permanent = error.kind in ("tls", "redirect", "large")
        error_type = RegistryAccessError if is_permanent else RegistryDownError
        raise error_type(
            f"no token: {error.message}", hint="check the registry's token server"
        ) from None

    # messages omit the URL's query, in which a registry may put anything
    server = origin(realm)
    if answer.status >= 400:
        raise _token_refusal(server, answer.status, login)
    token = _token_in(answer)
    if token is None:
        raise RegistryError(
            f"{server} did not return a token",
            hint="check the registry's address and its token server",
        )
    return token


def _token_in(answer: Response) -> BearerToken | None:
    """Return the token from a token server's response, or None if there is none."""
    try:
        data: Any = answer.json()
        # `access_token` is the name in OAuth2, and the only one that ACR returns
        text = data.get("token") or data.get("access_token")
        lifetime = float(data.get("expires_in") or _SHORTEST)
    except (ValueError, TypeError, AttributeError, OverflowError):
        return None
    if not _is_token(text):
        return None
    ends = time.monotonic() + max(lifetime, _SHORTEST) - _LEEWAY
    return BearerToken(Secret(text), ends)


def _token_refusal(server: str, status: int, login: RegistryLogin | None) -> RegistryError:
    """Return the error for a token server that refused to return a token."""
    if status == 429 or status >= 500:
        return RegistryDownError(
            f"{server} did not issue a token: it returned {status}",
            hint="run it again",
        )
    if login:
        return RegistryAccessError(
            f"{server} does not accept the credentials ({status})",
            hint=f"update the credentials (they are from {login.origin})",
        )
    return RegistryAccessError(
        f"{server} requires credentials to issue a token ({status})",
        hint=HOW_TO_LOG_IN,
    )


def _is_token(text: object) -> TypeGuard[str]:
    """Return whether a value can be sent as a token in a header."""
    if not isinstance(text, str) or not text.isascii() or not text.isprintable():
        return False
    return 0 < len(text) < _LONGEST


def _ask(
    http: Http,
    realm: str,
    wanted: Mapping[str, str],
    login: RegistryLogin | None,
) -> Response:
    """Request a bearer token from a token server, and return its response.

    If the login contains a refresh token, exchange that. Otherwise, log in with the password, if
    there is one.
    """
    refresh_token = _refresh_token_of(login)
    if refresh_token:
        form = {
            "grant_type": "refresh_token",
            "client_id": _CLIENT,
            **wanted,
            "refresh_token": refresh_token.reveal(),
        }
        answer = http.ask("POST", realm, data=form, again=True)
        # A token server that does not support this exchange may still accept the refresh token as a
        # password.
        was_refused = answer.status in (400, 401, 404, 405)
        has_password = login is not None and bool(login.password)
        may_try_password = was_refused and has_password
        if not may_try_password:
            return answer

    headers = basic(login.username, login.password) if login else {}
    return http.ask("GET", realm, params=wanted, headers=headers)


def _refresh_token_of(login: RegistryLogin | None) -> Secret:
    """Return the login's refresh token, which can be exchanged for a bearer token, or an empty
    secret if there is none.
    """
    if login is None:
        return Secret("")
    # With these usernames, ACR and Docker's credential helpers pass the refresh token as the
    # password.
    if login.username in _REFRESHED and not login.identity:
        return login.password
    return login.identity
