"""Applications in a cluster: all metadata is read, but full objects only where they matter."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from fakes.kubernetes_api import (
    APPLICATIONS,
    UPDATERS,
    Fault,
    KubernetesApi,
    cluster_application,
    running,
)

from task.annotations.application import Narrow
from task.annotations.subscription import Defaults, Scope
from task.applications import cluster as module
from task.applications.cluster import ClusterManifests
from task.errors import SourceAccessError, SourceDownError
from task.http import Limits
from task.kubernetes.access import ClusterAccess
from task.kubernetes.client import ForbiddenError, Kubernetes
from task.kubernetes.kubeconfig import Kubeconfig, Server, User
from task.pipeline.discover import discovered
from task.policy.tag_filter import glob_match
from task.secret import Secret

PREFIX = "argocd-image-updater.argoproj.io/"
QUICK = Limits(connect=2, silence=1, total=5, tries=1)


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with running() as found:
        yield found


def source(api: KubernetesApi, user: str = "admin-token", **given: Any) -> ClusterManifests:
    access = ClusterAccess(Kubeconfig("x", Server(api.url), User(token=Secret(user))), {})
    return ClusterManifests(Kubernetes(access, QUICK), prefix=PREFIX, **given)


def mentions(image: str) -> Any:
    """Return a filter for objects whose image-list or ImageUpdater spec mentions the image."""

    def wanted(item: Mapping[str, Any]) -> bool:
        if item.get("kind") == "ImageUpdater":
            return image in str(item["spec"])
        return image in item["metadata"]["annotations"].get(f"{PREFIX}image-list", "")

    return wanted


def keys(cluster: ClusterManifests) -> list[str]:
    return [
        f"{one.item['metadata']['namespace']}/{one.item['metadata']['name']}"
        for one in cluster.manifests()
    ]


def updater(
    name: str, namespace: str = "argocd", pattern: str = "*", image: str = "web"
) -> dict[str, Any]:
    ref = {"namePattern": pattern, "images": [{"alias": "a", "imageName": f"ghcr.io/acme/{image}"}]}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"applicationRefs": [ref]}}


def test_only_applications_that_may_use_the_image_are_read_in_full(api: KubernetesApi) -> None:
    api.add(
        APPLICATIONS,
        cluster_application("web", images="web=ghcr.io/acme/web:1.x"),
        cluster_application("plain"),
    )
    api.add(APPLICATIONS, cluster_application("api", "team", images="api=ghcr.io/acme/api:1.x"))
    cluster = source(api, wanted=mentions("acme/web"))
    found = list(cluster.manifests())
    assert [one.item for one in found] == [api.of(APPLICATIONS, "web")]
    assert found[0].origin == "cluster"
    assert (cluster.listed, [one.key for one in cluster.passed_over]) == (3, ["team/api"])
    assert api.requests() == [
        "list imageupdaters *",
        "list applications *",
        "get applications argocd/web",
    ]


def test_applications_in_a_cluster_are_read_like_manifests(api: KubernetesApi) -> None:
    api.add(
        APPLICATIONS,
        *(cluster_application(f"web-{n}", images="web=ghcr.io/acme/web:1.x") for n in range(12)),
    )
    scope = Scope(PREFIX, Narrow(), Defaults())
    found = discovered(source(api).manifests(), scope, lambda _origin: None)
    assert [one.key for one in found.applications] == sorted(f"argocd/web-{n}" for n in range(12))
    assert all(one.sources and one.live and one.origin == "cluster" for one in found.applications)
    assert found.problems == ()


def test_applications_referenced_by_an_image_updater_are_read(
    api: KubernetesApi,
) -> None:
    api.add(
        APPLICATIONS,
        *(
            cluster_application(name, namespace)
            for name in ("web", "api")
            for namespace in ("argocd", "team")
        ),
    )
    api.add(UPDATERS, updater("one", "team", "w*"), updater("two", "argocd", "*", image="other"))
    found = list(source(api, wanted=mentions("acme/web")).manifests())
    assert [
        (one.item["kind"], one.item["metadata"]["name"], one.item["metadata"]["namespace"])
        for one in found
    ] == [
        ("ImageUpdater", "two", "argocd"),
        ("ImageUpdater", "one", "team"),
        ("Application", "web", "team"),
    ]


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [("web", "web", True), ("web", "webs", False), ("w?b", "web", True), ("*", "x", True), ("[wv]eb", "web", True),
     ("[^a]eb", "web", True), (r"w\eb", "web", True), ("w.b", "web", False), ("[", "web", False),
     ("a*", "ab", True), ("*b", "ab", True), ("*b", "ba", False), ("a*b*c", "axbxbc", True),
     ("*a*ab", "aab", True), ("*ab*ab*", "aab", False), ("**", "ab", True)],
)  # fmt: skip
def test_applications_that_match_a_name_pattern_are_read(
    api: KubernetesApi, pattern: str, name: str, expected: bool
) -> None:
    api.add(APPLICATIONS, cluster_application(name))
    api.add(UPDATERS, updater("one", pattern=pattern))
    assert keys(source(api)) == ["argocd/one", *([f"argocd/{name}"] if expected else [])]


@pytest.mark.parametrize("pattern", ["*a" * 30 + "b", "*a" * 2048, "*" * 4096, "*a" * 100_000])
def test_every_name_pattern_is_matched_quickly(pattern: str) -> None:
    began = time.process_time()
    for _, glob in module._patterns_of(updater("one", pattern=pattern)):
        glob_match(glob, "a" * 253)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "spec", [None, [], {}, {"applicationRefs": 3}, {"applicationRefs": [3, {"namePattern": 3}]}]
)
def test_a_malformed_image_updater_references_no_application(api: KubernetesApi, spec: Any) -> None:
    api.add(UPDATERS, {"metadata": {"name": "odd"}, "spec": spec})
    api.add(APPLICATIONS, cluster_application("web"))
    assert keys(source(api)) == ["argocd/odd"]


def test_a_cluster_without_image_updater_resources_is_read(api: KubernetesApi) -> None:
    api.forget(UPDATERS)
    api.add(APPLICATIONS, cluster_application("web", images="web=acme/web"))
    assert keys(source(api)) == ["argocd/web"]


def role(namespace: str, *resources: str) -> list[dict[str, Any]]:
    rule = {
        "apiGroups": ["argoproj.io", "argocd-image-updater.argoproj.io"],
        "resources": resources,
        "verbs": ["list", "get"],
    }
    meta = {"name": "r", "namespace": namespace}
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": "ci"}
    return [
        {"kind": "Role", "metadata": meta, "rules": [rule]},
        {
            "kind": "RoleBinding",
            "metadata": meta,
            "subjects": [subject],
            "roleRef": {"kind": "Role", "name": "r"},
        },
    ]


@pytest.fixture
def reader(api: KubernetesApi) -> KubernetesApi:
    """Return an API with a user who may read only the control plane's namespace."""
    api.tokens["reader"] = "system:serviceaccount:ci:reader"
    api.rules = role("argocd", "applications")
    api.add(
        APPLICATIONS,
        cluster_application("web", images="w=acme/web"),
        cluster_application("far", "team", images="w=acme/web"),
    )
    return api


