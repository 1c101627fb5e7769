"""Reads refs, tips, and objects from a Git server, and pushes. Every failure raises one of our
errors.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import TypeVar

from task.errors import NotAtomicError, Outpaced, SourceError, TaskError
from task.git import errors as git_errors
from task.git.command import NO_FILTER, Git, Ran
from task.git.errors import GitEnded, GitFailed
from task.git.names import TO_WRITE
from task.git.repository.bare_folder import REMOTE, BareFolder, Cache, Kept, Lent
from task.git.repository.objects import MissingObjectError, Objects
from task.processes import Clock, weight
from task.retry import again
from task.text import blanked, counted
from task.urls import split, without_login

# A small repository is fetched with its files, which saves the request for the required files:
# three round trips. For a large repository, the tip is fetched with its trees but without files:
# every large Git host supports that, but many reject tree filters (GitHub:
# `uploadpackfilter.tree.maxDepth=0`). Old and dumb servers do not support filters, and send
# everything.
_SMALL = "blob:limit=64k"
_PARTIAL = "blob:none"
_WHOLE = ""
_FEW = 40_000  # objects of a small repository; a server reports the number before it sends them
_LIGHT = 16_000_000  # bytes of a small repository, wasted if the repository turns out to be larger
_COUNTED = re.compile("^remote: (?:Enumerating|Counting) objects: +([0-9]{1,12})", re.MULTILINE)
_LARGE = "the repository is large"
_NOT_ATOMIC = "does not support --atomic push"
_NO_OPTIONS = "does not support push options"
_FILTER_REFUSED = ("filter '", "filter-spec", "unadvertised object")
_NO_SHALLOW = "does not support shallow"
_NO_COMMIT = ("couldn't find remote ref", "not our ref", "unadvertised object")
_OTHER_FORMAT = "mismatched algorithms"
_BROKEN = (
    "corrupt", "inflate", "bad object", "does not match", "unable to read", "unresolved delta", "index-pack failed",
    "did not send all", "missing", "is not a", "unable to find", "bad tree", "could not parse",
)  # fmt: skip
_NEVER_FETCHED = ("fatal: bad tree object", "fatal: bad object", "fatal: unable to read")
_PAUSES = (0.5, 2.0)  # seconds before an interrupted request is retried
_MEMORIES = "+refs/heads/image-update-memory/*:refs/image-update/memory/*"
_DEFAULT = "+HEAD:refs/image-update/default"
_FETCHED = re.compile(r"([0-9a-f]+)\t[^\t]*\tbranch '([^']+)' of ")
_FETCHED_HEAD = re.compile(r"([0-9a-f]+)\t[^\t]*\t(?!branch '|tag ')")
_LOOK_BACK = 100  # recent commits to read, because others may have pushed on top of ours


class StartAgain(Exception):
    """The server cannot send single objects.

    The fetched objects were removed, and the next fetch of the tip gets everything.
    """


@dataclass(frozen=True)
class Pushed:
    """A branch to push: its new commit ("" deletes it), and its current commit ("" if it does not
    exist).
    """

    head: str
    commit: str
    was: str
    replaces: bool = True  # the commit need not contain the branch's current commit

    @property
    def ref(self) -> str:
        """The branch's full name."""
        return f"refs/heads/{self.head}"

    @property
    def refspec(self) -> str:
        """The refspec for git."""
        return f"{self.commit}:{self.ref}"

    @property
    def lease(self) -> str:
        """The option that rejects the push if the branch is at a different commit.

        Without it, git also pushes to a branch that was deleted or reset in the meantime, which
        would bring the removed commits back. A commit on top of `was` does not force anything.
        """
        return f"--force-with-lease={self.ref}:{self.was}"


