"""The client for Argo CD's API and the Applications that it returns, tested with a fake server."""

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.argocd_api import ArgoCDServer, Fault, PatchError, apply_patch, argocd_server
from fakes.argocd_states import at, live_application
from support import needs
from support.reports import trouble_of

from task.annotations.application import Narrow
from task.applications.cluster import ArgoCDManifests
from task.argocd.api import ArgoCDApi
from task.argocd.application_store import ApplicationStore, ClusterApplications
from task.argocd.connection import Connection
from task.errors import (
    AbsentError,
    Outpaced,
    SourceAccessError,
    SourceDownError,
    SourceError,
    TaskError,
    UsageError,
)
from task.http import Limits
from task.kubernetes.client import Kubernetes
from task.secret import Secret

TOKEN = "good-token"
QUICK = Limits(connect=1, silence=0.5, total=2, size=100_000, tries=1)


@pytest.fixture
def server() -> Iterator[ArgoCDServer]:
    with argocd_server() as one:
        one.add(at(live_application("web"), "Synced", "Healthy"))
        yield one


def api_of(
    server: ArgoCDServer, limits: Limits = QUICK, log: Callable[[str], None] = print, **given: Any
) -> ArgoCDApi:
    connection = replace(Connection(server.address, Secret(TOKEN), plaintext=True), **given)
    return ArgoCDApi(connection, {}, limits=limits, log=log)


def test_the_list_contains_only_the_requested_fields(server: ArgoCDServer) -> None:
    found = api_of(server).list_applications()
    assert found[0]["kind"] == "Application"
    assert found[0]["metadata"]["name"] == "web"
    assert "spec" not in found[0]
    assert (
        server.asked("GET")[0]
        .query["fields"][0]
        .startswith("metadata.resourceVersion,items.metadata.name,")
    )


def test_the_list_is_filtered_by_the_server(
    server: ArgoCDServer,
) -> None:
    server.add(live_application("shop", "team", project="shops"))
    api = api_of(server)
    assert [one["metadata"]["name"] for one in api.list_applications(projects=["shops"])] == [
        "shop"
    ]
    assert [one["metadata"]["name"] for one in api.list_applications(namespace="team")] == ["shop"]
    assert api.list_applications(selector="team=b") == []


def test_a_full_application_includes_its_kind_and_api_version(server: ArgoCDServer) -> None:
    found = api_of(server).get_application("argocd", "web")
    assert (found["apiVersion"], found["kind"]) == ("argoproj.io/v1alpha1", "Application")
    assert found["status"]["sync"]["status"] == "Synced"


def test_a_refresh_is_requested_for_one_application(server: ArgoCDServer) -> None:
    api_of(server).refresh_application("argocd", "web")
    asked = server.asked("GET", "/web")[0]
    assert (asked.query["refresh"], asked.query["appNamespace"]) == (["normal"], ["argocd"])


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"url": "https://argocd.example.com/"}, "https://argocd.example.com"),
        (
            {"url": "javascript:alert(1)"},
            "http://{}",
        ),  # not an HTTP URL, so the API's address is used
        ({"url": ["x"]}, "http://{}"),
        ({}, "http://{}"),
    ],
)
def test_the_address_of_the_user_interface_comes_from_the_settings(
    server: ArgoCDServer, said: dict[str, Any], expected: str
) -> None:
    server.settings = said
    assert api_of(server).web() == expected.format(server.address)


@pytest.mark.parametrize(
    "host", ["localhost", "argocd-server.argocd.svc", "argocd.svc.cluster.local"]
)
def test_a_cluster_internal_address_has_no_user_interface(host: str) -> None:
    api = ArgoCDApi(Connection(f"{host}:1", plaintext=True), {}, limits=replace(QUICK, connect=0.2))
    assert api.web() == ""


def test_a_root_path_and_headers_are_used() -> None:
    with argocd_server("/argo/cd") as server:
        server.add(live_application())
        api = api_of(server, root_path="/argo/cd", headers=(("X-Proxy", Secret("hunter2")),))
        assert api.get_application("argocd", "web")["metadata"]["name"] == "web"
        assert server.seen[0].headers["x-proxy"] == "hunter2"


