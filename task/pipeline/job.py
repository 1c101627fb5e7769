"""What one run is asked to do, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass

from task.model import Application, Commit, Decision, Image, Problem
from task.pipeline.changeset import Stray, Wording
from task.pipeline.discover import Scope
from task.pipeline.weigh import Intent, Terms


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
class Landed:
    """One Application that was written, or that was as it should be already."""

    application: Application
    repo: str
    commit: str  # what Argo CD has to get synced; "" for a live Application that was patched
    changes: tuple[Decision, ...]
    request: str = ""  # the number of the pull request that has to be merged first


@dataclass(frozen=True)
class Failure:
    """An Application that Argo CD began to sync, and whose rollout failed or timed out."""

    landed: tuple[Landed, ...]  # what was waited for, of this Application
    cause: str


@dataclass(frozen=True)
class Followed:
    """What came of telling Argo CD, and of waiting for it."""

    problems: tuple[Problem, ...] = ()
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True)
class Job:
    """What one run is asked to do."""

    command: str  # "run", "plan", "scan", "hold", "release", "rollback"
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
    undo: bool = False  # --on-failure rollback: put back what was there before a rollout that failed
    comment: PlanComment | None = None


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
