"""The forges (Git hosts such as GitHub) that a run uses. Each is opened on first use."""

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
    """A mapping from repository URLs to their forges (Git hosts such as GitHub). Threads may share
    it. Each host is probed only once.
    """

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
        """Create the collection of forges. No server is contacted yet.

        `known` contains the forges from `--forge`, then those from `task.forges.places.known_to`.
        `tokens` returns the run's tokens. `reached` returns a repository's push URL: the URL that
        this step uses instead of the one in the Application.
        """
        self._known = tuple(known)
        self._tokens = once(tokens)
        self._push_url = reached
        self._more_ca = more_ca
        self._log = log
        self._warn = warn
        self._lock = Lock()
        self._probed_forges: dict[str, Known] = {}  # keyed by the root URL of the host
        self._hosts: dict[ForgeAddress, Host] = {}
        self._commit_apis: dict[ForgeAddress, GitHubCommits] = {}
        self._connected: list[Connected] = []  # everything that `close` has to close

    def place(self, repo: str, fails: str = "cannot open a pull request") -> ForgeAddress:
        """Return the address of a repository on its forge: the kind of forge (such as `github`),
        the URL of its API, and the repository's name there.

        `repo` is the repository's URL in an Application. This step may push to a different URL (a
        mirror or a proxy), so compare both with the known forges, the push URL first. If neither
        matches, probe the host of the push URL, or that of `repo` if the push URL is a local path.

        Raises `ForgeError` if a URL is not a repository on a forge (the message starts with
        `fails`), and the errors of `probe`.
        """
        # called only because it may raise an error: an unreadable token affects every repository
        self._tokens()

        push_url = self._push_url(repo)
        urls = [repo]
        if push_url != repo and _is_on_host(push_url):  # otherwise, it is a mirror's path
            urls = [push_url, repo]

        # A known forge with a root URL is certain to match only its own repositories. One without a
        # root matches every other host, so try it only if neither URL matches a forge with a root.
        certain_forges = tuple(forge for forge in self._known if forge.root)
        try:
            for known_forges in (certain_forges, self._known):
                for url in urls:
                    address = place_of(url, known_forges)
                    if address:
                        return address
            return self._address_after_probe(urls[0])
        except Malformed as error:
            raise ForgeError(f"{fails}: {error.message}", hint=error.hint) from error

    def check_host(self, repo: str) -> None:
        """Raise `ForgeError` if the repository's URL is a local path, so that the repository is not
        on a host.

        No server is contacted.
        """
        if not _is_on_host(self._push_url(repo)) and not _is_on_host(repo):
            self.place(repo)  # called only to raise its error

    def compare(self, repo: str, base: str, head: str) -> tuple[str, str]:
        """Return the kind of forge, such as `github`, and the URL of the page that compares the
        branches `base` and `head`. Return ("", "") if the forge cannot be determined.
        """
        try:
            address = self.place(repo)
        except TaskError:
            return "", ""
        return address.forge, compare_url(address, base, head)

    def commit_page(self, repo: str, commit: str) -> str:
        """Return the URL of a commit's page, or "" if the kind of forge cannot be determined from
        the URL.
        """
        if not commit:
            return ""
        for url in (self._push_url(repo), repo):
            with suppress(Malformed):  # the URL may be a local path
                address = place_of(url, self._known)
                if address:
                    page_format = FORGES[address.forge].commit
                    return page_format.format(address.web, commit)
        return ""

    def range_page(self, repo: str, old: str, new: str) -> str:
        """Return the URL of the page that compares two commits, or "" if the kind of forge cannot
        be determined from the repository's URL.
        """
        with suppress(Malformed):  # the URL may be a local path
            address = place_of(repo, self._known)
            if address:
                return range_url(address, old, new)
        return ""

    def of(self, repo: str) -> Host:
        """Return the client for the repository's pull requests. It is created on first use.

        Raises the errors of `place`, and `CredentialsError` if there is no token for the forge.
        """
        address = self.place(repo)
        with self._lock:
            if address not in self._hosts:
                token = self._tokens().of(address)
                self._hosts[address] = self._open(FORGES[address.forge].client, address, token)
            return self._hosts[address]

    def if_known(self, repo: str) -> Host | None:
        """Return the client for the repository's pull requests. Return None if the kind of forge
        cannot be determined from the URLs without a probe, or if there is no token for the forge.
        """
        distinct_urls = dict.fromkeys((self._push_url(repo), repo))
        for url in distinct_urls:
            with suppress(Malformed, CredentialsError):
                if place_of(url, self._known):
                    return self.of(repo)
        return None

    def comments(self, repo: str) -> Comments:
        """Return a client for the comments on pull requests of the CI job's own repository. Raises
        the errors of `of`.
        """
        address = self.place(repo, "cannot post a comment")
        token = self._tokens().of_the_job(address, "a comment")
        return self._open(FORGES[address.forge].comments, address, token)

    def deployments(self, repo: str) -> Deployments:
        """Return a client for the deployments of the CI job's own repository.

        Raises the errors of `of`, and `ForgeError` if the forge does not show deployments.
        """
        address = self.place(repo, "cannot report a deployment")
        client_class = FORGES[address.forge].deployments
        if client_class is None:
            names = ", ".join(forge.name for forge in FORGES.values() if forge.deployments)
            hint = f"omit --deployments; only these hosts support deployments: {names}"
            raise ForgeError(f"deployments are not supported on {address.host}", hint=hint)
        token = self._tokens().of_the_job(address, "a deployment")
        return self._open(client_class, address, token)

    def commits(self, repo: str) -> GitHubCommits:
        """Return the client for commits to the repository through GitHub's API. It is created on
        first use.

        Raises the errors of `place_on_github`, and `CredentialsError` if there is no token.
        """
        # Imported late: only `--commit-through github` commits through an API.
        from task.forges.github_commits import GitHubCommits  # noqa: PLC0415

        address = self.place_on_github(repo)
        with self._lock:
            if address not in self._commit_apis:
                token = self._tokens().of(address, "a commit through its API")
                self._commit_apis[address] = self._open(GitHubCommits, address, token)
            return self._commit_apis[address]

    def place_on_github(self, repo: str) -> ForgeAddress:
        """Return the address of a repository on GitHub.

        Raises the errors of `place`, and `ForgeError` if it is on another forge.
        """
        address = self.place(repo, "GitHub's API cannot commit")
        if address.forge != "github":
            hint = "commit with git: --commit-through git"
            raise ForgeError(f"GitHub's API cannot commit to {address.host}", hint=hint)
        return address

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            for connected in self._connected:
                connected.close()
            self._connected.clear()
            self._hosts.clear()
            self._commit_apis.clear()

    def _open(self, client_class: type[Part], address: ForgeAddress, token: ForgeToken) -> Part:
        """Create a client for the repository at this address, and remember it for `close`."""
        reach = Reach(address, token, self._more_ca, self._log, warn=self._warn)
        connected = client_class(reach)
        self._connected.append(connected)
        return connected

    def _address_after_probe(self, repo: str) -> ForgeAddress:
        """Return the repository's address on the kind of forge that a probe of its host detects.
        Each host is probed only once.

        Raises `ForgeError` if the URL does not point to a repository on the detected forge.
        """
        remote = remote_of(repo)
        with self._lock:
            if remote.root not in self._probed_forges:
                self._probed_forges[remote.root] = probe(remote, self._more_ca, self._log)
            detected_forge = self._probed_forges[remote.root]
        address = place_of(repo, (detected_forge,))
        if address is None:
            raise ForgeError(
                f"this is not a repository on {remote.host}",
                hint="use https://host/owner/repository",
            )
        return address


def _is_on_host(url: str) -> bool:
    """Return whether a URL has a host, unlike a mirror's local path."""
    try:
        remote_of(url)
    except Malformed:
        return False
    return True
