"""A Git server 30 ms away, each way: how often a run waits for it, against a clone, an edit, a commit and a push."""

import json
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench import event, material
from bench.far import DELAY, Far, far
from bench.figure import Figure, Side
from bench.git_http import LOGIN, git_http
from bench.process import Room, room, run
from bench.repository_size import CLONE, SHOWN

ROUNDS = 5
FILES = 1_000
ONE = material.apps(1)
WHERE = f"http, a login, {DELAY * 1000:.0f} ms each way, {FILES:,} files"


class Scene:
    """One Application in a repository on a server that is far away."""

    def __init__(self, where: Room, line: Far, repo: Path) -> None:
        self.where, self.line, self.repo = where, line, repo
        self.url = f"http://127.0.0.1:{line.port}/{repo.name}"
        self.tags = count(1)
        home = Path(where.environment["HOME"])
        with (home / ".gitconfig").open("a") as file:
            file.write("[credential]\n\thelper = store\n")
        (home / ".git-credentials").write_text(f"http://{LOGIN}@127.0.0.1:{line.port}\n")
        self.applications = material.write_manifests(where.folder / "apps.json", ONE, repo)
        self.applications.write_text(
            self.applications.read_text().replace(json.dumps(f"file://{repo}"), f'"{self.url}"')
        )

    def update(self, tag: str) -> list[str]:
        """The command for one event."""
        return event.command(tag, self.applications)

    def clone(self, tag: str) -> list[str]:
        """The same change by plain git."""
        work = self.where.folder / "clone"
        shutil.rmtree(work, ignore_errors=True)
        return ["sh", "-c", CLONE.format(url=self.url, work=work, tag=tag, file=ONE[0].override)]

    def measure(self, argv: Callable[[str], list[str]]) -> tuple[float, int, int]:
        """(seconds, round trips to fetch, round trips to push) of one change."""
        tag = f"1.0.{next(self.tags)}"
        self.line.forget()
        spent = run(self.where, argv(tag)).wall
        event.landed(self.repo, ONE, tag)
        return spent, self.line.trips["fetch"], self.line.trips["push"]


def figures() -> Iterator[Figure]:
    """Time, and round trips of fetching and of pushing."""
    with TemporaryDirectory() as name:
        where = room(Path(name))
        (where.folder / "served").mkdir()
        repo = material.repository(where.folder / "served" / "repo.git", ONE, fill_up_to=FILES)
        with git_http(repo.parent) as near, far(near) as line:
            scene = Scene(where, line, repo)
            rounds = [(scene.measure(scene.update), scene.measure(scene.clone)) for _ in range(ROUNDS)]
    shown = f"{event.shown()}  ({WHERE})"
    for at, (what, limit) in enumerate(LIMITS.items()):
        ours, theirs = (median(one[side][at] for one in rounds) for side in (0, 1))
        yield Figure(f"30 ms away: {what}", Side(shown, ours), Side(SHOWN, theirs), limit, unit="n" if at else "s")


LIMITS = {"time": 2.0, "round trips to fetch": 3.5, "round trips to push": 1.0}
