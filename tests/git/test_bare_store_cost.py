"""The cost of a run in git processes and bytes. Seconds are measured by `make bench`."""

import os
from pathlib import Path

import pytest
from support import bare_repo, commit

from task.errors import Outpaced
from task.git.command import Git
from task.git.repository.bare import BareRepository
from task.model import Changeset, File, Person, Place

VALUES = "apps/team1/app1/values.yaml"


@pytest.fixture(scope="module")
def repos(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Return two repositories, with 100 and with 10,000 files."""
    folder = tmp_path_factory.mktemp("cost")
    return {
        teams * 100: bare_repo(
            folder,
            {
                f"apps/team{t}/app{n}/{name}.yaml": f"{t} {n} {name}\n" + os.urandom(500).hex()
                for t in range(teams)
                for n in range(20)
                for name in ("values", "a", "b", "c", "d")
            },
            name=f"{teams}.git",
        )
        for teams in (2, 100)
    }


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def bytes_of_a_run(git: Git, repo: Path, folder: Path, between: Path | None = None) -> int:
    """Read, edit, and land a change. Return the number of bytes on disk at the end."""
    with BareRepository(git, str(repo)) as store:
        for _ in range(2):
            snapshot = store.snapshot("main", [Place(VALUES)])
            if between:
                commit(between, {"README.md": os.urandom(9).hex()})
                between = None
            files = {VALUES: File(snapshot.files[VALUES].text + "# changed\n")}
            destination = (str(repo), "main", "main")
            try:
                store.land(
                    Changeset(
                        *destination, snapshot.tip, files, "Change", Person("T", "t@example.com")
                    )
                )
            except Outpaced:
                continue
            return size(folder)
    raise AssertionError("never landed")


@pytest.mark.usefixtures("large")
def test_a_larger_repository_needs_no_more_processes_and_no_other_files(
    repos: dict[int, Path], tmp_path: Path
) -> None:
    figures = {}
    for files, repo in repos.items():
        folder = tmp_path / str(files)
        folder.mkdir()
        git = Git({**os.environ, "TMPDIR": str(folder)}, protocols=frozenset({"file"}))
        figures[files] = (bytes_of_a_run(git, repo, folder), git.calls)
    # One process each for the tip with its trees, the reader, the file, the commit, and the push.
    expected = ["fetch", "cat-file", "fetch", "fast-import", "push"]
    assert [calls for _, calls in figures.values()] == [expected, expected]
    assert all(used < 700_000 for used, _ in figures.values())  # only trees
    assert size(repos[10_000]) > 5_000_000


def test_a_lost_race_fetches_only_the_new_tip(repos: dict[int, Path], tmp_path: Path) -> None:
    git = Git({**os.environ, "TMPDIR": str(tmp_path)}, protocols=frozenset({"file"}))
    bytes_of_a_run(git, repos[200], tmp_path, between=repos[200])
    first = ["fetch", "cat-file", "fast-import", "push"]
    assert git.calls == [
        *first,
        "fetch",
        "fast-import",
        "push",
    ]  # the other writer changed a different file, so only the tip is new


def test_planning_sends_nothing(repos: dict[int, Path]) -> None:
    git = Git(os.environ, protocols=frozenset({"file"}))
    with BareRepository(git, str(repos[200])) as store:
        snapshot = store.snapshot("main", [Place(VALUES)])
        files = {VALUES: File("x\n")}
        destination = (str(repos[200]), "main", "main")
        store.predict(
            Changeset(*destination, snapshot.tip, files, "Change", Person("T", "t@example.com"))
        )
    assert git.calls[-1] == "fast-import"
    assert "push" not in git.calls
