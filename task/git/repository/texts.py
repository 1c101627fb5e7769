"""Pure code that reads a blob as a text file, or says why it cannot."""

from __future__ import annotations

from task.git.repository.objects import Object
from task.model import File

_LFS = "version https://git-lfs.github.com/spec/"


def file_of(blob: Object) -> File:
    """Return its text with byte order mark and line ends as they are, or the reason why it has none."""
    if blob.content is None:
        return File("", problem="larger than 10 MB")
    try:
        text = blob.content.decode("utf-8")
    except UnicodeDecodeError:
        return File("", problem="not UTF-8 text")
    if "\0" in text:
        return File("", problem="not UTF-8 text")
    return File("", problem="kept in Git LFS") if text.startswith(_LFS) else File(text)
