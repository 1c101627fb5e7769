"""How long until the work begins, and what the command adds to the git commands that it runs."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import event, material
from bench.figure import Figure, Side, alternate
from bench.process import IMAGE_UPDATE, Room, own_processor_time, room, run
from bench.record import record, write_script

ROUNDS = 15
TAG = "1.0.1"
PASS = [sys.executable, "-c", "pass"]


class Small:
    """One Application in a small repository, which can be put back to how it was."""

    def __init__(self, where: Room) -> None:
        self.where = where
        self.apps = material.apps(1)
        self.repo = material.repository(where.folder / "repo.git", self.apps)
        self.applications = material.write_manifests(where.folder / "apps.json", self.apps, self.repo)
        self.pristine = shutil.copytree(self.repo, where.folder / "pristine.git")

    def reset(self) -> None:
        """Put the repository back, and leave nothing in TMPDIR."""
        for folder in (self.repo, self.where.temporary):
            shutil.rmtree(folder)
        shutil.copytree(self.pristine, self.repo)
        self.where.temporary.mkdir()

    def check(self) -> None:
        """Stop unless the update landed."""
        event.landed(self.repo, self.apps, TAG)


def figures() -> Iterator[Figure]:
    """The figures of start-up, and those of one small run."""
    with TemporaryDirectory() as name:
        small = Small(room(Path(name)))
        yield _version(small.where)
        yield _processor(small)
        yield _git_commands(small)


def _version(where: Room) -> Figure:
    ours, theirs = alternate(
        ROUNDS, lambda: run(where, [IMAGE_UPDATE, "--version"]).wall, lambda: run(where, PASS).wall
    )
    return Figure("start", Side("image-update --version", ours), Side("python -c pass", theirs), 3)


def _processor(small: Small) -> Figure:
    def ours() -> float:
        small.reset()
        spent = own_processor_time(small.where, event.arguments(TAG, small.applications))
        small.check()
        return spent

    both = alternate(ROUNDS, ours, lambda: run(small.where, PASS).processor)
    note = "processor time; ours without that of the git commands"
    return Figure("run: own work", Side(event.shown(), both[0]), Side("python -c pass", both[1]), 6, note=note)


def _git_commands(small: Small) -> Figure:
    small.reset()
    recording = record(small.where, event.command(TAG, small.applications))
    small.check()
    commit = material.git(small.repo, "rev-parse", "main")
    script = write_script(recording, commit, small.where, small.where.folder / "replay.sh")

    def ours() -> float:
        small.reset()
        spent = run(small.where, event.command(TAG, small.applications)).wall
        small.check()
        return spent

    def theirs() -> float:
        small.reset()
        spent = run(small.where, ["sh", str(script)]).wall
        small.check()
        return spent

    both = alternate(ROUNDS, ours, theirs)
    replay = f"sh replay.sh  (its {len(recording.calls)} git commands, recorded from a run)"
    note = "both make a throw-away repository to work in, and remove it"
    return Figure("run: one Application", Side(event.shown(), both[0]), Side(replay, both[1]), 2.5, note=note)
