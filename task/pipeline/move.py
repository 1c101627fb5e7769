"""What a commit does about one decision: the image it writes, and what it remembers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from task.errors import TargetError, TaskError
from task.model import Build, Decision, Hold, Image, Memory, Subscription, Verdict
from task.templates.change import Change


@dataclass(frozen=True)
class Remember:
    """What changes in an Application's state file."""

    memory: Memory | None = None  # of the image; None: it stays as it is
    hold: Hold | None = None  # a new hold of all the Application's images
    lifted: bool = False  # the hold of all its images ends


@dataclass(frozen=True)
class Move:
    """One decision, and what a commit has to do about it. An update writes the decision's candidate."""

    decision: Decision
    build: Build = Build()  # of the candidate, as far as it is known
    remember: Remember | None = None  # None: the state file stays as it is
    labels: Mapping[str, str] = field(default_factory=dict)  # of the image, where the commit's message names them
    carried: bool = False  # already on the head branch: the new commit writes it again, the report leaves it out
    rolled_back: bool = False  # a person wants the older version

    @property
    def subscription(self) -> Subscription:
        """Whose decision it is."""
        return self.decision.subscription

    @property
    def updates(self) -> bool:
        """Whether an image is written."""
        return self.decision.verdict.verdict == "update"

    @property
    def changes(self) -> bool:
        """Whether a commit has to say something of it: the image, or what is remembered of it."""
        return self.updates or self.remember is not None

    @property
    def change(self) -> Change:
        """What it changes, as templates and messages say it."""
        return change_of(self.decision, self.build, self.labels)

    def without_effect(self, verdict: Verdict) -> Move:
        """The same decision with this verdict. It writes and remembers nothing."""
        return Move(replace(self.decision, verdict=verdict))

    def failed(self, error: TaskError) -> Move:
        """Nothing is written because of this error."""
        return Move(failed(self.decision, error))


def error_decision(sub: Subscription, image: Image, error: TaskError, branch: str = "") -> Decision:
    """A decision about a subscription that could not be looked at. `branch` is the base branch, where it is known."""
    return failed(Decision(sub, image, Verdict("error", error.rule, ""), branch=branch, head=branch), error)


def failed(decision: Decision, error: TaskError) -> Decision:
    """The decision, turned into that error. What is wrong with a file names the file."""
    of_a_file = isinstance(error, TargetError)
    message = str(error) if of_a_file else error.message
    current = decision.current
    if of_a_file and error.subject and not current.file:
        current = replace(current, file=error.subject)
    verdict = Verdict("error", error.rule, message, error.hint, int(error.exit))
    return replace(decision, verdict=verdict, current=current)


def change_of(one: Decision, build: Build = Build(), labels: Mapping[str, str] | None = None) -> Change:
    """What an update changes, as templates and messages say it; with what is known of its build and labels."""
    return Change(
        image=one.subscription.entry.image,
        alias=one.subscription.entry.alias,
        old_tag=one.current.tag,
        new_tag=one.candidate.tag,
        old_digest=one.current.digest,
        new_digest=one.candidate.digest,
        labels=labels or {},
        build=build,
    )
