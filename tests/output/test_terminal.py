"""The command on a real terminal: a table, colors, and a progress line for slow steps."""

import fcntl
import os
import pty
import re
import signal
import struct
import termios
from pathlib import Path

import pytest
from support import command, fork_server, image_update
from support.runs import application, hook, manifest, repository

ESCAPE = re.compile(r"\x1b\[\??[0-9;]*[a-zA-Z]")


def at_terminal(
    *args: str | Path,
    columns: int = 100,
    env: dict[str, str] | None = None,
    only: str = "",
    until: bytes = b"",
) -> tuple[int, str]:
    """Run the command on a terminal (`only`: stdout or stderr). Return the exit code and output.

    The command receives SIGTERM once it has printed `until`.
    """
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environ = {
        name: value
        for name, value in os.environ.items()
        if name not in ("CI", "COLUMNS", "NO_COLOR")
    }
    environ |= {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **(env or {})}
    nothing = os.open(os.devnull, os.O_WRONLY)
    out, err = (nothing if only == other else side for other in ("stderr", "stdout"))
    running = fork_server.start([command(), *map(str, args)], env=environ, files=(side, out, err))
    os.close(side)
    os.close(nothing)
    shown = b""
    while True:
        try:
            piece = os.read(main, 65536)
        except OSError:
            break
        if not piece:
            break
        shown += piece
        if until and until in shown:
            running.send_signal(signal.SIGTERM)
            until = b""
    os.close(main)
    return running.wait(60), shown.decode().replace("\r\n", "\n")


@pytest.fixture
def scene(tmp_path: Path) -> tuple[Path, list[str]]:
    """Return arguments for a run in which one Application is updated and another fails."""
    repo = repository(tmp_path, "shop")
    apps = manifest(tmp_path, application("shop", repo), application("gone", repo))
    return repo, [
        "--image",
        "ghcr.io/acme/web:1.1.0",
        "--applications",
        str(apps),
        "--allow-protocol",
        "file",
    ]


@pytest.mark.measured
def test_plan_shows_a_table_and_a_colored_diff(scene: tuple[Path, list[str]]) -> None:
    code, shown = at_terminal("plan", *scene[1])
    assert code == 3
    assert "\x1b[1;34margocd/shop\x1b[0m" in shown
    assert "1.0.0 → 1.1.0" in shown
    assert "\x1b[31m-  newTag: 1.0.0\x1b[0m" in shown


def test_an_error_is_reported_only_once(scene: tuple[Path, list[str]]) -> None:
    _, shown = at_terminal("plan", *scene[1], columns=140)
    assert shown.count("does not exist on main") == 1
    _, logged = at_terminal("plan", *scene[1], only="stderr")
    assert ESCAPE.sub("", logged).splitlines() == [
        "error: argocd/gone: the path 'apps/gone' does not exist on main",
        "  fix: check spec.source.path and the branch",
    ]


@pytest.mark.parametrize("columns", [40, 72, 120])
def test_the_output_fits_the_width_of_the_terminal(
    scene: tuple[Path, list[str]], columns: int
) -> None:
    _, shown = at_terminal("run", *scene[1], columns=columns)
    lines = ESCAPE.sub("", shown).splitlines()
    assert max(map(len, lines)) <= columns
    assert any("1.0.0 → 1.1.0" in line for line in lines)


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"CLICOLOR": "0"}])
def test_colors_can_be_disabled_by_the_environment(
    scene: tuple[Path, list[str]], env: dict[str, str]
) -> None:
    _, shown = at_terminal("plan", *scene[1], env=env)
    assert "\x1b" not in shown
    assert "→" in shown


def test_usage_errors_all_have_the_same_format(scene: tuple[Path, list[str]]) -> None:
    for args in (
        ("run", "--imag", "x"),
        ("nonsense",),
        ("run", *scene[1], "--registry-check", "x"),
        ("run",),
    ):
        code, shown = at_terminal(*args, only="stderr")
        lines = ESCAPE.sub("", shown).splitlines()
        assert code == 2
        assert (lines[0][:7], lines[1][:7], len(lines)) == ("error: ", "  fix: ", 2)


@pytest.mark.measured
def test_progress_of_slow_steps_is_shown_and_then_erased(scene: tuple[Path, list[str]]) -> None:
    repo, args = scene
    hook(repo, "pre-receive", "sleep 1.8")
    _, shown = at_terminal("run", *args, only="stderr")
    assert f"pushing to {repo}"[:40] in ESCAPE.sub("", shown)
    assert shown.rpartition("\r\x1b[2K\x1b[?25h\r")[2].startswith("\x1b[1;31merror:")
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") > 0


def test_the_terminals_cursor_is_restored_after_a_signal(scene: tuple[Path, list[str]]) -> None:
    repo, args = scene
    hook(repo, "pre-receive", "sleep 600")
    code, shown = at_terminal("run", *args, only="stderr", until=b"pushing to")
    assert code == 143
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") > 0


def test_quick_steps_show_no_progress(scene: tuple[Path, list[str]]) -> None:
    _, shown = at_terminal("run", *scene[1], only="stderr")
    assert "\x1b[?25l" not in shown or "0:00:01" in shown  # on a busy machine, any step may be slow


@pytest.mark.parametrize("env", [{"CI": "true"}, {"TERM": "dumb"}])
def test_logs_show_no_animated_progress(scene: tuple[Path, list[str]], env: dict[str, str]) -> None:
    repo, args = scene
    hook(repo, "pre-receive", "sleep 1.5")
    _, shown = at_terminal("run", *args, only="stderr", env=env)
    assert "pushing" not in shown


def test_help_fits_the_width_of_the_terminal() -> None:
    _, shown = at_terminal("run", "--help", columns=60)
    wide = [line for line in shown.splitlines() if len(line) > 60]
    assert [line.split()[0] for line in wide] == [
        *["image-update"] * 3,
        "Documentation:",
    ]  # lines meant to be copied are never wrapped
    assert "--image REF" in shown


def test_colors_can_be_forced_without_a_terminal(scene: tuple[Path, list[str]]) -> None:
    done = image_update("plan", *scene[1], env={"FORCE_COLOR": "1", "COLUMNS": "90"})
    assert "\x1b[1;34margocd/shop" in done.stdout
    assert "\x1b" not in done.stderr
