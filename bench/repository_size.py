"""The cost of a large repository: a run only fetches the trees that it needs, whereas a clone
fetches everything.
"""

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench import event, material
from bench.figure import Figure, Side, alternate
from bench.process import Room, on_disk, room, run
from bench.record import record

ROUNDS = 3
LARGE, SMALL = 100_000, 1_000
CLONE = """set -e
git clone --quiet --depth 1 {url} {work}
cd {work}
sed -i 's/value: "\\?1\\.0\\.[0-9]*"\\?/value: {tag}/' {file}
git commit --quiet --all --message 'Update to {tag}'
git push --quiet origin main
"""
SHOWN = "git clone --depth 1 && sed -i … && git commit --all && git push"


class Place(NamedTuple):
    """An Application in a repository of a given size."""

    where: Room
    repo: Path
    applications: Path
    tags: Iterator[int]

    def update(self) -> float:
        """Send one event to the command, and return the time in seconds."""
        tag = self._next()
        spent = run(self.where, event.command(tag, self.applications)).wall
        event.landed(self.repo, ONE, tag)
        return spent

    def clone(self) -> float:
        """Make the same change with a clone, and return the time in seconds. The clone is kept for
        further measurements.
        """
        tag, work = self._next(), self.where.folder / "clone"
        shutil.rmtree(work, ignore_errors=True)
        script = CLONE.format(url=f"file://{self.repo}", work=work, tag=tag, file=ONE[0].override)
        spent = run(self.where, ["sh", "-c", script]).wall
        event.landed(self.repo, ONE, tag)
        return spent

    def peak(self) -> int:
        """Return the highest disk usage, in bytes, after any of the git commands of a run."""
        return max(
            call.bytes
            for call in record(self.where, event.command(self._next(), self.applications))
        )

    def _next(self) -> str:
        return f"1.0.{next(self.tags)}"


ONE = material.apps(1)


def figures() -> Iterator[Figure]:
    """Yield the cost of a run on a repository with 100,000 files, compared with a clone, and with a
    run on 1,000 files.
    """
    with TemporaryDirectory() as large_folder, TemporaryDirectory() as small_folder:
        large, small = _place(Path(large_folder), LARGE), _place(Path(small_folder), SMALL)
        ours, theirs = alternate(ROUNDS, large.update, large.clone)
        shown = f"{event.shown()}  ({LARGE:,} files)"
        yield Figure("100,000 files: time", Side(shown, ours), Side(SHOWN, theirs), 1 / 3)
        disk = (
            Side(f"{shown}, peak after any git command", large.peak()),
            Side(SHOWN, on_disk(large.where.folder / "clone")),
        )
        yield Figure("100,000 files: disk", *disk, 1 / 50, unit="B")
        ours, theirs = alternate(2 * ROUNDS + 1, large.update, small.update)
        yield Figure(
            "100,000 files against 1,000",
            Side(shown, ours),
            Side(f"{event.shown()}  ({SMALL:,} files)", theirs),
            3,
        )


def _place(folder: Path, files: int) -> Place:
    where = room(folder)
    repo = material.repository(folder / "repo.git", ONE, fill_up_to=files)
    return Place(where, repo, material.write_manifests(folder / "apps.json", ONE, repo), count(1))
