"""The counterpart of the in-memory branch (`memory.Branch`) in a real repository, which git reads
and writes over file://.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

from support import bare_repo, commit, git
from support.memory import Branch, Commit
from task.git.command import Git
from task.git.names import MEMORY, memory_branch
from task.git.repository.bare import BareRepository

WHO = ("-c", "user.name=Jane", "-c", "user.email=jane@example.com")


class GitBranch(Branch):
    """A branch in a real repository, and its head branches."""

    def __init__(self, files: Mapping[str, str], folder: Path) -> None:
        self.name = "main"
        self.repo = bare_repo(folder, files)
        self.url = f"file://{self.repo}"
        self.interrupt: tuple[str, Callable[[], object]] | None = None

    def opened(self) -> "Opened":
        return Opened(self)

    @property
    def files(self) -> dict[str, str]:
        return self.tree(self.name)

    @property
    def heads(self) -> dict[str, Commit]:  # type: ignore[override]
        lines = git(
            self.repo, "for-each-ref", "--format=%(objectname) %(refname:lstrip=2)", "refs/heads/"
        ).splitlines()
        names = (line.partition(" ") for line in lines)
        return {name: self._commit(name, oid) for oid, _, name in names if name != self.name}

    def _commit(self, name: str, oid: str) -> Commit:
        tree, *parents = git(self.repo, "show", "-s", "--format=%T %P", oid).split()
        listed = self.lists.get(name) if not name.startswith(MEMORY) else None
        ours = listed is not None and len(parents) == 1 and listed.is_our_commit(tree, parents[0])
        parent = parents[0] if len(parents) == 1 else ""
        return Commit(oid, self.tree(oid), self.tree(parent) if ours else None, parent=parent)

    @property
    def remembered(self) -> dict[str, str]:
        found = self.memory_head
        return self.tree(found) if found else {}

    @property
    def memory_head(self) -> str:
        names = git(
            self.repo, "for-each-ref", "--format=%(refname:lstrip=2)", f"refs/heads/{MEMORY}"
        ).splitlines()
        own = memory_branch(self.url, self.name)
        return own if own in names else next(iter(names), "")

    def tree(self, at: str) -> dict[str, str]:
        paths = git(self.repo, "ls-tree", "-r", "--name-only", at).splitlines()
        text = {path: git(self.repo, "cat-file", "blob", f"{at}:{path}") for path in paths}
        return {path: f"{one}\n" for path, one in text.items()}

    def commit(self, files: Mapping[str, str]) -> None:
        commit(self.repo, files, self.name)

    def commit_on(self, head: str, files: Mapping[str, str]) -> None:
        if head not in self.heads:
            git(self.repo, "branch", head, self.name)
        commit(self.repo, files, head)

    def merged(self, branch: str, commit: str) -> bool:
        return git(self.repo, "merge-base", branch, commit) == commit

    def delete(self, head: str) -> None:
        git(self.repo, "update-ref", "-d", f"refs/heads/{head}")

    def rename(self, name: str) -> None:
        git(self.repo, "branch", "-m", self.name, name)
        git(self.repo, "symbolic-ref", "HEAD", f"refs/heads/{name}")
        self.name = name

    def merge(self, head: str, *, keep: bool = False, style: str = "squash") -> bool:
        """Merge as a Git host does. Return False if there are conflicts."""
        base, tip = (git(self.repo, "rev-parse", one) for one in (self.name, head))
        if style == "fast-forward" and git(self.repo, "merge-base", base, tip) == base:
            made = tip
        else:
            try:
                tree = git(self.repo, "merge-tree", "--write-tree", base, tip)
            except (CalledProcessError, AssertionError):
                return False
            parents = ("-p", base, "-p", tip) if style == "merge" else ("-p", base)
            made = git(self.repo, *WHO, "commit-tree", tree, *parents, "-m", f"Merge {head}")
        git(self.repo, "update-ref", f"refs/heads/{self.name}", made)
        if not keep:
            self.delete(head)
        return True


class Opened:
    """The repository as one run sees it."""

    def __init__(self, branch: GitBranch) -> None:
        self._branch = branch
        self._store = BareRepository(
            Git(os.environ, protocols=frozenset({"file"})), f"file://{branch.repo}"
        )

    def __getattr__(self, name: str) -> Any:
        self._branch.reached(name)
        return getattr(self._store, name)
