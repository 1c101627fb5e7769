"""20 runs on one branch at the same time: all land, and the history stays a line."""

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import event, material
from bench.figure import Figure, Side
from bench.process import Room, room, run, start, wait

RUNS = 20


class Crowd:
    """20 Applications of an image each, in one repository."""

    def __init__(self, where: Room) -> None:
        self.where = where
        self.apps = material.apps(RUNS, same_image=False)
        self.repo = material.repository(where.folder / "repo.git", self.apps)
        self.files = [
            material.write_manifests(where.folder / f"{app.name}.json", [app], self.repo) for app in self.apps
        ]

    def commands(self, tag: str) -> list[list[str]]:
        """One command for each Application."""
        return [event.command(tag, file, app.image) for app, file in zip(self.apps, self.files, strict=True)]

    def check(self, tag: str, commits: int) -> None:
        """Stop unless every run left a commit of its own, one after another."""
        event.landed(self.repo, self.apps, tag)
        assert material.git(self.repo, "rev-list", "--count", "main") == str(commits), "not one commit for each run"
        assert not material.git(self.repo, "rev-list", "--merges", "main"), "the history is not a line"


def figures() -> Iterator[Figure]:
    """All at the same time against one after the other."""
    with TemporaryDirectory() as name:
        crowd = Crowd(room(Path(name)))
        in_a_row = sum(run(crowd.where, command).wall for command in crowd.commands("1.0.1"))
        crowd.check("1.0.1", 1 + RUNS)
        together = _together(crowd, "1.0.2")
        crowd.check("1.0.2", 1 + 2 * RUNS)
        ours = Side(f"{event.shown('web-N.json')} &  ({RUNS} at the same time)", together)
        theirs = Side(f"{event.shown('web-N.json')}  ({RUNS} in a row)", in_a_row)
        yield Figure("20 simultaneous runs", ours, theirs, 3)


def _together(crowd: Crowd, tag: str) -> float:
    began = time.perf_counter()
    running = [start(crowd.where, command) for command in crowd.commands(tag)]
    for one in running:
        wait(one)
    return time.perf_counter() - began
