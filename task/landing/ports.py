"""The ports through which the pipeline accesses repositories, live Applications, and the rest of
the outside world.
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
    """A Git repository with compare-and-swap: `land` fails if the branch has moved since it was
    read.
    """

    @property
    def atomic(self) -> bool:
        """Whether two branches can probably be pushed together."""

    def default_branch(self, *, tip: bool = True) -> str:
        """Return the branch that HEAD points to.

        With `tip`, also fetch the objects for the next `snapshot`.
        """

    def snapshot(
        self,
        branch: str,
        places: Iterable[Place],
        heads: Collection[str] = (),
        default: Collection[Place] = (),
        besides: Callable[[Files], Iterable[Place]] | None = None,
    ) -> Snapshot:
        """Return the files at these places, at the branch's current tip, and the files on its
        memory branch, which stores the holds and the lists of waiting builds.

        `heads` are fetched at the same time, for later calls to `head`. `default` lists places to
        read on the default branch as well. `besides` returns more places, based on the files on the
        memory branch.
        """

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:
        """Return a snapshot of these places at the commit of an earlier snapshot."""

    def with_memory_branch_under(self, snapshot: Snapshot, prefix: str) -> Snapshot:
        """Return the snapshot with the files of the memory branch that has this prefix. A memory
        branch stores a base's holds and lists of waiting builds.

        If that branch does not exist yet, the snapshot keeps its memory files, which will be moved
        to that branch.
        """

    def head(self, head: str) -> Head | None:
        """Return a head branch's tip, or None if the branch does not exist."""

    def signed(self, commit: str, keys: Sequence[str]) -> bool:
        """Return whether a previously read commit is signed with one of these public keys or, if no
        keys are passed, with the run's own key. If the run does not sign, all commits count as
        signed.
        """

    def merged(self, branch: str, commit: str) -> bool:
        """Return whether a commit is part of a branch's recent history."""

    def land(self, change: Changeset, memory_change: Changeset | None = None) -> LandedCommit:
        """Commit the change and push it. Raises `Outpaced` if someone else has pushed to the
        branch.

        With `memory_change`, also replace the memory branch in the same push. If that fails,
        neither branch changes. Requires `atomic`. Raises `NotAtomicError` if the server doesn't
        support this.
        """

    def remember(self, change: Changeset) -> LandedCommit:
        """Replace the memory branch's content, or delete the branch if the change contains no
        files.

        Raises `Outpaced` if it has moved.
        """

    def drop(self, head: str, was: str) -> None:
        """Delete a head branch. Raises `Outpaced` if it has moved."""

    def earlier(
        self,
        branch: str,
        path: str,
        limit: int,
        marked: Collection[str] = (),
    ) -> Iterable[tuple[str, str | None]]:
        """Yield up to `limit` (commit, content) pairs for a file, newest first. The content is None
        if the file did not exist or was not text. If one of the `marked` commits had the content,
        the pair contains that commit.
        """

    def written(
        self,
        branch: str,
        pages: Sequence[Collection[str]],
        most: int,
    ) -> Iterator[Mapping[str, Sequence[FileVersion]]]:
        """Yield, for each page of paths, the latest versions of the files, newest first, up to
        `most` per file.
        """

    def predict(self, change: Changeset) -> LandedCommit:
        """Return what `land` would return, without committing."""

    def close(self) -> None:
        """Remove all temporary files."""


class HasMemoryBranches(Protocol):
    """A store with a memory branch for each base."""

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:
        """Like `Repository.read_more`."""

    def with_memory_branch_under(self, snapshot: Snapshot, prefix: str) -> Snapshot:
        """Like `Repository.with_memory_branch_under`."""

    def signed(self, commit: str, keys: Sequence[str]) -> bool:
        """Like `Repository.signed`."""


class ReadsMore(Protocol):
    """A reader that can read more places at a snapshot's commit."""

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:
        """Return a snapshot of these places at the commit of an earlier snapshot."""


Side = Literal["base", "merged"]


class ChangeToJudge(Protocol):
    """A read-only view of the change that the `check` command judges: the base, and the result of
    merging the change into it.
    """

    @property
    def repo(self) -> str:
        """The repository's URL without credentials."""

    @property
    def branch(self) -> str:
        """The branch that the change is merged into."""

    @property
    def default(self) -> str:
        """The default branch."""

    @property
    def commits(self) -> tuple[str, str]:
        """The commits of the base and the change."""

    @property
    def paths(self) -> Sequence[str]:
        """The paths of all files that the merge changes."""

    @property
    def messages(self) -> Sequence[str]:
        """The messages of the change's most recent commits, as far as they are known."""

    def concerns(self, url: str) -> bool:
        """Return whether a URL in an Application refers to this repository."""

    def applications(self, side: Side) -> Iterable[Found]:
        """Yield the Applications on one side. Those stored in this repository are read from that
        side.
        """

    def snapshot(self, side: Side, places: Iterable[Place], urls: Collection[str]) -> Snapshot:
        """Return a snapshot of these places on one side. For the base, it also contains the files
        of the memory branch, which is found by the repository's URLs (`urls`).
        """

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:
        """Return a snapshot of more places on the same side."""

    def earlier(
        self,
        branch: str,
        path: str,
        limit: int,
        marked: Collection[str] = (),
    ) -> Iterable[tuple[str, str | None]]:
        """Yield up to `limit` (commit, content) pairs for a file on the base, newest first."""

    def close(self) -> None:
        """Remove all temporary files."""


