"""The forges of a run. Each is opened when it is first needed."""

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
    """Repository URL → its forge. Threads may share it; a host is asked once which forge it is."""

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
        """`known`: `--forge` first, then `task.forges.places.known_to`. Nothing is contacted yet.

        `reached` returns the URL with which this step reaches a repository, because pushes go
        there.
        """
        self._known = tuple(known)
        self._tokens = once(tokens)
        self._reached = reached
        self._more_ca = more_ca
        self._log = log
        self._warn = warn
        self._lock = Lock()
        self._probed: dict[str, Known] = {}
        self._hosts: dict[ForgeAddress, Host] = {}
        self._committing: dict[ForgeAddress, GitHubCommits] = {}
        self._opened: list[Connected] = []

    def place(self, repo: str, fails: str = "no pull request is possible") -> ForgeAddress:
        """Return where the repository is.

        Raises `ForgeError` for a URL on no forge, and what `probe` raises.

        The URL that it is pushed to comes first where it is a forge's; a mirror's path or a proxy
        that no forge is known by leaves it to the repository's own URL. `fails` begins the message
        of an error.
        """
        # a token that cannot be read is a mistake in the call, wherever the repository is
        self._tokens()
        urls = list(
            dict.fromkeys(
                url for url in (self._reached(repo), repo) if url == repo or _on_a_host(url)
            )
        )
        surely = tuple(item for item in self._known if item.root)
        try:
            for known in (surely, self._known):
                for url in urls:
                    if place := place_of(url, known):
                        return place
            return self._asked(urls[0])
        except Malformed as error:
            raise ForgeError(f"{fails}: {error.message}", hint=error.hint) from error

    def check_host(self, repo: str) -> None:
        """Raise the `ForgeError` of `place` for a repository on no host, such as a local path.

        Nothing is contacted.
        """
        if not _on_a_host(self._reached(repo)) and not _on_a_host(repo):
            self.place(repo)

    def compare(self, repo: str, base: str, head: str) -> tuple[str, str]:
        """Return the kind of forge, and the URL of the page that shows what a head branch changes,
        or ("", "").
        """
        try:
            place = self.place(repo)
        except TaskError:
            return "", ""
        return place.forge, compare_url(place, base, head)

    def commit_page(self, repo: str, commit: str) -> str:
        """Return the URL of a commit's page, or "" if the URL does not tell
        which kind of forge it is.
        """
        if commit:
            for url in (self._reached(repo), repo):
                with suppress(Malformed):  # a path
                    if place := place_of(url, self._known):
                        return FORGES[place.forge].commit.format(place.web, commit)
        return ""

    def range_page(self, repo: str, old: str, new: str) -> str:
        """Return the page that compares two commits, or "" if the URL tells no kind of Git host."""
        with suppress(Malformed):  # a path
            if place := place_of(repo, self._known):
                return range_url(place, old, new)
        return ""

    def of(self, repo: str) -> Host:
        """Return the repository's forge.

        Raises as `place`, and `CredentialsError` without a token for it.
        """
        place = self.place(repo)
        with self._lock:
            if place not in self._hosts:
                self._hosts[place] = self._open(
                    FORGES[place.forge].client,
                    place,
                    self._tokens().of(place),
                )
            return self._hosts[place]

    def if_known(self, repo: str) -> Host | None:
        """Return the repository's forge, or None if no URL tells it or no token is for it.

        No host is asked what it is.
        """
        for url in dict.fromkeys((self._reached(repo), repo)):
            with suppress(Malformed, CredentialsError):
                if place_of(url, self._known):
                    return self.of(repo)
        return None

    def comments(self, repo: str) -> Comments:
        """Return the comments on pull requests of the job's own repository. Raises what `of` raises."""
        place = self.place(repo, "no comment can be written")
        return self._open(
            FORGES[place.forge].comments,
            place,
            self._tokens().of_the_job(place, "a comment"),
        )

    def deployments(self, repo: str) -> Deployments:
        """Return the deployments of the job's own repository. Raises what `of` raises."""
        place = self.place(repo, "no deployment can be shown")
        kind = FORGES[place.forge].deployments
        if kind is None:
            names = ", ".join(
                forge_kind.name for forge_kind in FORGES.values() if forge_kind.deployments
            )
            hint = f"leave out --deployments; these show them: {names}"
            raise ForgeError(f"no deployments are shown on {place.host}", hint=hint)
        return self._open(kind, place, self._tokens().of_the_job(place, "a deployment"))

    def commits(self, repo: str) -> GitHubCommits:
        """GitHub's API for commits to the repository.

        Raises as `place_on_github`, and `CredentialsError`.
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
        """Return where the repository is.

        Raises as `place`, and `ForgeError` if it is not on GitHub.
        """
        place = self.place(repo, "GitHub's API cannot commit")
        if place.forge != "github":
            hint = "commit with git: --commit-through git"
            raise ForgeError(f"GitHub's API cannot commit to {place.host}", hint=hint)
        return place

    def close(self) -> None:
        """Connections are closed."""
        with self._lock:
            for connected in self._opened:
                connected.close()
            for known in (self._opened, self._hosts, self._committing):
                known.clear()

    def _open(self, kind: type[Part], place: ForgeAddress, token: ForgeToken) -> Part:
        opened = kind(Reach(place, token, self._more_ca, self._log, warn=self._warn))
        self._opened.append(opened)
        return opened

    def _asked(self, repo: str) -> ForgeAddress:
        remote = remote_of(repo)
        with self._lock:
            if remote.root not in self._probed:
                self._probed[remote.root] = probe(remote, self._more_ca, self._log)
            known = self._probed[remote.root]
        place = place_of(repo, (known,))
        if place is None:
            raise ForgeError(
                f"this is not a repository of {remote.host}",
                hint="write https://host/owner/repository",
            )
        return place


def _on_a_host(url: str) -> bool:
    """Tell whether a URL names a host. The URL of a mirror may be a local path, which does not."""
    try:
        remote_of(url)
    except Malformed:
        return False
    return True
