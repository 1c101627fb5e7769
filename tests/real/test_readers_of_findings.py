"""Lint reports as read by sarif-tools and junitparser. GitLab's own parser is written in Ruby."""

import json
import subprocess
from pathlib import Path

import pytest
from cli.test_lint_reports import FOUND, WRONG
from real.programs import installed
from support import image_update

from task.cli import lint_views

pytestmark = pytest.mark.real


def test_sarif_tools_reads_every_finding(tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text(WRONG)
    log = tmp_path / "lint.sarif"
    log.write_text(image_update("lint", ".", "--output", "sarif", cwd=tmp_path).stdout)
    table = tmp_path / "table.csv"
    subprocess.run([installed("bin/sarif"), "csv", "--output", table, log], check=True)
    _head, *rows = table.read_text(encoding="utf-8").splitlines()
    (run,) = json.loads(log.read_text())["runs"]
    assert len(rows) == len(run["results"]) > 1
    assert rows[0].startswith("image-update lint,error,allow-tags,")
    assert rows[0].endswith(",web.yaml,8")


@pytest.mark.parametrize("name", FOUND)
def test_junitparser_counts_the_failures(name: str, tmp_path: Path) -> None:
    report = tmp_path / "lint.xml"
    report.write_text(lint_views.junit(FOUND[name]))
    done = subprocess.run([installed("bin/junitparser"), "verify", report], check=False)
    errors = [one for one, _, _ in FOUND[name] if one.severity == "error"]
    assert done.returncode == (1 if errors else 0)
