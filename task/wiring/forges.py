"""Creates forges: finds which one a repository is on, and the token for its API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress

from task.errors import Malformed, TaskError, UsageError
from task.forges.github_commits import GitHubCommits
from task.forges.host import Comments, Deployments
from task.forges.opened import Forges
from task.forges.places import FORGES, Known, compare_url, forge_option, known_to, place_of
from task.forges.tokens import Tokens, check_token_file
from task.git.credentials import certificates
from task.git.environment import Login
from task.git.names import rewritten
from task.landing.ports import Forge
from task.output.log import Log
from task.settings import Settings
from task.threads import once

Logins = Callable[[str], "tuple[Login, ...]"]  # Git's logins for a URL


class ForgeClients:
    """The forges of one run. Raises `UsageError` at once for a wrong `--forge`, or if the token's file is not there."""

    def __init__(
        self, settings: Settings, environ: Mapping[str, str], log: Log, opened: ExitStack, logins: Logins
    ) -> None:
        self._settings, self._environ, self._log, self._opened, self._logins = settings, environ, log, opened, logins
        self._forges: Callable[[], Forges] = once(self._open)
        self._forge = _forge(settings.git.forge)
        self._known = (*((self._forge,) if self._forge else ()), *known_to(environ))
        if settings.git.forge_token_file:
            check_token_file(settings.git.forge_token_file)

    def of(self, repo: str) -> Forge:
        """Return the repository's forge."""
        return self._forges().of(repo, self._reached(repo))

    def check_host(self, repo: str) -> None:
        """Raise what `of` would raise for a repository on no host. Nothing is contacted."""
        self._forges().check_host(repo, self._reached(repo))

    def comments(self, repo: str) -> Comments:
        """Return the comments on the repository's pull requests."""
        return self._forges().comments(repo, self._reached(repo))

    def commits(self, repo: str) -> GitHubCommits:
        """Return GitHub's API for commits to the repository."""
        return self._forges().commits(repo, self._reached(repo))

    def check_commits(self, repo: str) -> None:
        """Raise what `commits` would raise for where the repository is. This needs no token."""
        self._forges().place_on_github(repo, self._reached(repo))

    def deployments(self, repo: str) -> Deployments:
        """Return the deployments of the repository."""
        return self._forges().deployments(repo, self._reached(repo))

    def compare(self, repo: str, base: str, head: str) -> tuple[str, str]:
        """Return the kind of forge, and the URL of the page that shows what a head branch changes."""
        try:
            place = self._forges().place(repo, self._reached(repo))
        except TaskError:
            return "", ""
        return place.forge, compare_url(place, base, head)

    def commit_page(self, repo: str, commit: str) -> str:
        """Return the URL of a commit's page, or "" if the URL does not tell which kind of forge it is."""
        for url in (self._reached(repo), repo) if commit else ():
            with suppress(Malformed):  # a path
                if place := place_of(url, self._known):
                    return FORGES[place.forge].commit.format(place.web, commit)
        return ""

    def _reached(self, repo: str) -> str:
        """Return the URL that this step uses for the repository, because pushes go there."""
        return rewritten(repo, self._settings.transport.rewrite_url)

    def _open(self) -> Forges:
        given = self._settings.git
        tokens = Tokens(
            self._environ,
            self._logins,
            file=given.forge_token_file,
            user=given.forge_username,
            forge=self._forge,
            scope=self._settings.access.git_credentials_url,
        )
        found = Forges(
            self._known,
            tokens,
            certificates(self._settings.access.ca_file),
            log=lambda line: self._log("debug", line),
            warn=lambda sentence: self._log("warning", sentence),
        )
        self._opened.callback(found.close)
        return found


def _forge(text: str) -> Known | None:
    try:
        return forge_option(text) if text else None
    except Malformed as error:
        raise UsageError(f"--forge: {error.message}", hint=error.hint) from None
