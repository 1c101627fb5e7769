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
    at: bool  # compared with a wanted revision
    applied: bool  # the last operation was for a wanted revision
    fresh: bool  # compared later than `since`

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
    result = _sync_result(operation)
    dry_run = value_at(operation, "operation", "sync", "dryRun") is True
    return View(
        item,
        status,
        sync,
        operation,
        tree,
        compared,
        at=_accepted(
            _compared_sources(item, mapping(sync, "comparedTo")),
            revisions_of(sync),
            wanted,
        )
        and not (wanted.spec and _other_spec(item, mapping(sync, "comparedTo"))),
        applied=_accepted(
            _compared_sources(item, result),
            revisions_of(result),
            wanted,
        )
        and not (dry_run or (wanted.spec and _other_spec(item, result))),
        fresh=not wanted.since or later(compared, wanted.since),
    )


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
    dry = _hydrated(item, wanted)
    if isinstance(dry, Rollout):
        return dry
    tree = mapping(details, "tree")
    view = view_of(item, dry, tree)
    answer = _answer(view, dry, details)
    if dry.tentative and answer.state == "synced-and-healthy":
        answer = replace(
            answer,
            sure=False,
            slow=True,
            stale=True,
        )
    pods = sick_pods(tree, text(view.operation, "startedAt")) if view.applied else ()
    hints = (answer.hint, text(tree, "hint") if answer.wants == "tree" and _of_pods(view) else "")
    return replace(
        answer,
        stale=answer.stale or (view.running and view.applied and not view.looked),
        compared=view.compared,
        begun=view.applied,
        looked=view.looked,
        pods=listed(pods) if pods else "",
        hint="; ".join(filter(None, hints)),
    )


