"""What `rollback --to previous` finds, whatever the history looks like."""

from pathlib import Path
from typing import Any

import pytest
from runs import WEB, application, manifest, repository, target
from support import commit, git, image_update, show

DIGEST = "sha256:" + "a" * 64


def text(tag: str, prefix: str = "") -> str:
    return f"{prefix}resources: []\nimages:\n- name: ghcr.io/acme/web\n  newTag: {tag}\n"


def roll_back(apps: Path, to: str = "previous", code: int = 0) -> Any:
    given = ("--applications", str(apps), "--allow-protocol", "file", "--output", "json")
    result = image_update("rollback", "a", "--to", to, *given)
    assert result.code == code, result.stderr
    return result.json


def value(repo: Path, path: str = target("a")) -> str:
    return show(repo, "main", path).partition("newTag: ")[2].partition("\n")[0].strip("\"'")


def scene(folder: Path, *texts: str) -> tuple[Path, Path]:
    """A repository with these texts, one commit after the other, and its Application."""
    repo = repository(folder, "a")
    for one in texts:
        commit(repo, {target("a"): one})
    return repo, manifest(folder, application("a", repo))


def test_after_a_revert_it_is_what_was_reverted(tmp_path: Path) -> None:
    repo, apps = scene(tmp_path, text("1.1.0"), text("1.2.0"), text("1.1.0"))
    roll_back(apps)
    assert value(repo) == "1.2.0"


def test_commits_that_leave_the_value_are_passed_over(tmp_path: Path) -> None:
    repo, apps = scene(tmp_path, text("1.1.0"), text("1.2.0"), text("1.2.0", "# a note\n"), text("1.2.0", "# two\n"))
    commit(repo, {"README": "x"})
    roll_back(apps)
    assert value(repo) == "1.1.0"
    assert show(repo, "main", target("a")).startswith("# two\n")


def test_a_merge_is_one_step(tmp_path: Path) -> None:
    repo, apps = scene(tmp_path, text("1.1.0"))
    git(repo, "branch", "side", "main")
    for tag in ("1.1.5", "1.2.0"):
        commit(repo, {target("a"): text(tag)}, branch="side")
    commit(repo, {"README": "x"})
    tree = git(repo, "merge-tree", "--write-tree", "main", "side").splitlines()[0]
    env = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    merge = git(repo, *env, "commit-tree", tree, "-p", "main", "-p", "side", "-m", "Merge")
    git(repo, "update-ref", "refs/heads/main", merge)
    assert value(repo) == "1.2.0"
    roll_back(apps)
    assert value(repo) == "1.1.0"


def test_a_squashed_request_is_one_step(tmp_path: Path) -> None:
    repo, apps = scene(tmp_path, text("1.1.0"), text("1.4.0"))
    roll_back(apps)
    assert value(repo) == "1.1.0"


def test_a_renamed_file_keeps_its_history(tmp_path: Path) -> None:
    repo = repository(tmp_path, "old")
    for tag in ("1.1.0", "1.2.0"):
        commit(repo, {target("old"): text(tag, "# of the web\nnamePrefix: x-\nnamespace: web\n")})
    commit(repo, {target("old"): None, target("a"): show(repo, "main", target("old"))})
    roll_back(manifest(tmp_path, application("a", repo)))
    assert value(repo) == "1.1.0"


def test_a_text_that_was_broken_is_passed_over(tmp_path: Path) -> None:
    repo, apps = scene(tmp_path, text("1.1.0"), "images: [broken\n", text("1.2.0"))
    roll_back(apps)
    assert value(repo) == "1.1.0"


def test_a_head_branch_that_was_forced_has_no_history_of_its_own(tmp_path: Path) -> None:
    repo = repository(tmp_path, "a")
    apps = manifest(tmp_path, application("a", repo, git_branch="main:updates"))
    for tag in ("1.1.0", "1.2.0"):
        commit(repo, {target("a"): text(tag)})
    given = ("--applications", str(apps), "--allow-protocol", "file")
    for tag in ("1.3.0", "1.4.0"):  # the second replaces the first on the head branch
        assert image_update("run", "--image", f"{WEB}:{tag}", *given).code == 0
    roll_back(apps)
    assert "newTag: 1.1.0" in show(repo, "updates", target("a"))
    assert git(repo, "rev-list", "--count", "main..updates") == "1"


def test_a_shallow_server_ends_where_it_ends(tmp_path: Path) -> None:
    full, _ = scene(tmp_path, text("1.1.0"), text("1.2.0"), text("1.3.0"))
    shallow = tmp_path / "shallow.git"
    git(tmp_path, "clone", "--quiet", "--bare", "--depth", "2", f"file://{full}", str(shallow))
    git(shallow, "config", "uploadpack.allowFilter", "true")
    git(shallow, "config", "uploadpack.allowAnySHA1InWant", "true")
    apps = manifest(tmp_path, application("a", shallow))
    roll_back(apps)
    assert value(shallow) == "1.2.0"
    found = roll_back(apps, "5-back", code=3)["decisions"][0]
    assert found["rule"] == "target"


def test_digests_come_back_with_their_tags(tmp_path: Path) -> None:
    old = f"images:\n- name: ghcr.io/acme/web\n  newTag: 1.1.0\n  digest: {DIGEST}\n"
    repo, apps = scene(tmp_path, old, old.replace("1.1.0", "1.2.0").replace("a" * 64, "b" * 64))
    roll_back(apps)
    assert show(repo, "main", target("a")) == old


@pytest.mark.parametrize("to", ["1.1.0", "9.9.9"])
def test_a_tag_need_not_stand_in_the_history(tmp_path: Path, to: str) -> None:
    repo, apps = scene(tmp_path, text("1.1.0"), text("1.2.0"))
    roll_back(apps, to)
    assert value(repo) == to
