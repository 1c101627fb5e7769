"""A folder in the temporary folder that only this user can read, with a name short enough for sockets in it."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from task.errors import UnreachableError

LONGEST = 60  # bytes of the whole path: the names of sockets end at 108, and what is put in here takes up to 45
_PAUSES = (0.02, 0.1, 0.3, 0)  # seconds between attempts to remove it


def make(parent: str, longest: int = 0) -> str:
    """A new folder; in /tmp where its path would be longer than `longest`. Raises `UnreachableError`."""
    name = f"image-update-{os.urandom(4).hex()}"
    if longest and len(os.fsencode(parent)) + 1 + len(name) > longest:
        parent = "/tmp"  # noqa: S108 - the name is random, the folder private
    path = os.path.join(parent, name)
    try:
        os.mkdir(path, 0o700)
    except OSError as error:
        message = f"no temporary folder in {parent}: {error.strerror}"
        raise UnreachableError(message, hint="make room, or set TMPDIR") from error
    return path


def remove(folder: str) -> None:
    """Remove it with all that is in it; shutil would take longer to load than this takes.

    A child of a git that was ended may still write for a moment: what it leaves goes as well.
    """
    for pause in _PAUSES:
        _sweep(folder)
        if not os.path.lexists(folder):
            return
        time.sleep(pause)


def _sweep(folder: str) -> None:
    for path, _, names in os.walk(folder, topdown=False):
        for name in names:
            with suppress(OSError):
                os.unlink(os.path.join(path, name))
        with suppress(OSError):
            os.rmdir(path)
