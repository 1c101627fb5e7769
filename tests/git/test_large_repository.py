"""If a repository turns out to be large while being fetched with its files, they are left out."""

import os
from pathlib import Path

import pytest
from support import bare_repo, commit, git

from task.git.command import Git
from task.git.repository.bare import BareRepository
from task.model import File, Place

FILES = {
    "apps/web/values.yaml": "tag: v1\n",
    "apps/large.yaml": "x" * 70_000,
    "README.md": "read me\n",
}
# Before sending a pack, a git server reports the number of objects. This fake server then pauses.
HOOK = """\
#!/bin/sh
case "$*" in *blob:limit*) printf 'Enumerating objects: %s\\r' {count} >&2; sleep {pause};; esac
exec "$@"
"""


def serve(folder: Path, monkeypatch: pytest.MonkeyPatch, count: int, pause: float) -> Path:
    """Return a repository on a server that reports this number of objects in a fetch with files."""
    repo, hook = bare_repo(folder, FILES), folder / "hook"
    hook.write_text(HOOK.format(count=count, pause=pause))
    hook.chmod(0o755)
    served = f'\tuploadpack = "git -c uploadpack.allowFilter=true -c uploadpack.packObjectsHook={hook} upload-pack"\n'
    monkeypatch.setattr("task.git.repository.bare_folder._LOCAL", served)
    return repo


@pytest.mark.parametrize(("count", "fetches"), [(40_000, 1), (40_001, 3)])
def test_the_object_count_from_the_server_decides_whether_files_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, fetches: int
) -> None:
    repo = serve(tmp_path, monkeypatch, count, pause=0 if fetches == 1 else 600)
    git_door = Git(os.environ, protocols=frozenset({"file"}))
    with BareRepository(git_door, str(repo)) as store:
        snapshot = store.snapshot("main", [Place("apps/web/values.yaml")])
    assert snapshot.files == {"apps/web/values.yaml": File("tag: v1\n")}
    assert git_door.calls.count("fetch") == fetches


def test_only_the_first_fetch_decides_whether_a_repository_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects that were fetched are kept, whatever the server reports in a later fetch."""
    repo = serve(tmp_path, monkeypatch, 5, pause=0)
    git_door = Git(os.environ, protocols=frozenset({"file"}))
    with BareRepository(git_door, str(repo)) as store:
        store.snapshot("main", [Place("apps/web/values.yaml")])
        commit(repo, {"README.md": "new\n"})
        (tmp_path / "hook").write_text(HOOK.format(count=50_000, pause=1))
        files = store.snapshot("main", [Place("apps/web/values.yaml"), Place("README.md")]).files
    assert {path: file.text for path, file in files.items()} == {
        "apps/web/values.yaml": "tag: v1\n",
        "README.md": "new\n",
    }
    assert git_door.calls.count("fetch") == 2


def test_a_large_file_in_a_small_repository_is_fetched_only_if_it_is_needed(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, FILES)
    git_door = Git(os.environ, protocols=frozenset({"file"}))
    with BareRepository(git_door, str(repo)) as store:
        assert store.snapshot("main", [Place("README.md")]).files["README.md"].text == "read me\n"
        assert git_door.calls.count("fetch") == 1
        assert (
            store.snapshot("main", [Place("apps/large.yaml")]).files["apps/large.yaml"].text
            == "x" * 70_000
        )
    assert git_door.calls.count("fetch") == 3


def test_a_failure_shows_no_progress_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = serve(tmp_path, monkeypatch, 5, pause=0)
    git(repo, "config", "uploadpack.hideRefs", "refs/heads")
    lines: list[str] = []
    with (
        BareRepository(
            Git(os.environ, protocols=frozenset({"file"}), log=lines.append), str(repo)
        ) as store,
        pytest.raises(Exception, match="main") as caught,
    ):
        store.snapshot("main", [Place("README.md")])
    assert "Enumerating" not in f"{caught.value}{lines}"
