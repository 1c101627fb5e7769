"""Live Applications patched by concurrent runs, through APIs as atomic as the real ones."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fakes.argocd_api import ArgoCDServer, Fault, argocd_server
from fakes.kubernetes_api import APPLICATIONS, Asked, KubernetesApi, running
from fakes.kubernetes_api import Fault as KubernetesFault
from support.clusters import live_app
from support.fake_world import fake_world
from support.runs import WEB

from task.annotations.application import PREFIX, Narrow, parse_application
from task.annotations.subscription import Defaults, Scope, subscribe
from task.argocd.api import ArgoCDApi
from task.argocd.application_store import ApplicationStore, ClusterApplications, PreferredStore
from task.argocd.connection import Connection
from task.deciding.job import Job, Terms, Wording
from task.errors import SourceDownError
from task.http import Limits
from task.image import parse_image
from task.kubernetes.access import ClusterAccess
from task.kubernetes.client import Kubernetes
from task.kubernetes.kubeconfig import Kubeconfig, Server, User
from task.landing import live
from task.landing.ports import LiveApplications
from task.model import Decision, Person
from task.pipeline.match import asks_for_images
from task.secret import Secret

ROUNDS = 20


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watch patches for a shorter time, because the fake server is faster than Argo CD."""
    monkeypatch.setattr(live, "SHORTEST_WATCH", 0.15)
    monkeypatch.setattr(live, "READ_INTERVAL", 0.01)


@pytest.fixture
def argocd() -> Iterator[ArgoCDServer]:
    with argocd_server() as server:
        yield server


@pytest.fixture
def cluster() -> Iterator[KubernetesApi]:
    with running() as api:
        yield api


def through_argocd(server: ArgoCDServer) -> ApplicationStore:
    connection = Connection(server.address, Secret("good-token"), plaintext=True)
    return ApplicationStore(
        ArgoCDApi(connection, {}, limits=Limits(tries=1, silence=5)), atomic=False
    )


def through_kubernetes(api: KubernetesApi, token: str = "admin-token") -> ApplicationStore:  # noqa: S107 - the fake's
    config = Kubeconfig("test", Server(api.url), User(token=Secret(token)))
    return ApplicationStore(
        ClusterApplications(Kubernetes(ClusterAccess(config, {}), Limits(tries=1))), atomic=True
    )


def item(*images: str, **annotations: str) -> dict[str, Any]:
    one: dict[str, Any] = live_app("web", **annotations)
    one["spec"]["source"]["kustomize"] = {"images": list(images)}
    one["metadata"] |= {"resourceVersion": "7", "uid": "uid-of-web"}
    one["status"]["summary"]["images"] = list(images)
    return one


def patched(
    store: LiveApplications, manifest: Mapping[str, Any], image: str, log: list[str] | None = None
) -> Decision:
    """Run once, starting from a discovered live Application."""
    app = parse_application(manifest, PREFIX, "cluster", "argocd")
    scope = Scope(PREFIX, Narrow(), Defaults())
    offered = (parse_image(image),)
    job = Job("run", offered, scope, Terms(), Wording(Person("a", "a@example.com")), deadline=20)
    world = fake_world(
        applications=lambda: (),
        locate=lambda _origin: None,
        repository=lambda _url, _sub: pytest.fail("nothing is in Git"),
        now=time.monotonic,
        sleep=time.sleep,
        jitter=random.random,
        log=lambda _level, line: (log if log is not None else []).append(line),
        live=lambda: store,
    )
    asks = asks_for_images([subscribe(app, scope.defaults)], offered).asks
    (decision,) = live.patch(asks, job, world).decisions
    return decision


def both(
    stores: Callable[[], LiveApplications], manifest: Mapping[str, Any], *images: str
) -> list[Decision]:
    """Run concurrently for both of these images."""
    begin = threading.Barrier(len(images))

    def one(image: str) -> Decision:
        store = stores()
        begin.wait()
        return patched(store, manifest, image)

    with ThreadPoolExecutor(len(images)) as pool:
        return list(pool.map(one, images))


