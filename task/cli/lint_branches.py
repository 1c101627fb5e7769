"""Asks the Git hosts, for `lint`, who may push the branches of requests and the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from task import DOCS
from task.annotations.lint import Finding, noted
from task.errors import TaskError
from task.forges.host import Host
from task.git.names import MEMORY, OURS
from task.model import Subscription
from task.text import printable
from task.urls import without_login

# A branch of each kind: Git hosts tell for a name whether a pattern protects it.
_NAMES = (f"{OURS}lint", f"{MEMORY}lint")
HINT = f"let only this login push image-update*/**: {DOCS}/how-to/protect-the-branches.md"


def open_branches(
    subs: Iterable[Subscription],
    host_of: Callable[[str], Host | None],
) -> Iterator[Finding]:
    """Yield a warning for each repository with requests or head branches that others may push.

    Nothing is reported where there is no token for the Git host's API, no permission to read its
    rules, or no answer.
    """
    repos = dict.fromkeys(sub.repo for sub in subs if sub.pull_request or sub.head_template)
    for repo in repos:
        names = _open(repo, host_of)
        if names:
            told = " and ".join(f"{head.removesuffix('lint')}**" for head in names)
            message = (
                f"{printable(without_login(repo))}: others may push {told}, "
                "and so change what is proposed and what is held"
            )
            yield Finding(noted("warning", message, HINT))


def _open(repo: str, host_of: Callable[[str], Host | None]) -> list[str]:
    with suppress(TaskError):
        host = host_of(repo)
        return [head for head in _NAMES if host.open_to_others(head)] if host else []
    return []
