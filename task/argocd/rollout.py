"""Determines from an Argo CD Application whether a revision has been rolled out.

An Application goes through these steps: A refresh compares it with the new revision (OutOfSync,
with the old revision's health). Auto-sync requests an operation, which runs and succeeds. A later
comparison reports Synced, with the applied revision's health (Progressing, then Healthy or
Degraded). So the statuses Synced and Healthy are not enough: they must come from a comparison with
the wanted revision that took place after the operation that applied it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from task.argocd.application_store import REFRESH
from task.argocd.owners import set_of, step_of
from task.argocd.projects import blocks
from task.argocd.rollout_causes import (
    JsonObject,
    conditions,
    failure_messages,
    health_messages,
    is_transient,
    joined_messages,
    short_line,
    sick_pods,
    unpulled_pods,
)
from task.plain_data import mapping, mappings, text, value_at
from task.timestamps import epoch_seconds

Wants = Literal["", "tree", "windows", "owner"]
Details = Mapping[Wants, JsonObject]  # additional data about an Application, by kind
State = Literal["waiting", "progressing", "synced-and-healthy", "paused", "failed", "needs-sync"]
ROLLED_OUT = ("synced-and-healthy", "paused")  # the final states that are not errors
SKIP = "argocd.argoproj.io/skip-reconcile"
_FAILED_PHASES = ("Failed", "Error")
# Since Argo CD 3.6, `ServerSideApply=true` implies server-side diffs, so every comparison calls the
# cluster's webhooks.
WEBHOOK = "admission webhook"


@dataclass(frozen=True)
class Wanted:
    """The wanted revision, which the run waits for."""

    accepts: Callable[[str], bool]  # whether a revision is or contains the wanted one
    since: str = ""  # RFC 3339, by Argo CD's clock: only later comparisons count
    # whether a source with this repoURL must have the wanted revision
    applies_to: Callable[[str], bool] = lambda _url: True
    # whether the comparison must be with the current spec, because a live Application was patched
    needs_current_spec: bool = False
    # whether a later comparison must confirm the result, because Argo CD may still find work to do
    tentative: bool = False


@dataclass(frozen=True)
class Rollout:
    """The state of a rollout. Besides success, three states end the wait, because a rollout in one
    of them will not continue on its own.

    These states are `failed`, `needs-sync`, and `paused` (the image is deployed, and a person or a
    timer will resume the rollout).
    """

    state: State
    because: str
    hint: str = ""
    sure: bool = True  # if False, a later comparison must confirm the state
    slow: bool = False  # if not `sure`: whether the state may take a minute to clear
    stale: bool = False  # whether a newer comparison is needed, so a refresh must be requested
    wants: Wants = ""  # data to request, which would make the result more precise
    compared_at: str = ""  # status.reconciledAt: the time of Argo CD's last comparison with Git
    warning: str = ""  # a warning about a rollout that has not failed
    begun: bool = False  # whether Argo CD has begun to sync the wanted revision
    # whether Argo CD has checked the cluster since that sync ended or, if it is still running,
    # since it began
    checked_since_sync: bool = False
    pods: str = ""  # problems with pods created since that sync began


@dataclass(frozen=True)
class View:
    """The parts of an Application that are relevant to its rollout."""

    application: JsonObject
    status: JsonObject
    sync: JsonObject  # status.sync
    operation: JsonObject  # status.operationState
    tree: JsonObject  # the live resources, or {}
    compared_at: str  # status.reconciledAt: the time of Argo CD's last comparison with Git
    compares_wanted: bool  # whether that comparison was with a wanted revision
    applied_wanted: bool  # whether the last operation was for a wanted revision
    is_fresh: bool  # whether the last comparison was later than `since`

    @property
    def phase(self) -> str:
        """The phase of the last operation: Running, Terminating, Succeeded, Failed, or Error."""
        return text(self.operation, "phase")

    @property
    def running(self) -> bool:
        """Whether an operation is running."""
        return self.phase in ("Running", "Terminating")

    @property
    def checked_since_sync(self) -> bool:
        """Whether Argo CD has checked the cluster since the last sync of a wanted revision finished
        or, if that sync is still running, since it began.

        Until a busy controller has done so, it leaves stale data, such as a sync that still appears
        to be running, or an outdated health status. A running sync that is being retried counts as
        checked.
        """
        if not self.applied_wanted:
            return False
        is_being_retried = self.running and bool(self.operation.get("retryCount"))
        if is_being_retried:
            return True
        started_at = text(self.operation, "startedAt")
        finished_at = text(self.operation, "finishedAt") or started_at
        sync_time = started_at if self.running else finished_at
        # a health change does not update `reconciledAt`
        health_changed_at = text(self.status, "health", "lastTransitionTime")
        return later(self.compared_at, sync_time) or later(health_changed_at, sync_time)

    @property
    def operation_is_current(self) -> bool:
        """Whether the last operation was for the revisions of the last comparison."""
        return revisions_of(_sync_result(self.operation)) == revisions_of(self.sync)


def view_of(item: JsonObject, wanted: Wanted, tree: JsonObject) -> View:
    """Return the parts of the Application `item` that are relevant to the rollout of the wanted
    revision (the one that the run waits for). `tree` contains the Application's live resources, or
    is {}.
    """
    status = mapping(item, "status")
    sync = mapping(status, "sync")
    operation = mapping(status, "operationState")
    compared_at = text(status, "reconciledAt")
    compared_to = mapping(sync, "comparedTo")
    compares_wanted = _is_for_wanted(item, compared_to, revisions_of(sync), wanted)
    result = _sync_result(operation)
    applied_wanted = _is_for_wanted(item, result, revisions_of(result), wanted)
    is_dry_run = value_at(operation, "operation", "sync", "dryRun") is True
    if is_dry_run:  # nothing was applied
        applied_wanted = False
    return View(
        application=item,
        status=status,
        sync=sync,
        operation=operation,
        tree=tree,
        compared_at=compared_at,
        compares_wanted=compares_wanted,
        applied_wanted=applied_wanted,
        is_fresh=not wanted.since or later(compared_at, wanted.since),
    )


def judge(
    item: JsonObject,
    wanted: Wanted,
    details: Mapping[Wants, JsonObject] = {},
) -> Rollout:
    """Return the state of rolling out the wanted revision (the one that the run waits for) to the
    Application `item`.

    `details` may contain the Application's live resources ("tree"), its sync windows ("windows"),
    and its ApplicationSet ("owner"). The success or failure of an older revision is ignored.
    """
    metadata = mapping(item, "metadata")
    if metadata.get("deletionTimestamp"):
        return Rollout(
            "failed",
            "the Application is being deleted",
            hint="wait for the Application that replaces it",
        )
    if text(metadata, "annotations", SKIP).lower() in ("true", "t", "1"):
        hint = f"remove the annotation {SKIP}"
        return Rollout("needs-sync", "Argo CD is configured to skip this Application", hint=hint)
    # for an Application with a source hydrator, this is the hydrated commit
    synced_wanted = _wanted_for_sync(item, wanted)
    if synced_wanted is None:
        return _rollout_before_hydration(item, wanted)
    view = view_of(item, synced_wanted, mapping(details, "tree"))
    rollout = _first_result(view, synced_wanted, details)
    # a later comparison must confirm this result, because Argo CD may still find work to do
    if synced_wanted.tentative and rollout.state == "synced-and-healthy":
        rollout = replace(rollout, sure=False, slow=True, stale=True)
    return _with_progress(rollout, view)


def _with_progress(rollout: Rollout, view: View) -> Rollout:
    """Return the rollout with these facts added from the view (the relevant parts of an
    Application): when Argo CD last compared, whether the wanted revision's sync has begun, whether
    Argo CD has checked the cluster since that sync (see `View.checked_since_sync`), and which pods
    are unhealthy. `stale` and `hint` are updated, too.
    """
    hints = [rollout.hint]
    if rollout.wants == "tree" and _waits_for_pods(view):  # the pods would reveal the cause
        hints.append(text(view.tree, "hint"))  # why the tree contains no pods
    pods = ""
    if view.applied_wanted:
        unhealthy_pods = sick_pods(view.tree, since=text(view.operation, "startedAt"))
        pods = joined_messages(unhealthy_pods) if unhealthy_pods else ""
    # the status of the running sync may be outdated
    is_outdated = view.running and view.applied_wanted and not view.checked_since_sync
    return replace(
        rollout,
        stale=rollout.stale or is_outdated,
        compared_at=view.compared_at,
        begun=view.applied_wanted,
        checked_since_sync=view.checked_since_sync,
        pods=pods,
        hint="; ".join(filter(None, hints)),
    )


def _first_result(view: View, wanted: Wanted, details: Details) -> Rollout:
    """Return the rollout's state, as determined by the first check that does not return None.

    `details` may contain "windows" (the sync windows) and "owner" (the ApplicationSet).
    """
    windows = mapping(details, "windows")
    rollout = (
        _rollout_if_incomparable(view)
        or _rollout_during_operation(view, windows)
        or _rollout_of_failed_operation(view)
        or _rollout_before_comparison(view, wanted)
    )
    if rollout is not None:
        return rollout
    # from here on, the comparison was with the wanted revision, and no operation is running or has
    # failed
    status = text(view.sync, "status")
    if status == "Synced":
        return _synced_rollout(view)
    if status == "OutOfSync":
        return _out_of_sync_rollout(view, windows, mapping(details, "owner"))
    return Rollout("progressing", "Argo CD has not reported its sync status yet", stale=True)


def _waits_for_pods(view: View) -> bool:
    """Return whether Argo CD may be waiting for pods to become ready: either no operation is
    running, or the running operation reports that it is waiting for a healthy state.
    """
    return not view.running or "waiting for healthy state of" in text(view.operation, "message")


def _wanted_for_sync(item: JsonObject, wanted: Wanted) -> Wanted | None:
    """Return the revision that Argo CD has to sync, or None if that revision does not exist yet.

    Without a source hydrator, this is the wanted revision itself. A hydrator renders the manifests
    of a "dry" commit into a "hydrated" commit, and Argo CD syncs the latter. If the wanted commit
    does not need to be hydrated, the result is the last hydrated commit, marked `tentative`, which
    means that a later comparison must confirm the result.
    """
    if not mapping(item, "spec", "sourceHydrator"):
        return wanted
    status = mapping(item, "status", "sourceHydrator")
    last_operation = mapping(status, "lastSuccessfulOperation")
    dry_commit = text(last_operation, "drySHA")
    hydrated_commit = text(last_operation, "hydratedSHA")
    if not hydrated_commit:
        return None
    # Accept the commit in any repository, because the hydrator may write to a different one.
    hydrated_wanted = Wanted(lambda revision: revision == hydrated_commit, wanted.since)
    if dry_commit and wanted.accepts(dry_commit):
        return hydrated_wanted
    if _needs_no_hydration(status, wanted):
        return replace(hydrated_wanted, tentative=True)
    return None


def _rollout_before_hydration(item: JsonObject, wanted: Wanted) -> Rollout:
    """Return the state of a rollout whose wanted (dry) revision has not been hydrated."""
    operation = mapping(item, "status", "sourceHydrator", "currentOperation")
    if text(operation, "phase") == "Failed" and wanted.accepts(text(operation, "drySHA")):
        reason = short_line(text(operation, "message"))
        return Rollout("failed", f"hydrating the revision failed: {reason}")
    return Rollout("waiting", "the revision has not been hydrated yet", stale=True)


def _needs_no_hydration(status: JsonObject, wanted: Wanted) -> bool:
    """Return whether Argo CD has seen the wanted (dry) revision and does not need to hydrate it.

    If a commit changes none of the `manifest-generate-paths`, Argo CD (since 3.5) records it
    without hydrating it. But Argo CD also records a commit just before it begins to hydrate it, so
    the result may be wrong for a moment.
    """
    if text(status, "currentOperation", "phase") in ("Hydrating", "Failed"):
        return False
    return wanted.accepts(text(status, "lastComparedDryRevision"))


def _rollout_if_incomparable(view: View) -> Rollout | None:
    """Return the state if Argo CD cannot compare the Application with Git at all, or else None."""
    if text(view.sync, "status") not in ("Unknown", ""):
        return None
    spec_problems = conditions(view.status, "InvalidSpecError")
    if spec_problems:
        if _refresh_pending(view):  # these problems may predate the refresh
            return Rollout("waiting", "Argo CD has not refreshed it yet")
        because = f"the Application's spec is invalid: {joined_messages(spec_problems)}"
        return Rollout("failed", because, hint="correct the Application's spec or its AppProject")

    problems = conditions(view.status, "ComparisonError", "UnknownError")
    if not problems:
        return None
    if not view.is_fresh:
        return Rollout("waiting", "Argo CD has not compared it again yet", stale=True)
    # An UnknownError concerns Argo CD itself, not the manifests, so it may also be transient.
    all_are_transient = all(is_transient(problem) for problem in problems)
    only_unknown_errors = not conditions(view.status, "ComparisonError")
    if all_are_transient or only_unknown_errors:
        return Rollout(
            "progressing",
            f"Argo CD cannot compare it right now: {joined_messages(problems)}",
            stale=True,
        )
    hint = "the manifests of this revision cannot be generated: correct them in Git"
    if any(WEBHOOK in problem for problem in problems):  # from a server-side diff
        hint = "an admission webhook in the cluster rejects the manifests: correct them in Git"
    because = f"Argo CD cannot compare it: {joined_messages(problems)}"
    return Rollout("failed", because, hint=hint, sure=False)


def _rollout_during_operation(view: View, windows: JsonObject) -> Rollout | None:
    """Return the state if an operation (a sync) is running or has been requested, or else None.

    `windows` contains the Application's sync windows, or is {} if they are not known yet.
    """
    is_requested = bool(mapping(view.application, "operation"))
    has_operation = is_requested or view.running
    if not has_operation:
        return None
    message = text(view.operation, "message") if view.running else ""
    if "blocked by sync window" in message:
        return _blocked_rollout(windows)
    if not view.applied_wanted:
        # If Argo CD has already compared with the wanted revision, it will sync that next.
        state: State = "progressing" if view.compares_wanted else "waiting"
        because = "a sync of another revision is running"
        return Rollout(state, f"{because}: {short_line(message)}" if message else because)
    pull_failure = _pull_failure(view)
    if pull_failure:
        return pull_failure  # this sync wave is waiting for pods that will never start
    waits_for_health = "waiting for healthy state of" in message
    if waits_for_health and _became_suspended(view, since=text(view.operation, "startedAt")):
        return _paused_rollout(view)  # the sync wave will continue when the pause ends
    retried_rollout = _retried_rollout(view)
    if retried_rollout:
        return retried_rollout
    because = f"the sync is running: {short_line(message)}" if message else "the sync is running"
    return Rollout("progressing", because, wants="tree")


def _retried_rollout(view: View) -> Rollout | None:
    """Return the state if the sync has failed and Argo CD is retrying it, or else None."""
    retry_count = view.operation.get("retryCount")
    if not isinstance(retry_count, int) or retry_count <= 0:
        return None
    # The phase remains Running until the last attempt has failed. Without `retry` in its spec, an
    # Application gets five more attempts, which take five minutes.
    limit = value_at(view.operation, "operation", "retry", "limit")
    has_limit = isinstance(limit, int) and limit != 0
    tries = f"{retry_count} of {limit}" if has_limit else str(retry_count)
    causes = joined_messages(failure_messages(view.operation))
    return Rollout(
        "progressing",
        f"the sync failed and is being retried ({tries}): {causes}",
        hint="Argo CD keeps retrying; pass a longer --wait-timeout to see the outcome",
        wants="tree",
    )


def _blocked_rollout(windows: JsonObject) -> Rollout:
    """Return the state of a rollout whose sync is blocked by a sync window. `windows` is {} if the
    windows are not known yet.
    """
    return Rollout(
        "needs-sync",
        text(windows, "because") or "a sync window prevents Argo CD from syncing",
        hint="sync it once the window allows it (argocd app sync), or wait until the window opens",
        wants="" if windows else "windows",
    )


def _rollout_of_failed_operation(view: View) -> Rollout | None:
    """Return the state if the last operation was a sync of the wanted revision that failed for
    good, or else None.
    """
    wanted_sync_failed = view.phase in _FAILED_PHASES and view.applied_wanted
    if not wanted_sync_failed:
        return None
    if view.compares_wanted and not view.operation_is_current:
        # Argo CD has since compared with a newer commit, which contains the wanted one, and will
        # sync that commit.
        return None
    causes = joined_messages(failure_messages(view.operation))
    return Rollout("failed", f"the sync failed: {causes}", hint="see the Application in Argo CD")


def _rollout_before_comparison(view: View, wanted: Wanted) -> Rollout | None:
    """Return the state if, since the wait began, Argo CD has not compared the Application with the
    wanted revision (the one that the run waits for). Return None if it has.

    In the result, `stale` means that a newer comparison is needed.
    """
    if view.compares_wanted and view.is_fresh:
        return None
    if view.compares_wanted:  # but that was before the wait began
        return Rollout("waiting", "Argo CD has not compared it again yet", stale=True)
    if wanted.needs_current_spec:
        return Rollout(
            "waiting",
            "Argo CD has not compared the changed Application yet",
            stale=True,
        )
    # While Argo CD fails to render the manifests, a pending refresh is the only sign of it for
    # three minutes.
    if _refresh_pending(view):
        return Rollout("waiting", "Argo CD has not finished the requested refresh yet")
    other_revisions = ", ".join(revision[:12] for revision in revisions_of(view.sync))
    if not other_revisions:
        return Rollout("waiting", "Argo CD has not compared it yet", stale=True)
    return Rollout(
        "waiting",
        f"Argo CD is comparing with {other_revisions}, which is not known to contain the revision",
        stale=True,
    )


def _refresh_pending(view: View) -> bool:
    """Return whether a requested refresh is still pending."""
    return REFRESH in mapping(view.application, "metadata", "annotations")


def _synced_rollout(view: View) -> Rollout:
    """Return the state of an Application that is synced to the wanted revision, based on its
    health.
    """
    finished_at = text(view.operation, "finishedAt")
    # a health change does not update `reconciledAt`
    changed_at = text(view.status, "health", "lastTransitionTime")
    health_is_current = later(view.compared_at, finished_at) or later(changed_at, finished_at)
    if not health_is_current:
        # The health may still be outdated. All times are in whole seconds, so a health from the
        # same second does not count.
        return Rollout(
            "progressing", "synced; Argo CD has not reported its health since then", stale=True
        )

    health = text(view.status, "health", "status")
    if health == "Healthy":
        # If there was no operation, there was probably nothing to apply. Another check must confirm
        # this.
        sync_succeeded = view.applied_wanted and view.phase == "Succeeded"
        return Rollout(
            "synced-and-healthy",
            "synced and healthy",
            sure=sync_succeeded,
            stale=not sync_succeeded,
        )

    causes = health_messages(view.status, view.tree)
    if health == "Degraded":
        return Rollout(
            "failed",
            f"degraded: {joined_messages(causes)}",
            hint="see the Application in Argo CD",
            sure=False,
            wants="tree",
        )
    pull_failure = _pull_failure(view)
    if pull_failure:
        return pull_failure
    if health == "Suspended":
        return _paused_rollout(view)
    because = f"synced, {health.lower() or 'its health is unknown'}"
    if causes:
        because = f"{because}: {joined_messages(causes)}"
    return Rollout("progressing", because, wants="tree")


def _became_suspended(view: View, since: str) -> bool:
    """Return whether the Application became suspended after the time `since`.

    Some Applications are always suspended, for example because they contain a suspended CronJob.
    """
    health = mapping(view.status, "health")
    if text(health, "status") != "Suspended":
        return False
    return later(text(health, "lastTransitionTime"), since)


def _paused_rollout(view: View) -> Rollout:
    """Return the state of a paused rollout, which a person or a timer has to resume."""
    because = "paused, and not healthy yet"
    causes = health_messages(view.status, view.tree)
    if causes:
        because = f"{because}: {joined_messages(causes)}"
    hint = "resume it, or wait for its timer; then run image-update wait to see the outcome"
    return Rollout("paused", because, hint=hint, warning=because)


def _pull_failure(view: View) -> Rollout | None:
    """Return the state if pods created since the sync began cannot pull their image.

    Return None otherwise.
    """
    since = text(view.operation, "startedAt") if view.applied_wanted else ""
    pods = unpulled_pods(view.tree, since)
    if not pods:
        return None
    hint = "check that the registry has the image, and that the cluster is allowed to pull it"
    because = f"the image cannot be pulled: {joined_messages(pods)}"
    return Rollout("failed", because, hint=hint, sure=False)


def _out_of_sync_rollout(view: View, windows: JsonObject, owner: JsonObject) -> Rollout:
    """Return the state of an Application that differs from the wanted revision.

    `windows` (the Application's sync windows) and `owner` (its ApplicationSet) are {} if unknown.
    """
    automated = value_at(view.application, "spec", "syncPolicy", "automated")
    if not isinstance(automated, dict) or automated.get("enabled") is False:
        return _rollout_without_auto_sync(view, owner)

    resources = [
        resource
        for resource in mappings(view.status, "resources")
        if text(resource, "status") == "OutOfSync"
    ]
    names = joined_messages(
        [f"{text(resource, 'kind')} {text(resource, 'name')}" for resource in resources]
    )
    # `requiresPruning` means that a resource is no longer in Git
    only_pruning_is_left = bool(resources) and all(
        resource.get("requiresPruning") is True for resource in resources
    )
    if only_pruning_is_left and not automated.get("prune"):
        because = f"only resources to prune are left, and auto-prune is off: {names}"
        return Rollout(
            "needs-sync",
            because,
            hint="someone must sync it with pruning: argocd app sync --prune",
            sure=False,
        )

    if view.applied_wanted and view.operation_is_current:
        # The sync succeeded (failed syncs were handled above), but something still differs.
        return _rollout_that_differs_again(view, names, heals=automated.get("selfHeal") is True)

    refusals = _sync_refusals(view)
    if refusals:
        return Rollout(
            "failed",
            f"Argo CD does not sync: {joined_messages(refusals)}",
            hint="someone must sync it",
        )
    if blocks(windows):
        return _blocked_rollout(windows)
    # `windows` is {} if the step is not allowed to read AppProjects
    unless_blocked = "" if windows else ", unless a sync window prevents it"
    return Rollout(
        "progressing",
        f"out of sync; auto-sync is about to begin{unless_blocked}",
        wants="windows",
    )


def _sync_refusals(view: View) -> list[str]:
    """Return why Argo CD does not sync the revisions of the last comparison: the messages of all
    sync errors that mention one of these revisions.
    """
    revisions = revisions_of(view.sync)
    messages = conditions(view.status, "SyncError")
    return [message for message in messages if any(sha in message for sha in revisions)]


def _rollout_without_auto_sync(view: View, owner: JsonObject) -> Rollout:
    """Return the state of an Application without auto-sync, which must be synced by a person or by
    a step of its ApplicationSet (`owner`, or {} if unknown).
    """
    step = step_of(owner, view.application)
    if step:
        return Rollout(
            "waiting",
            step,
            hint="see the ApplicationSet's status, or wait longer",
            stale=True,
            wants="owner",
        )
    rollout = Rollout(
        "needs-sync",
        "auto-sync is off: someone must sync it",
        hint="argocd app sync, or Sync in the UI",
    )
    application_set = set_of(view.application)
    if owner or not application_set:
        return rollout
    # the ApplicationSet could not be read, so it may use RollingSync
    hint = (
        f"{rollout.hint}; if ApplicationSet {application_set} has a RollingSync, allow the step to"
        " get applicationsets.argoproj.io"
    )
    return replace(
        rollout,
        hint=hint,
        sure=False,
        wants="owner",
    )


def _rollout_that_differs_again(view: View, names: str, *, heals: bool) -> Rollout:
    """Return the state of an Application whose resources still differ after a successful sync.

    `names` lists the resources, and `heals` is whether Argo CD syncs them again automatically.
    """
    if not later(view.compared_at, text(view.operation, "finishedAt")):
        return Rollout("progressing", "synced; Argo CD has not compared it since then", stale=True)
    if _became_suspended(view, since=text(view.operation, "startedAt")):
        return _paused_rollout(view)  # a canary rollout changes weights that are also set in Git
    because = "out of sync again after the sync"
    if names:
        because = f"{because}: {names}"
    if heals:
        return Rollout("progressing", because, stale=True)
    return Rollout(
        "needs-sync",
        because,
        hint="something else is changing these resources: see the diff in Argo CD",
        sure=False,
    )


def _sync_result(operation: JsonObject) -> JsonObject:
    """Return the part of an operation that contains its revision: the sync result, or the requested
    sync if there is no result yet.
    """
    result = mapping(operation, "syncResult")
    if revisions_of(result):
        return result
    return mapping(operation, "operation", "sync")


def revisions_of(sync: JsonObject) -> tuple[str, ...]:
    """Return the revisions in a sync status or sync result, one per source.

    An Application with several sources has the field `revisions`; any other has `revision`.
    """
    revisions = sync.get("revisions")
    if isinstance(revisions, list) and revisions:
        return tuple(revision if isinstance(revision, str) else "" for revision in revisions)
    revision = text(sync, "revision")
    return (revision,) if revision else ()


def synced_revisions(item: JsonObject, ours: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the revisions that Argo CD has successfully synced to the Application `item`, newest
    first, without duplicates. Sources whose URL `ours` rejects are ignored.

    Argo CD's history contains at most ten entries. It excludes failed syncs, but includes rollouts
    that failed after their sync.
    """
    newest_first: dict[str, None] = {}  # an ordered set
    for entry in reversed(mappings(item, "status", "history")):
        sources = _compared_sources({}, entry)  # {}, because each entry contains its own sources
        for (url, _target), revision in zip(sources, revisions_of(entry), strict=False):
            if revision and ours(url):
                newest_first[revision] = None
    return tuple(newest_first)


def _compared_sources(
    item: JsonObject,
    compared: JsonObject,
) -> list[tuple[str, str]]:
    """Return the (repository, target revision) of each of the Application's sources, such as
    ("https://git.example.com/config", "main").

    The sources are taken from `compared` (a comparison or sync in the Application's status), or
    else from the spec of the Application `item`.
    """
    spec = mapping(item, "spec")
    sources = mappings(compared, "sources") or mappings(spec, "sources")
    if not sources:
        sources = [mapping(compared, "source") or mapping(spec, "source")]
    return [(text(source, "repoURL"), text(source, "targetRevision")) for source in sources]


def _is_for_wanted(
    item: JsonObject,
    compared: JsonObject,
    revisions: tuple[str, ...],
    wanted: Wanted,
) -> bool:
    """Return whether a comparison or sync of the Application `item` was for a wanted revision.

    `compared` is the part of the Application's status that contains the sources, and `revisions`
    contains each source's revision. At least one source must be at a wanted revision, and so must
    every other source with the same target revision (such as a branch). Sources from other
    repositories are ignored.
    """
    if wanted.needs_current_spec and _has_other_spec(item, compared):
        return False
    wanted_targets = set()  # the target revisions of sources that are at a wanted revision
    other_targets = set()  # the target revisions of all other sources
    sources = _compared_sources(item, compared)
    for (url, target), revision in zip(sources, revisions, strict=False):
        if not wanted.applies_to(url):
            continue
        if revision and wanted.accepts(revision):
            wanted_targets.add(target)
        else:
            other_targets.add(target)
    # The branch that this run wrote to is the target revision of the sources at a wanted revision.
    return bool(wanted_targets) and wanted_targets.isdisjoint(other_targets)


def _has_other_spec(item: JsonObject, compared: JsonObject) -> bool:
    """Return whether the sources that Argo CD compared or synced (`compared`) differ from the
    current sources of the Application `item`.
    """
    spec = mapping(item, "spec")
    for key in ("source", "sources"):
        if _without_empty(spec.get(key)) != _without_empty(compared.get(key)):
            return True
    return False


def _without_empty(value: object) -> object:
    """Return a JSON value without its mappings' empty members (null, "", false, 0, {}, and []),
    because Argo CD drops these when it copies the spec.

    An empty mapping or list becomes None.
    """
    if isinstance(value, dict):
        members = {key: _without_empty(member) for key, member in value.items()}
        # 0 equals False, and {} and [] have become None
        nonempty_members = {
            key: member for key, member in members.items() if member not in (None, "", False)
        }
        return nonempty_members or None
    if isinstance(value, list):
        return [_without_empty(element) for element in value] or None
    return value


def later(time: str, other: str) -> bool:
    """Return whether `time` is later than `other` (both RFC 3339). An unreadable time counts as
    earlier than any other.
    """
    return _seconds_of(time) > _seconds_of(other)


def _seconds_of(time: str) -> float:
    """Convert an RFC 3339 time to seconds. Return 0.0 if it cannot be parsed."""
    try:
        return epoch_seconds(time)
    except ValueError:
        return 0.0
