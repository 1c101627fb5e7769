"""Turning manifests into the Applications to consider, with the subscriptions in their annotations.

The manifests may be in any order: Applications, Flux v1 HelmReleases, and AIU's ImageUpdater
resources, which configure the Applications that they reference. Other manifests are ignored.
ApplicationSets are rendered before this step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from task.annotations.application import (
    Narrow,
    considered,
    is_application,
    parse_application,
    parse_selector,
)
from task.annotations.flux import is_helm_release, subscribe_helm_release
from task.annotations.image_updater import configure, is_config, is_image_updater
from task.annotations.subscription import Scope, subscribe
from task.deciding.job import Job
from task.errors import Malformed, Trouble
from task.image import parse_image_list, split_image_list
from task.landing.ports import Look, World
from task.model import Application, Entry, Found, Image, Problem, Subscribed, Subscription
from task.pipeline.overlooked import (
    Seen,
    refuse_ambiguous,
    unknown_names,
    unread_keys,
    untracked,
    untracked_problems,
)
from task.plain_data import mapping
from task.text import and_more

# returns the repository, branch, and path of a file in a Git work tree, or None for other files
Locate = Callable[[str], tuple[str, str, str] | None]
MOST_ASKED = 100  # Applications that one run looks up only because their builds are waiting


@dataclass(frozen=True)
class Discovered:
    """The Applications with annotations, and the HelmReleases that Flux would update."""

    applications: tuple[Application, ...]
    helm_releases: tuple[Subscribed, ...]
    problems: tuple[Problem, ...]
    outside: tuple[Application, ...]  # annotated, but excluded by the narrowing options
    generated_by: tuple[str, ...]  # the ApplicationSet of each generated Application
    templates: tuple[Application, ...]  # templates of ApplicationSets that could not be rendered
    read: int  # Applications and HelmReleases, with or without annotations
    updaters: int  # number of ImageUpdaters
    updater_config: Found | None  # AIU's ConfigMap


def discovered(manifests: Iterable[Found], scope: Scope, locate: Locate) -> Discovered:
    """Sort these manifests by kind, and return the Applications and HelmReleases that a run may
    update.

    `scope` contains the narrowing options, such as `--namespace`. The Applications that they
    exclude are in `outside`. `locate` finds the repository of a file.
    """
    sorter = _Sorter(scope, locate)
    for manifest in manifests:
        sorter.add(manifest)
    apps, wrong_updaters = _with_updaters(sorter, scope)
    releases = sorter.releases.values()

    annotated = [_without_unused_values(app) for app in apps if app.annotations]
    within = [app for app in annotated if considered(app, scope.narrow)]
    outside = [app for app in annotated if not considered(app, scope.narrow)]
    return Discovered(
        applications=tuple(within),
        helm_releases=tuple(
            release for release in releases if considered(release.application, scope.narrow)
        ),
        problems=(*sorter.problems, *_namesake_warning(sorter.namesakes), *wrong_updaters),
        outside=tuple(outside),
        generated_by=tuple(sorter.generated_by),
        templates=tuple(app for app in sorter.templates if considered(app, scope.narrow)),
        read=len(apps) + len(releases),
        updaters=len(sorter.updaters),
        updater_config=sorter.updater_config,
    )


def _without_unused_values(app: Application) -> Application:
    """Return the Application without its Helm values, which may be long, if no decision needs them.

    The running images are more reliable than the values. With a write-back target, the values are
    needed, because they can override the values file that is the target. An ImageUpdater may have
    set the target, no matter what the Application's own annotations say.
    """
    if not app.live or "write-back-target" in app.annotations:
        return app
    if not any(source.values for source in app.sources):
        return app
    return replace(app, sources=tuple(replace(source, values="") for source in app.sources))


class _Sorter:
    """A sorter that groups manifests by kind. It processes them one by one as they arrive, because
    all of them together may be large.
    """

    def __init__(self, scope: Scope, locate: Locate) -> None:
        self._scope = scope
        self._locate = locate
        self.applications: dict[str, Application] = {}
        self.namesakes: dict[str, str] = {}  # the origins of two Applications with the same name
        self.generated_by: list[str] = []
        self.templates: list[Application] = []
        self.releases: dict[str, Subscribed] = {}
        self.updaters: list[Found] = []
        self.updater_config: Found | None = None
        self.problems: list[Problem] = []

    def add(self, manifest: Found) -> None:
        """Store a manifest according to its kind. Unsupported kinds are ignored, and a manifest
        that could not be read becomes a problem.
        """
        kind = manifest.item.get("kind")
        if manifest.trouble:
            self.problems.append(
                Problem(manifest.trouble, application=manifest.subject, advice=manifest.advice)
            )
        elif kind == "Application" and is_application(manifest.item):
            self._add_application(manifest)
        elif kind == "ImageUpdater":
            self.updaters.append(manifest)
        elif kind == "ConfigMap" and is_config(manifest.item):
            self.updater_config = self.updater_config or manifest
        elif kind == "HelmRelease":
            release = _helm_release(manifest, self._locate)
            if release:
                self.releases.setdefault(release.application.key, release)

    def _add_application(self, manifest: Found) -> None:
        """Parse an Application's manifest, and store it by its key (`namespace/name`).

        If several manifests have the same key, an Application's own manifest is preferred to one
        that an ApplicationSet generates. Otherwise, the first manifest is kept. Templates of
        ApplicationSets are stored separately. A manifest that cannot be parsed becomes a warning.
        """
        scope = self._scope
        try:
            app = parse_application(
                manifest.item,
                scope.prefix,
                manifest.origin,
                scope.defaults.argocd_namespace,
            )
        except Malformed as error:
            message = f"{manifest.origin}: {error.message}"
            self.problems.append(Problem(Trouble.warning("source", message, error.hint)))
            return
        if manifest.generated_by:
            app = replace(app, generated_by=manifest.generated_by)
        if manifest.template:
            self.templates.append(app)
            return
        if manifest.generated_by:
            self.generated_by.append(manifest.generated_by)

        earlier = self.applications.get(app.key)
        if earlier is None:
            self.applications[app.key] = app
        elif app.generated_by:
            pass  # the earlier manifest is at least as accurate
        elif earlier.generated_by:  # this manifest is more accurate
            self.applications[app.key] = app
        elif earlier.annotations and earlier.sources != app.sources:
            # Two different Applications have the same name, and only the first is used. (If the
            # sources are the same, the same manifest was simply read twice.)
            self.namesakes.setdefault(app.key, f"{earlier.origin} and {app.origin}")


def _with_updaters(
    sorter: _Sorter,
    scope: Scope,
) -> tuple[tuple[Application, ...], tuple[Problem, ...]]:
    """Apply the settings in the ImageUpdater resources (of Argo CD Image Updater) to the
    Applications that they reference.

    Return all Applications, and the mistakes in the ImageUpdaters.
    """
    apps = tuple(sorter.applications.values())
    if not sorter.updaters:
        return apps, ()
    updaters = [manifest for manifest in sorter.updaters if is_image_updater(manifest.item)]
    items = [updater.item for updater in updaters]
    origins = [updater.origin for updater in updaters]  # such as `apps/web.yaml:12`
    return configure(
        apps,
        items,
        scope.defaults.argocd_namespace,
        origins,
        # a cluster only returns Applications that match the narrowing options
        complete=scope.narrow == Narrow(),
    )


def subscriptions_of(
    discovery: Discovered,
    scope: Scope,
    images: Collection[Image],
) -> tuple[Subscribed, ...]:
    """Return the subscriptions of each Application with an `image-list`, and of all HelmReleases. A
    subscription is one image to update, and where.

    For an Application that writes one of `images` to Git, the result contains all of its
    subscriptions. For any other, it contains only those for `images`. Without images, it contains
    all subscriptions of each Application.
    """
    identities = {image.identity for image in images} if images else None  # None: all images
    subscribed = []
    for app in discovery.applications:
        if not app.annotations.get("image-list"):
            continue
        app_subscribed = subscribe(app, scope.defaults)
        if identities is not None:
            for_images = [
                sub
                for sub in app_subscribed.subscriptions
                if sub.entry.image.identity in identities
            ]
            # If the Application writes to Git, keep all its subscriptions, because updates to its
            # other images may be waiting on the head branch.
            if not any(sub.method == "git" for sub in for_images):
                app_subscribed = replace(app_subscribed, subscriptions=tuple(for_images))
        subscribed.append(app_subscribed)
    return (*subscribed, *discovery.helm_releases)


def _namesake_warning(namesakes: Mapping[str, str]) -> tuple[Problem, ...]:
    """Return a warning if several Applications have the same name, for example in two clusters.

    `namesakes` contains the origins of both manifests, keyed by Application (`namespace/name`).
    """
    if not namesakes:
        return ()
    places = and_more([f"{key} ({origins})" for key, origins in namesakes.items()])
    hint = (
        "use a unique name for each Application; if they are for two clusters, run once with each"
        " cluster's manifests"
    )
    message = f"two Applications have the same name, and only the first one is used: {places}"
    return (Problem(Trouble.warning("source", message, hint)),)


def concerns(images: Collection[Image], prefix: str) -> Callable[[Mapping[str, Any]], bool]:
    """Return a function that quickly checks whether a manifest (an ImageUpdater, or an
    Application's metadata) may concern these images.

    A readable entry in `image-list` must match one of the images. An unreadable entry only has to
    contain the last part of an image's name, such as `web`. Without images (`lint`, `scan`,
    `hold`), everything with annotations matches.
    """
    identities = {image.identity for image in images}
    last_parts = {image.repository.rpartition("/")[2].lower() for image in images}

    def contains_last_part(text: str) -> bool:
        """Return whether a text contains the last part of one of the images' names."""
        lower_case = text.lower()
        return any(last_part in lower_case for last_part in last_parts)

    def may_match(text: str, entry: Entry | Malformed) -> bool:
        """Return whether an entry of `image-list` may be for one of the images. `text` is the entry
        as written, and `entry` is the parsed entry, or the error if it is unreadable.
        """
        if isinstance(entry, Entry):
            return entry.image.identity in identities
        return contains_last_part(text)

    def may_concern(item: Mapping[str, Any]) -> bool:
        """Return whether a manifest may concern the images."""
        if item.get("kind") == "ImageUpdater":
            return True  # it may configure any Application
        annotations = mapping(mapping(item.get("metadata")).get("annotations"))
        if not images:
            return any(key.startswith(prefix) for key in annotations)
        image_list = str(annotations.get(f"{prefix}image-list") or "")
        if not contains_last_part(image_list):  # skips parsing for nearly all Applications
            return False
        texts = split_image_list(image_list)
        entries = parse_image_list(image_list)
        return any(may_match(text, entry) for text, entry in zip(texts, entries, strict=True))

    return may_concern


