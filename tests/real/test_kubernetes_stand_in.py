"""The fake Kubernetes API responds like the real API, request by request."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import requests
from fakes.kubernetes_api import APPLICATIONS, KubernetesApi, running
from real.kubernetes_server import ADMIN, KubernetesServer, kubernetes_server
from support.clusters import full_application

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("kubernetes")]
ROOT = "/apis/argoproj.io/v1alpha1"
HERE = f"{ROOT}/namespaces/argocd/applications"
WEB = f"{HERE}/web"
JSON, MERGE = "application/json-patch+json", "application/merge-patch+json"
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
OWN = {
    "managedFields",
    "uid",
    "generation",
    "creationTimestamp",
    "resourceVersion",
    "selfLink",
}  # fields that differ between servers
Ask = tuple[str, str, str, Any]  # method, path, content type or accepted type, body

LABELS = {"a": "b"}
APPS = [
    full_application(name, "https://git.example.com/acme/gitops.git")
    for name in ("api", "cart", "web")
]
EVENT = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "web.1", "namespace": "argocd"},
    "involvedObject": {"kind": "Application", "name": "web", "namespace": "argocd"},
    "reason": "ImagesUpdated",
    "message": "x",
    "type": "Normal",
    "firstTimestamp": "2026-11-22T06:00:00Z",
    "lastTimestamp": "2026-11-22T06:00:00Z",
}  # fmt: skip
ASKED: dict[str, list[Ask]] = {
    "one": [("GET", WEB, "", None)],
    "absent": [("GET", f"{HERE}/nobody", "", None)],
    "all": [("GET", HERE, "", None)],
    "all of all namespaces": [("GET", f"{ROOT}/applications", "", None)],
    "metadata": [("GET", HERE, METADATA, None)],
    "a page of metadata": [("GET", f"{HERE}?limit=2", METADATA, None)],
    "a page": [("GET", f"{HERE}?limit=2", "", None)],
    "by label": [("GET", f"{HERE}?labelSelector=team%3Dnone", "", None)],
    "a selector that is none": [("GET", f"{HERE}?labelSelector=a%20b%20c", "", None)],
    "a token that is none": [("GET", f"{HERE}?limit=2&continue=%21", "", None)],
    "a kind that is not there": [("GET", "/apis/argoproj.io/v1alpha1/namespaces/argocd/nothings", "", None)],
    "a group that is not there": [("GET", "/apis/nothing.example.com/v1/things", "", None)],
    "a test that holds": [
        ("PATCH", WEB, JSON, [{"op": "test", "path": "/metadata/resourceVersion", "value": "{version}"},
                              {"op": "add", "path": "/spec/source/helm", "value": {"releaseName": "b"}}])
    ],
    "a test that fails": [
        ("PATCH", WEB, JSON, [{"op": "test", "path": "/metadata/resourceVersion", "value": "1"},
                              {"op": "add", "path": "/spec/source/helm", "value": {"releaseName": "b"}}])
    ],
    "a path that is absent": [("PATCH", WEB, JSON, [{"op": "replace", "path": "/spec/source/x/y", "value": 1}])],
    "remove what is absent": [("PATCH", WEB, JSON, [{"op": "remove", "path": "/spec/source/nothing"}])],
    "an index that is too high": [("PATCH", WEB, JSON, [{"op": "replace", "path": "/spec/sources/7/x", "value": 1}])],
    "a patch of what is absent": [("PATCH", f"{HERE}/nobody", JSON, [{"op": "remove", "path": "/spec/x"}])],
    "merge": [("PATCH", WEB, MERGE, {"metadata": {"annotations": {"a": "b"}}})],
    "merge and remove": [("PATCH", WEB, MERGE, {"spec": {"syncPolicy": None}})],
    "merge at this version": [("PATCH", WEB, MERGE, {"metadata": {"resourceVersion": "{version}", "labels": LABELS}})],
    "merge at another version": [("PATCH", WEB, MERGE, {"metadata": {"resourceVersion": "1", "labels": LABELS}})],
    "merge into what is absent": [("PATCH", f"{HERE}/nobody", MERGE, {"metadata": {"labels": {"a": "b"}}})],
    "an event, twice": [("POST", "/api/v1/namespaces/argocd/events", "application/json", EVENT)] * 2,
    "secrets": [("GET", "/api/v1/namespaces/argocd/secrets?labelSelector=a%3Db", "", None)],
    "a secret that is absent": [("GET", "/api/v1/namespaces/argocd/secrets/nothing", "", None)],
    "a map that is absent": [("GET", "/api/v1/namespaces/argocd/configmaps/nothing", "", None)],
    "pods": [("GET", "/api/v1/namespaces/argocd/pods", "", None)],
}  # fmt: skip


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesServer]:
    with kubernetes_server(tmp_path_factory.mktemp("kubernetes")) as found:
        yield found


@pytest.fixture
def fake() -> Iterator[KubernetesApi]:
    with running() as found:
        found.add(APPLICATIONS, *APPS)
        yield found


def asked(url: str, token: str, ask: Ask, verify: str | bool = True) -> requests.Response:
    """Return the response to one request. `{version}` is replaced with the object's current
    version.
    """
    method, path, kind, body = ask
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {token}"
    text = None if body is None else json.dumps(body)
    if text and "{version}" in text:
        now = session.get(f"{url}{path}", verify=verify, timeout=30).json()
        text = text.replace("{version}", now["metadata"]["resourceVersion"])
    heads = {"Content-Type": kind} if text else {"Accept": kind or "application/json"}
    return session.request(
        method, f"{url}{path}", data=text, headers=heads, verify=verify, timeout=30
    )


def essence(answer: requests.Response) -> Any:
    """Return the parts that a client can rely on. The real API adds fields to objects that it
    creates.
    """
    if answer.status_code == 201:
        return answer.status_code, ""
    if not answer.headers["Content-Type"].startswith("application/json"):
        return answer.status_code, answer.text
    return answer.status_code, _essence(answer.json())


def _essence(value: Any) -> Any:
    if isinstance(value, list):
        return [_essence(one) for one in value]
    if not isinstance(value, dict):
        return value
    known = {key: _essence(one) for key, one in value.items() if key not in OWN}
    return known | ({"continue": "…"} if known.get("continue") else {})


@pytest.mark.parametrize("name", ASKED)
def test_the_fake_api_returns_the_same_responses_as_the_real_api(
    real: KubernetesServer, fake: KubernetesApi, name: str
) -> None:
    for path in (HERE, "/api/v1/namespaces/argocd/events"):
        assert real.ask("DELETE", path).status_code == 200
    real.create(*APPS)
    for ask in ASKED[name]:
        theirs, ours = (
            asked(real.url, ADMIN, ask, str(real.ca)),
            asked(fake.url, "admin-token", ask),
        )
        assert essence(ours) == essence(theirs)


def test_the_fake_api_rejects_the_same_requests_as_the_real_api(
    real: KubernetesServer, fake: KubernetesApi
) -> None:
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "nobody", "namespace": "ci"},
    }
    real.create(account)
    fake.tokens["sa"] = "system:serviceaccount:ci:nobody"
    token = real.service_account("ci", "nobody")
    rows: Mapping[str, Ask] = {name: asks[0] for name, asks in ASKED.items()}
    for name in (
        "all",
        "all of all namespaces",
        "one",
        "merge",
        "an event, twice",
        "secrets",
        "a map that is absent",
    ):
        theirs, ours = (
            asked(real.url, token, rows[name], str(real.ca)),
            asked(fake.url, "sa", rows[name]),
        )
        assert essence(ours) == essence(theirs), name
    theirs, ours = (
        asked(real.url, "x", rows["all"], str(real.ca)),
        asked(fake.url, "x", rows["all"]),
    )
    assert essence(ours) == essence(theirs)
