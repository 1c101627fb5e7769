"""The fake server's Applications, resource trees, and sync windows compared with Argo CD 3.6."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from fakes.argocd_api import argocd_server
from fakes.argocd_states import (
    MORNING,
    applied,
    at,
    live_application,
    node,
    operated,
    resource,
    sync_windows,
)
from support.recorded import application_fields, exchange, head, names, sent, shape

TOKEN = "good-token"
SERVER = "argocd-3.6"

FIRST, SECOND, THIRD, CHART = (
    "a3eaab78ad303d6aeab351eb3cda0c47ab2b22db",
    "632d5b35dec5a0456f7bb02b7994aaf67b06efc2",
    "ecdcef28b57d1847b74f4991b6ea06b30bd8e2b4",
    "7541c63204e40b72004a40ea005489dcd48bc475",
)
AUTOMATED = {"automated": {"prune": True, "selfHeal": False}}
IMAGE = "registry.example.com/acme/web"
DEADLINE = 'Deployment "nopull" exceeded its progress deadline'
LEAVING = "Waiting for rollout to finish: 1 old replicas are pending termination..."
REFUSED = (
    'error when patching "/dev/shm/1234567890": Deployment.apps "serr" is invalid: spec.selector: Invalid value: '
    '{"matchLabels":{"app":"serr","tier":"web"}}: field is immutable'
)
NOT_APPLIED = f"one or more objects failed to apply, reason: {REFUSED}"
BACKOFF = "Job has reached the specified backoff limit"
NO_HELM = (
    "rpc error: code = Unknown desc = failed to execute helm template command: failed running helm: `helm template . "
    "--name-template tmpl --namespace apps --kube-version 0.0.0 <api versions removed> --include-crds` failed exit "
    'status 1: Error: template: web/templates/deploy.yaml:15:26: executing "web/templates/deploy.yaml" at '
    "<.Values.image.registry.host>: nil pointer evaluating interface {}.host\n\n"
    "Use --debug flag to render out invalid YAML"
)


def recorded_application(name: str, namespace: str = "argocd", **spec: Any) -> dict[str, Any]:
    one = live_application(name, namespace, **{"syncPolicy": AUTOMATED, **spec})
    del one["metadata"]["labels"]
    return one


def deployment(
    name: str, status: str = "Synced", health: str = "Healthy", message: str = ""
) -> dict[str, Any]:
    return resource(
        "Deployment", name, health, message, group="apps", namespace="apps", status=status
    )


def deployed(name: str, how: str = "created") -> dict[str, Any]:
    return applied("Deployment", name, f"deployment.apps/{name} {how}", hookPhase="Running")


def hook(name: str, health: str, message: str = "") -> dict[str, Any]:
    more = {"group": "batch", "hook": True, "requiresPruning": True}
    return resource("Job", f"{name}-hook", health, message, **more)


def hooked(name: str, phase: str, message: str) -> dict[str, Any]:
    return applied("Job", f"{name}-hook", message, hookType="PreSync", hookPhase=phase)


def rolled_out(name: str, namespace: str = "argocd", **spec: Any) -> dict[str, Any]:
    """Return an Application that is synced to the first revision and healthy."""
    return at(
        recorded_application(name, namespace, **spec), "Synced", "Healthy", revision=FIRST, compared=20, changed=12,
        operation=operated(revision=FIRST, started=10, finished=11, resources=[deployed(name)]),
        resources=[deployment(name)], images=[f"{IMAGE}:1.0.0"],
    )  # fmt: skip


def pulling(health: str, message: str, changed: int) -> dict[str, Any]:
    """Return an Application whose new pod cannot pull its image. Its sync took under a second."""
    done = operated(
        revision=SECOND, started=10, finished=10, resources=[deployed("nopull", "configured")]
    )
    return at(
        recorded_application("nopull"), "Synced", health, revision=SECOND, compared=10, changed=changed, operation=done,
        resources=[deployment("nopull", "Synced", health, message)], images=[f"{IMAGE}:1.0.0", f"{IMAGE}:nopull-1.0.1"],
    )  # fmt: skip


def refused(phase: str, message: str, finished: int) -> dict[str, Any]:
    failed = applied("Deployment", "serr", REFUSED, "SyncFailed", hookPhase="Failed")
    done = operated(phase, revision=SECOND, started=11, finished=finished, message=message, resources=[failed],
                    retried=1, limit=1)  # fmt: skip
    return at(
        recorded_application("serr"), "OutOfSync", "Healthy", revision=SECOND, compared=10, changed=5, operation=done,
        resources=[deployment("serr", "OutOfSync")], images=[f"{IMAGE}:1.0.0"], pending=phase == "Running",
    )  # fmt: skip


def new() -> dict[str, Any]:
    parameters = [
        {"name": "replicas", "value": "2"},
        {"name": "image.tag", "value": "1.0.0", "forceString": True},
    ]
    one = recorded_application("hparam")
    one["spec"]["source"]["helm"] = {"parameters": parameters}
    return {
        **one,
        "status": {
            "sync": {"status": "", "comparedTo": {"source": {"repoURL": ""}, "destination": {}}},
            "health": {},
        },
    }


def parameterised() -> dict[str, Any]:
    return rolled_out("hparam", source=new()["spec"]["source"])


def by_hand() -> dict[str, Any]:
    one = recorded_application("manual", syncPolicy={})
    return at(one, "OutOfSync", "Missing", revision=SECOND, compared=10, changed=5,
              resources=[deployment("manual", "OutOfSync", "Missing")])  # fmt: skip


def syncing() -> dict[str, Any]:
    one = rolled_out("helm1")
    one["metadata"]["annotations"]["argocd.argoproj.io/refresh"] = "normal"
    now = operated("Running", revision=SECOND, started=30, finished=None, began=False)
    one["status"]["operationState"] = now
    return {**one, "operation": now["operation"]}


SOURCES = [
    {"repoURL": "https://git.example.com/acme/charts.git", "path": "web", "targetRevision": "main",
     "helm": {"valueFiles": ["$values/envs/multi1/values.yaml"]}},
    {"repoURL": "https://git.example.com/acme/gitops.git", "targetRevision": "main", "ref": "values"},
]  # fmt: skip


def several(revision: str, sync: str, operation: dict[str, Any], compared: int) -> dict[str, Any]:
    one = recorded_application("multi1", sources=SOURCES)
    del one["spec"]["source"]
    running = operation["phase"] == "Running"
    if running:
        one["metadata"]["annotations"]["argocd.argoproj.io/refresh"] = "normal"
    return at(one, sync, "Healthy", revision=f"{CHART},{revision}", compared=compared, changed=12, operation=operation,
              resources=[deployment("multi1", sync)], images=[f"{IMAGE}:1.0.0"], pending=running)  # fmt: skip


def several_healthy() -> dict[str, Any]:
    done = operated(
        revision=f"{CHART},{FIRST}", started=11, finished=12, resources=[deployed("multi1")]
    )
    return several(FIRST, "Synced", done, 20)


def several_syncing() -> dict[str, Any]:
    running = operated(
        "Running", revision=f"{CHART},{THIRD}", started=30, finished=None, began=False
    )
    return several(THIRD, "OutOfSync", running, 30)


def in_one_second(name: str) -> dict[str, Any]:
    """Return an Application whose health changed in the same second as its sync ended."""
    one = rolled_out(name)
    one["status"]["operationState"]["finishedAt"] = one["status"]["health"]["lastTransitionTime"]
    return one


def child() -> dict[str, Any]:
    one = in_one_second("child")
    one["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"] = (
        "parent:argoproj.io/Application:argocd/child"
    )
    return one


def uncomparable() -> dict[str, Any]:
    said = f"Failed to load target state: failed to generate manifest for source 1 of 1: {NO_HELM}"
    one = rolled_out("tmpl")
    gone = {**deployment("tmpl", "Unknown"), "requiresPruning": True}
    done = operated(revision=FIRST, started=10, finished=10, resources=[deployed("tmpl")])
    return at(one, "Unknown", "Healthy", revision="main", compared=20, changed=11, operation=done, resources=[gone],
              conditions=[{"type": "ComparisonError", "message": said}], images=[f"{IMAGE}:1.0.0"])  # fmt: skip


def hook_runs() -> dict[str, Any]:
    waits = "waiting for completion of hook batch/Job/hookdef-hook"
    runs = operated("Running", revision=SECOND, started=10, finished=None, message=waits,
                    resources=[hooked("hookdef", "Running", "job.batch/hookdef-hook created")])  # fmt: skip
    return at(recorded_application("hookdef"), "OutOfSync", "Healthy", revision=SECOND, compared=10, changed=5, operation=runs,
              resources=[deployment("hookdef", "OutOfSync"), hook("hookdef", "Progressing")],
              images=[f"{IMAGE}:1.0.0", f"{IMAGE}:slow-1.0.1"], pending=True)  # fmt: skip


def hook_failed() -> dict[str, Any]:
    message = "one or more synchronization tasks completed unsuccessfully (retried 1 times)."
    done = operated("Failed", revision=SECOND, started=10, finished=20, message=message, retried=1, limit=1,
                    resources=[hooked("hook", "Failed", BACKOFF)])  # fmt: skip
    again = {"type": "SyncError", "message": f"Failed last sync attempt to [{SECOND}]: {message}"}
    return at(recorded_application("hook"), "OutOfSync", "Healthy", revision=SECOND, compared=20, changed=5, operation=done,
              resources=[deployment("hook", "OutOfSync"), hook("hook", "Degraded", BACKOFF)], conditions=[again],
              images=[f"{IMAGE}:1.0.0", f"{IMAGE}:fail-1.0.1"])  # fmt: skip


def blocked() -> dict[str, Any]:
    waits = operated("Running", revision=SECOND, started=20, finished=None,
                     message="Sync operation blocked by sync window")  # fmt: skip
    del waits["syncResult"]["resources"]
    waits["operation"] |= {"retry": {}, "initiatedBy": {"username": "ci"}}
    return at(recorded_application("window", project="window"), "OutOfSync", "Healthy", revision=SECOND, compared=10, changed=5,
              operation=waits, resources=[deployment("window", "OutOfSync")], images=[f"{IMAGE}:1.0.0"],
              pending=True)  # fmt: skip


def unpruned() -> dict[str, Any]:
    maps = [resource("ConfigMap", f"noprune-{letter}", status="Synced") for letter in "ab"]
    maps[1] |= {"status": "OutOfSync", "requiresPruning": True}
    made = [applied("ConfigMap", f"noprune-{letter}", f"configmap/noprune-{letter} created", hookPhase="Running")
            for letter in "ba"]  # fmt: skip
    done = operated(revision=SECOND, started=10, finished=10, resources=made)
    return at(recorded_application("noprune", syncPolicy={"automated": {}}), "OutOfSync", "Healthy", revision=THIRD, compared=20,
              changed=10, operation=done, resources=maps)  # fmt: skip


def leaving() -> dict[str, Any]:
    one = recorded_application("sup")
    one["metadata"]["deletionTimestamp"] = MORNING.format(30)
    done = operated(revision=FIRST, started=10, finished=10, resources=[deployed("sup")])
    gone = deployment("sup", "OutOfSync")
    del gone["health"]
    return at(
        one,
        "OutOfSync",
        "Missing",
        revision=SECOND,
        compared=20,
        changed=31,
        operation=done,
        resources=[gone],
    )


APPLICATIONS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "application-deletion": leaving,
    "application-helm-degraded": lambda: pulling("Degraded", DEADLINE, 20),
    "application-helm-healthy": parameterised,
    "application-helm-new": new,
    "application-helm-out-of-sync": by_hand,
    "application-helm-pull-fails": lambda: pulling("Progressing", LEAVING, 10),
    "application-helm-syncing": syncing,
    "application-multi-source-healthy": several_healthy,
    "application-multi-source-syncing": several_syncing,
    "application-of-parent": child,
    "application-other-namespace": lambda: rolled_out("ns1", "team-a", project="team-a"),
    "application-set-child": lambda: in_one_second("gen-a"),
    "comparison-error-helm": uncomparable,
    "hook-failed": hook_failed,
    "hook-running": hook_runs,
    "pruning-left": unpruned,
    "sync-failed": lambda: refused("Failed", f"{NOT_APPLIED} (retried 1 times).", 20),
    "sync-retrying": lambda: refused(
        "Running", f"{NOT_APPLIED}. Retrying attempt #1 at 6:19AM.", 12
    ),
    "window-blocks-operation": blocked,
}
KINDS = {
    "status.sourceType",
    "status.sourceTypes",
}  # the config management tool does not matter for a rollout


@pytest.mark.parametrize("name", APPLICATIONS)
def test_the_fake_server_returns_the_recorded_applications(name: str) -> None:
    recorded = exchange(SERVER, name)
    with argocd_server() as server:
        server.add(APPLICATIONS[name]())
        answer = sent(f"http://{server.address}", recorded, TOKEN)
    ours, real = head(answer, recorded)
    assert ours == real
    found, wanted = application_fields(answer.json()), application_fields(recorded.body)
    assert found == {path: value for path, value in wanted.items() if path not in KINDS}
    unknown = {path for path, _ in shape(answer.json())} - {
        path for path, _ in shape(recorded.body)
    }
    assert {
        path for path in unknown if not path.startswith((".metadata", ".status.conditions"))
    } == set()


def tree(new: str, reason: str, deployment_says: tuple[str, str]) -> list[dict[str, Any]]:
    """Return a resource tree with a running old pod, and a new pod that cannot pull its image."""
    pulls = f'Back-off pulling image "{IMAGE}:nopull-1.0.1"'
    waits = "Waiting for rollout to finish: 0 out of 1 new replicas are available..."
    return [
        node("Pod", "nopull-5d74b48965-r4tzv", "Healthy", created=1, reason="Running"),
        node("Pod", new, "Degraded", pulls, created=20, reason=reason),
        node("Deployment", "nopull", *deployment_says, created=1),
        node("ReplicaSet", "nopull-5d74b48965", "Healthy", created=1),
        node("ReplicaSet", "nopull-64498bff47", "Progressing", waits, created=20),
    ]


POD = ("nopull-64498bff47-q7xdc", "ImagePullBackOff")
TREES = {
    "resource-tree-healthy": ("kust3", [
        node("Pod", "kust3-6bf866bdf-7mbqx", "Healthy", created=1, reason="Running"),
        node("Deployment", "kust3", "Healthy", created=1),
        node("ReplicaSet", "kust3-6bf866bdf", "Healthy", created=1),
    ]),
    "resource-tree-pull-fails": ("nopull", tree(*POD, ("Progressing", LEAVING))),
    "resource-tree-degraded": ("nopull", tree(*POD, ("Degraded", DEADLINE))),
}  # fmt: skip


@pytest.mark.parametrize("name", TREES)
def test_the_fake_server_returns_the_recorded_resource_trees(name: str) -> None:
    recorded, (app_name, nodes) = exchange(SERVER, name), TREES[name]
    with argocd_server() as server:
        server.add(recorded_application(app_name))
        server.trees["argocd", app_name] = {"nodes": nodes}
        answer = sent(f"http://{server.address}", recorded, TOKEN)
    ours, real = head(answer, recorded)
    assert ours == real

    def read(body: Any) -> list[tuple[object, ...]]:
        moments = sorted({one["createdAt"] for one in body["nodes"]})
        reasons = [
            [two["value"] for two in one["info"] if two["name"] == "Status Reason"]
            for one in body["nodes"]
        ]
        return [
            (one["kind"], one["name"], one["health"], moments.index(one["createdAt"]), reason)
            for one, reason in zip(body["nodes"], reasons, strict=True)
        ]

    assert read(answer.json()) == read(recorded.body)
    assert {path for path, _ in shape(answer.json())} - {
        path for path, _ in shape(recorded.body)
    } == set()


def test_the_fake_server_returns_the_recorded_sync_windows() -> None:
    recorded = exchange(SERVER, "sync-windows-denying")
    with argocd_server() as server:
        server.add(recorded_application("window"))
        server.windows["argocd", "window"] = sync_windows(("deny", True))
        answer = sent(f"http://{server.address}", recorded, TOKEN)
    ours, real = head(answer, recorded)
    assert ours == real
    assert answer.json() == recorded.body


def patchable() -> dict[str, Any]:
    one = recorded_application("live1")
    one["spec"]["source"]["helm"] = {"parameters": [{"name": "image.tag", "value": "1.0.0"}]}
    one["metadata"]["resourceVersion"] = "1255"
    return one


def images_in_its_spec() -> dict[str, Any]:
    source = {
        **recorded_application("kust3")["spec"]["source"],
        "kustomize": {"images": [f"{IMAGE}:1.0.0"]},
    }
    return rolled_out("kust3", source=source)


@pytest.mark.parametrize("name", ["patch-ok-helm", "application-kustomize-refreshed"])
def test_a_patch_and_a_refresh_return_the_current_application(name: str) -> None:
    recorded = exchange(SERVER, name)
    with argocd_server() as server:
        server.add(patchable())
        server.add(images_in_its_spec())
        answer = sent(f"http://{server.address}", recorded, TOKEN)
    ours, real = head(answer, recorded)
    assert ours == real
    found, wanted = application_fields(answer.json()), application_fields(recorded.body)
    read = ("metadata.name", "spec.project", "spec.source")
    assert {path: found[path] for path in read} == {path: wanted[path] for path in read}
    assert isinstance(answer.json()["metadata"]["resourceVersion"], str)


OTHERS = (
    "list-",
    "patch-",
    "token-",
    "redirect-",
    "root-path-",
    "invalid-",
    "application-absent",
    "application-may-not",
)


def test_every_recorded_application_is_compared() -> None:
    """The other recordings are compared in tests/argocd/test_argocd_recorded.py."""
    alone = {"sync-windows-denying", "application-kustomize-refreshed"}
    ours = {name for name in names(SERVER) if not name.startswith(OTHERS)}
    assert ours == {*APPLICATIONS, *TREES, *alone}
