"""SIGTERM and SIGINT: child processes are terminated, nothing is left behind, and everything that
has landed by then is reported.

In these tests, a run waits for something that never finishes, so if the run ends, it has stopped
waiting.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections import Counter
from pathlib import Path

import pytest
from support import command, git, scale, show, variants
from support.fork_server import Running
from support.runs import (
    WEB,
    alive,
    application,
    arguments,
    hook,
    manifest,
    repository,
    start,
    target,
    wait_until,
)

MOMENTS = {signal.SIGTERM: 143, signal.SIGINT: 130}
MANY = scale(5, at_night=30)
HANGS = "echo $$ > {marker}; exec sleep 300"


class Scene:
    """A run whose push never finishes."""

    def __init__(self, folder: Path, *before: str) -> None:
        self.folder = folder
        self.marker = folder / "hanging"
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        self.repo = repository(folder, "a")
        hook(self.repo, "pre-receive", HANGS.format(marker=self.marker))
        self.apps = manifest(folder, application("a", self.repo))
        self.before = before

    def start(self) -> Running:
        args = arguments(
            self.apps,
            "--results-dir",
            self.folder / "results",
            "--report",
            self.folder / "report.json",
        )
        running = start(args, *self.before, env={"TMPDIR": str(self.scratch)})
        wait_until(self.marker.exists)
        wait_until(self.marker.read_text)
        return running

    def check(self, running: Running, code: int) -> None:
        out, err = running.communicate(timeout=100)
        assert (running.returncode, b"Traceback" in err) == (code, False), err
        assert list(self.scratch.iterdir()) == []
        assert (self.folder / "results" / "status").read_text() == "failed"
        assert b'"stopped by SIG' in out or b"stopped by SIG" in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_during_a_push_stops_the_run(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    scene = Scene(tmp_path)
    running = scene.start()
    running.send_signal(number)
    scene.check(running, code)
    assert git(scene.repo, "rev-list", "--count", "main") == "1"
    wait_until(lambda: not alive(int(scene.marker.read_text())))


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
def test_a_signal_during_the_first_fetch_stops_the_run(tmp_path: Path, trap: str) -> None:
    """That fetch runs in a separate thread."""
    scene = Scene(tmp_path)
    slow = tmp_path / "upload-pack-hook"
    slow.write_text(f"#!/bin/sh\n{trap}echo $$ > {scene.marker}; while :; do sleep 1; done\n")
    slow.chmod(0o755)
    settings = tmp_path / "gitconfig"
    settings.write_text(f'[uploadpack]\n\tpackObjectsHook = "{slow}"\n')
    args = arguments(
        scene.apps, "--results-dir", tmp_path / "results", "--report", tmp_path / "report.json"
    )
    running = start(args, env={"TMPDIR": str(scene.scratch), "GIT_CONFIG_GLOBAL": str(settings)})
    wait_until(scene.marker.exists)
    wait_until(scene.marker.read_text)
    running.send_signal(signal.SIGTERM)
    scene.check(running, 143)
    wait_until(lambda: not alive(int(scene.marker.read_text())))


def test_a_rerun_finishes_the_job(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    running = scene.start()
    running.send_signal(signal.SIGTERM)
    scene.check(running, 143)
    (scene.repo / "hooks" / "pre-receive").unlink()
    again = start(arguments(scene.apps))
    assert again.wait() == 0
    again.communicate()
    assert git(scene.repo, "rev-list", "--count", "main") == "2"


def test_a_second_signal_does_not_stop_the_cleanup(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    running = scene.start()
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGTERM):
        running.send_signal(number)
    scene.check(running, 143)


def test_two_simultaneous_signals_count_as_one(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    running = scene.start()
    running.send_signal(signal.SIGTERM)
    running.send_signal(signal.SIGINT)
    wait_until(lambda: running.poll() is not None)
    assert running.returncode in {130, 143}
    scene.check(running, running.returncode)


def test_a_hook_that_ignores_sigterm_does_not_delay_the_exit_of_the_run(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    hook(
        scene.repo,
        "pre-receive",
        f"trap '' TERM; echo $$ > {scene.marker}; while :; do sleep 1; done",
    )
    running = scene.start()
    running.send_signal(signal.SIGTERM)
    scene.check(running, 143)


def unshare() -> list[str]:
    found = shutil.which("unshare")
    words = [found or "", "--fork", "--pid", "--mount-proc", "--kill-child"]
    if not found or subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no process namespace can be made here")
    return words


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_work_for_the_first_process_of_a_container(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    scene = Scene(tmp_path, *unshare())
    running = scene.start()
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    os.kill(int(children[0]), number)
    scene.check(running, code)


def test_a_stopped_run_reports_commits_that_landed_in_other_repositories(tmp_path: Path) -> None:
    repos = [repository(tmp_path, name, name=f"{name}.git") for name in "abcd"]
    marker, scratch = tmp_path / "hanging", tmp_path / "scratch"
    scratch.mkdir()
    for repo in repos[2:]:
        hook(repo, "pre-receive", HANGS.format(marker=f"{marker}.{repo.name}"))
    apps = manifest(tmp_path, *(application(repo.stem, repo) for repo in repos))
    args = arguments(apps, "--results-dir", tmp_path / "results")
    running = start(args, env={"TMPDIR": str(scratch)})
    wait_until(lambda: len(list(tmp_path.glob("hanging.*"))) == 2)
    wait_until(lambda: len(list(scratch.iterdir())) == 2)  # `a` and `b` are cleaned up
    running.send_signal(signal.SIGTERM)
    out, err = running.communicate(timeout=100)
    assert (running.returncode, list(scratch.iterdir())) == (143, []), err
    report = json.loads(out)
    assert [one["verdict"] for one in report["decisions"]] == ["update", "update", "error", "error"]
    assert [one["commit"] for one in report["commits"]] == [
        git(repo, "rev-parse", "main") for repo in repos[:2]
    ]
    assert (tmp_path / "results" / "commit").read_text() == git(repos[0], "rev-parse", "main")
    assert show(repos[0], "main", target("a")).count("1.1.0") == 1


def test_a_signal_stops_the_wait_for_a_contended_branch(tmp_path: Path) -> None:
    repo = repository(tmp_path, "a")
    pushes = tmp_path / "pushes"
    moves = (
        "n=$(git -c user.name=x -c user.email=x commit-tree -p main -m o 'main^{tree}');"
        f" echo >> {pushes}"
    )
    hook(repo, "update", f"{moves}; env -u GIT_QUARANTINE_PATH git update-ref refs/heads/main $n")
    running = start(arguments(manifest(tmp_path, application("a", repo))))
    wait_until(lambda: pushes.exists() and pushes.read_text().count("\n") > 2)
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=100)
    assert running.returncode == 143


def test_a_signal_stops_reading_applications_from_standard_input(tmp_path: Path) -> None:
    results = tmp_path / "results"
    read, write = os.pipe()
    args = ["run", "--image", f"{WEB}:1", "--applications", "-", "--results-dir", str(results)]
    running = subprocess.Popen(
        [command(), *args], stdin=read, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    os.write(write, b"kind: List\n")
    wait_until(lambda: not unread(read))
    running.send_signal(signal.SIGTERM)
    _, err = running.communicate(timeout=100)
    os.close(write)
    os.close(read)
    assert (running.returncode, b"Traceback" in err) == (143, False)
    assert (results / "status").read_text() == "failed"


def unread(pipe: int) -> int:
    """Return the number of bytes in a pipe that have not been read yet."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def block() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, MOMENTS)


