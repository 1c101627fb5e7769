"""The deployments that a run reports to the forge. Success is never assumed."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from support.fake_world import fake_world
from support.memory import SCOPE, WORDING
from support.reports import REPO, decision

from task.after.deployments import MOST, ShownDeployments, summary
from task.deciding.job import (
    DeployedSource,
    Followed,
    Job,
    LandedApplication,
    PullRequestOptions,
    RolloutEnd,
    Terms,
)
from task.errors import CredentialsError, ForgeError, RepositoryError, TaskError
from task.forges.deployment import CommitStatus, Deployment
from task.landing.ports import World
from task.model import Application, Problem, Tracker, Verdict

COMMIT = "c" * 40
SOURCE = DeployedSource("https://github.com/acme/web", COMMIT, "main", waits_for_rollouts=True)
RUN = "https://ci.example.com/runs/7"
JOB = Job("run", (), SCOPE, Terms(), WORDING, requests=PullRequestOptions(run=RUN), deployed=SOURCE)


class Forge:
    """A forge that records each (environment, state) in order, and the commit statuses."""

    def __init__(self, error: TaskError | None = None, *known: str) -> None:
        self.error, self.known = error, known  # environments with a deployment by an earlier run
        self.told: list[tuple[str, str]] = []
        self.statuses: list[CommitStatus] = []
        self.last: Deployment | None = None
        self.calls = 0

    def begin(self, deployment: Deployment) -> None:
        self.calls += 1
        if self.error:
            raise self.error
        self.last = deployment
        self.told.append((deployment.environment, deployment.state))

    def end(self, deployment: Deployment, *, begun: bool) -> bool:
        if begun or deployment.environment in self.known:
            self.begin(deployment)
            return True
        return False

    def sum_up(self, status: CommitStatus) -> None:
        self.statuses.append(status)


def world(forge: Forge) -> World:
    """Return a world that contains only the forge and Argo CD's pages."""
    never: Callable[..., Forge] = lambda *_: forge  # noqa: E731
    return fake_world(
        applications=list, locate=lambda _origin: None, repository=never,
        now=lambda: 0.0, sleep=lambda _seconds: None, jitter=lambda: 0.5, log=lambda _level, _text: None,
        deployments=lambda repo: never() if repo == SOURCE.repository else never(1 / 0),
        page=lambda app: f"https://argocd.example.com/applications/{app.key}",
    )  # fmt: skip


def landed(
    name: str = "web",
    verdict: str = "update",
    head: str = "main",
    request: str = "",
    space: str = "argocd",
) -> LandedApplication:
    one = decision(name=name, head=head)
    app = Application(space, name, {}, ())
    sub = replace(one.subscription, application=app)
    return LandedApplication(
        app,
        REPO,
        "a" * 40,
        (replace(one, subscription=sub, judged=Verdict(verdict, "r", "so")),),  # type: ignore[arg-type]
        request,
    )


def ended(name: str = "web", *, succeeded: bool = True) -> RolloutEnd:
    return RolloutEnd(f"argocd/{name}", "healthy" if succeeded else "failed", "the cause")


def play(
    forge: Forge,
    of: Sequence[LandedApplication],
    *ends: RolloutEnd,
    waits: bool = True,
    everyone: Sequence[Tracker] = (),
) -> tuple[Problem, ...]:
    """Report a run's deployments, and return the run's warnings."""
    source = replace(SOURCE, waits_for_rollouts=waits)
    shown = ShownDeployments(source, JOB, world(forge), everyone or [one.application for one in of])
    if waits:
        shown.begin(of)
    return shown.end(of, Followed(ends=ends))


ROWS: list[
    tuple[Sequence[LandedApplication], Sequence[RolloutEnd], list[tuple[str, str]], list[str]]
] = [
    ([landed()], [ended()], [("web", "in_progress"), ("web", "success")], ["pending", "success"]),
    (
        [landed()],
        [ended(succeeded=False)],
        [("web", "in_progress"), ("web", "failure")],
        ["pending", "failure"],
    ),
    # Argo CD could not be queried, so the outcome is unknown
    ([landed()], [], [("web", "in_progress")], ["pending", "pending"]),
    # the image was already in Git: no earlier run began a deployment, or one did
    ([landed(verdict="unchanged")], [ended()], [], []),
    ([landed("known", "unchanged")], [ended("known")], [("known", "success")], ["success"]),
    # a request that was not merged while the run was waiting, and one that was
    ([landed(head="h", request="7")], [], [], []),
    ([landed(head="h", request="7")], [ended()], [("web", "success")], ["success"]),
    ([landed(head="h", request="7")], [ended(succeeded=False)], [("web", "failure")], ["failure"]),
    # written to a branch that Argo CD does not follow
    ([landed(head="other")], [], [], []),
    (
        [landed("a"), landed("b")],
        [ended("a"), ended("b", succeeded=False)],
        [("a", "in_progress"), ("b", "in_progress"), ("a", "success"), ("b", "failure")],
        ["pending", "failure"],
    ),
    (
        [landed("a"), landed("b")],
        [ended("a")],
        [("a", "in_progress"), ("b", "in_progress"), ("a", "success")],
        ["pending"] * 2,
    ),
]


