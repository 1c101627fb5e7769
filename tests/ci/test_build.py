"""What tells a build from others: options first, then what the CI system says."""

from dataclasses import replace
from typing import Any

import pytest

from task.ci.variables import build_of, created_of, sequence_of
from task.errors import Malformed, UsageError
from task.model import Build
from task.settings import EventOptions
from task.timestamps import of_unix, utc

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
def test_the_ci_systems_count(environ: dict[str, str], sequence: int | None, counter: str) -> None:
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
        # A job that deploys what another has built: its number, commit and repository are not the build's.
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
def test_options_come_first(environ: dict[str, str], options: dict[str, str], expected: Build) -> None:
    named: dict[str, Any] = {name: text for name, text in options.items() if name != "source_repository"}
    assert build_of(environ, EventOptions(**named), options.get("source_repository", "")) == expected


@pytest.mark.parametrize(("text", "number"), [("", None), ("0", 0), ("007", 7), (" 12\n", 12), ("9" * 20, 10**20 - 1)])
def test_sequence(text: str, number: int | None) -> None:
    assert sequence_of(text) == number


@pytest.mark.parametrize("text", ["-1", "+1", "1.5", "1e3", "x", "9" * 21, "1 2", "٣", "0x10", "1_000"])
def test_what_is_no_sequence(text: str) -> None:
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
        ("2026-11-21 06:00:00 +0100", "2026-11-21T05:00:00Z"),  # as `git log --date=iso` says it
        ("2026-11-21T06:00:00+01:00", "2026-11-21T05:00:00Z"),
        ("2026-01-01T00:30:00+05:30", "2025-12-31T19:00:00Z"),
        ("2026-11-21T06:00:00.5Z", "2026-11-21T06:00:00.500Z"),
        ("2026-11-21T06:00:00.123456789Z", "2026-11-21T06:00:00.123Z"),  # as Docker and BuildKit say it
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
        ("315532801", ""),  # SOURCE_DATE_EPOCH of what ZIP files can hold
        ("1970-01-01T00:00:00Z", ""),
        ("1970-01-01T01:00:00+01:00", ""),
        ("1980-01-01T00:00:01Z", ""),
        ("0001-01-01T00:00:00Z", ""),
        ("1980-01-02T00:00:00Z", "1980-01-02T00:00:00Z"),
    ],
)
def test_created(text: str, time: str) -> None:
    assert created_of(text) == time


@pytest.mark.parametrize(
    "text",
    ["yesterday", "2026-13-01", "2026-02-30T00:00:00Z", "2026-11-21T25:00:00Z", "-5", "1" * 15, "2026-W47-6",
     "20261121T060000Z", "2026-11-21T06:00:00+99:00", "9999-12-31T23:59:59-01:00", "2026-11-21T06:00:00Z; rm",
     "20261121", "202611210600", "20261121060000", "999999999999999"],
)  # fmt: skip
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UsageError, match="--created: ") as caught:
        created_of(text)
    assert "2026-11-21T06:00:00Z" in caught.value.hint


def test_one_spelling_stays_as_it_is() -> None:
    for text in ("2026-11-21T06:00:00Z", "2026-11-21T06:00:00.120Z"):
        assert utc(utc(text)) == text


def test_beyond_the_calendar() -> None:
    with pytest.raises(Malformed):
        of_unix(10**12)
