"""Simulated rollouts: what Argo CD reports at each moment, and the resulting rollout state."""

from collections.abc import Mapping
from typing import Any

import pytest
from fakes.argocd_states import (
    MORNING,
    NEW,
    OLD,
    REPO,
    applied,
    at,
    live_application,
    operated,
    resource,
)
from hypothesis import given
from hypothesis import strategies as st

from task.argocd.owners import parent_of
from task.argocd.projects import blocks
from task.argocd.rollout import Rollout, Wanted, judge, later

PUSHED = MORNING.format(5)
APP = live_application()
MANUAL = live_application(syncPolicy={})
SEVERAL = live_application(
    source=None,
    sources=[
        {"repoURL": "https://charts.example.com", "chart": "web", "targetRevision": "1.x"},
        {"repoURL": REPO, "ref": "values", "targetRevision": "main"},
        {"repoURL": REPO, "path": "apps/web", "targetRevision": "main"},
        {"repoURL": REPO, "path": "apps/extra", "targetRevision": "release"},
    ],
)
BEFORE = operated(revision=OLD, started=1, finished=2)
RUNNING = operated(
    "Running", finished=None, message="waiting for completion of hook batch/Job/migrate"
)
DONE = operated()
NODE = {"createdAt": MORNING.format(12)}


def look(
    state: Mapping[str, Any], *, since: str = PUSHED, tree: Any = None, windows: Any = None
) -> Rollout:
    wanted = Wanted(lambda revision: revision == NEW, since, lambda url: url == REPO)
    return judge(state, wanted, {"tree": tree or {}, "windows": windows or {}})


# The stages of a successful rollout, beginning before it starts.
GOOD = [
    ("before the push", at(APP, "Synced", "Healthy", revision=OLD, compared=3, operation=BEFORE), "waiting"),
    ("compared again before the push arrived",
     at(APP, "Synced", "Healthy", revision=OLD, compared=7, operation=BEFORE), "waiting"),
    ("the operation is asked for, the status is old",
     at(APP, "Synced", "Healthy", revision=OLD, compared=3, operation=BEFORE, pending=True), "waiting"),
    ("compared with the new revision, the old pods are healthy",
     at(APP, "OutOfSync", "Healthy", operation=BEFORE), "progressing"),
    ("the operation is required",
     at(APP, "OutOfSync", "Healthy", operation=BEFORE, pending=True), "progressing"),
    ("it runs", at(APP, "OutOfSync", "Healthy", operation=RUNNING, pending=True), "progressing"),
    ("it runs, all is applied, a hook is not done",
     at(APP, "Synced", "Healthy", compared=12, operation=RUNNING, pending=True), "progressing"),
    ("it succeeded, the comparison is older", at(APP, "OutOfSync", "Healthy", operation=DONE), "progressing"),
    ("synced, but compared before it ended",
     at(APP, "Synced", "Healthy", compared=11, operation=DONE), "progressing"),
    ("synced, compared in the second in which it ended",
     at(APP, "Synced", "Healthy", compared=12, operation=DONE), "progressing"),
    ("synced, the new pods start", at(APP, "Synced", "Progressing", compared=13, operation=DONE), "progressing"),
    ("synced, health not known yet", at(APP, "Synced", "", compared=13, operation=DONE), "progressing"),
    ("synced, something is missing", at(APP, "Synced", "Missing", compared=13, operation=DONE), "progressing"),
    ("synced and healthy", at(APP, "Synced", "Healthy", compared=13, operation=DONE), "synced-and-healthy"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "expected"), [row[1:] for row in GOOD], ids=[row[0] for row in GOOD]
)
def test_each_state_of_a_successful_rollout_is_recognized(
    state: Mapping[str, Any], expected: str
) -> None:
    found = look(state)
    assert (found.state, found.sure) == (expected, True), found


