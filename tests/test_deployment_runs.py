"""`--deployments` in whole runs: what the forge that hosts the application's source repository
displays about a run.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes.argocd_api import ArgoCDServer
from fakes.github_api import NAME, GitHub
from fakes.gitlab_api import PROJECT, GitLab
from support import git
from support.runs import run
from support.serving import serving
from test_wait_runs import good, hook_fails, paused, played

COMMIT = "c" * 40


@pytest.fixture
def github() -> Iterator[GitHub]:
    with serving(GitHub()) as one:
        one.commits.add(COMMIT)
        yield one


def actions(argo_cd: ArgoCDServer, github: GitHub) -> Mapping[str, str]:
    """The environment of a GitHub Actions job."""
    return {
        "ARGOCD_SERVER": argo_cd.address, "ARGOCD_AUTH_TOKEN": "good-token", "ARGOCD_OPTS": "--plaintext",
        "GITHUB_SERVER_URL": github.url, "GITHUB_REPOSITORY": NAME, "GITHUB_SHA": COMMIT,
        "GITHUB_TOKEN": "good-token",
    }  # fmt: skip


def test_each_application_gets_a_deployment_environment(
    tmp_path: Path, argo_cd: ArgoCDServer, github: GitHub
) -> None:
    played(argo_cd, tmp_path, web=good, api=hook_fails)
    argo_cd.settings = {"url": "https://argocd.example.com"}
    result = run("--wait", "--deployments", env=actions(argo_cd, github))
    assert result.code == 6
    assert {one.environment: one.states for one in github.deployments} == {
        "web": ["in_progress", "success"],
        "api": ["in_progress", "failure"],
    }
    links = {one.environment: set(one.links) for one in github.deployments}
    assert links["web"] == {"https://argocd.example.com/applications/argocd/web"}
    assert github.statuses == [
        (COMMIT, "image-update/api and 1 more", "pending"),
        (COMMIT, "image-update/api and 1 more", "failure"),
    ]
    assert [one["rule"] for one in result.json["errors"]] == ["rollout"]


def test_a_paused_rollout_stays_in_progress(
    tmp_path: Path, argo_cd: ArgoCDServer, github: GitHub
) -> None:
    played(argo_cd, tmp_path, web=paused)
    result = run("--wait", "--deployments", env=actions(argo_cd, github))
    assert result.code == 0, result.stderr
    assert [one.states for one in github.deployments] == [["in_progress"]]
    assert {state for _, _, state in github.statuses} == {"pending"}


def test_a_forge_that_rejects_deployments_causes_only_a_warning(
    tmp_path: Path, argo_cd: ArgoCDServer, github: GitHub
) -> None:
    repo = played(argo_cd, tmp_path, web=good)
    github.fail(github.refusal("forbidden"), "POST", "/deployments", times=5)
    result = run("--wait", "--deployments", env=actions(argo_cd, github))
    assert (result.code, result.json["status"]) == (0, "updated"), result.stderr
    assert result.json["commits"][0]["commit"] == git(repo, "rev-parse", "main")
    (warning,) = result.json["errors"]
    assert warning["severity"] == "warning"
    assert "deployments: write" in warning["hint"]


def test_a_rollout_with_an_unknown_outcome_stays_in_progress(
    tmp_path: Path, argo_cd: ArgoCDServer, github: GitHub
) -> None:
    """A rerun completes the deployment, even though it writes nothing."""

    def expires(one: dict[str, Any], tip: str) -> Sequence[dict[str, Any]]:
        argo_cd.expired.add("good-token")
        return good(one, tip)

    played(argo_cd, tmp_path, web=expires)
    unknown = run("--wait", "--deployments", env=actions(argo_cd, github))
    assert unknown.code != 0
    assert [one.states for one in github.deployments] == [["in_progress"]]
    argo_cd.expired.clear()
    again = run("--wait", "--deployments", env=actions(argo_cd, github))
    assert (again.code, again.json["status"]) == (0, "unchanged"), again.stderr
    assert [one.states for one in github.deployments] == [["in_progress", "success"]]


def test_a_gitlab_environment_links_to_argo_cd(tmp_path: Path, argo_cd: ArgoCDServer) -> None:
    played(argo_cd, tmp_path, web=good)
    with serving(GitLab()) as gitlab:
        gitlab.commits.add(COMMIT)
        env = {
            "ARGOCD_SERVER": argo_cd.address, "ARGOCD_AUTH_TOKEN": "good-token", "ARGOCD_OPTS": "--plaintext",
            "CI_SERVER_URL": gitlab.url, "CI_PROJECT_URL": f"{gitlab.url}/{PROJECT}", "CI_COMMIT_SHA": COMMIT,
            "CI_COMMIT_REF_NAME": "main", "IMAGE_UPDATE_FORGE_TOKEN": "good-token",
        }  # fmt: skip
        result = run("--deployments", env=env)
        assert (result.code, result.json["errors"]) == (0, []), result.stderr
        (one,) = gitlab.deployments
        assert (one.environment, one.commit, one.states) == ("web", COMMIT, ["running"])
        assert list(gitlab.links.values()) == [f"http://{argo_cd.address}/applications/argocd/web"]
        assert f"deployments are shown in {gitlab.url}/{PROJECT}: 1 queued" in result.stderr


def test_deployments_require_a_known_source_commit_and_repository(
    tmp_path: Path, argo_cd: ArgoCDServer, github: GitHub
) -> None:
    repo = played(argo_cd, tmp_path, web=good)
    for missing in ("GITHUB_SHA", "GITHUB_REPOSITORY"):
        env = {name: value for name, value in actions(argo_cd, github).items() if name != missing}
        result = run("--wait", "--deployments", env=env)
        assert result.code == 2
        assert missing in result.stderr
    nonsense = run("--deployments", "--source-repository", "nonsense", env=actions(argo_cd, github))
    assert nonsense.code == 2
    assert (
        "--source-repository: cannot report a deployment for 'nonsense': it is not an https or ssh URL"
        in nonsense.stderr
    )
    assert (git(repo, "rev-list", "--count", "main"), github.seen) == ("1", [])
