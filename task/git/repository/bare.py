"""Reads and changes a remote repository without a work tree.

A small repository comes with one fetch. Of a large one, the trees come first, and then the needed files.

It keeps what it has fetched, so that another attempt after a lost race costs little.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from typing import ClassVar, Self, TypeVar

from task.errors import Outpaced, SourceError, TargetError
from task.git import errors as git_errors
from task.git.command import Git
from task.git.errors import GitFailed
from task.git.names import OURS, base_branch_name, branch_name, memory_branch, stem_of
from task.git.repository.history import History, versions_of
from task.git.repository.objects import (
    LARGEST,
    Tree,
    changed_paths,
    commit_of,
    file_of,
    look,
    parse_tree,
)
from task.git.repository.remote import Remote, restarted
from task.git.signing import Signer
from task.model import Changeset, File, FileVersion, Head, Landing, Place, Snapshot, Through
from task.retry import land_once
from task.templates.commit_message import trailer_of
from task.text import blanked, one_line

T = TypeVar("T")
_WORK = "refs/image-update/work"  # where fast-import puts the commit
_NO_NAMES = frozenset(
    {"", ".", "..", ".git", "git~1"}
)  # git's own rule, which fast-import does not check


class BareRepository:
    """`snapshot` reads. `land` commits and pushes, or raises `Outpaced`: compare-and-swap on the tip of a branch."""

    through: ClassVar[Through] = "git"  # how commits are made

    def __init__(
        self, git: Git, repo: str, signer: Signer | None = None, cache_dir: str = ""
    ) -> None:
        self._remote = Remote(git, repo, cache_dir, files=True)
        # Nothing else uses what a history fetches.
        self._another = partial(Remote, git, repo, cache_dir, self._remote.clock)
        self._histories: list[History] = []
        self._signer = signer
        self._roots: dict[str, str] = {}  # commit → its tree
        self._messages: dict[str, str] = {}  # commit → its message
        self._trees: dict[str, Tree] = {}
        self._texts: dict[str, File] = {}  # blob → its content
        self._fetched: Mapping[
            str, str
        ] = {}  # branch → its tip, fetched but not read yet; "" if there is none
        self._base = ""  # the branch of the last snapshot

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
        """Return the branch that the remote's HEAD names. Raises `SourceError` if there is none.

        With `tip`, its tip is fetched too, because a run reads the branch next.
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
    ) -> Snapshot:
        """Return these places at the branch's present tip, all from one commit, and what its memory branch has.

        `places` is evaluated while the server is asked for the tip. `heads` are head branches that are read next. Their
        tips are fetched together with that of the base, and so are their files, and those that are wanted of the
        default branch. Raises `SourceError` if there is no such branch, and the errors of `task.git.errors`.
        """
        wanted = cache(lambda: tuple(dict.fromkeys(places)))

        name = self.default_branch() if branch in {"", "HEAD"} else base_branch_name(branch)

        def read() -> Snapshot:
            tips = self._fetched if name in self._fetched and not heads else {}
            tips = tips or self._remote.fetch_tips(
                name, heads, wanted, default=bool(default) and branch not in {"", "HEAD"}
            )
            known = {
                one: tip for one, tip in tips.items() if one in heads or (heads and stem_of(one))
            }
            self._base, self._fetched = name, {**dict.fromkeys(heads, ""), **known}
            also = [tip for tip in (*self._fetched.values(), tips.get("HEAD")) if tip]
            found = self._snapshot(name, tips[name], wanted(), also)
            if (other := tips.get("HEAD", found.tip)) != found.tip:
                found = replace(found, default=self._snapshot(name, other, default).files)
            memory = tips.get(memory_branch(self._remote.repo, name), "")
            if not memory:
                return found
            return replace(
                found,
                memory=self._snapshot(name, memory, [Place("", "files")]).files,
                memory_tip=memory,
            )

        return self._with_restarts(read)

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:
        """Return more places, at the commit of an earlier snapshot."""

        def read() -> Snapshot:
            # False if the server gave no single objects, and everything was discarded
            known = snapshot.tip in self._roots
            tip = snapshot.tip if known else self._remote.fetch_tip(snapshot.branch)
            found = self._snapshot(snapshot.branch, tip, places)
            return replace(found, memory=snapshot.memory, memory_tip=snapshot.memory_tip)

        return self._with_restarts(read)

    def head_snapshot(self, head: str, places: Collection[Place]) -> Head | None:
        """Return these places, and all that our commit changed, at a head branch's tip and at that commit's parent.

        None if there is no such branch.
        """
        name = branch_name(head)

        def read() -> Head | None:
            if name not in self._fetched and stem_of(name) and self._base:
                tips = self._remote.fetch_tips(self._base, [name])
                self._fetched = {
                    name: "",
                    **self._fetched,
                    **{one: at for one, at in tips.items() if stem_of(one)},
                }
            tip = self._fetched[name] if name in self._fetched else self._remote.fetch_head(name)
            self._fetched = {one: at for one, at in self._fetched.items() if one != name}
            if not tip:
                return None
            ours = commit_of(self._remote.objects, tip)
            if not is_marked(ours.message, ours.tree, name) or len(ours.parents) != 1:
                found = self._snapshot(name, tip, places)
                return Head(found.repo, name, tip, found.files, ours.message, by=ours.author)
            changed = changed_paths(self._tree, self._root(ours.parent), ours.tree)
            wanted = [*places, *map(Place, changed)]
            found = self._snapshot(name, tip, wanted, [ours.parent])
            before = self._snapshot(name, ours.parent, wanted)
            return Head(
                found.repo,
                name,
                tip,
                found.files,
                ours.message,
                before=before,
                changed=tuple(changed),
            )

        return self._with_restarts(read)

    def named_alike(self, head: str) -> list[str]:
        """Return the branches of ours that came with a head branch, and whose names differ only in their hash."""
        return sorted(
            one for one in self._fetched if one != head and stem_of(one) == stem_of(head) != ""
        )

    def earlier(
        self, branch: str, path: str, limit: int = 100, marked: Collection[str] = ()
    ) -> History:
        """Return the path's text at the branch's tip and the different ones before it, newest first. See `History`."""
        name = self.default_branch() if branch in {"", "HEAD"} else branch_name(branch)
        self._histories.append(History(self._another(), name, path, limit, marked))
        return self._histories[-1]

    def written(
        self, branch: str, pages: Sequence[Collection[str]], most: int
    ) -> Iterator[Mapping[str, Sequence[FileVersion]]]:
        """Yield the versions of each page of files, newest first, from one fetch of commits. See `versions_of`."""
        remote = self._another()
        try:
            of_files = [tuple(dict.fromkeys(paths)) for paths in pages]
            yield from versions_of(remote, base_branch_name(branch), of_files, most)
        finally:
            remote.close()

    def branches(self, beginnings: Collection[str]) -> list[str]:
        """Return the names of all branches with one of these prefixes, in order."""
        return self._remote.branches(beginnings)

    def remember(self, change: Changeset) -> Landing:
        """Replace the memory branch, `change.head`, by these files. Without any, the branch goes.

        Raises `Outpaced` if it is not at `change.head_commit` any more.
        """
        made = self._imported(change) if change.files else Landing("", "")
        commit = self._signed(change, made)
        self._push(change.head, commit, change.head_commit or "", (), replaces=True)
        return Landing(commit, made.tree)

    def drop(self, head: str, was: str) -> None:
        """Delete a head branch that is at `was`. Raises `Outpaced` if it has moved."""
        self._push(head, "", was, (), replaces=True)

    def predict(self, change: Changeset) -> Landing:
        """Return what `land` would return, without a commit. Nothing is sent."""
        _, made, _ = self._with_restarts(lambda: self._prepared(change))
        return replace(made, commit="") if made.pushed else made

    def land(self, change: Changeset) -> Landing:
        """Commit on the tip that was read, and push. Raises `Outpaced` if the branch has moved since.

        A head branch of ours is created, or replaced if it has not moved, and bears our mark. No other is replaced.
        """
        change, made, there = self._with_restarts(lambda: self._prepared(change))
        return replace(made, commit=self._send(change, made, there)) if made.pushed else made

    def _send(self, change: Changeset, made: Landing, there: str) -> str:
        """Push the commit, signed if required, and return its id. `there` is the tip of the head branch, or ""."""
        base, head = change.base, change.head
        commit, replaces = self._signed(change, made), head != base and not change.on_top
        was = there if replaces else change.tip
        self._push(head, commit, was, change.push_options, replaces=replaces)
        return commit

    def _signed(self, change: Changeset, made: Landing) -> str:
        """Return the same commit, signed if that is required."""
        if self._signer is None or not made.commit:
            return made.commit
        folder, message = self._remote.ready(), _plain_message(change)
        return self._signer.commit(folder, made.tree, change.tip, message, change.author)

    def _prepared(self, change: Changeset) -> tuple[Changeset, Landing, str]:
        """Make the commit. Return the changeset with its whole message, what `land` returns, and the head branch's tip.

        The landing is not `pushed` if a branch has exactly this on the same tip. On an older tip, the same files may
        still conflict with changes to the base. The head branch's tip is "" if it is absent or the base itself.
        """
        head, there = change.head, ""
        replaces = head != change.base and not change.on_top
        made = self._make(change)
        if replaces:
            change = replace(change, message=marked(change.message, made.tree, head))
            made = self._make(change)
        if made.tree == self._root(change.tip):
            return change, Landing(change.tip, made.tree, pushed=False), there
        if replaces:
            there = (
                self._remote.fetch_head(head) if change.head_commit is None else change.head_commit
            )
        # What was read of the head branch is gone after a restart.
        if (
            there
            and change.head_commit
            and there not in self._roots
            and self._remote.fetch_head(head) != there
        ):
            raise Outpaced(f"{head} is no longer at {there}")
        same = there and self._root(there) == made.tree
        if same and change.tip in commit_of(self._remote.objects, there).parents:
            made = Landing(there, made.tree, pushed=False)
        return change, made, there

    def _snapshot(
        self, branch: str, tip: str, places: Collection[Place], also: Collection[str] = ()
    ) -> Snapshot:
        """Return the places at a commit. The files of other commits, `also`, are fetched together with its own."""
        roots = [self._root(commit) for commit in (tip, *also)]
        seen = [
            [found for place in places for found in look(self._tree, root, place)] for root in roots
        ]
        wanted = sorted(
            {entry.oid for one in seen for _, entry, text in one if text} - self._texts.keys()
        )
        if wanted:
            self._remote.fetch_files(wanted, branch)
            self._texts.update(
                (oid, file_of(blob)) for oid, blob in self._remote.objects.read(wanted).items()
            )
        files = {path: File("", entry.mode) for path, entry, _ in seen[0]}
        files |= {
            path: replace(self._texts[entry.oid], mode=entry.mode)
            for path, entry, text in seen[0]
            if text
        }
        return Snapshot(self._remote.repo, branch, tip, files, self._messages[tip])

    def _root(self, commit: str) -> str:
        if commit not in self._roots:
            content = self._remote.objects.read([commit])[commit] or b""
            self._roots[commit] = content[len("tree ") :].partition(b"\n")[0].decode()
            self._messages[commit] = content.partition(b"\n\n")[2].decode("utf-8", "replace")
        return self._roots[commit]

    def _tree(self, oid: str) -> Tree:
        if oid not in self._trees:
            content = self._remote.objects.read([oid])[oid]
            if content is None:
                message = (
                    f"the list of names of one folder is larger than {LARGEST // 1_000_000} MB"
                )
                hint = "move its files into several folders"
                raise SourceError(message, hint=hint, subject=self._remote.repo)
            self._trees[oid] = parse_tree(content, len(oid) // 2)
        return self._trees[oid]

    def _with_restarts(self, work: Callable[[], T]) -> T:
        """Do the work.

        Do it again in an empty repository if the server gives no single objects, or the cache is broken.
        """
        return restarted(self._remote, work, self._forget)

    def _make(self, change: Changeset) -> Landing:
        """Make the commit in the throw-away repository."""
        under = change.head if change.on_top else change.base
        if change.tip not in self._roots and self._remote.fetch_tip(under) != change.tip:
            raise Outpaced(f"{under} is no longer at {change.tip}")
        self._refuse_odd_paths(change)
        try:
            return self._imported(change)
        except GitFailed as error:
            self._remote.without_cache()
            raise git_errors.failure(error.err, self._remote.subject(change.base)) from error

    def _imported(self, change: Changeset) -> Landing:
        """Make the commit with `git fast-import`, on `change.tip` ("" has no parent).

        It rewrites just the trees on the way to the files, without an index or work tree, for any number of files.
        """
        argv = ("fast-import", "--quiet", "--force", "--date-format=now", "--done")
        commit, tree = (
            self._remote.local(*argv, stdin=_import_stream(change)).decode().split("\n")[:2]
        )
        return Landing(commit, tree.split()[2], through=self.through)

    def _refuse_odd_paths(self, change: Changeset) -> None:
        """Refuse paths with which fast-import would replace a link by a folder, or write `.git/config`."""
        subject = self._remote.subject(change.base)
        for path in change.files:
            if "\0" in path or not _NO_NAMES.isdisjoint(path.lower().split("/")):
                hint = "name another path in write-back-target"
                raise TargetError(
                    f"{blanked(path)!r} is not a path that Git can store",
                    hint=hint,
                    subject=subject,
                )
        root = self._root(change.tip)
        for path, entry, _ in chain.from_iterable(
            look(self._tree, root, Place(one, "exists")) for one in change.files
        ):
            if not (path in change.files and entry.is_file):
                message = f"{blanked(path)!r} is in the way of a file that is to be written"
                raise TargetError(
                    message, hint="move or delete it, or write to another path", subject=subject
                )

    def _push(
        self, head: str, commit: str, was: str, options: Sequence[str], *, replaces: bool
    ) -> None:
        send = partial(self._remote.push, head, commit, was, options, replaces=replaces)
        land_once(send, lambda: self._remote.contains(head, commit), "whether the push arrived")


# The mark of a head branch that is ours: a trailer with the tree of the very commit that has it. Only a commit that is
# a whole head gets one. Who amends it, or commits on top of it, makes the branch their own. A branch that somebody
# begins at such a commit has another name, and is theirs as well.
TREE, HEAD = "Image-Update-Tree", "Image-Update-Head"


def marked(message: str, tree: str, head: str) -> str:
    """Return the message of a commit with this tree, with the mark. A name that is not like ours is named in it."""
    lines = f"{TREE}: {tree}\n" + ("" if head.startswith(OURS) else f"{HEAD}: {head}\n")
    text = message.rstrip("\n")
    last = text.rpartition("\n\n")[2]
    trailers = "\n\n" in text and all(": " in line for line in last.split("\n"))
    return f"{text}\n{lines}" if trailers else f"{text}\n\n{lines}"


def is_marked(message: str, tree: str, head: str) -> bool:
    """Tell whether a commit with this message and tree is a whole head of ours, for the branch of this name."""
    own_name = head.startswith(OURS) or trailer_of(message, HEAD) == head
    return own_name and trailer_of(message, TREE) == tree


def _import_stream(change: Changeset) -> bytes:
    """Return the whole input: one commit on `change.tip` ("" has no parent), with message and texts byte for byte."""
    name, email = _plain(change.author.name), _plain(change.author.email)
    who = f"{name or email} <{email}> now"
    parts = [
        f"commit {_WORK}\nmark :1\nauthor {who}\ncommitter {who}\n".encode(),
        _data(_plain_message(change)),
        f"from {change.tip}\n".encode() if change.tip else b"",
    ]
    for path, file in sorted(change.files.items()):
        quoted = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        if not file.mode:  # the file is deleted
            parts.append(f'D "{quoted}"\n'.encode("utf-8", "surrogateescape"))
            continue
        parts += [
            f'M {file.mode} inline "{quoted}"\n'.encode("utf-8", "surrogateescape"),
            _data(file.text),
        ]
    return b"".join(parts) + b'\nget-mark :1\nls :1 ""\ndone\n'


def _plain_message(change: Changeset) -> str:
    """Return the message as bytes that a commit can have."""
    return change.message.replace("\0", "")


def _data(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    return b"data %d\n%b\n" % (len(raw), raw)


def _plain(text: str) -> str:
    """Return a name or an address without the characters that are special in git's format."""
    return one_line(text.replace("<", " ").replace(">", " "))
