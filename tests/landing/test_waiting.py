"""What becomes of builds that wait: the table of commands, and the lines of other Applications."""

import time

import pytest
from history_scenes import FIRST, HEAD, Scene, told, values_in, verdicts

from task.landing.waiting import TOGETHER, merged_text

EVENT = {"newer": "web:1.4.0", "older": "web:1.1.0", "same": "web:1.2.0", "refused": "web:0.1.0"}


def waiting(what: str) -> Scene:
    """Return a scene in which 1.2.0 waits, or a rollback of 1.3.0 to 1.2.0 with a hold."""
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
def test_an_event_meets_what_waits(
    what: str, event: str, waits: str, verdict: str, fate: str
) -> None:
    scene = waiting(what)
    report = scene.event(EVENT[event])
    assert (scene.waiting, verdicts(report)) == ({"web": waits}, [verdict])
    assert told(report) == [("web", "1.2.0", fate)]


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
def test_a_person_meets_what_waits(
    what: str, verb: str, to: str, held: bool, waits: dict[str, str], fate: str
) -> None:
    scene = waiting(what)
    report = scene.by_hand(verb, "web", to, held=held)
    assert scene.waiting == waits
    assert told(report) == [("web", "1.2.0", fate)]


@pytest.mark.parametrize(
    ("build", "waits"),
    [("web:1.4.0", "1.4.0"), ("web:1.3.0", "1.2.0"), ("", "1.2.0")],
    ids=["newer", "older", "none"],
)
def test_a_release_meets_a_rollback_that_waits(build: str, waits: str) -> None:
    """It goes on without its hold, unless a newer build was deferred."""
    scene = waiting("rollback")
    if build:
        scene.event(build)
    scene.by_hand("release", "web")
    assert scene.waiting == {"web": waits}
    assert "hold:" not in scene.branch.heads[HEAD].files.get(
        ".image-update/apps/a/argocd_a.state", ""
    )
    assert scene.branch.memory == {}


def test_the_table_is_whole() -> None:
    outcomes = {
        "run": ("nothing", "newer", "same", "older"),
        "hold": ("nothing", "done"),
        "release": ("nothing", "done", "newer", "same", "older"),
        "rollback": ("nothing", "done", "no-hold"),
        "undo": ("nothing", "done", "no-hold"),
    }
    assert set(TOGETHER) == {
        (verb, outcome) for verb, known in outcomes.items() for outcome in known
    }


PATH = "apps/a/kustomization.yaml"


def test_what_cannot_be_read_is_a_warning_with_a_row() -> None:
    scene = Scene("newest-build")
    scene.event("web:main-2", "cron:main-2", sequence=2)
    scene.branch.heads[HEAD].files[PATH] += "images: [broken\n"
    for image, fate in (("cron:main-1", "waits"), ("cron:main-3", "dropped")):
        report = scene.event(image, sequence=int(image[-1]))
        (problem,) = [
            one for one in report.problems if one.application == "argocd/a" and HEAD in one.message
        ][:1]
        assert (PATH in problem.message, problem.severity) == (True, "warning")
        assert told(report) == [("cron", "main-2", fate), ("web", "main-2", fate)]
    assert scene.waiting == {"cron": "main-3"}


def test_a_file_of_the_base_that_is_broken_loses_nothing() -> None:
    scene = Scene()
    scene.event("web:1.2.0")
    good = scene.branch.files[PATH]
    scene.branch.commit({PATH: f"{good}broken: [\n"})
    assert verdicts(scene.event("cron:1.3.0")) == ["error"]
    scene.branch.commit({PATH: good})
    scene.event("cron:1.3.0")
    assert scene.waiting == {"web": "1.2.0", "cron": "1.3.0"}