def test_the_argo_cd_namespace_is_read_if_cluster_wide_lists_are_forbidden(
    reader: KubernetesApi,
) -> None:
    lines: list[tuple[str, str]] = []
    found = keys(source(reader, "reader", log=lambda level, line: lines.append((level, line))))
    assert found == ["argocd/web"]
    (told,) = (line for level, line in lines if level == "info" and "only those" in line)
    assert told.endswith("using only those in namespace 'argocd'")
    assert len(told) < 120, "a run in one namespace begins with this line"
    assert any(level == "debug" and "a ClusterRole needs" in line for level, line in lines)


def test_a_forbidden_namespace_specified_by_an_option_is_an_error(reader: KubernetesApi) -> None:
    with pytest.raises(ForbiddenError, match="in namespace 'team'") as caught:
        keys(source(reader, "reader", narrow=Narrow(namespaces=("argocd", "team"))))
    assert "a Role in namespace 'team' needs" in caught.value.hint


def test_a_namespace_pattern_requires_permission_in_all_namespaces(
    reader: KubernetesApi,
) -> None:
    with pytest.raises(ForbiddenError, match="in all namespaces"):
        keys(source(reader, "reader", narrow=Narrow(namespaces=("te*",))))


def test_missing_permission_in_every_namespace_is_an_error(reader: KubernetesApi) -> None:
    reader.rules = []
    with pytest.raises(ForbiddenError, match="in namespace 'argocd'"):
        keys(source(reader, "reader"))


