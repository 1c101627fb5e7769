"""The errors: one class for each kind of reader, each with its exit code.

Users' pipelines rely on the codes (docs/reference.md), and only this file knows them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Literal

Severity = Literal["error", "warning", "info"]


class Exit(IntEnum):
    """Exit codes of the command."""

    OK = 0
    DEFECT = 1
    USAGE = 2
    CONFIGURATION = 3
    ACCESS = 4
    NOTHING_UPDATED = 5
    ROLLOUT = 6
    TEMPORARY = 75  # EX_TEMPFAIL of sysexits.h; Argo Workflows' own executor ends with 64 and 65
    INTERRUPTED = 130
    TERMINATED = 143


@dataclass(frozen=True)
class Trouble:
    """What is wrong, what to do about it, and what it means for the run's exit code."""

    rule: str  # the kind of trouble, as reports name it
    message: str
    hint: str = ""
    severity: Severity = "error"
    exit: Exit = Exit.CONFIGURATION  # of a run with this error; a warning does not change it

    @classmethod
    def warning(cls, rule: str, message: str, hint: str = "") -> Trouble:
        """Return a trouble that never changes the exit code."""
        return cls(rule, message, hint, "warning", Exit.OK)

    def as_warning(self) -> Trouble:
        """Return the same as a warning."""
        return self.warning(self.rule, self.message, self.hint)


class Troubled:
    """A record that says where a trouble is. It shows the trouble's fields as its own."""

    trouble: Trouble

    @property
    def rule(self) -> str:
        """The kind of trouble."""
        return self.trouble.rule

    @property
    def message(self) -> str:
        """What is wrong."""
        return self.trouble.message

    @property
    def hint(self) -> str:
        """What to do about it."""
        return self.trouble.hint

    @property
    def severity(self) -> Severity:
        """Whether it is an error, a warning or an info."""
        return self.trouble.severity

    @property
    def exit(self) -> Exit:
        """The exit code of a run with this error."""
        return self.trouble.exit


class Malformed(ValueError):
    """A text in an outside notation does not parse. The caller knows whose text it is."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class TaskError(Exception):
    """An error that a person can act on: what is wrong (`message`), where (`subject`),
    what to do (`hint`).
    """

    exit: ClassVar[Exit] = Exit.DEFECT
    rule: ClassVar[str] = "internal"

    def __init__(self, message: str, *, hint: str = "", subject: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.subject = subject

    @property
    def trouble(self) -> Trouble:
        """The error as a value: its message begins with the subject."""
        return Trouble(self.rule, str(self), self.hint, exit=self.exit)

    def saying(self, message: str) -> Trouble:
        """Return the error as a value, with this message."""
        return Trouble(self.rule, message, self.hint, exit=self.exit)

    def about(self, subject: str) -> TaskError:
        """Return the same error with this subject."""
        return type(self)(self.message, hint=self.hint, subject=subject)

    def __str__(self) -> str:
        where = f"{self.subject}: " if self.subject else ""
        return f"{where}{self.message}"


class UsageError(TaskError):
    """The command line or its variables are wrong. For the pipeline's author."""

    exit = Exit.USAGE
    rule = "usage"


class AnnotationError(TaskError):
    """An annotation is wrong. For the Application's owner."""

    exit = Exit.CONFIGURATION
    rule = "annotation"


class TargetError(TaskError):
    """The file to write cannot be edited safely. For the Application's owner."""

    exit = Exit.CONFIGURATION
    rule = "target"


class NotPermittedError(TargetError):
    """Annotations ask for a file that they may not write: for the owner
    of the Application, or of the repository.
    """

    rule = "not-permitted"


class SourceError(TaskError):
    """The Application's source (path, branch, type) does not allow a write-back."""

    exit = Exit.CONFIGURATION
    rule = "source"


class RepositoryError(TaskError):
    """The Git repository refused permanently: a hook, a protected branch, not found,
    no permission.
    """

    exit = Exit.ACCESS
    rule = "repository"


class CredentialsError(TaskError):
    """Login, key, host key or certificate were not accepted. For the platform team."""

    exit = Exit.ACCESS
    rule = "credentials"


class UnreachableError(TaskError):
    """The Git server could not be reached or closed the connection: running again may help."""

    exit = Exit.TEMPORARY
    rule = "repository"


class ExhaustedError(UnreachableError):
    """This machine has no more of something, such as open files: running again may help."""


class RegistryError(TaskError):
    """A fact that a rule needs is not available from the registry or the event."""

    exit = Exit.CONFIGURATION
    rule = "registry"


class RegistryDownError(RegistryError):
    """The registry could not be reached or closed the connection: running again may help."""

    exit = Exit.TEMPORARY


class RegistryAccessError(RegistryError):
    """The registry's login or certificate was not accepted. For the platform team."""

    exit = Exit.ACCESS


class TamperedError(RegistryError):
    """The bytes of a registry's answer do not match their digest: somebody changed them."""


class SourceDownError(SourceError):
    """The Kubernetes or Argo CD API could not be reached or closed the connection: running again
    may help.
    """

    exit = Exit.TEMPORARY


class AbsentError(SourceError):
    """There is no such object, or the cluster does not know its kind."""


class SourceAccessError(SourceError):
    """The Kubernetes or Argo CD API did not accept our login, or our request:
    for the platform team.
    """

    exit = Exit.ACCESS


class ForgeError(RepositoryError):
    """The forge refused the pull request as it is. For the Application's owner."""

    exit = Exit.CONFIGURATION


class RolloutError(TaskError):
    """Argo CD did not get the revision synced and healthy. For the developer."""

    exit = Exit.ROLLOUT
    rule = "rollout"


class ContendedError(TaskError):
    """Others kept moving the branch until the deadline: running again may help."""

    exit = Exit.TEMPORARY
    rule = "contended"


class Outpaced(Exception):
    """Somebody else was faster: the branch, Application or request changed after we read it.

    No user sees this error: `pipeline.deliver` and `landing.live` catch it and decide again.
    """


class NoAnswerError(Exception):
    """There is no answer, and `kind` says why. The caller turns it into one of the named errors."""

    def __init__(
        self,
        kind: Literal["unreachable", "tls", "slow", "large", "redirect"],
        message: str,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class NotAtomicError(Exception):
    """The server cannot change two branches in one push.

    Never leaves `landing`: they are pushed one by one.
    """


# If a run has several errors, the first one in this order gives the exit code. A defect comes
# first, because then nothing else can be trusted. What another run may solve (75) comes before what
# people have to change.
PRECEDENCE = (
    Exit.DEFECT,
    Exit.USAGE,
    Exit.TEMPORARY,
    Exit.ACCESS,
    Exit.CONFIGURATION,
    Exit.ROLLOUT,
    Exit.NOTHING_UPDATED,
)


def exit_of(troubles: Iterable[Trouble | Troubled], before: int = Exit.OK) -> Exit:
    """Return the exit code of a run with these troubles: that of the first error in `PRECEDENCE`.

    `before` is the code that the run has without them. An error never ends as a success.
    """
    codes = {
        trouble.exit or Exit.CONFIGURATION for trouble in troubles if trouble.severity == "error"
    }
    return next(
        (code for code in PRECEDENCE if code in codes or code == before),
        Exit.DEFECT if codes or before else Exit.OK,
    )
