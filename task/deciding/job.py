"""The nouns of deciding: what one run has to do, what is asked of the rules, and what comes out."""

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

# of commits, if nobody says who else
AUTHOR = Person("image-update", "image-update@noreply.invalid")


@dataclass(frozen=True)
class Promoted:
    """What the source of a promoted version says about it."""

    source: str  # namespace/name of its Application
    # the newest build that was ever written there; after a rollback it is another one
    newest: Written = Written()
    pinned: bool = False  # whether its file has the digest
    # Asks Git since when it has had this version, "" if that is unknown. Only a minimum age needs
    # it.
    since: Callable[[], str] = field(default=str, compare=False)
    # Asks Git whether it had this version before `newest`, too. A later build without a number is
    # no way back.
    went_back: Callable[[], bool] = field(default=bool, compare=False)


@dataclass(frozen=True)
class Terms:
    """What the command line says about decisions."""

    allow_downgrade: bool = False
    carry: bool | None = None
    require_live: bool = False
    build: Build = Build()
    check: str = "auto"  # --registry-check: auto, always, never
    # to find out which holds have ended, because pure code has no clock
    now: str = "1970-01-01T00:00:00Z"
    through: Through = "git"  # which API commits, because GitHub's does not keep the executable bit
    promoted: Promoted | None = None  # of `promote`
    minimum_age: int = 0  # seconds; a config may ask for more
    verify: bool = False  # whether the command line requires a proof of every image


@dataclass(frozen=True)
class Intent:
    """What is asked for instead of an event: by a person,
    or ("undo") by a run whose rollout failed.
    """

    verb: str  # "hold", "release", "rollback", "undo"
    hold: Hold | None = None  # None ends a hold or makes none (`release`, `rollback --no-hold`)
    # all images of the Application, including future ones; False means single images
    whole: bool = True
    to: str = ""  # for a rollback: a tag, tag@digest, "previous" or "3-back"
    discard: bool = False  # for a release: drop what was deferred
    unknown: bool = False  # for a rollback: allow a tag that neither Git nor the registry knows
    undone: Decision | None = None  # for an undo: the update whose rollout failed
    failed: Image | None = None  # for a rollback: only if Git still has this version


@dataclass(frozen=True)
class Wording:
    """What the command line says about commits;
    the repository's config decides what it leaves open.
    """

    author: Person  # a part that is not given is empty
    template: str | None = None
    trailers: tuple[tuple[str, str], ...] = ()
    command: str = "run"  # the subject of the commit names "hold", "release" and "rollback"
    sign_off: bool | None = None
    push_options: tuple[str, ...] = ()
    common: Wishes = Wishes()  # of the config, where the Applications of one commit differ
    # those that the config names, by path
    templates: Mapping[str, str] = field(default_factory=dict)
    config: RepositoryConfig = NO_CONFIG  # of the base


@dataclass(frozen=True)
class Promotion:
    """What the command line says about `promote`."""

    sources: tuple[str, ...] = ()  # globs of `name` or `namespace/name`, like all patterns here
    targets: tuple[str, ...] = ()  # may have {namespace}, {name} and {project} of a source
    source_selector: str = ""
    target_selector: str = ""
    images: tuple[str, ...] = ()  # aliases or names; () means all
    healthy: bool = False  # only what Argo CD reports as Synced and Healthy
    repository: str = ""  # repository of the source commits, from the command line or the CI system


@dataclass(frozen=True)
class PullRequestOptions:
    """What the command line says about pull requests.

    The repository's config decides what it leaves open.
    """

    labels: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    assignees: tuple[str, ...] = ()
    draft: bool | None = None
    auto_merge: bool | None = None
    named: tuple[
        str, ...
    ] = ()  # those on the command line itself; a platform sets variables for everybody
    source: str = ""  # of the build: a commit, or its page
    run: str = ""  # the pipeline's page


@dataclass(frozen=True)
class PlanComment:
    """The pull request on which a plan is written as a comment."""

    repository: str  # its URL
    number: str
    key: str  # distinguishes this plan's comment from those for other images or another cluster


@dataclass(frozen=True)
class DeployedSource:
    """The source of the images. Its forge shows the deployments."""

    repository: str  # its URL
    commit: str
    ref: str = ""  # the branch or tag of the build; "" if unknown
    is_tag: bool = False
    waits_for_rollouts: bool = False  # whether the run learns how the rollouts end


