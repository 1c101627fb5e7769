"""The table of forges. An answer of another shape than expected becomes a named error, and stops no other work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from task.errors import UnreachableError
from task.forges import azure, bitbucket_cloud, bitbucket_data_center, gitea, github, gitlab
from task.forges.address import ForgeAddress
from task.forges.client import ForgeApi, ForgeKind, Reach
from task.forges.content import honest
from task.model import Proposal, Proposed

Value = TypeVar("Value")


# The order in which a host is asked: Gitea's list of paths first, since no other forge has an /api/v1/version.
FORGES: Mapping[str, ForgeKind] = {
    one.name: one
    for one in (
        gitea.KIND,
        gitlab.KIND,
        github.KIND,
        bitbucket_cloud.KIND,
        bitbucket_data_center.KIND,
        azure.KIND,
    )
}


def forge_of(reach: Reach) -> ForgeApi:
    """Return the forge of a place, without a request."""
    return Checked(FORGES[reach.place.forge].client(reach), reach.place)


class Checked:
    """A forge whose answers can be read, or are named errors. URLs and commits go into results, logs and pages."""

    def __init__(self, forge: ForgeApi, place: ForgeAddress) -> None:
        self._forge, self._place = forge, place

    def find(self, base: str, head: str) -> Proposed | None:
        """As the forge."""
        found = understood(self._place.host, lambda: self._forge.find(base, head))
        return honest(found, self._place.web) if found else None

    def propose(self, proposal: Proposal, found: Proposed | None) -> Proposed:
        """As the forge."""
        now = understood(self._place.host, lambda: self._forge.propose(proposal, found))
        return honest(now, self._place.web)

    def state(self, number: str) -> Proposed:
        """As the forge."""
        return honest(understood(self._place.host, lambda: self._forge.state(number)), self._place.web)

    def withdraw(self, found: Proposed, because: str) -> None:
        """As the forge."""
        understood(self._place.host, lambda: self._forge.withdraw(found, because))

    def close(self) -> None:
        """As the forge."""
        self._forge.close()


def understood(host: str, work: Callable[[], Value]) -> Value:
    """Return the result of the work.

    Raises `UnreachableError` for an answer of another shape, as from a proxy or another service.
    """
    try:
        return work()
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise UnreachableError(
            f"{host} answers in a way that is not understood ({type(error).__name__}: {error})"[:300],
            hint="check that it is the Git host that --forge or the URL names, then run it again",
        ) from error
