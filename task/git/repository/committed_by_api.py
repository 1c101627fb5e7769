"""A repository that git reads, and that a forge's API commits to: the forge signs such commits itself.

The API appends a commit to a branch that is still at the commit we read, which is compare-and-swap like our push. It
cannot replace what a branch holds. A head branch that exists is therefore moved, in one step, to a commit that was made
on a branch of its own: were it put back to its base first, GitHub would close its pull request for good.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import ClassVar, Protocol

from task.errors import Outpaced, RepositoryError, TargetError, TaskError
from task.git.command import Git
from task.git.repository.bare import BareRepository
from task.model import Changeset, Landing, Through
from task.retry import land_once
from task.text import blanked

_EXECUTABLE = "100755"


class CommitApi(Protocol):
    """The API for one repository.

    Every method raises `Outpaced` if a branch is not where it should be, `NotDoneError` (see `land_once`), and
    `UnreachableError`, which leaves open whether it was done.
    """

    def commit(self, branch: str, change: Changeset) -> str:
        """Append the changeset to a branch that is at `change.tip`, and return the commit's id."""

    def create(self, branch: str, commit: str) -> None:
        """Create a branch."""

    def replace(self, head: str, was: str, aside: str, commit: str) -> None:
        """Move `head` from `was` to the commit that `aside` is at, and delete `aside`, in one step."""

    def delete(self, branch: str) -> None:
        """Delete a branch."""


class CommittedByApi(BareRepository):
    """As `BareRepository`, but `land` commits through an API, which is opened when it is first needed.

    `check` raises an error if the API cannot commit to this repository. It needs no token.
    """

    through: ClassVar[Through] = "github"

    def __init__(
        self,
        git: Git,
        repo: str,
        api: Callable[[], CommitApi],
        cache_dir: str = "",
        check: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(git, repo, cache_dir=cache_dir)
        self._api, self._check = api, check

    def predict(self, change: Changeset) -> Landing:
        """Return what `land` would return, without a commit. Raises the error of `check`, as `land` would."""
        landing = super().predict(change)
        if landing.pushed:
            self._check()
        return landing

    def _send(self, change: Changeset, made: Landing, there: str) -> str:
        base, head = change.base, change.head
        if head == base or change.on_top or there == change.tip:
            return self._commit(head, change, made)
        if not there:
            self._create(head, change.tip)
            return self._commit(head, change, made)
        aside = f"{head}-{secrets.token_hex(4)}"
        try:
            self._create(aside, change.tip)
            commit = self._commit(aside, change, made)
            with self._race(head, there):
                land_once(
                    lambda: self._api().replace(head, there, aside, commit),
                    lambda: self._remote.tip(head) == commit,
                    "whether the branch was moved",
                )
        except BaseException:
            with suppress(TaskError, Outpaced):  # our temporary branch does no harm if it stays
                self._api().delete(aside)
            raise
        return commit

    def _create(self, branch: str, commit: str) -> None:
        land_once(
            lambda: self._api().create(branch, commit),
            lambda: self._remote.tip(branch) == commit,
            "whether the branch was made",
        )

    def _commit(self, branch: str, change: Changeset, made: Landing) -> str:
        """Make the commit on a branch that is at `change.tip`, and return it."""
        # Git makes the same tree from the same files, so a commit with this parent and tree is ours, or as good.
        with self._race(branch, change.tip):
            return land_once(
                lambda: self._api().commit(branch, change),
                lambda: self._remote.child(branch, change.tip, made.tree),
                "whether the commit was made",
            )

    @contextmanager
    def _race(self, branch: str, was: str) -> Iterator[None]:
        """Raise `Outpaced` for a refusal if the branch has moved: a lost race with an unknown message."""
        try:
            yield
        except RepositoryError as error:
            if self._remote.tip(branch) != was:
                raise Outpaced(f"{self._remote.subject(branch)}: {error.message}") from error
            raise

    def _refuse_odd_paths(self, change: Changeset) -> None:
        super()._refuse_odd_paths(change)
        subject = self._remote.subject(change.base)
        for path, file in change.files.items():
            if file.mode == _EXECUTABLE:
                hint = "remove the bit (git update-index --chmod=-x PATH), or commit with git: --commit-through git"
                message = f"{blanked(path)!r} has the executable bit, which GitHub's API would remove"
                raise TargetError(message, hint=hint, subject=subject)
            if any("\udc80" <= letter <= "\udcff" for letter in path):
                hint = "rename it, or commit with git: --commit-through git"
                message = f"{blanked(path)!r} is not UTF-8, and GitHub's API cannot name it"
                raise TargetError(message, hint=hint, subject=subject)
