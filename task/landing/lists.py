"""The lists of all head branches that a run affects, after the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from task.deciding.decide import is_state_path
from task.landing.changeset import Prepared, PreparedCommit
from task.landing.head_branches import HeadBranch
from task.landing.waiting_builds import WaitsOnHead, list_after
from task.landing.waiting_list import ListedBuild, WaitingList, is_list_path, list_path, write_list
from task.model import File, Files, Snapshot

REGULAR = "100644"  # the mode of a file


@dataclass(frozen=True)
class Lists:
    """The lists before and after a run."""

    known: Mapping[str, WaitingList]  # by head branch, as on the memory branch
    after_run: Mapping[str, WaitingList]
    with_commit: frozenset[str]  # lists whose head branch gets a commit and that are pushed with it
    instead: Mapping[str, str]  # from a head branch to the branch that gets its builds
    closing: Mapping[str, str]  # head branches with no builds waiting anymore, and why

    @classmethod
    def after(
        cls,
        heads: Mapping[str, HeadBranch],
        prepared: Prepared,
        waits: Mapping[str, WaitsOnHead],
        base: Snapshot,
        now: str,
    ) -> Lists:
        """Return the lists after a run that lands the prepared commits."""
        commits = {commit.changeset.head: commit for commit in prepared.commits}
        after_run: dict[str, WaitingList] = {}
        closing: dict[str, str] = {}
        for name, head in heads.items():
            commit = commits.get(name)
            left = [undecided.left_out for undecided in prepared.left.get(name, ())]
            listed = _list_after(head, commit, left, waits[name], base, now)
            because = _why_closed(head, listed, waits[name], base)
            if because is not None:
                closing[name] = because
                listed = replace(listed, closing=because)
            # Remember an existing branch as ours: a person may keep it after the merge.
            if head.branch is None and commit is None and not listed.proposes_anything:
                listed = replace(listed, commit=None, replaces=None)
            after_run[name] = listed
        known = {name: head.known for name, head in heads.items()}
        instead = {name: head.instead for name, head in heads.items() if head.instead}
        return cls(known, after_run, frozenset(commits), instead, closing)

    def of(self, name: str) -> WaitingList:
        """Return a head branch's list."""
        return self.after_run[name]

    def without_commits(self, files: Files) -> Files:
        """Return the memory branch's files with the lists that are not pushed with a commit."""
        bound = {one.head for name in self.with_commit for one in self.bound_to(name)}
        for name, listed in self.after_run.items():
            if name not in self.with_commit and name not in bound and self.news(listed):
                files = with_list(files, listed)
        return files

    def bound_to(self, name: str) -> list[WaitingList]:
        """Return the lists whose builds moved to this head branch. They must change with it."""
        return [self.after_run[old] for old, new in self.instead.items() if new == name]

    def news(self, listed: WaitingList) -> bool:
        """Return whether a list differs from the one on the memory branch.

        The request's state does not count, because the Git host has it.
        """
        known = self.known[listed.head]
        said = (listed.builds, listed.releases, listed.declined, listed.closing)
        return said != (known.builds, known.releases, known.declined, known.closing)


def _list_after(
    head: HeadBranch,
    commit: PreparedCommit | None,
    left: Sequence[ListedBuild],
    waits: WaitsOnHead,
    base: Snapshot,
    now: str,
) -> WaitingList:
    """Return a head branch's list after a run.

    `left` contains the builds that could not be written.
    """
    if head.instead:
        return replace(head.listed, builds=(), releases=())
    if commit is None and not waits.altered:
        return head.listed
    standing = [fate.listed for fate in waits.fates if fate.stands]
    done = commit.done if commit else ()
    return list_after(head.listed, done, waits, [*left, *standing], base, now)


def _why_closed(
    head: HeadBranch, listed: WaitingList, waits: WaitsOnHead, base: Snapshot
) -> str | None:
    """Return the reason for closing a head branch's request, or None to leave it as it is."""
    if head.instead:
        if base.renamed_from:
            return f"its base is now named {base.branch}"
        return f"its builds are now proposed on {head.instead}"  # regrouped by the config
    if listed.proposes_anything or not head.ours:
        return None
    if head.listed.proposes_anything:
        return "; ".join(dict.fromkeys(waits.gone))
    return head.listed.closing or None  # an earlier run could not close it


def strange_in(memory_files: Files) -> list[str]:
    """Return the paths on a memory branch that no run has written.

    They are left out of our signed commits. State files are never left out, even unreadable ones,
    because they may contain a hold.
    """
    return [
        path
        for path, file in sorted(memory_files.items())
        if not is_state_path(path)
        and (not is_list_path(path) or file.problem or file.mode != REGULAR)
    ]


def with_lists_of(states: Files, lists: Files) -> Files:
    """Combine the state files of one memory branch with the lists of another."""
    return {
        **{path: file for path, file in states.items() if not is_list_path(path)},
        **{path: file for path, file in lists.items() if is_list_path(path)},
    }


def with_list(files: Files, listed: WaitingList) -> Files:
    """Add a list to the memory branch's files, or remove it if it is empty."""
    path = list_path(listed.head)
    changed = dict(files)
    if listed.empty:
        changed.pop(path, None)
        return changed
    text = write_list(listed)
    if path not in changed or changed[path].text != text:
        changed[path] = File(text)
    return changed
