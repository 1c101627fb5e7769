"""`--deployments`: showing on the source repository's forge where its build is deployed, and how
the rollout ended.

A failure here is only a warning: the image is in Git, so Argo CD deploys it anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

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
    """The deployments that a run shows on the source repository's forge (Git host): one for each
    Application that was written.
    """

    def __init__(
        self,
        source: DeployedSource,
        job: Job,
        world: World,
        everyone: Iterable[Tracker],
    ) -> None:
        """`everyone` contains all Applications. An environment's name must be unique among them."""
        self._source = source
        self._run = job.requests.run
        self._world = world
        keys = {(tracker.namespace, tracker.name) for tracker in everyone}
        self._name_counts = Counter(name for _namespace, name in keys)
        self._begun_deployments: dict[str, Deployment] = {}  # keyed by Application
        self._ended_deployments: dict[str, Deployment] = {}  # keyed by Application
        self._problems: list[Problem] = []
        self._forge: Deployments | None = None
        # whether the forge cannot be used at the moment; if so, no more requests are sent
        self._forge_is_out = False

    def begin(self, landed: Sequence[LandedApplication]) -> None:
        """Show a deployment for each Application that this run has written to the branch that Argo
        CD deploys: as in progress, or as queued if the run does not wait for rollouts.

        `landed` are the Applications with the image in a commit. At most `MOST` deployments are
        shown. If there are more, a warning says so.
        """
        state: DeploymentState = "queued"
        description = "written to Git for Argo CD"
        if self._source.waits_for_rollouts:
            state = "in_progress"
            description = "Argo CD is deploying it"
        arrived = [item for item in landed if item.written and item.arrives and not item.request]
        arrived_by_key = by_application(arrived)
        shown_first = list(arrived_by_key.items())[:MOST]  # forges limit requests
        for key, items in shown_first:
            deployment = self._deployment_to(items[0].application, state, description)
            if self._begin_deployment(deployment):
                self._begun_deployments[key] = deployment
        count = len(arrived_by_key)
        if count > MOST:
            self._warn(
                "usage", f"deployments are shown for only {MOST} of {count} Applications", hint=""
            )
        self._set_commit_status()

    def end(self, landed: Sequence[LandedApplication], followed: Followed) -> tuple[Problem, ...]:
        """Show how the rollouts ended, and return any warnings.

        If the run does not wait for rollouts, show the deployments as queued instead.
        """
        if not self._source.waits_for_rollouts:
            self.begin(landed)
        elif not shutdown.code():  # after a signal, they remain in progress until a later run
            self._forge_is_out = False  # minutes have passed, so the forge may be available again
            ends = {rollout_end.application: rollout_end for rollout_end in followed.ends}
            self._end_deployments(landed, ends)
        deployments = self._shown_deployments()
        if deployments:
            states = summary(deployments, self._source.commit, self._run).description
            self._world.log("info", f"deployments are shown in {self._source.repository}: {states}")
        return tuple(self._problems)

    def _shown_deployments(self) -> tuple[Deployment, ...]:
        """Return the latest state of each deployment that this run has begun or ended."""
        return tuple({**self._begun_deployments, **self._ended_deployments}.values())

    def _end_deployments(
        self, landed: Sequence[LandedApplication], ends: Mapping[str, RolloutEnd]
    ) -> None:
        """Show in the forge how the deployment to each landed Application ended: "success" if its
        rollout is healthy, or else "failure". Then set the commit's status.

        `landed` are the Applications with the image in a commit. `ends` contains the end of each
        rollout, keyed by Application (namespace/name). The deployment of an Application without an
        entry in `ends` is left unchanged.
        """
        # this run has begun at most MOST deployments, and earlier runs may have begun others
        most_ends = 2 * MOST
        for key, items in list(by_application(landed).items())[:most_ends]:
            rollout_end = ends.get(key)
            if rollout_end is None:  # the outcome is unknown; a later run may end the deployment
                continue
            is_healthy = rollout_end.state == "healthy"
            state: DeploymentState = "success" if is_healthy else "failure"
            deployment = self._deployment_to(items[0].application, state, rollout_end.because)
            is_written = any(item.written for item in items)
            if self._end_deployment(key, deployment, written=is_written):
                self._ended_deployments[key] = deployment
        self._set_commit_status()

    def _begin_deployment(self, deployment: Deployment) -> bool:
        """Show a deployment, and return whether this succeeded."""
        return self._try_with_forge(lambda forge: forge.begin(deployment))

    def _end_deployment(self, key: str, deployment: Deployment, *, written: bool) -> bool:
        """Show an Application's deployment as ended, and return whether the forge now shows that.

        `key` is the Application's key. If this run has `written` the Application but not begun its
        deployment, create it in its final state. If this run has not written the Application, look
        for a deployment that an earlier run has begun.
        """
        if key in self._begun_deployments:
            return self._try_with_forge(lambda forge: forge.end(deployment, begun=True))
        # It was not begun, because its pull request was not yet merged or the forge was down.
        if written and len(self._begun_deployments) < MOST:
            return self._begin_deployment(deployment)
        was_ended = False  # remains False if no earlier run has begun the deployment

        def end_earlier(forge: Deployments) -> None:
            """End an earlier run's deployment, and set `was_ended` to whether there was one."""
            nonlocal was_ended
            was_ended = forge.end(deployment, begun=False)

        self._try_with_forge(end_earlier)
        return was_ended

    def _deployment_to(
        self,
        app: Tracker,
        state: DeploymentState,
        description: str,
    ) -> Deployment:
        """Return the build's deployment to an Application (the environment), in this state."""
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

    def _set_commit_status(self) -> None:
        """Summarize all deployments in a single status on the source commit.

        A run that does not wait for rollouts does not set the status, because the status would
        remain pending forever.
        """
        deployments = self._shown_deployments()
        if deployments and self._source.waits_for_rollouts:
            status = summary(deployments, self._source.commit, self._run)
            self._try_with_forge(lambda forge: forge.sum_up(status))

    def _try_with_forge(self, work: Callable[[Deployments], object]) -> bool:
        """Call `work` with the forge's deployments, and return whether it succeeded. An error
        becomes a warning.

        After any error except `ForgeError` (the forge refused this one request), the forge is not
        contacted again.
        """
        if self._forge_is_out:
            return False
        try:
            self._forge = self._forge or self._world.deployments(self._source.repository)
            work(self._forge)
        except TaskError as error:
            self._forge_is_out = not isinstance(error, ForgeError)
            self._warn(error.rule, error.message, error.hint)
            return False
        return True

    def _warn(self, rule: str, message: str, hint: str) -> None:
        self._problems.append(Problem(Trouble.warning(rule, message, hint)))


def summary(shown: Sequence[Deployment], commit: str, run: str) -> CommitStatus:
    """Return a commit status that summarizes the commit's deployments: failure if any failed,
    success if all succeeded, or else pending. Its description is, for example, "1 failed, 2 synced
    and healthy".

    `run` is the URL of the pipeline's page.
    """
    environments = sorted(deployment.environment for deployment in shown)
    context = f"{CONTEXT}/{environments[0]}"
    if len(environments) > 1:
        context = f"{context} and {len(environments) - 1} more"
    counts = Counter(deployment.state for deployment in shown)
    description = ", ".join(
        f"{counts[state]} {word}" for state, word in WORDS.items() if counts[state]
    )
    state: Literal["failure", "success", "pending"] = "pending"
    if counts["failure"]:
        state = "failure"
    elif counts["success"] == len(shown):
        state = "success"
    return CommitStatus(commit, context=context, state=state, description=description, run=run)


def by_application(landed: Iterable[LandedApplication]) -> Mapping[str, list[LandedApplication]]:
    """Group the landed items by their Application's key, in order."""
    groups: dict[str, list[LandedApplication]] = {}
    for item in landed:
        groups.setdefault(item.application.key, []).append(item)
    return groups
