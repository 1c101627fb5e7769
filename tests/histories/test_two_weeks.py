"""Two weeks of a reviewer's work with one head branch in a real repository."""

from functools import partial
from pathlib import Path

import pytest
from support.git_branch import GitBranch
from support.history_scenes import FIRST, HEAD, Scene, told, verdicts


@pytest.mark.slow
def test_a_head_branch_stays_consistent_over_two_weeks_of_reviews(tmp_path: Path) -> None:
    scene = Scene(made=partial(GitBranch, folder=tmp_path))
    branch = scene.branch

    # Monday: two builds wait on one branch.
    scene.event("web:1.1.0")
    scene.event("api:1.1.0")
    assert scene.waiting == {"web": "1.1.0", "api": "1.1.0"}

    # Tuesday: a newer build replaces the first. The reviewer squashes and deletes the branch.
    assert told(scene.event("web:1.2.0")) == [
        ("api", "1.1.0", "waits"),
        ("web", "1.1.0", "superseded"),
    ]
    assert branch.merge(HEAD, style="squash")
    assert scene.base == {"web": "1.2.0", "api": "1.1.0", "cron": FIRST}

    # Wednesday: web fails. Its rollback and hold wait on the branch, and so does cron. Later builds
    # of web are deferred.
    scene.by_hand("rollback", "web", FIRST)
    scene.event("cron:1.1.0")
    assert verdicts(scene.event("web:1.3.0")) == ["defer"]
    assert scene.waiting == {"web": FIRST, "cron": "1.1.0"}
    assert branch.merge(HEAD, style="merge")
    assert scene.base == {"web": FIRST, "api": "1.1.0", "cron": "1.1.0"}
    assert verdicts(scene.event("web:1.2.0")) == ["refuse"]  # an old pipeline runs again

    # Thursday: the reviewer changes the branch by hand. The next build is committed on top.
    scene.event("cron:1.2.0")
    branch.commit_on(HEAD, {"notes.md": "looked at it\n"})
    scene.event("api:1.2.0")
    assert branch.heads[HEAD].files["notes.md"] == "looked at it\n"
    assert branch.merge(HEAD, style="merge")
    assert scene.base == {"web": FIRST, "api": "1.2.0", "cron": "1.2.0"}
    assert branch.files["notes.md"] == "looked at it\n"

    # Friday: a freeze begins. Waiting builds may be merged, new builds wait for Monday.
    scene.event("api:1.3.0")
    scene.freeze()
    assert told(scene.event("cron:1.3.0")) == [("api", "1.3.0", "waits")]
    assert scene.waiting == {"api": "1.3.0"}

    # Monday: the freeze has ended. The newest build is written, which settles the deferred build.
    scene.freeze(ends=True)
    scene.event("cron:1.4.0")
    assert scene.waiting == {"api": "1.3.0", "cron": "1.4.0"}
    assert "1.3.0" in str(branch.memory)  # the held build of web

    # Tuesday: web is repaired, so its hold ends. Meanwhile, somebody pushes a hotfix to the base.
    scene.by_hand("release", "web")
    assert scene.waiting == {"web": "1.3.0", "api": "1.3.0", "cron": "1.4.0"}
    scene.write("web", "1.4.0")
    assert ("web", "1.3.0", "dropped") in told(scene.event("api:1.4.0"))
    assert scene.waiting == {"api": "1.4.0", "cron": "1.4.0"}

    # Wednesday: cron must not change now, but api may.
    assert told(scene.by_hand("hold", "cron")) == [
        ("api", "1.4.0", "waits"),
        ("cron", "1.4.0", "deferred"),
    ]
    assert branch.merge(HEAD, style="fast-forward", keep=True)
    assert scene.base == {"web": "1.4.0", "api": "1.4.0", "cron": "1.2.0"}

    # Thursday: the deferred build is written to the branch that was kept.
    scene.by_hand("release", "cron")
    assert scene.waiting == {"cron": "1.4.0"}

    # Friday: everything is merged. Once the base itself has no hold on web, the memory is empty.
    scene.event("web:1.5.0")
    assert branch.merge(HEAD, style="squash")
    assert scene.base == {"web": "1.5.0", "api": "1.4.0", "cron": "1.4.0"}
    assert verdicts(scene.event("web:1.1.0", "api:1.2.0", "cron:1.3.0")) == ["refuse"] * 3
    assert (branch.proposals, branch.memory) == ({}, {})
