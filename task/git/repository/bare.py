"""Reads and changes a remote repository without a worktree.

A small repository requires one fetch. For a large repository, the trees are fetched first, and then
the required files.

The fetched objects are kept, so that a retry after a lost race is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import ClassVar, Self, TypeVar

from task.errors import Outpaced, RepositoryError, SourceError, TargetError
from task.git import errors as git_errors
from task.git.command import Git
from task.git.errors import GitFailed
from task.git.names import (
    BASE_TRAILER,
    MEMORY,
    base_branch_name,
    branch_name,
    is_branch_name,
    memory_branch,
)
from task.git.repository.history import History, versions_of
from task.git.repository.objects import (
    LARGEST,
    Tree,
    TreeEntry,
    commit_of,
    file_of,
    find_entries,
    parse_tree,
)
from task.git.repository.remote import Pushed, Remote, restarted
from task.git.signing import Signer, is_signed
from task.model import (
    Changeset,
    File,
    Files,
    FileVersion,
    Head,
    LandedCommit,
    Place,
    Snapshot,
    Through,
)
from task.retry import send_once
from task.templates.commit_message import trailer_of
from task.text import blanked, one_line

T = TypeVar("T")
_WORK_REF = "refs/image-update/work"  # the ref that fast-import sets to the new commit
# names that git itself rejects, but fast-import does not
_FORBIDDEN_NAMES = frozenset({"", ".", "..", ".git", "git~1"})
_WantedEntry = tuple[str, TreeEntry, bool]  # (path, entry, whether its content is needed)


@dataclass(frozen=True)
class Remembered:
    """The content of a memory branch, which stores a base's holds and waiting builds."""

    files: Files
    tip: str  # "" if there is no such branch
    inherited: tuple[str, str] | None  # the name and tip of a deleted base's memory branch
    renamed_from: str = ""  # the deleted base's name
    orphaned: tuple[tuple[str, str], ...] = ()  # other such branches, by base

    def beside(self, base: Snapshot) -> Snapshot:
        """Return the snapshot of the base branch with the memory branch's content added."""
        return replace(
            base,
            memory_files=self.files,
            memory_tip=self.tip,
            inherited=self.inherited,
            renamed_from=self.renamed_from,
            orphaned=self.orphaned,
        )


@dataclass(frozen=True)
class Orphans:
    """Memory branches whose base branches no longer exist on the server."""

    gone: Mapping[str, str] = field(default_factory=dict)  # base → its memory branch
    head: str = ""  # where the server's HEAD points: `ref: refs/heads/main`

    def earlier_name_of(self, base: str) -> str:
        """Return the name that the branch `base` had before it was renamed, or "" if it is unknown.

        Git does not record when a branch is renamed. We assume a rename if `base` is the default
        branch, and exactly one base with a memory branch no longer exists.
        """
        is_default = self.head == f"ref: refs/heads/{base}"
        if not is_default or len(self.gone) != 1:
            return ""
        return next(iter(self.gone))


