"""Decisions about rollbacks, holds, and releases, event by event."""

import json

import pytest
import yaml
from support.memory import URL, story
from support.runs import WEB, application, target

from task.deciding.by_hand import fulfil
from task.deciding.job import Intent, Terms
from task.deciding.weigh import Facts, Situation
from task.image import parse_image
from task.model import (
    Application,
    Entry,
    Hold,
    Keys,
    Memory,
    Policy,
    Reading,
    Snapshot,
    Source,
    State,
    Subscription,
    Written,
)

STATE = ".image-update/apps/a/argocd_a.state"
DB = "ghcr.io/acme/db"


@pytest.mark.parametrize(
    ("strategy", "tags"), [("newest-build", "cab"), ("semver", "123"), ("alphabetical", "123")]
)
@pytest.mark.parametrize("identified", [True, False])
def test_a_rollback_stays_until_its_release(strategy: str, tags: str, identified: bool) -> None:
    first, second, third = (
        (f"2.{tag}.0" if strategy == "semver" else f"b{tag}", place)
        for place, tag in enumerate(tags)
    )
    scene = story(strategy)

    def event(build: tuple[str, int]) -> tuple[str, str]:
        return scene.event(build[0], build[1] if identified else None)

    assert event(first) == event(second) == ("update", "admitted")
    assert scene.rollback(first[0]).verdict == "update"
    assert scene.value == first[0]
    tip = scene.branch.tip
    assert event(second) == ("refuse", "superseded")
    assert scene.branch.tip == tip
    assert event(third) == ("defer", "held")
    assert scene.value == first[0]
    before = len(scene.branch.commits)
    assert scene.release().verdict == "update"
    assert (scene.value, len(scene.branch.commits)) == (third[0], before + 1)
    assert event(second)[0] == "refuse"
    assert scene.value == third[0]


def test_the_newest_event_is_remembered_during_a_hold() -> None:
    scene = story()
    scene.hold("freeze")
    assert scene.event("m5", 5) == scene.event("m7", 7) == ("defer", "held")
    tip = scene.branch.tip
    assert scene.event("m6", 6) == ("refuse", "superseded")
    assert scene.event("m7", 7) == ("defer", "held")
    assert (scene.branch.tip, scene.value) == (tip, "1.0.0")
    scene.release()
    assert scene.value == "m7"
    assert "freeze" not in scene.branch.files[STATE]


def test_release_can_discard_the_waiting_update() -> None:
    scene = story("semver")
    scene.hold("freeze")
    scene.event("1.2.0")
    assert scene.release(discard=True).verdict == "unchanged"
    assert scene.value == "1.0.0"
    assert STATE not in scene.branch.files  # nothing is left to remember
    assert scene.release().because == "it is not held, and no build is waiting"


def test_a_release_names_the_version_that_remains() -> None:
    scene = story("semver")
    scene.hold("load test")
    told = scene.release().because
    assert told.startswith("released: it was held by jane since ")
    assert told.endswith(": load test; Git keeps 1.0.0")
    scene.hold("load test")
    scene.event("1.2.0")
    assert scene.release(discard=True).because.endswith(
        ": load test; Git keeps 1.0.0; 1.2.0 is discarded"
    )


def test_a_rollback_without_a_hold_names_the_hold_that_remains() -> None:
    scene = story("semver")
    scene.event("1.2.0")
    scene.hold("incident 42")
    told = scene.rollback("1.0.0", hold=False).because
    assert told.startswith("rolled back from 1.2.0; still held by jane since ")
    assert told.endswith(": incident 42")
    free = story("semver")
    free.event("1.2.0")
    assert free.rollback("1.0.0", hold=False).because == "rolled back from 1.2.0"


def test_a_release_rechecks_the_rules() -> None:
    scene = story("semver")
    scene.hold("freeze")
    scene.event("1.2.0")
    scene.app = application("a", URL, update_strategy="semver", image_list=f"web={WEB}:~1.1")
    found = scene.release()
    assert (found.verdict, found.rule, scene.value) == ("refuse", "constraint", "1.0.0")


def test_a_hold_expires_at_its_end_time() -> None:
    scene = story()
    hold, waits = (
        {"reason": "freeze", "until": "2020-01-01T00:00:00Z"},
        {"tag": "m9", "sequence": "9"},
    )
    state = {"files": {target("a"): {"hold": hold, "images": {"web": {"deferred": waits}}}}}
    scene.branch.commit({STATE: json.dumps(state)})
    assert scene.event("m8", 8) == ("update", "admitted")
    assert scene.value == "m9"  # the waiting build is newer
    assert "freeze" not in scene.branch.files[STATE]


