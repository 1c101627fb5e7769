"""The files of a folder on this machine, by their paths from the top of the work tree."""

from __future__ import annotations

import os
from collections.abc import Mapping

from task.applications.programs import LARGEST
from task.applications.work_tree import top_of
from task.errors import Malformed
from task.files import read_file
from task.model import File

LINK = "120000"  # Git's mode of a symbolic link
_MOST = 100_000  # files


class LocalFiles:
    """Reads what Helm or Kustomize needs for a folder: that folder, and others of the same work tree.

    Without a work tree, the top is the working folder if it contains the folder, else the folder itself.
    """

    def __init__(self, folder: str) -> None:
        real, here = os.path.realpath(folder), os.path.realpath(".")
        self._top = top_of(real) or (here if f"{real}/".startswith(f"{here}/") else real)
        path = os.path.relpath(real, self._top).replace(os.sep, "/")
        self.folder = "" if path == "." else path  # from the top

    def read(self, folder: str) -> Mapping[str, File]:
        """Return all files in a folder and below it, with links as links.

        Raises Malformed for too many or too large files.
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
                    raise Malformed(f"{start} has too much to be rendered", "name a smaller folder")
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
