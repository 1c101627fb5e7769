"""What one run is asked to do, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass

from task.model import Application, Commit, Decision, Image, Problem
from task.pipeline.changeset import Stray, Wording
from task.pipeline.discover import Scope
from task.pipeline.promotion import Promotion
from task.pipeline.weigh import Intent, Terms
from task.urls import normal_url


@dataclass(frozen=True)
class PullRequestOptions:
    """What the command line says of pull requests."""

    labels: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    assignees: tuple[str, ...] = ()
    draft: bool = False
    auto_merge: bool = False
    source: str = ""  # of the build: its commit, or the page of it
    run: str = ""  # the pipeline's page


@dataclass(frozen=True)
class PlanComment:
    """The pull request that a plan is written to as a comment."""

    repository: str  # its URL
    number: str
    key: str  # tells this plan's comment from that of another plan, of other images or another cluster


@dataclass(frozen=True)
class DeployedSource:
    """What the images were built from, whose forge shows the deployments."""

    repository: str  # its URL
    commit: str
    ref: str = ""  # the branch or tag that it was built for; "" is unknown
    is_tag: bool = False
    waits: bool = False  # whether the run finds out how the rollouts end


@dataclass(frozen=True)
class Landed:
    """One Application that was written, or that was as it should be already."""

    application: Application
    repo: str
    commit: str  # what Argo CD has to get synced; "" for a live Application that was patched
    changes: tuple[Decision, ...]
    request: str = ""  # the number of the pull request that has to be merged first

    @property
    def arrives(self) -> bool:
        """Whether Argo CD will see the commit as it is: on a branch that the Application follows."""
        heads = {one.head for one in self.changes if one.head not in ("", one.branch)}
        if not heads:
            return True
        url = normal_url(self.repo)
        followed = {source.revision for source in self.application.sources if normal_url(source.repo) == url}
        return bool(heads & followed)

    @property
    def written(self) -> bool:
        """Whether an image was written, and did not stand there already."""
        return any(one.verdict.verdict == "update" for one in self.changes)


@dataclass(frozen=True)
class Failure:
    """An Application that Argo CD began to sync, and whose rollout failed or timed out."""

    landed: tuple[Landed, ...]  # what was waited for, of this Application
    cause: str


@dataclass(frozen=True)
class RolloutEnd:
    """How the rollout of one Application ended."""

    application: str  # namespace/name
    succeeded: bool
    because: str


@dataclass(frozen=True)
class Followed:
    """What came of telling Argo CD, and of waiting for it."""

    problems: tuple[Problem, ...] = ()
    failures: tuple[Failure, ...] = ()
    ends: tuple[RolloutEnd, ...] = ()  # with --wait; an Application whose end nobody could tell has none


@dataclass(frozen=True)
class Job:
    """What one run is asked to do."""

    command: str  # "run", "plan", "scan", "hold", "release", "rollback", "promote"
    images: tuple[Image, ...]
    scope: Scope
    terms: Terms
    wording: Wording
    deadline: float = 120.0  # seconds
    atomic: bool = False
    require_update: bool = False
    require_match: bool = False  # exit 5 where an image is tracked by nobody
    only: tuple[str, ...] = ()
    dry: bool = False  # predict instead of pushing
    intent: Intent | None = None  # of `hold`, `release` and `rollback`
    aliases: tuple[str, ...] = ()  # of those commands: the images they are about, by alias or name; () is all
    requests: PullRequestOptions = PullRequestOptions()
    promotion: Promotion | None = None  # of `promote`
    undo: bool = False  # --on-failure rollback: put back what was there before a rollout that failed
    comment: PlanComment | None = None
    deployed: DeployedSource | None = None  # --deployments


@dataclass(frozen=True)
class Outcome:
    """What became of the asks of one repository."""

    decisions: tuple[Decision, ...] = ()
    commits: tuple[Commit, ...] = ()
    landed: tuple[Landed, ...] = ()
    strays: tuple[Stray, ...] = ()

    def plus(self, other: Outcome) -> Outcome:
        """Both together."""
        return Outcome(
            self.decisions + other.decisions,
            self.commits + other.commits,
            self.landed + other.landed,
            self.strays + other.strays,
        )
