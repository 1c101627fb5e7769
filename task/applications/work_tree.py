"""Finds the repository that a manifest on disk belongs to. A HelmRelease itself does not say where it comes from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache

from task.git.command import Git
from task.git.errors import GitFailed, quoted
from task.text import blanked

_SECONDS = 30.0  # an `include.path` in Git's configuration may name a pipe that nobody writes to
_NO_COMMIT = ("ambiguous argument 'HEAD'", "unknown revision")


@dataclass(frozen=True)
class Located:
    """A file's place in a repository."""

    repo: str  # the URL of the remote `origin`, as configured
    branch: str  # "" if no branch is checked out: GitLab and Jenkins check out a commit
    path: str  # from the repository's root


def locate(path: str, git: Git) -> Located | None:
    """Return the origin, branch and path of a file, or None if it has no work tree, or that has no origin or commit.

    Git is asked once for each work tree.
    """
    real = os.path.realpath(path)
    top = top_of(os.path.dirname(real))
    origin = _origin(top, git) if top and os.path.exists(real) else None
    return Located(*origin, os.path.relpath(real, top).replace(os.sep, "/")) if origin else None


def top_of(folder: str) -> str:
    """Return the nearest folder with a `.git`, or "". In submodules and linked work trees, `.git` is a file."""
    while not os.path.exists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return ""
        folder = above
    return folder


@lru_cache(maxsize=256)
def _origin(top: str, git: Git) -> tuple[str, str] | None:
    """Return the URL and branch, or None if there is no origin or commit. Warns about a broken configuration.

    A work tree of another user, which is usual in containers, is no risk: only these two commands are run, and they
    only read. (An explicit `--git-dir` also turns off Git's check of the owner.)
    """
    git_dir = f"{top}/.git"
    try:
        url = git.run("config", "--get", "remote.origin.url", git_dir=git_dir, timeout=_SECONDS).decode().strip()
        branch = git.run("rev-parse", "--abbrev-ref", "HEAD", git_dir=git_dir, timeout=_SECONDS).decode().strip()
    except GitFailed as error:
        if error.err.strip() and not any(words in error.err for words in _NO_COMMIT):
            why = f"which repository {blanked(top)} belongs to is not known: {quoted(error.err)}"
            git.log(f"warning: {why}; repair it, or clone the repository again")
        return None
    if url.startswith(("./", "../")):
        url = os.path.normpath(os.path.join(top, url))
    return url, "" if branch == "HEAD" else branch
