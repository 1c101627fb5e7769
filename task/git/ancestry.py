"""Determines which of two source commits is older.

This fetches only commits from the source repository, not trees or files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from io import StringIO
from threading import Lock
from typing import Literal

from task.errors import TaskError, UnreachableError
from task.git import errors as git_errors
from task.git.command import Git
from task.git.errors import GitEnded, GitFailed
from task.git.repository.bare_folder import REMOTE, BareFolder
from task.processes import Clock
from task.text import blanked
from task.urls import without_login

Order = Literal["older", "newer", "same", "unrelated", "unknown"]
DEPTHS = (50, 500, 5000, 50_000)  # how many ancestors to request, one attempt after another
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_WHOLE_ID = (40, 64)
_NOT_BY_ID = ("unadvertised object", "not valid")  # if a server sends only branches and tags
_MISSING_COMMIT = re.compile("not our ref ([0-9a-f]+)")
_NO_SHALLOW = "does not support shallow"
_OTHER_FORMAT = "mismatched algorithms"
_NO_FILTER = "filter '"
_REFS = ("+refs/heads/*:refs/image-update/heads/*", "+refs/tags/*:refs/image-update/tags/*")
_FILTERS = ("tree:0", "blob:none", "")  # tried in this order


@dataclass(frozen=True)
class Kin:
    """How a new commit relates to an old one. If the order is "unknown", `why` contains
    the reason.
    """

    order: Order
    why: str = ""


_Parents = Mapping[str, Sequence[str]]  # the parents of each fetched commit


class Lineage:
    """Compares commits, but each pair only once per run. `close` removes the fetched commits."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._results: dict[tuple[str, str, str], Kin] = {}
        self._sources: dict[str, _Source] = {}
        self._lock = Lock()

    def order(self, repository: str, old: str, new: str) -> Kin:
        """Return how the commit `new` relates to the commit `old` in a repository.

        The result is "newer" if `new` descends from `old`, "older" if it is an ancestor of `old`,
        "same", or "unrelated". If that cannot be determined, for example because the server does
        not respond, the result is "unknown" with the reason, and no error is raised. Ids may be
        abbreviated.
        """
        old = old.strip().lower()
        new = new.strip().lower()
        key = (repository, old, new)
        with self._lock:
            if key not in self._results:
                self._results[key] = self._compare(repository, old, new)
            return self._results[key]

    def close(self) -> None:
        """Remove everything that was fetched."""
        for source in self._sources.values():
            source.close()
        self._sources.clear()

    def _compare(self, repository: str, old: str, new: str) -> Kin:
        """Return how two commits relate. If a problem occurs, it becomes the reason
        for "unknown".
        """
        display_url = blanked(without_login(repository))
        for commit in (old, new):
            if not _COMMIT.fullmatch(commit):
                return Kin("unknown", f"{commit[:80]!r} is not a commit id")
        if old == new:
            return Kin("same")
        if not repository:
            return Kin(
                "unknown",
                "cannot determine the repository of the source commits: pass --source-repository",
            )
        try:
            if repository not in self._sources:
                self._sources[repository] = _Source(self._git, repository)
            return self._sources[repository].order(old, new)
        except TaskError as error:
            hint = f"; {error.hint}" if error.hint else ""
            which = f"which of {old[:12]} and {new[:12]} is newer"
            return Kin("unknown", f"{display_url}: cannot tell {which}: {error.message}{hint}")


