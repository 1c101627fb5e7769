"""Runs with outputs that cannot be written: after a push, a run still reports what landed, as far
as it can.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest
from support import command, fork_server, git, image_update, show
from support.runs import WEB, application, arguments, manifest, repository, target

Broken = Callable[[], AbstractContextManager[BinaryIO]]
WARNED = ("--git-cache-dir", "/proc/nothing")  # something to log before the push


class Scene:
    """One Application, and the outputs that report its update."""

    def __init__(self, folder: Path) -> None:
        self.repo = repository(folder, "web")
        self.apps = manifest(folder, application("web", f"file://{self.repo}"))
        self.results, self.report = folder / "results", folder / "report.json"

    def arguments(self, *more: str | Path) -> list[str]:
        return arguments(self.apps, "--results-dir", self.results, "--report", self.report, *more)

    def result(self, name: str) -> str:
        return (self.results / name).read_text()

    def tells_what_landed(self) -> None:
        assert "newTag: 1.1.0" in show(self.repo, "main", target("web"))
        told = [self.result(name) for name in ("status", "updated", "commit", "applications")]
        assert told == ["updated", "true", git(self.repo, "rev-parse", "main"), '["argocd/web"]']


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@contextmanager
def full() -> Iterator[BinaryIO]:
    """Yield a file on a full disk."""
    with open("/dev/full", "wb") as file:
        yield file


@contextmanager
def gone() -> Iterator[BinaryIO]:
    """Yield a pipe whose reader is gone."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as file:
        yield file


def call(
    args: list[str], stdout: BinaryIO | int, stderr: BinaryIO | int = subprocess.PIPE
) -> tuple[int, str]:
    files = [file if isinstance(file, int) else file.fileno() for file in (stdout, stderr)]
    running = fork_server.start([command(), *args], env=os.environ, files=(subprocess.PIPE, *files))
    _, said = running.communicate(timeout=60)
    return running.wait(), said.decode()


@pytest.mark.measured
@pytest.mark.parametrize(
    ("broken", "why"), [(full, "No space left on device"), (gone, "Broken pipe")]
)
def test_an_unwritable_stdout_is_an_error(scene: Scene, broken: Broken, why: str) -> None:
    with broken() as stdout:
        code, said = call(scene.arguments(), stdout)
    assert code == 2
    assert said.splitlines()[-2] == f"error: cannot write to stdout: {why}"
    assert "Traceback" not in said
    assert json.loads(scene.report.read_text())["status"] == "updated"
    scene.tells_what_landed()


@pytest.mark.parametrize(
    ("more", "env", "named"),
    [
        (["--report", "/dev/full"], {}, "--report"),
        (["--dotenv", "/dev/full"], {}, "--dotenv"),
        ([], {"GITHUB_OUTPUT": "/dev/full"}, "GITHUB_OUTPUT"),
        ([], {"GITHUB_STEP_SUMMARY": "/dev/full"}, "GITHUB_STEP_SUMMARY"),
    ],
)
def test_an_unwritable_output_file_is_an_error(
    scene: Scene, more: list[str], env: Mapping[str, str], named: str
) -> None:
    done = image_update(*scene.arguments(*more), env=env)
    assert (done.code, done.json["status"]) == (2, "updated")
    assert f"error: {named}: cannot write '/dev/full': No space left on device" in done.stderr
    scene.tells_what_landed()


def test_an_unwritable_result_does_not_affect_the_other_results(scene: Scene) -> None:
    (scene.results / "branch").mkdir(parents=True)
    done = image_update(*scene.arguments())
    assert (done.code, done.stderr.count("error: ")) == (2, 1)
    assert "--results-dir: cannot write" in done.stderr
    scene.tells_what_landed()


@pytest.mark.parametrize("broken", [full, gone])
def test_an_unwritable_log_does_not_stop_the_run(scene: Scene, broken: Broken) -> None:
    with broken() as stderr:
        code, _ = call(scene.arguments(*WARNED), subprocess.PIPE, stderr)
    assert code == 0
    scene.tells_what_landed()


@pytest.mark.parametrize("streams", ["<&-", "<&- >&- 2>&-"])
def test_a_run_succeeds_with_closed_streams(scene: Scene, streams: str) -> None:
    closed = ["sh", "-c", f'exec "$0" "$@" {streams}', command(), *scene.arguments(*WARNED)]
    assert subprocess.run(closed, check=False).returncode == 0
    scene.tells_what_landed()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_no_pipe_reuses_the_file_descriptor_of_a_closed_stream(number: int) -> None:
    begin = "import os, sys; from task.__main__ import main; sys.argv[1:] = ['--version']"
    code = f"{begin}\ntry: main()\nfinally: os.fstat({number})"
    ran = subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" {number}>&-', sys.executable, code], check=False
    )
    assert ran.returncode == 0


def test_a_closed_stdin_is_treated_as_empty() -> None:
    closed = ["sh", "-c", 'exec "$0" "$@" <&-', command(), "status", "--applications", "-"]
    assert subprocess.run(closed, check=False).returncode == 0


@pytest.mark.parametrize(("broken", "code"), [(full, 2), (gone, 0)])
@pytest.mark.parametrize("what", ["plan", "lint", "report"])
def test_plan_lint_and_report_ignore_a_broken_pipe_but_not_a_full_disk(
    tmp_path: Path, what: str, broken: Broken, code: int
) -> None:
    apps = manifest(tmp_path, application("web", f"file://{repository(tmp_path, 'web')}"))
    given = ["--applications", str(apps), "--allow-protocol", "file"]
    args = {
        "plan": ["--image", f"{WEB}:1.1.0", *given],
        "lint": given,
        "report": [str(tmp_path / "report.json")],
    }
    if what == "report":
        image_update("plan", *args["plan"], "--report", tmp_path / "report.json")
    with broken() as stdout:
        found, said = call([what, *args[what]], stdout)
    assert (found, "Traceback" in said) == (code, False), said
    assert bool(said) == (code == 2)


def test_the_updated_result_is_true_only_if_an_image_was_written(scene: Scene) -> None:
    """Images that would be written, or that are only remembered, do not count."""
    image_update("plan", *scene.arguments()[1:])
    assert (scene.result("status"), scene.result("updated"), scene.result("commit")) == (
        "updated",
        "false",
        "",
    )
    given = (
        "--applications",
        scene.apps,
        "--allow-protocol",
        "file",
        "--results-dir",
        scene.results,
    )
    image_update("hold", "web", "--reason", "load test", *given)
    assert (scene.result("updated"), len(scene.result("commit"))) == ("false", 40)
    image_update(*scene.arguments())
    told = [scene.result(name) for name in ("updated", "commit", "applications-count")]
    assert told == ["false", git(scene.repo, "rev-parse", "main"), "0"]
    image_update("release", "web", *given)
    scene.tells_what_landed()


@pytest.mark.measured
@pytest.mark.parametrize("option", ["--report", "--results-dir", "--dotenv"])
def test_an_unwritable_output_path_is_reported_before_the_run_starts(
    tmp_path: Path, option: str
) -> None:
    repo, blocker = repository(tmp_path, "a"), tmp_path / "file"
    blocker.write_text("")
    result = image_update(
        *arguments(manifest(tmp_path, application("a", repo)), option, blocker / "below")
    )
    assert (result.code, git(repo, "rev-list", "--count", "main")) == (2, "1")
    assert option in result.stderr
