"""Trees in Git's storage format, and malicious trees that expand to far more data than was sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from task.errors import SourceError
from task.git.repository.objects import TreeEntry, differing, find_entries, parse_tree
from task.model import Place

TREE = "040000"


@pytest.mark.slow
def test_a_tree_that_expands_to_ten_billion_files_is_refused() -> None:
    trees = {
        str(level): {name: TreeEntry(TREE, str(level + 1)) for name in "0123456789"}
        for level in range(10)
    }
    trees["10"] = {"a.yaml": TreeEntry("100644", "blob")}
    with pytest.raises(SourceError, match="apps has more than 500000 files and folders") as caught:
        list(
            find_entries(
                {"root": {"apps": TreeEntry(TREE, "0")}, **trees}.__getitem__,
                "root",
                Place("apps", "tree"),
            )
        )
    assert caught.value.hint


@pytest.mark.slow
def test_deeply_nested_folders_are_read_only_to_a_limited_depth() -> None:
    """A pack of a few megabytes can contain so many that their paths have a billion characters."""
    trees = {str(level): {"a": TreeEntry(TREE, str(level + 1))} for level in range(100_000)}
    trees |= {
        "100000": {"a.yaml": TreeEntry("100644", "deep")},
        "10": {"a": TreeEntry(TREE, "11"), "b.yaml": TreeEntry("100644", "x")},
    }
    assert [path for path, _, _ in find_entries(trees.__getitem__, "0", Place("", "tree"))] == [
        "a/" * 10 + "b.yaml"
    ]


def raw(*entries: tuple[str, str, int]) -> bytes:
    """Return a tree in Git's storage format. Each number is the first byte of an object ID."""
    return b"".join(
        f"{mode} {name}\0".encode() + bytes([number]) * 20 for mode, name, number in entries
    )


def test_trees_are_parsed_and_broken_trees_are_rejected() -> None:
    odd = raw(("100644", "a b", 10), ("40000", "ä", 32), ("120000", "link", 0))
    assert parse_tree(odd, 20) == {
        "a b": TreeEntry("100644", "0a" * 20),
        "ä": TreeEntry(TREE, "20" * 20),
        "link": TreeEntry("120000", "00" * 20),
    }
    assert parse_tree(b"", 20) == {}
    for broken in (odd[:-1], odd + b"1", b"100644 a", b" \0" + b"x" * 20):
        with pytest.raises(ValueError, match="not a tree"):
            parse_tree(broken, 20)


ENTRIES = st.dictionaries(st.text("abc", min_size=1, max_size=2), st.integers(0, 3), max_size=6)


@given(ENTRIES, ENTRIES)
def test_the_difference_of_two_trees_contains_the_entries_found_on_only_one_side(
    one: dict[str, int], other: dict[str, int]
) -> None:
    trees = [
        raw(*(("100644", name, number) for name, number in sorted(of.items())))
        for of in (one, other)
    ]
    ours, theirs = (dict(parse_tree(tree, 20)) for tree in trees)
    found = differing(trees[0], trees[1], 20)
    assert found[0] == {name: entry for name, entry in ours.items() if theirs.get(name) != entry}
    assert found[1] == {name: entry for name, entry in theirs.items() if ours.get(name) != entry}
