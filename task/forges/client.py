"""A client for the API of a forge (a Git host such as GitHub): repository addresses, requests, and
errors.

An error response becomes one of our errors, with the forge's message but without secrets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar
from urllib.parse import urljoin

from task import shutdown
from task.errors import (
    CredentialsError,
    ForgeError,
    Malformed,
    NoAnswerError,
    RepositoryError,
    TaskError,
    UnreachableError,
)
from task.git.hosts import wrong_issuer
from task.http import Http, Limits, Response, bearer, retry_after
from task.plain_data import dig
from task.secret import Secret
from task.text import one_line, shortened
from task.urls import origin, path_part

STAYS = "the pushed branch is kept, and the next run completes the request"
SOFTWARE = {
    "azure": "Azure DevOps",
    "bitbucket": "Bitbucket Cloud",
    "bitbucket-server": "Bitbucket Data Center",
    "gitea": "Gitea or Forgejo",
    "github": "GitHub",
    "gitlab": "GitLab",
}
LONGEST_WAIT = 30.0  # maximum seconds to wait for a rate limit; a longer wait is an error
# Limits on responses, because an Application's repoURL may point to any server. A list of a hundred
# pull requests with long descriptions takes at most 10 MB.
LIMITS = Limits(
    total=60.0,
    size=16 * 1024 * 1024,
    values=1_000_000,
    slow=600.0,
)
_TURNS = 3
_MOVED = (301, 307, 308)
_LONGEST = 300  # maximum length of the forge's message when shown, in characters
_UNKNOWN_WAIT = 60.0  # seconds; GitHub's documentation recommends a minute by default
# the JSON fields in which forges return messages
_TEXTS = (
    "message",
    "detail",
    "error_description",
    "error",
    "errors",
    "fields",
)


@dataclass(frozen=True)
class ForgeAddress:
    """A repository on a forge."""

    forge: str  # the forge's name in `task.forges.places`
    host: str  # as shown in messages: "github.com", "git.example.com:8443"
    api: str  # the API's base URL, without a trailing slash: "https://api.github.com"
    # (owner, repository); GitLab: all groups, then the project; Azure: (organization, project,
    # repository); Data Center: (project key or ~user, repository). Decoded: quote each part for a
    # URL.
    project: tuple[str, ...]
    web: str = ""  # the repository's page, without a trailing slash


def web_below(root: str, parts: Sequence[str]) -> str:
    """Return the URL formed by appending these path segments to a forge's root URL."""
    return "/".join((root, *map(path_part, parts)))


def no_repository_error(forge: str, shape: str) -> Malformed:
    """Return the error for a URL that is not a repository on this forge. `shape` is an example of a
    correct URL.
    """
    return Malformed(f"the URL does not point to a repository on {forge}", f"use {shape}")


@dataclass(frozen=True)
class ForgeToken:
    """An API token."""

    secret: Secret = Secret("")
    user: str = ""  # for credentials with a username (Bitbucket, Azure); "" means a bare token


@dataclass(frozen=True)
class Reach:
    """How to reach a repository's forge: everything needed to create a client for it."""

    place: ForgeAddress
    token: ForgeToken
    more_ca: str = ""
    log: Callable[[str], None] = lambda _line: None
    limits: Limits = LIMITS
    # called with a sentence for the user, for example that the repository has moved
    warn: Callable[[str], None] = lambda _sentence: None


class Limited(Exception):
    """The `__cause__` of an error if the forge's rate limit was exceeded. The request was not
    executed, and an immediate retry would not help.
    """


