"""Settings → Edges: the only file that constructs edges, and the tables of what there is."""

from __future__ import annotations

import os
import time
from _thread import allocate_lock
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from task import stop
from task.edges.applications.manifests import Manifests
from task.edges.log import Log
from task.errors import UsageError
from task.find import Manifest
from task.light import libyaml_parser, once
from task.pipeline import Edges, Store
from task.settings import AccessSettings, GitSettings, Settings

if TYPE_CHECKING:
    from task.edges.access import Access
    from task.edges.git import Git
    from task.edges.lineage import Lineage
    from task.edges.signing import Signer

# Variables that hold a secret, beside the options: secrets are never arguments.
SECRETS = (
    "IMAGE_UPDATE_GIT_TOKEN", "IMAGE_UPDATE_GIT_PASSWORD", "IMAGE_UPDATE_SSH_KEY", "IMAGE_UPDATE_GITHUB_APP_KEY",
    "GITHUB_TOKEN",
)  # fmt: skip
LONGEST_TURN = 10.0  # seconds to wait for another run on this machine that is at the same branch
CHOICES = "a file or folder of manifests, - (stdin), or REPO//PATH?ref=REF"


def edges_of(settings: Settings, environ: Mapping[str, str], log: Log) -> Edges:
    """The world as these settings want it."""
    opened = ExitStack()
    git = _gits(settings, environ, log, opened)
    signer = _signers(settings.git, git, opened)
    reading = _stores(git, signer, settings.git.cache_dir)
    in_turn = min(LONGEST_TURN, settings.git.deadline / 4)
    store = _stores(git, signer, settings.git.cache_dir, in_turn=in_turn) if settings.command != "plan" else reading
    return Edges(
        applications=lambda: _applications(settings, reading),
        locate=_locate(git),
        store=store,
        now=time.monotonic,
        sleep=stop.sleep,
        jitter=_jitter,
        log=log,
        ancestry=_ancestry(git, log, opened),
        close=opened.close,
    )


def _ancestry(git: Callable[[], Git], log: Log, opened: ExitStack) -> Callable[[str, str, str], str]:
    """How a source commit stands to another; asked by several repositories at the same time, one after the other."""
    lock = allocate_lock()

    @once
    def lineage() -> Lineage:
        from task.edges.lineage import Lineage

        found = Lineage(git())
        opened.callback(found.close)
        return found

    def ancestry(repository: str, new: str, old: str) -> str:
        with lock:
            kin = lineage().order(repository, old, new)
        if kin.why:
            log("warning", f"the order of {new[:12]} and {old[:12]} is not known: {kin.why}")
        return str(kin.order)

    return ancestry


def _of_git(sentence: str, log: Log) -> None:
    warning = sentence.startswith(("warning: ", "git: warning: "))
    log("warning" if warning else "debug", sentence.replace("warning: ", "", 1))


def _jitter() -> float:
    return int.from_bytes(os.urandom(2)) / 0xFFFF


def _applications(settings: Settings, store: Callable[[str], Store]) -> Iterable[Manifest]:
    if not settings.applications:
        raise UsageError("no source of Applications given", hint=f"name one with --applications: {CHOICES}")
    for source in settings.applications:
        yield from _source(source, store)


def _source(source: str, store: Callable[[str], Store]) -> Iterable[Manifest]:
    """The table of application sources, by the shape of the text."""
    if source in ("cluster", "argocd"):
        raise UsageError(f"--applications {source} is not supported by this version", hint=f"give {CHOICES}")
    repo, marker, path = _repository(source)
    if marker and not os.path.exists(source):
        from task.edges.applications.git_manifests import GitManifests

        return GitManifests(store(repo), path).all()
    return Manifests(source).all()


def _repository(source: str) -> tuple[str, str, str]:
    """`REPO//PATH?ref=REF` → (REPO, "//", PATH?ref=REF); the `//` of a scheme is no marker."""
    start = source.find("://")
    start = start + 3 if start >= 0 else 1
    at = source.find("//", start)
    return (source, "", "") if at < 0 else (source[:at], "//", source[at + 2 :])


def _gits(settings: Settings, environ: Mapping[str, str], log: Log, opened: ExitStack) -> Callable[[], Git]:
    """The one door to git, opened when first needed; but credentials that make no sense are an error at once."""
    access = _access(settings.git.access, environ)

    @once
    def git() -> Git:
        from task.edges.git import Git

        door = Git(
            environ,
            protocols=settings.git.protocols,
            rewrites=settings.git.rewrites,
            access=access,
            configured=settings.git.access.configured,
            stall=settings.git.stall,
            patience=min(20.0, settings.git.deadline),
            meanwhile=libyaml_parser,  # what Git sends will be read with it
            log=lambda sentence: _of_git(sentence, log),
        )
        opened.callback(door.close)
        return door

    return git


def _access(given: AccessSettings, environ: Mapping[str, str]) -> Access | None:
    """What was given to log in with; None where that is nothing."""
    if given._replace(configured=True) == AccessSettings() and not any(environ.get(name) for name in SECRETS):
        return None
    from task.edges.credentials import access_of

    return access_of(given, environ)


def _signers(given: GitSettings, git: Callable[[], Git], opened: ExitStack) -> Callable[[], Signer | None]:
    """Who signs the commits; nobody without a key. Raises `UsageError` for a key that is none."""
    if not given.signing_key:
        return lambda: None
    from task.edges.signing import Signer, key_of

    key = key_of(given.signing_key, given.signing_format)

    @once
    def signer() -> Signer:
        found = Signer(git(), key)
        opened.callback(found.close)
        return found

    return signer


def _stores(
    git: Callable[[], Git], signer: Callable[[], Signer | None], cache_dir: str, *, in_turn: float = 0
) -> Callable[[str], Store]:
    def store(repo: str) -> Store:
        from task.edges.stores.bare import BareStore

        return BareStore(git(), repo, signer(), cache_dir, in_turn=in_turn)

    return store


def _locate(git: Callable[[], Git]) -> Callable[[str], tuple[str, str, str] | None]:
    def locate(origin: str) -> tuple[str, str, str] | None:
        from task.edges.applications.work_tree import locate as find

        path, _, _line = origin.rpartition(":")
        found = find(path, git())
        return (found.repo, found.branch, found.path) if found else None

    return locate
