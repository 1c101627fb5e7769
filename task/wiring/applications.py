"""Reads Applications from each source, as its form says."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain

from task.annotations.subscription import Scope
from task.applications.app_of_apps import FollowedApplications
from task.applications.application_sets import RenderedSets, clusters_of
from task.applications.git import GitManifests, Repositories
from task.applications.manifest_files import Manifests
from task.applications.manifest_text import is_set
from task.applications.rendering import Rendering, RenderingError
from task.errors import UsageError
from task.git.repository.bare import BareRepository
from task.model import Found, Image, Subscription
from task.output.report_json import BY_HAND
from task.settings import Settings
from task.threads import once
from task.wiring.argo import Argo, sources

CHOICES = "cluster, argocd, a file or folder of manifests, - (stdin), or REPO//PATH?ref=REF"


def applications(
    settings: Settings,
    environ: Mapping[str, str],
    repository: Callable[[str, Subscription | None], BareRepository],
    argo: Argo | None,
    scope: Scope | None,
    images: Sequence[Image],
) -> Iterable[Found]:
    """Return the source of Applications for a text, by its form."""
    found = sources(settings, environ)
    if not found:
        raise UsageError("nothing says where to read Applications from", hint=f"give --applications: {CHOICES}")
    opened = ExitStack()

    repositories = Repositories(lambda repo: repository(repo, None))
    opened.callback(repositories.close)

    @once
    def sets() -> RenderedSets:
        return RenderedSets(
            repositories,
            clusters=clusters_of(settings.sources.clusters) if settings.sources.clusters else None,
            namespace=settings.sources.argocd_namespace,
            prefix=settings.scope.annotation_prefix,
            images=images,
            strict=settings.command not in BY_HAND,
        )

    if settings.sources.clusters:
        sets()  # a mistake in the file is an error, whatever the manifests contain

    def rendered(manifest: Found) -> Iterator[Found]:
        return sets().of(manifest) if is_set(manifest.item) else iter((manifest,))

    rendering = Rendering(settings.sources.render, environ, settings.sources.argocd_namespace, found)
    followed = FollowedApplications(repositories, rendering, settings.sources.follow_apps, rendered)
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
