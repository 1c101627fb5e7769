"""`image-update wait`: arguments, one line of output per Application, and exit codes."""

import json
from collections.abc import Mapping
from io import StringIO
from typing import Any

import pytest
from fakes.argocd_api import ArgoCDServer, Fault
from fakes.argocd_states import NEW, OLD, REPO, at, live_application, operated

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

APP = live_application()
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


def waited(
    argo_cd: ArgoCDServer, *names: str, revision: str = NEW, repository: str = "", limit: float = 5
) -> int:
    connection = Connection(argo_cd.address, Secret("good-token"), plaintext=True)
    settings = WaitOptions(names or ("web",), revision, repository, limit)
    return wait_for(
        settings,
        "argocd",
        lambda: ArgoCDApi(connection, {}, limits=Limits(tries=1)),
        {},
        Log(stream=StringIO()),
    )


def test_a_successful_wait_exits_with_code_0_and_prints_one_line(
    argo_cd: ArgoCDServer, capsys: pytest.CaptureFixture[str]
) -> None:
    argo_cd.add(BEFORE, GOOD)
    assert waited(argo_cd) == Exit.OK
    out = capsys.readouterr().out
    assert out.startswith("argocd/web: synced-and-healthy after 0 s: synced and healthy")


def test_a_paused_rollout_exits_with_code_0_and_a_warning(
    argo_cd: ArgoCDServer, capsys: pytest.CaptureFixture[str]
) -> None:
    argo_cd.add(BEFORE, at(APP, "Synced", "Suspended", compared=13, operation=operated()))
    assert waited(argo_cd, "web") == Exit.OK
    assert capsys.readouterr().out.startswith(
        "argocd/web: paused after 0 s: paused, and not healthy yet; resume it"
    )


def test_a_failed_rollout_exits_6_with_the_cause(
    argo_cd: ArgoCDServer, capsys: pytest.CaptureFixture[str]
) -> None:
    argo_cd.add(BEFORE, BAD)
    with pytest.raises(RolloutError, match="argocd/web: the sync failed: no rights") as caught:
        waited(argo_cd)
    assert caught.value.exit == Exit.ROLLOUT
    assert "argocd/web: failed" in capsys.readouterr().out


def test_a_timeout_exits_with_code_6_and_names_the_application(argo_cd: ArgoCDServer) -> None:
    argo_cd.add(BEFORE)
    with pytest.raises(
        RolloutError,
        match=r"argocd/web: not synced and healthy after .*Argo CD is comparing with aaaaaaaaaaaa",
    ):
        waited(argo_cd, limit=0.1)


def test_an_unreachable_server_is_not_reported_as_a_rollout_error(argo_cd: ArgoCDServer) -> None:
    argo_cd.add(BEFORE)
    argo_cd.faults += [Fault(503)] * 100
    with pytest.raises(SourceDownError) as caught:
        waited(argo_cd, limit=0.1)
    assert caught.value.exit == Exit.TEMPORARY


def test_a_hidden_application_causes_an_access_error(
    argo_cd: ArgoCDServer, capsys: pytest.CaptureFixture[str]
) -> None:
    argo_cd.add(BEFORE, GOOD)
    with pytest.raises(SourceAccessError) as caught:
        waited(argo_cd, "web", "gone")
    assert caught.value.exit == Exit.ACCESS
    assert capsys.readouterr().out.startswith("argocd/web: synced-and-healthy")


def test_an_abbreviated_revision_is_accepted(argo_cd: ArgoCDServer) -> None:
    argo_cd.add(BEFORE, GOOD)
    assert waited(argo_cd, revision=f" {NEW[:8].upper()}\n") == Exit.OK


def test_revisions_in_other_repositories_do_not_count(argo_cd: ArgoCDServer) -> None:
    argo_cd.add(BEFORE, GOOD)
    assert waited(argo_cd, repository=REPO.removesuffix(".git")) == Exit.OK
    argo_cd.add(BEFORE, GOOD)
    with pytest.raises(RolloutError):
        waited(argo_cd, repository="https://git.example.com/acme/other", limit=0.1)


