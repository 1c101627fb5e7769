"""Simultaneous runs on one branch, isolated like pods: all of them land, and the history is linear."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import event, material
from bench.figure import Figure, NotMeasured, Side
from bench.process import Room, room, run, start, wait

RUNS = 20
CROWD = 50
# Pods do not share a network, so runs must not help each other over this machine's network.
ALONE = ["unshare", "--net"] if os.getuid() == 0 else ["unshare", "--net", "--map-root-user"]


class Crowd:
    """Applications with one image each, in one repository."""

    def __init__(self, where: Room, size: int = RUNS) -> None:
        self.where = where
        self.apps = material.apps(size, same_image=False)
        self.repo = material.repository(where.folder / "repo.git", self.apps)
        self.files = [
            material.write_manifests(where.folder / f"{app.name}.json", [app], self.repo)
            for app in self.apps
        ]

    def commands(self, tag: str) -> list[list[str]]:
        """Return one command for each Application, in its own network."""
        return [
            [*ALONE, *event.command(tag, file, app.image)]
            for app, file in zip(self.apps, self.files, strict=True)
        ]

    def check(self, tag: str, commits: int) -> None:
        """Stop the measurement unless every run made its own commit, in a linear history."""
        event.landed(self.repo, self.apps, tag)
        assert material.git(self.repo, "rev-list", "--count", "main") == str(commits), (
            "not one commit per run"
        )
        assert not material.git(self.repo, "rev-list", "--merges", "main"), (
            "the history is not linear"
        )


def figures() -> Iterator[Figure | NotMeasured]:
    """Yield the time of simultaneous runs, compared with that of sequential runs."""
    try:
        subprocess.run([*ALONE, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        yield NotMeasured("simultaneous runs", f"each run needs its own network namespace: {error}")
        return
    with TemporaryDirectory() as name:
        crowd = Crowd(room(Path(name)))
        in_a_row = sum(run(crowd.where, command).wall for command in crowd.commands("1.0.1"))
        crowd.check("1.0.1", 1 + RUNS)
        together = _together(crowd, "1.0.2")
        crowd.check("1.0.2", 1 + 2 * RUNS)
        ours = Side(
            f"unshare --net {event.shown('web-N.json')} &  ({RUNS} at the same time)", together
        )
        theirs = Side(f"unshare --net {event.shown('web-N.json')}  ({RUNS} in a row)", in_a_row)
        yield Figure("20 simultaneous runs", ours, theirs, 3)
    with TemporaryDirectory() as name:
        crowd = Crowd(room(Path(name)), CROWD)
        by_hand = _by_hand(crowd, Path(name) / "clones", "1.0.1")
        together = _together(crowd, "1.0.2")
        crowd.check("1.0.2", 1 + 2 * CROWD)
        ours = Side(
            f"unshare --net {event.shown('web-N.json')} &  ({CROWD} at the same time)", together
        )
        theirs = Side(f"git clone --depth 1, edit, commit, push  ({CROWD} in a row)", by_hand)
        yield Figure("50 simultaneous runs against plain git", ours, theirs, 4)


def _by_hand(crowd: Crowd, folder: Path, tag: str) -> float:
    """Make the changes with a script, once per Application and without concurrency, and return the seconds."""
    folder.mkdir()
    began = time.perf_counter()
    for app in crowd.apps:
        clone = folder / app.name
        material.git(folder, "clone", "--quiet", "--depth=1", f"file://{crowd.repo}", str(clone))
        (clone / f"by-hand-{app.name}").write_text(tag)
        material.git(clone, "add", "--all")
        identity = ("-c", "user.name=Bench", "-c", "user.email=bench@example.com")
        material.git(clone, *identity, "commit", "--quiet", "--message", f"Update {app.name}")
        material.git(clone, "push", "--quiet", "origin", "HEAD:main")
    return time.perf_counter() - began


def _together(crowd: Crowd, tag: str) -> float:
    began = time.perf_counter()
    running = [start(crowd.where, command) for command in crowd.commands(tag)]
    for one in running:
        wait(one)
    return time.perf_counter() - began
