"""Reads and changes a remote repository without a worktree.

A small repository needs one fetch. For a large repository, fetch the trees first, and then the
required files.

The fetched objects are kept, so that a retry after a lost race is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain
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
    commit_of,
    file_of,
    look,
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
_WORK = "refs/image-update/work"  # where fast-import puts the commit
# git's own rule, which fast-import does not enforce
_NO_NAMES = frozenset({"", ".", "..", ".git", "git~1"})


@dataclass(frozen=True)
class Remembered:
    """A memory branch's files, and the branch's name and tip."""

    files: Files
    tip: str  # "" if there is no such branch
    inherited: tuple[str, str] | None  # the name and tip of a deleted base's memory branch
    renamed_from: str = ""  # the deleted base
    orphaned: tuple[tuple[str, str], ...] = ()  # other such branches, by base

    def beside(self, found: Snapshot) -> Snapshot:
        """Return a snapshot of the base with the memory branch's content."""
        return replace(
            found,
            memory_files=self.files,
            memory_tip=self.tip,
            inherited=self.inherited,
            renamed_from=self.renamed_from,
            orphaned=self.orphaned,
        )


@dataclass(frozen=True)
class Orphans:
    """Memory branches of bases that no longer exist on the server, by base name."""

    gone: Mapping[str, str] = field(default_factory=dict)
    head: str = ""  # the server's HEAD: `ref: refs/heads/main`

    def renamed_to(self, base: str) -> str:
        """Return the earlier name of `base`, or "". Only a rename of the default branch can be
        detected.
        """
        is_default = self.head == f"ref: refs/heads/{base}"
        return next(iter(self.gone)) if is_default and len(self.gone) == 1 else ""


