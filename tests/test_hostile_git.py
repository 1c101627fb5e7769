"""Hostile Git servers against real git: a run uses little memory, ends in time with a reason, and
can be stopped by a signal.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.evil_git import (
    Answer,
    an_endless_line,
    evil_server,
    messages,
    one_line,
    pack,
    page,
    refs,
    slowly,
    tree,
)
from support.peak import peak
from support.runs import application, arguments, manifest, wait_until

pytestmark = pytest.mark.slow
LONGEST, LARGEST = 30, 100  # seconds and megabytes: far above the measured values of about 5 and 45

# The command with lower limits. Each of git's processes may need 250 MB.
LOWERED = """
import sys
from functools import partial
from task import processes
processes.Bounds = partial(processes.Bounds, messages=5_000_000, pack=20_000_000)
processes.MEMORY = 250_000_000
processes.SPARE = float(sys.argv.pop(1))
from task.__main__ import main
sys.exit(main())
"""
MESSAGES = "it sent more than 5 MB of refs and messages"
MEMORY = "git would need more than 250 MB of memory"
LINE = b"load key repository unable to write "


@contextmanager
def evil_run(
    folder: Path, url: str, spare: float = 600, deadline: int = 1
) -> "Iterator[subprocess.Popen[bytes]]":
    """A run on that server's repository. It is killed if it is still running when the block
    ends.
    """
    (folder / "tmp").mkdir()
    apps = manifest(folder, application("web", url))
    args = arguments(apps, "--results-dir", folder / "results", "--deadline", str(deadline))
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    running = subprocess.Popen(
        [sys.executable, "-c", LOWERED, str(spare), *args],
        env={**env, "TMPDIR": str(folder / "tmp")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with running:
        try:
            yield running
        finally:
            running.kill()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param(messages(), {MESSAGES}, id="messages"),
        pytest.param(an_endless_line(), {MESSAGES, MEMORY}, id="a line without end"),
        pytest.param(refs(), {MESSAGES, MEMORY}, id="refs"),
        pytest.param(page(), {MEMORY}, id="error page"),
        pytest.param(page(404), {MEMORY}, id="page not found"),
        pytest.param(pack(), {"it sent more than 20 MB of pack data"}, id="pack"),
        pytest.param(
            tree(2_000_000_000), {MEMORY}, id="two megabytes that stand for a tree of two gigabytes"
        ),
    ],
)
def test_a_server_that_sends_endless_data_is_stopped_at_a_limit(
    tmp_path: Path, answer: Answer, why: set[str]
) -> None:
    with (
        evil_server(answer) as server,
        evil_run(tmp_path, server.url) as running,
        peak(running.pid) as most,
    ):
        out, err = running.communicate(timeout=LONGEST)
    (error,) = json.loads(out)["errors"]
    assert (running.returncode, error["rule"]) == (75, "repository"), err
    assert "the Git server sent more data than allowed" in error["message"]
    assert any(one in error["message"] for one in why)
    assert "uploadpack.allowFilter" in error["hint"]
    assert most.own < LARGEST
    assert most.together < 6 * LARGEST
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_server_that_trickles_data_is_stopped_at_the_deadline(tmp_path: Path) -> None:
    """The server never stalls, because packets keep arriving."""
    with (
        evil_server(slowly(messages(1), 0.3)) as server,
        evil_run(tmp_path, server.url, spare=2) as running,
    ):
        out, err = running.communicate(timeout=LONGEST)
    (error,) = json.loads(out)["errors"]
    assert running.returncode == 75, err
    assert "the Git server took too long" in error["message"]
    assert "the limit for one repository is 3 seconds" in error["message"]
    assert "--deadline" in error["hint"]


@pytest.mark.parametrize("length", [60_000, 1_200_000])
def test_a_very_long_line_does_not_exhaust_memory(tmp_path: Path, length: int) -> None:
    answer = one_line(LINE * (length // len(LINE)))
    with (
        evil_server(answer) as server,
        evil_run(tmp_path, server.url) as running,
        peak(running.pid) as most,
    ):
        out, err = running.communicate(timeout=LONGEST)
    assert running.returncode == 75, err
    assert "the Git server did not finish the transfer" in json.loads(out)["errors"][0]["message"]
    assert len(out) < 20_000
    assert most.own < LARGEST


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(slowly(messages(), 0.05), id="messages"),
        pytest.param(slowly(refs(), 0.1), id="refs"),
        pytest.param(slowly(page(), 0.1), id="error page"),
        pytest.param(slowly(pack(), 0.2), id="pack"),
        pytest.param(slowly(messages(1), 0.3), id="trickle"),
        pytest.param(one_line(LINE * 30_000), id="one line"),
    ],
)
def test_sigterm_ends_a_run_during_a_hostile_transfer(tmp_path: Path, answer: Answer) -> None:
    with evil_server(answer) as server, evil_run(tmp_path, server.url, deadline=60) as running:
        wait_until(lambda: server.sent > 500)
        time.sleep(1)
        running.send_signal(signal.SIGTERM)
        _, err = running.communicate(timeout=LONGEST)
    assert running.returncode == 143, err  # 75 would mean that the run gave up on the server
    assert (tmp_path / "results" / "status").read_text() == "failed"
    assert list((tmp_path / "tmp").iterdir()) == []
