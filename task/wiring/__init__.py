"""Settings → World: the only place that constructs clients, and the table of application sources."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack

from task import shutdown
from task.applications.git import GitManifests
from task.applications.manifest_files import Manifests
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
from task.settings import RegistrySettings, Settings
from task.wiring.argo import TOKENS as ARGO_TOKENS
from task.wiring.argo import Argo, sources
from task.wiring.follow import Follow
from task.wiring.forges import TOKENS as FORGE_TOKENS
from task.wiring.forges import ForgeClients
from task.wiring.git import SECRETS as GIT_SECRETS
from task.wiring.git import GitClients, signers
from task.wiring.registries import registry_of, signatures_of
from task.wiring.waiting import descent

# Variables that hold a secret, beside the options: secrets are never arguments.
SECRETS = (*GIT_SECRETS, *ARGO_TOKENS, *FORGE_TOKENS, "IMAGE_UPDATE_REGISTRY_PASSWORD", "IMAGE_UPDATE_CLOUDEVENT_TOKEN")
CHOICES = "cluster, argocd, a file or folder of manifests, - (stdin), or REPO//PATH?ref=REF"


def world_of(
    settings: Settings, environ: Mapping[str, str], log: Log, scope: Scope | None = None, images: Sequence[Image] = ()
) -> World:
    """The world as these settings want it; scope and images narrow what is read of a cluster."""
    opened = ExitStack()
    clients = GitClients(settings, environ, log, opened)
    argo = Argo(settings, environ, log, opened)
    signer = signers(settings.git, clients.git, opened)
    from_cluster = argo.plan if argo.kind == "cluster" else None
    if settings.argo.wait and not settings.dry:
        argo.check()
    registry = once(lambda: registry_of(settings, opened, argo))
    if settings.registry != RegistrySettings() or environ.get("IMAGE_UPDATE_REGISTRY_PASSWORD"):
        registry()  # a mistake in what was given is an error at once
    forges = ForgeClients(settings, environ, log, opened, clients.logins)

    def descends(sub: Subscription | None, repo: str, revision: str, commit: str) -> str:
        """How a revision that Argo CD compares with stands to the commit that was written."""
        return descent(lambda: clients.client(repo, sub, from_cluster), repo, (revision, commit), log)

    def locate(origin: str) -> tuple[str, str, str] | None:
        found = find(origin.rpartition(":")[0], clients.git())
        return (found.repo, found.branch, found.path) if found else None

    follow: Callable[[Sequence[Landed]], Sequence[Problem]] = lambda _landed: ()  # noqa: E731
    if not settings.dry and (argo.kind or settings.argo.wait):
        follow = Follow(settings, argo, forges, descends, clients.repository(signer, from_cluster))
    world = World(
        applications=lambda: _applications(settings, clients.repository(signer, None), argo, scope, images),
        locate=locate,
        repository=clients.repository(signer, from_cluster),
        now=time.monotonic,
        sleep=shutdown.sleep,
        jitter=random.random,
        log=log,
        ancestry=_ancestry(clients.git, log, opened),
        registry=lambda questions: registry().answer(questions),
        signatures=signatures_of(settings, registry(), argo) if settings.verify.wanted else None,
        forge=forges.of,
        compare=forges.compare,
        live=argo.live if argo.kind else None,
        follow=follow,
        passed_over=argo.passed_over,
        login=lambda sub: argo.login(sub) if from_cluster and not clients.given_for(sub.repo) else "",
        close=opened.close,
    )
    if log.console is None or environ.get("CI"):
        return world
    # Late: only a person at a terminal sees it.
    from task.wiring.progress import with_progress  # noqa: PLC0415

    return with_progress(world, log.console, waits=settings.argo.wait)


def _ancestry(git: Callable[[], Git], log: Log, opened: ExitStack) -> Callable[[str, str, str], str]:
    """How a source commit stands to another; asked by several repositories at the same time, one after the other."""
    lock = threading.Lock()

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


def _applications(
    settings: Settings,
    repository: Callable[[str, Subscription | None], Repository],
    argo: Argo,
    scope: Scope | None,
    images: Sequence[Image],
) -> Iterable[FoundManifest]:
    """The table of application sources, by the shape of the text."""
    found = sources(settings, argo.environ)
    if not found:
        raise UsageError("no source of Applications given", hint=f"name one with --applications: {CHOICES}")
    for source in found:
        repo, path = _repository(source)
        if source in ("cluster", "argocd") and scope is not None:
            yield from argo.manifests(source, scope, images)
        elif repo and not os.path.exists(source):
            yield from GitManifests(repository(repo, None), path).all()
        else:
            yield from Manifests(source).all()


def _repository(source: str) -> tuple[str, str]:
    """`REPO//PATH?ref=REF` → (REPO, PATH?ref=REF); ("", "") for anything else. The `//` of a scheme is no marker."""
    start = source.find("://")
    at = source.find("//", start + 3 if start >= 0 else 1)
    return ("", "") if at < 0 else (source[:at], source[at + 2 :])
