"""What waits on a head branch while other things happen."""

from dataclasses import replace

import pytest
from history_scenes import FIRST, HEAD, Scene, told, values_in, verdicts
from memory import URL, Story
from runs import KUSTOMIZATION, WEB, application, target

STATE = ".image-update/apps/a/argocd_a.state"


def test_what_others_merged_stays() -> None:
    """A request of one image never takes another one back, nor its identity."""
    scene = Scene("newest-build")
    scene.event("web:main-1", sequence=1)
    scene.event("api:main-9", sequence=9, story=scene.direct)
    report = scene.event("web:main-2", sequence=2)
    assert verdicts(report) == ["update"]
    assert told(report) == [("web", "main-1", "superseded")]
    assert scene.waiting == {"web": "main-2"}
    scene.branch.merge(HEAD)
    assert scene.base == {"web": "main-2", "api": "main-9", "cron": FIRST}
    assert verdicts(scene.event("api:main-7", sequence=7)) == ["refuse"]


@pytest.mark.parametrize("back", [FIRST, "1.0.5"])
def test_a_rollback_on_the_base_takes_what_waits_out(back: str) -> None:
    scene = Scene()
    scene.event("web:1.1.0", story=scene.direct)
    scene.event("web:1.2.0", "cron:1.2.0")
    scene.story, indirect = scene.direct, scene.story
    scene.by_hand("rollback", "web", back)
    scene.story = indirect
    report = scene.event("web:1.3.0", "cron:1.3.0")
    assert sorted(verdicts(report)) == ["defer", "update"]
    assert told(report) == [("cron", "1.2.0", "superseded"), ("web", "1.2.0", "superseded")]  # 1.3.0 is remembered
    assert scene.waiting == {"cron": "1.3.0"}
    scene.branch.merge(HEAD)
    assert scene.base == {"web": back, "api": FIRST, "cron": "1.3.0"}
    assert verdicts(scene.event("web:1.4.0")) == ["defer"]  # the hold is still there


def test_a_refused_tag_takes_nothing_away() -> None:
    scene = Scene()
    scene.event("web:1.3.0", "cron:1.4.0")
    report = scene.event("web:0.9.0", "cron:1.5.0")
    assert sorted(verdicts(report)) == ["refuse", "update"]
    assert scene.waiting == {"web": "1.3.0", "cron": "1.5.0"}
    assert ("web", "1.3.0", "waits") in told(report)


def test_a_hold_and_a_rollback_keep_what_waited_for_the_release() -> None:
    scene = Scene()
    scene.event("web:1.1.0")
    report = scene.by_hand("hold", "web")
    assert told(report) == [("web", "1.1.0", "deferred")]
    assert (scene.waiting, scene.branch.proposals) == ({}, {})
    scene.by_hand("release", "web")
    assert scene.waiting == {"web": "1.1.0"}
    assert scene.branch.memory == {}
    scene.branch.merge(HEAD)
    scene.event("web:1.2.0")
    assert told(scene.by_hand("rollback", "web", FIRST)) == [("web", "1.2.0", "deferred")]
    assert scene.waiting == {"web": FIRST}
    assert verdicts(scene.event("web:1.1.5")) == ["refuse"]  # it is older than what is remembered
    scene.branch.merge(HEAD)
    scene.by_hand("release", "web")
    assert scene.waiting == {"web": "1.2.0"}
    scene.branch.merge(HEAD)
    assert scene.base["web"] == "1.2.0"
    assert verdicts(scene.event("web:1.3.0")) == ["update"]
    assert scene.branch.memory == {}


def test_a_rollback_without_a_hold_drops_what_waited() -> None:
    scene = Scene()
    scene.event("web:1.1.0", story=scene.direct)
    scene.event("web:1.2.0")
    report = scene.by_hand("rollback", "web", FIRST, held=False)
    assert told(report) == [("web", "1.2.0", "dropped")]
    assert scene.waiting == {"web": FIRST}


