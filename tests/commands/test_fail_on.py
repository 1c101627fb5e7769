"""The rows that `status --fail-on` reports, and the time since which each condition has held."""

from dataclasses import replace
from typing import Any

import pytest
from commands.test_image_status import row

from task.commands.fail_on import REASONS, late_images
from task.image import parse_image
from task.model import Hold, Reading
from task.output.image_status import ImageStatus, OpenRequest, PastBuild, Status

NOW, DAY = "2026-11-23T12:00:00Z", 86_400
OLD, NEW = "2026-11-19T12:00:00Z", "2026-11-22T12:00:00Z"
IMAGE = "ghcr.io/acme/web"


def image(**changes: Any) -> ImageStatus:
    return replace(row(), in_git=Reading(tag="1.0.0"), live=(), hold=None, **changes)


def build(at: str, tag: str = "1.0.0") -> PastBuild:
    return PastBuild(tag, "", "c" * 40, at, "jane")


NEWER = parse_image(f"{IMAGE}:1.1.0")
ROWS = {
    "behind": image(newest=NEWER, newest_at=OLD),
    "just behind": image(newest=NEWER, newest_at=NEW),
    "behind since when": image(newest=NEWER),
    "up to date": image(newest=parse_image(f"{IMAGE}:1.0.0"), newest_at=OLD),
    "held": replace(image(), hold=Hold("load test", "jane", OLD)),
    "just held": replace(image(), hold=Hold("load test", "jane", NEW)),
    "suspended": replace(image(), hold=Hold("suspended")),
    "frozen": replace(image(), hold=Hold("weekend"), scope="freeze"),
    "differs": replace(image(builds=(build(OLD),)), live=(NEWER,)),
    "just written": replace(image(builds=(build(NEW),)), live=(NEWER,)),
    "written by hand": replace(image(builds=(build(OLD, "0.9"),)), live=(NEWER,)),
    "runs": replace(image(builds=(build(OLD),)), live=(parse_image(f"{IMAGE}:1.0.0"),)),
    "proposed": image(request=OpenRequest("https://h/1", "1", "head", "1.1.0")),
}


@pytest.mark.parametrize(
    ("word", "found", "for_three_days"),
    [
        ("behind", {"behind", "just behind", "behind since when"}, {"behind", "behind since when"}),
        ("held", {"held", "just held", "suspended"}, {"held", "suspended"}),
        ("differs", {"differs", "just written", "written by hand"}, {"differs", "written by hand"}),
        ("waits", {"proposed"}, {"proposed"}),
    ],
)
def test_each_reason_finds_the_images_that_need_attention(
    word: str, found: set[str], for_three_days: set[str]
) -> None:
    def named(older_than: int) -> set[str]:
        return {
            name
            for name, one in ROWS.items()
            if late_images(Status((one,), (), 1, NOW), (word,), older_than)
        }

    assert named(0) == found
    assert named(3 * DAY) == for_three_days


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("behind", f"web={IMAGE} is behind: Git has 1.0.0, the registry 1.1.0, since 2026-11-19 12:00 UTC"),
        ("held", f"web={IMAGE} is on hold: load test, since 2026-11-19 12:00 UTC"),
        ("differs", f"web={IMAGE} differs: Git has 1.0.0, but 1.1.0 is running, since 2026-11-19 12:00 UTC"),
        ("proposed", f"web={IMAGE} is waiting: 1.1.0 is proposed but not merged"),
    ],
)  # fmt: skip
def test_each_reason_is_reported_with_its_message(name: str, words: str) -> None:
    (problem,) = late_images(Status((ROWS[name],), (), 1, NOW), REASONS, 0)
    assert problem.message == words
    assert (problem.severity, problem.exit, bool(problem.hint)) == ("error", 5, True)
