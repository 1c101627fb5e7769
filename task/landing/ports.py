"""What the pipeline needs from outside: the world,
and the repositories and live Applications in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from task.deciding.job import Ask, Followed, LandedApplication
    from task.errors import TaskError
    from task.forges.host import Comments, Deployments, Host
    from task.model import (
        Answer,
        Application,
        Changeset,
        Compared,
        Files,
        FileVersion,
        Found,
        Head,
        LandedCommit,
        Place,
        Question,
        Snapshot,
        Subscription,
        Tracker,
        Verdict,
    )
    from task.proof import Proof


class Repository(Protocol):
    """A Git repository with compare-and-swap:
    `land` succeeds only if the branch is where it was read.
    """

    @property
    def atomic(self) -> bool:
        """Whether two branches can be pushed together, as far as that is known."""

    def default_branch(self, *, tip: bool = True) -> str:
        """Return the branch that HEAD names.

        With `tip`, also fetch what the following `snapshot` reads.
        """

    def snapshot(
        self,
        branch: str,
        places: Iterable[Place],
        heads: Collection[str] = (),
        default: Collection[Place] = (),
        besides: Callable[[Files], Iterable[Place]] | None = None,
    ) -> Snapshot:
        """Return the files at these places, at the current tip of the branch,
        and what its memory branch has.

        What the next calls of `head_snapshot` need for `heads` is fetched already. `default`: what
        to read of the default branch as well. `besides` returns more places, once it knows the
        files of the memory branch.
        """

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:
        """Return these places, read at the commit of an earlier snapshot."""

    def with_memory_under(self, snapshot: Snapshot, prefix: str) -> Snapshot:
        """Return the snapshot with the memory branch whose name begins in this way.

        If there is none yet, what it has moves there.
        """

    def head(self, head: str) -> Head | None:
        """Return the tip of a head branch; None if there is no such branch."""

    def signed(self, commit: str, keys: Sequence[str]) -> bool:
        """Tell whether one of these public keys has signed a commit that was read; without any,
        the run's own. Where nobody signs, every commit counts.
        """

    def merged(self, branch: str, commit: str) -> bool:
        """Tell whether a commit is in the latest history of a branch."""

    def land(self, change: Changeset, memory: Changeset | None = None) -> LandedCommit:
        """Commit and push. Raises `Outpaced` if the branch moved meanwhile.

        `memory`: replace the memory branch in the same push, or change neither. Only if `atomic`;
        raises `NotAtomicError` for a server that cannot do this.
        """

    def remember(self, change: Changeset) -> LandedCommit:
        """Replace the memory branch.

        Without files, it goes. Raises `Outpaced` if it moved meanwhile.
        """

    def drop(self, head: str, was: str) -> None:
        """Delete a head branch. Raises `Outpaced` if it moved meanwhile."""

    def earlier(
        self,
        branch: str,
        path: str,
        limit: int,
        marked: Collection[str] = (),
    ) -> Iterable[tuple[str, str | None]]:
        """Yield (commit, text) of a file, newest first, at most `limit`.

        The text is None if the file did not exist. If one of the `marked` commits had the text,
        that is the commit.
        """

    def written(
        self,
        branch: str,
        pages: Sequence[Collection[str]],
        most: int,
    ) -> Iterator[Mapping[str, Sequence[FileVersion]]]:
        """Yield, for each page of paths, the last versions of its files, newest first,
        at most `most` of each.
        """

    def predict(self, change: Changeset) -> LandedCommit:
        """Return what `land` would return, without a commit."""

    def close(self) -> None:
        """Remove all temporary files."""


class KeepsMemory(Protocol):
    """What has a memory branch for each base."""

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:
        """Like `Repository.read_more`."""

    def with_memory_under(self, snapshot: Snapshot, prefix: str) -> Snapshot:
        """Like `Repository.with_memory_under`."""

    def signed(self, commit: str, keys: Sequence[str]) -> bool:
        """Like `Repository.signed`."""


class ReadsMore(Protocol):
    """What can read more places at the commit of a snapshot."""

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:
        """Return these places, read at the commit of an earlier snapshot."""


Side = Literal["base", "merged"]


class ChangeToJudge(Protocol):
    """What `check` judges: a base, and the merge of a change into it. Both are only read."""

    @property
    def repo(self) -> str:
        """The repository's URL, without a login."""

    @property
    def branch(self) -> str:
        """The branch that the change goes into."""

    @property
    def default(self) -> str:
        """The default branch."""

    @property
    def commits(self) -> tuple[str, str]:
        """The commits of base and change."""

    @property
    def paths(self) -> Sequence[str]:
        """The paths of all files that the merge changes."""

    @property
    def messages(self) -> Sequence[str]:
        """The messages of the change's last commits, as far as they are known."""

    def concerns(self, url: str) -> bool:
        """Tell whether an Application means this repository by a URL."""

    def applications(self, side: Side) -> Iterable[Found]:
        """Yield the Applications of a side: this repository's own are read there."""

    def snapshot(self, side: Side, places: Iterable[Place], urls: Collection[str]) -> Snapshot:
        """Return places of a side. The base also has its memory, by the repository's URLs."""

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:
        """Return more places of the same side."""

    def earlier(
        self,
        branch: str,
        path: str,
        limit: int,
        marked: Collection[str] = (),
    ) -> Iterable[tuple[str, str | None]]:
        """Yield (commit, text) of a file of the base, newest first, at most `limit`."""

    def close(self) -> None:
        """Remove all temporary files."""


