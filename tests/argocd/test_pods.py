"""What is found out from an Application's pods if Argo CD's API is not used."""

from collections.abc import Iterator
from typing import Any

import pytest
from fakes.argocd_states import MORNING, NEW, at, live_application, operated, resource
from fakes.kubernetes_api import APPLICATIONS, PODS, KubernetesApi, running

from task.argocd.application_store import ClusterApplications, nodes, workloads
from task.argocd.rollout import Wanted, judge
from task.http import Limits
from task.kubernetes.access import ClusterAccess
from task.kubernetes.client import Kubernetes
from task.kubernetes.kubeconfig import Kubeconfig, Server, User
from task.secret import Secret

PULL = 'Back-off pulling image "ghcr.io/acme/web:1.1.0"'
OWNERS = {
    ("Deployment", "web"),
    ("Rollout", "canary"),
    ("StatefulSet", "db"),
    ("CronJob", "clean"),
    ("Job", "migrate"),
}


def pod(name: str, owner: tuple[str, str], **status: Any) -> dict[str, Any]:
    kind, of = owner
    metadata = {"name": name, "namespace": "web", "creationTimestamp": MORNING.format(12)}
    return {
        "metadata": {**metadata, "ownerReferences": [{"kind": kind, "name": of}]},
        "status": status,
    }


def waiting(reason: str, message: str = "", where: str = "containerStatuses") -> dict[str, Any]:
    return {
        "phase": "Pending",
        where: [{"name": "c", "state": {"waiting": {"reason": reason, "message": message}}}],
    }


def crashed(message: str, ready: bool = False, **state: Any) -> dict[str, Any]:
    """Return the status of a container whose last run ended with exit code 1."""
    last = {"terminated": {"exitCode": 1, "reason": "Error", "message": message}}
    one = {"name": "web", "ready": ready, "state": state, "lastState": last}
    return {"phase": "Running", "containerStatuses": [one]}


RUNS = {"phase": "Running", "containerStatuses": [{"name": "c", "state": {"running": {}}}]}
REPLICA = ("ReplicaSet", "web-64498bff47")
SEEN = [
    ("it cannot pull", pod("p", REPLICA, **waiting("ImagePullBackOff", PULL)), ("ImagePullBackOff", PULL)),
    ("an init container ends", pod("p", ("StatefulSet", "db"), **waiting("CrashLoopBackOff", "back-off 5m0s",
                                   "initContainerStatuses")), ("CrashLoopBackOff", "back-off 5m0s")),
    ("a reason alone", pod("p", REPLICA, **waiting("ErrImagePull")), ("ErrImagePull", "ErrImagePull")),
    ("it failed", pod("p", ("Job", "migrate"), phase="Failed", reason="Evicted", message="no memory"),
     ("Evicted", "no memory")),
    ("of a canary", pod("p", ("ReplicaSet", "canary-7d9"), **waiting("ErrImagePull")),
     ("ErrImagePull", "ErrImagePull")),
    ("of a CronJob", pod("p", ("Job", "clean-29384756"), phase="Failed"), ("Failed", "Failed")),
    ("it crashes again and again",
     pod("p", REPLICA, **crashed("no such table", waiting={"reason": "CrashLoopBackOff", "message": "back-off"})),
     ("CrashLoopBackOff", "back-off; container web exited with code 1: no such table")),
    ("it crashed, and runs again for a moment", pod("p", REPLICA, **crashed("", running={})),
     ("Error", "container web exited with code 1")),
    ("it has just crashed", pod("p", REPLICA, **crashed("", terminated={"exitCode": 137, "reason": "OOMKilled"})),
     ("Error", "container web exited with code 137 (OOMKilled)")),
    ("it crashed once, and is ready", pod("p", REPLICA, **crashed("", ready=True, running={})), None),
    ("it runs", pod("p", REPLICA, **RUNS), None),
    ("it is about to start", pod("p", REPLICA, **waiting("ContainerCreating")), None),
    ("somebody else's", pod("p", ("ReplicaSet", "web-api-64498bff47"), **waiting("ImagePullBackOff")), None),
    ("nobody's", {"metadata": {"name": "p"}, "status": waiting("ImagePullBackOff")}, None),
    ("another shape", {"metadata": 1, "status": "x"}, None),
]  # fmt: skip


