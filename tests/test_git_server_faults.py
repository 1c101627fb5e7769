"""A Git server's responses to a push: the exit code and message for each response, and a rerun that
finishes the job.
"""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import commit, git
from support.faults import Ground, problem
from support.real_servers import Nginx, nginx
from support.runs import KUSTOMIZATION, alive, hook, target, wait_until

pytestmark = [pytest.mark.servers, pytest.mark.xdist_group("servers")]

# Like GitHub's servers, this hook puts the reason into the status line. A hook that merely exits
# with 1 cannot do that.
GITHUB = f"""#!{sys.executable}
import sys
def read():
    size = int(sys.stdin.buffer.read(4) or b"0", 16)
    return sys.stdin.buffer.read(size - 4) if size else b""
def write(text):
    sys.stdout.buffer.write(b"%04x%s" % (len(text) + 4, text) if text else b"0000")
    sys.stdout.buffer.flush()
while read(): pass
write(b"version=1\\n"), write(b"")
while line := read():
    ref = line.split()[2]
    sys.stderr.write("error: GH006: Protected branch update failed for " + ref.decode() + ".\\n")
    sys.stderr.write("error: Changes must be made through a pull request.\\n")
    sys.stderr.flush()
    write(b"ng " + ref + b" protected branch hook declined\\n")
write(b"")
"""
GITLAB = "GitLab: You are not allowed to push code to protected branches on this project."
# The server's pack-objects hook. In a repository that contains `next`, it moves the branch after
# serving the first fetch.
OUTRUN = """#!/bin/sh
"$@"; code=$?
if mv next now 2>/dev/null; then git update-ref refs/heads/main "$(cat now)"; fi
exit $code
"""


@pytest.fixture(scope="session")
def web(tmp_path_factory: pytest.TempPathFactory, repos: Path) -> Iterator[Nginx]:
    folder = tmp_path_factory.mktemp("nginx")
    outrun = folder / "outrun"
    outrun.write_text(OUTRUN)
    outrun.chmod(0o755)
    (folder / ".gitconfig").write_text(f"[uploadpack]\n\tpackObjectsHook = {outrun}\n")
    with nginx(folder, repos) as server:
        yield server


@pytest.fixture
def ground(tmp_path: Path, repos: Path) -> Ground:
    return Ground(tmp_path, repos)


@pytest.mark.parametrize(
    ("name", "script", "told"),
    [
        (
            "pre-receive",
            "echo 'rejected by policy: freeze until Monday' >&2; exit 1",
            ["freeze until Monday"],
        ),
        ("pre-receive", f"echo '{GITLAB}' >&2; exit 1", [GITLAB, "--pull-request"]),
        ("pre-receive", "exit 1", ["pre-receive hook declined"]),
        (
            "proc-receive",
            "",
            ["GH006", "through a pull request", "protected branch hook declined", "--pull-request"],
        ),
    ],
)
def test_a_refused_push_is_reported_with_the_wording_of_the_server(
    ground: Ground, web: Nginx, name: str, script: str, told: list[str]
) -> None:
    path = hook(ground.repo, name, script)
    if name == "proc-receive":
        path.write_text(GITHUB)
        git(ground.repo, "config", "receive.procReceiveRefs", "refs/heads/main")
    code, rule, words = problem(ground.by_http(web.plain))
    assert (code, rule, ground.commits()) == (4, "repository", 1)
    assert [one for one in told if one not in words] == []
    path.unlink()
    git(ground.repo, "config", "receive.procReceiveRefs", "refs/nothing")
    assert ground.by_http(web.plain).code == 0
    assert (ground.landed(), ground.commits()) == (True, 2)


def other(ground: Ground, version: str = "1.0.0") -> str:
    """Somebody else's commit, which builds on the branch but is not on it yet."""
    git(ground.repo, "update-ref", "refs/heads/aside", "main")
    text = KUSTOMIZATION.replace("1.0.0", version)
    made = commit(ground.repo, {target("web"): text, "other": "x"}, "aside", "Somebody was faster")
    git(ground.repo, "update-ref", "-d", "refs/heads/aside")
    return made


