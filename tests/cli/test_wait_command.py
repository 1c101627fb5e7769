"""`image-update wait`: names and a revision in, a line for each Application and an exit code out."""

import json
from collections.abc import Iterator, Mapping
from io import StringIO
from typing import Any

import pytest
from fakes.argocd_api import ArgoCDServer, Fault, argocd_server
from fakes.argocd_states import NEW, OLD, REPO, application, at, operated

from task.after.waiting import accepts, rollout_error
from task.argocd.api import ArgoCDApi
from task.argocd.connection import Connection
from task.argocd.rollouts import RolloutState
from task.cli.wait import key_of, wait_for
from task.errors import (
    Exit,
    RolloutError,
    SourceAccessError,
    SourceDownError,
    TaskError,
    UsageError,
)
from task.http import Limits
from task.output.log import Log
from task.secret import Secret
from task.settings import WaitOptions

APP = application()
BEFORE = at(
    APP,
    "Synced",
    "Healthy",
    revision=OLD,
    compared=3,
    operation=operated(revision=OLD, started=1, finished=2),
)
GOOD = at(APP, "Synced", "Healthy", compared=13, operation=operated())
BAD = at(APP, "OutOfSync", "Healthy", operation=operated("Failed", message="no rights"))


@pytest.fixture
def server() -> Iterator[ArgoCDServer]:
    with argocd_server() as one:
        yield one


def waited(
    server: ArgoCDServer, *names: str, revision: str = NEW, repository: str = "", limit: float = 5
) -> int:
    connection = Connection(server.address, Secret("good-token"), plaintext=True)
    settings = WaitOptions(names or ("web",), revision, repository, limit)
    return wait_for(
        settings,
        "argocd",
        lambda: ArgoCDApi(connection, {}, limits=Limits(tries=1)),
        {},
        Log(stream=StringIO()),
    )


