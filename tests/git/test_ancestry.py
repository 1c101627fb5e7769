"""Which of two source commits comes first, tested with real repositories and servers."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import bare_repo, commit, git
from support.git_histories import PROTOCOLS, chain, git_of_a_run
from support.git_servers import daemon, git_server

from task.git import ancestry as lineage
from task.git.ancestry import Kin, Lineage
from task.git.command import Git
from task.git.repository import bare_folder

NOWHERE = "0123456789" * 4


@contextmanager
def asking(protocols: frozenset[str] = PROTOCOLS) -> Iterator[Lineage]:
    """Yield the lineage object of a run, which compares commits."""
    one = Lineage(git_of_a_run(protocols))
    try:
        yield one
    finally:
        one.close()


def order(repository: str | Path, old: str, new: str) -> Kin:
    with asking() as one:
        return one.order(str(repository), old, new)


def shown(kin: Kin) -> tuple[str, str]:
    return kin.order, kin.why


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository: 120 commits on main, 5 more on a branch `work`, a merge, an orphan."""
    made = bare_repo(tmp_path_factory.mktemp("lineage"), {"app.py": "0\n", "docs/a": "a\n"})
    main = chain(made, 120)
    git(made, "branch", "work", main[99])
    chain(made, 5, "work")
    commit(made, {"other": "x"}, "orphan")
    tree = git(made, "rev-parse", "work^{tree}")
    git(
        made,
        "branch",
        "merged",
        git(made, "commit-tree", tree, "-p", "main", "-p", "work", "-m", "Merge"),
    )
    return made


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("main~1", "main", "newer"),
        ("main", "main~1", "older"),
        ("main~119", "main", "newer"),
        ("main", "main~119", "older"),
        ("main~60", "main~20", "newer"),
        ("main", "main", "same"),
        ("main", "work", "unrelated"),
        ("work", "main", "unrelated"),
        ("main~25", "work", "newer"),
        ("work~5", "main", "newer"),
        ("work", "merged", "newer"),
        ("main", "merged", "newer"),
        ("merged", "work~1", "older"),
        ("orphan", "main", "unrelated"),
    ],
)
def test_the_order_of_two_commits_follows_their_ancestry(
    repo: Path, old: str, new: str, expected: str
) -> None:
    ids = [git(repo, "rev-parse", name) for name in (old, new)]
    assert shown(order(repo, *ids)) == (expected, "")
    assert shown(order(repo, ids[0].upper(), f" {ids[1][:12]}\n")) == (expected, "")


def test_commits_are_compared_over_the_git_protocol(repo: Path) -> None:
    old, new, work = (git(repo, "rev-parse", name) for name in ("main~70", "main", "work"))
    with daemon(repo.parent) as url, asking() as one:
        assert one.order(f"{url}/repo.git", old, new).order == "newer"
        assert one.order(f"{url}/repo.git", new, old).order == "older"
        assert one.order(f"{url}/repo.git", work, new).order == "unrelated"
        assert one.order(f"{url}/repo.git", work[:9], new[:9]).order == "unrelated"


