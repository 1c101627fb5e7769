"""The order that `tag-order` defines: real tags, laws, hostile input, and Flux's policies."""

import random
import re
import time
from collections.abc import Callable
from itertools import pairwise, permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from task.errors import Malformed
from task.model import Image, Policy, Reading, Strategy
from task.policy.judge import judge, objection, ranked
from task.policy.strategies import parse_tag_order, rules_of
from task.policy.version_range import parse_version

BUILD = r"regexp:^main-[0-9a-f]+-(?P<build>[0-9]+)$"
RELEASE = r"regexp:^release-(?P<semver>.+)$"
OF_A_BUILD = r"regexp:^(?P<semver>[0-9.]+)-build\.(?P<build>[0-9]+)$"


def policy(order: str, strategy: Strategy = "alphabetical", *constraints: str) -> Policy:
    return Policy(strategy, constraints, tag_order=order)


@pytest.mark.parametrize(
    ("strategy", "order", "tags"),
    [
        (
            "alphabetical",
            "numeric",
            ["v2026-9-01", "v2026-9-2", "v2026-9-30", "v2026-10-03", "v2027-1-1"],
        ),
        (
            "alphabetical",
            "numeric",
            ["2026.9", "2026.9.1", "2026.09.02", "2026.10.1", "2026.10.1-1"],
        ),
        ("alphabetical", "numeric", ["26.9.1", "26.09.1", "26.10.0"]),
        ("alphabetical", "numeric", ["20261009-0930", "20261009-1412", "20261010-0001"]),
        (
            "alphabetical",
            "numeric",
            ["main-2026-10-09T9.12", "main-2026-10-09T14.00", "main-2026-11-01T0.00"],
        ),
        ("alphabetical", "numeric", ["1", "01", "2", "10", "a1"]),
        ("alphabetical", "numeric desc", ["b", "a", "10", "9"]),
        ("alphabetical", "alphabetical", ["10", "9", "B", "a"]),
        ("alphabetical", "alphabetical desc", ["a", "B", "9", "10"]),
        ("alphabetical", BUILD, ["main-a91b7e2-99", "main-04cc1f0-100", "main-ffffff0-0101"]),
        ("alphabetical", f"{BUILD} desc", ["main-04cc1f0-100", "main-a91b7e2-99"]),
        (
            "alphabetical",
            r"regexp:^(?P<year>\d+)-(?P<month>\d+)-(?P<day>\d+)",
            ["2026-09-05", "2026-9-10", "2026-10-1-hotfix"],
        ),
        (
            "alphabetical",
            r"regexp:^v(?P<n>\d+)(?:-rc(?P<rc>\d+))?$",
            ["v1", "v1-rc9", "v1-rc10", "v2"],
        ),
        (
            "alphabetical",
            RELEASE,
            ["release-1.2.3-rc.1", "release-1.2.3", "release-1.10.0", "release-1.10.0+b"],
        ),
        (
            "semver",
            RELEASE,
            ["release-1.2.3", "release-v1.2.4", "release-1.10.0", "release-1.10.0+b"],
        ),
        ("semver", OF_A_BUILD, ["1.2.3-build.9", "1.2.3-build.10", "1.2.10-build.1"]),
    ],
)
def test_tags_are_ranked_by_the_tag_order(strategy: Strategy, order: str, tags: list[str]) -> None:
    rules = policy(order, strategy)
    assert ranked(sorted(tags), rules) == tuple(reversed(tags))
    for older, newer in pairwise(tags):
        assert rules_of(rules).older(newer, older) == ""
        assert newer in rules_of(rules).older(older, newer)
        refused = judge(Image("a", "docker.io", "a", older), rules, Reading(tag=newer))
        assert (refused.verdict, refused.rule) == ("refuse", "not-newer")


