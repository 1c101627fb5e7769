"""The fate of waiting builds: the table of commands, and entries for other Applications."""

import pytest
from support.history_scenes import FIRST, HEAD, Scene, told, verdicts
from support.runs import target

from task.editors.state_file import read_state
from task.landing.waiting_builds import TOGETHER

EVENT = {"newer": "web:1.4.0", "older": "web:1.1.0", "same": "web:1.2.0", "refused": "web:0.1.0"}


def waiting(what: str) -> Scene:
    """Return a scene in which 1.2.0 is waiting, or a rollback from 1.3.0 to 1.2.0 with a hold."""
    scene = Scene()
    if what == "rollback":
        scene.event("web:1.3.0", story=scene.direct)
        scene.by_hand("rollback", "web", "1.2.0")
    else:
        scene.event("web:1.2.0")
    return scene


@pytest.mark.parametrize(
    ("what", "event", "waits", "verdict", "fate"),
    [
        ("build", "newer", "1.4.0", "update", "superseded"),
        ("build", "older", "1.2.0", "refuse", "waits"),
        ("build", "same", "1.2.0", "unchanged", "waits"),
        ("build", "refused", "1.2.0", "refuse", "waits"),
        ("rollback", "newer", "1.2.0", "defer", "waits"),
        ("rollback", "same", "1.2.0", "refuse", "waits"),
        ("rollback", "refused", "1.2.0", "refuse", "waits"),
    ],
)
def test_an_event_keeps_or_replaces_the_waiting_update(
    what: str, event: str, waits: str, verdict: str, fate: str
) -> None:
    scene = waiting(what)
    report = scene.event(EVENT[event])
    assert (scene.waiting, verdicts(report)) == ({"web": waits}, [verdict])
    assert told(report) == [("web", "1.2.0", fate)]


STATE = ".image-update/apps/a/argocd_a.state"


def already_there(what: str) -> Scene:
    """Return a scene with a waiting or deferred 1.2.0, a hold, or a freeze."""
    scene = Scene()
    if "hold first" in what:
        scene.by_hand("hold", "web")
    if "1.2.0" in what:
        scene.event("web:1.2.0")
    if "then a hold" in what:  # committed by a person, so no run removes the build from the head
        held = (
            f"files:\n  {target('a')}:\n    images:\n      web:\n        hold: {{reason: broken}}\n"
        )
        scene.branch.commit({STATE: held})
    if "then a freeze" in what:
        scene.freeze()
    return scene


@pytest.mark.parametrize(
    ("there", "event", "waits", "deferred", "verdict", "fate"),
    [
        ("nothing", "newer", "1.4.0", "", "update", ""),
        ("1.2.0", "newer", "1.4.0", "", "update", "superseded"),
        ("1.2.0", "same", "1.2.0", "", "unchanged", "waits"),
        ("1.2.0", "older", "1.2.0", "", "refuse", "waits"),
        ("1.2.0", "refused", "1.2.0", "", "refuse", "waits"),
        ("hold first", "newer", "", "1.4.0", "defer", ""),
        ("hold first, 1.2.0", "newer", "", "1.4.0", "defer", ""),
        ("hold first, 1.2.0", "older", "", "1.2.0", "refuse", ""),
        ("1.2.0, then a hold", "newer", "", "1.4.0", "defer", "superseded"),
        ("1.2.0, then a hold", "older", "", "1.2.0", "refuse", "deferred"),
        ("1.2.0, then a freeze", "newer", "1.2.0", "1.4.0", "defer", "waits"),
    ],
)
def test_an_event_is_decided_by_what_is_already_waiting_held_or_frozen(
    there: str, event: str, waits: str, deferred: str, verdict: str, fate: str
) -> None:
    """These are the rows of the first table in `waiting_builds`."""
    scene = already_there(there)
    report = scene.event(EVENT[event])
    assert (scene.waiting.get("web", ""), verdicts(report)) == (waits, [verdict])
    assert [row.outcome for row in report.waiting] == ([fate] if fate else [])
    states = [
        read_state(text) for path, text in scene.branch.memory.items() if path.endswith(".state")
    ]
    builds = [memory.deferred for files in states for memory in files[target("a")].images.values()]
    assert "".join(build.tag for build in builds if build) == deferred


