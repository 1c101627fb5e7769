"""All external JSON is parsed by a single function, which no text can crash."""

import re
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from task.plain_data import DEEPEST, parsed_json

TASK = Path(__file__).parent.parent / "task"
# `schemas` reads a file that is part of this package.
READERS = {"plain_data.py", "schemas/__init__.py"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), "nested too deeply"),
        ('{"a":[' * DEEPEST + "1" + "]}" * DEEPEST, "nested too deeply"),
        ("NaN", "not JSON"),
        ("[-Infinity]", "not JSON"),
        ('{"expires_in": 1e999}', "too large"),
        ("1" * 5000, "a number is too large"),
        ("", "Expecting value"),
        ("{", "Expecting"),
        (b"\xff\xfe", "decode"),
        (b'"\xed\xa0\x80"', "decode"),
    ],
)
def test_invalid_json_is_rejected(text: str | bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parsed_json(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'\xef\xbb\xbf{"a": "\xc3\xa9"}', {"a": "é"}),
        ('"\\ud800 and \\ud83d\\ude00"', "\ufffd and 😀"),
        ('{"\\uDC00": "\\\\ud800"}', {"\ufffd": "\\ud800"}),
        ('["' + "[{" * 1000 + '"]', ["[{" * 1000]),
        ("[1.5, 1e300, -0]", [1.5, 1e300, 0]),
    ],
)
def test_valid_json_is_parsed(text: str | bytes, value: Any) -> None:
    assert parsed_json(text) == value


def test_json_at_the_depth_limit_is_parsed() -> None:
    value = parsed_json("[" * DEEPEST + "]" * DEEPEST)
    for _ in range(DEEPEST - 1):
        (value,) = value
    assert value == []


@given(st.text(alphabet='[]{}",:0a\\ud8eE-.') | st.binary(max_size=50))
def test_any_text_is_parsed_or_raises_a_value_error(text: str | bytes) -> None:
    with suppress(ValueError):
        parsed_json(text)


def test_the_cost_of_checking_the_depth_is_linear_in_the_size_of_the_text() -> None:
    """The number of executed lines per container is about the same, however many containers the
    text has.
    """

    def lines(number: int) -> int:
        text = "[" + ",".join(['{"a": [{"b": ["c"]}]}'] * number) + "]"
        count = 0

        def watch(_frame: FrameType, event: str, _argument: object) -> Any:
            nonlocal count
            count += event == "line"
            return watch

        before = sys.gettrace()
        sys.settrace(watch)
        try:
            parsed_json(text)
        finally:
            sys.settrace(before)
        return count

    assert lines(4000) < 12 * lines(500)


def test_no_other_module_parses_json_directly() -> None:
    found = {
        str(path.relative_to(TASK))
        for path in TASK.rglob("*.py")
        if re.search(
            r"\bjson\.loads?\(|\bJSONDecoder\b|from json import .*\bloads?\b", path.read_text()
        )
    }
    assert found == READERS
