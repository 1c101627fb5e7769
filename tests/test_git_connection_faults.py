"""Connection, disk, and clock faults: the exit code and message for each fault, and a rerun that
finishes the job.
"""

import os
import re
import resource
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import command, git
from support.faults import Ground, problem
from support.git_servers import git_server
from support.real_servers import Nginx, Sshd, end, free_port, nginx
from support.runs import application, arguments, hook, manifest, wait_until
from support.wire import Wire, wire

pytestmark = [pytest.mark.servers, pytest.mark.xdist_group("servers")]
DOWN = re.compile(
    "could not be reached|closed the connection|did not (?:answer in time|finish the transfer)"
)


@pytest.fixture
def way(web: Nginx) -> Iterator[Wire]:
    with wire(web.plain) as made:
        yield made


@pytest.fixture
def ground(tmp_path: Path, repos: Path) -> Ground:
    return Ground(tmp_path, repos)


# Connection faults


@pytest.mark.parametrize("reset", [False, True])
def test_a_pack_that_is_still_truncated_after_retries_is_a_temporary_failure(
    ground: Ground, way: Wire, reset: bool
) -> None:
    ground.lengthen()
    way.cut_after, way.cuts, way.reset = 100_000, 100, reset
    code, rule, words = problem(ground.by_http(way.port))
    assert (code, rule, ground.commits()) == (75, "repository", 2)
    assert DOWN.search(words)
    assert 100 - way.cuts == 3  # the fetch is retried a few times
    way.cuts = 0
    assert (ground.by_http(way.port).code, ground.landed(), ground.commits()) == (0, True, 3)


@pytest.mark.parametrize("after", [0, 200, 100_000])
def test_a_broken_connection_is_retried(ground: Ground, way: Wire, after: int) -> None:
    ground.lengthen()
    way.cut_after, way.cuts, way.reset = after, 2, after == 0
    result = ground.by_http(way.port)
    assert (result.code, way.cuts, ground.landed(), ground.commits()) == (0, 0, True, 3), (
        result.stderr
    )
    assert "trying again" in result.stderr


def test_a_connection_is_not_retried_beyond_the_deadline(ground: Ground) -> None:
    result = ground.by_http(free_port(), "--deadline", "0.1")
    assert problem(result)[0] == 75
    assert "trying again" not in result.stderr


def test_a_503_response_is_retried(ground: Ground, repos: Path) -> None:
    with git_server(repos) as server:
        git(ground.repo, "config", "http.receivepack", "true")
        server.faults["git-upload-pack"] = 503
        url = f"{server.url}{ground.repo.name}"
        threading.Timer(0.6, server.faults.clear).start()
        result = ground.run(url)
    assert (result.code, ground.landed()) == (0, True), result.stderr


def test_a_run_survives_a_restart_of_the_server(ground: Ground, web: Nginx) -> None:
    with wire(free_port()) as way:
        threading.Timer(0.6, setattr, (way, "target", web.plain)).start()
        result = ground.by_http(way.port)
    assert (result.code, ground.landed(), ground.commits()) == (0, True, 2), result.stderr


def test_a_closed_port_is_a_temporary_failure(ground: Ground, web: Nginx) -> None:
    with wire(free_port()) as way:
        code, rule, words = problem(ground.by_http(way.port))
        assert (code, rule) == (75, "repository")
        assert DOWN.search(words)
        way.target = web.plain
        assert (ground.by_http(way.port).code, ground.landed()) == (0, True)


# Server faults


def test_a_rerun_succeeds_after_the_server_is_killed_during_a_fetch(
    ground: Ground, repos: Path, way: Wire, tmp_path: Path
) -> None:
    ground.lengthen()
    healthy, way.at = way.target, 100_000
    (tmp_path / "nginx").mkdir()
    with nginx(tmp_path / "nginx", repos) as mortal:
        way.target = mortal.plain
        way.then = mortal.kill
        code, rule, words = problem(ground.by_http(way.port))
        assert mortal.door.poll() is not None
    assert (code, rule, ground.commits()) == (75, "repository", 2)
    assert DOWN.search(words)
    way.target = healthy
    assert (ground.by_http(way.port).code, ground.landed(), ground.commits()) == (0, True, 3)


