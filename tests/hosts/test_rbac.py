"""The shipped RBAC manifests grant what the step needs: nothing is denied, nothing is unused."""

import copy
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.kubernetes_api import (
    APPLICATIONS,
    CONFIG_MAPS,
    SECRETS,
    UPDATERS,
    KubernetesApi,
    cluster_application,
    running,
)
from fakes.kubernetes_rules import granted
from support import ROOT, clusters, needs, runs

from scripts.transcripts import blocks
from task.after.follow import updated_event
from task.annotations.application import Narrow
from task.applications.cluster import ClusterManifests
from task.kubernetes import client
from task.kubernetes.access import ClusterAccess
from task.kubernetes.client import ForbiddenError, Kubernetes
from task.kubernetes.kubeconfig import Kubeconfig, Server, User
from task.secret import Secret

HOSTS = ("tekton", "argo-workflows")
PREFIX = "argocd-image-updater.argoproj.io/"
ACCOUNT = "system:serviceaccount:ci:image-update"
REFRESH = {"metadata": {"annotations": {"argocd.argoproj.io/refresh": "normal"}}}


def manifests(host: str, name: str) -> list[dict[str, Any]]:
    return list(
        yaml.safe_load_all((ROOT / host / "rbac" / f"{name}.yaml").read_text(encoding="utf-8"))
    )


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with running(KubernetesApi(tokens={"sa": ACCOUNT})) as found:
        found.add(
            APPLICATIONS,
            cluster_application("web", images="w=acme/web"),
            cluster_application("api", images="w=acme/web"),
        )
        found.add(APPLICATIONS, cluster_application("far", "team", images="w=acme/web"))
        found.add(
            UPDATERS,
            {"metadata": {"name": "u"}, "spec": {"applicationRefs": [{"namePattern": "web"}]}},
        )
        found.add(
            SECRETS,
            {
                "metadata": {
                    "name": "repo-1",
                    "labels": {"argocd.argoproj.io/secret-type": "repository"},
                }
            },
        )
        found.add(CONFIG_MAPS, {"metadata": {"name": "argocd-ssh-known-hosts-cm"}, "data": {}})
        yield found


def account(api: KubernetesApi) -> Kubernetes:
    return Kubernetes(ClusterAccess(Kubeconfig("", Server(api.url), User(token=Secret("sa"))), {}))


def the_work(api: KubernetesApi, namespaces: tuple[str, ...]) -> list[str]:
    """Make every request that the step may make to a cluster."""
    kubernetes, done = account(api), []
    for found in ClusterManifests(
        kubernetes, prefix=PREFIX, narrow=Narrow(namespaces=namespaces)
    ).manifests():
        metadata = found.item["metadata"]
        if found.item["kind"] != "Application":
            continue
        test = {
            "op": "test",
            "path": "/metadata/resourceVersion",
            "value": metadata["resourceVersion"],
        }
        kubernetes.patch(client.APPLICATIONS, metadata["namespace"], metadata["name"], [test])
        kubernetes.merge(client.APPLICATIONS, metadata["namespace"], metadata["name"], REFRESH)
        kubernetes.get(client.APPLICATION_SETS, metadata["namespace"], "web")
        kubernetes.get(client.PROJECTS, "argocd", "default")
        kubernetes.post(updated_event(metadata, [], 1.0))
        done.append(f"{metadata['namespace']}/{metadata['name']}")
    return done


def credentials(api: KubernetesApi) -> None:
    """Make the requests for Argo CD's own credentials."""
    kubernetes = account(api)
    list(
        kubernetes.list(
            client.SECRETS,
            "argocd",
            selector="argocd.argoproj.io/secret-type=repository",
            full=True,
        )
    )
    kubernetes.get(client.SECRETS, "argocd", "repo-1")
    kubernetes.config_map("argocd", "argocd-ssh-known-hosts-cm")
    kubernetes.config_map("argocd", "argocd-tls-certs-cm")


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(
    ("name", "namespaces", "expected"),
    [
        ("namespace", ("argocd",), ["argocd/api", "argocd/web"]),
        ("cluster", (), ["argocd/api", "argocd/web", "team/far"]),
    ],
)
def test_no_request_is_denied_with_the_shipped_roles(
    api: KubernetesApi, host: str, name: str, namespaces: tuple[str, ...], expected: list[str]
) -> None:
    api.rules = manifests(host, name)
    assert the_work(api, namespaces) == expected
    assert api.denied() == []


@pytest.mark.parametrize("host", HOSTS)
def test_credentials_of_argo_cd_are_granted_by_a_separate_file(
    api: KubernetesApi, host: str
) -> None:
    api.rules = manifests(host, "credentials")
    credentials(api)
    assert api.denied() == []
    for name in ("namespace", "cluster"):
        api.rules = manifests(host, name)
        with pytest.raises(ForbiddenError):
            credentials(api)


