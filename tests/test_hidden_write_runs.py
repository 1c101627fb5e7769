"""A values file whose values are overridden elsewhere, in every command that reads the file."""

from pathlib import Path

import pytest
from support import Result, bare_repo, image_update
from support.runs import WEB, application, arguments, manifest

FILES = {"apps/a/Chart.yaml": "name: a\n", "apps/a/values.yaml": "image: {tag: 1.0.0}\n"}
PLACE = "spec.source.helm.parameters in the Application sets image.tag"


def call(command: str, apps: Path) -> Result:
    if command == "run":
        return image_update(*arguments(apps))
    if command == "plan":
        return image_update("plan", *arguments(apps)[1:])
    where = ("--applications", str(apps)) if command == "status" else (str(apps),)
    return image_update(command, *where, "--allow-protocol", "file", *(("--output", "json") if command == "lint" else ()))  # fmt: skip


@pytest.mark.parametrize("command", ["run", "plan", "lint", "status"])
def test_every_command_fails_and_names_the_value_that_hides_the_update(
    tmp_path: Path, command: str
) -> None:
    repo = bare_repo(tmp_path, FILES)
    app = application("a", repo, image_list=f"web={WEB}", write_back_target="helmvalues")
    app["spec"]["source"]["helm"] = {"parameters": [{"name": "image.tag", "value": "0.9.0"}]}
    result = call(command, manifest(tmp_path, app))
    assert result.code == 3, result.stdout + result.stderr
    assert PLACE in result.stdout + result.stderr
    assert "remove it from spec.source.helm.parameters" in result.stdout + result.stderr


def test_lint_reports_a_hidden_value_without_reading_the_repository(tmp_path: Path) -> None:
    app = application("a", "https://git.example/x.git", write_back_target="helmvalues")
    app["spec"]["source"]["helm"] = {"parameters": [{"name": "image.tag", "value": "0.9.0"}]}
    result = call("lint", manifest(tmp_path, app))
    assert (result.code, PLACE in result.stdout) == (3, True)