@pytest.mark.parametrize(("of", "ends", "told", "statuses"), ROWS)
def test_a_waiting_run_reports_each_deployment_from_start_to_finish(
    of: Sequence[LandedApplication],
    ends: Sequence[RolloutEnd],
    told: list[tuple[str, str]],
    statuses: list[str],
) -> None:
    forge = Forge(None, "known")
    assert play(forge, of, *ends) == ()
    assert forge.told == told
    assert [one.state for one in forge.statuses] == statuses


def test_a_run_that_does_not_wait_reports_no_success() -> None:
    forge = Forge()
    of = [
        landed("a"),
        landed("b", "unchanged"),
        landed("c", head="h", request="7"),
        landed("d", head="other"),
    ]
    assert play(forge, of, waits=False) == ()
    assert (forge.told, forge.statuses) == ([("a", "queued")], [])


def test_a_deployment_names_its_commit_state_page_and_run() -> None:
    forge = Forge()
    play(forge, [landed()], ended(succeeded=False))
    page = "https://argocd.example.com/applications/argocd/web"
    assert forge.last == Deployment(
        "web", COMMIT, "failure", "the cause", "main", page=page, run=RUN
    )
    assert forge.statuses[-1] == CommitStatus(
        COMMIT, "image-update/web", "failure", "1 failed", RUN
    )


def test_an_application_name_used_in_two_namespaces_is_shown_with_its_namespace() -> None:
    forge = Forge()
    other = landed(space="team").application
    play(
        forge,
        [landed(), landed("api")],
        waits=False,
        everyone=[landed().application, other, landed("api").application],
    )
    assert [name for name, _ in forge.told] == ["argocd/web", "api"]


@pytest.mark.parametrize(
    "error", [CredentialsError("no token", hint="give one"), RepositoryError("forbidden")]
)
def test_a_forge_that_rejects_deployments_is_contacted_only_twice(
    error: TaskError,
) -> None:
    forge = Forge(error)
    names = [f"app-{number}" for number in range(20)]
    problems = play(forge, [landed(name) for name in names], *map(ended, names))
    assert {(one.severity, one.message, one.exit) for one in problems} == {
        ("warning", error.message, 0)
    }
    assert forge.calls == 2  # at the start, and again after the wait


def test_a_deployment_rejected_for_one_application_is_still_reported_for_the_others() -> None:
    class Picky(Forge):
        def begin(self, deployment: Deployment) -> None:
            self.error = ForgeError("invalid name") if deployment.environment == "a" else None
            super().begin(deployment)

    forge = Picky()
    (problem,) = set(play(forge, [landed("a"), landed("b")], ended("a"), ended("b")))
    assert problem.message == "invalid name"
    assert forge.told == [("b", "in_progress"), ("b", "success")]


def test_the_number_of_reported_deployments_is_limited() -> None:
    forge = Forge()
    names = [f"app-{number}" for number in range(MOST + 5)]
    (problem,) = play(forge, [landed(name) for name in names], *map(ended, names))
    assert problem.message == f"deployments are shown for only {MOST} of {MOST + 5} Applications"
    assert len(forge.told) == 2 * MOST


def test_one_commit_status_summarizes_several_deployments() -> None:
    one = Deployment("b", COMMIT, "success", "")
    for states, state, said in (
        (("success", "success"), "success", "2 synced and healthy"),
        (("success", "in_progress"), "pending", "1 synced and healthy, 1 in progress"),
        (("failure", "in_progress"), "failure", "1 failed, 1 in progress"),
    ):
        shown = (replace(one, state=states[0]), replace(one, environment="a", state=states[1]))  # type: ignore[arg-type]
        assert summary(shown, COMMIT, "") == CommitStatus(
            COMMIT,
            "image-update/a and 1 more",
            state,  # type: ignore[arg-type]
            said,
        )
