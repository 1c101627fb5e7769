"""Complete rollouts against Argo CD's API: how the wait ends, and what is displayed meanwhile."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from fakes.argocd_api import ArgoCDServer, Fault
from fakes.argocd_states import NEW, OLD, applied, at, live_application, operated, resource
from fakes.kubernetes_api import APPLICATION_SETS, APPLICATIONS, KubernetesApi, running

from task.after.expecting import Expected, expecting
from task.after.waiting import all_of, judge_of, rollout_error
from task.argocd.api import ArgoCDApi
from task.argocd.application_store import ClusterApplications
from task.argocd.connection import Connection
from task.argocd.rollout import Rollout
from task.argocd.rollouts import Awaited, Judge, Pace, Rollouts, RolloutState, refresh
from task.errors import SourceAccessError, SourceDownError
from task.http import Limits
from task.image import parse_image
from task.kubernetes.access import ClusterAccess
from task.kubernetes.client import Kubernetes
from task.kubernetes.kubeconfig import Kubeconfig, Server, User
from task.secret import Secret

APP = live_application()
MANUAL = live_application(syncPolicy={})
BEFORE = operated(revision=OLD, started=1, finished=2)
DONE = operated()
OLD_STATE = at(APP, "Synced", "Healthy", revision=OLD, compared=3, operation=BEFORE)
SEEN = at(APP, "OutOfSync", "Healthy", operation=BEFORE)
ASKED = at(APP, "OutOfSync", "Healthy", operation=BEFORE, pending=True)
RUNS = at(APP, "OutOfSync", "Healthy", operation=operated("Running", finished=None), pending=True)
ENDED = at(APP, "OutOfSync", "Healthy", operation=DONE)
SAME_SECOND = at(APP, "Synced", "Healthy", compared=12, operation=DONE)
STARTS = at(APP, "Synced", "Progressing", compared=13, operation=DONE)
GOOD = at(APP, "Synced", "Healthy", compared=13, operation=DONE)
LATER = at(APP, "Synced", "Healthy", compared=20, operation=DONE)
JUDGE = judge_of(lambda revision: revision == NEW)
ROLLOUT = [OLD_STATE, OLD_STATE, SEEN, ASKED, RUNS, ENDED, SAME_SECOND, STARTS]


class Clock:
    """A clock that advances during a sleep, and a little each time it is read."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        self.time += 0.001
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


def api_of(argo_cd: ArgoCDServer) -> ArgoCDApi:
    connection = Connection(argo_cd.address, Secret("good-token"), plaintext=True)
    return ArgoCDApi(connection, {}, limits=Limits(tries=1, silence=5))


def cluster_of(cluster: KubernetesApi) -> ClusterApplications:
    config = Kubeconfig("test", Server(cluster.url), User(token=Secret("admin-token")))
    return ClusterApplications(Kubernetes(ClusterAccess(config, {}), Limits(tries=1)))


@pytest.fixture
def cluster() -> Iterator[KubernetesApi]:
    with running() as api:
        yield api


def rollouts(
    argo_cd: ArgoCDServer | ClusterApplications,
    *names: str,
    pace: Pace = Pace(),
    log: Any = None,
    judge: Judge = JUDGE,
) -> Rollouts:
    clock = Clock()
    awaited = [Awaited("argocd", name, judge) for name in names or ("web",)]
    return Rollouts(
        api_of(argo_cd) if isinstance(argo_cd, ArgoCDServer) else argo_cd,
        awaited,
        pace,
        log=log or (lambda *_: None),
        now=clock.now,
        sleep=clock.sleep,
        jitter=lambda: 0.5,
    )


def ends(waiting: Rollouts) -> list[tuple[str, str]]:
    """Return the successive states and reasons displayed for a single Application."""
    return [(row.state, row.because) for sight in waiting.sights() for row in sight.changed]


def test_a_rollout_is_followed_until_it_ends(argo_cd: ArgoCDServer) -> None:
    argo_cd.add(*ROLLOUT, GOOD)
    waiting = rollouts(argo_cd)
    states = [state for state, _ in ends(waiting)]
    assert states[0] == "progressing"
    assert states[-1] == "synced-and-healthy"
    assert set(states[:-1]) == {"progressing"}
    assert waiting.errors == {}
    assert len([one for one in argo_cd.asked("GET", "/web") if "refresh" in one.query]) >= 1


