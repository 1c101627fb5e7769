"""The shipped GitLab component and check with gitlab-ci-local, an independent pipeline runner."""

import json
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml
from real.programs import installed
from support import AUTHOR, ROOT, commit, git, needs, show
from support.check_scenes import AGREED, EXCLUDED, HELD, STATE, Scene
from support.git_servers import git_server
from support.runs import application, manifest, repository, target

from task import __version__

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("gitlab")]
NAMES = ("STATUS", "UPDATED", "COMMIT", "APPLICATIONS")
AFTER = {
    "stage": "after",
    "script": [f'echo "{name}=$IMAGE_UPDATE_RESULT_{name}" >> {{passed}}' for name in NAMES],
}


class Project:
    """A project that uses the component followed by a job, and a GitOps repository with one
    Application.
    """

    def __init__(self, folder: Path, **inputs: Any) -> None:
        self.folder, self.passed = folder / "project", folder / "passed"
        self.repo = repository(folder, "web")
        (self.folder / "templates").mkdir(parents=True)
        shutil.copy(ROOT / "templates" / "image-update.yml", self.folder / "templates")
        manifest(self.folder, application("web", self.repo))
        given = {
            "applications": "applications.json",
            "options": "--allow-protocol=file\n--registry-check=never",
            **inputs,
        }
        after = {**AFTER, "script": [line.format(passed=self.passed) for line in AFTER["script"]]}
        pipeline = {
            "stages": ["deploy", "after"],
            "include": [{"local": "templates/image-update.yml", "inputs": given}],
            "after": after,
        }
        (self.folder / ".gitlab-ci.yml").write_text(yaml.safe_dump(pipeline))
        git(self.folder, "init", "--quiet", "--initial-branch=main")
        git(self.folder, "remote", "add", "origin", "https://gitlab.example.com/acme/web.git")
        git(self.folder, "add", "--all")
        git(self.folder, "commit", "--quiet", "--message=Start")

    def run(self, *more: str) -> "subprocess.CompletedProcess[str]":
        """Run the pipeline. Scripts run on this machine instead of in the image."""
        needs("rsync")
        path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
        argv = [
            installed("gitlab/node_modules/.bin/gitlab-ci-local"),
            "--force-shell-executor",
            *more,
        ]
        return subprocess.run(
            argv,
            cwd=self.folder,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def results(self) -> dict[str, str]:
        """Return the results that the next job received."""
        return dict(line.split("=", 1) for line in self.passed.read_text().splitlines())


@pytest.fixture
def author(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in AUTHOR.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("author")
def test_an_update_passes_its_results_to_the_next_job(tmp_path: Path) -> None:
    project = Project(tmp_path, image="ghcr.io/acme/web:1.1.0")
    ran = project.run()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "newTag: 1.1.0" in show(project.repo, "main", target("web"))
    results = project.results()
    assert results["COMMIT"] == git(project.repo, "rev-parse", "main")
    assert (results["STATUS"], results["UPDATED"], json.loads(results["APPLICATIONS"])) == (
        "updated", "true", ["argocd/web"],
    )  # fmt: skip


@pytest.mark.usefixtures("author")
def test_a_plan_writes_nothing_to_the_repository(tmp_path: Path) -> None:
    project = Project(tmp_path, image="ghcr.io/acme/web:1.1.0", command="plan")
    ran = project.run()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert git(project.repo, "rev-list", "--count", "main") == "1"
    assert project.results()["UPDATED"] == "false"


@pytest.mark.usefixtures("author")
def test_a_failing_job_stops_the_pipeline(tmp_path: Path) -> None:
    project = Project(tmp_path, image="ghcr.io/acme/other:1.1.0", **{"require-match": "true"})
    ran = project.run()
    assert ran.returncode != 0
    assert "no Application tracks ghcr.io/acme/other" in ran.stdout + ran.stderr
    assert not project.passed.exists()


@pytest.mark.usefixtures("author")
@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"command": "destroy"}, "`destroy` cannot be used"),
        ({"wait": True}, "`wait` input: provided value is not a string"),
    ],
)
def test_invalid_inputs_prevent_the_pipeline_from_starting(
    tmp_path: Path, inputs: dict[str, str], said: str
) -> None:
    project = Project(tmp_path, image="ghcr.io/acme/web:1.1.0", **inputs)
    ran = project.run()
    assert ran.returncode != 0
    assert said in ran.stdout + ran.stderr
    assert not project.passed.exists()