def test_two_applications_with_one_head_branch() -> None:
    """Each run knows one of them only."""
    scene = Scene()
    scene.branch.commit({target("b"): KUSTOMIZATION})
    other = Story(application("b", URL, image_list=f"web={WEB}", git_branch=f"main:{HEAD}"), scene.branch)
    scene.event("web:1.1.0", story=other)
    scene.event("web:1.2.0", "cron:1.2.0")
    assert values_in(scene.branch.heads[HEAD].files, "b") == {"web": "1.1.0"}
    scene.event("web:1.3.0", story=other)
    scene.branch.merge(HEAD)
    assert values_in(scene.branch.files, "b") == {"web": "1.3.0"}
    assert scene.base == {"web": "1.2.0", "api": FIRST, "cron": "1.2.0"}


def test_a_branch_of_somebody_else_gets_one_commit_more() -> None:
    scene = Scene()
    scene.branch.commit_on(HEAD, {"people.yaml": "theirs\n"})
    scene.branch.commit({"later.yaml": "on the base only\n"})
    scene.event("web:1.1.0")
    files = scene.branch.heads[HEAD].files
    assert files["people.yaml"] == "theirs\n"
    assert "later.yaml" not in files
    assert values_in(files)["web"] == "1.1.0"
    assert verdicts(scene.event("web:1.0.5")) == ["refuse"]  # its own values count
    scene.by_hand("hold", "web")
    assert verdicts(scene.event("web:1.2.0")) == ["defer"]
    assert values_in(scene.branch.heads[HEAD].files)["web"] == "1.1.0"


def test_the_config_of_such_a_branch_counts_as_well() -> None:
    scene = Scene()
    scene.branch.commit_on(HEAD, {".image-update/config": "version: 1\npullRequests: {enabled: true}\n"})
    report = scene.event("web:1.1.0")
    assert verdicts(report) == ["error"]
    assert f"the config on {HEAD} asks for a pull request" in report.decisions[0].because


def test_an_amended_commit_is_somebody_elses() -> None:
    scene = Scene()
    scene.event("web:1.1.0")
    ours = scene.branch.heads[HEAD]
    scene.branch.heads[HEAD] = replace(ours, before=None, files={**ours.files, "mine.yaml": "x\n"})
    scene.event("web:1.2.0")
    assert scene.branch.heads[HEAD].files["mine.yaml"] == "x\n"


def test_a_freeze_leaves_what_waits_and_defers_new_builds() -> None:
    scene = Scene()
    scene.event("web:1.1.0")
    frozen = 'version: 1\nfreezes: [{schedule: "* * * * *", duration: 1h, reason: sale}]\n'
    scene.branch.commit({".image-update/config": frozen})
    report = scene.event("web:1.2.0", "cron:1.2.0")
    assert verdicts(report) == ["defer", "defer"]
    assert scene.waiting == {"web": "1.1.0"}
    assert told(report) == [("web", "1.1.0", "waits")]
    scene.branch.commit({".image-update/config": "version: 1\n"})
    scene.by_hand("release", "cron")
    assert scene.waiting == {"web": "1.1.0", "cron": "1.2.0"}


def test_what_the_base_has_by_now_is_dropped() -> None:
    scene = Scene()
    scene.event("web:1.1.0", "cron:1.1.0")
    scene.write("web", "1.5.0")
    report = scene.event("cron:1.2.0")
    assert scene.waiting == {"cron": "1.2.0"}
    assert ("web", "1.1.0", "dropped") in [
        (a, b, "dropped" if c in ("superseded", "dropped") else c) for a, b, c in told(report)
    ]
    scene.write("cron", "1.2.0")
    report = scene.event("web:1.5.0")
    assert told(report) == [("cron", "1.2.0", "merged")]
    assert scene.branch.proposals == {}


def test_the_bases_own_hold_ends_before_anybody_merges() -> None:
    scene = Scene()
    scene.story, indirect = scene.direct, scene.story
    scene.by_hand("hold", "web")
    scene.story = indirect
    assert verdicts(scene.event("web:1.1.0")) == ["defer"]
    scene.by_hand("release", "web")
    assert scene.waiting == {"web": "1.1.0"}
    assert verdicts(scene.event("web:1.2.0")) == ["update"]
    scene.branch.merge(HEAD)
    assert STATE not in scene.branch.files or "hold" not in scene.branch.files[STATE]
