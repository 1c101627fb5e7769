"""Reads objects of a bare repository, with one `git cat-file --batch` for the whole life of a store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from task import shutdown
from task.errors import SourceError, UnreachableError
from task.git.command import Git, Talk
from task.git.repository.bare_folder import BareFolder
from task.model import File

LARGEST = 10_000_000  # bytes; no person writes a larger file
TOGETHER = 512_000_000  # bytes that are read together
_AT_ONCE = 500  # questions that fit into a pipe, so that neither side blocks the other


@dataclass(frozen=True)
class Object:
    """One object: `content` is None if it is larger than `LARGEST`."""

    kind: str  # "commit", "tree", "blob"
    size: int
    content: bytes | None


class MissingObjectError(UnreachableError):
    """A required object cannot be read."""


class Objects:
    """The present objects. Asking for another one is an error, and nothing is fetched for it."""

    def __init__(self, git: Git, folder: BareFolder) -> None:
        self._git = git
        self._folder = folder
        self._talk: Talk | None = None

    def read(self, oids: Sequence[str]) -> Mapping[str, Object]:
        """Return all of these objects. Raises `MissingObjectError` if the server sent less than was requested.

        Raises `SourceError` if they are more than `TOGETHER`: a small pack may hold thousands of large files.
        """
        found: dict[str, Object] = {}
        size = 0
        for start in range(0, len(oids), _AT_ONCE):
            for oid, one in self._some(oids[start : start + _AT_ONCE]):
                found[oid] = one
                size += len(one.content or b"")
                if size > TOGETHER:
                    self.close()
                    message = f"the files and folders to read are larger than {TOGETHER // 1_000_000} MB together"
                    raise SourceError(message, hint="name a smaller folder, or leave large files out of it")
        return found

    def absent(self, oids: Sequence[str]) -> list[str]:
        """Return the ids that are not present."""
        found = (
            one
            for start in range(0, len(oids), _AT_ONCE)
            for one in self._some(oids[start : start + _AT_ONCE], content=False)
        )
        return [oid for oid, one in found if one.kind == "missing"]

    def close(self) -> None:
        """Stop the process, if it was started."""
        if self._talk:
            self._talk.close()
            self._talk = None

    def _some(self, oids: Sequence[str], *, content: bool = True) -> Iterator[tuple[str, Object]]:
        asked = False
        for number, oid in enumerate(oids):
            if self._talk is None:
                self._folder.complete()  # otherwise it would fetch missing objects by itself
                self._talk, asked = self._git.talk("cat-file", "--batch", git_dir=self._folder.path), False
            try:
                with shutdown.ending(self._talk.end):
                    if not asked:
                        self._talk.ask.write("".join(f"{one}\n" for one in oids[number:]).encode())
                        self._talk.ask.flush()
                        asked = True
                    found = self._one(self._talk, oid, content=content)
            except (MissingObjectError, OSError) as error:
                self.close()
                shutdown.check()
                if isinstance(error, MissingObjectError):
                    raise
                raise MissingObjectError(f"object {oid} cannot be read", hint="run it again") from error
            if found.size > LARGEST:  # a blob of a few kilobytes may expand to terabytes
                self.close()
            yield oid, found

    @staticmethod
    def _one(talk: Talk, oid: str, *, content: bool) -> Object:
        head = talk.answer.readline().split()
        if head[1:] == [b"missing"] and not content:
            return Object("missing", 0, None)
        if len(head) != 3:  # "<id> <type> <size>", or "<id> missing"
            raise MissingObjectError(f"the Git server did not send object {oid}", hint="run it again")
        kind, size = head[1].decode(), int(head[2])
        if size > LARGEST:
            return Object(kind, size, None)
        found = talk.answer.read(size)
        if len(found) < size:
            raise MissingObjectError(f"object {oid} is broken", hint="run it again")
        talk.answer.read(1)  # a line end
        return Object(kind, size, found if content else None)


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
