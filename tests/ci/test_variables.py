"""Job information from CI variables: the source, the run, the build, and the pull request."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from task.ci.variables import actor_of, build_of, created_of, origin_of, request_event, sequence_of
from task.ci_systems import SYSTEMS, CiSystem, Origin
from task.errors import Malformed, UsageError
from task.model import Build
from task.settings import EventOptions
from task.timestamps import of_unix, utc

ACTIONS = {
    "GITHUB_SHA": "a1",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "acme/web",
    "GITHUB_RUN_ID": "7",
}


@pytest.mark.parametrize(
    ("environ", "commit", "repository", "run"),
    [
        (ACTIONS, "a1", "https://github.com/acme/web", "https://github.com/acme/web/actions/runs/7"),
        ({**ACTIONS, "CI": "true", "BUILD_URL": "https://elsewhere"}, "a1", "https://github.com/acme/web",
         "https://github.com/acme/web/actions/runs/7"),
        ({"CI_COMMIT_SHA": "b2", "CI_PROJECT_URL": "https://gl/x", "CI_PIPELINE_URL": "https://gl/x/-/pipelines/1"},
         "b2", "https://gl/x", "https://gl/x/-/pipelines/1"),
        ({"CI_COMMIT_SHA": "b3", "CI_REPO_URL": "https://wp/x", "CI_PIPELINE_URL": "https://wp/1"},
         "b3", "https://wp/x", "https://wp/1"),
        ({"GIT_COMMIT": "c3", "GIT_URL": "https://g/x.git", "BUILD_URL": "https://j/1/"},
         "c3", "https://g/x.git", "https://j/1/"),
        ({"BITBUCKET_COMMIT": "d4", "BITBUCKET_GIT_HTTP_ORIGIN": "https://bitbucket.org/a/b",
          "BITBUCKET_BUILD_NUMBER": "9"},
         "d4", "https://bitbucket.org/a/b", "https://bitbucket.org/a/b/pipelines/results/9"),
        ({"BUILD_SOURCEVERSION": "e5", "BUILD_REPOSITORY_URI": "https://dev.azure.com/o/p/_git/r",
          "SYSTEM_COLLECTIONURI": "https://dev.azure.com/o/", "SYSTEM_TEAMPROJECT": "p", "BUILD_BUILDID": "3"},
         "e5", "https://dev.azure.com/o/p/_git/r", "https://dev.azure.com/o/p/_build/results?buildId=3"),
        ({"CIRCLE_SHA1": "f6", "CIRCLE_REPOSITORY_URL": "git@github.com:a/b.git", "CIRCLE_BUILD_URL": "https://c/1"},
         "f6", "git@github.com:a/b.git", "https://c/1"),
        ({"BUILDKITE_COMMIT": "07", "BUILDKITE_REPO": "git@h:a/b", "BUILDKITE_BUILD_URL": "https://bk/1"},
         "07", "git@h:a/b", "https://bk/1"),
        ({"DRONE_COMMIT_SHA": "18", "DRONE_REPO_LINK": "https://d/a/b", "DRONE_BUILD_LINK": "https://d/a/b/1"},
         "18", "https://d/a/b", "https://d/a/b/1"),
        ({}, "", "", ""),
        ({"GITHUB_SHA": " ", "PATH": "/bin", "CI": "true"}, "", "", ""),
        ({"GITHUB_SHA": "a1"}, "a1", "", ""),
    ],
)  # fmt: skip
def test_the_origin_is_read_from_each_ci_systems_variables(
    environ: dict[str, str], commit: str, repository: str, run: str
) -> None:
    assert origin_of(environ)[:3] == (commit, repository, run)


def test_braces_in_a_value_are_not_expanded() -> None:
    assert origin_of({"GIT_COMMIT": "{HOME}", "HOME": "/root"}) == Origin("{HOME}")


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_each_ci_system_names_the_user_who_started_the_pipeline(system: CiSystem) -> None:
    assert actor_of({system.actor: " ann "}) == "ann"
    assert system.page.startswith("https://")


def test_outside_of_a_pipeline_the_user_is_unknown() -> None:
    assert actor_of({"USER": "ann", "GITHUB_ACTOR": " "}) == ""


SHA = "0123456789abcdef0123456789abcdef01234567"
OTHER = "fedcba9876543210fedcba9876543210fedcba98"
GITHUB = {
    "GITHUB_RUN_NUMBER": "42",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "acme/web",
    "GITHUB_WORKFLOW_REF": "acme/web/.github/workflows/build.yml@refs/heads/main",
    "GITHUB_WORKFLOW": "Build",
    "GITHUB_SHA": SHA,
    "GITHUB_RUN_ID": "99",
}
GITLAB = {
    "CI_PIPELINE_IID": "7",
    "CI_PROJECT_URL": "https://gitlab.example/acme/web",
    "CI_COMMIT_SHA": SHA,
    "CI_PIPELINE_URL": "https://gitlab.example/acme/web/-/pipelines/1234",
}
IN_GITHUB = "github:github.com/acme/web/.github/workflows/build.yml"
OF_GITHUB = Build(42, IN_GITHUB, SHA, "https://github.com/acme/web")


@pytest.mark.parametrize(
    ("environ", "sequence", "counter"),
    [
        (GITHUB, 42, IN_GITHUB),
        (
            {**GITHUB, "GITHUB_WORKFLOW_REF": "acme/web/.github/workflows/b.yml@x.yml@refs/heads/x"},
            42,
            "github:github.com/acme/web/.github/workflows/b.yml@x.yml",
        ),
        ({**GITHUB, "GITHUB_WORKFLOW_REF": ""}, 42, "github:github.com/acme/web/Build"),
        ({**GITHUB, "GITHUB_SERVER_URL": "https://git.acme.example:8443/"}, 42,
         "github:git.acme.example:8443/acme/web/.github/workflows/build.yml"),
        ({**GITHUB, "GITHUB_RUN_NUMBER": "x"}, None, ""),
        ({**GITHUB, "GITHUB_RUN_NUMBER": " 42\n"}, 42, IN_GITHUB),
        ({"GITHUB_RUN_NUMBER": "42"}, None, ""),
        (GITLAB, 7, "gitlab:gitlab.example/acme/web"),
        ({"CI_PIPELINE_NUMBER": "8", "CI_REPO_URL": "https://codeberg.org/acme/web"}, 8,
         "woodpecker:codeberg.org/acme/web"),
        ({"BUILD_NUMBER": "9", "JOB_NAME": "web/main", "JOB_URL": "https://ci.example/job/web/job/main/"}, 9,
         "jenkins:ci.example/job/web/job/main"),
        ({"BUILD_NUMBER": "9", "JOB_NAME": "web", "JENKINS_URL": "https://ci.example/"}, 9, "jenkins:ci.example/web"),
        ({"BUILD_NUMBER": "9", "JOB_NAME": "web"}, 9, "jenkins:web"),
        ({"BUILD_NUMBER": "9"}, None, ""),
        ({"BITBUCKET_BUILD_NUMBER": "10", "BITBUCKET_GIT_HTTP_ORIGIN": "https://bitbucket.org/acme/web",
          "BITBUCKET_REPO_FULL_NAME": "acme/web"}, 10, "bitbucket:bitbucket.org/acme/web"),
        ({"BITBUCKET_BUILD_NUMBER": "10", "BITBUCKET_REPO_FULL_NAME": "acme/web"}, 10, "bitbucket:acme/web"),
        ({"BUILD_BUILDID": "11", "SYSTEM_COLLECTIONURI": "https://dev.azure.com/acme/", "BUILD_NUMBER": "20261121.1"},
         11, "azure:dev.azure.com/acme"),
        ({"BUILD_BUILDID": "11", "BUILD_BUILDNUMBER": "20261121.1"}, None, ""),
        ({"BUILDKITE_BUILD_NUMBER": "12", "BUILDKITE_ORGANIZATION_SLUG": "acme", "BUILDKITE_PIPELINE_SLUG": "web"},
         12, "buildkite:acme/web"),
        ({"DRONE_BUILD_NUMBER": "13", "DRONE_REPO_LINK": "https://git.example/acme/web"}, 13,
         "drone:git.example/acme/web"),
        ({"CIRCLE_BUILD_NUM": "14", "CIRCLE_PROJECT_REPONAME": "web"}, None, ""),
        ({"PATH": "/bin", "CI": "true"}, None, ""),
        ({**GITLAB, "CI_PROJECT_URL": "https://user:secret@gitlab.example/acme/web"}, 7,
         "gitlab:gitlab.example/acme/web"),
    ],
)  # fmt: skip
def test_each_ci_system_provides_a_sequence_number_and_its_counter(
    environ: dict[str, str], sequence: int | None, counter: str
) -> None:
    build = build_of(environ, EventOptions(), "")
    assert (build.sequence, build.counter) == (sequence, counter)


@pytest.mark.parametrize(
    ("environ", "options", "expected"),
    [
        (GITHUB, {}, OF_GITHUB),
        (GITHUB, {"sequence": "3"}, replace(OF_GITHUB, sequence=3, counter="")),
        (GITHUB, {"sequence": "0"}, replace(OF_GITHUB, sequence=0, counter="")),
        (GITHUB, {"source_commit": SHA[:8]}, replace(OF_GITHUB, commit=SHA[:8])),
        (GITHUB, {"source_repository": "git@github.com:acme/web.git"},
         replace(OF_GITHUB, repository="git@github.com:acme/web.git")),
        # A job deploys another job's build, so its own number, commit, and repository do not apply.
        (GITHUB, {"source_commit": OTHER}, Build(commit=OTHER)),
        (GITHUB, {"source_commit": OTHER, "sequence": "5"}, Build(5, commit=OTHER)),
        (GITHUB, {"source_repository": "https://github.com/acme/api"}, Build(repository="https://github.com/acme/api")),
        (GITHUB, {"source_commit": OTHER, "source_repository": "https://github.com/acme/web"},
         Build(commit=OTHER, repository="https://github.com/acme/web")),
        (GITLAB, {"created": "1763704800"},
         Build(7, "gitlab:gitlab.example/acme/web", SHA, GITLAB["CI_PROJECT_URL"], "2025-11-21T06:00:00Z")),
        ({}, {"source_commit": SHA, "source_repository": "https://u:p@git.example/a.git"},
         Build(commit=SHA, repository="https://git.example/a.git")),
        ({}, {"source_commit": SHA, "source_repository": "ssh://git:p@git.example/a.git"},
         Build(commit=SHA, repository="ssh://git@git.example/a.git")),
        ({"CIRCLE_SHA1": SHA, "CIRCLE_REPOSITORY_URL": "git@github.com:a/b.git"}, {},
         Build(commit=SHA, repository="git@github.com:a/b.git")),
        ({"GIT_COMMIT": "main", "GIT_URL": "https://git.example/a.git"}, {}, Build(repository="https://git.example/a.git")),
        ({}, {}, Build()),
        (GITHUB, {"sequence": " ", "created": "\n", "source_commit": "", "source_repository": ""}, OF_GITHUB),
    ],
)  # fmt: skip
def test_options_take_precedence_over_variables_for_the_build(
    environ: dict[str, str], options: dict[str, str], expected: Build
) -> None:
    named: dict[str, Any] = {
        name: text for name, text in options.items() if name != "source_repository"
    }
    assert (
        build_of(environ, EventOptions(**named), options.get("source_repository", "")) == expected
    )


@pytest.mark.parametrize(
    ("text", "number"), [("", None), ("0", 0), ("007", 7), (" 12\n", 12), ("9" * 20, 10**20 - 1)]
)
def test_sequence_numbers_are_parsed(text: str, number: int | None) -> None:
    assert sequence_of(text) == number


@pytest.mark.parametrize(
    "text", ["-1", "+1", "1.5", "1e3", "x", "9" * 21, "1 2", "٣", "0x10", "1_000"]
)
def test_invalid_sequence_numbers_cause_usage_errors(text: str) -> None:
    with pytest.raises(UsageError, match="--sequence: ") as caught:
        sequence_of(text)
    assert "up to 20 digits" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("", ""),
        ("2026-11-21T06:00:00Z", "2026-11-21T06:00:00Z"),
        ("2026-11-21t06:00:00z", "2026-11-21T06:00:00Z"),
        ("2026-11-21 06:00:00Z", "2026-11-21T06:00:00Z"),
        ("2026-11-21 06:00:00 +0100", "2026-11-21T05:00:00Z"),  # as printed by `git log --date=iso`
        ("2026-11-21T06:00:00+01:00", "2026-11-21T05:00:00Z"),
        ("2026-01-01T00:30:00+05:30", "2025-12-31T19:00:00Z"),
        ("2026-11-21T06:00:00.5Z", "2026-11-21T06:00:00.500Z"),
        (
            "2026-11-21T06:00:00.123456789Z",
            "2026-11-21T06:00:00.123Z",
        ),  # as written by Docker and BuildKit
        ("2026-11-21T06:00:00.000Z", "2026-11-21T06:00:00Z"),
        ("2026-11-21T06:00:00", "2026-11-21T06:00:00Z"),
        ("2026-11-21T06:00Z", "2026-11-21T06:00:00Z"),
        ("2026-11-21", "2026-11-21T00:00:00Z"),
        ("2026-12-31T23:59:60Z", "2026-12-31T23:59:59Z"),
        ("1763704800", "2025-11-21T06:00:00Z"),
        ("1763704800.25", "2025-11-21T06:00:00.250Z"),
        ("1763704800123", "2025-11-21T06:00:00.123Z"),
        ("0", ""),
        ("1", ""),
        ("315532801", ""),  # SOURCE_DATE_EPOCH set to the earliest time in a ZIP file
        ("1970-01-01T00:00:00Z", ""),
        ("1970-01-01T01:00:00+01:00", ""),
        ("1980-01-01T00:00:01Z", ""),
        ("0001-01-01T00:00:00Z", ""),
        ("1980-01-02T00:00:00Z", "1980-01-02T00:00:00Z"),
    ],
)
def test_creation_times_are_normalized_to_utc(text: str, time: str) -> None:
    assert created_of(text) == time


@pytest.mark.parametrize(
    "text",
    ["yesterday", "2026-13-01", "2026-02-30T00:00:00Z", "2026-11-21T25:00:00Z", "-5", "1" * 15, "2026-W47-6",
     "20261121T060000Z", "2026-11-21T06:00:00+99:00", "9999-12-31T23:59:59-01:00", "2026-11-21T06:00:00Z; rm",
     "20261121", "202611210600", "20261121060000", "999999999999999"],
)  # fmt: skip
def test_invalid_creation_times_cause_usage_errors(text: str) -> None:
    with pytest.raises(UsageError, match="--created: ") as caught:
        created_of(text)
    assert "2026-11-21T06:00:00Z" in caught.value.hint


def test_normalizing_a_normalized_time_changes_nothing() -> None:
    for text in ("2026-11-21T06:00:00Z", "2026-11-21T06:00:00.120Z"):
        assert utc(utc(text)) == text


def test_unix_times_beyond_the_calendar_range_are_rejected() -> None:
    with pytest.raises(Malformed):
        of_unix(10**12)


ACTIONS = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "acme/web"}
OF_GITLAB = {"GITLAB_CI": "true", "CI_PROJECT_URL": "https://gitlab.com/fork/web"}
CLOUD = {
    "BITBUCKET_BUILD_NUMBER": "4",
    "BITBUCKET_GIT_HTTP_ORIGIN": "https://bitbucket.org/acme/web",
}
AZURE = {"TF_BUILD": "True", "BUILD_REPOSITORY_URI": "https://github.com/acme/web"}
CIRCLE = {"CIRCLECI": "true", "CIRCLE_REPOSITORY_URL": "git@github.com:acme/web.git"}
OF_ACME, OF_TARGET = "https://github.com/acme/web", "https://gitlab.com/acme/web"
FOUND: list[tuple[Mapping[str, str], tuple[str, str]]] = [
    ({**ACTIONS, "GITHUB_REF": "refs/pull/12/merge"}, (OF_ACME, "12")),
    ({**ACTIONS, "GITHUB_REF": "refs/pull/12/head", "GITEA_ACTIONS": "true"}, (OF_ACME, "12")),
    ({**OF_GITLAB, "CI_MERGE_REQUEST_IID": " 7\n"}, ("https://gitlab.com/fork/web", "7")),
    (
        {**OF_GITLAB, "CI_MERGE_REQUEST_IID": "7", "CI_MERGE_REQUEST_PROJECT_URL": OF_TARGET},
        (OF_TARGET, "7"),
    ),
    ({**CLOUD, "BITBUCKET_PR_ID": "3"}, ("https://bitbucket.org/acme/web", "3")),
    (
        {
            **AZURE,
            "SYSTEM_PULLREQUEST_PULLREQUESTID": "99",
            "SYSTEM_PULLREQUEST_PULLREQUESTNUMBER": "5",
        },
        (OF_ACME, "5"),
    ),
    ({**AZURE, "SYSTEM_PULLREQUEST_PULLREQUESTID": "99"}, (OF_ACME, "99")),
    (
        {**CIRCLE, "CIRCLE_PULL_REQUEST": "https://github.com/acme/web/pull/8"},
        ("git@github.com:acme/web.git", "8"),
    ),
    ({"JENKINS_URL": "https://ci", "CHANGE_ID": "8", "GIT_URL": OF_ACME}, (OF_ACME, "8")),
    (
        {"BUILDKITE": "true", "BUILDKITE_PULL_REQUEST": "8", "BUILDKITE_REPO": OF_ACME},
        (OF_ACME, "8"),
    ),
    ({"DRONE": "true", "DRONE_PULL_REQUEST": "8", "DRONE_REPO_LINK": OF_ACME}, (OF_ACME, "8")),
    ({"CI_REPO_URL": OF_ACME, "CI_COMMIT_PULL_REQUEST": "8"}, (OF_ACME, "8")),
]


@pytest.mark.parametrize(("environ", "expected"), FOUND)
def test_the_pull_request_is_found_in_each_ci_systems_variables(
    environ: Mapping[str, str], expected: tuple[str, str]
) -> None:
    assert request_event(environ) == expected


EVENTS: list[tuple[Any, str]] = [
    (
        {"pull_request": {"number": 12}},
        "12",
    ),  # pull_request_target: the ref is the base branch
    ({"issue": {"number": 12, "pull_request": {"url": "x"}}}, "12"),  # a comment on a pull request
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
def test_the_pull_request_is_found_in_the_github_actions_event_file(
    tmp_path: Path, event: Any, number: str
) -> None:
    path = tmp_path / "event.json"
    path.write_text(event if isinstance(event, str) else json.dumps(event))
    environ = {**ACTIONS, "GITHUB_REF": "refs/heads/main", "GITHUB_EVENT_PATH": str(path)}
    if number:
        assert request_event(environ) == (OF_ACME, number)
        return
    with pytest.raises(
        UsageError, match=r"GITHUB_REF is 'refs/heads/main', and the event file .*GITHUB_EVENT_PATH"
    ):
        request_event(environ)


NOT_FOUND: list[tuple[Mapping[str, str], str, str]] = [
    ({}, "no CI variables for a pull request", "CI_MERGE_REQUEST_IID"),
    (
        {**ACTIONS, "GITHUB_REF": "refs/heads/main"},
        "GITHUB_EVENT_PATH is not set",
        "on pull_request",
    ),
    ({**ACTIONS, "GITHUB_EVENT_PATH": "/absent"}, "the event file '/absent'", "on pull_request"),
    (
        {"GITHUB_REPOSITORY": "acme/web", "GITHUB_REF": "refs/pull/1/merge"},
        "cannot detect",
        "GITHUB_SERVER_URL",
    ),
    (OF_GITLAB, "CI_MERGE_REQUEST_IID is not set", "merge_request_event"),
    (
        {"GITLAB_CI": "true", "CI_MERGE_REQUEST_IID": "7"},
        "cannot detect",
        "CI_MERGE_REQUEST_PROJECT_URL or CI_PROJECT_URL",
    ),
    (
        {**OF_GITLAB, "CI_MERGE_REQUEST_IID": "7/../8"},
        "CI_MERGE_REQUEST_IID is '7/../8'",
        "merge_request_event",
    ),
    (
        {"BUILDKITE": "true", "BUILDKITE_PULL_REQUEST": "false"},
        "BUILDKITE_PULL_REQUEST is 'false'",
        "pull request",
    ),
    (CLOUD, "BITBUCKET_PR_ID is not set", "pull-requests:"),
    (
        {**CIRCLE, "CIRCLE_PULL_REQUEST": "https://x/pull/1/../2"},
        "CIRCLE_PULL_REQUEST is",
        "pull request",
    ),
    (AZURE, "SYSTEM_PULLREQUEST_PULLREQUESTID is not set", "pull request"),
]


@pytest.mark.parametrize(("environ", "said", "hint"), NOT_FOUND)
def test_a_missing_pull_request_causes_a_usage_error_with_a_hint(
    environ: Mapping[str, str], said: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        request_event(environ)
    assert said in caught.value.message
    assert hint in caught.value.hint
