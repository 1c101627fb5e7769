"""`--deployments`: the forge of the application's repository shows where its build is, and how the rollout ended.

What fails here is a warning: the image is in Git, and Argo CD deploys it whether that is shown or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from task import shutdown
from task.errors import ForgeError, TaskError
from task.model import Application, CommitStatus, Deployment, Problem
from task.pipeline.job import DeployedSource, Followed, Job, Landed
from task.pipeline.ports import Deployments, World

MOST = 50  # environments of one run: each costs three requests, and forges limit how many may write in an hour
CONTEXT = "image-update"


class ShownDeployments:
    """The deployments of one run, one for each Application that was written."""

    def __init__(self, source: DeployedSource, job: Job, world: World, everyone: Iterable[Application]) -> None:
        """`everyone`: the Applications among which an environment's name has to tell."""
        self._source, self._run, self._world = source, job.requests.run, world
        self._names = Counter(name for _namespace, name in {(one.namespace, one.name) for one in everyone})
        self._begun: dict[str, Deployment] = {}
        self._ended: dict[str, Deployment] = {}
        self._problems: list[Problem] = []
        self._forge: Deployments | None = None
        self._over = False  # the forge refuses, or does not answer: it is not asked for the others

    def begin(self, landed: Sequence[Landed]) -> None:
        """What has landed is in progress; where nobody waits for its end, it is queued."""
        waits = self._source.waits
        there = _by_application(one for one in landed if one.written and one.arrives and not one.request)
        for key, of in list(there.items())[:MOST]:
            wanted = self._deployment(of, "Argo CD deploys it" if waits else "written to Git for Argo CD")
            wanted = replace(wanted, state="in_progress" if waits else "queued")
            if self._tried(lambda forge, wanted=wanted: forge.begin(wanted)):  # type: ignore[misc]
                self._begun[key] = wanted
        if len(there) > MOST:
            self._warn("usage", f"deployments are shown for {MOST} of {len(there)} Applications", "")
        self._sum_up()

    def end(self, landed: Sequence[Landed], followed: Followed) -> tuple[Problem, ...]:
        """As the rollouts ended, where somebody waited for them; what is wrong with showing that."""
        if not self._source.waits:
            self.begin(landed)
            return tuple(self._problems)
        if shutdown.code():  # a later run may end them
            return tuple(self._problems)
        self._over = False  # a wait takes minutes
        ends = {one.application: one for one in followed.ends}
        for key, of in list(_by_application(landed).items())[: 2 * MOST]:
            if key not in ends:  # nobody knows: a later run may end it
                continue
            wanted = self._deployment(of, ends[key].because)
            wanted = replace(wanted, state="success" if ends[key].succeeded else "failure")
            if self._shown(key, wanted, new=any(one.written for one in of)):
                self._ended[key] = wanted
        self._sum_up()
        return tuple(self._problems)

    def _shown(self, key: str, wanted: Deployment, *, new: bool) -> bool:
        """Whether the end is shown. What Git had already is shown only where an earlier run has begun to."""
        if key in self._begun:
            return self._tried(lambda forge: forge.end(wanted, begun=True))
        if new and len(self._begun) < MOST:  # a request that was merged meanwhile; the forge was down before
            return self._tried(lambda forge: forge.begin(wanted))
        found = list[bool]()
        self._tried(lambda forge: found.append(forge.end(wanted, begun=False)))
        return any(found)

    def _deployment(self, of: Sequence[Landed], description: str) -> Deployment:
        app, source = of[0].application, self._source
        name = app.name if self._names[app.name] < 2 else app.key
        page = self._world.page(app)
        return Deployment(name, source.commit, "queued", description, source.ref, source.is_tag, page, self._run)

    def _sum_up(self) -> None:
        """One status for all: of a run that does not wait it would be pending for ever."""
        shown = {**self._begun, **self._ended}
        if not shown or not self._source.waits:
            return
        status = summary(tuple(shown.values()), self._source.commit, self._run)
        self._tried(lambda forge: forge.sum_up(status))

    def _tried(self, work: Callable[[Deployments], object]) -> bool:
        """Whether it is done. What the forge refuses of one deployment is no reason to leave out the others."""
        if self._over or self._world.deployments is None:
            return False
        try:
            self._forge = self._forge or self._world.deployments(self._source.repository)
            work(self._forge)
        except TaskError as error:
            self._over = not isinstance(error, ForgeError)
            self._warn(error.rule, error.message, error.hint)
            return False
        return True

    def _warn(self, rule: str, message: str, hint: str) -> None:
        self._problems.append(Problem("", rule, message, hint, "warning"))


def summary(shown: Sequence[Deployment], commit: str, run: str) -> CommitStatus:
    """Failed where one has failed, a success where all are."""
    names = sorted(one.environment for one in shown)
    context = f"{CONTEXT}/{names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
    states = Counter(one.state for one in shown)
    words = {"failure": "failed", "success": "synced and healthy", "in_progress": "in progress"}
    said = ", ".join(f"{states[state]} {word}" for state, word in words.items() if states[state])  # type: ignore[index]
    if states["failure"]:
        return CommitStatus(commit, context, "failure", said, run)
    return CommitStatus(commit, context, "success" if states["success"] == len(shown) else "pending", said, run)


def _by_application(landed: Iterable[Landed]) -> Mapping[str, list[Landed]]:
    found: dict[str, list[Landed]] = {}
    for one in landed:
        found.setdefault(one.application.key, []).append(one)
    return found