def images_of(server: ArgoCDServer) -> list[str]:
    found: list[str] = server.plays["argocd", "web"][0]["spec"]["source"]["kustomize"]["images"]
    return found


def rendering(_changed: Mapping[str, Any]) -> str:
    """Simulate a slow repository server."""
    time.sleep(random.uniform(0.005, 0.02))  # noqa: S311 - no secret
    return ""


TWO = {"image_list": "a=reg:5000/a,b=reg:5000/b"}


@pytest.mark.slow
def test_two_concurrent_runs_patch_two_images_through_argo_cd(argocd: ArgoCDServer) -> None:
    argocd.render = rendering
    manifest = item("reg:5000/a:1.0.0", "reg:5000/b:1.0.0", **TWO)
    lost = 0
    for _ in range(ROUNDS):
        argocd.add(manifest)
        argocd.seen.clear()
        decisions = both(
            lambda: through_argocd(argocd), manifest, "reg:5000/a:2.0.0", "reg:5000/b:3.0.0"
        )
        assert [one.verdict for one in decisions] == ["update", "update"]
        assert images_of(argocd) == ["reg:5000/a:2.0.0", "reg:5000/b:3.0.0"]
        lost += len(argocd.asked("PATCH")) > 2
    assert lost  # otherwise, the fake server is more lenient than Argo CD


@pytest.mark.slow
def test_the_newer_of_two_concurrent_runs_for_one_image_wins_through_argo_cd(
    argocd: ArgoCDServer,
) -> None:
    argocd.render = rendering
    manifest = item(f"{WEB}:1.0.0")
    for _ in range(ROUNDS):
        argocd.add(manifest)
        decisions = both(lambda: through_argocd(argocd), manifest, f"{WEB}:1.1.0", f"{WEB}:1.2.0")
        assert images_of(argocd) == [f"{WEB}:1.2.0"]
        assert decisions[1].verdict == "update"
        assert decisions[0].rule in ("not-newer", "admitted")


@pytest.mark.slow
def test_ten_concurrent_runs_patch_through_kubernetes_while_argo_cd_writes_the_status(
    cluster: KubernetesApi,
) -> None:
    listed = ",".join(f"i{number}=reg:5000/i{number}" for number in range(10))
    manifest = item(*(f"reg:5000/i{number}:1.0.0" for number in range(10)), image_list=listed)
    cluster.add(APPLICATIONS, manifest)

    def controller(asked: Asked) -> None:
        if asked.verb == "patch" and random.random() < 0.5:  # noqa: S311 - no secret
            now = cluster.of(APPLICATIONS, "web")
            cluster.add(
                APPLICATIONS, {**now, "status": {**now["status"], "reconciledAt": str(time.time())}}
            )

    cluster.before = controller
    decisions = both(
        lambda: through_kubernetes(cluster),
        manifest,
        *(f"reg:5000/i{n}:2.0.{n}" for n in range(10)),
    )
    assert {one.verdict for one in decisions} == {"update"}
    found = cluster.of(APPLICATIONS, "web")["spec"]["source"]["kustomize"]["images"]
    assert found == [f"reg:5000/i{number}:2.0.{number}" for number in range(10)]


def test_a_person_who_keeps_overwriting_the_patch_is_reported(argocd: ArgoCDServer) -> None:
    argocd.add(item(f"{WEB}:1.0.0"))
    store, lines = through_argocd(argocd), list[str]()
    undone = iter(range(3))

    class Undoing:
        def read(self, namespace: str, name: str) -> tuple[Mapping[str, Any], str]:
            return store.read(namespace, name)

        def patch(self, *what: Any) -> bool:
            done = store.patch(*what)
            if next(undone, None) is not None:
                argocd.plays["argocd", "web"][0]["spec"]["source"]["kustomize"]["images"] = [
                    f"{WEB}:1.0.0"
                ]
            return done

    assert patched(Undoing(), item(f"{WEB}:1.0.0"), f"{WEB}:1.1.0", lines).verdict == "update"
    assert images_of(argocd) == [f"{WEB}:1.1.0"]
    assert [line for line in lines if "someone else overwrote" in line] == [
        f"argocd/web: someone else overwrote {WEB}:1.1.0; reevaluating"
    ] * 3


