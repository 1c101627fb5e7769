import json
from pathlib import Path
from typing import Any

import pytest

from task.annotations.keys import Setting, platforms
from task.model import Image, Policy, Reading
from task.policy.judge import is_platform, judge, suits, too_young, young_until

DIGEST = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64


def image(tag: str, digest: str = "") -> Image:
    return Image("acme/web", "docker.io", "acme/web", tag, digest)


SEMVER = Policy()
RANGE = Policy(constraints=("~1.2",))
NEWEST = Policy(strategy="newest-build")
ALPHABETICAL = Policy(strategy="alphabetical")
FOLLOW = Policy(strategy="digest", constraints=("main",))


@pytest.mark.parametrize(
    ("tag", "policy", "current", "verdict", "rule"),
    [
        ("1.2.3", SEMVER, "", "update", "admitted"),
        ("1.2.3", SEMVER, "1.2.2", "update", "admitted"),
        ("1.2.3", SEMVER, "1.2.3", "unchanged", "same"),
        ("1.2.3", SEMVER, "1.2.4", "refuse", "not-newer"),
        ("1.2.3", SEMVER, "latest", "update", "admitted"),  # not admitted: not a version
        ("1.2.3", RANGE, "2.0.0", "update", "admitted"),  # not admitted, so always replaced
        ("2.0.0", RANGE, "1.2.0", "refuse", "constraint"),
        ("1.2.3", Policy(constraints=("~1.2", "1.2.x")), "", "update", "admitted"),
        ("1.2.3", Policy(constraints=("~1.2", "1.3.x")), "", "refuse", "constraint"),
        ("1.3.0-rc1", SEMVER, "1.2.0", "refuse", "constraint"),
        ("1.3.0-rc1", Policy(constraints=(">=0-0",)), "1.2.0", "update", "admitted"),
        ("latest", SEMVER, "", "refuse", "not-a-version"),
        ("", SEMVER, "", "refuse", "not-a-version"),
        ("v1.1.0", SEMVER, "1.1.0", "update", "admitted"),  # equal versions: the greater text wins
        ("1.1.0", SEMVER, "v1.1.0", "refuse", "not-newer"),
        ("abc", NEWEST, "xyz", "update", "admitted"),
        ("2024-9", ALPHABETICAL, "2024-10", "update", "admitted"),
        ("2024-10", ALPHABETICAL, "2024-9", "refuse", "not-newer"),
        ("b", ALPHABETICAL, "B", "update", "admitted"),
        ("main", FOLLOW, "", "error", "registry"),
        ("dev", FOLLOW, "", "refuse", "constraint"),
        ("rc-1", Policy(strategy="newest-build", ignore=("rc-*",)), "", "refuse", "ignore-tags"),
        ("dev", Policy(strategy="newest-build", allow="^v"), "", "refuse", "allow-tags"),
    ],
)
def test_each_tag_gets_the_verdict_of_its_policy(
    tag: str, policy: Policy, current: str, verdict: str, rule: str
) -> None:
    answer = judge(image(tag), policy, Reading(tag=current))
    assert (answer.verdict, answer.rule) == (verdict, rule)
    assert answer.because


@pytest.mark.parametrize(
    ("new", "current", "rule"),
    [
        (image("main", DIGEST), Reading(tag="main", digest=DIGEST), "same"),
        (image("main", OTHER), Reading(tag="main", digest=DIGEST), "admitted"),
        (image("main", OTHER), Reading(tag="main"), "admitted"),
        (image("main", DIGEST), Reading(), "admitted"),
        (image("main", DIGEST), Reading(tag="dev", digest=DIGEST), "admitted"),
        (image("main", DIGEST), Reading(digest=DIGEST), "same"),
        (image("main", OTHER), Reading(digest=DIGEST), "admitted"),
        (image("main", DIGEST), Reading("ghcr.io/other/web", digest=DIGEST), "admitted"),
        (image("main", DIGEST), Reading(digest=DIGEST, sound=False), "admitted"),
    ],
)
def test_digests_distinguish_builds_with_the_same_tag(
    new: Image, current: Reading, rule: str
) -> None:
    assert judge(new, FOLLOW, current).rule == rule


def test_the_same_tag_without_a_digest_is_unchanged() -> None:
    assert judge(image("1.0"), SEMVER, Reading(tag="1.0", digest=DIGEST)).rule == "same"


def test_the_same_tag_in_another_repository_is_a_different_image() -> None:
    assert judge(image("1.0"), SEMVER, Reading("ghcr.io/acme/web", "1.0")).verdict == "update"
    assert judge(image("1.0"), SEMVER, Reading("docker.io/acme/web", "1.0")).rule == "same"


def test_a_tag_that_yaml_parses_as_a_number_is_rewritten() -> None:
    assert judge(image("1.10"), SEMVER, Reading(tag="1.10", sound=False)).verdict == "update"


def test_a_downgrade_must_be_permitted() -> None:
    assert judge(image("1.0.0"), SEMVER, Reading(tag="2.0.0")).rule == "not-newer"
    assert (
        judge(image("1.0.0"), SEMVER, Reading(tag="2.0.0"), allow_downgrade=True).verdict
        == "update"
    )


