"""Types for deciding: a run's job, its asks, and their outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from task.errors import TargetError, TaskError
from task.model import (
    Build,
    Commit,
    Decision,
    Event,
    HeadBuildRow,
    Hold,
    Image,
    Memory,
    Person,
    Problem,
    Subscription,
    Through,
    Tracker,
    Verdict,
    Wishes,
    Written,
)
from task.repository_config.config import NO_CONFIG, RepositoryConfig
from task.templates.change import Change
from task.urls import normal_url

if TYPE_CHECKING:
    from task.annotations.subscription import Scope

# the default author of commits
AUTHOR = Person("image-update", "image-update@noreply.invalid")


@dataclass(frozen=True)
class Promoted:
    """The source of a promoted version, and the version's history in that source."""

    source: str  # the source Application, as `namespace/name`
    # the newest build ever written to the source; after a rollback, the source's file contains a
    # different build
    newest: Written = Written()
    pinned: bool = False  # whether the source's file contains the digest
    # Reads from Git when this version was written to the source; "" if unknown. Needed only for a
    # minimum age.
    since: Callable[[], str] = field(default=str, compare=False)
    # Reads from Git whether the source was rolled back, which means that its file already contained
    # this version before `newest`. If not, this version is a later build whose number is unknown.
    went_back: Callable[[], bool] = field(default=bool, compare=False)


@dataclass(frozen=True)
class Terms:
    """The command-line settings for decisions."""

    allow_downgrade: bool = False
    carry: bool | None = None
    require_live: bool = False
    build: Build = Build()
    check: str = "auto"  # --registry-check: auto, always, never
    # the current time, used to determine which holds have ended; it is passed in because pure code
    # has no clock
    now: str = "1970-01-01T00:00:00Z"
    through: Through = "git"  # the API for commits; GitHub's does not preserve the executable bit
    promoted: Promoted | None = None  # for `promote`
    minimum_age: int = 0  # seconds; the config may require more
    verify: bool = False  # whether the command line requires a proof for every image


@dataclass(frozen=True)
class Intent:
    """A request made by a person, or by a run whose rollout failed ("undo"), rather than by an
    event.
    """

    verb: str  # "hold", "release", "rollback", "undo"
    hold: Hold | None = None  # None ends a hold (`release`) or sets no hold (`rollback --no-hold`)
    # whether the request covers all images of the Application, including future ones, or only
    # single images
    whole: bool = True
    to: str = ""  # for a rollback: a tag, tag@digest, "previous", or "3-back"
    discard: bool = False  # for a release: discard the deferred build
    unknown: bool = False  # for a rollback: allow a tag that is neither in Git nor in the registry
    undone: Decision | None = None  # for an undo: the update whose rollout failed
    failed: Image | None = None  # for a rollback: undo only this version, if it is still in Git


@dataclass(frozen=True)
class Wording:
    """The command-line settings for commits.

    The repository's config decides the rest.
    """

    author: Person  # parts that are not set are empty
    template: str | None = None
    trailers: tuple[tuple[str, str], ...] = ()
    command: str = "run"  # the commit subject uses it if it is "hold", "release", or "rollback"
    sign_off: bool | None = None
    push_options: tuple[str, ...] = ()
    common: Wishes = Wishes()  # the config's subject, used if a commit's Applications differ
    # the config's templates, keyed by path
    templates: Mapping[str, str] = field(default_factory=dict)
    config: RepositoryConfig = NO_CONFIG  # the template of the base branch's config


@dataclass(frozen=True)
class Promotion:
    """The command-line settings for `promote`."""

    sources: tuple[str, ...] = ()  # globs for `name` or `namespace/name`, like all patterns
    targets: tuple[str, ...] = ()  # may contain a source's {namespace}, {name}, and {project}
    source_selector: str = ""
    target_selector: str = ""
    images: tuple[str, ...] = ()  # aliases or names; () means all
    healthy: bool = False  # only versions that Argo CD reports as Synced and Healthy
    repository: str = ""  # the source commits' repository, from the command line or the CI system


@dataclass(frozen=True)
class PullRequestOptions:
    """The command-line settings for pull requests.

    The repository's config decides the rest.
    """

    labels: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    assignees: tuple[str, ...] = ()
    draft: bool | None = None
    auto_merge: bool | None = None
    named: tuple[
        str, ...
    ] = ()  # options given on the command line itself; a platform may set variables for everyone
    source: str = ""  # the source of the build: a commit, or the commit's page
    run: str = ""  # the pipeline's page


@dataclass(frozen=True)
class PlanComment:
    """The pull request on which a plan is posted as a comment."""

    repository: str  # the pull request's URL
    number: str
    key: str  # distinguishes this plan's comment from comments about other images or clusters


@dataclass(frozen=True)
class DeployedSource:
    """The source of the images. Deployments are reported to the source's forge."""

    repository: str  # the repository's URL
    commit: str
    ref: str = ""  # the build's branch or tag; "" if unknown
    is_tag: bool = False
    waits_for_rollouts: bool = False  # whether the run waits for the rollouts to end