class Client:
    """A client for a forge's API.

    The client waits out short rate limits, and returns JSON or raises our errors. In this folder,
    `answer` means a whole HTTP response, and `response` only the JSON in it.
    """

    repository: ClassVar[str]  # template for a repository's API path
    headers: ClassVar[Mapping[str, str]] = {}
    # where the forge's repository data contains the URL of the web page (keys and indexes)
    page: ClassVar[tuple[str | int, ...]]

    def __init__(self, reach: Reach, needs: str, stays: str = STAYS) -> None:
        """`needs` and `stays` are used in error messages: the permission that the token needs, and
        what is kept despite a failure.
        """
        self.reach = reach
        self.path = self.path_of(reach.place.project)
        self.moved_to = ""  # the renamed repository's web page, if the forge reports a rename
        self._needs = needs
        self._stays = stays
        # the original and the current prefix of the repository's API URLs
        self._moved: tuple[str, str] | None = None
        self._http = Http(
            reach.place.api,
            login=self.login,
            more_ca=reach.more_ca,
            headers=self.headers,
            limits=reach.limits,
            log=reach.log,
        )

    def path_of(self, project: Sequence[str]) -> str:
        """Return a repository's API path."""
        return self.repository.format(*map(path_part, project))

    def login(self) -> Mapping[str, str]:
        """Return the authentication header."""
        return bearer(self.reach.token.secret)

    def ask(
        self,
        method: str,
        path: str,
        what: str,
        *,
        params: dict[str, Any] | None = None,
        json: Any = None,
        expected: tuple[int, ...] = (),
        repeatable: bool | None = None,
    ) -> Response:
        """Send an HTTP request to the forge, and return the response.

        `what` completes the sentence "could not …" in error messages. `repeatable` says whether the
        request may be sent again if it fails (None: only if the method is safe).

        For a status of 300 or above that is not in `expected`, raise the error from `error_for`.
        """
        shutdown.check()  # raises an error if the run has to stop
        answer = self._ask_patiently(
            method,
            path,
            what,
            params=params,
            json=json,
            again=repeatable,
        )
        if answer.status < 300 or answer.status in expected:
            return answer
        is_rate_limit = rate_limit_wait(answer) is not None
        cause = Limited() if is_rate_limit else None  # tells callers that nothing was executed
        raise self.error_for(answer, what) from cause

    def json(self, method: str, path: str, what: str, **more: Any) -> Any:
        """Send an HTTP request to the forge, and return the JSON in the response, or None if its
        status is 300 or above and in `expected`.

        `more` contains the other arguments of `ask`. Raises the same errors as `ask`, and
        `UnreachableError` if the response is not JSON.
        """
        answer = self.ask(method, path, what, **more)
        return self.parse(answer, what) if answer.status < 300 else None

    def parse(self, answer: Response, what: str) -> Any:
        """Return the response's JSON. Raises `UnreachableError` if it is not JSON.

        `what` completes the sentence "could not …" in the error message.
        """
        try:
            return answer.json()
        except ValueError:
            raise UnreachableError(
                f"{self.reach.place.host} returned something that is not JSON: could not {what}",
                hint="check the Git host's address, then run it again",
            ) from None

    def error_for(self, answer: Response, what: str) -> TaskError:
        """Return the error for a response with a status of 300 or above.

        401: `CredentialsError`; 403 and 404: `RepositoryError`, with the required permission; rate
        limits, 408, and 5xx: `UnreachableError`; redirects and everything else: `ForgeError`.
        `what` completes the sentence "could not …".
        """
        host = self.reach.place.host
        needs = self._needs
        stays = self._stays
        message = self.message_in(answer)
        because = f"{answer.status} ({message})" if message else f"{answer.status}"

        wait = rate_limit_wait(answer)
        if wait is not None:
            return UnreachableError(
                f"{host}: rate limit exceeded; could not {what}: {because}",
                hint=f"run it again in {wait:.0f} seconds; {stays}",
            )
        if answer.status == 401:
            return CredentialsError(
                f"{host} does not accept the API token: could not {what}: {because}",
                hint=f"{self.valid_token()}: {needs}; {stays}",
            )
        if answer.status == 403:
            return RepositoryError(
                f"{host} does not allow this API token to {what}: {because}",
                hint=f"{needs}; {stays}",
            )
        if answer.status == 404:
            return RepositoryError(
                f"could not {what}: {host} reports that it does not exist, or this API token cannot"
                f" see it: {because}",
                hint=f"check the repository's URL and the token: {needs}",
            )
        if answer.status >= 500 or answer.status == 408:
            return UnreachableError(
                f"{host} failed: could not {what}: {because}",
                hint=f"run it again; {stays}",
            )
        if answer.status < 400:
            return ForgeError(
                f"{host} redirects the request to another address: could not {what}: {because}",
                hint="the repository may have moved: use its current URL",
            )
        return ForgeError(
            f"{host} rejected the request: could not {what}: {because}",
            hint=f"fix the reported problem; {stays}",
        )

    def valid_token(self) -> str:
        """Return the hint for a rejected token. If the token has another forge's prefix, the hint
        says so.
        """
        address = self.reach.place
        advice = wrong_issuer(self.reach.token.secret, address.host, SOFTWARE[address.forge])
        if not advice:
            advice = "replace it if it has expired, or pass another token"
        return f"{advice} in IMAGE_UPDATE_FORGE_TOKEN or --forge-token-file"

    def message_in(self, answer: Response) -> str:
        """Return the forge's message in a form that is safe to show: any token in it is masked."""
        return forge_message(answer, self.reach.token.secret)

    @cached_property
    def me(self) -> str:
        """The id of the token's owner. Used only for Gitea and GitLab, which have this endpoint."""
        return dig(self.json("GET", "/user", "look up the API token's owner"), "id")

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _ask_patiently(self, method: str, path: str, what: str, **more: Any) -> Response:
        """Send a request, and return the response. If a rate limit was exceeded and the required
        wait is short, wait and retry.

        `what` completes the sentence "could not …" in the error if there is no response.
        """
        for turn in range(_TURNS):
            try:
                answer = self._ask_at_current_address(method, path, **more)
            except NoAnswerError as error:
                raise no_response_error(error, what, self._stays) from error
            wait = rate_limit_wait(answer)
            is_last_turn = turn == _TURNS - 1
            if wait is None or wait > LONGEST_WAIT or is_last_turn:
                return answer
            shutdown.sleep(wait)
        raise AssertionError  # pragma: no cover - the last iteration returns

    def _ask_at_current_address(self, method: str, path: str, **more: Any) -> Response:
        """Send a request to the repository's current address, and return the response.

        A forge redirects requests for a renamed repository. Gitea also redirects POST and PATCH,
        with 301 (GitHub: 307); GitLab rejects them (405). So this remembers the new address from
        the first redirect, and uses it for all later requests.
        """
        url = path if path.startswith("http") else f"{self.reach.place.api}{path}"
        if self._moved:
            old_prefix, new_prefix = self._moved
            if url.startswith(old_prefix):
                url = f"{new_prefix}{url.removeprefix(old_prefix)}"

        answer = self._http.ask(method, url, **more)
        if answer.status in _MOVED:  # the HTTP client follows redirects only for GET and HEAD
            location = urljoin(url, answer.headers.get("Location", ""))
            if self._remember_rename(url, location):  # true only the first time
                return self._ask_at_current_address(method, path, **more)
        self._remember_rename(url, answer.url)  # they differ if the client followed a redirect
        return answer

    def _remember_rename(self, url: str, target: str) -> bool:
        """If the redirect from `url` to `target` means that the repository was renamed, remember
        its new address, warn the user, and return True. Otherwise, and after the first rename,
        return False.

        After a rename, the two URLs have the same ending. For a redirect from
        …/repos/acme/web/pulls to …/repositories/7/pulls, the repository's addresses are
        …/repos/acme/web and …/repositories/7.
        """
        old_url = url.partition("?")[0]
        new_url = target.partition("?")[0]
        # a redirect to another server is not a rename, and may lead to a sign-in page
        if self._moved or old_url == new_url or origin(old_url) != origin(new_url):
            return False

        # remove the common ending; the rest is the repository's old and new address
        old_parts = old_url.split("/")
        new_parts = new_url.split("/")
        while old_parts and new_parts and old_parts[-1] == new_parts[-1]:
            old_parts.pop()
            new_parts.pop()
        old_prefix = "/".join(old_parts)
        new_prefix = "/".join(new_parts)

        has_common_ending = old_prefix != old_url
        is_below_api = old_prefix.startswith(f"{self.reach.place.api}/")
        if not has_common_ending or not is_below_api:
            return False
        self._moved = old_prefix, new_prefix
        self._report_rename()
        return True

    def _report_rename(self) -> None:
        """Set `moved_to` to the URL of the renamed repository's page, or "" if it is unknown, and
        warn the user.

        The new API address may contain only a numeric id, so look up the page through the API.
        """
        old_page = self.reach.place.web
        try:
            answer = self._ask_at_current_address("GET", self.path)
            self.moved_to = dig(answer.json(), *self.page) if answer.status == 200 else ""
        except (NoAnswerError, ValueError):
            self.moved_to = ""
        new_page = self.moved_to or "another address"
        self.reach.warn(
            f"{old_page} has moved to {new_page}: use its current URL (repoURL, git-repository)"
        )


