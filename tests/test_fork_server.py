"""A fork of the fork server is indistinguishable from the process that it replaces."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from coverage import CoverageData
from support import Result, command, fork_server, git, image_update
from support.fork_server import Forked
from support.runs import application, manifest, repository, wait_until

APPS = ["--applications", "applications.json", "--allow-protocol", "file"]
PLAN = ["plan", "--image", "ghcr.io/acme/web:1.1.0", *APPS]
# Prints what a program started by the command sees: its environment, folder, files, signals, and
# limits.
SPY = """{ env | sort | grep -v GIT_DIR; pwd; umask; ulimit -a; date +%Z; grep ^SigIgn /proc/$PPID/status
ls -l /proc/$PPID/fd | awk '{print $9, substr($11, 1, 5)}'; cut -d')' -f2 /proc/$PPID/stat | cut -d' ' -f4-6
} >"$HOME/seen" 2>&1; exit 1"""


def fork(args: list[str], env: dict[str, str], cwd: Path, stdin: bytes) -> Result:
    running = fork_server.start([command(), *args], env={**os.environ, **env}, cwd=cwd)
    assert isinstance(running, Forked)
    out, err = running.communicate(stdin, timeout=60)
    return Result(running.wait(), out.decode(), err.decode())


def process(args: list[str], env: dict[str, str], cwd: Path, stdin: bytes) -> Result:
    environ = {**os.environ, **env}
    done = subprocess.run(
        [command(), *args], env=environ, cwd=cwd, input=stdin, capture_output=True, check=False
    )
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    manifest(tmp_path, application("a", repository(tmp_path, "a")))
    return tmp_path


def program(folder: Path, script: str) -> dict[str, str]:
    """Create a `git` that runs this script, and return the environment variables that make the
    command find it.
    """
    path = folder / "bin" / "git"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {"PATH": f"{path.parent}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("code", "args", "env", "stdin"),
    [
        (0, ["--version"], {}, b""),
        (2, ["runn"], {}, b"nobody reads this" * 10_000),
        (0, ["plan", "--help"], {"COLUMNS": "50"}, b""),
        (0, PLAN, {"GITHUB_ACTIONS": "true", "IMAGE_UPDATE_STRANGE": "1"}, b""),
        (0, PLAN, {"LC_ALL": "C", "PYTHONWARNINGS": "error"}, b""),
        (2, ["plan", "--image", "a\udcff:1", *APPS], {}, b""),
        (
            0,
            ["lint", "--applications", "-"],
            {},
            b'{"kind": "List", "apiVersion": "v1", "items": []}',
        ),
    ],
)
def test_a_fork_prints_the_same_output_as_a_process(
    folder: Path, code: int, args: list[str], env: dict[str, str], stdin: bytes
) -> None:
    real = process(args, env, folder, stdin)
    assert real.code == code, real.stderr
    assert fork(args, env, folder, stdin) == real


def test_child_programs_see_the_same_environment_in_a_fork_and_a_process(folder: Path) -> None:
    env = {**program(folder, SPY), "HOME": str(folder), "TZ": "Asia/Tokyo", "LC_PAPER": "here"}
    seen = []
    for way in (process, fork):
        way(PLAN, env, folder, b"")
        text = (folder / "seen").read_text()
        # Which pipes and files are open at this moment depends on the timing of sh, and of the main
        # thread, which imports modules while the first fetch begins. No socket may remain open.
        seen.append(re.sub(r"(?m)^(?:[3-9]|\d\d+) (?!socke).*\n", "", text))
        (folder / "seen").unlink()
    assert "LC_PAPER=here\n" in seen[0]
    assert "\nJST\n" in seen[0]
    assert seen[0] == seen[1]


def test_a_run_in_a_fork_lands_its_commit(folder: Path) -> None:
    assert fork(["run", *PLAN[1:]], {}, folder, b"").code == 0
    assert git(folder / "repo.git", "rev-list", "--count", "main") == "2"


def test_a_killed_fork_reports_the_same_exit_code_as_a_killed_process(folder: Path) -> None:
    env = program(folder, 'kill -9 "$PPID"')
    assert fork(PLAN, env, folder, b"").code == process(PLAN, env, folder, b"").code == -9


def test_a_fork_is_stopped_at_its_timeout(folder: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        image_update(*PLAN, env=program(folder, "exec sleep 600"), cwd=folder, timeout=1)
    assert image_update(*PLAN, cwd=folder).code == 0  # the server still accepts the next call


def test_several_forks_run_at_once_and_react_to_signals(folder: Path) -> None:
    environ = {**os.environ, **program(folder, f"echo >>{folder}/started; exec sleep 30")}
    several = [fork_server.start([command(), *PLAN], env=environ, cwd=folder) for _ in range(3)]
    wait_until(
        lambda: (folder / "started").exists() and (folder / "started").read_text() == "\n" * 3
    )
    assert [one.poll() for one in several] == [None] * 3
    several[0].send_signal(signal.SIGTERM)
    several[1].send_signal(signal.SIGINT)
    several[2].kill()
    for one in several:
        one.communicate(timeout=30)
    assert [one.poll() for one in several] == [143, 130, -9]


def test_a_fork_measures_its_coverage_on_request(tmp_path: Path) -> None:
    (tmp_path / "rc").write_text(
        f"[run]\nbranch = true\nsource = task\ndata_file = {tmp_path}/measured\n"
    )
    assert (
        fork(["--version"], {"COVERAGE_PROCESS_START": f"{tmp_path}/rc"}, tmp_path, b"").code == 0
    )
    data = CoverageData(str(tmp_path / "measured"))
    data.read()
    assert any(path.endswith("/task/cli/app.py") for path in data.measured_files())


def test_other_commands_run_as_normal_processes(tmp_path: Path) -> None:
    running = fork_server.start(
        ["sh", "-c", "cat"], env={**os.environ, "LD_LIBRARY_PATH": "x"}, cwd=tmp_path
    )
    assert running.communicate(b"a process", timeout=60)[0] == b"a process"
