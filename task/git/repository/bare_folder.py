"""The throw-away bare repository of one store: three files and two folders, created without a process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from task import shutdown
from task.errors import UnreachableError
from task.files import remove_folder, temporary_folder
from task.git.owner import Local
from task.git.repository.cache import Cache, Kept

REMOTE = "image-update"  # not "origin", because a user's git configuration may have settings for that

# A user's or system's settings must not change what a run does.
# Of 40 processors git makes 20 threads, and their stacks alone may be more memory than it may use (`Bounds`).
_CONFIG = """\
[core]
	repositoryformatversion = 1
	bare = true
	hooksPath = /dev/null
	attributesFile = /dev/null
	logAllRefUpdates = false
	fsync = none
	pager = cat
[extensions]
	objectFormat = {format}
{partial}[remote "{remote}"]
	url = {url}
	tagOpt = --no-tags
{promisor}{local}[protocol]
	version = 2
[fetch]
	unpackLimit = 1
	recurseSubmodules = no
	writeCommitGraph = false
	fsckObjects = false
	prune = false
	pruneTags = false
	showForcedUpdates = false
[transfer]
	fsckObjects = false
	bundleURI = false
[fastimport]
	unpackLimit = 0
[pack]
	threads = 2
[push]
	gpgSign = false
	followTags = false
	recurseSubmodules = no
	pushOption =
	negotiate = false
[submodule]
	recurse = false
[http]
	lowSpeedLimit = 1
	lowSpeedTime = {stall}
[gc]
	auto = 0
[maintenance]
	auto = false
[color]
	ui = false
[advice]
	fetchShowForcedUpdates = false
	pushUpdateRejected = false
"""
_PARTIAL = f"\tpartialClone = {REMOTE}\n"
_PROMISOR = "\tpromisor = true\n\tpartialCloneFilter = blob:none\n"
# A local repository is served by our own git: it may filter. Its configuration is its own, and not ours, so that a
# `safe.directory` of the user has to be said once more.
_LOCAL = """\
	uploadpack = "git -c uploadpack.allowFilter=true -c uploadpack.allowAnySHA1InWant=true{safe} upload-pack"
	receivepack = "git{safe} receive-pack"
"""
_SAFE = " -c safe.directory=*"


class BareFolder:
    """A bare repository in its own folder, which only this user can read. `close` removes it."""

    def __init__(self, parent: str, url: str, *, local: Local, stall: float, cache: Cache | None = None) -> None:
        self.path = ""
        self._parent = parent
        self._url = url
        self._local = local
        self._stall = stall
        self.cache = cache
        self.kept = Kept()  # what the cache may keep of it
        self.object_format = "sha1"

    def create(self) -> None:
        """Create it if it does not exist. Raises `UnreachableError` if there is no room."""
        if self.path:
            return
        with shutdown.shield():
            self.path = temporary_folder(self._parent)
        with self._room():
            os.mkdir(f"{self.path}/objects")
            os.mkdir(f"{self.path}/refs")
        self._write("HEAD", "ref: refs/heads/none\n")
        self._borrow()
        self.partial()

    def _borrow(self) -> None:
        """Let git use what earlier runs have fetched."""
        if self.cache is None:
            return
        if self.cache.open(self.object_format):
            self.cache = None
            return
        with self._room():
            os.mkdir(f"{self.path}/objects/info")
        self._write("objects/info/alternates", f"{_quoted(self.cache.objects)}\n")
        if tip := self.cache.kept().tip:
            self._write("packed-refs", f"{tip} refs/image-update/kept\n")
            self._write("shallow", f"{tip}\n")

    def restart(self, object_format: str) -> None:
        """Start again with an empty one, for the other kind of object ids."""
        self.close()
        self.object_format = object_format
        self.create()

    def partial(self) -> None:
        """For fetching: objects may be missing, because the remote has them."""
        self._configure(_PARTIAL, _PROMISOR)

    def complete(self) -> None:
        """For pushing: pretend that no object is missing, or `pack-objects` would fetch every object that it visits."""
        self._configure("", "")

    def _configure(self, partial: str, promisor: str) -> None:
        local = _LOCAL.format(safe=_SAFE if self._local == "safe" else "") if self._local else ""
        text = _CONFIG.format(
            partial=partial, promisor=promisor, remote=REMOTE, url=_quoted(self._url), format=self.object_format,
            local=local, stall=max(round(self._stall), 1),
        )  # fmt: skip
        self._write("config", text)

    def _write(self, name: str, text: str) -> None:
        with self._room(), open(f"{self.path}/{name}", "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)

    @contextmanager
    def _room(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            message = f"cannot make a temporary folder in {self._parent}: {error.strerror}"
            raise UnreachableError(message, hint="free some space, or set TMPDIR to another folder") from error

    def close(self) -> None:
        """Remove it, with everything in it."""
        if self.path:
            if self.cache:
                self.cache.keep(f"{self.path}/objects", self.kept)
            remove_folder(self.path)
            self.path = ""


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
