"""The fake Argo CD API compared with recorded responses from Argo CD 3.6."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from fakes.argocd_api import ArgoCDServer, argocd_server
from fakes.argocd_states import live_application
from support.recorded import exchange, head, names, sent, shape

from task.argocd.api import ArgoCDApi
from task.argocd.connection import Connection
from task.errors import AbsentError, SourceAccessError, SourceError, TaskError, UsageError
from task.http import Limits
from task.secret import Secret

TOKEN = "good-token"
SERVER = "argocd-3.6"
LISTED = {
    "hparam": {"team": "a"},
    "multi1": None,
    "manual": {"team": "a"},
    "window": None,
    "live1": None,
    "kust3": None,
}
NO_HOST = (
    "rpc error: code = Unknown desc = failed to execute helm template command: failed running helm: `helm template . "
    "--name-template tmpl --namespace apps --kube-version 0.0.0 --set image.tag=1.0.1 <api versions removed> "
    "--include-crds` failed exit status 1: Error: template: web/templates/deploy.yaml:15:26: executing "
    '"web/templates/deploy.yaml" at <.Values.image.registry.host>: nil pointer evaluating interface {}.host\n\n'
    "Use --debug flag to render out invalid YAML"
)


def apps(server: ArgoCDServer) -> None:
    """Add some of the Applications that existed when the lists were recorded."""
    for name, labels in LISTED.items():
        one = live_application(name, project="window" if name == "window" else "default")
        one["metadata"]["labels"] = labels
        server.add(
            {
                **one,
                "metadata": {
                    key: value for key, value in one["metadata"].items() if value is not None
                },
            }
        )
    ns1 = live_application("ns1", "team-a", project="team-a")
    del ns1["metadata"]["labels"]
    server.add(ns1)


def nothing(_server: ArgoCDServer) -> None:
    """Do nothing: the token has no permissions, or there are no Applications."""


def expired(server: ArgoCDServer) -> None:
    server.expired.add(TOKEN)


def no_token(server: ArgoCDServer) -> None:
    server.tokens = {"another-token"}


def read_only(server: ArgoCDServer) -> None:
    apps(server)
    server.frozen.add(("argocd", "live1"))
    server.user = "reader"


def live(server: ArgoCDServer) -> None:
    one = live_application("live1")
    one["spec"]["source"]["helm"] = {"parameters": [{"name": "image.tag", "value": "1.0.0"}]}
    one["metadata"]["resourceVersion"] = "1255"
    server.add(one)


def no_project(server: ArgoCDServer) -> None:
    server.add(live_application("badspec", project="no-such"))
    server.projects = {"default"}


def unrenderable(server: ArgoCDServer) -> None:
    server.add(live_application("tmpl"))
    server.render = lambda changed: NO_HOST if "helm" in changed["spec"]["source"] else ""


def rooted(server: ArgoCDServer) -> None:
    server.root = "/argo"


def tls(server: ArgoCDServer) -> None:
    server.tls = "https://127.0.0.1:8080"


def rooted_tls(server: ArgoCDServer) -> None:
    rooted(server)
    tls(server)


# The setup for each recording, and the fields that we read (for errors, all fields): {path: value}
ERRORS: Mapping[str, Callable[[ArgoCDServer], None]] = {
    "application-absent-in-project": apps,
    "application-may-not-be-seen": nothing,
    "invalid-spec": no_project,
    "list-selector-invalid": apps,
    "patch-cannot-generate": unrenderable,
    "patch-forbidden": read_only,
    "patch-test-failed": live,
    "redirect-to-tls": tls,
    "root-path-missing": rooted,
    "root-path-redirect-to-tls": rooted_tls,
    "token-expired": expired,
    "token-invalid": no_token,
}
LISTS: Mapping[str, Callable[[ArgoCDServer], None]] = {
    "list-fields": apps,
    "list-fields-unknown": apps,
    "list-narrowed": apps,
    "list-no-rights": nothing,
}


@pytest.mark.parametrize("name", ERRORS)
def test_the_fake_server_returns_the_recorded_errors(name: str) -> None:
    recorded = exchange(SERVER, name)
    with argocd_server() as server:
        ERRORS[name](server)
        answer = sent(f"http://{server.address}", recorded, TOKEN)
    ours, real = head(answer, recorded)
    assert ours == real
    assert (answer.text if isinstance(recorded.body, str) else answer.json()) == recorded.body


@pytest.mark.parametrize("name", LISTS)
def test_the_fake_server_returns_the_recorded_lists(name: str) -> None:
    recorded = exchange(SERVER, name)
    with argocd_server() as server:
        LISTS[name](server)
        answer = sent(f"http://{server.address}", recorded, TOKEN)
        server.wrong.clear()  # our client never sends some of the recorded requests
    ours, real = head(answer, recorded)
    assert ours == real
    assert {path for path, _ in shape(answer.json())} - {
        path for path, _ in shape(recorded.body)
    } == set()

    def read(body: Any) -> Any:
        items = [one["metadata"] for one in body["items"] or ()]
        return [(one["name"], one.get("namespace"), one.get("labels")) for one in items]

    kept = [one[0] for one in read(recorded.body)]  # long lists were truncated in the recording
    assert [one for one in read(answer.json()) if one[0] in kept] == read(recorded.body)
    assert (answer.json()["items"] is None) == (recorded.body["items"] is None)


OURS = (
    "list-",
    "patch-",
    "token-",
    "redirect-",
    "root-path-",
    "invalid-",
    "application-absent",
    "application-may-not",
)


def test_every_recorded_list_and_error_is_compared() -> None:
    """Full Applications are compared in tests/argocd/test_argocd_recorded_applications.py."""
    assert {name for name in names(SERVER) if name.startswith(OURS)} == {
        *ERRORS,
        *LISTS,
        "patch-ok-helm",
    }


SAID: list[tuple[str, str, type[TaskError], str, str]] = [
    ("application-absent-in-project", "no-such", AbsentError, "argocd/no-such: does not exist", "check the name"),
    ("application-may-not-be-seen", "kust3", SourceAccessError,
     "argocd/kust3: does not exist, or the token lacks the permission (applications, get, <project>/kust3)", "check the name, or"),
    ("invalid-spec", "badspec", SourceError, 'app is not allowed in project "no-such", or the project does not', "log"),
    ("list-selector-invalid", "", UsageError,
     "--selector: Argo CD says: error parsing the selector: unable to parse requirement: found 'a' exp", "a in (b"),
    ("patch-cannot-generate", "tmpl", SourceError,
     "at <.Values.image.registry.host>: nil pointer evaluating interface {}.host (400)", "cannot be generated with"),
    ("patch-forbidden", "live1", SourceAccessError,
     "argocd/live1: reader lacks the permission (applications, update, default/live1)",
     "p, reader, applications, update, default/live1, allow"),
    ("root-path-missing", "", SourceAccessError, "returned text/plain in an unknown format (404)",
     "--argocd-root-path"),
    ("token-expired", "", SourceAccessError,
     "does not accept the token (invalid session: token has invalid claims: token is expired)", "generate-token"),
    ("token-invalid", "", SourceAccessError, "does not accept the token (no session information)", "generate-token"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "app", "kind", "message", "hint"), SAID, ids=[row[0] for row in SAID]
)
def test_each_recorded_error_becomes_a_message_with_a_hint(
    name: str, app: str, kind: type[TaskError], message: str, hint: str
) -> None:
    body = exchange(SERVER, name).request["body"]

    def ask(api: ArgoCDApi) -> None:
        if not app:
            api.list_applications(selector="team in a" if "selector" in name else "")
        elif body:
            api.patch_application("argocd", app, json.loads(body["patch"]))
        else:
            api.get_application("argocd", app, "default" if "project" in name else "")

    with argocd_server() as server:
        ERRORS[name](server)
        connection = Connection(server.address, Secret(TOKEN), plaintext=True)
        with pytest.raises(kind) as caught:
            ask(ArgoCDApi(connection, {}, limits=Limits(tries=1)))
    assert type(caught.value) is kind
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.message.count("argocd/") <= 1
