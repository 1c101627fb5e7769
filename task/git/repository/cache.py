"""What earlier runs fetched from a repository (`--git-cache-dir`): packs, which the repository of a run borrows.

Packs are named by what they hold and appear whole, so any number of runs may read and add at the same time,
without a lock. Nothing here is needed: what cannot be read is fetched again, and what is broken is removed.
"""

import hashlib
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import IO

from task.files import remove_folder

_MOST = 100  # packs, because git looks into each of them. Later packs need earlier ones, so all are removed together.
_PIECE = 1 << 20  # bytes
_LONGEST = 100  # bytes of the note about the last tip
_NOTES = {
    name: re.compile(rb"([0-9a-f]{%d}) (whole|trees)\s*" % length) for name, length in (("sha1", 40), ("sha256", 64))
}
_KINDS = (".rev", ".promisor", ".pack", ".idx")  # git sees a pack once its .idx is there


@dataclass(frozen=True)
class Kept:
    """The last tip for which the packs have all trees, and, if `whole`, all files; "" if there is none."""

    tip: str = ""
    whole: bool = False  # the server supports no filters


class Cache:
    """The cache folder of one repository."""

    def __init__(self, parent: str, url: str) -> None:
        self._folder = os.path.abspath(
            os.path.join(parent, hashlib.sha256(url.encode(errors="replace")).hexdigest()[:32])
        )
        self._parent = parent
        self._format = "sha1"

    @property
    def objects(self) -> str:
        """The folder in which git looks for objects."""
        return f"{self._folder}/{self._format}"

    def open(self, object_format: str) -> str:
        """Return why it cannot be used, or ""."""
        self._format = object_format
        try:
            os.makedirs(f"{self.objects}/pack", mode=0o700, exist_ok=True)
        except OSError as error:
            return f"{self._parent} cannot be used as --git-cache-dir: {error.strerror}"
        return ""

    def kept(self) -> Kept:
        """Return the last tip that was kept. Git tells the server about it, and gets only what is new.

        After a crash of the machine, anything may be in the file.
        """
        with suppress(OSError), open(f"{self.objects}/tip", "rb") as file:
            if note := _NOTES[self._format].fullmatch(file.read(_LONGEST)):
                return Kept(note[1].decode(), note[2] == b"whole")
        return Kept()

    def keep(self, objects: str, kept: Kept) -> None:
        """Add the packs of a run. Together with earlier ones, they have everything of the tip `kept`."""
        with suppress(OSError):
            for name in sorted(os.listdir(f"{objects}/pack")):
                if name.endswith(".idx"):
                    self._take(f"{objects}/pack/{name[:-4]}")
            if kept.tip:
                self._place(f"{self.objects}/tip", BytesIO(f"{kept.tip} {'whole' if kept.whole else 'trees'}".encode()))
            if sum(name.endswith(".idx") for name in os.listdir(f"{self.objects}/pack")) > _MOST:
                self.drop()

    def drop(self) -> None:
        """Remove everything, because it is broken."""
        aside = f"{self._folder}.{os.urandom(4).hex()}"
        with suppress(OSError):
            os.rename(self._folder, aside)
        remove_folder(aside)

    def _take(self, pack: str) -> None:
        to = f"{self.objects}/pack/{os.path.basename(pack)}"
        if os.path.exists(f"{to}.idx"):
            return
        for kind in _KINDS:
            with suppress(FileNotFoundError), open(pack + kind, "rb") as file:
                self._place(to + kind, file)

    @staticmethod
    def _place(path: str, content: IO[bytes]) -> None:
        """Copy a file so that it appears whole, or not at all. A pack may be larger than the step's memory."""
        aside = f"{path}.{os.urandom(4).hex()}.tmp"
        try:
            with open(aside, "wb") as file:
                while piece := content.read(_PIECE):
                    file.write(piece)
            os.rename(aside, path)
        except OSError:
            with suppress(OSError):
                os.unlink(aside)
            raise
