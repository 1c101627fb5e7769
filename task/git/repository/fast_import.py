"""A changeset as input of `git fast-import`, and its answer. Pure.

fast-import rewrites just the trees on the way to the files, without an index or work tree, for any number of files.
"""

from __future__ import annotations

from dataclasses import dataclass

from task.model import Changeset
from task.text import one_line

REF = "refs/image-update/work"
COMMAND = ("fast-import", "--quiet", "--force", "--date-format=now", "--done")
_NO_NAMES = frozenset({"", ".", "..", ".git", "git~1"})


@dataclass(frozen=True)
class Made:
    """The ids of a commit and its tree."""

    commit: str
    tree: str


def is_path(path: str) -> bool:
    """Tell whether a path may be in a tree. This is git's own rule, which fast-import does not check."""
    return "\0" not in path and not any(name.lower() in _NO_NAMES for name in path.split("/"))


def stream(change: Changeset) -> bytes:
    """Return the whole input: one commit on `change.tip` ("" has no parent), with message and texts byte for byte."""
    name, email = _plain(change.author.name), _plain(change.author.email)
    who = f"{name or email} <{email}> now"
    parts = [
        f"commit {REF}\nmark :1\nauthor {who}\ncommitter {who}\n".encode(),
        _data(message(change)),
        f"from {change.tip}\n".encode() if change.tip else b"",
    ]
    for path, file in sorted(change.files.items()):
        quoted = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        if not file.mode:  # the file is deleted
            parts.append(f'D "{quoted}"\n'.encode("utf-8", "surrogateescape"))
            continue
        parts += [f'M {file.mode} inline "{quoted}"\n'.encode("utf-8", "surrogateescape"), _data(file.text)]
    return b"".join(parts) + b'\nget-mark :1\nls :1 ""\ndone\n'


def message(change: Changeset) -> str:
    """Return the message as bytes that a commit can have."""
    return change.message.replace("\0", "")


def answer(output: bytes) -> Made:
    """Read the output of `get-mark` and `ls`."""
    commit, tree = output.decode().split("\n")[:2]
    return Made(commit, tree.split()[2])


def _data(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    return b"data %d\n%b\n" % (len(raw), raw)


def _plain(text: str) -> str:
    """Return a name or an address without the characters that are special in git's format."""
    return one_line(text.replace("<", " ").replace(">", " "))
