"""The fake Kubernetes API compared with recorded responses from Kubernetes 1.36."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import requests
from fakes.argocd_states import applied, at, live_application, operated, resource
from fakes.kubernetes_api import APPLICATIONS, EVENTS, SECRETS, UPDATERS, KubernetesApi, running
from support.recorded import Exchange, application_fields, exchange, head, names, sent, shape

from task.errors import Outpaced, SourceAccessError, SourceDownError, SourceError
from task.http import Limits
from task.kubernetes import client
from task.kubernetes.access import ClusterAccess
from task.kubernetes.client import ForbiddenError, Kubernetes
from task.kubernetes.kubeconfig import Kubeconfig, Server, User
from task.secret import Secret

SERVER, TOKEN = "kubernetes-1.36", "admin-token"
FIRST, THIRD = (
    "a3eaab78ad303d6aeab351eb3cda0c47ab2b22db",
    "ecdcef28b57d1847b74f4991b6ea06b30bd8e2b4",
)
IMAGE = "registry.example.com/acme/web"
PARAMETERS = [
    {"name": "replicas", "value": "2"},
    {"name": "image.tag", "value": "1.0.0", "forceString": True},
]
Situation = Callable[[KubernetesApi], object]


def recorded_application(
    name: str, namespace: str = "argocd", *, labels: Mapping[str, str] | None = None, **spec: Any
) -> Any:
    """Return an Application from the recordings."""
    one = live_application(
        name, namespace, **{"syncPolicy": {"automated": {"prune": True, "selfHeal": False}}, **spec}
    )
    del one["metadata"]["labels"], one["status"]
    one["metadata"] |= {"labels": dict(labels)} if labels else {}
    return one


def with_parameters() -> Any:
    one = recorded_application("hparam", labels={"team": "a"})
    one["spec"]["source"]["helm"] = {"parameters": PARAMETERS}
    return one


def deployed(name: str, how: str, health: str, images: Sequence[str]) -> dict[str, Any]:
    done = applied("Deployment", name, f"deployment.apps/{name} {how}", hookPhase="Running")
    there = resource("Deployment", name, health, group="apps", namespace="apps", status="Synced")
    return {"operation": done, "resources": [there], "images": [f"{IMAGE}:{tag}" for tag in images]}


def healthy(api: KubernetesApi) -> None:
    facts = deployed("hparam", "created", "Healthy", ["1.0.0"])
    done = operated(revision=FIRST, started=10, finished=11, resources=[facts.pop("operation")])
    seen = at(
        with_parameters(),
        "Synced",
        "Healthy",
        revision=FIRST,
        compared=20,
        changed=12,
        operation=done,
        **facts,
    )
    seen["status"]["sync"]["comparedTo"]["source"] = seen["spec"]["source"]
    api.add(APPLICATIONS, seen)


def degraded(api: KubernetesApi) -> None:
    facts = deployed("kust1", "configured", "Degraded", ["1.0.0", "nopull-1.0.1"])
    done = operated(revision=THIRD, started=10, finished=10, resources=[facts.pop("operation")])
    api.add(
        APPLICATIONS,
        at(
            recorded_application("kust1"),
            "Synced",
            "Degraded",
            revision=THIRD,
            compared=10,
            changed=20,
            operation=done,
            **facts,
        ),
    )


def refused_spec(api: KubernetesApi) -> None:
    one = recorded_application("badspec", project="no-such", syncPolicy={"automated": {}})
    said = "Application referencing project no-such which does not exist"
    wrong = [{"type": "InvalidSpecError", "message": said}]
    seen = at(one, "Unknown", "Unknown", changed=10, conditions=wrong)
    del (
        seen["status"]["sync"]["revision"],
        seen["status"]["sync"]["comparedTo"],
        seen["status"]["reconciledAt"],
    )
    api.add(APPLICATIONS, seen)


def nothing(_api: KubernetesApi) -> None:
    """Do nothing: the cluster is empty."""


def several(count: int, *named: tuple[str, str]) -> Situation:
    """Return a setup with these Applications and this number of other Applications."""

    def situation(api: KubernetesApi) -> None:
        api.add(APPLICATIONS, *(recorded_application(name, namespace) for name, namespace in named))
        api.add(APPLICATIONS, *(recorded_application(f"h{number:02}") for number in range(count)))
        api.version = 1151

    return situation


PAGED = (("child", "argocd"), ("deg", "argocd"), ("window", "argocd"), ("ns1", "team-a"))


def expired(api: KubernetesApi) -> None:
    several(24, *PAGED)(api)
    api.compacted = 1864


def later(api: KubernetesApi) -> None:
    several(25, *PAGED, ("gen-a", "argocd"))(api)
    api.version = 1871


def at_version(api: KubernetesApi) -> None:
    """Add the Application in the state to which the patch applies."""
    one = recorded_application("live3")
    tags = [{"name": name, "value": "1.0.0"} for name in ("image.tag", "side.tag")]
    one["spec"]["source"]["helm"] = {"parameters": tags}
    api.version = 868
    api.add(APPLICATIONS, one)


def hparam(version: int) -> Situation:
    def situation(api: KubernetesApi) -> None:
        api.version = version - 1
        api.add(APPLICATIONS, with_parameters())

    return situation


def reader(api: KubernetesApi) -> None:
    """Assign the token to a user with different permissions."""
    api.add(APPLICATIONS, recorded_application("kust3"))
    api.tokens[TOKEN] = "reader"


def no_updaters(api: KubernetesApi) -> None:
    api.forget(UPDATERS)


def unknown(api: KubernetesApi) -> None:
    api.tokens.clear()


def starting(api: KubernetesApi) -> None:
    api.starting = True


def once_already(api: KubernetesApi) -> None:
    api.add(EVENTS, exchange(SERVER, "event-exists").request["body"])


def repositories(api: KubernetesApi) -> None:
    kind = {"labels": {"argocd.argoproj.io/secret-type": "repository"}, "annotations": {}}
    for name in ("repo-gitops", "repo-ssh"):
        api.add(
            SECRETS,
            {"metadata": {"name": name, **kind}, "data": {"type": "Z2l0"}, "type": "Opaque"},
        )
    api.add(SECRETS, {"metadata": {"name": "another"}, "data": {}})


# In errors, every field is compared.
ERRORS: Mapping[str, Situation] = {
    "application-absent": nothing,
    "event-exists": once_already,
    "json-patch-invalid-object": hparam(1148),
    "json-patch-path-absent": hparam(1148),
    "json-patch-test-failed": hparam(1148),
    "kind-absent": no_updaters,
    "list-continue-expired": expired,
    "list-forbidden": reader,
    "merge-patch-stale": hparam(1200),
    "patch-forbidden": reader,
    "unauthorized": unknown,
    "watch-storage-initializing": starting,
}
LISTS: Mapping[str, Situation] = {
    "applications-metadata-last-page": several(24, *PAGED),
    "applications-metadata-none": several(24, *PAGED),
    "applications-metadata-page-1": several(24, *PAGED),
    "list-continue-goes-on": later,
    "secrets-by-label": repositories,
}
OBJECTS: Mapping[str, Situation] = {
    "application-helm": healthy,
    "application-invalid-spec": refused_spec,
    "application-kustomize-degraded": degraded,
}
WRITTEN: Mapping[str, Situation] = {
    "event-created": nothing,
    "json-patch-ok": at_version,
    "refresh": lambda api: api.add(
        APPLICATIONS, recorded_application("manual", labels={"team": "a"}, syncPolicy={})
    ),
}


def answered(name: str, situation: Situation) -> tuple[requests.Response, Exchange]:
    """Return the fake API's response after comparing its status and headers with the recording."""
    recorded = exchange(SERVER, name)
    with running() as api:
        situation(api)
        answer = sent(api.url, recorded, TOKEN)
    ours, real = head(answer, recorded)
    assert ours == real
    return answer, recorded


