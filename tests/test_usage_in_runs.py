"""What the pipeline's author got wrong, and what comes to light only while a run is under way."""

from pathlib import Path

import jsonschema
import pytest
from runs import application, arguments, manifest, repository
from support import git, image_update

from task.schemas import load

NOWHERE = "/no/such/file"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--pull-request", "--forge", "gitea", "--forge-token-file", NOWHERE], "--forge-token-file: cannot read"),
        (["--signing-key", NOWHERE], "--signing-key: cannot read"),
        (["--verify", NOWHERE], "--verify: cannot read"),
    ],
)
def test_a_missing_file_is_the_authors_mistake(tmp_path: Path, more: list[str], words: str) -> None:
    repo = repository(tmp_path, "web")
    done = image_update(*arguments(manifest(tmp_path, application("web", f"file://{repo}")), *more))
    assert (done.code, done.json["status"], done.json["commits"]) == (2, "failed", []), done.stderr
    assert words in done.stderr
    jsonschema.validate(done.json, load("report.v1"))
    assert git(repo, "rev-list", "--count", "main") == "1"


def test_git_that_is_not_installed_is_no_success(tmp_path: Path) -> None:
    repo = repository(tmp_path, "web")
    apps = manifest(tmp_path, application("web", f"file://{repo}"))
    done = image_update(*arguments(apps), env={"PATH": str(tmp_path)})
    assert (done.code, done.json["status"]) == (2, "failed"), done.stderr
    assert [one["rule"] for one in done.json["decisions"]] == ["usage"]
    jsonschema.validate(done.json, load("report.v1"))
    assert "git is not installed; install git" in done.stderr


def test_a_file_that_registries_conf_names_is_not_a_registry_that_does_not_answer(tmp_path: Path) -> None:
    """Without an answer newest-build goes on by arrival; here nobody was asked."""
    repo = repository(tmp_path, "web")
    apps = manifest(tmp_path, application("web", f"file://{repo}", update_strategy="newest-build"))
    conf = tmp_path / "registries.conf"
    conf.write_text(f"registries:\n- {{name: g, prefix: ghcr.io, api_url: 'https://ghcr.io', ca_file: {NOWHERE}}}\n")
    done = image_update(*arguments(apps, "--registry-check", "auto", "--registries-conf", conf))
    assert (done.code, done.json["commits"]) == (2, []), done.stderr
    assert f"cannot read ca_file '{NOWHERE}'" in done.stderr
