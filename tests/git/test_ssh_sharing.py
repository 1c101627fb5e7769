"""One SSH connection for all git commands in a run, tested with a real server."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import git
from support.real_servers import Sshd, sshd
from support.runs import repository, target, wait_until

from task.git.command import Git
from task.git.repository.bare import BareRepository
from task.git.ssh import SshSharing
from task.model import Changeset, File, LandedCommit, Person, Place


def test_each_server_and_ssh_command_has_a_separate_connection() -> None:
    sharing = SshSharing("/tmp", os.environ)
    told = [
        sharing.options(*one)
        for one in (("ssh", "a"), ("ssh", "b"), ("ssh -i k", "a"), ("ssh", "a"))
    ]
    assert told[0] == told[3]
    assert len(set(told)) == 3
    folder = Path(told[0].rpartition("=")[2]).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    sharing.close()
    assert not folder.exists()


def test_a_socket_has_a_short_path(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 80)
    long.mkdir()
    sharing = SshSharing(str(long), os.environ)
    assert len(sharing.options("ssh", "a").rpartition("=")[2]) < 70
    sharing.close()


def test_no_connection_is_shared_if_the_path_needs_quoting() -> None:
    odd = Path("/tmp") / f"a b{os.getpid()}"
    odd.mkdir()
    sharing = SshSharing(str(odd), os.environ)
    assert sharing.options("ssh", "a") == ""
    sharing.close()
    odd.rmdir()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    folder = tmp_path / "sshd"
    folder.mkdir()
    with sshd(folder) as running:
        yield running


def door(server: Sshd, folder: Path) -> Git:
    known = folder / "known_hosts"
    known.write_text(server.host_key + "\n")
    scratch = folder / "t"
    scratch.mkdir(exist_ok=True)
    git_door = Git({**os.environ, "TMPDIR": str(scratch)})
    command = f"ssh -o BatchMode=yes -o UserKnownHostsFile={known} -i {server.key} -o IdentitiesOnly=yes -F none"
    git_door._access.ssh = lambda: (command, True)  # type: ignore[method-assign]
    return git_door


def land(git_door: Git, url: str, text: str) -> LandedCommit:
    with BareRepository(git_door, url) as store:
        snapshot = store.snapshot("main", [Place(target("a"))])
        destination = (snapshot.repo, "main", "main")
        files = {target("a"): File(text)}
        return store.land(
            Changeset(*destination, snapshot.tip, files, "x", Person("T", "t@example.com"))
        )


def masters(folder: Path) -> str:
    return subprocess.run(
        ["pgrep", "-f", f"ssh.*{folder}"], capture_output=True, text=True, check=False
    ).stdout


@pytest.mark.servers
def test_all_commands_of_a_run_share_one_connection(server: Sshd, tmp_path: Path) -> None:
    repo = repository(tmp_path, "a")
    git_door = door(server, tmp_path)
    landing = land(git_door, server.url(repo), "1\n")
    assert landing.commit == git(repo, "rev-parse", "main")
    land(git_door, server.url(repo), "2\n")
    assert server.log.read_text().count("Accepted publickey") == 1
    git_door.close()
    wait_until(lambda: not masters(tmp_path / "t"))
    assert list((tmp_path / "t").iterdir()) == []


@pytest.mark.servers
def test_a_dead_shared_connection_is_replaced(server: Sshd, tmp_path: Path) -> None:
    repo = repository(tmp_path, "a")
    git_door = door(server, tmp_path)
    land(git_door, server.url(repo), "1\n")
    git_door._sharing.end()
    land(git_door, server.url(repo), "2\n")
    assert server.log.read_text().count("Accepted publickey") == 2
    git_door.close()
    assert git(repo, "rev-list", "--count", "main") == "3"