def _answer(view: View, wanted: Wanted, details: Mapping[Wants, Mapping[str, Any]]) -> Rollout:
    """Return the state from the first check with a result."""
    windows = mapping(details, "windows")
    answer = (
        _refused(view)
        or _operating(view, windows)
        or _of_failed_operation(view)
        or _elsewhere(view, wanted)
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


def _of_pods(view: View) -> bool:
    """Return whether the cause is pods that are not ready yet, rather than a slow sync or
    comparison.
    """
    return not view.running or "waiting for healthy state of" in text(view.operation, "message")


def _hydrated(item: Mapping[str, Any], wanted: Wanted) -> Wanted | Rollout:
    """With a source hydrator, Argo CD syncs the commit that was created from the wanted (dry)
    commit.
    """
    if not mapping(item, "spec", "sourceHydrator"):
        return wanted
    status = mapping(item, "status", "sourceHydrator")
    last = mapping(status, "lastSuccessfulOperation")
    now = mapping(status, "currentOperation")
    dry = text(last, "drySHA")
    wet = text(last, "hydratedSHA")
    if dry and wet and wanted.accepts(dry):
        # Match the commit in any repository, because the hydrator may write to a different
        # repository.
        return Wanted(lambda revision: revision == wet, wanted.since)
    if wet and _hydrates_nothing(status, wanted):
        return Wanted(lambda revision: revision == wet, wanted.since, tentative=True)
    if text(now, "phase") == "Failed" and wanted.accepts(text(now, "drySHA")):
        return Rollout("failed", f"hydrating the revision failed: {said(text(now, 'message'))}")
    return Rollout("waiting", "the revision has not been hydrated yet", stale=True)


def _hydrates_nothing(status: Mapping[str, Any], wanted: Wanted) -> bool:
    """Return whether Argo CD has seen the wanted (dry) revision, and does not need to hydrate it.

    Argo CD only records a commit that does not change any of `manifest-generate-paths` (Argo CD
    3.5). It also records a commit just before a hydration begins.
    """
    if text(status, "currentOperation", "phase") in ("Hydrating", "Failed"):
        return False
    return wanted.accepts(text(status, "lastComparedDryRevision"))


def _refused(view: View) -> Rollout | None:
    """Return the state of an Application that Argo CD cannot compare at all."""
    if text(view.sync, "status") not in ("Unknown", ""):
        return None
    if problems := conditions(view.status, "InvalidSpecError"):
        if _looking(view):
            return Rollout("waiting", "Argo CD has not refreshed it yet")
        hint = "correct the Application's spec or its AppProject"
        return Rollout("failed", f"the Application's spec is invalid: {listed(problems)}", hint)
    problems = conditions(view.status, "ComparisonError", "UnknownError")
    if not problems:
        return None
    if not view.fresh:
        return Rollout("waiting", "Argo CD has not compared it again yet", stale=True)
    if all(passing(problem) for problem in problems) or not conditions(
        view.status,
        "ComparisonError",
    ):
        return Rollout(
            "progressing",
            f"Argo CD cannot compare it right now: {listed(problems)}",
            stale=True,
        )
    hint = "the manifests of this revision cannot be generated: correct them in Git"
    if any(WEBHOOK in problem for problem in problems):  # of a server-side diff
        hint = "an admission webhook in the cluster rejects the manifests: correct them in Git"
    return Rollout("failed", f"Argo CD cannot compare it: {listed(problems)}", hint, sure=False)


def _operating(view: View, windows: Mapping[str, Any]) -> Rollout | None:
    """Return the state if an operation is running or was requested."""
    if not (mapping(view.item, "operation") or view.running):
        return None
    message = text(view.operation, "message") if view.running else ""
    if "blocked by sync window" in message:
        return replace(_blocked(windows), wants="" if windows else "windows")
    if not view.applied:
        state: State = "progressing" if view.at else "waiting"
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
    if not view.applied or view.phase not in _BROKEN or (view.at and not view.current):
        return None  # there will be another operation for the wanted revision
    why = failures(view.operation)
    return Rollout("failed", f"the sync failed: {listed(why)}", "see the Application in Argo CD")


def _elsewhere(view: View, wanted: Wanted) -> Rollout | None:
    """Return the state if Argo CD has not compared the Application with the wanted revision since
    the requested refresh.
    """
    if view.at and view.fresh:
        return None
    if view.at:
        return Rollout("waiting", "Argo CD has not compared it again yet", stale=True)
    if wanted.spec:
        return Rollout(
            "waiting",
            "Argo CD has not compared the changed Application yet",
            stale=True,
        )
    if _looking(view):  # for three minutes, this is the only sign that manifests cannot be rendered
        return Rollout("waiting", "Argo CD has not finished the requested refresh yet")
    there = ", ".join(item[:12] for item in revisions_of(view.sync))
    if not there:
        return Rollout("waiting", "Argo CD has not compared it yet", stale=True)
    return Rollout(
        "waiting",
        f"Argo CD is comparing with {there}, which is not known to contain the revision",
        stale=True,
    )


def _looking(view: View) -> bool:
    """Return whether a requested refresh is still pending."""
    return REFRESH in mapping(view.item, "metadata", "annotations")


def _synced(view: View) -> Rollout:
    ended = text(view.operation, "finishedAt")
    # this does not change `reconciledAt`
    changed = text(view.status, "health", "lastTransitionTime")
    if not (later(view.compared, ended) or later(changed, ended)):
        # The health may still be outdated. These times are in whole seconds.
        return Rollout(
            "progressing", "synced; Argo CD has not reported its health since then", stale=True
        )
    health = text(view.status, "health", "status")
    if health == "Healthy":
        # If there was no operation, there was nothing to apply. Another check confirms that.
        applied = view.applied and view.phase == "Succeeded"
        return Rollout(
            "synced-and-healthy",
            "synced and healthy",
            sure=applied,
            stale=not applied,
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
    pulls = pulling(view.tree, text(view.operation, "startedAt") if view.applied else "")
    hint = "check that the registry has the image, and that the cluster is allowed to pull it"
    return (
        Rollout("failed", f"the image cannot be pulled: {listed(pulls)}", hint, sure=False)
        if pulls
        else None
    )


def _out_of_sync(view: View, windows: Mapping[str, Any], owner: Mapping[str, Any]) -> Rollout:
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


def revisions_of(where: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the revisions in a sync status or a sync result, one for each source."""
    several = where.get("revisions")
    if isinstance(several, list) and several:
        return tuple(item if isinstance(item, str) else "" for item in several)
    single = text(where, "revision")
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
    targets = {target for target, revision in pairs if revision and wanted.accepts(revision)}
    return bool(targets) and all(
        revision and wanted.accepts(revision) for target, revision in pairs if target in targets
    )


def _other_spec(item: Mapping[str, Any], compared: Mapping[str, Any]) -> bool:
    spec = mapping(item, "spec")
    return any(_full(spec.get(key)) != _full(compared.get(key)) for key in ("source", "sources"))


def _full(value: object) -> object:
    """Drop empty values, because Argo CD drops them when it copies the spec."""
    if isinstance(value, dict):
        return {
            key: full
            for key, part in value.items()
            if (full := _full(part)) not in (None, "", False)
        } or None
    if isinstance(value, list):
        return [_full(item) for item in value] or None
    return value


def later(moment: str, other: str) -> bool:
    """Return whether a time is later than another (RFC 3339). An unreadable time is never later."""
    return _moment(moment) > _moment(other)


def _moment(moment: str) -> float:
    try:
        return epoch_seconds(moment)
    except ValueError:
        return 0.0
