"""The memory branch of one base while a run changes it, alone or in one push with a head branch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from task.deciding.decide import state_path
from task.deciding.job import Job
from task.errors import NotAtomicError, Outpaced, TargetError, TaskError
from task.git.names import BASE_TRAILER, memory_branch
from task.landing.head_branches import HeadBranch
from task.landing.lists import REGULAR, strange_in, with_list
from task.landing.ports import Batch
from task.landing.states import GONE
from task.landing.waiting_list import (
    HeadCommit,
    ListedBuild,
    ListedRelease,
    WaitingList,
    is_list_path,
    read_list,
)
from task.model import Changeset, Commit, Files, LandedCommit, Person, Snapshot
from task.output.diff import unified_diff


class MemoryBranchWriter:
    """Knows the branch's current files, and writes the wanted ones."""

    def __init__(
        self,
        base: Snapshot,
        author: Person,
        batch: Batch,
        job: Job,
    ) -> None:
        self.wanted: Files = base.memory_files
        self.commits: list[Commit] = []  # commits made or predicted
        self._base = base
        self._author = author
        self._batch = batch
        self._job = job
        self._current: Files = {} if base.inherited else base.memory_files
        self._tip = base.memory_tip
        self._inherited = base.inherited

    @property
    def commit(self) -> Commit | None:
        """The run's commits as a single one, because a memory branch only has one commit."""
        if not self.commits:
            return None
        files: set[str] = set()
        apps: set[str] = set()
        for commit in self.commits:
            files.update(commit.files)
            apps.update(commit.applications)
        return replace(
            self.commits[-1],
            files=tuple(sorted(files)),
            applications=tuple(sorted(apps)),
        )

    @property
    def remembers(self) -> bool:
        """Whether anything but lists has changed. Lists change with their head branches."""
        commit = self.commit
        return commit is not None and any(not is_list_path(path) for path in commit.files)

    def put(self, waiting_list: WaitingList) -> None:
        """Change a list in the wanted files."""
        self.wanted = with_list(self.wanted, waiting_list)

    def write(self) -> None:
        """Push the wanted files to the memory branch, unless it already has them. `plan` only
        records what it would push.

        Raises `Outpaced` if someone else has pushed to the branch.
        """
        # the branch with the old name is deleted, and a new one is not needed
        only_deletes = self._inherited is not None and not self.wanted
        if self.wanted == self._current and not only_deletes:
            return
        landed_commit = LandedCommit("", "")
        if not self._job.dry and not only_deletes:
            landed_commit = self._batch.repository.remember(self._change(self.wanted))
        self._record(self.wanted, landed_commit.commit, landed_commit.tree)

    def land_with_list(
        self,
        change: Changeset,
        waiting_list: WaitingList,
        predicted: LandedCommit,
        head: HeadBranch,
        moved: Sequence[WaitingList] = (),
    ) -> LandedCommit:
        """Push a commit to a head branch together with the list of the builds that wait there: both
        in one push, or the list first.

        `predicted` is the commit as it will be. `moved` has the lists whose builds moved to this
        one. Raises `Outpaced` if someone else has pushed to one of the branches.
        """
        for old_list in moved:
            self.put(old_list)
        if not change.on_top:
            our_commit = HeadCommit(predicted.tree, change.tip)
            waiting_list = replace(waiting_list, commit=our_commit, replaces=None, arrived=True)

        if not predicted.pushed:  # the branch already has this commit
            if head.as_listed:
                # the request's state alone is no reason to write the list
                waiting_list = replace(waiting_list, request=head.stored_list.request)
            self.put(waiting_list)
            return predicted

        landed_commit = self._land_in_one_push(change, waiting_list)
        if landed_commit:
            return landed_commit
        # the list first, so that the next run knows our commit even if this run is killed
        self.put(waiting_list if change.on_top else _before_push(waiting_list, head))
        self.write()
        return self._batch.repository.land(change)

    def _land_in_one_push(
        self, change: Changeset, waiting_list: WaitingList
    ) -> LandedCommit | None:
        """Push both branches together. Return None if that is not possible or not needed.

        Raises `Outpaced` if one of the branches has moved.
        """
        repository = self._batch.repository
        files = with_list(self.wanted, waiting_list)
        if not repository.atomic or change.push_options:
            return None
        # If a person has deleted our branch, it may be created again exactly as listed. So only a
        # commit on someone else's branch may leave the memory branch as it is.
        if change.on_top and files == self._current:
            return None
        try:
            landed_commit = repository.land(change, self._change(files))
        except NotAtomicError:
            return None
        self.wanted = files
        self._record(files, landed_commit.memory_commit, "")
        return landed_commit

    def _change(self, files: Files) -> Changeset:
        """Return the memory branch's next commit: these files, except for those that no run has
        written.

        Raises `TargetError` if a file cannot be read, because its hold would be lost.
        """
        base = self._base
        strange_paths = strange_in(files)
        kept_files = {path: file for path, file in files.items() if path not in strange_paths}
        for path, file in kept_files.items():
            if file.problem or file.mode != REGULAR:
                raise TargetError(
                    f"{path} on the memory branch cannot be read:"
                    f" {file.problem or 'it is not a regular file'}",
                    hint="delete it from the memory branch, and set its hold again",
                    subject=path,
                )
        return Changeset(
            repo=base.repo,
            base=base.branch,
            head=memory_branch(base.repo, base.branch, base.prefix),
            tip="",
            files=kept_files,
            message=(
                f"Remember holds and waiting builds for {base.branch}\n\n"
                f"{BASE_TRAILER}: {base.branch}\n"
            ),
            author=self._author,
            head_commit=self._tip,
        )

    def _drop_inherited(self, name: str, tip: str) -> None:
        """Delete the memory branch with the old name, or empty it if it cannot be deleted.

        Raises `TaskError` if it still contains something that this run has ended.
        """
        if self._job.dry:
            return
        change = replace(self._change({}), head=name, head_commit=tip)
        try:
            self._batch.repository.remember(change)
        except (Outpaced, TaskError):
            if not self.wanted:
                raise
            # The next run only reads the new branch.

    def _record(self, files: Files, commit: str, tree: str) -> None:
        """Record that the memory branch now has these files in this commit.

        If the memory came from a branch with an old name, that branch is deleted now.
        """
        before = self._current
        if self._inherited:
            if not files:  # only the branch with the old name changes
                before = self._base.memory_files
            self._drop_inherited(*self._inherited)
        self._inherited = None
        self._current = files
        self._tip = commit

        changed_paths = [path for path in (*before, *files) if files.get(path) != before.get(path)]
        apps = _applications_of_lists(before, files, changed_paths)
        for ask in self._batch.asks:
            if state_path(ask.subscription) in changed_paths:
                apps.add(ask.subscription.application.key)
        base = self._base
        self.commits.append(
            Commit(
                repo=base.repo,
                branch=base.branch,
                head=memory_branch(base.repo, base.branch, base.prefix),
                commit=commit or None,
                tree=tree,
                files=tuple(sorted(set(changed_paths))),
                applications=tuple(sorted(apps)),
                diff=_memory_diff(before, files, changed_paths) if self._job.dry else None,
                through="git",
                remembers=True,
            )
        )


