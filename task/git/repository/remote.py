"""Asks a Git server for refs, tips and objects, and pushes. Every failure is a named error."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from io import BytesIO

from task.errors import Outpaced, SourceError, TaskError
from task.git import errors as git_errors
from task.git.command import Git, Ran
from task.git.failed import GitEnded, GitFailed
from task.git.repository.bare_folder import REMOTE, BareFolder
from task.git.repository.cache import Cache
from task.git.repository.objects import Objects
from task.process_bounds import Clock
from task.retry import again
from task.urls import without_login

# How little of a tip is asked for, and what is tried where a server refuses that (GitHub limits the depth of tree
# filters; old and dumb servers know no filters).
_WALK, _TREES, _WHOLE = "tree:1", "blob:none", ""
_AGAIN = "tree:2"  # for a tip that moved: what others wrote beside our files has changed the trees above
_FILTER_REFUSED = ("filter '", "tree filter allows", "filter-spec", "unadvertised object")
_NO_FILTER, _NO_SHALLOW, _OTHER_FORMAT = "filtering not recognized", "does not support shallow", "mismatched algorithms"
_BROKEN = (
    "corrupt", "inflate", "bad object", "does not match", "unable to read", "unresolved delta", "index-pack failed",
    "did not send all", "missing", "is not a", "unable to find", "bad tree", "could not parse",
)  # fmt: skip
_NEVER_FETCHED = ("fatal: bad tree object", "fatal: bad object", "fatal: unable to read")
_PAUSES = (0.5, 2.0)  # seconds before what broke off is asked for again
_LOOK_BACK = 100  # commits: others may have pushed on top of ours


class StartAgain(Exception):
    """The server does not give single objects: what was fetched is gone; next time the tip comes with everything."""


class Remote:
    """One repository on a server, and the throw-away bare repository into which we fetch."""

    def __init__(self, git: Git, repo: str, cache_dir: str = "", clock: Clock | None = None) -> None:
        self.repo = without_login(repo)
        self.clock = clock or Clock(git.bounds.seconds, self.repo)
        self._git, self._url = git, repo
        url = git.url(repo)
        self._log_in()
        self._folder = BareFolder(git.temporary, url, local=git.local(url), stall=git.stall)
        self._filter = _WALK
        if cache_dir:
            self._borrow(cache_dir, url)
        self._depth = ["--depth=1"]
        self._again = False  # whether a tip was fetched before
        self.objects = Objects(git, self._folder)

    def _log_in(self) -> None:
        self._env = self._git.login(self._url) | self._git.ssh_environment(self._git.url(self._url))

    def _borrow(self, cache_dir: str, url: str) -> None:
        cache = Cache(cache_dir, url)
        if why := cache.open("sha1"):
            self._git.log(f"warning: {why}")
            return
        self._folder.cache = cache
        self._filter = _WHOLE if cache.whole() else _WALK

    def without_cache(self) -> None:
        """Something that lies here cannot be read. Raises `StartAgain` if it may be what earlier runs have left."""
        cache = self._folder.cache
        if cache is not None:
            self._folder.cache = None
            cache.drop()
            self.close()
            self._filter = _WALK
            raise StartAgain

    def subject(self, branch: str) -> str:
        """`repo@branch`, as messages say it."""
        return f"{self.repo}@{branch}" if branch else self.repo

    def close(self) -> None:
        """End the reading process and remove the repository."""
        self.objects.close()
        self._folder.close()

    def refs(self, *names: str, symbolic: bool = False) -> list[tuple[str, str]]:
        """(id or `ref: name`, ref) for each of the refs that exists."""
        self._folder.create()
        try:
            out = self._ask("ls-remote", *(["--symref"] if symbolic else []), REMOTE, *names).out
        except GitFailed as error:
            raise git_errors.failure(error.err, self.repo) from error
        # A pattern of ls-remote fits the end of a name, and a server may have a million such branches: one at a time.
        lines = (line.decode("utf-8", "replace").rstrip("\n").partition("\t") for line in BytesIO(out))
        return [(word, name) for word, _, name in lines if name in names]

    def fetch_tip(self, branch: str, meanwhile: Callable[[], object] | None = None) -> str:
        """The branch's tip, its root tree present. Raises `SourceError` where there is no such branch.

        `meanwhile`: what the caller has to do until the server answers.
        """
        self._folder.create()
        try:
            ref = f"+refs/heads/{branch}:refs/image-update/base"
            filtered = _AGAIN if self._again else ""
            said = self._fetch(*self._depth, ref, filtered=filtered, meanwhile=meanwhile)
        except GitFailed as error:
            if not self._coarser(error):
                raise self._no_tip(error, branch) from error
            return self.fetch_tip(branch)
        if _NO_FILTER in said:
            self._filter = _WHOLE
        self._again = True
        tip = self._fetched()
        self._folder.whole = tip if self._filter == _WHOLE and self._depth else ""
        return tip

    def commit_of(self, branch: str) -> str:
        """The branch's tip, only its commit present; "" where there is no such branch."""
        try:
            self._fetch("--depth=1", f"+refs/heads/{branch}:refs/image-update/head", filtered="tree:0")
        except GitFailed as error:
            if f"couldn't find remote ref refs/heads/{branch}" in error.err:
                return ""
            raise git_errors.failure(error.err, self.subject(branch)) from error
        return self._fetched()

    def fetch_commits(self, depth: int, branch: str) -> str:
        """The branch's tip, so many commits deep; trees come along only where the server cannot leave them out."""
        self._folder.create()
        depths = [f"--depth={depth}"] if self._depth else []
        try:
            said = self._fetch(*depths, f"+refs/heads/{branch}:refs/image-update/history", filtered="tree:0")
        except GitFailed as error:
            if not self._coarser(error):
                raise self._no_tip(error, branch) from error
            return self.fetch_commits(depth, branch)
        if _NO_FILTER in said:
            self._filter = _WHOLE
        return self._fetched()

    def fetch_objects(self, oids: list[str], branch: str, *, trees: bool) -> None:
        """These very objects, unless the tip brought them along."""
        if not oids or self._filter == _WHOLE or (trees and self._filter == _TREES):
            return
        if self._folder.cache is not None or self._again:
            oids = self.objects.absent(oids)
            if not oids:
                return
        try:
            wanted = "".join(f"{oid}\n" for oid in oids)
            self._fetch("--no-write-fetch-head", "--stdin", filtered="tree:0", stdin=wanted)
        except GitFailed as error:
            if any(words in error.err for words in _FILTER_REFUSED):
                self._filter = _WHOLE
                self.close()
                raise StartAgain from error
            raise git_errors.failure(error.err, self.subject(branch)) from error

    def push(self, head: str, commit: str, lease: str = "") -> bool:
        """Push the commit; false when the branch was there already.

        Raises `Outpaced`, `RepositoryError`; `UnreachableError` leaves open whether it landed.
        """
        self._folder.complete()
        options = ["--porcelain", "--no-verify", *filter(None, [lease])]
        argv = ("push", *options, REMOTE, f"{commit}:refs/heads/{head}")
        push = partial(self._git.ran, git_dir=self._folder.path, env=self._env, clock=self.clock)
        try:
            try:
                said = push(*argv).out
            except GitFailed as error:
                if not (lease and _lacks_objects(error.err)):
                    raise
                # A new branch, and its base has moved since we fetched it: the server names no commit that we know,
                # so git wants to send history that we never had. It can ask the server what both have (protocol v2);
                # that is a request more, so only where it is needed.
                said = push("-c", "push.negotiate=true", *argv).out
            return not any(line.startswith(b"=") for line in said.splitlines())
        except GitFailed as error:
            lines = error.out.decode("utf-8", "replace").splitlines()
            if self._folder.cache is not None and "pack-objects" in error.err:
                self._folder.cache.drop()
            elif lease and _lacks_objects(error.err):
                raise Outpaced(f"{self.subject(head)}: its base moved meanwhile") from error
            status = next((line for line in lines if line.startswith("!")), "")
            raise git_errors.refusal(status, error.err, self.subject(head), forced=bool(lease)) from error

    def contains(self, branch: str, commit: str) -> bool:
        """Whether the branch is at this commit, or was a little while ago."""
        name = f"refs/heads/{branch}"
        at = next((oid for oid, ref in self.refs(name) if ref == name), "")
        if not at or at == commit:
            return bool(at)
        try:
            self._fetch(f"--depth={_LOOK_BACK}", f"+{name}:refs/image-update/look", filtered="tree:0")
            return commit.encode() in self.local("rev-list", "refs/image-update/look").split()
        except GitFailed as error:
            raise git_errors.failure(error.err, self.subject(branch)) from error

    def ready(self) -> str:
        """The folder of what was fetched, for a command that contacts no server."""
        self._folder.complete()
        return self._folder.path

    def local(self, *argv: str, stdin: bytes = b"") -> bytes:
        """A command on what was fetched; it does not contact the server. Raises `GitFailed`."""
        self._folder.complete()
        return self._git.ran(*argv, git_dir=self._folder.path, stdin=stdin, clock=self.clock).out

    def _ask(self, *argv: str, stdin: str = "", meanwhile: Callable[[], object] | None = None) -> Ran:
        """Run a command that changes nothing there; a few times, if the server cannot be reached or breaks off."""
        folder = self._folder.path
        run = partial(self._git.ran, *argv, git_dir=folder, stdin=stdin, clock=self.clock, meanwhile=meanwhile)

        def ask() -> Ran:
            while True:
                try:
                    return run(env=self._env)
                except GitFailed as error:
                    if not self._git.redirected(self._url, error, REMOTE, folder, self.clock):
                        raise
                    self._log_in()

        def may_pass(error: GitFailed) -> bool:
            # A server that stalled has been waited for already; one that sent too much will send it again.
            passes = not isinstance(error, GitEnded) and git_errors.broke_off(error.err)
            if passes:
                self._git.log(f"warning: {self.repo} cannot be reached, or broke off; asking again")
            return passes

        return again(ask, _PAUSES, GitFailed, may_pass, time.monotonic() + self._git.patience)

    def _fetch(
        self, *what: str, filtered: str = "", stdin: str = "", meanwhile: Callable[[], object] | None = None
    ) -> str:
        """Fetch, and return what was said. Without `haves`: the server would send deltas against what we never had."""
        whole = self._filter == _WHOLE
        wanted = filtered if filtered and self._filter == _WALK else self._filter
        if whole:
            self._folder.complete()
        else:
            self._folder.partial()
        options = ["--quiet", "--no-tags", *([f"--filter={wanted}"] if wanted else [])]
        options += [one for one in what if one.startswith("--")]
        refs = [one for one in what if not one.startswith("--")]
        negotiation = f"fetch.negotiationAlgorithm={'default' if whole else 'noop'}"
        argv = ("-c", negotiation, "fetch", *options, REMOTE, *refs)
        return self._ask(*argv, stdin=stdin, meanwhile=meanwhile).err

    def _fetched(self) -> str:
        with open(os.path.join(self._folder.path, "FETCH_HEAD"), encoding="utf-8") as file:
            return file.readline().partition("\t")[0]

    def _coarser(self, error: GitFailed) -> bool:
        """Whether there is a coarser request that this server may answer; it is made from now on.

        Raises `StartAgain` where it may be what earlier runs have left that is broken.
        """
        said = error.err
        if isinstance(error, GitEnded):
            return False
        if any(words in said for words in _BROKEN):
            self.without_cache()
        if _OTHER_FORMAT in said and self._folder.object_format == "sha1":
            self.objects.close()
            self._folder.restart("sha256")
        elif _NO_SHALLOW in said and self._depth:
            self._depth, self._filter = [], _WHOLE
        elif self._filter != _WHOLE and any(words in said for words in _FILTER_REFUSED):
            self._filter = _TREES if self._filter == _WALK else _WHOLE
        else:
            return False
        return True

    def _no_tip(self, error: GitFailed, branch: str) -> TaskError:
        """The error; where the branch is missing it says whether it is a tag, or nothing is there at all."""
        found = git_errors.failure(error.err, self.subject(branch))
        if not isinstance(found, SourceError) or "couldn't find remote ref" not in error.err:
            return found
        tag, at = f"refs/tags/{branch}", found.subject
        try:
            there = {name for _, name in self.refs(tag, "HEAD")}
        except TaskError:
            return found
        if tag in there:
            return SourceError("this is a tag, and only a branch can be written to", hint="name a branch", subject=at)
        empty = "the repository may be empty: push a first commit, or name another branch"
        hint = found.hint if "HEAD" in there else empty
        return SourceError(found.message, hint=hint, subject=at)


def _lacks_objects(said: str) -> bool:
    """Whether our git could not make the pack: it wanted to send objects that were never fetched."""
    ours = [line for line in said.splitlines() if not line.startswith("remote:")]
    return any(words in line for line in ours for words in _NEVER_FETCHED)
