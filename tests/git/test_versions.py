"""The versions of many files and the commits that wrote them, in realistic histories."""

import os
from pathlib import Path

import pytest
from support import bare_repo, commit, git
from support.git_histories import FILE, git_of_a_run
from support.git_servers import git_server

from task.errors import SourceError
from task.git.command import Git
from task.git.repository.bare import BareRepository
from task.git.repository.history import versions_of
from task.git.repository.remote import Remote
from task.model import FileVersion, Place


def written(repo: Path, *paths: str, most: int = 10, commits: int = 500) -> list[list[FileVersion]]:
    """Return the versions of each file."""
    remote = Remote(git_of_a_run(FILE), str(repo))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("task.git.repository.history.COMMITS", commits)
        try:
            found = list(versions_of(remote, "main", [paths[:1], paths], most))
        finally:
            remote.close()
    assert found[0] == {path: found[1][path] for path in paths[:1]}
    return [list(found[1][path]) for path in paths]


def texts(versions: list[FileVersion]) -> list[str | None]:
    return [one.text for one in versions]


def test_each_version_names_the_commit_that_wrote_it(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {"a/x": "1", "b/y": "1"})
    first = git(repo, "rev-parse", "main")
    second = commit(repo, {"a/x": "2"})
    commit(repo, {"README": "of something else"})
    third = commit(repo, {"b/y": "2"})
    fourth = commit(repo, {"a/x": "1"})
    x, y, none = written(repo, "a/x", "b/y", "c/z")
    assert [(one.text, one.commit) for one in x] == [("1", fourth), ("2", second), ("1", first)]
    assert [(one.text, one.commit) for one in y] == [("2", third), ("1", first)]
    assert none == []
    assert x[0].by == "Tests"
    assert x[0].at.endswith("Z")
    assert x[0].message.strip()
    assert texts(written(repo, "a/x", most=2)[0]) == ["1", "2"]


def test_a_version_older_than_the_fetched_history_names_no_commit(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {"a": "1"})
    commits = [commit(repo, {"a" if number == 2 else "b": str(number)}) for number in range(6)]
    found = written(repo, "a", commits=5)[0]
    assert [(one.text, bool(one.commit)) for one in found] == [("2", True), ("1", False)]
    assert found[0].commit == commits[2]


def test_a_merged_version_names_the_commit_on_the_merged_branch(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {"a": "1", "b": "1"})
    git(repo, "branch", "request", "main")
    proposed = commit(repo, {"a": "2"}, branch="request")
    commit(repo, {"c": "later, on the same branch"}, branch="request")
    commit(repo, {"b": "2"})
    tree = git(repo, "merge-tree", "--write-tree", "main", "request")
    merge = git(
        repo, "commit-tree", tree, "-p", "main", "-p", "request", "-m", "Merge pull request #1"
    )
    git(repo, "update-ref", "refs/heads/main", merge)
    now = written(repo, "a")[0][0]
    assert (now.text, now.commit) == ("2", proposed)


def test_a_deleted_or_binary_file_has_no_text(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {"a": "1", "b": b"\0"})
    commit(repo, {"a": None})
    commit(repo, {"a": "2"})
    a, b = written(repo, "a", "b")
    assert (texts(a), texts(b)) == (["2", None, "1"], [None])


def test_a_file_that_was_replaced_by_a_folder_has_no_versions(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {"a": "1"})
    commit(repo, {"a": None})
    commit(repo, {"a/b": "2"})
    assert [texts(one) for one in written(repo, "a", "a/b")] == [[], ["2"]]


@pytest.mark.servers
@pytest.mark.parametrize("allowed", ["true", "false"])
def test_versions_are_read_over_http_with_and_without_filters(tmp_path: Path, allowed: str) -> None:
    repo = bare_repo(tmp_path, {"a": "1", "large": "x" * 100_000})
    for number in range(2, 5):
        commit(repo, {"a": str(number)})
    git(repo, "config", "http.receivepack", "true")
    git(repo, "config", "uploadpack.allowFilter", allowed)
    with git_server(tmp_path) as server:
        for _ in range(2):
            with BareRepository(
                Git(os.environ), f"{server.url}repo.git", cache_dir=str(tmp_path / "kept")
            ) as store:
                store.snapshot("main", [Place("a")])
                (found,) = store.written("main", [["a", "no"]], 3)
                assert (texts(list(found["a"])), list(found["no"])) == (["4", "3", "2"], [])


def test_the_versions_in_a_sha256_repository_are_read(tmp_path: Path) -> None:
    git(
        tmp_path,
        "init",
        "--quiet",
        "--bare",
        "--object-format=sha256",
        "--initial-branch=main",
        "repo.git",
    )
    repo = tmp_path / "repo.git"
    commit(repo, {"a/b": "1"})
    second = commit(repo, {"a/b": "2"})
    found = written(repo, "a/b")[0]
    assert [one.text for one in found] == ["2", "1"]
    assert found[0].commit == second


def test_reading_versions_on_a_missing_branch_causes_a_source_error(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {"a": "1"})
    with (
        BareRepository(git_of_a_run(FILE), str(repo)) as store,
        pytest.raises(SourceError),
    ):
        list(store.written("no-such-branch", [["a"]], 1))
