"""The log lines in each log format."""

import io
import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from task.output.console import console_of
from task.output.log import Log


def lines(form: str, level: str = "debug", *, person: bool = False) -> list[str]:
    stream = io.StringIO()
    log = Log(
        level, form, stream, console=console_of(stream, {"COLUMNS": "40"}) if person else None
    )
    log("debug", "100 % of [bold]x[/bold]")
    log("info", "100 % of x")
    log("warning", "100 % of x")
    log.problem("error", "argocd/web", f"the path '{'x' * 40}' is missing", "check :smile: it")
    return stream.getvalue().splitlines()


PATH = "x" * 40


@pytest.mark.parametrize(
    ("form", "person", "expected"),
    [
        ("text", False, [
            "debug: 100 % of [bold]x[/bold]", "100 % of x", "warning: 100 % of x",
            f"error: argocd/web: the path '{PATH}' is missing", "  fix: check :smile: it",
        ]),
        ("github", False, [
            "::debug::100 %25 of [bold]x[/bold]", "100 % of x", "::warning::100 %25 of x",
            f"::error title=argocd/web::argocd/web: the path '{PATH}' is missing%0A  fix: check :smile: it",
        ]),
        ("text", True, [
            "\x1b[2mdebug:\x1b[0m 100 % of [bold]x[/bold]", "100 % of x", "\x1b[1;33mwarning:\x1b[0m 100 % of x",
            f"\x1b[1;31merror:\x1b[0m argocd/web: the path '{PATH}' is missing",
            "  \x1b[1mfix:\x1b[0m check :smile: it",
        ]),
    ],
)  # fmt: skip
def test_each_log_format_prints_the_expected_lines(
    form: str, person: bool, expected: list[str]
) -> None:
    assert lines(form, person=person) == expected


@pytest.mark.parametrize("person", [True, False])
def test_json_lines_have_a_time_and_a_level(person: bool) -> None:
    found = [json.loads(line) for line in lines("json", person=person)]
    assert [one["level"] for one in found] == ["debug", "info", "warning", "error"]
    assert found[3]["msg"] == f"argocd/web: the path '{PATH}' is missing"
    assert [one.get("fix") for one in found] == [None, None, None, "check :smile: it"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", one["time"]) for one in found)


@pytest.mark.parametrize(
    ("level", "number"), [("debug", 5), ("info", 4), ("warning", 3), ("error", 2)]
)
def test_the_log_level_limits_the_number_of_lines(level: str, number: int) -> None:
    assert len(lines("text", level)) == number


def test_libraries_do_not_write_to_the_log() -> None:
    stream = io.StringIO()
    Log("debug", stream=stream)
    logging.getLogger("urllib3").error("x")
    logging.getLogger().error("x")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("person", [True, False])
def test_an_unwritable_log_does_not_stop_the_run(person: bool, tmp_path: Path) -> None:
    code = f"""
import os, sys
from task.output.console import console_of
from task.output.log import Log
os.dup2(os.open("/dev/full", os.O_WRONLY), 2)
log = Log(console=console_of(sys.stderr, {{}}) if {person} else None)
log("error", "x")
log.problem("error", "", "x", "y")
try:
    1 / 0
except ZeroDivisionError as error:
    log.traceback(error)
print("went on")
"""
    path = tmp_path / "log.py"
    path.write_text(code)
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent.parent)}
    done = subprocess.run([sys.executable, path], env=environ, capture_output=True, check=True)
    assert done.stdout == b"went on\n"