class BareRepository:
    """`snapshot` reads.

    `land` commits and pushes, or raises `Outpaced`: compare-and-swap on the tip of a branch.
    """

    through: ClassVar[Through] = "git"  # how commits are created

    def __init__(
        self,
        git: Git,
        repo: str,
        signer: Signer | None = None,
        cache_dir: str = "",
    ) -> None:
        self._git = git
        self._remote = Remote(git, repo, cache_dir, files=True)
        # No other code uses the objects that a history fetches.
        self._another = partial(Remote, git, repo, cache_dir, self._remote.clock)
        self._histories: list[History] = []
        self._signer = signer
        self._roots: dict[str, str] = {}  # commit → its tree
        self._messages: dict[str, str] = {}  # commit → its message
        self._trees: dict[str, Tree] = {}
        self._texts: dict[str, File] = {}  # blob → its content
        self._fetched: Mapping[
            str, str
        ] = {}  # branch → its tip, fetched but not read yet; "" if the branch does not exist

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
        self._fetched = {}

    def default_branch(self, *, tip: bool = True) -> str:
        """Return the branch that the remote's HEAD points to. Raises `SourceError` if there is
        none.

        With `tip`, also fetch its tip, because a run reads the branch next.
        """
        if not tip:
            return self._remote.default_branch()[0]
        name, self._fetched = self._with_restarts(self._remote.fetch_default)
        return name

    def snapshot(
        self,
        branch: str,
        places: Iterable[Place],
        heads: Collection[str] = (),
        default: Collection[Place] = (),
        besides: Callable[[Files], Iterable[Place]] | None = None,
    ) -> Snapshot:
        """Return these places at the branch's current tip, all from one commit, and the content of
        its memory branch.

        `places` is evaluated while the request for the tip is running. `heads` are head branches
        that are read next. Their tips and files are fetched together with the base's, and so are
        the required files of the default branch. `besides` returns more places, given the memory
        branch's files. Raises `SourceError` if the branch does not exist, and the errors of
        `task.git.errors`.
        """
        wanted = cache(lambda: tuple(dict.fromkeys(places)))

        is_default = branch in {"", "HEAD"}
        name = self.default_branch() if is_default else base_branch_name(branch)

        def read() -> Snapshot:
            tips = self._tips(name, heads, wanted, default=bool(default) and not is_default)
            memory = self._remembered(name, tips)
            asked_by_memory = besides(memory.files) if besides and memory.files else ()
            base_places = dict.fromkeys((*wanted(), *asked_by_memory))
            read_next = [tip for tip in (*self._fetched.values(), tips.get("HEAD")) if tip]
            base = self._snapshot(name, tips[name], base_places, read_next)
            default_tip = tips.get("HEAD", base.tip)
            if default_tip != base.tip:
                base = replace(base, default=self._snapshot(name, default_tip, default).files)
            return memory.beside(base)

        return self._with_restarts(read)

    def _tips(
        self,
        base: str,
        heads: Collection[str],
        wanted: Callable[[], Collection[Place]],
        *,
        default: bool,
    ) -> Mapping[str, str]:
        """Return a map of branch → tip, and remember the head branches' tips, which are read next.
        The base's tip may already be known, if `default_branch` fetched it.
        """
        tips = self._fetched if base in self._fetched and not heads else {}
        if not tips:
            tips = self._remote.fetch_tips(base, heads, wanted, default=default)
        self._fetched = {head: tips.get(head, "") for head in heads}
        return tips

    def _remembered(self, base: str, tips: Mapping[str, str]) -> Remembered:
        """Return the content of a base's memory branch."""
        own = memory_branch(self._remote.repo, base)
        own_tip = tips.get(own, "")
        orphans = Orphans() if own in tips else self._orphans(tips)
        old_base = orphans.renamed_to(base)
        inherited = None
        if old_base:
            old_name = orphans.gone[old_base]
            inherited = (old_name, tips[old_name])
        tip = own_tip or (inherited[1] if inherited else "")
        orphaned = tuple((name, gone) for gone, name in orphans.gone.items())
        return Remembered(
            files=self._snapshot(base, tip, [Place("", "files")]).files if tip else {},
            tip=own_tip,
            inherited=inherited,
            renamed_from=old_base,
            orphaned=() if inherited else orphaned,
        )

    def _orphans(self, tips: Mapping[str, str]) -> Orphans:
        """Return the memory branches of bases that do not exist on the server anymore."""
        bases: dict[str, str] = {}
        for name, tip in tips.items():
            if not name.startswith(MEMORY):
                continue
            message = commit_of(self._remote.objects, tip).message
            of_base = trailer_of(message, BASE_TRAILER)
            if is_branch_name(of_base) and name == memory_branch(self._remote.repo, of_base):
                bases[of_base] = name
        if not bases:
            return Orphans()
        refs = self._remote.refs("HEAD", *(f"refs/heads/{base}" for base in bases), symbolic=True)
        existing = {ref for _, ref in refs}
        gone = {base: name for base, name in bases.items() if f"refs/heads/{base}" not in existing}
        # `ref: name`, not the id that is listed too
        head = next((value for value, ref in refs if ref == "HEAD" and " " in value), "")
        return Orphans(gone, head)

    def with_memory_branch_under(self, snapshot: Snapshot, prefix: str) -> Snapshot:
        """Return the snapshot with the memory branch whose name has this prefix.

        If that branch does not exist yet, the snapshot's content moves to it.
        """
        base = snapshot.branch
        name = memory_branch(self._remote.repo, base, prefix)

        def read() -> Snapshot:
            tip = self._remote.fetch_head(name)
            if tip:
                files = self._snapshot(base, tip, [Place("", "files")]).files
                return replace(
                    snapshot, prefix=prefix, memory_files=files, memory_tip=tip, inherited=None
                )
            old = memory_branch(self._remote.repo, base), snapshot.memory_tip
            inherited = old if snapshot.memory_tip else snapshot.inherited
            return replace(snapshot, prefix=prefix, memory_tip="", inherited=inherited)

        return self._with_restarts(read)

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:
        """Return more places, at the commit of an earlier snapshot."""

        def read() -> Snapshot:
            # False if the server did not send single objects, and everything was discarded
            known = snapshot.tip in self._roots
            tip = snapshot.tip if known else self._remote.fetch_tip(snapshot.branch)
            found = self._snapshot(snapshot.branch, tip, places)
            return replace(
                found,
                memory_files=snapshot.memory_files,
                memory_tip=snapshot.memory_tip,
            )

        return self._with_restarts(read)

    def head(self, head: str) -> Head | None:
        """Return a head branch's tip, without reading its files, or None if the branch does not
        exist.
        """
        name = branch_name(head)

        def read() -> Head | None:
            tip = self._fetched[name] if name in self._fetched else self._remote.fetch_head(name)
            # the same tip is not used twice, because the branch may move
            self._fetched = {key: oid for key, oid in self._fetched.items() if key != name}
            if not tip:
                return None
            known = commit_of(self._remote.objects, tip)
            parent = known.parent if len(known.parents) == 1 else ""
            return Head(name, tip, known.tree, parent, known.message, known.author)

        return self._with_restarts(read)

    def signed(self, commit: str, keys: Sequence[str]) -> bool:
        """Return whether a commit that was read is signed by one of these public keys, or by the
        run's own key if none are given. If the run does not sign either, every commit counts as
        signed.
        """
        if not keys and self._signer is None:
            return True
        own = [self._signer.public_key()] if self._signer and not keys else []
        return is_signed(self._git, self._remote.ready(), commit, [*keys, *own])

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
        """Return the file's content at the branch's tip, then each earlier version that differs,
        newest first.

        See `History`.
        """
        name = self.default_branch() if branch in {"", "HEAD"} else branch_name(branch)
        self._histories.append(History(self._another(), name, path, limit, marked))
        return self._histories[-1]

    def written(
        self,
        branch: str,
        pages: Sequence[Collection[str]],
        most: int,
    ) -> Iterator[Mapping[str, Sequence[FileVersion]]]:
        """Yield the versions for each page of files, newest first, from one fetch of commits.

        See `versions_of`.
        """
        remote = self._another()
        try:
            of_files = [tuple(dict.fromkeys(paths)) for paths in pages]
            yield from versions_of(remote, base_branch_name(branch), of_files, most)
        finally:
            remote.close()

    @property
    def atomic(self) -> bool:
        """Whether two branches can be pushed together, as far as known."""
        return self._remote.atomic

    def remember(self, change: Changeset) -> LandedCommit:
        """Replace the content of the memory branch, `change.head`, with these files.

        Without files, delete the branch; if that is not allowed, commit an empty tree.

        Raises `Outpaced` if the branch is no longer at `change.head_commit`.
        """
        made = self._with_restarts(lambda: self._memory_commit(change))
        was = change.head_commit or ""
        try:
            self._push(Pushed(change.head, made.commit, was, replaces=True))
        except RepositoryError:
            if made.commit:
                raise
            # GitLab and Gitea do not allow anyone to delete a protected branch with git.
            empty = self._with_restarts(lambda: self._imported(change))
            made = replace(empty, commit=self._signed(change, empty))
            self._push(Pushed(change.head, made.commit, was, replaces=True))
        return made

    def _memory_commit(self, change: Changeset) -> LandedCommit:
        made = self._imported(change) if change.files else LandedCommit("", "")
        return replace(made, commit=self._signed(change, made))

    def drop(self, head: str, was: str) -> None:
        """Delete a head branch that is at `was`. Raises `Outpaced` if it has moved."""
        self._push(Pushed(head, "", was, replaces=True))

    def predict(self, change: Changeset) -> LandedCommit:
        """Return what `land` would return, without committing or sending anything."""
        made, _ = self._with_restarts(lambda: self._prepared(change))
        return replace(made, commit="") if made.pushed else made

    def land(self, change: Changeset, memory_change: Changeset | None = None) -> LandedCommit:
        """Commit on top of the tip that was read, and push.

        Raises `Outpaced` if the branch has moved since.

        Our own head branch is created, or replaced if it has not moved. Other branches are never
        replaced. `memory_change` is pushed together with it: either both land or neither does.
        Raises `NotAtomicError` if the server cannot do that.
        """
        made, head_tip = self._with_restarts(lambda: self._prepared(change))
        return self._send(change, made, head_tip, memory_change) if made.pushed else made

    def _send(
        self,
        change: Changeset,
        made: LandedCommit,
        head_tip: str,
        memory_change: Changeset | None = None,
    ) -> LandedCommit:
        """Push the commit, signed if required. `head_tip` is the tip of the head branch, or ""."""
        replaces = change.head != change.base and not change.on_top
        was = head_tip if replaces else change.tip
        pushed = Pushed(change.head, self._signed(change, made), was, replaces=replaces)
        memory_commit = ""
        pushed_memory = None
        if memory_change:
            memory_commit = self._memory_commit(memory_change).commit
            was_memory = memory_change.head_commit or ""
            pushed_memory = Pushed(memory_change.head, memory_commit, was_memory)
        self._push(pushed, change.push_options, pushed_memory)
        return replace(made, commit=pushed.commit, memory_commit=memory_commit)

    def _signed(self, change: Changeset, made: LandedCommit) -> str:
        """Return the same commit, signed if required."""
        if self._signer is None or not made.commit:
            return made.commit
        folder = self._remote.ready()
        message = _plain_message(change)
        return self._signer.commit(folder, made.tree, change.tip, message, change.author)

    def _prepared(self, change: Changeset) -> tuple[LandedCommit, str]:
        """Create the commit. Return the result of `land`, and the head branch's tip.

        The landing is not `pushed` if a branch already has the same files on the same tip. On an
        older tip, the same files may still conflict with changes to the base. The head branch's tip
        is "" if the branch does not exist or is the base itself.
        """
        head = change.head
        head_tip = ""
        commit = self._make(change)
        if commit.tree == self._root(change.tip):
            return LandedCommit(change.tip, commit.tree, pushed=False), head_tip
        if head != change.base and not change.on_top:
            head_tip = (
                self._remote.fetch_head(head) if change.head_commit is None else change.head_commit
            )
        # The head branch's objects are gone after a restart.
        is_absent = head_tip and head_tip not in self._roots and not self._has(head_tip)
        if is_absent and change.head_commit and self._remote.fetch_head(head) != head_tip:
            raise Outpaced(f"{head} is no longer at {head_tip}")
        has_same_files = head_tip and self._root(head_tip) == commit.tree
        if has_same_files and change.tip in commit_of(self._remote.objects, head_tip).parents:
            commit = LandedCommit(head_tip, commit.tree, pushed=False)
        return commit, head_tip

    def _has(self, commit: str) -> bool:
        return not self._remote.objects.absent([commit])

    def _snapshot(
        self,
        branch: str,
        tip: str,
        places: Collection[Place],
        also: Collection[str] = (),
    ) -> Snapshot:
        """Return the places at a commit.

        The files of other commits, `also`, are fetched together with this commit's files.
        """
        roots = [self._root(commit) for commit in (tip, *also)]
        entries_of_roots = [
            [found for place in places for found in look(self._tree, root, place)] for root in roots
        ]
        needed = {
            entry.oid
            for entries in entries_of_roots
            for _, entry, needs_text in entries
            if needs_text
        }
        missing = sorted(needed - self._texts.keys())
        if missing:
            self._remote.fetch_files(missing, branch)
            for oid, blob in self._remote.objects.read(missing).items():
                self._texts[oid] = file_of(blob)
        own_entries = entries_of_roots[0]
        files = {path: File("", entry.mode) for path, entry, _ in own_entries}
        files |= {
            path: replace(self._texts[entry.oid], mode=entry.mode)
            for path, entry, needs_text in own_entries
            if needs_text
        }
        return Snapshot(self._remote.repo, branch, tip, files, self._messages[tip])

    def _root(self, commit: str) -> str:
        """Return a commit's root tree, and remember the commit's message."""
        if commit not in self._roots:
            content = self._remote.objects.read([commit])[commit] or b""
            self._roots[commit] = content[len("tree ") :].partition(b"\n")[0].decode()
            self._messages[commit] = content.partition(b"\n\n")[2].decode("utf-8", "replace")
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
        """Run `work`.

        Run it again in an empty repository if the server cannot send single objects, or the cache
        is corrupt.
        """
        return restarted(self._remote, work, self._forget)

    def _make(self, change: Changeset) -> LandedCommit:
        """Create the commit in the temporary repository."""
        branch = change.head if change.on_top else change.base  # to commit on top of
        if change.tip not in self._roots and self._remote.fetch_tip(branch) != change.tip:
            raise Outpaced(f"{branch} is no longer at {change.tip}")
        self._refuse_odd_paths(change)
        try:
            return self._imported(change)
        except GitFailed as error:
            self._remote.without_cache()
            raise git_errors.failure(error.err, self._remote.subject(change.base)) from error

    def _imported(self, change: Changeset) -> LandedCommit:
        """Create the commit with `git fast-import` on top of `change.tip` ("": no parent).

        It rewrites only the trees on the paths to the files, without an index or worktree, for any
        number of files.
        """
        argv = ("fast-import", "--quiet", "--force", "--date-format=now", "--done")
        output = self._remote.local(*argv, stdin=_import_stream(change)).decode()
        commit, listing = output.split("\n")[:2]
        _mode, _kind, tree, *_path = listing.split()
        return LandedCommit(commit, tree, through=self.through)

    def _refuse_odd_paths(self, change: Changeset) -> None:
        """Reject paths that would make fast-import replace a symlink with a directory, or write to
        `.git/config`.
        """
        subject = self._remote.subject(change.base)
        for path in change.files:
            if "\0" in path or not _NO_NAMES.isdisjoint(path.lower().split("/")):
                hint = "set another path in write-back-target"
                raise TargetError(
                    f"{blanked(path)!r} is not a path that Git can store",
                    hint=hint,
                    subject=subject,
                )
        root = self._root(change.tip)
        for path, entry, _ in chain.from_iterable(
            look(self._tree, root, Place(file, "exists")) for file in change.files
        ):
            if path not in change.files or not entry.is_file:
                message = f"{blanked(path)!r} conflicts with a file to be written"
                raise TargetError(
                    message,
                    hint="move or delete it, or write to another path",
                    subject=subject,
                )

    def _push(
        self,
        pushed: Pushed,
        options: Sequence[str] = (),
        more: Pushed | None = None,
    ) -> None:
        send = partial(self._remote.push, pushed, options, more)
        arrived = partial(self._remote.contains, pushed.head, pushed.commit)
        send_once(send, arrived, "whether the push arrived")


def _import_stream(change: Changeset) -> bytes:
    """Return the whole input: one commit on top of `change.tip` ("": no parent), with the message
    and file contents byte for byte.
    """
    name = _plain(change.author.name)
    email = _plain(change.author.email)
    who = f"{name or email} <{email}> now"
    parts = [
        f"commit {_WORK}\nmark :1\nauthor {who}\ncommitter {who}\n".encode(),
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
    """Return the message as bytes that are valid in a commit."""
    return change.message.replace("\0", "")


def _fast_import_data(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    return b"data %d\n%b\n" % (len(raw), raw)


def _plain(text: str) -> str:
    """Return a name or an address without the characters that are special in git's format."""
    return one_line(text.replace("<", " ").replace(">", " "))