@pytest.mark.usefixtures("author")
def test_each_command_of_the_manual_pipeline_works(tmp_path: Path) -> None:
    """The ready-made file for manual pipelines, with the variables that people would enter."""
    project = Project(tmp_path, image="ghcr.io/acme/web:1.1.0")
    other = repository(tmp_path, "other", name="other.git")
    manifest(project.folder, application("web", project.repo), application("other", other))
    assert project.run("image-update").returncode == 0
    text = (ROOT / "examples/gitlab/by-hand.yml").read_text()
    used = "component: $CI_SERVER_FQDN/argocd-image-update/image-update/image-update@" + __version__
    assert text.count(used) == 4
    text = text.replace(used, "local: templates/image-update.yml")
    text = text.replace("$CI_PROJECT_URL.git//applications?ref=main", "applications.json")
    (project.folder / ".gitlab-ci.yml").write_text(text)
    git(project.folder, "add", "--all")
    git(project.folder, "commit", "--quiet", "--message=By hand")
    fixed = (
        "CI_PIPELINE_SOURCE=web",
        "IMAGE_UPDATE_ALLOW_PROTOCOL=file",
        "IMAGE_UPDATE_REGISTRY_CHECK=never",
    )
    words = "--no-hold; `id` 'a' \"b\" \\n::error::x"
    for job, given, tag in (
        ("roll back", {"NAMES": "argocd/web", "REASON": words}, "1.0.0"),
        ("hold", {"NAMES": "web", "ALIAS": "web", "REASON": words, "UNTIL": "3d"}, "1.0.0"),
        ("release", {"NAMES": "web", "DISCARD": "true"}, "1.0.0"),
        ("promote", {"FROM": "web", "TO": "other", "REGISTRY_CHECK": "auto"}, "1.0.0"),
    ):
        variables = [*fixed, *(f"{name}={value}" for name, value in given.items())]
        ran = project.run(job, *(word for one in variables for word in ("--variable", one)))
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert f"newTag: {tag}" in show(project.repo, "main", target("web"))
        if "REASON" in given:
            assert words in git(project.repo, "log", "-1", "--format=%B", "main").replace("\n", " ")


@pytest.mark.usefixtures("author")
@pytest.mark.parametrize(
    ("inputs", "code", "said"),
    [
        ({"command": "status", "names": "web"}, 0, "argocd/web"),
        (
            {"command": "scan"},
            2,
            "scan cannot work without the registries",
        ),
        (
            {"command": "wait", "names": "web", "revision": "a" * 40, "options": ""},
            2,
            "cannot tell which Argo CD to query",
        ),
        (
            {"command": "rollback", "names": "web", "to": "1.0.0", "image": "x:1"},
            2,
            "image: not a parameter of",
        ),
        (
            {"command": "run", "image": "x:1", "names": "web"},
            2,
            "names: not a parameter of run",
        ),
    ],
    ids=["status", "scan", "wait", "image", "names"],
)
def test_each_other_command_ends_with_the_expected_code_and_message(
    tmp_path: Path, inputs: dict[str, str], code: int, said: str
) -> None:
    project = Project(tmp_path, **inputs)
    ran = project.run()
    assert (bool(ran.returncode), said in ran.stdout + ran.stderr) == (bool(code), True), (
        ran.stdout + ran.stderr
    )
    assert git(project.repo, "rev-list", "--count", "main") == "1"
    if not code:
        assert (project.results()["STATUS"], project.results()["UPDATED"]) == ("unchanged", "false")


@pytest.mark.parametrize("kind", ["detached", "merged_result"])
def test_the_ready_made_check_covers_merge_requests(tmp_path: Path, kind: str) -> None:
    """The ready-made file is used unchanged, except that the component is local."""
    needs("rsync")
    text = (ROOT / "examples/gitlab/check.yml").read_text()
    used = "component: $CI_SERVER_FQDN/argocd-image-update/image-update/image-update@" + __version__
    assert text.count(used) == 1
    files = {
        ".gitlab-ci.yml": "include: [{local: ci/check.yml}]\n",
        "ci/check.yml": text.replace(used, "local: templates/image-update.yml"),
        "templates/image-update.yml": (ROOT / "templates/image-update.yml").read_text(),
    }
    with git_server(tmp_path) as server:
        scene = Scene(tmp_path, f"{server.url}gitops.git", **files)
        agreed = _checked(scene, scene.change(AGREED), kind)
        assert agreed.returncode == 0, agreed.stdout + agreed.stderr
        (admitted,) = json.loads((_root(scene) / "code-quality.json").read_text())
        assert (admitted["check_name"], admitted["severity"]) == ("admitted", "info")
        excluded = _checked(scene, scene.change(EXCLUDED), kind)
        assert excluded.returncode != 0
        assert "2.0.0 does not satisfy ^1" in excluded.stdout + excluded.stderr
        (problem,) = json.loads((_root(scene) / "code-quality.json").read_text())
        assert problem["location"] == {"path": target("web"), "lines": {"begin": 4}}
        commit(scene.repo, {STATE: HELD})
        held = _checked(scene, scene.change(AGREED), kind)
        assert held.returncode != 0
        assert "held by jane since" in held.stdout + held.stderr


def _root(scene: Scene) -> Path:
    return scene.folder / f"root-{scene.count}" / "project"


def _checked(scene: Scene, head: str, kind: str) -> "subprocess.CompletedProcess[str]":
    """Run the merge request job, in a checkout like that of GitLab's runner: a single commit."""
    sha = scene.merge(head) if kind == "merged_result" else head
    scene.checkout("/project", sha)
    variables = {
        "CI_PIPELINE_SOURCE": "merge_request_event",
        "CI_MERGE_REQUEST_EVENT_TYPE": kind,
        "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
        "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": head if kind == "merged_result" else "",
        "CI_COMMIT_SHA": sha,
        "CI_JOB_TOKEN": "a-token",
        # the server does not use TLS, and no registry is available
        "IMAGE_UPDATE_ALLOW_PROTOCOL": "http",
        "IMAGE_UPDATE_REGISTRY_CHECK": "never",
        "IMAGE_UPDATE_GIT_CREDENTIALS_URL": scene.url,
    }
    argv = [
        installed("gitlab/node_modules/.bin/gitlab-ci-local"),
        "--force-shell-executor",
        "check",
    ]
    argv += [word for name, text in variables.items() for word in ("--variable", f"{name}={text}")]
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        argv,
        cwd=_root(scene),
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
