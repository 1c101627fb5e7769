"""Simultaneous runs on one branch: all of them land, and the history remains linear.

20 runs are isolated like pods: each is in its own network namespace, with a local repository. 50
runs use a Git server 30 ms away (each way), which they could not reach from a namespace. The 50
runs of a script with plain git use the same server, because with a repository on a local disk,
their time would depend on the disk: 3 to 15 seconds on one machine.
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
from bench.repository_size import SHOWN

RUNS = 20
CROWD = 50
# Pods do not share a network, so runs must not help each other through this machine's network.
ALONE = ["unshare", "--net"] if os.getuid() == 0 else ["unshare", "--net", "--map-root-user"]


def figures() -> Iterator[Figure | NotMeasured]:
    """Yield figures for simultaneous runs, compared with sequential runs."""
    try:
        subprocess.run([*ALONE, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        yield NotMeasured("simultaneous runs", f"each run needs its own network namespace: {error}")
    else:
        yield _isolated()
    yield _far_away()


def _isolated() -> Figure:
    """Compare simultaneous runs with the same runs one after the other."""
    with TemporaryDirectory() as name:
        where = room(Path(name))
        apps = material.apps(RUNS, same_image=False)
        repo = material.repository(where.folder / "repo.git", apps)
        files = [
            material.write_manifests(where.folder / f"{app.name}.json", [app], repo) for app in apps
        ]

        def commands(tag: str) -> list[list[str]]:
            """Return one command for each Application. Each runs in its own network namespace."""
            return [
                [*ALONE, *event.command(tag, file, app.image)]
                for app, file in zip(apps, files, strict=True)
            ]

        in_a_row = sum(run(where, command).wall for command in commands("1.0.1"))
        _check(repo, apps, "1.0.1", 1 + RUNS)
        together = _together(where, commands("1.0.2"))
        _check(repo, apps, "1.0.2", 1 + 2 * RUNS)
    shown = f"unshare --net {event.shown('web-N.json')}"
    ours = Side(f"{shown} &  ({RUNS} at the same time)", together)
    theirs = Side(f"{shown}  ({RUNS} in a row)", in_a_row)
    return Figure(f"{RUNS} simultaneous runs", ours, theirs, 3)


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
    return Figure(f"{CROWD} simultaneous runs against plain git", ours, theirs, 2)


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
