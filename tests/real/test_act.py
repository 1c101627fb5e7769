"""The shipped action and check, run in podman with act, an independent workflow runner."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hosts.images import ROOT_ONLY
from real.programs import installed
from support import AUTHOR, ROOT, commit, git, needs, show
from support.check_scenes import AGREED, EXCLUDED, HELD, STATE, Scene
from support.git_servers import git_server
from support.real_servers import started
from support.runs import application, manifest, repository, target

from scripts import containers

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("image"),
    ROOT_ONLY,
]
PLACE = "https://git.example.com/"
NAMES = ("status", "updated", "commit", "applications")
LIMITS = '[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=10000:10000"]\n'  # as in `containers.container`


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of podman's Docker-compatible API, which provides the action's image by
    name.
    """
    for program in containers.PROGRAMS:
        needs(program)
    folder, environment = tmp_path_factory.mktemp("act"), dict(containers.environment())
    image = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["image"].removeprefix(
        "docker://"
    )
    tag = containers.podman("tag", containers.build("action"), image)
    subprocess.run(tag, env=environment, check=True, capture_output=True)
    conf = folder / "containers.conf"
    conf.write_text(LIMITS + Path(environment["CONTAINERS_CONF"]).read_text())
    environment["CONTAINERS_CONF"] = str(conf)
    socket = folder / "podman.sock"
    service = containers.podman("system", "service", "--time=0", f"unix://{socket}")
    with started(
        ["env", *(f"{name}={value}" for name, value in environment.items()), *service],
        socket,
        folder / "log",
    ):
        yield f"unix://{socket}"


class Project:
    """A project with a workflow that uses the action, and a GitOps repository next to it."""

    def __init__(self, folder: Path, docker: str, **given: str) -> None:
        self.folder, self.docker = folder / "project", docker
        self.folder.mkdir()
        self.repo = repository(self.folder, "web")
        (self.folder / "action").mkdir()
        shutil.copy(ROOT / "action.yml", self.folder / "action")
        manifest(self.folder, application("web", f"{PLACE}repo.git"))
        workflows = self.folder / ".github" / "workflows"
        workflows.mkdir(parents=True)
        (workflows / "update.yml").write_text(yaml.safe_dump(_workflow(given)))
        git(self.folder, "init", "--quiet", "--initial-branch=main")
        git(self.folder, "remote", "add", "origin", "https://github.com/acme/web.git")
        git(self.folder, "add", "--", ".github", "action", "applications.json")
        git(self.folder, "commit", "--quiet", "--message=Start")

    def run(self, *event: str) -> "subprocess.CompletedProcess[str]":
        """Run the workflow. The jobs also run in the action's image, which contains git and a
        shell.
        """
        image = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["image"].removeprefix(
            "docker://"
        )
        offline = (
            "--pull=false",
            "--action-offline-mode",
            "--container-daemon-socket=-",
            "--bind",
            "--network=host",
        )
        argv = [
            installed("bin/act"),
            *(event or ("push",)),
            f"--platform=ubuntu-latest={image}",
            *offline,
        ]
        env = {**os.environ, "DOCKER_HOST": self.docker}
        return subprocess.run(
            argv, cwd=self.folder, env=env, capture_output=True, text=True, timeout=200, check=False
        )

    def results(self) -> dict[str, str]:
        """Return the results that the next step received."""
        lines = (self.folder / "passed").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)


def _workflow(given: Mapping[str, str]) -> Any:
    inputs = {
        "applications": "applications.json",
        "options": "--registry-check=never\n--allow-protocol=file\n"
        f"--rewrite-url={PLACE}=${{{{ github.workspace }}}}/",
        **given,
    }
    outputs = {name.upper(): "${{ steps.update.outputs." + name + " }}" for name in NAMES}
    script = "".join(f'echo "{name}=${name.upper()}" >> passed\n' for name in NAMES)
    steps = [
        {"id": "update", "uses": "./action", "with": inputs},
        {"run": script, "shell": "sh", "env": outputs},
    ]
    return {"on": "push", "jobs": {"update": {"runs-on": "ubuntu-latest", "steps": steps}}}