def begin(scene_folder: Path, repo: Path, *, blocked: bool) -> "subprocess.Popen[bytes]":
    """Start a run, and return it as early as possible. If `blocked`, the run starts with signals
    blocked.
    """
    apps = manifest(scene_folder, application("a", repo))
    places = (
        "--results-dir",
        str(scene_folder / "results"),
        "--report",
        str(scene_folder / "report.json"),
    )
    return subprocess.Popen(
        [command(), *arguments(apps, *places)],
        env={**os.environ, "TMPDIR": str(scene_folder / "scratch")},
        preexec_fn=block if blocked else None,  # noqa: PLW1509 - it starts no thread
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize("number", MOMENTS)
def test_a_signal_pending_before_the_handlers_are_installed_is_handled(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "scratch").mkdir()
    repo = repository(tmp_path, "a")
    running = begin(tmp_path, repo, blocked=True)
    running.send_signal(number)
    out, err = running.communicate(timeout=30)
    assert (running.returncode, b"Traceback" in err) == (MOMENTS[number], False), err
    assert json.loads(out)["errors"][0]["message"] in {"terminated", "interrupted"}
    assert (tmp_path / "results" / "status").read_text() == "failed"
    assert git(repo, "rev-list", "--count", "main") == "1"


def test_a_signal_does_not_interrupt_an_import() -> None:
    """If a callback raises an exception during an import, Python only prints it, and it is lost.
    The next check raises it instead.
    """
    during = "os.kill(os.getpid(), signal.SIGTERM)\nfor _ in range(9): pass\nprint('imported')"
    code = f"""
import os, signal
from task import shutdown
shutdown.install()
exec(compile({during!r}, "<frozen importlib._bootstrap>", "exec"))
try:
    shutdown.check()
except shutdown.StoppedError as error:
    print(error)
"""
    said = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert said == "imported\nstopped by SIGTERM\n"


@pytest.mark.parametrize("blocked", [False, True])
def test_a_signal_at_any_moment_leaves_results_and_no_temporary_files(
    tmp_path: Path, blocked: bool
) -> None:
    """A signal either stops the run, with results and without leftover files, or arrives too late,
    or arrives before the program can handle it.
    """
    codes = Counter[int]()
    whole = 0.0  # seconds that an undisturbed run takes, measured first
    for step in range(MANY + 1):
        folder = tmp_path / str(step)
        (folder / "scratch").mkdir(parents=True)
        repo = repository(folder, "a")
        began = time.monotonic()
        running = begin(folder, repo, blocked=blocked)
        if not step:
            running.communicate(timeout=30)
            assert running.returncode == 0
            whole = time.monotonic() - began
            continue
        time.sleep(whole * (step - 1) / MANY)
        number = (signal.SIGTERM, signal.SIGINT)[step % 2] if blocked else signal.SIGTERM
        running.send_signal(number)
        out, err = running.communicate(timeout=30)
        codes[running.returncode] += 1
        assert (b"Traceback" in err, list((folder / "scratch").iterdir())) == (False, []), err
        if running.returncode == -number and not blocked:
            assert not out
            continue
        assert running.returncode in {0, MOMENTS[number]}, err
        report, landed = json.loads(out), git(repo, "rev-list", "--count", "main") == "2"
        status = (folder / "results" / "status").read_text()
        assert (
            report["status"] == json.loads((folder / "report.json").read_text())["status"] == status
        )
        # A push that was stopped may have landed nevertheless. If so, the next run finds it.
        assert status in ({"updated", "failed"} if landed else {"failed"})
        assert running.returncode == MOMENTS[number] or status == "updated"
    print(dict(codes))


AT_A_MOMENT = """
import os, signal, sys

kind, what, *argv = sys.argv[1:]
sys.argv = ["image-update", *argv]
sent = []


def send():
    if not sent:
        sent.append(what)
        os.kill(os.getpid(), signal.SIGTERM)


class Finder:
    def find_spec(self, name, path=None, target=None):
        if (kind, name) == ("import", what):
            send()


def profile(frame, event, arg):
    if event == kind and f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}" == what:
        send()


sys.meta_path.insert(0, Finder())
sys.setprofile(profile)
from task.__main__ import main
main()
"""
MOMENTS_AFTER_THE_PUSH = variants(
    [
        ("return", "task.pipeline.run.run"),
        ("return", "task.ci.publish.publish"),
        ("import", "task.output.metrics"),
        ("return", "task.output.notify.send_events"),
        ("return", "task.cli.app.main"),
    ],
    at_night=[
        ("return", "task.pipeline.run.report"),
        ("return", "task.cli.update.carry_out"),
        ("import", "prometheus_client"),
        ("return", "task.cli.update.update"),
    ],
)


@pytest.mark.parametrize(("kind", "what"), MOMENTS_AFTER_THE_PUSH)
def test_a_signal_after_the_push_loses_no_results(tmp_path: Path, kind: str, what: str) -> None:
    """A landed commit is reported exactly once, and nothing afterwards reports the run as
    failed.
    """
    repo = repository(tmp_path, "a")
    apps, results, metrics = (
        manifest(tmp_path, application("a", repo)),
        tmp_path / "results",
        tmp_path / "m.prom",
    )
    told = (
        "--results-dir",
        results,
        "--metrics-file",
        metrics,
        "--cloudevent-url",
        "http://127.0.0.1:1/",
    )
    words = [sys.executable, "-c", AT_A_MOMENT, kind, what, *map(str, arguments(apps, *told))]
    done = subprocess.run(words, capture_output=True, check=False)
    assert (done.returncode in {0, 143}, b"Traceback" in done.stderr) == (True, False), done.stderr
    report = json.loads(done.stdout)
    assert (report["status"], (results / "status").read_text()) == ("updated", "updated")
    assert (
        report["commits"][0]["commit"]
        == (results / "commit").read_text()
        == git(repo, "rev-parse", "main")
    )
    assert "image_update_commits_total 1.0" in metrics.read_text()
    assert b"StoppedError" not in done.stderr


def test_a_signal_during_the_imports_does_not_wait_for_standard_input(tmp_path: Path) -> None:
    read, write = os.pipe()
    results = tmp_path / "results"
    argv = ["run", "--image", f"{WEB}:1", "--applications", "-", "--results-dir", str(results)]
    words = [sys.executable, "-c", AT_A_MOMENT, "import", "task.cli.update", *argv]
    done = subprocess.run(words, stdin=read, capture_output=True, check=False, timeout=30)
    os.close(write)
    os.close(read)
    assert (done.returncode, b"Traceback" in done.stderr) == (143, False), done.stderr
    assert (results / "status").read_text() == "failed"