class LiveApplications(Protocol):
    """The live Applications.

    With an API that can check the version, `patch` fails if the Application has changed since it
    was read.
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
        """Patch the Application. Raises `Outpaced` if its version has changed.

        Return False if others may have changed the Application in the meantime, or may overwrite
        this patch unnoticed. In that case, it must be read again.
        """


class World(Protocol):
    """The pipeline's external dependencies."""

    always_prove: bool  # whether the command line requires a proof of every image

    def applications(self) -> Iterable[Found]:
        """Yield the manifests of the Applications to consider."""

    def passed_over(self) -> Sequence[Application]:
        """Return the metadata of annotated Applications that `applications` left out because of
        their images or the narrowing options.
        """

    def application(self, namespace: str, name: str) -> Application | None:
        """Return an Application that `applications` left out.

        Return None if Applications come only from files, or if reading this one is not allowed.
        """

    def locate(self, origin: str) -> tuple[str, str, str] | None:
        """Return the (repository, branch, path) of a manifest's origin, or None if the origin is
        not a file in a Git work tree.
        """

    def repository(self, repo: str, subscription: Subscription | None) -> Repository:
        """Return the repository at a URL, with the credentials for a subscription that writes to
        it.
        """

    def change(self, compared: Compared) -> ChangeToJudge:
        """Return the change that `check` judges."""

    def login(self, subscription: Subscription) -> str:
        """Return a string that identifies a subscription's Git credentials.

        Updates may share a commit if their strings are equal.
        """

    def now(self) -> float:
        """Return the time in seconds, according to a clock that never goes backwards."""

    def sleep(self, seconds: float) -> None:
        """Wait until the time is up or a signal arrives."""

    def jitter(self) -> float:
        """Return a random number from 0 to 1, so that many writers do not retry in lockstep."""

    def log(self, level: str, sentence: str) -> None:
        """Log a message."""

    def ancestry(self, repository: str, new: str, old: str) -> str:
        """Return how the source commit `new` compares with `old`: "newer", "older", or another word
        if that is unknown.
        """

    def registry(self, questions: Collection[Question]) -> Mapping[Question, Answer]:
        """Return the registries' responses about images."""

    def prove(
        self,
        questions: Collection[Question],
    ) -> Mapping[Question, Proof | Verdict | TaskError]:
        """Return, for each image, a proof, a refusal if the image lacks the required proof, or an
        error.
        """

    def forge(self, repo: str) -> Host:
        """Return the forge that hosts a repository's pull requests."""

    def check_forge(self, repo: str) -> None:
        """Raise the error that `forge` would raise for an unknown Git host.

        This sends no request, so `plan` can call it.
        """

    def range_page(self, repo: str, old: str, new: str) -> str:
        """Return the URL of the page that compares two commits, or "" for an unknown Git host."""

    def compare(self, repo: str, base: str, head: str) -> tuple[str, str]:
        """Return the kind of forge, and the URL of the page that shows a head branch's changes."""

    def commit_page(self, repo: str, commit: str) -> str:
        """Return the URL of a commit's page, or "" for an unknown Git host.

        This sends no request.
        """

    def comments(self, repo: str) -> Comments:
        """Return the comments on a repository's pull requests."""

    def deployments(self, repo: str) -> Deployments:
        """Return the deployments shown on a repository's Git host."""

    def page(self, application: Tracker) -> str:
        """Return the URL of the Application in Argo CD's UI, or "" if unknown."""

    def keys_wanted(self, subscription: Subscription) -> tuple[str, ...]:
        """Return the OpenPGP keys that Argo CD accepts: one of them must sign a commit before it is
        synced. () means that no signature is required.
        """

    def signing_keys(self) -> tuple[str, ...]:
        """Return the ids of the OpenPGP keys that sign the run's commits."""

    def hindrance(self, subscription: Subscription, now: str) -> tuple[str, str]:
        """Return why Argo CD cannot deploy a commit now, and what to do about it.

        Both strings are based on the AppProject, and are "" if there is no known reason. Each
        reason is logged only once.
        """

    def synced(self, subscription: Subscription) -> tuple[str, ...]:
        """Return the revisions of the subscription's repository that Argo CD's history contains,
        newest first, or () if unknown.
        """

    def taken_back_by(self, manifest: Mapping[str, Any], field: str) -> str:
        """Return what would revert a change to a live Application's field ("ApplicationSet web"),
        or "".
        """

    def live(self) -> LiveApplications | None:
        """Return the live Applications, or None if the Applications don't come from a cluster or
        Argo CD.
        """

    def follow(self, landed: Sequence[LandedApplication]) -> Followed:
        """Refresh Argo CD and wait for the rollouts."""

    def follow_back(self, landed: Sequence[LandedApplication]) -> Followed:
        """Like `follow`, but after a rollback, and within the time that `follow` has left."""

    def close(self) -> None:
        """Close everything that was opened for the run."""


class Look(Protocol):
    """A lookup for the subscriptions of any Application, even if it is not part of the run."""

    def __call__(self, key: str, *, ask: bool = True) -> Sequence[Subscription]:
        """Return the subscriptions of an Application (`namespace/name`).

        Without `ask`, only Applications that the run has already read are considered.
        """


class _Nobody:
    def __call__(self, key: str, *, ask: bool = True) -> Sequence[Subscription]:  # noqa: ARG002
        return ()


NOBODY: Look = _Nobody()


@dataclass(frozen=True)
class Batch:
    """All asks for one base branch of one repository.

    They share one fetch, and one push per head branch.
    """

    repository: Repository
    base: str
    asks: tuple[Ask, ...]
    look: Look = NOBODY  # waiting builds may belong to Applications outside the run