def test_the_examples_in_the_ordering_guide_are_correct() -> None:
    page = (Path(__file__).parents[2] / "docs" / "ordering.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (`.+) \| (`P/.+|none.*) \|$", page.partition("## What is remembered")[0], re.MULTILINE
    )
    assert len(rows) > 6
    for left, lines in rows:
        strategy = re.search(r"update-strategy: ([a-z-]+)", lines)
        order = re.search(r"tag-order: ([^`]+)`", lines)
        rules = Policy(strategy[1] if strategy else "semver", tag_order=order[1] if order else "")  # type: ignore[arg-type]
        for group in left.split(", or "):
            tags = re.findall(r"`([^`]+)`", group)
            assert [objection(tag, rules) for tag in tags] == [None] * len(tags), left
            assert rules_of(rules).ordered is (strategy is None or strategy[1] != "newest-build")
            if rules_of(rules).ordered:
                assert ranked(tags, rules) == tuple(reversed(tags)), left


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a tag order"),
        ("number", "'number' is not a tag order"),
        ("numeric asc", "not a tag order"),
        ("regexp:", "no named group"),
        (r"regexp:^main-(\d+)$", "no named group"),
        (r"regexp:(?P<n>\d+", "missing )"),
        (r"regexp:(?P<n>\d+)(?=-x)", "RE2"),
        ("regexp:" + "(?P<n>a)" + "(b)" * 16, "17 groups"),
        ("regexp:(?P<n>a)" + "b" * 4096, "4,096"),
        (r"(?P<n>\d+)", "not a tag order"),
        (r"Regexp:(?P<n>\d+)", "not a tag order"),
    ],
)
def test_invalid_tag_orders_are_rejected_with_a_hint(text: str, words: str) -> None:
    with pytest.raises(Malformed) as refused:
        parse_tag_order(text)
    assert words in str(refused.value)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("order", "strategy", "constraints", "tag", "rule", "words"),
    [
        (BUILD, "alphabetical", (), "main-zzz-1", "tag-order", "does not match main-zzz-1"),
        (RELEASE, "semver", (), "1.2.3", "tag-order", "does not match 1.2.3"),
        (
            RELEASE,
            "semver",
            (),
            "release-a.b",
            "tag-order",
            "'a.b' in release-a.b, which is not a version",
        ),
        (RELEASE, "alphabetical", (), "release-a.b", "tag-order", "not a version"),
        (r"regexp:^r(?P<semver>\d.*)?$", "semver", (), "r", "tag-order", "matches nothing in r"),
        (
            RELEASE,
            "semver",
            ("~1.2",),
            "release-1.3.0",
            "constraint",
            "release-1.3.0: 1.3.0 does not satisfy ~1.2",
        ),
        (RELEASE, "semver", (), "release-1.3.0-rc1", "constraint", "pre-release"),
        (
            "",
            "semver",
            (),
            "main-a91b7e2-100",
            "not-a-version",
            "or a tag-order for the numbers in them",
        ),
        (
            "",
            "semver",
            (),
            "v2026-10-03",
            "constraint",
            "if it is not a version, set a tag-order",
        ),
        ("numeric", "semver", (), "1.2.3", "annotation", "has no group for the version"),
        (BUILD, "semver", (), "1.2.3", "annotation", "has no group for the version"),
    ],
)
def test_a_tag_outside_of_the_order_is_refused(
    order: str, strategy: Strategy, constraints: tuple[str, ...], tag: str, rule: str, words: str
) -> None:
    found = objection(tag, policy(order, strategy, *constraints))
    assert found is not None
    assert (found.rule, found.verdict) == (rule, "error" if rule == "annotation" else "refuse")
    assert words in found.because