def no_response_error(error: NoAnswerError, what: str, stays: str = STAYS) -> TaskError:
    """Return the error for a request without a response.

    `what` completes the sentence "could not …". `stays` says what is kept despite the failure.
    """
    if error.kind == "tls":
        hint = "pass its certificate authority: --ca-file FILE"
        return CredentialsError(f"{error.message}: could not {what}", hint=hint)
    return UnreachableError(f"{error.message}: could not {what}", hint=f"run it again; {stays}")


def rate_limit_wait(answer: Response) -> float | None:
    """Return how many seconds to wait if a rate limit caused this response, else None.

    GitHub also returns 403 for rate limits: the primary limit sets x-ratelimit-remaining, the
    secondary limit Retry-After or a message (docs.github.com, "Rate limits for the REST API").
    """
    if answer.status == 429:
        return seconds_until_allowed(answer)
    if answer.status != 403:
        return None
    message = forge_message(answer).lower()
    is_rate_limit = (
        "Retry-After" in answer.headers
        or answer.headers.get("x-ratelimit-remaining", "").strip() == "0"
        or "secondary rate limit" in message
        or "abuse detection" in message
    )
    return seconds_until_allowed(answer) if is_rate_limit else None


def seconds_until_allowed(answer: Response) -> float:
    """Return the seconds until a rate limit allows the next request, according to the response's
    headers, or a minute if the headers do not say.
    """
    seconds = retry_after(answer)
    if seconds is not None:
        return seconds
    remaining = _rate_limit_header(answer, "Remaining") or "0"
    reset_time = _rate_limit_header(answer, "Reset")  # Unix time
    # If requests remain, GitHub's secondary limit was exceeded. The reset time is then the primary
    # limit's, which may be an hour away.
    is_primary_limit = remaining.strip() == "0"
    has_reset_time = reset_time.strip().isdecimal()
    if not is_primary_limit or not has_reset_time:
        return _UNKNOWN_WAIT
    return max(0.0, float(reset_time) - time.time()) + 1  # the server's clock may be behind


