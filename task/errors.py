"""The errors: one class for each kind of person who acts, each with its exit code.

Users' pipelines rely on the codes (README, "Exit codes"), and only this file knows them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar, Literal


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

    def about(self, subject: str) -> TaskError:
        """Return the same error with this subject."""
        return type(self)(self.message, hint=self.hint, subject=subject)

    def __str__(self) -> str:
        where = f"{self.subject}: " if self.subject else ""
        return f"{where}{self.message}"


class UsageError(TaskError):
    """The command line or its variables are wrong: the pipeline's author acts."""

    exit = Exit.USAGE
    rule = "usage"


class AnnotationError(TaskError):
    """An annotation is wrong: the Application's owner acts."""

    exit = Exit.CONFIGURATION
    rule = "annotation"


class TargetError(TaskError):
    """The file to write cannot be edited safely: the Application's owner acts."""

    exit = Exit.CONFIGURATION
    rule = "target"


class NotPermittedError(TargetError):
    """Annotations ask for a file that they may not write: the Application's owner,
    or the repository's, acts.
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
    """Login, key, host key or certificate were not accepted: the platform team acts."""

    exit = Exit.ACCESS
    rule = "credentials"


class UnreachableError(TaskError):
    """The Git server could not be reached or broke off: running again may help."""

    exit = Exit.TEMPORARY
    rule = "repository"


class ExhaustedError(UnreachableError):
    """This machine has no more of something, such as open files: running again may help."""


class RegistryError(TaskError):
    """A fact that a rule needs is not available from the registry or the event."""

    exit = Exit.CONFIGURATION
    rule = "registry"


class RegistryDownError(RegistryError):
    """The registry could not be reached or broke off: running again may help."""

    exit = Exit.TEMPORARY


class RegistryAccessError(RegistryError):
    """The registry's login or certificate was not accepted: the platform team acts."""

    exit = Exit.ACCESS


class TamperedError(RegistryError):
    """The bytes of a registry's answer do not fit their digest: somebody changed them."""


class SourceDownError(SourceError):
    """The Kubernetes or Argo CD API could not be reached or broke off: running again may help."""

    exit = Exit.TEMPORARY


class AbsentError(SourceError):
    """There is no such object, or the cluster does not know its kind."""


class SourceAccessError(SourceError):
    """The Kubernetes or Argo CD API did not accept our login, or our request:
    the platform team acts.
    """

    exit = Exit.ACCESS


class ForgeError(RepositoryError):
    """The forge refused the pull request as it is: the Application's owner acts."""

    exit = Exit.CONFIGURATION


class RolloutError(TaskError):
    """Argo CD did not get the revision synced and healthy: the developer acts."""

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
        self, kind: Literal["unreachable", "tls", "slow", "large", "redirect"], message: str
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
