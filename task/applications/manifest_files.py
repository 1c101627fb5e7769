"""Reads Applications from files, folders and standard input, without a cluster.

Other manifests among them are skipped. An unreadable file is one problem, and does not affect the other files.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator

from task.applications.charts import CHART, ChartTemplates
from task.applications.kustomizations import kustomization_in
from task.applications.kustomized import Kustomized
from task.applications.manifest_text import found_in, or_broken
from task.applications.rendering import Kind, Rendering, kind_of
from task.applications.work_tree import LocalFiles
from task.errors import UsageError
from task.files import read_file, read_text
from task.model import Found
from task.urls import without_login

LARGEST = 512 * 1024 * 1024  # bytes of one file: ten thousand Applications, as kubectl prints them
GIT_URL = re.compile(r"(?:https?|ssh|git|file)://|[\w.-]+@[\w.-]+:", re.IGNORECASE)
SUFFIXES = (".yaml", ".yml", ".json")


class Manifests:
    """The source for `--applications` with a file, a folder, or `-` for stdin."""

    def __init__(self, path: str, rendering: Rendering | None = None) -> None:
        self.path = path
        self._rendering = rendering or Rendering()

    def all(self) -> Iterable[Found]:
        """Return every manifest that may concern us. Raises `UsageError` if the source itself is unusable."""
        if self.path == "-":
            content = sys.stdin.buffer.read(LARGEST + 1)  # one more byte shows that it is too large
            if len(content) > LARGEST:
                raise UsageError(
                    f"--applications: stdin has more than {LARGEST:,} bytes",
                    hint="leave out what is not needed: kubectl get --selector, or several runs",
                )
            return or_broken(found_in(content, "stdin"), [("stdin", content)])
        if os.path.isdir(self.path):
            charts = ChartTemplates()
            paths: list[str] = []
            return or_broken(self._folder(charts, paths), self._texts(paths, charts))
        if not os.path.exists(self.path):
            if GIT_URL.match(self.path):
                shown = without_login(self.path)
                url, mark, query = shown.partition("?")
                raise UsageError(
                    f"--applications: {shown!r} names a Git repository, and no folder or file in it",
                    hint=f"write // and the path of the manifests after it: {url}//apps{mark}{query}",
                )
            raise UsageError(
                f"--applications: {self.path!r} does not exist here",
                hint="name a file or folder of manifests that this step can see, or - for stdin",
            )
        return or_broken(self._file(self.path), self._texts([self.path]))

    def _texts(self, paths: Iterable[str], charts: ChartTemplates | None = None) -> Iterator[tuple[str, bytes]]:
        """Yield the files that can be read and are no templates of charts, with their paths."""
        for path in paths:
            try:
                content = read_file(path, LARGEST)
            except OSError:  # told already
                continue
            if charts is None or not charts.holds(path, content.decode("utf-8", "replace")):
                yield path, content

    def _folder(self, charts: ChartTemplates, paths: list[str]) -> Iterator[Found]:
        """Yield what is in the folder. Adds its charts, and the paths of all its manifests, to the arguments."""
        unreadable: list[OSError] = []
        kustomized = Kustomized(_text, namespace=self._rendering.namespace)
        root, applications = "", False
        kind: Kind | None = None
        for folder, subfolders, names in os.walk(self.path, onerror=unreadable.append):
            # Sorted, so that a report is the same on every file system.
            subfolders[:] = sorted(name for name in subfolders if name != ".git")
            # CI systems name files without `./`, and show a finding of `lint .` at its line only if the names match.
            shown = "" if folder == "." else folder.removeprefix("./").rstrip("/")
            if folder == self.path:
                root, kind = shown, kind_of(names)
                if kind and not self._rendering.way_out(kind):
                    files = LocalFiles(folder)
                    yield from self._rendering.rendered(kind, root or ".", files.folder, files.read)
                    return
            if CHART in names:
                charts.add(shown)
            if kustomization := kustomization_in(names, ""):
                kustomized.add(os.path.join(shown, kustomization))
            for name in sorted(names):
                path = os.path.join(shown, name)
                paths += [path] if name.endswith(SUFFIXES) else []
                for found in self._file(path, charts) if name.endswith(SUFFIXES) else ():
                    if found.concerns_us and kustomized.patches(path):
                        continue
                    if found.is_application:
                        applications = True
                        kustomized.found(path)
                    yield found
        yield from self._rendering.unrendered(
            root,
            charts.of_applications,
            _text(os.path.join(self.path, kustomization_in(os.listdir(self.path), ""))) if kind == "kustomize" else "",
            applications=applications,
            kustomizations=kustomized.of_applications(),
        )
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


def _text(path: str) -> str:
    """Return the text of a kustomization, or "" if it cannot be read."""
    try:
        return read_text(path, errors="replace")
    except OSError:
        return ""
