"""The table of forges, and what stands between them and a run: an answer of another shape stops no other work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from task.errors import UnreachableError
from task.forges import ForgeApi, Reach
from task.forges.address import ForgeName
from task.forges.azure import Azure
from task.forges.bitbucket_cloud import BitbucketCloud
from task.forges.bitbucket_data_center import BitbucketDataCenter
from task.forges.gitea import Gitea
from task.forges.github import GitHub
from task.forges.gitlab import GitLab
from task.model import Proposal, Proposed

Value = TypeVar("Value")


def _github(reach: Reach) -> ForgeApi:
    return GitHub(reach)


def _gitlab(reach: Reach) -> ForgeApi:
    return GitLab(reach)


def _gitea(reach: Reach) -> ForgeApi:
    return Gitea(reach)


def _bitbucket(reach: Reach) -> ForgeApi:
    return BitbucketCloud(reach)


def _data_center(reach: Reach) -> ForgeApi:
    return BitbucketDataCenter(reach)


def _azure(reach: Reach) -> ForgeApi:
    return Azure(reach)


FORGES: Mapping[ForgeName, Callable[[Reach], ForgeApi]] = {
    "github": _github,
    "gitlab": _gitlab,
    "gitea": _gitea,
    "bitbucket": _bitbucket,
    "bitbucket-server": _data_center,
    "azure": _azure,
}


def forge_of(reach: Reach) -> ForgeApi:
    """The forge of a place. Nothing is asked yet."""
    return Understood(FORGES[reach.place.forge](reach), reach.place.host)


class Understood:
    """A forge whose every answer is one that can be read, or a named error."""

    def __init__(self, forge: ForgeApi, host: str) -> None:
        self._forge, self._host = forge, host

    def find(self, base: str, head: str) -> Proposed | None:
        """As `Forge.find`."""
        return self._read(lambda: self._forge.find(base, head))

    def propose(self, proposal: Proposal, found: Proposed | None) -> Proposed:
        """As `Forge.propose`."""
        return self._read(lambda: self._forge.propose(proposal, found))

    def state(self, number: str) -> Proposed:
        """As `Forge.state`."""
        return self._read(lambda: self._forge.state(number))

    def close(self) -> None:
        """Connections are closed."""
        self._forge.close()

    def _read(self, work: Callable[[], Value]) -> Value:
        """A proxy or another service answers with JSON as well, of whatever shape."""
        try:
            return work()
        except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
            raise UnreachableError(
                f"{self._host} answers in a way that is not understood ({type(error).__name__}: {error})"[:300],
                hint="check that it is the forge that --forge or the URL says, then run it again",
            ) from error
