"""`--deployments`: show in the source repository's forge where its build is deployed,
and how the rollout ended.

A failure here is only a warning: the image is in Git, so Argo CD deploys it anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from task import shutdown
from task.deciding.job import DeployedSource, Followed, Job, LandedApplication, RolloutEnd
from task.errors import ForgeError, TaskError, Trouble
from task.forges.deployment import CommitStatus, Deployment, DeploymentState
from task.forges.host import Deployments
from task.landing.ports import World
from task.model import Problem, Tracker
from task.text import without_logins

MOST = 50  # environments per run; each costs three requests, and forges limit writes per hour
CONTEXT = "image-update"
WORDS: Mapping[DeploymentState, str] = {
    "failure": "failed", "success": "synced and healthy", "in_progress": "in progress", "queued": "queued",
}  # fmt: skip


class ShownDeployments:
    """One run's deployments: one for each Application that was written."""

    def __init__(
        self,
        source: DeployedSource,
        job: Job,
        world: World,
        everyone: Iterable[Tracker],
    ) -> None:
        """`everyone`: all Applications. An environment's name must be unique among them."""
        self._source = source
        self._run = job.requests.run
        self._world = world
        self._names = Counter(
            name for _namespace, name in {(tracker.namespace, tracker.name) for tracker in everyone}
        )
        self._begun: dict[str, Deployment] = {}
        self._ended: dict[str, Deployment] = {}
        self._problems: list[Problem] = []
        self._forge: Deployments | None = None
        # whether the forge refused a request or did not respond; if so, no more are sent
        self._stopped = False

    def begin(self, landed: Sequence[LandedApplication]) -> None:
        """Show the landed Applications as in progress, or as queued if the run does not wait."""
        state: DeploymentState = "queued"
        description = "written to Git for Argo CD"
        if self._source.waits_for_rollouts:
            state = "in_progress"
            description = "Argo CD is deploying it"
        arrived = by_application(
            item for item in landed if item.written and item.arrives and not item.request
        )
        for key, items in list(arrived.items())[:MOST]:
            wanted = self._deployment(items, state, description)
            if self._begin_one(wanted):
                self._begun[key] = wanted
        if len(arrived) > MOST:
            self._warn(
                "usage",
                f"deployments are shown for only {MOST} of {len(arrived)} Applications",
                "",
            )
        self._sum_up()

    def end(self, landed: Sequence[LandedApplication], followed: Followed) -> tuple[Problem, ...]:
        """Show how the rollouts ended, and return any warnings."""
        if not self._source.waits_for_rollouts:
            self.begin(landed)
        elif not shutdown.code():  # a later run may end the deployments
            self._stopped = False  # minutes have passed, so the forge may be available again
            ends = {rollout_end.application: rollout_end for rollout_end in followed.ends}
            self._end_all(landed, ends)
        shown = tuple({**self._begun, **self._ended}.values())
        if shown:
            states = summary(shown, self._source.commit, self._run).description
            self._world.log("info", f"deployments are shown in {self._source.repository}: {states}")
        return tuple(self._problems)

    def _end_all(self, landed: Sequence[LandedApplication], ends: Mapping[str, RolloutEnd]) -> None:
        """Mark the deployments as ended whose rollouts have ended; `ends` is by Application."""
        for key, items in list(by_application(landed).items())[: 2 * MOST]:
            end = ends.get(key)
            if end is None:  # the outcome is unknown; a later run may end the deployment
                continue
            state: DeploymentState = "success" if end.state == "healthy" else "failure"
            wanted = self._deployment(items, state, end.because)
            if self._end_one(key, wanted, written=any(item.written for item in items)):
                self._ended[key] = wanted
        self._sum_up()

    def _begin_one(self, wanted: Deployment) -> bool:
        return self._tried(lambda forge: forge.begin(wanted))

    def _end_one(self, key: str, wanted: Deployment, *, written: bool) -> bool:
        """Mark a deployment as ended, and return whether that succeeded.

        If it was not `written` by this run, an earlier run must have begun it.
        """
        if key in self._begun:
            return self._tried(lambda forge: forge.end(wanted, begun=True))
        # the request has been merged since, or the forge was down before
        if written and len(self._begun) < MOST:
            return self._begin_one(wanted)
        found = list[bool]()  # whether there was such a deployment; empty after an error
        self._tried(lambda forge: found.append(forge.end(wanted, begun=False)))
        return any(found)

    def _deployment(
        self,
        items: Sequence[LandedApplication],
        state: DeploymentState,
        description: str,
    ) -> Deployment:
        app = items[0].application
        source = self._source
        is_unique = self._names[app.name] < 2
        return Deployment(
            environment=app.name if is_unique else app.key,
            commit=source.commit,
            state=state,
            description=without_logins(description),
            ref=source.ref,
            is_tag=source.is_tag,
            page=self._world.page(app),
            run=self._run,
        )

    def _sum_up(self) -> None:
        """Set one status for the commit.

        A run that does not wait does not set it, because it would stay pending forever.
        """
        shown = {**self._begun, **self._ended}
        if shown and self._source.waits_for_rollouts:
            status = summary(tuple(shown.values()), self._source.commit, self._run)
            self._tried(lambda forge: forge.sum_up(status))

    def _tried(self, work: Callable[[Deployments], object]) -> bool:
        """Call the function, and return whether it succeeded.

        If the forge refuses one deployment, the others are still shown.
        """
        if self._stopped:
            return False
        try:
            self._forge = self._forge or self._world.deployments(self._source.repository)
            work(self._forge)
        except TaskError as error:
            self._stopped = not isinstance(error, ForgeError)
            self._warn(error.rule, error.message, error.hint)
            return False
        return True

    def _warn(self, rule: str, message: str, hint: str) -> None:
        self._problems.append(Problem(Trouble.warning(rule, message, hint)))


def summary(shown: Sequence[Deployment], commit: str, run: str) -> CommitStatus:
    """Return the commit's status: failure if any deployment failed, success if all succeeded."""
    names = sorted(deployment.environment for deployment in shown)
    context = f"{CONTEXT}/{names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
    states = Counter(deployment.state for deployment in shown)
    description = ", ".join(
        f"{states[state]} {word}" for state, word in WORDS.items() if states[state]
    )
    if states["failure"]:
        return CommitStatus(commit, context, "failure", description, run)
    all_succeeded = states["success"] == len(shown)
    return CommitStatus(
        commit, context, "success" if all_succeeded else "pending", description, run
    )


def by_application(landed: Iterable[LandedApplication]) -> Mapping[str, list[LandedApplication]]:
    """Group what landed by Application, in order."""
    groups: dict[str, list[LandedApplication]] = {}
    for item in landed:
        groups.setdefault(item.application.key, []).append(item)
    return groups
