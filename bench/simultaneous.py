"""Simultaneous runs on one branch: all of them land, and the history remains linear.

With a local repository, the runs are isolated like pods: each is in its own network namespace. The
time of the script with plain git depends on the disk there: 3 to 15 seconds for 50 runs on one
machine. With a Git server 30 ms away (each way), which the runs could not reach from a namespace,
the disk does not matter.
"""

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import event, material
from bench.far import DELAY, far
from bench.figure import Figure, NotMeasured, Side
from bench.git_http import git_http
from bench.material import App
from bench.network import over_http
from bench.process import Room, room, run, start, wait
from bench.repository_size import CLONE, SHOWN

RUNS = 20
CROWD = 50
# Pods do not share a network, so runs must not help each other through this machine's network.
ALONE = ["unshare", "--net"] if os.getuid() == 0 else ["unshare", "--net", "--map-root-user"]
ISOLATED = f"unshare --net {event.shown('web-N.json')}"


def figures() -> Iterator[Figure | NotMeasured]:
    """Yield simultaneous runs, compared with sequential runs."""
    try:
        subprocess.run([*ALONE, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        yield NotMeasured("simultaneous runs", f"each run needs its own network namespace: {error}")
    else:
        yield _compared_with_ours()
        yield _compared_with_script()
    yield _far_away()


class Crowd:
    """Applications with different images in one local repository."""

    def __init__(self, where: Room, size: int) -> None:
        self.where = where
        self.apps = material.apps(size, same_image=False)
        self.repo = material.repository(where.folder / "repo.git", self.apps)
        self._files = [
            material.write_manifests(where.folder / f"{app.name}.json", [app], self.repo)
            for app in self.apps
        ]

    def commands(self, tag: str) -> list[list[str]]:
        """Return one command for each Application, each in its own network namespace."""
        return [
            [*ALONE, *event.command(tag, file, app.image)]
            for app, file in zip(self.apps, self._files, strict=True)
        ]

    def together(self, tag: str) -> Side:
        """Start all commands at once, check that they land, and return how long they took."""
        seconds = _together(self.where, self.commands(tag))
        _check(self.repo, self.apps, tag, 1 + 2 * len(self.apps))
        return Side(f"{ISOLATED} &  ({len(self.apps)} at the same time)", seconds)


def _compared_with_ours() -> Figure:
    """Compare simultaneous runs with the same runs, one after the other."""
    with TemporaryDirectory() as name:
        crowd = Crowd(room(Path(name)), RUNS)
        in_a_row = sum(run(crowd.where, command).wall for command in crowd.commands("1.0.1"))
        _check(crowd.repo, crowd.apps, "1.0.1", 1 + RUNS)
        ours = crowd.together("1.0.2")
    theirs = Side(f"{ISOLATED}  ({RUNS} in a row)", in_a_row)
    return Figure(f"{RUNS} simultaneous runs", ours, theirs, 3)


def _compared_with_script() -> Figure:
    """Compare simultaneous runs with a script with plain git, one run after the other."""
    with TemporaryDirectory() as name:
        crowd = Crowd(room(Path(name)), CROWD)
        url = f"file://{crowd.repo}"
        by_script = 0.0
        for app in crowd.apps:
            work = crowd.where.folder / app.name
            script = CLONE.format(url=url, work=work, tag="1.0.1", file=app.override)
            by_script += run(crowd.where, ["sh", "-c", script]).wall
        _check(crowd.repo, crowd.apps, "1.0.1", 1 + CROWD)
        ours = crowd.together("1.0.2")
    theirs = Side(f"{SHOWN}  ({CROWD} in a row)", by_script)
    return Figure(f"{CROWD} simultaneous runs, local, against plain git", ours, theirs, 4)


def _far_away() -> Figure:
    """Compare simultaneous runs with a script that is executed the same number of times, one after
    the other.
    """
    with TemporaryDirectory() as name, ExitStack() as opened:
        where = room(Path(name))
        apps = material.apps(CROWD, same_image=False)
        (where.folder / "served").mkdir()
        repo = material.repository(where.folder / "served" / "repo.git", apps)
        line = opened.enter_context(far(opened.enter_context(git_http(repo.parent))))
        scene = over_http(where, line, repo, apps)
        by_script = sum(run(where, scene.clone("1.0.1", app)).wall for app in apps)
        _check(repo, apps, "1.0.1", 1 + CROWD)
        together = _together(where, [scene.update("1.0.2", app) for app in apps])
        _check(repo, apps, "1.0.2", 1 + 2 * CROWD)
    distance = f"{DELAY * 1000:.0f} ms each way"
    ours = Side(f"{event.shown()} &  ({CROWD} at the same time, {distance})", together)
    theirs = Side(f"{SHOWN}  ({CROWD} in a row)", by_script)
    return Figure(f"{CROWD} simultaneous runs, 30 ms away, against plain git", ours, theirs, 2)


def _check(repo: Path, apps: Sequence[App], tag: str, commits: int) -> None:
    """Abort unless every run made its own commit, and the history is linear."""
    event.landed(repo, apps, tag)
    assert material.git(repo, "rev-list", "--count", "main") == str(commits), (
        "not one commit per run"
    )
    assert not material.git(repo, "rev-list", "--merges", "main"), "the history is not linear"


def _together(where: Room, commands: Sequence[list[str]]) -> float:
    """Start all commands at once, wait for them, and return the time in seconds."""
    began = time.perf_counter()
    for running in [start(where, command) for command in commands]:
        wait(running)
    return time.perf_counter() - began