class Remote:
    """A repository on a server, with the temporary bare repository that it is fetched into."""

    def __init__(
        self,
        git: Git,
        repo: str,
        cache_dir: str = "",
        clock: Clock | None = None,
        *,
        files: bool = False,
    ) -> None:
        """`files`: fetch the files of a small repository together with its tip."""
        self.repo = without_login(repo)
        self.takes_options = True  # until the server rejects it
        self.atomic = True  # until the server rejects it
        self.clock = clock or Clock(git.bounds.seconds, self.repo)
        self._git = git
        self._url = repo
        url = git.url(repo)
        self._log_in()
        self._folder = BareFolder(git, url)
        self._filter = _SMALL if files else _PARTIAL
        if cache_dir:
            self._borrow(cache_dir, url)
        self._shallow = True
        self._size = 0  # bytes of packs in the folder
        self.objects = Objects(git, self._folder)

    def _log_in(self) -> None:
        self._env = self._git.login(self._url, at_once=True)

    def _borrow(self, cache_dir: str, url: str) -> None:
        """Use the objects that earlier runs cached, if the cache can be opened."""
        cache = Cache(cache_dir, url)
        problem = cache.open("sha1")
        if problem:
            self._git.log(f"warning: {problem}")
            return
        self._folder.cache = cache
        self._filter = _WHOLE if cache.kept().whole else _PARTIAL

    def lend(self, lent: Lent) -> None:
        """Also read a checkout's objects. For a complete checkout, fetch complete history."""
        self._folder.lent = lent
        self._folder.object_format = lent.object_format
        self._shallow = bool(lent.shallow)
        self._filter = _PARTIAL

    @property
    def shallow(self) -> bool:
        """Whether part of the history may be missing."""
        path = Path(self._folder.path, "shallow")
        return path.exists() and path.stat().st_size > 0

    def fetch_commit(self, name: str) -> str:
        """Fetch the commit of a full ref or an id, with its trees, and return it.

        Return "" if the server does not have it, or cannot send single commits.
        """
        self._folder.create()
        while True:
            try:
                self._fetch(
                    "the commit to compare",
                    [f"+{name}:refs/image-update/compared"],
                    1 if self._shallow else 0,
                )
            except GitFailed as error:
                if any(words in error.err for words in _NO_COMMIT):
                    return ""
                if not self._switch_to_coarser(error):
                    raise self._failure(error, self.repo) from error
                continue
            return self.local("rev-parse", "refs/image-update/compared^{commit}").decode().strip()

    def deepen(self, commits: Sequence[str], depth: int) -> None:
        """Fetch the history of these commits, as far as the server has it."""
        refspecs = [f"+{oid}:refs/image-update/deep/{at}" for at, oid in enumerate(commits)]
        if self._filter != _WHOLE:
            self._filter = _PARTIAL
        try:
            self._fetch("the history of both sides", refspecs, depth)
        except GitFailed as error:
            if not any(words in error.err for words in _NO_COMMIT):
                raise self._failure(error, self.repo) from error
            self._git.log(f"{self.repo}: the server cannot send the history of a single commit")

    def without_cache(self) -> None:
        """Handle an unreadable local object.

        Raises `StartAgain` if it may be from the cache of earlier runs.
        """
        cache = self._folder.cache
        if cache is not None:
            self._folder.cache = None
            cache.drop()
            self.close()
            self._filter = _PARTIAL
            raise StartAgain

    def subject(self, branch: str) -> str:
        """Return `repo@branch`, for messages."""
        return f"{self.repo}@{branch}" if branch else self.repo

    def close(self) -> None:
        """Stop the reading process, and remove the repository."""
        self.objects.close()
        self._folder.close()
        self._size = 0

    def _restart(self, object_format: str) -> None:
        """Start again with an empty repository."""
        self.close()
        self._folder.restart(object_format)

    def _failure(self, error: GitFailed, subject: str) -> TaskError:
        return self._git.failure(self._url, error.err, subject)

    def refs(self, *names: str, symbolic: bool = False) -> list[tuple[str, str]]:
        """Return (id or `ref: name`, ref) for each of the refs that exist."""
        options = ["--symref"] if symbolic else []
        found = self._listed(" ".join(names), *options, REMOTE, *names)
        # an ls-remote pattern matches the end of a name
        return [(value, ref) for value, ref in found if ref in names]

    def _listed(self, what: str, *argv: str) -> Iterator[tuple[str, str]]:
        """Yield (id or `ref: name`, ref) for the lines of ls-remote.

        A server may have a million lines.
        """
        self._folder.create()
        run = partial(
            self._git.run,
            "ls-remote",
            *argv,
            git_dir=self._folder.path,
            clock=self.clock,
        )
        try:
            with self._logged(f"list {what}"):
                out = self._ask(run).out
        except GitFailed as error:
            raise self._failure(error, self.repo) from error
        for line in BytesIO(out):
            word, _, name = line.decode("utf-8", "replace").rstrip("\n").partition("\t")
            yield word, name

    def default_branch(self) -> tuple[str, str]:
        """Return the branch that the remote's HEAD points to, and its tip.

        Raises `SourceError` if there is none.
        """
        lines = self.refs("HEAD", symbolic=True)
        names = [
            value.removeprefix("ref: ").removeprefix("refs/heads/")
            for value, _ in lines
            if value.startswith("ref:")
        ]
        tips = [value for value, _ in lines if not value.startswith("ref:")]
        if names:
            return names[0], tips[0] if tips else ""
        if lines:
            raise SourceError(
                "HEAD does not point to a branch",
                hint="specify a branch",
                subject=self.repo,
            )
        self._refuse_page(self.repo)
        hint = "push a first commit, or specify a branch that exists"
        message = (
            "the repository has no default branch: it is empty, or HEAD points to a branch that"
            " does not exist"
        )
        raise SourceError(message, hint=hint, subject=self.repo)

    def fetch_default(self) -> tuple[str, Mapping[str, str]]:
        """Return the default branch, and the tips that `fetch_tips` returns for it.

        Over HTTP, both requests are sent at the same time. Over SSH, they share a connection, so
        one waits for the other.
        """
        if not split(self._git.url(self._url)).scheme.startswith("http"):
            branch, _ = self.default_branch()
            return branch, self.fetch_tips(branch)
        default = cache(self.default_branch)
        tip = self._fetch_branch(
            "HEAD",
            1,
            "base",
            "the tip of the default branch",
            default,
            [_MEMORIES],
            optional=True,
        )
        found = self._fetched_tips()
        branch, listed_tip = default()
        if tip != listed_tip:  # the branch moved, or HEAD changed, between the responses
            return branch, self.fetch_tips(branch)
        return branch, {**found, branch: tip}

    def fetch_tip(self, branch: str) -> str:
        """Fetch the branch's tip, with its trees, and return it.

        Raises `SourceError` if there is no such branch.
        """
        return self._fetch_branch(branch, 1, "base", "the tip of the branch")

    def fetch_tips(
        self,
        branch: str,
        heads: Collection[str] = (),
        meanwhile: Callable[[], object] | None = None,
        *,
        default: bool = False,
    ) -> Mapping[str, str]:
        """Fetch the tips of a branch, of the memory branches, and of the existing head branches,
        and return them by name.

        With `default`, also the tip of the default branch, if there is one, as `HEAD`.

        A fetch fails if a requested branch is missing, but a pattern without a match is not an
        error. A pattern also matches branches with longer names.
        """
        names = dict.fromkeys(heads)
        patterns = [
            f"+refs/heads/{prefix}*:refs/image-update/heads/{at}/x*"
            for at, prefix in enumerate(names)
        ]
        why = "the tips of the branch and its head branches" if heads else "the tip of the branch"
        more = [_MEMORIES, *patterns, *([_DEFAULT] if default else [])]
        tip = self._fetch_branch(branch, 1, "base", why, meanwhile, more)
        return {**self._fetched_tips(), branch: tip}

    def _fetched_tips(self) -> dict[str, str]:
        """Return the tips from the last fetch, by branch."""
        with open(
            os.path.join(self._folder.path, "FETCH_HEAD"),
            encoding="utf-8",
            errors="surrogateescape",
        ) as file:
            lines = list(file)
        default_tips = [found[1] for line in lines if (found := _FETCHED_HEAD.match(line))]
        tips = {found[2]: found[1] for line in lines if (found := _FETCHED.match(line))}
        return {**tips, "HEAD": default_tips[0]} if default_tips else tips

    def fetch_head(self, branch: str) -> str:
        """Fetch a head branch's tip, with its trees, and return it, or "" if the branch does not
        exist.
        """
        return self._fetch_branch(branch, 1, "head", "the tip of the head branch", optional=True)

    def fetch_commits(self, depth: int, branch: str) -> str:
        """Fetch the branch's tip, with the trees of some commits, and return it.

        Raises `SourceError` if there is no such branch.
        """
        return self._fetch_branch(branch, depth, "history", "earlier commits")

    def _fetch_branch(
        self,
        branch: str,
        depth: int,
        ref: str,
        why: str,
        meanwhile: Callable[[], object] | None = None,
        more: Sequence[str] = (),
        *,
        optional: bool = False,
    ) -> str:
        """Fetch a branch's tip, with the finest filter that the server allows, and return it.

        `more`: more refspecs to fetch. If the branch does not exist, return "" if it is `optional`,
        else raise `SourceError`.
        """
        self._folder.create()
        name = branch if branch == "HEAD" else f"refs/heads/{branch}"
        refspec = f"+{name}:refs/image-update/{ref}"
        while True:
            depth = depth if self._shallow else 0
            try:
                messages = self._fetch(why, [refspec, *more], depth, meanwhile=meanwhile)
            except GitFailed as error:
                if f"couldn't find remote ref {name}" in error.err:
                    if optional:
                        return ""
                    raise self._no_branch(branch) from error
                # HEAD does not point to an existing branch
                if _DEFAULT in more and "couldn't find remote ref HEAD" in error.err:
                    more = [text for text in more if text != _DEFAULT]
                    continue
                if not self._switch_to_coarser(error):
                    raise self._failure(error, self.subject(branch)) from error
                continue
            if NO_FILTER in messages:
                self._filter = _WHOLE
            with open(os.path.join(self._folder.path, "FETCH_HEAD"), encoding="utf-8") as file:
                tip = file.readline().partition("\t")[0]
            if ref == "base" and depth:
                # for later runs: everything below the tip is present, without history
                self._folder.kept = Kept(tip, self._filter == _WHOLE)
            return tip

    def fetch_files(self, oids: Sequence[str], branch: str) -> None:
        """Fetch the blobs that are missing."""
        absent = self.objects.absent(oids) if oids and self._filter != _WHOLE else []
        if not absent:
            return
        self._filter = _PARTIAL
        try:
            self._fetch(counted(len(absent), "file"), oids=absent)
        except GitFailed as error:
            if any(words in error.err for words in _FILTER_REFUSED):
                self._filter = _WHOLE
                self.close()
                raise StartAgain from error
            raise self._failure(error, self.subject(branch)) from error

    def push(self, pushed: Pushed, options: Sequence[str] = (), more: Pushed | None = None) -> None:
        """Push a commit to its branch, together with `more`: either both land or neither does.

        `options` are push options; if the server does not support them, push without them. Raises
        `RepositoryError`, `NotAtomicError`, and `Outpaced`, including if the branch already has
        this commit. After an `UnreachableError`, it is unknown whether the push landed.
        """
        every = (pushed, more) if more else (pushed,)
        push_options = [f"--push-option={option}" for option in options if self.takes_options]
        run = partial(
            self._git.run,
            git_dir=self._folder.complete(),
            clock=self.clock,
        )
        try:
            status_lines = self._sent(run, every, push_options).splitlines()
            if any(line.startswith(b"=") for line in status_lines):  # "=": up to date
                raise Outpaced(f"{pushed.head}: another run has just created the same commit")
        except GitFailed as error:
            if more and _NOT_ATOMIC in error.err:
                self.atomic = False
                raise NotAtomicError from error
            if self._folder.cache is not None and "pack-objects" in error.err:
                self._folder.cache.drop()
            elif pushed.replaces and _lacks_objects(error.err):
                raise Outpaced(
                    f"{self.subject(pushed.head)}: its base has moved in the meantime"
                ) from error
            if push_options and _NO_OPTIONS in error.err:
                self.takes_options = False
                self._git.log(
                    f"warning: {self.repo}: the server does not support push options, so they are"
                    " not sent"
                )
                return self.push(pushed, (), more)
            raise self._refusal(error, every) from error

    def _sent(
        self,
        run: Callable[..., Ran],
        every: Sequence[Pushed],
        options: Sequence[str],
    ) -> bytes:
        """Send the commits in one push, and return git's status lines. Raises `GitFailed`."""
        argv = (
            "push",
            "--porcelain",
            "--no-verify",
            *(["--atomic"] if len(every) > 1 else []),
            *options,
            *(item.lease for item in every),
            REMOTE,
            *(item.refspec for item in every),
        )
        with self._logged(f"push to {' and '.join(item.head for item in every)}"):
            try:
                return self._logged_in(partial(run, *argv)).out
            except GitFailed as error:
                if not (every[0].replaces and _lacks_objects(error.err)):
                    raise
                # A new branch whose base has moved since we fetched it: the server does not offer a
                # commit that we have, so git wants to send history that we never had. Git can
                # negotiate common commits with the server (protocol v2), but that is one more
                # request, so only do it when needed.
                return run("-c", "push.negotiate=true", *argv, env=self._env).out

    def _refusal(self, error: GitFailed, every: Sequence[Pushed]) -> Exception:
        """Return the error for a rejected push.

        In an atomic push, every branch is rejected because of a single branch.
        """
        lines = error.out.decode("utf-8", "replace").splitlines()
        rejected = [line for line in lines if line.startswith("!")]
        causes = [line for line in rejected if "atomic" not in line]
        status = next(iter(causes or rejected), "")
        guilty = next((pushed for pushed in every[1:] if f":{pushed.ref}\t" in status), every[0])
        subject = self.subject(guilty.head)
        return git_errors.refusal(status, error.err, subject, forced=guilty.replaces)

    def contains(self, branch: str, commit: str) -> bool:
        """Return whether the branch is at this commit, or recently was."""
        tip = self.tip(branch)
        if not tip:
            return False
        return tip == commit or commit in (oid for oid, _, _ in self._recent_commits(branch))

    def child(self, branch: str, parent: str, tree: str) -> str:
        """Return the branch's recent commit with this parent and tree, or "" if there is none."""
        if self.tip(branch) in ("", parent):
            return ""
        for commit, commits_tree, parents in self._recent_commits(branch):
            if commits_tree == tree and parents == [parent]:
                return commit
        return ""

    def tip(self, branch: str) -> str:
        """Return the commit that a branch is at, or "" if the branch does not exist."""
        return next((oid for oid, _ in self.refs(f"refs/heads/{branch}")), "")

    def _recent_commits(self, branch: str) -> list[tuple[str, str, list[str]]]:
        """Return (id, tree, parents) of a branch's last commits."""
        refspec = f"+refs/heads/{branch}:refs/image-update/look"
        try:
            self._fetch("whether the commit arrived", [refspec], _LOOK_BACK)
            lines = (
                self.local("log", "--format=%H %T %P", "refs/image-update/look")
                .decode()
                .splitlines()
            )
        except GitFailed as error:
            raise self._failure(error, self.subject(branch)) from error
        return [(oid, tree, parents) for oid, tree, *parents in map(str.split, lines)]

    def ready(self) -> str:
        """Return the folder of the fetched objects, for a command that does not contact the
        server.
        """
        return self._folder.complete()

    def local(self, *argv: str, stdin: bytes = b"") -> bytes:
        """Run a command on the fetched objects, without contacting the server. Raises
        `GitFailed`.
        """
        return self._git.run(
            *argv,
            git_dir=self._folder.complete(),
            stdin=stdin,
            clock=self.clock,
        ).out

    def _ask(self, run: Callable[..., Ran]) -> Ran:
        """Run a command that does not change anything on the server. Retry a few times if the
        server is unreachable or breaks off.
        """

        def ask() -> Ran:
            while True:
                try:
                    return self._logged_in(run)
                except GitFailed as error:
                    if not self._git.redirected(
                        self._url,
                        error,
                        REMOTE,
                        self._folder.path,
                        self.clock,
                    ):
                        raise
                    self._log_in()

        def may_pass(error: GitFailed) -> bool:
            # A retry would not help: the server stalled, or it would send too much data again.
            why = "" if isinstance(error, GitEnded) else git_errors.broke_off(error.err)
            if why:
                self._git.log(f"warning: {self.repo}: {why}; trying again")
            return bool(why)

        return again(ask, _PAUSES, GitFailed, may_pass, time.monotonic() + self._git.patience)

    def _logged_in(self, run: Callable[..., Ran]) -> Ran:
        """Run a command, and run it again if the server should have asked for the credentials
        first.
        """
        env = self._env
        try:
            return run(env=env)
        except GitFailed as error:
            # otherwise a concurrent command has already noticed this
            if self._env is env:
                if not self._git.ask_first(self._url, error):
                    raise
                self._log_in()
            return run(env=self._env)

    @contextmanager
    def _logged(self, why: str) -> Iterator[None]:
        """Log a transfer's size and time.

        Objects committed since the last transfer count as sent by a push.
        """
        began = time.monotonic()
        yield
        size = sum(
            file.stat().st_size for file in Path(self._folder.path, "objects/pack").glob("*.pack")
        )
        seconds = time.monotonic() - began
        self._git.log(f"{self.repo}: {why}: {size - self._size} bytes of objects, {seconds:.2f} s")
        self._size = size

    def _fetch(
        self,
        why: str,
        refs: Sequence[str] = (),
        depth: int = 0,
        oids: Sequence[str] = (),
        meanwhile: Callable[[], object] | None = None,
    ) -> str:
        """Fetch, and return git's output.

        `oids` are fetched the way git itself fetches missing objects in a partial clone.
        """
        folder = self._folder.complete() if self._filter == _WHOLE else self._folder.partial()
        filters = [f"--filter={self._filter}"] if self._filter else []
        # Later fetches get only new objects.
        may_be_too_large = self._filter == _SMALL and not self._size
        options = ["--progress"] if may_be_too_large else []
        if depth:
            options.append(f"--depth={depth}")
        if oids:
            options += ["--no-write-fetch-head", "--stdin"]
        # With `haves`, the server would leave out everything that the tip refers to.
        negotiation = ("-c", f"fetch.negotiationAlgorithm={'noop' if oids else 'default'}")
        argv = (*negotiation, "fetch", "--quiet", "--no-tags", *filters, *options, REMOTE, *refs)
        run = partial(
            self._git.run,
            *argv,
            git_dir=folder,
            clock=self.clock,
            stdin="".join(f"{oid}\n" for oid in oids),
        )
        with self._logged(f"fetch {why}"):
            return self._ask(
                partial(
                    run, meanwhile=meanwhile, stop=self._too_large if may_be_too_large else None
                )
            ).err

    def _too_large(self, messages: str) -> str:
        """Return the reason to stop the transfer: without its files, the repository would arrive
        sooner.
        """
        if NO_FILTER in messages:
            return ""
        has_many_objects = any(int(count) > _FEW for count in _COUNTED.findall(messages))
        return _LARGE if has_many_objects or weight(self._folder.path) > _LIGHT else ""

    def _switch_to_coarser(self, error: GitFailed) -> bool:
        """Switch to a coarser request that this server may support. Return whether there is one.

        Raises `StartAgain` if the cache of earlier runs may be corrupt.
        """
        messages = error.err
        if isinstance(error, GitEnded):
            is_large = messages.endswith(_LARGE)
            if is_large:
                self._filter = _PARTIAL
                # the stopped fetch may have left a lock behind
                self._restart(self._folder.object_format)
            return is_large
        if any(words in messages for words in _BROKEN):
            self.without_cache()
        if _OTHER_FORMAT in messages and self._folder.object_format == "sha1":
            self._restart("sha256")
        elif _NO_SHALLOW in messages and self._shallow:
            self._shallow = False
            self._filter = _WHOLE
        elif self._filter != _WHOLE and any(words in messages for words in _FILTER_REFUSED):
            self._filter = _PARTIAL if self._filter == _SMALL else _WHOLE
        else:
            return False
        return True

    def _no_branch(self, branch: str) -> TaskError:
        """Return the error for a missing branch: it may be a tag, or the repository may be
        empty.
        """
        subject = self.subject(branch)
        tag = f"refs/tags/{branch}"
        missing = git_errors.failure(
            f"fatal: couldn't find remote ref refs/heads/{branch}",
            subject,
        )
        try:
            existing = {ref for _, ref in self.refs(tag, "HEAD")}
        except TaskError:
            return missing
        if not existing:
            self._refuse_page(subject)
        if tag in existing:
            message = (
                f"the revision {blanked(branch)!r} is a tag, but updates can only be written to a"
                " branch"
            )
            return SourceError(message, hint=TO_WRITE, subject=subject)
        empty = "the repository may be empty: push a first commit, or specify another branch"
        return SourceError(
            missing.message,
            hint=missing.hint if "HEAD" in existing else empty,
            subject=subject,
        )

    def _refuse_page(self, subject: str) -> None:
        """Raise `RepositoryError` if a seemingly empty repository is a web page.

        Git reads a page of one line as the refs of an empty repository.
        """
        if split(self._git.url(self._url)).scheme.startswith("http"):
            with suppress(GitFailed):
                if self._git.is_web_page(REMOTE, self._folder.path, self._env, self.clock):
                    raise git_errors.failure(git_errors.PAGE, subject)


def _lacks_objects(messages: str) -> bool:
    """Return whether our git could not create the pack, because it wanted to send objects that were
    never fetched.
    """
    lines_from_git = [line for line in messages.splitlines() if not line.startswith("remote:")]
    return any(words in line for line in lines_from_git for words in _NEVER_FETCHED)


T = TypeVar("T")
# The server rejects requests for single objects; objects are missing from the cache; without the
# cache, the server rejects the request again.
_MOST = 3


def restarted(
    remote: Remote,
    work: Callable[[], T],
    forget: Callable[[], None] = lambda: None,
) -> T:
    """Return the result of `work`, which is called again each time the remote has to start over.

    `forget` is called before that, because the fetched objects are gone.
    """
    for _ in range(_MOST):
        try:
            try:
                return work()
            except MissingObjectError:
                remote.without_cache()
                raise
        except StartAgain:
            forget()
    return work()
