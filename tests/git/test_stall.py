"""A stalled server is recognized by a lack of incoming bytes, not by a transfer's duration."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import git
from support.runs import application, arguments, hook, manifest, repository, start

from task.errors import UnreachableError
from task.git.command import Git
from task.git.errors import GitEnded
from task.git.repository.bare import BareRepository
from task.processes import bytes_moved


@contextmanager
def silent_server(said: bytes = b"") -> Iterator[int]:
    """Yield the port of a server that accepts connections, sends this text, and falls silent."""
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                held.append(connection)
                connection.sendall(said)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for one in held:
                one.close()


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 200 OK\r\nContent-Type: x\r\nContent-Length: 100\r\n\r\n0"]
)
def test_a_stalled_http_server_ends_the_run(tmp_path: Path, said: bytes) -> None:
    with silent_server(said) as port:
        apps = manifest(tmp_path, application("a", f"http://127.0.0.1:{port}/repo.git"))
        running = start(arguments(apps, "--stall-timeout", "1"), env={"TMPDIR": str(tmp_path)})
        out, err = running.communicate(timeout=30)
    assert running.returncode == 75, err
    (error,) = json.loads(out)["errors"]
    assert error["rule"] == "repository"
    assert "1 seconds)" in error["message"]  # git's own time limit may be reached first
    assert not list(tmp_path.glob("image-update-*"))


def ssh_door(folder: Path, script: str, stall: float) -> Git:
    program = folder / "ssh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Git(
        {**os.environ, "GIT_SSH_COMMAND": str(program), "GIT_SSH_VARIANT": "ssh"}, stall=stall
    )


def test_a_silent_ssh_server_is_reported_as_unreachable(tmp_path: Path) -> None:
    with (
        BareRepository(ssh_door(tmp_path, "exec sleep 600", 1), "git@example.com:x.git") as store,
        pytest.raises(UnreachableError, match="no data was sent or received for 1 seconds"),
    ):
        store.snapshot("main", [])


def test_an_ssh_server_that_stops_in_the_middle_is_unreachable(tmp_path: Path) -> None:
    repo = repository(tmp_path, "a")
    script = 'for last; do :; done\nsh -c "$last" | { head -c 200; sleep 60; }'
    with (
        BareRepository(ssh_door(tmp_path, script, 1), f"git@example.com:{repo}") as store,
        pytest.raises(UnreachableError, match="stalled"),
    ):
        store.snapshot("main", [])


@pytest.mark.slow
def test_a_slow_server_is_not_treated_as_stalled(tmp_path: Path) -> None:
    repo = repository(tmp_path, "a")
    hook(repo, "post-update", "exit 0")
    slow = """\
import os, sys, time
while piece := os.read(0, 40):
    os.write(1, piece)
    time.sleep(0.3)
    print("piece", file=open(sys.argv[1], "a"))
"""
    (tmp_path / "slow.py").write_text(slow)
    script = f'for last; do :; done\nsh -c "$last" | python3 {tmp_path}/slow.py {tmp_path}/pieces'
    with BareRepository(ssh_door(tmp_path, script, 2), f"git@example.com:{repo}") as store:
        assert store.snapshot("main", []).tip == git(repo, "rev-parse", "main")
    assert (tmp_path / "pieces").read_text().count("piece") * 0.3 > 2


@pytest.mark.slow
def test_a_slow_hook_on_the_server_is_not_treated_as_stalled(tmp_path: Path) -> None:
    """The server keeps sending keep-alive messages."""
    repo = repository(tmp_path, "a")
    git(repo, "config", "receive.keepAlive", "1")
    hook(repo, "pre-receive", "sleep 4")
    running = start(arguments(manifest(tmp_path, application("a", repo)), "--stall-timeout", "2"))
    _, err = running.communicate()
    assert running.returncode == 0, err


def test_a_local_command_has_a_separate_timeout() -> None:
    with pytest.raises(GitEnded, match="git"):
        Git(os.environ, stall=1).run("-c", "alias.nap=!sleep 30", "nap", timeout=0.3)


@pytest.mark.parametrize("script", ["sleep 0.3", "true"])
def test_commands_are_terminated_on_systems_without_process_handles(
    monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    assert Git(os.environ).run("-c", f"alias.nap=!{script}; echo done", "nap").out == b"done\n"
    with pytest.raises(GitEnded, match="git"):
        Git(os.environ).run("-c", "alias.nap=!sleep 30", "nap", timeout=0.3)


def test_a_process_that_ignores_signals_is_killed() -> None:
    with pytest.raises(GitEnded):
        Git(os.environ).run(
            "-c", "alias.nap=!trap '' TERM; sleep 600 & wait; wait; sleep 600", "nap", timeout=0.3
        )


def test_the_number_of_bytes_moved_is_unknown_without_process_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert bytes_moved(os.getsid(0)) is not None
    monkeypatch.setattr(os, "listdir", lambda _folder: [])
    assert bytes_moved(os.getsid(0)) is None
