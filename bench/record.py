"""Records the git commands that a run executes, and their disk usage."""

import json
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from bench.process import HERE, Room, run


class Call(NamedTuple):
    """A git command that was run."""

    argv: Sequence[str]
    bytes: int  # bytes on disk under TMPDIR after the command has finished


def record(where: Room, argv: Sequence[str]) -> list[Call]:
    """Run a command with a wrapper for git on PATH that records every call. Return the calls."""
    folder = Path(mkdtemp(dir=where.folder, prefix="record-"))
    stub = folder / "bin" / "git"
    stub.parent.mkdir()
    variables = {
        "RECORD_GIT": folder,
        "RECORD_TMP": where.temporary,
        "REAL_GIT": shutil.which("git"),
    }
    settings = " ".join(f"{name}={shlex.quote(str(value))}" for name, value in variables.items())
    stub.write_text(f'#!/bin/sh\n{settings} exec {sys.executable} {HERE}/recording_git.py "$@"\n')
    stub.chmod(0o755)
    run(where, argv, {"PATH": f"{stub.parent}:{where.environment['PATH']}"})
    return [Call(*json.loads(file.read_text())) for file in folder.glob("*.json")]
