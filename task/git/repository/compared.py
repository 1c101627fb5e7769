"""The base, and the result of merging a change into it, for `check`. Neither is ever modified.

New and fetched objects are stored in a temporary repository, which also reads the checkout's
objects. Git itself merges the commits (`merge-tree`), unless one commit already contains the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from task.errors import SourceError, TargetError, UnreachableError, UsageError
from task.git.command import Git
from task.git.errors import GitFailed
from task.git.names import is_branch_name, memory_branch
from task.git.repository.bare import BareRepository
from task.git.repository.bare_folder import CheckoutObjects
from task.git.repository.objects import commit_of
from task.model import Compared, Place, Snapshot
from task.text import and_more, blanked

_DEPTHS = (50, 1000, 2_147_483_647)  # commits to fetch, step by step, to find a common commit
_ORIGIN = ("refs/heads/", "refs/remotes/origin/", "origin/")
_ID_LENGTHS = (40, 64)
_HEX = frozenset("0123456789abcdef")
_SECONDS = 30.0
_MOST_FILES = 100_000  # maximum number of files changed on the two sides


@dataclass(frozen=True)
class Checkout:
    """A repository on this machine: its `.git` folder, and its objects."""

    git_dir: str
    objects: CheckoutObjects


def checkout_at(top: str, git: Git) -> Checkout:
    """Return the checkout (a repository on this machine) in the folder `top`. The checkout is never
    modified.
    """
    git_dir = f"{top}/.git"

    def rev_parse(*argv: str) -> str:
        """Return the output of `git rev-parse` in this checkout."""
        output = git.run("rev-parse", *argv, git_dir=git_dir, timeout=_SECONDS).out
        return output.decode().strip()

    objects_folder = rev_parse("--path-format=absolute", "--git-path", "objects")
    shallow = ""
    with suppress(FileNotFoundError):  # no such file: the checkout is complete
        path = rev_parse("--path-format=absolute", "--git-path", "shallow")
        with open(path, encoding="ascii") as file:
            shallow = file.read()
    object_format = rev_parse("--show-object-format")
    return Checkout(git_dir, CheckoutObjects(objects_folder, shallow, object_format))


@dataclass(frozen=True)
class Comparison:
    """The two sides of a comparison: the base, and the head, which is a change to the base."""

    branch: str  # the branch that the change is merged into
    default: str  # the default branch
    base: str  # the base's commit id
    head: str  # the change's commit id
    merged: str  # the merge's tree
    paths: tuple[str, ...]  # the paths of all files that the merge changes
    messages: tuple[str, ...]  # messages of the change's last commits, as far as available
    tips: Mapping[str, str] = field(default_factory=dict)  # tips of the memory branches and `HEAD`


@dataclass(frozen=True)
class _Base:
    """The base of a comparison."""

    branch: str
    commit: str
    default: str  # the default branch, or `branch` if there is none
    tips: Mapping[str, str]  # by branch


class ComparedRepository(BareRepository):
    """Reads the two sides of a comparison: the base, and the merge of a change into it."""

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
        self._comparison: Comparison | None = None
        if checkout:
            self._remote.read_checkout(checkout.objects)

    @property
    def comparison(self) -> Comparison:
        """The compared sides. Raises `TargetError` if they conflict."""
        return self._comparison or self._with_restarts(self._compare)

    def at(self, tip: str, places: Collection[Place]) -> Snapshot:
        """Return a snapshot of the places on one side. `tip` is the base's commit or the merge's
        tree.
        """

        def read() -> Snapshot:
            comparison = self._comparison or self._compare()
            return self._snapshot(comparison.branch, tip, places)

        return self._with_restarts(read)

    def base_snapshot(
        self,
        places: Collection[Place],
        default: Collection[Place],
        urls: Collection[str],
    ) -> Snapshot:
        """Return a snapshot of the places in the base, with the content of the base's memory
        branches, which store holds and waiting builds.

        `default` are the places to read from the default branch. `urls` contains all forms of the
        repository's URL that Applications use: each form has its own memory branch.
        """

        def read() -> Snapshot:
            """Read the base, the default branch, and the memory branches."""
            comparison = self._comparison or self._compare()
            branch = comparison.branch
            base = self._snapshot(branch, comparison.base, places)

            default_tip = comparison.tips.get("HEAD", comparison.base)
            if branch != comparison.default and default_tip != comparison.base:
                default_files = self._snapshot(comparison.default, default_tip, default).files
                base = replace(base, default=default_files)

            memory = self._read_memory_branch(branch, comparison.tips)
            memory_files = dict(memory.files)
            for url in urls:
                memory_tip = comparison.tips.get(memory_branch(url, branch))
                if memory_tip:
                    memory_files |= self._all_files(branch, memory_tip)
            return replace(memory.beside(base), memory_files=memory_files)

        return self._with_restarts(read)

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:
        """Return a snapshot of more places on the same side as an earlier snapshot."""
        return self.at(snapshot.tip, places)

    def _forget(self) -> None:
        super()._forget()
        self._comparison = None

    def _compare(self) -> Comparison:
        """Fetch both sides, merge them, and remember the comparison."""
        base = self._base()
        head = self._commit_of_option(self._compared.head, "--head")
        merged_tree = self._merged_tree_of(base.commit, head)
        # so that `_snapshot` can read the tree like a commit
        self._roots[merged_tree] = merged_tree
        self._messages[merged_tree] = ""
        self._comparison = Comparison(
            branch=base.branch,
            default=base.default,
            base=base.commit,
            head=head,
            merged=merged_tree,
            paths=self._changed_paths(base.commit, merged_tree),
            messages=self._messages_of(head, base.commit),
            tips=base.tips,
        )
        return self._comparison

    def _changed_paths(self, base: str, merged_tree: str) -> tuple[str, ...]:
        """Return the paths of all files that differ between a commit and the merge's tree."""
        output = self._remote.local(
            "diff-tree",
            "-r",
            "-z",
            "--name-only",
            "--no-renames",
            self._root(base),
            merged_tree,
        )
        paths = output.decode("utf-8", "surrogateescape").split("\0")
        return tuple(path for path in paths if path)

    def _base(self) -> _Base:
        """Fetch the base, and return its branch and commit.

        If `--base` is a branch, or the CI system reports one, return that branch and its tip. In a
        merge queue, the commit is the value of `--base` instead. If `--base` is a tag or a commit,
        the branch is the default branch.
        """
        compared = self._compared
        default = ""
        with suppress(SourceError):  # if so, only an explicit branch can be compared
            default, _ = self._remote.default_branch()

        commit = ""
        branch = self._base_name(default)
        if is_branch_name(branch) and not _is_id(branch):
            has_other_default = bool(default) and branch != default
            try:
                tips = self._remote.fetch_tips(branch, default=has_other_default)
            except SourceError:
                # Without a CI system's branch, `--base` may be a tag or a full ref.
                commit = "" if compared.branch else self._find_commit(compared.base)
                if not commit:
                    raise
            else:
                commit = tips[branch]
                if self._is_queued():  # the queue stacks the change on top of others
                    commit = self._commit_of_option(compared.base, "--base")
                return _Base(branch, commit, default=default or branch, tips=tips)

        # The base is not a branch.
        if not default:  # usually raises the error that was suppressed above
            default, _ = self._remote.default_branch()
        tips = self._remote.fetch_tips(default)
        commit = commit or self._commit_of_option(compared.base, "--base")
        return _Base(default, commit, default=default, tips={**tips, "HEAD": tips[default]})

    def _base_name(self, default: str) -> str:
        """Return the branch that the CI system reports, else the value of `--base`, which may also
        be a tag or a commit. `default` is the default branch.
        """
        name = self._compared.branch or self._compared.base
        for prefix in _ORIGIN:
            name = name.removeprefix(prefix)
        if name == "HEAD" and not self._checkout:
            return default
        return name

    def _is_queued(self) -> bool:
        """Whether the base is a merge queue's commit instead of the branch's tip."""
        return bool(self._compared.branch) and _is_id(self._compared.base)

    def _commit_of_option(self, text: str, option: str) -> str:
        """Return the commit that an option's value refers to, in the checkout or else on the
        server.

        The value is a commit id, a full ref, a branch, or a tag. Raises `UsageError`.
        """
        commit = self._find_commit(text)
        if not commit:
            raise UsageError(
                f"{option}: {blanked(text)!r} is not a commit in this checkout or in"
                f" {self._remote.repo}",
                hint="use a branch, a full ref such as refs/pull/7/head, or a full commit id",
            )
        return commit

    def _find_commit(self, text: str) -> str:
        """Return the commit that an option's value refers to, or "" if there is none."""
        commit = self._commit_in_checkout(text)
        if commit and not self._remote.objects.absent([commit]):
            return commit

        is_id = _is_id(text)
        is_full_ref = text.startswith("refs/")
        short_name = text.removeprefix("origin/")
        # What to request from the server: an id or a full ref as it is, and a short name first as a
        # branch, then as a tag.
        names = []
        if is_id or is_full_ref:
            names = [text]
        elif is_branch_name(short_name):
            names = [f"refs/heads/{short_name}", f"refs/tags/{short_name}"]
        for name in names:
            commit = self._remote.fetch_commit(name)
            if commit:
                return commit
        return ""

    def _commit_in_checkout(self, text: str) -> str:
        """Return the commit to which a name resolves in the checkout, or "" if there is none."""
        if self._checkout is None or text.startswith("-"):
            return ""
        for name in (text, f"origin/{text}"):
            argv = ("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
            with suppress(GitFailed):  # there is no such commit
                output = self._git.run(
                    *argv,
                    git_dir=self._checkout.git_dir,
                    timeout=_SECONDS,
                ).out
                return output.decode().strip()
        return ""

    def _merged_tree_of(self, base: str, head: str) -> str:
        """Return the tree that results from merging the commit `head` into the commit `base`.

        Raises `TargetError`, which lists the conflicting files, and `SourceError` if the two have
        no common commit.
        """
        # Usually, the base is the head's parent, which is known without fetching any history.
        if base in (head, *self._parents(head)):
            return self._root(head)
        if self._compared.merge:
            tree = self._tree_of_forges_merge(self._compared.merge, base, head)
            if tree:
                return tree
        common_commit = self._common_commit(base, head)
        if not common_commit:
            raise SourceError(
                "the two sides have no common commit, so they cannot be merged",
                hint="set --base and --head to commits with a common history",
                subject=self._remote.repo,
            )
        if common_commit == base:  # the head already contains the base
            return self._root(head)
        self._fetch_changed(base, head)
        return self._merge_tree(base, head)

    def _tree_of_forges_merge(self, merge: str, base: str, head: str) -> str:
        """Return the tree of the Git host's own merge commit (`merge`) if that commit merges these
        two commits, else "".
        """
        if not _is_id(merge):
            return ""
        if self._remote.objects.absent([merge]) and not self._remote.fetch_commit(merge):
            return ""
        merges_both = {base, head} <= set(self._parents(merge))
        return self._root(merge) if merges_both else ""

    def _parents(self, commit: str) -> Sequence[str]:
        return commit_of(self._remote.objects, commit).parents

    def _common_commit(self, base: str, head: str) -> str:
        """Return the two sides' last common commit, or "" if there is none. Fetch increasing
        amounts of history until the commit is found.
        """
        common = self._merge_base(base, head)
        for depth in _DEPTHS:
            if common or not self._remote.shallow:
                break
            self._remote.deepen((base, head), depth)
            common = self._merge_base(base, head)
        return common

    def _merge_base(self, base: str, head: str) -> str:
        """Return the merge base according to the locally available history, or "" if there is none.
        Raises `UnreachableError` if git cannot compare the two sides.
        """
        try:
            first_line, _, _ = self._remote.local("merge-base", base, head).decode().partition("\n")
            return first_line
        except GitFailed as error:
            if error.code == 1:  # there is no common commit
                return ""
            raise UnreachableError(
                f"git cannot compare the two sides: {blanked(error.err.strip()[-300:])}",
                hint="fetch the full history (fetch-depth: 0, GIT_DEPTH: 0), and run it again",
            ) from error

    def _fetch_changed(self, base: str, head: str) -> None:
        """Fetch the files that a merge must read: those changed on either side."""
        common_commit = self._merge_base(base, head)
        oids: dict[str, None] = {}  # an ordered set
        for side in (base, head):
            oids |= dict.fromkeys(self._changed_blobs(common_commit, side))
        if len(oids) > _MOST_FILES:
            raise SourceError(
                f"both sides changed more than {_MOST_FILES} files",
                hint="merge the base first",
            )
        present_oids = [oid for oid in oids if set(oid) != {"0"}]  # zeros mean: no such file
        self._remote.fetch_files(present_oids, "")

    def _changed_blobs(self, old: str, new: str) -> Iterator[str]:
        """Yield the blob ids, in both commits, of each file that differs between the commits `old`
        and `new`. If a file does not exist in a commit, its id consists of zeros.
        """
        output = self._remote.local(
            "diff-tree",
            "-r",
            "-z",
            "--raw",
            "--no-renames",
            old,
            new,
        )
        # each file has two items: a line with modes and ids, and the path
        for line in output.split(b"\0")[0::2]:
            fields = line.decode("ascii", "replace").split()
            if len(fields) != 5:  # the empty string after the last NUL
                continue
            old_mode, new_mode, old_oid, new_oid, _status = fields
            for mode, oid in ((old_mode.lstrip(":"), old_oid), (new_mode, new_oid)):
                is_file_or_link = mode.startswith(("100", "120"))
                if is_file_or_link:
                    yield oid

    def _merge_tree(self, base: str, head: str) -> str:
        """Merge the commit `head` into the commit `base`, and return the merge's tree.

        Raises `TargetError`, which lists the conflicting files, `UsageError` if git is too old, and
        `UnreachableError`.
        """
        argv = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", base, head)
        try:
            tree, _, _ = self._remote.local(*argv).decode().partition("\0")
            return tree
        except GitFailed as error:
            if error.code == 1:  # there are conflicts
                # in the output, the tree comes first, then the names of the files
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
        """Return the messages of the change's last commit (`head`) and of that commit's parents,
        except the base. Commits that were not fetched are left out.
        """
        present = [
            commit
            for commit in (head, *self._parents(head))
            if commit != base and not self._remote.objects.absent([commit])
        ]
        return tuple(commit_of(self._remote.objects, commit).message for commit in present)


def _is_id(text: str) -> bool:
    return len(text) in _ID_LENGTHS and _HEX.issuperset(text)
