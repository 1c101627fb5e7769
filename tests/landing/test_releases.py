"""A hold ends where it is stored: immediately on the memory branch, or on a base by a merge."""

from dataclasses import replace

import pytest
from support.history_scenes import FIRST, HEAD, NAMES, Scene, told, verdicts
from support.runs import target

STATE = ".image-update/apps/a/argocd_a.state"
HELD = "hold: {reason: broken}"  # written by a person, without a timestamp


def held_by_hand(*names: str, scene: Scene | None = None) -> Scene:
    """Return a scene with holds on the base for these images, or for the whole Application."""
    scene = scene or Scene()
    images = "".join(f"      {name}:\n        {HELD}\n" for name in names)
    below = f"    images:\n{images}" if names else f"    {HELD}\n"
    scene.branch.commit({STATE: f"files:\n  {target('a')}:\n{below}"})
    return scene


def holds(files: dict[str, str]) -> bool:
    return "broken" in files.get(STATE, "")


def test_a_hold_on_the_base_applies_until_its_release_is_merged() -> None:
    scene = held_by_hand("web")
    assert verdicts(scene.event("web:1.1.0")) == ["defer"]
    assert verdicts(scene.event("cron:1.1.0")) == ["update"]
    assert holds(scene.branch.heads[HEAD].files)
    scene.branch.merge(HEAD)
    assert holds(scene.branch.files)
    scene.by_hand("release", "web")
    assert scene.waiting == {"web": "1.1.0"}
    assert not holds(scene.branch.heads[HEAD].files)
    assert holds(scene.branch.files)
    scene.branch.merge(HEAD)
    assert not holds(scene.branch.files)
    assert verdicts(scene.event("web:1.3.0", story=scene.direct)) == ["update"]


def test_a_release_without_a_build_waits_on_the_head_branch() -> None:
    scene = held_by_hand("web")
    report = scene.by_hand("release", "web")
    assert verdicts(report) == ["unchanged"]
    assert [commit.head for commit in report.commits] == [HEAD]
    assert scene.branch.heads[HEAD].message.startswith("release a")
    assert (holds(scene.branch.files), holds(scene.branch.heads[HEAD].files)) == (True, False)
    assert scene.branch.memory == {}
    scene.branch.merge(HEAD)
    assert scene.branch.files.get(STATE) is None
    assert verdicts(scene.event("web:1.1.0", story=scene.direct)) == ["update"]


@pytest.mark.parametrize("first", ["web:1.1.0", ""])
def test_a_newer_event_replaces_the_build_that_is_waiting_with_the_release(first: str) -> None:
    scene = held_by_hand("web")
    if first:
        scene.event(first)
    scene.by_hand("release", "web")
    assert verdicts(scene.event("web:1.2.0")) == ["update"]
    assert verdicts(scene.event("web:1.0.5")) == ["refuse"]
    assert scene.waiting == {"web": "1.2.0"}
    assert not holds(scene.branch.heads[HEAD].files)
    assert "released: it was held: broken" in scene.branch.heads[HEAD].message
    scene.event("cron:1.1.0")
    assert scene.waiting == {"web": "1.2.0", "cron": "1.1.0"}
    assert not holds(scene.branch.heads[HEAD].files)
    scene.branch.merge(HEAD)
    assert (scene.base["web"], holds(scene.branch.files)) == ("1.2.0", False)


def test_releasing_one_image_keeps_the_other_images_held() -> None:
    scene = held_by_hand(*NAMES)
    scene.by_hand("release", "web")
    assert sorted(verdicts(scene.event("web:1.1.0", "cron:1.1.0"))) == ["defer", "update"]
    assert scene.branch.heads[HEAD].files[STATE].count("broken") == 2


def test_releasing_an_application_covers_all_of_its_builds() -> None:
    scene = held_by_hand()
    scene.event("web:1.1.0", "cron:1.1.0")
    scene.by_hand("release")
    assert scene.waiting == {"web": "1.1.0", "cron": "1.1.0"}
    assert len(scene.branch.lists[HEAD].releases) == 1
    assert scene.branch.heads[HEAD].files.get(STATE) is None
    assert verdicts(scene.event("api:1.1.0")) == ["update"]
    scene.branch.merge(HEAD)
    scene.event("api:1.2.0")
    assert scene.branch.lists[HEAD].releases == ()


def test_deleting_the_head_branch_cancels_the_release() -> None:
    scene = held_by_hand("web")
    scene.by_hand("release", "web")
    scene.branch.delete(HEAD)
    assert verdicts(scene.event("web:1.1.0")) == ["defer"]


def test_a_new_hold_cancels_the_release() -> None:
    scene = held_by_hand("web")
    scene.event("web:1.1.0")
    scene.by_hand("release", "web")
    assert told(scene.by_hand("hold", "web")) == [("web", "1.1.0", "deferred")]
    assert HEAD not in scene.branch.heads
    assert verdicts(scene.event("web:1.2.0")) == ["defer"]
    scene.by_hand("release", "web")
    assert scene.waiting == {"web": "1.2.0"}
    assert not holds(scene.branch.heads[HEAD].files)
    assert scene.branch.memory == {}


