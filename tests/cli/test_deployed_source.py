"""The build that `--deployments` reports: from the options, or else from CI variables."""

from collections.abc import Mapping

import pytest

from task.cli.job import job_of
from task.deciding.job import DeployedSource
from task.errors import UsageError
from task.settings import EventOptions, RolloutOptions, Settings

COMMIT, OTHER = "c" * 40, "d" * 40
PAGE = "https://gitlab.example.com/acme/web"
GITLAB = {"CI_COMMIT_SHA": COMMIT, "CI_PROJECT_URL": PAGE, "CI_COMMIT_REF_NAME": "main"}
ACTIONS = {
    "GITHUB_SHA": COMMIT,
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "acme/web",
}
TAG = {"CI_COMMIT_REF_NAME": "v1", "CI_COMMIT_TAG": "v1"}
ROWS: list[tuple[Mapping[str, str], str, str, DeployedSource]] = [
    (GITLAB, "", "", DeployedSource(PAGE, COMMIT, "main")),
    (GITLAB | TAG, "", "", DeployedSource(PAGE, COMMIT, "v1", is_tag=True)),
    (GITLAB, OTHER, "", DeployedSource(PAGE, OTHER)),  # a different repository than the job's
    (ACTIONS, "", "", DeployedSource("https://github.com/acme/web", COMMIT)),
    ({}, OTHER, f"{PAGE}.git", DeployedSource(PAGE, OTHER)),
]


def deployed(
    environ: Mapping[str, str], commit: str = "", repository: str = "", command: str = "run"
) -> DeployedSource | None:
    settings = Settings(
        command, EventOptions(source_commit=commit), source_repository=repository, deployments=True
    )
    return job_of(settings, (), environ).deployed


@pytest.mark.parametrize(("environ", "commit", "repository", "expected"), ROWS)
def test_the_deployed_source_comes_from_options_or_ci_variables(
    environ: Mapping[str, str], commit: str, repository: str, expected: DeployedSource
) -> None:
    assert deployed(environ, commit, repository) == expected


def test_the_wait_option_also_affects_deployments() -> None:
    settings = Settings("run", deployments=True, rollout=RolloutOptions(wait=True))
    found = job_of(settings, (), GITLAB).deployed
    assert found is not None
    assert found.waits_for_rollouts


@pytest.mark.parametrize(
    ("missing", "option"),
    [("CI_COMMIT_SHA", "--source-commit"), ("CI_PROJECT_URL", "--source-repository")],
)
def test_an_unknown_commit_or_repository_causes_a_usage_error(missing: str, option: str) -> None:
    environ = {name: value for name, value in GITLAB.items() if name != missing}
    with pytest.raises(
        UsageError, match=r"--deployments: cannot tell which \w+ was built"
    ) as caught:
        deployed(environ)
    assert option in caught.value.hint
    assert missing in caught.value.hint


def test_a_plan_reports_no_deployment() -> None:
    assert deployed({}, command="plan") is None
