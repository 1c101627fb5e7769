"""Runs on one branch at the same time, as far from each other as pods are: all land, and the history stays a line."""

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
# Pods share no network: what one process could tell the next over this machine's is no help to them.
ALONE = ["unshare", "--net"] if os.getuid() == 0 else ["unshare", "--net", "--map-root-user"]


class Crowd:
    """Applications of an image each, in one repository."""

    def __init__(self, where: Room, size: int = RUNS) -> None:
        self.where = where
        self.apps = material.apps(size, same_image=False)
        self.repo = material.repository(where.folder / "repo.git", self.apps)
        self.files = [
            material.write_manifests(where.folder / f"{app.name}.json", [app], self.repo) for app in self.apps
        ]

    def commands(self, tag: str) -> list[list[str]]:
        """One command for each Application, in a network of its own."""
        return [[*ALONE, *event.command(tag, file, app.image)] for app, file in zip(self.apps, self.files, strict=True)]

    def check(self, tag: str, commits: int) -> None:
        """Stop unless every run left a commit of its own, one after another."""
        event.landed(self.repo, self.apps, tag)
        assert material.git(self.repo, "rev-list", "--count", "main") == str(commits), "not one commit for each run"
        assert not material.git(self.repo, "rev-list", "--merges", "main"), "the history is not a line"


def figures() -> Iterator[Figure | NotMeasured]:
    """All at the same time against one after the other."""
    try:
        subprocess.run([*ALONE, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        yield NotMeasured("simultaneous runs", f"each needs a network namespace of its own: {error}")
        return
    with TemporaryDirectory() as name:
        crowd = Crowd(room(Path(name)))
        in_a_row = sum(run(crowd.where, command).wall for command in crowd.commands("1.0.1"))
        crowd.check("1.0.1", 1 + RUNS)
        together = _together(crowd, "1.0.2")
        crowd.check("1.0.2", 1 + 2 * RUNS)
        ours = Side(f"unshare --net {event.shown('web-N.json')} &  ({RUNS} at the same time)", together)
        theirs = Side(f"unshare --net {event.shown('web-N.json')}  ({RUNS} in a row)", in_a_row)
        yield Figure("20 simultaneous runs", ours, theirs, 3)
    with TemporaryDirectory() as name:
        crowd = Crowd(room(Path(name)), CROWD)
        by_hand = _by_hand(crowd, Path(name) / "clones", "1.0.1")
        together = _together(crowd, "1.0.2")
        crowd.check("1.0.2", 1 + 2 * CROWD)
        ours = Side(f"unshare --net {event.shown('web-N.json')} &  ({CROWD} at the same time)", together)
        theirs = Side(f"git clone --depth 1, edit, commit, push  ({CROWD} in a row)", by_hand)
        yield Figure("50 simultaneous runs against plain git", ours, theirs, 4)


def _by_hand(crowd: Crowd, folder: Path, tag: str) -> float:
    """What a script would do, once for each Application, nobody in its way."""
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
