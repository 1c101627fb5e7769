"""Runs on one machine line up for a branch, and never depend on it."""

import _socket
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import pytest
from support import bare_repo, commit, git

from task import stop
from task.edges.git import Git
from task.edges.stores.bare import BareStore
from task.edges.stores.turn import Turn
from task.model import Place

TAKE = "import sys; from task.edges.stores.turn import Turn; t = Turn(0.1); print(t.take({!r}), flush=True); "


@contextmanager
def another_process(subject: str) -> Iterator["subprocess.Popen[str]"]:
    """One that has the turn, until it is killed."""
    code = TAKE.format(subject) + "sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], text=True, **pipes) as holder:  # type: ignore[call-overload]
        assert holder.stdout.readline() == "False\n"
        try:
            yield holder
        finally:
            holder.kill()


def test_who_is_alone_does_not_wait(tmp_path: Path) -> None:
    turn = Turn(10)
    assert [turn.take(str(tmp_path)), turn.take(str(tmp_path))] == [False, False]
    turn.end()


def test_a_process_does_not_wait_for_itself(tmp_path: Path) -> None:
    first, second = Turn(10), Turn(10)
    assert [first.take(str(tmp_path)), second.take(str(tmp_path))] == [False, False]
    second.end()
    code = TAKE.format(str(tmp_path))
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "True\n"  # the first still has it
    first.end()
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


def test_another_branch_is_another_turn(tmp_path: Path) -> None:
    with another_process(f"{tmp_path}@main"):
        turn = Turn(10)
        assert not turn.take(f"{tmp_path}@other")
    turn.end()


def test_the_wait_has_an_end(tmp_path: Path) -> None:
    with another_process(str(tmp_path)):
        began = time.monotonic()
        assert Turn(0.2).take(str(tmp_path))
        assert 0.2 <= time.monotonic() - began < 5


def test_who_was_killed_is_not_waited_for(tmp_path: Path) -> None:
    with another_process(str(tmp_path)) as holder:
        Timer(0.2, holder.kill).start()
        began = time.monotonic()
        turn = Turn(30)
        assert turn.take(str(tmp_path))
        assert time.monotonic() - began < 15
    turn.end()


def test_a_signal_ends_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def come() -> None:
        raise stop.StoppedError("stopped")

    monkeypatch.setattr(stop, "check", come)
    with another_process(str(tmp_path)), pytest.raises(stop.StoppedError):
        Turn(30).take(str(tmp_path))


def test_where_there_are_no_such_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_given: object) -> None:
        raise OSError("not here")

    monkeypatch.setattr(_socket, "socket", refuse)
    turn = Turn(10)
    assert not turn.take(str(tmp_path))
    turn.end()


def test_who_had_to_wait_reads_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo, door = bare_repo(tmp_path, {"a/b.yaml": "1\n"}), Git(os.environ, protocols=frozenset({"file"}))
    with another_process(f"{repo}@main") as holder, BareStore(door, str(repo), in_turn=30) as store:

        def land(_seconds: float) -> None:
            """Once it waits, however long that took."""
            if holder.poll() is None:
                commit(repo, {"a/b.yaml": "2\n"})
                holder.kill()
                holder.wait()

        monkeypatch.setattr(stop, "sleep", land)
        snapshot = store.snapshot("main", [Place("a/b.yaml")])
        assert (snapshot.tip, snapshot.files["a/b.yaml"].text) == (git(repo, "rev-parse", "main"), "2\n")
