"""What the command can do is documented, and what is documented exists."""

import re

import pytest
from support import ROOT

from scripts.options import table
from task.errors import Exit
from task.options import COMMANDS, OPTIONS
from task.parse.annotations import APPLICATION_KEYS, DEPRECATED, IMAGE_KEYS, STRATEGIES
from task.schemas import load
from task.words.results import NAMES

REFERENCE = (ROOT / "docs" / "reference.md").read_text()
ANNOTATIONS = (ROOT / "docs" / "annotations.md").read_text()
LATER = {
    "platforms",
    "not-in-registry",
    "signature",
}  # rules of the report's schema that no code path gives yet


def test_the_table_of_options_is_that_of_the_code() -> None:
    assert table() in REFERENCE, "python -m scripts.options writes it"


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