IN_A_WAVE = operated(
    "Running", finished=None, message="waiting for healthy state of argoproj.io/Rollout/web"
)
CANARY = [resource("Rollout", "web", "Suspended", "CanaryPauseStep")]
PAUSED = [
    ("a canary pauses", at(APP, "Synced", "Suspended", compared=13, operation=DONE, resources=CANARY), "paused"),
    ("in a wave", at(APP, "OutOfSync", "Suspended", operation=IN_A_WAVE, pending=True, changed=13), "paused"),
    ("it was suspended before, and the sync runs",
     at(APP, "OutOfSync", "Suspended", operation=IN_A_WAVE, pending=True, changed=3), "progressing"),
    ("it was suspended before, and nothing is synced yet",
     at(APP, "OutOfSync", "Suspended", operation=BEFORE), "progressing"),
    ("paused with another revision", at(APP, "Synced", "Suspended", revision=OLD, compared=13), "waiting"),
    ("the weights of a canary are in Git, too",
     at(APP, "OutOfSync", "Suspended", compared=13, operation=DONE, changed=13), "paused"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "expected"), [row[1:] for row in PAUSED], ids=[row[0] for row in PAUSED]
)
def test_a_paused_canary_is_not_a_failure(state: Mapping[str, Any], expected: str) -> None:
    found = look(state)
    assert (found.state, found.sure) == (expected, True), found
    assert bool(found.warning) == (expected == "paused")


# Does a timeout mean anything for the image? (moment, Argo CD has compared since the sync began)
LOOKED = [
    ("the sync runs, compared before it", at(APP, "OutOfSync", "Healthy", operation=RUNNING, pending=True), False),
    ("the sync runs, compared since",
     at(APP, "OutOfSync", "Healthy", compared=12, operation=RUNNING, pending=True), True),
    ("the sync failed, and is tried again",
     at(APP, "OutOfSync", "Healthy", operation=operated("Running", finished=None, retried=2), pending=True), True),
    ("it succeeded, not compared since", at(APP, "OutOfSync", "Healthy", operation=DONE), False),
    ("a canary in a wave, whose pause is not seen yet",
     at(APP, "OutOfSync", "Healthy", operation=IN_A_WAVE, pending=True), False),
    ("it progresses", at(APP, "Synced", "Progressing", compared=13, operation=DONE), True),
    ("its health has changed since", at(APP, "Synced", "Progressing", operation=DONE, changed=13), True),
    ("another sync", at(APP, "OutOfSync", "Healthy", compared=14, operation=BEFORE), False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "expected"), [row[1:] for row in LOOKED], ids=[row[0] for row in LOOKED]
)
def test_a_busy_argo_cd_is_recognized_by_its_missing_comparison(
    state: Mapping[str, Any], expected: bool
) -> None:
    assert look(state).checked_since_sync == expected


@pytest.mark.parametrize(
    ("state", "of_pods"),
    [
        (at(APP, "Synced", "Progressing", compared=13, operation=DONE), True),
        (at(APP, "OutOfSync", "Progressing", operation=IN_A_WAVE, pending=True), True),
        (at(APP, "OutOfSync", "Healthy", operation=RUNNING, pending=True), False),
    ],
)
def test_the_pods_hint_is_shown_only_while_pods_start(
    state: Mapping[str, Any], of_pods: bool
) -> None:
    """At any other stage, the hint suggests a longer --wait-timeout."""
    assert look(state, tree={"hint": "apply rbac/pods.yaml"}).hint == (
        "apply rbac/pods.yaml" if of_pods else ""
    )


LIMIT = "Job has reached the specified backoff limit"
HOOK = applied("Job", "migrate", LIMIT, hookType="PreSync", hookPhase="Failed")
REFUSED = applied("Deployment", "web", 'Deployment.apps "web" is invalid: spec', "SyncFailed")
BACK_OFF = 'Back-off pulling image "ghcr.io/acme/web:1.2.4"'
POD = resource(
    "Pod",
    "web-1",
    "Degraded",
    BACK_OFF,
    info=[{"name": "Status Reason", "value": "ImagePullBackOff"}],
)
FAILED = operated(
    "Failed", message="one or more synchronization tasks completed unsuccessfully", resources=[HOOK]
)
DENIED = 'Failed to compare: serverSideDiff error: admission webhook "validate.kyverno.svc" denied the request: a policy forbids'
NO_CHART = "Failed to load target state: rpc error: code = Unknown desc = https://me:hunter2@git.example.com/x: no chart"

