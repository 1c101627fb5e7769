"""Versions and ranges: tables of results from Masterminds/semver v3.4, and laws."""

import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from semver import Version

from task.errors import Malformed
from task.policy.version_range import parse_range, parse_version

CASES = json.loads(
    (Path(__file__).parents[1] / "data" / "cases" / "semver.json").read_text(encoding="utf-8")
)["cases"]


def rows(op: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in CASES if case["input"]["op"] == op]


def version(text: str) -> Version:
    read = parse_version(text)
    assert read is not None, text
    return read


def satisfies(constraint: str, text: str) -> bool | dict[str, str]:
    try:
        wanted = parse_range(constraint)
    except Malformed:
        return {"error": "constraint"}
    read = parse_version(text)
    return {"error": "version"} if read is None else wanted.admits(read)


@pytest.mark.parametrize("case", rows("satisfies"))
def test_ranges_admit_the_same_versions_as_in_image_updater(case: dict[str, Any]) -> None:
    assert satisfies(case["input"]["constraint"], case["input"]["version"]) == case.get(
        "expect_v1", case["expect"]
    )


def pick(constraint: str | None, tags: list[str]) -> str | None:
    """Return semver's pick: the highest admitted version (of equal versions, the greatest text)."""
    wanted = parse_range(constraint or "")
    admitted = [(read, tag) for tag in tags if (read := parse_version(tag)) and wanted.admits(read)]
    return max(admitted, default=(None, None))[1]


@pytest.mark.parametrize("case", rows("pick"))
def test_the_same_version_is_picked_as_in_image_updater(case: dict[str, Any]) -> None:
    expect = case.get("expect_v1", case["expect"])
    if "error" in expect:
        with pytest.raises(Malformed):
            parse_range(case["input"]["constraint"] or "")
    else:
        assert pick(case["input"]["constraint"], case["input"]["tags"]) == expect["tag"]


@pytest.mark.parametrize(
    ("tag", "parts"),
    [
        ("1", (1, 0, 0, None, None)),
        ("1.2", (1, 2, 0, None, None)),
        ("v1.2.3", (1, 2, 3, None, None)),
        ("2024.01.02", (2024, 1, 2, None, None)),
        ("1.02.3-rc.1+b.01", (1, 2, 3, "rc.1", "b.01")),
        ("1-rc01", (1, 0, 0, "rc01", None)),
        ("1.2-0", (1, 2, 0, "0", None)),
        ("1.2-1.4", (1, 2, 0, "1.4", None)),
        ("1.0.0--", (1, 0, 0, "-", None)),
        ("20240102150405", (20240102150405, 0, 0, None, None)),
        ("18446744073709551615", (2**64 - 1, 0, 0, None, None)),
    ],
)
def test_versions_are_parsed(tag: str, parts: tuple[int, int, int, str | None, str | None]) -> None:
    assert version(tag).to_tuple() == parts


@pytest.mark.parametrize(
    "tag",
    [
        *(
            "",
            "v",
            "V1.0",
            "vv1",
            " 1.0",
            "1.0 ",
            "1.0\n",
            "1.2.3.4",
            "1.0_1",
            "latest",
            "release-1.2.3",
            "1.",
            ".1",
        ),
        *(
            "1..2",
            "1.0.0-",
            "1.0.0-a..b",
            "1.0.0-01",
            "1.0.0-a.00",
            "1.0.0+",
            "1.0.0-a_b",
            "-1",
            "+1",
            "x",
            "1.x",
            "\u0661",
        ),
        *("18446744073709551616", "1.18446744073709551616", "9" * 5000, "1.0.0-" + "9" * 5000),
    ],
)
def test_invalid_versions_are_rejected(tag: str) -> None:
    assert parse_version(tag) is None


@pytest.mark.parametrize(
    ("smaller", "greater"),
    [
        ("1", "1.0.1"),
        ("1.9", "1.10"),
        ("1.0.0-0", "1.0.0-1"),
        ("1.0.0-2", "1.0.0-10"),
        ("1.0.0-10", "1.0.0-a"),
        ("1.0.0-A", "1.0.0-a"),
        ("1.0.0-rc", "1.0.0-rc.1"),
        ("1.0.0-rc.1", "1"),
    ],
)
def test_versions_are_compared(smaller: str, greater: str) -> None:
    assert version(smaller).compare(version(greater)) == -1
    assert version(greater).compare(version(smaller)) == 1


