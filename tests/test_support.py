"""The test helpers do what tests rely on them to do."""

import os
from pathlib import Path

import pytest
import support
from support import Link, bare_repo, changed_paths, commit, git, show


def test_a_bare_repository_stores_every_byte(tmp_path: Path) -> None:
    repo = bare_repo(
        tmp_path, {'odd "name"\n.yaml': "a: 1\r\nb", "é/x": b"\x00\xff", "link": Link("é/x")}
    )
    assert show(repo, "main", 'odd "name"\n.yaml') == "a: 1\r\nb"
    assert git(repo, "ls-tree", "main", "link").startswith("120000")


def test_each_commit_follows_the_previous_commit(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {"a": "1", "b": "1"})
    commit(repo, {"a": "2", "b": None}, message="Second")
    assert git(repo, "log", "--format=%s", "main") == "Second\nStart"
    assert changed_paths(repo) == ["a", "b"]
    assert git(repo, "ls-tree", "--name-only", "main") == "a"


def test_settings_of_the_machine_do_not_reach_the_tests(tmp_path: Path) -> None:
    known = {"IMAGE_UPDATE_REGISTRY_CHECK"}  # set by us, so that no test queries a real registry
    of_a_host = ("GITHUB_", "CI_", "IMAGE_UPDATE_", "SSH_")
    assert not [name for name in set(os.environ) - known if name.startswith(of_a_host)]
    settings = git(bare_repo(tmp_path, {}), "config", "--show-scope", "--list").splitlines()
    assert {line.split("\t")[0] for line in settings} == {"local"}


@pytest.mark.parametrize(
    ("in_ci", "outcome"), [(True, pytest.fail.Exception), (False, pytest.skip.Exception)]
)
def test_a_missing_program_fails_the_test_only_in_ci(
    *, in_ci: bool, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(support, "IN_CI", in_ci)
    with pytest.raises(outcome, match="no-such-program is not here"):
        support.needs("no-such-program")
