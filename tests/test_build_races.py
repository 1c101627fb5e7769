"""Builds that finish at the same time, some with a rollback among them: real processes on a real
repository.
"""

import json
import os
import random
from pathlib import Path

import pytest
from support import git, scale, show
from support.runs import (
    WEB,
    application,
    arguments,
    manifest,
    repository,
    start,
    target,
    wait_until,
)

ROUNDS = scale(1, at_night=20)
AT_ONCE = 10


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_newest_version_remains_after_ten_concurrent_builds(tmp_path: Path) -> None:
    """Only one strategy is tested here. Which build wins is decided by pure code, and
    tests/deciding/test_build_orders.py covers the other strategies.
    """
    chance = random.Random(os.urandom(8))  # noqa: S311 - other plays each time
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        repo = repository(folder, "a")
        apps = manifest(folder, application("a", repo, update_strategy="newest-build"))
        builds = {build: f"b{build * 7 % 10}" for build in range(10)}
        order = chance.sample(sorted(builds), AT_ONCE)
        running = [
            start(arguments(apps, "--sequence", str(build), image=f"{WEB}:{builds[build]}"))
            for build in order
        ]
        outs = [one.communicate(timeout=300) for one in running]
        assert [one.returncode for one in running] == [0] * AT_ONCE, (order, outs)
        assert f"newTag: {builds[9]}" in show(repo, "main", target("a")), order
        assert git(repo, "rev-list", "--min-parents=2", "main") == ""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_rollback_survives_concurrent_events(tmp_path: Path) -> None:
    repo = repository(tmp_path, "a")
    apps = manifest(tmp_path, application("a", repo, update_strategy="semver"))
    half = scale(5, at_night=10)
    events = [start(arguments(apps, image=f"{WEB}:1.{number}.0")) for number in range(1, half + 1)]
    wait_until(lambda: git(repo, "rev-list", "--count", "main") != "1")
    back = start(
        [
            "rollback",
            "a",
            "--to",
            "1.0.0",
            "--applications",
            str(apps),
            "--allow-protocol",
            "file",
            "--output",
            "json",
        ]
    )
    events += [
        start(arguments(apps, image=f"{WEB}:1.{number}.0"))
        for number in range(half + 1, 2 * half + 1)
    ]
    outs = [one.communicate(timeout=300) for one in (back, *events)]
    assert [one.returncode for one in (back, *events)] == [0] * (2 * half + 1), outs
    assert "newTag: 1.0.0" in show(repo, "main", target("a"))
    after = start(arguments(apps, image=f"{WEB}:1.{2 * half + 1}.0")).communicate(timeout=60)[0]
    assert json.loads(after)["decisions"][0]["rule"] == "held"
