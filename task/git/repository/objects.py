"""Reads the fetched objects, files, commits, and trees of a bare repository.

A store uses one `git cat-file --batch` process. Objects that were not fetched are missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from sys import intern

from task import shutdown
from task.errors import Malformed, SourceError, UnreachableError
from task.git.command import Git, Talk
from task.git.repository.bare_folder import BareFolder
from task.model import File, Place
from task.text import blanked
from task.timestamps import of_unix

LARGEST = 10_000_000  # maximum bytes of a file; nobody writes larger files by hand
TOGETHER = 512_000_000  # maximum bytes to read together
_REQUESTS_AT_ONCE = 500  # few enough to fit into a pipe, so that neither process blocks the other


class MissingObjectError(UnreachableError):
    """A required git object cannot be read."""


class Objects:
    """The objects that are present in the repository. Reading a missing object is an error: it is
    not fetched.
    """

    def __init__(self, git: Git, folder: BareFolder) -> None:
        self._git = git
        self._folder = folder
        self._talk: Talk | None = None

    def read(self, oids: Sequence[str]) -> Mapping[str, bytes | None]:
        """Return the contents of these objects, by id. The content of an object larger than
        `LARGEST` is None.

        Raises `MissingObjectError` if the server sent less than was requested, and `SourceError` if
        the objects together exceed `TOGETHER`: a small pack may contain thousands of large files.
        """
        contents: dict[str, bytes | None] = {}
        size = 0
        for oid, content in self._read_each(oids):
            if isinstance(content, MissingObjectError):
                self.close()  # the process has more responses that nobody will read
                raise content
            contents[oid] = content
            size += len(content or b"")
            if size > TOGETHER:
                self.close()
                message = (
                    f"the files and folders to read are larger than {TOGETHER // 1_000_000} MB in"
                    " total"
                )
                raise SourceError(
                    message,
                    hint="specify a smaller folder, or move large files out of it",
                )
        return contents

    def absent(self, oids: Sequence[str]) -> list[str]:
        """Return the ids of those objects that are not present."""
        return [
            oid for oid, content in self._read_each(oids) if isinstance(content, MissingObjectError)
        ]

    def close(self) -> None:
        """Stop the process, if it was started."""
        if self._talk:
            self._talk.close()
            self._talk = None

    def _read_each(
        self, oids: Sequence[str]
    ) -> Iterator[tuple[str, bytes | MissingObjectError | None]]:
        """Yield (id, content) of each object. The content is None if it is larger than `LARGEST`.
        If the object is missing, the content is a `MissingObjectError`, which is not raised.
        """
        requested = 0  # how many of the `oids` were requested from the process
        for index, oid in enumerate(oids):
            if self._talk is None:
                self._talk = self._git.talk("cat-file", "--batch", git_dir=self._folder.complete())
                requested = index  # nothing was requested from the new process yet
            try:
                with shutdown.ending(self._talk.end):
                    if requested == index:  # all previous requests have been answered
                        requested += _REQUESTS_AT_ONCE
                        _request_objects(self._talk, oids[index:requested])
                    content = _object_of_answer(self._talk, oid)
            except MissingObjectError:
                self.close()
                shutdown.check()  # raises an error if a signal has stopped the process
                raise
            except OSError as error:
                self.close()
                shutdown.check()
                raise MissingObjectError(
                    f"cannot read object {oid}",
                    hint="run it again",
                ) from error
            if content is None:
                # Stop the process instead of skipping the content: a blob of a few kilobytes may
                # expand to terabytes.
                self.close()
            yield oid, content


def _request_objects(talk: Talk, oids: Sequence[str]) -> None:
    """Request these objects from a `git cat-file --batch` process."""
    lines = "".join(f"{oid}\n" for oid in oids)
    talk.ask.write(lines.encode())
    talk.ask.flush()


def _object_of_answer(talk: Talk, oid: str) -> bytes | MissingObjectError | None:
    """Read the response of `git cat-file --batch` to a request for an object.

    Return its content, None if it is larger than `LARGEST`, or a `MissingObjectError` if it is
    missing. Raises `MissingObjectError` for any other response.
    """
    header = talk.answer.readline().split()  # "<id> <type> <size>", or "<id> missing"
    missing_error = MissingObjectError(
        f"the Git server did not send object {oid}", hint="run it again"
    )
    if header[1:] == [b"missing"]:
        return missing_error
    if len(header) != 3:
        raise missing_error
    _id, _type, size_text = header
    size = int(size_text)
    if size > LARGEST:
        return None
    content = talk.answer.read(size)
    if len(content) < size:
        raise MissingObjectError(f"object {oid} is corrupt", hint="run it again")
    talk.answer.read(1)  # a line end
    return content


_LFS = "version https://git-lfs.github.com/spec/"


def file_of(blob: bytes | None) -> File:
    """Return a file with the blob's text, including its byte order mark and original line endings.
    If the blob cannot be read as text, the file contains the reason instead. `blob` is None if it
    is too large.
    """
    if blob is None:
        return File("", problem="larger than 10 MB")
    try:
        text = blob.decode("utf-8")
    except UnicodeDecodeError:
        return File("", problem="not UTF-8 text")
    if "\0" in text:
        return File("", problem="not UTF-8 text")
    if text.startswith(_LFS):
        return File("", problem="stored in Git LFS")
    return File(text)


# How much of an excessively large commit to keep: parents, characters, and bytes.
_PARENTS = 64
_NAME = 200
_MESSAGE = 64 * 1024


@dataclass(frozen=True)
class PastCommit:
    """A commit, and its parents."""

    oid: str
    tree: str
    parents: tuple[str, ...]  # including parents that a shallow repository lacks
    author: str  # the author's name, else the email address
    at: str  # commit time: RFC 3339, UTC; "" if it is not a valid time
    message: str  # of a very long message, only the end

    @property
    def parent(self) -> str:
        """The first parent, or "" for a root commit."""
        return self.parents[0] if self.parents else ""


def along_first_parents(objects: Objects, start: str, most: int) -> list[PastCommit]:
    """Return the commit `start` and its chain of first parents, newest first, as far as they are
    present, but at most `most` commits.
    """
    commits: list[PastCommit] = []
    oid = start
    while oid and len(commits) < most and not objects.absent([oid]):
        commit = commit_of(objects, oid)
        commits.append(commit)
        oid = commit.parent
    return commits


def commit_of(objects: Objects, oid: str) -> PastCommit:
    """Read and parse a commit that is present."""
    raw = objects.read([oid])[oid] or b""
    headers, _, message = raw.partition(b"\n\n")
    parents: list[str] = []
    fields: dict[str, str] = {}  # the first value of each header
    for line in headers.split(b"\n"):
        key, _, value = line.decode("utf-8", "replace").partition(" ")
        fields.setdefault(key, value)
        if key == "parent":
            parents.append(value)
    # "author" and "committer" are `name <address> seconds zone`.
    author, _, _ = fields.get("author", "").rpartition(">")
    name, _, address = author.partition("<")
    _, _, committer_time = fields.get("committer", "").rpartition(">")
    return PastCommit(
        oid=oid,
        tree=fields.get("tree", ""),
        parents=tuple(parents[:_PARENTS]),
        author=(name.strip() or address.strip())[:_NAME],
        at=_commit_time(committer_time),
        message=message[-_MESSAGE:].decode("utf-8", "replace"),
    )


def _commit_time(text: str) -> str:
    """Convert Git's seconds and time zone to a time. Return "" for any other value."""
    seconds = text.split()
    try:
        return of_unix(int(seconds[0])) if seconds else ""
    except (ValueError, Malformed):
        return ""