class _Source:
    """A source repository, and a temporary repository for its commits."""

    def __init__(self, git: Git, repository: str) -> None:
        url = git.url(repository)
        self._git = git
        self._repository = repository
        self._display_url = without_login(repository)
        self._clock = Clock(git.bounds.seconds, self._display_url)
        self._env = git.login(repository)  # git's environment variables, including credentials
        self._folder = BareFolder(git, url)
        self._shallow = True  # whether the server can send part of the history
        self._by_id = True  # whether the server sends commits that no branch or tag points to
        self._filter = 0  # index into _FILTERS

    def close(self) -> None:
        """Remove the temporary repository."""
        self._folder.close()

    def order(self, old: str, new: str) -> Kin:
        """Return how the commit `new` relates to the commit `old`.

        Fetch their ancestors in increasing depths (`DEPTHS`) until the order is known. Raises
        `TaskError` if the server cannot be read.
        """
        are_sha256_ids = len(old) == len(new) == max(_WHOLE_ID)
        if are_sha256_ids and self._folder.object_format == "sha1":
            self._folder.restart("sha256")
        self._folder.create()
        kin = Kin("unknown")
        last_count = -1  # number of commits fetched at the previous depth
        for depth in DEPTHS:
            try:
                parents, boundary = self._parents_of_fetched(depth, old, new)
            except GitFailed as error:
                missing_commit = _MISSING_COMMIT.search(error.err)
                if missing_commit:
                    return Kin(
                        "unknown", f"{self._display_url}: commit {missing_commit[1][:12]} not found"
                    )
                raise git_errors.failure(error.err, self._display_url) from error
            kin = _kin_in_history(parents, boundary, old, new)
            if kin.order != "unknown":
                break
            # The history is complete, or the server sent no more commits than last time.
            is_all_history = not boundary or len(parents) == last_count
            if is_all_history:
                break
            last_count = len(parents)
        if not kin.why:  # the order is known
            return kin
        return replace(kin, why=f"{self._display_url}: {kin.why}")

    def _parents_of_fetched(
        self, depth: int, old: str, new: str
    ) -> tuple[_Parents, frozenset[str]]:
        """Fetch these two commits with up to `depth` ancestors. Return each fetched commit's
        parents, and the boundary: the fetched commits whose parents the server did not send.

        If an id is abbreviated, or the server does not send commits by id, fetch the commits of all
        branches and tags instead.
        """
        has_whole_ids = len(old) in _WHOLE_ID and len(new) in _WHOLE_ID
        was_fetched_by_id = False
        if has_whole_ids and self._by_id:
            was_fetched_by_id = self._fetch(depth, old, new)
        if not was_fetched_by_id:
            self._fetch(depth, *_REFS)

        # `--all` lists only commits that refs point to, but commits fetched by id have no refs.
        starts = []
        if has_whole_ids:
            for commit in (old, new):
                with suppress(GitFailed):  # the commit was not fetched
                    self._run_locally("cat-file", "-e", f"{commit}^{{commit}}")
                    starts.append(commit)
        # Read one line at a time, because a server may have sent a million commits.
        lines = StringIO(self._run_locally("rev-list", "--parents", "--all", *starts))
        parents = {}
        for line in lines:
            commit, *parents_of_commit = line.split()
            parents[commit] = tuple(parents_of_commit)
        return parents, self._boundary() & parents.keys()

    def _fetch(self, depth: int, *refs: str) -> bool:
        """Fetch commits with up to `depth` ancestors. `refs` contains commit ids or refspecs.
        Return whether the server sends commits by id. If it does not, and `refs` contains ids,
        nothing was fetched.

        If the server redirects, or does not support this kind of request, repeat the fetch with the
        new URL or another kind of request. Raises `GitFailed`.
        """
        argv = ["-c", "fetch.negotiationAlgorithm=noop", "fetch", "--quiet", "--no-tags"]
        if self._shallow:
            argv.append(f"--depth={depth}")
        if _FILTERS[self._filter]:
            argv.append(f"--filter={_FILTERS[self._filter]}")
        argv += [REMOTE, *refs]
        try:
            self._git.run(
                *argv,
                git_dir=self._folder.partial(),
                env=self._env,
                clock=self._clock,
            )
        except GitEnded:  # a different request would not help
            raise
        except GitFailed as error:
            is_redirected = self._git.redirected(
                self._repository,
                error,
                REMOTE,
                self._folder.path,
                self._clock,
            )
            if is_redirected:
                self._env = self._git.login(self._repository)
                return self._fetch(depth, *refs)
            if self._switch_request(error.err):
                return self._fetch(depth, *refs)
            rejects_ids = any(words in error.err for words in _NOT_BY_ID)
            if refs == _REFS or not rejects_ids:
                raise
            self._by_id = False  # the server sends only branches and tags
        return self._by_id

    def _switch_request(self, messages: str) -> bool:
        """Switch to a different kind of request if git's `messages` about the failed request say
        that the server does not support the current kind. Return whether there is another kind to
        try.
        """
        if _OTHER_FORMAT in messages and self._folder.object_format == "sha1":
            self._folder.restart("sha256")
        elif _NO_SHALLOW in messages and self._shallow:
            self._shallow = False
        elif _NO_FILTER in messages and _FILTERS[self._filter]:
            self._filter += 1
        else:
            return False
        return True

    def _run_locally(self, *argv: str) -> str:
        """Run a git command that does not contact a server, and return its output."""
        git_dir = self._folder.complete()
        return self._git.run(*argv, git_dir=git_dir, clock=self._clock).out.decode()

    def _boundary(self) -> frozenset[str]:
        """Return the commits whose parents the server did not send. Git lists them in the file
        `shallow`.
        """
        path = f"{self._folder.path}/shallow"
        try:
            if os.path.getsize(path) > self._git.bounds.messages:
                message = f"the Git server sent too much data: {self._git.bounds.too_many_messages}"
                raise UnreachableError(
                    message,
                    hint="pass --sequence so that no commits need to be compared",
                )
            with open(path, encoding="ascii") as file:
                return frozenset(file.read().split())
        except FileNotFoundError:
            return frozenset()


