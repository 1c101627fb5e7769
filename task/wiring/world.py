"""Creates the World, with the clients for one run, from the settings. Most clients are created only
when they are first used, and their modules are imported only then. Most runs need only a few
clients, and importing all of their modules takes a fifth of a run's processor time.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from typing import TYPE_CHECKING, Any

from task import shutdown
from task.annotations.subscription import Scope
from task.applications.manifest_text import is_project
from task.applications.work_tree import locate as locate_in_work_tree
from task.argocd.owners import keys_wanted
from task.argocd.projects import hindrance_of
from task.deciding.job import Followed, LandedApplication
from task.errors import TaskError, UsageError
from task.git.repository.bare import BareRepository
from task.landing.ports import ChangeToJudge, LiveApplications, Repository, World
from task.model import (
    Answer,
    Application,
    Compared,
    Found,
    Image,
    Question,
    Subscription,
    Tracker,
    Verdict,
)
from task.output.log import Log
from task.proof import Proof
from task.settings import RegistryOptions, Settings, VerifyOptions
from task.threads import once
from task.urls import normal_url, without_login
from task.wiring.argo import Argo, applications, sources
from task.wiring.git import GitClients, signers

if TYPE_CHECKING:
    from task.after.follow import Follow
    from task.argocd.cluster_secrets import ClusterSecrets
    from task.forges.host import Comments, Deployments, Host
    from task.forges.opened import Forges
    from task.git.ancestry import Lineage
    from task.registry.client import Registry
    from task.registry.proofs import Prover
    from task.wiring.progress import Phase

# The keys that GitHub signs API commits with: the current one, and the one used before 2024.
OF_GITHUB = ("B5690EEEBB952194", "4AEE18F83AFDEB23")


class RealWorld(World):
    """The clients for one run, which show slow activities on a terminal.

    Raises `UsageError` immediately for settings that cannot work.
    """

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        log: Log,
        scope: Scope,
        images: Sequence[Image] = (),
    ) -> None:
        """`scope` and `images` limit what is read from a cluster."""
        self._settings = settings
        self._environ = environ
        self._log = log
        self._scope = scope
        self._images = images
        self._opened = ExitStack()
        console = None if environ.get("CI") else log.console
        self._shows_activities = console is not None
        self._phase = self._phases(console) if console else nullcontext

        # Argo CD and its cluster
        self._argo = Argo(settings, environ, log, self._opened)
        self._cluster = self._argo if self._argo.kind == "cluster" else None
        self._check_argo()
        self._follow = once(self._open_follow)
        self._hindered: set[str] = set()  # Applications whose hindrance has been logged
        # AppProjects from the manifests, or from Argo CD
        self._projects: dict[str, Mapping[str, Any]] = {}

        # Git. `once` has a lock, because a run handles its repositories concurrently.
        from_cluster = self._cluster.credentials if self._cluster else None
        self._git = GitClients(settings, environ, log, self._opened, from_cluster)
        self._forges = once(self._open_forges)
        self._lineage = once(self._open_lineage)
        self._lineage_lock = threading.Lock()

        # registries
        self._registry = once(self._open_registry)
        self.always_prove = settings.verify.wanted
        self._prover = once(self._open_prover)

        # Fail now if a setting is invalid.
        if settings.registry != RegistryOptions() or environ.get("IMAGE_UPDATE_REGISTRY_PASSWORD"):
            self._registry()
        if settings.forge.forge or settings.forge.forge_token_file:
            self._forges()
        self._signer = signers(settings.commit, self._git.git, self._opened)
        if settings.verify != VerifyOptions():
            self._prover()

    def _phases(self, console: Any) -> Phase:
        """Return a function that shows an activity on the terminal while it is in progress."""
        from task.wiring.progress import Phases

        return Phases(console).phase

    def _check_argo(self) -> None:
        """Raise `UsageError`, or log a warning, if the options need Argo CD and it is not
        available.
        """
        settings = self._settings
        if settings.rollout.wait:
            self._argo.check()  # even for a plan, because the real run would fail
        if settings.promote.healthy and not self._argo.kind:
            hint = (
                "files and Git do not show which Applications are healthy: set --applications to"
                " cluster or argocd"
            )
            raise UsageError("--healthy: cannot tell which Argo CD to query", hint=hint)
        creates_events = settings.rollout.kubernetes_events and not settings.dry
        if creates_events and not self._cluster:
            self._log(
                "warning",
                "--kubernetes-events: Events cannot be created without a cluster: set"
                " --applications to cluster",
            )

    def applications(self) -> Iterable[Found]:
        """Return the manifests of the relevant Applications from all sources. On a terminal, they
        are all read at once, so that the activity is shown.
        """
        if not self._shows_activities:
            return self._applications()
        with self._phase("reading the Applications"):
            return list(self._applications())

    def _applications(self) -> Iterable[Found]:
        """Yield the manifests of Applications, and remember those of AppProjects for later."""

        def read_only(repo: str) -> BareRepository:
            """Return a repository that is only read, and therefore needs no signer."""
            return BareRepository(self._git.git(), repo, cache_dir=self._settings.git.git_cache_dir)

        for manifest in applications(
            self._settings,
            self._environ,
            read_only,
            self._argo,
            self._scope,
            self._images,
        ):
            if is_project(manifest.item):
                self._projects[manifest.item["metadata"]["name"]] = manifest.item
            else:
                yield manifest

    def passed_over(self) -> Sequence[Application]:
        """Return the metadata of annotated Applications that `applications` left out."""
        return self._argo.passed_over()

    def application(self, namespace: str, name: str) -> Application | None:
        """Return an Application that `applications` left out. It is read from the cluster or Argo
        CD.
        """
        return self._argo.application(namespace, name)

    def locate(self, origin: str) -> tuple[str, str, str] | None:
        """Return (repository, branch, path) of a file in a Git work tree, or None. `origin` is the
        file with a line number, such as `apps/web.yaml:12`.
        """
        file, _, _line = origin.rpartition(":")
        location = locate_in_work_tree(file, self._git.git())
        return (location.repo, location.branch, location.path) if location else None

    def repository(self, repo: str, subscription: Subscription | None) -> Repository:
        """Return the repository at a URL, with the credentials for a subscription that writes to
        it.
        """
        repository = self._open(repo, subscription)
        if not self._shows_activities:
            return repository
        from task.wiring.progress import RepositoryWithProgress

        return RepositoryWithProgress(repository, without_login(repo), self._phase)

    def _open(self, repo: str, subscription: Subscription | None) -> BareRepository:
        """Return the repository at a URL, without showing its activities on the terminal.

        Commits are pushed with git. With `--commit-through github`, they are made through GitHub's
        API.
        """
        git = self._git.client(repo, subscription)
        cache = self._settings.git.git_cache_dir
        if self._settings.commit.commit_through != "github":
            return BareRepository(git, repo, self._signer(), cache)
        from task.forges.github_commits import CommittedByApi

        forges = self._forges
        return CommittedByApi(
            git,
            repo,
            api=lambda: forges().commits(repo),
            cache_dir=cache,
            check=lambda: forges().place_on_github(repo),  # raises an error for another host
        )

    def change(self, compared: Compared) -> ChangeToJudge:
        """Return the change that `check` judges."""
        from task.wiring.compared import JudgedChange

        change = JudgedChange(
            self._settings,
            self._environ,
            compared,
            lambda repo: self._git.client(repo, None),
            self._argo,
            self._scope,
        )
        return self._opened.enter_context(closing(change))

    def login(self, subscription: Subscription) -> str:
        """Return a string that identifies the Git credentials with which a subscription (what to
        update, and where) writes: the name of the cluster's secret, or "" for credentials from the
        options.
        """
        if not self._cluster or self._git.options_cover(subscription.repo):
            return ""
        return self._cluster.login(subscription)

    def now(self) -> float:
        """Return the seconds on a monotonic clock."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait until the time has passed or a signal arrives."""
        with self._phase("waiting: others are changing the same branch or Application"):
            shutdown.sleep(seconds)

    def jitter(self) -> float:
        """Return a random number from 0 to 1."""
        return random.random()  # noqa: S311 - a pause is not a secret

    def log(self, level: str, sentence: str) -> None:
        """Log a sentence."""
        self._log(level, sentence)

    def ancestry(self, repository: str, new: str, old: str) -> str:
        """Return how a source commit relates to an older one: "newer", "older", or another word if
        the order is unknown.

        Calls for several repositories are handled one at a time.
        """
        with self._phase("comparing source commits"), self._lineage_lock:
            kin = self._lineage().order(repository, old, new)
        if kin.why:  # the order is unknown
            self._log("warning", f"cannot tell the order of {new[:12]} and {old[:12]}: {kin.why}")
        return str(kin.order)

    def registry(self, questions: Collection[Question]) -> Mapping[Question, Answer]:
        """Return the registries' responses to queries about images."""
        with self._phase("querying the registries"):
            return self._registry().answer(questions)

    def _open_lineage(self) -> Lineage:
        from task.git.ancestry import Lineage

        return self._opened.enter_context(closing(Lineage(self._git.git())))

    def _open_registry(self) -> Registry:
        """Return the client for all registries of the run."""
        from task.wiring.registries import registry_of

        # A file may claim any namespace, so secrets are not read if files are among the sources.
        reads_only_cluster = set(sources(self._settings, self._environ)) == {"cluster"}
        secrets = self._argo.secrets if reads_only_cluster else None
        return registry_of(self._settings, self._environ, self._log, self._opened, secrets)

    def prove(
        self,
        questions: Collection[Question],
    ) -> Mapping[Question, Proof | Verdict | TaskError]:
        """Return the result for each image: its proof, a refusal if the image does not meet the
        requirements, or an error.
        """
        return self._prover()(questions)

    def _open_prover(self) -> Prover:
        """Return the prover. Raises `UsageError` immediately for proof options that cannot work."""
        from task.wiring.registries import prover_of

        return prover_of(self._settings.verify, self._registry, self._key_secrets, self._log)

    def _key_secrets(self) -> ClusterSecrets | None:
        """Return the cluster's secrets with public keys, or None if no cluster is available."""
        has_cluster = self._cluster or self._argo.cluster_at_hand()
        return self._argo.secrets() if has_cluster else None

    def _open_forges(self) -> Forges:
        """Return the run's forges. Raises `UsageError` immediately for invalid Git host options."""
        from task.wiring.forges import forges_of

        return forges_of(self._settings, self._environ, self._log, self._opened, self._git.logins)

    def forge(self, repo: str) -> Host:
        """Return the client for a repository's pull requests."""
        return self._forges().of(repo)

    def forge_if_known(self, repo: str) -> Host | None:
        """Return the repository's forge, or None if it cannot be detected from the URL or no token
        matches.
        """
        return self._forges().if_known(repo)

    def check_forge(self, repo: str) -> None:
        """Raise the same error as `forge` for an unknown Git host, without sending a request."""
        self._forges().check_host(repo)

    def compare(self, repo: str, base: str, head: str) -> tuple[str, str]:
        """Return the type of forge, and the URL of the page that shows a head branch's changes."""
        return self._forges().compare(repo, base, head)

    def range_page(self, repo: str, old: str, new: str) -> str:
        """Return the URL of the page that compares two commits, or "" if the Git host is
        unknown.
        """
        return self._forges().range_page(repo, old, new)

    def commit_page(self, repo: str, commit: str) -> str:
        """Return the URL of a commit's page, or "" if the Git host is unknown."""
        return self._forges().commit_page(repo, commit)

    def comments(self, repo: str) -> Comments:
        """Return the client for the comments on a repository's pull requests."""
        return self._forges().comments(repo)

    def deployments(self, repo: str) -> Deployments:
        """Return the client for a repository's deployments."""
        return self._forges().deployments(repo)

    def page(self, application: Tracker) -> str:
        """Return the Application's URL in the Argo CD UI, or "" if it is unknown."""
        return self._argo.page(application)

    def keys_wanted(self, subscription: Subscription) -> tuple[str, ...]:
        """Return the OpenPGP keys that Argo CD accepts for a subscription's commits: one of them
        must have signed a commit for Argo CD to sync it. Return () if signatures are not required.
        """
        if subscription.target == "flux":  # a Flux release does not have a project
            return ()
        project = self._project_of(subscription.application)
        url = normal_url(subscription.repo)
        for source in subscription.application.sources:
            if normal_url(source.repo) != url:
                continue
            # the project's rules are compared with the URL as spelled in the source
            keys = keys_wanted(project, source.repo)
            if keys:
                return keys
        return ()

    def _project_of(self, application: Tracker) -> Mapping[str, Any]:
        """Return the AppProject, from the manifests or from Argo CD, or {} if it is unknown."""
        name = application.project or "default"
        if name not in self._projects and self._argo.asked:
            self._projects[name] = self._argo.project(name)
        return self._projects.get(name, {})

    def hindrance(self, subscription: Subscription, now: str) -> tuple[str, str]:
        """Return what prevents Argo CD from deploying a commit now, and how to fix that. Both are
        "" if nothing is known. The reason is logged once for each Application.
        """
        app = subscription.application
        if subscription.target == "flux":
            return "", ""
        reason, hint = hindrance_of(self._project_of(app), app.name, app.destination, now)
        if reason and app.key not in self._hindered:
            self._hindered.add(app.key)
            self._log("info", f"{app.key}: {reason}")
        return reason, hint

    def signing_keys(self) -> tuple[str, ...]:
        """Return the IDs of the OpenPGP keys that sign the run's commits."""
        if self._settings.commit.commit_through == "github":
            return OF_GITHUB
        signer = self._signer()
        return signer.key_ids() if signer else ()

    def synced(self, subscription: Subscription) -> tuple[str, ...]:
        """Return the revisions (commits) of the subscription's repository that Argo CD has synced
        for its Application, newest first. Return () if they are unknown.
        """
        if subscription.target == "flux" or not self._argo.asked:
            return ()
        from task.argocd.rollout import synced_revisions

        app = subscription.application
        repo = normal_url(subscription.repo)
        try:
            item = self._argo.api().get_application(app.namespace, app.name)
        except TaskError as error:
            self._log("info", f"cannot read Argo CD's history: {error.message}")
            return ()
        return synced_revisions(item, lambda url: normal_url(url) == repo)

    def taken_back_by(self, manifest: Mapping[str, Any], field: str) -> str:
        """Return what reverts changes to a field of a live Application, or "" if nothing is known
        to.
        """
        return self._argo.taken_back_by(manifest, field)

    def live(self) -> LiveApplications | None:
        """Return the live Applications, or None if Applications are not read from a cluster or Argo
        CD.
        """
        return self._argo.live() if self._argo.kind else None

    def follow(self, landed: Sequence[LandedApplication]) -> Followed:
        """Refresh the landed Applications (those whose image was pushed) in Argo CD. With `--wait`,
        also wait for their rollouts.
        """
        waits = self._settings.rollout.wait
        refreshes = bool(self._argo.kind)
        if self._settings.dry:
            return Followed()
        if not waits and not refreshes:
            return Followed()
        # Rollouts have a separate display.
        with nullcontext() if waits else self._phase("refreshing Argo CD"):
            return self._follow()(landed)

    def _open_follow(self) -> Follow:
        from task.after.follow import Follow

        return Follow(self._settings, self._argo, self.forge, self._git.descends, self._open)

    def follow_back(self, landed: Sequence[LandedApplication]) -> Followed:
        """Do the same as `follow` after a rollback, within the time left over from `follow`."""
        return self._follow().back(landed)

    def close(self) -> None:
        """Close everything that was opened for the run."""
        self._opened.close()
