"""Folders with the same content have the same ID, but each is read and written.

In a fetch by ID with a tree filter, Git 2.39 loses a tree that is also a child of another
requested tree.
"""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import bare_repo, git, show
from support.git_servers import git_server

from task.git.command import Git
from task.git.repository.bare import BareRepository
from task.model import Changeset, File, Person, Place

pytestmark = pytest.mark.usefixtures("large")  # a small repository is fetched in full
FILES = ("values.yaml", "kustomization.yaml")


def update(url: str, paths: list[str]) -> str:
    """Change all of these files in one commit, and return the commit ID."""
    with BareRepository(Git(os.environ, protocols=frozenset({"file"})), url) as store:
        snapshot = store.snapshot("main", [Place(path) for path in paths])
        files = {path: File(f"{snapshot.files[path].text}# new\n") for path in paths}
        destination = (url, "main", "main")
        return store.land(
            Changeset(*destination, snapshot.tip, files, "x", Person("T", "t@example.com"))
        ).commit


@pytest.mark.parametrize("depth_of_tree_filters", ["0", "100"])
def test_equal_folders_at_different_depths_are_both_read(
    tmp_path: Path, depth_of_tree_filters: str
) -> None:
    repo = bare_repo(
        tmp_path, {"dev/values.yaml": "tag: 1\n", "team-a/dev/values.yaml": "tag: 1\n"}
    )
    git(repo, "config", "uploadpackfilter.tree.maxDepth", depth_of_tree_filters)
    git(repo, "config", "http.receivepack", "true")
    with git_server(tmp_path) as server:
        commit = update(f"{server.url}repo.git", ["dev/values.yaml", "team-a/dev/values.yaml"])
    assert git(repo, "rev-parse", "main") == commit
    assert [show(repo, "main", path) for path in ("dev/values.yaml", "team-a/dev/values.yaml")] == [
        "tag: 1\n# new\n"
    ] * 2


PATHS = st.lists(st.sampled_from(["dev", "prod", "a", "b"]), max_size=3).map("/".join)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.data())
def test_repositories_with_equal_folders_are_updated_correctly(data: st.DataObject) -> None:
    folders = data.draw(st.sets(PATHS, min_size=2, max_size=8))
    paths = sorted(f"{folder}/{name}".lstrip("/") for folder in folders for name in FILES)
    texts = data.draw(
        st.lists(st.sampled_from(["1\n", "2\n"]), min_size=len(paths), max_size=len(paths))
    )
    wanted = data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=4, unique=True))
    contents = dict(zip(paths, texts, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        repo = bare_repo(Path(folder), dict(contents))
        update(str(repo), wanted)
        expected = {
            path: f"{text}# new\n" if path in wanted else text for path, text in contents.items()
        }
        assert {path: show(repo, "main", path) for path in paths} == expected
        assert git(repo, "fsck", "--strict", "--no-dangling") == ""
