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
        keys = {(tracker.namespace, tracker.name) for tracker in everyone}
        self._name_counts = Counter(name for _namespace, name in keys)
        self._begun: dict[str, Deployment] = {}  # by the Application's key
        self._ended: dict[str, Deployment] = {}  # by the Application's key
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
        arrived = [item for item in landed if item.written and item.arrives and not item.request]
        arrived_by_key = by_application(arrived)
        for key, items in list(arrived_by_key.items())[:MOST]:
            deployment = self._deployment(items[0].application, state, description)
            if self._begin_one(deployment):
                self._begun[key] = deployment
        count = len(arrived_by_key)
        if count > MOST:
            self._warn(
                "usage", f"deployments are shown for only {MOST} of {count} Applications", hint=""
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
        deployments = self._shown()
        if deployments:
            states = summary(deployments, self._source.commit, self._run).description
            self._world.log("info", f"deployments are shown in {self._source.repository}: {states}")
        return tuple(self._problems)

    def _shown(self) -> tuple[Deployment, ...]:
        """Return the latest state of each deployment that the forge shows."""
        return tuple({**self._begun, **self._ended}.values())

    def _end_all(self, landed: Sequence[LandedApplication], ends: Mapping[str, RolloutEnd]) -> None:
        """Mark the deployments as ended whose rollouts have ended; `ends` is by Application."""
        for key, items in list(by_application(landed).items())[: 2 * MOST]:
            end = ends.get(key)
            if end is None:  # the outcome is unknown; a later run may end the deployment
                continue
            state: DeploymentState = "success" if end.state == "healthy" else "failure"
            deployment = self._deployment(items[0].application, state, end.because)
            is_written = any(item.written for item in items)
            if self._end_one(key, deployment, written=is_written):
                self._ended[key] = deployment
        self._sum_up()

    def _begin_one(self, deployment: Deployment) -> bool:
        """Show a deployment, and return whether that succeeded."""
        return self._try_with_forge(lambda forge: forge.begin(deployment))

    def _end_one(self, key: str, deployment: Deployment, *, written: bool) -> bool:
        """Mark the deployment of an Application as ended, and return whether that succeeded.

        If it was not `written` by this run, an earlier run must have begun it.
        """
        if key in self._begun:
            return self._try_with_forge(lambda forge: forge.end(deployment, begun=True))
        # the request has been merged since, or the forge was down before
        if written and len(self._begun) < MOST:
            return self._begin_one(deployment)
        existed = False

        def end_earlier(forge: Deployments) -> None:
            nonlocal existed
            existed = forge.end(deployment, begun=False)

        self._try_with_forge(end_earlier)
        return existed

    def _deployment(
        self,
        app: Tracker,
        state: DeploymentState,
        description: str,
    ) -> Deployment:
        """Return the deployment of the build to an Application."""
        source = self._source
        is_unique_name = self._name_counts[app.name] < 2
        return Deployment(
            environment=app.name if is_unique_name else app.key,
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
        deployments = self._shown()
        if deployments and self._source.waits_for_rollouts:
            status = summary(deployments, self._source.commit, self._run)
            self._try_with_forge(lambda forge: forge.sum_up(status))

    def _try_with_forge(self, work: Callable[[Deployments], object]) -> bool:
        """Call the function with the forge, and return whether it succeeded. An error becomes a
        warning.

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
    """Return the commit's status, which sums up its deployments: failure if any failed, success if
    all succeeded, else pending.
    """
    environments = sorted(deployment.environment for deployment in shown)
    context = f"{CONTEXT}/{environments[0]}"
    if len(environments) > 1:
        context = f"{context} and {len(environments) - 1} more"
    counts = Counter(deployment.state for deployment in shown)
    description = ", ".join(
        f"{counts[state]} {word}" for state, word in WORDS.items() if counts[state]
    )
    if counts["failure"]:
        return CommitStatus(
            commit, context=context, state="failure", description=description, run=run
        )
    if counts["success"] == len(shown):
        return CommitStatus(
            commit, context=context, state="success", description=description, run=run
        )
    return CommitStatus(commit, context=context, state="pending", description=description, run=run)


def by_application(landed: Iterable[LandedApplication]) -> Mapping[str, list[LandedApplication]]:
    """Group what landed by the Application's key, in order."""
    groups: dict[str, list[LandedApplication]] = {}
    for item in landed:
        groups.setdefault(item.application.key, []).append(item)
    return groups
