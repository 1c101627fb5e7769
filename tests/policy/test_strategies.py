"""Strategies: names, picks, equality. `cases/strategies.json` was recorded from Image Updater."""

import json
import re
from functools import reduce
from pathlib import Path
from typing import Any, cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from task.annotations.keys import Faulty, settings
from task.annotations.subscription import Defaults, EntryReader
from task.model import Entry, Image, Policy, Reading, Strategy
from task.policy.judge import judge, objection, same
from task.policy.strategies import STRATEGIES
from task.schemas import load

CASES = json.loads(
    (Path(__file__).parents[1] / "data" / "cases" / "strategies.json").read_text(encoding="utf-8")
)
DIGEST, OTHER = "sha256:" + "a" * 64, "sha256:" + "b" * 64
# For unknown names, Image Updater warns and uses semver. Here, they are an error in the entry.
UNKNOWN = {"name-lexical", "name-date"}


def rows(op: str) -> list[Any]:
    return [
        pytest.param(case, id=case["id"]) for case in CASES["cases"] if case["input"]["op"] == op
    ]


def named(text: str) -> Strategy:
    told = settings({"update-strategy": {"": text}}, ())
    return EntryReader(Entry("w", image(""), "", "w=acme/w"), told, Defaults())._strategy()[0]


def image(tag: str, digest: str = "") -> Image:
    return Image("acme/w", "docker.io", "acme/w", tag, digest)


def pick(policy: Policy, tags: list[str]) -> str | None:
    """Return the tag that is finally written if each tag arrives as an event, in this order."""
    rule = STRATEGIES[policy.strategy]
    good = [tag for tag in tags if objection(tag, policy) is None]
    return reduce(lambda now, tag: now if rule.older(tag, now) else tag, good) if good else None


@pytest.mark.parametrize("case", rows("name"))
def test_strategy_names_are_read_as_in_image_updater(case: dict[str, Any]) -> None:
    if case["id"] in UNKNOWN:
        with pytest.raises(Faulty) as refused:
            named(case["input"]["value"])
        assert "newest-build" in refused.value.hint
    else:
        assert named(case["input"]["value"]) == case["expect"]


@pytest.mark.parametrize("case", rows("pick"))
def test_the_same_tag_is_picked_as_in_image_updater(case: dict[str, Any]) -> None:
    given, expected = case["input"], case.get("expect_v1", case["expect"])
    constraints = (given["constraint"],) if given["constraint"] else ()
    policy = Policy(cast("Strategy", given["strategy"]), constraints)
    by_arrival = sorted(given["tags"], key=lambda tag: (tag.get("date", 0), tag["name"]))
    assert pick(policy, [tag["name"] for tag in by_arrival]) == expected["tag"]


@pytest.mark.parametrize("case", rows("traits"))
def test_each_strategy_has_the_same_constraint_rules_as_in_image_updater(
    case: dict[str, Any],
) -> None:
    name, expected = case["input"]["strategy"], case["expect"]
    told = settings({"update-strategy": {"": name}}, ())
    bare = EntryReader(Entry("w", image(""), "", "w=acme/w"), told, Defaults()).read()
    assert bare.broken is expected["needs_constraint"]
    refusal = objection("1.0.1", Policy(name, ("1.0.0",)))
    only = refusal is not None and refusal.rule == "constraint"
    assert only is (expected["only_constraint_tag"] or name == "semver")


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("semver", "semver"),
        ("SemVer", "semver"),
        ("newest-build", "newest-build"),
        ("Newest-Build", "newest-build"),
        ("LATEST", "newest-build"),
        ("alphabetical", "alphabetical"),
        ("name", "alphabetical"),
        ("Name", "alphabetical"),
        ("Digest", "digest"),
        ("semver:1.6.x", "semver"),
        ("lexical", None),
        ("newest_build", None),
        ("newestbuild", None),
        ("semver,digest", None),
        ("digest:main", None),
    ],
)
def test_strategy_names_and_their_aliases_are_read(text: str, canonical: str | None) -> None:
    if canonical is None:
        with pytest.raises(Faulty):
            named(text)
    else:
        assert named(text) == canonical