@dataclass(frozen=True)
class LandedApplication:
    """An Application that was written to, or that already had the image."""

    application: Tracker
    repo: str
    commit: str  # the commit that Argo CD must sync; "" for a patched live Application
    decisions: tuple[Decision, ...]
    request: str = ""  # the number of the pull request that must be merged first

    @property
    def arrives(self) -> bool:
        """Whether Argo CD will see this exact commit, because it is on a branch that the
        Application follows.
        """
        # the head branches (proposed by pull requests) that contain the commit; empty if the commit
        # is on the base
        head_branches = {
            decision.head
            for decision in self.decisions
            if decision.head not in ("", decision.branch)
        }
        if not head_branches:  # whether the commit is on the branch that Argo CD deploys
            return True
        url = normal_url(self.repo)
        followed_branches = {
            source.revision for source in self.application.sources if normal_url(source.repo) == url
        }
        return not head_branches.isdisjoint(followed_branches)

    @property
    def written(self) -> bool:
        """Whether this run wrote an image, as opposed to finding it already in Git."""
        return any(decision.verdict == "update" for decision in self.decisions)


@dataclass(frozen=True)
class Failure:
    """An Application that Argo CD began to sync, but whose rollout failed or timed out."""

    landed: tuple[LandedApplication, ...]  # this Application's changes that the run waited for
    cause: str


@dataclass(frozen=True)
class RolloutEnd:
    """The end of an Application's rollout, after this run's commit or a rollback."""

    application: str  # namespace/name
    # late: not yet healthy when time ran out
    state: Literal["healthy", "failed", "late", "unknown"]
    because: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Followed:
    """The result of refreshing Applications in Argo CD and waiting for their rollouts."""

    problems: tuple[Problem, ...] = ()
    failures: tuple[Failure, ...] = ()
    ends: tuple[RolloutEnd, ...] = ()  # with --wait; Applications with an unknown end are left out
    recoveries: tuple[RolloutEnd, ...] = ()  # for Applications that were rolled back


@dataclass(frozen=True)
class Job:
    """The work of one run."""

    command: str  # "run", "plan", "scan", "hold", "release", "rollback", "promote"
    images: tuple[Image, ...]
    scope: Scope
    terms: Terms
    wording: Wording
    deadline: float = 120.0  # seconds
    atomic: bool = False
    require_update: bool = False
    require_match: bool = False  # whether to exit with 5 if no Application tracks an image
    only: tuple[str, ...] = ()
    dry: bool = False  # whether to predict a push instead of pushing
    intent: Intent | None = None  # for `hold`, `release`, and `rollback`
    aliases: tuple[str, ...] = ()  # image aliases or names for these commands; () means all
    requests: PullRequestOptions = PullRequestOptions()
    promotion: Promotion | None = None  # for `promote`
    undo: bool = False  # --on-failure rollback: restore the earlier version after a failed rollout
    comment: PlanComment | None = None
    deployed: DeployedSource | None = None  # --deployments
    events: tuple[Event, ...] = ()  # from registries and pipelines; `images` contains their images
    passed_over: int = 0  # the number of events that are not about a push of a tagged image
    source_repository: str = ""  # the repository of the commits in the events' image labels


@dataclass(frozen=True)
class Outcome:
    """The outcome of one repository's asks."""

    decisions: tuple[Decision, ...] = ()
    commits: tuple[Commit, ...] = ()
    landed: tuple[LandedApplication, ...] = ()
    cautions: tuple[Problem, ...] = ()  # warnings about the files that were read
    earlier: tuple[Commit, ...] = ()  # earlier runs' commits that already made this run's changes
    waiting: tuple[HeadBuildRow, ...] = ()

    def plus(self, other: Outcome) -> Outcome:
        """Return an outcome that combines everything in this outcome and another one."""
        return Outcome(
            decisions=self.decisions + other.decisions,
            commits=self.commits + other.commits,
            landed=self.landed + other.landed,
            cautions=self.cautions + other.cautions,
            earlier=self.earlier + other.earlier,
            waiting=self.waiting + other.waiting,
        )


def landed_applications(
    decisions: Iterable[Decision],
    repo: str,
    commit: str,
) -> tuple[LandedApplication, ...]:
    """Return the Applications that have their image in this commit, either just written or already
    there.
    """
    in_commit = [decision for decision in decisions if decision.verdict in ("update", "unchanged")]
    return grouped_by_application(in_commit, repo, commit)


def grouped_by_application(
    decisions: Iterable[Decision],
    repo: str,
    commit: str,
) -> tuple[LandedApplication, ...]:
    """Group these decisions by Application, and return each Application with its decisions and the
    commit.
    """
    decisions_by_app: dict[str, list[Decision]] = {}
    for decision in decisions:
        app = decision.subscription.application
        decisions_by_app.setdefault(app.key, []).append(decision)
    landed_apps = []
    for decisions_of_app in decisions_by_app.values():
        app = decisions_of_app[0].subscription.application
        landed_apps.append(LandedApplication(app, repo, commit, tuple(decisions_of_app)))
    return tuple(landed_apps)


