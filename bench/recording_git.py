"""Stands in for git on PATH: runs the real one, and notes the call and the bytes that lie in RECORD_TMP then.

Each call becomes a file NUMBER.json in the folder RECORD_GIT, its standard input NUMBER.in.
"""

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import IO

KEPT = ("GIT_", "SSH_", "LC_", "LANG", "HOME", "XDG_")


def main() -> int:
    """One call of git; its exit code."""
    folder = Path(os.environ["RECORD_GIT"])
    if os.environ.get("GIT_DIR") and not (folder / "before").exists():  # what the command itself has made by now
        shutil.copytree(os.environ["RECORD_TMP"], folder / "before", symlinks=True)
    number = _number(folder)
    note = folder / f"{number}.json"
    _write(note, status=0)  # now, and again at the end: a conversation may be broken off
    with (folder / f"{number}.in").open("wb") as copy:
        git = subprocess.Popen([os.environ["REAL_GIT"], *sys.argv[1:]], stdin=subprocess.PIPE)
        Thread(target=_pass_on, args=(git, copy), daemon=True).start()
        status = git.wait()
    _write(note, status)
    return status


def _write(note: Path, status: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name.startswith(KEPT)}
    taken = _on_disk(os.environ["RECORD_TMP"])
    call = {"argv": sys.argv[1:], "cwd": os.getcwd(), "environment": environment, "status": status, "bytes": taken}
    note.with_suffix(".new").write_text(json.dumps(call))
    note.with_suffix(".new").rename(note)


def _pass_on(git: "subprocess.Popen[bytes]", copy: IO[bytes]) -> None:
    """Hand on what comes in at once (git may be in a conversation), for as long as git listens."""
    assert git.stdin
    with suppress(BrokenPipeError, ValueError):
        while chunk := os.read(0, 1 << 16):
            copy.write(chunk)
            copy.flush()
            git.stdin.write(chunk)
            git.stdin.flush()
        git.stdin.close()


def _number(folder: Path) -> str:
    """The next free number; taking it makes the file, so that two calls at once never share one."""
    for number in range(10_000):
        try:
            (folder / f"{number:04}.in").touch(exist_ok=False)
        except FileExistsError:
            continue
        return f"{number:04}"
    raise RuntimeError(folder)


def _on_disk(folder: str) -> int:
    found = subprocess.run(["du", "-s", "-B1", folder], capture_output=True, text=True, check=False).stdout
    return int(found.split()[0])


if __name__ == "__main__":
    sys.exit(main())
