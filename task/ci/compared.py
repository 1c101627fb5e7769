"""Determines which commits `check` compares, from the options or else from the CI system's
variables.

Only the Actions event file is read from disk. A job that is not running for a pull request has no
commits to compare. This is an error, because comparing a branch with itself would always pass.
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
LONGEST = 500  # maximum length of a branch or commit name, in characters
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


# For GitHub, Gitea, and Forgejo: a member of the event file → the keys of the base, the target
# branch, and the head in that member. https://docs.github.com/webhooks/webhook-events-and-payloads
EVENTS: Mapping[str, tuple[str, str, str]] = {
    # a merge queue: the base is the target branch plus the requests queued before this one
    "merge_group": ("base_sha", "base_ref", "head_sha"),
    # also for pull_request_target, whose GITHUB_SHA is the base
    "pull_request": ("", "base.ref", "head.sha"),
}
GIVE = "set --base, such as origin/main"


def compared_of(options: CheckOptions, environ: Mapping[str, str]) -> Compared:
    """Return the commits that `check` compares: the base and the head of a pull request.

    The commits are taken from the options, or else from the CI system's variables. Raises
    `UsageError` if neither specifies them.
    """
    for option, text in (("--base", options.base), ("--head", options.head)):
        if text and not _is_commit_name(text):
            hint = "use a branch name or a commit ID"
            raise UsageError(
                f"{option}: {text[:100]!r} is not a valid branch name or commit ID", hint=hint
            )
    if options.base:
        # the default, HEAD, refers to the checkout, not to another repository
        if options.repository and not options.head:
            raise UsageError("--head is missing", hint="set it to the change's branch or commit")
        return Compared(options.base, options.head or "HEAD", options.repository)

    variables = {name: text.strip() for name, text in environ.items() if text.strip()}
    if "GITHUB_REPOSITORY" in variables:
        request = _request_of_actions(variables)
    else:
        request = _request_of_variables(variables)
    if options.repository and not _is_repository_of_job(options.repository, variables):
        hint = "set --base and --head: the CI system's variables are for another repository"
        raise UsageError("--base is missing", hint=hint)
    if options.head:  # the merge commit from the variables belongs to a different head
        request = request._replace(head=options.head, merge="")
    return request.compared(options.repository)


class _Request(NamedTuple):
    """A job's pull request, as the CI system describes it."""

    base: str  # a commit, or "" for the tip of the target branch
    branch: str  # the target branch
    head: str
    merge: str = ""  # the commit that merges the head into the base, or "" if unknown

    def compared(self, repository: str) -> Compared:
        """Return the commits to compare in this repository. Raises `UsageError` if a value cannot
        be a branch name or commit ID.
        """
        branch = self.branch.removeprefix(BRANCHES)
        base = self.base or branch
        for name in (base, branch, self.head):
            if not _is_commit_name(name):
                message = (
                    f"--base is missing: the CI system provides {name[:100]!r}, which is not a"
                    " commit"
                )
                raise UsageError(message, hint=f"{GIVE}, and --head")
        merge = self.merge if _COMMIT.fullmatch(self.merge) else ""
        return Compared(base, self.head, repository, branch, merge)


def _request_of_variables(variables: Mapping[str, str]) -> _Request:
    """Return the pull request that the CI system's variables describe. Raises `UsageError` if the
    job is not running for a pull request.

    A CI system distinguishes several situations, such as a merge train and an ordinary merge
    request. Each situation has templates, such as "{CI_COMMIT_SHA}", for the base, branch, and
    head. The first situation whose variables are set applies.
    """
    systems = [system for system in SYSTEMS if system.situations and system.marker in variables]
    if not systems:
        message = "--base is missing: there are no CI variables for a pull request"
        raise UsageError(message, hint=f"{GIVE}; --head defaults to HEAD")
    situations = systems[0].situations
    for situation in situations:
        condition_variable, required_value = situation.when
        if condition_variable and variables.get(condition_variable) != required_value:
            continue
        head = filled(situation.head, variables)
        branch = filled(situation.branch, variables)
        base = filled(situation.base, variables)
        # if there is no template for the base, compare with the tip of the branch
        base_is_missing = bool(situation.base) and not base
        if head and branch and not base_is_missing:
            return _Request(base, branch, head, merge=filled(situation.merge, variables))

    variable = situations[-1].branch.strip("{}")  # named in the error message as an example
    raise UsageError(
        f"--base is missing: this job is not running for a pull request: {variable} is not set",
        hint=f"{GIVE}, or run it for pull requests",
    )


def _request_of_actions(variables: Mapping[str, str]) -> _Request:
    """Return the pull request described by the event file of a GitHub, Gitea, or Forgejo workflow.
    Unlike the variables, the event file is correct for every kind of request.

    Raises `UsageError` if the job is not running for a pull request.
    """
    path = variables.get("GITHUB_EVENT_PATH", "")
    event = _event_in_file(path)
    for member, (base_key, branch_key, head_key) in EVENTS.items():
        request = event.get(member)
        base = _string_at(request, base_key)  # "" if this kind of event has no key for the base
        # if there is no key for the base, the base is the tip of the branch
        base_is_missing = bool(base_key) and not base
        if request and not base_is_missing:
            return _Request(
                base=base,
                branch=_string_at(request, branch_key),
                head=_string_at(request, head_key),
                # in a merge queue, the head is already merged with its base
                merge="" if base_key else variables.get("GITHUB_SHA", ""),
            )

    why = "GITHUB_EVENT_PATH is not set"
    if path:
        event_name = variables.get("GITHUB_EVENT_NAME", "")
        why = f"the {event_name!r} event has no pull request"
    raise UsageError(
        f"--base is missing: this job is not running for a pull request: {why}",
        hint=f"{GIVE}, or trigger the workflow on pull_request or merge_group",
    )


def _event_in_file(path: str) -> Mapping[str, Any]:
    """Return the content of the event file, or {} if `path` is "" or the content is not a JSON
    object.

    Raises `UsageError` if the file cannot be read.
    """
    if not path:
        return {}
    try:
        event = parsed_json(read_text(path))
    except (OSError, ValueError) as error:
        message = f"--base is missing: the event file {path[:200]!r} (GITHUB_EVENT_PATH): {error}"
        raise UsageError(message, hint=GIVE) from None
    return event if isinstance(event, dict) else {}


def _string_at(value: Any, path: str) -> str:
    """Return the string at a path (such as "base.ref") in a JSON value, or "" if there is none."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def _is_commit_name(text: str) -> bool:
    """Return whether git would interpret the text as a branch name or commit ID, rather than as an
    option, a range, or a pathspec.
    """
    if not text or not text.isprintable() or len(text) > LONGEST:
        return False
    return text[0] not in "-:^"


def _is_repository_of_job(repository: str, variables: Mapping[str, str]) -> bool:
    """Return whether, according to the CI system's variables, this repository is the job's or
    belongs to the merge request's project.
    """
    job_urls = (
        origin_of(variables).repository,
        variables.get("CI_MERGE_REQUEST_PROJECT_URL", ""),
    )
    return host_and_path(repository) in [host_and_path(url) for url in job_urls if url]
