"""Where results and the report are written, as the hosts name the places."""

import json
from pathlib import Path

import pytest
from support import image_update


def test_a_folder_gets_report_json(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    folder.mkdir()
    done = image_update("run", "--image", "web:1", "--applications", tmp_path, "--report", folder)
    assert done.code == 0, done.stderr
    assert json.loads((folder / "report.json").read_text())["command"] == "run"


def test_a_failure_gets_there_as_well(tmp_path: Path) -> None:
    done = image_update("run", "--image", "web", "--applications", tmp_path, "--report", tmp_path)
    assert done.code == 2
    assert json.loads((tmp_path / "report.json").read_text())["status"] == "failed"


@pytest.mark.parametrize("image", ["web:1", "web"], ids=["success", "failure"])
def test_the_folder_of_results_may_be_told_by_one_of_them(tmp_path: Path, image: str) -> None:
    results = tmp_path / "steps" / "results"
    results.mkdir(parents=True)
    given = {"IMAGE_UPDATE_RESULTS_DIR": f"{results}/status/.."}
    image_update("run", "--image", image, "--applications", tmp_path, env=given)
    assert (results / "status").is_file()
    assert (results / "updated").read_text() == "false"
