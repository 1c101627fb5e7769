"""Updates to a base's memory branch, which is pushed alone or together with a head branch."""

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
    """A writer for a base's memory branch, which stores its holds and its lists of waiting builds.
    It keeps track of the branch's current files and pushes the new ones.
    """

    def __init__(
        self,
        base: Snapshot,
        author: Person,
        batch: Batch,
        job: Job,
    ) -> None:
        self.wanted: Files = base.memory_files  # the files that the branch should contain
        self.commits: list[Commit] = []  # commits made or predicted
        self._base = base
        self._author = author
        self._batch = batch
        self._job = job
        # If the base or the prefix was renamed, the files may still be on a branch with the old
        # name. `_inherited` is that branch's (name, tip). The branch with the new name has no files
        # yet.
        self._inherited = base.inherited
        self._files_on_branch: Files = {} if base.inherited else base.memory_files
        self._tip = base.memory_tip

    @property
    def commit(self) -> Commit | None:
        """This run's commits, combined into one that contains the files and Applications from all
        of them. Each push replaces the branch's only commit, so the last commit represents all of
        them.
        """
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
        """Whether anything other than lists of waiting builds has changed. Those lists change
        together with their head branches.
        """
        commit = self.commit
        return commit is not None and any(not is_list_path(path) for path in commit.files)

    def put(self, waiting_list: WaitingList) -> None:
        """Store a head branch's list of waiting builds in the wanted files."""
        self.wanted = with_list(self.wanted, waiting_list)

    def write(self) -> None:
        """Push the wanted files (`self.wanted`) to the memory branch, unless it already has them.
        The `plan` command only records what it would push.

        Raises `Outpaced` if someone else has pushed to the branch.
        """
        # If nothing is left to remember, `_record` only deletes the branch with the old name.
        only_deletes = self._inherited is not None and not self.wanted
        if self.wanted == self._files_on_branch and not only_deletes:
            return
        landed_commit = LandedCommit("", "")  # if nothing is pushed
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
        """Push a commit to a head branch (the branch of a pull request) together with the list of
        builds that are waiting there: both in one push, or the list first. If the branch already
        has the commit, nothing is pushed.

        `predicted` is the expected commit. `moved` contains the lists whose builds moved to this
        list. Raises `Outpaced` if someone else has pushed to one of the branches.
        """
        for old_list in moved:
            self.put(old_list)
        is_foreign_branch = change.on_top  # someone else has pushed to the head branch
        if not is_foreign_branch:  # the commit replaces the branch, so it is recorded as ours
            our_commit = HeadCommit(predicted.tree, change.tip)
            waiting_list = replace(waiting_list, commit=our_commit, replaces=None, arrived=True)

        if not predicted.pushed:  # the branch already has this commit
            if head.as_listed:
                # Keep the stored state of the request. A new state alone is no reason to push.
                waiting_list = replace(waiting_list, request=head.stored_list.request)
            self.put(waiting_list)
            return predicted

        landed_commit = self._land_in_one_push(change, waiting_list)
        if landed_commit:
            return landed_commit
        # push the list first, so that the next run recognizes our commit even if this run is killed
        self.put(waiting_list if is_foreign_branch else _list_before_push(waiting_list, head))
        self.write()
        return self._batch.repository.land(change)

    def _land_in_one_push(
        self, change: Changeset, waiting_list: WaitingList
    ) -> LandedCommit | None:
        """Push a commit to a head branch, and the memory branch with this list, in one push. Return
        None if the server doesn't support that, if there are push options, or if only the head
        branch has to be pushed.

        Raises `Outpaced` if one of the branches has moved.
        """
        repository = self._batch.repository
        if not repository.atomic or change.push_options:  # the options would apply to both
            return None
        new_files = with_list(self.wanted, waiting_list)
        is_foreign_branch = change.on_top
        if is_foreign_branch and new_files == self._files_on_branch:
            return None
        # Our own branch is always pushed together with its list, even if the list is the same: a
        # person may have deleted the branch, in which case this run recreates it.
        try:
            landed_commit = repository.land(change, self._change(new_files))
        except NotAtomicError:
            return None
        self.wanted = new_files
        self._record(new_files, landed_commit.memory_commit, "")
        return landed_commit

    def _change(self, files: Files) -> Changeset:
        """Return the memory branch's next commit: these files, except those that no run has
        written.

        Raises `TargetError` if a file cannot be read, because any hold in it would be lost.
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
            tip="",  # no parent: the branch has a single commit
            files=kept_files,
            message=(
                f"Remember holds and waiting builds for {base.branch}\n\n"
                f"{BASE_TRAILER}: {base.branch}\n"
            ),
            author=self._author,
            head_commit=self._tip,
        )

    def _drop_inherited(self, name: str, tip: str) -> None:
        """Delete the memory branch with the old name. In a `plan`, do nothing.

        A failure is an error (`Outpaced` or `TaskError`) only if there is no new branch, because
        then the next run would still read the old one.
        """
        if self._job.dry:
            return
        change = replace(self._change({}), head=name, head_commit=tip)  # no files: delete it
        try:
            self._batch.repository.remember(change)
        except (Outpaced, TaskError):
            if not self.wanted:
                raise
            # The next run only reads the new branch.

    def _record(self, files: Files, commit: str, tree: str) -> None:
        """Record that the memory branch now has these files in this commit.

        If the memory came from a branch with an old name, delete that branch.
        """
        before = self._files_on_branch
        if self._inherited:
            if not files:  # no new branch is created; the change is the deletion of the old one
                before = self._base.memory_files
            old_name, old_tip = self._inherited
            self._drop_inherited(old_name, old_tip)
        self._inherited = None
        self._files_on_branch = files
        self._tip = commit

        all_paths = dict.fromkeys((*before, *files))
        changed_paths = [path for path in all_paths if files.get(path) != before.get(path)]
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
                files=tuple(sorted(changed_paths)),
                applications=tuple(sorted(apps)),
                diff=_memory_diff(before, files, changed_paths) if self._job.dry else None,
                through="git",
                remembers=True,
            )
        )


def _list_before_push(waiting_list: WaitingList, head: HeadBranch) -> WaitingList:
    """Return a head branch's list in the form that is pushed before the branch itself.

    It records two commits: the new one, and the branch's current one (`replaces`). Until the new
    commit is known to have arrived, the branch counts as ours at either commit.
    """
    current_commit = None
    if head.branch and head.ours:
        current_commit = HeadCommit(head.branch.tree, head.branch.parent)
    return replace(waiting_list, replaces=current_commit, arrived=False)


def _applications_of_lists(before: Files, after: Files, paths: Iterable[str]) -> set[str]:
    """Return the Applications whose waiting builds or releases (ends of holds) were added to or
    removed from a list. Only the lists at these paths are compared.
    """
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
    """Return the diff between two versions of the memory branch, limited to these paths."""
    changed = {path: after.get(path, GONE) for path in paths}
    return unified_diff(before, changed)