@pytest.mark.parametrize("lives", ["", "backend"])
def test_a_rerun_succeeds_after_the_server_is_killed_during_a_push(
    ground: Ground, repos: Path, way: Wire, tmp_path: Path, lives: str
) -> None:
    """Either git is killed as well, so that the push is lost, or only the web server in front of
    it, so that the push lands but the client is not informed.
    """
    healthy, marker, killed = way.target, tmp_path / "pushing", tmp_path / "killed"
    hook(
        ground.repo, "pre-receive", f"touch {marker}; while ! test -e {killed}; do sleep 0.1; done"
    )
    (tmp_path / "nginx").mkdir()
    with nginx(tmp_path / "nginx", repos) as mortal:
        way.target = mortal.plain
        running = ground.start(ground.url(way.port), *ground.options(way.port))
        wait_until(marker.exists)
        end(mortal.door) if lives else mortal.kill()
        killed.touch()
        out, err = running.communicate(timeout=30)
        wait_until(lambda: ground.commits() == (2 if lives else 1))
    assert running.returncode == 75, err
    assert b"it is unknown whether the push arrived" in out
    assert list(ground.temporary.iterdir()) == []
    way.target = healthy
    result = ground.by_http(way.port)
    assert (result.code, result.json["status"]) == (0, "unchanged" if lives else "updated")
    assert (ground.landed(), ground.commits()) == (True, 2)


@pytest.mark.parametrize("moment", ["pre-receive", "post-receive"])
@pytest.mark.parametrize("always", [False, True])
def test_a_push_is_retried_only_if_git_is_killed_on_the_server_before_the_push_lands(
    ground: Ground, ssh: Sshd, moment: str, always: bool
) -> None:
    """Git is killed before or after the branch moves. The run checks the branch, and pushes again
    only if the first push did not land.
    """
    once = "" if always else 'rm "$0"; '
    path = hook(ground.repo, moment, f"{once}kill -9 $PPID; sleep 0.2")
    key = ("--ssh-key-file", ssh.key, "--ssh-host-key", ssh.host_key)
    result = ground.run(ssh.url(ground.repo), *key)
    lost = always and moment == "pre-receive"
    assert (result.code, ground.landed(), ground.commits()) == (
        75 if lost else 0,
        not lost,
        1 if lost else 2,
    )
    if lost:
        assert DOWN.search(problem(result)[2])
        path.unlink()
        assert (ground.run(ssh.url(ground.repo), *key).code, ground.commits()) == (0, 2)


# Faults on this machine


def test_a_certificate_error_suggests_a_wrong_clock(
    ground: Ground, repos: Path, web: Nginx, tmp_path: Path
) -> None:
    """If the clock is wrong, the server's certificate does not appear to be valid yet."""
    (tmp_path / "nginx").mkdir()
    with nginx(tmp_path / "nginx", repos, tomorrow=True) as early:
        code, rule, words = problem(ground.by_https(early))
    assert (code, rule) == (4, "credentials")
    assert "certificate" in words
    assert "clock" in words
    assert (ground.by_https(web).code, ground.landed()) == (0, True)


@pytest.mark.parametrize("room", [4096, 20_000])
def test_exceeding_the_file_size_limit_is_a_temporary_failure(
    ground: Ground, web: Nginx, room: int
) -> None:
    ground.lengthen()
    args = arguments(
        manifest(ground.folder, application("web", ground.url(web.plain))),
        *ground.options(web.plain),
    )
    done = subprocess.run(
        [command(), *args],
        env={**os.environ, "TMPDIR": str(ground.temporary), "HOME": str(ground.folder)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, list(ground.temporary.iterdir())) == (75, []), done.stderr
    assert b"free some space" in done.stdout
    assert (ground.by_http(web.plain).code, ground.landed()) == (0, True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """A function that returns a disk with this many bytes of free space."""
    at = tmp_path / "small"
    at.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "x", str(at)], capture_output=True, check=False
    ).returncode:
        pytest.skip("no file system may be mounted here")

    def leave(left: int) -> Path:
        full = at / "full"
        with full.open("wb") as file:
            free = os.statvfs(at).f_bavail * os.statvfs(at).f_frsize
            file.write(b"x" * (free - left))
        return at

    try:
        yield leave
    finally:
        subprocess.run(["umount", str(at)], check=True)


@pytest.mark.parametrize("left", [0, 4096, 8192, 60_000])
def test_a_full_disk_is_a_temporary_failure(
    ground: Ground, web: Nginx, small_disk: Callable[[int], Path], left: int
) -> None:
    ground.lengthen()
    disk = small_disk(left)
    code, rule, words = problem(ground.by_http(web.plain, env={"TMPDIR": str(disk)}))
    assert (code, rule, ground.commits()) == (75, "repository", 2)
    assert "free some space" in words
    assert [path.name for path in disk.iterdir()] == ["full"]
    (disk / "full").unlink()
    assert (ground.by_http(web.plain, env={"TMPDIR": str(disk)}).code, ground.landed()) == (0, True)