def test_a_rollout_may_take_longer_than_ten_minutes(argo_cd: ArgoCDServer) -> None:
    """Only `--wait-timeout` limits the wait. The manifests for CI hosts set no time limit."""
    argo_cd.add(*ROLLOUT[:5], *[RUNS] * 80, *ROLLOUT[5:], GOOD)
    *_, last = rollouts(argo_cd, pace=Pace(limit=3600, longest=60)).sights()
    assert [row.state for row in last.rows] == ["synced-and-healthy"]
    assert last.seconds > 600


@pytest.mark.parametrize("length", range(1, len(ROLLOUT) + 1))
def test_a_rollout_is_never_reported_as_finished_too_early(
    argo_cd: ArgoCDServer, length: int
) -> None:
    argo_cd.add(*ROLLOUT[:length])
    waiting = rollouts(argo_cd, pace=Pace(limit=25))
    assert ends(waiting)[-1][0] == "timed-out"


CREATED = "2026-11-21T06:00:12Z"  # after the sync began
IMAGE = 'Back-off pulling image "ghcr.io/acme/web:1.2.4"'
HOOK = applied("Job", "migrate", "backoff limit", hookType="PreSync", hookPhase="Failed")
FAILED = operated("Failed", message="tasks failed", resources=[HOOK])
SICK = [resource("Deployment", "web", "Degraded", "exceeded its progress deadline")]
NO_CHART = [{"type": "ComparisonError", "message": "helm template failed"}]
PLAYS = [
    ("a hook fails", [*ROLLOUT[:5], at(APP, "OutOfSync", "Healthy", operation=FAILED)], "failed", "backoff limit"),
    ("degraded",
     [*ROLLOUT, *(at(APP, "Synced", "Degraded", compared=second, operation=DONE, resources=SICK)
                  for second in range(14, 40))], "failed", "progress deadline"),
    ("manifests cannot be generated",
     [OLD_STATE, *(at(APP, "Unknown", "Healthy", revision="", compared=second, conditions=NO_CHART)
                   for second in range(14, 40))], "failed", "helm template failed"),
    ("the spec is refused",
     [OLD_STATE, at(APP, "Unknown", "Unknown", compared=3, conditions=[
         {"type": "InvalidSpecError", "message": "no such project"}])], "failed", "no such project"),
    ("auto-sync is off", [at(MANUAL, "Synced", "Healthy", revision=OLD, compared=3),
                          at(MANUAL, "OutOfSync", "Healthy")], "needs-sync", "someone must sync it"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("play", "state", "because"), [row[1:] for row in PLAYS], ids=[row[0] for row in PLAYS]
)
def test_failed_rollouts_are_reported_with_their_cause_and_a_hint(
    argo_cd: ArgoCDServer, play: Sequence[Mapping[str, Any]], state: str, because: str
) -> None:
    argo_cd.add(*play)
    waiting = rollouts(argo_cd)
    last = ends(waiting)[-1]
    assert last[0] == state
    assert because in last[1]
    assert waiting.rows[0].hint


def test_a_briefly_degraded_application_is_not_a_failure(argo_cd: ArgoCDServer) -> None:
    argo_cd.add(*ROLLOUT, at(APP, "Synced", "Degraded", compared=14, operation=DONE), STARTS, GOOD)
    seen = ends(rollouts(argo_cd))
    assert seen[-1][0] == "synced-and-healthy"
    assert any("degraded" in because for _, because in seen)


def test_an_image_that_cannot_be_pulled_is_found_in_the_tree(argo_cd: ArgoCDServer) -> None:
    starts = [
        at(APP, "Synced", "Progressing", compared=second, operation=DONE)
        for second in range(14, 50)
    ]
    argo_cd.add(*ROLLOUT, *starts)
    argo_cd.trees["argocd", "web"] = {
        "nodes": [resource("Pod", "web-1", "Degraded", IMAGE, createdAt=CREATED)]
    }
    last = ends(rollouts(argo_cd))[-1]
    assert last == ("failed", f"the image cannot be pulled: Pod web-1: {IMAGE}")
    assert len(argo_cd.asked("GET", "/resource-tree")) < len(argo_cd.asked("GET", "/web"))


@pytest.mark.parametrize("seen", [True, False])
def test_a_containers_exit_code_is_read_from_its_pod(argo_cd: ArgoCDServer, seen: bool) -> None:
    argo_cd.add(
        *ROLLOUT,
        *(
            at(APP, "Synced", "Progressing", compared=second, operation=DONE)
            for second in range(14, 50)
        ),
    )
    back_off = "back-off 40s restarting failed container=web"
    argo_cd.trees["argocd", "web"] = {
        "nodes": [
            resource("Pod", "web-1", "Degraded", back_off, createdAt=CREATED, namespace="web")
        ]
    }
    waits = {"waiting": {"reason": "CrashLoopBackOff", "message": back_off}}
    ended = {"terminated": {"exitCode": 3, "reason": "Error", "message": "no such table"}}
    status = {
        "containerStatuses": [{"name": "web", "ready": False, "state": waits, "lastState": ended}]
    }
    argo_cd.pods |= {"web-1": {"status": status}} if seen else {}
    state, because = ends(rollouts(argo_cd, pace=Pace(limit=30)))[-1]
    told = "; container web exited with code 3: no such table" if seen else ""
    assert (state, because) == ("timed-out", f"synced, progressing: Pod web-1: {back_off}{told}")
    assert argo_cd.wrong == []


def test_a_sync_window_ends_the_wait(argo_cd: ArgoCDServer) -> None:
    argo_cd.add(OLD_STATE, SEEN)
    argo_cd.windows["argocd", "web"] = {
        "activeWindows": [{"kind": "deny"}],
        "assignedWindows": [{"kind": "deny"}],
    }
    state, because = ends(rollouts(argo_cd))[-1]
    assert (state, "sync window" in because) == ("needs-sync", True)


OWNED = {
    "ownerReferences": [
        {"kind": "ApplicationSet", "name": "gen", "apiVersion": "argoproj.io/v1alpha1", "uid": "5"}
    ]
}
CHILD = {**MANUAL, "metadata": {**MANUAL["metadata"], **OWNED}}
STEPS = [{"application": "web", "step": "2", "status": "Waiting", "message": "it is not its turn"}]


@pytest.mark.parametrize("kind", ["argocd", "cluster"])
def test_an_application_in_a_rolling_sync_waits_for_its_step(
    argo_cd: ArgoCDServer, cluster: KubernetesApi, kind: str
) -> None:
    states = [
        at(CHILD, "Synced", "Healthy", revision=OLD, compared=3),
        at(CHILD, "OutOfSync", "Healthy"),
    ]
    owner = {"spec": {"strategy": {"type": "RollingSync"}}, "status": {"applicationStatus": STEPS}}
    if kind == "argocd":
        argo_cd.add(
            *states, *[states[1]] * 5, at(CHILD, "Synced", "Healthy", compared=13, operation=DONE)
        )
        argo_cd.others["applicationsets", "argocd", "gen"] = owner
        seen = ends(rollouts(argo_cd))
        assert seen[-1][0] == "synced-and-healthy"
    else:
        seconds = itertools.chain(range(10, 59), itertools.repeat(59))
        cluster.before = lambda _asked: cluster.add(
            APPLICATIONS, at(CHILD, "OutOfSync", "Healthy", compared=next(seconds))
        )
        cluster.add(APPLICATION_SETS, {"metadata": {"name": "gen"}, **owner})
        seen = ends(rollouts(cluster_of(cluster), pace=Pace(limit=30)))
        assert seen[-1][0] == "timed-out"
    waits = "it is waiting for its step in the RollingSync of ApplicationSet gen: step 2, status Waiting, it is not its turn"
    assert any(because == waits for _, because in seen)


def test_a_missing_permission_to_read_the_application_set_is_reported(
    argo_cd: ArgoCDServer,
) -> None:
    argo_cd.add(*(at(CHILD, "OutOfSync", "Healthy", compared=second) for second in range(10, 40)))
    waiting = rollouts(argo_cd)
    assert ends(waiting)[-1] == ("needs-sync", "auto-sync is off: someone must sync it")
    assert "allow the step to get applicationsets.argoproj.io" in waiting.rows[0].hint


def test_a_sync_with_nothing_to_apply_succeeds_after_a_second_check(
    argo_cd: ArgoCDServer,
) -> None:
    argo_cd.add(
        OLD_STATE,
        *(
            at(APP, "Synced", "Healthy", operation=BEFORE, compared=second)
            for second in (10, 10, 14)
        ),
    )
    seen = ends(rollouts(argo_cd))
    assert [state for state, _ in seen] == ["progressing", "synced-and-healthy"]


def test_a_difference_found_late_prevents_a_premature_success(argo_cd: ArgoCDServer) -> None:
    looks_good = at(APP, "Synced", "Healthy", operation=BEFORE)
    argo_cd.add(OLD_STATE, looks_good, looks_good, SEEN)
    assert ends(rollouts(argo_cd, pace=Pace(limit=25)))[-1][0] == "timed-out"


def test_a_comparison_in_the_same_second_as_the_sync_is_requested_again(
    argo_cd: ArgoCDServer,
) -> None:
    argo_cd.add(OLD_STATE, *[SAME_SECOND] * 6, LATER)
    assert ends(rollouts(argo_cd))[-1][0] == "synced-and-healthy"
    assert len([one for one in argo_cd.asked("GET", "/web") if "refresh" in one.query]) > 1


def test_the_timeout_names_the_unfinished_application_and_the_reason(argo_cd: ArgoCDServer) -> None:
    argo_cd.add(OLD_STATE, RUNS)
    waiting = rollouts(argo_cd, pace=Pace(limit=30))
    assert ends(waiting)[-1][0] == "timed-out"
    assert "the sync is running" in waiting.rows[0].because
    assert waiting.rows[0].seconds >= 30


def test_a_suspected_failure_is_reported_at_the_timeout(argo_cd: ArgoCDServer) -> None:
    argo_cd.add(
        OLD_STATE, at(APP, "Synced", "Degraded", compared=14, operation=DONE, resources=SICK)
    )
    state, because = ends(rollouts(argo_cd, pace=Pace(limit=10)))[-1]
    assert (state, "progress deadline" in because) == ("failed", True)


def test_the_timeout_reports_an_earlier_pod_crash(argo_cd: ArgoCDServer) -> None:
    """A container in a crash loop runs between crashes, so the last check may find it running."""
    argo_cd.add(
        OLD_STATE,
        *(
            at(APP, "Synced", "Progressing", compared=second, operation=DONE)
            for second in range(14, 50)
        ),
    )
    crashes = resource(
        "Pod", "web-1", "Degraded", "back-off 10s restarting failed container", createdAt=CREATED
    )
    older = resource("Pod", "web-0", "Degraded", "back-off 5m0s", createdAt="2026-11-21T05:00:00Z")
    argo_cd.trees["argocd", "web"] = {"nodes": [crashes, older]}
    waiting = rollouts(argo_cd, pace=Pace(limit=60))
    for sight in waiting.sights():
        if "back-off" in sight.rows[0].because:
            argo_cd.trees["argocd", "web"] = {
                "nodes": [{**crashes, "health": {"status": "Healthy"}}]
            }
    (row,) = waiting.rows
    because = "synced, progressing; earlier: Pod web-1: back-off 10s restarting failed container"
    assert (row.state, row.because) == ("timed-out", because)


SUCCESS, PAUSED = Rollout("synced-and-healthy", "1"), Rollout("paused", "2")
UNSURE, WAITS = Rollout("synced-and-healthy", "3", sure=False), Rollout("waiting", "4")


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([SUCCESS, SUCCESS], SUCCESS),
        ([SUCCESS, UNSURE], UNSURE),
        ([PAUSED, SUCCESS], PAUSED),
        ([PAUSED, UNSURE], UNSURE),
        ([PAUSED, WAITS, SUCCESS], WAITS),
    ],
)
def test_the_least_advanced_of_several_commits_determines_the_state(
    parts: Sequence[Rollout], expected: Rollout
) -> None:
    judges: list[Judge] = [lambda *_, part=part: part for part in parts]
    assert all_of(judges)({}, "", {}) == expected


