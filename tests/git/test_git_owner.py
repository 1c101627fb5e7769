"""Local repositories: git runs their hooks, so repositories owned by other users are rejected."""

import json
import os
from pathlib import Path

import pytest
from support import bare_repo, git, image_update
from support.runs import application, arguments, hook, manifest, repository

from task.errors import RepositoryError
from task.git.ancestry import Lineage
from task.git.command import Git
from task.git.environment import is_safe, owned_by_another
from task.git.repository.bare import BareRepository
from task.model import File, Place

ROOT_ONLY = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can give a repository to another user"
)
FILE = frozenset({"file"})
SOMEBODY = 12345


def give_away(folder: Path) -> None:
    """Make another user the owner of a folder and of everything in it."""
    for place, _, names in os.walk(folder):
        for path in (place, *(os.path.join(place, name) for name in names)):
            os.chown(path, SOMEBODY, SOMEBODY)


@pytest.mark.parametrize(
    ("said", "safe"),
    [
        ([], False),
        (["*"], True),
        (["*", ""], False),
        (["", "/srv/x.git"], True),
        (["/srv/x.git/"], True),
        (["/srv"], False),
        (["/srv/*"], True),
        (["/s*"], False),
        (["~/x"], False),
    ],
)
def test_safe_directory_entries_match_as_in_git(said: list[str], safe: bool) -> None:
    assert is_safe("/srv/x.git", said, "/home/me") is safe


def test_a_safe_directory_entry_may_name_a_work_tree_in_the_home_folder() -> None:
    assert is_safe("/home/me/x/.git", ["~/x"], "/home/me")


@ROOT_ONLY
@pytest.mark.parametrize("asked", ["repo.git", "repo", "work", "work/.git", "linked"])
def test_a_repository_owned_by_another_user_is_recognized(tmp_path: Path, asked: str) -> None:
    bare_repo(tmp_path, {"a": "b"})
    git(tmp_path, "clone", "--quiet", "repo.git", "work")
    git(tmp_path / "work", "worktree", "add", "--quiet", "-b", "side", str(tmp_path / "linked"))
    path = str(tmp_path / asked)
    assert owned_by_another(path, {}) == ""
    for name in ("repo.git", "work"):
        give_away(tmp_path / name)
    assert owned_by_another(path, {}).startswith(str(tmp_path))
    assert owned_by_another(path, {"SUDO_UID": str(SOMEBODY)}) == ""
    assert owned_by_another(str(tmp_path / "none"), {}) == ""


@ROOT_ONLY
def test_hooks_of_another_user_are_not_run(tmp_path: Path) -> None:
    repo = repository(tmp_path, "a")
    ran = tmp_path / "ran"
    hook(repo, "pre-receive", f"touch {ran}")
    give_away(repo)
    apps = manifest(tmp_path, application("a", f"file://{repo}"))
    done = image_update(*arguments(apps))
    (error,) = json.loads(done.stdout)["errors"]
    assert (done.code, error["rule"], ran.exists()) == (4, "repository", False)
    assert "git does not trust this local repository: another user owns it" in error["message"]
    assert f"safe.directory {repo}" in error["hint"]
    (tmp_path / ".gitconfig").write_text(f"[safe]\n\tdirectory = {repo}\n")
    done = image_update(*arguments(apps), env={"HOME": str(tmp_path)})
    assert (done.code, ran.exists()) == (0, True), done.stderr


def test_hooks_in_our_own_repository_are_run(tmp_path: Path) -> None:
    repo = repository(tmp_path, "a")
    hook(repo, "pre-receive", "echo never on Fridays >&2; exit 1")
    done = image_update(*arguments(manifest(tmp_path, application("a", repo))))
    assert done.code == 4
    assert "never on Fridays" in json.loads(done.stdout)["errors"][0]["message"]


@ROOT_ONLY
def test_the_order_is_unknown_for_a_source_repository_owned_by_another_user(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {"a": "1"})
    give_away(repo)
    lineage = Lineage(Git(os.environ, protocols=FILE))
    kin = lineage.order(str(repo), "1" * 40, "2" * 40)
    lineage.close()
    assert kin.order == "unknown"
    assert "another user" in kin.why


@ROOT_ONLY
@pytest.mark.parametrize("configured", [True, False])
def test_safe_directories_apply_unless_git_configuration_is_disabled(
    tmp_path: Path, configured: bool
) -> None:
    repo = bare_repo(tmp_path, {"a": "b"})
    give_away(repo)
    said = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }
    door = Git({**os.environ, **said}, protocols=FILE, configured=configured)
    if not configured:
        with pytest.raises(RepositoryError, match="another user"):
            BareRepository(door, str(repo))
        return
    with BareRepository(door, str(repo)) as store:
        assert store.snapshot("main", [Place("a")]).files == {"a": File("b")}
