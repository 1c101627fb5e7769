"""Manifests → the Applications in question, each with what its annotations ask for.

Applications, Flux v1 HelmReleases, and AIU's own ImageUpdater resources, which configure the Applications they
reference, may come in any order between any other manifests. ApplicationSets have been rendered before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from task.annotations.application import is_application, parse_application
from task.annotations.flux import is_helm_release, subscribe_helm_release
from task.annotations.image_updater import configure, is_image_updater
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
        """Where it was read: `file:line`."""

    @property
    def place(self) -> tuple[str, str, str] | None:
        """(repository, branch, path) of a manifest that came from Git."""

    @property
    def problem(self) -> str:
        """Why it could not be read."""

    @property
    def hint(self) -> str:
        """What to do about it."""

    @property
    def generated_by(self) -> str:
        """The namespace/name of the ApplicationSet that generates this Application."""

    @property
    def template(self) -> bool:
        """Whether it is the template of an ApplicationSet that could not be rendered."""

    @property
    def severity(self) -> Literal["error", "warning"]:
        """How bad the problem is."""

    @property
    def subject(self) -> str:
        """The namespace/name that the problem is about."""

    @property
    def exit(self) -> int:
        """The exit code of the problem, where it is an error."""

    @property
    def advice(self) -> bool:
        """Whether the problem is no mistake, and only says what is not read."""


@dataclass(frozen=True)
class Scope:
    """What is looked for."""

    prefix: str
    narrow: Narrow
    defaults: Defaults


# (repository, branch, path in it) of a file that lies in a Git work tree; None for one that does not.
Locate = Callable[[str], tuple[str, str, str] | None]


@dataclass(frozen=True)
class Discovered:
    """What the manifests hold: Applications that carry annotations, HelmReleases that Flux would update."""

    applications: tuple[Application, ...]
    releases: tuple[Subscribed, ...]
    problems: tuple[Problem, ...]
    outside: tuple[Application, ...] = ()  # with annotations, but narrowed away
    sets: int = 0  # ApplicationSets that generate Applications
    generated: int = 0  # Applications that they generate
    templates: tuple[Application, ...] = ()  # of ApplicationSets that could not be rendered


def find(manifests: Iterable[FoundManifest], scope: Scope, locate: Locate) -> Discovered:
    """Everything of interest, each Application once. What cannot be read is a warning of its own."""
    applications: dict[str, Application] = {}
    releases: dict[str, Subscribed] = {}
    updaters: list[Mapping[str, Any]] = []
    problems: list[Problem] = []
    templates: list[Application] = []
    generated: list[str] = []  # by which ApplicationSet, for each Application
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
            elif known is None or (known.generated_by and not app.generated_by):  # what is read says more
                applications[app.key] = app
        elif kind == "ImageUpdater":
            updaters.append(manifest.item)
        elif kind == "HelmRelease" and (release := _release(manifest, locate)):
            releases.setdefault(release.application.key, release)
    apps = tuple(applications.values())
    if updaters:
        ours = [item for item in updaters if is_image_updater(item)]
        apps, more = configure(apps, ours, scope.defaults.argocd_namespace)
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
    )


def subscribed(found: Discovered, scope: Scope, images: Collection[Image]) -> tuple[Subscribed, ...]:
    """Who asks for these images, with every flaw of everybody's annotations."""
    wanted = {image.identity for image in images} if images else None
    asking = []
    for app in found.applications:
        if not app.annotations.get("image-list"):
            continue
        one = subscribe(app, scope.defaults, wanted)
        if wanted is not None and any(sub.head or sub.pull_request for sub in one.subscriptions):
            one = subscribe(app, scope.defaults)  # updates of its other images may wait on the head branch
        asking.append(one)
    return (*asking, *found.releases)


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
    """Whether an Application's metadata, or an ImageUpdater, may concern these images: a first look.

    An entry that can be read must name one of them; of one that cannot, it is enough to hold the last part of a name.
    Without images (`lint`, `scan`, `hold`) everything with annotations does.
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
        if not any(name in low for name in names):  # nearly all of them; nothing has to be parsed
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
    """Whether an Application passes the narrowing, as far as its metadata tells: the project stands elsewhere."""
    known = replace(narrow, projects=())

    def within(item: Mapping[str, Any]) -> bool:
        metadata = item.get("metadata")
        metadata = metadata if isinstance(metadata, Mapping) else {}
        labels = {key: one for key, one in (metadata.get("labels") or {}).items() if isinstance(one, str)}
        name, namespace = str(metadata.get("name", "")), str(metadata.get("namespace", ""))
        return considered(Application(namespace, name, {}, (), labels=labels), known)

    return within


def _release(manifest: FoundManifest, locate: Locate) -> Subscribed | None:
    if not is_helm_release(manifest.item):
        return None
    place = manifest.place or locate(manifest.origin) or ("", "", "")
    found = subscribe_helm_release(manifest.item, manifest.origin, *place)
    return found if found.subscriptions or found.flaws else None
