"""The size of the image, built from the Dockerfile on a Debian base, and the memory that a run in
it uses.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import event, material
from bench.figure import Figure, NotMeasured, Side
from bench.git_http import LOGIN, git_http
from bench.process import HERE
from scripts import containers

TAG = "1.0.1"
MB = 1e6
MOST = 100 * MB  # in addition to the base
MEMORY = 64 * MB


def figures() -> Iterator[Figure | NotMeasured]:
    """Yield the figures, or none if images cannot be built on this machine."""
    missing = [one for one in containers.PROGRAMS if not shutil.which(one)]
    if missing or os.getuid():
        yield NotMeasured("image", f"requires root and {', '.join(missing or containers.PROGRAMS)}")
        return
    image = containers.build("runtime")
    more = containers.size(image) - containers.size(containers.BASE)
    whole = f"the image has {containers.size(image) / MB:.0f} MB, its base {containers.size(containers.BASE) / MB:.0f} MB"
    yield Figure(
        "image: size",
        Side("podman image inspect, minus the base", more),
        _most(MOST),
        1,
        "B",
        whole,
    )
    yield Figure(
        "image: memory",
        Side(event.shown(), _memory(image)),
        _most(MEMORY),
        1,
        "B",
        "including its git commands",
    )


def _most(value: float) -> Side:
    return Side("(limit)", value)


def _memory(image: str) -> float:
    """Return the peak memory, in bytes, of a run for one Application over HTTP with a login."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        apps = material.apps(1)
        repo = material.repository(folder / "repo.git", apps)
        with git_http(folder) as port:
            text = material.write_manifests(folder / "apps.json", apps, repo).read_text(
                encoding="utf-8"
            )
            server = f"http://127.0.0.1:{port}"
            (folder / "apps.json").write_text(
                text.replace(f"file://{repo}", f"{server}/repo.git"), encoding="utf-8"
            )
            (folder / "home").mkdir()
            folder.chmod(0o755)
            (folder / "home").chmod(0o777)
            user, _, password = LOGIN.partition(":")
            given = ("--git-username", user, "--git-credentials-url", server)
            argv = ("image-update", *event.arguments(TAG, Path("/work/apps.json")), *given)
            mounts = (
                f"--volume={folder}:/work:ro",
                f"--volume={folder}/home:/tmp",
                f"--volume={HERE}:/bench:ro",
            )
            variables = ("--env=HOME=/tmp", f"--env=IMAGE_UPDATE_GIT_PASSWORD={password}")
            said = _said(
                image, "python3", "/bench/tree_memory.py", *argv, options=(*mounts, *variables)
            )
        event.landed(repo, apps, TAG)
    return float(said)


def _said(image: str, program: str, *arguments: str, options: tuple[str, ...] = ()) -> str:
    argv = containers.run(image, *options, f"--entrypoint={program}", command=arguments)
    done = subprocess.run(
        argv, env=containers.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
