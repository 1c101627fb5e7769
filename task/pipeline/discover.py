"""Turns manifests into the Applications in question, each with what its annotations ask for.

The manifests may be in any order: Applications, Flux v1 HelmReleases, and AIU's own ImageUpdater resources, which
configure the Applications that they reference. Other manifests are passed over. ApplicationSets are already rendered
here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from task.annotations.application import is_application, parse_application
from task.annotations.flux import is_helm_release, subscribe_helm_release
from task.annotations.image_updater import configure, is_image_updater
from task.annotations.image_updater_config import is_config
from task.annotations.narrow import Narrow, considered
from task.annotations.subscription import Defaults, subscribe
from task.errors import Malformed
from task.image import parse_image_list, split_image_list
from task.model import Application, Entry, Image, Problem, Subscribed


class FoundManifest(Protocol):
    """One manifest that an application source found, or why it could not be read."""

    @property
    def item(self) -> Mapping[str, Any]:
        """The manifest as plain data."""

    @property
    def origin(self) -> str:
        """The place where it was read, as `file:line`."""

    @property
    def text(self) -> str:
        """Text of the whole file, if it is in Git; else ""."""

    @property
    def place(self) -> tuple[str, str, str] | None:
        """The repository, branch and path of a manifest that came from Git."""

    @property
    def problem(self) -> str:
        """The reason why it could not be read."""

    @property
    def hint(self) -> str:
        """What the user can do about the problem."""

    @property
    def generated_by(self) -> str:
        """The namespace/name of the ApplicationSet that generates this Application."""

    @property
    def owner(self) -> Mapping[str, Any] | None:
        """That ApplicationSet."""

    @property
    def template(self) -> bool:
        """Whether this is the template of an ApplicationSet that could not be rendered."""

    @property
    def severity(self) -> Literal["error", "warning"]:
        """How bad the problem is."""

    @property
    def subject(self) -> str:
        """The namespace/name of the resource with the problem."""

    @property
    def exit(self) -> int:
        """The exit code for the problem, if it is an error."""

    @property
    def advice(self) -> bool:
        """Whether the problem is no mistake, but only says what was not read."""


@dataclass(frozen=True)
class Scope:
    """What to look for."""

    prefix: str
    narrow: Narrow
    defaults: Defaults


# The repository, branch and path of a file in a Git work tree; None for a file outside of one.
Locate = Callable[[str], tuple[str, str, str] | None]


@dataclass(frozen=True)
class Discovered:
    """What was found: Applications with annotations, and HelmReleases that Flux would update."""

    applications: tuple[Application, ...]
    helm_releases: tuple[Subscribed, ...]
    problems: tuple[Problem, ...]
    outside: tuple[Application, ...] = ()  # with annotations, but excluded by the narrowing options
    sets: int = 0  # ApplicationSets that generate Applications
    generated: int = 0  # Applications that they generate
    templates: tuple[Application, ...] = ()  # templates of ApplicationSets that could not be rendered
    read: int = 0  # Applications and HelmReleases, whether they have annotations or not
    updaters: int = 0  # ImageUpdaters
    updater_config: FoundManifest | None = None  # AIU's ConfigMap


def discovered(manifests: Iterable[FoundManifest], scope: Scope, locate: Locate) -> Discovered:
    """Return everything of interest, with each Application once. A manifest that cannot be read becomes a warning."""
    applications: dict[str, Application] = {}
    releases: dict[str, Subscribed] = {}
    updaters: list[FoundManifest] = []
    problems: list[Problem] = []
    templates: list[Application] = []
    config: FoundManifest | None = None
    generated: list[str] = []  # for each Application, the ApplicationSet that generates it
    for manifest in manifests:
        kind = manifest.item.get("kind")
        if manifest.problem:
            told = (manifest.problem, manifest.hint, manifest.severity)
            problems.append(Problem(manifest.subject, "source", *told, exit=manifest.exit, advice=manifest.advice))
        elif kind == "Application" and (app := _application(manifest, scope, problems)):
            generated += [manifest.generated_by] if manifest.generated_by and not manifest.template else []
            known = applications.get(app.key)
            if manifest.template:
                templates.append(app)
            elif known is None or (known.generated_by and not app.generated_by):  # the manifest itself says more
                applications[app.key] = app
        elif kind == "ImageUpdater":
            updaters.append(manifest)
        elif kind == "ConfigMap" and is_config(manifest.item):
            config = config or manifest
        elif kind == "HelmRelease" and (release := _helm_release(manifest, locate)):
            releases.setdefault(release.application.key, release)
    apps = tuple(applications.values())
    if updaters:
        ours = [one for one in updaters if is_image_updater(one.item)]
        items, origins = [one.item for one in ours], [one.origin for one in ours]
        # A cluster is asked only for what the narrowing options leave.
        complete = scope.narrow == Narrow()
        apps, more = configure(apps, items, scope.defaults.argocd_namespace, origins, complete=complete)
        problems += more
    annotated = [(app, considered(app, scope.narrow)) for app in apps if app.annotations]
    return Discovered(
        tuple(app for app, within in annotated if within),
        tuple(one for one in releases.values() if considered(one.application, scope.narrow)),
        tuple(problems),
        tuple(app for app, within in annotated if not within),
        len(set(generated)),
        len(generated),
        tuple(app for app in templates if considered(app, scope.narrow)),
        len(apps) + len(releases),
        len(updaters),
        config,
    )


def subscriptions_of(found: Discovered, scope: Scope, images: Collection[Image]) -> tuple[Subscribed, ...]:
    """Return the subscriptions for these images, with all mistakes in everybody's annotations."""
    wanted = {image.identity for image in images} if images else None
    subscribed = []
    for app in found.applications:
        if not app.annotations.get("image-list"):
            continue
        one = subscribe(app, scope.defaults, wanted)
        if wanted is not None and any(sub.method == "git" for sub in one.subscriptions):
            # all its entries, because updates of its other images may wait on the head branch
            one = subscribe(app, scope.defaults)
        subscribed.append(one)
    return (*subscribed, *found.helm_releases)