def test_a_newer_version_in_another_entry_prevents_the_update() -> None:
    reading = Reading(tag="2.0.0", sound=False, also=("1.0.0", "3.0.0", "latest"))
    assert (
        judge(image("2.5.0"), SEMVER, reading).because
        == "3.0.0 is newer than 2.5.0, in another entry for the image"
    )
    assert judge(image("2.5.0"), SEMVER, reading, allow_downgrade=True).verdict == "update"
    assert judge(image("3.1.0"), SEMVER, reading).verdict == "update"


def test_the_reason_names_the_rule_and_both_tags() -> None:
    assert (
        judge(image("1.0.0"), SEMVER, Reading(tag="2.0.0")).because == "2.0.0 is newer than 1.0.0"
    )
    assert "~1.2" in judge(image("2.0.0"), RANGE, Reading()).because


# Platforms. The cases in `cases/annotations.json` were recorded from Image Updater.
CASES = json.loads(
    (Path(__file__).parents[1] / "data" / "cases" / "annotations.json").read_text(encoding="utf-8")
)
# Intentional differences from Image Updater.
OURS = {
    "platform-empty": "an empty value counts as absent",
}


@pytest.mark.parametrize(
    "case",
    [c for c in CASES["cases"] if c["input"]["op"] == "platform" and c["id"] not in OURS],
    ids=lambda case: case["id"],
)
def test_platforms_match_as_in_image_updater(case: dict[str, Any]) -> None:
    given = case["input"]
    said = given["platforms"]
    wanted = (
        platforms(Setting("web.platforms", said)) if said else ("linux/amd64",)
    )  # the platform on which Image Updater ran
    assert (
        suits(wanted, ["/".join((given["os"], given["arch"], given["variant"]))]) is case["expect"]
    )


@pytest.mark.parametrize(
    ("wanted", "image", "expected"),
    [
        ("linux/arm64/v8", "linux/arm64/v8", True),
        ("linux/arm64/v8", "linux/arm64/invalid", False),
        ("linux/arm/v6", "linux/arm/", False),  # a variant is required, but not specified
        ("linux/arm/v6", "linux/arm/v7", False),
        ("linux/arm/v6", "linux/amd64/", False),
        ("linux/arm/v6", "linux/amd64/v6", False),
        ("linux/arm", "linux/arm/v7", True),  # no variant is required, so any variant matches
        ("linux/arm/", "linux/arm/v7", True),
        ("linux/arm/v6, linux/amd64", "linux/amd64/v6", True),
        ("linux/arm/v6, linux/amd64", "linux/arm/", False),
        (" linux/amd64 , windows/amd64", "windows/amd64/", True),
        ("linux/amd64", "windows/amd64/", False),
        ("invalid", "linux/amd64/", False),
        ("invalid", "invalid//", False),
        ("linux/", "linux//", False),
        ("Linux/AMD64", "linux/amd64/", False),
        ("a/b/c/d", "a/b/c/d", True),
        ("a/b/c/d", "a/b/c", False),
    ],
)
def test_images_are_matched_against_the_required_platforms(
    wanted: str, image: str, expected: bool
) -> None:
    assert suits(platforms(Setting("web.platforms", wanted)), [image]) is expected


@pytest.mark.parametrize(
    ("text", "expected"), [("linux/amd64", True), ("linux", False), ("/amd64", False), ("", False)]
)
def test_a_platform_has_an_operating_system_and_an_architecture(text: str, expected: bool) -> None:
    assert is_platform(text) is expected


DAY = 86_400


@pytest.mark.parametrize(
    ("since", "seconds", "now", "until"),
    [
        ("2026-11-20T12:00:00Z", 3 * DAY, "2026-11-23T11:59:59Z", "2026-11-23T12:00:00Z"),
        ("2026-11-20T12:00:00Z", 3 * DAY, "2026-11-23T12:00:00Z", ""),
        ("2026-11-20T12:00:00.123456789Z", 3 * DAY, "2026-11-23T12:00:00Z", "2026-11-23T12:00:01Z"),
        (
            "2027-01-01T00:00:00Z",
            DAY,
            "2026-11-23T12:00:00Z",
            "2027-01-02T00:00:00Z",
        ),  # the builder's clock is ahead
        ("1970-01-01T00:00:00Z", 366 * DAY, "2026-11-23T12:00:00Z", ""),
        # European clocks go back on the 25th, but 48 hours remain 48 hours
        ("2026-10-24T12:00:00+02:00", 2 * DAY, "2026-10-26T10:59:59+01:00", "2026-10-26T10:00:00Z"),
        ("2026-10-24T12:00:00+02:00", 2 * DAY, "2026-10-26T11:00:00+01:00", ""),
    ],
)
def test_the_end_of_the_minimum_age_is_computed(
    since: str, seconds: int, now: str, until: str
) -> None:
    found = young_until(since, seconds, now)
    assert found.replace(".000Z", "Z") == until


def test_the_refusal_of_a_recent_build_states_when_it_can_be_written() -> None:
    young = too_young("1.2.0", 3 * 86_400, "2026-11-23T12:00:00Z")
    assert young.because == (
        "1.2.0 is younger than 3 days; it can be written from 2026-11-23 12:00 UTC (minimumAge)"
    )
    undated = too_young("1.2.0", 5400, "").because
    assert undated == "1.2.0 has no date, but must be at least 90 minutes old (minimumAge)"