@pytest.mark.parametrize(("item", "told"), [row[1:] for row in SEEN], ids=[row[0] for row in SEEN])
def test_pod_problems_are_found(item: dict[str, Any], told: tuple[str, str] | None) -> None:
    found = [(one["info"][0]["value"], one["health"]["message"]) for one in nodes([item], OWNERS)]
    assert found == ([told] if told else [])


DESTINATIONS = [
    ({"server": "https://kubernetes.default.svc"}, {"web": {("Deployment", "web")}}),
    ({"name": "in-cluster"}, {"web": {("Deployment", "web")}}),
    ({"server": "https://10.0.0.1"}, {}),
    ({"name": "production"}, {}),
]


@pytest.mark.parametrize(("destination", "found"), DESTINATIONS)
def test_only_workloads_in_this_cluster_are_inspected(
    destination: dict[str, str], found: object
) -> None:
    there = [
        resource("Deployment", "web", group="apps", namespace="web"),
        resource("Service", "web", namespace="web"),
    ]
    assert (
        workloads(
            at(live_application(destination=destination), "Synced", "Healthy", resources=there)
        )
        == found
    )
    assert workloads({"spec": {"destination": destination}, "status": {"resources": "x"}}) == {}


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with running() as found:
        there = [resource("Deployment", "web", "Progressing", group="apps", namespace="web")]
        state = at(
            live_application(),
            "Synced",
            "Progressing",
            compared=13,
            operation=operated(),
            resources=there,
        )
        found.add(APPLICATIONS, state)
        found.add(PODS, pod("web-64498bff47-q7xdc", REPLICA, **waiting("ImagePullBackOff", PULL)))
        found.add(PODS, pod("web-5d74b48965-r4tzv", ("ReplicaSet", "web-5d74b48965"), **RUNS))
        yield found


def reach(api: KubernetesApi) -> ClusterApplications:
    config = Kubeconfig("test", Server(api.url), User(token=Secret("admin-token")))
    return ClusterApplications(Kubernetes(ClusterAccess(config, {}), Limits(tries=1)))


def test_an_image_that_cannot_be_pulled_is_found_in_the_cluster(api: KubernetesApi) -> None:
    applications = reach(api)
    item, wanted = applications.get_application("argocd", "web"), Wanted(lambda found: found == NEW)
    assert judge(item, wanted).because == "synced, progressing: caused by Deployment web/web"
    found = judge(item, wanted, {"tree": applications.resource_tree("argocd", "web")})
    assert (found.state, found.sure) == ("failed", False)
    assert found.because == f"the image cannot be pulled: Pod web-64498bff47-q7xdc: {PULL}"


def test_a_failed_request_for_pods_is_not_repeated(api: KubernetesApi) -> None:
    api.tokens["admin-token"] = "system:serviceaccount:ci:image-update"
    subject = {"kind": "ServiceAccount", "namespace": "ci", "name": "image-update"}
    role = {"kind": "ClusterRole", "name": "r"}
    rule = {"apiGroups": ["argoproj.io"], "resources": ["applications"], "verbs": ["get"]}
    api.rules = [
        {"kind": "ClusterRole", "metadata": {"name": "r"}, "rules": [rule]},
        {
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "r"},
            "roleRef": role,
            "subjects": [subject],
        },
    ]
    applications = reach(api)
    trees = [applications.resource_tree("argocd", "web") for _ in range(3)]
    assert len(api.denied()) == 1
    found = judge(
        applications.get_application("argocd", "web"),
        Wanted(lambda found: found == NEW),
        {"tree": trees[-1]},
    )
    assert (
        found.hint
        == "the step is not allowed to list pods, which would give more details: apply rbac/pods.yaml"
    )