def _helm_release(manifest: Found, locate: Locate) -> Subscribed | None:
    """Return a Flux HelmRelease's subscriptions and the mistakes in its annotations, or None if it
    has neither.
    """
    if not is_helm_release(manifest.item):
        return None
    repo, branch, path = manifest.place or locate(manifest.origin) or ("", "", "")
    release = subscribe_helm_release(manifest.item, manifest.origin, repo, branch, path)
    return release if release.subscriptions or release.flaws else None


def discover(job: Job, world: World) -> tuple[Seen, tuple[Problem, ...]]:
    """Read the Applications, and return those to consider with their subscriptions. A subscription
    is one image to update, and where.

    Also return the problems: invalid manifests, unknown names in the options, and mistakes that
    would otherwise go unnoticed.
    """
    narrow = job.scope.narrow
    parse_selector(narrow.selector)  # reject an invalid pattern before querying a server
    discovery = discovered(world.applications(), job.scope, world.locate)
    passed_over = world.passed_over()  # Applications whose metadata alone was read
    seen = _seen_of(discovery, passed_over, job)
    _log_discovery(discovery, seen, job, world)
    if narrow.typed:  # raises an error for a name that is not unique
        refuse_ambiguous(narrow.names, seen.everyone)

    problems = discovery.problems
    any_application_read = bool(discovery.read or discovery.templates or passed_over)
    if not any_application_read:  # the broken files are the reason
        problems = tuple(map(_as_error, problems))
    narrowing = f"{'--application, ' if narrow.within else ''}--namespace, --project, or --selector"
    problems += unknown_names(
        narrow.names,
        seen.everyone,
        seen.outside,
        strict=job.intent is not None,
        narrowing=narrowing,
    )
    if not job.intent:
        problems += _overlooked(seen, job, world)
    return seen, problems