@pytest.mark.parametrize(
    ("policy", "tags", "expected"),
    [
        (Policy(), ["0.1", "0.5.1", "0.9", "1.0", "1.0.1", "1.1.2", "2.0.3"], "2.0.3"),
        (Policy(constraints=("^1.0",)), ["0.9", "2.0.3", "1.1.2", "1.0.1"], "1.1.2"),
        (Policy(constraints=("~1.0",)), ["1.0", "1.0.1", "1.1.2"], "1.0.1"),
        (Policy(constraints=("~1.0",)), ["0.1", "2.0.3"], None),
        (Policy(), ["zz", "bb", "aa"], None),
        (
            Policy(),
            ["v1.0", "1.0.0", "v1", "v1.0.0"],
            "v1.0.0",
        ),  # equal versions: the lexically greatest tag wins
        (Policy(), ["1.1.0+b", "1.1.0"], "1.1.0+b"),
        (Policy(), ["2024.01.02", "2023.12.31"], "2024.01.02"),
        (Policy(), ["1.0.0", "1.1.0-rc1"], "1.0.0"),
        (Policy(constraints=(">=0-0",)), ["1.0.0", "1.1.0-rc1"], "1.1.0-rc1"),
        (Policy("alphabetical"), ["zz", "bb", "yy", "cc", "aa", "ll"], "zz"),
        (Policy("alphabetical"), ["2024-10", "2024-9"], "2024-9"),
        (Policy("alphabetical"), ["b", "B", "é"], "é"),
        (Policy("alphabetical", ("^1",)), ["2.0", "1.0"], "2.0"),  # the constraint has no effect
        (Policy("newest-build"), ["zz", "bb", "ll"], "ll"),
        (Policy("newest-build", ("^1",)), ["1.0", "main"], "main"),
        (Policy("digest", ("latest",)), ["main", "latest"], "latest"),
        (Policy("digest", ("latest",)), ["main"], None),
    ],
)
def test_each_strategy_picks_its_newest_tag(
    policy: Policy, tags: list[str], expected: str | None
) -> None:
    assert pick(policy, tags) == expected


@pytest.mark.parametrize(
    ("new", "current", "expected"),
    [
        (image("1.0"), Reading(tag="1.0"), True),
        (image("1.0"), Reading(tag="v1.0"), False),
        (image("1.0"), Reading(), False),
        (image("1.0", DIGEST), Reading(tag="1.0", digest=DIGEST), True),
        (image("1.0", DIGEST), Reading(tag="1.0", digest=OTHER), False),
        (image("1.0", DIGEST), Reading(tag="1.0"), False),
        (
            image("1.0"),
            Reading(tag="1.0", digest=DIGEST),
            True,
        ),  # the event contains no digest
        (
            image("1.1", DIGEST),
            Reading(tag="1.0", digest=DIGEST),
            False,
        ),  # a different tag, whatever the digests are
        (image("", DIGEST), Reading(tag="1.0", digest=DIGEST), True),
        (image("", DIGEST), Reading(tag="1.0"), False),
    ],
)
def test_equal_versions_are_recognized(new: Image, current: Reading, expected: bool) -> None:
    assert same(new, current) is expected


def test_an_older_build_replaces_a_tag_that_the_rules_do_not_admit() -> None:
    policy = Policy(constraints=("~1.0",))
    assert judge(image("1.0.5"), policy, Reading(tag="2.0.0")).verdict == "update"
    assert judge(image("1.0.5"), policy, Reading(tag="stable")).verdict == "update"


def test_an_image_setting_takes_precedence_over_an_application_setting() -> None:
    index = {"update-strategy": {"": "latest", "w": "name"}}
    assert settings(index, ("w",))["update-strategy"].value == "name"
    assert settings(index, ("x",))["update-strategy"].value == "latest"


def test_every_strategy_name_has_rules() -> None:
    assert list(STRATEGIES) == list(get_args(Strategy))


def test_the_schemas_know_every_strategy() -> None:
    for schema in ("report.v1", "status.v1"):
        enums = re.findall(r'"enum": (\[[^\]]*"semver"[^\]]*\])', json.dumps(load(schema)))
        assert enums
        for enum in map(json.loads, enums):
            assert {name for name in enum if name} == set(get_args(Strategy))


TAGS = st.sampled_from(
    ["1.2.0", "1.10.0", "v1.2.0", "2.0.0-rc.1", "2026.11.3", "latest", "main-9", "main-10", "", "a"]
)


@pytest.mark.parametrize("name", list(STRATEGIES))
@given(one=TAGS, other=TAGS)
def test_every_strategy_has_a_strict_order_and_gives_reasons(
    name: Strategy, one: str, other: str
) -> None:
    rules, policy = (
        STRATEGIES[name],
        Policy(name, ("1.x",) if STRATEGIES[name].constraint == "range" else ("latest",)),
    )
    refused = [rules.objection(tag, policy) for tag in (one, other)]
    assert all(bool(rule) == bool(why) for rule, why in refused)
    if one != other and rules.ordered and not any(rule for rule, _ in refused):
        assert bool(rules.older(one, other)) != bool(rules.older(other, one))
        later = max((one, other), key=lambda tag: rules.sort_key(tag, ""))
        assert not rules.older(later, other if later == one else one)
