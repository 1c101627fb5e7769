"""The states and messages for Applications recorded from a real Argo CD 3.6."""

import pytest
from support.recorded import exchange

from task.argocd.rollout import Wanted, judge

FIRST, SECOND, THIRD = (
    "a3eaab78ad303d6aeab351eb3cda0c47ab2b22db",
    "632d5b35dec5a0456f7bb02b7994aaf67b06efc2",
    "ecdcef28b57d1847b74f4991b6ea06b30bd8e2b4",
)
REPO = "https://git.example.com/acme/gitops.git"
BEFORE = "2026-11-21T06:14:00Z"
BACK_OFF = 'Pod nopull-64498bff47-q7xdc: Back-off pulling image "registry.example.com/acme/web:nopull-1.0.1"'
BACKOFF_LIMIT = "PreSync hook Job hook-hook: Job has reached the specified backoff limit"
IMMUTABLE = (
    'one or more objects failed to apply, reason: Deployment.apps "serr" is invalid: spec.selector: Invalid value: '
    '{"matchLabels":{"app":"serr","tier":"web"}}: field is immutable'
)
# (Application, resource tree, wanted revision, state, sure, because)
SEEN = [
    ("application-helm-new", "", FIRST, "waiting", True, "Argo CD has not compared it yet"),
    ("application-helm-out-of-sync", "", SECOND, "needs-sync", True, "auto-sync is off: someone must sync it"),
    ("application-helm-syncing", "", SECOND, "progressing", True, "the sync is running"),
    ("application-helm-healthy", "", FIRST, "synced-and-healthy", True, "synced and healthy"),
    ("application-helm-healthy", "", SECOND, "waiting", True,
     "Argo CD is comparing with a3eaab78ad30, which is not known to contain the revision"),
    ("application-multi-source-syncing", "", THIRD, "progressing", True, "the sync is running"),
    ("application-multi-source-healthy", "", FIRST, "synced-and-healthy", True, "synced and healthy"),
    ("application-other-namespace", "", FIRST, "synced-and-healthy", True, "synced and healthy"),
    ("application-helm-pull-fails", "resource-tree-pull-fails", SECOND, "progressing", True,
     "synced; Argo CD has not reported its health since then"),  # in one second: compare again
    ("application-helm-degraded", "", SECOND, "failed", False,
     'degraded: Deployment "nopull" exceeded its progress deadline'),
    ("application-helm-degraded", "resource-tree-degraded", SECOND, "failed", False,
     f'degraded: Deployment "nopull" exceeded its progress deadline; {BACK_OFF}'),
    ("hook-running", "", SECOND, "progressing", True,
     "the sync is running: waiting for completion of hook batch/Job/hookdef-hook"),
    ("hook-failed", "", SECOND, "failed", True,
     f"the sync failed: one or more synchronization tasks completed unsuccessfully (retried 1 times); {BACKOFF_LIMIT}"),
    ("sync-retrying", "", SECOND, "progressing", True,
     f"the sync failed and is being retried (1 of 1): {IMMUTABLE}. Retrying attempt #1 at 6:19AM"),
    ("sync-failed", "", SECOND, "failed", True, f"the sync failed: {IMMUTABLE} (retried 1 times)"),
    ("window-blocks-operation", "", SECOND, "needs-sync", True, "a sync window prevents Argo CD from syncing"),
    ("pruning-left", "", THIRD, "needs-sync", False,
     "only resources to prune are left, and auto-prune is off: ConfigMap noprune-b"),
    ("application-deletion", "", SECOND, "failed", True, "the Application is being deleted"),
    ("kubernetes-1.36/application-kustomize-degraded", "", THIRD, "failed", False,
     "degraded: caused by Deployment apps/kust1"),
    ("kubernetes-1.36/application-helm", "", FIRST, "synced-and-healthy", True, "synced and healthy"),
    ("kubernetes-1.36/application-invalid-spec", "", FIRST, "failed", True,
     "the Application's spec is invalid: Application referencing project no-such which does not exist"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "tree", "revision", "state", "sure", "because"), SEEN, ids=[row[0] for row in SEEN]
)
def test_the_state_of_each_recorded_application_is_recognized(
    name: str, tree: str, revision: str, state: str, sure: bool, because: str
) -> None:
    folder, _, file = name.rpartition("/")
    item = exchange(folder or "argocd-3.6", file).body
    wanted = Wanted(lambda found: found == revision, BEFORE, lambda url: url == REPO)
    found = judge(item, wanted, {"tree": exchange("argocd-3.6", tree).body} if tree else {})
    assert (found.state, found.sure, found.because) == (state, sure, because)


def test_the_end_of_a_long_error_is_kept() -> None:
    item = exchange("argocd-3.6", "comparison-error-helm").body
    found = judge(item, Wanted(lambda found: found == SECOND, BEFORE))
    assert (found.state, found.sure) == ("failed", False)
    assert found.because.startswith(
        "Argo CD cannot compare it: Failed to load target state: failed to generate manifest"
    )
    assert found.because.endswith(
        "at <.Values.image.registry.host>: nil pointer evaluating interface {}.host"
    )
    assert len(found.because) < 400


def test_an_image_that_cannot_be_pulled_is_found_before_the_deadline() -> None:
    item = exchange("argocd-3.6", "application-helm-pull-fails").body
    later = {**item, "status": {**item["status"], "reconciledAt": "2026-11-21T06:19:36Z"}}
    tree = exchange("argocd-3.6", "resource-tree-pull-fails").body
    found = judge(later, Wanted(lambda found: found == SECOND, BEFORE), {"tree": tree})
    assert (found.state, found.sure) == ("failed", False)
    assert found.because == f"the image cannot be pulled: {BACK_OFF}"
