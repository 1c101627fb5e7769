"""The error classes, one for each audience and exit code.

Pipelines rely on the exit codes (docs/reference.md), which are defined only here.
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
    TEMPORARY = 75  # EX_TEMPFAIL in sysexits.h; Argo Workflows' executor exits with 64 and 65
    INTERRUPTED = 130
    TERMINATED = 143


@dataclass(frozen=True)
class Trouble:
    """A problem, how to fix it, and its effect on the run's exit code."""

    rule: str  # the kind of trouble, as named in reports
    message: str
    hint: str = ""
    severity: Severity = "error"
    # the exit code of a run with this error; warnings do not change it
    exit: Exit = Exit.CONFIGURATION

    @classmethod
    def warning(cls, rule: str, message: str, hint: str = "") -> Trouble:
        """Return a warning, which never changes the exit code."""
        return cls(rule, message, hint, "warning", Exit.OK)

    def as_warning(self) -> Trouble:
        """Return this trouble as a warning."""
        return self.warning(self.rule, self.message, self.hint)


class Troubled:
    """A record that locates a trouble. The trouble's fields are also available on the record
    itself.
    """

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
        """What to do about the trouble."""
        return self.trouble.hint

    @property
    def severity(self) -> Severity:
        """The severity of the trouble: "error", "warning", or "info"."""
        return self.trouble.severity

    @property
    def exit(self) -> Exit:
        """The exit code of a run with this error."""
        return self.trouble.exit


class Malformed(ValueError):
    """A value in an external format that cannot be parsed. The caller knows where the value comes
    from.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class TaskError(Exception):
    """An error that a person can act on: what is wrong (`message`), where (`subject`), and what to
    do about it (`hint`).
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
        """The error as a `Trouble`. Its message starts with the subject."""
        return Trouble(self.rule, str(self), self.hint, exit=self.exit)

    def saying(self, message: str) -> Trouble:
        """Return the error as a `Trouble` with this message."""
        return Trouble(self.rule, message, self.hint, exit=self.exit)

    def about(self, subject: str) -> TaskError:
        """Return a copy of the error with this subject."""
        return type(self)(self.message, hint=self.hint, subject=subject)

    def __str__(self) -> str:
        return f"{self.subject}: {self.message}" if self.subject else self.message


class UsageError(TaskError):
    """The command line or its variables are invalid. Addressed to the pipeline's author."""

    exit = Exit.USAGE
    rule = "usage"


class AnnotationError(TaskError):
    """An annotation is invalid. Addressed to the Application's owner."""

    exit = Exit.CONFIGURATION
    rule = "annotation"


class TargetError(TaskError):
    """The file to write cannot be edited safely. Addressed to the Application's owner."""

    exit = Exit.CONFIGURATION
    rule = "target"


class NotPermittedError(TargetError):
    """An Application is not allowed to write to a file. Addressed to the owner of the Application
    or of the repository.
    """

    rule = "not-permitted"


class SourceError(TaskError):
    """The Application's source (path, branch, type) does not allow a write-back."""

    exit = Exit.CONFIGURATION
    rule = "source"


class RepositoryError(TaskError):
    """The Git repository permanently rejected the operation, because of a hook, a protected branch,
    a missing repository, or a missing permission.
    """

    exit = Exit.ACCESS
    rule = "repository"


class CredentialsError(TaskError):
    """The credentials, key, host key, or certificate were not accepted. Addressed to the platform
    team.
    """

    exit = Exit.ACCESS
    rule = "credentials"


class UnreachableError(TaskError):
    """The Git server could not be reached or closed the connection. Running again may help."""

    exit = Exit.TEMPORARY
    rule = "repository"


class ExhaustedError(UnreachableError):
    """This machine has run out of a resource, such as open files. Running again may help."""


class RegistryError(TaskError):
    """A fact that a rule needs is not available from the registry or the event."""

    exit = Exit.CONFIGURATION
    rule = "registry"


class RegistryDownError(RegistryError):
    """The registry could not be reached or closed the connection. Running again may help."""

    exit = Exit.TEMPORARY


class RegistryAccessError(RegistryError):
    """The registry credentials or certificate were not accepted. Addressed to the platform team."""

    exit = Exit.ACCESS


class TamperedError(RegistryError):
    """The bytes in a registry's response do not match their digest: they have been
    tampered with.
    """


class SourceDownError(SourceError):
    """The Kubernetes or Argo CD API could not be reached or closed the connection. Running again
    may help.
    """

    exit = Exit.TEMPORARY


class AbsentError(SourceError):
    """The object does not exist, or the cluster does not know its kind."""


class SourceAccessError(SourceError):
    """The Kubernetes or Argo CD API did not accept our credentials or our request. Addressed to the
    platform team.
    """

    exit = Exit.ACCESS


class ForgeError(RepositoryError):
    """The forge rejected the pull request. Addressed to the Application's owner."""

    exit = Exit.CONFIGURATION


class RolloutError(TaskError):
    """The revision did not become Synced and Healthy in Argo CD, or its pull request was closed or
    not merged in time. Addressed to the developer.
    """

    exit = Exit.ROLLOUT
    rule = "rollout"


class ContendedError(TaskError):
    """Other pushes kept moving the branch until the deadline. Running again may help."""

    exit = Exit.TEMPORARY
    rule = "contended"


class Outpaced(Exception):
    """Someone else was faster: the branch, Application, or request changed after it was read.

    Users never see this error: `pipeline.deliver` and `landing.live` catch it and decide again.
    """


class NoAnswerError(Exception):
    """No response was received. `kind` is the reason. The caller converts this to one of the errors
    above.
    """

    def __init__(
        self,
        kind: Literal["unreachable", "tls", "slow", "large", "redirect"],
        message: str,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class NotAtomicError(Exception):
    """The server cannot update two branches in a single push.

    Never raised outside `landing`, which then pushes the branches one by one.
    """


# If a run has several errors, the first of their exit codes in this order wins. A defect comes
# first, because nothing else can be trusted then. Errors that another run may resolve (75) come
# before those that people have to fix.
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
    """Return the exit code of a run with these troubles: whichever of the errors' codes comes first
    in `PRECEDENCE`, or 0 if there are no errors.

    `before` is the run's exit code without these troubles. It ranks like an error's code.
    """
    # an error without its own exit code counts as a configuration error
    codes = {
        trouble.exit or Exit.CONFIGURATION for trouble in troubles if trouble.severity == "error"
    }
    for code in PRECEDENCE:
        if code in codes or code == before:
            return code
    has_other_code = bool(codes or before)  # the code is not in `PRECEDENCE`
    return Exit.DEFECT if has_other_code else Exit.OK
