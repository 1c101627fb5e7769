"""One step as started by a host, with its variables and volumes, in a container or as a process.

All mounts are below one folder, at the same paths as in the container.
"""

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from support import command, fork_server

from scripts import containers

COMMAND = "/usr/local/bin/image-update"


@dataclass(frozen=True)
class Volume:
    """A folder (empty or with files), or a Secret as mounted by the kubelet."""

    files: Mapping[str, str] = field(default_factory=dict)
    secret: bool = False
    mode: int = 0o777  # mode of the folder, or of a Secret's files
    owner: int = 0
    group: int = 0
    read_only: bool = False


@dataclass(frozen=True)
class Step:
    """A step that a host creates from its manifest and the given values."""

    image: str
    command: Sequence[str]
    env: Mapping[str, str]
    volumes: Mapping[str, Volume]  # keyed by path
    results: Callable[
        [Path], Mapping[str, str]
    ]  # reads the results below a folder, as the host does
    folder: str = ""  # "" for the image's default
    options: Sequence[str] = ()  # podman options for the step's privileges
    entrypoint: str | None = None


class Ran(NamedTuple):
    """The outcome of a step, and the results that it wrote."""

    code: int
    results: Mapping[str, str]
    stdout: str
    stderr: str


def as_process(step: Step, root: Path) -> Ran:
    """Run a step with the locally installed command. `root` replaces the container's root."""
    lay(step, root)
    # Skip a shell that only starts the command, because forks start faster. Image tests cover it.
    script = re.fullmatch(r"set -e\nimage-update ([a-z ]+)", step.command[-1])
    words = [COMMAND, *script[1].split()] if script else step.command
    argv = [command() if word == COMMAND else word for word in words]
    path = f"{Path(command()).parent}:{os.environ['PATH']}"
    env = {
        **os.environ,
        "PATH": path,
        **{name: _below(root, step, value) for name, value in step.env.items()},
    }
    folder = f"{root}{step.folder}" if step.folder else root
    argv = [argv[0], *(_below(root, step, word) for word in argv[1:])]
    if argv[0] == command():
        running = fork_server.start(argv, env=env, cwd=Path(folder))
        out, err = running.communicate(timeout=100)
        done = subprocess.CompletedProcess(argv, running.wait(), out, err)
    else:
        done = subprocess.run(
            argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    return _ran(step, root, done)


def as_container(step: Step, root: Path, image: str, *options: str) -> Ran:
    """Run a step in its image. `options` set the user, because the host chooses it."""
    lay(step, root)
    argv = argv_of(step, root, image, *options)
    done = subprocess.run(
        argv, env=containers.environment(), capture_output=True, timeout=100, check=False
    )
    return _ran(step, root, done)


def argv_of(step: Step, root: Path, image: str, *options: str) -> list[str]:
    """Return the command line that starts the container."""
    words = [f"--env={name}={value}" for name, value in step.env.items()]
    words += [
        f"--volume={root}{path}:{path}{':ro' if one.read_only else ''}"
        for path, one in step.volumes.items()
    ]
    words += [f"--workdir={step.folder}"] if step.folder else []
    start, *rest = step.command
    if step.entrypoint is None:
        words.append(f"--entrypoint={start}")  # `command` in Kubernetes
    else:
        words.append(f"--entrypoint={step.entrypoint}")
        rest = [start, *rest]
    return containers.container(image, *step.options, *options, *words, command=rest)


def lay(step: Step, root: Path) -> None:
    """Write everything that the host mounts to folders below `root`."""
    for path, volume in sorted(step.volumes.items()):
        folder = Path(f"{root}{path}")
        folder.mkdir(parents=True, exist_ok=True)
        (_lay_secret if volume.secret else _lay_files)(folder, volume)
        if os.getuid() == 0:
            for one in (folder, *folder.rglob("*")):
                os.chown(one, volume.owner, volume.group, follow_symlinks=False)


def _lay_files(folder: Path, volume: Volume) -> None:
    folder.chmod(volume.mode)
    for name, text in volume.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def _lay_secret(folder: Path, volume: Volume) -> None:
    """Write links to links to the files, as the kubelet does. The pod's group may read them in any
    mode.
    """
    real = folder / "..2026_01_02_03_04_05.678901234"
    real.mkdir()
    real.chmod(0o755)
    (folder / "..data").symlink_to(real.name)
    for name, text in volume.files.items():
        (real / name).write_text(text, encoding="utf-8")
        (real / name).chmod(volume.mode | (0o440 if volume.group else 0))
        (folder / name).symlink_to(f"..data/{name}")
    folder.chmod(0o1777)


def _below(root: Path, step: Step, value: str) -> str:
    """Return a container path as a path on this machine. Return other values unchanged."""
    mounted = any(value == path or value.startswith(f"{path}/") for path in step.volumes)
    return f"{root}{value}" if mounted else value


def _ran(step: Step, root: Path, done: "subprocess.CompletedProcess[bytes]") -> Ran:
    return Ran(done.returncode, step.results(root), done.stdout.decode(), done.stderr.decode())


def read_files(root: Path, paths: Mapping[str, str]) -> Mapping[str, str]:
    """Return the text of each of these container files that exists, keyed by name."""
    found = {name: Path(f"{root}{path}") for name, path in paths.items()}
    return {name: path.read_bytes().decode() for name, path in found.items() if path.is_file()}


def rights(*contexts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the podman options equivalent to these security contexts. An unknown setting is an
    error.
    """
    context = {key: value for one in contexts for key, value in one.items()}
    given = {
        key: value
        for key, value in context.items()
        if key not in ("runAsNonRoot", "seccompProfile", "fsGroup")
    }
    assert context.get("seccompProfile", {"type": "RuntimeDefault"}) == {"type": "RuntimeDefault"}
    if given.pop("readOnlyRootFilesystem", False):
        yield from ("--read-only", "--read-only-tmpfs=false")
    if not given.pop("allowPrivilegeEscalation", True):
        yield "--security-opt=no-new-privileges"
    for name in given.pop("capabilities", {}).get("drop", ()):
        yield f"--cap-drop={name}"
    if group := context.get("fsGroup"):
        yield f"--group-add={group}"
    assert not given, f"no runner knows {given}"
