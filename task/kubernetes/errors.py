"""Turns answers of the Kubernetes API into our errors. For a missing right, the error shows the rule that grants it."""

from __future__ import annotations

from dataclasses import dataclass

from task.errors import AbsentError, SourceAccessError, SourceDownError, SourceError, TaskError, UsageError
from task.http import NoAnswerError, Response
from task.text import one_line
from task.urls import origin

_LONGEST = 300  # characters of a server's message
_AGAIN = "run it again"


class ForbiddenError(SourceAccessError):
    """The server knows us, but forbids this (403)."""


@dataclass(frozen=True)
class Act:
    """An attempted request, in the words of Kubernetes' access control."""

    verb: str  # "get", "list", "patch", "create"
    group: str
    resource: str  # plural
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        where = f" in namespace {self.namespace!r}" if self.namespace else " in all namespaces"
        which = f" {self.name!r}" if self.name else ""
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}{which}{where}"

    @property
    def rule(self) -> str:
        """The rule of a Role or ClusterRole that grants it."""
        kind = f"a Role of namespace {self.namespace!r}" if self.namespace else "a ClusterRole"
        return f'{kind} needs {{apiGroups: ["{self.group}"], resources: [{self.resource}], verbs: [{self.verb}]}}'


def problem(answer: Response, act: Act, who: str) -> TaskError:
    """Return the error for an unsuccessful answer."""
    said, status = sentence(answer), answer.status
    words = f": {said}" if said else ""
    if status == 401:
        return SourceAccessError(
            f"the Kubernetes API at {origin(answer.url)} does not accept {who} (401){words}",
            hint="renew its token or certificate, and check it: kubectl auth whoami",
        )
    if status == 403:
        return ForbiddenError(f"{who} may not {act}{words}", hint=act.rule)
    if status == 429 or status >= 500:
        return SourceDownError(f"the Kubernetes API cannot {act} now ({status}){words}", hint=_AGAIN)
    if status == 404:
        if act.group != "argoproj.io" or act.name:
            return AbsentError(
                f"there is nothing to {act}", hint="check the name, and whether it was deleted meanwhile"
            )
        return SourceAccessError(
            f"Argo CD is not installed here: {origin(answer.url)} does not have {act.resource}.{act.group}",
            hint="check which cluster the kubeconfig names: kubectl config current-context",
        )
    if status == 400 and act.verb == "list":
        return UsageError(f"the Kubernetes API cannot {act} like this{words}", hint="check --selector and --namespace")
    return SourceError(
        f"the Kubernetes API does not {act} ({status}){words}",
        hint="correct what it names, or let an administrator of the cluster look",
    )


def no_answer(error: NoAnswerError, act: Act) -> TaskError:
    """Return the error for a missing answer."""
    if error.kind == "tls":
        return SourceAccessError(error.message, hint="give the cluster's certificate authority in the kubeconfig")
    if error.kind == "large":
        return SourceAccessError(
            f"{error.message} to {act}", hint="check the server's address: no Kubernetes API does this"
        )
    if error.kind == "redirect":
        return SourceAccessError(error.message, hint="check the server's address in the kubeconfig")
    return SourceDownError(f"cannot {act}: {error.message}", hint=_AGAIN)


def foreign(answer: Response) -> TaskError:
    """Return the error for a success that does not come from a Kubernetes API, such as a login page of a proxy."""
    kind = "".join(char for char in answer.headers.get("Content-Type", "nothing") if char.isprintable())
    return SourceAccessError(
        f"{origin(answer.url)} answers with {kind.partition(';')[0][:80]}: that is not a Kubernetes API",
        hint="correct the server's address in the kubeconfig; if it is right, let the runner past the proxy or login "
        "page in front of it",
    )


def sentence(answer: Response) -> str:
    """Return the message of a `Status` as one printable line, or "" if there is none."""
    message = status_of(answer).get("message")
    text = message if isinstance(message, str) else ""
    return one_line(text)[:_LONGEST]


def status_of(answer: Response) -> dict[str, object]:
    """Return the `Status` object of an unsuccessful answer, or an empty one."""
    try:
        body = answer.json()
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) and body.get("kind") == "Status" else {}
