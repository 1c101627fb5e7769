"""Files that users specify: pipes, devices, and endless files are rejected with a reason, and
nothing waits for them.
"""

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from support import Result, command, costs_at_most, image_update
from support.runs import application, arguments, manifest, repository

from scripts.typer_options import options_of
from task.errors import ExhaustedError, Exit
from task.files import check_file, exhausted, read_file, read_text


def a_pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


def linked(target: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / "link").symlink_to(target)
        return folder / "link"

    return make


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (a_pipe, "it is a pipe, not a file"),
        (linked("pipe"), "it is a pipe, not a file"),
        (linked("/dev/zero"), "it is a device, not a file"),
        (linked("/dev/tty"), "it is a device, not a file|No such device"),
        (
            linked("/proc/kmsg"),
            "reading it may never end|Operation not permitted|Permission denied",
        ),
        (linked("/proc/kallsyms"), "it is larger than 1,000,000 bytes|No such file|denied"),
        (linked("."), "Is a directory"),
        (linked("nowhere"), "No such file"),
        (linked("large"), "it is larger than 10,000,000 bytes"),
    ],
)
def test_pipes_devices_and_endless_files_are_rejected_at_once(
    make: Callable[[Path], Path], says: str, tmp_path: Path
) -> None:
    if make is not a_pipe:
        a_pipe(tmp_path)
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 40)
    path = str(make(tmp_path))
    with costs_at_most(seconds=10), pytest.raises(OSError, match=says):
        read_file(path)


def test_a_file_is_read_to_its_last_byte(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a\r\nb\rc\xc3\xa9")
    assert read_file(str(path), 9) == b"a\r\nb\rc\xc3\xa9"
    assert read_text(str(path)) == "a\nb\ncé"
    assert read_file("/dev/null") == b""
    assert read_text("/proc/self/comm")
    check_file(str(path))


def test_a_shell_process_substitution_is_read() -> None:
    """`<(command)` is a pipe, but one that belongs to the caller and that ends."""
    script = "import sys; from task.files import read_file; print(len(read_file(sys.argv[1])))"
    slow = "sleep 0.3; head -c 300000 /dev/zero"
    done = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -c '{script}' <({slow})"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "300000\n"


def test_a_silent_pipe_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("task.files.PATIENCE", 0.1)
    out, into = os.pipe()
    with pytest.raises(OSError, match="no data for"):
        read_file(f"/dev/fd/{out}")
    os.close(out)
    os.close(into)


# Maps each option to what else its command line needs.
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "--images-from": (),
    "--applications": (),
    "--clusters": (),
    "--commit-message-template": (),
    "--signing-key": (),
    "--git-password-file": (
        "--git-username",
        "me",
        "--git-credentials-url",
        "https://git.example.com",
    ),
    "--github-app-key-file": ("--github-app-id", "1", "--github-app-installation-id", "2"),
    "--ssh-key-file": (),
    "--ssh-known-hosts-file": (),
    "--ca-file": (),
    "--verify": (),
    "--trust-root": (),
    "--kubeconfig": ("--applications", "cluster"),
    "--argocd-auth-token-file": (
        "--applications",
        "argocd",
        "--argocd-server",
        "argocd.example.com",
    ),
    "--argocd-ca-file": ("--applications", "argocd", "--argocd-server", "argocd.example.com"),
    "--registries-conf": ("--registry-check", "always"),
    "--registry-password-file": ("--registry-username", "me", "--registry-check", "always"),
    "--forge-token-file": ("--pull-request", "--forge", "gitea=https://git.example.com"),
}


def test_every_option_that_reads_a_file_is_in_the_table() -> None:
    files = {one.opts[0] for one in options_of("run") if one.metavar == "FILE"}
    assert files - {"--report", "--dotenv", "--metrics-file"} <= OPTIONS.keys()  # for output