def test_an_update_is_kept_if_the_server_disappears_after_the_patch(argocd: ArgoCDServer) -> None:
    argocd.add(item(f"{WEB}:1.0.0"))
    store, lines = through_argocd(argocd), list[str]()

    def gone(_changed: Mapping[str, Any]) -> str:
        argocd.faults += [Fault(503)] * 1000
        return ""

    argocd.render = gone
    assert patched(store, item(f"{WEB}:1.0.0"), f"{WEB}:1.1.0", lines).verdict == "update"
    assert any("cannot tell whether" in line for line in lines)


def test_kubernetes_is_preferred_if_it_contains_the_same_application(
    argocd: ArgoCDServer, cluster: KubernetesApi
) -> None:
    manifest, lines = item(f"{WEB}:1.0.0"), list[str]()
    argocd.add(manifest)
    cluster.add(APPLICATIONS, manifest)
    store = PreferredStore(
        through_argocd(argocd),
        lambda: through_kubernetes(cluster),
        lambda _, line: lines.append(line),
    )
    assert patched(store, manifest, f"{WEB}:1.1.0").verdict == "update"
    assert cluster.of(APPLICATIONS, "web")["spec"]["source"]["kustomize"]["images"] == [
        f"{WEB}:1.1.0"
    ]
    assert (argocd.asked("PATCH"), lines) == ([], [])


def another(cluster: KubernetesApi) -> None:
    """Return an Application with the same name in another cluster."""
    cluster.add(
        APPLICATIONS, {**item(f"{WEB}:0.9.0"), "metadata": {**item()["metadata"], "uid": "another"}}
    )


def read_only(cluster: KubernetesApi) -> None:
    cluster.add(APPLICATIONS, item(f"{WEB}:1.0.0"))
    cluster.tokens = {"admin-token": "system:serviceaccount:ci:reader"}
    subject = {"kind": "ServiceAccount", "namespace": "ci", "name": "reader"}
    rule = {"apiGroups": ["argoproj.io"], "resources": ["applications"], "verbs": ["get"]}
    cluster.rules = [
        {"kind": "ClusterRole", "metadata": {"name": "r"}, "rules": [rule]},
        {
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "r"},
            "roleRef": {"kind": "ClusterRole", "name": "r"},
            "subjects": [subject],
        },
    ]


def unknown(cluster: KubernetesApi) -> None:
    cluster.tokens = {}


@pytest.mark.parametrize("trouble", [another, read_only, unknown, lambda _cluster: None])
def test_argo_cd_is_used_if_kubernetes_does_not_show_or_allow_the_patch(
    argocd: ArgoCDServer, cluster: KubernetesApi, trouble: Callable[[KubernetesApi], None]
) -> None:
    manifest, lines = item(f"{WEB}:1.0.0"), list[str]()
    argocd.add(manifest)
    trouble(cluster)
    before = cluster.version
    store = PreferredStore(
        through_argocd(argocd),
        lambda: through_kubernetes(cluster),
        lambda _, line: lines.append(line),
    )
    assert patched(store, manifest, f"{WEB}:1.1.0").verdict == "update"
    assert images_of(argocd) == [f"{WEB}:1.1.0"]
    assert cluster.version == before
    assert len(lines) == 1
    assert "through Argo CD's API, not through Kubernetes" in lines[0]


def test_a_patch_that_fails_permanently_is_an_error(cluster: KubernetesApi) -> None:
    cluster.add(APPLICATIONS, item(f"{WEB}:1.0.0"))
    cluster.faults.append(KubernetesFault(503, times=50))
    decision = patched(through_kubernetes(cluster), item(f"{WEB}:1.0.0"), f"{WEB}:1.1.0")
    assert (decision.verdict, decision.exit) == ("error", SourceDownError.exit)
