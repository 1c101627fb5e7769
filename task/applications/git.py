"""Reads Application manifests from Git, for `--applications REPO//PATH?ref=REF`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Protocol

from task.applications import Found
from task.applications.charts import ChartTemplates
from task.applications.manifest_files import found_in
from task.errors import SourceError, UsageError
from task.model import Place, Snapshot


class SnapshotReader(Protocol):
    """A repository whose files can be read."""

    def default_branch(self) -> str:
        """The branch that HEAD names."""

    def snapshot(self, branch: str, places: Collection[Place]) -> Snapshot:
        """The files of the places, at the tip of the branch."""

    def close(self) -> None:
        """Removes the fetched objects."""


class GitManifests:
    """All manifests of a file or folder of a repository, sub-folders included."""

    def __init__(self, store: SnapshotReader, path: str) -> None:
        self.store = store
        self.path, _, self.query = path.partition("?")
        self.path = self.path.strip("/")

    def all(self) -> Iterable[Found]:
        """Every manifest that may concern us. Raises the store's errors, and `SourceError` for a missing path.

        Raises `UsageError` for a query with any key but `ref`: a misspelt `ref` would read the Applications of another
        branch, and nobody would notice.
        """
        is_file = self.path.endswith((".yaml", ".yml", ".json"))
        try:
            ref = _ref(self.query)
            branch = ref if ref not in ("", "HEAD") else self.store.default_branch()
            snapshot = self.store.snapshot(branch, [Place(self.path, "text" if is_file else "tree")])
        finally:
            self.store.close()  # the texts are in memory now
        files = {path: file for path, file in snapshot.files.items() if file.text or file.problem}
        if not files:
            raise SourceError(
                f"--applications: no manifest at {self.path or '/'} of {snapshot.repo} on {branch}",
                hint="check the path behind // and ?ref=",
            )
        charts = ChartTemplates(snapshot.files)
        for path, file in sorted(files.items()):
            where = f"{snapshot.repo}//{path}"
            if file.problem:
                yield Found({}, where, f"cannot read {where}: {file.problem}", "write manifests as UTF-8 text")
            if charts.holds(path, file.text):
                continue
            for manifest in found_in(file.text.encode(), where):
                yield replace(manifest, place=(snapshot.repo, branch, path))
        yield from charts.unread(f"{snapshot.repo}//")


def _ref(query: str) -> str:
    """The value of `ref=`, or ""."""
    refs = []
    for part in filter(None, query.split("&")):
        key, _, value = part.partition("=")
        if key != "ref":
            raise UsageError(f"--applications: unknown key {key!r} in ?{query}", hint="write REPO//PATH?ref=REF")
        refs.append(value)
    if len(set(refs)) > 1:
        raise UsageError(f"--applications: several refs in ?{query}", hint="write REPO//PATH?ref=REF")
    return refs[0] if refs else ""