@pytest.mark.parametrize(
    ("strategy", "tag", "current", "advised"),
    [
        ("alphabetical", "v2026-10-03", "v2026-9-01", True),
        ("alphabetical", "main-04cc1f0-100", "main-a91b7e2-99", True),
        ("alphabetical", "2026-10-09", "2026-11-01", False),
        ("alphabetical", "a", "b", False),
        ("semver", "1.2.3-rc10", "1.2.3-rc9", True),
        ("semver", "1.2.3+9", "1.2.3+90", False),
        ("semver", "1.2.3-rc.1", "1.2.3", False),
        ("semver", "1.2.3", "1.10.0", False),
    ],
)
def test_a_tag_order_is_suggested_only_if_numbers_disagree_with_the_text(
    strategy: Strategy, tag: str, current: str, advised: bool
) -> None:
    why = rules_of(Policy(strategy, (">=0-0",))).older(tag, current)
    assert why
    assert ("tag-order" in why) is advised


def test_a_tag_order_has_no_effect_on_unordered_strategies() -> None:
    for strategy in ("newest-build", "digest"):
        assert rules_of(policy("numeric", strategy)) is rules_of(Policy(strategy))


ORDERS = ("numeric", "numeric desc", "alphabetical", "alphabetical desc", "regexp:(?P<a>[0-9a]+)?-?(?P<b>.+)?",
          "regexp:^(?P<semver>[0-9.]+)?-?(?P<b>.*) desc")  # fmt: skip
TAGS = st.text("0129ab-.", min_size=1, max_size=8) | st.from_regex(
    r"[0-9]{1,3}(\.[0-9]{1,2}){0,2}-?[ab]?", fullmatch=True
)


@given(st.sampled_from(ORDERS), TAGS, TAGS, TAGS)
def test_the_order_is_total_and_transitive(order: str, one: str, other: str, third: str) -> None:
    rules = rules_of(policy(order))
    tags = [
        tag
        for tag in dict.fromkeys((one, other, third))
        if not rules.objection(tag, policy(order))[0]
    ]
    after = {(a, b): rules.older(a, b) == "" for a, b in permutations(tags, 2)}
    for a, b in permutations(tags, 2):
        assert after[a, b] is not after[b, a]
    for a, b, c in permutations(tags, 3):
        assert not (after[a, b] and after[b, c]) or after[a, c]


@given(st.sampled_from(ORDERS), st.lists(TAGS, min_size=2, max_size=6), st.randoms())
def test_the_order_in_which_tags_arrive_does_not_matter(
    order: str, tags: list[str], shuffled: random.Random
) -> None:
    rules = policy(order)
    wanted = ranked(tags, rules)
    for _ in range(3):
        shuffled.shuffle(tags)
        current = ""
        for tag in tags:  # as individual events
            verdict = judge(Image("a", "docker.io", "a", tag), rules, Reading(tag=current))
            current = tag if verdict.verdict == "update" else current
        assert ranked(tags, rules) == wanted
        assert current == (wanted[0] if wanted else "")


@pytest.mark.parametrize(
    "order",
    [
        "numeric",
        r"regexp:(?P<a>(?:a*)*b)(?P<c>.*)*$",
        r"regexp:(?P<a>(?:[0-9]+)+)-(?P<b>(?:a|aa)+)$",
        "regexp:" + r"(?P<a>.*?)(.*?)" * 1 + r"(.*?)" * 13 + r"x?$",
        "regexp:(?P<a>" + r"(?:.?){0,100}[0-9]*" + ")$",
        "regexp:(?P<a>" + "a?" * 1000 + "a" * 100 + ")",
    ],
)
@pytest.mark.parametrize(
    "tag", ["a" * 128, "1" * 128, "1a" * 64, "a" * 127 + "b", "9" * 100 + "-" + "a" * 27]
)
def test_hostile_patterns_and_tags_are_processed_quickly(order: str, tag: str) -> None:
    began = time.process_time()
    rules = policy(order)
    for number in range(20):
        other = f"{tag[:-2]}{number:02}"
        if not rules_of(rules).objection(other, rules)[0]:
            rules_of(rules).older(other, tag)
    assert time.process_time() - began < 1


# --- Flux: the picks of its image-reflector-controller (internal/policy: filter, semver, numerical, alphabetical) ---
#
# A filter keeps the tags that match a pattern, and replaces each tag with the result of `extract`.
# The policy then picks one of these results: `numerical` the greatest float, `alphabetical` the
# greatest by bytes, `semver` the highest version. If one group is extracted, these are tag orders.


