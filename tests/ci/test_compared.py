"""The base and head of `check`, from CI variables, GitHub Actions event files, and options."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from task.ci.compared import compared_of
from task.ci_systems import SYSTEMS as KNOWN_SYSTEMS
from task.errors import UsageError
from task.model import Compared
from task.settings import CheckOptions

HEAD = "1" * 40
BASE = "2" * 40
MERGE = "3" * 40
GITLAB = {"GITLAB_CI": "true", "CI_COMMIT_SHA": HEAD, "CI_PROJECT_URL": "https://gl/acme/gitops"}
OF_A_REQUEST = {**GITLAB, "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main"}
TRAIN = {
    **OF_A_REQUEST,
    "CI_MERGE_REQUEST_EVENT_TYPE": "merge_train",
    "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": MERGE,
    "CI_COMMIT_SHA": HEAD,
}
ON_MAIN = Compared("main", HEAD, branch="main")
SYSTEMS = {
    "GitLab": (
        {
            **OF_A_REQUEST,
            "CI_MERGE_REQUEST_EVENT_TYPE": "detached",
            "CI_MERGE_REQUEST_DIFF_BASE_SHA": BASE,
        },
        ON_MAIN,
    ),
    "GitLab, merged result": (
        {
            **OF_A_REQUEST,
            "CI_MERGE_REQUEST_EVENT_TYPE": "merged_result",
            "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": HEAD,
            "CI_MERGE_REQUEST_TARGET_BRANCH_SHA": BASE,
            "CI_COMMIT_SHA": MERGE,
        },
        Compared("main", HEAD, branch="main", merge=MERGE),
    ),
    "GitLab, merge train": (
        {**TRAIN, "CI_MERGE_REQUEST_TARGET_BRANCH_SHA": BASE},
        Compared(BASE, HEAD, branch="main"),
    ),
    "GitLab, merge train of an old server": (TRAIN, ON_MAIN),
    "Bitbucket": (
        {
            "BITBUCKET_BUILD_NUMBER": "7",
            "BITBUCKET_COMMIT": HEAD,
            "BITBUCKET_PR_DESTINATION_BRANCH": "main",
        },
        ON_MAIN,
    ),
    "Azure": (
        {
            "TF_BUILD": "True",
            "SYSTEM_PULLREQUEST_SOURCECOMMITID": HEAD,
            "SYSTEM_PULLREQUEST_TARGETBRANCH": "refs/heads/main",
            "BUILD_SOURCEVERSION": MERGE,
        },
        Compared("main", HEAD, branch="main", merge=MERGE),
    ),
    "Jenkins": (
        {"JENKINS_URL": "https://j/", "GIT_COMMIT": HEAD, "CHANGE_TARGET": "main"},
        ON_MAIN,
    ),
    "Buildkite": (
        {
            "BUILDKITE": "true",
            "BUILDKITE_COMMIT": HEAD,
            "BUILDKITE_PULL_REQUEST_BASE_BRANCH": "main",
        },
        ON_MAIN,
    ),
    "Buildkite, GitHub's merge queue": (
        {
            "BUILDKITE": "true",
            "BUILDKITE_COMMIT": HEAD,
            "BUILDKITE_MERGE_QUEUE_BASE_COMMIT": BASE,
            "BUILDKITE_MERGE_QUEUE_BASE_BRANCH": "main",
        },
        Compared(BASE, HEAD, branch="main"),
    ),
    "Drone": (
        {
            "DRONE": "true",
            "DRONE_BUILD_EVENT": "pull_request",
            "DRONE_COMMIT_SHA": HEAD,
            "DRONE_TARGET_BRANCH": "main",
        },
        ON_MAIN,
    ),
    "Woodpecker": (
        {
            "CI_REPO_URL": "https://wp/acme/gitops",
            "CI_PIPELINE_EVENT": "pull_request",
            "CI_COMMIT_SHA": HEAD,
            "CI_COMMIT_TARGET_BRANCH": "main",
        },
        ON_MAIN,
    ),
}


@pytest.mark.parametrize(("environ", "compared"), SYSTEMS.values(), ids=SYSTEMS)
def test_a_pull_request_job_of_each_ci_system_determines_base_and_head(
    environ: Mapping[str, str], compared: Compared
) -> None:
    assert compared_of(CheckOptions(), environ) == compared


@pytest.mark.parametrize(("environ", "compared"), SYSTEMS.values(), ids=SYSTEMS)
def test_options_take_precedence_over_ci_variables(
    environ: Mapping[str, str], compared: Compared
) -> None:
    assert compared_of(CheckOptions(base="v1"), environ) == Compared("v1", "HEAD")
    assert compared_of(
        CheckOptions(base="v1", head="v2", repository="https://g/x"), {}
    ) == Compared("v1", "v2", "https://g/x")
    named = compared_of(CheckOptions(head="fix"), environ)
    assert (named.base, named.head, named.merge) == (compared.base, "fix", "")


PUSHES = {
    "GitLab": {**GITLAB, "CI_COMMIT_BRANCH": "main"},
    "Bitbucket": {"BITBUCKET_BUILD_NUMBER": "7", "BITBUCKET_COMMIT": HEAD},
    "Azure": {"TF_BUILD": "True", "BUILD_SOURCEVERSION": HEAD},
    "Jenkins": {"JENKINS_URL": "https://j/", "GIT_COMMIT": HEAD},
    "Buildkite": {
        "BUILDKITE": "true",
        "BUILDKITE_COMMIT": HEAD,
        "BUILDKITE_PULL_REQUEST_BASE_BRANCH": "",
    },
    "Drone": {
        "DRONE": "true",
        "DRONE_BUILD_EVENT": "push",
        "DRONE_COMMIT_SHA": HEAD,
        "DRONE_TARGET_BRANCH": "main",
    },
    "Woodpecker": {
        "CI_REPO_URL": "https://wp/x",
        "CI_PIPELINE_EVENT": "push",
        "CI_COMMIT_SHA": HEAD,
        "CI_COMMIT_TARGET_BRANCH": "main",
    },
    "none": {},
}


@pytest.mark.parametrize("environ", PUSHES.values(), ids=PUSHES)
def test_the_error_in_a_push_job_suggests_the_base_option(environ: Mapping[str, str]) -> None:
    """Comparing a branch with itself would pass every change."""
    with pytest.raises(UsageError, match=r"^--base is missing") as refused:
        compared_of(CheckOptions(), environ)
    assert refused.value.hint.startswith("set --base, such as origin/main")


def test_every_ci_system_with_variables_for_check_is_tested() -> None:
    systems = {item.marker for item in KNOWN_SYSTEMS if item.situations}
    assert systems == {
        name for environ, _ in SYSTEMS.values() for name in systems if name in environ
    }
    assert all(item.page.startswith("https://") for item in KNOWN_SYSTEMS)


def actions(folder: Path, event: Any, **more: str) -> dict[str, str]:
    path = folder / "event.json"
    path.write_text(event if isinstance(event, str) else json.dumps(event))
    return {
        "GITHUB_REPOSITORY": "acme/gitops",
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_EVENT_PATH": str(path),
        "GITHUB_EVENT_NAME": "some_event",
        "GITHUB_SHA": MERGE,
        **more,
    }


# The relevant fields in the payloads from GitHub, Gitea, and Forgejo.
REQUEST = {"pull_request": {"base": {"ref": "main", "sha": BASE}, "head": {"sha": HEAD}}}
GROUP = {"merge_group": {"base_sha": BASE, "base_ref": "refs/heads/main", "head_sha": HEAD}}


def test_the_github_actions_event_file_names_base_and_head(tmp_path: Path) -> None:
    # For pull_request_target, GITHUB_SHA is the base, not a merge commit, and is ignored.
    found = compared_of(CheckOptions(), actions(tmp_path, REQUEST, GITHUB_BASE_REF="main"))
    assert found == Compared("main", HEAD, branch="main", merge=MERGE)
    assert compared_of(CheckOptions(), actions(tmp_path, GROUP)) == Compared(
        BASE, HEAD, branch="main"
    )


@pytest.mark.parametrize(
    "event",
    [
        {},
        [],
        "not JSON",
        {"ref": "refs/heads/main"},
        {"pull_request": 7},
        {"pull_request": {"base": {"ref": "main"}, "head": {"sha": None}}},
        {"pull_request": {"base": {"ref": "--upload-pack=x"}, "head": {"sha": HEAD}}},
        {"pull_request": {"base": {"ref": "a" * 501}, "head": {"sha": HEAD}}},
        {"merge_group": {"base_ref": "refs/heads/main", "head_sha": HEAD}},
        {"merge_group": {"base_sha": BASE, "head_sha": HEAD}},
        {"workflow_run": {"pull_requests": [REQUEST["pull_request"]]}},
    ],
    ids=json.dumps,
)
def test_an_event_without_a_pull_request_causes_a_usage_error(tmp_path: Path, event: Any) -> None:
    with pytest.raises(UsageError, match=r"^--base is missing"):
        compared_of(CheckOptions(), actions(tmp_path, event))
    without = {"GITHUB_REPOSITORY": "acme/gitops", "GITHUB_BASE_REF": "main", "GITHUB_SHA": BASE}
    with pytest.raises(UsageError, match="GITHUB_EVENT_PATH is not set"):
        compared_of(CheckOptions(), without)


@pytest.mark.parametrize(
    "given",
    [
        CheckOptions(base="--output=x"),
        CheckOptions(base="main", head="-x"),
        CheckOptions(base="ma\nin"),
        CheckOptions(base=":/fix"),
        CheckOptions(base="main", repository="https://g/x"),  # --head is also missing
    ],
)
def test_options_that_name_no_commit_cause_usage_errors(given: CheckOptions) -> None:
    with pytest.raises(
        UsageError, match=r"is not a valid branch name or commit ID|--head is missing"
    ):
        compared_of(given, {})


def test_variables_are_not_used_for_another_repository(tmp_path: Path) -> None:
    environ = actions(tmp_path, REQUEST)
    own = "git@github.com:acme/gitops.git"
    assert compared_of(CheckOptions(repository=own), environ).repository == own
    with pytest.raises(UsageError, match="--base is missing") as refused:
        compared_of(CheckOptions(repository="https://github.com/acme/other"), environ)
    assert "another repository" in refused.value.hint
