"""The documentation of the repository's config: keys, examples, and the times in the guide."""

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml
from support import ROOT
from support.memory import story

from scripts.transcripts import blocks
from task.repository_config.config import NO_CONFIG, PATH
from task.repository_config.reading import LARGEST, MOST, read_config
from task.schemas import load

SCHEMA = load("config.v1")
PAGE = (ROOT / "docs" / "repository-config.md").read_text()
GUIDE = (ROOT / "docs" / "how-to" / "freeze.md").read_text()
CONFIGS = [
    block.code
    for page in sorted((ROOT / "docs").rglob("*.md"))
    for block in blocks(page.read_text())
    if block.language == "yaml" and block.code.startswith("version: 1\n")
]


def _keys(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, one in schema.get("properties", {}).items():
        found = SCHEMA["definitions"][one["$ref"].rpartition("/")[2]] if "$ref" in one else one
        where = "" if name == "match" else f"{path}{name}"
        yield f"{path}{name}"
        yield from _keys(found, "match." if name == "match" else f"{where}.")
        items = found.get("items", {})
        if "$ref" in items:
            yield from _keys(SCHEMA["definitions"][items["$ref"].rpartition("/")[2]], f"{name}[].")


@pytest.mark.parametrize(
    "key",
    sorted({key for key in _keys(SCHEMA) if not key.startswith("rules[].") or "match" in key}),
)
def test_every_key_is_documented(key: str) -> None:
    table = PAGE.partition("## The keys")[2].partition("\n## ")[0]
    assert re.search(rf"^\|[^|]*`{re.escape(key)}[`.[]", table, re.MULTILINE)


def test_the_documented_limits_match_the_code() -> None:
    limits = (
        f"{LARGEST // 1024} KiB, {MOST['rules']} rules, {MOST['freezes']} freezes, "
        f"and {MOST['globs']:,} globs"
    )
    assert limits in PAGE


@pytest.mark.parametrize("text", CONFIGS)
def test_each_documented_example_is_a_valid_config(text: str) -> None:
    jsonschema.validate(yaml.safe_load(text), SCHEMA)
    assert read_config(text) != NO_CONFIG


@pytest.mark.parametrize(
    ("now", "verdict"),
    [
        ("2026-11-20T16:59:00Z", "update"),  # Friday, 17:59 in Berlin
        ("2026-11-20T17:00:00Z", "defer"),
        ("2026-11-23T06:59:00Z", "defer"),
        ("2026-11-23T07:00:00Z", "update"),  # Monday, 8:00
        ("2026-12-21T12:00:00Z", "update"),  # a Monday; freeze 2 is only for project shop
    ],
)
def test_the_freeze_in_the_guide_is_in_force_at_the_documented_times(
    now: str, verdict: str
) -> None:
    one = story("newest-build")
    one.branch.commit(
        {PATH: next(block.code for block in blocks(GUIDE) if block.language == "yaml")}
    )
    one.now = now
    assert one.event("b", 1)[0] == verdict


def test_the_guide_contains_valid_freezes() -> None:
    assert len(CONFIGS) >= 2
    assert len(read_config(CONFIGS[0]).freezes) == 2
