"""A store's temporary bare repository, created without starting a process.

The repository may use packs that earlier runs fetched from the same server repository
(`--git-cache-dir`). Packs are named after their content and appear atomically, so any number of
runs can read and add packs at the same time without a lock. The cache is optional: unreadable packs
are fetched again, and broken packs are removed.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from shutil import copyfileobj
from typing import IO

from task import shutdown
from task.errors import UnreachableError
from task.files import remove_folder, temporary_folder
from task.git.command import Git

# The number of packs is limited, because git searches each of them. Later packs depend on earlier
# ones, so all of them are removed together.
_MOST_PACKS = 100
_BYTES_AT_ONCE = 1 << 20  # bytes
_LONGEST = 100  # maximum bytes in the file that stores the last tip
_TIP_NOTES = {
    name: re.compile(rb"([0-9a-f]{%d}) (whole|trees)\s*" % length)
    for name, length in (("sha1", 40), ("sha256", 64))
}
_PACK_SUFFIXES = (".rev", ".promisor", ".pack", ".idx")  # in the order of copying


@dataclass(frozen=True)
class CachedTip:
    """The last tip whose trees and, if `whole`, files are all in the cached packs. The tip is "" if
    there is none.
    """

    tip: str = ""
    whole: bool = False  # True if the server does not support filters


class Cache:
    """A repository's cache folder."""

    def __init__(self, parent: str, url: str) -> None:
        digest = hashlib.sha256(url.encode(errors="replace")).hexdigest()
        self._folder = os.path.abspath(os.path.join(parent, digest[:32]))
        self._parent = parent
        self._format = "sha1"

    @property
    def objects(self) -> str:
        """The folder that git searches for objects."""
        return f"{self._folder}/{self._format}"

    def open(self, object_format: str) -> str:
        """Prepare the cache for use. If the cache cannot be used, return the reason, else ""."""
        self._format = object_format
        try:
            os.makedirs(f"{self.objects}/pack", mode=0o700, exist_ok=True)
        except OSError as error:
            return f"{self._parent} cannot be used as --git-cache-dir: {error.strerror}"
        return ""

    def last_tip(self) -> CachedTip:
        """Return the last saved tip. If there is none, or if its file cannot be read, return an
        empty `CachedTip`. After a machine crash, the file may contain anything.

        Git reports this tip to the server, so that the server sends only new objects.
        """
        with suppress(OSError), open(f"{self.objects}/tip", "rb") as file:
            match = _TIP_NOTES[self._format].fullmatch(file.read(_LONGEST))
            if match:
                tip, completeness = match.groups()
                return CachedTip(tip.decode(), whole=completeness == b"whole")
        return CachedTip()

    def add_packs(self, objects: str, cached_tip: CachedTip) -> None:
        """Copy a run's packs from the folder `objects` to the cache, and save `cached_tip`, whose
        objects are now in the cache.

        If there are too many packs, remove all of them. Failing to write a file is not an error.
        """
        with suppress(OSError):
            for name in sorted(os.listdir(f"{objects}/pack")):
                if name.endswith(".idx"):
                    pack_name = name.removesuffix(".idx")
                    self._copy_pack(f"{objects}/pack/{pack_name}")

            if cached_tip.tip:
                completeness = "whole" if cached_tip.whole else "trees"
                note = f"{cached_tip.tip} {completeness}"
                self._write_atomically(f"{self.objects}/tip", BytesIO(note.encode()))

            names = os.listdir(f"{self.objects}/pack")
            indexes = [name for name in names if name.endswith(".idx")]
            if len(indexes) > _MOST_PACKS:
                self.drop()

    def drop(self) -> None:
        """Remove the whole cache, because it is corrupt."""
        # Rename the folder first, so that other runs never see a half-removed cache.
        aside = f"{self._folder}.{os.urandom(4).hex()}"
        with suppress(OSError):
            os.rename(self._folder, aside)
        remove_folder(aside)

    def _copy_pack(self, pack: str) -> None:
        """Copy a pack to the cache, unless it is already there. `pack` is the pack's path without a
        suffix.
        """
        target = f"{self.objects}/pack/{os.path.basename(pack)}"
        if os.path.exists(f"{target}.idx"):
            return
        for suffix in _PACK_SUFFIXES:  # .idx comes last, so that git finds only complete packs
            with suppress(FileNotFoundError), open(pack + suffix, "rb") as file:
                self._write_atomically(target + suffix, file)

    @staticmethod
    def _write_atomically(path: str, content: IO[bytes]) -> None:
        """Copy a file atomically.

        The file is copied in parts, because a pack may be larger than the step's memory.
        """
        temporary_path = f"{path}.{os.urandom(4).hex()}.tmp"
        try:
            with open(temporary_path, "wb") as file:
                copyfileobj(content, file, _BYTES_AT_ONCE)
            os.rename(temporary_path, path)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary_path)
            raise


# not "origin", because a user's git configuration may have settings for that name
REMOTE = "image-update"