@pytest.mark.parametrize("other", ["1", "v1.0", "01.00.000", "1.0.0+a", "v1.0.0+b.c"])
def test_different_spellings_of_a_version_are_equal(other: str) -> None:
    assert version("1.0.0").compare(version(other)) == 0


@pytest.mark.parametrize(
    ("constraint", "inside", "outside"),
    [
        ("1.2.3", "1.2.3 v1.2.3 1.2.3+b", "1.2.2 1.2.4 1.2.3-rc"),
        ("=1.2.3", "1.2.3", "1.2.4"),
        ("v1.2.3", "1.2.3", "1.2.4"),
        ("1.2", "1.2.0 1.2.9", "1.1.9 1.3.0 1.2.0-rc"),
        ("=1.2", "1.2.9", "1.3.0"),
        ("1.2.x", "1.2.0 1.2.9", "1.3.0"),
        ("1.2.*", "1.2.9", "1.3.0"),
        ("1.X", "1.0.0 1.9.9", "0.9.9 2.0.0"),
        ("1.x.3", "1.0.0 1.9.9", "2.0.0"),
        ("*", "0.0.0 9.9.9", "1.0.0-rc"),
        ("", "0.0.0 9.9.9", "1.0.0-rc"),
        ("X", "0.0.0 9.9.9", "1.0.0-rc"),
        (">=0", "0.0.0 9.9.9", "1.0.0-rc"),
        (">=0-0", "0.0.0 9.9.9 1.0.0-rc 0.0.0-0", ""),
        ("*-0", "0.0.0-rc 9.9.9", ""),
        ("~1.2.3", "1.2.3 1.2.9", "1.2.2 1.3.0"),
        ("~>1.2.3", "1.2.9", "1.3.0"),
        ("~ 1.2.3", "1.2.9", "1.3.0"),
        ("~1", "1.0.0 1.9.9", "2.0.0"),
        ("~1.2", "1.2.0 1.2.9", "1.3.0"),
        ("~0.0.0", "0.0.0 9.9.9", ""),
        ("~0.0", "0.0.0 0.0.9", "0.1.0"),
        ("~*", "0.0.0 9.9.9", "1.0.0-rc"),
        ("^1.2.3", "1.2.3 1.9.9", "1.2.2 2.0.0"),
        ("^1.2", "1.2.0 1.9.9", "1.1.9 2.0.0"),
        ("^1", "1.0.0 1.9.9", "0.9.9 2.0.0"),
        ("^0.2.3", "0.2.3 0.2.9", "0.2.2 0.3.0 1.0.0"),
        ("^0.2", "0.2.0 0.2.9", "0.3.0"),
        ("^0.0.3", "0.0.3", "0.0.2 0.0.4"),
        ("^0.0", "0.0.0 0.0.9", "0.1.0"),
        ("^0", "0.0.0 0.9.9", "1.0.0"),
        ("^*", "0.0.0", "0.0.1 1.0.0"),
        (">1", "2.0.0", "1.0.0 1.9.9"),
        (">1.2", "1.3.0 2.0.0", "1.2.9"),
        (">1.2.3", "1.2.4", "1.2.3"),
        (">*", "0.0.1", "0.0.0"),
        ("<=1", "0.0.1 1.9.9", "2.0.0"),
        ("<=1.2", "1.2.9 0.9.0", "1.3.0"),
        ("<=1.2.3", "1.2.3", "1.2.4"),
        ("=<1.2.3", "1.2.3", "1.2.4"),
        ("=>1.2.3", "1.2.3 2.0.0", "1.2.2"),
        ("<=*", "0.0.9", "0.1.0 1.0.0"),
        ("<1", "0.9.9", "1.0.0"),
        ("<1.2", "1.1.9", "1.2.0"),
        ("!=1", "0.9.9 2.0.0", "1.0.0 1.9.9"),
        ("!=1.2", "1.1.0 1.3.0", "1.2.0 1.2.9 1.3.0-rc"),
        ("!=1.2.3", "1.2.2 1.2.4", "1.2.3"),
        ("!=1.2-rc", "1.2.0 1.2.5-rc.1", "1.2.0-rc 1.2.5-rc"),
        ("1.2 - 1.4", "1.2.0 1.4.9", "1.1.9 1.5.0"),
        ("1.2 - 1.4.5", "1.4.5", "1.4.6"),
        ("1 - 2 || 4 - 5", "1.0.0 2.9.9 4.0.0 5.9.9", "3.0.0 6.0.0"),
        ("1.2-1.4", "1.2.0 1.2.9 1.2.0-1.4", "1.2.0-1.3 1.3.0"),
        (">=1 <2", "1.0.0 1.9.9", "2.0.0"),
        (">=1, <2", "1.9.9", "2.0.0"),
        (">=1,<2", "1.9.9", "2.0.0"),
        (">= 1 , < 2", "1.9.9", "2.0.0"),
        (">=1\n<2\t!=1.5", "1.4.0", "1.5.0 2.0.0"),
        ("^1 || ^3", "1.5.0 3.5.0", "2.0.0 4.0.0"),
        ("^1||^3", "3.5.0", "2.0.0"),
        (" ^1 ", "1.5.0", "2.0.0"),
        (">=1.2.3-rc.1 <2", "1.2.3-rc.1 1.5.0-x 2.0.0-rc1 1.9.9", "1.2.3-beta 2.0.0"),
        ("^1.2.3-beta.1", "1.2.3-beta.2 1.3.0-rc1 1.9.9", "1.2.3-alpha 2.0.0-rc1"),
        ("~1.2-0", "1.2.0-rc 1.2.5", "1.3.0-rc1"),
        ("1.x-0", "1.5.0-rc1 1.5.0", "2.0.0-rc1"),
        (">1-0", "2.0.0-rc", "1.5.0"),
        ("^1-0 || ^3", "1.5.0-rc 3.5.0", "3.5.0-rc"),
        (">=1.0.0+b", "1.0.0 1.0.0+a", "1.0.0-rc"),
    ],
)
def test_each_range_admits_the_expected_versions(
    constraint: str, inside: str, outside: str
) -> None:
    wanted = parse_range(constraint)
    assert [text for text in inside.split() if not wanted.admits(version(text))] == []
    assert [text for text in outside.split() if wanted.admits(version(text))] == []


