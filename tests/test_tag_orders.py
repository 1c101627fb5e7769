"""`tag-order` in whole runs on an in-memory branch: annotations, config, scans, holds, and
rollbacks.
"""

from pathlib import Path
from typing import Any

import pytest
from support import bare_repo, image_update
from support.memory import Branch, Story, story
from support.runs import KUSTOMIZATION, application, manifest, target

BUILDS = r"regexp:^main-[0-9a-f]+-(?P<build>[0-9]+)$"
RELEASES = r"regexp:^release-(?P<semver>.+)$"
OLD, NEW, NEWEST = "main-a91b7e2-99", "main-04cc1f0-100", "main-0000000-101"


def tracking(
    tag: str, strategy: str = "alphabetical", config: str = "", **annotations: Any
) -> Story:
    """Return the story of an Application with this tag, in a repository with this config."""
    found = story(strategy, **annotations)
    found.branch = Branch({target("a"): KUSTOMIZATION.replace("1.0.0", tag)})
    if config:
        found.branch.commit({".image-update/config": f"version: 1\n{config}"})
    return found


def in_config(order: str) -> str:
    return f"tagOrder: '{order}'\n"


@pytest.mark.parametrize(
    ("config", "annotations"),
    [("", {"web.tag-order": BUILDS}), ("", {"tag-order": BUILDS}), (in_config(BUILDS), {})],
)
def test_a_tag_order_in_annotations_or_the_config_applies_to_events_and_scans(
    config: str, annotations: dict[str, str]
) -> None:
    one = tracking(OLD, config=config, **annotations)
    assert one.event(NEW) == ("update", "admitted")
    assert one.event(OLD) == ("refuse", "not-newer")
    assert one.event("main-x-102") == ("refuse", "tag-order")
    one.tags = (OLD, "latest", NEWEST, NEW)
    assert one.scan() == ("update", "admitted")
    assert one.value == NEWEST


def test_a_tag_order_in_the_config_finds_versions_in_prefixed_tags() -> None:
    """Without the config's tag order, the rules would refuse such a tag before Git is read, so the
    config has to be read first.
    """
    one = tracking(
        "release-1.2.3", "semver", in_config(RELEASES), image_list="web=ghcr.io/acme/web:~1.2"
    )
    assert one.event("release-1.2.10") == ("update", "admitted")
    assert one.event("release-1.3.0") == ("refuse", "constraint")
    one.tags = ("release-1.2.9", "release-1.2.11", "release-1.3.0", "1.2.12")
    assert one.scan() == ("update", "admitted")
    assert one.value == "release-1.2.11"


def test_an_annotation_overrides_the_config_and_the_first_rule_the_top_level() -> None:
    rule = f"{in_config('numeric')}rules:\n- match: {{applications: [a]}}\n  tagOrder: '{BUILDS}'\n"
    assert tracking(OLD, config=rule).event(NEW) == ("update", "admitted")
    assert tracking(OLD, config=rule, **{"web.tag-order": "alphabetical"}).event(NEW) == (
        "refuse",
        "not-newer",
    )


def test_a_numeric_tag_order_in_the_config_is_an_error_with_semver() -> None:
    one = tracking("1.0.0", "semver", in_config("numeric"))
    one.tags = ("1.1.0",)
    assert one.event("1.1.0") == ("error", "annotation")
    assert one.scan() == ("error", "annotation")
    assert one.value == "1.0.0"


def test_a_release_applies_the_newest_waiting_tag_in_the_order() -> None:
    one = tracking("main-b-1", **{"web.tag-order": r"regexp:^main-[0-9a-f]+-(?P<build>\d+)$"})
    one.hold("a release")
    assert one.event(NEW) == ("defer", "held")
    assert one.event(OLD) == ("refuse", "superseded")
    assert one.event(NEWEST) == ("defer", "held")
    one.release()
    assert one.value == NEWEST


def test_a_freeze_keeps_the_newest_waiting_tag_in_the_order() -> None:
    freeze = (
        f"{in_config(BUILDS)}freezes:\n- {{schedule: '0 0 * * *', duration: 20h, reason: quiet}}\n"
    )
    one = tracking("main-b-1", config=freeze)
    assert one.event(NEW) == ("defer", "held")
    assert one.event(OLD) == ("refuse", "superseded")
    one.now = "2026-11-22T21:00:00Z"
    assert one.event("main-b-2") == ("update", "admitted")
    assert one.value == NEW


def test_a_rollback_is_not_undone_by_the_tag_that_it_replaced() -> None:
    one = tracking(OLD, **{"web.tag-order": BUILDS})
    assert one.event(NEW, 100) == ("update", "admitted")
    one.rollback("previous", hold=False)
    assert one.value == OLD
    assert one.event(NEW, 100) == ("refuse", "superseded")
    assert one.event(NEWEST, 101) == ("update", "admitted")


def test_a_promotion_follows_the_tag_order_of_the_target(tmp_path: Path) -> None:
    old, new = KUSTOMIZATION.replace("1.0.0", OLD), KUSTOMIZATION.replace("1.0.0", NEW)
    repo = bare_repo(
        tmp_path, {target("a"): new, target("b"): old, target("c"): new, target("d"): old}
    )
    ordered = {"update_strategy": "alphabetical", "web.tag-order": BUILDS}
    apps = manifest(tmp_path, *(application(name, repo, **ordered) for name in "abcd"))
    given = ("--applications", str(apps), "--allow-protocol", "file", "--output", "json")
    rules = [
        image_update("promote", "--from", source, "--to", to, *given).json["decisions"][0]["rule"]
        for source, to in (("a", "b"), ("d", "c"))
    ]
    assert rules == ["admitted", "not-newer"]