@pytest.mark.parametrize("name", ERRORS)
def test_the_fake_api_returns_the_recorded_errors(name: str) -> None:
    answer, recorded = answered(name, ERRORS[name])
    assert (answer.text if isinstance(recorded.body, str) else answer.json()) == recorded.body


@pytest.mark.parametrize("name", LISTS)
def test_the_fake_api_returns_the_recorded_lists(name: str) -> None:
    answer, recorded = answered(name, LISTS[name])
    ours, real = answer.json(), recorded.body
    outer = ("kind", "apiVersion")
    assert [ours.get(one) for one in outer] == [real.get(one) for one in outer]
    counted = name.startswith("applications-metadata-")  # the other recordings were truncated
    assert ours["metadata"].keys() == real["metadata"].keys()
    assert not counted or ours["metadata"] == real["metadata"]

    def read(body: Any) -> Any:
        found = [(*(one.get(key) for key in outer), one["metadata"]) for one in body["items"] or ()]
        return [(*of, one["name"], one["namespace"]) for *of, one in found]

    assert read(ours) == read(real)
    assert (ours["items"] is None) == (real["items"] is None)
    assert {path for path, _ in shape(ours)} - {path for path, _ in shape(real)} == set()


@pytest.mark.parametrize("name", OBJECTS)
def test_the_fake_api_returns_the_recorded_applications(name: str) -> None:
    answer, recorded = answered(name, OBJECTS[name])
    found, wanted = application_fields(answer.json()), application_fields(recorded.body)
    for path in ("status.sourceType",):  # the config management tool does not matter for a rollout
        wanted.pop(path, None)
    assert found == wanted


