"""For tests of the history in Git: histories in real repositories, and git as a run calls it."""

import os
from collections.abc import Iterable
from pathlib import Path

from support import git
from task.git.command import Git

FILE = frozenset({"file"})
PROTOCOLS = FILE | {"git"}


def git_of_a_run(protocols: frozenset[str] = PROTOCOLS) -> Git:
    """Return a git that uses the test environment."""
    return Git(os.environ, protocols=protocols)


def many(repo: Path, changes: Iterable[tuple[str, str | None]], branch: str = "main") -> None:
    """Add a commit to a branch for each (path, text), with a single call of git. None deletes the
    file.
    """
    lines = ["feature done", f"reset refs/heads/{branch}", f"from refs/heads/{branch}^0"]
    for number, (path, text) in enumerate(changes):
        who = f"committer T <t@example.com> {1700000000 + number} +0000"
        lines += [f"commit refs/heads/{branch}", who, "data 1", "x"]
        if text is None:
            lines.append(f"D {path}")
        else:
            lines += [f"M 100644 inline {path}", f"data {len(text)}", text]
    git(repo, "fast-import", "--quiet", stdin="\n".join([*lines, "done", ""]).encode())


def chain(repo: Path, count: int, branch: str = "main") -> list[str]:
    """Add `count` commits to a branch, and return their IDs, oldest first."""
    many(repo, [("app.py", f"{branch}{number}") for number in range(count)], branch)
    return git(repo, "rev-list", "--reverse", branch).split()[-count:]
