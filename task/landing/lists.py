"""The lists of all head branches that a run touches, as they are afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from task.landing.changeset import Prepared
from task.landing.head_branches import HeadBranch
from task.landing.waiting import WaitsOnHead, list_after
from task.landing.waiting_list import WaitingList, is_list_path, list_path, write_list
from task.model import File, Files, Snapshot


@dataclass(frozen=True)
class Lists:
    """What the lists say after a run."""

    known: Mapping[str, WaitingList]  # by head branch, as the memory branch has them
    after_run: Mapping[str, WaitingList]
    with_commit: frozenset[str]  # those whose head branch gets a commit: they go with it
    instead: Mapping[str, str]  # of head branches that lose their builds to another one
    closing: Mapping[str, str]  # head branches on which nothing waits any more, and why

    @classmethod
    def after(
        cls,
        heads: Mapping[str, HeadBranch],
        prepared: Prepared,
        waits: Mapping[str, WaitsOnHead],
        base: Snapshot,
        now: str,
    ) -> Lists:
        """Return the lists after a run that lands what is prepared."""
        commits = {
            prepared_commit.changeset.head: prepared_commit for prepared_commit in prepared.commits
        }
        found: dict[str, WaitingList] = {}
        closing: dict[str, str] = {}
        for name, head in heads.items():
            of_head = waits[name]
            commit = commits.get(name)
            if head.instead:
                closing[name] = f"its base is now called {base.branch}"
                found[name] = replace(
                    head.listed,
                    builds=(),
                    releases=(),
                    closing=closing[name],
                )
                continue
            left = [undecided.listed for undecided in prepared.left.get(name, ())]
            left += [kept_build.listed for kept_build in of_head.kept if kept_build.stands]
            if commit is None and not of_head.altered:
                found[name] = head.listed
                continue
            moves = commit.done if commit else ()
            found[name] = list_after(head.listed, moves, of_head, left, base, now)
            if head.ours and head.listed.waits and not found[name].waits:
                closing[name] = "; ".join(dict.fromkeys(of_head.gone))
                found[name] = replace(found[name], closing=closing[name])
        for name, head in heads.items():
            if name not in closing and head.listed.closing and not found[name].waits:
                closing[name] = head.listed.closing
                found[name] = replace(found[name], closing=closing[name])
            # A branch that is there stays known as ours: a person may keep it after the merge.
            if head.branch is None and name not in commits and not found[name].waits:
                found[name] = replace(found[name], commit=None, replaces=None)
        known = {name: head.known for name, head in heads.items()}
        instead = {name: head.instead for name, head in heads.items() if head.instead}
        return cls(known, found, frozenset(commits), instead, closing)

    def of(self, name: str) -> WaitingList:
        """Return the list of a head branch."""
        return self.after_run[name]

    def without_commits(self, files: Files) -> Files:
        """Return the files of the memory branch with the lists that go with no commit."""
        bound = {one.head for name in self.with_commit for one in self.bound_to(name)}
        for name, one in self.after_run.items():
            if name not in self.with_commit and name not in bound and self.news(one):
                files = with_list(files, one)
        return files

    def bound_to(self, name: str) -> list[WaitingList]:
        """Return the lists whose builds a head branch has now: they change only together."""
        return [self.after_run[old] for old, new in self.instead.items() if new == name]

    def news(self, one: WaitingList) -> bool:
        """Tell whether a list says something else than the memory branch:
        no push for what the Git host knows.
        """
        known = self.known[one.head]
        said = (one.builds, one.releases, one.declined, one.closing)
        return said != (known.builds, known.releases, known.declined, known.closing)


def with_lists_of(states: Files, lists: Files) -> Files:
    """Return the state files of one memory branch with the lists of another."""
    return {
        **{path: file for path, file in states.items() if not is_list_path(path)},
        **{path: file for path, file in lists.items() if is_list_path(path)},
    }


def with_list(files: Files, one: WaitingList) -> Files:
    """Return the files of the memory branch with a list, or without it if it says nothing."""
    path = list_path(one.head)
    found = dict(files)
    if one.empty:
        found.pop(path, None)
        return found
    text = write_list(one)
    if path not in found or found[path].text != text:
        found[path] = File(text)
    return found
