"""The cluster and Argo CD: sources of Applications, live write-back, and actions after a push."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from task.annotations.application import parse_application
from task.annotations.subscription import Scope
from task.applications.app_of_apps import FollowedApplications
from task.applications.git import Repositories, SnapshotReader, git_manifests
from task.applications.manifest_files import local_manifests
from task.applications.manifest_text import is_set
from task.applications.rendering import Rendering, RenderingError
from task.argocd.owners import parent_of, parent_takes_back, set_of, set_takes_back
from task.command_kinds import kind_of
from task.errors import Malformed, SourceDownError, SourceError, TaskError, Trouble, UsageError
from task.git.credentials import Credentials
from task.http import Limits
from task.kubernetes.pod import in_cluster
from task.landing.ports import LiveApplications
from task.model import Application, Found, Image, Subscription, Tracker
from task.output.log import Log
from task.pipeline.discover import concerns
from task.secret import Secret
from task.settings import ARGO_TOKENS, Settings, SourceOptions
from task.threads import once
from task.urls import path_part

if TYPE_CHECKING:
    from task.applications.application_sets import RenderedSets
    from task.applications.cluster import ArgoCDManifests, ClusterManifests
    from task.argocd.api import ArgoCDApi
    from task.argocd.application_store import ApplicationApi
    from task.argocd.cluster_secrets import ClusterSecrets
    from task.argocd.repo_secrets import RepoCredentials
    from task.kubernetes.client import Kubernetes

# short timeouts, because rollouts are polled again anyway
PATIENT = Limits(
    connect=5.0,
    silence=15.0,
    total=30.0,
    tries=1,
)
# short timeouts, because a run does not fail without a link
LINKS = Limits(
    connect=5.0,
    silence=10.0,
    total=15.0,
    size=1024 * 1024,
    tries=1,
)
CHOICES = "cluster, argocd, a file or folder of manifests, - (stdin), or REPO//PATH?ref=REF"


class Argo:
    """A run's connections to a cluster and to the Argo CD API.

    Each connection is opened when it is first needed.
    """

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        log: Log,
        opened: ExitStack,
    ) -> None:
        self._given: SourceOptions = settings.sources
        self._prefix = settings.scope.annotation_prefix
        self.environ = environ
        self.log = log
        self._opened = opened
        self.kubernetes: Callable[[], Kubernetes] = once(self._kubernetes)
        self.secrets = once(self._cluster_secrets)
        self._slow = False  # whether an AppProject could not be read in time
        self._readers: list[ClusterManifests | ArgoCDManifests] = []
        self.kind = ""  # the source of live Applications: "cluster", "argocd", or "" for neither
        for source in sources(settings, environ):
            if source in ("cluster", "argocd"):
                self.kind = source
                break
        links_to_argo_cd = settings.deployments and names_server(self._given, environ)
        # whether the run queries Argo CD anyway for Applications, links, or rollouts
        self.asked = bool(settings.rollout.wait or links_to_argo_cd or self.kind)
        self.api: Callable[[], ApplicationApi] = once(lambda: self._api(Limits()))
        self.patient: Callable[[], ApplicationApi] = once(lambda: self._api(PATIENT))
        # for a project's details, which are optional; two tries, because a project may also require
        # signed commits
        self.quick: Callable[[], ApplicationApi] = once(
            lambda: self._api(replace(PATIENT, tries=2))
        )
        self.live: Callable[[], LiveApplications] = once(self._stores)
        self._web: Callable[[], str] = once(self._user_interface)

    def _kubernetes(self, limits: Limits = Limits()) -> Kubernetes:
        """Return a new client for the cluster, which is closed at the end of the run."""
        from task.kubernetes.access import cluster_access
        from task.kubernetes.client import Kubernetes

        access = cluster_access(self.environ, self._given.kubeconfig, self._given.kube_context)
        return self._opened.enter_context(closing(Kubernetes(access, limits, self.log)))

    def _cluster_secrets(self) -> ClusterSecrets:
        """Return the client that reads the cluster's secrets."""
        from task.argocd.cluster_secrets import ClusterSecrets

        return ClusterSecrets(self.kubernetes(), self._given.argocd_namespace, self.log)

    def manifests(self, source: str, scope: Scope, images: Sequence[Image]) -> Iterable[Found]:
        """Return the manifests of the Applications in this source ("cluster" or "argocd") that may
        track the images.
        """
        from task.applications.cluster import ArgoCDManifests, ClusterManifests

        # a quick check whether a manifest may be relevant
        may_concern = concerns(images, scope.prefix)
        reader: ClusterManifests | ArgoCDManifests
        if source == "cluster":
            reader = ClusterManifests(
                self.kubernetes(),
                prefix=scope.prefix,
                narrow=scope.narrow,
                argocd_namespace=self._given.argocd_namespace,
                wanted=may_concern,
                log=self.log,
            )
        else:
            reader = ArgoCDManifests(
                self.server(),
                may_concern,
                prefix=scope.prefix,
                narrow=scope.narrow,
            )
        self._readers.append(reader)  # `passed_over` needs the reader later
        return reader.manifests()

    def passed_over(self) -> Sequence[Application]:
        """Return the metadata of annotated Applications that were not read in full."""
        apps: list[Application] = []
        for reader in self._readers:
            apps += reader.passed_over
        return apps

    def application(self, namespace: str, name: str) -> Application | None:
        """Return an additional Application from the cluster or Argo CD. Return None if neither is a
        source of Applications, or if the Application cannot be read.
        """
        if not self.kind:
            return None
        argocd_namespace = self._given.argocd_namespace
        try:
            item = self.api().get_application(namespace, name)
            return parse_application(item, self._prefix, self.kind, argocd_namespace)
        except (TaskError, Malformed):
            return None

    def server(self, limits: Limits = Limits()) -> ArgoCDApi:
        """Return a new client for the Argo CD API, which is closed at the end of the run. Raises
        `UsageError` for an invalid `--argocd-header`.
        """
        from task.argocd.api import ArgoCDApi
        from task.argocd.connection import Connection, parse_headers

        options = self._given
        try:
            headers = parse_headers(options.argocd_header)
        except Malformed as error:
            raise UsageError(f"--argocd-header: {error.message}", hint=error.hint) from None
        connection = Connection(
            server=options.argocd_server,
            token=Secret(self.environ.get(ARGO_TOKENS[0], "").strip()),
            token_file=options.argocd_auth_token_file,
            plaintext=options.argocd_plaintext,
            insecure=options.argocd_insecure,
            ca_file=options.argocd_ca_file,
            root_path=options.argocd_root_path,
            headers=headers,
        )
        namespace = options.argocd_namespace
        api = ArgoCDApi(
            connection,
            self.environ,
            namespace=namespace,
            limits=limits,
            log=lambda line: self.log("debug", line),
        )
        return self._opened.enter_context(closing(api))

    @property
    def where(self) -> str:
        """Where to query single Applications: "cluster", "argocd", or "" if neither is possible."""
        if self.kind:
            return self.kind
        if names_server(self._given, self.environ):
            return "argocd"
        return "cluster" if self.cluster_at_hand() else ""

    def cluster_at_hand(self) -> bool:
        """Return whether a cluster is configured, or this process runs in a pod."""
        return bool(
            self._given.kubeconfig or self.environ.get("KUBECONFIG") or in_cluster(self.environ)
        )

    def check(self) -> None:
        """Check, before anything is written, that rollouts can be queried.

        Raises `UsageError`.
        """
        if not self.where:
            hint = "set --argocd-server, or --kubeconfig for its cluster"
            raise UsageError("--wait: cannot tell which Argo CD to query", hint=hint)
        self.patient()

    def _api(self, limits: Limits) -> ApplicationApi:
        """Return the API that reads, patches, and refreshes single Applications: Argo CD's, or the
        cluster's.
        """
        if self.where != "cluster":
            return self.server(limits)
        from task.argocd.application_store import ClusterApplications

        return ClusterApplications(self.kubernetes(), self._given.argocd_namespace)

    def page(self, app: Tracker) -> str:
        """Return the Application's URL in the Argo CD UI, or "" if it is unknown."""
        web = self._web()
        if not web:
            return ""
        return f"{web}/applications/{path_part(app.namespace)}/{path_part(app.name)}"

    def _user_interface(self) -> str:
        """Return the URL of the Argo CD UI, or "" if it is unknown."""
        if not names_server(self._given, self.environ):
            return ""
        try:
            return self.server(LINKS).web()
        except TaskError:
            return ""

    def project(self, name: str) -> Mapping[str, Any]:
        """Return the manifest of an AppProject, or {} if it cannot be read.

        Projects only add details, so if the server is slow or down, it is not queried again.
        """
        if self._slow:
            return {}
        try:
            return self.quick().project(self._given.argocd_namespace, name)
        except SourceDownError:
            self._slow = True
            return {}
        except SourceError:
            return {}

    def taken_back_by(self, item: Mapping[str, Any], field: str) -> str:
        """Return what reverts changes to this field of a live Application (`item` is its manifest):
        "ApplicationSet web", or "Application argocd/apps" if that Application deploys this one.
        Return "" if nothing is known to revert such changes.
        """
        metadata = item["metadata"]
        try:
            set_name = set_of(item)
            if set_name:
                application_set = self.api().application_set(metadata["namespace"], set_name)
                reverts = set_takes_back(application_set, metadata["name"], field)
                return f"ApplicationSet {set_name}" if reverts else ""
            parent = parent_of(item, self._given.argocd_namespace)
            if parent:
                reverts = parent_takes_back(self.api().get_application(*parent), item, field)
                return f"Application {'/'.join(parent)}" if reverts else ""
        except SourceError:  # the owner cannot be read
            pass
        return ""

    def _stores(self) -> LiveApplications:
        """Return the store that patches live Applications, through Kubernetes or through Argo CD's
        API.

        If both are configured, Kubernetes is preferred, because its patches are atomic.
        """
        from task.argocd.application_store import (
            ApplicationStore,
            ClusterApplications,
            PreferredStore,
        )

        if self.where == "cluster":
            return ApplicationStore(ClusterApplications(self.kubernetes()), atomic=True)
        argocd = ApplicationStore(self.server(), atomic=False)
        if not self.cluster_at_hand():
            return argocd
        kubernetes = once(
            lambda: ApplicationStore(ClusterApplications(self._kubernetes(PATIENT)), atomic=True)
        )
        return PreferredStore(argocd, kubernetes, self.log)

    def credentials(self, sub: Subscription, reached: str) -> tuple[str, Credentials] | None:
        """Return the Git credentials that a subscription (what to update, and where) writes with:
        (name of the secret in the cluster, credentials), or None if there is no such secret.

        The secret is the one named in the Application's annotation, or else the one that Argo CD
        uses for the repository. `reached` is the URL to connect to, after `--rewrite-url`.
        """
        repo_credentials = self._credentials(sub)
        if repo_credentials is None:
            return None
        from task.argocd.repo_secrets import credentials_of

        return repo_credentials.secret, credentials_of(repo_credentials, reached)

    def login(self, sub: Subscription) -> str:
        """Return a string that identifies the Git credentials of a subscription: the name of the
        secret in the cluster, or "" if there is none. If the secret cannot be read, the string is
        unique to the Application.
        """
        try:
            repo_credentials = self._credentials(sub)
        except TaskError:
            return f"{sub.credentials} {sub.application.key}"
        return repo_credentials.secret if repo_credentials else ""

    def _credentials(self, sub: Subscription) -> RepoCredentials | None:
        """Return the Git credentials for a subscription's repository from a secret in the cluster,
        or None if there is no secret that the Application may use.
        """
        app = sub.application
        if app.origin != self.kind:  # a file may claim any namespace and project
            return None
        secrets = self.secrets()
        if sub.credentials.startswith("secret:"):
            return secrets.named(sub.credentials, sub.repo, app.namespace, app.project)
        return secrets.repository(sub.repo, app.project)