def flux_picks(kind: str, pattern: str, group: str, tags: tuple[str, str]) -> str:
    extracted = {match[group]: tag for tag in tags if (match := re.search(pattern, tag))}
    texts = sorted(extracted)
    if kind == "numerical":
        best = max(texts, key=float)
    elif kind == "alphabetical":
        best = max(texts, key=str.encode)
    else:
        best = max(texts, key=lambda text: [int(part) for part in text.split(".")])
    return extracted[best]


FLUX: dict[str, tuple[str, str, Strategy, Callable[[random.Random], str]]] = {
    # kind: pattern, group, our policy, and a function that creates such a tag
    "numerical": (
        r"^main-[a-f0-9]+-(?P<ts>[0-9]+)$",
        "ts",
        "alphabetical",
        lambda chance: (
            f"main-{chance.randrange(16**7):07x}-{chance.randrange(10 ** chance.choice((1, 3, 10)))}"
        ),
    ),
    "alphabetical": (  # letters of one case, or digits of equal width: bytes and numbers sort alike
        r"^(?:RELEASE|hotfix)\.(?P<timestamp>[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}Z|[a-z]+)$",
        "timestamp",
        "alphabetical",
        lambda chance: (
            chance.choice(("RELEASE.", "hotfix."))
            + chance.choice(
                (
                    f"20{chance.randrange(100):02}-{chance.randrange(1, 13):02}-{chance.randrange(1, 29):02}T11Z",
                    "".join(chance.choices("abcxyz", k=chance.randrange(1, 6))),
                )
            )
        ),
    ),
    "semver": (
        r"^release-(?P<semver>[0-9]+\.[0-9]+\.[0-9]+)$",
        "semver",
        "semver",
        lambda chance: (
            "release-" + ".".join(str(chance.randrange(chance.choice((3, 120)))) for _ in range(3))
        ),
    ),
}


@pytest.mark.slow
def test_flux_picks_the_same_tag_from_ten_thousand_pairs() -> None:
    chance = random.Random(33)  # noqa: S311 - no secret
    compared = 0
    while compared < 10_000:
        kind = chance.choice(sorted(FLUX))
        pattern, group, strategy, make = FLUX[kind]
        one, other = make(chance), make(chance)
        texts = [match[group] for tag in (one, other) if (match := re.search(pattern, tag))]
        same = texts[0] == texts[1] or (kind == "numerical" and int(texts[0]) == int(texts[1]))
        if same:  # Flux keeps either of these at random
            continue
        rules = policy(f"regexp:{pattern}", strategy)
        assert ranked((one, other), rules)[0] == flux_picks(kind, pattern, group, (one, other)), (
            kind,
            one,
            other,
        )
        compared += 1


def test_version_groups_accept_the_same_versions_as_semver() -> None:
    rules = policy(RELEASE, "semver", ">=1.0.0-0")
    for text in ("1", "v1.2", "1.2.3-alpha.1", "01.2.3"):
        assert parse_version(text)
        assert objection(f"release-{text}", rules) is None


@pytest.mark.parametrize(
    ("pattern", "twice"),
    [
        ("(?P<a>x)-(?P<a>y)", True),
        ("(?<a>x)|(?P<a>y)", True),
        ("(?P<a>x)-(?P<b>y)", False),
        (r"(?P<a>x)\(?P<a>y", False),
        ("(?P<a>x)[(?P<a>]", False),
        (r"(?P<a>x)\Q(?P<a>y)\E", False),
    ],
)
def test_duplicate_group_names_are_rejected(pattern: str, twice: bool) -> None:
    if twice:
        with pytest.raises(Malformed, match="the pattern has two groups named 'a'"):
            parse_tag_order(f"regexp:{pattern}")
    else:
        assert parse_tag_order(f"regexp:{pattern}").groups[0] == ("a", 1)
