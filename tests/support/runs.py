"""Scenes for tests of whole runs: repositories with Applications, and runs that a test can watch
and stop.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator

from support import ROOT, Result, bare_repo, command, fork_server, image_update
from support.fork_server import Running

WEB = "ghcr.io/acme/web"
IMAGE = f"{WEB}:1.1.0"
PREFIX = "argocd-image-updater.argoproj.io/"
REPORT = Draft7Validator(json.loads((ROOT / "task" / "schemas" / "report.v1.json").read_text()))
KUSTOMIZATION = "resources: []\nimages:\n- name: ghcr.io/acme/web\n  newTag: 1.0.0\n"


def target(name: str) -> str:
    """Return the path of the file that contains the Application's tag."""
    return f"apps/{name}/kustomization.yaml"


def repository(folder: Path, *names: str, name: str = "repo.git") -> Path:
    """Create a repository with the folders of these Applications."""
    return bare_repo(folder, {target(one): KUSTOMIZATION for one in names}, name=name)


def application(
    name: str,
    repo: Path | str,
    *,
    namespace: str = "argocd",
    revision: str = "main",
    path: str | None = None,
    **annotations: str,
) -> dict[str, Any]:
    """Return an Application that is updated in its kustomization.

    In the name of an annotation, `_` stands for a hyphen, and `__` for a dot. An annotation with
    the value "" is left out.
    """
    given = {"image_list": f"web={WEB}", "write_back_target": "kustomization", **annotations}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {
                PREFIX + key.replace("__", ".").replace("_", "-"): value
                for key, value in given.items()
                if value
            },
        },
        "spec": {
            "source": {
                "repoURL": str(repo),
                "path": f"apps/{name}" if path is None else path,
                "targetRevision": revision,
            }
        },
    }


def manifest(folder: Path, *apps: dict[str, Any], name: str = "applications.json") -> Path:
    """Write a file with these Applications, and return its path."""
    path = folder / name
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": apps}))
    return path


def arguments(apps: Path | str, *more: str | Path, image: str = f"{WEB}:1.1.0") -> list[str]:
    """Return the command-line arguments of a run with local repositories."""
    given = (
        "run",
        "--image",
        image,
        "--applications",
        apps,
        "--allow-protocol",
        "file",
        "--output",
        "json",
        *more,
    )
    return [str(one) for one in given]


def run(
    *more: str | Path,
    command: str = "run",
    image: str = IMAGE,
    env: Mapping[str, str] | None = None,
    **others: Any,
) -> Result:
    """Run the command with an image. The command prints its report as JSON, which is checked
    against the report's schema.
    """
    given = ("--image", image) if command in ("run", "plan") else ()
    words = (command, *given, "--allow-protocol", "file", "--output", "json", *more)
    result = image_update(*words, env={"NO_COLOR": "1", **(env or {})}, **others)
    if given and result.stdout.startswith("{"):
        REPORT.validate(result.json)
    return result


def start(args: list[str], *before: str, env: Mapping[str, str] | None = None) -> Running:
    """Start the command. `before` is the program that launches it."""
    # Do not measure coverage: the measurement takes locks and runs code at exit, but these
    # processes fork from threads and are killed.
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")
    } | dict(env or {})
    if not before:
        return fork_server.start([command(), *args], env=environ)
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*before, command(), *args], env=environ, stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL
    )


def wait_until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait until the condition becomes true because of something in another process."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Return whether a process is running. A zombie is not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def hook(repo: Path, name: str, script: str) -> Path:
    """Write a server-side hook, and return its path."""
    path = repo / "hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, which must be empty when the block ends."""
    path = folder / "scratch"
    path.mkdir()
    yield path
    assert list(path.iterdir()) == []
