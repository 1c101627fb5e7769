"""Limits on the resources that a Git server can use up: output, packs, memory, and time."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from support import bare_repo, git
from support.clock import Clock

from task import processes
from task.errors import SourceError, UnreachableError
from task.git.command import Git
from task.git.errors import GitEnded
from task.git.repository.bare import BareRepository
from task.model import File, Place
from task.processes import Bounds, CapturedOutput, Watch, finish, memory_of_step, weight

FILE = frozenset({"file"})
FLOOD = "alias.flood=!yes 'warning: a line that means nothing'"


def test_captured_output_keeps_the_last_whole_lines() -> None:
    output = CapturedOutput(100)
    for number in range(1000):
        output.sink.write(b"%060d\n" % number)
        assert output.take()
    output.sink.close()
    assert not output.take()
    assert output.text() == b"%060d\n" % 999
    assert output.count == 61_000
    output.close()


@pytest.mark.parametrize("to", ["", " >&2"])
def test_a_command_with_endless_output_is_killed(to: str) -> None:
    door = Git(os.environ, bounds=Bounds(messages=3_000_000))
    with pytest.raises(GitEnded) as caught:
        door.run("-c", FLOOD + to, "flood")
    assert caught.value.err.endswith("it sent more than 3 MB of refs and messages")
    assert len(caught.value.err) < 1000


def test_output_within_the_bound_is_complete() -> None:
    door = Git(os.environ, bounds=Bounds(messages=3_000_000))
    ran = door.run(
        "-c", "alias.much=!head -c 1500000 /dev/zero; head -c 1400000 /dev/zero >&2", "much"
    )
    assert (len(ran.out), len(ran.err) <= 64_000) == (1_500_000, True)


def test_a_child_process_that_keeps_running_is_not_waited_for() -> None:
    """An example is an ssh process that shares a connection between several commands."""
    assert Git(os.environ).run("-c", "alias.leave=!sleep 600 & echo done", "leave").out == b"done\n"


def test_not_every_warning_is_logged() -> None:
    said: list[str] = []
    script = "!for n in $(seq 2000); do echo \"warning: $n\" >&2; done; printf 'warning: %5000d\\n' 1 >&2"
    Git(os.environ, log=said.append).run("-c", f"alias.warn={script}", "warn")
    assert (len(said), max(map(len, said)) < 1100) == (100, True)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            "fatal: Out of memory, malloc failed (tried to allocate 3000000001 bytes)",
            "git would need more than 1 GiB",
        ),
        (
            "fatal: write error: File too large\nfatal: index-pack failed",
            "it sent more than 2 GiB of pack data",
        ),
        ("remote: fatal: Out of memory, malloc failed\nfatal: early EOF", ""),
        ("remote: error: File too large", ""),
        ("fatal: early EOF", ""),
    ],
)
def test_git_messages_reveal_which_limit_was_exceeded(words: str, why: str) -> None:
    assert Bounds().passed(words).startswith(why)
    assert bool(Bounds().passed(words)) == bool(why)


def test_a_stricter_limit_of_the_step_stays() -> None:
    """If the step sets a stricter `ulimit -f`, the error means a full disk, not a flood of data."""
    code = """