def test_success_is_0_and_a_line(server: ArgoCDServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.add(BEFORE, GOOD)
    assert waited(server) == Exit.OK
    out = capsys.readouterr().out
    assert out.startswith("argocd/web: synced-and-healthy after 0 s: synced and healthy")


def test_a_pause_is_0_and_a_warning(
    server: ArgoCDServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.add(BEFORE, at(APP, "Synced", "Suspended", compared=13, operation=operated()))
    assert waited(server, "web") == Exit.OK
    assert capsys.readouterr().out.startswith(
        "argocd/web: paused after 0 s: paused, and not healthy yet; resume it"
    )


def test_failure_is_6_with_the_cause(
    server: ArgoCDServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.add(BEFORE, BAD)
    with pytest.raises(RolloutError, match="argocd/web: the sync failed: no rights") as caught:
        waited(server)
    assert caught.value.exit == Exit.ROLLOUT
    assert "argocd/web: failed" in capsys.readouterr().out


def test_a_time_out_is_6_and_says_who(server: ArgoCDServer) -> None:
    server.add(BEFORE)
    with pytest.raises(
        RolloutError,
        match=r"argocd/web: not synced and healthy after .*Argo CD compares with aaaaaaaaaaaa",
    ):
        waited(server, limit=0.1)


def test_a_server_that_is_down_is_no_rollout_error(server: ArgoCDServer) -> None:
    server.add(BEFORE)
    server.faults += [Fault(503)] * 100
    with pytest.raises(SourceDownError) as caught:
        waited(server, limit=0.1)
    assert caught.value.exit == Exit.TEMPORARY


def test_an_application_that_may_not_be_seen_is_an_access_error(
    server: ArgoCDServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.add(BEFORE, GOOD)
    with pytest.raises(SourceAccessError) as caught:
        waited(server, "web", "gone")
    assert caught.value.exit == Exit.ACCESS
    assert capsys.readouterr().out.startswith("argocd/web: synced-and-healthy")


def test_a_short_revision_is_enough(server: ArgoCDServer) -> None:
    server.add(BEFORE, GOOD)
    assert waited(server, revision=f" {NEW[:8].upper()}\n") == Exit.OK


def test_other_repositories_do_not_count(server: ArgoCDServer) -> None:
    server.add(BEFORE, GOOD)
    assert waited(server, repository=REPO.removesuffix(".git")) == Exit.OK
    server.add(BEFORE, GOOD)
    with pytest.raises(RolloutError):
        waited(server, repository="https://git.example.com/acme/other", limit=0.1)


def test_one_application_named_twice_is_asked_once(
    server: ArgoCDServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.add(BEFORE, GOOD)
    assert waited(server, "web", "argocd/web") == Exit.OK
    assert capsys.readouterr().out.count("\n") == 1


def elsewhere(item: Mapping[str, Any]) -> dict[str, Any]:
    """The same Application in another team's namespace."""
    return {**item, "metadata": {**item["metadata"], "namespace": "team"}}


def test_a_name_in_several_namespaces_is_not_guessed(
    server: ArgoCDServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.add(BEFORE, GOOD)
    server.add(elsewhere(BEFORE), elsewhere(GOOD))
    with pytest.raises(UsageError, match="several namespaces: argocd/web, team/web") as caught:
        waited(server, "web")
    assert caught.value.hint == "write argocd/web, or '*/web' for all of them"
    assert waited(server, "*/web") == Exit.OK
    server.add(elsewhere(BEFORE), elsewhere(GOOD))
    assert waited(server, "te*/*") == Exit.OK
    told = capsys.readouterr().out
    assert [line.partition(":")[0] for line in told.splitlines()] == [
        "argocd/web",
        "team/web",
        "team/web",
    ]
    with pytest.raises(UsageError, match=r"no Application's name fits '\*/gone'"):
        waited(server, "*/gone")


def test_a_refused_list_leaves_a_bare_name_to_the_control_planes_namespace(
    server: ArgoCDServer, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = Fault(403, json.dumps({"code": 7, "message": "permission denied"}))
    server.add(BEFORE, GOOD)
    server.add(elsewhere(BEFORE), elsewhere(GOOD))
    server.faults.append(refused)
    assert waited(server, "web") == Exit.OK
    assert capsys.readouterr().out.startswith("argocd/web: synced-and-healthy")
    server.faults.append(refused)
    with pytest.raises(SourceAccessError):
        waited(server, "*/web")


WRONG = [
    (("a/b/c",), NEW, "not a valid name of an Application"),
    (("../x",), NEW, "not a valid name of an Application"),
    (("web",), "main", "is not the id of a commit"),
    (("web",), "", "is not the id of a commit"),
    (("web",), "abc", "is not the id of a commit"),
]


@pytest.mark.parametrize(("names", "revision", "message"), WRONG)
def test_usage(names: tuple[str, ...], revision: str, message: str) -> None:
    def api() -> ArgoCDApi:
        raise TaskError("nothing is asked")

    with pytest.raises(UsageError, match=message):
        wait_for(WaitOptions(names, revision), "argocd", api, {}, Log(stream=StringIO()))


NAMES = [("web", ("argocd", "web")), ("team/web", ("team", "web")), (" web ", ("argocd", "web"))]


@pytest.mark.parametrize(("text", "key"), NAMES)
def test_names(text: str, key: tuple[str, str]) -> None:
    assert key_of(text, "argocd") == key


def test_revisions() -> None:
    assert accepts(NEW, NEW)
    assert accepts(NEW[:7], NEW)
    assert not accepts(NEW, NEW[:7])
    assert not accepts(NEW, OLD)
    assert not accepts(NEW[:7], "")


def test_the_error_is_about_those_that_failed() -> None:
    good = RolloutState("argocd/a", "synced-and-healthy", "synced and healthy")
    bad = RolloutState(
        "argocd/b", "needs-sync", "auto-sync is off: someone must sync it", "argocd app sync"
    )
    assert rollout_error([good]) is None
    error = rollout_error([good, bad])
    assert error is not None
    assert (error.message, error.hint) == (
        "1 of 2 Applications are not rolled out: argocd/b",
        "argocd app sync",
    )
    alone = rollout_error([bad])
    assert alone is not None
    assert alone.message == "argocd/b: auto-sync is off: someone must sync it"
