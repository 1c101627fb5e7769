"""Whole plays against Argo CD's API: when the wait ends, how, and what is shown meanwhile."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from fakes.argocd_api import ArgoCDServer, Fault, argocd_server
from fakes.argocd_states import NEW, OLD, application, applied, at, operated, resource
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

APP = application()
MANUAL = application(syncPolicy={})
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
    """Time that passes only while it is slept, and a little with each look at it."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        self.time += 0.001
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


@pytest.fixture
def server() -> Iterator[ArgoCDServer]:
    with argocd_server() as one:
        yield one


def api_of(server: ArgoCDServer) -> ArgoCDApi:
    connection = Connection(server.address, Secret("good-token"), plaintext=True)
    return ArgoCDApi(connection, {}, limits=Limits(tries=1, silence=5))


def cluster_of(cluster: KubernetesApi) -> ClusterApplications:
    config = Kubeconfig("test", Server(cluster.url), User(token=Secret("admin-token")))
    return ClusterApplications(Kubernetes(ClusterAccess(config, {}), Limits(tries=1)))


@pytest.fixture
def cluster() -> Iterator[KubernetesApi]:
    with running() as api:
        yield api


def rollouts(
    server: ArgoCDServer | ClusterApplications,
    *names: str,
    pace: Pace = Pace(),
    log: Any = None,
    judge: Judge = JUDGE,
) -> Rollouts:
    clock = Clock()
    awaited = [Awaited("argocd", name, judge) for name in names or ("web",)]
    return Rollouts(
        api_of(server) if isinstance(server, ArgoCDServer) else server,
        awaited,
        pace,
        log=log or (lambda *_: None),
        now=clock.now,
        sleep=clock.sleep,
        jitter=lambda: 0.5,
    )


def ends(waiting: Rollouts) -> list[tuple[str, str]]:
    """The states and reasons that were shown, one after the other, of a single Application."""
    return [(row.state, row.because) for sight in waiting.sights() for row in sight.changed]


def test_a_rollout_is_followed_to_its_end(server: ArgoCDServer) -> None:
    server.add(*ROLLOUT, GOOD)
    waiting = rollouts(server)
    states = [state for state, _ in ends(waiting)]
    assert states[0] == "progressing"
    assert states[-1] == "synced-and-healthy"
    assert set(states[:-1]) == {"progressing"}
    assert waiting.errors == {}
    assert len([one for one in server.asked("GET", "/web") if "refresh" in one.query]) >= 1


def test_a_rollout_may_take_longer_than_ten_minutes(server: ArgoCDServer) -> None:
    """Nothing but `--wait-timeout` ends a wait: the hosts' manifests hold no limit of their own."""
    server.add(*ROLLOUT[:5], *[RUNS] * 80, *ROLLOUT[5:], GOOD)
    *_, last = rollouts(server, pace=Pace(limit=3600, longest=60)).sights()
    assert [row.state for row in last.rows] == ["synced-and-healthy"]
    assert last.seconds > 600


@pytest.mark.parametrize("length", range(1, len(ROLLOUT) + 1))
def test_no_moment_before_the_end_is_taken_for_it(server: ArgoCDServer, length: int) -> None:
    server.add(*ROLLOUT[:length])
    waiting = rollouts(server, pace=Pace(limit=25))
    assert ends(waiting)[-1][0] == "timed-out"


