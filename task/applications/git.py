"""Reads Application manifests from Git, for `--applications REPO//PATH?ref=REF`."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from task.applications.charts import ChartTemplates
from task.applications.kustomizations import NAMES as KUSTOMIZATIONS
from task.applications.kustomizations import kustomization_in
from task.applications.kustomized import Kustomized
from task.applications.manifest_text import found_in, or_broken
from task.applications.rendering import Rendering, kind_of
from task.errors import SourceError, UsageError
from task.model import File, Found, Place, Snapshot


class SnapshotReader(Protocol):
    """A repository whose files can be read, and later more files at the same commit."""

    def default_branch(self) -> str:
        """Return the branch that HEAD names."""

    def snapshot(self, branch: str, places: Collection[Place]) -> Snapshot:
        """Return the files of the places, at the tip of the branch."""

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:
        """Return more places at the same commit."""

    def close(self) -> None:
        """Remove the fetched objects."""


class GitManifests:
    """All manifests in a file or folder of a repository, including sub-folders."""

    def __init__(self, store: SnapshotReader, path: str, rendering: Rendering | None = None) -> None:
        self.store = store
        self.path, _, self.query = path.partition("?")
        self.path = self.path.strip("/")
        self._rendering = rendering or Rendering()

    def all(self) -> Iterable[Found]:
        """Yield every manifest that may concern us.

        Raises the store's errors, and `SourceError` for a missing path. Raises `UsageError` for a query with any key
        but `ref`: a misspelt `ref` would read the Applications of another branch, and nobody would notice.
        """
        is_file = self.path.endswith((".yaml", ".yml", ".json"))
        try:
            ref = _ref(self.query)
            branch = ref if ref not in ("", "HEAD") else self.store.default_branch()
            # Of the names that Kustomize knows, only the last one has no suffix of manifests, so "tree" leaves it out.
            folder = [Place(self.path, "tree"), Place(posixpath.join(self.path, KUSTOMIZATIONS[-1]))]
            snapshot = self.store.snapshot(branch, [Place(self.path, "text")] if is_file else folder)
            files = {path: file for path, file in snapshot.files.items() if file.text or file.problem}
            if not files:
                raise SourceError(
                    f"--applications: no manifest at {self.path or '/'} of {snapshot.repo} on {branch}",
                    hint="check the path after // and ?ref=",
                )
            charts = ChartTemplates(files)
            yield from or_broken(
                self._found(snapshot, files, charts),
                (
                    (f"{snapshot.repo}//{path}", file.text.encode())
                    for path, file in sorted(files.items())
                    if not charts.holds(path, file.text)
                ),
            )
        finally:
            self.store.close()

    def _found(self, snapshot: Snapshot, files: Mapping[str, File], charts: ChartTemplates) -> Iterator[Found]:
        before = f"{snapshot.repo}//"
        kind = kind_of([posixpath.basename(path) for path in files if posixpath.dirname(path) == self.path])
        if kind and not self._rendering.way_out(kind):
            where = f"{before}{self.path}".rstrip("/")
            for found in self._rendering.rendered(
                kind, where, self.path, lambda folder: self.store.read_more(snapshot, [Place(folder, "files")]).files
            ):
                yield replace(found, place=(snapshot.repo, snapshot.branch, self.path))
            return
        applications = False
        kustomized = Kustomized(
            lambda path: files[path].text,
            (path for path in files if posixpath.basename(path) in KUSTOMIZATIONS),
            self._rendering.namespace,
        )
        for path, file in sorted(files.items()):
            where = f"{before}{path}"
            if file.problem:
                yield Found({}, where, f"cannot read {where}: {file.problem}", "write manifests as UTF-8 text")
            if not charts.holds(path, file.text):
                for found in found_in(file.text.encode(), where):
                    if found.concerns_us and kustomized.patches(path):
                        continue
                    if found.is_application:
                        applications = True
                        kustomized.found(path)
                    yield replace(found, place=(snapshot.repo, snapshot.branch, path), text=file.text)
        kustomization = kustomization_in(files, self.path)
        yield from self._rendering.unrendered(
            self.path,
            charts.of_applications,
            files[kustomization].text if kustomization else "",
            applications=applications,
            kustomizations=kustomized.of_applications(),
            before=before,
        )


def _ref(query: str) -> str:
    """Return the value of `ref=`, or ""."""
    refs = []
    for part in filter(None, query.split("&")):
        key, _, value = part.partition("=")
        if key != "ref":
            raise UsageError(f"--applications: unknown key {key!r} in ?{query}", hint="write REPO//PATH?ref=REF")
        refs.append(value)
    if len(set(refs)) > 1:
        raise UsageError(f"--applications: several refs in ?{query}", hint="write REPO//PATH?ref=REF")
    return refs[0] if refs else ""
