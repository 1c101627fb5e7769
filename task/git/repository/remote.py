"""Reads refs, tips, and objects from a Git server, and pushes to it. Every failure raises one of
our errors.
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
from task.git.repository.bare_folder import REMOTE, BareFolder, Cache, CachedTip, CheckoutObjects
from task.git.repository.objects import MissingObjectError, Objects
from task.processes import Clock, weight
from task.retry import again
from task.text import blanked, counted
from task.urls import split, without_login

# A small repository is fetched with its files. This saves the separate request for the required
# files, which takes three round trips. For a large repository, the tip is fetched with its trees
# but without files. Every major Git host supports this, but many reject tree filters (GitHub:
# `uploadpackfilter.tree.maxDepth=0`). Old servers, and those with the dumb protocol, do not support
# filters, and send everything.
_SMALL = "blob:limit=64k"
_PARTIAL = "blob:none"
_WHOLE = ""
# The limits of a small repository: its objects (a server reports their number before it sends
# them), and the bytes received, which are wasted if the repository turns out to be large.
_MOST_OBJECTS = 40_000
_MOST_BYTES = 16_000_000
_OBJECTS = re.compile("^remote: (?:Enumerating|Counting) objects: +([0-9]{1,12})", re.MULTILINE)
_IS_LARGE = "the repository is large"
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
_PAUSES = (0.5, 2.0)  # seconds before retrying an interrupted request
_MEMORIES = "+refs/heads/image-update-memory/*:refs/image-update/memory/*"
_DEFAULT = "+HEAD:refs/image-update/default"
_FETCHED = re.compile(r"([0-9a-f]+)\t[^\t]*\tbranch '([^']+)' of ")
_FETCHED_HEAD = re.compile(r"([0-9a-f]+)\t[^\t]*\t(?!branch '|tag ')")
_LOOK_BACK = 100  # how many recent commits to read, because others may have pushed on top of ours


class StartAgain(Exception):
    """Raised to start over, because the server cannot send single objects, or the cache is corrupt.

    The fetched objects have been removed, so the tip has to be fetched again.
    """


@dataclass(frozen=True)
class Pushed:
    """A branch to push: its new commit ("" to delete the branch), and its current commit ("" if the
    branch does not exist).
    """

    head: str
    commit: str
    old_commit: str
    replaces: bool = True  # the new commit need not contain the branch's current commit

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
        """The git option that makes a push fail if the branch is at a different commit.

        Without this option, git also pushes to a branch that was deleted or reset in the meantime,
        which would restore the removed commits. If the new commit is on top of `old_commit`, the
        option does not force anything.
        """
        return f"--force-with-lease={self.ref}:{self.old_commit}"


class Remote:
    """A repository on a server, and the temporary bare repository into which it is fetched."""

    def __init__(
        self,
        git: Git,
        repo: str,
        cache_dir: str = "",
        clock: Clock | None = None,
        *,
        files: bool = False,
    ) -> None:
        """`cache_dir`: the folder with objects from earlier runs, or "". `clock`: the time left for
        the requests. `files`: fetch the files of a small repository together with its tip.
        """
        self.repo = without_login(repo)
        self.takes_options = True  # set to False if the server rejects it
        self.atomic = True  # set to False if the server rejects it
        self.clock = clock or Clock(git.bounds.seconds, self.repo)
        self._git = git
        self._url = repo
        url = git.url(repo)
        self._log_in()
        self._folder = BareFolder(git, url)
        self._filter = _SMALL if files else _PARTIAL  # set to a coarser filter if needed
        if cache_dir:
            self._set_up_cache(cache_dir, url)
        self._shallow = True  # whether to fetch only some commits; False if the server cannot
        self._size = 0  # total bytes of the packs in the folder
        self.objects = Objects(git, self._folder)

    def _log_in(self) -> None:
        self._env = self._git.login(self._url, at_once=True)

    def _set_up_cache(self, cache_dir: str, url: str) -> None:
        """Use the objects that earlier runs cached. If the cache cannot be opened, log a warning,
        and work without it.
        """
        cache = Cache(cache_dir, url)
        problem = cache.open("sha1")
        if problem:
            self._git.log(f"warning: {problem}")
            return
        self._folder.cache = cache
        self._filter = _WHOLE if cache.last_tip().whole else _PARTIAL

    def read_checkout(self, checkout_objects: CheckoutObjects) -> None:
        """Also read the objects of a checkout on this machine. If the checkout is not shallow, also
        fetch complete history.
        """
        self._folder.checkout_objects = checkout_objects
        self._folder.object_format = checkout_objects.object_format
        self._shallow = bool(checkout_objects.shallow)
        self._filter = _PARTIAL

    @property
    def shallow(self) -> bool:
        """Whether part of the history may be missing."""
        path = Path(self._folder.path, "shallow")
        return path.exists() and path.stat().st_size > 0

    def fetch_commit(self, name: str) -> str:
        """Fetch the commit that `name` (a full ref or a commit id) refers to, with its trees, and
        return the commit's id.

        Return "" if the server does not have the commit, or cannot send single commits.
        """
        self._folder.create()
        refspec = f"+{name}:refs/image-update/compared"
        while True:
            depth = 1 if self._shallow else 0
            try:
                self._fetch("the commit to compare", [refspec], depth)
            except GitFailed as error:
                if _mentions(error.err, _NO_COMMIT):
                    return ""
                has_switched = self._switch_to_coarser(error)
                if not has_switched:
                    raise self._failure(error, self.repo) from error
                continue
            # `^{commit}` resolves a tag to its commit
            return self.local("rev-parse", "refs/image-update/compared^{commit}").decode().strip()

    def deepen(self, commits: Sequence[str], depth: int) -> None:
        """Fetch up to `depth` commits of history for each of these commits, as far as the server
        has that history. If the server cannot send the history of single commits, log this.
        """
        refspecs = [f"+{oid}:refs/image-update/deep/{index}" for index, oid in enumerate(commits)]
        if self._filter != _WHOLE:
            self._filter = _PARTIAL  # the files of old commits are not needed
        try:
            self._fetch("the history of both sides", refspecs, depth)
        except GitFailed as error:
            if not _mentions(error.err, _NO_COMMIT):
                raise self._failure(error, self.repo) from error
            self._git.log(f"{self.repo}: the server cannot send the history of a single commit")

    def without_cache(self) -> None:
        """Handle a local object that cannot be read.

        If objects cached by earlier runs are in use, the cache may be the cause, so remove the
        cache and the fetched objects, and raise `StartAgain`. Without a cache, do nothing.
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
        """Stop the process that reads objects, and remove the repository."""
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
        """Return (id, ref) for each of these full ref names that exists on the server.

        With `symbolic`, also return an entry for what HEAD points to: (`ref: refs/heads/main`,
        `HEAD`).
        """
        options = ["--symref"] if symbolic else []
        listed_refs = self._list_refs(" ".join(names), *options, REMOTE, *names)
        # ls-remote matches its patterns against the end of each name
        return [(value, ref) for value, ref in listed_refs if ref in names]

    def _list_refs(self, description: str, *argv: str) -> Iterator[tuple[str, str]]:
        """Run `git ls-remote` with these arguments, and yield (id or `ref: name`, ref) for each
        line of its output, one at a time, because a server may send a million lines.

        `description` is used in the log.
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
            with self._log_transfer(f"list {description}"):
                out = self._run_with_retries(run).out
        except GitFailed as error:
            raise self._failure(error, self.repo) from error
        for line in BytesIO(out):
            value, _, ref = line.decode("utf-8", "replace").rstrip("\n").partition("\t")
            yield value, ref

    def default_branch(self) -> tuple[str, str]:
        """Return the branch that the remote's HEAD points to, and its tip.

        The tip is "" if the server does not send it. Raises `SourceError` if there is no such
        branch.
        """
        names = []  # of the branch
        tips = []
        listed_refs = self.refs("HEAD", symbolic=True)
        for value, _ in listed_refs:
            if value.startswith("ref:"):
                names.append(value.removeprefix("ref: ").removeprefix("refs/heads/"))
            else:
                tips.append(value)
        if names:
            tip = tips[0] if tips else ""
            return names[0], tip
        if listed_refs:
            raise SourceError(
                "HEAD does not point to a branch",
                hint="specify a branch",
                subject=self.repo,
            )
        self._refuse_page(self.repo)  # raises an error if this is actually a web page
        hint = "push a first commit, or specify a branch that exists"
        message = (
            "the repository has no default branch: it is empty, or HEAD points to a branch that"
            " does not exist"
        )
        raise SourceError(message, hint=hint, subject=self.repo)

    def fetch_default(self) -> tuple[str, Mapping[str, str]]:
        """Fetch the tips of the default branch and of the memory branches. Return the default
        branch's name, and all the tips, by branch.

        This takes two requests: one for the default branch's name, and one for the tips. Over HTTP,
        both are sent at the same time. Over SSH, they share a connection, so one waits for the
        other.
        """
        if not split(self._git.url(self._url)).scheme.startswith("http"):
            branch, _ = self.default_branch()
            return branch, self.fetch_tips(branch)

        list_default = cache(self.default_branch)  # called during the fetch, and again below
        tip = self._fetch_branch(
            "HEAD",
            depth=1,
            ref="base",
            purpose="the tip of the default branch",
            meanwhile=list_default,
            more=[_MEMORIES],
            optional=True,  # without a HEAD, `list_default` raises the error
        )
        tips = self._fetched_tips()
        branch, listed_tip = list_default()
        if tip != listed_tip:  # the branch or HEAD changed between the responses
            return branch, self.fetch_tips(branch)
        return branch, {**tips, branch: tip}

    def fetch_tip(self, branch: str) -> str:
        """Fetch the branch's tip, with its trees, and return its commit id.

        Raises `SourceError` if there is no such branch.
        """
        return self._fetch_branch(branch, depth=1, ref="base", purpose="the tip of the branch")

    def fetch_tips(
        self,
        branch: str,
        heads: Collection[str] = (),
        meanwhile: Callable[[], object] | None = None,
        *,
        default: bool = False,
    ) -> Mapping[str, str]:
        """Fetch the tips of a branch, of all memory branches (which store holds), and of those
        `heads` (the source branches of pull requests) that exist. Return their commit ids by
        branch.

        With `default`, also fetch the tip of the default branch, if there is one. Its key is
        `HEAD`. `meanwhile` is called during the fetch.
        """
        more = [_MEMORIES]  # refspecs in addition to the branch itself
        # A fetch fails if a requested branch is missing, but a pattern without a match is not an
        # error. A pattern also matches branches with longer names. The `x` is needed because `*`
        # may match the empty string, but a ref needs a name.
        for index, head in enumerate(dict.fromkeys(heads)):
            more.append(f"+refs/heads/{head}*:refs/image-update/heads/{index}/x*")
        if default:
            more.append(_DEFAULT)
        purpose = (
            "the tips of the branch and its head branches" if heads else "the tip of the branch"
        )
        tip = self._fetch_branch(
            branch, depth=1, ref="base", purpose=purpose, meanwhile=meanwhile, more=more
        )
        return {**self._fetched_tips(), branch: tip}

    def _fetched_tips(self) -> dict[str, str]:
        """Return the tips from the last fetch, by branch, as listed in git's file FETCH_HEAD. The
        key of the default branch's tip is `HEAD`.
        """
        tips: dict[str, str] = {}
        default_tip = ""
        path = os.path.join(self._folder.path, "FETCH_HEAD")
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                branch_match = _FETCHED.match(line)
                if branch_match:
                    tip, branch = branch_match.groups()
                    tips[branch] = tip
                default_match = _FETCHED_HEAD.match(line)
                if default_match and not default_tip:
                    default_tip = default_match[1]
        if default_tip:
            tips["HEAD"] = default_tip
        return tips

    def fetch_head(self, branch: str) -> str:
        """Fetch the tip of a head branch (the source branch of a pull request), with the tip's
        trees, and return its commit id. Return "" if the branch does not exist.
        """
        return self._fetch_branch(
            branch, depth=1, ref="head", purpose="the tip of the head branch", optional=True
        )

    def fetch_commits(self, depth: int, branch: str) -> str:
        """Fetch the branch's last `depth` commits, with their trees, and return the tip's id.

        Raises `SourceError` if there is no such branch.
        """
        return self._fetch_branch(branch, depth, ref="history", purpose="earlier commits")

    def _fetch_branch(
        self,
        branch: str,
        depth: int,
        ref: str,
        purpose: str,
        meanwhile: Callable[[], object] | None = None,
        more: Sequence[str] = (),
        *,
        optional: bool = False,
    ) -> str:
        """Fetch a branch's last `depth` commits, with the finest filter that the server allows, and
        return the tip's id.

        The tip is stored as `refs/image-update/<ref>`. `purpose` is used in the log, `meanwhile` is
        called during the fetch, and `more` contains more refspecs to fetch. If the branch does not
        exist, return "" if the branch is `optional`, else raise `SourceError`.
        """
        self._folder.create()
        name = branch if branch == "HEAD" else f"refs/heads/{branch}"
        refspec = f"+{name}:refs/image-update/{ref}"
        messages = None
        while messages is None:  # until one kind of request succeeds
            if not self._shallow:
                depth = 0  # the whole history
            try:
                messages = self._fetch(purpose, [refspec, *more], depth, meanwhile=meanwhile)
            except GitFailed as error:
                has_no_branch = f"couldn't find remote ref {name}" in error.err
                if has_no_branch:
                    if optional:
                        return ""
                    raise self._missing_branch_error(branch) from error
                lacks_default = _DEFAULT in more and "couldn't find remote ref HEAD" in error.err
                if lacks_default:  # HEAD does not point to an existing branch
                    more = [text for text in more if text != _DEFAULT]
                elif not self._switch_to_coarser(error):
                    raise self._failure(error, self.subject(branch)) from error

        if NO_FILTER in messages:  # the server ignored the filter and sent all files
            self._filter = _WHOLE
        with open(os.path.join(self._folder.path, "FETCH_HEAD"), encoding="utf-8") as file:
            tip, _, _ = file.readline().partition("\t")
        if ref == "base" and depth:
            # to cache for later runs: everything below the tip is present, but not the tip's
            # history
            self._folder.tip_to_cache = CachedTip(tip, self._filter == _WHOLE)
        return tip

    def fetch_files(self, oids: Sequence[str], branch: str) -> None:
        """Fetch these blobs, except those that are already present. `branch` is for error messages.

        Raises `StartAgain` if the server cannot send single files. The next fetch then gets
        everything.
        """
        absent = self.objects.absent(oids) if oids and self._filter != _WHOLE else []
        if not absent:
            return
        self._filter = _PARTIAL
        try:
            self._fetch(counted(len(absent), "file"), oids=absent)
        except GitFailed as error:
            if _mentions(error.err, _FILTER_REFUSED):
                self._filter = _WHOLE
                self.close()
                raise StartAgain from error
            raise self._failure(error, self.subject(branch)) from error

    def push(
        self,
        pushed: Pushed,
        options: Sequence[str] = (),
        also_pushed: Pushed | None = None,
    ) -> None:
        """Push a commit to its branch, atomically together with `also_pushed`, if given.

        `options` are push options; if the server does not support them, push without them. Raises
        `Outpaced` if the branch has moved, or is already at this commit, `NotAtomicError` if the
        server cannot push two branches together, and `RepositoryError`. After an
        `UnreachableError`, it is unknown whether the push arrived.
        """
        pushes = (pushed, also_pushed) if also_pushed else (pushed,)
        push_options = []
        if self.takes_options:
            push_options = [f"--push-option={option}" for option in options]
        run = partial(
            self._git.run,
            git_dir=self._folder.complete(),
            clock=self.clock,
        )
        try:
            status_lines = self._send_push(run, pushes, push_options).splitlines()
            # "=" marks a branch that already was at the pushed commit
            is_up_to_date = any(line.startswith(b"=") for line in status_lines)
            if is_up_to_date:
                raise Outpaced(f"{pushed.head}: another run has just created the same commit")
        except GitFailed as error:
            if also_pushed and _NOT_ATOMIC in error.err:
                self.atomic = False
                raise NotAtomicError from error
            if self._folder.cache is not None and "pack-objects" in error.err:
                # Our own git could not read an object that it has to send, so the cache may be
                # corrupt.
                self._folder.cache.drop()
            elif pushed.replaces and _lacks_objects(error.err):
                raise Outpaced(
                    f"{self.subject(pushed.head)}: its base has moved in the meantime"
                ) from error
            if push_options and _NO_OPTIONS in error.err:
                self.takes_options = False  # also for later pushes
                self._git.log(
                    f"warning: {self.repo}: the server does not support push options, so they are"
                    " not sent"
                )
                return self.push(pushed, (), also_pushed)
            raise self._rejection_error(error, pushes) from error

    def _send_push(
        self,
        run: Callable[..., Ran],
        pushes: Sequence[Pushed],
        options: Sequence[str],
    ) -> bytes:
        """Send the commits in one push, and return git's status lines, one for each branch.

        `run` runs git in the repository. Raises `GitFailed`.
        """
        argv = ["push", "--porcelain", "--no-verify"]
        if len(pushes) > 1:
            argv.append("--atomic")
        argv += options
        argv += [pushed.lease for pushed in pushes]
        argv.append(REMOTE)
        argv += [pushed.refspec for pushed in pushes]

        heads = " and ".join(pushed.head for pushed in pushes)
        with self._log_transfer(f"push to {heads}"):
            try:
                return self._run_logged_in(partial(run, *argv)).out
            except GitFailed as error:
                base_may_have_moved = pushes[0].replaces and _lacks_objects(error.err)
                if not base_may_have_moved:
                    raise
                # This is a new branch whose base has moved since we fetched it. The server does not
                # advertise any commit that we have, so git tries to send history that was never
                # fetched. Git can negotiate common commits with the server (protocol v2), but this
                # takes one more request, so do it only when needed.
                return run("-c", "push.negotiate=true", *argv, env=self._env).out

    def _rejection_error(self, error: GitFailed, pushes: Sequence[Pushed]) -> Exception:
        """Return the error for a rejected push. The error names the branch that caused the
        rejection.

        In an atomic push, all branches are rejected because of a single one.
        """
        lines = error.out.decode("utf-8", "replace").splitlines()
        rejections = [line for line in lines if line.startswith("!")]
        # skip branches that were rejected only because of another one
        causes = [line for line in rejections if "atomic" not in line]
        status = ""
        if rejections:
            status = causes[0] if causes else rejections[0]

        # the line is "!", "from:to", and the reason, with tabs in between
        rejected = pushes[0]
        for pushed in pushes[1:]:
            if f":{pushed.ref}\t" in status:
                rejected = pushed
                break
        subject = self.subject(rejected.head)
        return git_errors.refusal(status, error.err, subject, forced=rejected.replaces)

    def contains(self, branch: str, commit: str) -> bool:
        """Return whether this commit is a branch's tip, or one of the branch's recent commits. The
        commit "" is that of a branch that does not exist.
        """
        tip = self.tip(branch)
        if tip == commit:
            return True
        return tip != "" and any(oid == commit for oid, _, _ in self._recent_commits(branch))

    def child(self, branch: str, parent: str, tree: str) -> str:
        """Return the branch's recent commit with this parent and tree, or "" if there is none. This
        finds a commit that an API created, but whose id is unknown because the response was lost.
        """
        if self.tip(branch) in ("", parent):
            return ""
        for commit, tree_of_commit, parents in self._recent_commits(branch):
            if tree_of_commit == tree and parents == [parent]:
                return commit
        return ""

    def tip(self, branch: str) -> str:
        """Return the commit that a branch is at, or "" if the branch does not exist."""
        refs = self.refs(f"refs/heads/{branch}")
        if not refs:
            return ""
        oid, _ = refs[0]
        return oid

    def _recent_commits(self, branch: str) -> list[tuple[str, str, list[str]]]:
        """Fetch a branch's last commits, and return (id, tree, parents) of each."""
        refspec = f"+refs/heads/{branch}:refs/image-update/look"
        try:
            self._fetch("whether the commit arrived", [refspec], _LOOK_BACK)
            log = self.local("log", "--format=%H %T %P", "refs/image-update/look").decode()
        except GitFailed as error:
            raise self._failure(error, self.subject(branch)) from error
        commits = []
        for line in log.splitlines():
            oid, tree, *parents = line.split()
            commits.append((oid, tree, parents))
        return commits

    def ready(self) -> str:
        """Return the folder that contains the fetched objects, for a command that does not contact
        the server.
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

    def _run_with_retries(self, run: Callable[..., Ran]) -> Ran:
        """Run a git command that does not change anything on the server, and return its output.
        `run` starts it, given `env`.

        Follow redirects, and retry a few times if the server is unreachable or the connection
        breaks.
        """

        def run_at_new_urls() -> Ran:
            """Run the command, and repeat it for each URL to which the server redirects."""
            while True:
                try:
                    return self._run_logged_in(run)
                except GitFailed as error:
                    is_redirected = self._git.redirected(
                        self._url,
                        error,
                        REMOTE,
                        self._folder.path,
                        self.clock,
                    )
                    if not is_redirected:
                        raise
                    self._log_in()  # for the new URL

        def is_worth_a_retry(error: GitFailed) -> bool:
            """Return whether the server or the connection failed in a way that a retry may fix. If
            so, log a warning.
            """
            if isinstance(error, GitEnded):
                # The server stalled, or would send too much data again.
                return False
            problem = git_errors.broke_off(error.err)
            if problem:
                self._git.log(f"warning: {self.repo}: {problem}; trying again")
            return bool(problem)

        deadline = time.monotonic() + self._git.patience
        return again(run_at_new_urls, _PAUSES, GitFailed, is_worth_a_retry, deadline)

    def _run_logged_in(self, run: Callable[..., Ran]) -> Ran:
        """Run a git command, and return its output. `run` starts it, given `env`.

        Run it again if it failed because it sent credentials before the server asked for them.
        """
        env = self._env
        try:
            return run(env=env)
        except GitFailed as error:
            # If the environment has changed, a concurrent command has already noticed this problem.
            is_first_to_notice = self._env is env
            if is_first_to_notice:
                if not self._git.sent_too_early(self._url, error):
                    raise
                self._log_in()
            return run(env=self._env)

    @contextmanager
    def _log_transfer(self, purpose: str) -> Iterator[None]:
        """Log the size and duration of the transfer that runs in the block. `purpose` is part of
        the log line.

        The size is that of the packs created since the last transfer. For a push, these packs
        contain the objects that we have committed.
        """
        began = time.monotonic()
        yield
        packs = Path(self._folder.path, "objects/pack").glob("*.pack")
        size = sum(pack.stat().st_size for pack in packs)
        seconds = time.monotonic() - began
        self._git.log(
            f"{self.repo}: {purpose}: {size - self._size} bytes of objects, {seconds:.2f} s"
        )
        self._size = size

    def _fetch(
        self,
        purpose: str,
        refs: Sequence[str] = (),
        depth: int = 0,
        oids: Sequence[str] = (),
        meanwhile: Callable[[], object] | None = None,
    ) -> str:
        """Fetch the refspecs `refs`, or the objects `oids`, and return git's messages.

        `depth` is the number of commits to fetch for each ref; 0 means all. The `oids` are fetched
        in the same way as git itself fetches missing objects in a partial clone. `purpose` is used
        in the log, and `meanwhile` is called during the fetch.
        """
        folder = self._folder.complete() if self._filter == _WHOLE else self._folder.partial()
        # Only the first fetch may be too large: later fetches get only new objects.
        may_be_too_large = self._filter == _SMALL and self._size == 0

        # If git told the server which commits it has, the server would leave out all of their
        # objects, including the missing objects `oids`.
        negotiation = "noop" if oids else "default"
        argv = ["-c", f"fetch.negotiationAlgorithm={negotiation}", "fetch", "--quiet", "--no-tags"]
        if self._filter:
            argv.append(f"--filter={self._filter}")
        if may_be_too_large:
            argv.append("--progress")
        if depth:
            argv.append(f"--depth={depth}")
        if oids:
            argv += ["--no-write-fetch-head", "--stdin"]
        argv += [REMOTE, *refs]

        run = partial(
            self._git.run,
            *argv,
            git_dir=folder,
            clock=self.clock,
            stdin="".join(f"{oid}\n" for oid in oids),
            meanwhile=meanwhile,
            stop=self._too_large if may_be_too_large else None,
        )
        with self._log_transfer(f"fetch {purpose}"):
            return self._run_with_retries(run).err

    def _too_large(self, messages: str) -> str:
        """Return the reason to stop a transfer if the repository turns out to be large, else "".

        A large repository is fetched faster without its files. `messages` contains git's messages
        so far.
        """
        if NO_FILTER in messages:  # the server would send the files anyway
            return ""
        counts = [int(count) for count in _OBJECTS.findall(messages)]
        has_many_objects = any(count > _MOST_OBJECTS for count in counts)
        if has_many_objects or weight(self._folder.path) > _MOST_BYTES:
            return _IS_LARGE
        return ""

    def _switch_to_coarser(self, error: GitFailed) -> bool:
        """After a failed fetch, switch to a coarser request (a coarser filter, complete history, or
        the other object format) if the error suggests that this will help. Return whether the
        request was changed.

        Raises `StartAgain` if the cache of earlier runs may be corrupt.
        """
        messages = error.err
        if isinstance(error, GitEnded):
            if not messages.endswith(_IS_LARGE):  # it was stopped for another reason
                return False
            self._filter = _PARTIAL
            # the stopped fetch may have left a lock behind
            self._restart(self._folder.object_format)
            return True
        if _mentions(messages, _BROKEN):
            self.without_cache()  # raises `StartAgain` if there is a cache

        if _OTHER_FORMAT in messages and self._folder.object_format == "sha1":
            self._restart("sha256")
            return True
        if _NO_SHALLOW in messages and self._shallow:
            self._shallow = False
            self._filter = _WHOLE
            return True
        if self._filter != _WHOLE and _mentions(messages, _FILTER_REFUSED):
            self._filter = _PARTIAL if self._filter == _SMALL else _WHOLE
            return True
        return False

    def _missing_branch_error(self, branch: str) -> TaskError:
        """Return the error for a branch that the server does not have.

        Query the server for details that allow a better hint: there may be a tag with this name, or
        the repository may be empty. Raises `RepositoryError` if the URL is a web page.
        """
        subject = self.subject(branch)
        tag_ref = f"refs/tags/{branch}"
        # the error that git's own message would result in
        plain_error = git_errors.failure(
            f"fatal: couldn't find remote ref refs/heads/{branch}",
            subject,
        )
        try:
            existing_refs = {ref for _, ref in self.refs(tag_ref, "HEAD")}
        except TaskError:  # the server does not respond, so there is no better hint
            return plain_error
        if not existing_refs:
            self._refuse_page(subject)  # raises an error if this is a web page
        if tag_ref in existing_refs:
            message = (
                f"the revision {blanked(branch)!r} is a tag, but updates can only be written to a"
                " branch"
            )
            return SourceError(message, hint=TO_WRITE, subject=subject)
        hint = plain_error.hint
        if "HEAD" not in existing_refs:
            hint = "the repository may be empty: push a first commit, or specify another branch"
        return SourceError(plain_error.message, hint=hint, subject=subject)

    def _refuse_page(self, subject: str) -> None:
        """Raise `RepositoryError` if a seemingly empty repository is actually a web page.

        Git mistakes a web page of one line for the refs of an empty repository.
        """
        if split(self._git.url(self._url)).scheme.startswith("http"):
            with suppress(GitFailed):
                if self._git.is_web_page(REMOTE, self._folder.path, self._env, self.clock):
                    raise git_errors.failure(git_errors.PAGE, subject)


def _lacks_objects(messages: str) -> bool:
    """Return whether a push failed because our own git tried to send objects that were never
    fetched. `messages` contains git's messages, including those from the server (`remote:`).
    """
    lines_from_git = [line for line in messages.splitlines() if not line.startswith("remote:")]
    return any(_mentions(line, _NEVER_FETCHED) for line in lines_from_git)


def _mentions(messages: str, phrases: Collection[str]) -> bool:
    """Return whether git's messages contain one of these phrases."""
    return any(phrase in messages for phrase in phrases)


T = TypeVar("T")
# In the worst case, there are three restarts: the server rejects requests for single objects,
# objects are missing from the cache, and without the cache, the server rejects the request again.
_MOST_RESTARTS = 3


def restarted(
    remote: Remote,
    work: Callable[[], T],
    forget: Callable[[], None] = lambda: None,
) -> T:
    """Return the result of `work`. If `work` raises `StartAgain`, or misses an object that only the
    cache may lack, the fetched objects are gone, so call `forget`, and then `work` again.
    """
    for _ in range(_MOST_RESTARTS):
        try:
            try:
                return work()
            except MissingObjectError:
                # If there is a cache, this raises `StartAgain`: only the cache may lack the object.
                remote.without_cache()
                raise
        except StartAgain:
            forget()
    return work()
