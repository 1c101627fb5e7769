"""What the pipeline needs from outside, as Protocols that the clients of Git, forges and clusters implement."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from task.pipeline.job import Followed

if TYPE_CHECKING:
    from task.model import (
        Answer,
        Application,
        Changeset,
        CommitStatus,
        Deployment,
        FileVersion,
        Landing,
        Place,
        Proposal,
        Proposed,
        Question,
        Snapshot,
        Subscription,
    )
    from task.pipeline.ask import Ask
    from task.pipeline.discover import FoundManifest, Locate
    from task.pipeline.job import Landed
    from task.pipeline.verify import Signatures


class Repository(Protocol):
    """A Git repository with compare-and-swap: `land` succeeds only if the branch is where it was read."""

    def default_branch(self, *, tip: bool = True) -> str:
        """Return the branch that HEAD names. With `tip`, fetch already what the next call, `snapshot`, needs."""

    def snapshot(self, branch: str, places: Iterable[Place], head: str = "") -> Snapshot:
        """Return the files at these places, at the present tip of the branch.

        If `head` is given, what the next call, `head_snapshot`, needs for that branch is fetched already.
        """

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:
        """More places, at the commit of a snapshot that was taken before."""

    def head_snapshot(self, head: str, places: Collection[Place]) -> Snapshot | None:
        """Return the files at the tip of a head branch, or None if there is no such branch."""

    def land(self, change: Changeset) -> Landing:
        """Commit and push. Raises `Outpaced` if the branch moved meanwhile."""

    def earlier(self, branch: str, path: str, limit: int) -> Iterable[tuple[str, str | None]]:
        """Yield (commit, text) of a file, newest first, at most `limit`. The text is None if the file did not exist."""

    def written(
        self, branch: str, pages: Sequence[Collection[str]], most: int
    ) -> Iterator[Mapping[str, Sequence[FileVersion]]]:
        """Yield, for each page of paths, the last versions of its files, newest first, at most `most` of each."""

    def branches(self, beginnings: Collection[str]) -> Sequence[str]:
        """Return the names of all branches with one of these prefixes."""

    def predict(self, change: Changeset) -> Landing:
        """Return what `land` would return, without a commit."""

    def close(self) -> None:
        """Remove all temporary files."""


class Forge(Protocol):
    """Opens pull requests of one repository."""

    def find(self, base: str, head: str) -> Proposed | None:
        """Return the open request of that head branch, else the newest one that is closed or merged, or None."""

    def propose(self, proposal: Proposal, found: Proposed | None) -> Proposed:
        """Open the request, or update the open one. `found` is what `find` returned.

        There is never a second open request. Raises `Outpaced` if the request was merged meanwhile.
        """

    def state(self, number: str) -> Proposed:
        """Return a request as it is now."""


class Comments(Protocol):
    """Writes comments on pull requests of one repository."""

    @property
    def forge(self) -> str:
        """The kind of forge, because each accepts other texts."""

    def put(self, request: str, mark: str, body: str) -> str:
        """Write our comment with that mark, or replace its text if it exists. Return the URL of the comment."""


class Deployments(Protocol):
    """Shows on the forge of one repository what was deployed where."""

    def begin(self, deployment: Deployment) -> None:
        """Create a deployment in this state."""

    def end(self, deployment: Deployment, *, begun: bool) -> bool:
        """Set the state of a deployment, and return whether it exists.

        Without `begun`, it is the newest deployment of an earlier run for the same commit and environment.
        """

    def sum_up(self, status: CommitStatus) -> None:
        """Set the commit's summary of all deployments, on a forge that has one."""


class LiveApplications(Protocol):
    """Live Applications. `patch` succeeds only at the version that was read, if the API can check that."""

    def read(self, namespace: str, name: str) -> tuple[Mapping[str, Any], str]:
        """Return the Application and its resourceVersion."""

    def patch(self, namespace: str, name: str, version: str, operations: Sequence[Mapping[str, Any]]) -> bool:
        """Patch the Application. Raises `Outpaced` if it has another version by now.

        False means that others may have changed it in between, or may overwrite this patch unnoticed: read it again.
        """


@dataclass(frozen=True)
class World:
    """Everything outside that the pipeline uses."""

    applications: Callable[[], Iterable[FoundManifest]]
    locate: Locate
    repository: Callable[[str, Subscription | None], Repository]  # by the URL, and a subscription that writes to it
    now: Callable[[], float]  # seconds, monotonic
    sleep: Callable[[float], None]
    jitter: Callable[[], float]  # 0 to 1, at random: keeps many writers from trying in step
    log: Callable[[str, str], None]  # takes a level and a sentence
    # begins to fetch a branch ("" is the default one) of the repository that `repository` is asked for next
    expect: Callable[[str, Subscription, str], None] = lambda _repo, _subscription, _branch: None
    # (repository, new commit, old commit) → "newer", "older", or any other word if the order is unknown
    ancestry: Callable[[str, str, str], str] = lambda _repository, _new, _old: ""
    registry: Callable[[Collection[Question]], Mapping[Question, Answer]] = lambda _questions: {}
    signatures: Signatures | None = None  # as the command line requires them; None if it requires none
    by_keys: Signatures | None = None  # as an Application's ImageUpdater requires them
    forge: Callable[[str], Forge] | None = None  # by a repository's URL
    # raises the error of `forge` for a repository on no host, without a connection; for `plan`
    check_forge: Callable[[str], None] = lambda _repo: None
    # the forge's kind, and the URL of a page
    compare: Callable[[str, str, str], tuple[str, str]] = lambda _repo, _base, _head: ("", "")
    comments: Callable[[str], Comments] | None = None  # by a repository's URL
    deployments: Callable[[str], Deployments] | None = None  # by a repository's URL
    # the Application's page in Argo CD's UI; "" if unknown
    page: Callable[[Application], str] = lambda _application: ""
    # the OpenPGP keys one of which must have signed a commit, so that Argo CD syncs it; () if its project asks for none
    keys_wanted: Callable[[Subscription], tuple[str, ...]] = lambda _subscription: ()
    signing_keys: Callable[[], tuple[str, ...]] = tuple  # the ids of the OpenPGP keys that sign the run's commits
    # (live Application, field) → who takes back a change of the field: "ApplicationSet web"; "" if nobody is known to
    taken_back_by: Callable[[Mapping[str, Any], str], str] = lambda _manifest, _field: ""
    live: Callable[[], LiveApplications] | None = None  # only if Applications come from the cluster or Argo CD
    follow: Callable[[Sequence[Landed]], Followed] = lambda _landed: Followed()  # refreshes Argo CD, and waits
    # the same after a rollback, within the time that `follow` has left
    follow_back: Callable[[Sequence[Landed]], Followed] = lambda _landed: Followed()
    # metadata of annotated Applications that `applications` left out, because of their images or the narrowing options
    passed_over: Callable[[], Sequence[Application]] = lambda: ()
    # identifies the login for an Application; updates may share a commit if the texts are equal
    login: Callable[[Subscription], str] = lambda _subscription: ""
    close: Callable[[], None] = lambda: None  # removes what was opened for the run


@dataclass(frozen=True)
class Batch:
    """All asks for one base branch of one repository. They share one fetch, and one push for each head branch."""

    repository: Repository
    base: str
    asks: tuple[Ask, ...]