def test_a_paused_canary_ends_the_wait(argo_cd: ArgoCDServer) -> None:
    argo_cd.add(*ROLLOUT, at(APP, "Synced", "Suspended", compared=13, operation=DONE))
    waiting = rollouts(argo_cd)
    assert ends(waiting)[-1] == ("paused", "paused, and not healthy yet")
    assert rollout_error(waiting.rows, waiting.errors) is None


FAULTS = [
    Fault(503),
    Fault(0),
    Fault(429),
    Fault(502, "<html>"),
    Fault(500, '{"code":13,"message":"redis"}'),
]


def test_temporary_server_faults_do_not_end_the_wait(argo_cd: ArgoCDServer) -> None:
    argo_cd.add(*ROLLOUT, GOOD)
    argo_cd.faults += [fault for fault in FAULTS for _ in range(2)]
    waiting = rollouts(argo_cd)
    seen = ends(waiting)
    assert seen[0][0] == "waiting"
    assert "no response at the moment" in seen[0][1]
    assert seen[-1][0] == "synced-and-healthy"
    assert waiting.errors == {}


def test_a_server_that_stays_down_is_reported(argo_cd: ArgoCDServer) -> None:
    argo_cd.add(OLD_STATE)
    argo_cd.faults += [Fault(503)] * 500
    waiting = rollouts(argo_cd, pace=Pace(limit=20))
    assert ends(waiting)[-1][0] == "timed-out"
    assert isinstance(waiting.errors["argocd/web"], SourceDownError)