@pytest.mark.parametrize("filters", ["true", "false"])
@pytest.mark.parametrize("protocol", ["0", "2"])
def test_commits_are_compared_over_old_and_new_git_protocols(
    tmp_path: Path, filters: str, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the old protocol, commits cannot be requested by ID, so branches are requested instead."""
    repo = bare_repo(tmp_path, {"app.py": "0\n"})
    ids = chain(repo, 80)
    for name, value in (("allowAnySHA1InWant", "false"), ("allowFilter", filters)):
        git(repo, "config", f"uploadpack.{name}", value)
    old = bare_folder._CONFIG.replace("version = 2", f"version = {protocol}")
    monkeypatch.setattr(bare_folder, "_CONFIG", old)
    with git_server(tmp_path) as server:
        assert shown(order(f"{server.url}repo.git", ids[3], ids[70])) == ("newer", "")
        assert order(f"{server.url}repo.git", ids[70], NOWHERE).order == "unknown"


def test_comparing_commits_fetches_neither_trees_nor_blobs(repo: Path, tmp_path: Path) -> None:
    one = Lineage(Git({**os.environ, "TMPDIR": str(tmp_path)}, protocols=PROTOCOLS))
    try:
        assert (
            one.order(str(repo), *git(repo, "rev-parse", "main~100", "main").split()).order
            == "newer"
        )
        folder = next(tmp_path.iterdir())
        assert set(
            git(folder, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype)").split()
        ) == {"commit"}
    finally:
        one.close()
    assert not list(tmp_path.iterdir())


def test_comparing_the_same_commits_again_runs_no_git_command(repo: Path) -> None:
    door = git_of_a_run()
    one = Lineage(door)
    try:
        ids = git(repo, "rev-parse", "main~3", "main").split()
        first = one.order(str(repo), *ids)
        calls = len(door.calls)
        assert one.order(str(repo), *ids) == first
        assert len(door.calls) == calls
    finally:
        one.close()


def test_a_shallow_server_may_leave_the_order_unknown(repo: Path, tmp_path: Path) -> None:
    git(
        tmp_path,
        "clone",
        "--quiet",
        "--bare",
        "--depth=3",
        "--no-single-branch",
        f"file://{repo}",
        "shallow.git",
    )
    url = f"file://{tmp_path}/shallow.git"
    main, before, work = git(repo, "rev-parse", "main", "main~2", "work").split()
    assert order(url, before, main).order == "newer"
    found = order(url, work, main)
    assert found.order == "unknown"
    assert work[:12] in found.why


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (NOWHERE, "main", "commit 012345678901 not found"),
        ("main", NOWHERE, "commit 012345678901 not found"),
        ("main", "0123456", "commit 0123456 is not on any branch or tag"),
        ("main", "--upload-pack=evil", "is not a commit id"),
        ("main", "refs/heads/main", "is not a commit id"),
        ("main", "abc", "is not a commit id"),
        ("main", "", "is not a commit id"),
    ],
)
def test_the_order_of_missing_or_invalid_commits_is_unknown(
    repo: Path, old: str, new: str, why: str
) -> None:
    ids = [git(repo, "rev-parse", name) if name == "main" else name for name in (old, new)]
    found = order(repo, *ids)
    assert found.order == "unknown"
    assert why in found.why


def test_the_order_of_an_ambiguous_short_id_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = bare_repo(tmp_path, {"app.py": "0\n"})
    ids = chain(repo, 40)
    monkeypatch.setattr(lineage, "_COMMIT", re.compile("[0-9a-f]{1,64}"))
    first = next(one for one in ids if sum(other[0] == one[0] for other in ids) > 1)[0]
    assert "more than one commit id starts with it" in order(repo, first, ids[0]).why


@pytest.mark.parametrize(
    ("repository", "why"),
    [
        ("", "pass --source-repository"),
        ("/nowhere/at/all", "was not found"),
        ("https://user:secret@127.0.0.1:1/a.git", "could not be reached"),
        ("ext::sh -c evil", "runs a program"),
        ("--upload-pack=evil", "is not a repository URL"),
        ("ssh://-oProxyCommand=evil/a", "has no host"),
    ],
)
def test_the_order_is_unknown_if_the_repository_cannot_be_read(repository: str, why: str) -> None:
    found = order(repository, NOWHERE, NOWHERE[::-1])
    assert found.order == "unknown"
    assert why in found.why
    assert "secret" not in found.why


def test_local_repositories_must_be_allowed_explicitly(repo: Path) -> None:
    with asking(frozenset()) as one:
        found = one.order(f"file://{repo}", NOWHERE, NOWHERE[::-1])
    assert found.order == "unknown"
    assert "--allow-protocol file" in found.why


def test_missing_credentials_are_reported_and_credentials_in_the_url_are_used(repo: Path) -> None:
    ids = git(repo, "rev-parse", "main~3", "main").split()
    with git_server(repo.parent) as server, asking() as one:
        server.logins = {"jane": "secret"}
        assert "credentials" in one.order(f"{server.url}repo.git", *ids).why
        url = f"{server.url}repo.git".replace("://", "://jane:secret@")
        assert one.order(url, *ids).order == "newer"


def test_commits_in_a_sha256_repository_are_compared(tmp_path: Path) -> None:
    git(
        tmp_path,
        "init",
        "--quiet",
        "--bare",
        "--object-format=sha256",
        "--initial-branch=main",
        "repo.git",
    )
    old = commit(tmp_path / "repo.git", {"a": "1"})
    new = commit(tmp_path / "repo.git", {"a": "2"})
    assert order(tmp_path / "repo.git", old, new).order == "newer"
    assert order(tmp_path / "repo.git", old[:10], new[:10]).order == "newer"
