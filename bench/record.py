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
    # In the order of their last input: a conversation asks about what later commands fetch.
    calls = sorted(folder.glob("*.json"), key=lambda file: file.with_suffix(".in").stat().st_mtime_ns)
    return Recording([_call(file, where) for file in calls], folder / "before")


def _call(file: Path, where: Room) -> Call:
    said = json.loads(file.read_text())
    changed = {name: value for name, value in said["environment"].items() if where.environment.get(name) != value}
    return Call(said["argv"], said["cwd"], changed, file.with_suffix(".in"), said["status"], said["bytes"])


def write_script(recording: Recording, commit: str, where: Room, file: Path) -> Path:
    """The same git commands as a shell script, which stops where one ends otherwise than it did.

    As the run does, it makes the throw-away repository that they work in (by a copy: what lay there before the first
    of them), and removes it. `commit` is what the run pushed. The script's own commit has another time and so another
    id, which it takes from what `fast-import` prints.
    """
    folders = [shlex.quote(str(where.temporary / made.name)) for made in recording.before.iterdir()]
    begin = ["set -e", f"cp -R {shlex.quote(str(recording.before))}/. {shlex.quote(str(where.temporary))}"]
    lines = [*begin, *(_line(call, commit) for call in recording.calls), f"rm -rf {' '.join(folders)}"]
    file.write_text("\n".join(lines) + "\n")
    return file


def _line(call: Call, commit: str) -> str:
    settings = "".join(f"{name}={shlex.quote(value)} " for name, value in call.environment.items())
    words = shlex.join(call.argv).replace(commit, '"$COMMIT"')
    command = f"{settings}git {words} <{shlex.quote(str(call.stdin))}"
    if "fast-import" in call.argv:
        return f"cd {shlex.quote(call.cwd)}\nCOMMIT=$({command} 2>/dev/null)\nCOMMIT=${{COMMIT%%[!0-9a-f]*}}"
    expected = f" || [ $? = {call.status} ]" if call.status else ""
    return f"cd {shlex.quote(call.cwd)}\n{command} >/dev/null 2>&1{expected}"
