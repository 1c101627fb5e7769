"""The HTTP client's connections: requests, with a time limit for the whole response.

This is a separate module because it imports requests and urllib3, and many runs only need git.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection

from task import shutdown, threads
from task.errors import NoAnswerError
from task.urls import origin

_SEE = "(see HTTPS_PROXY and NO_PROXY)"
# These errors may also refer to the requested URL, but only a proxy's URL is written by hand.
_WRONG_PROXY = (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema)
_TIMEOUTS = (
    requests.exceptions.Timeout,
    TimeoutError,
    urllib3.exceptions.ReadTimeoutError,
)


class Connections:
    """The connections to a service, and to the servers that it redirects to. Thread-safe."""

    failures = (OSError, urllib3.exceptions.HTTPError)  # exceptions raised by `request`

    def __init__(
        self,
        headers: Mapping[str, str],
        *,
        ca_file: str,
        more_ca: str,
        verify: bool,
        certificate: tuple[str, str] | None,
        proxy: str | None,
        server_name: str,
    ) -> None:
        """The arguments are those of `Http`, or "" or None if not set."""
        self._session = requests.Session()
        # Only accept gzip: its ratio is known, and `Http` counts decompressed bytes.
        self._session.headers.update(
            {
                "User-Agent": "image-update",
                "Accept-Encoding": "gzip",
                **headers,
            }
        )
        # Cookies are never used to log in.
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))

        tls: dict[str, Any] = {}
        if server_name:
            tls = {"server_hostname": server_name, "assert_hostname": server_name}
        if more_ca and verify:
            # requests adds its own CA bundle to this TLS context
            tls["ssl_context"] = _context_with(more_ca)
        self._session.mount("http://", _Adapter())
        self._session.mount("https://", _Adapter(**tls))

        # requests' `verify` argument: whether to verify certificates, or the CA file to use
        self._verify: bool | str = False
        if verify:
            self._verify = ca_file or True
        else:
            urllib3.disable_warnings()  # requested by an option or an Argo CD secret (`insecure`)
        self._certificate = certificate
        self._proxies = None  # requests then uses the proxies from the environment
        if proxy is not None:
            # "*" means no proxy for any host
            self._proxies = {"http": proxy, "https": proxy, "no_proxy": "" if proxy else "*"}

    @contextmanager
    def request(
        self,
        method: str,
        url: str,
        *,
        login: Mapping[str, str],
        known: bool,
        timeout: tuple[float, float],
        total: float,
        **what: Any,
    ) -> Iterator[tuple[requests.Response, threading.Event]]:
        """Send a request. Yield its response, and an event that is set if the request is aborted
        because it takes too long or a signal arrives.

        `login` contains the authentication headers. Our client certificate is sent only to a
        `known` server. `timeout` contains the limits in seconds for connecting and for silence, and
        `total` is the limit for the whole response. `what` contains further arguments for requests,
        such as `params`.
        """
        with (
            _abort_after(total) as aborted,
            self._session.request(
                method,
                url,
                auth=_Headers(login),
                stream=True,
                allow_redirects=False,
                timeout=timeout,
                verify=self._verify,
                cert=self._certificate if known else None,
                proxies=self._proxies,
                **what,
            ) as answer,
        ):
            yield answer, aborted

    def close(self) -> None:
        """Close all connections."""
        self._session.close()

    def no_answer(self, error: Exception, url: str) -> NoAnswerError:
        """Return the error to raise for a request to `url` that has failed with `error`.

        The error contains our own message, because messages from requests contain the whole URL,
        and a proxy's URL may contain a password.
        """
        server = origin(url)
        if isinstance(error, _WRONG_PROXY) and self._is_proxied(url):
            problem = "is not configured correctly"
            return NoAnswerError("unreachable", f"the proxy to {server} {problem} {_SEE}")
        if isinstance(error, requests.exceptions.ProxyError):
            problem = "could not be reached, or failed"
            return NoAnswerError("unreachable", f"the proxy to {server} {problem} {_SEE}")

        if isinstance(error, requests.exceptions.SSLError):
            if "certificate" in str(error).lower():
                return NoAnswerError("tls", f"the TLS certificate of {server} was not accepted")
            return NoAnswerError("unreachable", f"cannot establish a TLS connection to {server}")

        if isinstance(error, _TIMEOUTS):
            through = f" through the proxy {_SEE}" if self._is_proxied(url) else ""
            return NoAnswerError("slow", f"{server} did not respond in time{through}")

        is_from_connection = isinstance(
            error, requests.exceptions.RequestException | ConnectionError
        )
        # raised while reading a local file
        if isinstance(error, OSError) and not is_from_connection:
            return NoAnswerError(
                "tls",
                "cannot read the file with the certificate authorities or the client certificate",
            )
        problem = "could not be reached" if _never_connected(error) else "closed the connection"
        return NoAnswerError("unreachable", f"{server} {problem}")

    def _is_proxied(self, url: str) -> bool:
        """Return whether requests to this URL go through a proxy."""
        with suppress(ValueError):  # the value may not be a URL
            own_proxies = dict(self._proxies or {})
            settings = self._session.merge_environment_settings(url, own_proxies, None, None, None)
            proxy = requests.utils.select_proxy(url, settings["proxies"])
            return bool(proxy)
        return False


def _context_with(more_ca: str) -> ssl.SSLContext:
    """Return a TLS context that trusts additional certificate authorities. Raises
    `NoAnswerError`.
    """
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(cadata=more_ca)
    except (ssl.SSLError, ValueError):
        raise NoAnswerError("tls", "the certificate authorities are not PEM certificates") from None
    return context


def _never_connected(error: BaseException) -> bool:
    """Return whether the connection could not be opened at all, judging by the cause of
    the error.
    """
    cause = error.args[0] if error.args else None  # requests wraps the error from urllib3 …
    reason = getattr(cause, "reason", cause)  # … which may wrap the error from the connection
    return isinstance(
        reason, urllib3.exceptions.NewConnectionError | urllib3.exceptions.NameResolutionError
    )


class _Headers(requests.auth.AuthBase):
    """Sets the authentication headers. Without an `auth` object, requests would use credentials
    from ~/.netrc.
    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers.update(self._headers)
        return request