BAD = [
    ("a hook failed", at(APP, "OutOfSync", "Healthy", operation=FAILED), {}, True,
     "PreSync hook Job migrate: Job has reached the specified backoff limit"),
    ("a hook after the sync failed", at(APP, "Synced", "Healthy", compared=13, operation=FAILED), {}, True, "migrate"),
    ("an object was refused",
     at(APP, "OutOfSync", "Healthy", operation=operated("Failed", message="failed to apply", resources=[REFUSED])),
     {}, True, 'failed to apply; Deployment.apps "web" is invalid: spec'),
    ("the sync could not begin", at(APP, "OutOfSync", "Healthy", operation=operated("Error", message="no cluster")),
     {}, True, "no cluster"),
    ("it failed, and the branch has moved on",
     at(APP, "OutOfSync", "Healthy", revision="c" * 40, operation=FAILED), {}, True, "migrate"),
    ("a deployment is degraded",
     at(APP, "Synced", "Degraded", compared=13, operation=DONE, resources=[
         resource("Service", "web", "Healthy"),
         resource("Deployment", "web", "Degraded", 'Deployment "web" exceeded its progress deadline')]),
     {}, False, "exceeded its progress deadline"),
    ("degraded, and the tree knows the pod", at(APP, "Synced", "Degraded", compared=13, operation=DONE),
     {"nodes": [POD]}, False, BACK_OFF),
    ("an image cannot be pulled", at(APP, "Synced", "Progressing", compared=13, operation=DONE),
     {"nodes": [{**POD, **NODE}]}, False, f"the image cannot be pulled: Pod web-1: {BACK_OFF}"),
    ("the reason alone tells", at(APP, "Synced", "Progressing", compared=13, operation=DONE),
     {"nodes": [{**POD, **NODE, "health": {"status": "Progressing"}}]}, False, "ImagePullBackOff"),
    ("a wave waits for a pod whose image cannot be pulled",
     at(APP, "OutOfSync", "Progressing", operation=RUNNING, pending=True), {"nodes": [{**POD, **NODE}]}, False,
     BACK_OFF),
    ("manifests cannot be generated",
     at(APP, "Unknown", "Healthy", revision="", conditions=[{"type": "ComparisonError", "message": NO_CHART}]),
     {}, False, "no chart"),
    ("a webhook refuses what a server-side diff sends",
     at(APP, "Unknown", "Healthy", conditions=[{"type": "ComparisonError", "message": DENIED}]),
     {}, False, "a policy forbids"),
    ("the spec is refused",
     at(APP, "Unknown", "Unknown", conditions=[{"type": "InvalidSpecError", "message": "project x does not exist"}]),
     {}, True, "project x does not exist"),
    ("auto-sync would remove everything",
     at(APP, "OutOfSync", "Healthy", operation=BEFORE, conditions=[
         {"type": "SyncError", "message": f"Skipping sync attempt to {NEW}: auto-sync will wipe out all resources"}]),
     {}, True, "wipe out all"),
    ("the Application is being deleted",
     {**APP, "metadata": {**APP["metadata"], "deletionTimestamp": PUSHED}}, {}, True, "deleted"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "tree", "sure", "because"), [row[1:] for row in BAD], ids=[row[0] for row in BAD]
)
def test_failures_are_reported_with_their_causes(
    state: Mapping[str, Any], tree: Mapping[str, Any], sure: bool, because: str
) -> None:
    found = look(state, tree=tree)
    assert (found.state, found.sure) == ("failed", sure), found
    assert because in found.because
    assert "hunter2" not in found.because


PASSING = (
    "rpc error: code = ResourceExhausted desc = grpc: received message larger than max",
    "rpc error: code = Unknown desc = read tcp 10.0.0.1:443: read: connection reset by peer",
    "dial tcp: lookup git.example.com: no such host",
    'failed calling webhook "x": no endpoints available for service "kyverno-svc"',
)


