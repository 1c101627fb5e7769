"""What earlier runs fetched from a repository (`--git-cache-dir`): packs, which the repository of a run borrows.

Packs are named by what they hold and appear whole, so any number of runs may read and add at the same time,
without a lock. Nothing here is needed: what cannot be read is fetched again, and what is broken is removed.
"""

import hashlib
import os
import time
from contextlib import suppress
from io import BytesIO
from typing import IO

from task.files import remove_folder

_MOST = 100  # packs; every one of them is looked into
_IN_USE = 3600.0  # seconds for which a run may still need a pack
_PIECE = 1 << 20  # bytes
_KINDS = (".rev", ".promisor", ".pack", ".idx")  # git sees a pack once its .idx is there


class Cache:
    """The folder of one repository."""

    def __init__(self, parent: str, url: str) -> None:
        self._folder = os.path.abspath(
            os.path.join(parent, hashlib.sha256(url.encode(errors="replace")).hexdigest()[:32])
        )
        self._parent = parent
        self._format = "sha1"

    @property
    def objects(self) -> str:
        """Where git looks for objects."""
        return f"{self._folder}/{self._format}"

    def open(self, object_format: str) -> str:
        """Why it cannot be used, or ""."""
        self._format = object_format
        try:
            os.makedirs(f"{self.objects}/pack", mode=0o700, exist_ok=True)
        except OSError as error:
            return f"{self._parent} cannot be used as --git-cache-dir: {error.strerror}"
        return ""

    def whole(self) -> str:
        """The last tip of a server that sends only whole trees; "" for one that does better."""
        with suppress(OSError), open(f"{self.objects}/whole", encoding="ascii") as file:
            return file.read().strip()
        return ""

    def keep(self, objects: str, whole: str) -> None:
        """Take over the packs of a run. `whole`: the tip of which they, with those kept before, hold everything."""
        with suppress(OSError):
            for name in sorted(os.listdir(f"{objects}/pack")):
                if name.endswith(".idx"):
                    self._take(f"{objects}/pack/{name[:-4]}")
            if whole:
                self._place(f"{self.objects}/whole", BytesIO(whole.encode()))
            self._tidy()

    def drop(self) -> None:
        """Forget everything: it is broken."""
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
        """The file appears whole, or not at all. A pack may be larger than the memory of a step."""
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

    def _tidy(self) -> None:
        """Too many packs are slow: the oldest go. A whole repository needs all of them, and starts again."""
        indexes = [entry for entry in os.scandir(f"{self.objects}/pack") if entry.name.endswith(".idx")]
        packs = sorted((entry.stat().st_mtime, entry.path[:-4]) for entry in indexes)
        if len(packs) <= _MOST:
            return
        if self.whole():
            self.drop()
            return
        for changed, path in packs[: -_MOST // 2]:
            if time.time() - changed > _IN_USE:
                for kind in reversed(_KINDS):
                    with suppress(OSError):
                        os.unlink(path + kind)