# A socket's own timeout restarts with every byte, so a server that sends bytes slowly could block
# us forever. With the code below, one thread shuts down the connection that another thread is
# waiting for, even before the first header has arrived.


class _ConnectionInUse:
    """The connection that a thread is waiting for. Another thread may shut it down."""

    connection: HTTPConnection | None = None
    # the socket, kept here because a response without a length removes it from the connection
    sock: socket.socket | None = None


_THREAD = threading.local()  # its attribute `waiting` is the connection in use
# seconds between attempts to shut down a connection, which may have just been opened
_AGAIN = 0.2


class _Connection(HTTPConnection):
    """A connection that registers itself as the one that its thread is waiting for."""

    def request(self, *args: Any, **how: Any) -> None:
        waiting: _ConnectionInUse = _THREAD.waiting
        waiting.connection = self
        waiting.sock = None
        try:
            super().request(*args, **how)
        finally:
            waiting.sock = self.sock


class _TlsConnection(_Connection, HTTPSConnection):
    pass


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class _Adapter(HTTPAdapter):
    """The requests adapter for our connections, which it opens with the TLS arguments `tls`."""

    def __init__(self, **tls: Any) -> None:
        self._tls = tls
        super().__init__(pool_connections=4, pool_maxsize=32)

    def init_poolmanager(self, *args: Any, **how: Any) -> None:
        super().init_poolmanager(*args, **(how | self._tls))
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}

    def proxy_manager_for(self, proxy: str, **how: Any) -> urllib3.ProxyManager:
        manager: urllib3.ProxyManager = super().proxy_manager_for(proxy, **(how | self._tls))
        manager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
        return manager


@contextmanager
def _abort_after(seconds: float) -> Iterator[threading.Event]:
    """Abort the request made by this thread inside the `with` block if it takes longer than
    `seconds` or a signal arrives. Yield an event that is set if the request is aborted.
    """
    waiting = _ConnectionInUse()
    _THREAD.waiting = waiting  # `_Connection.request` adds the connection
    aborted = threading.Event()
    finished = threading.Event()

    def abort() -> None:
        """Shut down the socket, so that the thread that reads from it receives an error."""
        aborted.set()
        sock = waiting.sock
        if sock is None and waiting.connection:
            sock = waiting.connection.sock
        if isinstance(sock, socket.socket):
            # SSLSocket.shutdown would turn off TLS, and a reader would then receive raw bytes
            with suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def watch() -> None:
        """Abort the request after `seconds`. Runs in a separate thread."""
        # the connection may not be open yet at the first attempt, so the attempt is repeated
        while not finished.wait(_AGAIN if aborted.is_set() else seconds):
            abort()

    threads.start(watch)
    try:
        with shutdown.ending(abort):
            yield aborted
    finally:
        finished.set()
