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
LARGEST = 64_000_000  # maximum bytes in the files to render, and in the output
LINK = "120000"  # Git's mode for a symbolic link
_MOST = 100_000  # maximum number of files
_NO_COMMIT = ("ambiguous argument 'HEAD'", "unknown revision")


@dataclass(frozen=True)
class Located:
    """A file's location in a Git repository."""

    repo: str  # the configured URL of the remote `origin`
    branch: str  # "" if no branch is checked out: GitLab and Jenkins check out a commit
    path: str  # relative to the repository's root


def locate(path: str, git: Git) -> Located | None:
    """Return a file's origin, branch, and path. Return None if the file is not in a work tree, or
    if the work tree has no origin or no commit.

    Git is run once per work tree.
    """
    real_path = os.path.realpath(path)
    top = top_of(os.path.dirname(real_path))
    if not top or not os.path.exists(real_path):
        return None
    remote_and_branch = _remote_and_branch(top, git)
    if not remote_and_branch:
        return None
    remote, branch = remote_and_branch
    return Located(remote, branch, os.path.relpath(real_path, top).replace(os.sep, "/"))


def top_of(folder: str) -> str:
    """Return the nearest folder with a `.git`, or "".

    In submodules and linked work trees, `.git` is a file.
    """
    while not os.path.exists(os.path.join(folder, ".git")):
        parent = os.path.dirname(folder)
        if parent == folder:
            return ""
        folder = parent
    return folder


@lru_cache(maxsize=256)
def _remote_and_branch(top: str, git: Git) -> tuple[str, str] | None:
    """Return the URL of the remote `origin` and the checked-out branch ("" if there is none).

    Return None if there is no origin or no commit. If Git fails for another reason, such as a
    broken configuration, log a warning and return None.

    A work tree owned by a different user, which is common in containers, is not a risk: only these
    two commands are run, and both only read. (An explicit `--git-dir` also disables Git's ownership
    check.)
    """
    git_dir = f"{top}/.git"
    try:
        url_output = git.run(
            "config", "--get", "remote.origin.url", git_dir=git_dir, timeout=_SECONDS
        )
        branch_output = git.run(
            "rev-parse", "--abbrev-ref", "HEAD", git_dir=git_dir, timeout=_SECONDS
        )
    except GitFailed as error:
        has_no_origin = not error.err.strip()
        has_no_commit = any(words in error.err for words in _NO_COMMIT)
        if not has_no_origin and not has_no_commit:
            why = f"cannot tell which repository {blanked(top)} belongs to: {quoted(error.err)}"
            git.log(f"warning: {why}; repair it, or clone the repository again")
        return None
    url = url_output.out.decode().strip()
    if url.startswith(("./", "../")):  # another repository on this machine
        url = os.path.normpath(os.path.join(top, url))
    branch = branch_output.out.decode().strip()
    if branch == "HEAD":  # no branch is checked out
        branch = ""
    return url, branch


class LocalFiles:
    """Reads the files that Helm or Kustomize needs for a folder: the folder itself, and other
    folders in the same work tree.

    Without a work tree, paths are relative to the working folder if it contains the folder, or else
    to the folder itself.
    """

    def __init__(self, folder: str) -> None:
        real_path = os.path.realpath(folder)
        working_folder = os.path.realpath(".")
        self._top = top_of(real_path)
        if not self._top:  # no work tree
            is_inside = f"{real_path}/".startswith(f"{working_folder}/")
            self._top = working_folder if is_inside else real_path
        path = os.path.relpath(real_path, self._top).replace(os.sep, "/")
        self.folder = "" if path == "." else path  # relative to the top

    def read(self, folder: str) -> Mapping[str, File]:
        """Return all files in or below a folder, by path relative to the top.

        Symbolic links are returned as links. Raises `Malformed` if there are too many files or the
        files are too large.
        """
        files: dict[str, File] = {}
        size = 0
        start = os.path.join(self._top, folder)
        for parent, subfolders, names in os.walk(start):
            # `os.walk` lists links to folders as folders, but does not follow them
            links = [name for name in subfolders if os.path.islink(os.path.join(parent, name))]
            subfolders[:] = [name for name in subfolders if name != ".git"]
            for name in (*names, *links):
                full_path = os.path.join(parent, name)
                relative_path = os.path.relpath(full_path, self._top).replace(os.sep, "/")
                file = _file(full_path)
                files[relative_path] = file
                size += len(file.text)
                if size > LARGEST or len(files) > _MOST:
                    raise Malformed(f"{start} is too large to render", "use a smaller folder")
        return files


def _file(path: str) -> File:
    """Return a file with its content, or with the reason why it cannot be read. A link has no
    content.
    """
    if os.path.islink(path):
        return File("", LINK)
    try:
        return File(read_file(path, LARGEST).decode("utf-8"))
    except UnicodeDecodeError:
        return File("", problem="not UTF-8 text")
    except OSError as error:
        return File("", problem=str(error.strerror))
