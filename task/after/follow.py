"""Following a push: creating Events, refreshing Applications, and waiting for the merge and
rollout.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

from task import shutdown
from task.after.deployments import by_application
from task.after.expecting import Expected, Repositories, expected, expecting, reverted
from task.after.follow_up import not_undone, warning
from task.after.waiting import Descends, all_of, holding, judge_of, watch, why_not_rolled_out
from task.argocd.application_store import ApplicationApi
from task.argocd.owners import parent_of
from task.argocd.rollout import ROLLED_OUT
from task.argocd.rollouts import Awaited, Judge, RolloutState, message_without_name, refresh
from task.deciding.job import Failure, Followed, LandedApplication, RolloutEnd, change_of
from task.errors import Exit, RolloutError, Severity, TaskError, Trouble, UnreachableError
from task.forges.host import Host
from task.kubernetes.client import APPLICATIONS, Kubernetes
from task.model import Problem, Proposed, Tracker
from task.output.log import Log
from task.settings import Settings
from task.templates.change import Change
from task.urls import normal_url, without_login

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 10.0  # seconds between two checks of a pull request
_LEAST_SECONDS = 1.0  # seconds that must remain for another wait
COMPONENT = "ArgocdImageUpdater"
REASON = "ImagesUpdated"
_PREFIX = "argocd-image-updater.image-"
_LONGEST_NAME = 253
_LONGEST_MESSAGE = 1024  # bytes; the API server rejects longer messages


class ReachedArgo(Protocol):
    """Access to Argo CD or its cluster."""

    environ: Mapping[str, str]
    log: Log
    kind: str  # the source of the Applications: "cluster", "argocd", or "" for anything else
    api: Callable[[], ApplicationApi]  # reads, patches, and refreshes single Applications
    # the same API, but for waiting, which repeats each request anyway
    patient: Callable[[], ApplicationApi]
    kubernetes: Callable[[], Kubernetes]

    def page(self, app: Tracker) -> str:
        """Return the URL of the Application in Argo CD's user interface, or "" if unknown."""


