"""A changeset as input of `git fast-import`, and its answer. Pure.

fast-import rewrites just the trees on the way to the files, without an index or work tree, for any number of files.
"""

from __future__ import annotations

from dataclasses import dataclass

from task.model import Changeset, File, Person

REF = "refs/image-update/work"
COMMAND = ("fast-import", "--quiet", "--force", "--date-format=now", "--done")
_NO_NAMES = frozenset({"", ".", "..", ".git", "git~1"})


@dataclass(frozen=True)
class Made:
    """The commit and its tree."""

    commit: str
    tree: str


def is_path(path: str) -> bool:
    """Whether a path from the root may be in a tree; git's own rule, which fast-import leaves to its callers."""
    return "\0" not in path and not any(name.lower() in _NO_NAMES for name in path.split("/"))


def stream(change: Changeset) -> bytes:
    """The whole input: one commit on `change.tip`, message and texts byte for byte."""
    who = _person(change.author)
    head = f"commit {REF}\nmark :1\nauthor {who}\ncommitter {who}\n".encode()
    files = b"".join(_file(path, file) for path, file in sorted(change.files.items()))
    start = f"from {change.tip}\n".encode()
    return head + _data(message(change)) + start + files + b'\nget-mark :1\nls :1 ""\ndone\n'


def _file(path: str, file: File) -> bytes:
    """One file's new text; a file without a mode is deleted."""
    if not file.mode:
        return f"D {_path(path)}\n".encode("utf-8", "surrogateescape")
    return f"M {file.mode} inline {_path(path)}\n".encode("utf-8", "surrogateescape") + _data(file.text)


def message(change: Changeset) -> str:
    """The message as a commit can hold it."""
    return change.message.replace("\0", "")


def answer(output: bytes) -> Made:
    """What `get-mark` and `ls` printed."""
    commit, tree = output.decode().split("\n")[:2]
    return Made(commit, tree.split()[2])


def _data(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    return b"data %d\n%b\n" % (len(raw), raw)


def _person(person: Person) -> str:
    name, email = _plain(person.name), _plain(person.email)
    return f"{name or email} <{email}> now"


def _plain(text: str) -> str:
    """Without what git's own format gives a meaning."""
    return " ".join("".join(" " if char in "<>" or not char.isprintable() else char for char in text).split())


def _path(path: str) -> str:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