@pytest.mark.slow
@pytest.mark.parametrize("option", OPTIONS)
def test_a_pipe_given_to_an_option_is_an_error(option: str, tmp_path: Path) -> None:
    apps = manifest(tmp_path, application("web", repository(tmp_path, "web")))
    more = OPTIONS[option]
    given = () if "--applications" in (option, *more) else ("--applications", apps)
    image = ("--image", "ghcr.io/acme/web:1.1.0") if option != "--images-from" else ()
    done = image_update(
        "run",
        *image,
        *given,
        *more,
        option,
        a_pipe(tmp_path),
        "--allow-protocol",
        "file",
        timeout=30,
    )
    assert "Traceback" not in done.stderr
    assert "is a pipe, not a file" in done.stderr + done.stdout
    assert done.code == 2
    assert done.stderr.count("is a pipe, not a file") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "command_line", ["run --image ghcr.io/acme/web:1.1.0 --allow-protocol file", "lint"]
)
def test_a_pipe_or_device_among_the_manifests_is_a_warning(
    command_line: str, tmp_path: Path
) -> None:
    folder = tmp_path / "apps"
    folder.mkdir()
    manifest(folder, application("web", repository(tmp_path, "web")))
    os.mkfifo(folder / "a.yaml")
    (folder / "b.yaml").symlink_to("/proc/kmsg")
    (folder / "c.yml").symlink_to("/dev/zero")
    (folder / "d.json").symlink_to("a.yaml")
    with costs_at_most():
        done = image_update(
            *command_line.split(), "--applications", folder, "--output", "json", timeout=60
        )
    if command_line == "lint":
        said = " ".join(one["message"] for one in done.json["findings"])
        assert all(
            f"cannot read {folder / name}: " in said
            for name in ("a.yaml", "b.yaml", "c.yml", "d.json")
        )
        return
    assert done.json["counts"]["updated"] == 1
    assert [one["severity"] for one in done.json["errors"]] == ["warning"] * 4
    for name, kind in {"a.yaml": "a pipe", "c.yml": "a device", "d.json": "a pipe"}.items():
        assert f"cannot read {folder / name}: it is {kind}, not a file" in done.stderr


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.EMFILE, "x"), r"this step can have \d+ open at a time"),
        (OSError(errno.ENFILE, "x"), "on this machine"),
        (OSError(errno.ENOMEM, "x"), "not have enough memory"),
        (MemoryError(), "not have enough memory"),
        (RuntimeError("can't start new thread"), "cannot start another thread"),
        (RuntimeError("x"), ""),
        (OSError(errno.EACCES, "x"), ""),
        (ValueError("x"), ""),
    ],
)
def test_running_out_of_file_descriptors_memory_or_threads_is_reported_clearly(
    error: Exception, says: str
) -> None:
    try:
        try:
            raise error
        except type(error) as cause:
            raise KeyError from cause
    except KeyError as outer:
        found = exhausted(outer)
    if says:
        assert isinstance(found, ExhaustedError)
        assert found.hint
        with pytest.raises(ExhaustedError, match=says):
            raise found
    else:
        assert found is None


def test_a_run_without_enough_memory_is_not_reported_as_a_defect(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text("kind: Application\n")
    args = ("plan", "--image", "ghcr.io/acme/web:1.0", "--applications", tmp_path / "app.yaml")
    done = subprocess.run(
        ["sh", "-c", 'ulimit -d 32000 && exec "$@"', "sh", command(), *map(str, args)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == Exit.TEMPORARY, done.stderr
    assert "not have enough memory" in done.stderr or "another thread" in done.stderr
    assert "defect" not in done.stderr


def with_files(most: int, *args: str) -> Result:
    done = subprocess.run(
        ["sh", "-c", f'ulimit -n {most} && exec "$@"', "sh", command(), *args],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("most", [6, 10, 14, 20])
def test_a_low_limit_on_open_files_is_an_error_with_a_hint(most: int, tmp_path: Path) -> None:
    repos = [repository(tmp_path, "web", name=f"{number}.git") for number in range(4)]
    apps = [application("web", repo) for repo in repos]
    for number, one in enumerate(apps):
        one["metadata"]["name"] = f"web-{number}"
    done = with_files(most, *arguments(manifest(tmp_path, *apps)))
    assert "Traceback" not in done.stderr
    if most > 14 and done.code == 0:  # the outcome depends on the files open at the start
        assert done.json["counts"]["updated"] == 4
        return
    assert f"too many open files: this step can have {most} open at a time" in done.stderr
    assert "ulimit -n" in done.stderr
    assert done.code == 75


@pytest.mark.parametrize("what", ["nowhere", "a file"])
def test_a_tmpdir_that_is_not_a_folder_is_a_usage_error(tmp_path: Path, what: str) -> None:
    repo = repository(tmp_path, "a")
    apps = manifest(tmp_path, application("a", repo))
    there = apps if what == "a file" else tmp_path / what
    found = image_update(*arguments(apps), env={"TMPDIR": str(there)})
    assert found.code == 2
    assert f"TMPDIR: {there} is not a folder\n" in found.stderr
    assert "set TMPDIR to a folder that this user can write to" in found.stderr
