"""The newest tag in a whole repository. The cases were recorded from Image Updater."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from typing import Any, cast

import pytest

from task.annotations.application import PREFIX, parse_application
from task.annotations.subscription import subscribe
from task.image import parse_image
from task.model import Policy, Strategy
from task.policy.judge import admitted, dates_needed, ranked

CASES = Path(__file__).parents[1] / "data" / "cases"


def rows(suite: str) -> list[Any]:
    return list(json.loads((CASES / f"{suite}.json").read_text(encoding="utf-8"))["cases"])


def pick(tags: Iterable[str], policy: Policy, dates: Mapping[str, str] = {}) -> str:
    return next(iter(ranked(tags, policy, dates)), "")


def date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize(
    "case",
    [case for case in rows("strategies") if case["input"]["op"] == "pick"],
    ids=lambda case: case["id"],
)
def test_the_same_tag_is_picked_as_in_image_updater(case: dict[str, Any]) -> None:
    given, expected = case["input"], case.get("expect_v1", case["expect"])
    policy = Policy(
        cast("Strategy", given["strategy"]), (given["constraint"],) if given["constraint"] else ()
    )
    dates = {tag["name"]: date(tag["date"]) for tag in given["tags"] if "date" in tag}
    assert pick([tag["name"] for tag in given["tags"]], policy, dates) == (expected["tag"] or "")


@pytest.mark.parametrize(
    "case",
    [case for case in rows("update-flow") if "registry_tags" in case["input"]],
    ids=lambda case: case["id"],
)
def test_complete_updates_pick_the_same_tag_that_image_updater_wrote(case: dict[str, Any]) -> None:
    """This holds for every case in which Image Updater wrote a tag from the registry."""
    given, expected = case["input"], case.get("expect_v1", case["expect"])
    annotations = {PREFIX + key: value for key, value in given["annotations"].items()}
    metadata = {"name": "web", "namespace": "argocd", "annotations": annotations}
    app = parse_application({"metadata": metadata, "spec": {"source": given["source"]}})
    written = json.dumps(expected.get("files_changed", {}))
    for sub in subscribe(app).subscriptions:
        tags = [
            tag if isinstance(tag, str) else tag["name"]
            for name, all_tags in given["registry_tags"].items()
            if parse_image(name).identity == sub.entry.image.identity
            for tag in all_tags
        ]
        found = pick(tags, sub.policy)
        assert not found or not expected.get("updated") or found in written


SEMVER = ["0.1", "0.5.1", "0.9", "1.0", "1.0.1", "1.1.2", "2.0.3", "2.1.0-rc1", "latest", "main"]


@pytest.mark.parametrize(
    ("policy", "tags", "expected"),
    [
        (Policy(), SEMVER, "2.0.3"),
        (Policy(constraints=(">=0-0",)), SEMVER, "2.1.0-rc1"),
        (Policy(constraints=("^1.0",)), SEMVER, "1.1.2"),
        (Policy(constraints=("^1.0", "<1.1")), SEMVER, "1.0.1"),
        (Policy(constraints=("~3",)), SEMVER, ""),
        (Policy(), ["1.1.0", "v1.1.0"], "v1.1.0"),
        (Policy(), ["1.1.0", "1.1.0+x", "1.1"], "1.1.0+x"),
        (Policy(), ["1.10.0", "1.9.0"], "1.10.0"),
        (Policy(ignore=("2.*",)), SEMVER, "1.1.2"),
        (Policy(allow="^1"), SEMVER, "1.1.2"),
        (Policy("alphabetical"), ["2024-10", "2024-9", "B"], "B"),
        (Policy("alphabetical"), ["b", "B", "a"], "b"),
        (Policy("alphabetical", allow="^20"), ["2024-10", "2024-9", "b"], "2024-9"),
        (Policy("digest", ("latest",)), SEMVER, "latest"),
        (Policy("digest", ("edge",)), SEMVER, ""),
        (Policy(), [], ""),
        (Policy("alphabetical"), [f"sha256-{'a' * 64}", f"sha256-{'a' * 64}.sig", "1"], "1"),
    ],
)
def test_the_newest_admitted_tag_is_picked(policy: Policy, tags: list[str], expected: str) -> None:
    assert pick(tags, policy) == expected
    assert pick([*reversed(tags), *tags], policy) == expected
    assert dates_needed(tags, policy) == ()


BUILDS = {
    "a": "2026-01-02T00:00:00Z",
    "b": "2026-01-03T00:00:00Z",
    "c": "2026-01-03T00:00:00Z",
    "d": "",
}


@pytest.mark.parametrize("tags", list(permutations(BUILDS)))
def test_builds_are_ranked_by_date_and_then_by_name(tags: tuple[str, ...]) -> None:
    assert ranked(tags, Policy("newest-build"), BUILDS) == ("c", "b", "a", "d")


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.5Z"),
        ("2026-01-02T03:04:05.25Z", "2026-01-02T03:04:05.3Z"),
        ("2026-01-02T03:04:05.123456788Z", "2026-01-02T03:04:05.123456789Z"),
        ("2025-12-31T23:59:59.9Z", "2026-01-01T00:00:00Z"),
        ("", "1970-01-01T00:00:00Z"),
    ],
)
def test_dates_are_compared_to_the_nanosecond(older: str, newer: str) -> None:
    assert pick(["new", "old"], Policy("newest-build"), {"old": older, "new": newer}) == "new"
    assert pick(["a", "z"], Policy("newest-build"), {"z": older, "a": newer}) == "a"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy("newest-build"), ("main-1", "main-2", "rc-1")),
        (Policy("newest-build", allow="^main-"), ("main-1", "main-2")),
        (Policy("newest-build", ignore=("main-*",)), ()),  # only one tag remains
        (Policy("newest-build", allow="^none$"), ()),
        (Policy("semver"), ()),
        (Policy("alphabetical"), ()),
        (Policy("digest", ("rc-1",)), ()),
    ],
)
def test_dates_are_requested_only_if_they_matter(policy: Policy, expected: tuple[str, ...]) -> None:
    tags = ("main-1", "main-2", "rc-1", f"sha256-{'0' * 64}.sig")
    assert dates_needed(tags, policy) == expected


def test_admitted_tags_keep_their_order() -> None:
    assert admitted(["2.0", "x", "1.0", "2.0"], Policy()) == ("2.0", "1.0")


def test_the_newest_of_two_thousand_tags_is_picked() -> None:
    tags = [f"1.{minor}.{patch}" for minor in range(20) for patch in range(100)]
    assert pick(tags, Policy(constraints=("~1.7",))) == "1.7.99"
