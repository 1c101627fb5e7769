"""Every YAML reader reads a written string back as the same string."""

import re
from io import StringIO
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from task.editors.yaml.spelling import double_quoted, flow, looks_typed, plain_safe, reblock, spell

NUMERIC = st.text("0123456789+-_.:eExXobfT naif", max_size=10)
ODD = """
    y n Y NO on Off true False null ~ = << .inf -.INF .NaN 0o17 0b1 1:30 12e03 2024-01-02 1_000 ... --- - ? :
"""
WORDS = st.sampled_from(ODD.split())
TEXTS = st.text(max_size=12) | NUMERIC | WORDS | st.builds("{}{}".format, WORDS, NUMERIC)


def go_takes_for_a_string(text: str) -> bool:
    """Return whether goyaml.v2 (used by Helm, Argo CD, and kustomize) parses a text as a string."""
    if text.lower() in {"y", "yes", "n", "no", "on", "off", "true", "false", "null", "", "~", "<<"}:
        return False
    if text[:1] not in {*"+-.0123456789", "~", *"yYnNtTfFoO<", ""}:
        return True
    if text in {".nan", ".NaN", ".NAN"} or re.fullmatch(r"[-+]?\.(inf|Inf|INF)", text):
        return False
    bare = text.replace("_", "")
    integer = r"[-+]?(0[xX][0-9a-fA-F]+|0[oO]?[0-7]+|0[bB][01]+|[0-9]+)"
    decimal = r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    return not (
        re.fullmatch(integer, bare)
        or re.fullmatch(decimal, bare)
        or re.fullmatch(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?", text)
    )


def in_every_place(spelled: str, flowing: str) -> str:
    return f"key: {spelled}\nlist:\n- {spelled}\n- deep: {spelled}  # note\nflow: {{a: [{flowing}], b: {flowing}}}\n"


def content(data: Any) -> list[Any]:
    return [
        data["key"],
        data["list"][0],
        data["list"][1]["deep"],
        data["flow"]["a"][0],
        data["flow"]["b"],
    ]


@given(TEXTS)
def test_yaml_1_1_readers_read_the_same_string(text: str) -> None:
    assert content(yaml.safe_load(in_every_place(spell(text), flow(text)))) == [text] * 5


@given(TEXTS)
@example("+_")
@example("-_1")
def test_yaml_1_2_readers_read_the_same_string(text: str) -> None:
    reader = YAML(typ="safe", pure=True)
    assert (
        content(reader.load(StringIO(in_every_place(spell(text), flow(text)), newline="")))
        == [text] * 5
    )


@given(TEXTS)
def test_unquoted_text_is_a_string_to_go_readers(text: str) -> None:
    assert go_takes_for_a_string(text) or not plain_safe(text)


@given(TEXTS, st.sampled_from(["'", '"']))
def test_text_in_the_requested_quotes_is_read_back_unchanged(text: str, style: str) -> None:
    assert yaml.safe_load(f"key: {spell(text, style)}\n") == {"key": text}


@given(TEXTS)
def test_text_that_some_reader_does_not_parse_as_a_string_looks_typed(text: str) -> None:
    try:
        taken = yaml.safe_load(f"key: {text}\n")
    except (yaml.YAMLError, ValueError):
        return
    if (
        isinstance(taken, dict)
        and "key" in taken
        and not isinstance(taken["key"], str | list | dict)
    ):
        assert looks_typed(text.strip()) or "#" in text or text.strip()[:1] in {"!", "&"}


PLAIN = [
    "v1.0.0",
    "1.2.3",
    "1.10.0",
    "sha256-abc",
    "release-2024",
    "ghcr.io/acme/api:1.1",
    "2024-01-02-abc",
    "nginx:1",
    "1.20.3+b",
]
QUOTED = [
    "1.20",
    "16",
    "0755",
    "yes",
    "2024-01-02",
    "1e3",
    "12345678",
    "a: b",
    "a #b",
    "-x",
    "@x",
    "a:",
    "",
    " a",
    "1:30",
    "[a]",
]


@pytest.mark.parametrize("text", PLAIN)
def test_common_versions_are_written_without_quotes(text: str) -> None:
    assert spell(text) == text


@pytest.mark.parametrize("text", QUOTED)
def test_ambiguous_text_is_quoted(text: str) -> None:
    assert spell(text) == double_quoted(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("|\n  v1\n", "|-\n  v2"),
        (">-  # note\r\n    v1", ">-  # note\r\n    v2"),
        ("|2+\n   v1\n\n", "|-\n   v2"),
        ("|\n", None),
    ],
)
def test_a_block_scalar_keeps_its_style(old: str, new: str | None) -> None:
    assert reblock(old, "v2") == new
