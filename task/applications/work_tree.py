"""Where in Git a manifest on disk belongs: a HelmRelease says nothing about its own repository."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache

from task.git.command import Git
from task.git.errors import quoted
from task.git.failed import GitFailed
from task.text import blanked

_SECONDS = 30.0  # an `include` of a configuration may name a pipe that nobody writes to
_NO_COMMIT = ("ambiguous argument 'HEAD'", "unknown revision")


@dataclass(frozen=True)
class Located:
    """A file of a repository."""

    repo: str  # the URL of the remote `origin`, as it is configured
    branch: str  # "" when no branch is checked out, as in many CI jobs
    path: str  # from the repository's root


def locate(path: str, git: Git) -> Located | None:
    """The origin, branch and path of a file in a work tree; None outside of one, without an origin or a commit.

    Git is asked once per work tree.
    """
    real = os.path.realpath(path)
    top = _top(os.path.dirname(real))
    found = _origin(top, git) if top and os.path.exists(real) else None
    return Located(*found, os.path.relpath(real, top).replace(os.sep, "/")) if found else None


def _top(folder: str) -> str:
    """The nearest folder with a `.git` (a folder, or the file of a submodule or linked work tree); "" without."""
    while not os.path.exists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return ""
        folder = above
    return folder


@lru_cache(maxsize=256)
def _origin(top: str, git: Git) -> tuple[str, str] | None:
    """URL and branch; None without, which is a warning where the configuration cannot be read.

    Only configuration is read, so a work tree of another user, usual in containers, is no risk.
    """
    told = f"{top}/.git"
    try:
        url = git.run("config", "--get", "remote.origin.url", git_dir=told, timeout=_SECONDS).decode().strip()
        branch = git.run("rev-parse", "--abbrev-ref", "HEAD", git_dir=told, timeout=_SECONDS).decode().strip()
    except GitFailed as error:
        if error.err.strip() and not any(words in error.err for words in _NO_COMMIT):
            why = f"which repository {blanked(top)} belongs to cannot be read: {quoted(error.err)}"
            git.log(f"warning: {why}; repair it, or check the repository out again")
        return None
    if url.startswith(("./", "../")):
        url = os.path.normpath(os.path.join(top, url))
    return url, "" if branch == "HEAD" else branch