def pods(api: KubernetesApi) -> None:
    """Make the request that finds out why pods do not start."""
    list(account(api).list(client.PODS, "web", full=True))


@pytest.mark.parametrize("host", HOSTS)
def test_a_whole_run_needs_only_the_shipped_roles(
    api: KubernetesApi, tmp_path: Path, host: str
) -> None:
    """The command itself makes all requests: discovery, credentials, patches, Events, refreshes."""
    api.rules = [*manifests(host, "namespace"), *manifests(host, "credentials")]
    repo = runs.repository(tmp_path, "git")
    api.add(APPLICATIONS, clusters.full_application("git", repo), clusters.live_app("live"))
    config = clusters.kubeconfig(tmp_path, api, "sa")
    options = ("--namespace", "argocd", "--kubernetes-events", "--refresh-parents")
    result = runs.run("--applications", "cluster", "--kubeconfig", config, *options)
    assert (result.code, set(clusters.rules(result).values())) == (0, {"admitted"}), result.stderr
    assert api.denied() == []
    assert sorted(clusters.refreshed(api)) == ["argocd/git", "argocd/live"]


@pytest.mark.parametrize(
    ("host", "page"), [("tekton", "tekton"), ("argo-workflows", "argo-workflows")]
)
def test_the_kustomize_base_can_be_used_in_other_namespaces_as_the_guide_shows(
    host: str, page: str, tmp_path: Path
) -> None:
    text = (ROOT / f"docs/how-to/{page}.md").read_text(encoding="utf-8")
    (shown,) = (one.code for one in blocks(text) if "kind: Kustomization" in one.code)
    shutil.copytree(ROOT / host / "rbac", tmp_path / "base")
    (tmp_path / "overlay").mkdir()
    kustomization = re.sub(rf"https://github\.com/\S+//{host}/rbac\?ref=\S+", "../base", shown)
    (tmp_path / "overlay/kustomization.yaml").write_text(kustomization, encoding="utf-8")
    built = subprocess.run(
        [*needs("kustomize"), str(tmp_path / "overlay")], capture_output=True, text=True, check=True
    )
    made = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(built.stdout)}
    assert {one["metadata"]["namespace"] for one in made.values()} == {"builds", "gitops"}
    assert made["Role", "image-update"]["metadata"]["namespace"] == "gitops"
    assert made["ServiceAccount", "image-update"]["metadata"]["namespace"] == "builds"
    assert {
        subject["namespace"] for one in made.values() for subject in one.get("subjects", ())
    } == {"builds"}
    expected = {
        (one["kind"], one["metadata"]["name"]): one.get("rules")
        for one in manifests(host, "namespace")
    }
    assert {key: one.get("rules") for key, one in made.items()} == expected


def grants(rules: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield each verb on each resource, and the manifests without that grant."""
    for at, document in enumerate(rules):
        for index, rule in enumerate(document.get("rules", ())):
            for verb in rule["verbs"]:
                less = copy.deepcopy(rules)
                less[at]["rules"][index]["verbs"].remove(verb)
                yield f"{verb} {rule['resources'][0]}", less
            for resource in rule["resources"][1:]:
                less = copy.deepcopy(rules)
                less[at]["rules"][index]["resources"].remove(resource)
                yield f"{rule['verbs'][0]} {resource}", less


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("namespace", lambda api: the_work(api, ("argocd",))),
        ("cluster", lambda api: the_work(api, ())),
        ("credentials", credentials),
        ("pods", pods),
    ],
)
def test_every_grant_is_needed(
    api: KubernetesApi, host: str, name: str, work: Callable[[KubernetesApi], object]
) -> None:
    for grant, less in grants(manifests(host, name)):
        if "workflowtaskresults" in grant:  # the Argo Workflows executor needs this grant
            continue
        api.rules = less
        api.asked.clear()
        with suppress(ForbiddenError):
            work(api)
        assert [f"{one.verb} {one.resource.partition('/')[2]}" for one in api.denied()][:1] == [
            grant
        ]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("name", ["namespace", "cluster", "credentials", "pods"])
def test_no_role_contains_wildcards(host: str, name: str) -> None:
    for document in manifests(host, name):
        for rule in document.get("rules", ()):
            assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
            assert name == "credentials" or "secrets" not in rule["resources"]


def test_the_argo_workflows_executor_may_report_its_results() -> None:
    for name in ("namespace", "cluster"):
        for verb in ("create", "patch"):
            found = manifests("argo-workflows", name)
            assert granted(found, ACCOUNT, verb, "argoproj.io/workflowtaskresults", "ci", "")
            assert not granted(
                found, ACCOUNT, verb, "argoproj.io/workflowtaskresults", "argocd", ""
            )