@dataclass(frozen=True)
class LandedApplication:
    """One Application that was written, or that already had the image."""

    application: Tracker
    repo: str
    commit: str  # the commit that Argo CD has to sync; "" for a live Application that was patched
    decisions: tuple[Decision, ...]
    request: str = ""  # the number of the pull request to merge first

    @property
    def arrives(self) -> bool:
        """Whether Argo CD will see this very commit:
        it is on a branch that the Application follows.
        """
        heads = {
            decision.head
            for decision in self.decisions
            if decision.head not in ("", decision.branch)
        }
        if not heads:
            return True
        url = normal_url(self.repo)
        followed = {
            source.revision for source in self.application.sources if normal_url(source.repo) == url
        }
        return bool(heads & followed)

    @property
    def written(self) -> bool:
        """Whether an image was written now, and was not there before."""
        return any(decision.verdict == "update" for decision in self.decisions)


@dataclass(frozen=True)
class Failure:
    """An Application that Argo CD began to sync, and whose rollout failed or timed out."""

    landed: tuple[LandedApplication, ...]  # what this run waited for in this Application
    cause: str


@dataclass(frozen=True)
class RolloutEnd:
    """How the rollout of one Application ended: that of this run's commit,
    or that of a rollback.
    """

    application: str  # namespace/name
    # late: not healthy when the time was over
    state: Literal["healthy", "failed", "late", "unknown"]
    because: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Followed:
    """The result of refreshing Argo CD, and of waiting for its rollouts."""

    problems: tuple[Problem, ...] = ()
    failures: tuple[Failure, ...] = ()
    ends: tuple[RolloutEnd, ...] = ()  # with --wait; an Application with an unknown end is left out
    recoveries: tuple[RolloutEnd, ...] = ()  # of what was rolled back


@dataclass(frozen=True)
class Job:
    """What one run has to do."""

    command: str  # "run", "plan", "scan", "hold", "release", "rollback", "promote"
    images: tuple[Image, ...]
    scope: Scope
    terms: Terms
    wording: Wording
    deadline: float = 120.0  # seconds
    atomic: bool = False
    require_update: bool = False
    require_match: bool = False  # exit 5 if no Application tracks an image
    only: tuple[str, ...] = ()
    dry: bool = False  # predict a push instead of doing it
    intent: Intent | None = None  # of `hold`, `release` and `rollback`
    aliases: tuple[str, ...] = ()  # for those commands: aliases or names of images; () means all
    requests: PullRequestOptions = PullRequestOptions()
    promotion: Promotion | None = None  # of `promote`
    undo: bool = False  # --on-failure rollback: restore the earlier version after a failed rollout
    comment: PlanComment | None = None
    deployed: DeployedSource | None = None  # --deployments
    events: tuple[Event, ...] = ()  # of registries and pipelines; the images are theirs
    passed_over: int = 0  # events that are not a push of a tagged image
    source_repository: str = ""  # that of the commits in the labels of events' images


@dataclass(frozen=True)
class Outcome:
    """The outcome for the asks of one repository."""

    decisions: tuple[Decision, ...] = ()
    commits: tuple[Commit, ...] = ()
    landed: tuple[LandedApplication, ...] = ()
    cautions: tuple[Problem, ...] = ()  # about the files that were read
    earlier: tuple[Commit, ...] = ()  # of earlier runs, with what this run would have written
    waiting: tuple[HeadBuildRow, ...] = ()

    def plus(self, other: Outcome) -> Outcome:
        """Return both outcomes together."""
        return Outcome(
            self.decisions + other.decisions,
            self.commits + other.commits,
            self.landed + other.landed,
            self.cautions + other.cautions,
            self.earlier + other.earlier,
            self.waiting + other.waiting,
        )


def landed_applications(
    decisions: Iterable[Decision],
    repo: str,
    commit: str,
) -> tuple[LandedApplication, ...]:
    """Return the Applications whose image is in this commit,
    whether it was written now or was there before.
    """
    return grouped_by_application(
        (decision for decision in decisions if decision.verdict in ("update", "unchanged")),
        repo,
        commit,
    )


