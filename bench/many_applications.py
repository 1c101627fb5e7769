"""The time to update 500 Applications with the same image in one repository with one commit.
Pollers, in contrast, make one commit per Application.
"""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

from bench import event, material
from bench.figure import Figure, Side, alternate
from bench.process import Room, room, run
from bench.record import record

ROUNDS = 3
MANY = 500
SAMPLE = 10
POLLER = """set -e
work=$(mktemp -d)
cd "$work"
git init --quiet
git remote add origin {url}
git fetch --quiet --depth 1 origin main
git checkout --quiet --force FETCH_HEAD -B main
sed -i 's/value: "\\?1\\.0\\.[0-9]*"\\?/value: {tag}/' {file}
git commit --quiet --all --message 'Update {name} to {tag}'
git push --quiet origin main
rm -rf "$work"
"""
SHOWN = "git fetch --depth 1 && git checkout && sed -i … && git commit --all && git push"


class Many:
    """500 Applications in one repository, each with its own chart."""

    def __init__(self, where: Room) -> None:
        self.where = where
        self.apps = material.apps(MANY)
        self.repo = material.repository(where.folder / "repo.git", self.apps)
        self.all = material.write_manifests(where.folder / "apps.json", self.apps, self.repo)
        self.first = material.write_manifests(where.folder / "app.json", self.apps[:1], self.repo)
        self.tags = (f"1.0.{number}" for number in count(1))

    def update_all(self) -> float:
        """Send one event that updates all Applications in one commit, and return the time in
        seconds.
        """
        tag, commits = next(self.tags), self._commits()
        spent = run(self.where, event.command(tag, self.all)).wall
        event.landed(self.repo, self.apps, tag)
        assert self._commits() == commits + 1, "not in one commit"
        return spent

    def update_first(self) -> float:
        """Send one event that updates one Application, and return the time in seconds."""
        tag = next(self.tags)
        spent = run(self.where, event.command(tag, self.first)).wall
        event.landed(self.repo, self.apps[:1], tag)
        return spent

    def poll(self, app: material.App) -> float:
        """Update one Application as a poller would, and return the time in seconds."""
        values = {
            "url": f"file://{self.repo}",
            "tag": next(self.tags),
            "file": app.override,
            "name": app.name,
        }
        spent = run(self.where, ["sh", "-c", POLLER.format(**values)]).wall
        event.landed(self.repo, [app], values["tag"])
        return spent

    def pushes(self) -> int:
        """Return how many pushes it takes to update all Applications for one event."""
        calls = record(self.where, event.command(next(self.tags), self.all))
        return sum("push" in call.argv for call in calls)

    def _commits(self) -> int:
        return int(material.git(self.repo, "rev-list", "--count", "main"))


def figures() -> Iterator[Figure]:
    """Yield the time to update all Applications in one run, compared with a single Application, and
    with pollers.
    """
    with TemporaryDirectory() as name:
        many = Many(room(Path(name)))
        assert many.pushes() == 1, "not in one push"
        ours, alone = alternate(ROUNDS, many.update_all, many.update_first)
        shown = Side(f"{event.shown()}  ({MANY} Applications)", ours)
        yield Figure(
            "500 Applications against one",
            shown,
            Side(f"{event.shown('app.json')}  (one Application)", alone),
            4,
        )
        polled = MANY * mean(many.poll(app) for app in many.apps[:SAMPLE])
        note = f"theirs: measured for {SAMPLE} of the {MANY} Applications, times {MANY // SAMPLE}"
        yield Figure(
            "500 Applications against pollers",
            shown,
            Side(f"{MANY} x ({SHOWN})", polled),
            1 / 50,
            note=note,
        )