class Follow:
    """The steps in Argo CD after everything has landed."""

    def __init__(
        self,
        settings: Settings,
        argo: ReachedArgo,
        forge: Callable[[str], Host],
        descends: Descends,
        repository: Repositories,
    ) -> None:
        self._settings = settings
        self._argo = argo
        self._forge = forge
        self._descends = descends
        self._repository = repository
        self._options = settings.rollout
        self._problems: list[Problem] = []
        self._failures: list[Failure] = []
        self._ends: dict[str, RolloutEnd] = {}  # keyed by Application
        self._deadline = 0.0  # when the time for rollouts runs out

    def __call__(self, landed: Sequence[LandedApplication]) -> Followed:
        """Refresh the written Applications in Argo CD, and wait for pull requests and rollouts, as
        the options require. Return the problems, the failures that can be undone, and how the
        rollouts ended.

        `landed` are the Applications with the image in a commit. Errors become problems in the
        result, because the changes have already landed.
        """
        self._problems = []
        self._failures = []
        self._ends = {}
        # Applications whose commit is on the branch that Argo CD deploys
        arrived = [item for item in landed if not item.request and item.arrives]
        # those among them that did not use the image before this run
        written = [item for item in arrived if item.written]
        if self._options.kubernetes_events and self._argo.kind == "cluster":
            self._with_problem_on_error(lambda: self._create_events(written), "warning")
        if self._options.wait:
            self._follow_requests(landed, arrived, written)
        elif self._options.refresh and self._argo.kind:
            self._with_problem_on_error(lambda: self._refresh(written), "warning")
        return Followed(
            tuple(self._problems),
            tuple(self._failures),
            tuple(self._ends.values()),
        )

    def back(self, landed: Sequence[LandedApplication]) -> Followed:
        """Refresh the rolled-back Applications, and return which of them recover in the time left
        (`recoveries`). `landed` are these Applications, with the commits of the rollback.

        A rollout that fails here does not become a problem: the exit code reflects the update.
        """
        self._problems = []
        arrived = [item for item in landed if item.arrives and self._can_await(item)]
        remaining_seconds = self._deadline - time.monotonic()
        # the wait itself refreshes the Applications it waits for, but not their parents
        wait_refreshes = remaining_seconds >= _LEAST_SECONDS and not self._options.refresh_parents
        if self._options.refresh and not wait_refreshes:
            self._with_problem_on_error(lambda: self._refresh(arrived), "warning")
        recoveries = self._recoveries(arrived, remaining_seconds) if arrived else ()
        return Followed(tuple(self._problems), recoveries=recoveries)

    def _recoveries(
        self,
        arrived: Sequence[LandedApplication],
        remaining_seconds: float,
    ) -> tuple[RolloutEnd, ...]:
        """Wait for the rolled-back Applications for at most the remaining time, and return how each
        rollout ended: "healthy", "late" (not in time), "failed", or "unknown".
        """
        applications = _relevant_by_application(arrived)
        # `wait` takes a single commit. For an Application with sources in several repositories,
        # this is the commit in the first one.
        wait_commands = {
            key: f"image-update wait {key} --revision {items[0].commit}"
            for key, items in applications.items()
        }
        if remaining_seconds < _LEAST_SECONDS:
            return _unknown_ends(wait_commands, "--wait-timeout has run out")
        self._argo.log("info", "waiting for the rolled-back Applications to recover")
        try:
            rows, errors = self._wait_for_rollouts(applications, remaining_seconds)
        except TaskError as failure:
            return _unknown_ends(wait_commands, str(failure))
        return tuple(
            _recovery_of(row, errors.get(row.application), wait_commands[row.application])
            for row in rows
        )

    def _with_problem_on_error(self, work: Callable[[], None], severity: Severity) -> None:
        """Call the function. If it raises a `TaskError`, add the error to this run's problems, with
        this severity.
        """
        try:
            work()
        except TaskError as error:
            self._add_problem(error, severity)

    def _add_problem(self, error: TaskError, severity: Severity) -> None:
        """Add an error to this run's problems, with this severity."""
        trouble = error.trouble
        if severity == "warning":
            trouble = trouble.as_warning()
        self._problems.append(Problem(trouble))

    def _create_events(self, written: Sequence[LandedApplication]) -> None:
        """Create a Kubernetes Event for each written Application that still exists."""
        kubernetes = self._argo.kubernetes()
        for members in _relevant_by_application(written).values():
            app = members[0].application
            live_application = kubernetes.get(APPLICATIONS, app.namespace, app.name)
            if live_application is None:  # it was deleted in the meantime
                continue
            changes: list[Change] = []
            for landed in members:
                updates = [item for item in landed.decisions if item.verdict == "update"]
                changes += [change_of(decision) for decision in updates]
            kubernetes.post(updated_event(live_application["metadata"], changes, time.time()))

    def _refresh(self, landed: Sequence[LandedApplication]) -> None:
        """Have Argo CD compare these Applications, and their parents, with Git now."""
        keys = [(item.application.namespace, item.application.name) for item in landed]
        refresh(self._argo.api(), keys, self._argo.log)
        refresh(self._argo.api(), self._parents_to_refresh(landed), self._argo.log)

    def _parents_to_refresh(self, landed: Sequence[LandedApplication]) -> list[tuple[str, str]]:
        """Return the (namespace, name) of each parent of the written Applications (app of apps), or
        an empty list if parents are not to be refreshed.
        """
        if not self._options.refresh_parents:
            return []
        api = self._argo.api()
        keys = dict.fromkeys((item.application.namespace, item.application.name) for item in landed)
        parents = []
        for namespace, name in keys:
            application = api.get_application(namespace, name)
            parent = parent_of(application, self._settings.sources.argocd_namespace)
            if parent is not None:
                parents.append(parent)
        return parents

    def _follow_requests(
        self,
        landed: Sequence[LandedApplication],
        arrived: Sequence[LandedApplication],
        written: Sequence[LandedApplication],
    ) -> None:
        """Wait for pull requests to be merged, and then for all rollouts.

        `landed` are the Applications with an image in a commit. `arrived` are the landed
        Applications whose commit is on the branch that Argo CD deploys, and `written` are the
        arrived ones that this run wrote. An Application whose commit is only on a head branch (any
        other branch), without a pull request, gets a warning.
        """
        requested = [item for item in landed if item.request]  # in a pull request
        # The wait for rollouts refreshes the Applications, but not their parents. If there are pull
        # requests, it begins only after the merges. So refresh the written Applications now.
        if self._options.refresh and (requested or self._options.refresh_parents):
            self._with_problem_on_error(lambda: self._refresh(written), "warning")

        deadline = time.monotonic() + self._options.wait_timeout
        merged, unmerged = _wait_for_merges(requested, self._forge, deadline, self._argo.log)
        for error in unmerged:
            self._add_problem(error, "error")

        awaited = [item for item in (*arrived, *merged) if self._can_await(item)]
        for item in landed:
            is_on_head_branch = item not in arrived and not item.request
            if is_on_head_branch:
                head = next(decision.head for decision in item.decisions if decision.head)
                self._warn_not_awaited(item, f"nothing will roll out until {head} is merged")
        if awaited:
            self._with_problem_on_error(lambda: self._follow_rollouts(awaited), "error")
        self._fail_unmerged(requested, merged)

    def _fail_unmerged(
        self,
        requested: Iterable[LandedApplication],
        merged: Iterable[LandedApplication],
    ) -> None:
        """Mark an Application's rollout as failed if one of its pull requests is not merged,
        because then only part of its change is deployed.

        `requested` contains the Applications with a pull request, and `merged` contains those whose
        request was merged.
        """
        merged_keys = {(item.application.key, item.repo) for item in merged}
        for item in requested:
            key = item.application.key
            is_merged = (key, item.repo) in merged_keys
            if key in self._ends and not is_merged:
                self._ends[key] = RolloutEnd(
                    key, "failed", because="its pull request is not merged"
                )

    def _can_await(self, landed: LandedApplication) -> bool:
        """Return whether the Application has a source in the repository that was written, or was
        patched in the cluster. If neither is true, also add a warning.
        """
        is_live_patch = not landed.commit
        if is_live_patch:
            return True
        url = normal_url(landed.repo)
        if any(normal_url(source.repo) == url for source in landed.application.sources):
            return True
        self._warn_not_awaited(landed, f"none of its sources is in {without_login(landed.repo)}")
        return False

    def _warn_not_awaited(self, landed: LandedApplication, why: str) -> None:
        """Add a warning that this run does not wait for an Application."""
        hint = "wait for the Application that deploys it: image-update wait APP --revision SHA"
        self._problems.append(warning(landed.application.key, f"not waiting for it: {why}", hint))

    def _wait_for_rollouts(
        self,
        applications: Mapping[str, Sequence[LandedApplication]],
        limit: float,
    ) -> tuple[tuple[RolloutState, ...], Mapping[str, TaskError]]:
        """Wait for the rollouts of these Applications for at most `limit` seconds. `applications`
        maps an Application's key (namespace/name) to the commits with its images.

        Return how each rollout ended, and the errors for rollouts whose outcome is unknown.
        """
        awaited = []
        for items in applications.values():
            judge = all_of([self._judge_of_change(item) for item in items])
            if self._options.expect_image:
                judge = _judge_of_images(judge, expected(items, self._repository))
            app = items[0].application
            awaited.append(Awaited(app.namespace, app.name, judge))
        argo = self._argo
        return watch(
            argo.patient(),
            awaited,
            limit,
            argo.environ,
            argo.log,
            refresh=self._options.refresh,
        )

    def _follow_rollouts(self, landed: Sequence[LandedApplication]) -> None:
        """Wait for the rollouts of the landed Applications (those with an image in a commit). Add
        how each rollout ended to this run's problems, rollout ends, and failures.
        """
        applications = _relevant_by_application(landed)
        self._deadline = time.monotonic() + self._options.wait_timeout
        rows, errors = self._wait_for_rollouts(applications, self._options.wait_timeout)
        for row in rows:
            key = row.application
            error = errors.get(key)
            if error:
                trouble = error.saying(message_without_name(error, key))
                self._problems.append(Problem(trouble, application=key))
            elif row.state in ROLLED_OUT:
                self._record_success(row)
            else:
                self._record_failure(row, applications[key])
        failed = sum(row.state not in ROLLED_OUT for row in rows)
        if failed and len(rows) > 1:
            self._argo.log("error", f"{failed} of {len(rows)} Applications did not roll out")

    def _record_success(self, row: RolloutState) -> None:
        """Record that a rollout is healthy, unless it is paused. Add its warning, if it has one."""
        key = row.application
        # the outcome of a paused rollout is unknown, so its deployment remains in progress
        if row.state != "paused":
            self._ends[key] = RolloutEnd(key, "healthy", because=row.because)
        if row.warning:
            self._problems.append(warning(key, row.warning, row.hint))

    def _record_failure(self, row: RolloutState, landed: Sequence[LandedApplication]) -> None:
        """Record that a rollout failed. If it failed after the sync of this change, also add it to
        the failures, which are rolled back with `--on-failure rollback`.
        """
        key = row.application
        because = why_not_rolled_out(row)
        trouble = Trouble("rollout", because, self._failure_hint(row, landed), exit=Exit.ROLLOUT)
        self._problems.append(Problem(trouble, application=key))
        self._ends[key] = RolloutEnd(key, "failed", because=because)
        # undo only a failure after the sync of this change, not a mere lack of information
        is_known_failure = row.begun and row.known and row.state in ("failed", "timed-out")
        if is_known_failure:
            self._failures.append(Failure(tuple(landed), because))
        elif self._settings.on_failure == "rollback":  # say why there is no rollback
            self._problems.append(not_undone(key, _why_not_undone(row)))

    def _failure_hint(self, row: RolloutState, landed: Sequence[LandedApplication]) -> str:
        """Return the hint for a failed rollout: its own hint, the URL of its page, and the rollback
        command if a person has to roll back.
        """
        hints = [row.hint] if row.hint else []
        page = self._argo.page(landed[0].application)
        if page:
            hints.append(f"see {page}")
        has_failed = row.begun and row.state in ("failed", "timed-out")
        is_automatic = self._settings.on_failure == "rollback"
        is_in_git = all(item.commit for item in landed)
        if has_failed and is_in_git and not is_automatic:
            hints.append(f"to roll back: image-update rollback {row.application} --to previous")
        return "; ".join(hints)

    def _judge_of_change(self, landed: LandedApplication) -> Judge:
        """Return a judge (a function that returns a rollout's progress) for an Application with an
        image in a commit (`landed`).

        The Application must be synced to the commit or a later one. If the live Application was
        patched, it must be synced to the patched spec.
        """
        is_live_patch = not landed.commit
        if is_live_patch:
            # any revision will do, but Argo CD must have seen the patched spec
            judge_patched = judge_of(lambda _any: True, spec=True)
            return lambda item, since, details: (
                reverted(landed.decisions, item) or judge_patched(item, since, details)
            )
        sub = landed.decisions[0].subscription

        def relation_to_commit(revision: str) -> str:
            """Return how a revision relates to the commit, such as "newer"."""
            return self._descends(sub, landed.repo, revision, landed.commit)

        return judge_of(holding(relation_to_commit, landed.commit), landed.repo)


