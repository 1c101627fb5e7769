"""What `--deployments` takes for the build: the options first, else the CI system's variables."""

from collections.abc import Mapping

import pytest

from task.cli.update import job_of
from task.errors import UsageError
from task.pipeline.job import DeployedSource
from task.settings import ArgoSettings, BuildSettings, RequestSettings, Settings

COMMIT, OTHER = "c" * 40, "d" * 40
PAGE = "https://gitlab.example.com/acme/web"
GITLAB = {"CI_COMMIT_SHA": COMMIT, "CI_PROJECT_URL": PAGE, "CI_COMMIT_REF_NAME": "main"}
ACTIONS = {"GITHUB_SHA": COMMIT, "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "acme/web"}
TAG = {"CI_COMMIT_REF_NAME": "v1", "CI_COMMIT_TAG": "v1"}
ROWS: list[tuple[Mapping[str, str], BuildSettings, DeployedSource]] = [
    (GITLAB, BuildSettings(), DeployedSource(PAGE, COMMIT, "main")),
    (GITLAB | TAG, BuildSettings(), DeployedSource(PAGE, COMMIT, "v1", is_tag=True)),
    (GITLAB, BuildSettings(commit=OTHER), DeployedSource(PAGE, OTHER)),  # another one than the job's
    (ACTIONS, BuildSettings(), DeployedSource("https://github.com/acme/web", COMMIT)),
    ({}, BuildSettings(commit=OTHER, repository=f"{PAGE}.git"), DeployedSource(PAGE, OTHER)),
]


def deployed(environ: Mapping[str, str], build: BuildSettings = BuildSettings(), **more: bool) -> DeployedSource | None:
    request = RequestSettings(deployments=True)
    return job_of(Settings("run", request=request, build=build, **more), (), environ).deployed  # type: ignore[arg-type]


@pytest.mark.parametrize(("environ", "build", "expected"), ROWS)
def test_what_was_built(environ: Mapping[str, str], build: BuildSettings, expected: DeployedSource) -> None:
    assert deployed(environ, build) == expected


def test_a_run_that_waits_finds_out_how_it_ends() -> None:
    settings = Settings("run", request=RequestSettings(deployments=True), argo=ArgoSettings(wait=True))
    found = job_of(settings, (), GITLAB).deployed
    assert found is not None
    assert found.waits


@pytest.mark.parametrize(
    ("missing", "option"), [("CI_COMMIT_SHA", "--source-commit"), ("CI_PROJECT_URL", "--source-repository")]
)
def test_what_is_not_known(missing: str, option: str) -> None:
    environ = {name: value for name, value in GITLAB.items() if name != missing}
    with pytest.raises(UsageError, match=r"--deployments: the \w+ that was built is not known") as caught:
        deployed(environ)
    assert option in caught.value.hint
    assert missing in caught.value.hint


def test_a_plan_shows_no_deployment() -> None:
    assert deployed({}, dry=True) is None