def test_a_webhook_refusal_is_distinguished_from_invalid_manifests() -> None:
    refusal = [{"type": "ComparisonError", "message": DENIED}]
    found = look(at(APP, "Unknown", "Healthy", conditions=refusal))
    assert "admission webhook in the cluster" in found.hint


# A result from before the wanted revision does not count, whether good or bad.
STALE = [
    ("an older sync failed",
     at(APP, "OutOfSync", "Healthy", operation=operated("Failed", revision=OLD)), "progressing"),
    ("it is still degraded from before", at(APP, "Synced", "Degraded", revision=OLD, compared=3), "waiting"),
    ("degraded from before, the operation has ended this second",
     at(APP, "Synced", "Degraded", compared=12, operation=DONE), "progressing"),
    ("an older comparison failed",
     at(APP, "Unknown", "Healthy", revision=OLD, compared=3, conditions=[
         {"type": "ComparisonError", "message": NO_CHART}]), "waiting"),
    ("the same revision, compared before it was asked for",
     at(APP, "Synced", "Healthy", compared=5, operation=operated(started=3, finished=4)), "waiting"),
    ("an older refusal to sync", at(APP, "OutOfSync", "Healthy", operation=BEFORE, conditions=[
        {"type": "SyncError", "message": f"Failed sync attempt to {OLD}: no"}]), "progressing"),
    ("the repository server restarts", at(APP, "Unknown", "Healthy", revision="", conditions=[
        {"type": "ComparisonError", "message": "rpc error: code = Unavailable desc = connection refused"}]),
     "progressing"),
    *((f"a temporary error: {said}", at(APP, "Unknown", "Healthy", revision="", conditions=[
        {"type": "ComparisonError", "message": said}]), "progressing") for said in PASSING),
    ("the refusal of the spec is being looked at again",
     at({**APP, "metadata": {**APP["metadata"], "annotations": {"argocd.argoproj.io/refresh": "normal"}}},
        "Unknown", "Unknown", conditions=[{"type": "InvalidSpecError", "message": "no"}]), "waiting"),
    ("a dry run succeeded", at(APP, "OutOfSync", "Healthy", compared=14, operation={
        **DONE, "operation": {"sync": {"revision": NEW, "dryRun": True}}}), "progressing"),
    ("an older pod's image cannot be pulled, the new ones start",
     at(APP, "Synced", "Progressing", compared=13, operation=DONE), "progressing"),
    ("nothing is known", APP, "waiting"),
    ("nothing at all", {}, "waiting"),
    ("another sync runs", at(APP, "Synced", "Healthy", revision=OLD, operation=operated(
        "Running", revision=OLD, finished=None), pending=True), "waiting"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "expected"), [row[1:] for row in STALE], ids=[row[0] for row in STALE]
)
def test_outdated_and_temporary_failures_do_not_count(
    state: Mapping[str, Any], expected: str
) -> None:
    old_pod = {**POD, "createdAt": MORNING.format(1)}
    assert look(state, tree={"nodes": [old_pod]}).state == expected


DENY = {"activeWindows": [{"kind": "deny"}], "assignedWindows": [{"kind": "deny"}]}
PRUNED = resource("ConfigMap", "old", status="OutOfSync", requiresPruning=True)
SOMEONE = [
    ("auto-sync is off", at(MANUAL, "OutOfSync", "Healthy", operation=BEFORE), {}, True, "auto-sync is off"),
    ("auto-sync is switched off",
     at(live_application(syncPolicy={"automated": {"enabled": False}}), "OutOfSync", "Healthy"), {}, True,
     "auto-sync is off"),
    ("a window denies", at(APP, "OutOfSync", "Healthy", operation=BEFORE), DENY, True, "sync window"),
    ("the operation waits for a window",
     at(APP, "OutOfSync", "Healthy", operation=operated(
         "Running", finished=None, message="Sync operation blocked by sync window"), pending=True), {}, True,
     "sync window"),
    ("only pruning is left",
     at(APP, "OutOfSync", "Healthy", operation=BEFORE, resources=[PRUNED]), {}, False, "ConfigMap old"),
    ("something else changes it",
     at(APP, "OutOfSync", "Healthy", compared=13, operation=DONE, resources=[
         resource("Deployment", "web", status="OutOfSync")]), {}, False, "Deployment web"),
    ("Argo CD passes over it",
     {**APP, "metadata": {**APP["metadata"], "annotations": {"argocd.argoproj.io/skip-reconcile": "true"}}}, {}, True,
     "skip"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "windows", "sure", "because"),
    [row[1:] for row in SOMEONE],
    ids=[row[0] for row in SOMEONE],
)
def test_rollouts_that_need_a_manual_sync_are_reported(
    state: Mapping[str, Any], windows: Mapping[str, Any], sure: bool, because: str
) -> None:
    found = look(state, windows=windows)
    assert (found.state, found.sure) == ("needs-sync", sure), found
    assert because in found.because
    assert found.hint


