"""Which git commands a run makes: to replay them from a script, to count them, to see what they leave on the disk."""

import json
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from bench.process import HERE, Room, run


class Call(NamedTuple):
    """One git command as it was run."""

    argv: Sequence[str]
    cwd: str
    environment: Mapping[str, str]
    stdin: Path
    status: int
    bytes: int  # on disk under TMPDIR when it had ended


class Recording(NamedTuple):
    """All git commands of one run, and what lay under TMPDIR before the first."""

    calls: Sequence[Call]
    before: Path

    @property
    def peak(self) -> int:
        """The most that lay under TMPDIR at the end of a call."""
        return max(call.bytes for call in self.calls)


def record(where: Room, argv: Sequence[str]) -> Recording:
    """Run a command with a git on PATH that notes every call."""
    folder = Path(mkdtemp(dir=where.folder, prefix="record-"))
    stub = folder / "bin" / "git"
    stub.parent.mkdir()
    variables = {"RECORD_GIT": folder, "RECORD_TMP": where.temporary, "REAL_GIT": shutil.which("git")}
    settings = " ".join(f"{name}={shlex.quote(str(value))}" for name, value in variables.items())
    stub.write_text(f'#!/bin/sh\n{settings} exec {sys.executable} {HERE}/recording_git.py "$@"\n')
    stub.chmod(0o755)
    run(where, argv, {"PATH": f"{stub.parent}:{where.environment['PATH']}"})
    return Recording([_call(file, where) for file in sorted(folder.glob("*.json"))], folder / "before")


def _call(file: Path, where: Room) -> Call:
    said = json.loads(file.read_text())
    changed = {name: value for name, value in said["environment"].items() if where.environment.get(name) != value}
    return Call(said["argv"], said["cwd"], changed, file.with_suffix(".in"), said["status"], said["bytes"])


def write_script(recording: Recording, file: Path) -> Path:
    """The same git commands as a shell script, which stops where one ends otherwise than it did."""
    lines = ["set -e", *map(_line, recording.calls)]
    file.write_text("\n".join(lines) + "\n")
    return file


def _line(call: Call) -> str:
    settings = "".join(f"{name}={shlex.quote(value)} " for name, value in call.environment.items())
    expected = f" || [ $? = {call.status} ]" if call.status else ""
    return (
        f"cd {shlex.quote(call.cwd)}\n"
        f"{settings}git {shlex.join(call.argv)} <{shlex.quote(str(call.stdin))} >/dev/null 2>&1{expected}"
    )
