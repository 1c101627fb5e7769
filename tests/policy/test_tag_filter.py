"""allow-tags and ignore-tags: Go's regular expressions and globs, tested with tables and laws."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import costs_at_most

from task.errors import Malformed
from task.policy.tag_filter import (
    allow_pattern,
    allowed,
    check_glob,
    glob_match,
    ignored,
    split_globs,
)

CASES = json.loads(
    (Path(__file__).parents[1] / "data" / "cases" / "tag-match.json").read_text(encoding="utf-8")
)

# In Image Updater, a malformed glob matches nothing. Here, it is an error in the entry.
FAILS_CLOSED = {"ignore-sym--x": "a [class] that is not closed"}


def ignore_globs(value: str) -> tuple[str, ...]:
    globs = split_globs(value)
    for glob in globs:
        check_glob(glob)
    return globs


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES["cases"]])
def test_the_same_tags_are_allowed_as_in_image_updater(case: dict[str, Any]) -> None:
    given_ = case["input"]
    try:
        pattern = allow_pattern(given_.get("allow", ""))
        taken = allowed(pattern, given_["tag"]) and not ignored(
            ignore_globs(given_.get("ignore", "")), given_["tag"]
        )
    except Malformed:
        taken = False
    if case["id"] in FAILS_CLOSED:
        assert (taken, case["expect"]) == (False, True)
    else:
        assert taken is case.get("expect_v1", case["expect"])


@pytest.mark.parametrize(
    ("value", "pattern"),
    [
        ("", None),
        ("any", None),
        (" ANY ", None),
        ("regexp:^v1", "^v1"),
        (" RegExp:^v1 ", "^v1"),
        ("regexp: ^v1", " ^v1"),
        ("regexp:", ""),
        ("regexp:a:b", "a:b"),
        ("regexp:any", "any"),
    ],
)
def test_allow_tags_values_are_parsed(value: str, pattern: str | None) -> None:
    assert allow_pattern(value) == pattern


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("^v1", "use regexp:^v1"),
        ("anything", "use regexp:^anything$"),
        ("1.2.3", r"use regexp:^1\.2\.3$"),
        ("main-*", "use regexp:^main-.*$"),
        ("v1.*", "use regexp:v1.*"),
        ("*", "use any"),
        ("regex:^v1", "use regexp:^v1"),
        ("regexp :^v1", "use regexp:^v1"),
        ("regexpv:^v1", "use regexp:^v1"),
        ("Regxp:'^v1'", "use regexp:^v1"),
        ("any:x", "use regexp:any:x"),
        ("/^v1/", "use regexp:^v1"),
        ("'main-*'", "use regexp:^main-.*$"),
        ("regex:/^v1/", "use regexp:^v1"),
        ("glob:v*", "globs are only for ignore-tags; instead, use regexp:^v.*$"),
    ],
)
def test_an_invalid_allow_tags_value_is_rejected_with_a_suggestion(value: str, hint: str) -> None:
    with pytest.raises(Malformed, match="neither 'any' nor 'regexp:") as caught:
        allow_pattern(value)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("pattern", "lacking"),
    [
        ("^v(?!1)", True),
        ("(?<=v)1", True),
        ("(a)\\1", True),
        ("(?P<x>a)(?P=x)", True),
        ("^(1", False),
        ("(\\\\1", False),
        ("[", False),
    ],
)
def test_unsupported_regexp_features_are_explained_only_if_used(
    pattern: str, lacking: bool
) -> None:
    with pytest.raises(Malformed) as caught:
        allow_pattern(f"regexp:{pattern}")
    assert caught.value.hint.startswith(
        "RE2 does not support look-around" if lacking else "fix the pattern"
    )


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("[", "missing ]"),
        ("(", "missing \\)"),
        ("a**", "\\*\\*"),
        ("(?=1)1", "\\(\\?="),
        ("(?!1)", "\\(\\?!"),
        ("(?>a)", "\\(\\?>"),
        ("(?#a)", "\\(\\?#"),
        ("(?x)a", "\\(\\?x"),
        ("(a)\\1", "\\\\1"),
        ("a\\", "trailing"),
        ("a\\Z", "\\\\Z"),
        ("\\u0041", "\\\\u"),
        ("a{1001}", "repetition size"),
        ("(?:a{100}){100}", "repetition size"),
        ("[b-a]", "b-a"),
        ("\\p{Foo}", "Foo"),
        ("\\C", "\\\\C"),
        ("\\\\\\C", "\\\\C"),
        ("(?P<é>a)", "named capture"),
        ("(?P<1 >a)", "1"),
        ("\ud800", "UTF-8"),
        ("\\pL{1000}" * 9, "too large"),
    ],
)
def test_invalid_regexp_patterns_are_rejected_with_the_re2_error(pattern: str, says: str) -> None:
    with pytest.raises(Malformed, match=says) as caught:
        allow_pattern(f"regexp:{pattern}")
    assert repr(pattern[:20])[1:-1] in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("pattern", "tag", "taken"),
    [
        ("v1", "rev10", True),
        ("^v1$", "v1", True),
        ("^v1$", "v1\n", False),
        ("(?m)^v1$", "x\nv1\n", True),
        ("^v1\\z", "v1", True),
        ("", "", True),
        ("A", "a", False),
        ("(?i)A", "a", True),
        ("(?i)k", "\u212a", True),
        ("\\d", "٣", False),
        ("\\w", "é", False),
        ("\\s", "\u00a0", False),
        ("\\pL", "é", True),
        ("^.$", "é", True),
        ("(?s)^.$", "\n", True),
        ("^.$", "\n", False),
        ("[[:alpha:]]", "1", False),
        ("(?P<n>a)(?<m>b)", "ab", True),
        ("(?P<n>a)(?P<n>b)", "ab", True),
        ("[(?P<é>]", "(", True),
        ("\\\\C", "\\C", True),
        ("\\Q\\C\\E", "\\C", True),
        ("\\Q1.2\\E", "1.2", True),
        ("a{,3}", "a{,3}", True),
        ("\\x41\\101", "AA", True),
        ("a{1000}", "a" * 1000, True),
        ("\\pL{128}", "é" * 128, True),
        ("a", "\ud800a", True),
        ("(?U)^a+$", "aaa", True),
    ],
)
def test_regexp_patterns_match_as_in_go(pattern: str, tag: str, taken: bool) -> None:
    read = allow_pattern(f"regexp:{pattern}")
    assert read == pattern
    assert allowed(read, tag) is taken


@pytest.mark.parametrize("read", [lambda text: allow_pattern(f"regexp:{text}"), ignore_globs])
def test_a_pattern_has_at_most_4096_characters(read: Callable[[str], object]) -> None:
    assert read("a" * 4096)
    with pytest.raises(Malformed, match=r"a+…' has 200,000 characters, but at most 4,096"):
        read("a" * 200_000)


# The patterns of up to 4,096 characters that take the most time or memory.
@pytest.mark.parametrize(
    "pattern",
    [
        "\\pL" * 1365,
        "x{1000}" * 585,
        "\\pL{1000}" * 455,
        "(" * 1000 + "a" + ")" * 1000,
        "(" * 900 + "a*" + ")*" * 900,
        "((((a{1,10}){1,10}){1,10}){1,1})",
    ],
    ids=lambda pattern: pattern[:12],
)
def test_complex_regexp_patterns_are_compiled_and_matched_quickly(pattern: str) -> None:
    with costs_at_most(seconds=5), suppress(Malformed):
        read = allow_pattern(f"regexp:{pattern}")
        for number in range(2000):
            allowed(read, f"v1.2.3-{'a' * 100}{number}")


def test_every_tag_is_allowed_without_a_pattern() -> None:
    assert allowed(None, "anything at all")


@pytest.mark.parametrize(
    ("value", "globs"),
    [
        ("", ()),
        (" , ,", ()),
        ("a, b ,c*", ("a", "b", "c*")),
        ("{a,b}", ("{a", "b}")),
        ("latest master", ("latest master",)),
        ("[z-a],[!a],[^a],\\*", ("[z-a]", "[!a]", "[^a]", "\\*")),
    ],
)
def test_ignore_tags_values_are_parsed(value: str, globs: tuple[str, ...]) -> None:
    assert ignore_globs(value) == globs


@pytest.mark.parametrize(
    "glob",
    [
        "[",
        "[a",
        "[]",
        "[]a]",
        "[^]",
        "[^]a]",
        "[a-]",
        "[-a]",
        "[a-z",
        "[a-b-c]",
        "a\\",
        "[\\",
        "[a\\",
        "*[",
        "x*[",
        "[a-\\",
    ],
)
def test_malformed_globs_are_rejected(glob: str) -> None:
    with pytest.raises(Malformed, match="is not a glob") as caught:
        ignore_globs(f"ok,{glob}")
    assert caught.value.hint
    assert not glob_match(glob, glob)


@pytest.mark.parametrize(
    ("glob", "tag", "matches"),
    [
        ("latest", "latest", True),
        ("latest", "latest1", False),
        ("Latest", "latest", False),
        ("*", "", True),
        ("*", "anything", True),
        ("*", "a/b", False),
        ("*/*", "a/b", True),
        ("**", "abc", True),
        ("?", "", False),
        ("?", "é", True),
        ("?", "/", False),
        ("*-rc*", "1.0-rc1", True),
        ("*-rc*", "1.0", False),
        ("a*c*e", "abcde", True),
        ("a*b", "ab b", True),
        ("*b*b", "ab", False),
        ("*ab", "aab", True),
        ("[a-c]x", "bx", True),
        ("[a-c]x", "dx", False),
        ("[^a-c]", "d", True),
        ("[^a-c]", "b", False),
        ("[!a]", "b", False),
        ("[!a]", "!", True),
        ("[z-a]", "b", False),
        ("[^z-a]", "b", True),
        ("[a&&b]", "&", True),
        ("[[a]", "[", True),
        ("[\\]]", "]", True),
        ("[a\\-c]", "b", False),
        ("[a\\-c]", "-", True),
        ("[a^]", "^", True),
        ("[*]", "*", True),
        ("[*]", "a", False),
        ("\\*", "*", True),
        ("\\*", "a", False),
        ("\\a", "a", True),
        ("]", "]", True),
        ("a-b", "a-b", True),
        ("{a", "{a", True),
        ("", "", True),
        ("", "a", False),
        ("*[^0-9]", "v1", False),
        ("*[0-9]", "v1", True),
        ("sha-???????", "sha-0a1b2c3", True),
    ],
)
def test_globs_match_as_in_go(glob: str, tag: str, matches: bool) -> None:
    assert glob_match(glob, tag) is matches


def test_the_glob_that_ignores_a_tag_is_reported() -> None:
    assert ignored(("x", "v*", "*"), "v1") == "v*"
    assert ignored(("x", "y"), "v1") == ""


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|aa)*$", "(?:a?){500}a{500}$", "(.*)(.*)(.*)(.*)[^a]$"]
)
def test_backtracking_regexp_patterns_are_matched_quickly(pattern: str) -> None:
    start = time.process_time()
    allowed(allow_pattern(f"regexp:{pattern}"), "a" * 10_000 + "!")
    assert time.process_time() - start < 5


def test_a_glob_with_many_stars_is_matched_quickly() -> None:
    start = time.process_time()
    assert not glob_match("*a" * 500 + "b", "a" * 10_000)
    assert time.process_time() - start < 5


def slow_glob(glob: str, tag: str) -> bool:
    """Match a glob of letters, `*`, and `?` by brute force."""
    if not glob:
        return not tag
    if glob[0] == "*":
        return slow_glob(glob[1:], tag) or (tag[:1] not in {"", "/"} and slow_glob(glob, tag[1:]))
    fits = tag[:1] not in {"", "/"} if glob[0] == "?" else tag[:1] == glob[0]
    return fits and slow_glob(glob[1:], tag[1:])


@given(st.text("ab*?", max_size=8), st.text("ab", max_size=8))
def test_glob_matching_agrees_with_a_brute_force_search(glob: str, tag: str) -> None:
    assert glob_match(glob, tag) is slow_glob(glob, tag)


@given(st.text(max_size=20))
def test_an_escaped_text_matches_only_itself(text: str) -> None:
    glob = "".join(f"\\{letter}" for letter in text)
    assert glob_match(glob, text)
    assert not glob_match(glob, f"{text}x")


@given(st.text("ab1.*+?()[]{}|^$\\-_/é", max_size=12), st.text(max_size=12))
def test_a_valid_filter_decides_about_every_tag(text: str, tag: str) -> None:
    try:
        pattern, globs = allow_pattern(f"regexp:{text}"), ignore_globs(text)
    except Malformed:
        return
    assert allowed(pattern, tag) in {True, False}
    assert ignored(globs, tag) in {"", *globs}
