"""Determines the commits that `check` compares, from the options or else from the CI system's
variables.

Only the Actions event file is read from disk. A job that does not run for a request has no commits
to compare. That is an error, because comparing a branch with itself would always pass.
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
LONGEST = 500  # characters in a name
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


# GitHub, Gitea, and Forgejo: the member of the event file, and the keys in that member.
# https://docs.github.com/webhooks/webhook-events-and-payloads
EVENTS: Mapping[str, tuple[str, str, str]] = {
    # the merge queue: the base is the branch plus the requests queued before this one
    "merge_group": ("base_sha", "base_ref", "head_sha"),
    # also pull_request_target, whose GITHUB_SHA is the base
    "pull_request": ("", "base.ref", "head.sha"),
}
GIVE = "set --base, such as origin/main"


def compared_of(options: CheckOptions, environ: Mapping[str, str]) -> Compared:
    """Return the commits that `check` compares: the base and the head of a pull request.

    They come from the options, or else from the CI system's variables. Raises `UsageError` if
    neither specifies them.
    """
    for option, text in (("--base", options.base), ("--head", options.head)):
        if text and not _is_commit_name(text):
            hint = "use a branch name or a commit ID"
            raise UsageError(
                f"{option}: {text[:100]!r} is not a valid branch name or commit ID", hint=hint
            )
    if options.base:
        # the default, HEAD, is the checkout's, not another repository's
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
    if options.head:  # the merge commit in the variables is for a different head
        request = request._replace(head=options.head, merge="")
    return request.compared(options.repository)


class _Request(NamedTuple):
    """The comparison for a job's pull request, as the CI system describes it."""

    base: str  # a commit; "" means the tip of the target branch
    branch: str  # the target branch
    head: str
    merge: str = ""  # the commit that merges the head into the base; "" if unknown

    def compared(self, repository: str) -> Compared:
        """Return the commits to compare in this repository. Raises `UsageError` if a value cannot
        be the name of a branch or commit.
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

    A system has several situations, such as a merge train or an ordinary merge request. Each has
    templates for its values, such as "{CI_COMMIT_SHA}". The first situation whose variables are set
    counts.
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
        # without a template for the base, compare with the tip of the branch
        base_is_missing = bool(situation.base) and not base
        if head and branch and not base_is_missing:
            return _Request(base, branch, head, merge=filled(situation.merge, variables))

    variable = situations[-1].branch.strip("{}")  # an example, for the message
    raise UsageError(
        f"--base is missing: this job is not running for a pull request: {variable} is not set",
        hint=f"{GIVE}, or run it for pull requests",
    )


def _request_of_actions(variables: Mapping[str, str]) -> _Request:
    """Return the pull request that the event file of a GitHub, Gitea, or Forgejo workflow
    describes. Unlike the variables, the event is correct for every kind of request.

    Raises `UsageError` if the job is not running for a pull request.
    """
    path = variables.get("GITHUB_EVENT_PATH", "")
    event = _event_in_file(path)
    for member, (base_key, branch_key, head_key) in EVENTS.items():
        request = event.get(member)
        base = _string_at(request, base_key)  # "" for an event without a key for the base
        # without a key for the base, the tip of the branch is the base
        base_is_missing = bool(base_key) and not base
        if request and not base_is_missing:
            return _Request(
                base=base,
                branch=_string_at(request, branch_key),
                head=_string_at(request, head_key),
                # a merge queue's head is already merged with its base
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
    """Return the content of the event file, or {} if `path` is "" or the content is not an object.

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
    """Return the string at a path such as "base.ref" in a JSON value, or "" if there is none."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def _is_commit_name(text: str) -> bool:
    """Return whether git would interpret the text as the name of a branch or commit, rather than as
    an option, a range, or a pathspec.
    """
    if not text or not text.isprintable() or len(text) > LONGEST:
        return False
    return text[0] not in "-:^"


def _is_repository_of_job(repository: str, variables: Mapping[str, str]) -> bool:
    """Return whether this repository is the job's, or that of its merge request's project,
    according to the CI system's variables.
    """
    job_urls = (
        origin_of(variables).repository,
        variables.get("CI_MERGE_REQUEST_PROJECT_URL", ""),
    )
    return host_and_path(repository) in [host_and_path(url) for url in job_urls if url]