def test_a_pending_refresh_is_reported() -> None:
    refreshing = {
        **APP,
        "metadata": {**APP["metadata"], "annotations": {"argocd.argoproj.io/refresh": "normal"}},
    }
    found = look(at(refreshing, "Synced", "Healthy", revision=OLD, compared=3, operation=BEFORE))
    assert (found.state, "not finished the requested refresh" in found.because) == ("waiting", True)


def test_a_manual_sync_counts_as_a_rollout() -> None:
    assert (
        look(at(MANUAL, "Synced", "Healthy", compared=13, operation=DONE)).state
        == "synced-and-healthy"
    )


def test_a_self_healing_application_out_of_sync_is_still_progressing() -> None:
    healing = live_application(syncPolicy={"automated": {"selfHeal": True}})
    state = at(healing, "OutOfSync", "Healthy", compared=13, operation=DONE)
    assert look(state).state == "progressing"


def test_a_sync_with_nothing_to_apply_counts_as_a_provisional_success() -> None:
    found = look(at(APP, "Synced", "Healthy", operation=BEFORE))
    assert (found.state, found.sure, found.stale) == ("synced-and-healthy", False, True)


def test_a_later_commit_that_contains_the_revision_counts() -> None:
    wanted = Wanted(lambda revision: revision in (NEW, "c" * 40))
    newer = "c" * 40
    state = at(
        APP, "Synced", "Healthy", revision=newer, compared=13, operation=operated(revision=newer)
    )
    assert judge(state, wanted).state == "synced-and-healthy"
    failed = at(APP, "OutOfSync", "Healthy", revision=newer, operation=operated("Failed"))
    assert judge(failed, wanted).state == "progressing"  # the newer revision will be synced next


MANY = [
    ("all sources of the branch", f"1.2.3,{NEW},{NEW},{OLD}", "synced-and-healthy"),
    ("the other branch has it, too", f"1.2.3,{NEW},{NEW},{NEW}", "synced-and-healthy"),
    ("one is behind", f"1.2.3,{NEW},{OLD},{OLD}", "waiting"),
    ("none has it", f"1.2.3,{OLD},{OLD},{OLD}", "waiting"),
    ("only another repository", f"{NEW},{OLD},{OLD},{OLD}", "waiting"),
    ("revisions are missing", "1.2.3", "waiting"),
]


@pytest.mark.parametrize(
    ("revisions", "expected"), [row[1:] for row in MANY], ids=[row[0] for row in MANY]
)
def test_only_sources_on_the_written_branch_count(revisions: str, expected: str) -> None:
    state = at(
        SEVERAL,
        "Synced",
        "Healthy",
        revision=revisions,
        compared=13,
        operation=operated(revision=revisions),
    )
    assert look(state).state == expected


def hydrated(dry: str, phase: str, wet: str, seen: str = OLD) -> Rollout:
    spec: dict[str, Any] = {"sourceHydrator": {"drySource": {"repoURL": REPO}}, "source": None}
    state = at(
        live_application(**spec),
        "Synced",
        "Healthy",
        revision="d" * 40,
        compared=13,
        operation=operated(revision="d" * 40),
    )
    state["status"]["sourceHydrator"] = {
        "currentOperation": {"phase": phase, "drySHA": NEW, "message": "no values"},
        "lastSuccessfulOperation": {"drySHA": dry, "hydratedSHA": wet},
        "lastComparedDryRevision": seen,
    }
    return look(state)