def grouped_by_application(
    decisions: Iterable[Decision],
    repo: str,
    commit: str,
) -> tuple[LandedApplication, ...]:
    """Group these decisions by Application, and return what the commit has for each."""
    apps: dict[str, list[Decision]] = {}
    for decision in decisions:
        apps.setdefault(decision.subscription.application.key, []).append(decision)
    return tuple(
        LandedApplication(of[0].subscription.application, repo, commit, tuple(of))
        for of in apps.values()
    )


@dataclass(frozen=True)
class Ask:
    """A subscription, and the images of the event that are of its repository:
    one for each tag that was built.
    """

    subscription: Subscription
    candidates: tuple[Image, ...]
    intent: Intent | None = None
    # all subscriptions of an Application whose updates may wait on the same head branch
    siblings: tuple[Subscription, ...] = ()
    build: Build | None = None  # of the candidates; None is that of the event
    events: tuple[Event, ...] = ()  # one for each candidate, if the images come from events
    promoted: Promoted | None = None  # where `promote` found the candidate

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What identifies it. The repository's config does not change this."""
        return self.subscription.identity

    def terms(self, terms: Terms) -> Terms:
        """Return the terms of the run, with this ask's own build and source if it has them."""
        return (
            terms
            if self.build is None
            else replace(terms, build=self.build, promoted=self.promoted)
        )

    def builds_of(self, terms: Terms) -> tuple[Build, ...]:
        """Return the build of each candidate."""
        if self.events:
            return tuple(event.build for event in self.events)
        return (self.terms(terms).build,) * len(self.candidates)

    @property
    def offered(self) -> Image:
        """The image on offer. For a person's intent, it is the image that the entry names."""
        return self.candidates[0] if self.candidates else self.subscription.entry.image


@dataclass(frozen=True)
class Remember:
    """The changes to an Application's state file."""

    memory: Memory | None = None  # of the image; None leaves it as it is
    hold: Hold | None = None  # a new hold of all images of the Application
    lifted: bool = False  # ends the hold of all its images
    notes: bool = False  # only that a version failed: the person who asked gets no change


@dataclass(frozen=True)
class Move:
    """One decision, and what a commit has to do about it.

    An update writes the decision's candidate.
    """

    decision: Decision
    build: Build = Build()  # of the candidate, if known
    remember: Remember | None = None  # None leaves the state file as it is
    # of the image, if the commit's message names them
    labels: Mapping[str, str] = field(default_factory=dict)
    # waits on the head branch: the new commit writes it again, and the report leaves it out
    kept: bool = False
    rolled_back: bool = False  # a person wants the older version
    hold: Hold | None = None  # keeps the image back
    released: bool = False  # a person ends a hold, or drops what was deferred
    otherwise: Move | None = None  # what is done if the proof of this one is refused

    @property
    def subscription(self) -> Subscription:
        """The subscription of the decision."""
        return self.decision.subscription

    @property
    def updates(self) -> bool:
        """Whether an image is written."""
        return self.decision.verdict == "update"

    @property
    def changes(self) -> bool:
        """Whether the commit changes something for it: the image, or what is remembered."""
        return self.updates or self.remember is not None

    @property
    def change(self) -> Change:
        """The change as templates and messages need it."""
        return change_of(self.decision, self.build, self.labels)

    def without_effect(self, verdict: Verdict) -> Move:
        """Return the move with this verdict. It writes and remembers nothing."""
        return Move(replace(self.decision, judged=verdict))

    def failed(self, error: TaskError) -> Move:
        """Return the move as this error. It writes nothing."""
        return Move(failed(self.decision, error))


def error_decision(sub: Subscription, image: Image, error: TaskError, branch: str = "") -> Decision:
    """Return an error decision about a subscription that could not be read.

    `branch` is its base branch, if known.
    """
    return failed(
        Decision(sub, image, Verdict("error", error.rule, ""), branch=branch, head=branch),
        error,
    )


def failed(decision: Decision, error: TaskError) -> Decision:
    """Return the decision as that error, which names the file, or the repository and branch,
    that it is about.
    """
    current = decision.current
    if isinstance(error, TargetError) and error.subject and not current.file:
        current = replace(current, file=error.subject)
    verdict = Verdict.of(error.trouble)
    return replace(decision, judged=verdict, current=current)


def change_of(
    decision: Decision,
    build: Build = Build(),
    labels: Mapping[str, str] | None = None,
) -> Change:
    """Return what an update changes, as templates and messages need it,
    with what is known of its build and labels.
    """
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