def _why_not_undone(row: RolloutState) -> str:
    """Return why a rollout that did not succeed is not a reason to roll back."""
    if row.begun and row.state == "timed-out":
        return "the state of the rollout is unknown: Argo CD has not refreshed since the sync began"
    return "no sync of this change has failed"


def _recovery_of(row: RolloutState, error: TaskError | None, wait_command: str) -> RolloutEnd:
    """Return how a rollout after a rollback ended. `error` is the reason if the outcome is unknown,
    and `wait_command` is the command to keep waiting for the rollout.
    """
    key = row.application
    if error:
        because = message_without_name(error, key)
        return RolloutEnd(key, "unknown", because=because, hint=wait_command)
    if row.state == "synced-and-healthy":
        return RolloutEnd(key, "healthy", because=row.warning)
    if row.state in ("timed-out", "paused"):
        return RolloutEnd(key, "late", because=row.because, hint=wait_command)
    return RolloutEnd(key, "failed", because=why_not_rolled_out(row), hint=row.hint)


def _unknown_ends(hints: Mapping[str, str], because: str) -> tuple[RolloutEnd, ...]:
    """Return a rollout end with the state "unknown" and the same reason for each Application.
    `hints` contains a hint for each Application's key.
    """
    return tuple(
        RolloutEnd(key, "unknown", because=because, hint=hint) for key, hint in hints.items()
    )


