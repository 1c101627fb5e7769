"""Many writers on one branch: every change lands, and nothing is lost."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import ROOT, bare_repo, git, show

from task.errors import Outpaced
from task.git.command import Git
from task.git.repository.bare import BareRepository
from task.model import Changeset, File, Person, Place

WRITERS = 5


def write(repo: str, path: str) -> int:
    """Read, edit, and land like a run, and retry if outpaced. Return the number of attempts."""
    with BareRepository(Git(os.environ, protocols=frozenset({"file"})), repo) as store:
        for attempt in range(1, 200):
            snapshot = store.snapshot("main", [Place(path), Place("shared.yaml")])
            files = {
                path: File("new\n"),
                "shared.yaml": File(snapshot.files["shared.yaml"].text + f"- {path}\n"),
            }
            destination = (repo, "main", "main")
            try:
                store.land(
                    Changeset(
                        *destination,
                        snapshot.tip,
                        files,
                        f"Write {path}",
                        Person("T", "t@example.com"),
                    )
                )
            except Outpaced:
                time.sleep(random.uniform(0, 0.05 * attempt))  # noqa: S311
            else:
                return attempt
    raise AssertionError("never landed")


def start(repo: Path, n: int) -> "subprocess.Popen[bytes]":
    code = (
        f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'tests')!r}, {str(Path(__file__).parent)!r}];"
        f"from test_bare_store_race import write; write({str(repo)!r}, 'apps/app{n}/values.yaml')"
    )
    return subprocess.Popen([sys.executable, "-c", code])


@pytest.mark.parametrize("fast", [True, False], ids=["filtered", "whole"])
def test_concurrent_writers_all_land_in_a_linear_history(tmp_path: Path, fast: bool) -> None:
    repo = bare_repo(
        tmp_path,
        {"shared.yaml": "", **{f"apps/app{n}/values.yaml": "old\n" for n in range(WRITERS)}},
    )
    if not fast:
        git(repo, "config", "uploadpackfilter.allow", "false")
    running = [start(repo, n) for n in range(WRITERS)]
    assert [one.wait() for one in running] == [0] * WRITERS
    log = git(repo, "log", "--format=%P %s", "main").splitlines()
    assert len(log) == WRITERS + 1
    assert all(len(line.split()[0]) == 40 for line in log[:-1])  # each commit has one parent
    lines = show(repo, "main", "shared.yaml").splitlines()
    assert sorted(lines) == sorted(f"- apps/app{n}/values.yaml" for n in range(WRITERS))
    assert git(repo, "fsck", "--strict", "--no-dangling") == ""