@pytest.mark.parametrize("name", WRITTEN)
def test_the_fake_api_returns_written_objects_as_recorded(name: str) -> None:
    answer, recorded = answered(name, WRITTEN[name])
    ours, real = answer.json(), recorded.body
    for key in ("kind", "apiVersion", "type", "reason", "message", "involvedObject", "count"):
        assert ours.get(key) == real.get(key), key
    if "spec" in real:
        assert ours["spec"]["source"]["repoURL"] == real["spec"]["source"]["repoURL"]
        assert ours["spec"]["source"].get("helm") == real["spec"]["source"].get("helm")
        refresh = "argocd.argoproj.io/refresh"
        assert ours["metadata"]["annotations"].get(refresh) == real["metadata"]["annotations"].get(
            refresh
        )
    assert type(ours["metadata"]["resourceVersion"]) is type(real["metadata"]["resourceVersion"])


def test_every_recording_is_compared() -> None:
    assert set(names(SERVER)) == {*ERRORS, *LISTS, *OBJECTS, *WRITTEN}


# The errors that our client raises: (recording, request, error, message).
TOLD: list[tuple[str, Callable[[Kubernetes], object], type[Exception], str]] = [
    ("json-patch-test-failed",
     lambda api: api.patch(client.APPLICATIONS, "argocd", "hparam",
                           [{"op": "test", "path": "/metadata/resourceVersion", "value": "1"}]), Outpaced, ""),
    ("json-patch-path-absent",
     lambda api: api.patch(client.APPLICATIONS, "argocd", "hparam",
                           [{"op": "test", "path": "/metadata/resourceVersion", "value": "1148"},
                            {"op": "replace", "path": "/spec/source/helm/parameters/7/value", "value": "x"}]),
     SourceError, "the server rejected our request"),
    ("json-patch-invalid-object",
     lambda api: api.patch(client.APPLICATIONS, "argocd", "hparam",
                           [{"op": "test", "path": "/metadata/resourceVersion", "value": "1148"},
                            {"op": "replace", "path": "/spec/source/helm/parameters/1/value", "value": 1}]),
     SourceError, 'must be of type string: "integer"'),
    ("merge-patch-stale",
     lambda api: api.merge(client.APPLICATIONS, "argocd", "hparam", {"metadata": {"resourceVersion": "1147"}}),
     Outpaced, ""),
    ("list-forbidden", lambda api: list(api.list(client.APPLICATIONS)), ForbiddenError,
     'User "reader" cannot list resource "applications"'),
    ("unauthorized", lambda api: list(api.list(client.APPLICATIONS)), SourceAccessError, "does not accept"),
    ("watch-storage-initializing", lambda api: list(api.list(client.APPLICATIONS)), SourceDownError,
     "storage is (re)initializing"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "ask", "kind", "says"), TOLD, ids=[row[0] for row in TOLD])
def test_each_recorded_error_is_mapped_to_a_client_error(
    name: str, ask: Callable[[Kubernetes], object], kind: type[Exception], says: str
) -> None:
    with running() as api:
        ERRORS[name](api)
        config = Kubeconfig("test", Server(api.url), User(token=Secret(TOKEN)))
        with pytest.raises(kind) as caught:
            ask(Kubernetes(ClusterAccess(config, {}), Limits(tries=1)))
    assert type(caught.value) is kind
    assert says in str(caught.value)


def test_a_starting_api_is_retried_after_the_requested_delay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    with running() as api:
        api.add(APPLICATIONS, recorded_application("web"))
        api.starting = True

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            api.starting = False

        monkeypatch.setattr("task.shutdown.sleep", sleep)
        config = Kubeconfig("test", Server(api.url), User(token=Secret(TOKEN)))
        kubernetes = Kubernetes(ClusterAccess(config, {}), Limits(tries=2))
        assert [one["metadata"]["name"] for one in kubernetes.list(client.APPLICATIONS)] == ["web"]
    assert slept == [1.0]  # the Retry-After header
