"""The world as the story needs it: Protocols that clients of Git, forges and clusters fit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from task.model import (
    Answer,
    Application,
    Changeset,
    CommitStatus,
    Deployment,
    FileVersion,
    Landing,
    Place,
    Problem,
    Proposal,
    Proposed,
    Question,
    Snapshot,
    Subscription,
)
from task.pipeline.decide import Ask
from task.pipeline.discover import FoundManifest, Locate
from task.pipeline.job import Followed, Landed
from task.pipeline.verify import Signatures


class Repository(Protocol):
    """One repository, as compare-and-swap: `land` succeeds only from the tip that was read."""

    def default_branch(self, *, tip: bool = True) -> str:
        """The branch that HEAD names. With `tip` it is read next, and what that takes is fetched at once."""

    def snapshot(self, branch: str, places: Iterable[Place], head: str = "") -> Snapshot:
        """The places asked for, at the branch's present tip.

        `head` is a head branch that `head_snapshot` will be asked for next: what it takes is fetched at once.
        """

    def head_snapshot(self, head: str, places: Collection[Place]) -> Snapshot | None:
        """The places at the tip of a head branch; None where there is no such branch."""

    def land(self, change: Changeset) -> Landing:
        """Commit and push; raises `Outpaced` when the branch moved meanwhile."""

    def earlier(self, branch: str, path: str, limit: int) -> Iterable[tuple[str, str | None]]:
        """(commit, text) of a file now and before, newest first, so many at most; None where there was none."""

    def written(self, branch: str, paths: Collection[str], most: int) -> Mapping[str, Sequence[FileVersion]]:
        """The text of each file now and before, newest first, so many at most; all from one fetch."""

    def branches(self, beginnings: Collection[str]) -> Sequence[str]:
        """The names of all branches that begin so."""

    def predict(self, change: Changeset) -> Landing:
        """What `land` would answer, without a commit."""

    def close(self) -> None:
        """Nothing is left behind."""


class Forge(Protocol):
    """Where pull requests of one repository are opened."""

    def find(self, base: str, head: str) -> Proposed | None:
        """The open request of that head branch, else the newest one that is closed or merged."""

    def propose(self, proposal: Proposal, found: Proposed | None) -> Proposed:
        """Open the request, or update the open one; never a second one. `found` is what `find` said.

        Raises `Outpaced` where it was merged since.
        """

    def state(self, number: str) -> Proposed:
        """A request as it is now."""


class Comments(Protocol):
    """The comments on pull requests of one repository."""

    @property
    def forge(self) -> str:
        """Which forge it is, since each takes another text."""

    def put(self, request: str, mark: str, body: str) -> str:
        """Our comment with that mark has this text, whether it was there or not; its page."""


class Deployments(Protocol):
    """Where the forge of one repository shows what was deployed where."""

    def begin(self, deployment: Deployment) -> None:
        """A new deployment, in this state."""

    def end(self, deployment: Deployment, *, begun: bool) -> bool:
        """The deployment that began has this state now. Whether there is one.

        Not `begun`: the newest one of an earlier run, for the same commit and environment.
        """

    def sum_up(self, status: CommitStatus) -> None:
        """What the commit shows of all of them together, where the forge has that beside deployments."""


class LiveApplications(Protocol):
    """Live Applications: `patch` succeeds only at the version that was read, as far as the API can tell."""

    def read(self, namespace: str, name: str) -> tuple[Mapping[str, Any], str]:
        """The Application and its resourceVersion."""

    def patch(self, namespace: str, name: str, version: str, operations: Sequence[Mapping[str, Any]]) -> bool:
        """Change it; raises `Outpaced` when it is at another version meanwhile.

        False: others may have changed it in between, or overwrite this patch without knowing it. Look again.
        """


@dataclass(frozen=True)
class World:
    """The world, as the pipeline needs it."""

    applications: Callable[[], Iterable[FoundManifest]]
    locate: Locate
    repository: Callable[[str, Subscription | None], Repository]  # by its URL, and who is written there
    now: Callable[[], float]  # seconds, monotonic
    sleep: Callable[[float], None]
    jitter: Callable[[], float]  # 0 to 1, at random: keeps many writers from trying in step
    log: Callable[[str, str], None]  # level, sentence
    # (repository, new commit, old commit) → "newer", "older", or anything else where that is not known
    ancestry: Callable[[str, str, str], str] = lambda _repository, _new, _old: ""
    registry: Callable[[Collection[Question]], Mapping[Question, Answer]] = lambda _questions: {}
    signatures: Signatures | None = None  # as the command line wants them; None: none is required
    by_keys: Signatures | None = None  # as the ImageUpdater of an Application wants them
    forge: Callable[[str], Forge] | None = None  # by a repository's URL
    compare: Callable[[str, str, str], tuple[str, str]] = lambda _repo, _base, _head: ("", "")  # its kind, and a page
    comments: Callable[[str], Comments] | None = None  # by a repository's URL
    deployments: Callable[[str], Deployments] | None = None  # by a repository's URL
    page: Callable[[Application], str] = lambda _application: ""  # Argo CD's, for people; "" where it is not known
    live: Callable[[], LiveApplications] | None = None  # with Applications from the cluster or Argo CD
    follow: Callable[[Sequence[Landed]], Followed] = lambda _landed: Followed()  # Argo CD is told, and waited for
    tell: Callable[[Sequence[Landed]], Sequence[Problem]] = lambda _landed: ()  # it is told, and not waited for
    # the metadata of annotated Applications that `applications` left out: they concern no image, or are narrowed away
    passed_over: Callable[[], Sequence[Application]] = lambda: ()
    # whom a repository knows us as, for an Application; equal texts may share a commit
    login: Callable[[Subscription], str] = lambda _subscription: ""
    close: Callable[[], None] = lambda: None  # leaves nothing behind that was opened for the run


@dataclass(frozen=True)
class Batch:
    """All asks for one base branch of one repository. One fetch; one commit and push for each head branch."""

    repository: Repository
    base: str
    asks: tuple[Ask, ...]
