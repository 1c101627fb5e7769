"""Which error an answer of Argo CD's API means, or no answer at all."""

from __future__ import annotations

from typing import Any

from task.argocd.connection import Connection
from task.errors import Outpaced, SourceAccessError, SourceDownError, SourceError, TaskError
from task.http import NoAnswerError, Response
from task.text import blanked
from task.urls import origin

_TOKEN = "make one: argocd account generate-token; give it as ARGOCD_AUTH_TOKEN or --argocd-auth-token-file"  # noqa: S105
_CONFLICT, _ACCEPTABLE = 409, 300
_SHORT = 4  # letters; a shorter secret would be found in any text


def unreachable(error: NoAnswerError, to: Connection) -> TaskError:
    """The error for a request that got no answer."""
    where = f"Argo CD: {error.message}"
    if error.kind == "tls":
        return SourceAccessError(
            where, hint="--argocd-ca-file names its CA; --argocd-plaintext is for a server without TLS"
        )
    if error.kind == "redirect":
        return SourceAccessError(where, hint="name the server that answers itself: --argocd-server")
    if error.kind == "large":
        return SourceError(where, hint="narrow the Applications: --project, --selector, --namespace")
    if error.kind == "slow" or to.plaintext:
        return SourceDownError(where, hint="run it again; if it stays so, check --argocd-server")
    return SourceDownError(where, hint="run it again; if it stays so, check --argocd-server (and --argocd-plaintext)")


def explained(answer: Response, to: Connection, right: str, subject: str, secrets: tuple[str, ...]) -> Exception:
    """The error (or `Outpaced`) for an answer that is not what was asked for."""
    if origin(answer.url) != origin(to.base):
        hint = (
            "leave out --argocd-plaintext" if to.plaintext else "give the headers that the proxy wants: --argocd-header"
        )
        return SourceAccessError(f"Argo CD's server redirects to {origin(answer.url)}, where no token goes", hint=hint)
    code, message = _message(answer, secrets)
    low = message.lower()
    signs = ("too many conflicts" in low, "applying patch" in message, "testing value" in low)  # with status 500
    if answer.status == _CONFLICT or any(signs):  # a patch met another state than it was made for
        return Outpaced(f"{subject}: {message}")
    if code is None and (page := _page(answer, to)):
        return page
    if answer.status == 401:
        given = to.token or to.token_file
        what = "Argo CD does not accept the token" if given else "Argo CD wants a token, and none is given"
        return SourceAccessError(f"{what} ({message or 'unauthenticated'})", hint=_TOKEN)
    if answer.status == 403:
        hint = f"check the name, or grant it in argocd-rbac-cm: p, <subject>, {right}, allow"
        return SourceAccessError(f"{subject}: does not exist, or the token may not ({right})", hint=hint)
    said = f"{subject}: Argo CD says: {message or 'nothing'} ({answer.status})"
    if answer.status == 429 or answer.status >= 500:
        return SourceDownError(said, hint="run it again")
    hint = "check the name and --argocd-root-path" if answer.status == 404 else "see Argo CD's log for more"
    return SourceError(said, hint=hint)


def _message(answer: Response, secrets: tuple[str, ...]) -> tuple[int | None, str]:
    """The gRPC code (None: the gateway did not say this) and what it says, without secrets."""
    try:
        found: Any = answer.json()
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("code"), int):
        return None, ""
    message = found.get("message") or found.get("error")
    text = blanked(str(message or ""))
    for secret in secrets:
        text = text.replace(secret, "***") if len(secret) >= _SHORT else text
    return found["code"], text[:300]


def _page(answer: Response, to: Connection) -> TaskError | None:
    """The error for what the API itself never says: web pages, other services."""
    kind = str(answer.headers.get("Content-Type", "")).partition(";")[0].strip().lower()
    html = kind == "text/html" or answer.body.lstrip()[:1] == b"<"
    if answer.status < _ACCEPTABLE or (html and answer.status in (401, 403, 404)):
        what = "a web page" if html else f"{kind or 'something'} that is not its JSON"
        return SourceAccessError(
            f"{origin(to.base)} answers with {what} ({answer.status}), not with Argo CD's API",
            hint="is a login page in front of it (--argocd-header), or is it at another path (--argocd-root-path)?",
        )
    return None
