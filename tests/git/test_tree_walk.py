"""Trees that mean harm: what they stand for is far more than what was sent."""

import pytest

from task.errors import SourceError
from task.git.repository.tree_walk import TreeEntry, look
from task.model import Place

TREE = "040000"


def test_a_tree_that_stands_for_ten_billion_files() -> None:
    trees = {str(level): {name: TreeEntry(TREE, str(level + 1)) for name in "0123456789"} for level in range(10)}
    trees["10"] = {"a.yaml": TreeEntry("100644", "blob")}
    with pytest.raises(SourceError, match="apps holds more than 500000 files and folders") as caught:
        look({"root": {"apps": TreeEntry(TREE, "0")}, **trees}.__getitem__, "root", [Place("apps", "tree")])
    assert caught.value.hint


def test_folders_that_are_nested_without_end() -> None:
    """As many as a pack of some megabytes holds: their paths would have a billion letters."""
    trees = {str(level): {"a": TreeEntry(TREE, str(level + 1))} for level in range(100_000)}
    trees |= {
        "100000": {"a.yaml": TreeEntry("100644", "deep")},
        "10": {"a": TreeEntry(TREE, "11"), "b.yaml": TreeEntry("100644", "x")},
    }
    assert list(look(trees.__getitem__, "0", [Place("", "tree")]).entries) == ["a/" * 10 + "b.yaml"]