def test_a_token_file_is_read_again(server: ArgoCDServer, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old-token\n")
    api = api_of(server, token=Secret(""), token_file=str(path))
    with pytest.raises(SourceAccessError, match="does not accept the token"):
        api.get_application("argocd", "web")
    path.write_text("good-token\n")
    assert api.get_application("argocd", "web")
    path.unlink()
    with pytest.raises(SourceAccessError, match="cannot read"):
        api.get_application("argocd", "web")


OPERATIONS = [
    {"op": "test", "path": "/spec/project", "value": "default"},
    {"op": "replace", "path": "/spec/project", "value": "other"},
]


def test_a_patch_changes_the_application(server: ArgoCDServer) -> None:
    assert (
        api_of(server).patch_application("argocd", "web", OPERATIONS)["spec"]["project"] == "other"
    )
    body = server.asked("PATCH")[0].body
    assert (body["patchType"], body["appNamespace"], json.loads(body["patch"])) == (
        "json",
        "argocd",
        OPERATIONS,
    )


CONFLICTS = [
    Fault(409, '{"error":"x","code":10,"message":"the object has been modified"}'),
    Fault(
        500, '{"error":"x","code":13,"message":"Failed to update application. Too many conflicts"}'
    ),
    None,  # the server's error for a failed `test` operation in the patch
]


@pytest.mark.parametrize("fault", CONFLICTS)
def test_a_patch_to_an_outdated_state_is_reported_as_a_lost_race(
    server: ArgoCDServer, fault: Fault | None
) -> None:
    server.faults += [fault] if fault else []
    with pytest.raises(Outpaced):
        api_of(server).patch_application("argocd", "web", [{**OPERATIONS[0], "value": "x"}])


@pytest.mark.parametrize("fault", CONFLICTS[:2])
def test_a_conflict_in_any_other_request_causes_a_temporary_error(
    server: ArgoCDServer, fault: Fault
) -> None:
    """A refresh writes an annotation. A conflict there must not look like an update's lost race."""
    api = api_of(server)
    for ask in (api.refresh_application, api.get_application, api.resource_tree, api.sync_windows):
        server.faults += [fault] * 5
        with pytest.raises(SourceDownError, match="Argo CD says"):
            ask("argocd", "web")
        server.faults.clear()


ANSWERS = [
    ("token expired", Fault(401, '{"error":"invalid session: token is expired","code":16,"message":'
     '"invalid session: token is expired"}'), SourceAccessError, "token is expired", "generate-token"),
    ("not there, or not allowed", Fault(403, '{"error":"permission denied","code":7,"message":"permission denied"}'),
     SourceAccessError, "does not exist, or the token lacks the permission", "applications, get, <project>/web, allow"),
    ("not there", Fault(404, '{"error":"no","code":5,"message":"applications.argoproj.io web not found"}'),
     AbsentError, "argocd/web: does not exist", "check the name"),
    ("what is wrong is the patch", Fault(500, '{"error":"x","code":2,"message":"error unmarshaling patched app: json: '
     'cannot unmarshal number"}'), SourceError, "cannot unmarshal number", "write to Git instead"),
    ("the patch does not fit", Fault(500, '{"error":"x","code":2,"message":"error applying patch: replace operation '
     'does not apply: doc is missing path: /spec/source/helm/parameters/7/value: missing value"}'), SourceError,
     "doc is missing path", "write to Git instead"),
    ("the repository server is away", Fault(400, '{"error":"x","code":3,"message":"application spec for web is '
     'invalid: InvalidSpecError: Unable to generate manifests in apps/web: rpc error: code = Unavailable desc = '
     'connection '
     'error: dial tcp 10.0.0.1:8081: connect: connection refused"}'), SourceDownError, "refused", "run it again"),
    ("no such folder", Fault(400, '{"error":"x","code":3,"message":"application spec for web is invalid: '
     'InvalidSpecError: Unable to generate manifests in apps/no-such: rpc error: code = Unknown desc = apps/no-such: '
     'app path does not exist"}'), SourceError, "app path does not exist", "correct the Application's source"),
    ("invalid", Fault(400, '{"error":"no","code":3,"message":"bad project"}'), SourceError, "bad project", "log"),
    ("internal", Fault(500, '{"error":"no","code":13,"message":"redis is down"}'), SourceDownError, "redis", "again"),
    ("unavailable", Fault(503, "<html>upstream</html>"), SourceDownError, "503", "again"),
    ("busy", Fault(429, "slow down", {"Retry-After": "0"}), SourceDownError, "429", "again"),
    ("reset", Fault(0), SourceDownError, "closed the connection", "again"),
    ("a login page", Fault(200, "<html>Sign in</html>", {"Content-Type": "text/html"}), SourceAccessError,
     "a web page", "--argocd-header"),
    ("a login page that refuses", Fault(403, "<html>no</html>", {"Content-Type": "text/html"}), SourceAccessError,
     "a web page", "--argocd-header"),
    ("a wrong path", Fault(404, "<html>no</html>", {"Content-Type": "text/html"}), SourceAccessError,
     "a web page", "--argocd-root-path"),
    ("another service", Fault(200, "[1]", {"Content-Type": "application/json"}), SourceAccessError,
     "not an Argo CD API response", "path"),
    ("not JSON", Fault(200, "{", {"Content-Type": "application/json"}), SourceAccessError, "not an Argo CD", "path"),
    ("too much", Fault(200, "x" * 200_000), SourceError, "more than", "select fewer"),
    ("an unencrypted redirect", Fault(307, "", {"Location": "ftp://x.example/"}), SourceAccessError,
     "not encrypted", "--argocd-server"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "kind", "message", "hint"),
    [row[1:] for row in ANSWERS],
    ids=[row[0] for row in ANSWERS],
)
def test_each_error_response_becomes_an_error_with_a_hint(
    server: ArgoCDServer, fault: Fault, kind: type[TaskError], message: str, hint: str
) -> None:
    server.faults.append(fault)
    with pytest.raises(kind) as caught:
        api_of(server).get_application("argocd", "web")
    assert type(caught.value) is kind
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert TOKEN not in str(caught.value) + caught.value.hint


def test_a_token_echoed_by_the_server_is_masked(server: ArgoCDServer) -> None:
    server.faults.append(
        Fault(401, json.dumps({"code": 16, "message": f"bad {TOKEN}", "error": "x"}))
    )
    with pytest.raises(SourceAccessError, match=r"bad \*\*\*"):
        api_of(server).get_application("argocd", "web")


def test_a_missing_token_is_reported(server: ArgoCDServer) -> None:
    with pytest.raises(SourceAccessError, match="requires a token, and none is set"):
        api_of(server, token=Secret("")).get_application("argocd", "web")


def test_the_rbac_hint_names_the_namespace_of_the_application(
    server: ArgoCDServer,
) -> None:
    with pytest.raises(SourceAccessError) as caught:
        api_of(server).get_application("team", "shop")
    assert "<project>/team/shop" in caught.value.hint


def test_a_server_that_does_not_respond_in_time_counts_as_down(server: ArgoCDServer) -> None:
    server.lock.acquire()
    try:
        with pytest.raises(SourceDownError, match=r"in time|took more"):
            api_of(server).get_application("argocd", "web")
        api_of(server).refresh_application("argocd", "web")  # requested, but not awaited
    finally:
        server.lock.release()


def test_a_request_to_a_busy_server_is_retried(server: ArgoCDServer) -> None:
    server.faults.append(Fault(429, "", {"Retry-After": "0"}))
    assert api_of(server, replace(QUICK, tries=2)).get_application("argocd", "web")


def test_the_token_is_not_sent_to_another_server(server: ArgoCDServer) -> None:
    with argocd_server() as other:
        other.add(live_application())
        location = f"http://{other.address}/api/v1/applications/web"
        server.faults.append(Fault(307, "", {"Location": location}))
        with pytest.raises(SourceAccessError, match=f"redirects to http://{other.address}"):
            api_of(server, headers=(("X-Proxy", Secret("hunter2")),)).get_application(
                "argocd", "web"
            )
        assert "authorization" not in other.seen[0].headers
        assert "x-proxy" not in other.seen[0].headers


def test_a_tls_connection_to_a_plaintext_server_is_reported_with_a_hint(
    server: ArgoCDServer,
) -> None:
    with pytest.raises((SourceAccessError, SourceDownError)) as caught:
        api_of(server, plaintext=False).get_application("argocd", "web")
    assert "--argocd-plaintext" in caught.value.hint


def test_certificates_are_checked(tmp_path: Path) -> None:
    certificate, key = str(tmp_path / "ca.pem"), str(tmp_path / "key.pem")
    made = ("req", "-x509", "-newkey", "rsa:2048", "-nodes")
    what = [
        "-subj",
        "/CN=argocd",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
        key,
        "-out",
        certificate,
    ]
    subprocess.run([*needs("openssl"), *made, *what], check=True, capture_output=True)
    with argocd_server() as server:
        server.secure(certificate, key)
        server.add(live_application())
        with pytest.raises(SourceAccessError, match="certificate") as caught:
            api_of(server, plaintext=False).get_application("argocd", "web")
        assert "--argocd-ca-file" in caught.value.hint
        for trust in ({"ca_file": certificate}, {"insecure": True}):
            assert api_of(server, plaintext=False, **trust).get_application("argocd", "web")


def test_no_log_line_contains_the_token(server: ArgoCDServer) -> None:
    lines: list[str] = []
    api = api_of(server, log=lines.append)
    api.get_application("argocd", "web")
    api.patch_application("argocd", "web", OPERATIONS)
    assert len(lines) == 2
    assert not any(TOKEN in one for one in lines)


WRONG = [
    (Connection(), "no Argo CD server"),
    (Connection("a.example", ca_file="/does/not/exist"), "cannot read '/does/not/exist'"),
    (Connection("http://a.example"), "unencrypted"),
]


@pytest.mark.parametrize(("given", "message"), WRONG)
def test_invalid_connection_options_cause_usage_errors(given: Connection, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ArgoCDApi(given, {})


def test_an_application_name_cannot_change_the_request_path(server: ArgoCDServer) -> None:
    with pytest.raises(SourceError, match="not a valid Application name"):
        api_of(server).get_application("argocd", "..")
    with pytest.raises(SourceAccessError):
        api_of(server).get_application("argocd", "../../settings?x=")
    assert (
        server.seen[0].path == "/api/v1/applications/../../settings?x="
    )  # a single path segment, percent-encoded in the request


def wants_image(item: Any) -> bool:
    return any(key.endswith("/image-list") for key in item["metadata"].get("annotations") or {})


def test_only_relevant_applications_are_read_in_full(server: ArgoCDServer) -> None:
    for number in range(20):
        plain = live_application(f"plain{number}")
        plain["metadata"]["annotations"] = {}
        server.add(plain)
    server.add(live_application("shop", "team"))
    found = list(ArgoCDManifests(api_of(server), wants_image).manifests())
    assert sorted(one.item["metadata"]["name"] for one in found) == ["shop", "web"]
    assert all(one.item["spec"] and one.origin == "argocd" and not one.trouble for one in found)
    assert len(server.asked("GET")) == 3


NARROW = [
    ({"projects": ["default"]}, {"projects": ["default"]}),
    ({"projects": ["def*"]}, {}),
    ({"selector": "team=a"}, {"selector": ["team=a"]}),
    ({"namespaces": ["team"]}, {"appNamespace": ["team"]}),
    ({"namespaces": ["te*"]}, {}),
]


@pytest.mark.parametrize(("narrow", "query"), NARROW)
def test_filters_without_wildcards_are_sent_to_the_server(
    server: ArgoCDServer, narrow: Any, query: Any
) -> None:
    list(ArgoCDManifests(api_of(server), wants_image, narrow=Narrow(**narrow)).manifests())
    assert {
        name: value for name, value in server.seen[0].query.items() if name != "fields"
    } == query


def test_an_application_deleted_concurrently_does_not_affect_others(server: ArgoCDServer) -> None:
    server.add(live_application("gone"))

    class Late(ArgoCDApi):
        def get_application(self, namespace: str, name: str, project: str = "") -> dict[str, Any]:
            server.hidden.add(("argocd", "gone"))
            return super().get_application(namespace, name, project)

    late = Late(Connection(server.address, Secret(TOKEN), plaintext=True), {}, limits=QUICK)
    found = list(ArgoCDManifests(late, wants_image).manifests())
    assert "gone" in trouble_of(found[0]).message
    assert not found[1].trouble


def test_a_server_that_goes_down_between_requests_is_an_error(server: ArgoCDServer) -> None:
    class Late(ArgoCDApi):
        def get_application(self, namespace: str, name: str, project: str = "") -> dict[str, Any]:
            server.faults.append(Fault(503))
            return super().get_application(namespace, name, project)

    with pytest.raises(SourceDownError):
        list(
            ArgoCDManifests(
                Late(Connection(server.address, Secret(TOKEN), plaintext=True), {}, limits=QUICK),
                wants_image,
            ).manifests()
        )


class FakeCluster(Kubernetes):
    """A fake cluster with one Application."""

    def __init__(self, item: dict[str, Any]) -> None:
        self.item = item
        self.merged: list[Any] = []

    def get(self, resource: Any, namespace: str, name: str) -> dict[str, Any] | None:
        if resource.plural == "appprojects":
            return None
        assert resource.plural == "applications"
        return self.item if (namespace, name) == ("argocd", "web") else None

    def patch(self, _resource: Any, _namespace: str, _name: str, operations: Any) -> dict[str, Any]:
        try:
            self.item = apply_patch(self.item, operations)
        except PatchError:
            raise Outpaced from None
        return self.item

    def merge(self, _resource: Any, _namespace: str, _name: str, change: Any) -> dict[str, Any]:
        self.merged.append(change)
        return self.item


@pytest.fixture(params=["argocd", "cluster"])
def live(request: pytest.FixtureRequest, server: ArgoCDServer) -> ApplicationStore:
    if request.param == "argocd":
        return ApplicationStore(api_of(server), atomic=False)
    return ApplicationStore(
        ClusterApplications(FakeCluster(at(live_application("web"), "Synced", "Healthy"))),
        atomic=True,
    )


def test_a_live_application_is_patched_only_at_the_version_that_was_read(
    live: ApplicationStore,
) -> None:
    manifest, version = live.read("argocd", "web")
    assert manifest["metadata"]["name"] == "web"
    live.patch("argocd", "web", version, OPERATIONS)
    assert live.read("argocd", "web")[0]["spec"]["project"] == "other"


def test_patching_a_concurrently_changed_live_application_is_reported_as_a_lost_race(
    live: ApplicationStore,
) -> None:
    _, version = live.read("argocd", "web")
    with pytest.raises(Outpaced):
        live.patch("argocd", "web", f"{version}0", OPERATIONS[1:])
    assert live.read("argocd", "web")[0]["spec"]["project"] == "default"


def test_reading_a_missing_live_application_is_an_error(live: ApplicationStore) -> None:
    with pytest.raises(SourceError):
        live.read("argocd", "gone")


def test_a_refresh_in_a_cluster_is_requested_through_an_annotation() -> None:
    """A second request must take effect even while Argo CD 3.6 is still processing the first."""
    cluster = FakeCluster(live_application("web"))
    api = ClusterApplications(cluster)
    api.refresh_application("argocd", "web")
    api.refresh_application("argocd", "web")
    asked = [one["metadata"]["annotations"] for one in cluster.merged]
    assert [one["argocd.argoproj.io/refresh"] for one in asked] == ["normal"] * 2
    assert len({one["argocd.argoproj.io/refresh-timestamp"] for one in asked}) == 2
    assert api.sync_windows("argocd", "web") == {}


def test_refreshing_a_hydrated_application_also_requests_hydration() -> None:
    """Otherwise, Argo CD 3.3 and 3.4 do not check the Application's dry source."""
    cluster = FakeCluster(live_application("web", sourceHydrator={"drySource": {}}, source=None))
    ClusterApplications(cluster).refresh_application("argocd", "web")
    asked = cluster.merged[-1]["metadata"]["annotations"]
    hydrate = "argocd.argoproj.io/hydrate"
    assert (asked["argocd.argoproj.io/refresh"], asked[hydrate]) == ("normal", "normal")
    assert asked[f"{hydrate}-timestamp"]
