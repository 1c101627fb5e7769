"""Complete runs with a real Kubernetes API: paged lists, concurrent patches, and RBAC denials."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.argocd_states import at, operated
from real.kubernetes_server import KubernetesServer, kubernetes_server
from support import ROOT, Result, git, show
from support.clusters import full_application, live_app, rules
from support.runs import WEB, repository, run, start, target, wait_until

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("kubernetes")]
ARGO = "/apis/argoproj.io/v1alpha1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
MERGE = "application/merge-patch+json"
HOSTS = ("tekton", "argo-workflows")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesServer]:
    with kubernetes_server(tmp_path_factory.mktemp("kubernetes")) as found:
        yield found


@pytest.fixture(autouse=True)
def empty(api: KubernetesServer) -> None:
    """Delete the objects that other tests left behind."""
    for namespace in ("argocd", "team", "ci"):
        left = [
            f"{ARGO}/namespaces/{namespace}/applications",
            f"/api/v1/namespaces/{namespace}/events",
        ]
        left += [f"{RBAC}/namespaces/{namespace}/{plural}" for plural in ("roles", "rolebindings")]
        for path in left:
            assert api.ask("DELETE", path).status_code == 200
    for plural in ("clusterroles", "clusterrolebindings"):
        assert (
            api.ask(
                "DELETE", f"{RBAC}/{plural}?fieldSelector=metadata.name=image-update"
            ).status_code
            == 200
        )


def command(
    api: KubernetesServer, folder: Path, *more: str | Path, token: str = "", **others: Any
) -> Result:
    config = api.kubeconfig(folder, token) if token else api.kubeconfig(folder)
    return run("--applications", "cluster", "--kubeconfig", config, *more, **others)


def image_of(one: Any) -> list[str]:
    return list(one["spec"]["source"]["kustomize"]["images"])


def test_a_run_updates_the_applications_of_a_cluster(api: KubernetesServer, tmp_path: Path) -> None:
    repo = repository(tmp_path, "web")
    api.create(
        full_application("web", repo),
        full_application("far", repo, namespace="team", image_list="x=acme/other"),
        live_app("live"),
    )
    result = command(api, tmp_path, "--kubernetes-events")
    assert (result.code, rules(result)) == (
        0,
        {"argocd/web": "admitted", "argocd/live": "admitted"},
    ), result.stderr
    assert "newTag: 1.1.0" in show(repo, "main", target("web"))
    annotations = api.application("argocd", "web")["metadata"]["annotations"]
    assert annotations["argocd.argoproj.io/refresh"] == "normal"
    assert image_of(api.application("argocd", "live")) == [f"{WEB}:1.1.0"]
    events = api.ask("GET", "/api/v1/namespaces/argocd/events").json()["items"]
    assert {one["involvedObject"]["name"] for one in events} == {"web", "live"}


def test_thousands_of_applications_are_read_page_by_page(
    api: KubernetesServer, tmp_path: Path
) -> None:
    repo = repository(tmp_path, "web")
    api.create(
        *(
            full_application(f"other-{number}", repo, image_list="x=acme/other")
            for number in range(1100)
        ),
        full_application("web", repo),
    )
    result = command(api, tmp_path)
    assert (result.code, rules(result)) == (0, {"argocd/web": "admitted"}), result.stderr
    assert result.json["counts"]["applications"] == 1101


def test_concurrent_runs_for_ten_images_all_land(api: KubernetesServer, tmp_path: Path) -> None:
    """In the end, all ten images of one Application are updated, whatever the controller writes."""
    names = [f"ghcr.io/acme/part{number}" for number in range(10)]
    images = ",".join(f"p{number}={name}" for number, name in enumerate(names))
    api.create(live_app("all", image_list=images))
    config, path = api.kubeconfig(tmp_path), f"{ARGO}/namespaces/argocd/applications/all"
    given = ("--applications", "cluster", "--kubeconfig", str(config), "--output", "json")
    stop = threading.Event()

    def controller() -> None:
        count = 0
        while not stop.wait(0.02):
            count += 1
            change = {"status": {"reconciledAt": str(count), "sync": {"status": "OutOfSync"}}}
            api.ask("PATCH", path, change, MERGE)

    writer = threading.Thread(target=controller)
    writer.start()
    try:
        running = [start(["run", "--image", f"{name}:1.1.0", *given]) for name in names]
        ended = [(one.communicate(timeout=100), one.wait()) for one in running]
    finally:
        stop.set()
        writer.join()
    assert [code for _, code in ended] == [0] * 10, [said for said, _ in ended]
    assert sorted(image_of(api.application("argocd", "all"))) == sorted(
        f"{name}:1.1.0" for name in names
    )


def test_the_newest_of_concurrent_builds_wins(api: KubernetesServer, tmp_path: Path) -> None:
    api.create(live_app("web", web__update_strategy="semver"))
    config = api.kubeconfig(tmp_path)
    given = ("--applications", "cluster", "--kubeconfig", str(config), "--output", "json")
    running = [start(["run", "--image", f"{WEB}:1.{number}.0", *given]) for number in (3, 1, 4, 2)]
    ended = [(one.communicate(timeout=100), one.wait()) for one in running]
    assert [code for _, code in ended] == [0] * 4, [said for said, _ in ended]
    assert image_of(api.application("argocd", "web")) == [f"{WEB}:1.4.0"]


def grant(api: KubernetesServer, host: str, *names: str) -> str:
    """Apply the shipped manifests, and return their service account's token."""
    documents = [
        one
        for name in names
        for one in yaml.safe_load_all((ROOT / host / "rbac" / f"{name}.yaml").read_text())
    ]
    api.create(*documents)
    return api.service_account("ci", "image-update")