def test_an_update_is_decided_again_if_the_server_detects_a_race_during_the_push(
    ground: Ground, web: Nginx
) -> None:
    """Git reports `[remote rejected] (failed to update ref)` and `cannot lock ref`. The update is
    decided again, and lands on top of the other commit.
    """
    new = other(ground)
    hook(
        ground.repo,
        "update",
        f'rm "$0"; env -u GIT_QUARANTINE_PATH git update-ref refs/heads/main {new}',
    )
    result = ground.by_http(web.plain)
    assert (result.code, ground.landed(), ground.commits()) == (0, True, 3), result.stderr
    assert result.json["commits"][0]["attempts"] == 2


@pytest.mark.parametrize(
    ("version", "verdict"), [("1.0.0", "update"), ("1.1.0", "unchanged"), ("1.2.0", "refuse")]
)
def test_an_update_is_decided_again_if_the_race_is_lost_before_the_push(
    ground: Ground, web: Nginx, version: str, verdict: str
) -> None:
    """Git reports `[rejected] (stale info)`. The new decision depends on what is on the branch
    now.
    """
    new = other(ground, version)
    (ground.repo / "next").write_text(new)
    result = ground.by_http(web.plain)
    (decision,) = result.json["decisions"]
    assert (result.code, decision["verdict"]) == (0, verdict), result.stderr
    assert not (ground.repo / "next").exists()
    assert ground.commits() == (3 if verdict == "update" else 2)
    assert [one["attempts"] for one in result.json["commits"]] == (
        [2] if verdict == "update" else []
    )


def received(pushes: Path) -> list[int]:
    """Return the server processes that have received a push."""
    return [int(line) for line in pushes.read_text().splitlines()] if pushes.exists() else []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_rerun_makes_one_commit_after_a_client_gives_up_on_a_slow_server(
    ground: Ground, web: Nginx, number: int
) -> None:
    """After the next run, there is exactly one commit for the update, whether or not the client's
    push still lands.
    """
    pushes = ground.folder / "pushes"
    hook(ground.repo, "pre-receive", f"echo $PPID >> {pushes}; sleep 2")
    running = ground.start(ground.url(web.plain), *ground.options(web.plain))
    wait_until(lambda: received(pushes))
    running.send_signal(number)
    running.communicate(timeout=30)
    assert running.returncode == (143 if number == signal.SIGTERM else -number)
    wait_until(lambda: not any(map(alive, received(pushes))))
    for left in ground.temporary.iterdir():
        assert number == signal.SIGKILL, left
    (ground.repo / "hooks" / "pre-receive").unlink()
    result = ground.start(ground.url(web.plain), *ground.options(web.plain))
    result.communicate(timeout=30)
    assert (result.returncode, ground.landed(), ground.commits()) == (0, True, 2)


def test_a_push_that_needs_ten_seconds_succeeds_without_a_retry(ground: Ground, web: Nginx) -> None:
    """The run waits for the push, and pushes only once."""
    hook(ground.repo, "pre-receive", f"echo >> {ground.folder}/pushes; sleep 10")
    result = ground.by_http(web.plain)
    assert (result.code, ground.landed(), ground.commits()) == (0, True, 2), result.stderr
    assert (ground.folder / "pushes").read_text() == "\n"


def test_a_push_that_exceeds_the_stall_timeout_makes_exactly_one_commit(
    ground: Ground, web: Nginx
) -> None:
    """The run gives up on the first push, checks the branch, and pushes again while the first push
    is still in progress.
    """
    pushes = ground.folder / "pushes"
    hook(ground.repo, "pre-receive", f"echo $PPID >> {pushes}; sleep 3")
    result = ground.by_http(web.plain, "--stall-timeout", "1")
    assert result.code in {0, 75}
    wait_until(lambda: not any(map(alive, received(pushes))))
    assert len(received(pushes)) > 1
    assert (ground.landed(), ground.commits()) == (True, 2)
    assert ground.by_http(web.plain).json["status"] == "unchanged"
