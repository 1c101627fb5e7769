"""Returns the error for an unsuccessful answer of Argo CD's API, or for a missing one."""

from __future__ import annotations

import re
from typing import Any

from task.argocd.connection import Connection
from task.errors import AbsentError, Outpaced, SourceAccessError, SourceDownError, SourceError, TaskError, UsageError
from task.http import NoAnswerError, Response
from task.text import blanked, both_ends
from task.urls import origin

_TOKEN = "create one with argocd account generate-token, and give it as ARGOCD_AUTH_TOKEN or --argocd-auth-token-file"  # noqa: S105
_CONFLICT, _ACCEPTABLE = 409, 300
_NOT_FOUND = 5  # gRPC's code
_SHORT = 4  # characters; a shorter secret would match parts of any text


def unreachable(error: NoAnswerError, to: Connection) -> TaskError:
    """Return the error for a request without an answer."""
    where = f"Argo CD: {error.message}"
    if error.kind == "tls":
        return SourceAccessError(
            where, hint="name its authority with --argocd-ca-file; for a server without TLS, give --argocd-plaintext"
        )
    if error.kind == "redirect":
        return SourceAccessError(where, hint="give the address that it redirects to: --argocd-server")
    if error.kind == "large":
        return SourceError(where, hint="narrow the Applications: --project, --selector, --namespace")
    if error.kind == "slow" or to.plaintext:
        return SourceDownError(where, hint="run it again; if that does not help, check --argocd-server")
    return SourceDownError(
        where, hint="run it again; if that does not help, check --argocd-server (and --argocd-plaintext)"
    )


def explained(answer: Response, to: Connection, right: str, subject: str, secrets: tuple[str, ...]) -> Exception:
    """Return the error (or `Outpaced`) for an unsuccessful answer."""
    if origin(answer.url) != origin(to.base):
        hint = (
            "leave out --argocd-plaintext" if to.plaintext else "give the headers that the proxy wants: --argocd-header"
        )
        return SourceAccessError(
            f"Argo CD's server redirects to {origin(answer.url)}, and no token is sent there", hint=hint
        )
    code, message = _message(answer, secrets)
    low = message.lower()
    # Mistakes of the client have the code 2 (unknown) as well, with status 500.
    if answer.status == _CONFLICT or any(sign in low for sign in _MEANWHILE):
        return Outpaced(f"{subject}: {message}")
    if code is None and (page := _page(answer, to)):
        return page
    if answer.status == 401:
        given = to.token or to.token_file
        what = "Argo CD does not accept the token" if given else "Argo CD wants a token, and none is given"
        return SourceAccessError(f"{what} ({message or 'unauthenticated'})", hint=_TOKEN)
    if answer.status == 403:
        return _forbidden(message, right, subject)
    if answer.status == 404 and code == _NOT_FOUND:
        return AbsentError(f"{subject}: does not exist", hint="check the name and its namespace")
    if "parsing the selector" in low:
        return UsageError(f"--selector: Argo CD says: {message}", hint="write a=b, a!=b, a in (b,c), a or !a")
    said = f"{subject}: Argo CD says: {message or 'nothing'} ({answer.status})"
    if "unable to generate manifests" in low or "repository not accessible" in low:
        # Argo CD accepts a patch only after its repository server has rendered the manifests with it.
        if any(sign in low for sign in _PASSING):
            return SourceDownError(said, hint="Argo CD's repository server could not make the manifests: run it again")
        hint = "the manifests cannot be made with this change: correct the Application's source, or what it sets"
        return SourceError(said, hint=hint)
    if any(sign in low for sign in _MALFORMED):
        return SourceError(said, hint="the Application is not built as Image Update expects: write to Git instead")
    if answer.status == 429 or answer.status >= 500:
        return SourceDownError(said, hint="run it again")
    hint = "check the name and --argocd-root-path" if answer.status == 404 else "see Argo CD's log for more"
    return SourceError(said, hint=hint)


# The Application has changed: the patch's first operation tests the resourceVersion.
_MEANWHILE = ("too many conflicts", "testing value")
# The test succeeded, but the patch does not fit.
_MALFORMED = ("error applying patch", "error unmarshaling patched app", "error decoding json patch")
# The repository server, or Git behind it, was temporarily unavailable. Errors of Helm and Kustomize contain none of
# these.
_PASSING = (
    "code = unavailable",
    "code = deadlineexceeded",
    "code = canceled",
    "code = resourceexhausted",
    "connection refused",
    "connection reset",
    "context deadline exceeded",
    "i/o timeout",
    "tls handshake timeout",
    "no such host",
    "temporary failure",
)


def _forbidden(message: str, right: str, subject: str) -> SourceAccessError:
    """Return the error for a 403. Argo CD sends one for a missing Application as well, unless the caller may get it."""
    said = _DENIED.search(message)
    if not said:
        hint = f"check the name, or grant it in argocd-rbac-cm: p, <subject>, {right}, allow"
        return SourceAccessError(f"{subject}: does not exist, or the token may not ({right})", hint=hint)
    missing, who = said["right"].strip(), said["who"] or "<subject>"
    return SourceAccessError(
        f"{subject}: {who if said['who'] else 'the token'} may not ({missing})",
        hint=f"grant it in argocd-rbac-cm: p, {who}, {missing}, allow",
    )


_DENIED = re.compile(r"permission denied: (?P<right>[^,]+, [^,]+, [^,]+)(?:, sub: (?P<who>[^,]+))?")


def _message(answer: Response, secrets: tuple[str, ...]) -> tuple[int | None, str]:
    """Return the gRPC code (None if the gateway sent none) and the message without secrets."""
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
    return found["code"], both_ends(
        " ".join(text.replace("Use --debug flag to render out invalid YAML", "").split()), 400
    )


def _page(answer: Response, to: Connection) -> TaskError | None:
    """Return the error for an answer that is not from the API, such as a web page or another service."""
    kind = str(answer.headers.get("Content-Type", "")).partition(";")[0].strip().lower()
    html = kind == "text/html" or answer.body.lstrip()[:1] == b"<"
    # With a root path, the server answers "404 page not found" as plain text on all other paths.
    if answer.status < _ACCEPTABLE or answer.status == 404 or (html and answer.status in (401, 403)):
        what = "a web page" if html else f"{kind or 'something'} that is not its JSON"
        return SourceAccessError(
            f"{origin(to.base)} answers with {what} ({answer.status}), not with Argo CD's API",
            hint="if a login page is in front of it, send what it wants with --argocd-header; "
            "if the API is at another path, give --argocd-root-path",
        )
    return None