def _application(manifest: FoundManifest, scope: Scope, problems: list[Problem]) -> Application | None:
    if not is_application(manifest.item):
        return None
    try:
        app = parse_application(manifest.item, scope.prefix, manifest.origin, scope.defaults.argocd_namespace)
        return replace(app, generated_by=manifest.generated_by) if manifest.generated_by else app
    except Malformed as error:
        problems.append(Problem("", "source", f"{manifest.origin}: {error.message}", error.hint, "warning"))
        return None


def concerns(images: Collection[Image], prefix: str) -> Callable[[Mapping[str, Any]], bool]:
    """Return a quick test whether an Application's metadata, or an ImageUpdater, may concern these images.

    A readable entry must name one of the images. An unreadable entry needs to contain only the last part of a name.
    Without images (`lint`, `scan`, `hold`), everything with annotations passes.
    """
    identities = {image.identity for image in images}
    names = {image.repository.rpartition("/")[2].lower() for image in images}

    def wanted(item: Mapping[str, Any]) -> bool:
        if item.get("kind") == "ImageUpdater":
            return True
        metadata = item.get("metadata")
        annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
        if not isinstance(annotations, Mapping):
            return False
        if not names:
            return any(key.startswith(prefix) for key in annotations)
        listed = str(annotations.get(f"{prefix}image-list") or "")
        low = listed.lower()
        if not any(name in low for name in names):  # true for nearly all Applications, which then need no parsing
            return False
        for text, entry in zip(split_image_list(listed), parse_image_list(listed), strict=True):
            if (
                entry.image.identity in identities
                if isinstance(entry, Entry)
                else any(n in text.lower() for n in names)
            ):
                return True
        return False

    return wanted


def within_narrowing(narrow: Narrow) -> Callable[[Mapping[str, Any]], bool]:
    """Return a test whether an Application's metadata passes the narrowing. The project is not in the metadata."""
    known = replace(narrow, projects=())

    def within(item: Mapping[str, Any]) -> bool:
        metadata = item.get("metadata")
        metadata = metadata if isinstance(metadata, Mapping) else {}
        labels = {key: one for key, one in (metadata.get("labels") or {}).items() if isinstance(one, str)}
        name, namespace = str(metadata.get("name", "")), str(metadata.get("namespace", ""))
        return considered(Application(namespace, name, {}, (), labels=labels), known)

    return within


def _helm_release(manifest: FoundManifest, locate: Locate) -> Subscribed | None:
    if not is_helm_release(manifest.item):
        return None
    place = manifest.place or locate(manifest.origin) or ("", "", "")
    found = subscribe_helm_release(manifest.item, manifest.origin, *place)
    return found if found.subscriptions or found.flaws else None
