"""Settings → World: the only place that constructs clients, and the table of application sources.

A client is imported when these settings ask for it. The clients of Argo CD, Kubernetes, registries and forges, with
requests, are about a quarter of what a run would import, and most runs need one of them or none: many pods that start
on one node feel that.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import TYPE_CHECKING, Any

from task import shutdown
from task.applications import Found, is_project, is_set
from task.applications.app_of_apps import FollowedApplications
from task.applications.git import GitManifests
from task.applications.manifest_files import Manifests
from task.applications.rendering import Rendering, RenderingError
from task.applications.repositories import Repositories
from task.applications.work_tree import locate as find
from task.argocd.signed_revisions import keys_wanted
from task.errors import TaskError, UsageError
from task.git.ancestry import Lineage
from task.git.command import Git
from task.model import Image, Question, Subscription
from task.once import once
from task.output.log import Log
from task.pipeline.discover import FoundManifest, Scope
from task.pipeline.job import Followed, Landed
from task.pipeline.ports import World
from task.settings import RegistrySettings, Settings
from task.urls import normal_url
from task.wiring.application_sources import ARGO_TOKENS, FORGE_TOKENS, names_server, sources
from task.wiring.git import SECRETS as GIT_SECRETS
from task.wiring.git import Ahead, GitClients, signers

if TYPE_CHECKING:
    from task.applications.application_sets import RenderedSets
    from task.git.repository.bare import BareRepository
    from task.registry.client import Registry
    from task.wiring.argo import Argo
    from task.wiring.forges import ForgeClients
    from task.wiring.registries import KeysOfResources

# Secrets are never arguments, so these have variables beside the options.
SECRETS = (*GIT_SECRETS, *ARGO_TOKENS, *FORGE_TOKENS, "IMAGE_UPDATE_REGISTRY_PASSWORD", "IMAGE_UPDATE_CLOUDEVENT_TOKEN")
# The keys with which GitHub signs the commits of its API: the present one, and the one before 2024.
OF_GITHUB = ("B5690EEEBB952194", "4AEE18F83AFDEB23")
BY_HAND = ("hold", "release", "rollback")  # a person names what changes, so problems elsewhere are only warnings
CHOICES = "cluster, argocd, a file or folder of manifests, - (stdin), or REPO//PATH?ref=REF"


def world_of(
    settings: Settings, environ: Mapping[str, str], log: Log, scope: Scope | None = None, images: Sequence[Image] = ()
) -> World:
    """Return the world for these settings. Scope and images limit what is read from a cluster."""
    opened = ExitStack()
    clients = GitClients(settings, environ, log, opened)
    signer = signers(settings.git, clients.git, opened)
    argo: Argo | None = None
    linked = settings.request.deployments and names_server(settings.argo, environ)
    if settings.argo.wait or linked or {"cluster", "argocd"} & set(sources(settings, environ)):
        from task.wiring.argo import Argo

        argo = Argo(settings, environ, log, opened)
    if argo and settings.argo.wait:
        argo.check()  # of a plan as well, because the run would fail
    if settings.promote.healthy and not (argo and argo.kind):
        hint = "files and Git do not say what is healthy: give --applications cluster or argocd"
        raise UsageError("--healthy: nothing says which Argo CD to ask", hint=hint)
    from_cluster = argo.plan if argo and argo.kind == "cluster" else None
    if settings.argo.events and not (from_cluster or settings.dry):
        log("warning", "--kubernetes-events: no Event is written without a cluster: give --applications cluster")

    @once
    def registry() -> Registry:
        from task.wiring.registries import registry_of

        # A file may claim any namespace, so with files among the sources, no secret is read.
        secrets = argo.secrets if argo and set(sources(settings, environ)) == {"cluster"} else None
        return registry_of(settings, environ, log, opened, secrets)

    if settings.registry != RegistrySettings() or environ.get("IMAGE_UPDATE_REGISTRY_PASSWORD"):
        registry()  # fail at once if something given is wrong

    @once
    def forges() -> ForgeClients:
        from task.wiring.forges import ForgeClients

        return ForgeClients(settings, environ, log, opened, clients.logins)

    if settings.request.forge or settings.request.token_file:
        forges()  # fail at once if something given is wrong
    api = (lambda repo: forges().commits(repo)) if settings.git.through == "github" else None

    def descends(sub: Subscription | None, repo: str, revision: str, commit: str) -> str:
        """Tell how a revision from Argo CD relates to the commit that was written."""
        from task.wiring.waiting import descent

        return descent(lambda: clients.client(repo, sub, from_cluster), repo, (revision, commit), log)

    def locate(origin: str) -> tuple[str, str, str] | None:
        found = find(origin.rpartition(":")[0], clients.git())
        return (found.repo, found.branch, found.path) if found else None

    follow: Callable[[Sequence[Landed]], Followed] = lambda _landed: Followed()  # noqa: E731
    follow_back = follow
    if argo and not settings.dry:
        from task.wiring.follow import Follow

        follow = following = Follow(settings, argo, forges, descends, clients.repository(signer, from_cluster))
        follow_back = following.back
    signatures = None
    if settings.verify.wanted:
        from task.wiring.registries import signatures_of

        signatures = signatures_of(settings, registry(), log)

    @once
    def resource_keys() -> KeysOfResources:
        from task.wiring.argo import Argo
        from task.wiring.registries import KeysOfResources

        asked = argo or Argo(settings, environ, log, opened)
        secrets = asked.secrets if asked.kind == "cluster" or asked.cluster_at_hand() else None
        return KeysOfResources(registry, secrets, settings.verify.timeout, log)

    def by_keys(questions: Collection[Question]) -> Mapping[Question, str | TaskError]:
        return resource_keys()(questions)

    projects: dict[str, Mapping[str, Any]] = {}  # from the manifests, or from Argo CD

    def wanted(sub: Subscription) -> tuple[str, ...]:
        if sub.target == "flux":  # it has no project
            return ()
        name = sub.application.project or "default"
        if name not in projects and argo and argo.where:
            projects[name] = argo.project(name)
        url = normal_url(sub.repo)
        urls = [source.repo for source in sub.application.sources if normal_url(source.repo) == url]
        return next((keys for one in urls if (keys := keys_wanted(projects.get(name, {}), one))), ())

    @once
    def signing_keys() -> tuple[str, ...]:
        if settings.git.through == "github":
            return OF_GITHUB
        found = signer()
        return found.key_ids() if found else ()

    ahead = Ahead(clients.repository(signer, from_cluster, api, lambda repo: forges().check_commits(repo)), opened)
    world = World(
        applications=lambda: _without_projects(
            _applications(settings, environ, clients.repository(signer, None), argo, scope, images), projects
        ),
        locate=locate,
        repository=ahead.open,
        expect=ahead.expect,
        now=time.monotonic,
        sleep=shutdown.sleep,
        jitter=random.random,
        log=log,
        ancestry=_ancestry(clients.git, log, opened),
        registry=lambda questions: registry().answer(questions),
        signatures=signatures,
        by_keys=by_keys,
        forge=lambda repo: forges().of(repo),
        check_forge=lambda repo: forges().check_host(repo),
        compare=lambda repo, base, head: forges().compare(repo, base, head),
        comments=lambda repo: forges().comments(repo),
        deployments=lambda repo: forges().deployments(repo),
        page=argo.page if argo else lambda _application: "",
        keys_wanted=wanted,
        signing_keys=signing_keys,
        taken_back_by=argo.taken_back_by if argo else lambda _manifest, _field: "",
        live=argo.live if argo and argo.kind else None,
        follow=follow,
        follow_back=follow_back,
        passed_over=argo.passed_over if argo else tuple,
        login=lambda sub: argo.login(sub) if argo and from_cluster and not clients.given_for(sub.repo) else "",
        close=opened.close,
    )
    if log.console is None or environ.get("CI"):
        return world
    from task.wiring.progress import with_progress

    return with_progress(world, log.console, waits=settings.argo.wait)


def _without_projects(
    manifests: Iterable[FoundManifest], projects: dict[str, Mapping[str, Any]]
) -> Iterator[FoundManifest]:
    """Yield the manifests, and put the AppProjects among them into `projects`, by their names."""
    for one in manifests:
        if is_project(one.item):
            projects[one.item["metadata"]["name"]] = one.item
        else:
            yield one


def _ancestry(git: Callable[[], Git], log: Log, opened: ExitStack) -> Callable[[str, str, str], str]:
    """Tell how a source commit relates to another. Several repositories may ask at once, and are answered in turn."""
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
    environ: Mapping[str, str],
    repository: Callable[[str, Subscription | None], BareRepository],
    argo: Argo | None,
    scope: Scope | None,
    images: Sequence[Image],
) -> Iterable[FoundManifest]:
    """Return the source of Applications for a text, by its form."""
    found = sources(settings, environ)
    if not found:
        raise UsageError("nothing says where to read Applications from", hint=f"give --applications: {CHOICES}")
    opened = ExitStack()

    repositories = Repositories(lambda repo: repository(repo, None))
    opened.callback(repositories.close)

    @once
    def sets() -> RenderedSets:
        from task.applications.application_sets import RenderedSets, clusters_of

        return RenderedSets(
            repositories,
            clusters=clusters_of(settings.clusters) if settings.clusters else None,
            namespace=settings.argocd_namespace,
            prefix=settings.annotation_prefix,
            images=images,
            strict=settings.command not in BY_HAND,
        )

    if settings.clusters:
        sets()  # a mistake in the file is an error, whatever the manifests contain

    def rendered(manifest: Found) -> Iterator[Found]:
        return sets().of(manifest) if is_set(manifest.item) else iter((manifest,))

    rendering = Rendering(settings.render, environ, settings.argocd_namespace, found)
    followed = FollowedApplications(repositories, rendering, settings.follow, rendered)
    with opened:
        for source in found:
            repo, path = _repository(source)
            if argo and source in ("cluster", "argocd") and scope is not None:
                yield from argo.manifests(source, scope, images)
                continue
            git = repo and not os.path.exists(source)
            kept = repositories.of(repo, named=False) if git else None
            read = GitManifests(kept, path, rendering) if kept else Manifests(source, rendering)
            try:
                for manifest in chain.from_iterable(map(rendered, read.all())):
                    followed.note(manifest)
                    yield manifest
            except RenderingError as error:
                if settings.command != "lint":  # it lists every problem
                    raise
                yield Found({}, "", str(error), error.hint, severity="error")
        yield from followed.below()


def _repository(source: str) -> tuple[str, str]:
    """Split `REPO//PATH?ref=REF` into (REPO, PATH?ref=REF), or return ("", ""). A scheme's `//` does not count."""
    start = source.find("://")
    at = source.find("//", start + 3 if start >= 0 else 1)
    return ("", "") if at < 0 else (source[:at], source[at + 2 :])