FOLDER = "040000"
# A limit, because ten trees that each contain the next one ten times represent ten billion files.
MOST = 500_000
# characters of a path; a checkout cannot contain longer ones, so Argo CD cannot read them either
LONGEST = 4096
_MANIFESTS = (".yaml", ".yml", ".json")

Tree = Mapping[str, "TreeEntry"]
ReadTree = Callable[[str], Tree]


@dataclass(frozen=True, slots=True)  # a large repository contains hundreds of thousands
class TreeEntry:
    """An entry of a tree."""

    mode: str  # the file mode: six digits
    oid: str

    @property
    def is_folder(self) -> bool:
        """Whether the entry is a tree, not a symbolic link or a submodule."""
        return self.mode == FOLDER

    @property
    def is_file(self) -> bool:
        """Whether the entry is a regular file, executable or not."""
        return self.mode.startswith("100")


def parse_tree(raw: bytes, width: int) -> Tree:
    """Return the entries of a raw tree object. `width` is the length of a binary object id."""
    return _tree_of_lines(_lines(raw, width))


def differing(tree: bytes, other: bytes, width: int) -> tuple[Tree, Tree]:
    """Return the entries of `tree` that `other` does not contain, and vice versa. Both are raw tree
    objects, and `width` is the length of a binary object id.

    Only the entries that differ are parsed: usually few, even in a folder with thousands of
    entries.
    """
    tree_lines = _lines(tree, width)
    other_lines = _lines(other, width)
    tree_set = set(tree_lines)
    other_set = set(other_lines)
    only_tree = _tree_of_lines(line for line in tree_lines if line not in other_set)
    only_other = _tree_of_lines(line for line in other_lines if line not in tree_set)
    return only_tree, only_other