@pytest.mark.parametrize(
    "constraint",
    [
        *(
            ">",
            "latest",
            "1.2.3.4",
            "V1",
            "1 - ",
            "- 1",
            "^1.2 - 1.4",
            "==1",
            "<>1",
            "!1",
            "~=1",
            "^^1",
            ">=1 &&<2",
        ),
        *(
            "1,",
            ",1",
            "1,,2",
            "||",
            "1 ||",
            "|| 1",
            "1 || || 2",
            "1 | 2",
            "1|2",
            "1 -2",
            "1- 2",
            "> =1",
            "1x",
            "1.2x",
            "**",
        ),
        *(
            "1.0.0-01",
            "1.0.0-",
            "1.0.0-a..b",
            "1.0.0-a_b",
            "18446744073709551616",
            ">=1<2",
            "1.0 ||1.2 - 1.4",
            "\u0661",
        ),
        *("1" * 300, "1 " * 5000, "sha256:abc", "1.2.3@x", "v", "^", "*.1.z"),
    ],
)
def test_malformed_constraints_are_rejected_and_quoted(constraint: str) -> None:
    with pytest.raises(Malformed) as caught:
        parse_range(constraint)
    assert (
        repr(constraint.strip()[:40])[1:-1] in caught.value.message
        or "characters" in caught.value.message
    )
    assert "^1.2" in caught.value.hint


def test_the_unreadable_part_of_a_constraint_is_shown() -> None:
    with pytest.raises(Malformed, match="'latest' cannot be parsed"):
        parse_range("^1 || latest")