def _before_push(waiting_list: WaitingList, head: HeadBranch) -> WaitingList:
    """Return the list in the form that is pushed before its head branch.

    Until the head branch is known to have arrived, a branch at its current commit is also ours.
    """
    current_commit = None
    if head.branch and head.ours:
        current_commit = HeadCommit(head.branch.tree, head.branch.parent)
    return replace(waiting_list, replaces=current_commit, arrived=False)


def _applications_of_lists(before: Files, after: Files, paths: Iterable[str]) -> set[str]:
    """Return the Applications whose builds or releases were added to a list or removed from it."""
    apps: set[str] = set()
    for path in filter(is_list_path, paths):
        added_or_removed = _entries_of_list(before, path) ^ _entries_of_list(after, path)
        apps |= {entry.application for entry in added_or_removed}
    return apps


def _entries_of_list(files: Files, path: str) -> set[ListedBuild | ListedRelease]:
    """Return the builds and releases of a list, or an empty set if there is no such list."""
    if path not in files:
        return set()
    waiting_list = read_list(files[path].text)
    return {*waiting_list.builds, *waiting_list.releases}


def _memory_diff(before: Files, after: Files, paths: list[str]) -> str:
    """Return the difference between two versions of the memory branch, for these paths."""
    changed = {path: after.get(path, GONE) for path in dict.fromkeys(paths)}
    return unified_diff(before, changed)
