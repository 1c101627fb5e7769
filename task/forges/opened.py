"""The forges of a run. Each is opened when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

from task.errors import ForgeError, Malformed
from task.forges.address import ForgeAddress, Known
from task.forges.client import LIMITS, ForgeApi, Reach
from task.forges.content import honest
from task.forges.places import place_of
from task.forges.probe import probe
from task.forges.table import forge_of
from task.forges.tokens import Tokens
from task.git.remote_url import remote_of
from task.http import Limits
from task.model import Proposal, Proposed


class Forges:
    """Repository URL → its forge. Threads may share it; a host is asked once which forge it is."""

    def __init__(
        self,
        known: Sequence[Known],
        tokens: Tokens,
        ca_file: str = "",
        *,
        log: Callable[[str], None] = lambda _line: None,
        limits: Limits = LIMITS,
        warn: Callable[[str], None] = lambda _sentence: None,
    ) -> None:
        """`known`: `--forge` first, then `task.forges.places.known_to`. Nothing is contacted yet."""
        self._known, self._tokens = tuple(known), tokens
        self._ca_file, self._log, self._limits, self._warn = ca_file, log, limits, warn
        self._lock = Lock()
        self._probed: dict[str, Known] = {}
        self._opened: dict[ForgeAddress, ForgeApi] = {}

    def place(self, repo: str, reached: str = "") -> ForgeAddress:
        """Where the repository is. Raises `ForgeError` for a URL on no forge, and what `probe` raises.

        `reached` is the URL that it is pushed to, if that is another one. It comes first where it is a forge's; a
        mirror's path or a proxy that no forge is known by leaves it to the repository's own URL.
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
            raise ForgeError(f"no pull request can be opened: {error.message}", hint=error.hint) from error

    def of(self, repo: str, reached: str = "") -> ForgeApi:
        """The repository's forge. Raises as `place`, and `CredentialsError` without a token for it."""
        place = self.place(repo, reached)
        with self._lock:
            if place not in self._opened:
                reach = Reach(place, self._tokens.of(place), self._ca_file, self._log, self._limits, self._warn)
                self._opened[place] = _Checked(forge_of(reach), place.web)
            return self._opened[place]

    def close(self) -> None:
        """Connections are closed."""
        with self._lock:
            for forge in self._opened.values():
                forge.close()
            self._opened.clear()

    def _asked(self, repo: str) -> ForgeAddress:
        remote = remote_of(repo)
        with self._lock:
            if remote.root not in self._probed:
                self._probed[remote.root] = probe(remote, self._ca_file, self._log)
            known = self._probed[remote.root]
        place = place_of(repo, (known,))
        if place is None:
            raise ForgeError(f"this is not a repository of {remote.host}", hint="write https://host/owner/repository")
        return place


class _Checked:
    """A forge whose URLs and commits are checked: they go into results, logs and pages."""

    def __init__(self, forge: ForgeApi, page: str) -> None:
        self._forge, self._page = forge, page

    def find(self, base: str, head: str) -> Proposed | None:
        """As the forge."""
        found = self._forge.find(base, head)
        return honest(found, self._page) if found else None

    def propose(self, proposal: Proposal, found: Proposed | None) -> Proposed:
        """As the forge."""
        return honest(self._forge.propose(proposal, found), self._page)

    def state(self, number: str) -> Proposed:
        """As the forge."""
        return honest(self._forge.state(number), self._page)

    def close(self) -> None:
        """As the forge."""
        self._forge.close()


def _on_a_host(url: str) -> bool:
    """Whether a URL names a host. A mirror may lie on a local path, which has no pull requests."""
    try:
        remote_of(url)
    except Malformed:
        return False
    return True
