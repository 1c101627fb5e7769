"""The Kubernetes client, tested with an API that behaves and fails like a real one."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.kubernetes_api import (
    APPLICATIONS,
    CONFIG_MAPS,
    EVENTS,
    SECRETS,
    Fault,
    KubernetesApi,
    cluster_application,
    running,
)
from fakes.kubernetes_rules import Unprocessable, operate
from support import costs_at_most
from support.serving import Answers, serving

from task.argocd.application_store import ClusterApplications
from task.errors import (
    Outpaced,
    SourceAccessError,
    SourceDownError,
    SourceError,
    TaskError,
    UsageError,
)
from task.http import Limits, Response
from task.kubernetes import client
from task.kubernetes.access import ClusterAccess
from task.kubernetes.client import ForbiddenError, Kubernetes, ResourceListLimits
from task.kubernetes.kubeconfig import Kubeconfig, Server, User
from task.secret import Secret

pytestmark = pytest.mark.measured

QUICK = Limits(connect=2, silence=0.5, total=1.0, size=2_000_000, tries=2)
PATIENT = replace(QUICK, silence=30.0, total=60.0)  # large pages take seconds on a busy machine


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with running() as found:
        yield found


def reach(
    api: KubernetesApi, user: User = User(token=Secret("admin-token")), limits: Limits = QUICK
) -> Kubernetes:
    config = Kubeconfig("test", Server(api.url), user)
    return Kubernetes(ClusterAccess(config, {}), limits)


def names(items: object) -> list[str]:
    return [one["metadata"]["name"] for one in items]  # type: ignore[attr-defined]


def many(api: KubernetesApi, count: int) -> list[str]:
    api.add(APPLICATIONS, *(cluster_application(f"web-{number:03}") for number in range(count)))
    return [f"web-{number:03}" for number in range(count)]


def test_metadata_is_read_page_by_page(api: KubernetesApi) -> None:
    expected = many(api, 25)
    found = list(reach(api).list(client.APPLICATIONS, page=10))
    assert names(found) == expected
    assert [one.query.get("limit") for one in api.asked] == ["10"] * 3
    assert all("spec" not in one for one in found)


def test_full_objects_are_listed_if_requested_or_if_metadata_is_unsupported(
    api: KubernetesApi,
) -> None:
    many(api, 3)
    assert all("spec" in one for one in reach(api).list(client.APPLICATIONS, full=True))
    api.knows_metadata = False
    assert all("spec" in one for one in reach(api).list(client.APPLICATIONS))


@pytest.mark.slow
def test_compressed_responses_are_requested(api: KubernetesApi) -> None:
    api.add(APPLICATIONS, *(cluster_application(f"web-{n}", padding=16_000) for n in range(100)))
    list(reach(api).list(client.APPLICATIONS, full=True))
    packed, api.compresses = api.sent, False
    list(reach(api).list(client.APPLICATIONS, full=True))
    assert packed * 5 < api.sent - packed


@pytest.mark.parametrize("own_continue", [True, False])
def test_a_list_continues_after_an_expired_page(api: KubernetesApi, own_continue: bool) -> None:
    expected = many(api, 25)
    api.own_continue = own_continue

    def compact(_asked: object) -> None:
        if len(api.asked) == 1:
            api.compacted = api.version
            api.version += 1

    api.before = compact
    assert sorted(names(reach(api).list(client.APPLICATIONS, page=10))) == expected
    assert len(api.asked) == (4 if own_continue else 5)


def test_a_list_whose_pages_always_expire_is_an_error(api: KubernetesApi) -> None:
    many(api, 25)
    api.compacted, api.own_continue = 10**9, False
    with pytest.raises(SourceDownError, match="expire"):
        list(reach(api).list(client.APPLICATIONS, page=10))


ITEMS = [
    {"metadata": {"name": f"web-{number}", "annotations": {"a": "b" * 1000}}}
    for number in range(500)
]


@pytest.mark.parametrize(
    ("items", "token", "lists", "error", "says"),
    [
        (
            [],
            lambda number: f"t{number % 3}",
            ResourceListLimits(),
            SourceDownError,
            "keeps returning more pages",
        ),
        (
            [],
            lambda number: f"t{number}",
            ResourceListLimits(pages=50),
            SourceDownError,
            "keeps returning more pages",
        ),
        (
            ITEMS,
            lambda number: f"t{number}",
            ResourceListLimits(size=20_000_000),
            SourceError,
            "larger than 20,000,000 bytes",
        ),
        (
            [],
            lambda number: f"t{number}",
            ResourceListLimits(seconds=1),
            SourceDownError,
            "took more than 1 seconds",
        ),
    ],
    ids=["a token again", "pages", "size", "time"],
)
def test_an_endless_list_is_ended_by_a_limit(
    items: list[Any],
    token: Callable[[int], str],
    lists: ResourceListLimits,
    error: type[TaskError],
    says: str,
) -> None:
    with serving(Answers()) as server:

        def page(_path: str) -> tuple[int, dict[str, str], bytes]:
            if lists.seconds == 1:
                time.sleep(0.2)
            body = {
                "kind": "List",
                "metadata": {"continue": token(len(server.seen))},
                "items": items,
            }
            return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()

        server.reply = page
        config = Kubeconfig("test", Server(server.url), User(token=Secret("t")))
        kubernetes = Kubernetes(ClusterAccess(config, {}), lists=lists)
        with costs_at_most(), pytest.raises(error, match=says) as refused:
            for _ in kubernetes.list(client.APPLICATIONS):
                pass
        kubernetes.close()
    assert refused.value.hint


def test_an_http_request_to_an_https_port_is_an_error_about_the_address() -> None:
    body = b"Client sent an HTTP request to an HTTPS server.\n"  # from Go's server, without headers
    answer = Response(400, {}, body, "http://10.0.0.1:6443/api/v1/pods")
    error = client.error_for_answer(answer, client.Act("list", client.PODS), "context 'x'")
    assert isinstance(error, SourceAccessError)
    assert "http://10.0.0.1:6443 rejected an unencrypted request" in error.message
    assert "https://" in error.hint


def test_an_invalid_continue_token_restarts_the_list(api: KubernetesApi) -> None:
    expected = many(api, 5)
    api.faults.append(Fault(400, path="applications"))
    kubernetes = reach(api)
    found = kubernetes.list(client.APPLICATIONS, page=2)
    api.faults.clear()
    first = next(found)
    api.faults.append(Fault(400))
    assert sorted([*names([first]), *names(found)]) == expected


@pytest.mark.slow
def test_an_oversized_page_is_requested_in_smaller_pages(api: KubernetesApi) -> None:
    many(api, 8)
    api.add(APPLICATIONS, *(cluster_application(f"big-{n}", padding=400_000) for n in range(8)))
    kubernetes = reach(api, limits=PATIENT)
    assert len(names(kubernetes.list(client.APPLICATIONS, full=True))) == 16
    assert {one.query["limit"] for one in api.asked} >= {"25", "3"}


@pytest.mark.slow
def test_full_objects_are_listed_in_pages_of_limited_size(
    api: KubernetesApi,
) -> None:
    """Parsing a page of 500 Applications takes 80 MB, more memory than the step requests."""
    api.add(APPLICATIONS, *(cluster_application(f"web-{n}", padding=100_000) for n in range(80)))
    kubernetes = reach(api, limits=PATIENT)
    assert len(names(kubernetes.list(client.APPLICATIONS, full=True))) == 80
    first, *others = [int(one.query["limit"]) for one in api.asked]
    assert first == client.WHOLE_PAGE
    assert others
    assert all(one * 100_000 <= 2 * 1024 * 1024 for one in others)


def test_the_label_selector_is_applied_by_the_server(api: KubernetesApi) -> None:
    many(api, 3)
    api.add(APPLICATIONS, cluster_application("mine", metadata={"labels": {"team": "a"}}))
    assert names(reach(api).list(client.APPLICATIONS, selector="team=a")) == ["mine"]
    with pytest.raises(UsageError, match="unable to parse requirement"):
        list(reach(api).list(client.APPLICATIONS, selector="team (a"))


def test_getting_a_missing_object_returns_none(api: KubernetesApi) -> None:
    many(api, 1)
    kubernetes = reach(api)
    found = kubernetes.get(client.APPLICATIONS, "argocd", "web-000")
    assert found is not None
    assert found["spec"]["project"] == "default"
    assert kubernetes.get(client.APPLICATIONS, "argocd", "nobody") is None


@pytest.mark.parametrize("name", ["../../secrets/x", "a/b", "..", "x?watch=1"])
def test_an_object_name_cannot_change_the_request_path(api: KubernetesApi, name: str) -> None:
    kubernetes = reach(api)
    try:
        assert kubernetes.get(client.SECRETS, "argocd", name) is None
    except TaskError:
        assert name == ".."
    assert all(one.resource == "/secrets" and not one.query for one in api.asked)


def operations(version: str, tag: str) -> list[dict[str, object]]:
    value = [{"name": "image.tag", "value": tag}]
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/spec/source/helm/parameters", "value": value},
    ]


def test_a_patch_with_a_passing_test_is_applied(api: KubernetesApi) -> None:
    many(api, 1)
    version = api.of(APPLICATIONS, "web-000")["metadata"]["resourceVersion"]
    done = reach(api).patch(client.APPLICATIONS, "argocd", "web-000", operations(version, "1.0"))
    assert done["spec"]["source"]["helm"]["parameters"][0]["value"] == "1.0"


def test_a_patch_with_a_failing_test_counts_as_a_lost_race(api: KubernetesApi) -> None:
    many(api, 1)
    with pytest.raises(Outpaced):
        reach(api).patch(client.APPLICATIONS, "argocd", "web-000", operations("7", "1.0"))


def test_a_conflicting_merge_patch_counts_as_a_lost_race(api: KubernetesApi) -> None:
    many(api, 1)
    with pytest.raises(Outpaced):
        reach(api).merge(
            client.APPLICATIONS, "argocd", "web-000", {"metadata": {"resourceVersion": "7"}}
        )


def test_a_patch_that_makes_the_object_invalid_causes_a_source_error(api: KubernetesApi) -> None:
    many(api, 1)
    wrong = [{"op": "replace", "path": "/spec/nothing", "value": 1}]
    with pytest.raises(SourceError, match="422"):
        reach(api).patch(client.APPLICATIONS, "argocd", "web-000", wrong)
    with pytest.raises(SourceError, match="is invalid"):
        reach(api).merge(client.APPLICATIONS, "argocd", "web-000", {"spec": {"project": None}})


def test_a_patch_lost_in_transit_is_retried_and_applied_once(
    api: KubernetesApi,
) -> None:
    many(api, 1)
    version = api.of(APPLICATIONS, "web-000")["metadata"]["resourceVersion"]
    api.faults.append(Fault(how="reset"))
    reach(api).patch(client.APPLICATIONS, "argocd", "web-000", operations(version, "2.0"))
    assert (
        api.of(APPLICATIONS, "web-000")["spec"]["source"]["helm"]["parameters"][0]["value"] == "2.0"
    )


def test_a_merge_patch_adds_an_annotation(api: KubernetesApi) -> None:
    many(api, 1)
    change = {"metadata": {"annotations": {"argocd.argoproj.io/refresh": "normal"}}}
    reach(api).merge(client.APPLICATIONS, "argocd", "web-000", change)
    assert (
        api.of(APPLICATIONS, "web-000")["metadata"]["annotations"]["argocd.argoproj.io/refresh"]
        == "normal"
    )


def test_a_refresh_requested_during_another_refresh_is_kept(api: KubernetesApi) -> None:
    """Argo CD 3.6 removes the annotations only if the timestamp is still the one that it started
    with.
    """
    many(api, 1)
    applications = ClusterApplications(reach(api))
    stamp = "argocd.argoproj.io/refresh-timestamp"
    applications.refresh_application("argocd", "web-000")
    began = api.of(APPLICATIONS, "web-000")["metadata"]["annotations"][stamp]
    applications.refresh_application("argocd", "web-000")
    now = api.of(APPLICATIONS, "web-000")
    path = f"/metadata/annotations/{stamp.replace('/', '~1')}"
    done = [{"op": "test", "path": path, "value": began}, {"op": "remove", "path": path}]
    with pytest.raises(Unprocessable):
        operate(now, done)
    assert now["metadata"]["annotations"]["argocd.argoproj.io/refresh"] == "normal"


def test_config_maps_are_read(api: KubernetesApi) -> None:
    api.add(
        CONFIG_MAPS,
        {"metadata": {"name": "hosts"}, "data": {"ssh_known_hosts": "git ssh-rsa AAAA"}},
    )
    kubernetes = reach(api)
    assert kubernetes.config_map("argocd", "hosts") == {"ssh_known_hosts": "git ssh-rsa AAAA"}
    assert kubernetes.config_map("argocd", "nobody") == {}


def test_posting_an_existing_event_is_not_an_error(api: KubernetesApi) -> None:
    time = "2026-01-01T00:00:00Z"
    event = {
        "metadata": {"name": "web.1", "namespace": "argocd"},
        "involvedObject": {"namespace": "argocd"},
        "type": "Normal",
        "firstTimestamp": time,
        "lastTimestamp": time,
    }
    reach(api).post(event)
    reach(api).post(event)
    assert len(api.objects[EVENTS]) == 1


def test_a_missing_permission_is_reported_with_the_required_rule(api: KubernetesApi) -> None:
    api.tokens["weak"] = "system:serviceaccount:ci:weak"
    kubernetes = reach(api, User(token=Secret("weak")))
    with pytest.raises(ForbiddenError) as caught:
        list(kubernetes.list(client.APPLICATIONS, "team"))
    assert "list applications.argoproj.io in namespace 'team'" in str(caught.value)
    assert caught.value.hint == (
        "a Role in namespace 'team' needs {apiGroups: [\"argoproj.io\"], resources: [applications], verbs: [list]}"
    )
    with pytest.raises(ForbiddenError, match="system:serviceaccount:ci:weak") as caught:
        list(kubernetes.list(client.APPLICATIONS))
    assert caught.value.hint.startswith("a ClusterRole needs")


def test_a_rejected_login_causes_an_access_error_that_omits_the_token(api: KubernetesApi) -> None:
    with pytest.raises(SourceAccessError, match="does not accept test") as caught:
        list(reach(api, User(token=Secret("wr0ng-t0ken"))).list(client.APPLICATIONS))
    assert "wr0ng" not in f"{caught.value}{caught.value.hint}"


def test_a_token_file_is_read_again_after_the_token_expired(
    api: KubernetesApi, tmp_path: Path
) -> None:
    expected, file = many(api, 25), tmp_path / "token"
    file.write_text("admin-token\n")

    def rotate(_asked: object) -> None:
        if len(api.asked) == 1:
            api.tokens.clear()
            api.tokens["new-token"] = "admin"
            file.write_text("new-token\n")

    api.before = rotate
    assert (
        names(reach(api, User(token_file=str(file))).list(client.APPLICATIONS, page=10)) == expected
    )


def test_a_request_is_retried_after_the_token_file_was_replaced(
    api: KubernetesApi, tmp_path: Path
) -> None:
    expected, file = many(api, 1), tmp_path / "token"
    file.write_text("admin-token")
    api.faults.append(Fault(401))
    assert names(reach(api, User(token_file=str(file))).list(client.APPLICATIONS)) == expected


def test_a_cluster_without_argo_cd_causes_an_access_error(api: KubernetesApi) -> None:
    api.forget(APPLICATIONS)
    with pytest.raises(SourceAccessError, match="Argo CD is not installed in this cluster"):
        list(reach(api).list(client.APPLICATIONS))


@pytest.mark.parametrize(
    "fault",
    [
        Fault(503),
        Fault(500),
        Fault(429, headers=(("Retry-After", "0"),)),
        Fault(how="reset"),
        Fault(how="half"),
    ],
)
def test_a_temporary_failure_is_retried(api: KubernetesApi, fault: Fault) -> None:
    expected = many(api, 3)
    api.faults.append(Fault(fault.status, fault.how, headers=fault.headers))
    assert names(reach(api).list(client.APPLICATIONS)) == expected


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (Fault(503, times=9), SourceDownError, "503"),
        (Fault(429, times=9, headers=(("Retry-After", "3600"),)), SourceDownError, "429"),
        (Fault(how="reset", times=9), SourceDownError, "closed the connection"),
        (Fault(how="half", times=9), SourceDownError, "closed the connection|in time"),
        (Fault(how="drip", times=9), SourceDownError, "more than 1 seconds"),
        (Fault(how="drip-head", times=9), SourceDownError, "more than 1 seconds"),
        (Fault(how="html", times=9), SourceAccessError, "text/html"),
        (Fault(how="text", times=9), SourceDownError, "incomplete"),
        (Fault(how="huge", times=9), SourceAccessError, "more than 2000000 bytes"),
        (Fault(418, times=9), SourceError, "418"),
    ],
    ids=lambda value: value.how or str(value.status) if isinstance(value, Fault) else "",
)
def test_a_persistent_failure_is_reported(
    api: KubernetesApi, fault: Fault, error: type[TaskError], words: str
) -> None:
    api.faults.append(fault)
    with pytest.raises(error, match=words) as caught:
        list(reach(api).list(client.APPLICATIONS))
    assert type(caught.value) is error
    assert caught.value.hint


def test_a_closed_port_is_reported_as_unreachable() -> None:
    config = Kubeconfig("x", Server("http://127.0.0.1:9"), User())
    with pytest.raises(SourceDownError, match="could not be reached"):
        Kubernetes(ClusterAccess(config, {}), QUICK).get(client.APPLICATIONS, "argocd", "web")


def test_no_secret_reaches_the_log(api: KubernetesApi) -> None:
    api.add(SECRETS, {"metadata": {"name": "git"}, "data": {"password": "czNjcmV0"}})
    lines: list[str] = []
    config = Kubeconfig("test", Server(api.url), User(token=Secret("admin-token")))
    kubernetes = Kubernetes(
        ClusterAccess(config, {}), QUICK, lambda level, line: lines.append(f"{level} {line}")
    )
    assert kubernetes.get(client.SECRETS, "argocd", "git")
    assert lines
    assert not [line for line in lines if "admin-token" in line or "czNjcmV0" in line]