@pytest.fixture(autouse=True)
def author(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in AUTHOR.items():
        monkeypatch.setenv(name, value)


def test_an_update_passes_its_results_to_the_next_step(docker: str, tmp_path: Path) -> None:
    project = Project(tmp_path, docker, image="ghcr.io/acme/web:1.1.0")
    ran = project.run()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "newTag: 1.1.0" in show(project.repo, "main", target("web"))
    results = project.results()
    assert results["commit"] == git(project.repo, "rev-parse", "main")
    assert (results["status"], results["updated"], json.loads(results["applications"])) == (
        "updated", "true", ["argocd/web"],
    )  # fmt: skip
    assert "### Image Update: 1 updated" in ran.stdout  # the step summary


def test_a_failing_step_stops_the_job(docker: str, tmp_path: Path) -> None:
    project = Project(
        tmp_path, docker, image="ghcr.io/acme/other:1.1.0", **{"require-match": "true"}
    )
    ran = project.run()
    assert ran.returncode != 0
    assert "no Application tracks ghcr.io/acme/other" in ran.stdout
    assert not (project.folder / "passed").exists()


def test_each_command_of_the_manual_workflow_works(docker: str, tmp_path: Path) -> None:
    """The ready-made file for manual runs, with the values that people would enter in its form."""
    project = Project(tmp_path, docker, image="ghcr.io/acme/web:1.1.0")
    other = repository(project.folder, "other", name="other.git")
    apps = (application("web", f"{PLACE}repo.git"), application("other", f"{PLACE}{other.name}"))
    manifest(project.folder, *apps)
    assert project.run().returncode == 0
    text = (ROOT / "examples/github/by-hand.yml").read_text()
    (used,) = (
        line for line in text.splitlines() if "uses: argocd-image-update/image-update@" in line
    )
    (read,) = (line for line in text.splitlines() if "applications: " in line)
    text = text.replace(used, "        uses: ./action").replace(
        read, "          applications: applications.json"
    )
    workflow = yaml.safe_load(text)
    workflow["on"] = workflow.pop(True)  # YAML 1.1 parses `on` as a boolean
    rewrite = PLACE + "=${{ github.workspace }}/"
    workflow["env"] = {  # set for the whole pipeline
        "IMAGE_UPDATE_ALLOW_PROTOCOL": "file", "IMAGE_UPDATE_REWRITE_URL": rewrite,
        "IMAGE_UPDATE_REGISTRY_CHECK": "never", "IMAGE_UPDATE_REQUIRE_MATCH": "true",
    }  # fmt: skip
    (project.folder / ".github/workflows/update.yml").write_text(yaml.safe_dump(workflow))
    words = "--no-hold; $(touch x) `id` 'a' \"b\" \\"
    for command, given in (
        ("rollback", {"names": "argocd/web", "to": "previous", "reason": words}),
        ("hold", {"names": "web", "alias": "web", "reason": words, "until": "3d"}),
        ("release", {"names": "web", "discard": "true"}),
        ("promote", {"from": "web", "to": "other", "registry-check": "auto"}),
    ):
        (project.folder / "event.json").write_text(
            json.dumps({"inputs": {"command": command, **given}})
        )
        ran = project.run("workflow_dispatch", "--eventpath=event.json", "--actor=ann")
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "newTag: 1.0.0" in show(project.repo, "main", target("web"))
        if "reason" in given:
            message = git(project.repo, "log", "-1", "--format=%B", "main").replace("\n", " ")
            assert (words in message, "by ann" in message) == (True, True), message
    (project.folder / "event.json").write_text(
        json.dumps({"inputs": {"command": "hold", "names": "web", "reason": "x", "to": "previous"}})
    )
    ran = project.run("workflow_dispatch", "--eventpath=event.json")
    assert (bool(ran.returncode), "to: not a parameter of hold" in ran.stdout) == (
        True,
        True,
    ), ran.stdout


CHECK = ".github/workflows/check.yml"


@pytest.fixture
def gitops(tmp_path: Path) -> Iterator[Scene]:
    """Yield a GitOps repository on a server, with the unchanged ready-made workflow."""
    with git_server(tmp_path) as server:
        text = (ROOT / "examples/github/check.yml").read_text()
        yield Scene(tmp_path, f"{server.url}gitops.git", **{CHECK: text})


def checked(
    scene: Scene, docker: str, name: str, sha: str, event: Mapping[str, Any]
) -> "subprocess.CompletedProcess[str]":
    """Run the workflow for an event, in a checkout as by `actions/checkout`: a single commit.

    act does not run `actions/checkout` for its own repository, but uses the local action.
    """
    root = scene.checkout("/project", sha) / "project"
    (root.parent / "event.json").write_text(json.dumps(event))
    action = root.parent / "action"
    action.mkdir()
    shutil.copy(ROOT / "action.yml", action)
    (used,) = (
        line.split()[2]
        for line in (root / CHECK).read_text().splitlines()
        if "argocd-image-update/" in line
    )
    image = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["image"]
    argv = [
        installed("bin/act"),
        name,
        f"--platform=ubuntu-latest={image.removeprefix('docker://')}",
        f"--local-repository={used}={action}",
        f"--eventpath={root.parent / 'event.json'}",
        # the server does not use TLS, and no registry is available
        "--env=IMAGE_UPDATE_ALLOW_PROTOCOL=http",
        "--env=IMAGE_UPDATE_REGISTRY_CHECK=never",
        "--pull=false",
        "--action-offline-mode",
        "--container-daemon-socket=-",
        "--bind",
        "--network=host",
    ]
    env = {**os.environ, "DOCKER_HOST": docker}
    return subprocess.run(
        argv, cwd=root, env=env, capture_output=True, text=True, timeout=200, check=False
    )


def of_request(scene: Scene, docker: str, head: str) -> "subprocess.CompletedProcess[str]":
    event = {
        "number": 7,
        "pull_request": {"number": 7, "base": {"ref": "main"}, "head": {"sha": head}},
    }
    return checked(scene, docker, "pull_request", scene.merge(head), event)


def of_queue(scene: Scene, docker: str, head: str) -> "subprocess.CompletedProcess[str]":
    group = {
        "base_sha": git(scene.repo, "rev-parse", "main"),
        "base_ref": "refs/heads/main",
        "head_sha": head,
    }
    return checked(scene, docker, "merge_group", head, {"merge_group": group})


@pytest.mark.parametrize("event", [of_request, of_queue])
def test_the_ready_made_check_covers_pull_requests_and_merge_queues(
    docker: str, gitops: Scene, event: Any
) -> None:
    agreed = event(gitops, docker, gitops.change(AGREED))
    assert agreed.returncode == 0, agreed.stdout + agreed.stderr
    assert "set-output:: message=1 admitted" in agreed.stdout, agreed.stdout
    excluded = event(gitops, docker, gitops.change(EXCLUDED))
    assert excluded.returncode != 0
    line = "::error file=apps/web/kustomization.yaml,line=4,title=argocd/web::"
    assert f"{line}argocd/web: 2.0.0 does not satisfy ^1" in excluded.stdout
    commit(gitops.repo, {STATE: HELD})
    held = event(gitops, docker, gitops.change(AGREED))
    assert held.returncode != 0
    assert f"{line}argocd/web: held by jane since" in held.stdout