def test_an_application_named_twice_is_watched_only_once(
    argo_cd: ArgoCDServer, capsys: pytest.CaptureFixture[str]
) -> None:
    argo_cd.add(BEFORE, GOOD)
    assert waited(argo_cd, "web", "argocd/web") == Exit.OK
    assert capsys.readouterr().out.count("\n") == 1


def elsewhere(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an Application with the same name in another team's namespace."""
    return {**item, "metadata": {**item["metadata"], "namespace": "team"}}


def test_an_ambiguous_name_is_a_usage_error(
    argo_cd: ArgoCDServer, capsys: pytest.CaptureFixture[str]
) -> None:
    argo_cd.add(BEFORE, GOOD)
    argo_cd.add(elsewhere(BEFORE), elsewhere(GOOD))
    with pytest.raises(UsageError, match="several namespaces: argocd/web, team/web") as caught:
        waited(argo_cd, "web")
    assert caught.value.hint == "use argocd/web, or '*/web' for all of them"
    assert waited(argo_cd, "*/web") == Exit.OK
    argo_cd.add(elsewhere(BEFORE), elsewhere(GOOD))
    assert waited(argo_cd, "te*/*") == Exit.OK
    told = capsys.readouterr().out
    assert [line.partition(":")[0] for line in told.splitlines()] == [
        "argocd/web",
        "team/web",
        "team/web",
    ]
    with pytest.raises(UsageError, match=r"no Application name matches '\*/gone'"):
        waited(argo_cd, "*/gone")


def test_without_list_permission_a_bare_name_refers_to_the_argo_cd_namespace(
    argo_cd: ArgoCDServer, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = Fault(403, json.dumps({"code": 7, "message": "permission denied"}))
    argo_cd.add(BEFORE, GOOD)
    argo_cd.add(elsewhere(BEFORE), elsewhere(GOOD))
    argo_cd.faults.append(refused)
    assert waited(argo_cd, "web") == Exit.OK
    assert capsys.readouterr().out.startswith("argocd/web: synced-and-healthy")
    argo_cd.faults.append(refused)
    with pytest.raises(SourceAccessError):
        waited(argo_cd, "*/web")


WRONG = [
    (("a/b/c",), NEW, "not a valid Application name"),
    (("../x",), NEW, "not a valid Application name"),
    (("web",), "main", "is not a commit ID"),
    (("web",), "", "is not a commit ID"),
    (("web",), "abc", "is not a commit ID"),
]


@pytest.mark.parametrize(("names", "revision", "message"), WRONG)
def test_invalid_names_and_revisions_cause_usage_errors(
    names: tuple[str, ...], revision: str, message: str
) -> None:
    def api() -> ArgoCDApi:
        raise TaskError("nothing is asked")

    with pytest.raises(UsageError, match=message):
        wait_for(WaitOptions(names, revision), "argocd", api, {}, Log(stream=StringIO()))


NAMES = [("web", ("argocd", "web")), ("team/web", ("team", "web")), (" web ", ("argocd", "web"))]


@pytest.mark.parametrize(("text", "key"), NAMES)
def test_names_are_parsed_into_namespace_and_name(text: str, key: tuple[str, str]) -> None:
    assert key_of(text, "argocd") == key


def test_an_abbreviated_revision_matches_only_its_full_commit_id() -> None:
    assert accepts(NEW, NEW)
    assert accepts(NEW[:7], NEW)
    assert not accepts(NEW, NEW[:7])
    assert not accepts(NEW, OLD)
    assert not accepts(NEW[:7], "")


def test_the_error_names_only_the_failed_applications() -> None:
    good = RolloutState("argocd/a", "synced-and-healthy", "synced and healthy")
    bad = RolloutState(
        "argocd/b", "needs-sync", "auto-sync is off: someone must sync it", "argocd app sync"
    )
    assert rollout_error([good]) is None
    error = rollout_error([good, bad])
    assert error is not None
    assert (error.message, error.hint) == (
        "1 of 2 Applications did not roll out: argocd/b",
        "argocd app sync",
    )
    alone = rollout_error([bad])
    assert alone is not None
    assert alone.message == "argocd/b: auto-sync is off: someone must sync it"