def sources(settings: Settings, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the sources of Applications, as in `--applications`. Without that option, the source
    is the cluster in which this process runs, or else the configured Argo CD server. Return () if
    there is neither.
    """
    if settings.sources.applications:
        return settings.sources.applications
    if in_cluster(environ):
        return ("cluster",)
    return ("argocd",) if names_server(settings.sources, environ) else ()


def names_server(options: SourceOptions, environ: Mapping[str, str]) -> bool:
    """Return whether an Argo CD server is configured."""
    if options.argocd_server or environ.get("ARGOCD_SERVER", "").strip():
        return True
    return "--server" in environ.get("ARGOCD_OPTS", "")


def applications(
    settings: Settings,
    environ: Mapping[str, str],
    repository: Callable[[str], SnapshotReader],
    argo: Argo,
    scope: Scope,
    images: Sequence[Image],
) -> Iterable[Found]:
    """Yield the manifests of the Applications from all sources in `--applications`.

    `repository` opens a Git repository. From a cluster or Argo CD, only Applications in this scope
    that may track the images are read. Applications that an ApplicationSet generates, or that other
    Applications deploy, are included.
    """
    used_sources = sources(settings, environ)
    if not used_sources:
        raise UsageError(
            "cannot tell where to read Applications from: --applications is missing or empty",
            hint=f"set --applications (is your pipeline's variable set?): {CHOICES}",
        )
    repositories = Repositories(repository)
    rendered_sets = once(lambda: _rendered_sets(settings, repositories, images))
    if settings.sources.clusters:
        # called only for the error: a mistake in the file is reported even if no manifest needs the
        # file
        rendered_sets()

    def rendered(manifest: Found) -> Iterator[Found]:
        """Return an ApplicationSet's Applications. Any other manifest is returned unchanged."""
        return rendered_sets().of(manifest) if is_set(manifest.item) else iter((manifest,))

    rendering = Rendering(
        settings.sources.render,
        environ,
        settings.sources.argocd_namespace,
        used_sources,
    )
    followed = FollowedApplications(repositories, rendering, settings.sources.follow_apps, rendered)
    with closing(repositories):
        for source in used_sources:
            if source in ("cluster", "argocd"):
                try:
                    yield from argo.manifests(source, scope, images)
                except UsageError as error:
                    if not os.path.isdir(source):
                        raise
                    hint = f"{error.hint}; to read the folder {source}, use ./{source}"
                    raise UsageError(error.message, hint=hint) from None
                continue
            manifests = _manifests_in(source, repositories, rendering)
            try:
                for manifest in chain.from_iterable(map(rendered, manifests)):
                    followed.note(manifest)  # the Application may deploy others
                    yield manifest
            except RenderingError as error:
                # only `lint` continues after an error
                if not kind_of(settings.command).lists_mistakes:
                    raise
                trouble = Trouble("source", str(error), error.hint)
                yield Found(item={}, origin="", trouble=trouble)
        yield from followed.below()


def _rendered_sets(
    settings: Settings, repositories: Repositories, images: Sequence[Image]
) -> RenderedSets:
    """Return the renderer for ApplicationSets. Raises `UsageError` for a mistake in the
    `--clusters` file.
    """
    from task.applications.application_sets import RenderedSets, clusters_of

    clusters_file = settings.sources.clusters
    return RenderedSets(
        repositories,
        clusters=clusters_of(clusters_file) if clusters_file else None,
        namespace=settings.sources.argocd_namespace,
        prefix=settings.scope.annotation_prefix,
        images=images,
        strict=not kind_of(settings.command).by_hand,
    )


def _manifests_in(source: str, repositories: Repositories, rendering: Rendering) -> Iterable[Found]:
    """Return the manifests in a Git repository (`REPO//PATH?ref=REF`), or in a local file or
    folder.
    """
    repo, path = _split_git_source(source)
    is_in_git = repo != "" and not os.path.exists(source)
    if is_in_git:
        return git_manifests(repositories.of(repo, named=False), path, rendering)
    return local_manifests(source, rendering)


def _split_git_source(source: str) -> tuple[str, str]:
    """Split `REPO//PATH?ref=REF` into (REPO, PATH?ref=REF), or return ("", "").

    A scheme's `//` does not count.
    """
    scheme_end = source.find("://")
    # without a scheme, a `//` at the start does not count either
    search_from = scheme_end + len("://") if scheme_end >= 0 else 1
    separator = source.find("//", search_from)
    if separator < 0:
        return "", ""
    return source[:separator], source[separator + len("//") :]
