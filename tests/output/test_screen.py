"""The help pages, at any width."""

import re

import pytest

from task.cli.help_page import PANELS, command_help, root_help
from task.cli.options import COMMANDS, OPTIONS, options_of
from task.output.colour import Look
from task.output.columns import columns


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_every_option_with_its_variable(command: str, width: int) -> None:
    shown = command_help(command, Look(width))
    for option in options_of(command):
        assert re.search(rf"(^|\s){option.variable}$", shown, re.MULTILINE)
        assert option.positional or re.search(rf"^  --(no-)?{option.name}\b", shown, re.MULTILINE)
    helps = [line for line in shown.splitlines() if line.startswith("      ") and "IMAGE_UPDATE" not in line]
    assert all(columns(line) <= width for line in helps)


def test_every_group_of_options_has_its_place() -> None:
    assert {option.panel for option in OPTIONS} <= set(PANELS)


def test_the_help_of_the_whole_names_every_command() -> None:
    shown = root_help(Look(80))
    assert all(re.search(rf"^  {command} ", shown, re.MULTILINE) for command in COMMANDS)
