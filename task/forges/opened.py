"""The forges that a run uses. Each is opened on first use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from task.errors import CredentialsError, ForgeError, Malformed, TaskError
from task.forges.client import ForgeAddress, ForgeToken, Reach
from task.forges.host import Comments, Connected, Deployments, Host
from task.forges.places import FORGES, Known, compare_url, place_of, probe, range_url
from task.forges.tokens import Tokens
from task.git.hosts import remote_of
from task.threads import once

if TYPE_CHECKING:
    from task.forges.github_commits import GitHubCommits

Part = TypeVar("Part", bound=Connected)


class Forges:
    """Repository URL → its forge. Threads may share it. Each host is probed only once."""

    def __init__(
        self,
        known: Sequence[Known],
        tokens: Callable[[], Tokens],
        more_ca: str = "",
        *,
        reached: Callable[[str], str] = lambda repo: repo,
        log: Callable[[str], None] = lambda _line: None,
        warn: Callable[[str], None] = lambda _sentence: None,
    ) -> None:
        """`known`: `--forge` first, then `task.forges.places.known_to`. No server is contacted yet.

        `reached` returns the URL that this step uses to reach a repository, because pushes go to
        that URL.
        """
        self._known = tuple(known)
        self._tokens = once(tokens)
        self._push_url = reached
        self._more_ca = more_ca
        self._log = log
        self._warn = warn
        self._lock = Lock()
        self._probed: dict[str, Known] = {}
        self._hosts: dict[ForgeAddress, Host] = {}
        self._committing: dict[ForgeAddress, GitHubCommits] = {}
        self._opened: list[Connected] = []

    def place(self, repo: str, fails: str = "cannot open a pull request") -> ForgeAddress:
        """Return the repository's address.

        Raises `ForgeError` if the URL is not on a forge, and the errors of `probe`.

        The push URL comes first if it is on a forge. If the push URL is a mirror's path or a proxy
        that is not a known forge, the repository's own URL is used. `fails` is the start of an
        error message.
        """
        # an unreadable token is a usage error, wherever the repository is
        self._tokens()

        push_url = self._push_url(repo)
        urls = [repo]
        if push_url != repo and _on_a_host(push_url):
            urls = [push_url, repo]

        # a forge with an address is certain; one without is a guess for every other host
        with_address = tuple(forge for forge in self._known if forge.root)
        try:
            for known in (with_address, self._known):
                for url in urls:
                    place = place_of(url, known)
                    if place:
                        return place
            return self._probed_place(urls[0])
        except Malformed as error:
            raise ForgeError(f"{fails}: {error.message}", hint=error.hint) from error

    def check_host(self, repo: str) -> None:
        """Raise the `ForgeError` of `place` if the repository is not on a host, such as a local
        path.

        No server is contacted.
        """
        if not _on_a_host(self._push_url(repo)) and not _on_a_host(repo):
            self.place(repo)

    def compare(self, repo: str, base: str, head: str) -> tuple[str, str]:
        """Return the kind of forge, and the URL of the page that shows a head branch's changes, or
        ("", "").
        """
        try:
            place = self.place(repo)
        except TaskError:
            return "", ""
        return place.forge, compare_url(place, base, head)

    def commit_page(self, repo: str, commit: str) -> str:
        """Return the URL of a commit's page, or "" if the kind of forge cannot be determined from
        the URL.
        """
        if not commit:
            return ""
        for url in (self._push_url(repo), repo):
            with suppress(Malformed):  # the URL is a local path
                place = place_of(url, self._known)
                if place:
                    page_format = FORGES[place.forge].commit
                    return page_format.format(place.web, commit)
        return ""

    def range_page(self, repo: str, old: str, new: str) -> str:
        """Return the page that compares two commits, or "" if the kind of Git host cannot be
        determined from the URL.
        """
        with suppress(Malformed):  # a path
            place = place_of(repo, self._known)
            if place:
                return range_url(place, old, new)
        return ""

    def of(self, repo: str) -> Host:
        """Return the repository's forge, which is opened on first use.

        Raises the errors of `place`, and `CredentialsError` if there is no token for it.
        """
        place = self.place(repo)
        with self._lock:
            if place not in self._hosts:
                token = self._tokens().of(place)
                self._hosts[place] = self._open(FORGES[place.forge].client, place, token)
            return self._hosts[place]

    def if_known(self, repo: str) -> Host | None:
        """Return the repository's forge, or None if it cannot be determined from the URLs or there
        is no token for it.

        Hosts are not probed.
        """
        for url in dict.fromkeys((self._push_url(repo), repo)):
            with suppress(Malformed, CredentialsError):
                if place_of(url, self._known):
                    return self.of(repo)
        return None

    def comments(self, repo: str) -> Comments:
        """Return the comments on pull requests of the job's own repository. Raises the errors of
        `of`.
        """
        place = self.place(repo, "cannot post a comment")
        token = self._tokens().of_the_job(place, "a comment")
        return self._open(FORGES[place.forge].comments, place, token)

    def deployments(self, repo: str) -> Deployments:
        """Return the deployments of the job's own repository. Raises the errors of `of`."""
        place = self.place(repo, "cannot report a deployment")
        kind = FORGES[place.forge].deployments
        if kind is None:
            names = ", ".join(forge.name for forge in FORGES.values() if forge.deployments)
            hint = f"omit --deployments; only these hosts support deployments: {names}"
            raise ForgeError(f"deployments are not supported on {place.host}", hint=hint)
        return self._open(kind, place, self._tokens().of_the_job(place, "a deployment"))

    def commits(self, repo: str) -> GitHubCommits:
        """Return GitHub's API for commits to the repository, which is opened on first use.

        Raises the errors of `place_on_github`, and `CredentialsError`.
        """
        # Imported late: only `--commit-through github` commits through an API.
        from task.forges.github_commits import GitHubCommits  # noqa: PLC0415

        place = self.place_on_github(repo)
        with self._lock:
            if place not in self._committing:
                token = self._tokens().of(place, "a commit through its API")
                self._committing[place] = self._open(GitHubCommits, place, token)
            return self._committing[place]

    def place_on_github(self, repo: str) -> ForgeAddress:
        """Return the repository's address.

        Raises the errors of `place`, and `ForgeError` if it is not on GitHub.
        """
        place = self.place(repo, "GitHub's API cannot commit")
        if place.forge != "github":
            hint = "commit with git: --commit-through git"
            raise ForgeError(f"GitHub's API cannot commit to {place.host}", hint=hint)
        return place

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            for connected in self._opened:
                connected.close()
            for opened in (self._opened, self._hosts, self._committing):
                opened.clear()

    def _open(self, kind: type[Part], place: ForgeAddress, token: ForgeToken) -> Part:
        connected = kind(Reach(place, token, self._more_ca, self._log, warn=self._warn))
        self._opened.append(connected)
        return connected

    def _probed_place(self, repo: str) -> ForgeAddress:
        """Return the repository's address after probing its host, unless that has been done.

        Raises `ForgeError` if the URL is not a repository on the detected forge.
        """
        remote = remote_of(repo)
        with self._lock:
            if remote.root not in self._probed:
                self._probed[remote.root] = probe(remote, self._more_ca, self._log)
            detected = self._probed[remote.root]
        place = place_of(repo, (detected,))
        if place is None:
            raise ForgeError(
                f"this is not a repository on {remote.host}",
                hint="use https://host/owner/repository",
            )
        return place


def _on_a_host(url: str) -> bool:
    """Return whether a URL has a host. A mirror's URL may be a local path, which has no host."""
    try:
        remote_of(url)
    except Malformed:
        return False
    return True
