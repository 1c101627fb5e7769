"""Reading a head branch together with its base: one fetch for the tips, and one for the files."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from support import bare_repo, commit, git

from task.git.command import Git
from task.git.repository.bare import BareRepository
from task.model import Place, Snapshot

HEAD = "image-update/web-0123abcd"
BEFORE, AFTER = "tag: 1.0.0\n", "tag: 1.1.0\n"
PLACES = [Place("web.yaml"), Place("other.yaml")]


def repository(folder: Path, branches: Mapping[str, str]) -> Path:
    """Return a repository with `main` and branches of it, each with its own text in one file."""
    repo = bare_repo(
        folder, {"web.yaml": BEFORE, "other.yaml": "other\n", "far/away.yaml": "far\n"}
    )
    for name, text in branches.items():
        git(repo, "branch", name, "main")
        commit(repo, {"web.yaml": text}, name)
    return repo


def door() -> Git:
    return Git(dict(os.environ), protocols=frozenset({"file"}))


def both(git_door: Git, repo: Path, *, default: bool = False) -> tuple[Snapshot, Snapshot | None]:
    with BareRepository(git_door, str(repo)) as store:
        base = store.snapshot(store.default_branch() if default else "main", PLACES, [HEAD])
        return base, shown(store)


def shown(store: BareRepository, name: str = HEAD) -> Snapshot | None:
    """Return the files of a head branch as read by a run if another author pushed the branch."""
    head = store.head(name)
    return store.read_more(Snapshot("", name, head.tip, {}), PLACES) if head else None


# Branches and their texts, the head branch's text, and the number of fetches: tips, files.
ROWS = [
    ({HEAD: AFTER}, AFTER, 2),
    ({}, None, 2),
    ({HEAD: AFTER, f"{HEAD}-more": "more\n", f"{HEAD[:-1]}e": "e\n"}, AFTER, 2),
    ({f"{HEAD}-more": "more\n", f"{HEAD[:-1]}e": "e\n"}, None, 2),
    ({f"{HEAD}/below": "below\n"}, None, 2),
    ({HEAD: BEFORE}, BEFORE, 2),  # no new files
]


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(("branches", "text", "fetches"), ROWS)
def test_base_and_head_are_read_with_two_fetches(
    tmp_path: Path, branches: Mapping[str, str], text: str | None, fetches: int
) -> None:
    repo, git_door = repository(tmp_path, branches), door()
    base, head = both(git_door, repo)
    assert {path: file.text for path, file in base.files.items()} == {
        "web.yaml": BEFORE,
        "other.yaml": "other\n",
    }
    assert (head.files["web.yaml"].text if head else None) == text
    refs = dict(
        line.split()
        for line in git(repo, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    )
    assert (head.tip if head else None) == refs.get(f"refs/heads/{HEAD}")
    assert git_door.calls.count("fetch") == fetches


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("head", ["b", "team/b"])
def test_other_branches_in_the_same_ref_folder_are_not_fetched(tmp_path: Path, head: str) -> None:
    others = [f"team/{letter}" for letter in "acdef"]
    repo = repository(tmp_path, {name: f"{name}\n" for name in (head, *others, "c")})
    with BareRepository(door(), str(repo)) as store:
        store.snapshot("main", PLACES, [head])
        found = shown(store, head)
        kinds = git(
            Path(store._remote.ready()),
            "cat-file",
            "--batch-all-objects",
            "--batch-check=%(objecttype)",
        )
    assert found is not None
    assert found.files["web.yaml"].text == f"{head}\n"
    assert kinds.split().count("commit") == 2


@pytest.mark.parametrize("setting", ["uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"])
def test_a_head_branch_is_read_from_servers_with_fewer_capabilities(
    tmp_path: Path, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("task.git.repository.bare_folder._LOCAL", "")
    repo = repository(tmp_path, {HEAD: AFTER})
    git(repo, "config", setting, "false")
    _, head = both(door(), repo)
    assert head is not None
    assert head.files["web.yaml"].text == AFTER


def test_cached_branches_may_be_renamed_between_runs(tmp_path: Path) -> None:
    """Between runs, a branch name may become the folder of another branch."""
    repo, kept = repository(tmp_path, {HEAD: AFTER}), str(tmp_path / "kept")
    found = []
    for before, after in (("", HEAD), (HEAD, f"{HEAD}/below"), (f"{HEAD}/below", HEAD)):
        if before:
            git(repo, "branch", "-m", before, after)
            commit(repo, {"web.yaml": f"{after}\n"}, after)
        with BareRepository(door(), str(repo), cache_dir=kept) as store:
            store.snapshot("main", PLACES, [HEAD])
            head = shown(store)
            found.append(head.files["web.yaml"].text if head else None)
    assert found == [AFTER, None, f"{HEAD}\n"]


def test_a_head_branch_is_read_after_the_default_branch(tmp_path: Path) -> None:
    _, head = both(door(), repository(tmp_path, {HEAD: AFTER}), default=True)
    assert head is not None
    assert head.files["web.yaml"].text == AFTER


def test_each_read_returns_the_current_head_branch(tmp_path: Path) -> None:
    repo = repository(tmp_path, {})
    with BareRepository(door(), str(repo)) as store:
        store.snapshot("main", PLACES, [HEAD])
        assert shown(store) is None
        git(repo, "branch", HEAD, "main")
        commit(repo, {"web.yaml": AFTER}, HEAD)
        again = shown(store)  # requested from the server again
        store.snapshot("main", PLACES, [HEAD])
        third = shown(store)
    assert again == third
    assert again is not None
    assert again.files["web.yaml"].text == AFTER
