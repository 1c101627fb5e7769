"""What `check` compares: what the options say, else what the CI system's variables say.

Only the event file of Actions is read from the disk. A job that runs for no request has nothing to
compare, and that is an error: to compare a branch with itself would be green for every change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from task.ci.variables import filled, origin_of
from task.ci_systems import SYSTEMS
from task.errors import UsageError
from task.files import read_text
from task.model import Compared
from task.plain_data import parsed_json
from task.settings import CheckOptions
from task.urls import host_and_path

BRANCHES = "refs/heads/"
LONGEST = 500  # characters of a name
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


# GitHub, Gitea and Forgejo: the member of the event's file, and what it names.
# https://docs.github.com/webhooks/webhook-events-and-payloads
EVENTS: Mapping[str, tuple[str, str, str]] = {
    # the merge queue: the base is what the requests before this one make of the branch
    "merge_group": ("base_sha", "base_ref", "head_sha"),
    # pull_request_target as well, whose GITHUB_SHA is the base
    "pull_request": ("", "base.ref", "head.sha"),
}
GIVE = "give --base, such as origin/main"


def compared_of(given: CheckOptions, environ: Mapping[str, str]) -> Compared:
    """Return what `check` compares. Raises `UsageError` if neither options nor variables say it.

    What an option names wins over the variables.
    """
    for option, text in (("--base", given.base), ("--head", given.head)):
        if text and not _is_name(text):
            hint = "write the name of a branch, or the id of a commit"
            raise UsageError(f"{option}: {text[:100]!r} names no commit", hint=hint)
    if given.base:
        if given.repository and not given.head:
            raise UsageError("--head is missing", hint="name the branch or commit of the change")
        return Compared(given.base, given.head or "HEAD", given.repository)
    known = {variable: text.strip() for variable, text in environ.items() if text.strip()}
    found = _request_of_actions(known) if "GITHUB_REPOSITORY" in known else _of_variables(known)
    if given.repository and not _is_own(given.repository, known):
        hint = "give --base and --head: the CI system's variables are about another repository"
        raise UsageError("--base is missing", hint=hint)
    head = given.head or found.head
    merge = "" if given.head else found.merge
    return found._replace(head=head, merge=merge).compared(given.repository)


class _Request(NamedTuple):
    """What the request of a job compares: a commit or a branch, with the head."""

    base: str
    branch: str
    head: str
    merge: str = ""

    def compared(self, repository: str) -> Compared:
        """Return it. Raises `UsageError` if it cannot be the name of a branch or commit."""
        branch = self.branch.removeprefix(BRANCHES)
        for text in (self.base or branch, branch, self.head):
            if not _is_name(text):
                message = (
                    f"--base is missing: the CI system names {text[:100]!r}, which is not a commit"
                )
                raise UsageError(message, hint=f"{GIVE}, and --head")
        merge = self.merge if _COMMIT.fullmatch(self.merge) else ""
        return Compared(self.base or branch, self.head, repository, branch, merge)


def _of_variables(known: Mapping[str, str]) -> _Request:
    found = (system for system in SYSTEMS if system.situations and system.marker in known)
    system = next(found, None)
    if system is None:
        message = "--base is missing: no variable of a CI system contains a pull request"
        raise UsageError(message, hint=f"{GIVE}; without --head, it is HEAD")
    for item in system.situations:
        variable, value = item.when
        if variable and known.get(variable) != value:
            continue
        head = filled(item.head, known)
        branch = filled(item.branch, known)
        base = filled(item.base, known)
        if head and branch and (base or not item.base):
            return _Request(base, branch, head, filled(item.merge, known))
    last = system.situations[-1]
    message = (
        f"--base is missing: this job does not run for a pull request: {last.branch[1:-1]} is"
        " not set"
    )
    raise UsageError(message, hint=f"{GIVE}, or run it for pull requests")


def _request_of_actions(known: Mapping[str, str]) -> _Request:
    """Return what the event of a workflow says. It alone is right for all kinds of requests."""
    path = known.get("GITHUB_EVENT_PATH", "")
    name = known.get("GITHUB_EVENT_NAME", "")
    event = _event_file(path)
    for member, (base, branch, head) in EVENTS.items():
        request = event.get(member)
        if request and (_member(request, base) or not base):
            return _Request(
                base=_member(request, base),
                branch=_member(request, branch),
                head=_member(request, head),
                merge="" if base else known.get("GITHUB_SHA", ""),
            )
    why = f"the event {name!r} names none" if path else "GITHUB_EVENT_PATH is not set"
    raise UsageError(
        f"--base is missing: this job does not run for a pull request: {why}",
        hint=f"{GIVE}, or start the workflow on: pull_request or merge_group",
    )


def _event_file(path: str) -> Mapping[str, Any]:
    """Return the event's file; empty if there is none."""
    try:
        event: Any = parsed_json(read_text(path)) if path else {}
    except (OSError, ValueError) as error:
        message = f"--base is missing: the event file {path[:200]!r} (GITHUB_EVENT_PATH): {error}"
        raise UsageError(message, hint=GIVE) from None
    return event if isinstance(event, dict) else {}


def _member(item: Any, names: str) -> str:
    """Return the text of a member, or "" if there is none."""
    for name in names.split("."):
        item = item.get(name) if isinstance(item, dict) else None
    return item if isinstance(item, str) else ""


def _is_name(text: str) -> bool:
    """Tell whether git can take the text as the name of a commit, and as nothing else."""
    return bool(text) and text.isprintable() and len(text) <= LONGEST and text[0] not in "-:^"


def _is_own(repository: str, known: Mapping[str, str]) -> bool:
    own = (origin_of(known).repository, known.get("CI_MERGE_REQUEST_PROJECT_URL", ""))
    return host_and_path(repository) in [host_and_path(url) for url in own if url]
