"""The lists of waiting builds for all head branches that a run affects, as of after the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from task.deciding.decide import is_state_path
from task.landing.changeset import Prepared, PreparedCommit
from task.landing.head_branches import HeadBranch
from task.landing.waiting_builds import FatesOnHead, list_after
from task.landing.waiting_list import ListedBuild, WaitingList, is_list_path, list_path, write_list
from task.model import File, Files, Snapshot

REGULAR = "100644"  # Git's mode for a regular file


@dataclass(frozen=True)
class Lists:
    """The lists of the builds waiting on head branches, before and after a run."""

    before_run: Mapping[str, WaitingList]  # by head branch, as on the memory branch
    after_run: Mapping[str, WaitingList]
    with_commit: frozenset[str]  # head branches whose list is pushed with their commit
    instead: Mapping[str, str]  # the branch that took over the builds, by old head branch
    closing: Mapping[str, str]  # why to close each head branch that no longer has builds

    @classmethod
    def after(
        cls,
        heads: Mapping[str, HeadBranch],
        prepared: Prepared,
        head_fates: Mapping[str, FatesOnHead],
        base: Snapshot,
        now: str,
    ) -> Lists:
        """Return the lists of waiting builds as they will be after the prepared commits have
        landed.

        `head_fates` records what became of the builds that were waiting on each head branch (the
        branch of a pull request).
        """
        commits = {commit.changeset.head: commit for commit in prepared.commits}
        after_run: dict[str, WaitingList] = {}
        closing: dict[str, str] = {}  # the reason for closing each obsolete request
        for name, head in heads.items():
            commit = commits.get(name)
            fates_on_head = head_fates[name]
            unwritten = [undecided.list_entry for undecided in prepared.unwritten.get(name, ())]
            waiting_list = _list_of_head_after(head, commit, unwritten, fates_on_head, base, now)
            because = _why_closed(head, waiting_list, fates_on_head, base)
            if because is not None:
                closing[name] = because
                waiting_list = replace(waiting_list, closing=because)
            # Forget our commit if there is no branch. An existing branch remains recorded as ours,
            # because a person may keep it after the merge.
            has_no_branch = head.branch is None and commit is None
            if has_no_branch and not waiting_list.proposes_anything:
                waiting_list = replace(waiting_list, commit=None, replaces=None)
            after_run[name] = waiting_list
        before_run = {name: head.stored_list for name, head in heads.items()}
        instead = {name: head.instead for name, head in heads.items() if head.instead}
        return cls(
            before_run=before_run,
            after_run=after_run,
            with_commit=frozenset(commits),
            instead=instead,
            closing=closing,
        )

    def of(self, name: str) -> WaitingList:
        """Return a head branch's list after the run."""
        return self.after_run[name]

    def without_commits(self, files: Files) -> Files:
        """Return the memory branch's files, updated with the changed lists that are not pushed
        together with a commit to a head branch.
        """
        # Head branches whose list is pushed with a commit: to the branch itself, or to the branch
        # that took over its builds.
        heads_pushed_later = set(self.with_commit)
        for name in self.with_commit:
            heads_pushed_later.update(old_list.head for old_list in self.moved_to(name))
        for name, waiting_list in self.after_run.items():
            if name not in heads_pushed_later and self.news(waiting_list):
                files = with_list(files, waiting_list)
        return files

    def moved_to(self, name: str) -> list[WaitingList]:
        """Return the lists whose builds moved to this head branch. They must be pushed together
        with it.
        """
        return [self.after_run[old] for old, heir in self.instead.items() if heir == name]

    def news(self, waiting_list: WaitingList) -> bool:
        """Return whether a list after the run differs from the one on the memory branch.

        The request's state does not count, because the Git host stores it.
        """
        before = self.before_run[waiting_list.head]
        return (
            waiting_list.builds != before.builds
            or waiting_list.releases != before.releases
            or waiting_list.declined != before.declined
            or waiting_list.closing != before.closing
        )


def _list_of_head_after(
    head: HeadBranch,
    commit: PreparedCommit | None,
    unwritten: Sequence[ListedBuild],
    of_head: FatesOnHead,
    base: Snapshot,
    now: str,
) -> WaitingList:
    """Return a head branch's list of waiting builds (proposed there, and not merged yet) after a
    run.

    `commit` is the branch's next commit, if there is one. `unwritten` contains the builds that
    could not be written, and `of_head` records what became of the builds that were waiting before
    the run.
    """
    if head.instead:  # another head branch has its builds now
        return replace(head.waiting_list, builds=(), releases=())
    if commit is None and not of_head.altered:
        return head.waiting_list
    on_foreign_branch = [fate.listed for fate in of_head.fates if fate.on_foreign_branch]
    not_in_commit = [*unwritten, *on_foreign_branch]
    done = commit.done if commit else ()
    return list_after(head.waiting_list, done, of_head, not_in_commit, base, now)


def _why_closed(
    head: HeadBranch, after_run: WaitingList, of_head: FatesOnHead, base: Snapshot
) -> str | None:
    """Return the reason for closing a head branch's pull request, or None to leave it open.

    The reason may be "". `after_run` is the branch's list after the run, and `of_head` records what
    became of the builds that were waiting before that.
    """
    if head.instead:  # another head branch has its builds now
        if base.renamed_from:
            return f"its base is now named {base.branch}"
        return f"its builds are now proposed on {head.instead}"  # the config regrouped them
    if after_run.proposes_anything or not head.ours:
        return None
    if head.waiting_list.proposes_anything:
        return "; ".join(dict.fromkeys(of_head.closing_reasons))
    return head.waiting_list.closing or None  # an earlier run could not close it


def strange_in(memory_files: Files) -> list[str]:
    """Return the paths of the files on a memory branch that no run has written: everything except
    state files and regular list files.

    State files always count as ours, even unreadable ones, because they may contain a hold.
    """
    strange_paths = []
    for path, file in sorted(memory_files.items()):
        if is_state_path(path):
            continue
        is_regular_file = not file.problem and file.mode == REGULAR
        if not is_list_path(path) or not is_regular_file:
            strange_paths.append(path)
    return strange_paths


def with_lists_of(states: Files, lists: Files) -> Files:
    """Return the files of a memory branch: everything in `states` except its lists, plus the lists
    in `lists`.
    """
    return {
        **{path: file for path, file in states.items() if not is_list_path(path)},
        **{path: file for path, file in lists.items() if is_list_path(path)},
    }


def with_list(files: Files, waiting_list: WaitingList) -> Files:
    """Return the memory branch's files with this list of waiting builds. If the list is empty, its
    file is left out.
    """
    path = list_path(waiting_list.head)
    changed = dict(files)
    if waiting_list.empty:
        changed.pop(path, None)
        return changed
    text = write_list(waiting_list)
    if path not in changed or changed[path].text != text:
        changed[path] = File(text)
    return changed