def _judge_of_images(judge: Judge, images: Sequence[Expected]) -> Judge:
    """Return a judge that accepts a rollout only if these images are running as well."""
    return lambda item, since, details: expecting(judge(item, since, details), item, images)


def _relevant_by_application(
    landed: Sequence[LandedApplication],
) -> dict[str, list[LandedApplication]]:
    """Group the landed items (Applications with an image in a commit) by the Application's key.

    If this run wrote something for an Application in a repository, leave out the items that were
    already there before.
    """
    grouped: dict[str, list[LandedApplication]] = {}
    for key, items in by_application(landed).items():
        # the commits of this run are newer, and contain the others in the same repository
        written_repos = {item.repo for item in items if item.written}
        grouped[key] = [item for item in items if item.written or item.repo not in written_repos]
    return grouped


def _wait_for_merges(
    landed: Sequence[LandedApplication],
    forge: Callable[[str], Host],
    deadline: float,
    log: Log,
) -> tuple[list[LandedApplication], list[TaskError]]:
    """Wait until the deadline for the pull requests with the Applications' images to be merged.

    Return the Applications whose request was merged, each with the merge commit as its commit, and
    an error for each pull request that was not merged.
    """
    # both are keyed by repository and number, because Applications may share a pull request
    merged_requests: dict[tuple[str, str], Proposed] = {}
    errors: dict[tuple[str, str], TaskError] = {}
    merged: list[LandedApplication] = []
    for item in landed:
        key = (item.repo, item.request)
        if key in errors:
            continue
        if key not in merged_requests:  # it has not been awaited yet
            try:
                merged_requests[key] = _wait_for_merge(
                    forge(item.repo), item.request, deadline, log
                )
            except TaskError as error:
                errors[key] = error
                continue
        commit = merged_requests[key].merge_commit or item.commit
        merged.append(replace(item, commit=commit, request=""))
    return merged, list(errors.values())


