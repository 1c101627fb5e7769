"""A rollback stays, a hold holds, a release applies what waited: what is decided, event after event."""

import json

import pytest
import yaml
from memory import Story
from runs import WEB, target

STATE = ".image-update/apps/a/argocd_a.state"
DB = "ghcr.io/acme/db"


@pytest.mark.parametrize(("strategy", "tags"), [("newest-build", "cab"), ("semver", "123"), ("alphabetical", "123")])
@pytest.mark.parametrize("identified", [True, False])
def test_a_rollback_stays_until_it_is_released(strategy: str, tags: str, identified: bool) -> None:
    one, two, three = ((f"2.{tag}.0" if strategy == "semver" else f"b{tag}", place) for place, tag in enumerate(tags))
    story = Story(strategy)

    def event(build: tuple[str, int]) -> tuple[str, str]:
        return story.event(build[0], build[1] if identified else None)

    assert event(one) == event(two) == ("update", "admitted")
    assert story.rollback(one[0]).verdict.verdict == "update"
    assert story.value == one[0]
    tip = story.branch.tip
    assert event(two) == ("refuse", "superseded")
    assert story.branch.tip == tip
    assert event(three) == ("defer", "held")
    assert story.value == one[0]
    before = len(story.branch.commits)
    assert story.release().verdict.verdict == "update"
    assert (story.value, len(story.branch.commits)) == (three[0], before + 1)
    assert event(two)[0] == "refuse"
    assert story.value == three[0]


def test_the_newest_event_is_remembered_while_held() -> None:
    story = Story()
    story.hold("freeze")
    assert story.event("m5", 5) == story.event("m7", 7) == ("defer", "held")
    tip = story.branch.tip
    assert story.event("m6", 6) == ("refuse", "superseded")
    assert story.event("m7", 7) == ("defer", "held")
    assert (story.branch.tip, story.value) == (tip, "1.0.0")
    story.release()
    assert story.value == "m7"
    assert "freeze" not in story.branch.files[STATE]


def test_release_may_drop_what_waited() -> None:
    story = Story("semver")
    story.hold("freeze")
    story.event("1.2.0")
    assert story.release(discard=True).verdict.verdict == "unchanged"
    assert story.value == "1.0.0"
    assert STATE not in story.branch.files  # nothing is left to remember
    assert story.release().verdict.because == "it is not held"


def test_release_asks_the_rules_again() -> None:
    story = Story("semver")
    story.hold("freeze")
    story.event("1.2.0")
    story.annotate("semver", image_list=f"web={WEB}:~1.1")
    found = story.release().verdict
    assert (found.verdict, found.rule, story.value) == ("refuse", "constraint", "1.0.0")


def test_a_hold_ends_by_itself() -> None:
    story = Story()
    hold, waits = {"reason": "freeze", "until": "2020-01-01T00:00:00Z"}, {"tag": "m9", "sequence": "9"}
    state = {"files": {target("a"): {"hold": hold, "images": {"web": {"deferred": waits}}}}}
    story.branch.commit({STATE: json.dumps(state)})
    assert story.event("m8", 8) == ("update", "admitted")
    assert story.value == "m9"  # what waited is the newer one
    assert "freeze" not in story.branch.files[STATE]


@pytest.mark.parametrize(
    ("to", "value"), [("previous", "1.3.0"), ("2-back", "1.2.0"), ("3-back", "1.1.0"), ("1.1.0", "1.1.0")]
)
def test_what_to_go_back_to(to: str, value: str) -> None:
    story = Story("semver")
    for number in range(1, 5):
        story.event(f"1.{number}.0")
        story.branch.commit({"README": str(number)})
    story.rollback(to)
    assert story.value == value
    tip = story.branch.tip
    for tag in ("1.4.0", "1.3.0"):
        assert story.event(tag)[0] in ("refuse", "unchanged")
    assert story.branch.tip == tip


@pytest.mark.parametrize(
    ("images", "hold", "reason"), [((), True, ""), ((), False, ""), (("web",), True, ""), ((), True, "INC-42")]
)
@pytest.mark.parametrize(("to", "value"), [("previous", "1.2.0"), ("2-back", "1.1.0")])
def test_a_rollback_that_runs_twice_goes_back_once(
    to: str, value: str, images: tuple[str, ...], hold: bool, reason: str
) -> None:
    """Git's history says that the value before is now the one that was rolled back from."""
    story = Story("semver")
    for tag in ("1.1.0", "1.2.0", "1.3.0"):
        story.event(tag)
    assert story.rollback(to, *images, hold=hold, reason=reason).verdict.verdict == "update"
    tip = story.branch.tip
    again = story.rollback(to, *images, hold=hold, reason=reason).verdict
    assert (again.verdict, story.value, story.branch.tip) == ("unchanged", value, tip)
    assert f"{value}, which {to} meant" in again.because
    state = yaml.safe_load(story.branch.files[STATE])["files"][target("a")]
    assert state["images"]["web"]["rollback"] == {"to": to, "tag": value}


def test_after_a_release_or_an_update_previous_is_asked_anew() -> None:
    story = Story("semver")
    for tag in ("1.1.0", "1.2.0"):
        story.event(tag)
    story.rollback("previous")
    story.release()
    assert story.rollback("previous").verdict.verdict == "update"
    assert story.value == "1.2.0"
    story.release()
    story.event("1.3.0")
    assert story.rollback("previous").verdict.verdict == "update"
    assert story.value == "1.2.0"


@pytest.mark.parametrize(
    ("images", "named", "reason"),
    [
        (f"web={WEB}", (), "rolled back to 1.1.0"),
        (f"web={WEB}, db={DB}", ("web",), "rolled back to 1.1.0"),
        (f"web={WEB}, db={DB}", (), "rolled back to previous"),  # it may be another tag for each image
    ],
)
def test_a_hold_without_a_reason_names_the_tag(images: str, named: tuple[str, ...], reason: str) -> None:
    story = Story("semver", image_list=images)
    for tag in ("1.1.0", "1.2.0"):
        story.event(tag)
        if "db=" in images:
            story.event(tag, image=DB)
    story.rollback("previous", *named)
    assert f"reason: {reason}\n" in story.branch.files[STATE]


def test_a_rollback_need_not_hold() -> None:
    story = Story("semver")
    for tag in ("1.1.0", "1.2.0"):
        story.event(tag)
    story.rollback("previous", hold=False)
    assert story.value == "1.1.0"
    assert story.event("1.2.0") == ("refuse", "superseded")
    assert story.event("1.1.1") == ("update", "admitted")
    assert story.event("1.2.0") == ("refuse", "superseded")
    assert story.event("1.3.0") == ("update", "admitted")
    assert STATE not in story.branch.files
