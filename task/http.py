"""The HTTP client for registries, Kubernetes, Argo CD, and forges.

The time and the size of every response are limited. Credentials are sent only to their own origin.
Query strings are not logged, because URLs may be signed. Neither are headers.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urljoin

from task import shutdown
from task.errors import CredentialsError, NoAnswerError
from task.files import exhausted
from task.plain_data import parsed_json
from task.secret import Secret
from task.text import blanked
from task.urls import origin, without_query

# the longest Retry-After to obey, in seconds; a response that demands more is returned as is
LONGEST_WAIT = 30.0
_PAUSES = (0.5, 2.0)  # seconds before the second attempt, and before each later attempt
_BUSY = (429, 500, 502, 503, 504)
_REDIRECTS = (301, 302, 303, 307, 308)
_HOPS = 5
_SLOW = 10.0  # seconds; a response that takes longer than this counts as slow
_SAFE = ("GET", "HEAD", "PUT", "DELETE")
_PRIVATE = ("authorization", "cookie", "private-token", "proxy-authorization", "x-registry-auth")
_GZIP = (
    "",
    "identity",
    "gzip",
    "x-gzip",
)  # the values of `Content-Encoding` that our requests allow

# returns the authentication headers; called for each request, because tokens expire
Login = Callable[[], Mapping[str, str]]


@dataclass(frozen=True)
class Response:
    """An HTTP response with any status, and its complete body."""

    status: int
    headers: Mapping[str, str]  # case-insensitive
    body: bytes
    url: str  # the final URL, after redirects

    def json(self) -> Any:
        """Parse the body as JSON. Raises `ValueError` if it is not JSON (`parsed_json`)."""
        return parsed_json(self.body)

    def mapping(self) -> Mapping[str, Any]:
        """Return the body as a JSON object, or {} if it is not a JSON object."""
        try:
            data = self.json()
        except ValueError:
            return {}
        return data if isinstance(data, dict) else {}

    def text(self, size: int = 300) -> str:
        """Return the start of the body, at most `size` printable characters, to quote in a
        message.
        """
        text = self.body[: size * 4].decode("utf-8", "replace")
        return blanked(text)[:size].strip()


@dataclass(frozen=True)
class Limits:
    """The limits that apply to a response."""

    connect: float = 10.0  # seconds
    silence: float = 30.0  # seconds without receiving a byte
    total: float = 120.0  # seconds for a whole response
    size: int = 64 * 1024 * 1024  # bytes in a body after decompression
    # Values in a JSON body, counted roughly; 0 means no limit.
    # In Python, 16 MB of "[],[],…" takes up half a gigabyte.
    values: int = 0
    tries: int = 3
    # seconds for all slow responses combined; 0 means no limit
    slow: float = 0.0


class Http:
    """An HTTP client for a service (one origin), with its credentials and certificates.

    Thread-safe.
    """

    def __init__(  # noqa: PLR0913 - one named option for each property of a connection
        self,
        base: str,
        *,
        login: Login | None = None,
        ca_file: str = "",  # a file with the only authorities to trust
        more_ca: str = "",  # PEM text: authorities to trust in addition to the machine's
        verify: bool = True,
        certificate: tuple[str, str] | None = None,  # the paths of the certificate and the key
        headers: Mapping[str, str] | None = None,
        proxy: str | None = None,  # None: taken from the environment; "": no proxy
        server_name: str = "",  # the host name in the certificate, if it differs from the URL's
        limits: Limits = Limits(),
        log: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self.base = base.rstrip("/")
        self._login = login
        self._limits = limits
        self._log = log
        # Imported late: importing requests is a tenth of a run's startup time, and `--version`,
        # `--help`, and a run without HTTP requests do not need it.
        from task.connections import Connections  # noqa: PLC0415

        self._connections = Connections(
            headers or {},
            ca_file=ca_file,
            more_ca=more_ca,
            verify=verify,
            certificate=certificate,
            proxy=proxy,
            server_name=server_name,
        )
        self._slow_seconds = 0.0  # seconds that all slow responses took in total

    def ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        data: bytes | Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        again: bool | None = None,
    ) -> Response:
        """Send a request, and return the response, regardless of its status. Raises `NoAnswerError`
        if there is no response, and `CredentialsError` if the credentials do not fit in a header.

        `path` is below the base URL, or is a full URL. Credentials are not sent to a different
        origin. If the server is busy or the connection breaks, the request is retried, provided
        that `again` is True, or is None and the method is safe to repeat.
        """
        is_full_url = path.startswith(("https://", "http://"))
        url = path if is_full_url else f"{self.base}{path}"
        may_retry = (method in _SAFE) if again is None else again
        tries = self._limits.tries if may_retry else 1

        for number in range(tries):
            is_last = number == tries - 1
            pause = _PAUSES[min(number, len(_PAUSES) - 1)]
            try:
                response = self._follow(
                    method,
                    url,
                    params=params,
                    json=json,
                    data=data,
                    headers=dict(headers or {}),
                )
            except NoAnswerError as error:
                may_pass = error.kind in ("unreachable", "slow")
                if is_last or not may_pass:
                    raise
                shutdown.sleep(pause)
                continue

            requested_pause = retry_after(response)
            if requested_pause is not None:
                pause = requested_pause
            is_busy = response.status in _BUSY
            if is_last or not is_busy or pause > LONGEST_WAIT:
                return response
            shutdown.sleep(pause)
        raise AssertionError  # pragma: no cover - the last attempt returns or raises

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    def _follow(
        self, method: str, url: str, params: Mapping[str, Any] | None, **content: Any
    ) -> Response:
        """Send a request, follow redirects, and return the last response.

        Only GET and HEAD follow redirects, and only to an encrypted URL, or from one unencrypted
        URL to another. `params` is the query of the first URL only. Raises `NoAnswerError`.
        """
        for _hop in range(_HOPS):
            response = self._send_once(method, url, params=params, **content)
            location = response.headers.get("Location", "")
            is_redirect = response.status in _REDIRECTS and bool(location)
            follows_redirects = method in ("GET", "HEAD")
            if not is_redirect or not follows_redirects:
                return response

            # Registries redirect blobs to a storage service, and forges redirect renamed
            # repositories to their new names.
            target = urljoin(url, location)
            is_encrypted = target.startswith("https://")
            is_unencrypted_anyway = url.startswith("http://") and target.startswith("http://")
            if not is_encrypted and not is_unencrypted_anyway:
                raise NoAnswerError(
                    "redirect",
                    f"{origin(url)} redirects to {origin(target)}, which is not encrypted",
                )
            url = target
            params = None
        raise NoAnswerError("redirect", f"{origin(url)} redirects in a loop")

    def _send_once(
        self,
        method: str,
        url: str,
        headers: dict[str, str],
        **content: Any,
    ) -> Response:
        """Send a request once, log it, and return the response, which may be a redirect.

        `content` contains the `params`, `json`, and `data` of the request. Credentials are left out
        if the URL does not belong to our service. Raises `NoAnswerError`.
        """
        is_own_origin = origin(url) == origin(self.base)
        login = {}
        if is_own_origin:
            login = dict(self._login()) if self._login else {}
            # otherwise, a traceback would contain the header
            if not all(value.isascii() and value.isprintable() for value in login.values()):
                raise CredentialsError(
                    f"the credentials for {origin(url)} contain characters that cannot be sent",
                    hint="copy them again: a token is a single line of printable ASCII characters",
                )
        else:
            headers = {
                header: value for header, value in headers.items() if header.lower() not in _PRIVATE
            }

        limits = self._limits
        began = time.monotonic()
        shutdown.check()
        self._refuse_slow_server(url)
        try:
            with self._connections.request(
                method,
                url,
                login=login,
                known=is_own_origin,
                timeout=(limits.connect, limits.silence),
                total=limits.total,
                headers=headers,
                **content,
            ) as (streamed, aborted):
                encoding = streamed.headers.get("Content-Encoding", "")
                pieces = streamed.raw.stream(65536, decode_content=True)
                body = self._body(pieces, encoding, url, began)
                # otherwise, a truncated body without a length would seem complete
                if aborted.is_set():
                    shutdown.check()  # raises if the abort was caused by a signal
                    raise self._too_slow(url)
                response = Response(streamed.status_code, streamed.headers, body, url)
        except self._connections.failures as error:
            shutdown.check()  # raises if a signal has aborted the request
            no_resources = exhausted(error)
            if no_resources:
                raise no_resources from None
            if time.monotonic() - began > limits.total:
                raise self._too_slow(url) from None
            # the text of `error` may contain the whole URL
            raise self._connections.no_answer(error, url) from None
        finally:
            duration = time.monotonic() - began
            if duration > _SLOW:
                self._slow_seconds += duration
        self._log(
            f"{method} {without_query(url)}: {response.status}, {len(body)} bytes, {duration:.2f} s"
        )
        return response

    def _refuse_slow_server(self, url: str) -> None:
        """Raise `NoAnswerError` if slow responses have already taken too much time in total."""
        most = self._limits.slow  # 0 means no limit
        if most and self._slow_seconds > most:
            raise NoAnswerError(
                "slow",
                (
                    f"{origin(url)} has been slow for {self._slow_seconds:.0f} seconds, and is no"
                    " longer contacted"
                ),
            )

    def _body(
        self,
        pieces: Iterable[bytes],
        encoding: str,
        url: str,
        began: float,
    ) -> bytes:
        """Return the whole body, joined from its decompressed `pieces`.

        `encoding` is the response's `Content-Encoding`, and `began` is when the request was sent.
        Raises `NoAnswerError` if the encoding was not requested, or if the size, the time, or the
        number of JSON values exceeds its limit.

        64 KB of gzip may expand to 64 MB, so the size is counted after decompression, piece by
        piece. This has worked since urllib3 2.6: older versions decompress more than the requested
        piece. Only gzip is accepted, because nested encodings could expand even further.
        """
        limits = self._limits
        if encoding.strip().lower() not in _GZIP:
            raise NoAnswerError(
                "redirect",
                f"{origin(url)} responded in an encoding that was not requested",
            )

        parts: list[bytes] = []
        size = 0
        for part in pieces:
            parts.append(part)
            size += len(part)
            if size > limits.size:
                raise NoAnswerError(
                    "large",
                    f"{origin(url)} returned more than {limits.size} bytes",
                )
            if time.monotonic() - began > limits.total:
                raise self._too_slow(url)
        body = b"".join(parts)

        if limits.values:
            # an estimate: each item of a list or an object follows a comma or an opening bracket
            values = body.count(b",") + body.count(b"[") + body.count(b"{")
            if values > limits.values:
                raise NoAnswerError(
                    "large",
                    f"{origin(url)} returned more than {limits.values:,} values",
                )
        return body

    def _too_slow(self, url: str) -> NoAnswerError:
        return NoAnswerError(
            "slow",
            f"{origin(url)} took more than {self._limits.total:g} seconds to respond",
        )


def bearer(token: Secret) -> dict[str, str]:
    """Return the header for authentication with a token."""
    return {"Authorization": f"Bearer {token.reveal()}"}


def basic(user: str, password: Secret) -> dict[str, str]:
    """Return the header for authentication with a username and a password or token."""
    credentials = f"{user}:{password.reveal()}".encode()
    return {"Authorization": f"Basic {b64encode(credentials).decode()}"}


def retry_after(answer: Response) -> float | None:
    """Return the number of seconds to wait according to a response's Retry-After header, or None if
    there is no such header.

    The header contains a number of seconds or a date.
    """
    value = answer.headers.get("Retry-After", "").strip()
    try:
        if value[:1].isdigit():
            return min(float(value), 1e9)  # a very large number would become infinity
        date = parsedate_to_datetime(value)
        return max(0.0, date.timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
