"""Pure code: what a commit does about one decision, which image it writes, and what it remembers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from task.errors import TargetError, TaskError
from task.model import Build, Decision, Hold, Image, Memory, Subscription, Verdict
from task.templates.change import Change


@dataclass(frozen=True)
class Remember:
    """The changes to an Application's state file."""

    memory: Memory | None = None  # of the image; None leaves it as it is
    hold: Hold | None = None  # a new hold of all images of the Application
    lifted: bool = False  # ends the hold of all its images


@dataclass(frozen=True)
class Move:
    """One decision, and what a commit has to do about it. An update writes the decision's candidate."""

    decision: Decision
    build: Build = Build()  # of the candidate, if known
    remember: Remember | None = None  # None leaves the state file as it is
    labels: Mapping[str, str] = field(default_factory=dict)  # of the image, if the commit's message names them
    kept: bool = False  # waits on the head branch: the new commit writes it again, and the report leaves it out
    rolled_back: bool = False  # a person wants the older version
    hold: Hold | None = None  # keeps the image back

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
    """Return an error decision about a subscription that could not be read. `branch` is its base branch, if known."""
    return failed(Decision(sub, image, Verdict("error", error.rule, ""), branch=branch, head=branch), error)


def failed(decision: Decision, error: TaskError) -> Decision:
    """Return the decision as that error, which names the file, or the repository and branch, that it is about."""
    current = decision.current
    if isinstance(error, TargetError) and error.subject and not current.file:
        current = replace(current, file=error.subject)
    verdict = Verdict("error", error.rule, str(error), error.hint, int(error.exit))
    return replace(decision, judged=verdict, current=current)


def change_of(one: Decision, build: Build = Build(), labels: Mapping[str, str] | None = None) -> Change:
    """Return what an update changes, as templates and messages need it, with what is known of its build and labels."""
    return Change(
        image=one.subscription.entry.image,
        alias=one.subscription.entry.alias,
        old_tag=one.current.tag,
        new_tag=one.candidate.tag,
        old_digest=one.current.digest,
        new_digest=one.candidate.digest,
        labels=labels or {},
        build=build,
        promoted_from=one.source,
        proof=str(one.proof or ""),
        why=one.because,
        file=one.current.file,
    )