@pytest.mark.parametrize(
    "text", ["1  " * 1300 + "!", " " * 4000 + "!", "1" * 4000 + " -", "1-" + "a." * 2000 + "!"]
)
def test_long_invalid_constraints_are_rejected_quickly(text: str) -> None:
    start = time.process_time()
    with pytest.raises(Malformed):
        parse_range(text)
    assert time.process_time() - start < 2


def test_parsed_versions_and_ranges_are_cached() -> None:
    assert parse_range("^1.2.3-cached") is parse_range("^1.2.3-cached")
    assert parse_version("1.2.3-cached") is parse_version("1.2.3-cached")


# An independent implementation: every release in a small world, and for each constraint its first
# version and the first version beyond it, taken from the documentation.
WORLD = tuple(itertools.product(range(4), repeat=3))
ZERO, BEYOND = (0, 0, 0), (9, 9, 9)


def bounds(operator: str, parts: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    low = (*parts, 0, 0)[:3]
    next_part = (*parts[:-1], parts[-1] + 1, 0, 0)[
        :3
    ]  # the first version not covered by the specified parts
    if operator == "~":
        next_part = (*parts[:2][:-1], parts[:2][-1] + 1, 0, 0)[:3] if parts != (0, 0, 0) else BEYOND
    if operator == "^":
        stays = next((index for index, part in enumerate(parts) if part), len(parts) - 1)
        next_part = (*parts[:stays], parts[stays] + 1, 0, 0)[:3]
    return {
        ">=": (low, BEYOND),
        ">": (next_part, BEYOND),
        "<": (ZERO, low),
        "<=": (ZERO, next_part),
    }.get(operator, (low, next_part))


def members(operator: str, parts: tuple[int, ...]) -> set[tuple[int, ...]]:
    low, high = bounds(operator, parts)
    inside = {core for core in WORLD if low <= core < high}
    return set(WORLD) - inside if operator == "!=" else inside


TERM = st.tuples(
    st.sampled_from(["", "=", "!=", ">", "<", ">=", "<=", "~", "^"]),
    st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple),
)
GROUPS = st.lists(st.lists(TERM, min_size=1, max_size=3), min_size=1, max_size=3)


def written(term: tuple[str, tuple[int, ...]], wildcard: str) -> str:
    return term[0] + ".".join(map(str, term[1])) + (wildcard if len(term[1]) < 3 else "")


@given(GROUPS, st.sampled_from([" ", ", ", ","]), st.sampled_from(["", ".x", ".*", ".X"]))
def test_a_range_admits_exactly_the_releases_of_its_terms(
    groups: list[list[tuple[str, tuple[int, ...]]]], conjunction: str, wildcard: str
) -> None:
    text = " || ".join(
        conjunction.join(written(term, wildcard) for term in group) for group in groups
    )
    expected = set().union(
        *(set.intersection(*(members(*term) for term in group)) for group in groups)
    )
    wanted = parse_range(text)
    assert {core for core in WORLD if wanted.admits(Version(core[0], core[1], core[2]))} == expected


@given(GROUPS, st.sampled_from(WORLD))
def test_no_range_of_releases_admits_a_pre_release(
    groups: list[list[tuple[str, tuple[int, ...]]]], core: tuple[int, int, int]
) -> None:
    text = " || ".join(" ".join(written(term, "") for term in group) for group in groups)
    assert not parse_range(text).admits(Version(*core, "rc.1"))


@given(
    st.sampled_from(WORLD), st.sampled_from(["", "-rc.1", "-0", "+b"]), st.sampled_from(["", "v"])
)
def test_a_range_made_from_a_version_admits_that_version(
    core: tuple[int, ...], rest: str, prefix: str
) -> None:
    text = prefix + ".".join(map(str, core)) + rest
    for operator in ("", "=", ">=", "<=", "~", "^"):
        assert parse_range(operator + text).admits(version(text))
    assert not parse_range(f">{text}").admits(version(text))


@given(st.text("0123x*v.-|<>=~^!, abrc+", max_size=25))
def test_any_text_is_a_range_or_malformed(text: str) -> None:
    assert satisfies(text, "1.0.0") in (True, False, {"error": "constraint"})
