"""A GitHub App's key → a token for one installation, which GitHub forgets after an hour.

The signature is made by `openssl`, which every image with certificates has: a signing library would be 10 MB more
for what few runs need.
"""

from __future__ import annotations

import json
import os
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

from task import stop
from task.edges import private_folder, quick_sh
from task.edges.child_environment import child_environment
from task.edges.http import Answer, Http, Limits, NoAnswerError
from task.errors import CredentialsError, TaskError, UnreachableError, UsageError
from task.record import NamedTuple
from task.secret import Secret

LIMITS = Limits(connect=10.0, silence=30.0, total=60.0, size=1024 * 1024, values=100_000, tries=1)
_PAUSES = (0.5, 2.0, 0.0)  # seconds before the next try; after the last there is none
_SKEW, _LIFE = 60, 540  # seconds; GitHub takes ten minutes at most, and its clock may be behind
_HINT = "check --github-app-id, --github-app-installation-id and the key; the App must be installed there"


class App(NamedTuple):
    """A GitHub App as it is installed somewhere."""

    id: str
    installation: str
    key: Secret
    api: str  # "https://api.github.com", or "https://HOST/api/v3"


class Way(NamedTuple):
    """How the API is reached."""

    ca_file: str = ""
    verify: bool = True
    proxy: Secret = Secret("")  # "": as the environment says
    no_proxy: str = ""


def token(app: App, temporary: str, way: Way) -> Secret:
    """A token for everything the installation may do. Raises `CredentialsError`, `UnreachableError`, `UsageError`."""
    proof = signed(app, temporary, int(time.time()))
    for pause in _PAUSES:
        try:
            return _ask(app, proof, way)
        except UnreachableError:
            if not pause:
                raise
        stop.sleep(pause)
    raise AssertionError  # pragma: no cover - the last pause is 0


def signed(app: App, temporary: str, now: int) -> Secret:
    """The JSON Web Token (RS256) with which the App proves itself."""
    claims = {"iat": now - _SKEW, "exp": now + _LIFE, "iss": app.id}
    text = ".".join(_coded(json.dumps(part).encode()) for part in ({"alg": "RS256", "typ": "JWT"}, claims))
    return Secret(f"{text}.{_coded(_signature(text, app.key, temporary))}")


def _coded(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _signature(text: str, key: Secret, temporary: str) -> bytes:
    """What is signed is no secret, and lies in the file; the key goes through a pipe."""
    sh, folder = quick_sh.load(), private_folder.make(temporary)
    try:
        path, into = os.path.join(folder, "text"), os.path.join(folder, "signature")
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        argv = ("dgst", "-sha256", "-sign", "/dev/stdin", "-out", into, path)
        sh.Command("openssl")(
            *argv, _in=key.reveal(), _tty_in=False, _tty_out=False, _env=child_environment(os.environ)
        )
        with open(into, "rb") as signature:
            return signature.read()
    except sh.CommandNotFound:
        raise UsageError("openssl is not installed", hint="install it: a GitHub App's key signs with it") from None
    except sh.ErrorReturnCode:
        raise UsageError(
            "the GitHub App's key is not an RSA private key without passphrase", hint="give the .pem file as downloaded"
        ) from None
    finally:
        private_folder.remove(folder)


def _ask(app: App, proof: Secret, way: Way) -> Secret:
    http = Http(
        app.api,
        login=lambda: {"Authorization": f"Bearer {proof.reveal()}"},
        ca_file=way.ca_file,
        verify=way.verify,
        headers={"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"},
        proxy=_proxy(app.api, way),
        limits=LIMITS,
    )
    try:
        answer = http.ask("POST", f"/app/installations/{app.installation}/access_tokens", again=False)
    except NoAnswerError as error:
        if error.kind == "tls":
            raise CredentialsError(
                f"the TLS certificate of {app.api} was not accepted", hint="give its certificate authority: --ca-file"
            ) from error
        if error.kind == "large":
            raise CredentialsError(error.message, hint="check the address of the GitHub App's API") from None
        raise UnreachableError(f"{app.api} could not be reached", hint="run it again") from error
    finally:
        http.close()
    said = _said(answer)
    if answer.status == 201 and isinstance(said.get("token"), str):  # noqa: PLR2004 - HTTP
        return Secret(said["token"])
    raise _refused(app, answer)


def _proxy(api: str, way: Way) -> str | None:
    """None: what the environment says; "" is none."""
    if not way.proxy:
        return None
    from requests.utils import should_bypass_proxies

    return "" if should_bypass_proxies(api, way.no_proxy) else way.proxy.reveal()


def _refused(app: App, answer: Answer) -> TaskError:
    if answer.status >= 500 or answer.status == 429:  # noqa: PLR2004 - HTTP
        return UnreachableError(f"{app.api} answered {answer.status}", hint="run it again")
    message = str(_said(answer).get("message", ""))[:200]
    words = f" ({message})" if message and message.isprintable() else ""
    return CredentialsError(
        f"{app.api} gives no token for installation {app.installation} of App {app.id}: {answer.status}{words}",
        hint=_HINT,
    )


def _said(answer: Answer) -> Mapping[str, Any]:
    try:
        said = answer.json()
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