def subscription_lookup(seen: Seen, job: Job, world: World) -> Look:
    """Return a function that looks up the subscriptions (the images to update) of any Application
    by its key (`namespace/name`), even if it is not part of the run.

    The narrowing options limit which Applications are updated, not which are looked up.
    """
    subs_of_run = {
        item.application.key: item.subscriptions for item in seen.subscribed if item.subscriptions
    }
    # an Application without sources here was not read in full: only its metadata was
    read_in_full = {app.key: app for app in (*seen.outside, *seen.annotated) if app.sources}
    looked_up: dict[str, Application | None] = {}  # None if it could not be read

    def look(key: str, *, ask: bool = True) -> Sequence[Subscription]:
        """Return the subscriptions of the Application `key`. With `ask`, the Application may be
        read now, and is then remembered in `looked_up`.
        """
        if key in subs_of_run:
            return subs_of_run[key]
        app = read_in_full.get(key) or looked_up.get(key)
        may_query = ask and key not in looked_up and len(looked_up) < MOST_ASKED
        if app is None and may_query:
            namespace, _, name = key.partition("/")
            app = world.application(namespace, name)
            looked_up[key] = app
        if app is None:
            return ()
        return subscribe(app, job.scope.defaults).subscriptions

    return look


def _seen_of(discovery: Discovered, passed_over: Sequence[Application], job: Job) -> Seen:
    """Return all Applications that were read, with their subscriptions.

    For Applications in `passed_over`, only the metadata was read.
    """
    # the metadata does not contain the project
    narrow_without_projects = replace(job.scope.narrow, projects=())
    skipped = [app for app in passed_over if considered(app, narrow_without_projects)]
    outside = [app for app in passed_over if not considered(app, narrow_without_projects)]
    return Seen(
        subscribed=subscriptions_of(discovery, job.scope, job.images),
        annotated=discovery.applications,
        skipped=tuple(skipped),
        outside=(*discovery.outside, *outside),
    )