class LiveApplications(Protocol):
    """Live Applications.

    `patch` succeeds only at the version that was read, if the API can check that.
    """

    def read(self, namespace: str, name: str) -> tuple[Mapping[str, Any], str]:
        """Return the Application and its resourceVersion."""

    def patch(
        self,
        namespace: str,
        name: str,
        version: str,
        operations: Sequence[Mapping[str, Any]],
    ) -> bool:
        """Patch the Application. Raises `Outpaced` if it now has another version.

        False means that others may have changed it in between, or may overwrite this patch
        unnoticed: read it again.
        """


class World(Protocol):
    """Everything outside that the pipeline uses."""

    always_prove: bool  # whether the command line requires a proof of every image

    def applications(self) -> Iterable[Found]:
        """Yield the manifests of the Applications in question."""

    def passed_over(self) -> Sequence[Application]:
        """Return the metadata of annotated Applications that `applications` left out.

        They were left out because of their images or the narrowing options.
        """

    def application(self, namespace: str, name: str) -> Application | None:
        """Return an Application that `applications` left out.

        None if only files say what there is, or if it may not be read.
        """

    def locate(self, origin: str) -> tuple[str, str, str] | None:
        """Return (repository, branch, path) of a file in a Git work tree,
        from the origin of a manifest, or None.
        """

    def repository(self, repo: str, subscription: Subscription | None) -> Repository:
        """Return the repository of a URL, with the login for a subscription that writes to it."""

    def change(self, compared: Compared) -> ChangeToJudge:
        """Return what `check` judges."""

    def login(self, subscription: Subscription) -> str:
        """Return a text that identifies the login.

        Updates may share a commit if the texts are equal.
        """

    def now(self) -> float:
        """Return seconds of a clock that never goes back."""

    def sleep(self, seconds: float) -> None:
        """Wait, or until a signal arrives."""

    def jitter(self) -> float:
        """Return a number from 0 to 1, at random: it keeps many writers from trying in step."""

    def log(self, level: str, sentence: str) -> None:
        """Log a sentence."""

    def ancestry(self, repository: str, new: str, old: str) -> str:
        """Return how a source commit relates to an old one: "newer", "older",
        or another word if it is unknown.
        """

    def registry(self, questions: Collection[Question]) -> Mapping[Question, Answer]:
        """Return what the registries say about images."""

    def prove(
        self,
        questions: Collection[Question],
    ) -> Mapping[Question, Proof | Verdict | TaskError]:
        """Return what is proved about images, a refusal if that is not what is required,
        or an error.
        """

    def forge(self, repo: str) -> Host:
        """Return the pull requests of a repository."""

    def check_forge(self, repo: str) -> None:
        """Raise what `forge` would raise for an unknown Git host.

        This makes no request, so `plan` can call it.
        """

    def range_page(self, repo: str, old: str, new: str) -> str:
        """Return the page that compares two commits, or "" if the Git host is unknown."""

    def compare(self, repo: str, base: str, head: str) -> tuple[str, str]:
        """Return the kind of forge, and the URL of the page
        that shows what a head branch changes.
        """

    def commit_page(self, repo: str, commit: str) -> str:
        """Return the URL of a commit's page, or "" if the Git host is unknown.

        This makes no request.
        """

    def comments(self, repo: str) -> Comments:
        """Return the comments on the pull requests of a repository."""

    def deployments(self, repo: str) -> Deployments:
        """Return the deployments that a repository shows."""

    def page(self, application: Tracker) -> str:
        """Return the URL of the Application in Argo CD's user interface, or "" if it is unknown."""

    def keys_wanted(self, subscription: Subscription) -> tuple[str, ...]:
        """Return the OpenPGP keys one of which must have signed a commit,
        so that Argo CD syncs it; () for any.
        """

    def signing_keys(self) -> tuple[str, ...]:
        """Return the ids of the OpenPGP keys that sign the run's commits."""

    def hindrance(self, subscription: Subscription, now: str) -> tuple[str, str]:
        """Return what keeps Argo CD from deploying a commit now, and what to do about it.

        That is what its AppProject says. Both are "" if nothing is known to. What was found is
        logged, once.
        """

    def synced(self, subscription: Subscription) -> tuple[str, ...]:
        """Return the revisions of its repository in Argo CD's history, newest first.

        () if that is unknown.
        """

    def taken_back_by(self, manifest: Mapping[str, Any], field: str) -> str:
        """Return who takes back a change of a field of a live Application: "ApplicationSet web";
        "" if nobody.
        """

    def live(self) -> LiveApplications | None:
        """Return the live Applications, or None if Applications come neither
        from a cluster nor from Argo CD.
        """

    def follow(self, landed: Sequence[LandedApplication]) -> Followed:
        """Refresh Argo CD, and wait for the rollouts."""

    def follow_back(self, landed: Sequence[LandedApplication]) -> Followed:
        """Do the same after a rollback, within the time that `follow` has left."""

    def close(self) -> None:
        """Remove what was opened for the run."""


class Look(Protocol):
    """Finds what the annotations of any Application ask for, whether the run is about it or not."""

    def __call__(self, key: str, *, ask: bool = True) -> Sequence[Subscription]:
        """Return the subscriptions of an Application (`namespace/name`).

        Without `ask`, only what the run has read already counts.
        """


class _Nobody:
    def __call__(self, key: str, *, ask: bool = True) -> Sequence[Subscription]:  # noqa: ARG002
        return ()


NOBODY: Look = _Nobody()


@dataclass(frozen=True)
class Batch:
    """All asks for one base branch of one repository.

    They share one fetch, and one push for each head branch.
    """

    repository: Repository
    base: str
    asks: tuple[Ask, ...]
    look: Look = NOBODY  # what waits may belong to Applications that take no part in the run
