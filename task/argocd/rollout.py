"""Determines whether a revision has been rolled out, based on its Argo CD Application.

The Application goes through these steps. A refresh compares it with the new revision (OutOfSync,
with the old revision's health). Auto-sync requests an operation, which runs and succeeds. A later
comparison reports Synced, with the health of the applied revision (Progressing, then Healthy or
Degraded). So Synced and Healthy are not enough: the comparison must be with the wanted revision,
and later than the operation that applied it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from task.argocd.application_store import REFRESH
from task.argocd.owners import set_of, step_of
from task.argocd.projects import blocks
from task.argocd.rollout_causes import (
    conditions,
    failures,
    listed,
    passing,
    pulling,
    said,
    sick_pods,
    unwell,
)
from task.plain_data import mapping, mappings, text, value_at
from task.timestamps import epoch_seconds

Wants = Literal["", "tree", "windows", "owner"]
Details = Mapping[Wants, Mapping[str, Any]]  # more data about an Application, by kind
State = Literal["waiting", "progressing", "synced-and-healthy", "paused", "failed", "needs-sync"]
ROLLED_OUT = ("synced-and-healthy", "paused")  # the states that are not errors
SKIP = "argocd.argoproj.io/skip-reconcile"
_BROKEN = ("Failed", "Error")
# Since Argo CD 3.6, `ServerSideApply=true` makes the diff server-side, so the cluster's webhooks
# are called for each comparison.
WEBHOOK = "admission webhook"


@dataclass(frozen=True)
class Wanted:
    """The wanted revision."""

    accepts: Callable[[str], bool]  # whether a revision is or contains the wanted one
    since: str = ""  # RFC 3339, by Argo CD's clock: only later comparisons count
    # whether a source with this repoURL must have the wanted revision
    ours: Callable[[str], bool] = lambda _url: True
    # the comparison must be with the current spec, because a live Application was patched
    spec: bool = False
    # Argo CD may still find work to do: a later comparison must confirm it
    tentative: bool = False


@dataclass(frozen=True)
class Rollout:
    """The state of a rollout. Three states end the wait, because the rollout will not continue on
    its own.

    They are `failed`, `needs-sync`, and `paused` (the image is deployed, and a person or a timer
    resumes the rollout).
    """

    state: State
    because: str
    hint: str = ""
    sure: bool = True  # False: it must be confirmed by a later comparison
    slow: bool = False  # if not sure: whether it may take a minute to clear
    stale: bool = False  # a newer comparison is needed: request a refresh
    wants: Wants = ""  # missing data that would make the result more precise
    compared: str = ""  # status.reconciledAt: the time of Argo CD's last comparison with Git
    warning: str = ""  # a warning about a rollout that has not failed
    begun: bool = False  # whether Argo CD has begun to sync the wanted revision
    # whether Argo CD has checked since that sync began (or ended), so it is not just slow
    looked: bool = False
    pods: str = ""  # problems of pods that were created since then


@dataclass(frozen=True)
class View:
    """The parts of an Application that are relevant for its rollout."""

    item: Mapping[str, Any]
    status: Mapping[str, Any]
    sync: Mapping[str, Any]
    operation: Mapping[str, Any]  # status.operationState
    tree: Mapping[str, Any]
    compared: str
    at_wanted: bool  # whether the last comparison was with a wanted revision
    applied: bool  # whether the last operation was for a wanted revision
    fresh: bool  # whether the last comparison was later than `since`

    @property
    def phase(self) -> str:
        """The phase of the last operation: Running, Terminating, Succeeded, Failed, Error."""
        return text(self.operation, "phase")

    @property
    def running(self) -> bool:
        """Whether an operation is running."""
        return self.phase in ("Running", "Terminating")

    @property
    def looked(self) -> bool:
        """Whether Argo CD has checked the cluster since the operation that applied a wanted
        revision.

        A busy controller leaves stale data, such as a sync that still appears to be running or an
        outdated health status.
        """
        if not self.applied:
            return False
        if self.running and self.operation.get("retryCount"):
            return True
        began = text(self.operation, "startedAt")
        moment = began if self.running else text(self.operation, "finishedAt") or began
        # a changed health does not change `reconciledAt`
        changed = text(self.status, "health", "lastTransitionTime")
        return later(self.compared, moment) or later(changed, moment)

    @property
    def current(self) -> bool:
        """Whether the last operation was for the revisions of the last comparison."""
        return revisions_of(_sync_result(self.operation)) == revisions_of(self.sync)


def view_of(item: Mapping[str, Any], wanted: Wanted, tree: Mapping[str, Any]) -> View:
    """Return the view of an Application for the wanted revision."""
    status = mapping(item, "status")
    sync = mapping(status, "sync")
    operation = mapping(status, "operationState")
    compared = text(status, "reconciledAt")
    compared_to = mapping(sync, "comparedTo")
    at_wanted = _accepted(_compared_sources(item, compared_to), revisions_of(sync), wanted)
    if wanted.spec and _has_other_spec(item, compared_to):
        at_wanted = False
    result = _sync_result(operation)
    applied = _accepted(_compared_sources(item, result), revisions_of(result), wanted)
    if wanted.spec and _has_other_spec(item, result):
        applied = False
    if value_at(operation, "operation", "sync", "dryRun") is True:
        applied = False
    fresh = not wanted.since or later(compared, wanted.since)
    return View(item, status, sync, operation, tree, compared, at_wanted, applied, fresh)


def judge(
    item: Mapping[str, Any],
    wanted: Wanted,
    details: Mapping[Wants, Mapping[str, Any]] = {},
) -> Rollout:
    """Return the state of the rollout.

    `details` may contain the tree (resources), windows (sync), and owner (ApplicationSet).

    Anything older than the wanted revision is ignored, whether success or failure.
    """
    metadata = mapping(item, "metadata")
    if metadata.get("deletionTimestamp"):
        return Rollout(
            "failed",
            "the Application is being deleted",
            "wait for the Application that replaces it",
        )
    if text(metadata, "annotations", SKIP).lower() in ("true", "t", "1"):
        hint = f"remove the annotation {SKIP}"
        return Rollout("needs-sync", "Argo CD is configured to skip this Application", hint)
    to_sync = _wanted_for_sync(item, wanted)
    if to_sync is None:
        return _not_hydrated(item, wanted)
    tree = mapping(details, "tree")
    view = view_of(item, to_sync, tree)
    answer = _answer(view, to_sync, details)
    if to_sync.tentative and answer.state == "synced-and-healthy":
        answer = replace(
            answer,
            sure=False,
            slow=True,
            stale=True,
        )
    pods = sick_pods(tree, text(view.operation, "startedAt")) if view.applied else ()
    hint = answer.hint
    if answer.wants == "tree" and _waits_for_pods(view):
        hint = "; ".join(filter(None, (hint, text(tree, "hint"))))
    # the status of the running sync may be outdated
    outdated = view.running and view.applied and not view.looked
    return replace(
        answer,
        stale=answer.stale or outdated,
        compared=view.compared,
        begun=view.applied,
        looked=view.looked,
        pods=listed(pods) if pods else "",
        hint=hint,
    )


def _answer(view: View, wanted: Wanted, details: Mapping[Wants, Mapping[str, Any]]) -> Rollout:
    """Return the state from the first check with a result."""
    windows = mapping(details, "windows")
    answer = (
        _cannot_be_compared(view)
        or _of_running_operation(view, windows)
        or _of_failed_operation(view)
        or _not_compared(view, wanted)
    )
    if answer is not None:
        return answer
    # compared with the wanted revision, and no operation is running or failed
    status = text(view.sync, "status")
    if status == "Synced":
        return _synced(view)
    if status == "OutOfSync":
        return _out_of_sync(view, windows, mapping(details, "owner"))
    return Rollout("progressing", "Argo CD has not reported its sync status yet", stale=True)


def _waits_for_pods(view: View) -> bool:
    """Return whether the cause is pods that are not ready yet, rather than a slow sync or
    comparison.
    """
    return not view.running or "waiting for healthy state of" in text(view.operation, "message")


def _wanted_for_sync(item: Mapping[str, Any], wanted: Wanted) -> Wanted | None:
    """Return the revision that Argo CD has to sync, or None if it does not exist yet.

    That is the wanted revision itself, unless the Application has a source hydrator. A hydrator
    renders the manifests of a "dry" commit into a "hydrated" commit, and Argo CD syncs the latter.
    """
    if not mapping(item, "spec", "sourceHydrator"):
        return wanted
    status = mapping(item, "status", "sourceHydrator")
    last_operation = mapping(status, "lastSuccessfulOperation")
    dry_commit = text(last_operation, "drySHA")
    hydrated_commit = text(last_operation, "hydratedSHA")
    if not hydrated_commit:
        return None
    # Match the commit in any repository, because the hydrator may write to a different repository.
    hydrated = Wanted(lambda revision: revision == hydrated_commit, wanted.since)
    if dry_commit and wanted.accepts(dry_commit):
        return hydrated
    if _needs_no_hydration(status, wanted):
        return replace(hydrated, tentative=True)
    return None


def _not_hydrated(item: Mapping[str, Any], wanted: Wanted) -> Rollout:
    """Return the state if the wanted (dry) revision has not been hydrated."""
    operation = mapping(item, "status", "sourceHydrator", "currentOperation")
    if text(operation, "phase") == "Failed" and wanted.accepts(text(operation, "drySHA")):
        reason = said(text(operation, "message"))
        return Rollout("failed", f"hydrating the revision failed: {reason}")
    return Rollout("waiting", "the revision has not been hydrated yet", stale=True)


def _needs_no_hydration(status: Mapping[str, Any], wanted: Wanted) -> bool:
    """Return whether Argo CD has seen the wanted (dry) revision, and does not need to hydrate it.

    Argo CD only records a commit that does not change any of `manifest-generate-paths` (Argo CD
    3.5). It also records a commit just before a hydration begins.
    """
    if text(status, "currentOperation", "phase") in ("Hydrating", "Failed"):
        return False
    return wanted.accepts(text(status, "lastComparedDryRevision"))


def _cannot_be_compared(view: View) -> Rollout | None:
    """Return the state of an Application that Argo CD cannot compare at all."""
    if text(view.sync, "status") not in ("Unknown", ""):
        return None
    if problems := conditions(view.status, "InvalidSpecError"):
        if _refresh_pending(view):
            return Rollout("waiting", "Argo CD has not refreshed it yet")
        hint = "correct the Application's spec or its AppProject"
        return Rollout("failed", f"the Application's spec is invalid: {listed(problems)}", hint)
    problems = conditions(view.status, "ComparisonError", "UnknownError")
    if not problems:
        return None
    if not view.fresh:
        return Rollout("waiting", "Argo CD has not compared it again yet", stale=True)
    transient = all(passing(problem) for problem in problems)
    only_unknown_errors = not conditions(view.status, "ComparisonError")
    if transient or only_unknown_errors:
        return Rollout(
            "progressing",
            f"Argo CD cannot compare it right now: {listed(problems)}",
            stale=True,
        )
    hint = "the manifests of this revision cannot be generated: correct them in Git"
    if any(WEBHOOK in problem for problem in problems):  # of a server-side diff
        hint = "an admission webhook in the cluster rejects the manifests: correct them in Git"
    return Rollout("failed", f"Argo CD cannot compare it: {listed(problems)}", hint, sure=False)


def _of_running_operation(view: View, windows: Mapping[str, Any]) -> Rollout | None:
    """Return the state if an operation is running or was requested."""
    if not (mapping(view.item, "operation") or view.running):
        return None
    message = text(view.operation, "message") if view.running else ""
    if "blocked by sync window" in message:
        return replace(_blocked(windows), wants="" if windows else "windows")
    if not view.applied:
        state: State = "progressing" if view.at_wanted else "waiting"
        what = "a sync of another revision is running"
        return Rollout(state, f"{what}: {said(message)}" if message else what)
    if unpulled := _unpulled(view):
        return unpulled  # a sync wave is waiting for pods that will never start
    begun = text(view.operation, "startedAt")
    if "waiting for healthy state of" in message and _suspended(view, begun):
        return _paused(view)  # the wave continues once the pause is over
    what = f"the sync is running: {said(message)}" if message else "the sync is running"
    return _tried_again(view) or Rollout("progressing", what, wants="tree")


def _tried_again(view: View) -> Rollout | None:
    """Return the state if the sync has failed and Argo CD is retrying it."""
    count = view.operation.get("retryCount")
    limit = value_at(view.operation, "operation", "retry", "limit")
    if not isinstance(count, int) or count <= 0:
        return None
    # The phase stays Running until the last attempt has failed. An Application without a `retry`
    # has five more attempts, which take five minutes.
    tries = f"{count} of {limit}" if isinstance(limit, int) and limit else str(count)
    why = listed(failures(view.operation))
    return Rollout(
        "progressing",
        f"the sync failed and is being retried ({tries}): {why}",
        "Argo CD keeps retrying; pass a longer --wait-timeout to see the outcome",
        wants="tree",
    )


def _blocked(windows: Mapping[str, Any]) -> Rollout:
    hint = "sync it once the window allows it (argocd app sync), or wait until the window opens"
    because = text(windows, "because") or "a sync window prevents Argo CD from syncing"
    return Rollout("needs-sync", because, hint)


def _of_failed_operation(view: View) -> Rollout | None:
    """Return the state if the last operation was for the wanted revision and failed for good."""
    if not view.applied or view.phase not in _BROKEN:
        return None
    if view.at_wanted and not view.current:
        return None  # there will be another operation for the wanted revision
    why = failures(view.operation)
    return Rollout("failed", f"the sync failed: {listed(why)}", "see the Application in Argo CD")


def _not_compared(view: View, wanted: Wanted) -> Rollout | None:
    """Return the state if Argo CD has not compared the Application with the wanted revision since
    the requested refresh.
    """
    if view.at_wanted and view.fresh:
        return None
    if view.at_wanted:
        return Rollout("waiting", "Argo CD has not compared it again yet", stale=True)
    if wanted.spec:
        return Rollout(
            "waiting",
            "Argo CD has not compared the changed Application yet",
            stale=True,
        )
    if _refresh_pending(
        view
    ):  # for three minutes, this is the only sign that manifests cannot be rendered
        return Rollout("waiting", "Argo CD has not finished the requested refresh yet")
    other_revisions = ", ".join(item[:12] for item in revisions_of(view.sync))
    if not other_revisions:
        return Rollout("waiting", "Argo CD has not compared it yet", stale=True)
    return Rollout(
        "waiting",
        f"Argo CD is comparing with {other_revisions}, which is not known to contain the revision",
        stale=True,
    )


def _refresh_pending(view: View) -> bool:
    """Return whether a requested refresh is still pending."""
    return REFRESH in mapping(view.item, "metadata", "annotations")


def _synced(view: View) -> Rollout:
    """Return the state of an Application that is synced to the wanted revision, from its health."""
    ended = text(view.operation, "finishedAt")
    # a changed health does not change `reconciledAt`
    changed = text(view.status, "health", "lastTransitionTime")
    health_is_current = later(view.compared, ended) or later(changed, ended)
    if not health_is_current:
        # The health may still be outdated. These times are in whole seconds.
        return Rollout(
            "progressing", "synced; Argo CD has not reported its health since then", stale=True
        )
    health = text(view.status, "health", "status")
    if health == "Healthy":
        # If there was no operation, there was nothing to apply. Another check confirms that.
        succeeded = view.applied and view.phase == "Succeeded"
        return Rollout(
            "synced-and-healthy",
            "synced and healthy",
            sure=succeeded,
            stale=not succeeded,
        )
    why = unwell(view.status, view.tree)
    if health == "Degraded":
        return Rollout(
            "failed",
            f"degraded: {listed(why)}",
            "see the Application in Argo CD",
            sure=False,
            wants="tree",
        )
    if unpulled := _unpulled(view):
        return unpulled
    if health == "Suspended":
        return _paused(view)
    detail = f": {listed(why)}" if why else ""
    return Rollout(
        "progressing",
        f"synced, {health.lower() or 'its health is unknown'}{detail}",
        wants="tree",
    )


def _suspended(view: View, since: str) -> bool:
    """Return whether the Application became suspended after a given time.

    Some Applications are always suspended, for example because of a suspended CronJob.
    """
    health = mapping(view.status, "health")
    return text(health, "status") == "Suspended" and later(
        text(health, "lastTransitionTime"),
        since,
    )


def _paused(view: View) -> Rollout:
    why = unwell(view.status, view.tree)
    because = f"paused, and not healthy yet{f': {listed(why)}' if why else ''}"
    hint = "resume it, or wait for its timer; then run image-update wait to see the outcome"
    return Rollout("paused", because, hint, warning=because)


def _unpulled(view: View) -> Rollout | None:
    """Return the state if pods created since the sync began cannot pull their image."""
    since = text(view.operation, "startedAt") if view.applied else ""
    pods = pulling(view.tree, since)
    if not pods:
        return None
    hint = "check that the registry has the image, and that the cluster is allowed to pull it"
    return Rollout("failed", f"the image cannot be pulled: {listed(pods)}", hint, sure=False)


def _out_of_sync(view: View, windows: Mapping[str, Any], owner: Mapping[str, Any]) -> Rollout:
    """Return the state of an Application that differs from the wanted revision.

    `windows` and `owner` are {} if they are unknown.
    """
    automated = value_at(view.item, "spec", "syncPolicy", "automated")
    if not isinstance(automated, dict) or automated.get("enabled") is False:
        return _not_automated(view, owner)
    resources = [
        item for item in mappings(view.status, "resources") if text(item, "status") == "OutOfSync"
    ]
    names = listed([f"{text(resource, 'kind')} {text(resource, 'name')}" for resource in resources])
    only_pruning = resources and all(item.get("requiresPruning") is True for item in resources)
    if only_pruning and not automated.get("prune"):
        because = f"only resources to prune are left, and auto-prune is off: {names}"
        return Rollout(
            "needs-sync",
            because,
            "someone must sync it with pruning: argocd app sync --prune",
            sure=False,
        )
    if view.applied and view.current:  # the sync succeeded, but something still differs
        return _differs_after_its_sync(view, names, heals=automated.get("selfHeal") is True)
    if refused := _refused_syncs(view):
        return Rollout(
            "failed",
            f"Argo CD does not sync: {listed(refused)}",
            "someone must sync it",
        )
    if blocks(windows):
        return _blocked(windows)
    # {} if the step is not allowed to read AppProjects
    unless = "" if windows else ", unless a sync window prevents it"
    return Rollout(
        "progressing",
        f"out of sync; auto-sync is about to begin{unless}",
        wants="windows",
    )


def _refused_syncs(view: View) -> list[str]:
    """Return the conditions that explain why the wanted revision is not synced."""
    revisions = revisions_of(view.sync)
    return [
        condition
        for condition in conditions(view.status, "SyncError")
        if any(revision in condition for revision in revisions)
    ]


def _not_automated(view: View, owner: Mapping[str, Any]) -> Rollout:
    """Return the state without auto-sync: an ApplicationSet step or a person syncs the
    Application.
    """
    if step := step_of(owner, view.item):
        return Rollout(
            "waiting",
            step,
            "see the ApplicationSet's status, or wait longer",
            stale=True,
            wants="owner",
        )
    off = Rollout(
        "needs-sync",
        "auto-sync is off: someone must sync it",
        "argocd app sync, or Sync in the UI",
    )
    unread = "" if owner else set_of(view.item)
    if not unread:
        return off
    hint = (
        f"{off.hint}; if ApplicationSet {unread} has a RollingSync, allow the step to get"
        " applicationsets.argoproj.io"
    )
    return replace(
        off,
        hint=hint,
        sure=False,
        wants="owner",
    )


def _differs_after_its_sync(view: View, names: str, *, heals: bool) -> Rollout:
    """Return the state if the sync of this commit succeeded, but resources still differ."""
    if not later(view.compared, text(view.operation, "finishedAt")):
        return Rollout("progressing", "synced; Argo CD has not compared it since then", stale=True)
    if _suspended(view, text(view.operation, "startedAt")):
        return _paused(view)  # a canary changes weights that are also in Git
    because = f"out of sync again after the sync{f': {names}' if names else ''}"
    if heals:
        return Rollout("progressing", because, stale=True)
    return Rollout(
        "needs-sync",
        because,
        "something else is changing these resources: see the diff in Argo CD",
        sure=False,
    )


def _sync_result(operation: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of an operation that contains its revision: the result, or the request if
    there is no result yet.
    """
    result = mapping(operation, "syncResult")
    return result if revisions_of(result) else mapping(operation, "operation", "sync")