@dataclass(frozen=True)
class Ask:
    """A subscription, and the event's images that match its repository: one image for each tag that
    was built.
    """

    subscription: Subscription
    candidates: tuple[Image, ...]
    intent: Intent | None = None
    # the Application's subscriptions whose updates may wait on the same head branch
    siblings: tuple[Subscription, ...] = ()
    build: Build | None = None  # the candidates' build; None means the build in the run's terms
    events: tuple[Event, ...] = ()  # one build for each candidate, if the images come from events
    promoted: Promoted | None = None  # the source in which `promote` found the candidate

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """Identifies the ask, regardless of any settings from the repository's config."""
        return self.subscription.identity

    def terms(self, terms: Terms) -> Terms:
        """Return the run's terms, with this ask's own build and source filled in if they are
        set.
        """
        if self.build is None:
            return terms
        return replace(terms, build=self.build, promoted=self.promoted)

    def builds_of(self, terms: Terms) -> tuple[Build, ...]:
        """Return the build for each candidate."""
        if self.events:
            return tuple(event.build for event in self.events)
        same_build = self.terms(terms).build
        return (same_build,) * len(self.candidates)

    @property
    def offered(self) -> Image:
        """The offered image. If a person's intent offers none, this is the entry's image."""
        return self.candidates[0] if self.candidates else self.subscription.entry.image


@dataclass(frozen=True)
class Remember:
    """The changes to an Application's state file."""

    memory: Memory | None = None  # the image's memory; None leaves it unchanged
    hold: Hold | None = None  # a new hold on all of the Application's images
    lifted: bool = False  # whether the hold on all of the Application's images ends
    notes: bool = False  # whether this only records a failed version; callers see no change


@dataclass(frozen=True)
class Move:
    """One decision, and the changes to commit for it.

    An update writes the decision's candidate.
    """

    decision: Decision
    build: Build = Build()  # the candidate's build, if known
    remember: Remember | None = None  # None leaves the state file unchanged
    # the image's labels, if the commit message uses them
    labels: Mapping[str, str] = field(default_factory=dict)
    # whether this update is waiting on the head branch: the new commit writes it again, but does
    # not report it
    kept: bool = False
    rolled_back: bool = False  # whether the older version is wanted
    hold: Hold | None = None  # the hold that blocks the image
    released: bool = False  # whether a person ends a hold or discards the deferred build
    otherwise: Move | None = None  # the move to use if this move's proof is refused

    @property
    def subscription(self) -> Subscription:
        """The decision's subscription."""
        return self.decision.subscription

    @property
    def updates(self) -> bool:
        """Whether an image is written."""
        return self.decision.verdict == "update"

    @property
    def changes(self) -> bool:
        """Whether the commit changes the image or the memory."""
        return self.updates or self.remember is not None

    @property
    def change(self) -> Change:
        """The change, in the form used by templates and messages."""
        return change_of(self.decision, self.build, self.labels)

    def without_effect(self, verdict: Verdict) -> Move:
        """Return a move with the same decision, but with this verdict and without any changes."""
        return Move(replace(self.decision, judged=verdict))

    def failed(self, error: TaskError) -> Move:
        """Return a move with the decision changed to an error,
        and without any changes to commit.
        """
        return Move(failed(self.decision, error))


def error_decision(sub: Subscription, image: Image, error: TaskError, branch: str = "") -> Decision:
    """Return an error decision for a subscription that could not be read.

    `branch` is the subscription's base branch, if known.
    """
    verdict = Verdict("error", error.rule, "")  # placeholder that `failed` fills in
    return failed(Decision(sub, image, verdict, branch=branch, head=branch), error)


def failed(decision: Decision, error: TaskError) -> Decision:
    """Return the decision, changed to an error.

    If the decision does not have a file yet, use the file that the error is about.
    """
    current = decision.current
    if isinstance(error, TargetError) and error.subject and not current.file:
        current = replace(current, file=error.subject)
    verdict = Verdict.of(error.trouble)
    return replace(decision, judged=verdict, current=current)


def with_reason(decision: Decision, because: str) -> Decision:
    """Return the decision with a different reason."""
    return replace(decision, judged=replace(decision.judged, because=because))


def change_of(
    decision: Decision,
    build: Build = Build(),
    labels: Mapping[str, str] | None = None,
) -> Change:
    """Return an update's change for templates and messages, including its build and labels."""
    return Change(
        image=decision.subscription.entry.image,
        alias=decision.subscription.entry.alias,
        old_tag=decision.current.tag,
        new_tag=decision.candidate.tag,
        old_digest=decision.current.digest,
        new_digest=decision.candidate.digest,
        labels=labels or {},
        build=build,
        promoted_from=decision.source,
        proof=str(decision.proof or ""),
        why=decision.because,
        event=decision.event,
        file=decision.current.file,
    )
