"""Untrusted text that is made safe to print."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runner_rules import ATTACKS, dangers

from task.text import (
    blanked,
    exact_json,
    harmless,
    one_line,
    printable,
    printable_lines,
    visible,
    without_logins,
)

HOSTILE = st.text(
    st.sampled_from(":#[]\\ \t\n\r\x1b\u00a0\u034f\ufe0f\u202e\u2028\ud800vsoax"), max_size=12
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("::add-mask::x", "\\::add-mask::x"),
        ("  ::x::", "  \\::x::"),
        ("\t::x::", "\t\\::x::"),
        ("##[x]", "##\\[x]"),
        ("a ##[group]b ##[c]", "a ##\\[group]b ##\\[c]"),
        ("##vso[task.complete]", "##vso\\[task.complete]"),
        ("#\ufe0f#[x]", "#<U+FE0F>#[x]"),
        (":\ufe0f:x", ":<U+FE0F>:x"),
        ("\u00a0::x", "<U+00A0>::x"),
        ("\x1b[31mred\x9b0m", "^[[31mred<U+009B>0m"),
        ("a\nb\r\n", "a^Jb^M^J"),
        ("\u202eabc\u2069", "<U+202E>abc<U+2069>"),
        ("\u2028", "<U+2028>"),
        ("\udcff", "<U+DCFF>"),
        ("\x7f\x00", "^?^@"),
        ("a: b::c # d [e] #[f]", "a: b::c # d [e] #[f]"),
        ("at https://bob:pw@h/x, ssh://git@h/x", "at https://h/x, ssh://git@h/x"),
        ("'ssh://git:pw@h' http://t0ken@h:1/@x", "'ssh://git@h' http://h:1/@x"),
        ("日本 → ok ⚠\ufe0f", "日本 → ok ⚠\ufe0f"),
    ],
)
def test_special_characters_and_workflow_commands_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(HOSTILE)
def test_escaped_text_contains_no_workflow_commands(text: str) -> None:
    assert dangers(printable(text)) == []
    assert "\n" not in printable(text)
    assert printable(printable(text)) == printable(text)
    assert dangers(printable_lines(text)) == []
    assert printable_lines(text).count("\n") == text.count("\n")
    assert dangers(harmless("\n".join(map(visible, text.split("\n"))))) == []


@pytest.mark.parametrize("text", [one for one in ATTACKS if "\r" not in one and "\n" not in one])
def test_escaped_text_stays_readable(text: str) -> None:
    """Escaping adds only backslashes and character names."""
    letters = "".join(char for char in text if char.isprintable() and char != "\ufe0f")
    rest = iter(printable(text))
    assert all(char in rest for char in letters)


@pytest.mark.parametrize("ascii_only", [True, False])
@given(
    st.recursive(HOSTILE, lambda one: st.lists(one) | st.dictionaries(HOSTILE, one), max_leaves=5)
)
def test_escaped_json_keeps_its_value_and_contains_no_workflow_commands(
    ascii_only: bool, value: Any
) -> None:
    text = exact_json(json.dumps(value, indent=2, ensure_ascii=ascii_only))
    assert json.loads(text) == json.loads(json.dumps(value))
    assert dangers(text) == []
    text.encode()


def test_json_without_special_characters_is_unchanged() -> None:
    text = json.dumps({"a": ["x # y", "日本", "::x", "C#"]}, indent=2, ensure_ascii=False)
    assert exact_json(text) == text


def test_unprintable_characters_are_replaced_with_spaces() -> None:
    assert blanked("a\x1b[2Jb\r\nc\u202ed") == "a [2Jb  c d"


def test_multiline_text_is_joined_into_one_line() -> None:
    assert one_line("  a\x1b[2Jb\r\n\tc\u202ed ") == "a [2Jb c d"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("fatal: 'https://u:secret@h/x' and http://t@h/", "fatal: 'https://h/x' and http://h/"),
        ("ssh://git:secret@h/x, ssh://git@h/x", "ssh://git@h/x, ssh://git@h/x"),
        ("mail a@b.example", "mail a@b.example"),
        ("at https://u:se/cret@h/x, and 'http://u:a/b/c@h'", "at https://h/x, and 'http://h'"),
        ("ssh://git:se/cret@h/x", "ssh://git@h/x"),
        (
            "http://h:8080/x@main and https://[::1]:1/x@main",
            "http://h:8080/x@main and https://[::1]:1/x@main",
        ),
        (
            "see https://h/x@main or ssh://git@h:22/x@main",
            "see https://h/x@main or ssh://git@h:22/x@main",
        ),
        ("cannot read https://u:p@ss@h/x: no", "cannot read https://h/x: no"),
        ("'https://u:p@@h/x' and ssh://git:p@w@h/x", "'https://h/x' and ssh://git@h/x"),
        ('cannot read https://u:p"w@h/x: no', "cannot read https://h/x: no"),
        ("cannot read 'https://u:p'w@h:8443/x'", "cannot read 'https://h:8443/x'"),
        ("cannot read https://u:p w@h/x: no", "cannot read https://h/x: no"),
        ("cannot read https://u:p@ w@h/x: no", "cannot read https://h/x: no"),
        ("cannot read ssh://git:p w@h/x: no", "cannot read ssh://git@h/x: no"),
        ('"https://u:p w@h"', '"https://h"'),
        ("https://h: told by me@b.example", "https://h: told by me@b.example"),
        ("https://h:8443/x or me@b.example/c", "https://h:8443/x or me@b.example/c"),
    ],
)
def test_logins_are_removed_from_urls_within_a_text(text: str, shown: str) -> None:
    assert without_logins(text) == shown


@pytest.mark.parametrize("odd", ["@", "@@", "'", '"', " ", "#", "?", ":", "'\"", "/ ", "\\"])
@pytest.mark.parametrize("scheme", ["https://ci", "http://ci", "ssh://git"])
def test_passwords_with_odd_characters_are_removed_from_a_text(scheme: str, odd: str) -> None:
    text = f"fatal: cannot read '{scheme}:s3cret{odd}hush@git.example.com/x.git/': refused (403)"
    shown = without_logins(text)
    assert "s3cret" not in shown
    assert "hush" not in shown
    assert shown.endswith("git.example.com/x.git/': refused (403)")
