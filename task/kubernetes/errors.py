"""What the Kubernetes API says → our errors: who acts, and for a missing right the very rule that grants it."""

from __future__ import annotations

from dataclasses import dataclass

from task.errors import AbsentError, SourceAccessError, SourceDownError, SourceError, TaskError, UsageError
from task.http import NoAnswerError, Response
from task.text import one_line
from task.urls import origin

_LONGEST = 300  # characters of what a server says
_AGAIN = "run it again"


class ForbiddenError(SourceAccessError):
    """We are known, but may not do this (403)."""


@dataclass(frozen=True)
class Act:
    """What was tried, in the words of Kubernetes' access control."""

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
    """The error of a status that is no success."""
    said, status = sentence(answer), answer.status
    words = f": {said}" if said else ""
    if status == 401:
        return SourceAccessError(
            f"the Kubernetes API at {origin(answer.url)} does not accept {who} (401){words}",
            hint="its token or certificate is wrong or has expired: kubectl auth whoami",
        )
    if status == 403:
        return ForbiddenError(f"{who} may not {act}{words}", hint=act.rule)
    if status == 429 or status >= 500:
        return SourceDownError(f"the Kubernetes API cannot {act} now ({status}){words}", hint=_AGAIN)
    if status == 404:
        if act.group != "argoproj.io" or act.name:
            return AbsentError(f"there is nothing to {act}", hint="it may have been deleted meanwhile")
        return SourceAccessError(
            f"Argo CD is not installed here: {origin(answer.url)} knows no {act.resource}.{act.group}",
            hint="check which cluster the kubeconfig names: kubectl config current-context",
        )
    if status == 400 and act.verb == "list":
        return UsageError(f"the Kubernetes API cannot {act} like this{words}", hint="check --selector and --namespace")
    return SourceError(f"the Kubernetes API does not {act} ({status}){words}", hint="see what it says")


def no_answer(error: NoAnswerError, act: Act) -> TaskError:
    """The error of an answer that did not come."""
    if error.kind == "tls":
        return SourceAccessError(error.message, hint="give the cluster's certificate authority in the kubeconfig")
    if error.kind == "large":
        return SourceAccessError(f"{error.message} to {act}", hint="no Kubernetes API does: check the server's address")
    if error.kind == "redirect":
        return SourceAccessError(error.message, hint="check the server's address in the kubeconfig")
    return SourceDownError(f"cannot {act}: {error.message}", hint=_AGAIN)


def foreign(answer: Response) -> TaskError:
    """The error of a success that no Kubernetes API says: a login page, a proxy's own words."""
    kind = "".join(char for char in answer.headers.get("Content-Type", "nothing") if char.isprintable())
    return SourceAccessError(
        f"{origin(answer.url)} answers with {kind.partition(';')[0][:80]}: that is not a Kubernetes API",
        hint="check the server's address, and whether a proxy or a login page is in front of it",
    )


def sentence(answer: Response) -> str:
    """What the `Status` says, as one printable line; "" where there is none."""
    message = status_of(answer).get("message")
    text = message if isinstance(message, str) else ""
    return one_line(text)[:_LONGEST]


def status_of(answer: Response) -> dict[str, object]:
    """The `Status` object of an answer that is no success; empty where there is none."""
    try:
        body = answer.json()
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) and body.get("kind") == "Status" else {}