@pytest.mark.parametrize(
    ("what", "verb", "to", "held", "waits", "fate"),
    [
        ("build", "hold", "", True, {}, "deferred"),
        ("build", "release", "", False, {"web": "1.2.0"}, "waits"),
        ("build", "rollback", FIRST, True, {}, "deferred"),
        ("build", "rollback", FIRST, False, {}, "dropped"),
        ("build", "rollback", "1.2.0", False, {"web": "1.2.0"}, "waits"),
        ("build", "rollback", "0.9.0", True, {"web": "0.9.0"}, "deferred"),
        ("build", "rollback", "0.9.0", False, {"web": "0.9.0"}, "dropped"),
        ("rollback", "hold", "", True, {"web": "1.2.0"}, "waits"),
        ("rollback", "release", "", False, {"web": "1.2.0"}, "waits"),
        ("rollback", "rollback", "1.1.0", True, {"web": "1.1.0"}, "dropped"),
        ("rollback", "rollback", "1.2.0", True, {"web": "1.2.0"}, "waits"),
        ("rollback", "rollback", "1.3.0", True, {}, "dropped"),
    ],
)
def test_a_command_by_a_person_keeps_defers_or_drops_the_waiting_update(
    what: str, verb: str, to: str, held: bool, waits: dict[str, str], fate: str
) -> None:
    scene = waiting(what)
    report = scene.by_hand(verb, "web", to, held=held)
    assert scene.waiting == waits
    assert told(report) == [("web", "1.2.0", fate)]


@pytest.mark.parametrize(
    ("on_base", "fate", "because"),
    [("1.2.0", "merged", "main now has 1.2.0"), (FIRST, "waits", "semver admits it")],
)
def test_a_command_that_fails_on_the_base_does_not_affect_the_waiting_update(
    on_base: str, fate: str, because: str
) -> None:
    """The Application no longer uses the head branch where the build is waiting."""
    scene = Scene(branch="main:image-update/bump")
    scene.event("web:1.2.0")
    scene.write("web", on_base)
    scene.story = scene.direct
    report = scene.by_hand("rollback", "web", "99-back")
    assert verdicts(report) == ["error"]
    assert told(report) == [("web", "1.2.0", fate)]
    assert [row.because for row in report.waiting] == [because]


@pytest.mark.parametrize(
    ("build", "waits"),
    [("web:1.4.0", "1.4.0"), ("web:1.3.0", "1.2.0"), ("", "1.2.0")],
    ids=["newer", "older", "none"],
)
def test_a_release_keeps_a_waiting_rollback_unless_a_newer_build_was_deferred(
    build: str, waits: str
) -> None:
    """The rollback continues without its hold, unless a newer build was deferred."""
    scene = waiting("rollback")
    if build:
        scene.event(build)
    scene.by_hand("release", "web")
    assert scene.waiting == {"web": waits}
    assert "hold:" not in scene.branch.heads[HEAD].files.get(
        ".image-update/apps/a/argocd_a.state", ""
    )
    assert scene.branch.memory == {}


def test_the_table_covers_every_combination_of_command_and_outcome() -> None:
    outcomes = {
        "run": ("nothing", "deferred", "newer", "same", "older"),
        "hold": ("nothing", "done"),
        "release": ("nothing", "done", "newer", "same", "older"),
        "rollback": ("nothing", "done", "no-hold"),
        "undo": ("nothing", "done", "no-hold"),
    }
    assert set(TOGETHER) == {
        (verb, outcome) for verb, known in outcomes.items() for outcome in known
    }


PATH = "apps/a/kustomization.yaml"


def test_no_waiting_update_is_lost_because_of_a_broken_file_on_the_base() -> None:
    scene = Scene()
    scene.event("web:1.2.0")
    good = scene.branch.files[PATH]
    scene.branch.commit({PATH: f"{good}broken: [\n"})
    assert verdicts(scene.event("cron:1.3.0")) == ["error"]
    scene.branch.commit({PATH: good})
    scene.event("cron:1.3.0")
    assert scene.waiting == {"web": "1.2.0", "cron": "1.3.0"}