def _wait_for_merge(forge: Host, number: str, deadline: float, log: Log) -> Proposed:
    """Wait until a pull request is merged, and return it.

    Raises `RolloutError` if it is closed or not merged by the deadline. If the forge does not
    respond, keep trying until the deadline.
    """
    pause = _FIRST_PAUSE
    is_logged = False
    while True:
        try:
            request = forge.state(number)
        except UnreachableError:
            if time.monotonic() >= deadline:
                raise
        else:
            if request.state == "merged":
                return request
            if request.state == "closed":
                hint = "reopen it, or have a newer build open another request"
                raise RolloutError(f"{request.url} was closed without being merged", hint=hint)
            if time.monotonic() >= deadline:
                hint = "merge it, or pass a longer --wait-timeout"
                raise RolloutError(f"{request.url} is not merged yet", hint=hint)
            if not is_logged:
                log("info", f"waiting for {request.url} to be merged")
                is_logged = True
        shutdown.check()
        shutdown.sleep(min(pause, max(deadline - time.monotonic(), 0.1)))
        pause = min(2 * pause, _LONGEST_PAUSE)


def updated_event(
    metadata: Mapping[str, Any],
    changes: Sequence[Change],
    now: float,
) -> dict[str, Any]:
    """Return the Kubernetes Event that lists an Application's changed images. `metadata` is the
    Application's metadata, and `now` is a Unix time.

    The reason, type, and annotations are the same as AIU's, with images numbered from 0. The Event
    is in the Application's namespace, because the Application's owner looks there, and Kubernetes
    does not allow any other namespace.
    """
    name = str(metadata.get("name", ""))
    namespace = str(metadata.get("namespace", ""))
    # in whole seconds, like `metav1.Time`
    timestamp = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    # the time makes the name unique, as in the names that Kubernetes components generate
    suffix = f".{round(now * 1e9):x}"
    longest_prefix = _LONGEST_NAME - len(suffix)  # Kubernetes limits the length of names
    # a name must not have a hyphen or a dot before the suffix's dot
    event_name = name[:longest_prefix].rstrip("-.") + suffix
    annotations: dict[str, str] = {}
    for number, change in enumerate(changes):
        prefix = f"{_PREFIX}{number}"
        annotations |= {
            f"{prefix}/full-image-name": change.image.name,
            f"{prefix}/image-name": change.name,
            f"{prefix}/old-tag": change.old,
            f"{prefix}/new-tag": change.new,
        }
    object_version = {key: metadata[key] for key in ("resourceVersion", "uid") if metadata.get(key)}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": event_name,
            "namespace": namespace,
            "annotations": annotations,
        },
        "involvedObject": {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "name": name,
            "namespace": namespace,
            **object_version,
        },
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": COMPONENT,
        "type": "Normal",
        "reason": REASON,
        "message": f"Successfully updated application '{name}'"[:_LONGEST_MESSAGE],
        "firstTimestamp": timestamp,
        "lastTimestamp": timestamp,
        "count": 1,
    }
