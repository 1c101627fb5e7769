"""Asks a host which forge it is: addresses that each forge answers to anyone, and no login."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import quote

from task.errors import ForgeError, UnreachableError
from task.forges.address import HINT, ForgeName, Known
from task.git.remote_url import RemoteUrl
from task.http import Http, Limits, NoAnswerError, Response

LIMITS = Limits(connect=5.0, silence=10.0, total=15.0, size=1024 * 1024, tries=1)


def probe(
    remote: RemoteUrl, ca_file: str = "", log: Callable[[str], None] = lambda _line: None, limits: Limits = LIMITS
) -> Known:
    """Which forge a repository's host is, and where its web begins (GitLab and others may live below a path).

    Raises `ForgeError` for a host of another kind, `UnreachableError` for one that does not answer.
    """
    http = Http(remote.root, ca_file=ca_file, log=log, limits=limits)
    answered = False
    folders = [""]
    if not remote.ssh and len(remote.parts) > 2:  # there is a folder before owner and repository
        folders.append(f"/{quote(remote.parts[0])}")
    try:
        for folder in folders:
            for forge, (path, is_it) in QUESTIONS.items():
                try:
                    answer = http.ask("GET", f"{folder}{path}")
                except NoAnswerError:
                    continue
                answered = True
                if is_it(answer):
                    return Known(forge, f"{remote.root}{folder}")
    finally:
        http.close()
    if not answered:
        raise UnreachableError(
            f"{remote.host} does not say which forge it is: it does not answer over https", hint=f"{HINT}; or --ca-file"
        )
    raise ForgeError(f"{remote.host} is no forge that is known here, or does not say so", hint=HINT)


def _is_gitea(answer: Response) -> bool:
    """Where sign-in is required (REQUIRE_SIGNIN_VIEW), it says only that; in words that no other forge has."""
    said = answer.mapping()
    if answer.status in (401, 403):
        return str(said.get("message")).startswith("Only signed in user is allowed to call APIs")
    return answer.status == 200 and isinstance(said.get("version"), str)


def _is_github(answer: Response) -> bool:
    """In private mode it says 401, and its headers still tell."""
    return "installed_version" in answer.mapping() or "X-GitHub-Request-Id" in answer.headers


def _is_gitlab(answer: Response) -> bool:
    """Its version is for those who are logged in."""
    said = answer.mapping()
    if answer.status == 401:
        return said.get("message") == "401 Unauthorized" or "X-Gitlab-Meta" in answer.headers
    return answer.status == 200 and "version" in said and "revision" in said


def _is_data_center(answer: Response) -> bool:
    return answer.mapping().get("displayName") == "Bitbucket" or "X-AREQUESTID" in answer.headers


# Gitea's list of paths first: no other forge has an /api/v1/version.
QUESTIONS: Mapping[ForgeName, tuple[str, Callable[[Response], bool]]] = {
    "gitea": ("/api/v1/version", _is_gitea),
    "gitlab": ("/api/v4/version", _is_gitlab),
    "github": ("/api/v3/meta", _is_github),
    "bitbucket-server": ("/rest/api/1.0/application-properties", _is_data_center),
}
