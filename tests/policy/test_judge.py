import pytest

from task.model import Image, Policy, Reading
from task.policy.judge import judge

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
        ("1.2.3", SEMVER, "latest", "update", "admitted"),  # no version: the rules do not admit it
        ("1.2.3", RANGE, "2.0.0", "update", "admitted"),  # nor this: it is always replaced
        ("2.0.0", RANGE, "1.2.0", "refuse", "constraint"),
        ("1.2.3", Policy(constraints=("~1.2", "1.2.x")), "", "update", "admitted"),
        ("1.2.3", Policy(constraints=("~1.2", "1.3.x")), "", "refuse", "constraint"),
        ("1.3.0-rc1", SEMVER, "1.2.0", "refuse", "constraint"),
        ("1.3.0-rc1", Policy(constraints=(">=0-0",)), "1.2.0", "update", "admitted"),
        ("latest", SEMVER, "", "refuse", "not-a-version"),
        ("", SEMVER, "", "refuse", "not-a-version"),
        ("v1.1.0", SEMVER, "1.1.0", "update", "admitted"),  # equal versions: the greater text
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
def test_verdicts(tag: str, policy: Policy, current: str, verdict: str, rule: str) -> None:
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
def test_digests_tell_builds_of_one_tag_apart(new: Image, current: Reading, rule: str) -> None:
    assert judge(new, FOLLOW, current).rule == rule


def test_the_same_tag_without_a_digest_is_the_same() -> None:
    assert judge(image("1.0"), SEMVER, Reading(tag="1.0", digest=DIGEST)).rule == "same"


def test_the_same_tag_of_another_repository_is_another_image() -> None:
    assert judge(image("1.0"), SEMVER, Reading("ghcr.io/acme/web", "1.0")).verdict == "update"
    assert judge(image("1.0"), SEMVER, Reading("docker.io/acme/web", "1.0")).rule == "same"


def test_a_tag_that_yaml_reads_as_a_number_is_rewritten() -> None:
    assert judge(image("1.10"), SEMVER, Reading(tag="1.10", sound=False)).verdict == "update"


def test_a_downgrade_only_with_leave() -> None:
    assert judge(image("1.0.0"), SEMVER, Reading(tag="2.0.0")).rule == "not-newer"
    assert judge(image("1.0.0"), SEMVER, Reading(tag="2.0.0"), allow_downgrade=True).verdict == "update"


def test_no_other_entry_of_the_image_goes_back_either() -> None:
    reading = Reading(tag="2.0.0", sound=False, also=("1.0.0", "3.0.0", "latest"))
    assert judge(image("2.5.0"), SEMVER, reading).because == "3.0.0 is newer than 2.5.0, in another entry of the image"
    assert judge(image("2.5.0"), SEMVER, reading, allow_downgrade=True).verdict == "update"
    assert judge(image("3.1.0"), SEMVER, reading).verdict == "update"


def test_the_reason_names_the_rule_and_both_tags() -> None:
    assert judge(image("1.0.0"), SEMVER, Reading(tag="2.0.0")).because == "2.0.0 is newer than 1.0.0"
    assert "~1.2" in judge(image("2.0.0"), RANGE, Reading()).because
