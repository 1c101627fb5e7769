"""Run programs and measure their cost. The environment is clean, so that the figures are the same
for everyone.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
IMAGE_UPDATE = str(Path(sysconfig.get_path("scripts"), "image-update"))
GITCONFIG = "[user]\n\tname = Bench\n\temail = bench@example.com\n"


class Cost(NamedTuple):
    """Wall-clock time and CPU time in seconds, including those of all child processes."""

    wall: float
    processor: float


class Room(NamedTuple):
    """A working folder with its own HOME, TMPDIR, and environment."""

    folder: Path
    environment: Mapping[str, str]

    @property
    def temporary(self) -> Path:
        """The folder for temporary files (TMPDIR)."""
        return self.folder / "tmp"


def room(folder: Path) -> Room:
    """Create a room in an empty folder and return it."""
    (folder / "home").mkdir()
    (folder / "tmp").mkdir()
    (folder / "home" / ".gitconfig").write_text(GITCONFIG)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "LANG": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    return Room(folder, environment)


def run(where: Room, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> Cost:
    """Run a program to completion and return its cost.

    If the program fails, the measurement is aborted, because the figure would be meaningless.
    """
    return wait(start(where, argv, environment))


class Running(NamedTuple):
    """A program that is running."""

    process: subprocess.Popen[bytes]
    output: Path
    began: float


def start(
    where: Room, argv: Sequence[str], environment: Mapping[str, str] | None = None
) -> Running:
    """Start a program without waiting for it."""
    handle, output = tempfile.mkstemp(dir=where.folder)
    began = time.perf_counter()
    process = subprocess.Popen(
        argv,
        cwd=where.folder,
        env={**where.environment, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=handle,
        stderr=subprocess.STDOUT,
    )
    os.close(handle)
    return Running(process, Path(output), began)


def wait(running: Running) -> Cost:
    """Wait for a program to exit and return its cost. If the program failed, abort the
    measurement.
    """
    _, status, usage = os.wait4(running.process.pid, 0)
    wall = time.perf_counter() - running.began
    running.process.returncode = os.waitstatus_to_exitcode(status)
    said = running.output.read_text(errors="replace")
    running.output.unlink()
    if running.process.returncode:
        sys.exit(f"{running.process.args!r} exited with {running.process.returncode}:\n{said}")
    return Cost(wall, usage.ru_utime + usage.ru_stime)


def on_disk(folder: Path) -> int:
    """Return the disk usage of a folder in bytes, as `du` reports it."""
    return sum(
        _blocks(Path(base, name))
        for base, folders, files in os.walk(folder)
        for name in (*folders, *files)
    )


def _blocks(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except FileNotFoundError:  # a temporary file that a running program has just removed
        return 0