def test_a_revision_that_hydrates_nothing_counts_as_a_provisional_success() -> None:
    """The commit touches no `manifest-generate-paths`, so Argo CD only records having seen it."""
    found = hydrated(OLD, "Hydrated", "d" * 40, seen=NEW)
    assert (found.state, found.sure, found.slow) == ("synced-and-healthy", False, True)
    assert hydrated(OLD, "Hydrating", "d" * 40, seen=NEW).state == "waiting"
    assert hydrated(OLD, "Hydrated", "e" * 40, seen=NEW).state == "waiting"


def test_a_hydrated_revision_is_matched_with_its_hydrated_commit() -> None:
    assert hydrated(NEW, "Hydrated", "d" * 40).state == "synced-and-healthy"
    assert hydrated(NEW, "Hydrated", "e" * 40).state == "waiting"
    assert hydrated(OLD, "Hydrating", "d" * 40).state == "waiting"
    failed = hydrated(OLD, "Failed", "d" * 40)
    assert (failed.state, "no values" in failed.because) == ("failed", True)


def test_a_patch_counts_as_rolled_out_once_the_new_spec_is_compared_and_applied() -> None:
    wanted = Wanted(lambda _revision: True, needs_current_spec=True)
    app = live_application()
    app["spec"]["source"]["helm"] = {
        "parameters": [{"name": "tag", "value": "2", "forceString": True}]
    }
    old, new = live_application()["spec"]["source"], app["spec"]["source"]
    state = at(app, "Synced", "Healthy", compared=13, operation=operated())
    state["status"]["sync"]["comparedTo"] = {"source": old}
    state["status"]["operationState"]["syncResult"]["source"] = old
    assert judge(state, wanted).state == "waiting"
    state["status"]["sync"]["comparedTo"] = {"source": {**new, "directory": {}}}
    assert judge(state, wanted).sure is False  # the last operation was for the previous spec
    state["status"]["operationState"]["syncResult"]["source"] = new
    judged = judge(state, wanted)
    assert (judged.state, judged.because) == ("synced-and-healthy", "synced and healthy")
    assert judge(state, wanted).sure


WINDOWS = [
    ({}, False),
    ({"assignedWindows": [{"kind": "allow"}]}, True),
    ({"assignedWindows": [{"kind": "allow"}], "activeWindows": [{"kind": "allow"}]}, False),
    ({"assignedWindows": [{"kind": "deny"}]}, False),
    ({"assignedWindows": [{"kind": "allow"}, {"kind": "deny"}],
      "activeWindows": [{"kind": "allow"}, {"kind": "deny"}]}, True),
    ({"assignedWindows": "x", "activeWindows": None}, False),
]  # fmt: skip


@pytest.mark.parametrize(("windows", "expected"), WINDOWS)
def test_open_and_closed_sync_windows_are_distinguished(
    windows: Mapping[str, Any], expected: bool
) -> None:
    assert blocks(windows) is expected


TIMES = [
    ("2026-11-21T06:00:10Z", "2026-11-21T06:00:09Z", True),
    ("2026-11-21T06:00:10Z", "2026-11-21T06:00:10Z", False),
    ("2026-11-21T07:00:10+01:00", "2026-11-21T06:00:10Z", False),
    ("2026-11-21T06:00:10.5Z", "2026-11-21T06:00:10Z", True),
    ("", "2026-11-21T06:00:10Z", False),
    ("2026-11-21T06:00:10Z", "", True),
    ("soon", "never", False),
]


@pytest.mark.parametrize(("one", "other", "expected"), TIMES)
def test_timestamps_in_different_time_zones_are_compared_correctly(
    one: str, other: str, expected: bool
) -> None:
    assert later(one, other) is expected


def test_messages_from_argo_cd_are_cleaned_and_truncated() -> None:
    ugly = operated("Failed", message="bad\x1b[31m\n::error::x https://u:hunter2@h/ " + "y" * 1000)
    because = look(at(APP, "OutOfSync", "Healthy", operation=ugly)).because
    assert because.isprintable()
    assert "hunter2" not in because
    assert len(because) < 400