def _kin_in_history(parents: _Parents, boundary: frozenset[str], old: str, new: str) -> Kin:
    """Return how the commit `new` relates to the commit `old`, according to the fetched commits.

    `parents` contains each commit's parents, and `boundary` the commits whose parents the server
    did not send. If the result is "unknown", fetching more commits may show the order.
    """
    old_id, old_problem = _full_id(parents, old)
    new_id, new_problem = _full_id(parents, new)
    if old_problem or new_problem:
        return Kin("unknown", old_problem or new_problem)
    if old_id == new_id:
        return Kin("same")
    old_history = _with_ancestors(parents, old_id)
    new_history = _with_ancestors(parents, new_id)
    if old_id in new_history:
        return Kin("newer")
    if new_id in old_history:
        return Kin("older")
    # The ancestors of one commit that were not fetched may include the other commit. Common
    # ancestors do not matter: if one of the two commits were an ancestor of these, there would be a
    # cycle.
    only_in_one_history = old_history ^ new_history
    if boundary & only_in_one_history:
        return Kin(
            "unknown",
            f"the commits sent by the server do not show which of {old[:12]} and {new[:12]} is"
            " newer",
        )
    return Kin("unrelated")


def _full_id(parents: _Parents, commit: str) -> tuple[str, str]:
    """Return a commit's full id and "". If the commit was not found, return "" and the reason."""
    if commit in parents:
        return commit, ""
    if len(commit) in _WHOLE_ID:
        return "", f"commit {commit[:12]} not found"
    matches = [full_id for full_id in parents if full_id.startswith(commit)]
    if not matches:
        return "", f"commit {commit} is not on any branch or tag"
    if len(matches) > 1:
        return "", f"{commit} is ambiguous: more than one commit id starts with it"
    return matches[0], ""


def _with_ancestors(parents: _Parents, commit: str) -> set[str]:
    """Return the commit and all its ancestors."""
    history = {commit}
    unvisited = [commit]
    while unvisited:
        for parent in parents.get(unvisited.pop(), ()):
            if parent not in history:
                history.add(parent)
                unvisited.append(parent)
    return history
