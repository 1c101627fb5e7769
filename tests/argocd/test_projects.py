"""What an AppProject forbids: syncs outside of its sync windows, and certain destinations."""

from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest
from fakes.argocd_states import NEW, OLD, at, live_application, operated

from task.argocd.application_store import ClusterApplications
from task.argocd.projects import blocks, hindrance_of, refuses_destination, sync_windows
from task.argocd.rollout import Wanted, judge
from task.errors import SourceDownError
from task.model import Destination
from task.output.log import Log
from task.settings import Settings
from task.wiring.argo import Argo

FRIDAY = "2026-11-20T20:00:00Z"
MONDAY = "2026-11-23T12:00:00Z"
HERE = "https://kubernetes.default.svc"
WEB = Destination(HERE, "", "web")
WEEKEND = {"kind": "deny", "schedule": "0 18 * * 5", "duration": "62h", "applications": ["*"]}
OFFICE = {"kind": "allow", "schedule": "0 8 * * 1-5", "duration": "9h", "namespaces": ["web"]}


def project(*windows: dict[str, Any], destinations: Any = ()) -> dict[str, Any]:
    return {
        "metadata": {"name": "shop"},
        "spec": {"syncWindows": list(windows), "destinations": list(destinations)},
    }


BERLIN = {**WEEKEND, "timeZone": "Europe/Berlin", "description": "no deployments at weekends"}
WINDOWS = [
    ("none", (), FRIDAY, ""),
    ("a deny window is open", (WEEKEND,), FRIDAY,
     "a deny window of AppProject shop (0 18 * * 5, 62h) prevents Argo CD from syncing until 2026-11-23 08:00 UTC"),
    ("in its own time zone, with its description", (BERLIN,), FRIDAY,
     "a deny window of AppProject shop (no deployments at weekends) prevents Argo CD from syncing until 2026-11-23 07:00"),
    ("it is over", (WEEKEND,), MONDAY, ""),
    ("an allow window is open", (OFFICE,), MONDAY, ""),
    ("an allow window is not open", (OFFICE,), FRIDAY,
     "an allow window of AppProject shop (0 8 * * 1-5, 9h) is not open before 2026-11-23 08:00 UTC, and"),
    ("a deny wins", (OFFICE, {**WEEKEND, "schedule": "0 10 * * *", "duration": "3h"}), MONDAY,
     "a deny window of AppProject shop (0 10 * * *, 3h) prevents Argo CD from syncing until 2026-11-23 13:00 UTC"),
    ("of another Application", ({**WEEKEND, "applications": ["api-*"]},), FRIDAY, ""),
    ("by cluster", ({**WEEKEND, "applications": [], "clusters": ["in-cluster"]},), FRIDAY, "a deny window"),
    ("any of its lists fits", ({**WEEKEND, "applications": ["api"], "namespaces": ["w*"]},), FRIDAY, "a deny"),
    ("all of its lists must fit",
     ({**WEEKEND, "applications": ["api"], "namespaces": ["w*"], "andOperator": True},), FRIDAY, ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("windows", "now", "because"), [row[1:] for row in WINDOWS], ids=[row[0] for row in WINDOWS]
)
def test_each_sync_window_blocks_at_the_right_times(
    windows: tuple[dict[str, Any], ...], now: str, because: str
) -> None:
    found = sync_windows(project(*windows), "web", WEB, now)
    assert found["because"].startswith(because)
    assert bool(found["because"]) == bool(because) == blocks(found)


@pytest.mark.parametrize(
    "wrong", [{"schedule": "@daily"}, {"duration": "1.5h"}, {"timeZone": "x y"}]
)
def test_an_invalid_sync_window_makes_all_windows_unknown(wrong: dict[str, str]) -> None:
    assert sync_windows(project(WEEKEND, {**WEEKEND, **wrong}), "web", WEB, FRIDAY) == {}


def test_an_unreadable_project_has_no_windows_and_forbids_nothing() -> None:
    assert sync_windows({}, "web", WEB, FRIDAY) == {}
    assert hindrance_of({}, "web", WEB, FRIDAY) == ("", "")


REMOTE, NAMED = Destination("https://eu.example", "", "web"), Destination("", "eu", "web")
DESTINATIONS = [
    ("anything", WEB, [{"server": "*", "namespace": "*"}], False),
    ("anything, for a cluster by name", NAMED, [{"server": "*", "namespace": "*"}], False),
    ("another namespace", WEB, [{"server": HERE, "namespace": "api"}], True),
    ("another cluster", WEB, [{"server": "https://eu.example", "namespace": "*"}], True),
    ("its own cluster by name", WEB, [{"name": "in-cluster", "namespace": "w*"}], False),
    ("none at all", WEB, [], True),
    ("excluded", WEB, [{"server": "*", "namespace": "*"}, {"server": "*", "namespace": "!web"}], True),
    ("another one is excluded", WEB,
     [{"server": "*", "namespace": "*"}, {"server": "*", "namespace": "!kube-system"}], False),
    ("the name of a cluster by URL is not known", REMOTE, [{"name": "eu", "namespace": "*"}], False),
    ("the URL of a cluster by name is not known", NAMED, [{"server": "https://eu.example", "namespace": "*"}], False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("to", "destinations", "expected"),
    [row[1:] for row in DESTINATIONS],
    ids=[row[0] for row in DESTINATIONS],
)
def test_destinations_that_a_project_does_not_permit_are_reported(
    to: Destination, destinations: list[Any], expected: bool
) -> None:
    assert refuses_destination(project(destinations=destinations), to) is expected
    message, hint = hindrance_of(project(destinations=destinations), "web", to, MONDAY)
    assert ("does not permit the destination" in message) is bool(hint) is expected


class Cluster:
    """A fake cluster with one Application and its AppProject."""

    def get(self, resource: Any, namespace: str, name: str) -> dict[str, Any] | None:
        objects = {
            "applications": ("web", live_application(project="shop")),
            "appprojects": ("shop", project(WEEKEND)),
        }
        known, item = objects[resource.plural]
        return item if (namespace, name) == ("argocd", known) else None


def test_a_sync_window_in_the_cluster_ends_the_wait_with_the_window_end_in_the_message() -> None:
    moment = datetime(2026, 11, 20, 20, tzinfo=UTC)
    api = ClusterApplications(Cluster(), "argocd", lambda: moment)  # type: ignore[arg-type]
    windows = api.sync_windows("argocd", "web")
    state = at(
        live_application(), "OutOfSync", "Healthy", operation=operated(revision=OLD, finished=2)
    )
    found = judge(state, Wanted(lambda revision: revision == NEW), {"windows": windows})
    assert (found.state, found.sure) == ("needs-sync", True)
    assert found.because.endswith("until 2026-11-23 08:00 UTC")


def test_no_further_projects_are_requested_after_a_timeout() -> None:
    """Each response would only add detail to a message, but could take a minute per project."""
    asked = []

    class Slow:
        def project(self, _namespace: str, name: str) -> dict[str, Any]:
            asked.append(name)
            raise SourceDownError("Argo CD took more than 30 seconds to respond")

    with ExitStack() as opened:
        argo = Argo(Settings(command="run"), {}, Log("error", "text"), opened)
        argo.quick = Slow  # type: ignore[assignment]
        assert [argo.project(name) for name in ("a", "b", "c")] == [{}, {}, {}]
    assert asked == ["a"]
