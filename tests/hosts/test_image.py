"""The image built from the Dockerfile: contents, and behavior as a container's process 1."""

import json
import os
import re
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hosts import runners
from hosts.images import APPLICATIONS, OPENSHIFT, STRANGER, real, said
from hosts.steps import COMMAND, Step, Volume, argv_of, lay
from support import ROOT, needs
from support.runs import WEB, application

from scripts import containers
from task import __version__
from task.ci.publish import NAMES

# Checks that do not need the image


def test_hadolint_finds_no_problems_in_the_dockerfile() -> None:
    done = subprocess.run(
        [*needs("hadolint"), str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_base_image_is_pinned_and_replaceable() -> None:
    text = (ROOT / "Dockerfile").read_text()
    (name,) = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", text, re.MULTILINE)
    assert re.fullmatch(
        r"docker\.io/library/python:\d+\.\d+\.\d+-[\w.-]+@sha256:[0-9a-f]{64}", name
    )
    stages = re.findall(r"^FROM (\S+)(?: AS (\w+))?$", text, re.MULTILINE)
    assert {base for base, _ in stages} == {"${PYTHON_IMAGE}", "runtime"}
    assert [stage for _, stage in stages] == ["builder", "git", "runtime", "action", ""]
    assert stages[-1][0] == "runtime"
    assert f"ARG VERSION={__version__}\n" in text


def test_renovate_updates_the_base_images_digest() -> None:
    """Renovate reads the default of an ARG used in FROM. Dependabot does not, and only updates
    actions.
    """
    renovate = json.loads((ROOT / ".github/renovate.json").read_text(encoding="utf-8"))
    assert renovate["enabledManagers"] == ["dockerfile"]
    assert renovate["dockerfile"]["pinDigests"] is True
    dependabot = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text(encoding="utf-8"))
    assert "docker" not in {one["package-ecosystem"] for one in dependabot["updates"]}


# The image itself


def shell(image: str, script: str, *options: str) -> str:
    """Return a script's output in a container with a read-only root, run by a nameless user."""
    nobody = (*STRANGER, "--entrypoint=/bin/sh")
    return said(*containers.run(image, *nobody, *options, command=("-c", script)))


def configuration(image: str) -> Any:
    return json.loads(said(*containers.podman("image", "inspect", image)))[0]["Config"]


@real
@pytest.mark.parametrize(
    ("wanted", "user", "folder"), [("runtime", "65532:0", "/home/nonroot"), ("action", "0:0", "/")]
)
def test_each_image_runs_as_the_expected_user(
    built: Callable[[str], str], wanted: str, user: str, folder: str
) -> None:
    found = configuration(built(wanted))
    assert (found["User"], found["WorkingDir"]) == (user, folder)
    assert found["Entrypoint"] == [COMMAND]
    assert "Cmd" not in found or not found["Cmd"]


@real
def test_the_image_has_the_standard_labels(runtime: str) -> None:
    prefix = "org.opencontainers.image."
    labels = {
        name.removeprefix(prefix): text for name, text in configuration(runtime)["Labels"].items()
    }
    told = {name for name, text in labels.items() if text}
    assert {
        "title",
        "description",
        "url",
        "source",
        "documentation",
        "vendor",
        "licenses",
        "version",
    } <= told
    assert (labels["version"], labels["base.name"]) == (__version__, containers.BASE)


@real
def test_the_image_contains_every_program_that_a_run_may_start(runtime: str) -> None:
    shell(
        runtime, "for one in git ssh ssh-keygen gpg gpg-agent; do command -v $one || exit 1; done"
    )


@real
def test_the_image_is_only_slightly_larger_than_its_base(runtime: str) -> None:
    """The base is as small as the official slim image: no perl, no documentation, no bytecode."""
    assert containers.size(runtime) - containers.size(containers.BASE) < 130_000_000
    found = shell(
        runtime,
        "ls /usr/lib/git-core; ls -d /usr/share/perl /usr/share/man/man1 /usr/share/locale/de; :; "
        "cat /var/lib/dpkg/status.d/git",
        "--env=LC_ALL=C",
    )
    assert found.startswith(
        "git-remote-http\ngit-remote-https\nPackage: git\nVersion: "
    )  # vulnerability scanners read the second file


@real
def test_every_module_in_the_image_is_precompiled(runtime: str) -> None:
    script = "PYTHONVERBOSE=1 image-update run --help 2>&1; PYTHONVERBOSE=1 image-update lint --applications / 2>&1; :"
    log = shell(runtime, script)
    loaded = re.findall(r"^# code object from '?([^'\n]+?)'?$", log, re.MULTILINE)
    assert any("/task/cli/__pycache__/app." in path for path in loaded)
    assert [path for path in loaded if not path.endswith(".pyc")] == []


@real
def test_the_image_contains_the_package_but_not_the_checkout(runtime: str) -> None:
    found = shell(
        runtime,
        "find / -xdev -name 'test_image*' -o -xdev -name 'requirements*.lock' -o -path /src; ls /opt",
    )
    assert found.split() == ["image-update"]


@real
def test_a_user_without_a_name_can_write_to_the_home_folder(runtime: str) -> None:
    script = "touch /home/nonroot/x && rm /home/nonroot/x && echo written"
    nobody = (*STRANGER, "--entrypoint=/bin/sh")
    assert said(*containers.container(runtime, *nobody, command=("-c", script))) == "written\n"


# As process 1


@real
@pytest.mark.parametrize("user", ["65532:0", f"{OPENSHIFT}:0"])
def test_the_container_stops_immediately_on_a_signal(
    runtime: str, tmp_path: Path, user: str
) -> None:
    with socket.create_server(
        ("127.0.0.1", 0)
    ) as server:  # the server accepts the connection, but sends nothing
        stalled = f"https://127.0.0.1:{server.getsockname()[1]}/repo.git"
        apps = json.dumps({"kind": "List", "items": [application("web", stalled)]})
        given = {"image": f"{WEB}:1.1.0", "applications": APPLICATIONS}
        step = runners.tekton(given, {"source": Volume({APPLICATIONS: apps})})
        code = stopped(step, tmp_path, runtime, user, server)
    told = step.results(tmp_path)
    assert code == 143  # before the server sends anything
    assert set(told) == set(NAMES)
    assert (told["status"], told["updated"]) == ("failed", "false")


def stopped(step: Step, root: Path, image: str, user: str, server: socket.socket) -> int:
    """Return the exit code after a SIGTERM that arrives while the run waits for the server."""
    name = f"image-update-{os.urandom(4).hex()}"
    lay(step, root)
    argv = argv_of(step, root, image, f"--user={user}", "--passwd=false", f"--name={name}")
    server.settimeout(60)
    with (
        subprocess.Popen(argv, env=containers.environment(), stdout=-3, stderr=-3) as process,
        server.accept()[0],
    ):
        said(*containers.podman("kill", "--signal=TERM", name))
        return process.wait(30)