class Dripping:
    """An Argo CD server that sends a byte now and then, so each response takes 25 seconds."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.asked = clock, 0

    def _answer(self) -> dict[str, Any]:
        self.clock.time += 25.0
        self.asked += 1
        return SEEN

    def get_application(self, namespace: str, name: str, project: str = "") -> dict[str, Any]:  # noqa: ARG002
        return self._answer()

    def refresh_application(self, namespace: str, name: str) -> None:  # noqa: ARG002
        self._answer()

    def resource_tree(self, namespace: str, name: str) -> dict[str, Any]:  # noqa: ARG002
        return self._answer()

    sync_windows = resource_tree


@pytest.mark.parametrize("limit", [10, 60, 200])
def test_a_slow_argo_cd_does_not_delay_the_timeout(limit: float) -> None:
    clock = Clock()
    waiting = Rollouts(
        Dripping(clock),  # type: ignore[arg-type]
        [Awaited("argocd", "web", JUDGE)],
        Pace(limit=limit),
        now=clock.now,
        sleep=clock.sleep,
        jitter=lambda: 0.5,
    )
    *_, last = waiting.sights()
    assert [row.state for row in last.rows] == ["timed-out"]
    assert last.seconds <= limit + 35


def test_a_token_that_expires_ends_the_wait(argo_cd: ArgoCDServer) -> None:
    argo_cd.add(OLD_STATE, RUNS)
    waiting = rollouts(argo_cd)
    for number, _ in enumerate(waiting.sights()):
        if number == 1:
            argo_cd.tokens = {"another-token"}
    assert isinstance(waiting.errors["argocd/web"], SourceAccessError)
    assert waiting.rows[0].state == "failed"


def test_a_forbidden_refresh_causes_a_warning(argo_cd: ArgoCDServer) -> None:
    class NoRefresh(ArgoCDApi):
        def refresh_application(self, namespace: str, name: str) -> None:
            raise SourceAccessError(f"may not patch {namespace}/{name}", hint="")

    argo_cd.add(*ROLLOUT, GOOD)
    told: list[tuple[str, str]] = []
    waiting = rollouts(argo_cd, log=lambda *what: told.append(what))
    waiting._api = NoRefresh(Connection(argo_cd.address, Secret("good-token"), plaintext=True), {})
    assert ends(waiting)[-1][0] == "synced-and-healthy"
    assert [level for level, _ in told] == ["warning"]


def named(name: str, *states: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{**one, "metadata": {**one["metadata"], "name": name}} for one in states]


def test_each_of_several_applications_is_reported(argo_cd: ArgoCDServer) -> None:
    argo_cd.add(*named("good", *ROLLOUT, GOOD))
    argo_cd.add(*named("bad", OLD_STATE, at(APP, "OutOfSync", "Healthy", operation=FAILED)))
    argo_cd.add(*named("slow", OLD_STATE, RUNS))
    waiting = rollouts(argo_cd, "good", "bad", "slow", pace=Pace(limit=25))
    shown = list(waiting.sights())
    assert [row.state for row in waiting.rows] == ["synced-and-healthy", "failed", "timed-out"]
    assert len(shown[0].rows) == 3


def test_only_the_given_applications_are_refreshed(argo_cd: ArgoCDServer) -> None:
    for name in ("a", "b", "c"):
        argo_cd.add(*named(name, OLD_STATE))
    told: list[tuple[str, str]] = []
    keys = [("argocd", "a"), ("argocd", "c"), ("argocd", "a"), ("argocd", "gone")]
    refresh(api_of(argo_cd), keys, lambda *what: told.append(what))
    asked = sorted(one.path.rpartition("/")[2] for one in argo_cd.seen)
    assert asked == ["a", "c", "gone"]
    assert len(told) == 1
    assert "argocd/gone" in told[0][1]


def deleted(argo_cd: ArgoCDServer) -> None:
    del argo_cd.plays["argocd", "web"]


def moved(argo_cd: ArgoCDServer) -> None:
    (state,) = argo_cd.plays["argocd", "web"]
    state["spec"]["project"] = "another"


@pytest.mark.parametrize(
    ("change", "state", "because"),
    [
        (deleted, "failed", "it was deleted during the wait"),
        (moved, "timed-out", "the sync is running"),
    ],
)
def test_an_application_deleted_during_the_wait_has_failed(
    argo_cd: ArgoCDServer, change: Callable[[ArgoCDServer], None], state: str, because: str
) -> None:
    argo_cd.add(OLD_STATE, RUNS)
    waiting = rollouts(argo_cd, pace=Pace(limit=30))
    for number, _ in enumerate(waiting.sights()):
        if number == 1:
            change(argo_cd)
    assert (waiting.rows[0].state, waiting.errors) == (state, {})
    assert because in waiting.rows[0].because


def test_a_cluster_lists_applications_in_all_namespaces(cluster: KubernetesApi) -> None:
    cluster.add(APPLICATIONS, RUNS, {"metadata": {"namespace": "team", "name": "web"}})
    assert sorted(cluster_of(cluster).keys()) == [("argocd", "web"), ("team", "web")]
    cluster.tokens = {"somebody-elses": "ci"}
    with pytest.raises(SourceAccessError):
        cluster_of(cluster).keys()


def test_an_application_deleted_from_a_cluster_during_the_wait_has_failed(
    cluster: KubernetesApi,
) -> None:
    cluster.add(APPLICATIONS, RUNS)
    api = cluster_of(cluster)
    waiting = rollouts(api)
    for number, _ in enumerate(waiting.sights()):
        if number == 1:
            del cluster.objects[APPLICATIONS]["argocd", "web"]
    assert (waiting.rows[0].state, waiting.errors) == ("failed", {})
    assert "it was deleted during the wait" in waiting.rows[0].because


def test_waiting_for_a_missing_application_is_an_error(argo_cd: ArgoCDServer) -> None:
    waiting = rollouts(argo_cd)
    assert ends(waiting)[-1][0] == "failed"
    assert isinstance(waiting.errors["argocd/web"], SourceAccessError)


def test_a_timeout_during_a_sync_retry_names_the_failed_hook(argo_cd: ArgoCDServer) -> None:
    trying = {
        **operated(
            "Running", message="tasks failed. Retrying attempt #2 at 6:19AM.", resources=[HOOK]
        )
    }
    trying |= {"retryCount": 2, "operation": {**trying["operation"], "retry": {"limit": 5}}}
    argo_cd.add(OLD_STATE, at(APP, "OutOfSync", "Healthy", operation=trying, pending=True))
    waiting = rollouts(argo_cd, pace=Pace(limit=30))
    assert ends(waiting)[-1][0] == "timed-out"
    assert "is being retried (2 of 5): tasks failed" in waiting.rows[0].because
    assert "PreSync hook Job migrate: backoff limit" in waiting.rows[0].because
    assert "--wait-timeout" in waiting.rows[0].hint


def test_a_wrong_version_counts_as_a_failure_only_after_a_minute(argo_cd: ArgoCDServer) -> None:
    """An operator may still be replacing pods of a resource whose health Argo CD cannot assess."""
    image = parse_image("ghcr.io/acme/web:1.1.0")

    def states(seconds: Sequence[int], tag: str) -> list[dict[str, Any]]:
        live = [f"ghcr.io/acme/web:{tag}"]
        return [
            at(APP, "Synced", "Healthy", compared=one, operation=DONE, images=live)
            for one in seconds
        ]

    def runs(item: Mapping[str, Any], *seen: Any) -> Rollout:
        return expecting(JUDGE(item, *seen), item, [Expected(image, "the key", revision=NEW)])

    def ended(*play: Mapping[str, Any]) -> tuple[RolloutState, float]:
        argo_cd.add(OLD_STATE, *play)
        wait = rollouts(argo_cd, judge=runs)
        seconds = [sight.seconds for sight in wait.sights()][-1]
        return wait.rows[0], seconds

    row, seconds = ended(*states(range(14, 50), "1.0.0"))
    assert (row.state, row.because) == (
        "failed",
        "synced and healthy, but ghcr.io/acme/web is running only as 1.0.0, not as 1.1.0: check the key",
    )
    assert seconds >= 60
    row, _ = ended(*states(range(14, 20), "1.0.0"), *states(range(20, 22), "1.1.0"))
    assert (row.state, row.warning) == ("synced-and-healthy", "")
