"""Finds out which pull request a CI job runs for, from the CI system's variables and GitHub's event file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from task.ci.variables import filled
from task.errors import UsageError
from task.files import read_text

_NUMBER = re.compile(r"[0-9]{1,18}")
_PAGE = re.compile(r"https://[^\s?#]+/(?:pull|pull-requests|merge_requests)/([0-9]{1,18})")
_REF = re.compile(r"refs/pull/([0-9]{1,18})/(?:merge|head)")


class RequestEvent(NamedTuple):
    """The pull request that a job runs for."""

    repository: str  # its URL
    number: str


class RequestVariables(NamedTuple):
    """The variables of a CI system for the pull request."""

    system: str  # the variable that distinguishes this system from others
    numbers: tuple[str, ...]  # variables; the first that is set counts
    repositories: tuple[str, ...]  # templates of variables
    hint: str


_PIPELINE = "run it in a pipeline that is started by a pull request"
SYSTEMS = (
    RequestVariables(
        "GITLAB_CI",
        ("CI_MERGE_REQUEST_IID",),
        ("{CI_MERGE_REQUEST_PROJECT_URL}", "{CI_PROJECT_URL}"),
        "run it in a merge request pipeline: rules: [{if: $CI_PIPELINE_SOURCE == 'merge_request_event'}]",
    ),
    RequestVariables(
        "BITBUCKET_BUILD_NUMBER",
        ("BITBUCKET_PR_ID",),
        ("{BITBUCKET_GIT_HTTP_ORIGIN}",),
        "put it under pull-requests: in bitbucket-pipelines.yml",
    ),
    RequestVariables(  # for GitHub's repositories, the number is set, and the id is something else
        "TF_BUILD",
        ("SYSTEM_PULLREQUEST_PULLREQUESTNUMBER", "SYSTEM_PULLREQUEST_PULLREQUESTID"),
        ("{BUILD_REPOSITORY_URI}",),
        _PIPELINE,
    ),
    RequestVariables("CIRCLECI", ("CIRCLE_PULL_REQUEST",), ("{CIRCLE_REPOSITORY_URL}",), _PIPELINE),
    RequestVariables("JENKINS_URL", ("CHANGE_ID",), ("{GIT_URL}",), _PIPELINE),
    RequestVariables("BUILDKITE", ("BUILDKITE_PULL_REQUEST",), ("{BUILDKITE_REPO}",), _PIPELINE),
    RequestVariables("DRONE", ("DRONE_PULL_REQUEST",), ("{DRONE_REPO_LINK}",), _PIPELINE),
    RequestVariables("CI_REPO_URL", ("CI_COMMIT_PULL_REQUEST",), ("{CI_REPO_URL}",), _PIPELINE),  # Woodpecker
)


def request_event(environ: Mapping[str, str]) -> RequestEvent:
    """Return the pull request of this job. Raises `UsageError`, which names the variables that are missing."""
    known = {name: text.strip() for name, text in environ.items() if text.strip()}
    if "GITHUB_REPOSITORY" in known:  # Gitea's and Forgejo's runners set GitHub's names
        return _of_actions(known)
    for one in SYSTEMS:
        if one.system not in known:
            continue
        number = next((known[name] for name in one.numbers if name in known), "")
        if match := _PAGE.fullmatch(number):  # CircleCI has the page
            number = match[1]
        if not _NUMBER.fullmatch(number):
            said = f"is {number[:100]!r}" if number else "is not set"
            raise UsageError(f"--comment: this job runs for no pull request: {one.numbers[-1]} {said}", hint=one.hint)
        repository = next(filter(None, (filled(text, known) for text in one.repositories)), "")
        if not repository:
            names = " or ".join(text.strip("{}") for text in one.repositories)
            raise UsageError("--comment: the pull request's repository is not known", hint=f"set {names}")
        return RequestEvent(repository, number)
    names = ", ".join(("GITHUB_REF", *(one.numbers[-1] for one in SYSTEMS)))
    raise UsageError(
        "--comment: no variable of a CI system names a pull request",
        hint=f"run it in a job of a pull request, or set one of {names}",
    )


def _of_actions(known: Mapping[str, str]) -> RequestEvent:
    """Return the pull request in the reference, else the one in the event.

    In `pull_request_target`, the reference is the base branch.
    """
    repository = filled("{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}", known)
    if not repository:
        raise UsageError("--comment: the pull request's repository is not known", hint="set GITHUB_SERVER_URL")
    reference, path = known.get("GITHUB_REF", ""), known.get("GITHUB_EVENT_PATH", "")
    if match := _REF.fullmatch(reference):
        return RequestEvent(repository, match[1])
    if number := _in_the_event(path):
        return RequestEvent(repository, number)
    event = f"the event file {path[:200]!r} (GITHUB_EVENT_PATH) names none" if path else "GITHUB_EVENT_PATH is not set"
    raise UsageError(
        f"--comment: this job runs for no pull request: GITHUB_REF is {reference[:200]!r}, and {event}",
        hint="run it in a workflow that is started on: pull_request",
    )


def _in_the_event(path: str) -> str:
    """Return the number in the event's file, or "" if there is none, or the file cannot be read."""
    try:
        event: Any = json.loads(read_text(path)) if path else {}
        request = event.get("pull_request") or (event["issue"] if event.get("issue", {}).get("pull_request") else {})
        number = str(request.get("number", ""))
    except (OSError, ValueError, RecursionError, AttributeError, TypeError):
        return ""
    return number if _NUMBER.fullmatch(number) else ""