def _lines(raw: bytes, width: int) -> list[tuple[bytes, bytes, bytes]]:
    """Return (mode, name, binary object id) of each entry of a raw tree object. `width` is the
    length of a binary object id. Raises `ValueError` if the data is not a tree.
    """
    lines = re.findall(rb"(?s)([^ \0]+) ([^\0]+)\0(.{%d})" % width, raw)
    # `findall` skips everything that is not an entry. If it skipped nothing, the entries add up to
    # the whole data: each is a mode, a space, a name, a NUL, and an id.
    length = sum(len(mode) + 1 + len(name) + 1 + width for mode, name, _ in lines)
    if length != len(raw):
        raise ValueError("this is not a tree")
    return lines


def _tree_of_lines(lines: Iterable[tuple[bytes, bytes, bytes]]) -> Tree:
    return {
        name.decode("utf-8", "surrogateescape"): TreeEntry(
            intern(mode.decode().zfill(6)),
            oid.hex(),
        )
        for mode, name, oid in lines
    }


def find_entries(read: ReadTree, root: str, place: Place) -> Iterator[tuple[str, TreeEntry, bool]]:
    """Yield (path, entry, whether its content is needed) for the files that a place (a path, and
    what to read there) requests, below the tree `root`.

    If the path leads through a symbolic link or a file, yield that link or file instead. If there
    is nothing at the path, yield nothing. `read` returns a tree by its object id.
    """
    entry = TreeEntry(FOLDER, root)
    path = ""
    names = [name for name in place.path.split("/") if name]
    for name in names:
        if not entry.is_folder:
            break
        tree = read(entry.oid)
        if name not in tree:
            return
        entry = tree[name]
        path = f"{path}/{name}" if path else name

    is_whole_path = path == place.path.strip("/")
    wants_content_of_folder = place.want in {"folder", "tree", "names", "files"}
    if entry.is_folder and is_whole_path and wants_content_of_folder:
        yield from _entries_wanted(read, path, entry, place)
    elif path:
        needs_text = entry.is_file and is_whole_path and place.want != "exists"
        yield path, entry, needs_text


def _entries_wanted(
    read: ReadTree,
    path: str,
    folder: TreeEntry,
    place: Place,
) -> Iterator[tuple[str, TreeEntry, bool]]:
    """Yield (path, entry, whether its content is needed) for those entries of a folder that a place
    requests.
    """
    with_subfolders = place.want != "folder"
    for entry_path, entry in _entries_below(read, path, folder.oid, deep=with_subfolders):
        if place.want == "files":  # also yield symbolic links, without content
            if not entry.is_folder:
                yield entry_path, entry, entry.is_file
        elif place.want == "names":
            if entry.is_file:
                yield entry_path, entry, False
        elif entry.is_file and entry_path.endswith(_MANIFESTS):  # "folder" or "tree"
            yield entry_path, entry, True


def _entries_below(
    read: ReadTree, start: str, oid: str, *, deep: bool
) -> Iterator[tuple[str, TreeEntry]]:
    """Yield (path, entry) of everything in a folder, and, if `deep`, in its subfolders. `start` is
    the folder's path, and `oid` its tree.

    Paths that are too long are skipped. Raises `SourceError` for more than `MOST` entries.
    """
    open_folders = [(start, oid)]
    count = 0
    while open_folders:
        folder, oid = open_folders.pop()
        for name, entry in read(oid).items():
            count += 1
            if count > MOST:
                message = (
                    f"{blanked(start) or 'the repository'} has more than {MOST} files and folders"
                )
                raise SourceError(message, hint="specify a smaller folder")
            path = f"{folder}/{name}" if folder else name
            if len(path) > LONGEST:
                continue
            yield path, entry
            if deep and entry.is_folder:
                open_folders.append((path, entry.oid))
