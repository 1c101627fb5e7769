"""Reads Application manifests from Git, for `--applications REPO//PATH?ref=REF`.

Each repository is opened once, and each of its branches is fetched once.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from task.applications.kustomizations import NAMES as KUSTOMIZATIONS
from task.applications.manifest_files import Folder
from task.applications.manifest_text import SUFFIXES, or_broken
from task.applications.rendering import Rendering, kind_of
from task.errors import Malformed, SourceError, UsageError
from task.model import File, Found, Place, Snapshot
from task.text import counted
from task.urls import without_login

MOST_REPOSITORIES = 50  # for `git` generators and followed Applications; each is fetched
_BRANCH = (
    "set the generator's revision to a branch, or read its Applications with --applications cluster"
)


def repository_key(repo: str) -> str:
    """Return a key that is the same for all spellings of a repository's URL in manifests."""
    return without_login(repo).rstrip("/").removesuffix(".git")


class TooManyRepositoriesError(SourceError):
    """The manifests refer to more repositories than a run may read."""


class KeptRepository:
    """A repository that stays open until `Repositories.close`.

    All reads from a branch use the same commit.
    """

    def __init__(self, reader: SnapshotReader) -> None:
        self._reader = reader
        self._default = ""
        self._snapshots: dict[str, Snapshot] = {}

    def default_branch(self) -> str:
        """Return the branch that HEAD points to."""
        self._default = self._default or self._reader.default_branch()
        return self._default

    def snapshot(self, branch: str, places: Collection[Place]) -> Snapshot:
        """Return the files at these locations (paths to read), at the branch's tip.

        The first call determines the commit that all later calls with this branch use. "" and
        "HEAD" mean the default branch.
        """
        name = self.default_branch() if branch in ("", "HEAD") else branch
        if name not in self._snapshots:
            self._snapshots[name] = self._reader.snapshot(name, places)
            return self._snapshots[name]
        return self._reader.read_more(self._snapshots[name], places)

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:
        """Return the files at more locations, at the same commit."""
        return self._reader.read_more(snapshot, places)


class Repositories:
    """All repositories that Applications are read from, keyed by URL."""

    def __init__(self, repository: Callable[[str], SnapshotReader]) -> None:
        """`repository` opens the repository at a URL."""
        self._open = repository
        self._readers: list[SnapshotReader] = []  # to be closed at the end
        self._repositories: dict[str, KeptRepository] = {}  # by `repository_key`
        self._named_count = 0  # the number of open repositories whose URLs come from manifests
        # what was read, by repository and revision: the texts by path, and the paths of all files
        self._texts: dict[tuple[str, str], dict[str, str]] = {}
        self._paths: dict[tuple[str, str], list[str]] = {}

    def of(self, repo: str, *, named: bool = True) -> KeptRepository:
        """Return the repository at a URL, and open it if it is not open yet.

        `named` means that the URL comes from a manifest, whose author is not necessarily trusted.
        At most `MOST_REPOSITORIES` of these are opened. Beyond that, raises
        `TooManyRepositoriesError`.
        """
        key = repository_key(repo)
        if key in self._repositories:
            return self._repositories[key]

        if named and self._named_count >= MOST_REPOSITORIES:
            message = f"the manifests refer to more than {MOST_REPOSITORIES} repositories"
            raise TooManyRepositoriesError(
                message,
                hint="pass fewer manifests with --applications",
            )
        if named:
            self._named_count += 1
        reader = self._open(repo)
        self._readers.append(reader)
        self._repositories[key] = KeptRepository(reader)
        return self._repositories[key]

    def paths(self, repo: str, revision: str) -> Sequence[str]:
        """Return the paths of all files at the tip of the branch. Raises Git's errors."""
        branch = (repo, revision)
        if branch not in self._paths:
            repository = self.of(repo)
            try:
                snapshot = repository.snapshot(revision, [Place("", "names")])
            except SourceError as error:
                raise SourceError(error.message, hint=_BRANCH, subject=error.subject) from error
            self._paths[branch] = list(snapshot.files)
        return self._paths[branch]

    def texts(self, repo: str, revision: str, paths: Sequence[str]) -> Mapping[str, str]:
        """Return the contents of these files at the tip of the branch, by path.

        Files that do not exist are left out. Raises `Malformed` for a file that is not text, and
        Git's errors.
        """
        texts_read = self._texts.setdefault((repo, revision), {})
        unread_paths = [path for path in paths if path not in texts_read]
        if unread_paths:
            repository = self.of(repo)
            snapshot = repository.snapshot(revision, [Place(path) for path in unread_paths])
            for path, file in snapshot.files.items():
                if file.problem:
                    raise Malformed(f"cannot read {path!r}: {file.problem}", "save it as UTF-8")
                texts_read[path] = file.text
        return {path: texts_read[path] for path in paths if path in texts_read}

    def close(self) -> None:
        """Remove the fetched objects."""
        for reader in self._readers:
            reader.close()