def _rate_limit_header(answer: Response, name: str) -> str:
    """Return the value of this rate limit header, or "". Forges spell its name in two ways."""
    headers = answer.headers
    return headers.get(f"x-ratelimit-{name.lower()}") or headers.get(f"RateLimit-{name}") or ""


def forge_message(answer: Response, token: Secret = Secret("")) -> str:
    """Return the message in a forge's response as one short line, or "" if there is none. Any token
    in it is masked.
    """
    try:
        texts = filter(None, _message_texts(answer.json()))
        message = "; ".join(dict.fromkeys(texts))  # without duplicates
    except ValueError:  # not JSON
        is_page = "html" in answer.headers.get("Content-Type", "")
        message = "" if is_page else answer.text()
    # only a rough truncation: the token has to be masked before the final one
    line = one_line(message[: 4 * _LONGEST])
    if token:
        line = line.replace(token.reveal(), "***")
    return shortened(line, _LONGEST)


def _message_texts(data: Any, depth: int = 0) -> Iterator[str]:
    """Yield the strings in the fields that forges use for messages, such as `message` and `errors`,
    at any depth of a JSON response.

    A nested mapping without any of these fields may itself describe an error, such as {"field":
    "head", "code": "invalid"}. In that case, yield each of the mapping's fields: "field: head".
    """
    if isinstance(data, str):
        yield data
        return
    if depth >= 5:  # deep enough for every forge
        return
    if isinstance(data, list):
        for item in data[:10]:
            yield from _message_texts(item, depth + 1)
    if isinstance(data, dict):
        message_fields = [name for name in _TEXTS if data.get(name)]
        for name in message_fields:
            yield from _message_texts(data[name], depth + 1)
        if not message_fields and depth > 0:
            for name, value in list(data.items())[:10]:
                for text in _message_texts(value, depth + 1):
                    yield f"{name}: {text}"


def numbered(number: str, host: str, what: str = "a pull request") -> str:
    """Return the number of the pull request (or other object, `what`) from a response. All later
    steps need this number.

    Raises `UnreachableError` if the number is "", because the response did not contain one.
    """
    if number:
        return number
    raise UnreachableError(f"{host} returned something that is not {what}", hint="run it again")
