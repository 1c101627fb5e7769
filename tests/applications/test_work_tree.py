"""Real work trees, as created by a CI checkout."""

import os
from pathlib import Path

import pytest
from support import bare_repo, git

from task.applications.work_tree import Located, locate
from task.git.command import Git

FILES = {"releases/web.yaml": "kind: HelmRelease\n", "top.yaml": "kind: HelmRelease\n"}


@pytest.fixture
def door() -> Git:
    return Git(os.environ)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    repo = bare_repo(tmp_path, FILES)
    git(tmp_path, "clone", "--quiet", str(repo), str(tmp_path / "clone"))
    git(tmp_path / "clone", "remote", "set-url", "origin", "https://git.example/fleet.git")
    return tmp_path / "clone"


@pytest.mark.parametrize("path", ["releases/web.yaml", "top.yaml"])
def test_a_file_in_a_clone_is_located(clone: Path, door: Git, path: str) -> None:
    assert locate(str(clone / path), door) == Located("https://git.example/fleet.git", "main", path)


def test_a_relative_path_is_located(
    clone: Path, door: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(clone / "releases")
    assert locate("web.yaml", door) == Located(
        "https://git.example/fleet.git", "main", "releases/web.yaml"
    )


def test_a_detached_checkout_has_no_branch(clone: Path, door: Git) -> None:
    git(clone, "checkout", "--quiet", "--detach")
    assert locate(str(clone / "top.yaml"), door) == Located(
        "https://git.example/fleet.git", "", "top.yaml"
    )


def test_a_branch_name_with_a_slash_is_read(clone: Path, door: Git) -> None:
    git(clone, "checkout", "--quiet", "-b", "env/prod")
    assert locate(str(clone / "top.yaml"), door) == Located(
        "https://git.example/fleet.git", "env/prod", "top.yaml"
    )


def test_a_symbolic_link_resolves_to_the_file_to_edit(
    clone: Path, door: Git, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere.yaml").symlink_to(clone / "releases" / "web.yaml")
    found = locate(str(tmp_path / "elsewhere.yaml"), door)
    assert found == Located("https://git.example/fleet.git", "main", "releases/web.yaml")


def test_a_file_in_a_linked_work_tree_is_located(clone: Path, door: Git, tmp_path: Path) -> None:
    git(clone, "worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
    found = locate(str(tmp_path / "side" / "top.yaml"), door)
    assert found == Located("https://git.example/fleet.git", "side", "top.yaml")


def test_a_relative_origin_url_is_resolved(clone: Path, door: Git, tmp_path: Path) -> None:
    git(clone, "remote", "set-url", "origin", "../repo.git")
    assert locate(str(clone / "top.yaml"), door) == Located(
        str(tmp_path / "repo.git"), "main", "top.yaml"
    )


def test_a_file_outside_of_a_repository_has_no_location(
    clone: Path, door: Git, tmp_path: Path
) -> None:
    (tmp_path / "alone.yaml").write_text("")
    assert locate(str(tmp_path / "alone.yaml"), door) is None
    assert locate("stdin", door) is None
    git(clone, "remote", "remove", "origin")
    assert locate(str(clone / "top.yaml"), door) is None


def test_a_repository_without_commits_has_no_location(door: Git, tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", str(tmp_path / "new"))
    git(tmp_path / "new", "remote", "add", "origin", "https://git.example/fleet.git")
    (tmp_path / "new" / "top.yaml").write_text("")
    assert locate(str(tmp_path / "new" / "top.yaml"), door) is None


def test_git_is_called_once_per_work_tree(clone: Path, door: Git) -> None:
    for path in ("top.yaml", "releases/web.yaml", "top.yaml"):
        locate(str(clone / path), door)
    assert door.calls == ["config", "rev-parse"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_work_tree_owned_by_another_user_is_located(clone: Path, door: Git) -> None:
    os.chown(clone, 12345, 12345)
    os.chown(clone / ".git", 12345, 12345)
    assert locate(str(clone / "top.yaml"), door) == Located(
        "https://git.example/fleet.git", "main", "top.yaml"
    )
