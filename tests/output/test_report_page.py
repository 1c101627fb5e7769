"""The page template is in the place where an installed package looks for it."""

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from support import ROOT

from task.output import report_page


def test_the_wheel_contains_every_file_that_a_run_reads(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    (wheel,) = tmp_path.iterdir()
    files = {
        path for path in (ROOT / "task").rglob("*") if path.is_file() and path.suffix != ".pyc"
    }
    assert {str(path.relative_to(ROOT)) for path in files} <= set(ZipFile(wheel).namelist())


def test_the_page_template_is_loaded_from_the_package() -> None:
    found = report_page.ENVIRONMENT.get_template("report.html.j2")
    assert found.filename == str(Path(report_page.__file__).parent / "report.html.j2")
