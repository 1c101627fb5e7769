"""When output is colored, and how wide it is."""

import sys
from io import StringIO

import pytest

from task.output.console import console_of, stderr_console, stdout_console


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


PLAIN, COLOURLESS, COLOURED = None, False, True


@pytest.mark.parametrize(
    ("environ", "terminal", "expected"),
    [
        ({"TERM": "xterm"}, True, COLOURED),
        ({"TERM": "xterm"}, False, PLAIN),
        ({"TERM": "dumb"}, True, PLAIN),
        ({}, True, PLAIN),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, COLOURLESS),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, COLOURED),
        ({"TERM": "xterm", "CLICOLOR": "0"}, True, COLOURLESS),
        ({"TERM": "xterm", "CLICOLOR": "0", "FORCE_COLOR": "1"}, True, COLOURED),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True, COLOURED),
        ({"FORCE_COLOR": "1"}, False, COLOURED),
        ({"CLICOLOR_FORCE": "1"}, False, COLOURED),
        ({"FORCE_COLOR": "0", "CLICOLOR_FORCE": ""}, False, PLAIN),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, PLAIN),
        ({"TERM": "xterm", "FORCE_COLOR": "1", "NO_COLOR": "1"}, True, COLOURLESS),
    ],
)
def test_colors_depend_on_the_terminal_and_the_environment(
    environ: dict[str, str], terminal: bool, expected: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal() if terminal else StringIO())
    console = stdout_console(environ)
    assert (console and console.color_system == "standard") is expected


def test_forced_colors_do_not_apply_to_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", StringIO())
    assert stderr_console({"TERM": "xterm", "FORCE_COLOR": "1"}) is None


def test_a_closed_stream_is_not_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    sys.stderr.close()
    monkeypatch.setattr(sys.stderr, "isatty", StringIO.isatty.__get__(sys.stderr))
    assert stderr_console({"TERM": "xterm"}) is None


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("", 80),
        ("60", 60),
        ("5", 20),
        ("400", 160),
        ("x", 80),
        ("0", 80),
        ("99999999", 80),
        ("²", 80),
    ],
)
def test_the_width_follows_the_columns_variable_within_limits(columns: str, expected: int) -> None:
    assert console_of(Terminal(), {"COLUMNS": columns}).width == expected
