"""The repositories that Applications are read from. Each is opened once, and each of its branches is fetched once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from task.applications.git import SnapshotReader
from task.errors import Malformed, SourceError
from task.model import Place, Snapshot
from task.urls import without_login

MOST_REPOSITORIES = 50  # named by `git` generators and followed Applications; each is fetched
_BRANCH = "name a branch in the generator's revision, or read what was generated: --applications cluster"


def repository_key(repo: str) -> str:
    """Return a text that is the same for each way in which manifests write one repository's URL."""
    return without_login(repo).rstrip("/").removesuffix(".git")


class TooManyRepositoriesError(SourceError):
    """The manifests name more repositories than are read."""


class KeptRepository:
    """A repository that stays open until `Repositories.close`. Later places of a branch come from the same commit."""

    def __init__(self, reader: SnapshotReader) -> None:
        self._reader = reader
        self._default = ""
        self._snapshots: dict[str, Snapshot] = {}

    def default_branch(self) -> str:
        """Return the branch that HEAD names."""
        self._default = self._default or self._reader.default_branch()
        return self._default

    def snapshot(self, branch: str, places: Collection[Place]) -> Snapshot:
        """Return these places at the branch's tip. The first call decides which commit that is for all later calls."""
        name = self.default_branch() if branch in ("", "HEAD") else branch
        if name not in self._snapshots:
            self._snapshots[name] = self._reader.snapshot(name, places)
            return self._snapshots[name]
        return self._reader.read_more(self._snapshots[name], places)

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:
        """Return more places at the same commit."""
        return self._reader.read_more(snapshot, places)

    def close(self) -> None:
        """Do nothing, because others may still read from it."""


class Repositories:
    """All repositories that Applications are read from, by their URLs."""

    def __init__(self, repository: Callable[[str], SnapshotReader]) -> None:
        self._open = repository
        self._opened: list[SnapshotReader] = []
        self._kept: dict[str, KeptRepository] = {}
        self._named = 0
        self._texts: dict[tuple[str, str], dict[str, str]] = {}
        self._paths: dict[tuple[str, str], list[str]] = {}

    def of(self, repo: str, *, named: bool = True) -> KeptRepository:
        """Return the repository. Raises TooManyRepositoriesError.

        `named`: a manifest names it, so its author may not be trusted, and it counts.
        """
        key = repository_key(repo)
        if key not in self._kept:
            if named and self._named >= MOST_REPOSITORIES:
                message = f"the manifests name more than {MOST_REPOSITORIES} repositories"
                raise TooManyRepositoriesError(message, hint="name fewer manifests with --applications")
            self._named += named
            reader = self._open(repo)
            self._opened.append(reader)
            self._kept[key] = KeptRepository(reader)
        return self._kept[key]

    def paths(self, repo: str, revision: str) -> Sequence[str]:
        """Return the paths of all files at the tip of the branch. Raises the errors of Git."""
        if (repo, revision) not in self._paths:
            kept = self.of(repo)
            try:
                self._paths[repo, revision] = list(kept.snapshot(revision, [Place("", "names")]).files)
            except SourceError as error:
                raise SourceError(error.message, hint=_BRANCH, subject=error.subject) from error
        return self._paths[repo, revision]

    def texts(self, repo: str, revision: str, paths: Sequence[str]) -> Mapping[str, str]:
        """Return the texts of these files. Raises Malformed for anything but text, and the errors of Git."""
        known = self._texts.setdefault((repo, revision), {})
        if missing := [path for path in paths if path not in known]:
            found = self.of(repo).snapshot(revision, [Place(path) for path in missing])
            for path, file in found.files.items():
                if file.problem:
                    raise Malformed(f"cannot read {path!r}: {file.problem}", "write it as UTF-8 text")
                known[path] = file.text
        return {path: known[path] for path in paths if path in known}

    def close(self) -> None:
        """Remove what was fetched."""
        for reader in self._opened:
            reader.close()