@pytest.mark.parametrize(
    ("to", "value"),
    [("previous", "1.3.0"), ("2-back", "1.2.0"), ("3-back", "1.1.0"), ("1.1.0", "1.1.0")],
)
def test_each_rollback_target_restores_the_right_version(to: str, value: str) -> None:
    scene = story("semver")
    for number in range(1, 5):
        scene.event(f"1.{number}.0")
        scene.branch.commit({"README": str(number)})
    scene.rollback(to)
    assert scene.value == value
    tip = scene.branch.tip
    for tag in ("1.4.0", "1.3.0"):
        assert scene.event(tag)[0] in ("refuse", "unchanged")
    assert scene.branch.tip == tip


@pytest.mark.parametrize(
    ("images", "hold", "reason"),
    [((), True, ""), ((), False, ""), (("web",), True, ""), ((), True, "INC-42")],
)
@pytest.mark.parametrize(("to", "value"), [("previous", "1.2.0"), ("2-back", "1.1.0")])
def test_repeating_a_rollback_does_not_go_back_further(
    to: str, value: str, images: tuple[str, ...], hold: bool, reason: str
) -> None:
    """In the Git history, the previous value is now the one that was rolled back."""
    scene = story("semver")
    for tag in ("1.1.0", "1.2.0", "1.3.0"):
        scene.event(tag)
    assert scene.rollback(to, *images, hold=hold, reason=reason).verdict == "update"
    tip = scene.branch.tip
    again = scene.rollback(to, *images, hold=hold, reason=reason)
    assert (again.verdict, scene.value, scene.branch.tip) == ("unchanged", value, tip)
    assert f"{value} ({to})" in again.because
    state = yaml.safe_load(scene.branch.files[STATE])["files"][target("a")]
    assert state["images"]["web"]["rollback"] == {"to": to, "tag": value, "was": "1.3.0"}


def test_the_previous_version_is_redetermined_after_a_release_or_an_update() -> None:
    scene = story("semver")
    for tag in ("1.1.0", "1.2.0"):
        scene.event(tag)
    scene.rollback("previous")
    scene.release()
    assert scene.rollback("previous").verdict == "update"
    assert scene.value == "1.2.0"
    scene.release()
    scene.event("1.3.0")
    assert scene.rollback("previous").verdict == "update"
    assert scene.value == "1.2.0"


@pytest.mark.parametrize(
    ("images", "named", "reason"),
    [
        (f"web={WEB}", (), "rolled back to 1.1.0"),
        (f"web={WEB}, db={DB}", ("web",), "rolled back to 1.1.0"),
        (
            f"web={WEB}, db={DB}",
            (),
            "rolled back to previous",
        ),  # each image may have a different tag
    ],
)
def test_the_default_reason_for_a_rollback_names_the_tag(
    images: str, named: tuple[str, ...], reason: str
) -> None:
    scene = story("semver", image_list=images)
    for tag in ("1.1.0", "1.2.0"):
        scene.event(tag)
        if "db=" in images:
            scene.event(tag, image=DB)
    scene.rollback("previous", *named)
    assert f"reason: {reason}\n" in scene.branch.files[STATE]


def test_a_rollback_is_possible_without_a_hold() -> None:
    scene = story("semver")
    for tag in ("1.1.0", "1.2.0"):
        scene.event(tag)
    scene.rollback("previous", hold=False)
    assert scene.value == "1.1.0"
    assert scene.event("1.2.0") == ("refuse", "superseded")
    assert scene.event("1.1.1") == ("update", "admitted")
    assert scene.event("1.2.0") == ("refuse", "superseded")
    assert scene.event("1.3.0") == ("update", "admitted")
    assert STATE not in scene.branch.files


def test_a_release_with_an_unsuitable_tag_order_keeps_the_hint_about_the_order() -> None:
    policy = Policy(constraints=("^1",), tag_order=r"regexp:-(?P<build>[0-9]+)$")
    subscription = Subscription(
        Application("argocd", "web"),
        Entry("web", parse_image(WEB), "^1", "web=x"),
        policy,
        Keys(),
        Source("r", "p", kind="Helm"),
        "helmvalues",
        "p/values.yaml",
        "r",
    )
    hold = Hold("broken", "jane", "2026-01-01T00:00:00Z")
    memory = Memory(None, (), (), hold, Written("1.1.0"), None)
    current = Reading("", "1.0.0", file="p/values.yaml")
    situation = Situation(
        subscription,
        "main",
        "helmvalues",
        current,
        current,
        State(None, {"web": memory}),
        memory,
        Terms(now="2026-01-02T00:00:00Z"),
        Facts(),
    )
    move = fulfil(Intent("release", whole=False), situation, Snapshot("r", "main", "t", {}))
    assert move.decision.rule == "annotation"
    assert "(?P<semver>…)" in move.decision.judged.hint