# The user's and the system's git settings must not affect the result of a run. Threads are limited,
# because on 40 processors, git starts 20, whose stacks alone may exceed the memory limit
# (`Bounds`).
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
{promisor}{local}[protocol] version = 2
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
[fastimport] unpackLimit = 0
[pack] threads = 2
[push]
	gpgSign = false
	followTags = false
	recurseSubmodules = no
	pushOption =
	negotiate = false
[submodule] recurse = false
[http]
	lowSpeedLimit = 1
	lowSpeedTime = {stall}
[gc] auto = 0
[maintenance] auto = false
[color] ui = false
[advice]
	fetchShowForcedUpdates = false
	pushUpdateRejected = false
"""
_PARTIAL = f"\tpartialClone = {REMOTE}\n"
_PROMISOR = "\tpromisor = true\n\tpartialCloneFilter = blob:none\n"
# Our own git also serves local repositories, so allow filters. As the server, git reads the
# repository's configuration, not ours, so the user's `safe.directory` has to be passed again.
_LOCAL = """\
	uploadpack = "git -c uploadpack.allowFilter=true -c uploadpack.allowAnySHA1InWant=true{safe} upload-pack"
	receivepack = "git{safe} receive-pack"
"""
_SAFE = " -c safe.directory=*"


@dataclass(frozen=True)
class CheckoutObjects:
    """The objects of a checkout on this machine. The checkout is never modified."""

    objects: str  # the folder
    shallow: str = ""  # the content of the checkout's `shallow` file
    object_format: str = "sha1"


class BareFolder:
    """A bare repository in a private folder. `close` removes it."""

    def __init__(self, git: Git, url: str) -> None:
        self.path = ""
        self._parent = git.temporary
        self._url = url
        self._local = git.local(url)
        self._stall = git.stall
        self.cache: Cache | None = None
        self.checkout_objects: CheckoutObjects | None = None
        self.tip_to_cache = CachedTip()  # the tip to save in the cache, if any
        self.object_format = "sha1"

    def create(self) -> None:
        """Create the repository if it does not exist. Raises `UnreachableError` if the disk is
        full.
        """
        if self.path:
            return
        with shutdown.shield():
            self.path = temporary_folder(self._parent)
        with self._explain_write_error():
            os.makedirs(f"{self.path}/objects/info")
            os.mkdir(f"{self.path}/refs")
            self._write("HEAD", "ref: refs/heads/none\n")
            self._use_cache()
            if self.checkout_objects:  # without a cache
                self._write(
                    "objects/info/alternates", f"{_config_quoted(self.checkout_objects.objects)}\n"
                )
                if self.checkout_objects.shallow:
                    self._write("shallow", self.checkout_objects.shallow)
        self.partial()

    def _use_cache(self) -> None:
        """Write the files that make git read the cached objects, and report the cached tip to the
        server. If the cache cannot be opened, work without it.
        """
        if self.cache is None:
            return
        problem = self.cache.open(self.object_format)
        if problem:
            self.cache = None
            return
        self._write("objects/info/alternates", f"{_config_quoted(self.cache.objects)}\n")
        tip = self.cache.last_tip().tip
        if tip:
            self._write("packed-refs", f"{tip} refs/image-update/kept\n")
            self._write("shallow", f"{tip}\n")  # the cache does not contain the tip's history

    def restart(self, object_format: str) -> None:
        """Start over with an empty repository in this object format."""
        self.close()
        self.object_format = object_format
        self.create()

    def partial(self) -> str:
        """Prepare the repository for a fetch, and return its path. Git then assumes that all
        missing objects are on the remote.
        """
        return self._configured(_PARTIAL, _PROMISOR)

    def complete(self) -> str:
        """Prepare the repository for all commands except fetches, and return its path. Git then
        assumes that no objects are missing.

        Otherwise, `pack-objects` would fetch every object that it visits, and `cat-file` every
        missing object.
        """
        return self._configured("", "")

    def _configured(self, partial: str, promisor: str) -> str:
        """Write the repository's configuration file, and return the repository's path.

        `partial` and `promisor` are lines for the file's sections `extensions` and `remote`, or "".
        """
        local = ""  # additional lines if the remote is on this machine
        if self._local:
            local = _LOCAL.format(safe=_SAFE if self._local == "safe" else "")
        text = _CONFIG.format(
            partial=partial,
            promisor=promisor,
            remote=REMOTE,
            url=_config_quoted(self._url),
            format=self.object_format,
            local=local,
            stall=max(round(self._stall), 1),
        )
        with self._explain_write_error():
            self._write("config", text)
        return self.path

    def _write(self, name: str, text: str) -> None:
        with open(f"{self.path}/{name}", "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)

    @contextmanager
    def _explain_write_error(self) -> Iterator[None]:
        """Turn an error from writing a file inside the block into an `UnreachableError`."""
        try:
            yield
        except OSError as error:
            message = f"cannot create a temporary folder in {self._parent}: {error.strerror}"
            raise UnreachableError(
                message,
                hint="free some space, or set TMPDIR to another folder",
            ) from error

    def close(self) -> None:
        """Remove the repository."""
        if self.path:
            if self.cache:
                self.cache.add_packs(f"{self.path}/objects", self.tip_to_cache)
            remove_folder(self.path)
            self.path = ""


def _config_quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
