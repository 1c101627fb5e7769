"""The guide for systems that run `docker`: its scripts work with the image that is built here.

The systems themselves are not used. Their documentation (November 2026) describes which shell runs
a script, what becomes a variable in a later step, and what the script's exit code means.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from hosts.images import real
from support import ROOT, bare_repo, git
from support.git_servers import git_server
from support.runs import application

from scripts import containers
from scripts.transcripts import blocks
from scripts.typer_options import options_of
from task import __version__

PAGE = (ROOT / "docs/how-to/docker.md").read_text(encoding="utf-8")
IMAGE = f"ghcr.io/argocd-image-update/image-update:v{__version__}"
SERVER = "https://git.example.com"
TOKEN = "glpat-of-the-pipeline"
COMMIT = "4f2a9c1d5e6b7a8c9d0e1f2a3b4c5d6e7f8a9b0c"
FILES = {"apps/web/kustomization.yaml": "images:\n- name: ghcr.io/acme/web\n  newTag: 1.0.0\n"}


class System(NamedTuple):
    """A CI system: the script of its first step, and the values that its second step reads."""

    script: str
    shell: tuple[str, ...]
    variables: Mapping[str, str]  # set by the system or on the page
    later: Callable[
        [Path, str], tuple[str, Mapping[str, str]]
    ]  # (folder, stdout) → the next step's script and variables
    run: str  # the link to the CI run that the commit contains


def shown(heading: str) -> str:
    """Return the code block below a heading."""
    (block,) = blocks(PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0])
    return block.code


def jenkins() -> System:
    groovy = shown("Jenkins")
    (script,) = re.findall(r"script: '''(.*?)'''", groovy, re.DOTALL)
    (image,) = re.findall(r'IMAGE = "([^"]+)"', groovy)
    files = dict(re.findall(r"env\.(\w+) = readFile '([^']+)'", groovy))
    (last,) = re.findall(r"steps \{ sh '([^']+)' \}", groovy)
    return System(
        script.replace("\\\n", ""),  # as parsed by Groovy
        ("sh", "-xec"),
        {
            "IMAGE": image.replace("${env.TAG_NAME}", "1.1.0"),
            "GIT_COMMIT": COMMIT,
            "GIT_URL": "https://git.example.org/acme/web.git",
            "BUILD_URL": "https://jenkins.example.com/job/web/7/",
            "BUILD_NUMBER": "7",
            "JOB_URL": "https://jenkins.example.com/job/web/",
        },
        lambda folder, _: (
            last,
            {name: (folder / path).read_text() for name, path in files.items()},
        ),
        "https://jenkins.example.com/job/web/7/",
    )


def azure() -> System:
    first, second = yaml.safe_load(shown("Azure Pipelines"))["steps"]
    assert first["env"]["IMAGE_UPDATE_GIT_TOKEN"] == "$(gitops-token)"

    def later(_folder: Path, said: str) -> tuple[str, Mapping[str, str]]:
        told = dict(
            re.findall(
                r"^##vso\[task\.setvariable variable=(\w+);isOutput=true\](.*)$", said, re.MULTILINE
            )
        )
        told = {f"{first['name']}.{name}": text for name, text in told.items()}
        assert second["condition"] == "and(succeeded(), eq(variables['update.updated'], 'true'))"
        env = {name: told[text[2:-1]] for name, text in second["env"].items()}  # $(update.commit)
        return second["bash"], {**env, "UPDATED": told["update.updated"]}

    return System(
        first["bash"],
        ("bash", "-c"),
        {
            "IMAGE": first["env"]["IMAGE"].replace("$(Build.SourceBranchName)", "1.1.0"),
            "BUILD_SOURCEVERSION": COMMIT,
            "BUILD_REPOSITORY_URI": "https://dev.azure.com/acme/_git/web",
            "BUILD_BUILDID": "7",
            "SYSTEM_COLLECTIONURI": "https://dev.azure.com/acme/",
            "SYSTEM_TEAMPROJECT": "web",
        },
        later,
        "https://dev.azure.com/acme/web/_build/results?buildId=7",
    )


def bitbucket() -> System:
    first, second = (
        one["step"]
        for one in yaml.safe_load(shown("Bitbucket Pipelines"))["pipelines"]["tags"]["v*"]
    )
    assert first["artifacts"] == ["results/**"]
    return System(
        "\n".join(first["script"]),
        ("bash", "-ec"),
        {
            "BITBUCKET_TAG": "1.1.0",
            "BITBUCKET_COMMIT": COMMIT,
            "BITBUCKET_GIT_HTTP_ORIGIN": "https://bitbucket.org/acme/web",
            "BITBUCKET_BUILD_NUMBER": "7",
        },
        lambda _folder, _said: ("\n".join(second["script"]), {}),
        "https://bitbucket.org/acme/web/pipelines/results/7",
    )


def circleci() -> System:
    first, second = (
        one["run"] for one in yaml.safe_load(shown("CircleCI"))["jobs"]["update"]["steps"]
    )
    assert first["environment"] == {"IMAGE_UPDATE_SEQUENCE": "<< pipeline.number >>"}
    return System(
        first["command"],
        ("bash", "-eo", "pipefail", "-c"),
        {
            "CIRCLE_TAG": "1.1.0",
            "CIRCLE_SHA1": COMMIT,
            "CIRCLE_REPOSITORY_URL": "https://git.example.org/acme/web",
            "CIRCLE_BUILD_URL": "https://circleci.com/gh/acme/web/7",
            "IMAGE_UPDATE_SEQUENCE": "7",
        },
        lambda folder, _: (f". {folder}/bash_env\n{second['command']}", {}),
        "https://circleci.com/gh/acme/web/7",
    )


SYSTEMS: Mapping[str, Callable[[], System]] = {
    "jenkins": jenkins,
    "azure": azure,
    "bitbucket": bitbucket,
    "circleci": circleci,
}
EACH = pytest.mark.parametrize("name", SYSTEMS)


class Step(NamedTuple):
    """The outcome of a step."""

    code: int
    stdout: str
    stderr: str


def step(
    system: System, folder: Path, docker: str, server: str = SERVER, image: str = IMAGE
) -> Step:
    """Run a pipeline's first step with this shell script in place of `docker`."""
    (folder / "bin").mkdir()
    (folder / "bin/docker").write_text(f"#!/bin/sh\n{docker}\n", encoding="utf-8")
    (folder / "bin/docker").chmod(0o755)
    work = folder / "work"
    work.mkdir(mode=0o755)
    variables = {
        **system.variables,
        "BITBUCKET_CLONE_DIR": str(work),
        "BASH_ENV": str(work / "bash_env"),
    }
    variables |= {"IMAGE_UPDATE_GIT_TOKEN": TOKEN, "PATH": f"{folder}/bin:{os.environ['PATH']}"}
    script = system.script.replace(SERVER, server).replace(IMAGE, image)
    environ = {**containers.environment(), **variables}
    done = subprocess.run(
        [*system.shell, script], cwd=work, env=environ, capture_output=True, text=True, check=False
    )
    return Step(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Yield a Git server that requires the token. Its repository contains the Application."""
    (tmp_path / "served").mkdir()
    with git_server(tmp_path / "served") as serving:
        serving.logins = {"x-access-token": TOKEN}
        app = application("web", f"{serving.url}gitops.git")
        repo = bare_repo(
            tmp_path / "served",
            {**FILES, "applications/web.yaml": yaml.safe_dump(app)},
            name="gitops.git",
        )
        yield serving.url.rstrip("/"), repo


@real
@EACH
def test_each_script_in_the_guide_makes_an_update(
    runtime: str, server: tuple[str, Path], tmp_path: Path, name: str
) -> None:
    system, (url, repo) = SYSTEMS[name](), server
    *words, _ = containers.container(runtime)
    done = step(system, tmp_path, f'shift; exec {shlex.join(words)} "$@"', url, runtime)
    assert done.code == 0, done.stderr
    commit = git(repo, "rev-parse", "main")
    message = git(repo, "log", "-1", "--format=%B", "main")
    assert f"Pipeline-Run: {system.run}" in message
    assert COMMIT in message
    assert TOKEN not in done.stdout + done.stderr
    script, variables = system.later(tmp_path / "work", done.stdout)
    environ = {**os.environ, **variables}
    after = subprocess.run(
        [*system.shell, script],
        cwd=tmp_path / "work",
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert after.stdout == f"deployed by {commit}\n"
    assert variables.get("UPDATED", "true") == "true"


@EACH
def test_the_script_exits_with_the_runs_exit_code(tmp_path: Path, name: str) -> None:
    docker = "printf false > results/updated; : > results/commit; exit 75"
    assert step(SYSTEMS[name](), tmp_path, docker).code == 75


@EACH
def test_the_docker_command_contains_no_secret_and_only_known_options(
    tmp_path: Path, name: str
) -> None:
    argv = tmp_path / "argv"
    step(
        SYSTEMS[name](),
        tmp_path,
        f"""printf '%s\\n' "$@" > {argv}; printf x > results/updated; : > results/commit""",
    )
    words = argv.read_text().splitlines()
    assert TOKEN not in argv.read_text()
    given = [word for word in words[words.index(IMAGE) + 1 :] if word.startswith("--")]
    assert set(given) <= {one.opts[0] for one in options_of("run")}
    handed: set[Any] = {words[at + 1] for at, word in enumerate(words) if word == "--env"}
    assert handed - {"IMAGE_UPDATE_GIT_TOKEN"} == set(SYSTEMS[name]().variables) - {
        "IMAGE",
        "BITBUCKET_TAG",
        "CIRCLE_TAG",
    }
