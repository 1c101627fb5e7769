"""What a forge's refusal means: one of our named errors, with the forge's own words, and never with a secret."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from task.errors import CredentialsError, ForgeError, RepositoryError, TaskError, UnreachableError
from task.git.token_prefixes import wrong_issuer
from task.http import NoAnswerError, Response, retry_after
from task.secret import Secret
from task.text import one_line, shortened

STAYS = "the pushed branch stays, and running again completes the request"
SOFTWARE = {
    "azure": "Azure DevOps",
    "bitbucket": "Bitbucket Cloud",
    "bitbucket-server": "Bitbucket Data Center",
    "gitea": "Gitea or Forgejo",
    "github": "GitHub",
    "gitlab": "GitLab",
}
_LONGEST = 300  # characters of the forge's words
_UNKNOWN_WAIT = 60.0  # seconds; GitHub asks for a minute where it names no time
_TEXTS = ("message", "detail", "error_description", "error", "errors", "fields")  # where forges put their words


def refused(
    answer: Response,
    what: str,
    *,
    host: str,
    needs: str = "",
    token: Secret = Secret(""),
    stays: str = STAYS,
    forge: str = "",
) -> TaskError:
    """Return the error for an answer of 300 and above; `what` ends the sentence "could not …", `stays` a hint.

    401: `CredentialsError`; 403 and 404: `RepositoryError`, naming the permission `needs`; limits and 5xx:
    `UnreachableError`; a redirect and everything else: `ForgeError`.
    """
    said = words(answer, token)
    because = f"{answer.status}{f' ({said})' if said else ''}"
    if (wait := limited(answer)) is not None:
        return UnreachableError(
            f"{host} limits the rate of requests: could not {what}: {because}",
            hint=f"run it again in {wait:.0f} seconds; {stays}",
        )
    needs = needs or "give the token the permission to write pull requests"
    if answer.status == 401:
        return CredentialsError(
            f"{host} does not accept the API token: could not {what}: {because}",
            hint=f"{valid_token(token, host, forge)}: {needs}; {stays}",
        )
    if answer.status == 403:
        return RepositoryError(f"{host} does not let this API token {what}: {because}", hint=f"{needs}; {stays}")
    if answer.status == 404:
        return RepositoryError(
            f"could not {what}: {host} says that it does not exist, or this API token may not see it: {because}",
            hint=f"check the repository's URL and the token: {needs}",
        )
    if answer.status >= 500 or answer.status == 408:
        return UnreachableError(f"{host} failed: could not {what}: {because}", hint=f"run it again; {stays}")
    if answer.status < 400:
        return ForgeError(
            f"{host} redirects the request elsewhere: could not {what}: {because}",
            hint="the repository may have moved: write its present URL",
        )
    return ForgeError(f"{host} refuses: could not {what}: {because}", hint=f"correct what it names; {stays}")


def valid_token(token: Secret, host: str, forge: str) -> str:
    """Return what to give instead of a refused token. If its prefix is another forge's, the sentence says so."""
    wrong = wrong_issuer(token, host, SOFTWARE.get(forge, ""))
    return f"{wrong or 'give a valid one'} as IMAGE_UPDATE_FORGE_TOKEN or by --forge-token-file"


def unanswered(error: NoAnswerError, what: str, stays: str = STAYS) -> TaskError:
    """Return the error if there is no answer at all."""
    if error.kind == "tls":
        return CredentialsError(
            f"{error.message}: could not {what}", hint="give its certificate authority: --ca-file FILE"
        )
    return UnreachableError(f"{error.message}: could not {what}", hint=f"run it again; {stays}")


def limited(answer: Response) -> float | None:
    """Return the seconds to wait if a limit on requests is the reason, else None.

    GitHub answers 403 at its limits, too: the primary by x-ratelimit-remaining, the secondary by Retry-After or
    its words (docs.github.com, "Rate limits for the REST API").
    """
    headers = answer.headers
    if answer.status == 403:
        said = words(answer).lower()
        if not (
            "Retry-After" in headers
            or headers.get("x-ratelimit-remaining", "").strip() == "0"
            or "secondary rate limit" in said
            or "abuse detection" in said
        ):
            return None
    elif answer.status != 429:
        return None
    return wait_of(answer)


def wait_of(answer: Response) -> float:
    """Return the seconds until a limit on requests allows the next one.

    They are in the answer's headers. Without such a header they are a minute. At GitHub's secondary limit, the headers
    tell when the primary one begins anew, which may be an hour later.
    """
    if (after := retry_after(answer)) is not None:
        return after
    headers = answer.headers
    left = (headers.get("x-ratelimit-remaining") or headers.get("RateLimit-Remaining") or "0").strip()
    reset = (headers.get("x-ratelimit-reset") or headers.get("RateLimit-Reset") or "").strip()
    if left != "0" or not reset.isdecimal():
        return _UNKNOWN_WAIT
    return max(0.0, float(reset) - time.time()) + 1


def words(answer: Response, token: Secret = Secret("")) -> str:
    """Return the forge's message on one short line. A token in it is blanked."""
    try:
        said = "; ".join(dict.fromkeys(text for text in _texts(answer.json()) if text))
    except (ValueError, RecursionError):
        said = "" if "html" in answer.headers.get("Content-Type", "") else answer.text()
    said = one_line(said[: 4 * _LONGEST])
    if token:
        said = said.replace(token.reveal(), "***")
    return shortened(said, _LONGEST)


def _texts(said: Any, depth: int = 0) -> Iterator[str]:
    """Yield all texts in the places where forges put them, at any depth."""
    if isinstance(said, str):
        yield said
    elif isinstance(said, list) and depth < 5:  # deep enough for all
        for one in said[:10]:
            yield from _texts(one, depth + 1)
    elif isinstance(said, dict) and depth < 5:
        known = [name for name in _TEXTS if said.get(name)]
        if not known and depth:  # {"field": "head", "code": "invalid"}, {"labels": ["is too long"]}
            for name, value in list(said.items())[:10]:
                yield from (f"{name}: {text}" for text in _texts(value, depth + 1))
        for name in known:
            yield from _texts(said[name], depth + 1)


__all__ = ["SOFTWARE", "STAYS", "limited", "refused", "unanswered", "valid_token", "wait_of", "words"]
