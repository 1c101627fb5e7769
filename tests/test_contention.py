"""Many runs and people push to one branch: every event either lands exactly once or is accounted
for.
"""

import json
import os
import random
import shutil
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support import commit, git, scale, show
from support.fork_server import Running
from support.runs import (
    KUSTOMIZATION,
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

CROWD = scale(6, at_night=15)
ROUNDS = scale(6, at_night=200)


def ends(running: list[Running]) -> list[Any]:
    """Return the reports of these runs, all of which must succeed."""
    outs = [one.communicate(timeout=300) for one in running]
    assert [one.returncode for one in running] == [0] * len(running), [
        err for _, err in outs if err
    ][:3]
    return [json.loads(out) for out, _ in outs]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_concurrent_runs_on_one_branch_all_land(tmp_path: Path) -> None:
    names = [f"app{number}" for number in range(CROWD)]
    repo = repository(tmp_path, *names)
    apps = [manifest(tmp_path, application(name, repo), name=f"{name}.json") for name in names]
    reports = ends([start(arguments(path)) for path in apps])
    assert {one["status"] for one in reports} == {"updated"}
    assert git(repo, "rev-list", "--count", "main") == str(CROWD + 1)
    assert git(repo, "rev-list", "--min-parents=2", "main") == ""
    assert all("1.1.0" in show(repo, "main", target(name)) for name in names)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "one push each"])
def test_concurrent_runs_on_head_branches_of_one_base_all_land(
    tmp_path: Path, atomic: bool
) -> None:
    """Each run has its own head branch, but all waiting lists are on a single memory branch."""
    names = [f"app{number}" for number in range(CROWD)]
    repo = repository(tmp_path, *names)
    git(repo, "config", "receive.advertiseAtomic", str(atomic).lower())
    apps = [
        manifest(
            tmp_path, application(name, repo, git_branch=f"main:bump-{name}"), name=f"{name}.json"
        )
        for name in names
    ]
    reports = ends([start(arguments(path)) for path in apps])
    assert {one["status"] for one in reports} == {"updated"}
    assert all("1.1.0" in show(repo, f"bump-{name}", target(name)) for name in names)
    memory = git(repo, "for-each-ref", "--format=%(refname)", "refs/heads/image-update-memory/")
    lists = git(repo, "ls-tree", "-r", "--name-only", memory).splitlines()
    assert lists == sorted(f".image-update/waiting/bump-{name}" for name in names)
    assert git(repo, "rev-list", "--count", "main") == "1"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_newest_version_remains_after_concurrent_runs_for_one_image(tmp_path: Path) -> None:
    repo = repository(tmp_path, "a")
    apps = manifest(tmp_path, application("a", repo))
    tags = [f"1.{number}.0" for number in range(1, CROWD + 1)]
    random.shuffle(tags)
    reports = ends([start(arguments(apps, image=f"{WEB}:{tag}")) for tag in tags])
    verdicts = Counter(one["decisions"][0]["verdict"] for one in reports)
    print(dict(verdicts))
    assert set(verdicts) <= {"update", "unchanged", "refuse"}
    assert f"newTag: 1.{CROWD}.0" in show(repo, "main", target("a"))
    assert git(repo, "rev-list", "--count", "main") == str(1 + verdicts["update"])
    assert git(repo, "rev-list", "--min-parents=2", "main") == ""


def emptied(folder: Path) -> bool:
    """Empty the folder. Return whether it is now empty and no longer used by any process."""
    for left in list(folder.iterdir()):
        shutil.rmtree(left, ignore_errors=True)
    return not at_work(folder) and not list(folder.iterdir())


def at_work(folder: Path) -> list[str]:
    """Return the processes that have this folder in their environment. These may include a git that
    recreates missing folders.
    """
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if str(folder).encode() in Path("/proc", process, "environ").read_bytes():
                found.append(process)
    return found


@pytest.mark.slow
def test_concurrent_runs_for_the_same_event_make_one_commit(tmp_path: Path) -> None:
    repo = repository(tmp_path, "a")
    apps = manifest(tmp_path, application("a", repo))
    reports = ends([start(arguments(apps)) for _ in range(10)])
    assert Counter(one["status"] for one in reports) == {"updated": 1, "unchanged": 9}
    assert git(repo, "rev-list", "--count", "main") == "2"


def test_a_run_reports_unchanged_without_another_push_if_the_new_tip_has_the_version(
    tmp_path: Path,
) -> None:
    repo = repository(tmp_path, "a")
    same = commit_like(repo, {target("a"): KUSTOMIZATION.replace("1.0.0", "1.1.0")})
    pushes = tmp_path / "pushes"
    move = f"env -u GIT_QUARANTINE_PATH git update-ref refs/heads/main {same}"
    hook(repo, "update", f"echo >> {pushes}; {move}")
    running = start(arguments(manifest(tmp_path, application("a", repo))))
    (report,) = ends([running])
    assert (report["status"], report["commits"]) == ("unchanged", [])
    assert pushes.read_text().count("\n") == 1
    assert git(repo, "rev-parse", "main") == same


def commit_like(repo: Path, files: dict[str, str]) -> str:
    """Create a commit on top of main, but on a different branch."""
    git(repo, "update-ref", "refs/heads/aside", "main")
    return commit(repo, dict(files), "aside", "Somebody was faster")