CREATED = "2026-11-21T06:00:12Z"  # since the sync began
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
    ("manifests cannot be made",
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
def test_a_rollout_that_ends_badly(
    server: ArgoCDServer, play: Sequence[Mapping[str, Any]], state: str, because: str
) -> None:
    server.add(*play)
    waiting = rollouts(server)
    last = ends(waiting)[-1]
    assert last[0] == state
    assert because in last[1]
    assert waiting.rows[0].hint


def test_what_is_degraded_for_a_moment_is_no_failure(server: ArgoCDServer) -> None:
    server.add(*ROLLOUT, at(APP, "Synced", "Degraded", compared=14, operation=DONE), STARTS, GOOD)
    seen = ends(rollouts(server))
    assert seen[-1][0] == "synced-and-healthy"
    assert any("degraded" in because for _, because in seen)


def test_an_image_that_cannot_be_pulled_is_found_in_the_tree(server: ArgoCDServer) -> None:
    starts = [
        at(APP, "Synced", "Progressing", compared=second, operation=DONE)
        for second in range(14, 50)
    ]
    server.add(*ROLLOUT, *starts)
    server.trees["argocd", "web"] = {
        "nodes": [resource("Pod", "web-1", "Degraded", IMAGE, createdAt=CREATED)]
    }
    last = ends(rollouts(server))[-1]
    assert last == ("failed", f"the image cannot be pulled: Pod web-1: {IMAGE}")
    assert len(server.asked("GET", "/resource-tree")) < len(server.asked("GET", "/web"))


@pytest.mark.parametrize("seen", [True, False])
def test_how_a_container_ended_is_read_from_its_pod(server: ArgoCDServer, seen: bool) -> None:
    server.add(
        *ROLLOUT,
        *(
            at(APP, "Synced", "Progressing", compared=second, operation=DONE)
            for second in range(14, 50)
        ),
    )
    back_off = "back-off 40s restarting failed container=web"
    server.trees["argocd", "web"] = {
        "nodes": [
            resource("Pod", "web-1", "Degraded", back_off, createdAt=CREATED, namespace="web")
        ]
    }
    waits = {"waiting": {"reason": "CrashLoopBackOff", "message": back_off}}
    ended = {"terminated": {"exitCode": 3, "reason": "Error", "message": "no such table"}}
    status = {
        "containerStatuses": [{"name": "web", "ready": False, "state": waits, "lastState": ended}]
    }
    server.pods |= {"web-1": {"status": status}} if seen else {}
    state, because = ends(rollouts(server, pace=Pace(limit=30)))[-1]
    told = "; container web ended with exit code 3: no such table" if seen else ""
    assert (state, because) == ("timed-out", f"synced, progressing: Pod web-1: {back_off}{told}")
    assert server.wrong == []


def test_a_sync_window_is_found(server: ArgoCDServer) -> None:
    server.add(OLD_STATE, SEEN)
    server.windows["argocd", "web"] = {
        "activeWindows": [{"kind": "deny"}],
        "assignedWindows": [{"kind": "deny"}],
    }
    state, because = ends(rollouts(server))[-1]
    assert (state, "sync window" in because) == ("needs-sync", True)


OWNED = {
    "ownerReferences": [
        {"kind": "ApplicationSet", "name": "gen", "apiVersion": "argoproj.io/v1alpha1", "uid": "5"}
    ]
}
CHILD = {**MANUAL, "metadata": {**MANUAL["metadata"], **OWNED}}
STEPS = [{"application": "web", "step": "2", "status": "Waiting", "message": "it is not its turn"}]


@pytest.mark.parametrize("kind", ["argocd", "cluster"])
def test_an_application_of_a_rolling_sync_waits_for_its_step(
    server: ArgoCDServer, cluster: KubernetesApi, kind: str
) -> None:
    states = [
        at(CHILD, "Synced", "Healthy", revision=OLD, compared=3),
        at(CHILD, "OutOfSync", "Healthy"),
    ]
    owner = {"spec": {"strategy": {"type": "RollingSync"}}, "status": {"applicationStatus": STEPS}}
    if kind == "argocd":
        server.add(
            *states, *[states[1]] * 5, at(CHILD, "Synced", "Healthy", compared=13, operation=DONE)
        )
        server.others["applicationsets", "argocd", "gen"] = owner
        seen = ends(rollouts(server))
        assert seen[-1][0] == "synced-and-healthy"
    else:
        seconds = itertools.chain(range(10, 59), itertools.repeat(59))
        cluster.before = lambda _asked: cluster.add(
            APPLICATIONS, at(CHILD, "OutOfSync", "Healthy", compared=next(seconds))
        )
        cluster.add(APPLICATION_SETS, {"metadata": {"name": "gen"}, **owner})
        seen = ends(rollouts(cluster_of(cluster), pace=Pace(limit=30)))
        assert seen[-1][0] == "timed-out"
    waits = "it waits for its step in the RollingSync of ApplicationSet gen: step 2, status Waiting, it is not its turn"
    assert any(because == waits for _, because in seen)


def test_without_the_right_to_read_the_set_the_right_is_named(server: ArgoCDServer) -> None:
    server.add(*(at(CHILD, "OutOfSync", "Healthy", compared=second) for second in range(10, 40)))
    waiting = rollouts(server)
    assert ends(waiting)[-1] == ("needs-sync", "auto-sync is off: someone must sync it")
    assert "let the step get applicationsets.argoproj.io" in waiting.rows[0].hint


def test_nothing_to_apply_is_a_success_after_a_second_look(server: ArgoCDServer) -> None:
    server.add(
        OLD_STATE,
        *(
            at(APP, "Synced", "Healthy", operation=BEFORE, compared=second)
            for second in (10, 10, 14)
        ),
    )
    seen = ends(rollouts(server))
    assert [state for state, _ in seen] == ["progressing", "synced-and-healthy"]


def test_nothing_to_apply_that_turns_out_otherwise_is_none(server: ArgoCDServer) -> None:
    looks_good = at(APP, "Synced", "Healthy", operation=BEFORE)
    server.add(OLD_STATE, looks_good, looks_good, SEEN)
    assert ends(rollouts(server, pace=Pace(limit=25)))[-1][0] == "timed-out"


def test_a_comparison_of_the_same_second_is_asked_for_again(server: ArgoCDServer) -> None:
    server.add(OLD_STATE, *[SAME_SECOND] * 6, LATER)
    assert ends(rollouts(server))[-1][0] == "synced-and-healthy"
    assert len([one for one in server.asked("GET", "/web") if "refresh" in one.query]) > 1


def test_the_time_out_says_who_was_not_ready_and_why(server: ArgoCDServer) -> None:
    server.add(OLD_STATE, RUNS)
    waiting = rollouts(server, pace=Pace(limit=30))
    assert ends(waiting)[-1][0] == "timed-out"
    assert "the sync is running" in waiting.rows[0].because
    assert waiting.rows[0].seconds >= 30


def test_what_is_suspected_at_the_time_out_is_said(server: ArgoCDServer) -> None:
    server.add(
        OLD_STATE, at(APP, "Synced", "Degraded", compared=14, operation=DONE, resources=SICK)
    )
    state, because = ends(rollouts(server, pace=Pace(limit=10)))[-1]
    assert (state, "progress deadline" in because) == ("failed", True)


def test_the_time_out_remembers_why_a_pod_crashed(server: ArgoCDServer) -> None:
    """A container that crashes again and again runs in between, and the last look may see just that."""
    server.add(
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
    server.trees["argocd", "web"] = {"nodes": [crashes, older]}
    waiting = rollouts(server, pace=Pace(limit=60))
    for sight in waiting.sights():
        if "back-off" in sight.rows[0].because:
            server.trees["argocd", "web"] = {
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
def test_several_commits_of_one_application(parts: Sequence[Rollout], expected: Rollout) -> None:
    judges: list[Judge] = [lambda *_, part=part: part for part in parts]
    assert all_of(judges)({}, "", {}) == expected


def test_a_paused_canary_ends_the_wait(server: ArgoCDServer) -> None:
    server.add(*ROLLOUT, at(APP, "Synced", "Suspended", compared=13, operation=DONE))
    waiting = rollouts(server)
    assert ends(waiting)[-1] == ("paused", "paused, and not healthy yet")
    assert rollout_error(waiting.rows, waiting.errors) is None


FAULTS = [
    Fault(503),
    Fault(0),
    Fault(429),
    Fault(502, "<html>"),
    Fault(500, '{"code":13,"message":"redis"}'),
]


def test_faults_of_the_server_are_waited_out(server: ArgoCDServer) -> None:
    server.add(*ROLLOUT, GOOD)
    server.faults += [fault for fault in FAULTS for _ in range(2)]
    waiting = rollouts(server)
    seen = ends(waiting)
    assert seen[0][0] == "waiting"
    assert "no answer just now" in seen[0][1]
    assert seen[-1][0] == "synced-and-healthy"
    assert waiting.errors == {}


def test_a_server_that_stays_down_is_told(server: ArgoCDServer) -> None:
    server.add(OLD_STATE)
    server.faults += [Fault(503)] * 500
    waiting = rollouts(server, pace=Pace(limit=20))
    assert ends(waiting)[-1][0] == "timed-out"
    assert isinstance(waiting.errors["argocd/web"], SourceDownError)


class Dripping:
    """An Argo CD that sends a byte now and then: each answer takes 25 seconds."""

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
def test_an_argo_cd_that_drips_ends_with_the_time_out(limit: float) -> None:
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


def test_a_token_that_expires_ends_the_wait(server: ArgoCDServer) -> None:
    server.add(OLD_STATE, RUNS)
    waiting = rollouts(server)
    for number, _ in enumerate(waiting.sights()):
        if number == 1:
            server.tokens = {"another-token"}
    assert isinstance(waiting.errors["argocd/web"], SourceAccessError)
    assert waiting.rows[0].state == "failed"


def test_a_refresh_that_is_not_allowed_is_a_warning(server: ArgoCDServer) -> None:
    class NoRefresh(ArgoCDApi):
        def refresh_application(self, namespace: str, name: str) -> None:
            raise SourceAccessError(f"may not patch {namespace}/{name}", hint="")

    server.add(*ROLLOUT, GOOD)
    told: list[tuple[str, str]] = []
    waiting = rollouts(server, log=lambda *what: told.append(what))
    waiting._api = NoRefresh(Connection(server.address, Secret("good-token"), plaintext=True), {})
    assert ends(waiting)[-1][0] == "synced-and-healthy"
    assert [level for level, _ in told] == ["warning"]


def named(name: str, *states: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{**one, "metadata": {**one["metadata"], "name": name}} for one in states]


def test_each_of_several_applications_is_told(server: ArgoCDServer) -> None:
    server.add(*named("good", *ROLLOUT, GOOD))
    server.add(*named("bad", OLD_STATE, at(APP, "OutOfSync", "Healthy", operation=FAILED)))
    server.add(*named("slow", OLD_STATE, RUNS))
    waiting = rollouts(server, "good", "bad", "slow", pace=Pace(limit=25))
    shown = list(waiting.sights())
    assert [row.state for row in waiting.rows] == ["synced-and-healthy", "failed", "timed-out"]
    assert len(shown[0].rows) == 3


def test_a_refresh_concerns_exactly_these_applications(server: ArgoCDServer) -> None:
    for name in ("a", "b", "c"):
        server.add(*named(name, OLD_STATE))
    told: list[tuple[str, str]] = []
    keys = [("argocd", "a"), ("argocd", "c"), ("argocd", "a"), ("argocd", "gone")]
    refresh(api_of(server), keys, lambda *what: told.append(what))
    asked = sorted(one.path.rpartition("/")[2] for one in server.seen)
    assert asked == ["a", "c", "gone"]
    assert len(told) == 1
    assert "argocd/gone" in told[0][1]


def deleted(server: ArgoCDServer) -> None:
    del server.plays["argocd", "web"]


def moved(server: ArgoCDServer) -> None:
    (state,) = server.plays["argocd", "web"]
    state["spec"]["project"] = "another"


@pytest.mark.parametrize(
    ("change", "state", "because"),
    [
        (deleted, "failed", "it was deleted while it was waited for"),
        (moved, "timed-out", "the sync is running"),
    ],
)
def test_one_that_goes_away_meanwhile(
    server: ArgoCDServer, change: Callable[[ArgoCDServer], None], state: str, because: str
) -> None:
    server.add(OLD_STATE, RUNS)
    waiting = rollouts(server, pace=Pace(limit=30))
    for number, _ in enumerate(waiting.sights()):
        if number == 1:
            change(server)
    assert (waiting.rows[0].state, waiting.errors) == (state, {})
    assert because in waiting.rows[0].because


def test_one_that_goes_away_meanwhile_in_a_cluster(cluster: KubernetesApi) -> None:
    cluster.add(APPLICATIONS, RUNS)
    api = cluster_of(cluster)
    waiting = rollouts(api)
    for number, _ in enumerate(waiting.sights()):
        if number == 1:
            del cluster.objects[APPLICATIONS]["argocd", "web"]
    assert (waiting.rows[0].state, waiting.errors) == ("failed", {})
    assert "it was deleted while it was waited for" in waiting.rows[0].because


def test_one_that_was_never_there_is_an_error(server: ArgoCDServer) -> None:
    waiting = rollouts(server)
    assert ends(waiting)[-1][0] == "failed"
    assert isinstance(waiting.errors["argocd/web"], SourceAccessError)


def test_a_time_out_while_a_sync_is_tried_again_names_the_hook(server: ArgoCDServer) -> None:
    trying = {
        **operated(
            "Running", message="tasks failed. Retrying attempt #2 at 6:19AM.", resources=[HOOK]
        )
    }
    trying |= {"retryCount": 2, "operation": {**trying["operation"], "retry": {"limit": 5}}}
    server.add(OLD_STATE, at(APP, "OutOfSync", "Healthy", operation=trying, pending=True))
    waiting = rollouts(server, pace=Pace(limit=30))
    assert ends(waiting)[-1][0] == "timed-out"
    assert "is tried again (2 of 5): tasks failed" in waiting.rows[0].because
    assert "PreSync hook Job migrate: backoff limit" in waiting.rows[0].because
    assert "--wait-timeout" in waiting.rows[0].hint


def test_another_version_must_run_alone_for_a_minute(server: ArgoCDServer) -> None:
    """An operator may be replacing the pods of a resource whose health Argo CD does not know."""
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
        server.add(OLD_STATE, *play)
        wait = rollouts(server, judge=runs)
        seconds = [sight.seconds for sight in wait.sights()][-1]
        return wait.rows[0], seconds

    row, seconds = ended(*states(range(14, 50), "1.0.0"))
    assert (row.state, row.because) == (
        "failed",
        "synced and healthy, but ghcr.io/acme/web runs as 1.0.0 only, not as 1.1.0: look at the key",
    )
    assert seconds >= 60
    row, _ = ended(*states(range(14, 20), "1.0.0"), *states(range(20, 22), "1.1.0"))
    assert (row.state, row.warning) == ("synced-and-healthy", "")