@pytest.mark.parametrize(
    ("narrow", "lists", "found"),
    [
        (Narrow(namespaces=("team", "team")), ["team"], ["team/api"]),
        (Narrow(namespaces=("team", "argocd")), ["team", "argocd"], ["team/api", "argocd/web"]),
        (Narrow(namespaces=("te*",)), ["*"], ["team/api"]),
        (Narrow(names=("team/a*",)), ["team"], ["team/api"]),
        (Narrow(names=("web", "team/x")), ["*"], ["argocd/web"]),
        (Narrow(selector="tier=front"), ["*"], ["argocd/web"]),
        (
            Narrow(projects=("nobody",)),
            ["*"],
            ["argocd/web", "team/api"],
        ),  # the filter needs the project, which is in the spec
    ],
)
def test_filters_are_applied_by_the_server(
    api: KubernetesApi, narrow: Narrow, lists: list[str], found: list[str]
) -> None:
    api.add(APPLICATIONS, cluster_application("web", images="w=acme/web", metadata={"labels": {"tier": "front"},
            "annotations": {f"{PREFIX}image-list": "acme/web"}}))  # fmt: skip
    api.add(APPLICATIONS, cluster_application("api", "team", images="a=acme/api"))
    assert keys(source(api, narrow=narrow)) == found
    assert [one for one in api.requests() if one.startswith("list applications")] == [
        f"list applications {n}" for n in lists
    ]
    selectors = {
        one.query.get("labelSelector", "")
        for one in api.asked
        if one.resource == APPLICATIONS and not one.name
    }
    assert selectors == {narrow.selector}


def test_an_application_deleted_concurrently_is_skipped(api: KubernetesApi) -> None:
    api.add(APPLICATIONS, *(cluster_application(f"web-{n}", images="w=acme/web") for n in range(5)))

    def delete(asked: Any) -> None:
        if asked.verb == "get":
            api.objects[APPLICATIONS].pop(("argocd", "web-3"), None)

    api.before = delete
    assert keys(source(api)) == [f"argocd/web-{n}" for n in (0, 1, 2, 4)]


def test_many_applications_are_listed_instead_of_fetched_individually(api: KubernetesApi) -> None:
    api.add(
        APPLICATIONS,
        *(cluster_application(f"web-{n:03}", images="w=acme/web") for n in range(80)),
        cluster_application("plain"),
    )
    assert len(keys(source(api))) == 80
    # One request for the metadata, and four pages of full objects.
    assert api.requests() == ["list imageupdaters *", *["list applications *"] * 5]


def test_full_objects_are_listed_once_if_metadata_is_unsupported(api: KubernetesApi) -> None:
    api.knows_metadata = False
    api.add(
        APPLICATIONS, cluster_application("web", images="w=acme/web"), cluster_application("plain")
    )
    assert keys(source(api)) == ["argocd/web"]
    assert api.requests() == ["list imageupdaters *", "list applications *"]


def test_a_server_error_for_one_application_ends_the_discovery(api: KubernetesApi) -> None:
    api.add(APPLICATIONS, *(cluster_application(f"web-{n}", images="w=acme/web") for n in range(5)))
    api.faults.append(Fault(503, path="web-3"))
    with pytest.raises(SourceDownError, match="'web-3'"):
        keys(source(api))


def test_a_cluster_without_argo_cd_is_an_error(api: KubernetesApi) -> None:
    api.forget(APPLICATIONS)
    with pytest.raises(SourceAccessError, match="Argo CD is not installed in this cluster"):
        keys(source(api))