class BareRepository:
    """A repository on a server, read and changed through a temporary bare repository.

    `snapshot` reads files at a branch's tip. `land` commits on top of that tip and pushes, or
    raises `Outpaced` if the branch has moved since.
    """

    through: ClassVar[Through] = "git"  # how commits are created

    def __init__(
        self,
        git: Git,
        repo: str,
        signer: Signer | None = None,
        cache_dir: str = "",
    ) -> None:
        """`signer`: signs the commits, if given. `cache_dir`: the folder with objects from earlier
        runs, or "".
        """
        self._git = git
        self._remote = Remote(git, repo, cache_dir, files=True)
        # Each history has its own remote, whose objects are removed when the history is closed.
        self._new_remote = partial(Remote, git, repo, cache_dir, self._remote.clock)
        self._histories: list[History] = []
        self._signer = signer
        self._roots: dict[str, str] = {}  # commit → its tree
        self._messages: dict[str, str] = {}  # commit → its message
        self._trees: dict[str, Tree] = {}
        self._texts: dict[str, File] = {}  # blob → its content
        # branch → its tip, which was fetched but not read yet, or "" if the branch does not exist
        self._unread_tips: Mapping[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove everything that was fetched."""
        for history in self._histories:
            history.close()
        self._remote.close()
        self._forget()

    def _forget(self) -> None:
        self._roots.clear()
        self._trees.clear()
        self._texts.clear()
        self._unread_tips = {}

    def default_branch(self, *, tip: bool = True) -> str:
        """Return the branch that the remote's HEAD points to. Raises `SourceError` if there is
        none.

        With `tip`, also fetch the branch's tip and keep it for `snapshot`, because a run then
        usually reads the branch.
        """
        if not tip:
            name, _ = self._remote.default_branch()
            return name
        name, self._unread_tips = self._with_restarts(self._remote.fetch_default)
        return name

    def snapshot(
        self,
        branch: str,
        places: Iterable[Place],
        heads: Collection[str] = (),
        default: Collection[Place] = (),
        besides: Callable[[Files], Iterable[Place]] | None = None,
    ) -> Snapshot:
        """Return the files at `places` (paths, and what to read there), all from the branch's
        current tip, and the content of the branch's memory branch, which stores holds.

        `places` is evaluated while the request for the tip is running. `heads` are head branches
        (the source branches of pull requests) that will be read next. `default` are places to read
        from the default branch. The tips and files of all these branches are fetched together.
        `besides` returns more places, given the memory branch's files. Raises `SourceError` if the
        branch does not exist, and the errors of `task.git.errors`.
        """
        # Evaluate `places` only once, even if reading has to start again.
        requested_places = cache(lambda: tuple(dict.fromkeys(places)))

        is_default = branch in {"", "HEAD"}
        name = self.default_branch() if is_default else base_branch_name(branch)
        needs_default_tip = bool(default) and not is_default

        def read() -> Snapshot:
            """Fetch the tips, and read the memory branch, the base, and the default branch."""
            tips = self._tips(name, heads, requested_places, default=needs_default_tip)
            memory = self._read_memory_branch(name, tips)
            more_places: Iterable[Place] = ()
            if besides and memory.files:
                more_places = besides(memory.files)
            base_places = dict.fromkeys((*requested_places(), *more_places))

            # The request for the base's files also fetches the files of the commits that will be
            # read next.
            tips_read_next = [tip for tip in self._unread_tips.values() if tip]
            if "HEAD" in tips:  # the default branch's tip, if requested
                tips_read_next.append(tips["HEAD"])
            base = self._snapshot(name, tips[name], base_places, tips_read_next)

            default_tip = tips.get("HEAD", base.tip)
            if default_tip != base.tip:
                default_files = self._snapshot(name, default_tip, default).files
                base = replace(base, default=default_files)
            return memory.beside(base)

        return self._with_restarts(read)

    def _tips(
        self,
        base: str,
        heads: Collection[str],
        meanwhile: Callable[[], object],
        *,
        default: bool,
    ) -> Mapping[str, str]:
        """Return the tips of the base, of the memory branches, and of those `heads` that exist, by
        branch. Also remember the tips of the `heads`, because these will be read next.

        Fetch nothing if `default_branch` has just fetched the base's tip, and there are no `heads`.
        `meanwhile` is called during the fetch. With `default`, the result also contains the default
        branch's tip, under the key `HEAD`.
        """
        if base in self._unread_tips and not heads:
            tips = self._unread_tips
        else:
            tips = self._remote.fetch_tips(base, heads, meanwhile, default=default)
        self._unread_tips = {head: tips.get(head, "") for head in heads}
        return tips

    def _read_memory_branch(self, base: str, tips: Mapping[str, str]) -> Remembered:
        """Return the content of a base's memory branch, which is empty if the branch does not
        exist.

        A renamed base inherits the memory branch of its old name. `tips` contains the tips of all
        memory branches, by branch.
        """
        own_branch = memory_branch(self._remote.repo, base)
        own_tip = tips.get(own_branch, "")
        if own_tip:
            return Remembered(self._all_files(base, own_tip), own_tip, inherited=None)

        # The base has no memory branch of its own.
        orphans = self._orphans(tips)
        old_base = orphans.earlier_name_of(base)
        if not old_base:
            orphaned = tuple((branch, deleted) for deleted, branch in orphans.gone.items())
            return Remembered({}, "", inherited=None, orphaned=orphaned)

        old_branch = orphans.gone[old_base]
        old_tip = tips[old_branch]
        return Remembered(
            files=self._all_files(base, old_tip),
            tip="",  # the next write will create the branch
            inherited=(old_branch, old_tip),
            renamed_from=old_base,
        )

    def _orphans(self, tips: Mapping[str, str]) -> Orphans:
        """Return the memory branches whose bases no longer exist on the server. `tips` contains the
        tips of all memory branches, by branch.

        A trailer in the memory branch's commit message names the base.
        """
        branch_of_base: dict[str, str] = {}  # base → its memory branch
        for branch, tip in tips.items():
            if not branch.startswith(MEMORY):
                continue
            message = commit_of(self._remote.objects, tip).message
            base = trailer_of(message, BASE_TRAILER)
            # The trailer counts only if the memory branch has the name that belongs to this base.
            if is_branch_name(base) and branch == memory_branch(self._remote.repo, base):
                branch_of_base[base] = branch
        if not branch_of_base:
            return Orphans()

        base_refs = [f"refs/heads/{base}" for base in branch_of_base]
        listed_refs = self._remote.refs("HEAD", *base_refs, symbolic=True)
        existing_refs = {ref for _, ref in listed_refs}
        branches_without_base = {
            base: branch
            for base, branch in branch_of_base.items()
            if f"refs/heads/{base}" not in existing_refs
        }
        # HEAD is listed twice: with `ref: name`, and with its commit id.
        symbolic_heads = [value for value, ref in listed_refs if ref == "HEAD" and " " in value]
        symbolic_head = symbolic_heads[0] if symbolic_heads else ""
        return Orphans(branches_without_base, symbolic_head)

    def _all_files(self, branch: str, tip: str) -> Files:
        """Return all files, with their contents, at a commit."""
        return self._snapshot(branch, tip, [Place("", "files")]).files

    def with_memory_branch_under(self, snapshot: Snapshot, prefix: str) -> Snapshot:
        """Return the snapshot with the content of the memory branch whose name has this prefix.

        If that branch does not exist yet, the snapshot keeps the memory content that it has. That
        content will be moved to the new branch, so the branch that it is from becomes `inherited`.
        """
        base = snapshot.branch
        branch_with_prefix = memory_branch(self._remote.repo, base, prefix)

        def read() -> Snapshot:
            """Read the memory branch with the prefix. If there is none, set `inherited` to the
            branch whose content will be moved there.
            """
            tip = self._remote.fetch_head(branch_with_prefix)
            if tip:
                files = self._all_files(base, tip)
                return replace(
                    snapshot, prefix=prefix, memory_files=files, memory_tip=tip, inherited=None
                )
            inherited = snapshot.inherited  # set if the base was renamed
            if snapshot.memory_tip:
                # The prefix is in the repository's config. `snapshot` was read before the config,
                # so its memory content is from the branch with the usual prefix.
                usual_branch = memory_branch(self._remote.repo, base)
                inherited = (usual_branch, snapshot.memory_tip)
            return replace(snapshot, prefix=prefix, memory_tip="", inherited=inherited)

        return self._with_restarts(read)

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:
        """Return a snapshot of more places at the commit of an earlier snapshot.

        If the fetched objects had to be discarded (`_with_restarts`), the new snapshot is at the
        branch's current tip instead.
        """

        def read() -> Snapshot:
            """Read the places, and keep the memory branch's content from the earlier snapshot."""
            tip = snapshot.tip
            if tip not in self._roots:  # the objects were discarded
                tip = self._remote.fetch_tip(snapshot.branch)
            additional = self._snapshot(snapshot.branch, tip, places)
            return replace(
                additional,
                memory_files=snapshot.memory_files,
                memory_tip=snapshot.memory_tip,
            )

        return self._with_restarts(read)

    def head(self, head: str) -> Head | None:
        """Return the tip of a head branch (the source branch of a pull request), without reading
        the branch's files. Return None if the branch does not exist.
        """
        name = branch_name(head)

        def read() -> Head | None:
            """Read the commit at the branch's tip, which `snapshot` may already have fetched."""
            unread_tips = dict(self._unread_tips)
            if name in unread_tips:
                tip = unread_tips.pop(name)  # used only once, because the branch may move
                self._unread_tips = unread_tips
            else:
                tip = self._remote.fetch_head(name)
            if not tip:
                return None
            commit = commit_of(self._remote.objects, tip)
            is_merge = len(commit.parents) > 1  # not our commit: ours have one parent
            parent = "" if is_merge else commit.parent
            return Head(
                branch=name,
                tip=tip,
                tree=commit.tree,
                parent=parent,
                message=commit.message,
                by=commit.author,
            )

        return self._with_restarts(read)

    def signed(self, commit: str, keys: Sequence[str]) -> bool:
        """Return whether a commit that was already read is signed with one of these public keys.

        If `keys` is empty, the commit must be signed with the run's own signing key. If the run has
        no signing key either, every commit counts as signed.
        """
        if not keys and self._signer is None:
            return True
        accepted_keys = list(keys)
        if self._signer and not keys:
            accepted_keys.append(self._signer.public_key())
        return is_signed(self._git, self._remote.ready(), commit, accepted_keys)

    def merged(self, branch: str, commit: str) -> bool:
        """Return whether a commit is in the recent history of a branch."""
        return self._remote.contains(branch, commit)

    def earlier(
        self,
        branch: str,
        path: str,
        limit: int = 100,
        marked: Collection[str] = (),
    ) -> History:
        """Return an iterator over a file's versions, as (commit, content): the version at the
        branch's tip, then each earlier version that differs, newest first. Closing this repository
        also closes the iterator.

        See `History` for `limit` and `marked`.
        """
        name = self.default_branch() if branch in {"", "HEAD"} else branch_name(branch)
        history = History(self._new_remote(), name, path, limit, marked)
        self._histories.append(history)
        return history

    def written(
        self,
        branch: str,
        pages: Sequence[Collection[str]],
        most: int,
    ) -> Iterator[Mapping[str, Sequence[FileVersion]]]:
        """For each page (a group of paths), yield the versions of the page's files, newest first,
        at most `most` for each file. The commits are fetched only once for all pages.

        See `versions_of`.
        """
        remote = self._new_remote()
        try:
            unique_paths = [tuple(dict.fromkeys(paths)) for paths in pages]
            yield from versions_of(remote, base_branch_name(branch), unique_paths, most)
        finally:
            remote.close()

    @property
    def atomic(self) -> bool:
        """Whether two branches can be pushed together, as far as we know."""
        return self._remote.atomic

    def remember(self, change: Changeset) -> LandedCommit:
        """Replace the content of the memory branch, `change.head`, with the files in `change`, and
        return the new commit.

        If `change` contains no files, delete the branch. If deletion is not allowed, commit an
        empty tree.

        Raises `Outpaced` if the branch is no longer at `change.head_commit`.
        """
        new_commit = self._with_restarts(lambda: self._memory_commit(change))
        old_tip = change.head_commit or ""
        try:
            self._push(Pushed(change.head, new_commit.commit, old_tip, replaces=True))
        except RepositoryError:
            is_deletion = not new_commit.commit
            if not is_deletion:
                raise
            # GitLab and Gitea do not allow anyone to delete a protected branch with git.
            with_empty_tree = self._with_restarts(lambda: self._import_commit(change))
            new_commit = replace(with_empty_tree, commit=self._signed_id(change, with_empty_tree))
            self._push(Pushed(change.head, new_commit.commit, old_tip, replaces=True))
        return new_commit

    def _memory_commit(self, change: Changeset) -> LandedCommit:
        """Create the memory branch's new commit, signed if required. If `change` contains no files,
        create no commit, and return the id "", which deletes the branch when pushed.
        """
        if not change.files:
            return LandedCommit("", "")
        unsigned = self._import_commit(change)
        return replace(unsigned, commit=self._signed_id(change, unsigned))

    def drop(self, head: str, was: str) -> None:
        """Delete a head branch that is at the commit `was`. Raises `Outpaced` if the branch has
        moved.
        """
        self._push(Pushed(head, "", was, replaces=True))

    def predict(self, change: Changeset) -> LandedCommit:
        """Return what `land` would return, but without a commit id. Push nothing."""
        prepared, _ = self._with_restarts(lambda: self._prepare_commit(change))
        if not prepared.pushed:  # a branch already contains these files
            return prepared
        return replace(prepared, commit="")

    def land(self, change: Changeset, memory_change: Changeset | None = None) -> LandedCommit:
        """Commit on top of the tip that was read (`change.tip`), and push the commit.

        Our own head branch is created, or replaced if it has not moved. Other branches are never
        replaced. `memory_change`, the memory branch's new content, goes into the same push: either
        both branches change, or neither does.

        Raises `Outpaced` if the branch has moved since it was read, and `NotAtomicError` if the
        server cannot change two branches in one push.
        """
        prepared, head_tip = self._with_restarts(lambda: self._prepare_commit(change))
        if not prepared.pushed:  # a branch already contains these files
            return prepared
        return self._send(change, prepared, head_tip, memory_change)

    def _send(
        self,
        change: Changeset,
        unsigned: LandedCommit,
        head_tip: str,
        memory_change: Changeset | None = None,
    ) -> LandedCommit:
        """Sign the commit if required, push it together with the memory branch's commit, and return
        the commit as pushed.

        `head_tip` is the commit that the head branch is at, or "" if it does not exist.
        """
        # A push to the base, or to someone else's branch, adds one commit on top of those that were
        # read.
        replaces_head = change.head != change.base and not change.on_top
        old_tip = head_tip if replaces_head else change.tip
        pushed = Pushed(
            change.head, self._signed_id(change, unsigned), old_tip, replaces=replaces_head
        )

        memory_commit = ""
        pushed_memory = None
        if memory_change:
            memory_commit = self._memory_commit(memory_change).commit
            old_memory_tip = memory_change.head_commit or ""
            pushed_memory = Pushed(memory_change.head, memory_commit, old_memory_tip)

        self._push(pushed, change.push_options, pushed_memory)
        return replace(unsigned, commit=pushed.commit, memory_commit=memory_commit)

    def _signed_id(self, change: Changeset, unsigned: LandedCommit) -> str:
        """Sign the commit, and return the signed commit's id. If the run does not sign commits,
        return the commit's own id.
        """
        if self._signer is None:
            return unsigned.commit
        folder = self._remote.ready()
        message = _plain_message(change)
        return self._signer.commit(folder, unsigned.tree, change.tip, message, change.author)

    def _prepare_commit(self, change: Changeset) -> tuple[LandedCommit, str]:
        """Create the commit without pushing it. Return the commit, and the head branch's tip.

        The commit's `pushed` is False if there is nothing to push: `change.tip` already contains
        these files, or the head branch's tip is a commit with these files on top of `change.tip`.
        The returned tip is "" if the head branch will not be replaced, because it does not exist,
        belongs to someone else, or is the base itself.
        """
        head = change.head
        commit = self._make(change)
        changes_nothing = commit.tree == self._root(change.tip)
        if changes_nothing:
            return LandedCommit(change.tip, commit.tree, pushed=False), ""
        if head == change.base or change.on_top:
            return commit, ""

        head_tip = change.head_commit
        if head_tip is None:  # not read yet
            head_tip = self._remote.fetch_head(head)
        if not head_tip:  # the branch does not exist
            return commit, ""

        is_absent = head_tip not in self._roots and not self._has(head_tip)
        if is_absent and change.head_commit:
            # A restart removed the head branch's objects.
            current_tip = self._remote.fetch_head(head)
            if current_tip != head_tip:
                raise Outpaced(f"{head} is no longer at {head_tip}")

        has_same_files = self._root(head_tip) == commit.tree
        # If the head branch has the same files on top of an older commit of the base, push them
        # again: that commit may conflict with newer ones.
        if has_same_files and change.tip in commit_of(self._remote.objects, head_tip).parents:
            return LandedCommit(head_tip, commit.tree, pushed=False), head_tip
        return commit, head_tip

    def _has(self, commit: str) -> bool:
        return not self._remote.objects.absent([commit])

    def _snapshot(
        self,
        branch: str,
        tip: str,
        places: Collection[Place],
        tips_read_next: Collection[str] = (),
    ) -> Snapshot:
        """Return a snapshot of the files at `places` in the commit `tip`.

        The same places will then be read from the commits `tips_read_next`, so the same request
        fetches their contents, too. `branch` is the name of the snapshot's branch.
        """
        entries = self._entries_at(tip, places)
        next_entries: list[_WantedEntry] = []
        for next_tip in tips_read_next:
            next_entries += self._entries_at(next_tip, places)
        self._fetch_texts((*entries, *next_entries), branch)

        files = {path: File("", entry.mode) for path, entry, _ in entries}
        for path, entry, needs_text in entries:
            if needs_text:
                files[path] = replace(self._texts[entry.oid], mode=entry.mode)
        message = self._messages[tip]
        return Snapshot(self._remote.repo, branch, tip, files, message=message)

    def _entries_at(self, commit: str, places: Collection[Place]) -> list[_WantedEntry]:
        """Return the tree entries of the files at `places` in a commit, without contents."""
        root = self._root(commit)
        entries: list[_WantedEntry] = []
        for place in places:
            entries += find_entries(self._tree, root, place)
        return entries

    def _fetch_texts(self, entries: Iterable[_WantedEntry], branch: str) -> None:
        """Fetch the contents that the entries require, in one request, and remember them. Contents
        that are already remembered are not read again. `branch` is for error messages.
        """
        needed = {entry.oid for _, entry, needs_text in entries if needs_text}
        missing = sorted(needed - self._texts.keys())
        if missing:
            self._remote.fetch_files(missing, branch)
            for oid, blob in self._remote.objects.read(missing).items():
                self._texts[oid] = file_of(blob)

    def _root(self, commit: str) -> str:
        """Return the id of a commit's root tree, and remember the commit's message."""
        if commit not in self._roots:
            content = self._remote.objects.read([commit])[commit] or b""
            headers, _, message = content.partition(b"\n\n")
            first_header, _, _ = headers.partition(b"\n")
            self._roots[commit] = first_header[len("tree ") :].decode()
            self._messages[commit] = message.decode("utf-8", "replace")
        return self._roots[commit]

    def _tree(self, oid: str) -> Tree:
        if oid not in self._trees:
            content = self._remote.objects.read([oid])[oid]
            if content is None:
                message = f"a folder's listing is larger than {LARGEST // 1_000_000} MB"
                hint = "split its files across several folders"
                raise SourceError(message, hint=hint, subject=self._remote.repo)
            self._trees[oid] = parse_tree(content, len(oid) // 2)
        return self._trees[oid]

    def _with_restarts(self, work: Callable[[], T]) -> T:
        """Return the result of `work`. If the server cannot send single objects, or the cache is
        corrupt, call `work` again with an empty repository.
        """
        return restarted(self._remote, work, self._forget)

    def _make(self, change: Changeset) -> LandedCommit:
        """Create the commit in the temporary repository, on top of the tip that was read.

        Raises `Outpaced` if that tip had to be fetched again, but the branch has moved.
        """
        branch = change.head if change.on_top else change.base
        if change.tip not in self._roots:
            current_tip = self._remote.fetch_tip(branch)
            if current_tip != change.tip:
                raise Outpaced(f"{branch} is no longer at {change.tip}")
        self._refuse_odd_paths(change)
        try:
            return self._import_commit(change)
        except GitFailed as error:
            self._remote.without_cache()  # raises `StartAgain` if a cache may be the cause
            raise git_errors.failure(error.err, self._remote.subject(change.base)) from error

    def _import_commit(self, change: Changeset) -> LandedCommit:
        """Create the commit with `git fast-import` on top of `change.tip` ("" means no parent).

        Regardless of the repository's size, git rewrites only the trees on the paths to the changed
        files, without an index or worktree.
        """
        argv = ("fast-import", "--quiet", "--force", "--date-format=now", "--done")
        output = self._remote.local(*argv, stdin=_import_stream(change)).decode()
        # the responses to `get-mark` and `ls`, the last two commands in the stream
        commit, listing = output.split("\n")[:2]
        _mode, _kind, tree, *_path = listing.split()
        return LandedCommit(commit, tree, through=self.through)

    def _refuse_odd_paths(self, change: Changeset) -> None:
        """Raise `TargetError` for paths that would make fast-import replace a symlink with a
        directory, or write to `.git/config`.
        """
        subject = self._remote.subject(change.base)
        for path in change.files:
            names = set(path.lower().split("/"))
            if "\0" in path or names & _FORBIDDEN_NAMES:
                hint = "set another path in write-back-target"
                raise TargetError(
                    f"{blanked(path)!r} is not a path that Git can store",
                    hint=hint,
                    subject=subject,
                )
        root = self._root(change.tip)
        for path in change.files:
            # the entry at the path, or a symlink or file where the path requires a folder
            for existing_path, entry, _ in find_entries(self._tree, root, Place(path, "exists")):
                is_replaceable = existing_path in change.files and entry.is_file
                if not is_replaceable:
                    message = f"{blanked(existing_path)!r} conflicts with a file to be written"
                    raise TargetError(
                        message,
                        hint="move or delete it, or write to another path",
                        subject=subject,
                    )

    def _push(
        self,
        pushed: Pushed,
        options: Sequence[str] = (),
        also_pushed: Pushed | None = None,
    ) -> None:
        """Push a branch, and optionally a second one in the same push. If the server's response is
        lost, check on the server whether the push arrived.
        """
        send = partial(self._remote.push, pushed, options, also_pushed)
        has_arrived = partial(self._remote.contains, pushed.head, pushed.commit)
        send_once(send, has_arrived, "whether the push arrived")


def _import_stream(change: Changeset) -> bytes:
    """Return the input for `git fast-import`: one commit on top of `change.tip` ("" means no
    parent), with the message and file contents byte for byte, and commands that print the new ids.
    """
    name = _plain(change.author.name)
    email = _plain(change.author.email)
    who = f"{name or email} <{email}> now"
    parts = [
        f"commit {_WORK_REF}\nmark :1\nauthor {who}\ncommitter {who}\n".encode(),
        _fast_import_data(_plain_message(change)),
        f"from {change.tip}\n".encode() if change.tip else b"",
    ]
    for path, file in sorted(change.files.items()):
        quoted = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        if not file.mode:  # the file is deleted
            parts.append(f'D "{quoted}"\n'.encode("utf-8", "surrogateescape"))
            continue
        parts += [
            f'M {file.mode} inline "{quoted}"\n'.encode("utf-8", "surrogateescape"),
            _fast_import_data(file.text),
        ]
    return b"".join(parts) + b'\nget-mark :1\nls :1 ""\ndone\n'


def _plain_message(change: Changeset) -> str:
    """Return the commit message without NUL characters, which a commit cannot contain."""
    return change.message.replace("\0", "")


def _fast_import_data(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    return b"data %d\n%b\n" % (len(raw), raw)


def _plain(text: str) -> str:
    """Return a name or an address without the characters that are special in git's
    commit format.
    """
    return one_line(text.replace("<", " ").replace(">", " "))