@pytest.mark.parametrize("whole", [False, True])
def test_a_run_decides_again_on_the_new_tip_after_losing_a_race(
    tmp_path: Path, whole: bool
) -> None:
    """Somebody else has pushed a newer version in the meantime, so ours is refused, and theirs is
    not overwritten.
    """
    repo = repository(tmp_path, "a")
    if whole:
        git(repo, "config", "uploadpackfilter.allow", "false")
    newer = commit_like(repo, {target("a"): KUSTOMIZATION.replace("1.0.0", "2.0.0")})
    hook(
        repo,
        "update",
        f'rm "$0"; env -u GIT_QUARANTINE_PATH git update-ref refs/heads/main {newer}',
    )
    (report,) = ends([start(arguments(manifest(tmp_path, application("a", repo))))])
    assert report["decisions"][0]["rule"] == "not-newer"
    assert git(repo, "rev-parse", "main") == newer


@pytest.mark.slow
@pytest.mark.parametrize("hang", ["pre-receive", "post-receive"])
def test_the_next_run_recovers_from_a_client_killed_during_a_push(
    tmp_path: Path, hang: str
) -> None:
    """After the next run, there is exactly one commit for the update, whether the client was killed
    before or after the branch moved.
    """
    repo = repository(tmp_path, "a")
    marker = tmp_path / "hanging"
    hook(repo, hang, f"echo $PPID > {marker}; sleep 2")
    apps = manifest(tmp_path, application("a", repo))
    running = start(arguments(apps), env={"TMPDIR": str(tmp_path)})
    wait_until(lambda: marker.exists() and marker.read_text())
    running.kill()
    running.communicate()
    (repo / "hooks" / hang).unlink()
    (report,) = ends([start(arguments(apps))])
    wait_until(lambda: not alive(int(marker.read_text())))
    assert git(repo, "rev-list", "--count", "main") == "2"
    assert report["status"] == "unchanged" or hang == "pre-receive"
    assert "1.1.0" in show(repo, "main", target("a"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_repository_survives_runs_killed_at_random_moments(tmp_path: Path) -> None:
    repo = repository(tmp_path, "a", "b")
    apps = manifest(tmp_path, *(application(name, repo) for name in "ab"))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    codes = Counter[int]()
    for number in range(1, ROUNDS + 1):
        image = f"{WEB}:1.{number}.0"
        hard = number % 2 == 0
        running = start(arguments(apps, image=image), env={"TMPDIR": str(scratch)})
        time.sleep(random.uniform(0.0, 0.5))  # noqa: S311
        running.send_signal(signal.SIGKILL if hard else signal.SIGTERM)
        _, err = running.communicate(timeout=30)
        codes[running.wait()] += 1
        assert running.returncode in {0, 143, -signal.SIGTERM, -signal.SIGKILL}, err
        assert b"Traceback" not in err
        if hard:
            # Remove what the run has left behind. Its git process may still be writing.
            wait_until(lambda: emptied(scratch))
        assert list(scratch.rglob("*")) == [], (codes, running.returncode, err)
        (report,) = ends([start(arguments(apps, image=image), env={"TMPDIR": str(scratch)})])
        assert report["status"] in {"updated", "unchanged"}
        assert git(repo, "rev-list", "--count", "main") == str(1 + number), codes
        assert git(repo, "rev-list", "--min-parents=2", "main") == ""
        assert all(f"newTag: 1.{number}.0" in show(repo, "main", target(name)) for name in "ab")
    print(dict(codes))
    assert git(repo, "fsck", "--strict", "--no-dangling") == ""


def test_a_failing_repository_does_not_affect_the_others(tmp_path: Path) -> None:
    repos = [repository(tmp_path, name, name=f"{name}.git") for name in "abcdefghij"]
    hook(repos[3], "pre-receive", "echo 'not on Fridays' >&2; exit 1")
    apps = [application(repo.stem, repo) for repo in repos]
    apps.append(application("z", tmp_path / "nowhere.git"))
    for _ in range(2):
        running = start(arguments(manifest(tmp_path, *reversed(apps))))
        out, err = running.communicate()
        report = json.loads(out)
        assert running.returncode == 4, err
        assert [one["application"] for one in report["decisions"]] == [
            f"argocd/{name}" for name in "abcdefghijz"
        ]
        assert [one["application"] for one in report["errors"]] == ["argocd/d", "argocd/z"]
    assert [git(repo, "rev-list", "--count", "main") for repo in repos] == ["2"] * 3 + ["1"] + [
        "2"
    ] * 6


def test_several_repositories_are_pushed_in_parallel(tmp_path: Path) -> None:
    repos = [repository(tmp_path, name, name=f"{name}.git") for name in "abcdef"]
    # each push finishes only after another one has started
    pushes = tmp_path / "pushes"
    pushes.mkdir()
    meeting = f"""\
touch {pushes}/$$
for _ in $(seq 300); do
  test $(ls {pushes} | wc -l) -gt 1 && exit 0
  sleep 0.1
done
exit 1"""
    for repo in repos:
        hook(repo, "pre-receive", meeting)
    apps = manifest(tmp_path, *(application(repo.stem, repo) for repo in repos))
    (report,) = ends([start(arguments(apps))])
    assert [one["repository"] for one in report["commits"]] == [str(repo) for repo in repos]
