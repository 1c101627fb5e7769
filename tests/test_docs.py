"""What the command can do is documented, and what is documented exists."""

import re

import pytest
from support import ROOT

from task.errors import Exit
from task.options import COMMANDS, OPTIONS, Option
from task.parse.annotations import APPLICATION_KEYS, DEPRECATED, IMAGE_KEYS, STRATEGIES
from task.schemas import load
from task.words.results import NAMES

REFERENCE = (ROOT / "docs" / "reference.md").read_text()
ANNOTATIONS = (ROOT / "docs" / "annotations.md").read_text()
LATER = {
    "superseded",
    "platforms",
    "not-in-registry",
    "signature",
}  # rules of the report's schema that no code path gives yet


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_is_documented_with_its_variable(option: Option) -> None:
    row = next(line for line in REFERENCE.splitlines() if line.startswith(f"| `--{option.name}`"))
    assert f"`{option.variable}`" in row
    assert option.help in row
    assert all(choice in row for choice in option.choices)


def test_every_option_that_is_documented_exists() -> None:
    named = set(re.findall(r"`--(?:no-)?([a-z-]+)", REFERENCE + ANNOTATIONS)) - {"version", "keep", "wait"}
    assert named <= {option.name for option in OPTIONS}


@pytest.mark.parametrize("key", [*APPLICATION_KEYS, *IMAGE_KEYS])
def test_every_annotation_is_documented(key: str) -> None:
    assert re.search(rf"^\|.*`{re.escape(key)}`", ANNOTATIONS, re.MULTILINE)


@pytest.mark.parametrize("name", [*STRATEGIES, *DEPRECATED])
def test_every_strategy_is_documented(name: str) -> None:
    assert f"`{name}`" in ANNOTATIONS


@pytest.mark.parametrize("name", NAMES)
def test_every_result_is_documented(name: str) -> None:
    assert re.search(rf"^\|.*`{name}`", REFERENCE, re.MULTILINE)


@pytest.mark.parametrize("code", Exit, ids=lambda code: code.name)
def test_every_exit_code_is_documented(code: Exit) -> None:
    assert re.search(rf"^\|[^|]*\b{int(code)}\b[^|]*\|", REFERENCE, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_documented(command: str) -> None:
    assert f"`image-update {command}" in REFERENCE


def test_every_rule_is_documented() -> None:
    rules = load("report.v1")["properties"]["decisions"]["items"]["properties"]["rule"]["enum"]
    assert [rule for rule in rules if f"`{rule}`" not in REFERENCE and rule not in LATER] == []
