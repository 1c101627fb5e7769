"""The forges of a run. Each is opened when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import TypeVar

from task.errors import ForgeError, Malformed
from task.forges.client import ForgeAddress, ForgeToken, Reach
from task.forges.github_commits import GitHubCommits
from task.forges.host import Comments, Connected, Deployments, Host
from task.forges.places import FORGES, Known, place_of, probe
from task.forges.tokens import Tokens
from task.git.hosts import remote_of

Part = TypeVar("Part", bound=Connected)


class Forges:
    """Repository URL → its forge. Threads may share it; a host is asked once which forge it is."""

    def __init__(
        self,
        known: Sequence[Known],
        tokens: Tokens,
        more_ca: str = "",
        *,
        log: Callable[[str], None] = lambda _line: None,
        warn: Callable[[str], None] = lambda _sentence: None,
    ) -> None:
        """`known`: `--forge` first, then `task.forges.places.known_to`. Nothing is contacted yet."""
        self._known, self._tokens = tuple(known), tokens
        self._more_ca, self._log, self._warn = more_ca, log, warn
        self._lock = Lock()
        self._probed: dict[str, Known] = {}
        self._hosts: dict[ForgeAddress, Host] = {}
        self._committing: dict[ForgeAddress, GitHubCommits] = {}
        self._opened: list[Connected] = []

    def place(self, repo: str, reached: str = "", fails: str = "no pull request is possible") -> ForgeAddress:
        """Return where the repository is. Raises `ForgeError` for a URL on no forge, and what `probe` raises.

        `reached` is the URL that it is pushed to, if that is another one. It comes first where it is a forge's; a
        mirror's path or a proxy that no forge is known by leaves it to the repository's own URL. `fails` begins the
        message of an error.
        """
        urls = list(dict.fromkeys(url for url in (reached, repo) if url and (url == repo or _on_a_host(url))))
        surely = tuple(one for one in self._known if one.root)
        try:
            for known in (surely, self._known):
                for url in urls:
                    if place := place_of(url, known):
                        return place
            return self._asked(urls[0])
        except Malformed as error:
            raise ForgeError(f"{fails}: {error.message}", hint=error.hint) from error

    def check_host(self, repo: str, reached: str = "") -> None:
        """Raise the `ForgeError` of `place` for a repository on no host, such as a local path. Nothing is contacted."""
        if not any(map(_on_a_host, filter(None, (reached, repo)))):
            self.place(repo, reached)

    def of(self, repo: str, reached: str = "") -> Host:
        """Return the repository's forge. Raises as `place`, and `CredentialsError` without a token for it."""
        place = self.place(repo, reached)
        with self._lock:
            if place not in self._hosts:
                self._hosts[place] = self._open(FORGES[place.forge].client, place, self._tokens.of(place))
            return self._hosts[place]

    def comments(self, repo: str, reached: str = "") -> Comments:
        """Return the comments on pull requests of the job's own repository. Raises as `of`."""
        place = self.place(repo, reached, "no comment can be written")
        return self._open(FORGES[place.forge].comments, place, self._tokens.of_the_job(place, "a comment"))

    def deployments(self, repo: str, reached: str = "") -> Deployments:
        """Return the deployments of the job's own repository. Raises as `of`."""
        place = self.place(repo, reached, "no deployment can be shown")
        kind = FORGES[place.forge].deployments
        if kind is None:
            names = ", ".join(one.name for one in FORGES.values() if one.deployments)
            raise ForgeError(
                f"no deployments are shown on {place.host}", hint=f"leave out --deployments; these show them: {names}"
            )
        return self._open(kind, place, self._tokens.of_the_job(place, "a deployment"))

    def commits(self, repo: str, reached: str = "") -> GitHubCommits:
        """GitHub's API for commits to the repository. Raises as `place_on_github`, and `CredentialsError`."""
        place = self.place_on_github(repo, reached)
        with self._lock:
            if place not in self._committing:
                token = self._tokens.of(place, "a commit through its API")
                self._committing[place] = self._open(GitHubCommits, place, token)
            return self._committing[place]

    def place_on_github(self, repo: str, reached: str = "") -> ForgeAddress:
        """Return where the repository is. Raises as `place`, and `ForgeError` if it is not on GitHub."""
        place = self.place(repo, reached, "GitHub's API cannot commit")
        if place.forge != "github":
            raise ForgeError(
                f"GitHub's API cannot commit to {place.host}", hint="commit with git: --commit-through git"
            )
        return place

    def close(self) -> None:
        """Connections are closed."""
        with self._lock:
            for one in self._opened:
                one.close()
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
            raise ForgeError(f"this is not a repository of {remote.host}", hint="write https://host/owner/repository")
        return place


def _on_a_host(url: str) -> bool:
    """Tell whether a URL names a host. The URL of a mirror may be a local path, which does not."""
    try:
        remote_of(url)
    except Malformed:
        return False
    return True