import resource
from task.processes import Bounds
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
Bounds().limits()()
print(resource.getrlimit(resource.RLIMIT_FSIZE), repr(Bounds().passed("fatal: write error: File too large")))
"""
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "(4096, 4096) ''\n"
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 4096


def test_git_processes_start_with_the_configured_limits() -> None:
    door = Git(os.environ, bounds=Bounds(pack=8192 * 1024, memory=900_000 * 1024))
    assert (
        door.run("-c", "alias.limits=!ulimit -f; ulimit -d", "limits").out.split()[1] == b"900000"
    )


@pytest.mark.parametrize(
    ("own", "files", "most"),
    [
        ("0::/\n", {"memory.max": "536870912"}, 256),
        ("0::/\n", {"memory.max": "max"}, 1024),
        ("0::/\n", {"memory.max": "8589934592"}, 1024),
        ("0::/\n", {"memory.max": "33554432"}, 64),
        (
            "0::/a/b\n",
            {"a/b/memory.max": "max", "a/memory.max": "1073741824", "memory.max": "max"},
            512,
        ),
        ("4:cpu,memory:/kubepods/x\n0::/\n", {"memory/memory.limit_in_bytes": "536870912"}, 256),
        ("4:memory:/a\n", {"memory/a/memory.limit_in_bytes": "9223372036854771712"}, 1024),
        ("", {}, 1024),
        ("no line of the kernel", {"memory.max": "536870912"}, 1024),
    ],
)
def test_the_memory_limit_of_git_fits_the_memory_of_the_step(
    tmp_path: Path, own: str, files: dict[str, str], most: int
) -> None:
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    assert memory_of_step(tmp_path, tmp_path / "own") == most << 20
    assert memory_of_step(tmp_path, tmp_path / "none") == 1 << 30


def test_a_repository_is_read_with_little_memory_and_few_pack_threads(tmp_path: Path) -> None:
    """Git starts a thread for each processor, and each thread's stack takes 8 MiB."""
    repo = bare_repo(tmp_path, {f"{number}": f"{number}\n" for number in range(200)})
    door = Git(os.environ, protocols=FILE, bounds=Bounds(memory=64 << 20))
    with BareRepository(door, str(repo)) as store:
        store.snapshot("main", [Place("1")])
        config = git(Path(store._remote.ready()), "config", "pack.threads")
    assert config == "2"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return a clock that limits the time per command and per repository."""
    made = Clock()
    made.time = 1000.0
    monkeypatch.setattr("task.processes.time", made)
    return made


def test_all_commands_for_one_repository_share_a_time_limit(tmp_path: Path, clock: Clock) -> None:
    """The limit includes reading the history, which uses a separate remote."""
    repo = bare_repo(tmp_path, {"a": "1\n"})
    with BareRepository(
        Git(os.environ, protocols=FILE, bounds=Bounds(seconds=1)), str(repo)
    ) as store:
        assert store.snapshot("main", [Place("a")]).files == {"a": File("1\n")}
        clock.time += 1
        for act in (
            lambda: store.snapshot("main", [Place("a")]),
            lambda: list(store.earlier("main", "a")),
        ):
            with pytest.raises(
                UnreachableError, match="the limit for one repository is 1 seconds"
            ) as caught:
                act()
            assert caught.value.subject == str(repo)


def test_the_clock_begins_with_the_first_command(clock: Clock) -> None:
    ours = processes.Clock(5, "x")
    clock.time += 60
    assert ours.left() == 5
    clock.time += 4
    assert ours.left() == 1
    clock.time += 1
    with pytest.raises(UnreachableError):
        ours.left()


def test_a_program_that_ignores_sigterm_is_killed_a_moment_later(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    sent: list[str] = []
    monkeypatch.setattr("task.processes.send", lambda _running, name: sent.append(name))
    watch = Watch(None, (60.0, "", 0))
    watch.end()
    watch._enforce_limits(clock.time + processes._PATIENCE / 2)
    assert sent == ["SIGTERM"]
    watch._enforce_limits(clock.time + 2 * processes._PATIENCE)
    assert sent == ["SIGTERM", "SIGKILL"]


def test_the_total_size_of_packs_is_measured(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {"a": "1\n"})
    assert weight(str(tmp_path)) == 0
    git(repo, "repack", "-q", "-a", "-d")
    assert 200 < weight(str(repo)) < 10_000


def test_a_blob_that_is_too_large_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few kilobytes may expand to terabytes, so the unpacking process is replaced."""
    monkeypatch.setattr("task.git.repository.objects.LARGEST", 1000)
    repo = bare_repo(tmp_path, {"a": "1\n", "large": b"\0" * 20_000_000, "z": "2\n"})
    door = Git(os.environ, protocols=FILE)
    with BareRepository(door, str(repo)) as store:
        files = store.snapshot("main", [Place("a"), Place("large"), Place("z")]).files
        before = door.calls.count("cat-file")
        large, last = (git(repo, "rev-parse", f"main:{name}") for name in ("large", "z"))
        assert list(store._remote.objects.read([large, last]).values()) == [None, b"2\n"]
    assert files == {
        "a": File("1\n"),
        "large": File("", problem="larger than 10 MB"),
        "z": File("2\n"),
    }
    assert door.calls.count("cat-file") > before


def test_a_reader_that_died_is_reported_and_replaced(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {"a": "1\n"})
    with BareRepository(Git(os.environ, protocols=FILE), str(repo)) as store:
        store.snapshot("main", [Place("a")])
        talk = store._remote.objects._talk
        assert talk
        finish(talk.running)
        with pytest.raises(UnreachableError, match=r"cannot read object|did not send"):
            store._remote.objects.read([git(repo, "rev-parse", "main")])
        assert store.snapshot("main", [Place("a")]).files == {"a": File("1\n")}


def test_the_total_size_of_files_in_a_snapshot_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file is within the limit, but a pack of a few megabytes can contain thousands."""
    monkeypatch.setattr("task.git.repository.objects.TOGETHER", 5_000_000)
    repo = bare_repo(tmp_path, {f"apps/{n}.yaml": f"# {n}\n" + " " * 1_000_000 for n in range(6)})
    with BareRepository(Git(os.environ, protocols=FILE), str(repo)) as store:
        with pytest.raises(SourceError, match="larger than 5 MB in total"):
            store.snapshot("main", [Place("apps", "folder")])
        assert len(store.snapshot("main", [Place("apps/1.yaml")]).files) == 1
