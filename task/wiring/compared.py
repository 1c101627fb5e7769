"""The change that `check` judges, and the Applications on both sides.

If a source of Applications is in the judged repository, it is read from the compared commits, not
from the work tree, whether the source is a folder in the checkout or a URL.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from task.annotations.subscription import Scope
from task.applications.git import SnapshotReader
from task.applications.work_tree import top_of
from task.errors import UsageError
from task.git.command import Git
from task.git.errors import GitFailed
from task.git.names import rewritten
from task.git.repository.bare import BareRepository
from task.git.repository.compared import ComparedRepository, checkout_at
from task.landing.before_deciding import with_own_memory_branch
from task.landing.ports import Side
from task.model import Compared, Found, Place, Snapshot
from task.repository_config.config import MISTAKEN
from task.repository_config.config import PATH as CONFIG
from task.settings import Settings
from task.urls import host_and_path, normal_url, without_login
from task.wiring.argo import Argo, applications, sources

_OUTSIDE_GIT = ("cluster", "argocd", "-")  # sources that are the same on both sides
_CONFIG_PLACES = (Place(CONFIG), *(Place(path, "exists") for path in MISTAKEN))


class JudgedChange:
    """A base, and the merge of a change into it."""

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        compared: Compared,
        git: Callable[[str], Git],
        argo: Argo,
        scope: Scope,
    ) -> None:
        """`compared` says which repository and commits to compare. `git` returns the git command,
        with the credentials for a URL.
        """
        self._settings = settings
        self._environ = environ
        self._git = git
        self._argo = argo
        self._scope = scope
        self._read_outside_git: list[Found] | None = None
        self._rewrites = settings.transport.rewrite_url
        checkout = None
        url = compared.repository  # from --repository
        self._top = ""  # the root of the checkout, without --repository
        if not url:
            local_git = git("")
            self._top = top_of(os.path.realpath("."))
            if not self._top:
                raise UsageError(
                    "the current directory is not in a Git checkout",
                    hint="run check in a checkout, or set the repository with --repository",
                )
            url = self._origin(local_git)
            checkout = checkout_at(self._top, local_git)
        self._url = url
        self._repository = ComparedRepository(
            git(url),
            url,
            compared,
            checkout,
            settings.git.git_cache_dir,
        )

    def _origin(self, git: Git) -> str:
        """Return the URL of the checkout's remote `origin`. Raises `UsageError` without one."""
        command = ("config", "--get", "remote.origin.url")
        try:
            url = git.run(*command, git_dir=f"{self._top}/.git").out.decode().strip()
        except GitFailed:
            url = ""
        if not url:
            raise UsageError(
                "the checkout does not have a remote named origin, so the base's current tip is"
                " unknown",
                hint="set the repository with --repository",
            )
        is_relative = url.startswith(("./", "../"))
        return os.path.normpath(os.path.join(self._top, url)) if is_relative else url

    @property
    def repo(self) -> str:
        """The repository's URL, without credentials."""
        return without_login(self._url)

    @property
    def branch(self) -> str:
        """The branch that the change will be merged into."""
        return self._repository.comparison.branch

    @property
    def default(self) -> str:
        """The default branch."""
        return self._repository.comparison.default

    @property
    def commits(self) -> tuple[str, str]:
        """The commits of the base and the change."""
        comparison = self._repository.comparison
        return comparison.base, comparison.head

    @property
    def paths(self) -> Sequence[str]:
        """The paths of all files that the merge changes."""
        return self._repository.comparison.paths

    @property
    def messages(self) -> Sequence[str]:
        """The messages of the change's last commits."""
        return self._repository.comparison.messages

    def concerns(self, url: str) -> bool:
        """Return whether an Application's URL refers to this repository.

        The checkout's URL often uses a different protocol than the Applications' URLs.
        """
        own_places = {self._place(self._url), self._place(rewritten(self._url, self._rewrites))}
        places = {self._place(url), self._place(rewritten(url, self._rewrites))}
        return bool(own_places & places)

    @staticmethod
    def _place(url: str) -> str:
        """Return a key that is the same for all URLs of a repository, whatever the protocol."""
        normal = normal_url(url)
        return normal if normal.startswith("file://") else host_and_path(without_login(url))

    def applications(self, side: Side) -> Iterable[Found]:
        """Yield the manifests of the Applications on one side: before the change ("base") or after
        its merge ("merged").

        Sources outside Git, such as a cluster, are identical on both sides, so they are read only
        once.
        """
        all_sources = sources(self._settings, self._environ)
        sources_outside_git = tuple(source for source in all_sources if source in _OUTSIDE_GIT)
        if sources_outside_git and self._read_outside_git is None:
            self._read_outside_git = list(self._applications_from(sources_outside_git, side))
        if self._read_outside_git is not None:
            yield from self._read_outside_git

        sources_in_git = tuple(
            self._readable_at_commits(source)
            for source in all_sources
            if source not in _OUTSIDE_GIT
        )
        if sources_in_git or not all_sources:  # without any source, this call raises an error
            yield from self._applications_from(sources_in_git, side)

    def _applications_from(self, from_sources: tuple[str, ...], side: Side) -> Iterable[Found]:
        """Return the manifests of the Applications from these sources, as they are on this side."""
        settings = self._settings
        options = replace(settings.sources, applications=from_sources)
        return applications(
            replace(settings, sources=options),
            self._environ,
            lambda repo: self._reader(repo, side),
            self._argo,
            self._scope,
            images=(),
        )

    def _readable_at_commits(self, source: str) -> str:
        """Return a source of Applications in a form that can be read at both commits: a folder in
        the checkout becomes the URL of that folder in the repository. Other sources are returned
        unchanged.
        """
        if not self._top or not os.path.exists(source):
            return source
        real_path = os.path.realpath(source)
        is_in_checkout = real_path == self._top or real_path.startswith(f"{self._top}/")
        if not is_in_checkout:
            return source
        folder = real_path if os.path.isdir(real_path) else os.path.dirname(real_path)
        if top_of(folder) != self._top:  # the folder is in another checkout inside this one
            return source
        path = os.path.relpath(real_path, self._top).replace(os.sep, "/")
        if path == ".":
            path = ""
        if "?" in path:  # in a URL, a `?` would end the path
            return source
        return f"{self._url}//{path}?ref={self.branch}"

    def _reader(self, repo: str, side: Side) -> SnapshotReader:
        """Return the reader for a repository's files. The repository with the change is read on
        this side (before the change, or after its merge), and any other repository at the tips of
        its branches.
        """
        at_tips = BareRepository(self._git(repo), repo, cache_dir=self._settings.git.git_cache_dir)
        if not self.concerns(repo):  # the URL belongs to another repository
            return at_tips
        return _OfSide(self._repository, side, at_tips)

    def snapshot(self, side: Side, places: Iterable[Place], urls: Collection[str]) -> Snapshot:
        """Return a snapshot of these places on one side: the base, or the merge.

        The base snapshot also contains the files of its memory branch (holds and lists of waiting
        builds). The branch is found by the repository's `urls`.
        """
        distinct_places = tuple(dict.fromkeys(places))
        if side == "base":
            snapshot = self._repository.base_snapshot(distinct_places, _CONFIG_PLACES, urls)
            return with_own_memory_branch(snapshot, self._repository)
        return self._repository.at(self._repository.comparison.merged, distinct_places)

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:
        """Return the files at more locations on the same side."""
        return self._repository.read_more(snapshot, places)

    def earlier(
        self,
        branch: str,
        path: str,
        limit: int,
        marked: Collection[str] = (),
    ) -> Iterable[tuple[str, str | None]]:
        """Yield (commit, text) for versions of a file on the base, newest first, up to `limit`."""
        return self._repository.earlier(branch, path, limit, marked)

    def close(self) -> None:
        """Remove all temporary files."""
        self._repository.close()


class _OfSide:
    """Reads the repository with the change. The branch that the change will be merged into is read
    on one side (before the change, or after its merge), and other branches at their tips.
    """

    def __init__(self, compared: ComparedRepository, side: Side, at_tips: BareRepository) -> None:
        """`at_tips` reads the other branches of the same repository."""
        self._compared = compared
        self._side = side
        self._at_tips = at_tips

    def default_branch(self) -> str:
        """Return the default branch of the repository with the change."""
        return self._compared.comparison.default

    def snapshot(self, branch: str, places: Collection[Place]) -> Snapshot:
        """Return the files at these locations on a branch. The branch that the change is merged
        into is read on this side: before the change, or after its merge.
        """
        comparison = self._compared.comparison
        if branch.removeprefix("refs/heads/") != comparison.branch:
            return self._at_tips.snapshot(branch, places)
        tip = comparison.base if self._side == "base" else comparison.merged
        return self._compared.at(tip, places)

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:
        """Return the files at more locations, at a snapshot's commit."""
        comparison = self._compared.comparison
        if snapshot.tip in (comparison.base, comparison.merged):
            return self._compared.read_more(snapshot, places)
        return self._at_tips.read_more(snapshot, places)

    def close(self) -> None:
        self._at_tips.close()