class SnapshotReader(Protocol):
    """A repository whose files can be read in several steps from the same commit."""

    def default_branch(self) -> str:
        """Return the branch that HEAD points to."""

    def snapshot(self, branch: str, places: Collection[Place]) -> Snapshot:
        """Return the files at these locations, at the tip of the branch."""

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:
        """Return the files at more locations, at the same commit."""

    def close(self) -> None:
        """Remove the fetched objects."""


def git_manifests(store: KeptRepository, path: str, rendering: Rendering) -> Iterator[Found]:
    """Yield all manifests in a repository's `PATH?ref=REF`: a file or a folder,
    including subfolders. A folder that Helm or Kustomize can render is rendered.

    Raises the store's errors, and `SourceError` for a missing path. Raises `UsageError` for a query
    key other than `ref`: if a misspelled `ref` were ignored, the Applications would be read from
    the wrong branch.
    """
    path, _, query = path.partition("?")
    path = re.sub("/+", "/", path.strip("/"))  # git has no empty names
    ref = _ref(query)
    branch = ref if ref not in ("", "HEAD") else store.default_branch()
    places = [Place(path, "text")]
    if not path.endswith(SUFFIXES):
        # "tree" reads only files with a manifest's extension. The last of Kustomize's file names
        # has none, so that file is read separately.
        places = [Place(path, "tree"), Place(posixpath.join(path, KUSTOMIZATIONS[-1]))]
    snapshot = store.snapshot(branch, places)
    # without folders, links, and empty files
    files = {name: file for name, file in snapshot.files.items() if file.text or file.problem}
    if not files:
        raise SourceError(
            f"--applications: no manifest at {path or '/'} in {snapshot.repo} on {branch}",
            hint="check the path after // and ?ref=",
        )

    def files_below(folder: str) -> Mapping[str, File]:
        """Return all files in or below a folder, whatever their extension."""
        return store.read_more(snapshot, [Place(folder, "files")]).files

    def content(name: str) -> bytes:
        """Return the content of one of `files`. Raises `Malformed` if it is not text."""
        if files[name].problem:
            raise Malformed(files[name].problem, "save manifests as UTF-8")
        return files[name].text.encode()

    where = f"{snapshot.repo}//{path}".rstrip("/")
    folder = Folder(
        root=path,
        paths=files,
        manifests=sorted(files),
        read=content,
        rendering=rendering,
        snapshot=snapshot,
    )
    names_in_folder = [
        posixpath.basename(name) for name in files if posixpath.dirname(name) == path
    ]
    kind = kind_of(names_in_folder)
    if kind is None or rendering.hint_if_disabled(kind):
        found = folder.found()
    else:
        rendered_manifests = rendering.rendered(kind, where, path, files_below)
        place = (snapshot.repo, snapshot.branch, path)
        found = (replace(item, place=place) for item in rendered_manifests)
    yield from or_broken(found, folder.contents(), f"{where} ({counted(len(files), 'file')})")


def _ref(query: str) -> str:
    """Return the value of `ref=` in the query of `REPO//PATH?ref=REF`, or "".

    Raises UsageError for any other key, and for several different values.
    """
    refs = []
    parts = [part for part in query.split("&") if part]
    for part in parts:
        key, _, value = part.partition("=")
        if key != "ref":
            raise UsageError(
                f"--applications: unknown key {key!r} in ?{query}",
                hint="use REPO//PATH?ref=REF",
            )
        refs.append(value)
    if len(set(refs)) > 1:
        raise UsageError(
            f"--applications: more than one ref in ?{query}",
            hint="use REPO//PATH?ref=REF",
        )
    return refs[0] if refs else ""
