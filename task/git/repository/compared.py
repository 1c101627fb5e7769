"""The base, and the merge of a change into it, for `check`. Neither is ever modified.

New and fetched objects go to a temporary repository, which also reads the checkout's objects. Git
does the merge itself (`merge-tree`), unless one commit already contains the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from task.errors import SourceError, TargetError, UnreachableError, UsageError
from task.git.command import Git
from task.git.errors import GitFailed
from task.git.names import is_branch_name, memory_branch
from task.git.repository.bare import BareRepository
from task.git.repository.bare_folder import Lent
from task.git.repository.objects import commit_of
from task.model import Compared, Place, Snapshot
from task.text import and_more, blanked

_DEPTHS = (50, 1000, 2_147_483_647)  # commits to fetch until both sides have a common commit
_ORIGIN = ("refs/heads/", "refs/remotes/origin/", "origin/")
_ID_LENGTHS = (40, 64)
_HEX = frozenset("0123456789abcdef")
_SECONDS = 30.0
_MOST_FILES = 100_000  # files that both sides changed


@dataclass(frozen=True)
class Checkout:
    """A repository on this machine: where its `.git` is, and its objects."""

    git_dir: str
    lent: Lent


def checkout_at(top: str, git: Git) -> Checkout:
    """Return the checkout in this top-level folder. It is only read."""
    git_dir = f"{top}/.git"

    def rev_parse(*argv: str) -> str:
        ended = git.run("rev-parse", *argv, git_dir=git_dir, timeout=_SECONDS)
        return ended.out.decode().strip()

    objects = rev_parse("--path-format=absolute", "--git-path", "objects")
    shallow = ""
    with suppress(FileNotFoundError):
        path = rev_parse("--path-format=absolute", "--git-path", "shallow")
        with open(path, encoding="ascii") as file:
            shallow = file.read()
    return Checkout(git_dir, Lent(objects, shallow, rev_parse("--show-object-format")))


@dataclass(frozen=True)
class Comparison:
    """The two sides of a comparison."""

    branch: str  # the branch that the change is merged into
    default: str  # the default branch
    base: str  # commit ids
    head: str
    merged: str  # the merge's tree
    paths: tuple[str, ...]  # paths of all files that the merge changes
    messages: tuple[str, ...]  # messages of the change's last commits, as far as available
    tips: Mapping[str, str] = field(default_factory=dict)  # tips of the memory branches and `HEAD`


class ComparedRepository(BareRepository):
    """Reads the two sides of a change."""

    def __init__(
        self,
        git: Git,
        repo: str,
        compared: Compared,
        checkout: Checkout | None = None,
        cache_dir: str = "",
    ) -> None:
        super().__init__(git, repo, cache_dir="" if checkout else cache_dir)
        self._git = git
        self._compared = compared
        self._checkout = checkout
        self._known: Comparison | None = None
        if checkout:
            self._remote.lend(checkout.lent)

    @property
    def comparison(self) -> Comparison:
        """The compared sides. Raises `TargetError` if they conflict."""
        return self._known or self._with_restarts(self._compare)

    def at(self, tip: str, places: Collection[Place]) -> Snapshot:
        """Return places from one side: at the base commit, or in the merge's tree."""

        def read() -> Snapshot:
            known = self._known or self._compare()
            return self._snapshot(known.branch, tip, places)

        return self._with_restarts(read)

    def base_snapshot(
        self,
        places: Collection[Place],
        default: Collection[Place],
        urls: Collection[str],
    ) -> Snapshot:
        """Return places from the base, and the content of its memory branch.

        `urls` are the forms in which Applications write the repository's URL.
        """

        def read() -> Snapshot:
            known = self._known or self._compare()
            found = self._snapshot(known.branch, known.base, places)
            tip = known.tips.get("HEAD", known.base)
            if known.branch != known.default and tip != known.base:
                found = replace(found, default=self._snapshot(known.default, tip, default).files)
            found = self._remembered(known.branch, known.tips).beside(found)
            memory_files = dict(found.memory_files)
            for url in urls:
                own = known.tips.get(memory_branch(url, known.branch))
                if own:
                    memory_files |= self._snapshot(known.branch, own, [Place("", "files")]).files
            return replace(found, memory_files=memory_files)

        return self._with_restarts(read)

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:
        """Return more places from the same side."""
        return self.at(snapshot.tip, places)

    def _forget(self) -> None:
        super()._forget()
        self._known = None

    def _compare(self) -> Comparison:
        """Fetch and merge both sides, and remember the comparison."""
        branch, base, tips = self._base()
        default = tips.get("", branch)
        head = self._head()
        merged = self._merged(base, head)
        self._roots[merged] = merged
        self._messages[merged] = ""
        raw = self._remote.local(
            "diff-tree",
            "-r",
            "-z",
            "--name-only",
            "--no-renames",
            self._root(base),
            merged,
        )
        paths = raw.decode("utf-8", "surrogateescape").split("\0")
        self._known = Comparison(
            branch=branch,
            default=default,
            base=base,
            head=head,
            merged=merged,
            paths=tuple(path for path in paths if path),
            messages=self._messages_of(head, base),
            tips=tips,
        )
        return self._known

    def _base(self) -> tuple[str, str, Mapping[str, str]]:
        """Return the branch, the base commit, and tips by branch.

        In the tips, "" is the default branch.
        """
        given = self._compared
        default = ""
        with suppress(SourceError):  # then only an explicit branch can be compared
            default = self._remote.default_branch()[0]
        name = given.branch or given.base
        for prefix in _ORIGIN:
            name = name.removeprefix(prefix)
        if name == "HEAD" and not self._checkout:
            name = default
        if is_branch_name(name) and not _is_id(name):
            try:
                tips = self._remote.fetch_tips(name, default=bool(default) and name != default)
            except SourceError:
                if given.branch or not self._resolved(given.base):
                    raise
            else:
                tip = self._found(given.base, "--base") if self._is_queued() else tips[name]
                return name, tip, {**tips, "": default or name}
        tips = self._remote.fetch_tips(default)
        commit = self._found(given.base, "--base")
        return default, commit, {**tips, "": default, "HEAD": tips[default]}

    def _is_queued(self) -> bool:
        """Whether the base is a merge queue's commit, not the branch's tip."""
        return bool(self._compared.branch) and _is_id(self._compared.base)

    def _head(self) -> str:
        given = self._compared
        return self._found(given.head, "--head")

    def _found(self, text: str, option: str) -> str:
        """Return the commit that a name refers to: in the checkout, else on the server."""
        commit = self._resolved(text)
        if commit and not self._remote.objects.absent([commit]):
            return commit
        names = [text] if _is_id(text) or text.startswith("refs/") else []
        bare = text.removeprefix("origin/")
        if is_branch_name(bare) and not names:
            names.append(f"refs/heads/{bare}")
        if is_branch_name(bare) and not _is_id(text):
            names.append(f"refs/tags/{bare}")
        for name in names:
            fetched = self._remote.fetch_commit(name)
            if fetched:
                return fetched
        raise UsageError(
            f"{option}: {blanked(text)!r} is not a commit in this checkout or in"
            f" {self._remote.repo}",
            hint="use a branch, a full ref such as refs/pull/7/head, or a full commit id",
        )

    def _resolved(self, text: str) -> str:
        """Return the commit that the checkout resolves the name to, or ""."""
        if self._checkout is None or text.startswith("-"):
            return ""
        for name in (text, f"origin/{text}"):
            with suppress(GitFailed):
                asked = ("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
                ran = self._git.run(
                    *asked,
                    git_dir=self._checkout.git_dir,
                    timeout=_SECONDS,
                )
                return ran.out.decode().strip()
        return ""

    def _merged(self, base: str, head: str) -> str:
        """Return the merge's tree. Raises `TargetError`, which lists the conflicting files."""
        if base in (head, *self._parents(head)):
            return self._root(head)
        forges_merge = self._compared.merge
        tree = self._of_forge(forges_merge, base, head) if forges_merge else ""
        if tree:
            return tree
        if not self._common(base, head):
            raise SourceError(
                "the two sides have no common commit, so they cannot be merged",
                hint="set --base and --head to commits with a common history",
                subject=self._remote.repo,
            )
        if self._common(base, head) == base:
            return self._root(head)
        self._fetch_changed(base, head)
        return self._merge_tree(base, head)

    def _of_forge(self, merge: str, base: str, head: str) -> str:
        """Return the tree of the Git host's own merge if it merges these two commits, or ""."""
        if not _is_id(merge):
            return ""
        if self._remote.objects.absent([merge]) and not self._remote.fetch_commit(merge):
            return ""
        return self._root(merge) if {base, head} <= set(self._parents(merge)) else ""

    def _parents(self, commit: str) -> Sequence[str]:
        return commit_of(self._remote.objects, commit).parents

    def _common(self, base: str, head: str) -> str:
        """Return the last common commit. Fetch history that is missing from a shallow checkout."""
        common = self._merge_base(base, head)
        for depth in _DEPTHS:
            if common or not self._remote.shallow:
                break
            self._remote.deepen((base, head), depth)
            common = self._merge_base(base, head)
        return common

    def _merge_base(self, base: str, head: str) -> str:
        """Return the last common commit that is present, or "". Raises `UnreachableError`."""
        try:
            return self._remote.local("merge-base", base, head).decode().split("\n")[0]
        except GitFailed as error:
            if error.code == 1:
                return ""
            raise UnreachableError(
                f"git cannot compare the two sides: {blanked(error.err.strip()[-300:])}",
                hint="fetch the full history (fetch-depth: 0, GIT_DEPTH: 0), and run it again",
            ) from error

    def _fetch_changed(self, base: str, head: str) -> None:
        """Fetch the files that a merge has to read: the files changed on either side."""
        common = self._merge_base(base, head)
        wanted: dict[str, None] = {}
        for side in (base, head):
            raw = self._remote.local(
                "diff-tree",
                "-r",
                "-z",
                "--raw",
                "--no-renames",
                common,
                side,
            )
            for line in raw.split(b"\0")[0::2]:  # every other item is a path
                fields = line.decode("ascii", "replace").split()
                if len(fields) == 5:
                    old_mode, new_mode, old_oid, new_oid, _status = fields
                    for mode, oid in ((old_mode.lstrip(":"), old_oid), (new_mode, new_oid)):
                        if mode.startswith(("100", "120")):  # a file or a symbolic link
                            wanted[oid] = None
        if len(wanted) > _MOST_FILES:
            raise SourceError(
                f"both sides changed more than {_MOST_FILES} files",
                hint="merge the base first",
            )
        self._remote.fetch_files([oid for oid in wanted if oid.strip("0")], "")

    def _merge_tree(self, base: str, head: str) -> str:
        """Merge the two commits, and return the tree. Raises the errors of `_merged`."""
        argv = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", base, head)
        try:
            return self._remote.local(*argv).decode().partition("\0")[0]
        except GitFailed as error:
            if error.code == 1:
                names = error.out.decode("utf-8", "replace").split("\0")[1:]
                files = and_more([blanked(name) for name in names if name])
                raise TargetError(
                    f"the change conflicts with {blanked(self._compared.base)} in {files}",
                    hint="merge the base into the change, and resolve the conflict",
                ) from error
            if "usage: git merge-tree" in error.err:
                raise UsageError(
                    "check needs git 2.38 or newer to merge the two sides",
                    hint="install it, or pass a --head that contains --base",
                ) from error
            raise UnreachableError(
                f"git cannot merge the two sides: {blanked(error.err.strip()[-300:])}",
                hint="fetch the full history (fetch-depth: 0, GIT_DEPTH: 0), and run it again",
            ) from error

    def _messages_of(self, head: str, base: str) -> tuple[str, ...]:
        """Return the messages of the change's last commit, and of the commits that it merges."""
        present = [
            commit
            for commit in (head, *self._parents(head))
            if commit != base and not self._remote.objects.absent([commit])
        ]
        return tuple(commit_of(self._remote.objects, commit).message for commit in present)


def _is_id(text: str) -> bool:
    return len(text) in _ID_LENGTHS and _HEX.issuperset(text)