def test_others_builds_that_the_base_overtook_have_a_row() -> None:
    scene = Scene()
    scene.event("web:1.2.0")
    head = scene.branch.heads[HEAD]
    head.files["apps/b/values.yaml"] = "tag: 2.0.0\n"
    head.before["apps/b/values.yaml"] = "tag: 1.0.0\n"  # type: ignore[index]
    scene.branch.commit({"apps/b/values.yaml": "tag: 3.0.0\n"})
    report = scene.event("web:1.3.0")
    (lost,) = [one for one in report.waiting if not one.application]
    assert (lost.outcome, "apps/b/values.yaml" in lost.because) == ("dropped", True)
    assert scene.branch.heads[HEAD].files["apps/b/values.yaml"] == "tag: 3.0.0\n"


def test_a_hold_leaves_the_builds_of_others() -> None:
    scene = Scene()
    scene.event("web:1.2.0")
    head = scene.branch.heads[HEAD]
    head.files["apps/b/values.yaml"] = "tag: 2.0.0\n"
    head.before["apps/b/values.yaml"] = "tag: 1.0.0\n"  # type: ignore[index]
    scene.branch.commit({"apps/b/values.yaml": "tag: 1.0.0\n"})
    scene.by_hand("hold", "web")
    files = scene.branch.heads[HEAD].files
    assert (values_in(files)["web"], files["apps/b/values.yaml"]) == (FIRST, "tag: 2.0.0\n")


A, B, C = "a\n", "b\n", "c\n"


@pytest.mark.parametrize(
    ("before", "after", "now", "merged", "whole"),
    [
        (A + B + C, A + "x\n" + C, A + B + C, A + "x\n" + C, True),
        (A + B + C, A + "x\n" + C, "y\n" + A + B + C, "y\n" + A + "x\n" + C, True),
        (A + B + C, A + "x\n" + C, A + "y\n" + C, A + "y\n" + C, False),
        (A + B + C, A + B + "x\n" + C, "y\n" + A + B + C, "y\n" + A + B + "x\n" + C, True),
        (A + B + C, A + C, A + B + C + "y\n", A + C + "y\n", True),
        (None, A, None, A, True),
        (None, A, B, B, False),
        (A, None, A, None, True),
        (A, None, B, B, False),
        (A, B, None, None, False),
    ],
)
def test_lines_are_merged(
    before: str | None, after: str | None, now: str | None, merged: str, whole: bool
) -> None:
    assert merged_text(before, after, now) == (merged, whole)


def test_hostile_texts_take_no_longer() -> None:
    """Many equal lines are quadratic for a comparison of lines."""
    equal = ["- name: x\n"] * 200_000
    began = time.monotonic()
    before, after, now = (
        "".join(("first\n" * count, *equal, "last\n" * count)) for count in (1, 2, 3)
    )
    assert merged_text(before, after, now)[0] == now
    often = [f"{number % 97}\n" for number in range(50_000)]
    before, after, now = (
        "".join([end, *often[::step], end]) for end, step in (("a", 1), ("b", 3), ("c", -7))
    )
    assert merged_text(before, after, now) == (now, False)
    assert time.monotonic() - began < 10


@pytest.mark.slow
def test_many_changes_in_a_long_text_take_no_longer() -> None:
    """Each change is looked up among the lines that stayed, of which there may be as many."""
    before = [f"{number}: a\n" for number in range(200_000)]
    after = [line.replace("a", "b") if at % 2 == 0 else line for at, line in enumerate(before)]
    now = [line.replace("a", "c") if at % 4 == 1 else line for at, line in enumerate(before)]
    both = [now[at] if at % 2 else line for at, line in enumerate(after)]
    began = time.monotonic()
    assert merged_text("".join(before), "".join(after), "".join(now)) == ("".join(both), True)
    assert time.monotonic() - began < 10


def test_lines_far_apart_in_a_long_text() -> None:
    lines = [f"{number}\n" for number in range(100_000)]
    after, now = [*lines], [*lines]
    after[5], now[90_000] = "x\n", "y\n"
    text, whole = merged_text(*("".join(one) for one in (lines, after, now)))
    assert whole
    assert text is not None
    assert text.splitlines()[5::89_995] == ["x", "y"]