@pytest.mark.parametrize("host", HOSTS)
def test_the_shipped_roles_are_sufficient_in_one_namespace(
    api: KubernetesServer, tmp_path: Path, host: str
) -> None:
    repo = repository(tmp_path, "web")
    api.create(
        full_application("web", repo),
        live_app("live"),
        full_application("far", repo, namespace="team"),
    )
    token = grant(api, host, "namespace", "credentials")
    options = ("--namespace", "argocd", "--kubernetes-events", "--refresh-parents")
    result = command(api, tmp_path, *options, token=token)
    assert (result.code, rules(result)) == (
        0,
        {"argocd/web": "admitted", "argocd/live": "admitted"},
    ), result.stderr
    assert "may not" not in result.stderr
    assert image_of(api.application("argocd", "live")) == [f"{WEB}:1.1.0"]


@pytest.mark.parametrize("host", HOSTS)
def test_the_shipped_roles_are_sufficient_in_the_whole_cluster(
    api: KubernetesServer, tmp_path: Path, host: str
) -> None:
    repo = repository(tmp_path, "web", "far")
    api.create(full_application("web", repo), full_application("far", repo, namespace="team"))
    token = grant(api, host, "cluster")
    result = command(api, tmp_path, "--kubernetes-events", token=token)
    assert (result.code, rules(result)) == (
        0,
        {"argocd/web": "admitted", "team/far": "admitted"},
    ), result.stderr


def test_the_error_names_the_missing_permissions(api: KubernetesServer, tmp_path: Path) -> None:
    api.create(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "nobody", "namespace": "ci"},
        }
    )
    result = command(api, tmp_path, token=api.service_account("ci", "nobody"))
    assert result.code == 4
    assert "may not list applications.argoproj.io" in result.stderr
    wrong = command(api, tmp_path, token="not-a-token")
    assert wrong.code == 4
    assert "does not accept" in wrong.stderr
    assert "not-a-token" not in wrong.stderr + wrong.stdout


@pytest.mark.parametrize(("ends", "code", "seconds"), [("Healthy", 0, "60"), ("Degraded", 6, "8")])
def test_a_run_waits_for_the_rollout(
    api: KubernetesServer, tmp_path: Path, ends: str, code: int, seconds: str
) -> None:
    """The test writes a rollout's states in place of Argo CD's controller."""
    repo = repository(tmp_path, "web")
    one = full_application("web", repo)
    api.create(one)
    given = [
        "--applications",
        "cluster",
        "--kubeconfig",
        str(api.kubeconfig(tmp_path)),
        "--allow-protocol",
        "file",
    ]
    running = start(
        [
            "run",
            "--image",
            f"{WEB}:1.1.0",
            *given,
            "--wait",
            "--wait-timeout",
            seconds,
            "--output",
            "json",
        ]
    )
    wait_until(lambda: git(repo, "rev-list", "--count", "main") == "2")
    tip = git(repo, "rev-parse", "main")
    busy, done = operated("Running", revision=tip, finished=None), operated(revision=tip)
    for state in (
        at(one, "OutOfSync", "Healthy", revision=tip, operation=busy),
        at(one, "Synced", "Progressing", revision=tip, compared=13, operation=done),
        at(one, "Synced", ends, revision=tip, compared=14, operation=done, images=[f"{WEB}:1.1.0"]),
    ):
        wrote = api.ask(
            "PATCH",
            f"{ARGO}/namespaces/argocd/applications/web",
            {"status": state["status"]},
            MERGE,
        )
        assert wrote.status_code == 200, wrote.text
        time.sleep(0.5)
    out, err = running.communicate(timeout=90)
    assert running.wait() == code, (out, err)