def revisions_of(sync: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the revisions in a sync status or a sync result, one for each source."""
    several = sync.get("revisions")
    if isinstance(several, list) and several:
        return tuple(item if isinstance(item, str) else "" for item in several)
    single = text(sync, "revision")
    return (single,) if single else ()


def synced_revisions(item: Mapping[str, Any], ours: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the revisions from `ours` that Argo CD has synced successfully, newest first.

    Argo CD's history does not include failed syncs, and has at most ten entries. It includes
    rollouts that failed after their sync.
    """
    found: dict[str, None] = {}
    for entry in reversed(mappings(item, "status", "history")):
        pairs = zip(
            _compared_sources({}, entry),
            revisions_of(entry),
            strict=False,
        )
        for (url, _), revision in pairs:
            if revision and ours(url):
                found[revision] = None
    return tuple(found)


def _compared_sources(
    item: Mapping[str, Any],
    compared: Mapping[str, Any],
) -> list[tuple[str, str]]:
    """Return (repository, target revision) of each source, from the last comparison,
    or else from the spec.
    """
    spec = mapping(item, "spec")
    several = mappings(compared, "sources") or mappings(spec, "sources")
    if several:
        return [(text(entry, "repoURL"), text(entry, "targetRevision")) for entry in several]
    source = mapping(compared, "source") or mapping(spec, "source")
    return [(text(source, "repoURL"), text(source, "targetRevision"))]


def _accepted(sources: list[tuple[str, str]], revisions: tuple[str, ...], wanted: Wanted) -> bool:
    """Return whether every source on the written branch is at a wanted revision.

    Other sources are ignored.
    """
    pairs = [
        (target, revision)
        for (url, target), revision in zip(sources, revisions, strict=False)
        if wanted.ours(url)
    ]
    # The written branch is the target revision of the sources that are at a wanted revision.
    branches = {target for target, revision in pairs if revision and wanted.accepts(revision)}
    if not branches:
        return False
    on_branch = [revision for target, revision in pairs if target in branches]
    return all(revision and wanted.accepts(revision) for revision in on_branch)


def _has_other_spec(item: Mapping[str, Any], compared: Mapping[str, Any]) -> bool:
    """Return whether Argo CD has compared or synced other sources than the spec has now."""
    spec = mapping(item, "spec")
    return any(
        _without_empty(spec.get(key)) != _without_empty(compared.get(key))
        for key in ("source", "sources")
    )


def _without_empty(value: object) -> object:
    """Drop empty values, because Argo CD drops them when it copies the spec."""
    if isinstance(value, dict):
        parts = {key: _without_empty(part) for key, part in value.items()}
        return {key: part for key, part in parts.items() if part not in (None, "", False)} or None
    if isinstance(value, list):
        return [_without_empty(item) for item in value] or None
    return value


def later(moment: str, other: str) -> bool:
    """Return whether a time is later than another (RFC 3339). An unreadable time is never later."""
    return _moment(moment) > _moment(other)


def _moment(moment: str) -> float:
    """Return an RFC 3339 time in seconds, or 0.0 if it cannot be read."""
    try:
        return epoch_seconds(moment)
    except ValueError:
        return 0.0
