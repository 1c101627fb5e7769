"""Settings → Edges: the only place that constructs edges, and the tables of what there is."""

from __future__ import annotations

import os
import time
from _thread import allocate_lock
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack

from task import shutdown
from task.applications.files import Manifests
from task.applications.git import GitManifests
from task.applications.work_tree import locate as find
from task.errors import UsageError
from task.git.ancestry import Lineage
from task.git.command import Git
from task.model import Image, Problem, Subscription
from task.once import once
from task.output.log import Log
from task.pipeline.discover import FoundManifest, Scope
from task.pipeline.job import Landed
from task.pipeline.ports import Repository, World
from task.pipeline.verify import Signatures
from task.registry.client import Registry
from task.settings import RegistrySettings, Settings
from task.wiring.argo import TOKENS as ARGO_TOKENS
from task.wiring.argo import Argo, sources
from task.wiring.follow import Follow
from task.wiring.forges import TOKENS as FORGE_TOKENS
from task.wiring.forges import Requests
from task.wiring.git import SECRETS as GIT_SECRETS
from task.wiring.git import Doors, FromCluster, signers
from task.wiring.progress import told
from task.wiring.registries import registry_of, signatures_of
from task.wiring.waiting import Descends, descent

# Variables that hold a secret, beside the options: secrets are never arguments.
SECRETS = (*GIT_SECRETS, *ARGO_TOKENS, *FORGE_TOKENS, "IMAGE_UPDATE_REGISTRY_PASSWORD", "IMAGE_UPDATE_CLOUDEVENT_TOKEN")
CHOICES = "cluster, argocd, a file or folder of manifests, - (stdin), or REPO//PATH?ref=REF"


def edges_of(
    settings: Settings, environ: Mapping[str, str], log: Log, scope: Scope | None = None, images: Sequence[Image] = ()
) -> World:
    """The world as these settings want it; scope and images narrow what is read of a cluster."""
    opened = ExitStack()
    doors = Doors(settings, environ, log, opened)
    argo = Argo(settings, environ, log, opened)
    signer = signers(settings.git, doors.git, opened)
    from_cluster = argo.plan if argo.kind == "cluster" else None
    if settings.argo.wait and not settings.dry:
        argo.check()
    ancestry = _ancestry(doors.git, log, opened)
    registry = _registry(settings, opened, argo)
    requests = Requests(settings, environ, log, opened, doors.logins)
    world = World(
        applications=lambda: _applications(settings, doors.repository(signer, None), argo, scope, images),
        locate=_locate(doors.git),
        repository=doors.repository(signer, from_cluster),
        now=time.monotonic,
        sleep=shutdown.sleep,
        jitter=_jitter,
        log=log,
        ancestry=ancestry,
        registry=lambda questions: registry().answer(questions),
        signatures=_signatures(settings, registry, argo),
        forge=requests.of,
        compare=requests.compare,
        live=argo.live if argo.kind else None,
        follow=_follow(settings, argo, requests, _descends(doors, from_cluster, log)),
        passed_over=argo.passed_over,
        login=lambda sub: argo.login(sub) if from_cluster and not doors.given_for(sub.repo) else "",
        close=opened.close,
    )
    if log.terminal is None or environ.get("CI"):
        return world
    return told(world, log, waits=settings.argo.wait)


def _registry(settings: Settings, opened: ExitStack, argo: Argo) -> Callable[[], Registry]:
    @once
    def registry() -> Registry:
        return registry_of(settings, opened, argo)

    if settings.registry != RegistrySettings() or argo.environ.get("IMAGE_UPDATE_REGISTRY_PASSWORD"):
        registry()  # what was given and makes no sense is said at once
    return registry


def _signatures(settings: Settings, registry: Callable[[], Registry], argo: Argo) -> Signatures | None:
    if not settings.verify.wanted:
        return None
    return signatures_of(settings, registry(), argo)


def _follow(
    settings: Settings, argo: Argo, requests: Requests, descends: Descends
) -> Callable[[Sequence[Landed]], Sequence[Problem]]:
    if settings.dry or not (argo.kind or settings.argo.wait):
        return lambda _landed: ()

    def follow(landed: Sequence[Landed]) -> Sequence[Problem]:
        return Follow(settings, argo, requests, descends)(landed)

    return follow


def _descends(doors: Doors, from_cluster: FromCluster | None, log: Log) -> Descends:
    """How a revision that Argo CD compares with stands to the commit that was written."""

    def descends(sub: Subscription | None, repo: str, revision: str, commit: str) -> str:
        return descent(lambda: doors.door(repo, sub, from_cluster), repo, (revision, commit), log)

    return descends


def _ancestry(git: Callable[[], Git], log: Log, opened: ExitStack) -> Callable[[str, str, str], str]:
    """How a source commit stands to another; asked by several repositories at the same time, one after the other."""
    lock = allocate_lock()

    @once
    def lineage() -> Lineage:
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


def _jitter() -> float:
    return int.from_bytes(os.urandom(2)) / 0xFFFF


def _applications(
    settings: Settings,
    repository: Callable[[str, Subscription | None], Repository],
    argo: Argo,
    scope: Scope | None,
    images: Sequence[Image],
) -> Iterable[FoundManifest]:
    found = sources(settings, argo.environ)
    if not found:
        raise UsageError("no source of Applications given", hint=f"name one with --applications: {CHOICES}")
    for source in found:
        if source in ("cluster", "argocd") and scope is not None:
            yield from argo.manifests(source, scope, images)
        else:
            yield from _source(source, repository)


def _source(source: str, repository: Callable[[str, Subscription | None], Repository]) -> Iterable[FoundManifest]:
    """The table of application sources, by the shape of the text."""
    repo, marker, path = _repository(source)
    if marker and not os.path.exists(source):
        return GitManifests(repository(repo, None), path).all()
    return Manifests(source).all()


def _repository(source: str) -> tuple[str, str, str]:
    """`REPO//PATH?ref=REF` → (REPO, "//", PATH?ref=REF); the `//` of a scheme is no marker."""
    start = source.find("://")
    start = start + 3 if start >= 0 else 1
    at = source.find("//", start)
    return (source, "", "") if at < 0 else (source[:at], "//", source[at + 2 :])


def _locate(git: Callable[[], Git]) -> Callable[[str], tuple[str, str, str] | None]:
    def locate(origin: str) -> tuple[str, str, str] | None:
        path, _, _line = origin.rpartition(":")
        found = find(path, git())
        return (found.repo, found.branch, found.path) if found else None

    return locate
