"""`promote`, from the command line to the branches of two repositories and the pull request."""

import json
from pathlib import Path

import jsonschema
import pytest
from fakes.kubernetes_api import APPLICATIONS, running
from support import Result, git, image_update, show
from support.clusters import full_application, kubeconfig, live_app
from support.runs import WEB, application, arguments, manifest, repository, target

from task.schemas import load


def promoted(apps: Path | str, *words: str | Path, env: dict[str, str] | None = None) -> Result:
    given = ("--applications", apps, "--allow-protocol", "file", "--output", "json")
    return image_update("promote", *map(str, (*given, *words)), env=env)


@pytest.fixture
def stages(tmp_path: Path) -> tuple[Path, Path, Path]:
    """The file with the Applications, and the repositories for staging and production."""
    staging = repository(tmp_path, "web-staging", name="staging.git")
    production = repository(tmp_path, "web-production", name="production.git")
    apps = manifest(
        tmp_path, application("web-staging", staging), application("web-production", production)
    )
    return apps, staging, production


def test_a_promotion_copies_the_version_from_one_repository_to_another(
    stages: tuple[Path, Path, Path],
) -> None:
    apps, staging, production = stages
    image_update(*arguments(apps, "--application", "web-staging", "--sequence", "7"))
    before = git(staging, "rev-parse", "main")
    words = ("--from", "web-staging", "--to", "web-production")
    plan = promoted(apps, *words, "--dry-run")
    assert (plan.code, git(production, "rev-list", "--count", "main")) == (0, "1")
    assert plan.json["commits"][0]["diff"]
    result = promoted(apps, *words)
    jsonschema.validate(result.json, load("report.v1"))
    assert (result.code, result.json["command"], result.json["status"]) == (0, "promote", "updated")
    (decision,) = result.json["decisions"]
    assert (decision["application"], decision["from"]) == (
        "argocd/web-production",
        "argocd/web-staging",
    )
    assert "newTag: 1.1.0" in show(production, "main", target("web-production"))
    assert git(staging, "rev-parse", "main") == before
    assert promoted(apps, *words).json["status"] == "unchanged"
    assert git(production, "rev-list", "--count", "main") == "2"


def test_decisions_made_by_run_have_no_promotion_source(stages: tuple[Path, Path, Path]) -> None:
    apps, _, _ = stages
    decisions = image_update(*arguments(apps)).json["decisions"]
    assert [one["from"] for one in decisions] == [None, None]


def test_variables_can_name_the_source_and_the_target(stages: tuple[Path, Path, Path]) -> None:
    apps, _, production = stages
    image_update(*arguments(apps, "--application", "web-staging"))
    env = {"IMAGE_UPDATE_PROMOTE_FROM": "*-staging", "IMAGE_UPDATE_PROMOTE_TO": "web-production"}
    assert promoted(apps, env=env).code == 0
    assert "newTag: 1.1.0" in show(production, "main", target("web-production"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "web-production"], "--from is missing or empty"),
        (["--from", "web-staging"], "--to is missing or empty"),
        (["--from", "*", "--to", "{cluster}"], "--to: unknown placeholder {cluster}"),
        (
            ["--from", "a", "--to", "b", "--healthy"],
            "--healthy: cannot tell which Argo CD to query",
        ),
        (["--from", "a", "--to", "b", "--sequence", "1"], "promote has no --sequence"),
    ],
)
def test_invalid_options_are_usage_errors(
    stages: tuple[Path, Path, Path], words: list[str], message: str
) -> None:
    result = promoted(stages[0], *words)
    assert (result.code, message in result.stderr) == (2, True), result.stderr


def test_an_unreadable_source_repository_is_reported_for_the_target(
    stages: tuple[Path, Path, Path],
) -> None:
    apps, staging, production = stages
    staging.rename(staging.with_name("gone.git"))
    result = promoted(apps, "--from", "web-staging", "--to", "web-production")
    assert result.code == 4
    assert result.json["decisions"][0]["because"].startswith("argocd/web-staging: ")
    assert git(production, "rev-list", "--count", "main") == "1"


def test_only_healthy_versions_are_promoted_even_to_live_applications(
    tmp_path: Path,
) -> None:
    repo = repository(tmp_path, "staging")
    with running() as api:
        staging = full_application("staging", repo)
        api.add(APPLICATIONS, staging)
        api.add(APPLICATIONS, live_app("production"))
        words = (
            "--kubeconfig",
            kubeconfig(tmp_path, api),
            "--healthy",
            "--from",
            "staging",
            "--to",
            "production",
        )
        assert promoted("cluster", *words).json["decisions"][0]["rule"] == "not-healthy"
        staging["status"] |= {"sync": {"status": "Synced"}, "health": {"status": "Healthy"}}
        api.add(APPLICATIONS, staging)
        image_update(*arguments("cluster", "--application", "staging", *words[:2]))
        behind = promoted("cluster", *words)
        assert (
            behind.json["decisions"][0]["because"]
            == "argocd/staging is not running 1.1.0: Argo CD shows 1.0.0"
        )
        assert behind.code == 0
        staging["status"]["summary"] = {"images": [f"{WEB}:1.1.0"]}
        api.add(APPLICATIONS, staging)
        assert promoted("cluster", *words).json["status"] == "updated"
        assert f"{WEB}:1.1.0" in json.dumps(api.of(APPLICATIONS, "production"))


def test_a_promotion_is_reported_as_text(stages: tuple[Path, Path, Path]) -> None:
    apps, _, _ = stages
    image_update(*arguments(apps, "--application", "web-staging"))
    result = promoted(apps, "--from", "web-staging", "--to", "web-production", "--output", "text")
    assert "admits it  apps/" in result.stdout
