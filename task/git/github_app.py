"""Requests a token for a GitHub App installation, using the App's key.

The token expires after an hour.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from task.errors import CredentialsError, NoAnswerError, UnreachableError, UsageError
from task.http import Http, Limits, bearer
from task.retry import again
from task.secret import Secret

LIMITS = Limits(
    connect=10.0,
    silence=30.0,
    total=60.0,
    size=1024 * 1024,
    values=100_000,
    tries=1,
)
_PAUSES = (0.5, 2.0)  # seconds to wait before each retry
_SKEW = 60
_LIFE = 540  # seconds; GitHub accepts at most ten minutes, and its clock may be behind
_HINT = (
    "check --github-app-id, --github-app-installation-id, and the key, and that the App is"
    " installed"
)


@dataclass(frozen=True)
class App:
    """An installation of a GitHub App."""

    id: str
    installation: str
    key: Secret
    api: str  # "https://api.github.com", or "https://HOST/api/v3"


def token(
    app: App,
    ca_file: str = "",
    *,
    verify: bool = True,
    proxy: Secret = Secret(""),
    no_proxy: str = "",
) -> Secret:
    """Return a token for everything that a GitHub App's installation can access.

    If `proxy` is empty, the environment determines how the API is reached. `no_proxy` lists servers
    to reach without `proxy`. Raises `CredentialsError`, `UnreachableError`, and `UsageError`.
    """
    web_token = signed(app, int(time.time()))
    # None means the environment's proxy; "" means no proxy.
    proxy_url = None
    if proxy:
        # Imported late, as in `task.http`, because few runs log in as an App that has its own
        # proxy.
        from requests.utils import should_bypass_proxies  # noqa: PLC0415

        bypasses_proxy = should_bypass_proxies(app.api, no_proxy)
        proxy_url = "" if bypasses_proxy else proxy.reveal()
    http = Http(
        app.api,
        login=lambda: bearer(web_token),
        ca_file=ca_file,
        verify=verify,
        headers={"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"},
        proxy=proxy_url,
        limits=LIMITS,
    )
    try:
        return again(lambda: _ask_for_token(app, http), _PAUSES, UnreachableError)
    finally:
        http.close()


def signed(app: App, now: int) -> Secret:
    """Return the JSON Web Token (RS256) that identifies the App at `now`, a Unix time."""
    # Imported late: together with cryptography, this import costs 50 ms of CPU time in every pod,
    # and few pods use an App.
    import jwt  # noqa: PLC0415

    claims = {
        "iat": now - _SKEW,
        "exp": now + _LIFE,
        "iss": app.id,
    }
    try:
        return Secret(jwt.encode(claims, app.key.reveal(), algorithm="RS256"))
    except (jwt.PyJWTError, ValueError, TypeError):  # the errors' messages may quote the key
        message = "the GitHub App's key is not an unencrypted RSA private key"
        raise UsageError(message, hint="use the .pem file as downloaded from GitHub") from None


def _ask_for_token(app: App, http: Http) -> Secret:
    """Request a token, without retries. Raises `UnreachableError` if a retry may help, else
    `CredentialsError`.
    """
    try:
        answer = http.ask(
            "POST",
            f"/app/installations/{app.installation}/access_tokens",
            again=False,
        )
    except NoAnswerError as error:
        if error.kind == "tls":
            hint = "pass its certificate authority: --ca-file"
            raise CredentialsError(
                f"the TLS certificate of {app.api} was not accepted",
                hint=hint,
            ) from error
        if error.kind == "large":
            raise CredentialsError(
                error.message,
                hint="check the GitHub API address",
            ) from None
        raise UnreachableError(f"{app.api} could not be reached", hint="run it again") from error
    body = answer.mapping()
    if answer.status == 201 and isinstance(body.get("token"), str):
        return Secret(body["token"])
    if answer.status >= 500 or answer.status == 429:
        raise UnreachableError(f"{app.api} returned {answer.status}", hint="run it again")
    message = str(body.get("message", ""))[:200]
    quoted_message = f" ({message})" if message and message.isprintable() else ""
    token_description = f"a token for installation {app.installation} of App {app.id}"
    raise CredentialsError(
        f"{app.api} did not issue {token_description}: {answer.status}{quoted_message}", hint=_HINT
    )
