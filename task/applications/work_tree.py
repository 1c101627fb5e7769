"""The Git work tree that contains a path on this machine: its repository and its files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from task.errors import Malformed
from task.files import read_file
from task.git.command import Git
from task.git.errors import GitFailed, quoted
from task.model import File
from task.text import blanked

_SECONDS = 30.0  # an `include.path` in Git's configuration may be a pipe without a writer
LARGEST = 64_000_000  # bytes in the files to render, and in the output
LINK = "120000"  # Git's mode for a symbolic link
_MOST = 100_000  # files
_NO_COMMIT = ("ambiguous argument 'HEAD'", "unknown revision")


@dataclass(frozen=True)
class Located:
    """A file's place in a repository."""

    repo: str  # the configured URL of the remote `origin`
    branch: str  # "" if no branch is checked out: GitLab and Jenkins check out a commit
    path: str  # relative to the repository's root


def locate(path: str, git: Git) -> Located | None:
    """Return a file's origin, branch, and path, or None if the file is not in a work tree, or the
    work tree has no origin or commit.

    Git is run once per work tree.
    """
    real = os.path.realpath(path)
    top = top_of(os.path.dirname(real))
    origin = _remote_and_branch(top, git) if top and os.path.exists(real) else None
    if not origin:
        return None
    below_top = os.path.relpath(real, top).replace(os.sep, "/")
    return Located(*origin, below_top)


def top_of(folder: str) -> str:
    """Return the nearest folder with a `.git`, or "".

    In submodules and linked work trees, `.git` is a file.
    """
    while not os.path.exists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return ""
        folder = above
    return folder


@lru_cache(maxsize=256)
def _remote_and_branch(top: str, git: Git) -> tuple[str, str] | None:
    """Return the URL and branch, or None if there is no origin or commit.

    Warns about a broken configuration.

    A work tree owned by a different user, which is common in containers, is not a risk: only these
    two commands are run, and both only read. (An explicit `--git-dir` also turns off Git's
    ownership check.)
    """
    git_dir = f"{top}/.git"
    try:
        url = (
            git.run("config", "--get", "remote.origin.url", git_dir=git_dir, timeout=_SECONDS)
            .out.decode()
            .strip()
        )
        branch = (
            git.run("rev-parse", "--abbrev-ref", "HEAD", git_dir=git_dir, timeout=_SECONDS)
            .out.decode()
            .strip()
        )
    except GitFailed as error:
        if error.err.strip() and not any(words in error.err for words in _NO_COMMIT):
            why = f"cannot tell which repository {blanked(top)} belongs to: {quoted(error.err)}"
            git.log(f"warning: {why}; repair it, or clone the repository again")
        return None
    if url.startswith(("./", "../")):
        url = os.path.normpath(os.path.join(top, url))
    return url, "" if branch == "HEAD" else branch


class LocalFiles:
    """Reads the files that Helm or Kustomize needs for a folder: the folder itself, and other
    folders in the same work tree.

    Without a work tree, the top is the working folder if it contains the folder, or else the folder
    itself.
    """

    def __init__(self, folder: str) -> None:
        real = os.path.realpath(folder)
        here = os.path.realpath(".")
        self._top = top_of(real) or (here if f"{real}/".startswith(f"{here}/") else real)
        path = os.path.relpath(real, self._top).replace(os.sep, "/")
        self.folder = "" if path == "." else path  # relative to the top

    def read(self, folder: str) -> Mapping[str, File]:
        """Return all files in or below a folder. Symbolic links are returned as links.

        Raises Malformed if there are too many files or the files are too large.
        """
        found: dict[str, File] = {}
        size = 0
        start = os.path.join(self._top, folder)
        for parent, folders, names in os.walk(start):
            links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
            folders[:] = [name for name in folders if name != ".git"]
            for name in (*names, *links):
                full = os.path.join(parent, name)
                file = _file(full)
                size += len(file.text)
                found[os.path.relpath(full, self._top).replace(os.sep, "/")] = file
                if size > LARGEST or len(found) > _MOST:
                    raise Malformed(f"{start} is too large to render", "use a smaller folder")
        return found


def _file(path: str) -> File:
    if os.path.islink(path):
        return File("", LINK)
    try:
        return File(read_file(path, LARGEST).decode("utf-8"))
    except UnicodeDecodeError:
        return File("", problem="not UTF-8 text")
    except OSError as error:
        return File("", problem=str(error.strerror))
