"""The cost of a run with a Git server 30 ms away (each way), compared with clone, edit, commit, and
push.

It is measured over SSH, and over HTTP with a login: once with a server that supports all filters,
and once with a server that rejects tree filters, as GitHub does.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench import event, material
from bench.far import DELAY, Far, far
from bench.figure import Figure, NotMeasured, Side
from bench.git_http import LOGIN, git_http
from bench.git_ssh import Ssh, git_ssh, user
from bench.material import App
from bench.process import Room, room, run
from bench.repository_size import CLONE, SHOWN

ROUNDS = 5
ONE = material.apps(1)
# number of files → (limit as a multiple of the clone's time, number of round trips)
SIZES = {
    1_000: (1.25, 11),
    5_000: (1.25, 11),
    30_000: (0.9, 14),
    100_000: (0.6, 14),
}
SETTINGS = {"all filters": (), "no tree filters": (("uploadpackfilter.tree.maxDepth", "0"),)}


class Scene:
    """Applications in a repository on a distant server."""

    def __init__(
        self,
        where: Room,
        line: Far,
        repo: Path,
        url: str,
        login: Sequence[str],
        clone_env: str,
        apps: Sequence[App] = ONE,
    ) -> None:
        self.where, self.line, self.repo, self.url = where, line, repo, url
        self._login, self._clone_env = login, clone_env
        self._tags = count(1)
        self._applications = material.write_manifests(where.folder / "apps.json", apps, repo)
        text = self._applications.read_text().replace(json.dumps(f"file://{repo}"), f'"{self.url}"')
        self._applications.write_text(text)

    def update(self, tag: str, app: App = ONE[0]) -> list[str]:
        """Return the command line that sends one event."""
        return [*event.command(tag, self._applications, app.image), *self._login]

    def clone(self, tag: str, app: App = ONE[0]) -> list[str]:
        """Return the command line that makes the same change with plain git."""
        work = self.where.folder / "clone"
        shutil.rmtree(work, ignore_errors=True)
        return [
            "sh",
            "-c",
            self._clone_env + CLONE.format(url=self.url, work=work, tag=tag, file=app.override),
        ]

    def measure(self, argv: Callable[[str], list[str]]) -> tuple[float, int]:
        """Make one change, and return its time in seconds and its number of round trips."""
        tag = f"1.0.{next(self._tags)}"
        self.line.forget()
        spent = run(self.where, argv(tag)).wall
        event.landed(self.repo, ONE, tag)
        return spent, sum(self.line.trips.values())


def figures() -> Iterator[Figure | NotMeasured]:
    """Yield the time and the number of round trips for each server and repository size."""
    for size, (limit, trips) in SIZES.items():
        for name, settings in SETTINGS.items():
            with TemporaryDirectory() as folder, ExitStack() as opened:
                where = room(Path(folder))
                (where.folder / "served").mkdir()
                repo = _repository(where.folder / "served" / "repo.git", size, settings)
                line = opened.enter_context(far(opened.enter_context(git_http(repo.parent))))
                yield from _compared(
                    over_http(where, line, repo), f"{size:,} files, http, {name}", limit, trips
                )
        with TemporaryDirectory() as folder, ExitStack() as opened:
            where = room(Path(folder))
            try:
                server = opened.enter_context(git_ssh(Path(folder)))
            except FileNotFoundError as error:
                yield NotMeasured(f"{size:,} files, ssh", str(error))
                continue
            repo = _repository(where.folder / "repo.git", size, ())
            line = opened.enter_context(far(server.port))
            yield from _compared(
                over_ssh(where, line, repo, server), f"{size:,} files, ssh", limit, 0
            )


def over_http(where: Room, line: Far, repo: Path, apps: Sequence[App] = ONE) -> Scene:
    """Return a scene with an HTTP login. We read the login from a file, and the clone reads it from
    Git's credential store.
    """
    server = f"http://127.0.0.1:{line.port}"
    name, _, password = LOGIN.partition(":")
    (where.folder / "password").write_text(password)
    login = ["--git-credentials-url", f"{server}/", "--git-username", name]
    login += ["--git-password-file", str(where.folder / "password")]
    store = where.folder / "credentials"
    store.write_text(f"http://{LOGIN}@127.0.0.1:{line.port}\n")
    helper = "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=credential.helper"
    clone_env = f"export {helper} 'GIT_CONFIG_VALUE_0=store --file={store}'\n"
    return Scene(where, line, repo, f"{server}/{repo.name}", login, clone_env, apps)


def over_ssh(where: Room, line: Far, repo: Path, server: Ssh) -> Scene:
    """Return a scene that connects over SSH, with a key and a known host."""
    known = server.known_hosts(where.folder / "known_hosts", line.port)
    login = ["--ssh-key-file", str(server.key), "--ssh-known-hosts-file", str(known)]
    clone_env = f"export GIT_SSH_COMMAND='ssh -i {server.key} -o UserKnownHostsFile={known}'\n"
    return Scene(where, line, repo, f"ssh://{user()}@127.0.0.1:{line.port}{repo}", login, clone_env)


def _repository(folder: Path, files: int, settings: Sequence[tuple[str, str]]) -> Path:
    repo = material.repository(folder, ONE, fill_up_to=files)
    for key, value in settings:
        material.git(repo, "config", key, value)
    return repo


def _compared(scene: Scene, name: str, limit: float, trips: int) -> Iterator[Figure]:
    rounds = [(scene.measure(scene.update), scene.measure(scene.clone)) for _ in range(ROUNDS)]
    (ours, our_trips), (theirs, their_trips) = (
        (median(one[side][0] for one in rounds), median(one[side][1] for one in rounds))
        for side in (0, 1)
    )
    shown = f"{event.shown()}  ({DELAY * 1000:.0f} ms each way)"
    note = f"{our_trips:.0f} round trips, the clone {their_trips:.0f}"
    yield Figure(f"{name}: time", Side(shown, ours), Side(SHOWN, theirs), limit, note=note)
    if trips:
        ceiling = Side(f"the limit, {trips}", trips)
        yield Figure(
            f"{name}: round trips", Side(shown, our_trips), ceiling, 1.0, unit="n", note=note
        )
