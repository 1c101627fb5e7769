"""Applications from files, folders and standard input: no cluster needed.

Lists may be mixed with any other manifests, which are passed over. A file that cannot be
read is a problem of its own; the others count.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator

from task.edges.applications import Found
from task.edges.applications.yaml_documents import documents
from task.errors import UsageError

SUFFIXES = (".yaml", ".yml", ".json")


class Manifests:
    """`--applications FILE`, `FOLDER` or `-`."""

    def __init__(self, path: str) -> None:
        self.path = path

    def all(self) -> Iterable[Found]:
        """Every manifest that may concern us. Raises `UsageError` when the source itself is unusable."""
        if self.path == "-":
            return found_in(sys.stdin.buffer.read(), "stdin")
        if os.path.isdir(self.path):
            return self._folder()
        if not os.path.exists(self.path):
            raise UsageError(
                f"--applications: {self.path!r} does not exist",
                hint="name a file or folder of manifests, or - for stdin",
            )
        return self._file(self.path)

    def _folder(self) -> Iterator[Found]:
        def unreadable(error: OSError) -> None:
            raise UsageError(
                f"--applications: cannot read {error.filename!r}: {error.strerror}", hint="check its permissions"
            )

        for folder, subfolders, names in os.walk(self.path, onerror=unreadable):
            subfolders[:] = sorted(name for name in subfolders if name != ".git")
            for name in sorted(names):
                if name.endswith(SUFFIXES):
                    yield from self._file(os.path.join(folder, name))

    def _file(self, path: str) -> Iterator[Found]:
        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError as error:
            if path == self.path:
                raise UsageError(
                    f"--applications: cannot read {path!r}: {error.strerror}", hint="check its permissions"
                ) from None
            yield Found({}, path, f"cannot read {path}: {error.strerror}", "check its permissions")
            return
        yield from found_in(content, path)


def found_in(content: bytes, origin: str) -> Iterator[Found]:
    """The manifests of one file; the items of a `List` one by one."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        yield Found({}, origin, f"{origin} is not UTF-8 text", "write manifests in UTF-8")
        return
    for document in documents(text):
        where = f"{origin}:{document.line}"
        if document.problem:
            yield Found({}, where, f"{where}: not YAML: {document.problem}", "mend the file; its other documents count")
        elif isinstance(document.data, dict):
            yield from _items(document.data, where)


def _items(data: dict[str, object], where: str) -> Iterator[Found]:
    items = data.get("items")
    if str(data.get("kind", "")).endswith("List") and isinstance(items, list):
        yield from (Found(item, where) for item in items if isinstance(item, dict))
    else:
        yield Found(data, where)
