"""Reads Applications from files, folders and standard input, without a cluster.

Other manifests may lie between them and are skipped. An unreadable file is one problem, and the other files count.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from task.applications import Found
from task.applications.charts import CHART, ChartTemplates
from task.applicationsets.go_yaml import load_all
from task.errors import Malformed, UsageError
from task.files import read_file
from task.urls import without_login
from task.yaml_documents import ManifestDocument, documents

LARGEST = 512 * 1024 * 1024  # bytes of one file: ten thousand Applications, as kubectl prints them
GIT_URL = re.compile(r"(?:https?|ssh|git|file)://|[\w.-]+@[\w.-]+:", re.IGNORECASE)
SUFFIXES = (".yaml", ".yml", ".json")


class Manifests:
    """The source for `--applications` with a file, a folder, or `-` for stdin."""

    def __init__(self, path: str) -> None:
        self.path = path

    def all(self) -> Iterable[Found]:
        """Every manifest that may concern us. Raises `UsageError` where the source itself is unusable."""
        if self.path == "-":
            content = sys.stdin.buffer.read(LARGEST + 1)  # one byte more shows that there is more
            if len(content) > LARGEST:
                raise UsageError(
                    f"--applications: stdin holds more than {LARGEST:,} bytes",
                    hint="leave out what is not needed: kubectl get --selector, or several runs",
                )
            return found_in(content, "stdin")
        if os.path.isdir(self.path):
            return self._folder()
        if not os.path.exists(self.path):
            if GIT_URL.match(self.path):
                shown = without_login(self.path)
                url, mark, query = shown.partition("?")
                raise UsageError(
                    f"--applications: {shown!r} names a Git repository, and no folder or file in it",
                    hint=f"write // and the path of the manifests behind it: {url}//apps{mark}{query}",
                )
            raise UsageError(
                f"--applications: {self.path!r} does not exist here",
                hint="name a file or folder of manifests that this step can see, or - for stdin",
            )
        return self._file(self.path)

    def _folder(self) -> Iterator[Found]:
        unreadable: list[OSError] = []
        charts = ChartTemplates()
        for folder, subfolders, names in os.walk(self.path, onerror=unreadable.append):
            # Sorted, so that reports are alike on every file system.
            subfolders[:] = sorted(name for name in subfolders if name != ".git")
            # Without `./`, as CI systems name files: they show a finding of `lint .` at its line.
            shown = "" if folder == "." else folder.removeprefix("./").rstrip("/")
            if CHART in names:
                charts.add(shown)
            for name in sorted(names):
                if name.endswith(SUFFIXES):
                    yield from self._file(os.path.join(shown, name), charts)
        yield from charts.unread()
        for error in unreadable:
            if error.filename == self.path:
                raise UsageError(
                    f"--applications: cannot read {error.filename!r}: {error.strerror}", hint="check its permissions"
                )
            where = str(error.filename)
            yield Found({}, where, f"cannot read {where}: {error.strerror}", "check its permissions")

    def _file(self, path: str, charts: ChartTemplates | None = None) -> Iterator[Found]:
        try:
            content = read_file(path, LARGEST)
        except OSError as error:
            if path == self.path:
                raise UsageError(
                    f"--applications: cannot read {path!r}: {error.strerror}", hint="name a readable file of manifests"
                ) from None
            yield Found({}, path, f"cannot read {path}: {error.strerror}", "make it readable, or remove it")
            return
        if charts is None or not charts.holds(path, content.decode("utf-8", "replace")):
            yield from found_in(content, path)


def found_in(content: bytes, origin: str) -> Iterator[Found]:
    """The manifests of one file, and the items of each `List` in it."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        yield Found({}, origin, f"{origin} is not UTF-8 text", "write manifests in UTF-8")
        return
    for document in documents(text):
        where = f"{origin}:{document.line}"
        if document.problem:
            yield Found(
                {}, where, f"{where}: not YAML: {document.problem}", "fix the file; its other documents are used"
            )
        elif isinstance(document.data, (dict, list)):
            items = list(_items(document.data, where))
            if document.text and any(found.item.get("kind") == "ApplicationSet" for found in items):
                items = _with_types(items, document, where)
            yield from items


def _with_types(items: list[Found], document: ManifestDocument, where: str) -> list[Found]:
    """The same manifests, with the numbers and booleans in ApplicationSets as kubectl reads them.

    In an Application every scalar is a text; what a template makes of 1.10 depends on its type.
    """
    try:
        typed = list(_items(load_all(document.text)[document.number], where))
    except Malformed as error:
        return [Found({}, where, f"{where}: {error.message}", "fix the file; its other documents are used")]
    return [new if new.item.get("kind") == "ApplicationSet" else old for old, new in zip(items, typed, strict=True)]


def _items(data: dict[str, Any] | list[Any], where: str) -> Iterator[Found]:
    """The manifest, or the items of a `List` or JSON array. The items of an `ApplicationList` may lack their kind."""
    kind = "List" if isinstance(data, list) else str(data.get("kind", ""))
    items = data if isinstance(data, list) else data.get("items")
    if not kind.endswith("List") or not isinstance(items, list):
        yield Found(data if isinstance(data, dict) else {}, where)
        return
    # `kubectl get -o json` prints a List with whole items; the API's own ApplicationList leaves their kind out.
    typed = (
        {"apiVersion": data.get("apiVersion"), "kind": kind[:-4]}
        if kind != "List" and not isinstance(data, list)
        else {}
    )
    yield from (Found({**typed, **item}, where) for item in items if isinstance(item, dict))
