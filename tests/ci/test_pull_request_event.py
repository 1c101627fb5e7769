"""The pull request that a CI job runs for, as each CI system tells it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from task.ci.variables import request_event
from task.errors import UsageError

ACTIONS = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "acme/web"}
GITLAB = {"GITLAB_CI": "true", "CI_PROJECT_URL": "https://gitlab.com/fork/web"}
CLOUD = {"BITBUCKET_BUILD_NUMBER": "4", "BITBUCKET_GIT_HTTP_ORIGIN": "https://bitbucket.org/acme/web"}
AZURE = {"TF_BUILD": "True", "BUILD_REPOSITORY_URI": "https://github.com/acme/web"}
CIRCLE = {"CIRCLECI": "true", "CIRCLE_REPOSITORY_URL": "git@github.com:acme/web.git"}
OF_ACME, OF_TARGET = "https://github.com/acme/web", "https://gitlab.com/acme/web"
FOUND: list[tuple[Mapping[str, str], tuple[str, str]]] = [
    ({**ACTIONS, "GITHUB_REF": "refs/pull/12/merge"}, (OF_ACME, "12")),
    ({**ACTIONS, "GITHUB_REF": "refs/pull/12/head", "GITEA_ACTIONS": "true"}, (OF_ACME, "12")),
    ({**GITLAB, "CI_MERGE_REQUEST_IID": " 7\n"}, ("https://gitlab.com/fork/web", "7")),
    ({**GITLAB, "CI_MERGE_REQUEST_IID": "7", "CI_MERGE_REQUEST_PROJECT_URL": OF_TARGET}, (OF_TARGET, "7")),
    ({**CLOUD, "BITBUCKET_PR_ID": "3"}, ("https://bitbucket.org/acme/web", "3")),
    ({**AZURE, "SYSTEM_PULLREQUEST_PULLREQUESTID": "99", "SYSTEM_PULLREQUEST_PULLREQUESTNUMBER": "5"}, (OF_ACME, "5")),
    ({**AZURE, "SYSTEM_PULLREQUEST_PULLREQUESTID": "99"}, (OF_ACME, "99")),
    ({**CIRCLE, "CIRCLE_PULL_REQUEST": "https://github.com/acme/web/pull/8"}, ("git@github.com:acme/web.git", "8")),
    ({"JENKINS_URL": "https://ci", "CHANGE_ID": "8", "GIT_URL": OF_ACME}, (OF_ACME, "8")),
    ({"BUILDKITE": "true", "BUILDKITE_PULL_REQUEST": "8", "BUILDKITE_REPO": OF_ACME}, (OF_ACME, "8")),
    ({"DRONE": "true", "DRONE_PULL_REQUEST": "8", "DRONE_REPO_LINK": OF_ACME}, (OF_ACME, "8")),
    ({"CI_REPO_URL": OF_ACME, "CI_COMMIT_PULL_REQUEST": "8"}, (OF_ACME, "8")),
]


@pytest.mark.parametrize(("environ", "expected"), FOUND)
def test_variables(environ: Mapping[str, str], expected: tuple[str, str]) -> None:
    assert request_event(environ) == expected


EVENTS: list[tuple[Any, str]] = [
    ({"pull_request": {"number": 12}}, "12"),  # pull_request_target: the reference is the base branch
    ({"issue": {"number": 12, "pull_request": {"url": "x"}}}, "12"),  # a comment on a request
    ({"issue": {"number": 12}}, ""),  # a comment on an issue
    ({"pull_request": {"number": "../../1"}}, ""),
    ({"pull_request": {"number": -1}}, ""),
    ({"pull_request": [1]}, ""),
    ({"ref": "refs/heads/main"}, ""),
    ([], ""),
    ("[" * 100_000, ""),
    ("no JSON", ""),
]


@pytest.mark.parametrize(("event", "number"), EVENTS)
def test_the_event_file_of_actions(tmp_path: Path, event: Any, number: str) -> None:
    path = tmp_path / "event.json"
    path.write_text(event if isinstance(event, str) else json.dumps(event))
    environ = {**ACTIONS, "GITHUB_REF": "refs/heads/main", "GITHUB_EVENT_PATH": str(path)}
    if number:
        assert request_event(environ) == (OF_ACME, number)
        return
    with pytest.raises(UsageError, match=r"GITHUB_REF is 'refs/heads/main', and the event file .*GITHUB_EVENT_PATH"):
        request_event(environ)


NOT_FOUND: list[tuple[Mapping[str, str], str, str]] = [
    ({}, "no variable of a CI system", "CI_MERGE_REQUEST_IID"),
    ({**ACTIONS, "GITHUB_REF": "refs/heads/main"}, "GITHUB_EVENT_PATH is not set", "on: pull_request"),
    ({**ACTIONS, "GITHUB_EVENT_PATH": "/absent"}, "the event file '/absent'", "on: pull_request"),
    ({"GITHUB_REPOSITORY": "acme/web", "GITHUB_REF": "refs/pull/1/merge"}, "not known", "GITHUB_SERVER_URL"),
    (GITLAB, "CI_MERGE_REQUEST_IID is not set", "merge_request_event"),
    ({"GITLAB_CI": "true", "CI_MERGE_REQUEST_IID": "7"}, "not known", "CI_MERGE_REQUEST_PROJECT_URL or CI_PROJECT_URL"),
    ({**GITLAB, "CI_MERGE_REQUEST_IID": "7/../8"}, "CI_MERGE_REQUEST_IID is '7/../8'", "merge_request_event"),
    ({"BUILDKITE": "true", "BUILDKITE_PULL_REQUEST": "false"}, "BUILDKITE_PULL_REQUEST is 'false'", "pull request"),
    (CLOUD, "BITBUCKET_PR_ID is not set", "pull-requests:"),
    ({**CIRCLE, "CIRCLE_PULL_REQUEST": "https://x/pull/1/../2"}, "CIRCLE_PULL_REQUEST is", "pull request"),
    (AZURE, "SYSTEM_PULLREQUEST_PULLREQUESTID is not set", "pull request"),
]


@pytest.mark.parametrize(("environ", "said", "hint"), NOT_FOUND)
def test_no_request(environ: Mapping[str, str], said: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        request_event(environ)
    assert said in caught.value.message
    assert hint in caught.value.hint