def _log_discovery(discovery: Discovered, seen: Seen, job: Job, world: World) -> None:
    """Log how many Applications were generated by ApplicationSets. Log a warning if no Application
    was read, unless that is reported elsewhere.
    """
    generated_by = discovery.generated_by
    if generated_by:
        sets = len(set(generated_by))
        world.log(
            "info",
            f"rendered ApplicationSets: {sets}; generated Applications: {len(generated_by)}",
        )
    # in these cases, unknown names or images are reported
    reported_elsewhere = bool(job.scope.narrow.names or job.images)
    if not seen.everyone and not reported_elsewhere:
        message = "no Application with Image Updater's annotations was found"
        world.log("warning", f"{message}: check --applications and the filters")


def _as_error(problem: Problem) -> Problem:
    """Turn a problem with an exit code into an error, unless the problem is only advice."""
    if problem.exit and not problem.advice:
        return replace(problem, trouble=replace(problem.trouble, severity="error"))
    return problem


def _overlooked(seen: Seen, job: Job, world: World) -> tuple[Problem, ...]:
    """Return warnings about untracked images (built images that no Application uses) and about
    annotations without effect.
    """
    # The projects of skipped Applications are unknown, so leave out those Applications if the run
    # is limited to certain projects.
    leaves_out_skipped = bool(job.scope.narrow.projects and seen.skipped)
    counted = replace(seen, skipped=()) if leaves_out_skipped else seen
    untracked_images = untracked(counted, job.images)
    if job.events and not job.require_match:  # a registry sends events for all images
        _log_untracked(len(untracked_images), job, world)
        untracked_images = ()
    return (
        *untracked_problems(
            counted,
            untracked_images,
            all_were_read=not leaves_out_skipped,
            required=job.require_match,
        ),
        *unread_keys(counted, job.images),
    )


def _log_untracked(number: int, job: Job, world: World) -> None:
    """Log the number of the event's images that no Application tracks, unless it is 0."""
    if not number:
        return
    verb = "is" if number == 1 else "are"
    total = len({image.identity for image in job.images})
    world.log("info", f"{number} of {total} images {verb} not tracked by any Application")