def test_a_release_does_not_end_a_different_hold() -> None:
    scene = held_by_hand("web")
    scene.event("web:1.1.0")
    scene.by_hand("release", "web")
    scene.branch.commit({STATE: scene.branch.files[STATE].replace("broken", "broken again")})
    assert sorted(verdicts(scene.event("web:1.2.0", "cron:1.2.0"))) == ["defer", "update"]
    assert "broken again" in scene.branch.heads[HEAD].files[STATE]
    assert scene.waiting == {"cron": "1.2.0"}


def test_removing_the_hold_by_hand_closes_the_releases_head_branch() -> None:
    scene = held_by_hand("web")
    scene.by_hand("release", "web")
    scene.branch.commit({STATE: ""})
    scene.event("web:0.1.0")
    assert (HEAD in scene.branch.heads, scene.branch.remembered) == (False, {})


def test_a_release_can_discard_the_update_that_the_base_deferred() -> None:
    scene = Scene()
    deferred = f"{HELD}\n        deferred: {{tag: 1.1.0}}"
    text = f"files:\n  {target('a')}:\n    images:\n      web:\n        {deferred}\n"
    scene.branch.commit({STATE: text})
    scene.story.release(discard=True)
    assert scene.branch.heads[HEAD].files.get(STATE) is None
    scene.branch.merge(HEAD)
    assert verdicts(scene.event("web:1.0.5")) == ["update"]


def test_an_update_deferred_by_the_base_after_the_release_is_not_lost() -> None:
    scene = held_by_hand("web")
    scene.event("web:1.1.0")
    scene.by_hand("release", "web")
    scene.event("web:1.3.0", story=scene.direct)
    assert "1.3.0" in scene.branch.files[STATE]
    scene.event("web:1.2.0")
    assert scene.waiting == {"web": "1.3.0"}
    scene.branch.merge(HEAD)
    assert (scene.base["web"], scene.branch.files.get(STATE)) == ("1.3.0", None)


def test_a_release_works_on_a_head_branch_that_contains_peoples_commits() -> None:
    scene = held_by_hand("web")
    scene.branch.commit_on(HEAD, {"people.yaml": "theirs\n"})
    scene.event("web:1.1.0")
    scene.by_hand("release", "web")
    head = scene.branch.heads[HEAD].files
    assert ("newTag: 1.1.0" in head[target("a")], holds(head)) == (True, False)
    assert holds(scene.branch.files)
    assert verdicts(scene.event("web:1.2.0")) == ["update"]


def test_an_outdated_memory_file_does_not_end_a_hold() -> None:
    scene = held_by_hand("web")
    scene.event("web:1.1.0")
    ended = scene.branch.files[STATE].replace(HELD, "released: 2030-01-01T00:00:00Z")
    for name, one in scene.branch.heads.items():
        if name.startswith("image-update-memory/"):
            scene.branch.heads[name] = replace(one, files={**one.files, STATE: ended})
    assert verdicts(scene.event("web:1.2.0")) == ["defer"]
    assert verdicts(scene.event("web:1.2.0", story=scene.direct)) == ["defer"]


@pytest.mark.parametrize("whole_file", [False, True])
@pytest.mark.parametrize(
    ("style", "keep"), [("squash", False), ("merge", False), ("merge", True), ("squash", True)]
)
def test_a_person_can_end_the_hold_of_a_merged_rollback_on_the_base(
    style: str, keep: bool, whole_file: bool
) -> None:
    if (style, keep, whole_file) == ("squash", True, True):
        return  # the merge cannot be detected
    scene = Scene()
    scene.event("web:1.1.0", story=scene.direct)
    scene.by_hand("rollback", "web", FIRST)
    scene.branch.merge(HEAD, style=style, keep=keep)
    before, _, after = scene.branch.files[STATE].partition("        hold:\n")
    after = after[after.index("        rollback:") :]
    scene.branch.commit({STATE: "" if whole_file else before + after})
    assert verdicts(scene.event("web:1.2.0")) == ["update"]
    assert scene.waiting == {"web": "1.2.0"}
    assert scene.branch.memory == {}


def test_a_hold_made_before_a_rollback_remains_after_its_merge() -> None:
    scene = Scene()
    scene.write("web", "1.2.0")
    scene.by_hand("hold")
    scene.by_hand("rollback", "web", FIRST, held=False)
    scene.branch.merge(HEAD)
    assert verdicts(scene.event("web:1.3.0")) == ["defer"]


def test_a_merged_hold_is_not_copied_to_the_memory_branch() -> None:
    scene = Scene()
    scene.event("web:1.1.0", story=scene.direct)
    scene.by_hand("rollback", "web", FIRST)
    scene.branch.merge(HEAD)
    assert sorted(verdicts(scene.event("web:1.2.0", "cron:1.2.0"))) == ["defer", "update"]
    assert "hold:" not in "".join(scene.branch.memory.values())