@pytest.mark.parametrize(
    "junk", [None, 1, "x", [], {"sync": []}, {"sync": {"revisions": [1, {}]}, "conditions": "x"}]
)
def test_a_status_of_an_unexpected_shape_counts_as_waiting(junk: Any) -> None:
    assert look({**APP, "status": junk}).state == "waiting"


TRACKING = "argocd.argoproj.io/tracking-id"
PARENTS = [
    ({"annotations": {TRACKING: "root:argoproj.io/Application:argocd/web"}}, ("argocd", "root")),
    ({"annotations": {TRACKING: "team_root:argoproj.io/Application:t/web"}}, ("team", "root")),
    ({"labels": {"app.kubernetes.io/instance": "root"}}, ("argocd", "root")),
    ({"labels": {"app.kubernetes.io/instance": "web"}}, None),
    ({}, None),
]  # fmt: skip


@pytest.mark.parametrize(("metadata", "expected"), PARENTS)
def test_the_parent_of_an_application_is_recognized(
    metadata: Mapping[str, Any], expected: tuple[str, str] | None
) -> None:
    item = {"metadata": {"name": "web", "namespace": "argocd", **metadata}}
    assert parent_of(item, "argocd") == expected


SECONDS = st.integers(1, 20)
STATES = st.builds(
    lambda sync, health, revision, compared, operation, pending: at(
        APP,
        sync,
        health,
        revision=revision,
        compared=compared,
        operation=operation,
        pending=pending,
    ),
    st.sampled_from(["Synced", "OutOfSync", "Unknown"]),
    st.sampled_from(["Healthy", "Progressing", "Degraded", "Missing", "Suspended", "Unknown", ""]),
    st.sampled_from([OLD, NEW, ""]),
    SECONDS,
    st.none()
    | st.builds(
        lambda phase, revision, started, lasted: operated(
            phase,
            revision=revision,
            started=started,
            finished=None if phase == "Running" else started + lasted,
        ),
        st.sampled_from(["Running", "Terminating", "Succeeded", "Failed", "Error"]),
        st.sampled_from([OLD, NEW]),
        SECONDS,
        st.integers(0, 5),
    ),
    st.booleans(),
)


@pytest.mark.slow
@given(STATES)
def test_success_always_requires_a_synced_and_healthy_revision(state: dict[str, Any]) -> None:
    found = look(state)
    if found.state != "synced-and-healthy":
        return
    status, ended = state["status"], state["status"].get("operationState", {}).get("finishedAt", "")
    assert (status["sync"]["status"], status["sync"]["revision"]) == ("Synced", NEW)
    assert status["health"] == {"status": "Healthy"}
    assert status["reconciledAt"] > max(PUSHED, ended)
    assert "operation" not in state
    if found.sure:
        operation = status["operationState"]
        assert (operation["phase"], operation["syncResult"]["revision"]) == ("Succeeded", NEW)


@given(STATES)
def test_a_failure_always_belongs_to_the_wanted_revision(state: dict[str, Any]) -> None:
    status = state["status"]
    operation = status.get("operationState", {})
    if look(state).state == "failed":
        ours = operation.get("syncResult", {}).get("revision") == NEW and operation["phase"] in (
            "Failed",
            "Error",
        )
        assert ours or (status["sync"]["revision"] == NEW and status["reconciledAt"] > PUSHED)


KEYS = st.sampled_from(["sync", "status", "revision", "revisions", "operationState", "phase", "conditions", "health",
                        "resources", "syncResult", "message", "type", "reconciledAt", "operation"])  # fmt: skip
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["Synced", "Healthy", NEW, "Running", "ComparisonError"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=15,
)


@given(ANYTHING, ANYTHING, ANYTHING)
def test_any_api_response_leads_to_a_state_with_a_reason(status: Any, tree: Any, spec: Any) -> None:
    item = {**APP, "status": status, "spec": spec}
    known = tree if isinstance(tree, dict) else {}
    assert judge(
        item, Wanted(lambda revision: revision == NEW), {"tree": known, "windows": known}
    ).because
